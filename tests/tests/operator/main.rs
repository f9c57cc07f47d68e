//! The commands for running pods, on real pods: what they report, and that podshim executes them in order.

mod bounds;
mod image;
mod metrics;
mod past;
mod recipes;
mod traces;
mod translated;

use anyhow::{Context, Result, ensure};
use control_api::client::Client;
use control_api::event::Kind;
use e2e::Event::{Exiting, Started, Starting, Term};
use e2e::durations::{AMPLE, SOON, seconds};
use e2e::instance::signal;
use e2e::{Containerd, Pod, Program, RunningPod, Runtime, wait};
use serde_json::Value;

/// Runs `podshim` inside the instance, where the shims' files are, checks its exit code, and returns its output.
async fn podshim(node: &Containerd, arguments: &[&str], code: i32) -> Result<String> {
    let output = node.ctr().output(&[&["--run", "podshim"], arguments].concat()).await?;
    ensure!(output.exit_code == Some(code), "{arguments:?}: {output:?}");
    Ok(output.stdout + &output.stderr)
}

async fn json(node: &Containerd, arguments: &[&str]) -> Result<Value> {
    Ok(serde_json::from_str(&podshim(node, arguments, 0).await?)?)
}

/// The answer of `podshim inspect` for a pod.
async fn inspect(node: &Containerd, pod: &RunningPod<'_>) -> Result<Value> {
    json(node, &["inspect", "--json", pod.sandbox()]).await
}

fn container<'a>(pod: &'a Value, name: &str) -> Result<&'a Value> {
    let containers = pod["containers"].as_array().context("no containers")?;
    containers
        .iter()
        .find(|container| container["name"] == name)
        .with_context(|| format!("no {name} in {pod}"))
}

/// The entry of one pod in `podshim ps --json`, which lists the pods of other tests too.
async fn listed(node: &Containerd, sandbox: &str) -> Result<Option<Value>> {
    let listed: Value = json(node, &["ps", "--json"]).await?;
    let pods = listed["pods"].as_array().context("no pods")?;
    Ok(pods.iter().find(|pod| pod["id"] == sandbox).cloned())
}

/// U7, U10: podshim shows a held container and what it waits for, and finds a pod by each of its names.
#[tokio::test]
async fn u7_u10_a_held_pod_is_explained() -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = Pod::new("operator-held")
        .annotate("plan", "proxy=sidecar, app=main")
        .container(Program::new("app"))
        .container(Program::new("proxy"))
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start("app").await?;
    let answer = inspect(&node, &pod).await?;
    ensure!(answer["state"] == "running" && answer["id"] == pod.sandbox(), "{answer}");
    ensure!(container(&answer, "app")?["state"] == "held", "{answer}");
    ensure!(container(&answer, "app")?["held_for"] == "sidecar \"proxy\": not created yet", "{answer}");
    ensure!(container(&answer, "proxy")?["state"] == "not-created", "{answer}");
    let name = answer["name"].as_str().context("no name")?;
    let whole = format!("{}/{name}", answer["pod_namespace"].as_str().context("no namespace")?);
    for called in [name, &whole, &pod.sandbox()[..20]] {
        let by_name: Value = json(&node, &["inspect", "--json", called]).await?;
        ensure!(by_name["id"] == pod.sandbox(), "{called} is {by_name}");
    }
    pod.start("proxy").await?;
    pod.wait_for("app", Started, 1, SOON).await?;
    let line = listed(&node, pod.sandbox()).await?.context("the pod is not listed")?;
    for name in ["proxy", "app"] {
        ensure!(container(&line, name)?["state"] == "running", "{line}");
    }
    let sandbox = pod.sandbox().to_owned();
    pod.remove().await?;
    ensure!(listed(&node, &sandbox).await?.is_none(), "a pod that has gone is listed");
    Ok(())
}

/// A pod whose programs run; its main takes a second to stop.
async fn running<'node>(node: &'node Containerd, name: &str) -> Result<RunningPod<'node>> {
    let mut pod = Pod::new(name)
        .annotate("plan", "proxy=sidecar, app=main")
        .container(Program::new("proxy"))
        .container(Program::new("app").term_delay(seconds(1)))
        .run(node, Runtime::Podshim)
        .await?;
    pod.start_all(&["proxy", "app"]).await?;
    pod.wait_for("app", Started, 1, SOON).await?;
    pod.wait_for("proxy", Started, 1, SOON).await?;
    Ok(pod)
}

