//! The signal table (K-rules): which signal is delivered, kept, brought forward or obeyed.

use anyhow::{Result, ensure};
use e2e::Event::{Exiting, Signal, Starting, Term};
use e2e::cri::ContainerState;
use e2e::durations::pace;
use e2e::{Containerd, Event, Pod, Program, RunningPod, Runtime, wait};
use tokio::time::Instant;

use crate::support::{
    AMPLE, SOON, TOLERANCE, at_most, exit_codes, finished_at, kill_task, milliseconds, near, seconds,
    wait_started,
};

/// A pod of one sidecar and one main, both started.
async fn pair<'node>(node: &'node Containerd, s1: Program, app: Program) -> Result<RunningPod<'node>> {
    let mut pod = Pod::new("signals")
        .annotate("plan", "s1=sidecar, app=main")
        .container(s1)
        .container(app)
        .run(node, Runtime::Podshim)
        .await?;
    pod.start_all(&["s1", "app"]).await?;
    wait_started(&pod, &["s1", "app"]).await?;
    Ok(pod)
}

/// K1: an exec gets its signal at once, also in a sidecar whose own stop signal would be kept.
#[tokio::test]
async fn k1_an_exec_gets_its_signal_at_once() -> Result<()> {
    let node = Containerd::connect().await?;
    let pod = pair(&node, Program::new("s1"), Program::new("app")).await?;
    let id = pod.id("s1")?;
    kill_task(&node, id, &[]).await?;
    let exec = ["-n", "k8s.io", "task", "exec", "--exec-id", "shell", id, "sleep", "60"];
    let ctr = node.ctr();
    let exec = ctr.output(&exec);
    // `ctr` attaches before it starts the exec, so a signal that comes too early is refused and repeated.
    let signal = wait::until("the exec to take a signal", SOON, async || {
        Ok(kill_task(&node, id, &["--exec-id", "shell", "-s", "TERM"]).await.ok())
    });
    let (output, ()) = tokio::try_join!(exec, signal)?;
    ensure!(output.exit_code == Some(143), "{output:?}");
    ensure!(pod.timeline()?.count("s1", Term) == 0, "{}", pod.timeline()?);
    pod.remove().await
}

/// K2, S8: a container that is not in the plan gets every signal at once.
#[tokio::test]
async fn k2_a_container_outside_the_plan_gets_every_signal() -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = Pod::new("k2")
        .annotate("plan", "s1=sidecar, app=main")
        .container(Program::new("s1"))
        .container(Program::new("app"))
        .container(Program::new("guest").term_exit_code(4))
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start_all(&["s1", "app", "guest"]).await?;
    wait_started(&pod, &["s1", "app", "guest"]).await?;
    pod.stop("guest", AMPLE).await?;
    ensure!(pod.status("guest").await?.exit_code == 4, "{}", pod.timeline()?);
    let timeline = pod.timeline()?;
    ensure!(timeline.count("app", Term) == 0 && timeline.count("s1", Term) == 0, "{timeline}");
    pod.remove().await
}

/// T3, K6, K15: a Kill with a stop signal that is kept returns at once, a second one is not delivered, and SIGHUP still
/// reloads if `stop-signal` names another signal.
#[tokio::test]
async fn k6_k15_hup_is_delivered_while_one_term_is_held() -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = Pod::new("k6")
        .annotate("plan", "s1=sidecar, app=main")
        .annotate("stop-signal.s1", "TERM")
        .container(Program::new("s1"))
        .container(Program::new("app").term_delay(milliseconds(300)))
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start_all(&["s1", "app"]).await?;
    wait_started(&pod, &["s1", "app"]).await?;
    let begin = Instant::now();
    for _ in 0..2 {
        kill_task(&node, pod.id("s1")?, &[]).await?;
    }
    // Two runs of `ctr` and its scripts; if a Kill waited for the turn, it would never return.
    ensure!(at_most(begin.elapsed(), SOON), "the kills took {:?}", begin.elapsed());
    kill_task(&node, pod.id("s1")?, &["-s", "HUP"]).await?;
    let timeline = pod.wait_for("s1", Signal, 1, SOON).await?;
    ensure!(timeline.of("s1", Signal).all(|entry| entry.code == libc::SIGHUP), "{timeline}");
    wait::quiet_time(seconds(1)).await;
    ensure!(pod.timeline()?.count("s1", Term) == 0, "{}", pod.timeline()?);
    pod.stop("app", AMPLE).await?;
    pod.wait_exited("s1", SOON).await?;
    let timeline = pod.timeline()?;
    timeline.in_order(&[("s1", Signal), ("app", Exiting), ("s1", Term)])?;
    ensure!(timeline.count("s1", Term) == 1, "{timeline}");
    pod.remove().await
}

