//! `podshim install` and `podshim uninstall`: their arguments, what they show, and the question they ask.

use std::io::stdout;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, ValueHint};
use node_setup::bounded::Bound;
use node_setup::containerd_config::LOST_WITH_SHIM;
use node_setup::install::containerd::{FileVersion, Sandboxer};
use node_setup::install::files::{self, FileChange};
use node_setup::install::give_back::{Configuration, Undo};
use node_setup::install::host::{Drain, Units};
use node_setup::install::label::{Labels, node_name};
use node_setup::install::place::{self, Distribution, Restart};
use node_setup::install::root::Root;
use node_setup::install::running::{self, Daemon};
use node_setup::install::stay::{Permission, RESTART_LIMIT, Stay, StayError};
use node_setup::install::{self, Layout, Programs, ReferenceText, cri, host, notes, oci_runtime};
use node_setup::node::{FIRST_WITH_SHIM, Release};
use node_setup::signals::Signals;

use super::in_use::{self, NodeState};
use crate::arguments::duration_or_seconds;
use crate::diff;
use crate::outcome::{CommandError, Outcome};
use crate::output::{ColorMode, Colour, print};
use crate::question::{Answer, ask};

const INSTALL: &str = "install";
const UNINSTALL: &str = "uninstall";

/// What `-h` says before the arguments.
const INSTALL_ABOUT: &str = "\
Makes this node run pods with podshim: puts the shim and this command where containerd finds them, adds the runtime
\"podshim\" to containerd's configuration, and enables the unit that drains the node when it goes down. Shows each change,
asks, and makes all of them or none. A second install changes nothing: what is right already stays. It starts that unit on a
node that runs, which changes nothing until the node goes down; it restarts nothing, and says at the end what to do next.

In a configuration of version 2 (containerd 1.6, 1.7) the runtime is written at the file's end: there an imported file
would replace the whole section of the CRI, with its mirrors and its cgroup driver. One of version 3 (2.x) gets an import
of conf.d/podshim.toml beside it. Every other byte stays; the file as it was is kept as config.toml.before-podshim.
On k3s, rke2, k0s and microk8s it finds by itself the place that they keep for changes, and names it: a directory of
drop-ins where they import one, else their template. A file that another program rewrites at each start is refused.";
const UNINSTALL_ABOUT: &str = "\
Removes what podshim install has written: the programs, their files, and podshim's lines in containerd's configuration,
which is then byte for byte what it was, except for what others have changed since. Shows each change and asks. It leaves
the files of a package: remove the package. While pods run on podshim it refuses, and names them: containerd needs the
shim's program to clean up after them. Remove the pods first: cordon the node and run `kubectl drain` (docs/node.md).
With --host-root it also refuses if containerd does not answer: pods may run then that it does not see.
While podshim is containerd's default runtime it refuses too: no pod of the node could start after that.";
const EXIT_CODES: &str = "\
Exit codes: 0; 1 something stands in the way, and nothing was changed, or the answer was no; 2 wrong arguments.";
/// Arguments of each command that changes containerd's configuration.
#[derive(Args)]
pub(super) struct ChangeArguments {
    /// Show the changes, make none
    #[arg(long)]
    dry_run: bool,
    /// Do not ask
    #[arg(long)]
    yes: bool,
    /// containerd's configuration; one of k3s, rke2, k0s or microk8s is changed where they take changes. Without it that of the
    /// one on the node, else /etc/containerd/config.toml
    #[arg(long, value_name = "FILE", value_parser = absolute_path)]
    config: Option<PathBuf>,
    /// A file system mounted there instead, for a machine that does not run; paths in files are without it
    #[arg(long, value_name = "DIR", default_value = "/", value_parser = absolute_path)]
    root: PathBuf,
    /// The root of this node as a container sees it: no path or link leads out of it
    #[arg(long, value_name = "DIR", value_parser = directory, conflicts_with = "root")]
    #[arg(value_hint = ValueHint::DirPath)]
    host_root: Option<PathBuf>,
}

/// Arguments of `install` and `uninstall`.
#[derive(Args)]
struct CommonArguments {
    #[command(flatten)]
    change: ChangeArguments,
    /// Where the programs belong; without it /usr/bin if this program is there, else /usr/local/bin
    #[arg(long, value_name = "DIR", value_parser = absolute_path, value_hint = ValueHint::DirPath)]
    bin_dir: Option<PathBuf>,
}

