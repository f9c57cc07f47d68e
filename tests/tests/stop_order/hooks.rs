//! Hooks in real containers (H1 to H4, H6; ks-L5, ks-L6, ks-L10, ks-L13, ks-L14): when they run, what waits for them,
//! where their output goes, and that they never lengthen a stop.

use anyhow::{Result, ensure};
use e2e::Event::{Exiting, Starting, Term};
use e2e::instance::signal;
use e2e::{Containerd, Event, Pod, Program, Runtime};

use crate::support::{
    AMPLE, SOON, TOLERANCE, exit_codes, finished_at, hook, milliseconds, near, seconds, wait_started,
};

/// H1, ks-L6: all on-terminate hooks start at T0; they do not delay mains, and each sidecar's signal comes after its
/// own hook.
#[tokio::test]
async fn h1_ks_l6_on_terminate_hooks_start_together() -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = Pod::new("h1")
        .annotate("plan", "s1=sidecar, s2=sidecar, app=main")
        .annotate("on-terminate.s1", &hook("drain1", "--run 0.5"))
        .annotate("on-terminate.s2", &hook("drain2", "--run 6"))
        .container(Program::new("s1"))
        .container(Program::new("s2"))
        .container(Program::new("app").term_delay(seconds(4)))
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start_all(&["app", "s1", "s2"]).await?;
    wait_started(&pod, &["app", "s1", "s2"]).await?;
    pod.stop_all_at_once(AMPLE).await?;
    let timeline = pod.timeline()?;
    for drain in ["drain1", "drain2"] {
        // The time that an exec takes here; podshim does not wait for app and its 4 s.
        timeline.within(seconds(2), (drain, Starting), ("app", Term))?;
        ensure!(timeline.count(drain, Starting) == 1, "{timeline}");
    }
    timeline.in_order(&[("drain1", Exiting), ("app", Exiting), ("drain2", Exiting), ("s2", Term)])?;
    timeline.in_order(&[("s2", Exiting), ("s1", Term), ("s1", Exiting)])?;
    pod.remove().await
}

/// H2, H3, ks-L10: just before the container's signal, in its  turn, once; a main's own signal is kept until its hook
/// has ended.
#[tokio::test]
async fn h2_pre_stop_hooks_run_in_their_turn() -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = Pod::new("h2")
        .annotate("plan", "s1=sidecar, s2=sidecar, app=main")
        .annotate("pre-stop.app", &hook("flush", "--run 1"))
        .annotate("on-terminate.s1", &hook("drain1", "--run 0"))
        .annotate("pre-stop.s1", &hook("flush1", "--run 0.5"))
        .annotate("pre-stop.s2", &hook("flush2", "--run 0.5 --exit-code 3"))
        .container(Program::new("s1"))
        .container(Program::new("s2"))
        .container(Program::new("app"))
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start_all(&["app", "s1", "s2"]).await?;
    wait_started(&pod, &["app", "s1", "s2"]).await?;
    pod.stop_all_at_once(AMPLE).await?;
    let timeline = pod.timeline()?;
    timeline.in_order(&[
        ("flush", Starting),
        ("flush", Exiting),
        ("app", Term),
        ("app", Exiting),
        ("flush2", Starting),
        ("flush2", Exiting),
        ("s2", Term),
        ("s2", Exiting),
        ("flush1", Starting),
        ("flush1", Exiting),
        ("s1", Term),
        ("s1", Exiting),
    ])?;
    timeline.before(("drain1", Exiting), ("flush2", Starting))?;
    for name in ["flush", "flush1", "flush2", "drain1"] {
        ensure!(timeline.count(name, Starting) == 1, "{timeline}");
    }
    // H3, ks-L10: a hook's result changes no exit code.
    ensure!(exit_codes(&pod, ["app", "s1", "s2"]).await? == [0, 0, 0], "{timeline}");
    pod.wait_for_output("s2", "podshim: pre-stop hook: exit status 3").await?;
    pod.remove().await
}