/// K5, K15: a main gets every signal its caller sends, at once.
#[tokio::test]
async fn k5_k15_a_main_gets_every_signal() -> Result<()> {
    let node = Containerd::connect().await?;
    let pod = pair(&node, Program::new("s1"), Program::new("app").ignores_term()).await?;
    for _ in 0..2 {
        kill_task(&node, pod.id("app")?, &[]).await?;
    }
    kill_task(&node, pod.id("app")?, &["-s", "HUP"]).await?;
    pod.wait_for("app", Signal, 1, SOON).await?;
    pod.wait_for("app", Term, 2, SOON).await?;
    ensure!(pod.timeline()?.count("s1", Term) == 0, "{}", pod.timeline()?);
    pod.remove().await
}

/// K7: under CRI any signal but KILL is the image's stop signal, whatever its number; it is kept and delivered with
/// that number.
#[tokio::test]
async fn k7_an_images_stop_signal_is_held_and_delivered_by_its_number() -> Result<()> {
    let node = Containerd::connect().await?;
    let pod = pair(&node, Program::new("s1").stop_signal(libc::SIGUSR1), Program::new("app")).await?;
    kill_task(&node, pod.id("s1")?, &["-s", "USR1"]).await?;
    wait::quiet_time(seconds(1)).await;
    let timeline = pod.timeline()?;
    ensure!(timeline.count("s1", Term) + timeline.count("s1", Signal) == 0, "{timeline}");
    pod.stop("app", AMPLE).await?;
    pod.wait_exited("s1", SOON).await?;
    let timeline = pod.timeline()?;
    timeline.before(("app", Exiting), ("s1", Term))?;
    ensure!(timeline.of("s1", Term).all(|entry| entry.code == libc::SIGUSR1), "{timeline}");
    pod.remove().await
}

/// K3, K7: an image's STOPSIGNAL may be HUP, which a shim cannot know. A held container ends with it, and a sidecar
/// gets it in its turn.
#[tokio::test]
async fn k3_k7_an_images_stop_signal_may_be_hup() -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = Pod::new("k7-hup")
        .annotate("plan", "s1=sidecar, s2=sidecar, app=main, late=main")
        .annotate("after.app", "s1=ready")
        .container(Program::new("s1").stops_by_hup())
        .container(Program::new("app").stops_by_hup())
        .container(Program::new("late").stops_by_hup())
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start_all(&["s1", "app", "late"]).await?;
    wait_started(&pod, &["s1", "app"]).await?;
    let begin = Instant::now();
    pod.stop("late", AMPLE).await?;
    ensure!(at_most(begin.elapsed(), SOON), "the stop took {:?}", begin.elapsed());
    ensure!(pod.status("late").await?.exit_code == 128 + libc::SIGHUP, "{:?}", pod.status("late").await?);
    let of_app = async {
        wait::quiet_time(seconds(1)).await;
        let timeline = pod.timeline()?;
        ensure!(timeline.count("s1", Term) + timeline.count("s1", Signal) == 0, "{timeline}");
        pod.stop("app", AMPLE).await
    };
    tokio::try_join!(pod.stop("s1", AMPLE), of_app)?;
    let timeline = pod.timeline()?;
    timeline.doesnt_start("late")?;
    timeline.before(("app", Exiting), ("s1", Term))?;
    ensure!(timeline.of("s1", Term).all(|entry| entry.code == libc::SIGHUP), "{timeline}");
    pod.remove().await
}

/// K7: HUP is a stop signal if `stop-signal.<c>` names it; and podshim's own stops send the named signal (J1).
#[tokio::test]
async fn k7_the_named_stop_signal_is_the_one_held_and_sent() -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = Pod::new("k7-named")
        .annotate("plan", "s1=sidecar, s2=sidecar, app=main")
        .annotate("restart-policy", "Never")
        .annotate("stop-signal.s1", "SIGHUP")
        .annotate("stop-signal.s2", "SIGUSR2")
        .container(Program::new("s1").stop_signal(libc::SIGHUP))
        .container(Program::new("s2").stop_signal(libc::SIGUSR2))
        .container(Program::new("app").runs_for(seconds(4)))
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start_all(&["app", "s1", "s2"]).await?;
    wait_started(&pod, &["app", "s1", "s2"]).await?;
    kill_task(&node, pod.id("s1")?, &["-s", "HUP"]).await?;
    pod.wait_exited("s1", SOON).await?;
    let timeline = pod.timeline()?;
    timeline.in_order(&[("app", Exiting), ("s2", Term), ("s2", Exiting), ("s1", Term), ("s1", Exiting)])?;
    ensure!(timeline.of("s1", Term).all(|entry| entry.code == libc::SIGHUP), "{timeline}");
    ensure!(timeline.of("s2", Term).all(|entry| entry.code == libc::SIGUSR2), "{timeline}");
    pod.remove().await
}

