//! What containerd prepares before it runs a shim: a bundle with an OCI spec, and a root file system of busybox's
//! programs, which the shim mounts into the bundle.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use containerd_shim_protos::shim::oci::Options;
use containerd_shim_protos::types::mount::Mount;
use nix::sys::stat::Mode;
use protobuf::Message;
use protobuf::well_known_types::any::Any;
use serde_json::{Value, json};

use crate::direct::streams::Streams;

/// The programs that scenarios use.
const PROGRAMS: [&str; 25] = [
    "sh", "sleep", "cat", "echo", "id", "pwd", "env", "true", "false", "kill", "head", "tail", "seq", "dd",
    "stty", "ls", "tty", "grep", "ps", "printf", "nproc", "readlink", "wc", "touch", "tr",
];

/// A container to be created.
#[derive(Clone, Debug)]
pub struct Bundle {
    /// The OCI spec, without the cgroup.
    pub spec: Value,
    /// Which streams its container gets.
    pub streams: Streams,
    /// The runtime options that `start` and Create get.
    pub options: Option<Any>,
}

impl Bundle {
    /// A container that runs a shell script, with pipes for its output.
    #[must_use]
    pub fn shell(script: &str) -> Self {
        Self::program(&["sh", "-c", script])
    }

    /// A container that runs a program.
    #[must_use]
    pub fn program(args: &[&str]) -> Self {
        let spec = json!({
            "ociVersion": "1.0.2",
            "process": process(args),
            "root": {"path": "rootfs"},
            "hostname": "parity",
            "mounts": [
                {"destination": "/proc", "type": "proc", "source": "proc"},
                {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "mode=755"]},
                {"destination": "/dev/pts", "type": "devpts", "source": "devpts",
                    "options": ["nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620"]},
            ],
            "linux": {
                "namespaces": [
                    {"type": "pid"}, {"type": "ipc"}, {"type": "uts"}, {"type": "mount"}, {"type": "network"},
                ],
                "resources": {"devices": [{"allow": true, "access": "rwm"}]},
            },
        });
        Self { spec, streams: Streams::default(), options: None }
    }

    /// Changes the spec.
    #[must_use]
    pub fn spec(mut self, change: impl FnOnce(&mut Value)) -> Self {
        change(&mut self.spec);
        self
    }

    /// Sets other streams than the default, which is pipes for the output.
    #[must_use]
    pub fn streams(mut self, streams: Streams) -> Self {
        self.streams = streams;
        self.spec["process"]["terminal"] = streams.are_of_a_terminal().into();
        self
    }

    /// Sets options of the runc shim, which Create carries, and `start` on its standard input.
    ///
    /// # Errors
    /// If they cannot be written as a message.
    pub fn options(mut self, options: &Options) -> Result<Self> {
        let value = options.write_to_bytes()?;
        self.options =
            Some(Any { type_url: "containerd.runc.v1.Options".to_owned(), value, ..Any::default() });
        Ok(self)
    }

    /// Uses the host's pid namespace instead of its own.
    #[must_use]
    pub fn host_pid_namespace(self) -> Self {
        self.spec(|spec| {
            if let Some(namespaces) = spec["linux"]["namespaces"].as_array_mut() {
                namespaces.retain(|namespace| namespace["type"] != "pid");
            }
        })
    }

    /// Writes the bundle as containerd does (CONTRACT §1.4), in the cgroup `cgroup`.
    ///
    /// # Errors
    /// If one of its files cannot be made.
    pub fn write(&self, path: &Path, cgroup: &str) -> Result<()> {
        std::fs::create_dir_all(path.join("rootfs"))?;
        // containerd makes a link to a directory here; a directory serves as well.
        std::fs::create_dir_all(path.join("work"))?;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o700))?;
        nix::unistd::mkfifo(&path.join("log"), Mode::from_bits_truncate(0o700))?;
        let mut spec = self.spec.clone();
        spec["linux"]["cgroupsPath"] = cgroup.into();
        std::fs::write(path.join("config.json"), spec.to_string())
            .with_context(|| format!("{}", path.display()))
    }
}

/// An OCI process that runs as root with containerd's usual capabilities.
#[must_use]
pub fn process(args: &[&str]) -> Value {
    let capabilities =
        ["CAP_CHOWN", "CAP_KILL", "CAP_SETGID", "CAP_SETUID", "CAP_DAC_OVERRIDE", "CAP_NET_BIND_SERVICE"];
    json!({
        "terminal": false,
        "user": {"uid": 0, "gid": 0},
        "args": args,
        "env": ["PATH=/bin", "HOME=/"],
        "cwd": "/",
        "capabilities": {"bounding": capabilities, "effective": capabilities, "permitted": capabilities},
        "noNewPrivileges": true,
    })
}

/// Makes the root file system, and returns the mount that Create gets.
///
/// # Errors
/// If busybox is missing, or the file system cannot be written.
pub fn root_file_system(directory: &Path) -> Result<Mount> {
    let root = directory.join("root");
    for name in ["bin", "proc", "dev", "tmp", "etc"] {
        std::fs::create_dir_all(root.join(name))?;
    }
    std::fs::set_permissions(root.join("tmp"), std::fs::Permissions::from_mode(0o1777))?;
    let busybox = ["/bin/busybox", "/usr/bin/busybox"].map(PathBuf::from);
    let busybox = busybox.iter().find(|path| path.exists()).context("busybox is missing: run hack/setup")?;
    std::fs::copy(busybox, root.join("bin/busybox"))?;
    for program in PROGRAMS {
        symlink("busybox", root.join("bin").join(program))?;
    }
    Ok(Mount {
        type_: "bind".to_owned(),
        source: root.to_string_lossy().into_owned(),
        options: vec!["rbind".to_owned(), "rw".to_owned()],
        ..Mount::default()
    })
}