/// T12c, T1: `podshim stop` keeps the order within its budget, and returns when all containers have ended.
#[tokio::test]
async fn t12_t1_a_pod_is_stopped_in_order_by_hand() -> Result<()> {
    let node = Containerd::connect().await?;
    let pod = running(&node, "operator-stop").await?;
    let report = json(&node, &["stop", "--grace", "20s", "--json", pod.sandbox()]).await?;
    ensure!(report["stopped"] == true, "{report}");
    let timeline = pod.timeline()?;
    timeline.in_order(&[("app", Term), ("app", Exiting), ("proxy", Term), ("proxy", Exiting)])?;
    ensure!(timeline.count("proxy", Term) == 1, "{timeline}");
    // The CRI learns the exits a little later, and removes no container whose exit it does not know.
    for name in ["app", "proxy"] {
        pod.wait_exited(name, SOON).await?;
    }
    pod.remove().await
}

/// N12: when `podshim stop` has returned, `podshim timeline --past` has the pod.
#[tokio::test]
async fn found_n12_a_stopped_pod_has_its_record_at_once() -> Result<()> {
    let node = Containerd::connect().await?;
    for number in 0..3 {
        let pod = running(&node, &format!("operator-record-{number}")).await?;
        let report = json(&node, &["stop", "--grace", "20s", "--json", pod.sandbox()]).await?;
        ensure!(report["recorded"] == true && report["name"] == format!("e2e/{}", pod.name()), "{report}");
        let drawn = json(&node, &["timeline", "--past", "--json", pod.sandbox()]).await?;
        ensure!(drawn["pod"]["id"] == pod.sandbox(), "{drawn}");
        for name in ["app", "proxy"] {
            pod.wait_exited(name, SOON).await?;
        }
        pod.remove().await?;
    }
    Ok(())
}

/// N1: the beginning of a pod's name ends no pod.
#[tokio::test]
async fn found_n1_the_beginning_of_a_name_ends_no_pod() -> Result<()> {
    let node = Containerd::connect().await?;
    let pod = running(&node, "operator-name-10").await?;
    let beginning = pod.name().get(..pod.name().len() - 1).context("its name")?.to_owned();
    for command in ["stop", "restart"] {
        let refused = podshim(&node, &[command, &beginning], 1).await?;
        ensure!(refused.contains("takes its whole name or id (did you mean"), "{refused}");
    }
    ensure!(inspect(&node, &pod).await?["state"] == "running", "it lives");
    pod.remove().await
}

/// N5, N6, N7, N8: what a restart in place hides, and a main that ignores its stop signal.
#[tokio::test]
async fn r6_found_n5_what_a_restart_in_place_hides_is_shown() -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = Pod::new("operator-hidden")
        .annotate("plan", "proxy=sidecar, app=main")
        .container(Program::new("proxy").memory_limit(20 << 20).allocates_mib(64))
        .container(Program::new("app").ignores_term())
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start_all(&["proxy", "app"]).await?;
    pod.wait_for("app", Started, 1, SOON).await?;
    let killed = wait::until("a restarted sidecar", AMPLE, async || {
        let answer = inspect(&node, &pod).await?;
        let proxy = container(&answer, "proxy")?.clone();
        Ok((proxy["restarts_total"].as_u64() >= Some(2)).then_some(proxy))
    });
    let proxy = killed.await?;
    ensure!(proxy["real_exit_code"] == 137 && proxy["shown_exit_code"].is_null(), "{proxy}");
    ensure!(proxy["out_of_memory"] == true && proxy["oom_kills"].as_u64() >= Some(1), "{proxy}");
    node.ctr().run(&["-n", "k8s.io", "task", "kill", "-s", "TERM", pod.id("app")?]).await?;
    let stopping = wait::until("a main that ignores its signal", SOON, async || {
        let answer = inspect(&node, &pod).await?;
        let app = container(&answer, "app")?.clone();
        Ok((app["state"] == "stopping").then_some(app))
    });
    let app = stopping.await?;
    ensure!(app["stop_signal"] == "SIGTERM" && app["stop_cause"] == "caller", "{app}");
    podshim(&node, &["stop", "--grace", "1s", pod.sandbox()], 0).await?;
    for name in ["app", "proxy"] {
        pod.wait_exited(name, SOON).await?;
    }
    let sandbox = pod.sandbox().to_owned();
    pod.remove().await?;
    let history = podshim(&node, &["history", &sandbox], 0).await?;
    ensure!(history.contains("OOM killed"), "{history}");
    Ok(())
}

