//! The control API over a real socket: what operators see and can do.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use containerd_shim_protos::shim::shim::ShutdownRequest;
use control_api::client::{Client, ClientError};
use control_api::container::{GateState, Role, State};
use control_api::event::{Cause, Kind};
use control_api::waiting::WaitingClient;
use control_api::{Budget, Container, Event, InspectResponse, StopReason};
use nix::libc;
use tokio::time::{Instant, timeout};
use ttrpc::Code;

use crate::PLAN;
use crate::support::{Pod, context, with_pod};

const LIMIT: Duration = Duration::from_secs(20);
const POD: [(&str, &str); 3] = [
    ("io.kubernetes.cri.sandbox-name", "shop"),
    ("io.kubernetes.cri.sandbox-namespace", "prod"),
    ("io.kubernetes.cri.sandbox-uid", "1-2-3"),
];

/// Calls as the command does: from a thread that waits.
async fn ask<T: Send + 'static>(pod: &Pod, what: impl FnOnce(&Client) -> T + Send + 'static) -> T {
    let socket = pod.directory.path().join("shim");
    tokio::task::spawn_blocking(move || what(&Client::connect(&socket, LIMIT).unwrap())).await.unwrap()
}

async fn inspect(pod: &Pod) -> InspectResponse {
    ask(pod, Client::inspect).await.unwrap()
}

fn find<'a>(answer: &'a InspectResponse, name: &str) -> &'a Container {
    answer.containers.iter().find(|container| container.name == name).unwrap()
}

/// The pod's events until one satisfies a condition, by long polls.
async fn events_until(pod: &Pod, last: impl Fn(&Event) -> bool + Send + 'static) -> Vec<Event> {
    ask(pod, move |client| {
        let mut events: Vec<Event> = Vec::new();
        while !events.iter().any(&last) {
            let after = events.last().map_or(0, |event| event.sequence);
            let answer = client.events(after, LIMIT).unwrap();
            assert!(!answer.events.is_empty(), "no such event after {events:?}");
            assert_eq!(answer.lost, 0);
            events.extend(answer.events);
        }
        events
    })
    .await
}

fn kinds(events: &[Event], name: &str) -> Vec<Kind> {
    events.iter().filter(|event| event.name == name).map(|event| event.kind.unwrap()).collect()
}

/// U7, U10: a held container shows why, one that is not created yet is shown too, and both have their names.
#[test]
fn a_held_pod_says_what_it_waits_for() {
    with_pod(async |pod| {
        let annotations = [&[PLAN], POD.as_slice()].concat();
        pod.run("c-app", "exec sleep 60", &annotations_named(&annotations, "app")).await;
        let answer = inspect(&pod).await;
        let namespace = format!("test-{}", std::process::id());
        assert_eq!((answer.version, answer.id.as_str(), &answer.namespace), (1, "pod", &namespace));
        assert_eq!(
            (answer.pod_name.as_str(), answer.pod_namespace.as_str(), answer.pod_uid.as_str()),
            ("shop", "prod", "1-2-3")
        );
        assert!(answer.started_at_ms > 1_600_000_000_000);
        assert_eq!(answer.stop_reason.unwrap(), StopReason::NOT_STOPPING);
        let names: Vec<_> = answer.containers.iter().map(|container| container.name.as_str()).collect();
        assert_eq!(names, ["proxy", "app"], "in the plan's order");
        let (proxy, app) = (find(&answer, "proxy"), find(&answer, "app"));
        assert_eq!(
            (proxy.id.as_str(), proxy.state.unwrap(), proxy.role.unwrap()),
            ("", State::NOT_CREATED, Role::SIDECAR)
        );
        assert_eq!((proxy.gate.as_str(), proxy.gate_state.unwrap()), ("running", GateState::CLOSED));
        assert_eq!(
            (app.id.as_str(), app.state.unwrap(), app.role.unwrap()),
            ("c-app", State::HELD, Role::MAIN)
        );
        // The agent reads for whom it waits out of this: a role, a name in quotes, and a colon.
        assert_eq!(app.held_for, "sidecar \"proxy\": not created yet");
        assert_eq!(app.after, ["proxy=ready"]);
        assert_ne!(app.pid, 0);

        pod.run("c-proxy", "exec sleep 60", &[("io.kubernetes.cri.container-name", "proxy")]).await;
        let events =
            events_until(&pod, |event| event.name == "app" && event.kind.unwrap() == Kind::RUNNING).await;
        assert_eq!(kinds(&events, "app"), [Kind::CREATED, Kind::HELD, Kind::STARTING, Kind::RUNNING]);
        assert_eq!(
            kinds(&events, "proxy"),
            [Kind::CREATED, Kind::STARTING, Kind::RUNNING, Kind::GATE_OPENED]
        );
        assert_eq!(events[1].text, "sidecar \"proxy\": not created yet");
        let sequences: Vec<_> = events.iter().map(|event| event.sequence).collect();
        assert!(sequences.iter().copied().eq(1..=sequences.len() as u64), "{sequences:?}");
        assert!(events.windows(2).all(|pair| pair[0].monotonic_ms <= pair[1].monotonic_ms));
        let answer = inspect(&pod).await;
        assert_eq!(find(&answer, "proxy").gate_state.unwrap(), GateState::OPEN);
        assert_eq!(find(&answer, "app").state.unwrap(), State::RUNNING);
    });
}

