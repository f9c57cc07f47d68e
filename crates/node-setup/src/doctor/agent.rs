//! Whether podshim's agent runs on the node. It is optional: without it nothing is wrong.
//!
//! Owns what a node can know of it: a process of that name. Which API server it writes to, and what it may there, only that server knows.

use std::fs;

use super::report::Report;

const PROGRAM: &str = "podshim-agent";
/// The pid namespace of the machine: in another one only some processes can be seen.
const INITIAL_NAMESPACE: &str = "pid:[4026531836]";

pub(super) fn agent(report: &mut Report<'_>) {
    let namespace = fs::read_link(report.at("/proc/self/ns/pid"));
    if !namespace.is_ok_and(|namespace| namespace.as_os_str() == INITIAL_NAMESPACE) {
        return;
    }
    let Ok(processes) = fs::read_dir(report.at("/proc")) else { return };
    let numbers = processes.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let is_agent =
        |pid: &u32| report.read(format!("/proc/{pid}/comm")).is_some_and(|name| name.trim_end() == PROGRAM);
    let mut pids: Vec<u32> = numbers.filter(is_agent).collect();
    pids.sort_unstable();
    let message = match pids.as_slice() {
        [] => format!(
            "no {PROGRAM} runs: kubectl shows no holds and restarts of this node, and a pod with the readinessGate \
             podshim.io/Started is never Ready (docs/agent.md)"
        ),
        [pid] => format!("{PROGRAM} runs (pid {pid})"),
        [pid, ..] => format!("{PROGRAM} runs {} times (pid {pid} and more)", pids.len()),
    };
    report.ok("agent", message);
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::path::{Path, PathBuf};

    use super::*;
    use crate::doctor::report::NodeUnderTest;

    fn found(root: &Path) -> Vec<String> {
        let node = NodeUnderTest { root: root.to_owned(), config: PathBuf::new(), release: None };
        let mut report = Report::of(&node);
        agent(&mut report);
        report.checks.into_iter().map(|check| check.message).collect()
    }

    #[test]
    fn an_agent_is_a_process_of_its_name_where_all_can_be_seen() {
        let root = tempfile::tempdir().unwrap();
        let process = |pid: &str, name: &str| {
            let directory = root.path().join("proc").join(pid);
            fs::create_dir_all(&directory).unwrap();
            fs::write(directory.join("comm"), format!("{name}\n")).unwrap();
        };
        process("7", "podshim-agent");
        process("self", "podshim-agent");
        let namespaces = root.path().join("proc/self/ns");
        fs::create_dir_all(&namespaces).unwrap();
        symlink("pid:[4026532000]", namespaces.join("pid")).unwrap();
        assert_eq!(found(root.path()), [""; 0], "in a container");
        fs::remove_file(namespaces.join("pid")).unwrap();
        symlink(INITIAL_NAMESPACE, namespaces.join("pid")).unwrap();
        assert_eq!(found(root.path()), ["podshim-agent runs (pid 7)"]);
        process("9", "podshim-agent");
        assert_eq!(found(root.path()), ["podshim-agent runs 2 times (pid 7 and more)"]);
        process("7", "podshim");
        process("9", "podshim");
        assert!(found(root.path())[0].starts_with("no podshim-agent runs: "), "{:?}", found(root.path()));
    }
}
