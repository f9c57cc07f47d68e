//! The one budget of a stop (T5, T6, T7, T9), how it is shared (T19, T20) and what it does to exit codes (ks-L11, ks-L12).

use std::time::Duration;

use anyhow::{Result, ensure};
use e2e::Event::{Exiting, Term};
use e2e::{Containerd, Event, Pod, Program, RunningPod, Runtime, wait};

use crate::support::{
    AMPLE, SOON, TOLERANCE, at_most, exit_codes, finished_at, logged_real_code, milliseconds, near, seconds,
    wait_started,
};

/// The pod of ks-L11 and ks-L12: three sidecars and a main, with a budget of 3 s (5 s in the kubelet's tests). As with the kubelet
/// nothing of it is kept for the sidecars (T19).
async fn budget_pod<'node>(
    node: &'node Containerd,
    exit_codes: &str,
    app: Program,
    sidecars: [Program; 3],
) -> Result<RunningPod<'node>> {
    let mut pod = Pod::new("budget")
        .annotate("plan", "s1=sidecar, s2=sidecar, s3=sidecar, app=main")
        .annotate("restart-policy", "Never")
        .annotate("grace", "3s")
        .annotate("reserve", "0s")
        .annotate("exit-codes", exit_codes)
        .container(app);
    for sidecar in sidecars {
        pod = pod.container(sidecar);
    }
    let mut pod = pod.run(node, Runtime::Podshim).await?;
    pod.start_all(&["app", "s1", "s2", "s3"]).await?;
    wait_started(&pod, &["app", "s1", "s2", "s3"]).await?;
    Ok(pod)
}

/// T5: podshim enforces `podshim.io/grace` on all containers, even if the caller would wait longer.
#[tokio::test]
async fn t5_the_pods_own_grace_is_enforced() -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = Pod::new("t5")
        .annotate("plan", "s1=sidecar, app=main")
        .annotate("grace", "2s")
        .container(Program::new("s1").ignores_term())
        .container(Program::new("app").ignores_term())
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start_all(&["app", "s1"]).await?;
    wait_started(&pod, &["app", "s1"]).await?;
    pod.stop_all_at_once(AMPLE).await?;
    let timeline = pod.timeline()?;
    let asked = timeline.time_of("app", Term)?;
    // Two thirds of the grace (T19), and the whole with the 2 s that follow it (T6).
    for (name, time) in [("app", milliseconds(1333)), ("s1", seconds(4))] {
        let lived = finished_at(&pod.status(name).await?)?.saturating_sub(asked);
        ensure!(near(lived, time, TOLERANCE), "{name} was killed after {lived:?}\n{timeline}");
    }
    pod.remove().await
}

/// T5, T19: the kubelet's figure is only an estimate. Where the plan keeps nothing podshim does not cut short a caller that waits
/// longer (`crictl stop -t 60`).
#[tokio::test]
async fn t5_the_kubelets_figure_is_not_enforced() -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = Pod::new("t5-estimate")
        .annotate("plan", "s1=sidecar, app=main")
        .annotate("reserve", "0s")
        .kubelet_grace(seconds(1))
        .container(Program::new("s1"))
        .container(Program::new("app").term_delay(seconds(5)))
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start_all(&["app", "s1"]).await?;
    wait_started(&pod, &["app", "s1"]).await?;
    pod.stop_all_at_once(AMPLE).await?;
    let timeline = pod.timeline()?;
    timeline.distance(("app", Term), ("app", Exiting), seconds(5), TOLERANCE)?;
    timeline.before(("app", Exiting), ("s1", Term))?;
    ensure!(exit_codes(&pod, ["app", "s1"]).await? == [0, 0], "{timeline}");
    pod.remove().await
}

