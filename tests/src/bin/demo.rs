//! The demo of `hack/demo`: one pod on podshim and on containerd's own shim, both drawn as a timeline and checked.
//! Runs on the instance given as its only argument; exits with 1 if podshim broke an order.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use e2e::chart::{Row, chart};
use e2e::durations::SOON;
use e2e::{Containerd, Event, Pod, Program, RunningPod, Runtime, Timeline, wait};
use podshim::output::ColorMode;
use podshim::timeline::text;

/// The pod's members: name, role. In the order the plan gives them.
const PLAN: [(&str, &str); 6] = [
    ("fetch", "init"),
    ("migrate", "init"),
    ("proxy", "sidecar"),
    ("logs", "sidecar"),
    ("web", "main"),
    ("worker", "main"),
];

/// The order in which the caller creates and starts them: the wrong one.
const CREATION: [&str; 6] = ["web", "worker", "logs", "proxy", "migrate", "fetch"];

/// How long after their start the proxy's port opens and the log collector's file appears.
const PROXY_READY: Duration = Duration::from_millis(1200);
const LOGS_READY: Duration = Duration::from_millis(800);

/// How wide the charts are: as README.md shows them.
const COLUMNS: usize = 100;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<ExitCode> {
    let directory = std::env::args_os().nth(1).context("usage: demo DIR (of hack/containerd-up)")?;
    let node = Containerd::attach(&PathBuf::from(directory))?;
    println!(
        "\nA pod of six containers, created and started by its caller in the order {}:\n",
        CREATION.join(", ")
    );
    println!("  podshim.io/plan:           {}", plan());
    for (key, value) in annotations() {
        println!("  podshim.io/{:<15} {value}", format!("{key}:"));
    }
    println!(
        "\nThen its caller stops all containers at the same moment, as a kubelet does that knows no sidecars."
    );

    println!("\n\n1. With podshim\n");
    let kept = show(&node, Runtime::Podshim).await?;
    println!("\n\n2. The same pod with containerd's own runc shim\n");
    println!(
        "A stock shim knows no pod: it starts every program at once, whatever that needs, and stops the sidecars"
    );
    println!("while the mains still depend on them.\n");
    show(&node, Runtime::Runc).await?;

    println!();
    Ok(match kept {
        Verdict::Kept => {
            println!("podshim kept every order, and nothing is left on the node.");
            ExitCode::SUCCESS
        }
        Verdict::Violated => {
            println!("podshim VIOLATED an order (see 1).");
            ExitCode::FAILURE
        }
    })
}

/// Whether all orders were kept.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Kept,
    Violated,
}

async fn show(node: &Containerd, runtime: Runtime) -> Result<Verdict> {
    let mut pod = demo_pod().run(node, runtime).await?;
    pod.start_all(&CREATION).await?;
    for main in ["web", "worker"] {
        pod.wait_for(main, Event::Started, 1, SOON).await?;
    }
    // Long enough to be visible in the chart, and for the stock shim's sidecars to get ready.
    wait::quiet_time(Duration::from_secs(2)).await;
    pod.stop_all_at_once(Duration::from_secs(20)).await?;
    let timeline = pod.timeline()?;
    let chart = chart(&rows(&pod).await?, &timeline);
    println!("{}", text::legend(&chart, ColorMode::Plain));
    print!("{}", text::lanes(&chart, COLUMNS, ColorMode::Plain));
    pod.remove().await?;

    println!();
    let mut verdict = Verdict::Kept;
    for (order, check) in orders(&timeline) {
        println!("  {} {order}", if check.is_ok() { "✓" } else { "✗" });
        if check.is_err() {
            verdict = Verdict::Violated;
        }
    }
    if (verdict, runtime) == (Verdict::Violated, Runtime::Podshim) {
        println!("\n{timeline}");
    }
    Ok(verdict)
}

fn plan() -> String {
    PLAN.map(|(name, role)| format!("{name}={role}")).join(", ")
}

fn annotations() -> [(&'static str, &'static str); 3] {
    [
        // Never: the exits of init containers are shown to the caller at once (I5).
        ("restart-policy", "Never"),
        ("ready.proxy", "tcp::8080;period=100ms"),
        ("ready.logs", "exec:test -e /tmp/ready;period=100ms"),
    ]
}

