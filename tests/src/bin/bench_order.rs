//! The measurement of `hack/bench order`: how long after a gate opens the next program runs, and how long after the
//! last main's exit its sidecar has its stop signal. Prints figures beside what is claimed and judges nothing: a busy
//! machine is no failure. Must run inside the instance's namespaces, where the rootfs of its containers are mounted.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, ensure};
use e2e::durations::SOON;
use e2e::{Containerd, Event, Pod, Program, RunningPod, Runtime, Timeline, wait};
use serde_json::Value;
use tokio::process::Command;

const USAGE: &str = "usage: bench_order DIR ROUNDS (DIR of hack/containerd-up; ROUNDS from 1)";

/// The container started by the runtime alone, for comparison.
const BARE: &str = "bare";

/// Where the runtime alone keeps its state: not where shims do.
const RUNTIME_ROOT: &str = "/run/podshim-bench";

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let directory = PathBuf::from(arguments.next().context(USAGE)?);
    let rounds: usize = arguments.next().context(USAGE)?.parse().context(USAGE)?;
    ensure!(rounds > 0, USAGE);
    let node = Containerd::attach(&directory)?;
    let load = fs::read_to_string("/proc/loadavg")?;
    let load = load.split(' ').next().unwrap_or_default();
    println!("{rounds} rounds; the machine's load average at the start was {load}.\n");
    // The first round fills caches; nobody's pod is the first one for long.
    measure(&node).await.context("warm-up")?;
    let mut figures = Vec::new();
    for round in 1..=rounds {
        figures.push(measure(&node).await.with_context(|| format!("round {round}"))?);
    }
    print!("{}", report(&figures));
    Ok(())
}

/// One round's figures, in milliseconds. Negative is possible for what is the difference of two measured times.
#[derive(Clone, Copy, Debug)]
struct Figures {
    /// An init's last line → the next init's first line.
    next_program: f64,
    /// The part of that which is podshim's: an init's last line → the shim wants the next one's `start` called.
    start_called: f64,
    /// The runtime's `start` called → the program's first line, without any shim.
    runtime_start: f64,
    /// An init's exit reaped → the shim wants the next one's `start` called.
    reaction_to_init: f64,
    /// The last main's last line → the sidecar's stop signal.
    stop_signal: f64,
    /// The last main's exit reaped → the shim has sent the sidecar its stop signal.
    reaction_to_main: f64,
}

/// One pod, from its start to its end. All members but the first exist and are held when that one starts.
async fn measure(node: &Containerd) -> Result<Figures> {
    let log = ShimLog::from_now(node)?;
    let mut pod = Pod::new("bench")
        .annotate("plan", "first=init, second=init, proxy=sidecar, app=main")
        .annotate("restart-policy", "Never")
        .container(Program::new("first").runs_for(Duration::from_millis(300)))
        .container(Program::new("second").runs_for(Duration::from_millis(100)))
        .container(Program::new("proxy"))
        // Long enough for the sidecar's stop to be asked for, and held, before this exits.
        .container(Program::new("app").term_delay(Duration::from_millis(300)))
        .run(node, Runtime::Podshim)
        .await?;
    pod.start_all(&["app", "proxy", "second", "first"]).await?;
    pod.wait_for("app", Event::Started, 1, SOON).await?;
    // CRI says so after it has deleted them: the runtime alone is measured on a quiet pod.
    for init in ["first", "second"] {
        pod.wait_exited(init, SOON).await?;
    }
    let runtime_start = bare_start(node, &pod).await?;
    pod.stop_all_at_once(SOON).await?;

    let timeline = pod.timeline()?;
    timeline.in_order(&[
        ("first", Event::Exiting),
        ("second", Event::Starting),
        ("app", Event::Exiting),
        ("proxy", Event::Term),
    ])?;
    let [second, proxy] = [pod.id("second")?, pod.id("proxy")?];
    let started = log.time_of(&["msg=\"action\"", second, "operation: Start "]).await?;
    let signalled = log.time_of(&["msg=\"signal\"", proxy, "signal=15"]).await?;
    let figures = Figures {
        next_program: between(&timeline, ("first", Event::Exiting), ("second", Event::Starting))?,
        start_called: milliseconds(timeline.time_of("first", Event::Exiting)?, started),
        runtime_start,
        reaction_to_init: milliseconds(reaped(&pod, "first").await?, started),
        stop_signal: between(&timeline, ("app", Event::Exiting), ("proxy", Event::Term))?,
        reaction_to_main: milliseconds(reaped(&pod, "app").await?, signalled),
    };
    pod.remove().await?;
    Ok(figures)
}

