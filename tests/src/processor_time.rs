//! The processor time of a pod and of its shim, by the kernel's figures.

use std::time::Duration;

use anyhow::{Context, Result};

use crate::instance::Containerd;
use crate::pod::RunningPod;

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

/// That of the shim with this pid.
///
/// # Errors
/// It has ended.
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