/// K18: a caller's stop signal is delivered with its own number, whatever the plan names. From `lifecycle.stopSignal`
/// (KEP-4960) CRI sends it as `ctr` does here, and as it sends the image's.
#[tokio::test]
async fn k18_a_callers_signal_wins_over_the_plans() -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = Pod::new("k18-caller")
        .annotate("plan", "s1=sidecar, s2=sidecar, app=main")
        .annotate("stop-signal.s1", "QUIT")
        .annotate("stop-signal.s2", "QUIT")
        .annotate("stop-signal.app", "QUIT")
        .container(Program::new("s1").stop_signal(libc::SIGUSR2))
        .container(Program::new("s2").with_stop_signal_usr1().stop_signal(libc::SIGUSR1))
        .container(Program::new("app").with_stop_signal_usr1().stop_signal(libc::SIGUSR1))
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start_all(&["s1", "s2", "app"]).await?;
    wait_started(&pod, &["s1", "s2", "app"]).await?;
    kill_task(&node, pod.id("s1")?, &["-s", "USR2"]).await?;
    let of_app = async {
        wait::quiet_time(seconds(1)).await;
        let timeline = pod.timeline()?;
        ensure!(timeline.count("s1", Term) + timeline.count("s2", Term) == 0, "{timeline}");
        pod.stop("app", AMPLE).await
    };
    tokio::try_join!(pod.stop("s2", AMPLE), of_app)?;
    pod.wait_exited("s1", SOON).await?;
    let timeline = pod.timeline()?;
    timeline.in_order(&[("app", Term), ("app", Exiting), ("s2", Term), ("s2", Exiting)])?;
    timeline.before(("s2", Exiting), ("s1", Term))?;
    for (name, signal) in [("s1", libc::SIGUSR2), ("s2", libc::SIGUSR1), ("app", libc::SIGUSR1)] {
        ensure!(timeline.of(name, Term).all(|entry| entry.code == signal), "{name}: {timeline}");
    }
    pod.remove().await
}

/// K18: a stop of podshim's own sends what the plan names, else TERM: it does not know the image's signal.
#[tokio::test]
async fn k18_podshims_own_stop_sends_the_plans_signal() -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = Pod::new("k18-own")
        .annotate("plan", "s1=sidecar, s2=sidecar, app=main")
        .annotate("restart-policy", "Never")
        .annotate("stop-signal.s1", "QUIT")
        .container(Program::new("s1").with_stop_signal_usr1().stop_signal(libc::SIGQUIT))
        .container(Program::new("s2").with_stop_signal_usr1())
        .container(Program::new("app").runs_for(seconds(1)))
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start_all(&["app", "s1", "s2"]).await?;
    pod.wait_exited("s1", SOON).await?;
    let timeline = pod.timeline()?;
    timeline.in_order(&[("app", Exiting), ("s2", Term), ("s2", Exiting), ("s1", Term), ("s1", Exiting)])?;
    for (name, signal) in [("s1", libc::SIGQUIT), ("s2", libc::SIGTERM)] {
        ensure!(timeline.of(name, Term).all(|entry| entry.code == signal), "{name}: {timeline}");
    }
    pod.remove().await
}

/// K8: a sidecar gets its stop signal at once in its turn, which came when the main exited by itself.
#[tokio::test]
async fn k8_a_stop_signal_in_its_turn_is_delivered() -> Result<()> {
    let node = Containerd::connect().await?;
    let pod = pair(&node, Program::new("s1"), Program::new("app").runs_for(seconds(1)).exits(0)).await?;
    pod.wait_exited("app", SOON).await?;
    wait::quiet_time(seconds(1)).await;
    ensure!(pod.timeline()?.count("s1", Term) == 0, "under Always nothing ends it: {}", pod.timeline()?);
    let begin = Instant::now();
    pod.stop("s1", AMPLE).await?;
    ensure!(at_most(begin.elapsed(), SOON), "it took {:?}", begin.elapsed());
    let timeline = pod.timeline()?;
    ensure!(timeline.count("s1", Term) == 1, "{timeline}");
    timeline.has_not_restarted("s1")?;
    pod.remove().await
}