/// H1: a hook has its container's environment, directory and output; containerd learns of no exec.
#[tokio::test]
async fn h1_a_hook_is_a_part_of_its_container() -> Result<()> {
    let node = Containerd::connect().await?;
    let script = "echo hook $(hostname) $PATH $(pwd) $(id -u); echo to stderr >&2; cat";
    let mut pod = Pod::new("h1-part")
        .annotate("plan", "s1=sidecar, app=main")
        .annotate("on-terminate.s1", &format!("exec:[\"sh\", \"-c\", \"{script}\"]"))
        .container(Program::new("s1").begins_with_script("echo program $(hostname) $PATH $(pwd) $(id -u)"))
        .container(Program::new("app"))
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start_all(&["app", "s1"]).await?;
    wait_started(&pod, &["app", "s1"]).await?;
    let id = pod.id("s1")?.to_owned();
    pod.stop_all_at_once(AMPLE).await?;
    let log = pod.wait_for_output("s1", "stderr F to stderr").await?;
    let logged = |word: &str| {
        let line = log.lines().find(|line| line.contains(&format!("stdout F {word} ")));
        line.and_then(|line| Some(line.split_once(word)?.1.to_owned()))
    };
    ensure!(logged("hook").is_some() && logged("hook") == logged("program"), "{log}");
    let daemon = std::fs::read_to_string(node.directory().join("containerd.log"))?;
    ensure!(
        !daemon.lines().any(|line| line.contains("exec-added") && line.contains(&id)),
        "containerd learned of an exec"
    );
    pod.remove().await
}

/// H3, T6, ks-L5: podshim waits for hooks that never end until the budget is spent, and kills them with their
/// containers. As with the kubelet nothing of the budget is kept for the later ones (T19).
#[tokio::test]
async fn h3_ks_l5_hooks_that_hang_end_together_after_the_budget() -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = Pod::new("l5")
        .annotate("plan", "s1=sidecar, s2=sidecar, s3=sidecar, app=main")
        .annotate("grace", "3s")
        .annotate("reserve", "0s")
        .annotate("exit-codes", "real")
        .annotate("restart-policy", "Never");
    for name in ["s1", "s2", "s3"] {
        pod = pod
            .annotate(&format!("on-terminate.{name}"), &hook(&format!("hang-{name}"), "--ignore-term"))
            .container(Program::new(name).ignores_term());
    }
    let mut pod = pod.container(Program::new("app")).run(&node, Runtime::Podshim).await?;
    pod.start_all(&["app", "s1", "s2", "s3"]).await?;
    wait_started(&pod, &["app", "s1", "s2", "s3"]).await?;
    pod.stop_all_at_once(AMPLE).await?;
    let timeline = pod.timeline()?;
    let mut ends = Vec::new();
    for name in ["s1", "s2", "s3"] {
        timeline.distance(("hang-s1", Starting), (name, Term), seconds(3), TOLERANCE)?;
        ends.push(finished_at(&pod.status(name).await?)?);
        let lived = ends[ends.len() - 1].saturating_sub(timeline.time_of(&format!("hang-{name}"), Starting)?);
        ensure!(near(lived, seconds(5), milliseconds(1500)), "hook of {name} lived {lived:?}\n{timeline}");
    }
    ends.sort();
    ensure!(near(ends[2], ends[0], seconds(1)), "{ends:?}");
    ensure!(exit_codes(&pod, ["app", "s1", "s2", "s3"]).await? == [0, 137, 137, 137], "{timeline}");
    pod.remove().await
}

/// ks-L13: a main whose pre-stop hook outlives the budget, which fails the pod; ks-L14: a sidecar's does not.
async fn ks_l13_l14(key: &str, app: Program, s2: Program, expected: [i32; 4]) -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = Pod::new("l13")
        .annotate("plan", "s1=sidecar, s2=sidecar, s3=sidecar, app=main")
        .annotate("grace", "3s")
        .annotate("exit-codes", "real")
        .annotate("restart-policy", "Never")
        .annotate(key, &hook("hang", "--ignore-term"))
        .container(Program::new("s1"))
        .container(s2)
        .container(Program::new("s3"))
        .container(app)
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start_all(&["app", "s1", "s2", "s3"]).await?;
    wait_started(&pod, &["app", "s1", "s2", "s3"]).await?;
    pod.stop_all_at_once(AMPLE).await?;
    let codes = exit_codes(&pod, ["app", "s1", "s2", "s3"]).await?;
    ensure!(codes == expected, "{codes:?} and not {expected:?}\n{}", pod.timeline()?);
    pod.remove().await
}

#[tokio::test]
async fn h3_ks_l13_a_mains_hook_that_outlives_the_budget_fails_the_pod() -> Result<()> {
    let (app, s2) = (Program::new("app").ignores_term(), Program::new("s2").ignores_term());
    ks_l13_l14("pre-stop.app", app, s2, [137, 0, 137, 0]).await
}

#[tokio::test]
async fn h3_ks_l14_a_sidecars_hook_that_outlives_the_budget_does_not_fail_the_pod() -> Result<()> {
    let (app, s2) = (Program::new("app"), Program::new("s2").ignores_term());
    ks_l13_l14("pre-stop.s2", app, s2, [0, 0, 137, 0]).await
}

