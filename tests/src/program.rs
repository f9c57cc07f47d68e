//! What a container of a test pod does: a builder for the flags of `/bin/pod-member` (hack/images.d/pod-member.c),
//! which every test container runs. Knows nothing of CRI or pods.

use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Result, bail};

/// The pod's shared directory inside its containers.
pub const SHARED_DIRECTORY: &str = "/pod";

/// The log all containers of a pod write their events to, below [`SHARED_DIRECTORY`].
pub const LOG: &str = "timeline.log";

/// What confines a container beside its capabilities, on a node with AppArmor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Confinement {
    #[default]
    ProfileOfNode,
    None,
}

/// Whether a container has a stdin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stdin {
    #[default]
    None,
    Open,
}

/// One container and the program it runs. Without options it starts at once, runs for ever and exits 0 at its stop
/// signal.
#[derive(Clone, Debug)]
pub struct Program {
    existence: Existence,
    name: String,
    image: &'static str,
    flags: Vec<String>,
    annotations: Vec<(String, String)>,
    variables: Vec<(String, String)>,
    memory_limit: Option<i64>,
    oom_score: i64,
    capabilities: Vec<String>,
    groups: Vec<i64>,
    confinement: Confinement,
    mounts: Vec<(PathBuf, String)>,
    pid_namespace_of: Option<String>,
    stdin: Stdin,
    run: Option<String>,
    script: Option<String>,
    command: Option<Vec<String>>,
}

/// Whether a program's command exists in its image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Existence {
    Present,
    Missing,
}