fn demo_pod() -> Pod {
    let pod = Pod::new("demo").annotate("plan", &plan());
    annotations()
        .into_iter()
        .fold(pod, |pod, (key, value)| pod.annotate(key, value))
        .container(Program::new("fetch").runs_for(Duration::from_millis(900)))
        .container(Program::new("migrate").runs_for(Duration::from_millis(700)))
        .container(Program::new("proxy").listens(8080, PROXY_READY).term_delay(Duration::from_millis(500)))
        .container(
            Program::new("logs").ready_file("/tmp/ready", LOGS_READY).term_delay(Duration::from_millis(500)),
        )
        .container(Program::new("web").term_delay(Duration::from_millis(1500)))
        .container(Program::new("worker").term_delay(Duration::from_millis(800)))
}

/// What podshim promises for this pod, with the rule's id, and whether the timeline shows it.
fn orders(timeline: &Timeline) -> Vec<(&'static str, Result<()>)> {
    use Event::{Exiting, Starting, Term};
    let after_gate = |sidecar, ready: Duration, next| {
        timeline.before((sidecar, Starting), (next, Starting))?;
        let waited = timeline.time_of(next, Starting)?.saturating_sub(timeline.time_of(sidecar, Starting)?);
        // The record has whole milliseconds, so a distance can be one short.
        anyhow::ensure!(waited + Duration::from_millis(1) >= ready, "{next} did not wait for {sidecar}");
        Ok(())
    };
    vec![
        ("fetch completes before migrate starts (I1)", timeline.completes_before("fetch", "migrate")),
        ("migrate completes before proxy starts (S2)", timeline.completes_before("migrate", "proxy")),
        ("logs starts when proxy's port is open (U2)", after_gate("proxy", PROXY_READY, "logs")),
        ("web starts when logs is ready (U2)", after_gate("logs", LOGS_READY, "web")),
        (
            "web and worker start together (S3)",
            timeline.within(Duration::from_millis(200), ("web", Starting), ("worker", Starting)),
        ),
        (
            "logs gets its stop signal after web has exited (T1)",
            timeline.before(("web", Exiting), ("logs", Term)),
        ),
        (
            "logs gets its stop signal after worker has exited (T1)",
            timeline.before(("worker", Exiting), ("logs", Term)),
        ),
        (
            "proxy gets its stop signal after logs has exited (T1)",
            timeline.before(("logs", Exiting), ("proxy", Term)),
        ),
    ]
}

async fn rows(pod: &RunningPod<'_>) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for (name, role) in PLAN {
        let status = pod.status(name).await?;
        rows.push(Row {
            container: name.to_owned(),
            role: role.to_owned(),
            accepted: Duration::from_nanos(u64::try_from(status.started_at)?),
            ended: Duration::from_nanos(u64::try_from(status.finished_at)?),
        });
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEPT: &str = "\
10.000000 fetch Starting 0
10.900000 fetch Exiting 0
10.905000 migrate Starting 0
11.600000 migrate Exiting 0
11.605000 proxy Starting 0
12.807000 logs Starting 0
13.610000 worker Starting 0
13.612000 web Starting 0
15.600000 web Term 15
15.600000 worker Term 15
16.400000 worker Exiting 0
17.100000 web Exiting 0
17.102000 logs Term 15
17.602000 logs Exiting 0
17.604000 proxy Term 15
18.104000 proxy Exiting 0
";

    fn broken(log: &str) -> Vec<&'static str> {
        let timeline = Timeline::parse(log).expect("a valid log");
        orders(&timeline).into_iter().filter(|(_, check)| check.is_err()).map(|(order, _)| order).collect()
    }

    #[test]
    fn a_pod_in_order_breaks_nothing() {
        assert_eq!(broken(KEPT), [""; 0]);
    }

    #[test]
    fn a_gate_that_opens_early_is_seen() {
        assert_eq!(
            broken(&KEPT.replace("11.605000 proxy", "11.620000 proxy")),
            ["logs starts when proxy's port is open (U2)"]
        );
    }

    #[test]
    fn a_sidecar_stopped_before_the_last_main_is_seen() {
        let early = KEPT
            .replace("17.102000 logs Term 15\n", "")
            .replace("17.100000 web", "16.500000 logs Term 15\n17.100000 web");
        assert_eq!(broken(&early), ["logs gets its stop signal after web has exited (T1)"]);
    }
}