/// Arguments of `podshim install`.
#[derive(Args)]
#[command(before_help = INSTALL_ABOUT, after_help = EXIT_CODES)]
pub struct InstallArguments {
    #[command(flatten)]
    common: CommonArguments,
    /// Leave containerd's configuration alone
    #[arg(long)]
    no_config: bool,
    /// shim: containerd asks podshim for pods, by the Sandbox API, without a pause container (containerd 2.3 and later;
    /// docs/sandbox.md says what is lost)
    #[arg(long, value_name = "NAME", default_value = "podsandbox")]
    sandboxer: Sandboxer,
    /// The OCI runtime of all pods of podshim on this node, such as crun: a line in /etc/podshim/config.toml, which uninstall
    /// leaves there. Without it that file's, else runc
    #[arg(long, value_name = "PROGRAM")]
    oci_runtime: Option<String>,
    /// The shim's program; without it containerd-shim-podshim-v2 beside this one
    #[arg(long, value_name = "FILE")]
    shim: Option<PathBuf>,
    /// containerd's version, for a configuration without one; without it that of the running containerd, or the one in PATH
    #[arg(long, value_name = "VERSION")]
    containerd: Option<Release>,
    /// For a DaemonSet: wait until containerd has the runtime, and stay until SIGTERM, which removes nothing
    #[arg(long, conflicts_with_all = ["dry_run", "root"])]
    stay: bool,
    /// With --stay: restart containerd if its configuration has changed. If it does not take the runtime, it gets its
    /// configuration of before and is restarted again
    #[arg(long, requires = "stay")]
    restart: bool,
    /// With --restart: how long containerd may take, such as 90s; without it 2m
    #[arg(long, value_name = "TIME", value_parser = duration_or_seconds, requires = "restart")]
    restart_timeout: Option<Duration>,
    /// With --stay: label the node podshim.io/ready=true through the kubectl proxy that listens there
    #[arg(long, value_name = "ADDRESS:PORT", requires_all = ["stay", "node"])]
    label_proxy: Option<SocketAddr>,
    /// The name of this node in Kubernetes
    #[arg(long, value_name = "NAME", value_parser = node_name, requires = "label_proxy")]
    node: Option<String>,
}

/// Arguments of `podshim uninstall`.
#[derive(Args)]
#[command(before_help = UNINSTALL_ABOUT, after_help = EXIT_CODES)]
pub struct UninstallArguments {
    #[command(flatten)]
    common: CommonArguments,
    /// Uninstall even while pods run on podshim; you must then clean up what is left of them. It does not help while podshim
    /// is the default runtime
    #[arg(long)]
    force: bool,
    /// Restart containerd afterwards if its configuration has changed
    #[arg(long, conflicts_with_all = ["dry_run", "root"])]
    restart: bool,
}

/// Arguments of `podshim has-runtime`, the readiness probe of `--stay`.
#[derive(Args)]
pub struct HasRuntimeArguments {
    /// The root of this node as a container sees it
    #[arg(long, value_name = "DIR", default_value = "/", value_parser = directory)]
    host_root: PathBuf,
}

/// Arguments of `podshim on-host`, by which this program calls itself.
#[derive(Args)]
pub struct OnHostArguments {
    /// The root for systemctl
    #[arg(value_name = "DIR", value_parser = directory)]
    root: PathBuf,
    /// The words for systemctl
    #[arg(value_name = "WORD", required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<String>,
}

/// What became of the changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Made {
    /// There were none.
    Nothing,
    /// They are made.
    All,
    /// They were only shown.
    Shown,
    /// The answer was no.
    Declined,
}

impl Made {
    pub(super) fn is_all(self) -> bool {
        self == Self::All
    }

    pub(super) fn outcome(self) -> Outcome {
        match self {
            Self::Nothing | Self::All | Self::Shown => Outcome::Success,
            Self::Declined => Outcome::Findings,
        }
    }
}

/// Whether to make the changes: ask first, make them without a question, or only show them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Confirmation {
    Ask,
    Given,
    ShowOnly,
}

impl ChangeArguments {
    pub(super) fn confirmation(&self) -> Confirmation {
        match (self.dry_run, self.yes) {
            (true, _) => Confirmation::ShowOnly,
            (false, true) => Confirmation::Given,
            (false, false) => Confirmation::Ask,
        }
    }