/// K9: SIGKILL to a sidecar that got its stop signal more than 1.5 s ago is delivered.
#[tokio::test]
async fn k9_a_late_kill_is_delivered() -> Result<()> {
    let node = Containerd::connect().await?;
    let pod = pair(&node, Program::new("s1").ignores_term(), Program::new("app")).await?;
    pod.stop_all_at_once(seconds(3)).await?;
    let timeline = pod.timeline()?;
    let lived = finished_at(&pod.status("s1").await?)?.saturating_sub(timeline.time_of("s1", Term)?);
    // After the caller's 3 s, and not 1.5 s later.
    ensure!(near(lived, seconds(3), TOLERANCE), "s1 was killed after {lived:?}");
    pod.remove().await
}

/// K10, T7: at the caller's SIGKILL, which ends its own grace, podshim delivers the kept stop signal; SIGKILL follows
/// 1.5 s later.
#[tokio::test]
async fn k10_t7_a_kill_of_a_held_sidecar_gives_it_its_term_first() -> Result<()> {
    let node = Containerd::connect().await?;
    let pod =
        pair(&node, Program::new("s1").term_delay(milliseconds(500)).term_exit_code(5), Program::new("app"))
            .await?;
    let begin = Instant::now();
    pod.stop("s1", seconds(2)).await?;
    let took = begin.elapsed();
    ensure!(took >= seconds(2) && at_most(took, SOON), "the stop took {took:?}");
    let timeline = pod.timeline()?;
    timeline.distance(("s1", Term), ("s1", Exiting), milliseconds(500), milliseconds(900))?;
    // J2: stopped alone, it shows its real code; R1: it is not restarted after its caller stopped it; the main is not
    // affected.
    ensure!(pod.status("s1").await?.exit_code == 5, "{:?}\n{timeline}", pod.status("s1").await?);
    wait::quiet_time(seconds(1)).await;
    let timeline = pod.timeline()?;
    timeline.has_not_restarted("s1")?;
    ensure!(timeline.count("app", Term) + timeline.count("app", Exiting) == 0, "{timeline}");
    pod.remove().await
}

/// K10: the same for a sidecar that ignores its stop signal.
#[tokio::test]
async fn k10_a_deaf_sidecar_is_killed_one_and_a_half_seconds_after_its_term() -> Result<()> {
    let node = Containerd::connect().await?;
    let pod = pair(&node, Program::new("s1").ignores_term(), Program::new("app").ignores_term()).await?;
    pod.stop("s1", seconds(1)).await?;
    let (status, timeline) = (pod.status("s1").await?, pod.timeline()?);
    let lived = finished_at(&status)?.saturating_sub(timeline.time_of("s1", Term)?);
    ensure!(near(lived, milliseconds(1700), milliseconds(700)), "it lived {lived:?} after its Term");
    ensure!(status.exit_code == 137, "{status:?}");
    pod.remove().await
}

/// K11, obey: SIGKILL to a sidecar of a pod that is not being stopped is obeyed: 137, final, and no other container is
/// affected.
#[tokio::test]
async fn k11_a_kill_without_a_stop_is_obeyed() -> Result<()> {
    let node = Containerd::connect().await?;
    let pod = pair(&node, Program::new("s1"), Program::new("app")).await?;
    pod.stop("s1", seconds(0)).await?;
    let status = pod.status("s1").await?;
    ensure!(status.exit_code == 137, "J4: {status:?}");
    wait::quiet_time(seconds(2)).await;
    let timeline = pod.timeline()?;
    timeline.has_not_restarted("s1")?;
    ensure!(timeline.count("s1", Term) + timeline.count("app", Term) == 0, "{timeline}");
    ensure!(pod.status("app").await?.state() == ContainerState::ContainerRunning, "{timeline}");
    // The main is killed at once too.
    pod.stop("app", seconds(0)).await?;
    ensure!(pod.status("app").await?.exit_code == 137, "{timeline}");
    pod.remove().await
}