/// R14: `podshim restart` stops a pod in order and starts it in order, and returns when it runs; the timeline says why.
#[tokio::test]
async fn r14_a_pod_is_restarted_by_hand() -> Result<()> {
    let node = Containerd::connect().await?;
    let pod = running(&node, "operator-restart").await?;
    let report = json(&node, &["restart", "--json", pod.sandbox()]).await?;
    ensure!(report["restarted"] == true && report["pod"]["state"] == "running", "{report}");
    let timeline = pod.wait_for("app", Started, 2, SOON).await?;
    timeline.in_order(&[("app", Term), ("app", Exiting), ("proxy", Term), ("proxy", Exiting)])?;
    let second = |name| timeline.of(name, Starting).nth(1).map(|entry| entry.at);
    ensure!(second("proxy").is_some() && second("proxy") <= second("app"), "{timeline}");
    let drawn = json(&node, &["timeline", "--json", pod.sandbox()]).await?;
    let events = drawn["events"].as_array().context("no events")?;
    let why = events.iter().find(|event| event["kind"] == "pod-restart").context("no restart")?;
    ensure!(why["text"] == "requested", "{why}");
    ensure!(events.iter().all(|event| event["kind"] != "stopped"), "{drawn}");
    let refused = async {
        pod.wait_for("app", Term, 2, SOON).await?;
        podshim(&node, &["restart", pod.sandbox()], 1).await
    };
    let stop = ["stop", pod.sandbox()];
    let (_, refused) = tokio::try_join!(podshim(&node, &stop, 0), refused)?;
    ensure!(refused.contains("cannot restart the pod: it is stopping"), "{refused}");
    for name in ["app", "proxy"] {
        pod.wait_exited(name, SOON).await?;
    }
    pod.remove().await
}

/// V3, V4: a switch on request runs like one by a caller that replaces the standby; the pod's events show it.
#[tokio::test]
async fn v3_v4_a_standby_takes_over_on_request() -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = Pod::new("operator-switch")
        .annotate("plan", "proxy|next=sidecar, app=main")
        .annotate("migrate.next", "exec:touch /pod/migrated")
        .container(Program::new("proxy"))
        .container(Program::new("next"))
        .container(Program::new("app"))
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start_all(&["proxy", "next", "app"]).await?;
    pod.wait_for("app", Started, 1, SOON).await?;
    pod.wait_for("proxy", Started, 1, SOON).await?;
    podshim(&node, &["switch", pod.sandbox(), "next"], 0).await?;
    // The command is answered when the former active one has ended (V3).
    let timeline = pod.timeline()?;
    timeline.in_order(&[("next", Starting), ("proxy", Exiting)])?;
    timeline.has_not_restarted("app")?;
    ensure!(pod.exec("app", &["test", "-e", "/pod/migrated"]).await?.exit_code == 0, "no migration");
    let answer = inspect(&node, &pod).await?;
    ensure!(container(&answer, "next")?["role"] == "sidecar", "{answer}");
    ensure!(container(&answer, "proxy")?["role"] == "standby", "{answer}");

    let socket = node.shim_socket("k8s.io", pod.sandbox())?;
    let events = async || {
        let socket = socket.clone();
        let ask = move || Client::connect(&socket, SOON)?.events(0, std::time::Duration::ZERO);
        anyhow::Ok(tokio::task::spawn_blocking(ask).await??.events)
    };
    // The former active one becomes the standby, as soon as it is recreated.
    let events = wait::until("the former active one to be held", SOON, async || {
        let events = events().await?;
        let last = events.iter().rfind(|event| event.name == "proxy");
        Ok(last.is_some_and(|event| event.kind.enum_value_or_default() == Kind::HELD).then_some(events))
    })
    .await?;
    let wanted =
        [Kind::HELD, Kind::SWITCH_BEGAN, Kind::RUNNING, Kind::GATE_OPENED, Kind::HOOK_ENDED, Kind::SWITCHED];
    let kinds =
        events.iter().filter(|event| event.name == "next").map(|event| event.kind.enum_value_or_default());
    let seen: Vec<_> = kinds.filter(|kind| wanted.contains(kind)).collect();
    ensure!(seen == wanted, "{events:#?}");

    // A switch of a container without a standby is refused, and the caller gets the reason.
    let refused = podshim(&node, &["switch", pod.sandbox(), "app"], 1).await?;
    ensure!(refused.contains("main \"app\" has no standby"), "{refused}");
    pod.stop_all_at_once(AMPLE).await?;
    pod.remove().await
}

