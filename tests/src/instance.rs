//! A private containerd of `hack/containerd-up`: connecting to the one that a test run shares, starting one of the
//! test's own, killing it and starting it again. Owns nothing but that process; pods belong to [`crate::Pod`].

use std::ffi::OsString;
use std::fs::File;
use std::io::Write as _;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use tokio::sync::oneshot;

use crate::{Cri, Ctr, command, wait};

/// Names the directory of the instance that all tests of a run share. Set by `hack/test`.
pub const SHARED_INSTANCE: &str = "PODSHIM_E2E_DIR";

/// The runtime handler a pod is run with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Runtime {
    /// containerd's own shim, `io.containerd.runc.v2`: what podshim is compared with.
    Runc,
    /// `io.containerd.podshim.v2`.
    Podshim,
}

impl Runtime {
    /// The handler's name in containerd's CRI configuration.
    #[must_use]
    pub fn handler(self) -> &'static str {
        match self {
            Runtime::Runc => "runc",
            Runtime::Podshim => "podshim",
        }
    }

    /// The runtime type, as `ctr run --runtime` takes it.
    #[must_use]
    pub fn runtime_type(self) -> &'static str {
        match self {
            Runtime::Runc => "io.containerd.runc.v2",
            Runtime::Podshim => "io.containerd.podshim.v2",
        }
    }
}

/// What creates the cgroups of containers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CgroupDriver {
    /// The OCI runtime, as directories.
    Cgroupfs,
    /// systemd, as slices and scopes.
    Systemd,
}

/// Who ends an instance, or a cluster.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Ownership {
    /// The process that started it.
    Shared,
    /// This handle, when it is dropped.
    Own,
}

/// A running private containerd.
#[derive(Debug)]
pub struct Containerd {
    directory: PathBuf,
    ownership: Ownership,
}

impl Containerd {
    /// The instance of this test run ([`SHARED_INSTANCE`]), or else one of the test's own.
    ///
    /// # Errors
    /// If the named instance is not up, or none can be started.
    pub async fn connect() -> Result<Self> {
        match std::env::var_os(SHARED_INSTANCE) {
            Some(directory) => Self::attach(Path::new(&directory)),
            None => Self::start().await,
        }
    }

    /// The instance in `directory`, which another process ends.
    ///
    /// # Errors
    /// If no instance is up there.
    pub fn attach(directory: &Path) -> Result<Self> {
        let instance = Self { directory: directory.to_owned(), ownership: Ownership::Shared };
        instance.pid("containerd.pid").context("start it with hack/containerd-up")?;
        Ok(instance)
    }

    /// The instance in `directory`, which ends when the handle is dropped.
    pub(crate) fn own(directory: PathBuf) -> Self {
        Self { directory, ownership: Ownership::Own }
    }

    /// Starts an instance of the test's own, for tests that kill containerd. It ends when the handle is dropped.
    ///
    /// # Errors
    /// If `hack/containerd-up` fails; the error holds its output.
    pub async fn start() -> Result<Self> {
        Self::start_with(own_arguments(&own_directory())).await
    }

    /// Starts an instance that `podshim install` configured for podshim, without any other configuration.
    ///
    /// # Errors
    /// If `hack/containerd-up` fails; the error holds its output.
    pub async fn start_installed() -> Result<Self> {
        let mut arguments = own_arguments(&own_directory());
        arguments.push("--installed".into());
        Self::start_with(arguments).await
    }

    /// Starts an instance of the test's own whose pods run on that shim unless they ask for another one.
    ///
    /// # Errors
    /// If `hack/containerd-up` fails; the error holds its output.
    pub async fn start_with_default(runtime: Runtime) -> Result<Self> {
        let mut arguments = own_arguments(&own_directory());
        arguments.extend(["--default-runtime".into(), runtime.handler().into()]);
        Self::start_with(arguments).await
    }

    /// Starts an instance of the test's own that traces its requests, and sends the spans to that URL (containerd 2.0 and later).
    ///
    /// # Errors
    /// If `hack/containerd-up` fails; the error holds its output.
    pub async fn start_traced(collector: &str) -> Result<Self> {
        let mut arguments = own_arguments(&own_directory());
        arguments.extend(["--otlp".into(), collector.into()]);
        Self::start_with(arguments).await
    }

    pub(crate) async fn start_with(arguments: Vec<OsString>) -> Result<Self> {
        let script = command::script("containerd-up");
        let socket = command::run(&script, arguments).await?.success(&script)?;
        let directory = Path::new(socket.trim()).parent().context("no socket path was printed")?.to_owned();
        let instance = Self::own(directory);
        instance.wait_serving().await?;
        Ok(instance)
    }

