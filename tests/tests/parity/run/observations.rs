//! The steps that look at the machine instead of asking the shim: the server process, cgroups, processes that still
//! live.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use e2e::wait;

use super::{Run, SOON};

/// Files that hold a container's limits, in a v1 controller's directory or in the only one of v2.
const LIMITS: [(&str, &str); 11] = [
    ("memory", "memory.limit_in_bytes"),
    ("memory", "memory.memsw.limit_in_bytes"),
    ("memory", "memory.soft_limit_in_bytes"),
    ("cpu", "cpu.shares"),
    ("cpu", "cpu.cfs_quota_us"),
    ("cpu", "cpu.cfs_period_us"),
    ("pids", "pids.max"),
    ("cpuset", "cpuset.cpus"),
    ("", "memory.max"),
    ("", "cpu.max"),
    ("", "cpu.weight"),
];

impl Run {
    /// The run's own directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Sets a variable for the shims that are started from now on.
    pub fn environment(&mut self, name: &str, value: &str) {
        self.binary.variables.push((name.to_owned(), value.to_owned()));
    }

    /// The limits of a container that the kernel applies.
    pub fn limits(&mut self, id: &str) {
        let relative = format!("{}/{id}", self.cgroup.trim_start_matches('/'));
        let read = |(controller, file): &(&str, &str)| {
            let path = Path::new("/sys/fs/cgroup").join(controller).join(&relative).join(file);
            Some(((*file).to_owned(), std::fs::read_to_string(path).ok()?.trim().to_owned()))
        };
        let found = LIMITS.iter().filter_map(read).collect();
        self.record(format!("limits of {id}"), found);
    }

    /// How many processes are in a container's cgroup.
    pub fn processes_left(&mut self, id: &str) {
        let mut left = 0;
        for cgroup in self.traces().cgroups().iter().filter(|path| path.ends_with(id)) {
            let processes = std::fs::read_to_string(cgroup.join("cgroup.procs")).unwrap_or_default();
            left = left.max(processes.lines().count());
        }
        self.record(format!("processes left of {id}"), vec![("number".to_owned(), left.to_string())]);
    }

    /// The server process, whose pid comes from [`Run::connect`].
    pub fn server_process(&mut self) -> Result<()> {
        let Some(pid) = self.names.pid_of("server") else {
            self.record("the server process", vec![("pid".to_owned(), "unknown".to_owned())]);
            return Ok(());
        };
        let process = PathBuf::from(format!("/proc/{pid}"));
        let number = |path: PathBuf| -> Result<i64> { Ok(std::fs::read_to_string(path)?.trim().parse()?) };
        let score = number(process.join("oom_score_adj"))? - number("/proc/self/oom_score_adj".into())?;
        let mut fields = vec![("oom score above its parent's".to_owned(), score.to_string())];
        let raw = i32::try_from(pid)?;
        let group = nix::unistd::getpgid(Some(nix::unistd::Pid::from_raw(raw)))?;
        fields.push(("leads its process group".to_owned(), (group.as_raw() == raw).to_string()));
        let link = |name: &str| -> Result<String> {
            Ok(self.names.of_text(&std::fs::read_link(process.join(name))?.to_string_lossy()))
        };
        for name in ["cwd", "root", "fd/0", "fd/1", "fd/2"] {
            fields.push((name.to_owned(), link(name)?));
        }
        let status = std::fs::read_to_string(process.join("status"))?;
        for name in ["Umask", "Uid", "Gid", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs", "Seccomp"] {
            let line = status.lines().find(|line| line.starts_with(&format!("{name}:")));
            fields.push((name.to_owned(), line.unwrap_or_default().to_owned()));
        }
        let cgroups = std::fs::read_to_string(process.join("cgroup"))?;
        for line in cgroups.lines() {
            let mut parts = line.splitn(3, ':').skip(1);
            let controllers = parts.next().unwrap_or_default();
            let path = self.names.of_text(parts.next().unwrap_or_default());
            fields.push((format!("cgroup {controllers}"), path));
        }
        let limits = std::fs::read_to_string(process.join("limits"))?;
        for line in limits.lines().filter(|line| line.starts_with("Max open files")) {
            fields.push(("limit".to_owned(), line.split_whitespace().collect::<Vec<_>>().join(" ")));
        }
        let address = self.sockets.last().context("a socket")?;
        let mode = std::os::unix::fs::MetadataExt::mode(&std::fs::metadata(address)?);
        fields.push(("mode of its socket".to_owned(), format!("{mode:o}")));
        self.record("the server process", fields);
        Ok(())
    }