/// When the shim reaped a container's program: the time of exit it reports.
async fn reaped(pod: &RunningPod<'_>, name: &str) -> Result<Duration> {
    Ok(Duration::from_nanos(u64::try_from(pod.status(name).await?.finished_at)?))
}

/// Creates and starts a container like the pod's main with the runtime alone; gives the time from the call of `start`
/// to the program's first line, in milliseconds.
async fn bare_start(node: &Containerd, pod: &RunningPod<'_>) -> Result<f64> {
    let bundle = node.directory().join("bench");
    fs::create_dir_all(&bundle)?;
    fs::write(bundle.join("config.json"), bare_spec(node, pod)?.to_string())?;
    runtime(&["create", "--bundle", &bundle.to_string_lossy(), BARE]).await?;
    let called = wall_clock();
    let measured = match runtime(&["start", BARE]).await {
        Ok(()) => pod.wait_for(BARE, Event::Starting, 1, SOON).await,
        Err(error) => Err(error),
    };
    // Also after a failure: nothing may be left, and no shim knows of this container.
    runtime(&["delete", "--force", BARE]).await?;
    fs::remove_dir_all(&bundle)?;
    // The programs' clock has whole milliseconds: cut alike, so that the error is the same at both ends.
    let called = Duration::from_millis(u64::try_from(called.as_millis())?);
    Ok(milliseconds(called, measured?.time_of(BARE, Event::Starting)?))
}

/// The spec of the pod's main, for a container beside it: same image, limits and namespaces of the pod.
fn bare_spec(node: &Containerd, pod: &RunningPod<'_>) -> Result<Value> {
    let bundle = node.directory().join("state/io.containerd.runtime.v2.task/k8s.io").join(pod.id("app")?);
    let path = bundle.join("config.json");
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let mut spec: Value = serde_json::from_str(&text)?;
    spec["root"]["path"] = bundle.join("rootfs").to_string_lossy().into();
    spec["linux"]["cgroupsPath"] = format!("{}/{}/{BARE}", node.cgroup(), pod.name()).into();
    let words = spec["process"]["args"].as_array_mut().context("the spec has no command line")?;
    let name = words.iter_mut().find(|word| **word == "app").context("no --name app")?;
    *name = BARE.into();
    Ok(spec)
}

/// Runs the runtime to its end, with the streams a container may keep open.
async fn runtime(arguments: &[&str]) -> Result<()> {
    let status: ExitStatus = Command::new("runc")
        .args(["--root", RUNTIME_ROOT])
        .args(arguments)
        .stdin(Stdio::null())
        // A container keeps its streams: a pipe would not end with the command.
        .stdout(Stdio::null())
        .kill_on_drop(true)
        .status()
        .await
        .context("cannot run runc")?;
    ensure!(status.success(), "runc {}: {status}", arguments.join(" "));
    Ok(())
}

/// The lines that shims add to containerd's log from one moment on.
struct ShimLog {
    path: PathBuf,
    begin: usize,
}

impl ShimLog {
    fn from_now(node: &Containerd) -> Result<Self> {
        let path = node.directory().join("containerd.log");
        let begin = read(&path)?.len();
        Ok(Self { path, begin })
    }

    /// The time of the first line with all of these words. containerd copies the shim's lines: it may take a moment.
    async fn time_of(&self, words: &[&str]) -> Result<Duration> {
        wait::until(&format!("a line of the shim's log with {words:?}"), SOON, async || {
            let log = read(&self.path)?;
            let line = log[self.begin..].lines().find(|line| words.iter().all(|word| line.contains(word)));
            line.map(time_of_line).transpose()
        })
        .await
    }
}

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

/// The time since midnight at the head of a line, `time="2026-01-02T03:04:05.678901234Z" ...`: [`milliseconds`] needs
/// no more.
fn time_of_line(line: &str) -> Result<Duration> {
    let parse = || {
        let time = line.strip_prefix("time=\"")?.split_once("Z\"")?.0.split_once('T')?.1;
        let mut parts = time.splitn(3, ':');
        let hours: u64 = parts.next()?.parse().ok()?;
        let minutes: u64 = parts.next()?.parse().ok()?;
        let seconds: f64 = parts.next()?.parse().ok()?;
        Some(Duration::from_secs(hours * 3600 + minutes * 60) + Duration::try_from_secs_f64(seconds).ok()?)
    };
    parse().with_context(|| format!("no time in {line:?}"))
}