/// T6: when the budget is spent all that are left get the stop signal at the same moment, and 2 s to end; exit codes as
/// in ks-L11.
async fn l11(node: &Containerd, exit_codes_key: &str, expected: [i32; 4]) -> Result<()> {
    let pod = budget_pod(
        node,
        exit_codes_key,
        Program::new("app").ignores_term(),
        [
            Program::new("s1").term_delay(seconds(20)),
            Program::new("s2").term_delay(seconds(1)),
            Program::new("s3").term_delay(seconds(20)),
        ],
    )
    .await?;
    pod.stop_all_at_once(AMPLE).await?;
    let timeline = pod.timeline()?;
    timeline.distance(("app", Term), ("s1", Term), seconds(3), TOLERANCE)?;
    for sidecar in ["s2", "s3"] {
        // If they got it one after the other, s2's end would lie between the signals.
        timeline.within(milliseconds(700), ("s1", Term), (sidecar, Term))?;
    }
    timeline.distance(("s2", Term), ("s2", Exiting), seconds(1), TOLERANCE)?;
    let last_call = timeline.time_of("s1", Term)?;
    for name in ["app", "s1", "s3"] {
        let lived = finished_at(&pod.status(name).await?)?.saturating_sub(last_call);
        ensure!(
            near(lived, seconds(2), TOLERANCE),
            "{name} was killed {lived:?} after the last stop signal\n{timeline}"
        );
    }
    let codes = exit_codes(&pod, ["app", "s1", "s2", "s3"]).await?;
    ensure!(codes == expected, "{codes:?} and not {expected:?}\n{timeline}");
    pod.remove().await
}

#[tokio::test]
async fn t6_ks_l11_a_main_that_outlives_the_budget_fails_the_pod_with_real_codes() -> Result<()> {
    l11(&Containerd::connect().await?, "real", [137, 137, 0, 137]).await
}

#[tokio::test]
async fn t6_j2_ks_l11_only_the_mains_code_fails_the_pod() -> Result<()> {
    l11(&Containerd::connect().await?, "masked", [137, 0, 0, 0]).await
}

/// ks-L12: a sidecar that outlives the budget is killed; the pod succeeds.
async fn l12(node: &Containerd, exit_codes_key: &str, s2: i32) -> Result<()> {
    let pod = budget_pod(
        node,
        exit_codes_key,
        Program::new("app").term_delay(milliseconds(200)),
        [Program::new("s1"), Program::new("s2").ignores_term(), Program::new("s3")],
    )
    .await?;
    pod.stop_all_at_once(AMPLE).await?;
    let timeline = pod.timeline()?;
    timeline.in_order(&[("app", Exiting), ("s3", Term), ("s3", Exiting), ("s2", Term), ("s1", Term)])?;
    // s1's turn never came: it got its signal at the end of the budget.
    timeline.distance(("app", Term), ("s1", Term), seconds(3), TOLERANCE)?;
    let killed = finished_at(&pod.status("s2").await?)?.saturating_sub(timeline.time_of("s1", Term)?);
    ensure!(near(killed, seconds(2), TOLERANCE), "s2 was killed {killed:?} after the last stop signal");
    let codes = exit_codes(&pod, ["app", "s1", "s2", "s3"]).await?;
    ensure!(codes == [0, 0, s2, 0], "{codes:?}\n{timeline}");
    if s2 == 0 {
        let id = pod.id("s2")?;
        wait::until("J2: the real code in the shim's log", SOON, async || logged_real_code(node, id))
            .await
            .map(|code| ensure_eq(code, 137))??;
    }
    pod.remove().await
}

fn ensure_eq(found: i32, expected: i32) -> Result<()> {
    ensure!(found == expected, "{found} and not {expected}");
    Ok(())
}

#[tokio::test]
async fn t6_ks_l12_a_sidecar_that_outlives_the_budget_is_killed_with_real_codes() -> Result<()> {
    l12(&Containerd::connect().await?, "real", 137).await
}

#[tokio::test]
async fn t6_j2_ks_l12_a_sidecar_that_outlives_the_budget_does_not_fail_the_pod() -> Result<()> {
    l12(&Containerd::connect().await?, "masked", 0).await
}

/// A main and a proxy that ignore their stop signals, in a stop of podshim's own or of a caller whose figure podshim knows.
async fn deaf_pair<'node>(node: &'node Containerd, pod: Pod) -> Result<RunningPod<'node>> {
    let mut pod = pod
        .annotate("plan", "proxy=sidecar, app=main")
        .container(Program::new("proxy").ignores_term())
        .container(Program::new("app").ignores_term())
        .run(node, Runtime::Podshim)
        .await?;
    pod.start_all(&["app", "proxy"]).await?;
    wait_started(&pod, &["app", "proxy"]).await?;
    Ok(pod)
}

/// How long a container lived after the main's stop signal.
async fn lived(pod: &RunningPod<'_>, name: &str) -> Result<Duration> {
    Ok(finished_at(&pod.status(name).await?)?.saturating_sub(pod.timeline()?.time_of("app", Term)?))
}

