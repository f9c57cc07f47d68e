//! Why a pod is where it is, in one paragraph: what it waits for, since when, and what to do.
//!
//! Owns which of a pod's waits is worth saying, and the advice. What a container waits for is in the shim's words, as in `podshim ps`.
//! Decides nothing about the pod.

use control_api::container::{GateState, Role, State};
use control_api::event::Cause;

use crate::events::duration;
use crate::past::PastReport;
use crate::pods::{ContainerReport, PodReport, PodState, STOPPING, StopReport, display_name};

/// The paragraph of a pod that a shim serves.
pub fn paragraph(pod: &PodReport) -> String {
    let title = pod.title();
    match pod.state {
        PodState::ShimDead => format!(
            "{title}: its shim is dead. Its containers end as soon as containerd notices, and its kubelet recreates the pod, but not \
             under restartPolicy Never. If it stays like this, containerd does not run: start it."
        ),
        PodState::ShimSilent => format!(
            "{title}: its shim gives no answer ({}). Ask again; if it stays silent, containerd's log has the shim's lines with that pod's id.",
            pod.error.as_deref().unwrap_or("no reason is known")
        ),
        PodState::Completed | PodState::Failed | PodState::Stopped => {
            format!("{title} has ended: {}. {}{}", pod.state.words(), exits(pod), removal(pod))
        }
        PodState::Stopping | PodState::Restarting => stopping(pod),
        PodState::Running => running(pod),
    }
}

/// The paragraph of a pod that is gone.
pub fn of_past(past: &PastReport, now_ms: i64) -> String {
    let ago = rounded(u64::try_from(now_ms - past.ended_at_ms).unwrap_or_default());
    let lived = past.lived_ms().and_then(|lived| u64::try_from(lived).ok());
    let lived = lived.map(|lived| format!(", after {}", rounded(lived))).unwrap_or_default();
    let title = past.pod.title();
    let why = match past.why().as_str() {
        "-" => String::new(),
        why => format!(", because of: {why}"),
    };
    format!(
        "{title} is gone: it ended {ago} ago{lived}: {}{why}. {}`podshim timeline --past {title}` draws its life.",
        past.pod.state.words(),
        exits(&past.pod)
    )
}

/// A time for people: whole seconds are enough.
fn rounded(milliseconds: u64) -> String {
    duration(milliseconds / 1000 * 1000)
}

/// How its containers ended, those with a failure first.
fn exits(pod: &PodReport) -> String {
    let code = |container: &ContainerReport| container.real_exit_code.or(container.shown_exit_code);
    let mut ended: Vec<_> =
        programs(pod).filter_map(|container| Some((code(container)?, container))).collect();
    ended.sort_by_key(|(code, _)| *code == 0);
    let each = ended.iter().map(|(code, container)| {
        let memory = if container.out_of_memory { ", killed by the kernel for memory" } else { "" };
        format!("{} exited with {code}{memory}", quoted(pod, container))
    });
    let each: Vec<_> = each.collect();
    if each.is_empty() { String::new() } else { format!("{}. ", each.join("; ")) }
}

fn removal(pod: &PodReport) -> String {
    format!("It stays until its caller removes it; `podshim timeline {}` draws its life.", pod.title())
}

fn programs(pod: &PodReport) -> impl Iterator<Item = &ContainerReport> {
    pod.containers.iter().filter(|container| container.role != Role::SANDBOX)
}

fn quoted(pod: &PodReport, container: &ContainerReport) -> String {
    format!("{:?}", display_name(&container.name, &pod.id))
}