fn annotations_named<'a>(annotations: &[(&'a str, &'a str)], name: &'a str) -> Vec<(&'a str, &'a str)> {
    [annotations, &[("io.kubernetes.cri.container-name", name)]].concat()
}

/// T12c, T1, J2: an operator's stop keeps the order and its budget. An exit code that is masked for the caller stays visible,
/// and each signal has its cause.
#[test]
fn an_operators_stop_keeps_the_order_and_shows_real_codes() {
    with_pod(async |pod| {
        pod.run("proxy", "trap 'exit 3' TERM; while :; do sleep 0.02; done", &[PLAN]).await;
        pod.run("app", "trap 'exit 4' TERM; while :; do sleep 0.02; done", &[PLAN]).await;
        events_until(&pod, |event| event.name == "app" && event.kind.unwrap() == Kind::RUNNING).await;
        // The shell sets its trap a moment after its start; before that TERM would end it with 143.
        let grace = Some(Duration::from_secs(15));
        ask(&pod, move |client| client.stop(grace)).await.unwrap();
        let events =
            events_until(&pod, |event| event.name == "proxy" && event.kind.unwrap() == Kind::STOPPED).await;

        let began = events.iter().find(|event| event.kind.unwrap() == Kind::STOP_BEGAN).unwrap();
        assert_eq!(
            (began.stop_reason.unwrap(), began.budget.unwrap()),
            (StopReason::REQUESTED, Budget::ENFORCED)
        );
        assert_eq!((began.duration_ms, began.id.as_str()), (Some(15_000), ""));
        let end = |name: &str| {
            let of =
                |kind| events.iter().find(|event| event.name == name && event.kind.unwrap() == kind).unwrap();
            (of(Kind::SIGNALLED), of(Kind::EXITED), of(Kind::STOPPED))
        };
        let ((_, app_exit, app_stop), (signal, exit, stop)) = (end("app"), end("proxy"));
        assert!(app_exit.sequence < signal.sequence && signal.sequence < exit.sequence, "T1: {events:?}");
        assert_eq!((signal.signal, signal.cause.unwrap()), (15, Cause::TURN));
        assert_eq!((app_stop.code, app_stop.shown_code), (app_exit.code, app_exit.code), "J3");
        assert_eq!((stop.code, stop.shown_code), (exit.code, Some(0)), "J2");
        assert_ne!(exit.code, Some(0));

        let answer = inspect(&pod).await;
        assert_eq!(answer.stop_reason.unwrap(), StopReason::REQUESTED);
        let proxy = find(&answer, "proxy");
        assert_eq!(proxy.state.unwrap(), State::STOPPED);
        assert_eq!((proxy.real_exit_code, proxy.shown_exit_code), (exit.code, Some(0)));
        assert_eq!(pod.wait("proxy").await.unwrap().exit_status, 0);
        // Its caller has deleted it; its real code is still shown.
        pod.delete("proxy").await.unwrap();
        assert_eq!(find(&inspect(&pod).await, "proxy").real_exit_code, exit.code);
    });
}