/// T19: a main that hangs has 4 of the 6 s. The proxy gets its signal after that, and has the rest and the 2 s after it.
#[tokio::test]
async fn t19_a_main_that_hangs_leaves_its_proxy_its_time() -> Result<()> {
    let node = Containerd::connect().await?;
    let pod = deaf_pair(&node, Pod::new("t19").annotate("grace", "6s")).await?;
    pod.stop_all_at_once(AMPLE).await?;
    let timeline = pod.timeline()?;
    timeline.distance(("app", Term), ("proxy", Term), seconds(4), TOLERANCE)?;
    let (app, proxy) = (lived(&pod, "app").await?, lived(&pod, "proxy").await?);
    let signal = timeline.time_of("proxy", Term)?.saturating_sub(timeline.time_of("app", Term)?);
    ensure!(
        app <= signal + milliseconds(50),
        "the proxy got its signal before the main's end: {app:?}\n{timeline}"
    );
    ensure!(signal < seconds(6), "its signal came after the budget: {signal:?}\n{timeline}");
    ensure!(near(app, seconds(4), TOLERANCE), "app lived {app:?}\n{timeline}");
    ensure!(near(proxy, seconds(8), TOLERANCE), "the proxy lived {proxy:?}\n{timeline}");
    ensure!(exit_codes(&pod, ["app", "proxy"]).await? == [137, 0], "{timeline}");
    pod.remove().await
}

/// T19, F8: in a kubelet's stop of 6 s podshim ends the main 2 s before the kubelet would, and the kubelet's SIGKILL finds the proxy in
/// its turn.
#[tokio::test]
async fn t19_f8_podshim_kills_before_the_kubelet_does() -> Result<()> {
    let node = Containerd::connect().await?;
    let pod = deaf_pair(&node, Pod::new("t19-kubelet").kubelet_grace(seconds(6))).await?;
    pod.stop_all_at_once(seconds(6)).await?;
    let timeline = pod.timeline()?;
    timeline.distance(("app", Term), ("proxy", Term), seconds(4), TOLERANCE)?;
    let (app, proxy) = (lived(&pod, "app").await?, lived(&pod, "proxy").await?);
    ensure!(near(app, seconds(4), TOLERANCE), "app lived {app:?}\n{timeline}");
    ensure!(near(proxy, seconds(6), TOLERANCE), "the proxy lived {proxy:?}\n{timeline}");
    pod.remove().await
}

/// T20: a caller whose figure is half of the pod's `grace` halves what each container has.
#[tokio::test]
async fn t20_less_time_shrinks_each_grace() -> Result<()> {
    let node = Containerd::connect().await?;
    let pod = Pod::new("t20")
        .annotate("grace", "12s")
        .annotate("grace.app", "6s")
        .annotate("grace.proxy", "5s")
        .kubelet_grace(seconds(6));
    let pod = deaf_pair(&node, pod).await?;
    pod.stop_all_at_once(AMPLE).await?;
    let (app, proxy) = (lived(&pod, "app").await?, lived(&pod, "proxy").await?);
    let timeline = pod.timeline()?;
    ensure!(near(app, seconds(3), TOLERANCE), "app lived {app:?}\n{timeline}");
    ensure!(near(proxy, milliseconds(5500), TOLERANCE), "the proxy lived {proxy:?}\n{timeline}");
    pod.remove().await
}

/// T9, K12: a second stop with less time shortens the first one's.
#[tokio::test]
async fn t9_a_second_stop_shortens_the_first() -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = Pod::new("t9")
        .annotate("plan", "s1=sidecar, app=main")
        .container(Program::new("s1").ignores_term())
        .container(Program::new("app").ignores_term())
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start_all(&["app", "s1"]).await?;
    wait_started(&pod, &["app", "s1"]).await?;
    let again = async {
        pod.wait_for("app", Event::Term, 1, SOON).await?;
        pod.stop_all_at_once(seconds(1)).await
    };
    tokio::try_join!(pod.stop_all_at_once(AMPLE), again)?;
    let timeline = pod.timeline()?;
    let asked = timeline.time_of("app", Term)?;
    for name in ["app", "s1"] {
        let lived = finished_at(&pod.status(name).await?)?.saturating_sub(asked);
        // The second stop's grace, and T7's 1.5 s for the sidecar.
        ensure!(
            at_most(lived, seconds(1) + milliseconds(1500) + TOLERANCE),
            "{name} lived {lived:?}\n{timeline}"
        );
    }
    ensure!(timeline.count("s1", Term) == 1, "{timeline}");
    pod.remove().await
}