fn stopping(pod: &PodReport) -> String {
    let what = if pod.state == PodState::Restarting { "restarts in place" } else { "is being stopped" };
    let reason = |stop: &StopReport| {
        let left = stop.left_ms.map(|left| format!(", with {} left", rounded(left)));
        format!(" ({}{})", stop.reason.word(), left.unwrap_or_default())
    };
    let stop = pod.stop.as_ref().map(reason).unwrap_or_default();
    let begin = format!("{} {what}{stop}.", pod.title());
    let is_left = |container: &&ContainerReport| container.pid.is_some() && !container.has_ended();
    let signalled = programs(pod).find_map(|container| Some((container, container.stopping_for_ms?)));
    match signalled {
        Some((container, time)) => {
            let signal = container.stop_signal.as_deref().unwrap_or("a signal");
            let why = container.stop_cause.map(Cause::because).unwrap_or_default();
            let kill = container.kill_in_ms.map(|left| format!("; SIGKILL comes in {}", rounded(left)));
            format!(
                "{begin} It waits for {}, which is {STOPPING} since {signal} {} ago ({why}){}. There is nothing to do, unless it always takes that \
                 long: then its program ignores {signal}, and podshim.io/stop-signal.{} names another one.",
                quoted(pod, container),
                rounded(time),
                kill.unwrap_or_default(),
                container.name
            )
        }
        None => {
            match programs(pod).filter(is_left).map(|container| quoted(pod, container)).collect::<Vec<_>>() {
                left if left.is_empty() => {
                    format!("{begin} Nothing of it runs any more. There is nothing to do.")
                }
                left => {
                    format!(
                        "{begin} Still to end, each in its turn: {}. There is nothing to do.",
                        left.join(", ")
                    )
                }
            }
        }
    }
}

fn running(pod: &PodReport) -> String {
    let title = pod.title();
    if let Some(held) =
        programs(pod).filter(|it| it.state == State::HELD).max_by_key(|it| it.role == Role::MAIN)
    {
        return waiting(pod, first_of_role(pod, held));
    }
    if let Some(failing) = programs(pod).find(|it| matches!(it.state, State::BACKING_OFF | State::RESTARTING))
    {
        return format!("{title} is running, but {}", obstacle(pod, failing));
    }
    if let Some(fault) = &pod.fault {
        return format!("{title} is running, but its plan does not fit it: {fault}.");
    }
    let starts =
        |it: &&ContainerReport| matches!(it.state, State::NOT_CREATED | State::CREATING | State::CREATED);
    if let Some(next) = programs(pod).find(starts) {
        return format!("{title} waits for its caller: {}", obstacle(pod, next));
    }
    format!("{title} waits for nothing: what its plan starts has been started. There is nothing to do.")
}

/// The first held container of that role.
fn first_of_role<'a>(pod: &'a PodReport, like: &'a ContainerReport) -> &'a ContainerReport {
    programs(pod).find(|it| it.state == State::HELD && it.role == like.role).unwrap_or(like)
}

fn waiting(pod: &PodReport, held: &ContainerReport) -> String {
    let since = held.gate_wait_ms.map(|time| format!(" for {}", rounded(time))).unwrap_or_default();
    let reason = |it: &ContainerReport| {
        it.held_for.clone().unwrap_or_else(|| "a reason that its shim does not name".to_owned())
    };
    let mut text =
        format!("{}: {} is held{since}, waiting for {}.", pod.title(), quoted(pod, held), reason(held));
    let mut at = held;
    // At most one step for each container: what is held waits for what comes before it.
    for _ in &pod.containers {
        let Some(next) = blocker(pod, at) else { break };
        if next.state != State::HELD {
            return format!("{text} {}", obstacle(pod, next));
        }
        text += &format!(" {} is held, waiting for {}.", quoted(pod, next), reason(next));
        at = next;
    }
    text + " There is nothing to do: it starts when that is over."
}

/// The container that the reason of a hold names.
fn blocker<'a>(pod: &'a PodReport, held: &ContainerReport) -> Option<&'a ContainerReport> {
    let name = held.held_for.as_ref()?.split('"').nth(1)?;
    programs(pod).find(|container| container.name == name && container.name != held.name)
}