/// T3, R4: a signal that waits for its turn is shown, and so is a restart that is due.
#[test]
fn what_is_pending_is_shown() {
    with_pod(async |pod| {
        let annotations =
            [("podshim.io/plan", "proxy=sidecar, app=main"), ("podshim.io/restart.proxy", "always;first=1h")];
        pod.run("proxy", "trap : TERM; while [ ! -e end ]; do sleep 0.02; done; exit 9", &annotations).await;
        pod.run("app", "exec sleep 60", &annotations).await;
        events_until(&pod, |event| event.name == "app" && event.kind.unwrap() == Kind::RUNNING).await;
        pod.kill("proxy", 15).await.unwrap();
        let answer = inspect(&pod).await;
        assert_eq!(find(&answer, "proxy").pending_signal, 15);
        assert_eq!(find(&answer, "proxy").state.unwrap(), State::RUNNING);
        assert_eq!(
            answer.stop_reason.unwrap(),
            StopReason::NOT_STOPPING,
            "T12: it alone is no stop of the pod"
        );
    });
    with_pod(async |pod| {
        let annotations =
            [("podshim.io/plan", "proxy=sidecar, app=main"), ("podshim.io/restart.proxy", "always;first=1h")];
        pod.run("proxy", "exit 9", &annotations).await;
        let events = events_until(&pod, |event| event.kind.unwrap() == Kind::RESTART_DUE).await;
        assert_eq!(events.last().unwrap().duration_ms, Some(3_600_000));
        let answer = inspect(&pod).await;
        let proxy = find(&answer, "proxy");
        assert_eq!((proxy.state.unwrap(), proxy.restarts, proxy.pid), (State::BACKING_OFF, 1, 0));
        assert_eq!((proxy.real_exit_code, proxy.shown_exit_code), (Some(9), None));
        let due = proxy.restart_in_ms.unwrap();
        assert!((3_500_000..=3_600_000).contains(&due), "{due}");
    });
}

/// N5, R6: how a sidecar ended is shown while it runs again.
#[test]
fn r6_found_n5_the_last_exit_is_shown_while_the_next_run_goes_on() {
    with_pod(async |pod| {
        let again = pod.directory.path().join("again");
        let script = format!("test -e {0} && exec sleep 60; touch {0}; exit 9", again.display());
        pod.run("proxy", &script, &[PLAN]).await;
        let runs = |event: &Event| event.kind.unwrap() == Kind::RUNNING;
        let first = events_until(&pod, runs).await.last().unwrap().sequence;
        let events = events_until(&pod, move |event| runs(event) && event.sequence > first).await;
        // The agent of a node takes the last four for one restart in place.
        let order =
            [Kind::STARTING, Kind::RUNNING, Kind::EXITED, Kind::RESTART_DUE, Kind::STARTING, Kind::RUNNING];
        let is_of_proxy = |event: &&Event| event.id == "proxy" && order.contains(&event.kind.unwrap());
        let found: Vec<_> = events.iter().filter(is_of_proxy).map(|event| event.kind.unwrap()).collect();
        assert_eq!(found, order);
        let answer = inspect(&pod).await;
        let proxy = find(&answer, "proxy");
        assert_eq!((proxy.state.unwrap(), proxy.real_exit_code), (State::RUNNING, Some(9)));
        assert_eq!((proxy.shown_exit_code, proxy.restarts_total), (None, Some(1)));
        assert!(proxy.exited_at_ms.unwrap() > answer.started_at_ms - 1000);
    });
}