    /// Whether the server has a core scheduling cookie of its own.
    pub fn core_scheduling(&mut self) -> Result<()> {
        let mut cookie = [0_u64; 2];
        for (slot, pid) in cookie.iter_mut().zip([self.names.pid_of("server").unwrap_or_default(), 0]) {
            // SAFETY: PR_SCHED_CORE_GET for a thread writes one u64 to the given address, which is that of a local
            // variable.
            unsafe {
                libc::prctl(libc::PR_SCHED_CORE, libc::PR_SCHED_CORE_GET, pid, 0, std::ptr::from_mut(slot));
            }
        }
        let own = cookie[0] != 0 && cookie[0] != cookie[1];
        self.record("core scheduling", vec![("a cookie of its own".to_owned(), own.to_string())]);
        Ok(())
    }

    /// Writes a shell script beside the bundles, and returns its path.
    pub fn executable(&self, name: &str, script: &str) -> Result<String> {
        let path = self.directory.join(name);
        std::fs::write(&path, format!("#!/bin/sh\n{script}\n"))?;
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755))?;
        Ok(path.to_string_lossy().into_owned())
    }

    /// Writes a shell script that shims started from now on find before any other program of its name.
    pub fn executable_found_first(&mut self, name: &str, script: &str) -> Result<()> {
        let directory = self.directory.join("found-first");
        std::fs::create_dir_all(&directory)?;
        self.executable(&format!("found-first/{name}"), script)?;
        let path = format!("{}:{}", directory.display(), self.binary.search_path());
        self.environment("PATH", &path);
        Ok(())
    }

    /// Waits until a file has `count` lines, and records them sorted.
    pub async fn lines_of_file(&mut self, path: &Path, count: usize) -> Result<()> {
        let lines = wait::until("the file's lines", SOON, async || {
            let text = std::fs::read_to_string(path).unwrap_or_default();
            let mut lines: Vec<_> = text.lines().map(str::to_owned).collect();
            lines.sort();
            Ok((lines.len() >= count).then_some(lines))
        });
        let lines = lines.await?.join("\n");
        let fields = vec![("lines".to_owned(), self.names.of_text(&lines))];
        self.record(format!("file {}", path.file_name().unwrap_or_default().display()), fields);
        Ok(())
    }

    /// Runs `start` a second time for a bundle, as after a lost answer.
    pub async fn start_again(&mut self, id: &str) -> Result<()> {
        let output = self.act("start", id, None).await?;
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        let same = self.sockets.iter().any(|socket| printed.contains(&*socket.to_string_lossy()));
        let fields = vec![
            ("exit code".to_owned(), format!("{:?}", output.exit_code)),
            ("stderr".to_owned(), self.names.of_text(&output.stderr)),
            ("the same address".to_owned(), same.to_string()),
        ];
        self.record(format!("start the shim of {id} again"), fields);
        Ok(())
    }

    /// Makes a cgroup for the shim in every hierarchy that can have one, and returns its path.
    pub fn make_cgroup(&self, name: &str) -> Result<String> {
        let relative = format!("{}/{name}", self.cgroup.trim_start_matches('/'));
        let root = Path::new("/sys/fs/cgroup");
        let mut hierarchies = vec![root.to_owned()];
        if !root.join("cgroup.controllers").exists() {
            let entries = std::fs::read_dir(root)?.flatten();
            let own = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
            hierarchies = own.map(|entry| entry.path()).collect();
        }
        for hierarchy in hierarchies {
            let path = hierarchy.join(&relative);
            std::fs::create_dir_all(&path).with_context(|| path.display().to_string())?;
            // A v1 cpuset takes processes only once it has these.
            for file in ["cpuset.cpus", "cpuset.mems"] {
                copy_down(&hierarchy, &relative, file)?;
            }
        }
        Ok(format!("/{relative}"))
    }
}

fn copy_down(hierarchy: &Path, relative: &str, file: &str) -> Result<()> {
    if !hierarchy.join(file).exists() {
        return Ok(());
    }
    let mut path = hierarchy.to_owned();
    for part in relative.split('/') {
        let above = std::fs::read_to_string(path.join(file))?;
        path.push(part);
        std::fs::write(path.join(file), above.trim())?;
    }
    Ok(())
}
