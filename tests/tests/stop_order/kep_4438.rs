//! Cases that KEP-4438 lists and Kubernetes' suite does not have yet: probes, hooks and further stops while a pod
//! terminates. "Readiness" and "liveness" are execs here, as a shim sees them. Tested elsewhere: a sidecar that dies
//! meanwhile is ks-B15, a hook that outlives the grace period ks-L13, a hook of a container that never started H4, a
//! second stop with less time T9.

use anyhow::{Result, ensure};
use e2e::Event::{Exiting, Starting, Term};
use e2e::{Containerd, Event, Pod, Program, Runtime};

use crate::support::{
    AMPLE, SOON, TOLERANCE, exit_codes, finished_at, hook, milliseconds, run_started, seconds,
};

const MIB: i64 = 1 << 20;

/// A main's readiness probe while its hook runs, and a sidecar's liveness probe while that main is ending: the running
/// program answers both, and they end no container.
#[tokio::test]
async fn t1_probes_are_answered_while_a_pod_terminates() -> Result<()> {
    let node = Containerd::connect().await?;
    let pod = Pod::new("kep-probes")
        .annotate("plan", "s1=sidecar, app=main")
        .annotate("pre-stop.app", &hook("flush", "--run 4"))
        .container(Program::new("s1"))
        .container(Program::new("app").term_delay(seconds(4)));
    let pod = run_started(pod, &node, &["s1", "app"]).await?;
    let probes = async {
        for (name, event) in [("flush", Event::Started), ("app", Term)] {
            pod.wait_for(name, event, 1, SOON).await?;
            for name in ["app", "s1"] {
                let ready = pod.exec(name, &["sh", "-c", "exit 0"]).await?;
                let not_ready = pod.exec(name, &["sh", "-c", "exit 1"]).await?;
                ensure!((ready.exit_code, not_ready.exit_code) == (0, 1), "{name}: {ready:?} {not_ready:?}");
            }
        }
        anyhow::Ok(())
    };
    tokio::try_join!(pod.stop_all_at_once(AMPLE), probes)?;
    let timeline = pod.timeline()?;
    timeline.in_order(&[
        ("flush", Exiting),
        ("app", Term),
        ("app", Exiting),
        ("s1", Term),
        ("s1", Exiting),
    ])?;
    for name in ["app", "s1"] {
        timeline.has_not_restarted(name)?;
        let error =
            pod.exec(name, &["true"]).await.expect_err("an exec ran in an ended container").to_string();
        ensure!(!error.is_empty());
    }
    pod.remove().await
}

/// A second stop with more time does not take back the first one's (T9).
#[tokio::test]
async fn t9_a_second_stop_with_more_time_changes_nothing() -> Result<()> {
    let node = Containerd::connect().await?;
    let pod = Pod::new("kep-more")
        .annotate("plan", "s1=sidecar, app=main")
        .container(Program::new("s1"))
        .container(Program::new("app").ignores_term());
    let pod = run_started(pod, &node, &["app", "s1"]).await?;
    let again = async {
        pod.wait_for("app", Term, 1, SOON).await?;
        pod.stop_all_at_once(AMPLE).await
    };
    tokio::try_join!(pod.stop_all_at_once(seconds(3)), again)?;
    let timeline = pod.timeline()?;
    let lived = finished_at(&pod.status("app").await?)?.saturating_sub(timeline.time_of("app", Term)?);
    ensure!(lived <= seconds(3) + milliseconds(1500) + TOLERANCE, "app lived {lived:?}\n{timeline}");
    ensure!(exit_codes(&pod, ["app", "s1"]).await? == [137, 0], "{timeline}");
    pod.remove().await
}