/// N6: a program that ignores its caller's stop signal is shown as such: which signal, since when, by whom.
#[test]
fn found_n6_an_ignored_stop_signal_is_shown() {
    with_pod(async |pod| {
        let named = |name: &'static str| [PLAN, ("io.kubernetes.cri.container-name", name)];
        pod.run("c-proxy", "trap : TERM USR1; while :; do sleep 0.02; done", &named("proxy")).await;
        pod.run("c-app", "trap : TERM USR1; while :; do sleep 0.02; done", &named("app")).await;
        events_until(&pod, |event| event.name == "app" && event.kind.unwrap() == Kind::RUNNING).await;
        // The shells set their traps a moment after their start.
        tokio::time::sleep(Duration::from_millis(500)).await;
        let answer = inspect(&pod).await;
        assert!(answer.containers.iter().all(|container| container.stopping_for_ms.is_none()));
        pod.kill("c-app", 15).await.unwrap();
        tokio::time::sleep(Duration::from_millis(200)).await;
        let answer = inspect(&pod).await;
        let app = find(&answer, "app");
        assert_eq!((app.state.unwrap(), app.stop_signal), (State::RUNNING, 15), "{app:?}");
        assert_eq!(app.stop_cause.unwrap(), Cause::BY_CALLER);
        assert!(app.stopping_for_ms.unwrap() >= 200, "{app:?}");
        assert!(find(&answer, "proxy").stopping_for_ms.is_none(), "its turn has not come");
        pod.kill("c-app", 9).await.unwrap();
        events_until(&pod, |event| event.name == "app" && event.kind.unwrap() == Kind::STOPPED).await;
        assert!(find(&inspect(&pod).await, "app").stopping_for_ms.is_none(), "it has ended");
    });
}

/// R14: an operator's restart keeps the order, no caller sees an exit, and the events say what happens.
#[test]
fn a_restart_keeps_the_order_and_shows_no_exit() {
    with_pod(async |pod| {
        pod.run("proxy", "exec sleep 60", &[PLAN]).await;
        pod.run("app", "exec sleep 60", &[PLAN]).await;
        let runs = |event: &Event| event.name == "app" && event.kind.unwrap() == Kind::RUNNING;
        let before = events_until(&pod, runs).await.last().unwrap().sequence;
        let old = find(&inspect(&pod).await, "app").pid;
        ask(&pod, |client| client.restart()).await.unwrap();
        let events = events_until(&pod, move |event| runs(event) && event.sequence > before).await;
        let events: Vec<_> = events.into_iter().filter(|event| event.sequence > before).collect();

        assert_eq!((events[0].kind.unwrap(), events[0].text.as_str()), (Kind::POD_RESTART, "requested"));
        assert_eq!(events[1].stop_reason.unwrap(), StopReason::RESTART);
        let place = |name: &str, kind: Kind| {
            events.iter().position(|event| event.name == name && event.kind.unwrap() == kind).unwrap()
        };
        assert!(place("app", Kind::EXITED) < place("proxy", Kind::SIGNALLED), "T1: {events:?}");
        assert!(place("proxy", Kind::EXITED) < place("", Kind::STOP_ENDED), "{events:?}");
        assert!(place("", Kind::STOP_ENDED) < place("proxy", Kind::STARTING), "{events:?}");
        assert!(place("proxy", Kind::GATE_OPENED) < place("app", Kind::STARTING), "S2: {events:?}");
        assert!(events.iter().all(|event| event.kind.unwrap() != Kind::STOPPED), "{events:?}");
        let answer = inspect(&pod).await;
        let app = find(&answer, "app");
        assert_eq!(app.state.unwrap(), State::RUNNING);
        assert_ne!(app.pid, old);
        assert_eq!((answer.stop_reason.unwrap(), app.shown_exit_code), (StopReason::NOT_STOPPING, None));
    });
}

/// R14, 11.2: what a node forbids as a key it forbids as a later request, too; an operator on the node is no request.
#[test]
fn r14_a_node_that_forbids_the_key_refuses_requests() {
    with_pod(async |pod| {
        pod.run("proxy", "exec sleep 60", &[PLAN]).await;
        pod.run("app", "exec sleep 60", &[PLAN]).await;
        let runs = |event: &Event| event.name == "app" && event.kind.unwrap() == Kind::RUNNING;
        events_until(&pod, runs).await;
        std::fs::write(pod.directory.path().join("config.toml"), "forbid = [\"restart\"]\n").unwrap();
        let client = control_api::waiting::WaitingClient::connect(&pod.directory.path().join("shim"), LIMIT)
            .await
            .unwrap();
        match client.restart("1").await.unwrap_err() {
            ClientError::Refused { message, .. } => {
                assert_eq!(message, "podshim.io/restart is forbidden on this node");
            }
            other => panic!("{other}"),
        }
        let shown = inspect(&pod).await;
        assert_eq!(
            (shown.restart_request.as_deref(), shown.restart_refusal.as_str()),
            (Some("1"), "podshim.io/restart is forbidden on this node")
        );
        assert_eq!(shown.stop_reason.unwrap(), StopReason::NOT_STOPPING);
        ask(&pod, |client| client.restart()).await.unwrap();
    });
}

