//! What a call is on: by its descriptor, its path or its flags.

use std::collections::BTreeMap;

use super::names;
use super::tracee::Tracee;

/// What has no lock that another process could hold.
const OF_ITS_OWN: &str = "itself";
const OF_NO_FILE: &str = "nothing";

/// What is known of the descriptors of a traced thread.
#[derive(Debug)]
pub(super) struct Objects<'a> {
    tracee: &'a Tracee,
    /// Of what `/proc` has only a number for, such as `pipe:[17]`: where it comes from.
    origins: BTreeMap<String, &'static str>,
}

impl<'a> Objects<'a> {
    /// What is open now is the shim's own: no container is there yet.
    pub(super) fn of(tracee: &'a Tracee) -> Self {
        let mut origins = BTreeMap::new();
        for number in 0..1024 {
            let link = tracee.descriptor(number);
            let kind = match number {
                // As it inherits it from `start`.
                3 => "the pod's socket",
                _ => "a socket of its own",
            };
            if link.starts_with("socket:") {
                origins.insert(link, kind);
            } else if link.starts_with("pipe:") {
                origins.insert(link, "a pipe of its own");
            }
        }
        Self { tracee, origins }
    }

    /// The kind of what a call is on, before the call.
    pub(super) fn kind(&self, name: &str, arguments: &[u64; 6]) -> String {
        let [first, second, third, fourth, ..] = *arguments;
        let waits = |kind: String, flags: u64| {
            let is_leased =
                ["cgroup", "/proc/PID", "freezer.state", "tasks"].iter().any(|start| kind.contains(start));
            let never_waits =
                u64::from((libc::O_NONBLOCK | libc::O_PATH | libc::O_DIRECTORY).cast_unsigned());
            if is_leased && flags & never_waits == 0 { kind + ", waiting" } else { kind }
        };
        match name {
            "open" => waits(path_kind(&self.tracee.text(first), self.tracee.pid()), second),
            "openat" => waits(self.kind_at(first, second), third),
            "openat2" => waits(self.kind_at(first, second), self.number(third)),
            "stat" | "lstat" | "access" | "readlink" | "mkdir" | "rmdir" | "unlink" | "rename" | "chmod"
            | "chown" | "statfs" | "chdir" | "execve" | "umount2" => {
                path_kind(&self.tracee.text(first), self.tracee.pid())
            }
            "mount" | "symlink" => path_kind(&self.tracee.text(second), self.tracee.pid()),
            "newfstatat" | "statx" | "readlinkat" | "mkdirat" | "unlinkat" | "renameat" | "renameat2"
            | "faccessat" | "faccessat2" | "fchmodat" | "fchownat" | "utimensat" | "inotify_add_watch" => {
                self.kind_at(first, second)
            }
            "read" | "write" | "readv" | "writev" | "pread64" | "pwrite64" | "close" | "fstat" | "lseek"
            | "ioctl" | "fcntl" | "flock" | "fsync" | "ftruncate" | "getdents64" | "fchdir" | "fchmod"
            | "fchown" | "fstatfs" | "accept" | "accept4" | "sendto" | "recvfrom" | "sendmsg" | "recvmsg"
            | "shutdown" | "bind" | "listen" | "getsockname" | "getpeername" | "setsockopt"
            | "getsockopt" | "setns" | "pidfd_send_signal" | "pidfd_getfd" | "timerfd_settime"
            | "inotify_rm_watch" | "epoll_wait" | "epoll_pwait" | "dup" | "dup2" | "dup3" => {
                self.descriptor_kind(first)
            }
            "splice" | "tee" | "sendfile" | "copy_file_range" => {
                format!("{} into {}", self.descriptor_kind(first), self.descriptor_kind(third))
            }
            "connect" => self.address_kind(second, third),
            "epoll_ctl" => self.descriptor_kind(third),
            "poll" | "ppoll" => self.polled_kinds(first, second),
            "waitid" if fourth & u64::from(libc::WNOWAIT.cast_unsigned()) != 0 => {
                "a child, which stays".to_owned()
            }
            "waitid" | "wait4" => "a child, which is released".to_owned(),
            "clone" | "fork" | "vfork" => thread_or_process(if name == "clone" { first } else { 0 }),
            "clone3" => thread_or_process(self.number(first)),
            "futex" => futex(second).to_owned(),
            "kill" | "tkill" | "tgkill" | "pidfd_open" | "ptrace" | "prlimit64" => {
                if first == 0 || first == u64::from(self.tracee.pid().cast_unsigned()) {
                    OF_ITS_OWN
                } else {
                    "a process"
                }
                .to_owned()
            }
            _ => OF_NO_FILE.to_owned(),
        }
    }