impl Program {
    /// A container called `name`.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            image: "podshim.test/busybox:1",
            flags: Vec::new(),
            existence: Existence::Present,
            annotations: Vec::new(),
            variables: Vec::new(),
            memory_limit: None,
            oom_score: 0,
            capabilities: Vec::new(),
            groups: Vec::new(),
            confinement: Confinement::default(),
            mounts: Vec::new(),
            pid_namespace_of: None,
            stdin: Stdin::default(),
            run: None,
            script: None,
            command: None,
        }
    }

    /// A container of a manifest whose command has the form that [`command`](Self::command) makes. It takes the
    /// container's name, whatever name is in the command, as two containers may share one command.
    ///
    /// # Errors
    /// If its command has another form.
    pub fn of_command(name: &str, command: &[&str]) -> Result<Self> {
        let ["/bin/pod-member", "--name", _, "--log", _, flags @ ..] = command else {
            bail!("{name}: not a command of ours: {command:?}");
        };
        Ok(Self { flags: flags.iter().map(|flag| (*flag).to_owned()).collect(), ..Self::new(name) })
    }

    /// A container that runs this command of its image in place of a test program. It records no events: its output tells.
    #[must_use]
    pub fn of_image(name: &str, command: &[&str]) -> Self {
        let command = command.iter().map(|word| (*word).to_owned()).collect();
        Self { command: Some(command), ..Self::new(name) }
    }

    /// Makes its start fail: its command does not exist in its image.
    #[must_use]
    pub fn missing(mut self) -> Self {
        self.existence = Existence::Missing;
        self
    }

    /// Uses an image whose STOPSIGNAL is HUP, and takes HUP as its stop signal.
    #[must_use]
    pub fn stops_by_hup(mut self) -> Self {
        self.image = "podshim.test/stops-by-hup:1";
        self.stop_signal(libc::SIGHUP)
    }

    /// Uses an image whose STOPSIGNAL is USR1. Which signal it takes is [`stop_signal`](Self::stop_signal)'s to say.
    #[must_use]
    pub fn with_stop_signal_usr1(mut self) -> Self {
        self.image = "podshim.test/stops-by-usr1:1";
        self
    }

    /// Time from Starting to Started.
    #[must_use]
    pub fn start_delay(self, delay: Duration) -> Self {
        self.flag("--start-delay", delay.as_secs_f64())
    }

    /// Time from Started until it exits by itself.
    #[must_use]
    pub fn runs_for(self, time: Duration) -> Self {
        self.runs_for_each(&[time])
    }

    /// As [`runs_for`](Self::runs_for), one value per run of this container in its pod; the last serves all later runs.
    #[must_use]
    pub fn runs_for_each(mut self, times: &[Duration]) -> Self {
        self.run = Some(list(times.iter().map(Duration::as_secs_f64)));
        self
    }

    /// The time of [`runs_for`](Self::runs_for) begins when `path` exists in the container.
    #[must_use]
    pub fn runs_from(self, path: &str) -> Self {
        self.flag("--run-from", path)
    }

    /// Exits by itself with this code, at once unless [`runs_for`](Self::runs_for) says when.
    #[must_use]
    pub fn exits(self, code: u8) -> Self {
        self.exits_each(&[code])
    }

    /// As [`exits`](Self::exits), one code per run; the last serves all later runs.
    #[must_use]
    pub fn exits_each(mut self, codes: &[u8]) -> Self {
        self.run.get_or_insert_with(|| "0".to_owned());
        self.flag("--exit-code", list(codes.iter()))
    }

    /// Time from its stop signal until it exits.
    #[must_use]
    pub fn term_delay(self, delay: Duration) -> Self {
        self.flag("--term-delay", delay.as_secs_f64())
    }

    /// Its exit code after the stop signal.
    #[must_use]
    pub fn term_exit_code(self, code: u8) -> Self {
        self.flag("--term-exit-code", code)
    }

    /// Records its stop signal and goes on: only SIGKILL ends it.
    #[must_use]
    pub fn ignores_term(mut self) -> Self {
        self.flags.push("--ignore-term".to_owned());
        self
    }

    /// The signal it takes as its stop signal instead of SIGTERM.
    #[must_use]
    pub fn stop_signal(self, signal: i32) -> Self {
        self.flag("--stop-signal", signal)
    }

    /// Accepts TCP connections on `port`, that time `after` Starting.
    #[must_use]
    pub fn listens(self, port: u16, after: Duration) -> Self {
        self.flag("--listen", port).flag("--listen-after", after.as_secs_f64())
    }

    /// Creates `path` in the container, that time `after` Starting: for `exec:` gates.
    #[must_use]
    pub fn ready_file(self, path: &str, after: Duration) -> Self {
        self.flag("--ready-file", path).flag("--ready-after", after.as_secs_f64())
    }

    /// Sends `text` to the socket that NOTIFY_SOCKET names, that time `after` Starting: for `notify` gates.
    #[must_use]
    pub fn notifies(self, text: &str, after: Duration) -> Self {
        self.flag("--notify", text).flag("--notify-after", after.as_secs_f64())
    }

    /// As [`notifies`](Self::notifies), to a socket at `path` in the container.
    #[must_use]
    pub fn notifies_at(self, path: &str, text: &str, after: Duration) -> Self {
        self.notifies(text, after).flag("--notify-to", path)
    }

    /// Allocates and writes that much memory once started.
    #[must_use]
    pub fn allocates_mib(self, mib: u32) -> Self {
        self.flag("--allocate", mib)
    }

    /// Leaves a process that ignores SIGTERM: forked twice, in a session of its own.
    #[must_use]
    pub fn leaves_child(mut self) -> Self {
        self.flags.push("--child".to_owned());
        self
    }

    /// Holds the lock of the pipe that is its stdout, from its start until it is killed: a reader of that pipe waits in the kernel.
    #[must_use]
    pub fn holds_stdout(mut self) -> Self {
        self.flags.push("--hold-stdout".to_owned());
        self
    }

    /// Writes a line to stdout once started.
    #[must_use]
    pub fn prints(self, line: &str) -> Self {
        self.flag("--print", line)
    }

    /// An annotation of the container (not the pod).
    #[must_use]
    pub fn annotate(mut self, key: &str, value: &str) -> Self {
        self.annotations.push((key.to_owned(), value.to_owned()));
        self
    }

    /// A variable of its environment.
    #[must_use]
    pub fn variable(mut self, name: &str, value: &str) -> Self {
        self.variables.push((name.to_owned(), value.to_owned()));
        self
    }

    /// The container's memory limit, in bytes.
    #[must_use]
    pub fn memory_limit(mut self, bytes: i64) -> Self {
        self.memory_limit = Some(bytes);
        self
    }

    /// The container's `oom_score_adj`, 0 unless given.
    #[must_use]
    pub fn oom_score(mut self, score: i64) -> Self {
        self.oom_score = score;
        self
    }

    /// Adds a capability to the default ones, such as `SYS_PTRACE`.
    #[must_use]
    pub fn capability(mut self, name: &str) -> Self {
        self.capabilities.push(name.to_owned());
        self
    }

    /// Gives it more groups than a process has that podshim starts itself: the OCI runtime starts those of its gate and hooks.
    #[must_use]
    pub fn in_many_groups(mut self) -> Self {
        self.groups = (1..=1025).collect();
        self
    }

    /// Takes AppArmor's profile from the container, as a debugger's.
    #[must_use]
    pub fn unconfined(mut self) -> Self {
        self.confinement = Confinement::None;
        self
    }

    /// Mounts a file or directory of the node at `path` in the container.
    #[must_use]
    pub fn mount(mut self, node_path: &Path, path: &str) -> Self {
        self.mounts.push((node_path.to_owned(), path.to_owned()));
        self
    }

    /// Runs a shell script as the container's process, which then execs the program: shows the state at the very start.
    #[must_use]
    pub fn begins_with_script(mut self, script: &str) -> Self {
        self.script = Some(script.to_owned());
        self
    }

    /// Joins the pid namespace of another container of the pod, as `kubectl debug --target` does.
    #[must_use]
    pub fn shares_pid_namespace_of(mut self, name: &str) -> Self {
        self.pid_namespace_of = Some(name.to_owned());
        self
    }

    /// Has a stdin that stays open and stays empty unless a client attaches.
    #[must_use]
    pub fn opens_stdin(mut self) -> Self {
        self.stdin = Stdin::Open;
        self
    }

    /// The container's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The command line; `log` is the shared log's path inside the container.
    #[must_use]
    pub fn command(&self, log: &str) -> Vec<String> {
        if let Some(command) = &self.command {
            return command.clone();
        }
        let mut words: Vec<String> =
            ["/bin/pod-member", "--name", &self.name, "--log", log].map(str::to_owned).into();
        if let Some(run) = &self.run {
            words.extend(["--run".to_owned(), run.clone()]);
        }
        words.extend(self.flags.iter().cloned());
        if self.existence == Existence::Missing {
            words[0] = "/bin/no-such-program".to_owned();
        }
        if let Some(script) = &self.script {
            // The shell's $0 and what follows it: the program and its arguments.
            let shell = ["/bin/sh".to_owned(), "-c".to_owned(), format!("{script}\nexec \"$0\" \"$@\"")];
            words.splice(0..0, shell);
        }
        words
    }

    pub(crate) fn image(&self) -> &'static str {
        self.image
    }

    pub(crate) fn groups(&self) -> &[i64] {
        &self.groups
    }

    pub(crate) fn variables(&self) -> &[(String, String)] {
        &self.variables
    }

    pub(crate) fn annotations(&self) -> &[(String, String)] {
        &self.annotations
    }

    pub(crate) fn mounts(&self) -> &[(PathBuf, String)] {
        &self.mounts
    }

    pub(crate) fn has_stdin(&self) -> bool {
        self.stdin == Stdin::Open
    }

    pub(crate) fn pid_namespace_of(&self) -> Option<&str> {
        self.pid_namespace_of.as_deref()
    }

    pub(crate) fn memory_limit_bytes(&self) -> Option<i64> {
        self.memory_limit
    }

    pub(crate) fn own_oom_score(&self) -> i64 {
        self.oom_score
    }

    pub(crate) fn confinement(&self) -> Confinement {
        self.confinement
    }

    pub(crate) fn added_capabilities(&self) -> &[String] {
        &self.capabilities
    }

    fn flag(mut self, name: &str, value: impl Display) -> Self {
        self.flags.extend([name.to_owned(), value.to_string()]);
        self
    }
}

fn list<T: Display>(values: impl Iterator<Item = T>) -> String {
    values.map(|value| value.to_string()).collect::<Vec<_>>().join(",")
}