/// K12: SIGKILL ends a main in a stop, and with the last main's end the sidecars' turn begins.
#[tokio::test]
async fn k12_the_kill_of_the_last_main_begins_the_sidecars_turn() -> Result<()> {
    let node = Containerd::connect().await?;
    let pod =
        pair(&node, Program::new("s1").term_delay(milliseconds(700)), Program::new("app").ignores_term())
            .await?;
    // s1's own caller is patient: its Term can only come from the main's end.
    tokio::try_join!(pod.stop("app", seconds(2)), pod.stop("s1", AMPLE))?;
    let (app, timeline) = (pod.status("app").await?, pod.timeline()?);
    ensure!(app.exit_code == 137, "{app:?}");
    let turn = timeline.time_of("s1", Term)?.saturating_sub(finished_at(&app)?);
    ensure!(at_most(turn, TOLERANCE), "s1's turn came {turn:?} after app's end");
    timeline.distance(("s1", Term), ("s1", Exiting), milliseconds(700), TOLERANCE)?;
    pod.remove().await
}

/// K14: `all` goes to every process of a main, and of a sidecar in its turn.
#[tokio::test]
async fn k14_all_processes_get_the_signal_in_the_containers_turn() -> Result<()> {
    let node = Containerd::connect().await?;
    // Time to look at both while a program has not yet ended after its signal.
    let delay = seconds(7) + seconds(1) * pace();
    let pod =
        pair(&node, Program::new("s1").term_delay(delay), Program::new("app").term_delay(delay)).await?;
    for name in ["s1", "app"] {
        let id = pod.id(name)?;
        node.ctr()
            .run(&["-n", "k8s.io", "task", "exec", "-d", "--exec-id", "idle", id, "sleep", "60"])
            .await?;
        ensure!(processes(&node, id).await? == 2, "{name} does not have two processes");
    }
    kill_task(&node, pod.id("s1")?, &["--all"]).await?;
    kill_task(&node, pod.id("app")?, &["--all"]).await?;
    for name in ["app", "s1"] {
        pod.wait_for(name, Term, 1, SOON).await?;
        // The container's program takes the delay to end: a process that is gone earlier got the signal itself.
        wait::until("the exec to have got the signal", seconds(4), async || {
            Ok((processes(&node, pod.id(name)?).await? == 1).then_some(()))
        })
        .await?;
        if name == "app" {
            ensure!(processes(&node, pod.id("s1")?).await? == 2, "s1's exec got the signal before its turn");
        }
    }
    pod.wait_exited("s1", SOON).await?;
    pod.timeline()?.in_order(&[("app", Term), ("app", Exiting), ("s1", Term), ("s1", Exiting)])?;
    pod.remove().await
}

/// How many processes a container has, by `ctr task ps`.
async fn processes(node: &Containerd, id: &str) -> Result<usize> {
    Ok(node.ctr().run(&["-n", "k8s.io", "task", "ps", id]).await?.lines().count() - 1)
}

/// K17: SIGKILL ends a frozen container; podshim must thaw it, because a frozen one acts on no signal.
#[tokio::test]
async fn k17_a_frozen_container_is_killed() -> Result<()> {
    let node = Containerd::connect().await?;
    let pod = pair(&node, Program::new("s1"), Program::new("app")).await?;
    node.ctr().run(&["-n", "k8s.io", "task", "pause", pod.id("app")?]).await?;
    let begin = Instant::now();
    pod.stop("app", seconds(1)).await?;
    ensure!(at_most(begin.elapsed(), SOON), "it took {:?}", begin.elapsed());
    pod.remove().await
}

/// K17, T6: at the end of the budget a frozen container gets its signal too.
#[tokio::test]
async fn k17_t6_the_budgets_end_thaws_a_frozen_container() -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = Pod::new("k17-budget")
        .annotate("plan", "s1=sidecar, app=main")
        .annotate("grace", "2s")
        .container(Program::new("s1"))
        .container(Program::new("app"))
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start_all(&["s1", "app"]).await?;
    wait_started(&pod, &["s1", "app"]).await?;
    node.ctr().run(&["-n", "k8s.io", "task", "pause", pod.id("app")?]).await?;
    pod.stop_all_at_once(AMPLE).await?;
    let timeline = pod.timeline()?;
    // Thawed at the end of the budget, it acts on the signal that it already has.
    ensure!(exit_codes(&pod, ["app", "s1"]).await? == [0, 0], "{timeline}");
    ensure!(timeline.count("s1", Event::Exiting) == 1 && timeline.count("app", Starting) == 1, "{timeline}");
    pod.remove().await
}