    /// After a call that has made descriptors.
    pub(super) fn learn(&mut self, name: &str, arguments: &[u64; 6], value: i64) {
        let Ok(made) = u64::try_from(value) else { return };
        let (numbers, kind) = match name {
            "pipe" | "pipe2" => (self.pair(arguments[0]), "a pipe of its own"),
            "socketpair" => (self.pair(arguments[3]), "a socket of its own"),
            "socket" => (vec![made], "a socket of its own"),
            "accept" | "accept4" => (vec![made], "a connection"),
            _ => return,
        };
        for number in numbers {
            self.origins.insert(self.tracee.descriptor(number), kind);
        }
    }

    /// For a person: the files of a call.
    pub(super) fn described(&self, arguments: &[u64; 6]) -> String {
        let [first, second, third, ..] = *arguments;
        let tracee = self.tracee;
        format!("{} {} {}", tracee.descriptor(first), tracee.descriptor(third), tracee.text(second))
    }

    fn number(&self, address: u64) -> u64 {
        self.tracee.memory(address, 8).try_into().map_or(0, u64::from_ne_bytes)
    }

    fn pair(&self, address: u64) -> Vec<u64> {
        let both = self.number(address);
        vec![both & u64::from(u32::MAX), both >> 32]
    }

    fn kind_at(&self, directory: u64, path: u64) -> String {
        let path = self.tracee.text(path);
        let at_fdcwd = libc::AT_FDCWD.cast_unsigned();
        let at = if directory as u32 == at_fdcwd || path.starts_with('/') {
            String::new()
        } else {
            self.tracee.descriptor(directory)
        };
        match (&at[..], &path[..]) {
            ("", path) => path_kind(path, self.tracee.pid()),
            (_, "") => self.descriptor_kind(directory),
            (at, path) => path_kind(&format!("{at}/{path}"), self.tracee.pid()),
        }
    }

    fn descriptor_kind(&self, number: u64) -> String {
        let link = self.tracee.descriptor(number);
        if let Some(kind) = self.origins.get(&link) {
            return (*kind).to_owned();
        }
        let known = [
            ("anon_inode:[eventfd]", "eventfd"),
            ("anon_inode:[eventpoll]", "epoll"),
            ("anon_inode:[signalfd]", "signalfd"),
            ("anon_inode:[timerfd]", "timerfd"),
            ("anon_inode:inotify", "inotify"),
            ("anon_inode:[pidfd]", "pidfd"),
            ("pidfd:", "pidfd"),
            ("pipe:", "a pipe of a container"),
            ("socket:", "a socket that it has received"),
            ("net:", "a namespace"),
            ("mnt:", "a namespace"),
            ("pid:", "a namespace"),
            ("user:", "a namespace"),
            ("/memfd:", "memfd"),
        ];
        if link.is_empty() {
            return "a number that is not open".to_owned();
        }
        let found = known.iter().find(|(start, _)| link.starts_with(start));
        found.map_or_else(|| path_kind(&link, self.tracee.pid()), |(_, kind)| (*kind).to_owned())
    }

    /// Each of them, as one name: mostly one descriptor is polled.
    fn polled_kinds(&self, address: u64, count: u64) -> String {
        let length = usize::try_from(count.min(64)).unwrap_or_default() * 8;
        let records = self.tracee.memory(address, length);
        let kinds: std::collections::BTreeSet<_> = records
            .chunks_exact(8)
            .map(|record| i32::from_ne_bytes([record[0], record[1], record[2], record[3]]))
            .filter(|number| *number >= 0)
            .map(|number| self.descriptor_kind(u64::from(number.cast_unsigned())))
            .collect();
        kinds.into_iter().collect::<Vec<_>>().join(" and ")
    }

    fn address_kind(&self, address: u64, length: u64) -> String {
        let bytes = self.tracee.memory(address, usize::try_from(length.min(110)).unwrap_or_default());
        let family = bytes.first_chunk().map_or(0, |start| u16::from_ne_bytes(*start));
        if libc::c_int::from(family) != libc::AF_UNIX {
            return format!("an address of family {family}");
        }
        let path = bytes[2..].split(|byte| *byte == 0).next().unwrap_or_default();
        path_kind(&String::from_utf8_lossy(path), self.tracee.pid())
    }
}

/// The plain name and kind of a call.
pub(super) fn plain(name: &'static str, kind: String, arguments: &[u64; 6]) -> (&'static str, String) {
    let removes_directory = u64::from(libc::AT_REMOVEDIR.cast_unsigned());
    match name {
        "unlinkat" if arguments[2] & removes_directory != 0 => ("rmdir", kind),
        name => (names::plain(name), kind),
    }
}