/// In a main that is killed for memory no hook can run any more; the hook of the sidecar that stops after it runs.
#[tokio::test]
async fn h4_no_hook_runs_after_an_oom_kill() -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = Pod::new("kep-oom")
        .annotate("plan", "s1=sidecar, app=main")
        .annotate("restart-policy", "Never")
        .annotate("on-terminate.app", &hook("drain", "--run 0"))
        .annotate("pre-stop.app", &hook("flush", "--run 0"))
        .annotate("pre-stop.s1", &hook("flush1", "--run 0"))
        .container(Program::new("s1"))
        .container(Program::new("app").memory_limit(20 * MIB).allocates_mib(64))
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start_all(&["s1", "app"]).await?;
    let app = pod.wait_exited("app", SOON).await?;
    ensure!((app.exit_code, app.reason.as_str()) == (137, "OOMKilled"), "{app:?}");
    pod.wait_exited("s1", SOON).await?;
    let timeline = pod.timeline()?;
    for never in ["drain", "flush"] {
        timeline.doesnt_start(never)?;
    }
    timeline.in_order(&[("flush1", Starting), ("flush1", Exiting), ("s1", Term), ("s1", Exiting)])?;
    pod.remove().await
}

/// Every hook with a program that traps its signal and ends slowly: hook, signal and end come one after the other, and
/// the exit code is the one that the trap chose.
#[tokio::test]
async fn h2_hooks_of_programs_that_trap_their_signal() -> Result<()> {
    let node = Containerd::connect().await?;
    let names = ["app", "s2", "s1"];
    let mut pod = Pod::new("kep-trap")
        .annotate("plan", "s1=sidecar, s2=sidecar, app=main")
        .annotate("exit-codes", "real");
    for name in names {
        let trap = Program::new(name).term_delay(milliseconds(700)).term_exit_code(7);
        pod = pod
            .annotate(&format!("on-terminate.{name}"), &hook(&format!("drain-{name}"), "--run 0.2"))
            .annotate(&format!("pre-stop.{name}"), &hook(&format!("flush-{name}"), "--run 0.5"))
            .container(trap);
    }
    let pod = run_started(pod, &node, &names).await?;
    pod.stop_all_at_once(AMPLE).await?;
    let timeline = pod.timeline()?;
    let mut before = None;
    for name in names {
        let (drain, flush) = (format!("drain-{name}"), format!("flush-{name}"));
        timeline.before((&drain, Exiting), (name, Term))?;
        timeline.in_order(&[(&flush, Starting), (&flush, Exiting), (name, Term), (name, Exiting)])?;
        if let Some(before) = before.replace(name) {
            timeline.before((before, Exiting), (&flush, Starting))?;
        }
        ensure!(timeline.count(&drain, Starting) == 1 && timeline.count(&flush, Starting) == 1, "{timeline}");
    }
    ensure!(exit_codes(&pod, names).await? == [7, 7, 7], "{timeline}");
    pod.remove().await
}

/// ks-L6 and ks-L1 with a stop that the caller repeats, as a kubelet does that lost the first answer: nothing runs
/// twice.
#[tokio::test]
async fn h1_h2_a_stop_that_is_repeated_runs_no_hook_twice() -> Result<()> {
    let node = Containerd::connect().await?;
    let pod = Pod::new("kep-again")
        .annotate("plan", "s1=sidecar, app=main")
        .annotate("on-terminate.s1", &hook("drain", "--run 1"))
        .annotate("pre-stop.app", &hook("flush", "--run 1"))
        .annotate("pre-stop.s1", &hook("flush1", "--run 1"))
        .container(Program::new("s1"))
        .container(Program::new("app").term_delay(seconds(1)));
    let pod = run_started(pod, &node, &["app", "s1"]).await?;
    let again = async {
        for (name, event) in [("flush", Event::Started), ("app", Term), ("flush1", Event::Started)] {
            pod.wait_for(name, event, 1, SOON).await?;
            pod.stop_all_at_once(AMPLE).await?;
        }
        anyhow::Ok(())
    };
    tokio::try_join!(pod.stop_all_at_once(AMPLE), again)?;
    let timeline = pod.timeline()?;
    for name in ["drain", "flush", "flush1", "app", "s1"] {
        ensure!(timeline.count(name, Starting) == 1, "{name}\n{timeline}");
    }
    ensure!(exit_codes(&pod, ["app", "s1"]).await? == [0, 0], "{timeline}");
    pod.remove().await
}
