//! What operators can see of ended containers and pods: a container that CRI has deleted, a removed pod, one whose shim
//! was killed, one that does not end; and the node's log of all these.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use e2e::Event::{Exiting, Started};
use e2e::durations::{AMPLE, SOON, milliseconds, seconds};
use e2e::instance::signal;
use e2e::{Containerd, Pod, Program, RunningPod, Runtime, wait};
use serde_json::Value;

use super::{container, inspect, json, listed, podshim};

/// The exit code of a proxy that fails at its stop.
const PROXY: u8 = 9;

/// The record of a pod in `podshim history`, as soon as there is one.
async fn history(node: &Containerd, pod: &str) -> Result<Value> {
    wait::until("the pod's record", SOON, async || {
        let answer = json(node, &["history", "--json", pod]).await?;
        Ok(answer["pods"].as_array().and_then(|pods| pods.last().cloned()))
    })
    .await
}

/// Waits until a pod has that state and CRI has deleted its ended containers.
async fn wait_state(node: &Containerd, pod: &RunningPod<'_>, state: &str) -> Result<Value> {
    wait::until(&format!("the pod to be {state}"), SOON, async || {
        let answer = inspect(node, pod).await?;
        // CRI deletes an ended container a moment later.
        let containers = answer["containers"].as_array().context("no containers")?;
        let deleted = containers.iter().all(|container| container["state"] != "stopped");
        Ok((answer["state"] == state && deleted).then_some(answer))
    })
    .await
}

/// J2: CRI deletes a task as soon as it has ended; podshim keeps its real and its shown exit code. The restart policy
/// decides whether the pod counts as completed.
#[tokio::test]
async fn j2_what_has_ended_keeps_what_it_ended_with() -> Result<()> {
    let node = Containerd::connect().await?;
    let job = |name: &str, code: u8, policy: &str| {
        Pod::new(name)
            .annotate("plan", "fetch=init, proxy=sidecar, app=main")
            .annotate("restart-policy", policy)
            .container(Program::new("fetch").runs_for(seconds(0)))
            .container(Program::new("proxy").term_exit_code(PROXY))
            .container(Program::new("app").runs_for(seconds(1)).exits(code))
    };
    for (name, code, policy, state) in
        [("past-done", 0, "OnFailure", "completed"), ("past-failed", 3, "Never", "failed")]
    {
        let mut pod = job(name, code, policy).run(&node, Runtime::Podshim).await?;
        pod.start_all(&["fetch", "proxy", "app"]).await?;
        pod.wait_for("proxy", Exiting, 1, SOON).await?;
        let answer = wait_state(&node, &pod, state).await?;
        for (name, real, shown) in [("fetch", 0, 0), ("app", code, code), ("proxy", PROXY, 0)] {
            let container = container(&answer, name)?;
            ensure!(container["state"] == "exited", "{name}: {answer}");
            ensure!(container["real_exit_code"] == real && container["shown_exit_code"] == shown, "{answer}");
            ensure!(container["exited_at_ms"].as_i64() > answer["started_at_ms"].as_i64(), "{answer}");
        }
        let line = listed(&node, pod.sandbox()).await?.context("the pod is not listed")?;
        ensure!(line["state"] == state, "{line}");
        let text = podshim(&node, &["ps"], 0).await?;
        ensure!(text.contains(&format!("exited ({code})")), "{text}");
        let sandbox = pod.name().to_owned();
        pod.remove().await?;
        // The same from the record, after the pod was removed.
        let past = history(&node, &sandbox).await?;
        ensure!(past["pod"]["state"] == state && past["shim_was_killed"] == false, "{past}");
        ensure!(container(&past["pod"], "proxy")?["real_exit_code"] == PROXY, "{past}");
    }
    Ok(())
}