/// A shim that is killed while containerd is down leaves its entry; a shim that hangs does not answer. Both are listed
/// as such, the list still has all other pods, and containerd's clean-up removes the entry of the dead one.
#[tokio::test]
async fn n3_dead_and_hanging_shims_are_listed_as_that() -> Result<()> {
    let node = Containerd::start().await?;
    let pair = |name: &str| Pod::new(name).annotate("plan", "app=main").container(Program::new("app"));
    let mut dead = pair("operator-dead").run(&node, Runtime::Podshim).await?;
    let mut hanging = pair("operator-hanging").run(&node, Runtime::Podshim).await?;
    dead.start("app").await?;
    hanging.start("app").await?;
    node.kill().await?;
    let hanging_shim = hanging.shim_pid()?;
    signal(dead.shim_pid()?, libc::SIGKILL)?;
    signal(hanging_shim, libc::SIGSTOP)?;
    let answer = async {
        let silent = listed(&node, hanging.sandbox()).await?.context("a hanging shim is not listed")?;
        ensure!(silent["state"] == "shim-silent", "{silent}");
        let answer = podshim(&node, &["inspect", dead.sandbox()], 1).await?;
        ensure!(answer.contains("its shim is dead"), "{answer}");
        let line = listed(&node, dead.sandbox()).await?.context("a dead shim is not listed")?;
        ensure!(line["state"] == "shim-dead" && !line["name"].is_null(), "{line}");
        Ok(())
    };
    let answer = answer.await;
    signal(hanging_shim, libc::SIGCONT)?;
    answer?;
    node.start_again().await?;
    wait::until("the dead shim's entry to go", AMPLE, async || {
        Ok(listed(&node, dead.sandbox()).await?.is_none().then_some(()))
    })
    .await?;
    ensure!(inspect(&node, &hanging).await?["state"] == "running", "a shim that goes on again answers");
    dead.remove().await?;
    hanging.remove().await
}

/// U1, T1: `podshim timeline` draws the events in their order, and `podshim watch` prints them and ends with the pod.
#[tokio::test]
async fn u1_t1_a_pods_life_is_drawn_and_listed() -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = Pod::new("operator-timeline")
        .annotate("plan", "proxy=sidecar, app=main")
        .container(Program::new("proxy"))
        .container(Program::new("app"))
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start_all(&["app", "proxy"]).await?;
    pod.wait_for("app", Started, 1, SOON).await?;
    let sandbox = pod.sandbox().to_owned();
    let words = ["watch", "--json", &sandbox];
    let life = async {
        pod.stop_all_at_once(SOON).await?;
        let answer = json(&node, &["timeline", "--json", &sandbox]).await?;
        let drawn = podshim(&node, &["timeline", "--width", "80", &sandbox], 0).await?;
        let picture = node.directory().join(format!("{sandbox}.svg"));
        podshim(&node, &["timeline", "--svg", &picture.to_string_lossy(), &sandbox], 0).await?;
        let svg = std::fs::read_to_string(&picture)?;
        std::fs::remove_file(picture)?;
        pod.remove().await?;
        anyhow::Ok((answer, drawn, svg))
    };
    let (watched, life) = tokio::join!(podshim(&node, &words, 0), life);
    let ((answer, drawn, svg), watched) = (life?, watched?);
    let happened = |name: &str, kind: &str| {
        let events = answer["events"].as_array().context("no events")?;
        let found = events.iter().position(|event| event["container"] == name && event["kind"] == kind);
        found.with_context(|| format!("{name}: no {kind} in {answer}"))
    };
    let order = [
        happened("app", "held")?,
        happened("proxy", "running")?,
        happened("app", "running")?,
        happened("app", "exited")?,
        happened("proxy", "signalled")?,
        happened("proxy", "exited")?,
    ];
    ensure!(order.is_sorted(), "{order:?} of {answer}");
    ensure!(drawn.contains("proxy  ") && drawn.contains("SIGTERM: its turn in the stop"), "{drawn}");
    ensure!(svg.contains("<title>app: held for "), "{svg}");
    let last: Value = serde_json::from_str(watched.lines().last().context("nothing was watched")?)?;
    ensure!(watched.contains("\"kind\":\"held\"") && last["sequence"].as_u64() > Some(10), "{watched}");
    Ok(())
}
