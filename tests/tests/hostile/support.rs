//! Checks that all attacks share: the shim goes on serving, and its processor time stays bounded. Ends the pods of a failed test.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::pod::ensure_short;
use e2e::{Containerd, RunningPod, wait};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// How long any request to a shim under attack may take.
pub const PROMPT: Duration = Duration::from_secs(5);

/// Ends a pod with its test, also when that fails: an attack that goes on would be a load on the tests after it. A shim that is
/// killed takes its pod along (N3).
pub struct EndsWithTest {
    shim: Pid,
    sandbox: String,
}

impl EndsWithTest {
    pub fn of(pod: &RunningPod<'_>) -> Result<Self> {
        Ok(Self { shim: Pid::from_raw(pod.shim_pid()?), sandbox: pod.sandbox().to_owned() })
    }
}

impl Drop for EndsWithTest {
    fn drop(&mut self) {
        // After the pod's removal the number may be another process's.
        let line = std::fs::read(format!("/proc/{}/cmdline", self.shim)).unwrap_or_default();
        if String::from_utf8_lossy(&line).contains(&self.sandbox) {
            let _ = kill(self.shim, Signal::SIGKILL);
        }
    }
}

/// Checks that a container of the pod still takes an exec, and that the shim's thread was never blocked for long.
pub async fn ensure_serving(pod: &RunningPod<'_>, container: &str) -> Result<()> {
    let exec = async {
        let output = pod.exec(container, &["true"]).await?;
        ensure!(output.exit_code == 0, "{output:?}");
        Ok(())
    };
    wait::at_most(PROMPT, "the shim does not serve an exec in time", exec).await?;
    let (away, on) =
        pod.longest_away().await?.context("the shim does not report how long its thread was away")?;
    ensure_short(away, &on)
}

/// Runs `podshim` inside the instance, where the shims' files are, and returns its stdout.
pub async fn podshim(node: &Containerd, arguments: &[&str]) -> Result<String> {
    let output = node.ctr().output(&[&["--run", "podshim"], arguments].concat()).await?;
    ensure!(output.exit_code == Some(0), "{arguments:?}: {output:?}");
    Ok(output.stdout)
}

/// Processor time that the pod's own cgroup has counted so far, with that of removed containers.
pub fn time_inside(node: &Containerd, pod: &RunningPod<'_>) -> Result<Duration> {
    let group = node.pod_cgroup(pod.name())?;
    let read = |path: String| std::fs::read_to_string(path);
    if let Ok(usage) = read(format!("/sys/fs/cgroup/cpuacct{group}/cpuacct.usage")) {
        return Ok(Duration::from_nanos(usage.trim().parse()?));
    }
    let stat = read(format!("/sys/fs/cgroup{group}/cpu.stat"))?;
    let usage = stat.lines().find_map(|line| line.strip_prefix("usage_usec "));
    Ok(Duration::from_micros(usage.context("no usage_usec")?.trim().parse()?))
}

/// Processor time of a shim so far.
#[derive(Clone, Copy, Debug)]
pub struct ProcessorTime {
    /// Of the shim's own process.
    pub own: Duration,
    /// Of the programs that it has run and of the containers' processes, as far as they have ended.
    pub called: Duration,
}

pub fn processor_time(shim: libc::pid_t) -> Result<ProcessorTime> {
    let stat = std::fs::read_to_string(format!("/proc/{shim}/stat"))?;
    // proc_pid_stat(5): utime, stime, cutime, cstime are fields 14 to 17; field 3 is the first after the name.
    let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace().skip(14 - 3).take(4);
    // USER_HZ is 100 on every architecture that containerd supports.
    let times: Vec<_> = fields.map(|field| field.parse::<u64>().unwrap_or_default() * 10).collect();
    let [user, system, called_user, called_system] = times[..] else { anyhow::bail!("not a stat: {stat}") };
    let time = Duration::from_millis;
    Ok(ProcessorTime { own: time(user + system), called: time(called_user + called_system) })
}