/// H3, T7: without a budget the caller's SIGKILL ends the stop, and no hook delays that.
#[tokio::test]
async fn h3_t7_a_callers_kill_does_not_wait_for_hooks() -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = Pod::new("h3-kill")
        .annotate("plan", "s1=sidecar, app=main")
        .annotate("pre-stop.app", &hook("hang", "--ignore-term"))
        .annotate("on-terminate.s1", &hook("hang1", "--ignore-term"))
        .container(Program::new("s1"))
        .container(Program::new("app"))
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start_all(&["app", "s1"]).await?;
    wait_started(&pod, &["app", "s1"]).await?;
    pod.stop_all_at_once(seconds(2)).await?;
    let timeline = pod.timeline()?;
    timeline.distance(("hang1", Starting), ("s1", Term), seconds(2), TOLERANCE)?;
    ensure!(timeline.count("app", Term) == 0, "{timeline}");
    ensure!(exit_codes(&pod, ["app", "s1"]).await? == [137, 0], "{timeline}");
    pod.remove().await
}

/// H4: no hook runs for a container that never ran. A hook ends with its container, and the container's exit is still
/// published.
#[tokio::test]
async fn h4_no_hook_without_a_program() -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = Pod::new("h4")
        .annotate("plan", "s1=sidecar, s2=sidecar, app=main")
        .annotate("ready.s2", "tcp::1")
        .annotate("on-terminate.app", &hook("drain", "--run 0"))
        .annotate("pre-stop.app", &hook("flush", "--run 0"))
        .annotate("on-terminate.s1", &hook("quit", "--ignore-term"))
        .container(Program::new("s1"))
        .container(Program::new("s2").term_delay(seconds(5)))
        .container(Program::new("app"))
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start_all(&["app", "s1", "s2"]).await?;
    wait_started(&pod, &["s1", "s2"]).await?;
    let s1 = node.cri()?.container_pid(pod.id("s1")?).await?;
    let end_its_program = async {
        pod.wait_for("quit", Event::Started, 1, SOON).await?;
        signal(s1, libc::SIGKILL)
    };
    tokio::try_join!(pod.stop_all_at_once(AMPLE), end_its_program)?;
    let timeline = pod.timeline()?;
    for never in ["app", "drain", "flush"] {
        timeline.doesnt_start(never)?;
    }
    // Its program ended before its turn, as s2 was still running; its hook ended with it, and podshim restarted it
    // (R2).
    timeline.has_restarted("s1")?;
    ensure!(timeline.count("quit", Starting) == 1, "{timeline}");
    timeline.before(("s2", Exiting), ("s1", Term))?;
    ensure!(exit_codes(&pod, ["app", "s1", "s2"]).await? == [143, 0, 0], "{timeline}");
    pod.remove().await
}

/// U4, H2, ks-J5: a sidecar that does not get ready is stopped with its pre-stop hook, and nothing after it ever
/// starts.
#[tokio::test]
async fn u4_ks_j5_an_unready_sidecar_is_stopped_with_its_pre_stop_hook() -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = Pod::new("j5")
        .annotate("plan", "s1=sidecar, app=main")
        .annotate("ready.s1", "tcp::1;period=200ms;fail=3")
        .annotate("pre-stop.s1", &hook("flush", "--run 0.3"))
        .container(Program::new("s1"))
        .container(Program::new("app"))
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start_all(&["s1", "app"]).await?;
    let timeline = pod.wait_for("s1", Event::Starting, 2, SOON).await?;
    timeline.in_order(&[("s1", Starting), ("flush", Starting), ("flush", Exiting), ("s1", Term)])?;
    timeline.doesnt_start("app")?;
    pod.remove().await
}

/// H6: if a hook makes its program exit again and again before its turn, a line in the container's log says so.
#[tokio::test]
async fn h6_a_hook_that_ends_its_container_is_reported() -> Result<()> {
    let node = Containerd::connect().await?;
    // The root file system keeps its writes over a restart in place (R6).
    let mut pod = Pod::new("h6")
        .annotate("plan", "s1=sidecar, app=main")
        .annotate("on-terminate.s1", "exec:sh -c 'touch /quit; kill 1'")
        .container(Program::new("s1").begins_with_script("test ! -e /quit || exit 0"))
        .container(Program::new("app").term_delay(seconds(6)))
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start_all(&["s1", "app"]).await?;
    wait_started(&pod, &["app", "s1"]).await?;
    pod.stop_all_at_once(AMPLE).await?;
    let log = pod.wait_for_output("s1", "exited 3 times while the pod stops").await?;
    ensure!(log.matches("exited 3 times while the pod stops").count() == 1, "{log}");
    ensure!(exit_codes(&pod, ["app", "s1"]).await? == [0, 0], "{log}");
    pod.remove().await
}