/// The record of a removed pod shows what happened to it. Only root can read it, and it contains no command of a
/// container.
#[tokio::test]
async fn a_pod_leaves_its_story() -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = Pod::new("past-story")
        .annotate("plan", "proxy=sidecar, app=main")
        .annotate("ready.proxy", "exec:/bin/pod-member --check tell-no-one")
        .container(Program::new("proxy"))
        .container(Program::new("app"))
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start_all(&["app", "proxy"]).await?;
    pod.wait_for("proxy", Started, 1, SOON).await?;
    let answer = inspect(&node, &pod).await?;
    ensure!(answer.to_string().contains("tell-no-one"), "the gate is shown while the pod is there: {answer}");
    let cost = |answer: &Value, of: &str| answer["cost"][of].as_u64();
    wait::until("probes to cost something", SOON, async || {
        let answer = inspect(&node, &pod).await?;
        Ok((cost(&answer, "probes_ms") > Some(0) && cost(&answer, "requests_ms") > Some(0)).then_some(()))
    })
    .await?;
    let (name, sandbox) = (pod.name().to_owned(), pod.sandbox().to_owned());
    pod.stop_all_at_once(SOON).await?;
    pod.remove().await?;
    let past = history(&node, &name).await?;
    ensure!(past["reason"] == "caller", "{past}");
    let listed = podshim(&node, &["history", "--since", "1h", &name], 0).await?;
    ensure!(listed.contains(&name) && listed.contains("caller"), "{listed}");
    let drawn = podshim(&node, &["timeline", "--past", "--width", "80", &name], 0).await?;
    ensure!(drawn.contains("held, waiting for sidecar \"proxy\""), "{drawn}");
    ensure!(drawn.contains("SIGTERM waits for its turn"), "{drawn}");
    let missing = podshim(&node, &["timeline", "--past", "no-such-pod"], 1).await?;
    ensure!(missing.contains("`podshim history` lists them"), "{missing}");

    let root = node.root()?.join("var/lib/podshim/history");
    let directory = root.join("e2e");
    let mode = |path: &Path| anyhow::Ok(std::fs::metadata(path)?.permissions().mode() & 0o777);
    ensure!(mode(&root)? == 0o700 && mode(&directory)? == 0o700);
    let file = std::fs::read_dir(&directory)?
        .flatten()
        .map(|entry| entry.path())
        .find(|path| path.to_string_lossy().contains(&sandbox[..13]))
        .with_context(|| format!("no record in {}", directory.display()))?;
    ensure!(mode(&file)? == 0o600, "{}", file.display());
    let bytes = std::fs::read(&file)?;
    ensure!(!String::from_utf8_lossy(&bytes).contains("tell-no-one"), "a command is in the record");
    Ok(())
}

/// Hooks and restarts are calls of the OCI runtime too: their processor time is counted as what it was for.
#[tokio::test]
async fn hooks_and_restarts_are_counted_as_that() -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = Pod::new("past-cost")
        .annotate("plan", "proxy=sidecar, app=main")
        .annotate("pre-stop.app", "exec:true")
        .container(
            Program::new("proxy")
                .runs_for_each(&[milliseconds(10), seconds(600)])
                .runs_from("/pod/end-proxy")
                .exits_each(&[3, 0]),
        )
        .container(Program::new("app"))
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start_all(&["proxy", "app"]).await?;
    let cost = |answer: &Value, of: &str| answer["cost"][of].as_u64();
    let answer = inspect(&node, &pod).await?;
    ensure!(cost(&answer, "restarts_ms") == Some(0) && cost(&answer, "hooks_ms") == Some(0), "{answer}");
    std::fs::write(pod.directory().join("end-proxy"), "")?;
    pod.wait_for("proxy", Started, 2, SOON).await?;
    wait::until("the restart to be counted", SOON, async || {
        Ok((cost(&inspect(&node, &pod).await?, "restarts_ms") > Some(0)).then_some(()))
    })
    .await?;
    let metrics = podshim(&node, &["metrics"], 0).await?;
    let of_pod =
        format!("podshim_pod_processor_seconds{{namespace=\"e2e\",pod=\"{}\",for=\"restarts\"}}", pod.name());
    let line = metrics.lines().find(|line| line.starts_with(&of_pod)).context("no such metric")?;
    ensure!(!line.ends_with(" 0.000"), "{line}");
    let name = pod.name().to_owned();
    pod.stop_all_at_once(SOON).await?;
    pod.remove().await?;
    let past = history(&node, &name).await?;
    ensure!(cost(&past["pod"], "hooks_ms") > Some(0), "{past}");
    ensure!(cost(&past["pod"], "probes_ms") == Some(0), "{past}");
    Ok(())
}