/// What is the matter with a container that others wait for, and what to do.
fn obstacle(pod: &PodReport, container: &ContainerReport) -> String {
    let name = quoted(pod, container);
    let logs = logs_of(pod, container);
    let restarts = match container.all_restarts() {
        0 => String::new(),
        1 => ", after one restart".to_owned(),
        more => format!(", after {more} restarts"),
    };
    let code =
        container.real_exit_code.map_or_else(|| "exited".to_owned(), |code| format!("exited with {code}"));
    let memory = if container.out_of_memory { " because the kernel killed it for memory" } else { "" };
    match container.state {
        State::NOT_CREATED => format!(
            "No caller has created {name} yet. If it does not come, look at its image and its mounts (kubectl describe pod), and at \
             whether the pod has a container of that name."
        ),
        State::CREATING | State::CREATED => {
            format!("{name} is created, and its caller has not started it yet. There is nothing to do.")
        }
        State::BACKING_OFF | State::RESTARTING => {
            let again = match container.restart_in_ms {
                Some(left) => format!("starts it again in {}", rounded(left.div_ceil(1000) * 1000)),
                None => "is starting it again".to_owned(),
            };
            format!("{name} {code}{memory}{restarts}, and podshim {again}. Find out why it ends: {logs}.")
        }
        State::PAUSED => format!("{name} is paused: resume it."),
        State::STOPPED | State::EXITED | State::ENDING | State::COMPLETED => {
            format!(
                "{name} {code}{memory}{restarts}; its caller has to recreate it. Find out why it ended: {logs}."
            )
        }
        _ if container.role == Role::INIT => {
            format!(
                "{name} runs{restarts}, and must exit with 0. If it takes too long, see what it does: {logs}."
            )
        }
        _ => match (&container.gate, container.gate_state) {
            (Some(gate), Some(state)) if state != GateState::OPEN => format!(
                "{name} runs{restarts}, and its gate {gate} is not open. It opens by itself; if it does not, see why {name} is not ready \
                 ({logs}), or whether the gate asks at the right place."
            ),
            _ => format!("{name} is {}{restarts}. See what it does: {logs}.", container.state_word),
        },
    }
}