fn thread_or_process(flags: u64) -> String {
    let is_thread = flags & u64::from(libc::CLONE_THREAD.cast_unsigned()) != 0;
    if is_thread { "a thread" } else { "a process" }.to_owned()
}

fn futex(operation: u64) -> &'static str {
    match (operation as libc::c_int) & libc::FUTEX_CMD_MASK {
        libc::FUTEX_WAIT | libc::FUTEX_WAIT_BITSET | libc::FUTEX_LOCK_PI => "a lock, which it waits for",
        _ => "a lock, which it frees",
    }
}

/// What is at a path of the node.
fn path_kind(path: &str, own: libc::pid_t) -> String {
    let path = path.strip_suffix(" (deleted)").unwrap_or(path);
    let within = |place: &str| path.contains(place);
    let below =
        |place: &str| path == place || path.strip_prefix(place).is_some_and(|rest| rest.starts_with('/'));
    let kind = if below("/proc") {
        return of_proc(path, own);
    } else if below("/sys/fs/cgroup") {
        return of_cgroups(path);
    } else if below("/sys") {
        "/sys"
    } else if within("/io.containerd.runtime.v2.task/") {
        return of_bundle(path);
    } else if within("/io.containerd.grpc.v1.cri/") || below("/run/containerd/fifo") {
        "a fifo of containerd's"
    } else if below("/run/podshim") {
        "/run/podshim"
    } else if within("/containerd/runc/") || path.ends_with("/containerd/runc") {
        "the records of sandboxes"
    } else if within("/run/netns/") {
        "a namespace"
    } else if below("/run/containerd/s") {
        "/run/containerd/s"
    } else if path == "log" {
        "the log's fifo"
    } else if path.ends_with(".sock.ttrpc") || path.ends_with(".sock") {
        "containerd's socket"
    } else if within("/dbus/") || within("/systemd/private") {
        "systemd's socket"
    } else if below("/var/lib/podshim") {
        "/var/lib/podshim"
    } else if below("/etc/podshim") {
        "/etc/podshim"
    } else if path.ends_with("/podshim-options.toml") {
        // hack/containerd-up writes it, for an OCI runtime that is not runc.
        "the file of runtime options"
    } else if below("/dev/pts") || path == "/dev/ptmx" {
        "a terminal"
    } else if ["/dev/null", "/dev/kmsg", "/dev/urandom", "/"].contains(&path) {
        return path.to_owned();
    } else if ["/usr", "/bin", "/sbin", "/lib", "/lib64", "/etc", "/opt"].iter().any(|place| below(place)) {
        "a file of the node's system"
    } else if !path.starts_with('/') {
        return format!("the relative path {path}");
    } else {
        return format!("the file {path}");
    };
    kind.to_owned()
}

/// By the names of its parts, for a number `PID`.
fn of_proc(path: &str, own: libc::pid_t) -> String {
    let parts: Vec<_> = path.split('/').skip(2).collect();
    let is_number = |part: &str| part.parse::<libc::pid_t>().is_ok();
    let plain: Vec<_> = parts
        .iter()
        .map(|part| match *part {
            part if part == own.to_string() => "self",
            "thread-self" => "self",
            part if is_number(part) => "PID",
            part => part,
        })
        .collect();
    let text = format!("/proc/{}", plain.join("/"));
    // A thread of its own by its number.
    text.replace("/proc/self/task/self", "/proc/self").replace("/proc/self/task/PID", "/proc/self")
}

fn of_cgroups(path: &str) -> String {
    const CONTROLLERS: [&str; 15] = [
        "cgroup", "memory", "cpu", "cpuacct", "cpuset", "pids", "blkio", "io", "hugetlb", "freezer",
        "devices", "net_cls", "net_prio", "rdma", "misc",
    ];
    let name = path.rsplit('/').next().unwrap_or_default();
    let is_file = name.split_once('.').is_some_and(|(controller, _)| CONTROLLERS.contains(&controller));
    match name {
        "cgroup.procs" | "tasks" | "freezer.state" | "cgroup.freeze" | "cgroup.kill" | "cgroup.events" => {
            name
        }
        _ if is_file => "a figure of a cgroup",
        _ => "the directory of a cgroup",
    }
    .to_owned()
}

fn of_bundle(path: &str) -> String {
    match path.rsplit('/').next() {
        _ if path.contains("/rootfs/") => "a file of a container's root",
        Some("rootfs") => "a container's root",
        Some("log") => "the log's fifo",
        _ => "a bundle",
    }
    .to_owned()
}