/// N3: if the shim was killed, the `delete` action writes a record of what it knows about the pod.
#[tokio::test]
async fn n3_a_killed_shim_leaves_a_record() -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = Pod::new("past-killed")
        .annotate("plan", "proxy=sidecar, app=main")
        // The record counts in milliseconds; a proxy that ends at once may end in the same one as the app.
        .container(Program::new("proxy").term_delay(milliseconds(300)))
        .container(Program::new("app"))
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start_all(&["proxy", "app"]).await?;
    pod.wait_for("app", Started, 1, SOON).await?;
    let name = pod.name().to_owned();
    signal(pod.shim_pid()?, libc::SIGKILL)?;
    pod.wait_exited("app", SOON).await?;
    let past = history(&node, &name).await?;
    ensure!(past["shim_was_killed"] == true, "{past}");
    ensure!(container(&past["pod"], "proxy")?["role"] == "sidecar", "{past}");
    // No process saw how they ended; 137 would be made up.
    for name in ["app", "proxy"] {
        let container = container(&past["pod"], name)?;
        ensure!(container["real_exit_code"].is_null() && container["shown_exit_code"].is_null(), "{past}");
    }
    let ended = |name| Ok::<_, anyhow::Error>(container(&past["pod"], name)?["exited_at_ms"].as_i64());
    let (app, proxy) = (ended("app")?.context("no time")?, ended("proxy")?.context("no time")?);
    ensure!(app + 300 <= proxy, "mains end before sidecars: {past}");
    pod.remove().await?;
    let answer = json(&node, &["history", "--json", &name]).await?;
    ensure!(answer["pods"].as_array().is_some_and(|pods| pods.len() == 1), "one record a pod: {answer}");
    let listed = podshim(&node, &["history", &name], 0).await?;
    ensure!(listed.contains("shim-killed"), "{listed}");
    let drawn = podshim(&node, &["timeline", "--past", "--width", "80", &name], 0).await?;
    for name in ["app", "proxy"] {
        let draws = |line: &str| line.starts_with(name) && line.contains('?');
        let tells =
            |line: &str| line.contains(&format!(" {name} ")) && line.contains("code that is not known");
        ensure!(drawn.lines().any(draws) && drawn.lines().any(tells), "{drawn}");
    }
    Ok(())
}

/// U10: the plan names a main that the pod has under another name.
#[tokio::test]
async fn u10_a_main_that_is_never_created_is_reported() -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = Pod::new("past-typo")
        .annotate("plan", "proxy=sidecar, worker=main")
        .annotate("restart-policy", "Never")
        .container(Program::new("proxy"))
        .container(Program::new("wrkr").runs_for(seconds(1)))
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start_all(&["proxy", "wrkr"]).await?;
    let fault = "the pod does not end: main \"worker\" was never created; the pod has \"wrkr\", which the \
                 plan does not name";
    ensure!(inspect(&node, &pod).await?["fault"].is_null(), "its caller may still be creating");
    wait::until("the fault to be known", AMPLE + SOON, async || {
        Ok((inspect(&node, &pod).await?["fault"] == fault).then_some(()))
    })
    .await?;
    ensure!(podshim(&node, &["ps"], 0).await?.contains(fault));
    ensure!(podshim(&node, &["inspect", pod.sandbox()], 0).await?.contains(fault));
    pod.wait_for_output("proxy", "main \"worker\" was never created").await?;
    pod.stop_all_at_once(SOON).await?;
    pod.remove().await
}