/// The command that shows what a container writes.
fn logs_of(pod: &PodReport, container: &ContainerReport) -> String {
    match (&pod.name, &pod.pod_namespace) {
        (Some(name), Some(namespace)) => {
            format!("kubectl logs --namespace {namespace} {name} --container {}", container.name)
        }
        _ => "its output".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use control_api::{Container, InspectResponse};

    use super::*;

    fn container(name: &str, role: Role, state: State) -> Container {
        Container { name: name.to_owned(), role: role.into(), state: state.into(), ..Default::default() }
    }

    fn why(mut containers: Vec<Container>, fill: impl FnOnce(&mut InspectResponse)) -> String {
        let (pod_name, pod_namespace) = ("web".to_owned(), "prod".to_owned());
        if containers.iter().all(|it| it.state.unwrap() != State::STOPPED) {
            containers.insert(0, container("pause", Role::SANDBOX, State::RUNNING));
        }
        let mut answer = InspectResponse { pod_name, pod_namespace, containers, ..Default::default() };
        fill(&mut answer);
        paragraph(&PodReport::of_answer(answer))
    }

    fn held(name: &str, reason: &str) -> Container {
        Container {
            held_for: reason.to_owned(),
            gate_wait_ms: Some(125_900),
            ..container(name, Role::MAIN, State::HELD)
        }
    }

    #[test]
    fn a_hold_names_its_gate_and_the_log() {
        let proxy = Container {
            gate: "tcp::8080".to_owned(),
            gate_state: GateState::STARTED.into(),
            ..container("proxy", Role::SIDECAR, State::RUNNING)
        };
        let text = why(vec![proxy, held("app", "sidecar \"proxy\": tcp:8080 refused")], |_| {});
        assert_eq!(
            text,
            "prod/web: \"app\" is held for 2m5s, waiting for sidecar \"proxy\": tcp:8080 refused. \"proxy\" runs, and its gate tcp::8080 \
             is not open. It opens by itself; if it does not, see why \"proxy\" is not ready (kubectl logs --namespace prod web \
             --container proxy), or whether the gate asks at the right place."
        );
    }

    /// Of a chain of holds its first link is what matters.
    #[test]
    fn a_chain_of_holds_leads_to_what_fails() {
        let migrate = Container {
            real_exit_code: Some(3),
            restarts: 4,
            restart_in_ms: Some(61_250),
            ..container("migrate", Role::INIT, State::BACKING_OFF)
        };
        let proxy = Container {
            held_for: "init \"migrate\": exited with 3, backing off".to_owned(),
            ..container("proxy", Role::SIDECAR, State::HELD)
        };
        let text = why(vec![migrate, proxy, held("app", "sidecar \"proxy\": held itself")], |_| {});
        assert!(
            text.contains(
                "waiting for sidecar \"proxy\": held itself. \"proxy\" is held, waiting for init \"migrate\""
            ),
            "{text}"
        );
        assert!(
            text.contains(
                "\"migrate\" exited with 3, after 4 restarts, and podshim starts it again in 1m2s."
            ),
            "{text}"
        );
        // A shim that names each the reason of the other does not keep the command for ever.
        let text =
            why(vec![held("a", "main \"b\": held itself"), held("b", "main \"a\": held itself")], |_| {});
        assert!(text.ends_with("it starts when that is over."), "{text}");
    }

    #[test]
    fn what_was_not_created_and_what_waits_for_nothing() {
        let missing = container("db", Role::SIDECAR, State::NOT_CREATED);
        let text = why(vec![missing.clone(), held("app", "sidecar \"db\": not created yet")], |_| {});
        assert!(text.contains("No caller has created \"db\" yet."), "{text}");
        let text = why(vec![missing], |_| {});
        assert!(text.starts_with("prod/web waits for its caller: No caller has created"), "{text}");
        let text = why(vec![container("app", Role::MAIN, State::RUNNING)], |_| {});
        assert!(text.starts_with("prod/web waits for nothing"), "{text}");
        let fault = |answer: &mut InspectResponse| answer.fault = "main \"app\" was never created".to_owned();
        let text = why(vec![container("app", Role::MAIN, State::RUNNING)], fault);
        assert!(text.contains("its plan does not fit it: main \"app\" was never created."), "{text}");
    }

    #[test]
    fn a_stop_names_what_it_waits_for() {
        let app = Container {
            pid: 7,
            stop_signal: 15,
            stopping_for_ms: Some(12_300),
            kill_in_ms: Some(17_000),
            stop_cause: Cause::BY_CALLER.into(),
            ..container("app", Role::MAIN, State::RUNNING)
        };
        let proxy = Container { pid: 8, ..container("proxy", Role::SIDECAR, State::RUNNING) };
        let stops = |answer: &mut InspectResponse| {
            answer.stop_reason = control_api::StopReason::CALLER.into();
            answer.budget = control_api::Budget::ENFORCED.into();
            answer.budget_left_ms = 17_900;
        };
        let text = why(vec![app, proxy.clone()], stops);
        assert!(text.starts_with("prod/web is being stopped (caller, with 17s left). It waits for \"app\", which is stopping since SIGTERM 12s ago (from its caller); SIGKILL comes in 17s."), "{text}");
        let text = why(vec![proxy], stops);
        assert!(text.contains("Still to end, each in its turn: \"proxy\"."), "{text}");
    }

    #[test]
    fn an_end_names_the_failure_first() {
        let ended = |name: &str, code| Container {
            real_exit_code: Some(code),
            out_of_memory: code == 137,
            ..container(name, Role::MAIN, State::STOPPED)
        };
        let text = why(vec![ended("a", 0), ended("b", 137)], |answer| {
            answer.outcome = control_api::Outcome::FAILED.into()
        });
        assert!(text.starts_with("prod/web has ended: failed. \"b\" exited with 137, killed by the kernel for memory; \"a\" exited with 0. It stays"), "{text}");
    }
}
