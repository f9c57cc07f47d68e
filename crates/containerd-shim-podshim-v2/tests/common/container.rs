//! Containers of real OCI runtimes, made without a shim: as a shim that died leaves them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use nix::unistd::Pid;
use oci_runtime::bundle::Bundle;
use shim_service::options::RuntimeOptions;

use super::{Node, finish, spawn, succeeded, wait_until};

/// How far the container's start has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// `runc create` has ended.
    Created,
    /// Its program runs.
    Started,
}

/// A container of a real OCI runtime whose program writes to `log` that it started, and that it was asked to end.
pub struct RealContainer {
    pub bundle: Bundle,
    pub root: PathBuf,
    binary: &'static str,
}

impl RealContainer {
    /// Runs one with runc, whose state is in the node's directory.
    pub fn run(node: &Node, id: &str, annotations: &[(&str, &str)]) -> Self {
        Self::make(node, id, annotations, Stage::Started, "runc", &node.dir.path().join("runc"))
    }

    /// As [`Self::run`], in the pid namespace of another process.
    pub fn run_beside(node: &Node, id: &str, annotations: &[(&str, &str)], other: Pid) -> Self {
        let root = node.dir.path().join("runc");
        let join = |spec: &mut serde_json::Value| {
            for namespace in spec["linux"]["namespaces"].as_array_mut().unwrap() {
                if namespace["type"] == "pid" {
                    namespace["path"] = format!("/proc/{other}/ns/pid").into();
                }
            }
        };
        Self::make_adjusted(node, id, annotations, Stage::Started, "runc", &root, join)
    }

    pub fn make(
        node: &Node,
        id: &str,
        annotations: &[(&str, &str)],
        stage: Stage,
        binary: &'static str,
        root: &Path,
    ) -> Self {
        Self::make_adjusted(node, id, annotations, stage, binary, root, |_| {})
    }

    fn make_adjusted(
        node: &Node,
        id: &str,
        annotations: &[(&str, &str)],
        stage: Stage,
        binary: &'static str,
        root: &Path,
        adjust: impl FnOnce(&mut serde_json::Value),
    ) -> Self {
        let path = node.bundle(id);
        let log = node.dir.path().join("log");
        for dir in ["rootfs/bin", "rootfs/log", "rootfs/proc", "rootfs/dev", "rootfs/sys"] {
            fs::create_dir_all(path.join(dir)).unwrap();
        }
        fs::create_dir_all(&log).unwrap();
        fs::copy("/bin/busybox", path.join("rootfs/bin/busybox")).expect("busybox-static is installed");
        succeeded(finish(spawn(quiet(Command::new("runc").args(["spec", "--bundle"]).arg(&path)))));
        let config = path.join("config.json");
        let mut spec: serde_json::Value = serde_json::from_slice(&fs::read(&config).unwrap()).unwrap();
        // The shell only waits in `wait`, so the trap runs as soon as the signal comes.
        let script = format!(
            "trap 'echo {id} >> /log/order; exit 0' TERM; echo up > /log/{id}; while :; do busybox sleep 1 & wait $!; done"
        );
        spec["process"]["args"] = serde_json::json!(["/bin/busybox", "sh", "-c", script]);
        spec["process"]["env"] = serde_json::json!(["PATH=/bin"]);
        spec["process"]["terminal"] = false.into();
        // The default is the id, which tests that run at the same time share.
        let cgroup = format!("/podshim-test-{}-{id}", std::process::id());
        spec["linux"]["cgroupsPath"] = cgroup.into();
        spec["root"]["readonly"] = false.into();
        spec["annotations"] =
            annotations.iter().map(|(key, value)| ((*key).to_owned(), serde_json::json!(value))).collect();
        let bind =
            serde_json::json!({ "destination": "/log", "type": "bind", "source": log, "options": ["rbind"] });
        spec["mounts"].as_array_mut().unwrap().push(bind);
        adjust(&mut spec);
        fs::write(&config, spec.to_string()).unwrap();

        let bundle = Bundle::new(&path);
        let options = RuntimeOptions {
            binary_name: Some(binary.to_owned()),
            root: Some(root.to_owned()),
            ..RuntimeOptions::default()
        };
        options.save(&bundle).unwrap();
        let container = Self { bundle, root: root.join(&node.namespace), binary };
        // The container keeps the streams open: with pipes the test would wait.
        let mut create = container.command();
        create.args(["create", "--pid-file"]).arg(container.bundle.init_pid_path());
        create.arg("--bundle").arg(&path).arg(id);
        assert!(finish(spawn(&mut create)).status.success(), "{binary} create {id}");
        if stage == Stage::Started {
            assert!(
                finish(spawn(container.command().args(["start", id]))).status.success(),
                "{binary} start {id}"
            );
            wait_until("the container's start", || log.join(id).exists());
        }
        container
    }

    fn command(&self) -> Command {
        let mut command = Command::new(self.binary);
        quiet(&mut command).arg("--root").arg(&self.root);
        command
    }

    /// The directory in which its runtime keeps its state.
    pub fn state(&self) -> PathBuf {
        self.root.join(self.id())
    }

    pub fn pid(&self) -> Pid {
        self.bundle.read_init_pid().unwrap()
    }

    pub fn lives(&self) -> bool {
        is_running(self.pid())
    }

    pub fn id(&self) -> &Path {
        Path::new(self.bundle.path().file_name().unwrap())
    }
}

impl Drop for RealContainer {
    fn drop(&mut self) {
        finish(spawn(self.command().args(["delete", "--force"]).arg(self.id())));
        // Succeeds if this was the namespace's last one.
        let _ = fs::remove_dir(&self.root);
    }
}

/// Whether a process has not ended. A zombie has: it waits for the machine's init.
pub fn is_running(pid: Pid) -> bool {
    fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
}

fn quiet(command: &mut Command) -> &mut Command {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null())
}
