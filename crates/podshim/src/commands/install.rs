//! `podshim install` and `podshim uninstall`: their arguments, what they show, and the question they ask.

use std::io::{BufRead, IsTerminal, Write, stdin, stdout};
use std::path::{Path, PathBuf};

use clap::{Args, ValueHint};
use control_api::entry::STATE_ROOT;

use crate::install::containerd::FileVersion;
use crate::install::files::{self, Change};
use crate::install::{self, CONFIG, Layout, Programs, ReferenceText, diff};
use crate::node::Release;
use crate::outcome::{CommandError, Outcome};
use crate::output::{Colour, Paint, print};
use crate::pods::{PodReport, PodState};
use crate::shims;

const INSTALL: &str = "install";
const UNINSTALL: &str = "uninstall";

/// What `-h` says before the arguments.
const INSTALL_ABOUT: &str = "\
Makes this node run pods with podshim: puts the shim and this command where containerd finds them, adds the runtime
\"podshim\" to containerd's configuration, and enables the unit that drains the node when it goes down. Shows each change,
asks, and makes all of them or none. A second install changes nothing: what is right already stays. It restarts nothing,
and says at the end what to do next.

In a configuration of version 2 (containerd 1.6, 1.7) the runtime is written at the file's end: there an imported file
would replace the whole section of the CRI, with its mirrors and its cgroup driver. One of version 3 (2.x) gets an import
of conf.d/podshim.toml beside it. Every other byte stays; the file as it was is kept as config.toml.before-podshim.
A file that k3s or rke2 rewrite at each start is refused: use --no-config, and append containerd-version-2.toml or
containerd-version-3.toml of /usr/local/share/podshim to their template.";
const UNINSTALL_ABOUT: &str = "\
Removes what podshim install has written: the programs, their files, and podshim's lines in containerd's configuration,
which is then byte for byte what it was, except for what others have changed since. Shows each change and asks. It leaves
the files of a package: remove the package. While pods run on podshim it refuses, and names them: containerd needs the
shim's program to clean up after them. Remove the pods first: cordon the node and run `kubectl drain` (docs/node.md).";
const EXIT_CODES: &str = "\
Exit codes: 0; 1 something stands in the way, and nothing was changed, or the answer was no; 2 wrong arguments.";
/// Arguments of both commands.
#[derive(Args)]
struct CommonArguments {
    /// Show the changes, make none
    #[arg(long)]
    dry_run: bool,
    /// Do not ask
    #[arg(long)]
    yes: bool,
    /// containerd's configuration
    #[arg(long, value_name = "FILE", default_value = CONFIG, value_parser = absolute_path)]
    config: PathBuf,
    /// Where the programs belong; without it /usr/bin if this program is there, else /usr/local/bin
    #[arg(long, value_name = "DIR", value_parser = absolute_path, value_hint = ValueHint::DirPath)]
    bin_dir: Option<PathBuf>,
    /// A file system mounted there instead; paths in files are without it
    #[arg(long, value_name = "DIR", default_value = "/", value_parser = absolute_path)]
    root: PathBuf,
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
    /// The shim's program; without it containerd-shim-podshim-v2 beside this one
    #[arg(long, value_name = "FILE")]
    shim: Option<PathBuf>,
    /// containerd's version, for a configuration without one; without it that of the containerd in PATH
    #[arg(long, value_name = "VERSION")]
    containerd: Option<Release>,
}

/// Arguments of `podshim uninstall`.
#[derive(Args)]
#[command(before_help = UNINSTALL_ABOUT, after_help = EXIT_CODES)]
pub struct UninstallArguments {
    #[command(flatten)]
    common: CommonArguments,
    /// Uninstall even while pods run on podshim; you must then clean up what is left of them
    #[arg(long)]
    force: bool,
}

/// Whether to make the changes: ask first, make them without a question, or only show them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Confirmation {
    Ask,
    Given,
    ShowOnly,
}

impl CommonArguments {
    fn confirmation(&self) -> Confirmation {
        match (self.dry_run, self.yes) {
            (true, _) => Confirmation::ShowOnly,
            (false, true) => Confirmation::Given,
            (false, false) => Confirmation::Ask,
        }
    }

    fn layout(&self) -> Layout {
        Layout {
            root: self.root.clone(),
            bin_dir: self.bin_dir.clone().unwrap_or_else(default_bin_dir),
            config: self.config.clone(),
        }
    }
}

/// Runs `podshim install`. `reference` are the texts that it installs for shells and man.
///
/// # Errors
/// What stands in the way.
pub fn install(arguments: &InstallArguments, reference: Vec<ReferenceText>) -> Result<Outcome, CommandError> {
    let layout = arguments.common.layout();
    let failed = |error: install::InstallError| CommandError::Input(error.to_string());
    let version = if arguments.no_config {
        None
    } else {
        Some(match install::file_version(&layout).map_err(failed)? {
            Some(version) => version,
            None => FileVersion::of_release(release(arguments.containerd, &layout)?.major),
        })
    };
    let command = std::env::current_exe()?;
    let shim = arguments.shim.clone().unwrap_or_else(|| command.with_file_name("containerd-shim-podshim-v2"));
    let programs = Programs { shim, command };
    let changes = install::install(&layout, &programs, reference, version).map_err(failed)?;
    carry_out(&changes, arguments.common.confirmation(), INSTALL, "installed already", &next(&layout))
}