fn between(timeline: &Timeline, from: (&str, Event), to: (&str, Event)) -> Result<f64> {
    Ok(milliseconds(timeline.time_of(from.0, from.1)?, timeline.time_of(to.0, to.1)?))
}

/// Milliseconds from one time of day to another, at most half a day apart either way; the days do not matter.
fn milliseconds(from: Duration, to: Duration) -> f64 {
    const DAY: f64 = 86_400_000.0;
    let time_of_day =
        |time: Duration| Duration::new(time.as_secs() % 86_400, time.subsec_nanos()).as_secs_f64() * 1000.0;
    let difference = time_of_day(to) - time_of_day(from);
    difference - (difference / DAY).round() * DAY
}

#[expect(clippy::disallowed_methods, reason = "a measurement reads the clock the programs write down")]
fn wall_clock() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}

fn report(figures: &[Figures]) -> String {
    let row = |label: &str, claim: &str, value: fn(&Figures) -> f64| {
        let [minimum, median, maximum] = spread(figures.iter().map(value).collect());
        let row = format!("  {label:<58}{minimum:>8.2}{median:>8.2}{maximum:>8.2}  {claim}");
        format!("{}\n", row.trim_end())
    };
    let head = |title: &str| format!("{title:<60}{:>8}{:>8}{:>8}  ms\n", "minimum", "median", "maximum");
    [
        head("A gate opens: an init exits, the next one starts"),
        row("init's last line → next program's first line (1)", "", |f| f.next_program),
        row("  of that, until the shim calls runc start (1) (2)", "claim: at most 5", |f| f.start_called),
        row("  of that, init's exit reaped → runc start called (2)", "", |f| f.reaction_to_init),
        row("  of that, runc start → next program's first line (2) (1)", "", |f| {
            f.next_program - f.start_called
        }),
        row("runc start alone → its program's first line (1)", "", |f| f.runtime_start),
        row("the first less the last, round by round", "claim: at most 5", |f| {
            f.next_program - f.runtime_start
        }),
        "\n".to_owned(),
        head("The last main exits: its sidecar is stopped"),
        row("main's last line → sidecar has SIGTERM (1)", "claim: at most 5", |f| f.stop_signal),
        row("  of that, main's exit reaped → SIGTERM sent (2)", "", |f| f.reaction_to_main),
        "\n(1) by the programs' own clock, cut to whole milliseconds   (2) by the shim's log\n".to_owned(),
    ]
    .concat()
}

/// Minimum, median and maximum. There is at least one value.
fn spread(mut values: Vec<f64>) -> [f64; 3] {
    values.sort_by(f64::total_cmp);
    let (low, high) = (values[(values.len() - 1) / 2], values[values.len() / 2]);
    [values[0], f64::midpoint(low, high), values[values.len() - 1]]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_an_even_number_is_between_the_middle_two() {
        assert_eq!(spread(vec![4.0, 1.0, 9.0, 2.0]), [1.0, 3.0, 9.0]);
        assert_eq!(spread(vec![7.0]), [7.0, 7.0, 7.0]);
    }

    #[test]
    fn a_log_line_and_a_status_are_on_the_same_clock() {
        let line = r#"time="2026-11-21T04:34:42.600209444Z" level=info msg="signal" signal=15"#;
        let logged = time_of_line(line).expect("a time");
        let finished = Duration::from_nanos(1_795_235_682_600_000_000);
        let apart = milliseconds(finished, logged);
        assert!((apart - 0.209_444).abs() < 1e-6, "{apart}");
    }

    #[test]
    fn midnight_between_two_times_does_not_matter() {
        let before = Duration::from_millis(86_400_000 - 2);
        assert_eq!(milliseconds(before, Duration::from_millis(86_400_000 + 1)), 3.0);
        assert_eq!(milliseconds(before, Duration::from_millis(1)), 3.0);
    }

    #[test]
    fn a_line_without_a_time_is_an_error_that_shows_it() {
        let error = time_of_line("time=soon").expect_err("no time");
        assert!(error.to_string().contains("time=soon"), "{error}");
    }
}
