//! The pod under test, and the points at which a process is killed. Kills nothing, and expects only what holds
//! whichever process is killed.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::Event::{Exiting, Started, Starting, Term};
use e2e::durations::{SOON, milliseconds, seconds};
use e2e::{Containerd, Pod, Program, RunningPod, Runtime, Timeline};
use tokio::time::Instant;

/// The order in which the caller starts the pod: everything but the last is held at first.
pub(crate) const CALLERS_ORDER: [&str; 4] = ["app", "s2", "s1", "i1"];

/// What the pod's main does with its stop signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Main {
    /// It ends soon.
    Ends,
    /// It ignores the signal: the plan's grace of a second is used up.
    Deaf,
}

/// A pod with everything that a start can have: an init, a sidecar that ends once and is restarted, a gate.
pub(crate) async fn run<'node>(node: &'node Containerd, name: &str, main: Main) -> Result<RunningPod<'node>> {
    let app = Program::new("app").term_delay(milliseconds(300)).term_exit_code(4);
    Pod::new(name)
        .annotate("plan", "i1=init, s1=sidecar, s2=sidecar, app=main")
        .annotate("ready.s2", "exec:test -e /tmp/ready;period=100ms;fail=1000")
        .annotate("grace", if main == Main::Deaf { "1s" } else { "30s" })
        .container(Program::new("i1").runs_for(milliseconds(100)))
        .container(Program::new("s1").runs_for_each(&[milliseconds(200), seconds(1000)]).term_exit_code(2))
        .container(
            Program::new("s2").ready_file("/tmp/ready", milliseconds(300)).term_delay(milliseconds(100)),
        )
        .container(if main == Main::Deaf { app.ignores_term() } else { app })
        .run(node, Runtime::Podshim)
        .await
}

/// Creates and starts one container after the other, up to the first that fails. Returns those that were started.
pub(crate) async fn start_until_failure(pod: &mut RunningPod<'_>) -> Vec<&'static str> {
    let mut started = Vec::new();
    for name in CALLERS_ORDER {
        if pod.start(name).await.is_err() {
            break;
        }
        started.push(name);
    }
    started
}

/// Waits until the pod is up: its main runs, and the sidecar that ends once runs again.
pub(crate) async fn wait_up(pod: &RunningPod<'_>) -> Result<Timeline> {
    pod.wait_for("s1", Started, 2, SOON).await?;
    pod.wait_for("app", Started, 1, SOON).await
}

/// S2, I1, U2, I4: whatever happened on the way, the members started in order, and the init and the main once.
pub(crate) fn started_in_order(timeline: &Timeline) -> Result<()> {
    // No order between the two is checked: s1's gate opens at its exec (U1), and s1 records that only when it gets the
    // processor.
    for sidecar in ["s1", "s2"] {
        timeline.in_order(&[("i1", Exiting), (sidecar, Starting), ("app", Starting)])?;
    }
    for name in ["i1", "app"] {
        ensure!(timeline.count(name, Starting) == 1, "{name} was not started once\n{timeline}");
    }
    Ok(())
}

/// T1, T3, K15: the main ends first, then the sidecars in reverse order, with one signal each; a main gets every signal
/// of its caller (K5).
pub(crate) fn stopped_in_order(timeline: &Timeline, main: Main) -> Result<()> {
    match main {
        Main::Ends => timeline.in_order(&[
            ("app", Term),
            ("app", Exiting),
            ("s2", Term),
            ("s2", Exiting),
            ("s1", Term),
        ])?,
        // T6: when the budget is spent, all get their stop signal at once.
        Main::Deaf => timeline.before(("app", Term), ("s2", Term))?,
    }
    for name in ["s2", "s1"] {
        ensure!(timeline.count(name, Term) == 1, "{name} did not get one stop signal\n{timeline}");
    }
    Ok(())
}

/// How long a start and a stop take without a kill.
pub(crate) struct Spans {
    /// From the first create until the pod is up.
    pub(crate) start: Duration,
    /// From the first stop until all have exited.
    pub(crate) stop: Duration,
}

/// Measures one start and stop without a kill.
pub(crate) async fn measure(node: &Containerd, main: Main) -> Result<Spans> {
    let mut pod = run(node, "unharmed", main).await?;
    let begin = Instant::now();
    pod.start_all(&CALLERS_ORDER).await?;
    started_in_order(&wait_up(&pod).await?)?;
    let start = begin.elapsed();
    let begin = Instant::now();
    pod.stop_all_at_once(seconds(60)).await?;
    let stop = begin.elapsed();
    stopped_in_order(&pod.timeline()?, main)?;
    pod.remove().await?;
    Ok(Spans { start, stop })
}

/// The points of a test, spread evenly over `span`: as many as PODSHIM_KILL_POINTS says, or a few.
pub(crate) fn points(span: Duration) -> Result<Vec<Duration>> {
    let count = match std::env::var("PODSHIM_KILL_POINTS") {
        Ok(text) => text.parse().context("PODSHIM_KILL_POINTS is no number")?,
        Err(_) => 8,
    };
    let points: Vec<_> = (0..count).map(|point| span * point / count).collect();
    ensure!(!points.is_empty(), "PODSHIM_KILL_POINTS is 0: nothing would be tested");
    Ok(points)
}