    /// Kills containerd with SIGKILL and returns when it is gone. Shims and containers live on.
    ///
    /// # Errors
    /// If it is still alive after 10 s.
    pub async fn kill(&self) -> Result<()> {
        kill(self.pid("containerd.pid")?, "containerd").await
    }

    /// Starts containerd again after [`kill`](Self::kill), in the same namespaces, and returns when it answers.
    ///
    /// # Errors
    /// If `hack/containerd-up` fails.
    pub async fn start_again(&self) -> Result<()> {
        let script = command::script("containerd-up");
        command::run(&script, [Path::new("--dir"), &self.directory]).await?.success(&script)?;
        self.wait_serving().await
    }

    /// The CRI answers "server is not initialized yet" until it has loaded its pods, after containerd itself is up.
    async fn wait_serving(&self) -> Result<()> {
        let cri = self.cri()?;
        let serving = async || Ok(cri.list_pod_sandboxes().await.ok().map(drop));
        wait::until("the CRI to serve", Duration::from_secs(20), serving).await
    }

    /// The instance's directory: socket, root, state and logs.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Adds a line to a file of the instance, which `hack/test` sums up at the end.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn note(&self, file: &str, line: &str) -> Result<()> {
        let mut file =
            std::fs::OpenOptions::new().create(true).append(true).open(self.directory.join(file))?;
        // One write: other tests run at the same time.
        Ok(file.write_all(format!("{line}\n").as_bytes())?)
    }

    /// A CRI client. It reconnects by itself after containerd was started again.
    ///
    /// # Errors
    /// If the socket's path is not valid UTF-8.
    pub fn cri(&self) -> Result<Cri> {
        Cri::connect(&self.directory.join("containerd.sock"))
    }

    /// A `ctr` that talks to this instance.
    #[must_use]
    pub fn ctr(&self) -> Ctr {
        Ctr::new(&self.directory)
    }

    /// The file of one of the instance's namespaces (`net`, `mnt`).
    ///
    /// # Errors
    /// If the instance is not up.
    pub(crate) fn namespace(&self, kind: &str) -> Result<PathBuf> {
        Ok(PathBuf::from(format!("/proc/{}/ns/{kind}", self.pid("holder.pid")?)))
    }

    /// The instance's root file system as seen from here: it has a `/run` of its own.
    ///
    /// # Errors
    /// If the instance is not up.
    pub fn root(&self) -> Result<PathBuf> {
        Ok(PathBuf::from(format!("/proc/{}/root", self.pid("holder.pid")?)))
    }

    /// [`directory`](Self::directory) as containerd sees it: the bundles below it are in memory, in a mount of the instance's.
    ///
    /// # Errors
    /// If the instance is not up.
    pub fn directory_inside(&self) -> Result<PathBuf> {
        Ok(self.root()?.join(self.directory.strip_prefix("/")?))
    }

    /// The mount table of the instance's namespace, in the format of `/proc/self/mountinfo`.
    ///
    /// # Errors
    /// If the instance is not up.
    pub fn mounts(&self) -> Result<String> {
        Ok(std::fs::read_to_string(format!("/proc/{}/mountinfo", self.pid("holder.pid")?))?)
    }

    /// The processes of the instance: its own, its shims, and the containers'.
    ///
    /// # Errors
    /// If the instance is not up.
    pub fn processes(&self) -> Result<Vec<libc::pid_t>> {
        let own = std::fs::read_link(self.namespace("mnt")?)?;
        let (directory, cgroup) = (format!("{}/", self.directory.display()), format!("{}/", self.cgroup()));
        let mut found = Vec::new();
        for entry in std::fs::read_dir("/proc")?.flatten() {
            let path = entry.path();
            let Some(pid) = path.file_name().and_then(|name| name.to_str()?.parse().ok()) else { continue };
            // A process may end while this looks.
            let names = |file: &str, text: &str| {
                std::fs::read_to_string(path.join(file)).is_ok_and(|content| content.contains(text))
            };
            let is_its = std::fs::read_link(path.join("ns/mnt")).is_ok_and(|namespace| namespace == own)
                || names("cgroup", &cgroup)
                || names("mountinfo", &directory);
            if is_its && is_alive(pid) {
                found.push(pid);
            }
        }
        Ok(found)
    }

    /// The cgroup below which the pods of this instance are; `hack/containerd-down` removes it by this name.
    #[must_use]
    pub fn cgroup(&self) -> String {
        format!("/podshim-{}", self.directory.file_name().unwrap_or_default().to_string_lossy())
    }

    /// The cgroup of all pods of CRI. With the systemd driver it is a slice.
    ///
    /// # Errors
    /// If `hack/containerd-up` did not make the instance.
    pub fn cgroup_of_pods(&self) -> Result<String> {
        Ok(match self.cgroup_driver()? {
            CgroupDriver::Cgroupfs => self.cgroup(),
            CgroupDriver::Systemd => format!("/{}.slice", self.slice()),
        })
    }

    /// The cgroup that a kubelet makes for a pod.
    ///
    /// # Errors
    /// If `hack/containerd-up` did not make the instance.
    pub fn pod_cgroup(&self, pod: &str) -> Result<String> {
        let of_pods = self.cgroup_of_pods()?;
        Ok(match self.cgroup_driver()? {
            CgroupDriver::Cgroupfs => format!("{of_pods}/{pod}"),
            CgroupDriver::Systemd => {
                format!("{of_pods}/{}-{}.slice", self.slice(), pod.replace('-', "_"))
            }
        })
    }

    /// The name of the slice of all pods. A dash in a slice's name stands for its parent slice, so dashes of names are replaced.
    pub(crate) fn slice(&self) -> String {
        self.cgroup()[1..].replace('-', "_")
    }

    /// Runs the `podshim` command that lies beside the shim, and returns its stdout.
    ///
    /// # Errors
    /// If it was not built, or exits with anything but 0.
    pub async fn podshim(&self, arguments: &[&str]) -> Result<String> {
        let directory = std::fs::read_to_string(self.directory.join("bin"))?;
        let program = Path::new(directory.trim()).join("podshim");
        command::run(&program, arguments).await?.success(arguments)
    }

    /// Whether its node's file leaves sandboxes to podshim from the beginning (`hack/containerd-up --sandbox`).
    #[must_use]
    pub fn makes_own_sandboxes(&self) -> bool {
        let maker = std::fs::read_to_string(self.directory.join("sandbox"));
        !maker.is_ok_and(|maker| maker.trim() == "runtime")
    }

    /// Writes the node's settings, `/etc/podshim/config.toml`, which podshim reads for each pod. Only for an instance
    /// of the test's own.
    ///
    /// # Errors
    /// If it cannot be written.
    pub async fn write_node_file(&self, text: &str) -> Result<()> {
        // The overlay keeps everything that is written to /etc in the instance's own /run.
        let script = format!(
            "set -e
             if ! [ -d /run/etc ]; then
                 mkdir -p /run/etc/upper /run/etc/work
                 mount -t overlay overlay -o lowerdir=/etc,upperdir=/run/etc/upper,workdir=/run/etc/work /etc
             fi
             mkdir -p /etc/podshim
             cat >/etc/podshim/config.toml <<'END'\n{text}\nEND"
        );
        let output = self.ctr().output(&["--run", "sh", "-c", &script]).await?;
        ensure!(output.exit_code == Some(0), "{output:?}");
        Ok(())
    }

    /// The name of its OCI runtime: runc or crun.
    ///
    /// # Errors
    /// If `hack/containerd-up` did not make the instance.
    pub fn oci_runtime(&self) -> Result<String> {
        self.setting("oci-runtime")
    }

    /// What creates the cgroups of its containers.
    ///
    /// # Errors
    /// If `hack/containerd-up` did not make the instance.
    pub fn cgroup_driver(&self) -> Result<CgroupDriver> {
        match self.setting("cgroup-driver")?.as_str() {
            "cgroupfs" => Ok(CgroupDriver::Cgroupfs),
            "systemd" => Ok(CgroupDriver::Systemd),
            other => bail!("{}: not a cgroup driver: {other}", self.directory.display()),
        }
    }

    /// Its version, as (major, minor).
    ///
    /// # Errors
    /// If `hack/containerd-up` did not make the instance.
    pub fn version(&self) -> Result<(u32, u32)> {
        let text = self.setting("containerd-version")?;
        let numbers = text.split_once('.');
        let numbers = numbers.and_then(|(major, minor)| Some((major.parse().ok()?, minor.parse().ok()?)));
        numbers.with_context(|| format!("{}: not a version: {text}", self.directory.display()))
    }

    /// A setting that `hack/containerd-up` has written into the instance's directory.
    fn setting(&self, name: &str) -> Result<String> {
        let path = self.directory.join(name);
        let text =
            std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        Ok(text.trim().to_owned())
    }

    /// The address of a live task's shim, from its bundle.
    ///
    /// # Errors
    /// If the bundle has none.
    pub fn shim_address(&self, namespace: &str, id: &str) -> Result<String> {
        let bundle =
            self.directory_inside()?.join("state/io.containerd.runtime.v2.task").join(namespace).join(id);
        // The shim writes `address`. containerd's own shim of 2.x does not; there containerd keeps the answer of
        // `start`.
        if let Ok(address) = std::fs::read_to_string(bundle.join("address")) {
            return Ok(address.trim().to_owned());
        }
        let file = bundle.join("bootstrap.json");
        let answer = std::fs::read(&file)
            .with_context(|| format!("neither address nor bootstrap.json in {}", bundle.display()))?;
        let answer: serde_json::Value =
            serde_json::from_slice(&answer).with_context(|| format!("{}: not JSON", file.display()))?;
        let address = answer["address"].as_str();
        Ok(address.with_context(|| format!("{}: no address", file.display()))?.to_owned())
    }

    /// The socket of a live task's shim, as a path outside of the instance.
    ///
    /// # Errors
    /// As [`Self::shim_address`].
    pub fn shim_socket(&self, namespace: &str, id: &str) -> Result<PathBuf> {
        let address = self.shim_address(namespace, id)?;
        Ok(self.root()?.join(address.trim_start_matches("unix://").trim_start_matches('/')))
    }

    /// Runs `work` in a thread of its own inside the instance's network namespace, and does not block this thread: the
    /// code that starts what `work` waits for may run on this very thread.
    ///
    /// # Errors
    /// If the instance is not up, or what `work` returns.
    pub async fn in_network<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> Result<T> {
        in_network_namespace(File::open(self.namespace("net")?)?, work).await
    }

    pub(crate) fn pid(&self, file: &str) -> Result<libc::pid_t> {
        let path = self.directory.join(file);
        let text = std::fs::read_to_string(&path)
            .with_context(|| format!("{}: no containerd is up in this directory", path.display()))?;
        text.trim().parse().with_context(|| format!("{}: not a pid", path.display()))
    }
}

