//! The machine and the versions on which the figures were taken; figures without them mean nothing.

use std::fs;

use anyhow::Result;
use e2e::Containerd;

/// One line: containerd, runtime, cores, kernel, load.
pub fn describe(node: &Containerd) -> Result<String> {
    let setting = |name: &str| fs::read_to_string(node.directory().join(name));
    let cores = std::thread::available_parallelism()?;
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease")?;
    let load = fs::read_to_string("/proc/loadavg")?;
    let version =
        if std::path::Path::new("/sys/fs/cgroup/cgroup.controllers").exists() { "v2" } else { "v1" };
    Ok(format!(
        "containerd {}, {}, cgroup {version}, {cores} cores, Linux {}; load average at the start: {}",
        setting("containerd-version")?.trim(),
        setting("oci-runtime")?.trim(),
        kernel.trim(),
        load.split(' ').next().unwrap_or_default(),
    ))
}