/// Runs `podshim uninstall`. `reference` are the texts that install would write.
///
/// # Errors
/// What stands in the way.
pub fn uninstall(
    arguments: &UninstallArguments,
    reference: Vec<ReferenceText>,
) -> Result<Outcome, CommandError> {
    let (layout, confirmation) = (arguments.common.layout(), arguments.common.confirmation());
    if !arguments.force && confirmation != Confirmation::ShowOnly {
        refuse_running(&layout)?;
    }
    let changes =
        install::uninstall(&layout, reference).map_err(|error| CommandError::Input(error.to_string()))?;
    carry_out(
        &changes,
        confirmation,
        UNINSTALL,
        "nothing is installed",
        "Next: systemctl daemon-reload && systemctl restart containerd\n",
    )
}

/// A live shim has its program in memory, but containerd cleans up after it, and after a dead one, with `delete`, which
/// runs the file.
fn refuse_running(layout: &Layout) -> Result<(), CommandError> {
    let pods: Vec<_> =
        shims::all(&layout.at(Path::new(STATE_ROOT)))?.into_iter().map(PodReport::of).collect();
    if pods.is_empty() {
        return Ok(());
    }
    let in_states = |states: &[PodState]| {
        let those = pods.iter().filter(|pod| states.contains(&pod.state));
        those.map(PodReport::title).collect::<Vec<_>>().join(", ")
    };
    let reasons = [
        (
            in_states(&[PodState::Running, PodState::Stopping, PodState::ShimSilent]),
            "these pods run on podshim: ",
            ": end them first, with `podshim drain`",
        ),
        (
            in_states(&[PodState::Completed, PodState::Failed, PodState::Stopped]),
            "these pods have ended, and their shims keep their exits: ",
            ": start containerd, which must take their exits, and remove the pods",
        ),
        (
            in_states(&[PodState::ShimDead]),
            "of these pods the shim is dead: ",
            ": start containerd, which cleans up after them",
        ),
    ];
    let reasons = reasons.into_iter().filter(|(pods, ..)| !pods.is_empty());
    let reasons: Vec<_> = reasons.map(|(pods, before, after)| format!("{before}{pods}{after}")).collect();
    Err(CommandError::Input(format!(
        "{}; containerd needs the shim's program to clean up after them; or give --force",
        reasons.join("; ")
    )))
}

fn next(layout: &Layout) -> String {
    format!(
        "Next: systemctl daemon-reload && systemctl restart containerd && systemctl start podshim-drain\n      (pods \
         run on), and once for the cluster: kubectl apply -f {}\n",
        layout.runtime_class().display()
    )
}

/// The release of containerd, for a configuration that does not state its version.
fn release(given: Option<Release>, layout: &Layout) -> Result<Release, CommandError> {
    let installed = || if layout.root == Path::new("/") { Release::installed() } else { None };
    given.or_else(installed).ok_or_else(|| {
        let config = layout.config.display();
        CommandError::Input(format!(
            "{config}: says no version, nor does a containerd: give --containerd VERSION"
        ))
    })
}

fn carry_out(
    changes: &[Change],
    confirmation: Confirmation,
    command: &'static str,
    nothing: &str,
    next: &str,
) -> Result<Outcome, CommandError> {
    if changes.is_empty() {
        print(&format!("Nothing to do: {nothing}.\n"))?;
        return Ok(Outcome::Success);
    }
    let paint = Paint::of(&stdout());
    print(&changes.iter().map(|change| diff::show(change, paint)).collect::<String>())?;
    match confirmation {
        Confirmation::ShowOnly => return Ok(Outcome::Success),
        Confirmation::Given => {}
        Confirmation::Ask if !stdin().is_terminal() => {
            return Err(CommandError::usage(command, "no terminal to ask on: give --yes or --dry-run"));
        }
        Confirmation::Ask => {
            print(&format!("Make these {} changes? [y/N] ", changes.len()))?;
            stdout().flush()?;
            let mut answer = String::new();
            stdin().lock().read_line(&mut answer)?;
            if !matches!(answer.trim(), "y" | "Y" | "yes") {
                print("Nothing was changed.\n")?;
                return Ok(Outcome::Findings);
            }
        }
    }
    files::apply(changes).map_err(|error| CommandError::Input(format!("{error}; nothing was changed")))?;
    print(&format!("{}\n{next}", paint.text(Colour::Green, "Done.")))?;
    Ok(Outcome::Success)
}

/// Files will name the path, and their readers have other working directories.
fn absolute_path(text: &str) -> Result<PathBuf, &'static str> {
    let path = PathBuf::from(text);
    if path.is_absolute() { Ok(path) } else { Err("not an absolute path") }
}

fn default_bin_dir() -> PathBuf {
    let own = std::env::current_exe().ok().and_then(|path| path.parent().map(Path::to_owned));
    own.filter(|dir| dir == Path::new("/usr/bin")).unwrap_or_else(|| "/usr/local/bin".into())
}