/// Runs `work` on a thread of its own in that network namespace.
///
/// # Errors
/// If the namespace cannot be entered, or what `work` returns.
pub async fn in_network_namespace<T: Send + 'static>(
    namespace: File,
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    // The thread ends with its work, as it never leaves the namespace that it enters.
    let inside = move || -> Result<T> {
        // SAFETY: setns takes no pointers, and the descriptor is open for as long as the call.
        if unsafe { libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWNET) } != 0 {
            return Err(std::io::Error::last_os_error()).context("setns");
        }
        work()
    };
    let (sender, result) = oneshot::channel();
    std::thread::spawn(move || drop(sender.send(inside())));
    result.await.context("the thread in the network namespace panicked")?
}

impl Drop for Containerd {
    fn drop(&mut self) {
        if self.ownership == Ownership::Own
            && let Err(error) = command::run_blocking(&command::script("containerd-down"), [&self.directory])
        {
            // A panic here would hide the failure of the test itself.
            eprintln!("{error:#}");
        }
    }
}

/// A directory for an instance of the test's own. It lies beside the shared instance, so that `hack/test` finds it if
/// this process is killed and never drops its handle.
pub(crate) fn own_directory() -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let shared = std::env::var_os(SHARED_INSTANCE);
    let mut directory = shared.unwrap_or_else(|| std::env::temp_dir().join("podshim.own").into());
    directory.push(format!("-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed)));
    directory.into()
}

/// The arguments that make an instance like the shared one, so that one run never tests two builds or two versions.
pub(crate) fn own_arguments(directory: &Path) -> Vec<OsString> {
    let like = std::env::var_os(SHARED_INSTANCE).map(|shared| ["--like".into(), shared]);
    ["--dir".into(), directory.into()].into_iter().chain(like.into_iter().flatten()).collect()
}

/// Whether a process exists and is no zombie. A zombie does not count, as not every init reaps at once.
#[must_use]
pub fn is_alive(pid: libc::pid_t) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .ok()
        // The state follows the command's closing parenthesis; the command itself may hold any character.
        .and_then(|stat| stat.rsplit_once(") ").map(|(_, rest)| !rest.starts_with(['Z', 'X'])))
        .unwrap_or(false)
}