    /// With the programs where install puts them by itself.
    pub(super) fn layout(&self) -> Result<Layout, CommandError> {
        let root = Root::new(self.host_root.as_ref().unwrap_or(&self.root));
        let found = match &self.config {
            Some(config) => place::of_config(&root, config.clone()),
            None => place::find(&root),
        };
        let found = found.map_err(|error| CommandError::Input(error.to_string()))?;
        Ok(Layout { root, bin_dir: default_bin_dir(), found })
    }

    /// Where the node's programs run.
    fn live(&self, root: &Root) -> NodeState {
        match (&self.host_root, root.is_own()) {
            (Some(_), _) => NodeState::Mounted,
            (None, true) => NodeState::Here,
            (None, false) => NodeState::Elsewhere,
        }
    }
}

impl CommonArguments {
    fn layout(&self) -> Result<Layout, CommandError> {
        let layout = self.change.layout()?;
        let bin_dir = self.bin_dir.clone().unwrap_or_else(|| layout.bin_dir.clone());
        Ok(Layout { bin_dir, ..layout })
    }
}

/// Runs `podshim install`. `reference` are the texts that it installs for shells and man.
///
/// # Errors
/// What stands in the way.
pub fn install(arguments: &InstallArguments, reference: Vec<ReferenceText>) -> Result<Outcome, CommandError> {
    let layout = arguments.common.layout()?;
    let node = arguments.common.change.live(&layout.root);
    let failed = |error: install::InstallError| CommandError::Input(error.to_string());
    install::refuse_bypassed(&layout).map_err(failed)?;
    let version = if arguments.no_config {
        None
    } else {
        Some(match install::file_version(&layout).map_err(failed)? {
            Some(version) => version,
            None => FileVersion::of_release(release(arguments.containerd, &layout, node)?.major),
        })
    };
    if arguments.sandboxer == Sandboxer::Shim {
        refuse_older(release(arguments.containerd, &layout, node)?)?;
        if version == Some(FileVersion::Two) {
            let file = layout.found.place.file().display();
            return Err(CommandError::Input(format!(
                "{file}: --sandboxer shim needs a file of version 3: `containerd config migrate` writes one"
            )));
        }
        print(&format!("With --sandboxer shim the node loses {LOST_WITH_SHIM}\n"))?;
    }
    let command = std::env::current_exe()?;
    let shim = arguments.shim.clone().unwrap_or_else(|| command.with_file_name("containerd-shim-podshim-v2"));
    let programs = Programs { shim, command };
    let mut changes =
        install::install(&layout, &programs, reference, version, arguments.sandboxer).map_err(failed)?;
    if let Some(program) = &arguments.oci_runtime {
        let change = oci_runtime::choose(&layout, program).map_err(failed)?;
        changes.extend(Some(change).filter(|change| !change.is_nothing()));
    }
    if layout.found.distribution != Distribution::Containerd {
        let name = layout.found.distribution.name();
        print(&format!("Found {name}: the runtime belongs into {}\n", layout.found.place.file().display()))?;
    }
    if !arguments.stay {
        let confirmation = arguments.common.change.confirmation();
        let made = carry_out(&changes, confirmation, INSTALL, "installed already")?;
        let drain = match (made, node) {
            (Made::All | Made::Nothing, NodeState::Here | NodeState::Mounted) => {
                start_drain(&layout, made, None)?
            }
            (..) => None,
        };
        if made == Made::All {
            print(&next(&layout, drain))?;
        }
        return Ok(made.outcome());
    }
    install_and_stay(arguments, &layout, &changes)
}

/// Runs `podshim install --stay`.
fn install_and_stay(
    arguments: &InstallArguments,
    layout: &Layout,
    changes: &[FileChange],
) -> Result<Outcome, CommandError> {
    let stay = stay(arguments, layout, changes)?;
    let failed = |error: StayError| CommandError::Input(error.to_string());
    // Before the changes: a signal during them shall wait until they are made.
    let signals = Signals::take()?;
    stay.refuse_again(&signals).map_err(failed)?;
    let restarts_itself = layout.found.distribution.restart() == Restart::ByItself;
    if restarts_itself
        && stay.undo.configuration == Configuration::Changed
        && stay.permission == Permission::Withheld
    {
        let name = layout.found.distribution.name();
        let file = layout.found.place.file().display();
        return Err(CommandError::Input(format!(
            "{file}: {name} restarts its containerd by itself when this changes: allow that with --restart; nothing was \
             changed"
        )));
    }
    let made = carry_out(changes, arguments.common.change.confirmation(), INSTALL, "installed already")?;
    if made == Made::Declined {
        return Ok(made.outcome());
    }
    start_drain(layout, made, Some(&signals))?;
    stay.run(&signals, |line| print(&format!("{line}\n"))).map_err(failed)?;
    Ok(Outcome::Success)
}