/// U10: the same for an init and a sidecar; every other container waits for them.
#[tokio::test]
async fn u10_an_init_and_a_sidecar_of_another_name_are_named() -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = Pod::new("past-typos")
        .annotate("plan", "fetch=init, proxy=sidecar, app=main")
        .container(Program::new("fetch"))
        .container(Program::new("fecth").runs_for(seconds(1)))
        .container(Program::new("prxoy"))
        .container(Program::new("app"))
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start_all(&["fecth", "prxoy", "app"]).await?;
    let fault = "the pod does not start: init \"fetch\" and sidecar \"proxy\" were never created; the pod has \
                 \"fecth\" and \"prxoy\", which the plan does not name";
    wait::until("the fault to be known", AMPLE + SOON, async || {
        Ok((inspect(&node, &pod).await?["fault"] == fault).then_some(()))
    })
    .await?;
    ensure!(podshim(&node, &["ps"], 0).await?.contains(fault));
    pod.wait_for_output("app", fault).await?;
    pod.stop_all_at_once(SOON).await?;
    pod.remove().await
}

/// The log has the containers' names, and each start, gate, exit with its code and restart, signal and end of a stop
/// once: of one pod's whole life.
#[tokio::test]
async fn the_log_tells_a_pods_story_by_names() -> Result<()> {
    let node = Containerd::start().await?;
    let mut pod = Pod::new("past-log")
        .annotate("plan", "fetch=init, proxy=sidecar, app=main")
        .container(Program::new("fetch").runs_for(seconds(0)))
        .container(Program::new("proxy").runs_for_each(&[seconds(1), seconds(600)]).exits_each(&[3, 0]))
        .container(Program::new("app").term_exit_code(4))
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start_all(&["fetch", "proxy", "app"]).await?;
    pod.wait_for("proxy", Started, 2, SOON).await?;
    pod.wait_for("app", Started, 1, SOON).await?;
    let title = format!("pod=e2e/{}", pod.name());
    pod.stop_all_at_once(SOON).await?;
    let log = node.directory().join("containerd.log");
    let lines = wait::until("the stop to be over in the log", SOON, async || {
        let text = std::fs::read_to_string(&log)?;
        let ours: Vec<_> =
            text.lines().filter(|line| line.contains(&title) && !line.contains("level=debug")).collect();
        let over = ours.iter().any(|line| line.contains("pod stop is over"));
        Ok(over.then(|| ours.iter().map(|line| (*line).to_owned()).collect::<Vec<_>>()))
    })
    .await?;
    for (count, words) in [
        (1, &["msg=start", "container=fetch"][..]),
        (1, &["msg=exited with code 0", "container=fetch"]),
        (2, &["msg=start", "container=proxy"]),
        (1, &["msg=exited with code 3; restart at once", "container=proxy"]),
        (1, &["gate of sidecar", "proxy", "is open"]),
        (1, &["msg=start", "container=app"]),
        (1, &["pod stop begins"]),
        (1, &["msg=signal", "container=app", "name=SIGTERM"]),
        (1, &["msg=exited with code 4", "container=app"]),
        (1, &["msg=signal", "container=proxy", "cause=turn"]),
        (1, &["msg=exited with code 0", "container=proxy"]),
        (1, &["pod stop is over"]),
        // No other line about any of these.
        (4, &["msg=start"]),
        (4, &["exited"]),
        (1, &["restart"]),
        (2, &["msg=signal"]),
        (0, &["completed"]),
    ] {
        // Whether containerd quotes a message depends on its version.
        let of_container = |line: &String| !line.contains(&format!("container={}", pod.sandbox()));
        let has = |line: &&String| words.iter().all(|word| line.replace('"', "").contains(word));
        let found = lines.iter().filter(|line| of_container(line)).filter(has).count();
        ensure!(found == count, "{words:?} stands {found} times, not {count}, in\n{}", lines.join("\n"));
    }
    // Ids of rules are for podshim's developers.
    let rule = lines.iter().find(|line| line.contains("(J2)") || line.contains("(N8)"));
    ensure!(rule.is_none(), "{rule:?}");
    let names = ["app", "proxy", "fetch"].map(|name| format!("container={name}"));
    let is_named =
        |line: &&String| names.iter().any(|name| line.contains(name)) || line.contains(pod.sandbox());
    let unnamed = lines.iter().find(|line| line.contains("container=") && !is_named(line));
    ensure!(unnamed.is_none(), "{unnamed:?}");
    pod.remove().await
}
