//! What a node offers to all pods: kernel, cgroups, room; and its settings for podshim: node file and drain.

use std::ffi::OsStr;
use std::path::Path;

use manifests::source::Source;
use node_state::paths::{DRAINING_FILE, NODE_FILE};

use super::report::Report;
use crate::node::{Release, output};
use crate::node_file as node_file_check;

/// The first kernel with pidfd_open, which podshim needs to wait for processes and signal them without a race.
const OLDEST_KERNEL: Release = Release { major: 5, minor: 3 };
/// Without these controllers, limits do not work and OOM kills of containers are not seen.
const CONTROLLERS: [&str; 3] = ["cpu", "memory", "pids"];
/// Directories with the free bytes they should have: containerd's images and containers, and the state of shims and
/// pods.
const ROOMS: [(&str, u64); 2] = [("/var/lib/containerd", 1 << 30), ("/run", 16 << 20)];
const UNIT: &str = "podshim-drain.service";

pub(super) fn kernel(report: &mut Report<'_>) {
    let Some(version) = report.read("/proc/sys/kernel/osrelease") else {
        return report.warn("kernel", "its version cannot be read", "mount /proc");
    };
    let version = version.trim();
    match Release::parse(version) {
        Some(release) if release < OLDEST_KERNEL => {
            report.fail("kernel", format!("{version}: podshim needs 5.3 or later"), "boot a newer kernel");
        }
        _ => report.ok("kernel", version),
    }
    let overlay = report.read("/proc/filesystems").is_none_or(|text| text.contains("\toverlay\n"));
    if !overlay {
        report.warn(
            "kernel",
            "overlay is not loaded: containerd's usual snapshotter needs it",
            "modprobe overlay",
        );
    }
}

/// cgroup v2 has one list of controllers, v1 has a directory for each.
pub(super) fn cgroups(report: &mut Report<'_>) {
    let unified = report.read("/sys/fs/cgroup/cgroup.controllers");
    let has = |controller: &&str| match &unified {
        Some(list) => list.split_whitespace().any(|name| name == *controller),
        None => report.at("/sys/fs/cgroup").join(controller).is_dir(),
    };
    let missing: Vec<_> = CONTROLLERS.iter().filter(|controller| !has(controller)).copied().collect();
    let version = if unified.is_some() { "v2" } else { "v1" };
    if missing.is_empty() {
        report.ok("cgroups", version);
    } else if missing.len() == CONTROLLERS.len() {
        report.fail("cgroups", "nothing is mounted at /sys/fs/cgroup", "mount it, or boot with systemd");
    } else {
        let message = format!("{version}, without {}", missing.join(" and "));
        report.warn("cgroups", message, "enable it: cgroup_enable= on the kernel's command line");
    }
}

/// Checked only on the running node: below another root the free space is not that node's.
pub(super) fn space(report: &mut Report<'_>) {
    if !report.is_this_node() {
        return;
    }
    for (path, wanted) in ROOMS {
        let arguments = ["--output=avail,iavail", "--block-size=1", path];
        let Some(table) = output(OsStr::new("df"), &arguments) else { continue };
        let numbers = table.lines().nth(1).unwrap_or_default().split_whitespace().map(str::parse::<u64>);
        let numbers: Vec<_> = numbers.filter_map(Result::ok).collect();
        // df prints "-" for file systems without a number of inodes.
        match numbers[..] {
            [bytes, ..] if bytes < wanted => report.warn(
                "space",
                format!("{path}: {} MiB are free", bytes >> 20),
                format!("free {} MiB", wanted >> 20),
            ),
            [_, 0] => report.fail("space", format!("{path}: no inode is free"), "remove files"),
            [bytes, ..] => report.ok("space", format!("{path}: {} MiB are free", bytes >> 20)),
            [] => {}
        }
    }
}

/// What this node's file says; a mistake in it is another finding.
pub(super) fn node_of(report: &Report<'_>) -> pod_spec::Node {
    report.read(NODE_FILE).and_then(|text| pod_spec::Node::parse(&text).ok()).unwrap_or_default()
}

/// With a mistake in this file, podshim refuses every pod with a plan.
pub(super) fn node_file(report: &mut Report<'_>) {
    let Some(text) = report.read(NODE_FILE) else {
        return report.ok("node file", format!("{NODE_FILE}: none"));
    };
    let findings = node_file_check::check(&Source { name: NODE_FILE.to_owned(), text });
    if findings.is_empty() {
        report.ok("node file", NODE_FILE);
    }
    findings.into_iter().for_each(|finding| report.finding("node file", finding));
}

/// N5 to N7: whether the unit is enabled that drains the node when it goes down, and whether the node is draining now.
pub(super) fn drain(report: &mut Report<'_>) {
    if report.at(DRAINING_FILE).is_file() {
        report.fail(
            "drain",
            format!("{DRAINING_FILE} is there: nothing new is begun"),
            "podshim drain --undo",
        );
    }
    let directories = ["/etc/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system"];
    let unit = directories.iter().map(|dir| Path::new(dir).join(UNIT)).find(|path| report.at(path).exists());
    let wanted = report.at("/etc/systemd/system/multi-user.target.wants").join(UNIT);
    match unit {
        // Look at the link itself: below another root its target need not exist.
        Some(unit) if std::fs::symlink_metadata(wanted).is_ok() => {
            // Its ExecStop is the drain: a unit that was never started stops nothing.
            if report.unit_is_active(UNIT) == Some(false) {
                report.warn(
                    "drain",
                    format!("{} is enabled and not active: a power-off now has no order", unit.display()),
                    format!("systemctl enable --now {UNIT}"),
                );
            } else {
                report.ok("drain", format!("{} is enabled", unit.display()));
            }
        }
        Some(unit) => report.warn(
            "drain",
            format!("{} is not enabled: pods lose their order when the node goes down", unit.display()),
            format!("systemctl enable --now {UNIT}"),
        ),
        None => report.warn(
            "drain",
            format!("{UNIT} is not installed: pods lose their order when the node goes down"),
            "podshim install",
        ),
    }
}