/// Starts the drain's unit. What stands in the way is reported, and what is installed stays: `None`.
fn start_drain(
    layout: &Layout,
    made: Made,
    signals: Option<&Signals>,
) -> Result<Option<Drain>, CommandError> {
    let units = if made == Made::All { Units::Changed } else { Units::AsBefore };
    match host::start_drain(&layout.root, units, signals) {
        Ok(drain) => {
            if drain == Drain::Started {
                print("podshim-drain.service is started\n")?;
            }
            Ok(Some(drain))
        }
        Err(error) => {
            print(&format!(
                "podshim-drain.service is not started, without which the node's first power-off has no order: {error}\n"
            ))?;
            Ok(None)
        }
    }
}

fn stay(arguments: &InstallArguments, layout: &Layout, changes: &[FileChange]) -> Result<Stay, CommandError> {
    let labels = arguments.label_proxy.zip(arguments.node.clone());
    let files = install::runtime_files(layout);
    let failed = |error: install::InstallError| CommandError::Input(error.to_string());
    let without_runtime = install::without_runtime(layout).map_err(failed)?;
    let daemon = Daemon {
        root: layout.root.clone(),
        found: layout.found.clone(),
        restart_limit: arguments.restart_timeout.unwrap_or(RESTART_LIMIT),
    };
    let undo = Undo::new(&daemon, changes, &files, &without_runtime);
    Ok(Stay {
        undo: undo.map_err(|error| failed(error.into()))?,
        daemon,
        files,
        permission: if arguments.restart { Permission::Given } else { Permission::Withheld },
        labels: labels.map(|(proxy, node)| Labels { proxy, node }),
    })
}

/// Runs `podshim uninstall`. `reference` are the texts that install would write.
///
/// # Errors
/// What stands in the way.
pub fn uninstall(
    arguments: &UninstallArguments,
    reference: Vec<ReferenceText>,
) -> Result<Outcome, CommandError> {
    let (layout, confirmation) = (arguments.common.layout()?, arguments.common.change.confirmation());
    let node = arguments.common.change.live(&layout.root);
    if confirmation != Confirmation::ShowOnly {
        in_use::refuse_default(&layout, node)?;
        if !arguments.force {
            in_use::refuse_running(&layout, node)?;
        }
    }
    let note = notes::restarted(&layout.root);
    let changes =
        install::uninstall(&layout, reference).map_err(|error| CommandError::Input(error.to_string()))?;
    let made = carry_out(&changes, confirmation, UNINSTALL, "nothing is installed")?;
    if made == Made::All && !arguments.restart {
        print(&format!("Next: systemctl daemon-reload{}\n", then_restart(&layout)))?;
    }
    if arguments.restart && made == Made::All {
        let failed = |error: host::HostError| CommandError::Input(format!("podshim is removed, but {error}"));
        host::forget_units(&layout.root).map_err(failed)?;
        if Configuration::of(&changes, &install::runtime_files(&layout)) == Configuration::Changed {
            let unit = running::unit(&layout.root, &layout.found, note, None);
            let bound = Bound { limit: RESTART_LIMIT, signals: None };
            unit.and_then(|unit| host::restart(&layout.root, unit, bound)).map_err(failed)?;
        }
    }
    Ok(made.outcome())
}

/// Runs `podshim on-host`: becomes systemctl.
///
/// # Errors
/// It cannot.
pub fn on_host(arguments: &OnHostArguments) -> Result<Outcome, CommandError> {
    let error = host::become_systemctl(&arguments.root, &arguments.words);
    Err(CommandError::Input(format!("cannot run the node's systemctl: {error}")))
}

/// Runs `podshim has-runtime`: success if the node's containerd has podshim's runtime.
///
/// # Errors
/// containerd does not answer.
pub fn has_runtime(arguments: &HasRuntimeArguments) -> Result<Outcome, CommandError> {
    let root = Root::new(&arguments.host_root);
    let found = place::find(&root).map_err(|error| CommandError::Input(error.to_string()))?;
    match running::loaded(&root, &found) {
        Ok(cri::Loaded::Yes) => Ok(Outcome::Success),
        Ok(cri::Loaded::No) => Ok(Outcome::Findings),
        Err(error) => {
            let socket = found.distribution.socket().display();
            Err(CommandError::Input(format!("containerd at {socket}: {error}")))
        }
    }
}