/// A number in a process's `/proc/PID/status`, as `VmRSS` (in kB) or `PPid`.
///
/// # Errors
/// If the process or the number does not exist.
pub fn status_number(pid: libc::pid_t, key: &str) -> Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let value = status.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'));
    let number = value.and_then(|value| value.split_whitespace().next()?.parse().ok());
    number.with_context(|| format!("no {key} in the status of process {pid}"))
}

/// Sends SIGKILL and returns when the process is gone, 10 s at most.
pub(crate) async fn kill(pid: libc::pid_t, name: &str) -> Result<()> {
    signal(pid, libc::SIGKILL)?;
    wait::until(&format!("{name} to be gone"), Duration::from_secs(10), async || {
        Ok((!is_alive(pid)).then_some(()))
    })
    .await
}

/// Sends a signal to a process of this instance.
///
/// # Errors
/// If there is no such process.
pub fn signal(pid: libc::pid_t, signal: libc::c_int) -> Result<()> {
    // SAFETY: kill takes no pointers; a wrong pid is an error, and callers only pass pids of the test's own instance.
    let result = unsafe { libc::kill(pid, signal) };
    if result != 0 {
        return Err(std::io::Error::last_os_error()).with_context(|| format!("kill({pid}, {signal})"));
    }
    Ok(())
}
