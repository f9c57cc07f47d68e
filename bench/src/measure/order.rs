//! How long after a gate opens the next program runs, how long after the last main's exit its sidecar gets its stop
//! signal, and how long a chain of containers takes, compared with the runtime's `start` alone.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, ensure};
use e2e::durations::SOON;
use e2e::{Containerd, Event, Pod, Program, RunningPod, Runtime, Timeline, wait};
use serde_json::Value;
use tokio::process::Command;

use super::run::RUNTIME_ROOT;
use crate::contender::Contender;
use crate::figures::{Figures, Unit};
use crate::rounds::Bench;

/// The container started by the runtime alone, for comparison.
const BARE: &str = "bare";

/// The chain: that many inits over two sidecars and a main.
const INITS: u32 = 5;

pub async fn measure(bench: &Bench, figures: &mut Figures) -> Result<()> {
    let rounds = bench.choose(20, 5);
    bench
        .alternate("order", rounds, &[Contender::Podshim], figures, async |_, figures| {
            one_gate(bench.node, figures).await
        })
        .await?;
    let rounds = bench.choose(10, 3);
    bench
        .alternate("chain", rounds, &[Contender::Podshim], figures, async |_, figures| {
            chain(bench.node, figures).await
        })
        .await
}

/// One pod, from its start to its end. All other containers exist and are held when the first one starts.
async fn one_gate(node: &Containerd, figures: &mut Figures) -> Result<()> {
    let log = ShimLog::from_now(node)?;
    let mut pod = Pod::new("bench")
        .annotate("plan", "first=init, second=init, proxy=sidecar, app=main")
        .annotate("restart-policy", "Never")
        .container(Program::new("first").runs_for(Duration::from_millis(300)))
        .container(Program::new("second").runs_for(Duration::from_millis(100)))
        .container(Program::new("proxy"))
        // Long enough for the sidecar's stop signal to arrive, and to be kept, before this exits.
        .container(Program::new("app").term_delay(Duration::from_millis(300)))
        .run(node, Runtime::Podshim)
        .await?;
    pod.start_all(&["app", "proxy", "second", "first"]).await?;
    pod.wait_for("app", Event::Started, 1, SOON).await?;
    // CRI reports their exits after it has deleted them; so the runtime alone is measured on a quiet pod.
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
    let started = log.time_of(&["msg=\"start\"", second]).await?;
    let signalled = log.time_of(&["msg=\"signal\"", proxy, "signal=15"]).await?;
    let next_program = between(&timeline, ("first", Event::Exiting), ("second", Event::Starting))?;
    let start_called = milliseconds(timeline.time_of("first", Event::Exiting)?, started);
    let mut add = |what: &str, contender, value| figures.add(what, Unit::Milliseconds, contender, value);
    let whole = "an init's last line → the next program's first (1)";
    add(whole, Contender::Podshim, next_program);
    add(whole, Contender::Runtime, runtime_start);
    add("  until the shim calls the runtime's start (1)(2)", Contender::Podshim, start_called);
    add(
        "  of that, from the reaped exit on (2)",
        Contender::Podshim,
        milliseconds(reaped(&pod, "first").await?, started),
    );
    add("  what is not the runtime's own start", Contender::Podshim, next_program - runtime_start);
    let stopped = between(&timeline, ("app", Event::Exiting), ("proxy", Event::Term))?;
    add("the last main's last line → sidecar has SIGTERM (1)", Contender::Podshim, stopped);
    let reaction = milliseconds(reaped(&pod, "app").await?, signalled);
    add("  of that, from its reaped exit on (2)", Contender::Podshim, reaction);
    pod.remove().await
}

/// Five inits one after another, two sidecars, one main: from the first's first line to the last's. All are created
/// beforehand, so that the floor is one `start` of the runtime for each container after the first.
async fn chain(node: &Containerd, figures: &mut Figures) -> Result<()> {
    let inits: Vec<String> = (1..=INITS).map(|number| format!("init{number}")).collect();
    let plan = format!("{}=init, log=sidecar, proxy=sidecar, app=main", inits.join("=init, "));
    let pod = Pod::new("bench-chain").annotate("plan", &plan).annotate("restart-policy", "Never");
    let pod = inits.iter().fold(pod, |pod, name| pod.container(Program::new(name).exits(0)));
    let pod = ["log", "proxy", "app"].iter().fold(pod, |pod, name| pod.container(Program::new(name)));
    let mut pod = pod.run(node, Runtime::Podshim).await?;
    pod.start_all(&["app", "proxy", "log"]).await?;
    for name in inits.iter().rev() {
        pod.start(name).await?;
    }
    let timeline = pod.wait_for("app", Event::Starting, 1, SOON).await?;
    let time = between(&timeline, ("init1", Event::Starting), ("app", Event::Starting))?;
    let what = "5 inits, 2 sidecars, 1 main: first to last (1)";
    figures.add(what, Unit::Milliseconds, Contender::Podshim, time);
    let steps = f64::from(INITS + 2);
    figures.add(what, Unit::Milliseconds, Contender::Runtime, steps * bare_start(node, &pod).await?);
    pod.remove().await
}

/// When the shim reaped a container's program: the time of exit it reports.
async fn reaped(pod: &RunningPod<'_>, name: &str) -> Result<Duration> {
    Ok(Duration::from_nanos(u64::try_from(pod.status(name).await?.finished_at)?))
}

/// Creates and starts a container like the pod's main with the runtime alone. Returns the time from the call of `start`
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
    // Also after a failure, because no shim knows of this container and would delete it.
    runtime(&["delete", "--force", BARE]).await?;
    fs::remove_dir_all(&bundle)?;
    // The programs record whole milliseconds, so this is cut to them too: the error is the same at both ends.
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

/// Runs the runtime to its end, with streams that a container may keep open.
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

    /// The time of the first line with all of these words. Waits for it, because containerd copies the shim's lines a
    /// moment later.
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

/// The time since midnight at the head of a line, `time="2026-01-02T03:04:05.678901234Z" ...`. [`milliseconds`] needs
/// no date.
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

#[cfg(test)]
mod tests {
    use super::*;

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