/// What is left for people. `drain` is what became of its unit, on a node that runs.
fn next(layout: &Layout, drain: Option<Drain>) -> String {
    let restart = then_restart(layout);
    let steps = match drain {
        Some(Drain::Started | Drain::WasActive) => restart.trim_start_matches(" && ").to_owned(),
        Some(Drain::NoSystemd) | None => {
            format!("systemctl daemon-reload{restart} && systemctl start podshim-drain")
        }
    };
    let steps = if steps.is_empty() { steps } else { format!("{steps}\n      (pods run on), and ") };
    format!("Next: {steps}once for the cluster: kubectl apply -f {}\n", layout.runtime_class().display())
}

/// The words for a shell that restart the node's containerd.
pub(super) fn then_restart(layout: &Layout) -> String {
    match layout.found.distribution.restart() {
        Restart::Units(units) => {
            let units: Vec<_> = units.iter().map(|unit| unit.trim_end_matches(".service")).collect();
            format!(" && systemctl restart {}", units.join("|"))
        }
        Restart::ByItself => String::new(),
    }
}

/// The release of containerd, for a configuration that does not state its version.
fn release(given: Option<Release>, layout: &Layout, node: NodeState) -> Result<Release, CommandError> {
    let running = || {
        let socket = layout.root.reach(layout.found.distribution.socket()).ok()?;
        Release::parse(&cri::version(&socket.path()).ok()?)
    };
    let installed = || match node {
        NodeState::Here => Release::installed().or_else(running),
        NodeState::Mounted => running(),
        NodeState::Elsewhere => None,
    };
    given.or_else(installed).ok_or_else(|| {
        let config = layout.found.place.file().display();
        CommandError::Input(format!(
            "{config}: says no version, nor does a containerd: give --containerd VERSION"
        ))
    })
}

/// containerd before 2.3 with `sandboxer = "shim"`.
fn refuse_older(release: Release) -> Result<(), CommandError> {
    if release >= FIRST_WITH_SHIM {
        return Ok(());
    }
    let Release { major, minor } = release;
    Err(CommandError::Input(format!(
        "--sandboxer shim needs containerd 2.3 or later, and this is {major}.{minor}: before 2.3 the daemon panics when a pod \
         of the node's network is created; nothing was changed"
    )))
}

pub(super) fn carry_out(
    changes: &[FileChange],
    confirmation: Confirmation,
    command: &'static str,
    nothing: &str,
) -> Result<Made, CommandError> {
    if changes.is_empty() {
        print(&format!("Nothing to do: {nothing}.\n"))?;
        // --dry-run changes nothing, also no unit.
        return Ok(if confirmation == Confirmation::ShowOnly { Made::Shown } else { Made::Nothing });
    }
    let paint = ColorMode::of(&stdout());
    print(&changes.iter().map(|change| diff::show(change, paint)).collect::<String>())?;
    match confirmation {
        Confirmation::ShowOnly => return Ok(Made::Shown),
        Confirmation::Given => {}
        Confirmation::Ask => {
            let question = format!("Make these {} changes?", changes.len());
            if ask(&question, command)? == Answer::No {
                print("Nothing was changed.\n")?;
                return Ok(Made::Declined);
            }
        }
    }
    files::apply(changes).map_err(|error| CommandError::Input(format!("{error}; nothing was changed")))?;
    print(&format!("{}\n", paint.text(Colour::Green, "Done.")))?;
    Ok(Made::All)
}

/// Files will name the path, and their readers have other working directories.
fn absolute_path(text: &str) -> Result<PathBuf, &'static str> {
    let path = PathBuf::from(text);
    if path.is_absolute() { Ok(path) } else { Err("not an absolute path") }
}

fn directory(text: &str) -> Result<PathBuf, &'static str> {
    let path = absolute_path(text)?;
    if path.is_dir() { Ok(path) } else { Err("no such directory") }
}

fn default_bin_dir() -> PathBuf {
    let own = std::env::current_exe().ok().and_then(|path| path.parent().map(Path::to_owned));
    own.filter(|dir| dir == Path::new("/usr/bin")).unwrap_or_else(|| "/usr/local/bin".into())
}