/// Bad requests get clear answers and change nothing.
#[test]
fn a_switch_that_cannot_be_is_refused() {
    with_pod(async |pod| {
        pod.run("proxy", "exec sleep 60", &[PLAN]).await;
        for (name, expected) in [("ghost", Code::NOT_FOUND), ("proxy", Code::INVALID_ARGUMENT)] {
            match ask(&pod, move |client| client.switch(name, LIMIT)).await.unwrap_err() {
                ClientError::Refused { code, message } => {
                    assert_eq!(code, expected);
                    assert!(message.contains(name), "{message}");
                }
                other => panic!("{other}"),
            }
        }
        assert_eq!(find(&inspect(&pod).await, "proxy").state.unwrap(), State::RUNNING);
    });
}

/// A caller that waits for events gets an empty answer when its time is over.
#[test]
fn a_wait_for_events_ends() {
    with_pod(async |pod| {
        let answer = ask(&pod, |client| client.events(0, Duration::from_millis(50))).await.unwrap();
        assert_eq!((answer.version, answer.events.len()), (1, 0));
    });
}

/// DESIGN §6: only root gets an answer, even where the socket's permissions let others connect.
#[test]
fn a_peer_that_is_not_root_gets_no_answer() {
    with_pod(async |pod| {
        let socket = pod.directory.path().join("shim");
        for (path, mode) in [(pod.directory.path(), 0o755), (&socket, 0o777)] {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        }
        let ask_as_another_user = move || {
            let unprivileged = 65_534;
            // SAFETY: changes this thread's ids and touches no memory. The bare system call, unlike the C library's
            // wrapper, leaves the other threads' ids.
            let changed =
                unsafe { libc::syscall(libc::SYS_setresuid, unprivileged, unprivileged, unprivileged) };
            assert_eq!(changed, 0, "the test must be run by root");
            Client::connect(&socket, LIMIT).and_then(|client| client.inspect())
        };
        let asked = tokio::task::spawn_blocking(|| std::thread::spawn(ask_as_another_user).join().unwrap());
        let refused = asked.await.unwrap().unwrap_err();
        assert!(matches!(refused, ClientError::Protocol(_)), "{refused}");
        assert_eq!(inspect(&pod).await.version, 1);
    });
}

/// A caller that waits for events for as long as the pod lives, as the agent of a node does, delays neither the shim's end nor is it kept
/// waiting by it.
#[test]
fn a_caller_that_waits_for_events_does_not_delay_the_shims_end() {
    with_pod(async |pod| {
        pod.run("c-app", "exec sleep 60", &annotations_named(&[], "app")).await;
        let socket = pod.directory.path().join("shim");
        let idle = WaitingClient::connect(&socket, LIMIT).await.unwrap();
        // A connection of its own: one that only idles is another case than one with a call under way.
        let waiting = WaitingClient::connect(&socket, LIMIT).await.unwrap();
        let newest = idle.events(0, Duration::ZERO).await.unwrap().events.last().unwrap().sequence;
        let waits = tokio::spawn(async move { waiting.events(newest + 100, Duration::from_secs(50)).await });
        pod.kill("c-app", 9).await.unwrap();
        pod.wait("c-app").await.unwrap();
        pod.delete("c-app").await.unwrap();
        let begin = Instant::now();
        let shutdown = ShutdownRequest { id: "c-app".to_owned(), ..Default::default() };
        pod.client.shutdown(context(), &shutdown).await.unwrap();
        timeout(LIMIT, pod.served).await.expect("the server ends").unwrap().unwrap();
        let took = begin.elapsed();
        assert!(took < Duration::from_millis(400), "{took:?}, which is near the limit of the last answers");
        assert!(timeout(LIMIT, waits).await.expect("it is answered").unwrap().is_err());
        drop(idle);
    });
}
