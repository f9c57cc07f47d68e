//! `podshim install` and `podshim uninstall`: their arguments, what they show, and the question they ask.

use std::ffi::OsString;
use std::io::{BufRead, IsTerminal, Write, stdin, stdout};
use std::path::{Path, PathBuf};

use lexopt::Arg;

use crate::arguments::{CommandError, Outcome, Parsed};
use crate::install::containerd::FileVersion;
use crate::install::files::{self, Change};
use crate::install::{self, Layout, Programs, diff};
use crate::node::Release;
use crate::output::{Colour, Paint, print};
use crate::pods::{PodReport, PodState};
use crate::shims;

const INSTALL: &str = "install";
const UNINSTALL: &str = "uninstall";

/// The text of `podshim install -h`.
pub const INSTALL_HELP: &str = "\
usage: podshim install [options]

Makes this node run pods with podshim: puts the shim and this command where containerd finds them, adds the runtime
\"podshim\" to containerd's configuration, and enables the unit that drains the node when it goes down. Shows each change,
asks, and makes all of them or none. It leaves alone what is right already, so a second install
changes nothing. It restarts nothing, and says at the end what to do next.

In a configuration of version 2 (containerd 1.6, 1.7) the runtime is written at the file's end: there an imported file
would replace the whole section of the CRI, with its mirrors and its cgroup driver. One of version 3 (2.x) gets an import
of conf.d/podshim.toml beside it. Every other byte stays; the file as it was is kept as config.toml.before-podshim.
A file that k3s or rke2 rewrite at each start is refused: use --no-config, and append containerd-version-2.toml or
containerd-version-3.toml of /usr/local/share/podshim to their template.

  --dry-run              show the changes, make none
  --yes                  do not ask
  --config FILE          containerd's configuration (/etc/containerd/config.toml)
  --no-config            leave that alone
  --bin-dir DIR          where the programs go (where this one is, if that is /usr/bin; else /usr/local/bin)
  --shim FILE            the shim's program (containerd-shim-podshim-v2 beside this one)
  --containerd VERSION   for a configuration that does not say its version (that of the containerd in the PATH)
  --root DIR             install into a file system mounted there; paths in files are without it
  -h                     this help

Exit codes: 0; 1 something stands in the way, and nothing was changed, or the answer was no; 2 wrong arguments.
";

/// The text of `podshim uninstall -h`.
pub const UNINSTALL_HELP: &str = "\
usage: podshim uninstall [options]

Takes out what podshim install put in: the programs, their files, and podshim's lines in containerd's configuration, which
is then byte for byte what it was, except what others have changed since. Shows each change and asks. What a package
brought stays: remove the package. While pods run on podshim it refuses, and names them: containerd needs the shim's program
to clean up after them. Remove the pods first: cordon the node and run `kubectl drain` (docs/node.md).

  --dry-run       show the changes, make none
  --yes           do not ask
  --config FILE   containerd's configuration (/etc/containerd/config.toml)
  --bin-dir DIR   where the programs are (where this one is, if that is /usr/bin; else /usr/local/bin)
  --root DIR      uninstall from a file system mounted there
  --force         even while pods run on podshim: what is left of them then is yours to clean up
  -h              this help

Exit codes: 0; 1 something stands in the way, and nothing was changed, or the answer was no; 2 wrong arguments.
";

/// Whether to make the changes: ask first, make them without a question, or only show them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Consent {
    Ask,
    Given,
    ShowOnly,
}

/// Whether to change containerd's configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Config {
    Changed,
    LeftAlone,
}

/// Whether pods that run on podshim forbid an uninstall.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Running {
    Refused,
    LeftBehind,
}

struct Options {
    consent: Consent,
    running: Running,
    config: Config,
    layout: Layout,
    shim: Option<PathBuf>,
    release: Option<Release>,
}

/// Runs `podshim install`.
///
/// # Errors
/// A wrong call, or what stands in the way.
pub fn install(arguments: Vec<OsString>) -> Result<Outcome, CommandError> {
    let options = match options(INSTALL, arguments)? {
        Parsed::Help => return Ok(print(INSTALL_HELP).map(|()| Outcome::Success)?),
        Parsed::Run(options) => options,
    };
    let layout = &options.layout;
    let failed = |error: install::InstallError| CommandError::Input(error.to_string());
    let version = match options.config {
        Config::LeftAlone => None,
        Config::Changed => Some(match install::file_version(layout).map_err(failed)? {
            Some(version) => version,
            None => FileVersion::of_release(release(&options)?.major),
        }),
    };
    let command = std::env::current_exe()?;
    let shim = options.shim.clone().unwrap_or_else(|| command.with_file_name("containerd-shim-podshim-v2"));
    let changes = install::install(layout, &Programs { shim, command }, version).map_err(failed)?;
    carry_out(&changes, options.consent, INSTALL, "installed already", &next(layout))
}

/// Runs `podshim uninstall`.
///
/// # Errors
/// A wrong call, or what stands in the way.
pub fn uninstall(arguments: Vec<OsString>) -> Result<Outcome, CommandError> {
    let options = match options(UNINSTALL, arguments)? {
        Parsed::Help => return Ok(print(UNINSTALL_HELP).map(|()| Outcome::Success)?),
        Parsed::Run(options) => options,
    };
    if options.running == Running::Refused && options.consent != Consent::ShowOnly {
        refuse_running(&options.layout)?;
    }
    let changes =
        install::uninstall(&options.layout).map_err(|error| CommandError::Input(error.to_string()))?;
    carry_out(
        &changes,
        options.consent,
        UNINSTALL,
        "nothing is installed",
        "Next: systemctl daemon-reload && systemctl restart containerd\n",
    )
}

/// A live shim has its program in memory, but containerd cleans up after it, and after a dead one, with `delete`, which
/// runs the file.
fn refuse_running(layout: &Layout) -> Result<(), CommandError> {
    let pods: Vec<_> =
        shims::all(&layout.at(&shims::default_root()))?.into_iter().map(PodReport::of).collect();
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
fn release(options: &Options) -> Result<Release, CommandError> {
    let installed = || if options.layout.root == Path::new("/") { Release::installed() } else { None };
    options.release.or_else(installed).ok_or_else(|| {
        let config = options.layout.config.display();
        CommandError::Input(format!(
            "{config}: says no version, nor does a containerd: give --containerd VERSION"
        ))
    })
}

fn carry_out(
    changes: &[Change],
    consent: Consent,
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
    match consent {
        Consent::ShowOnly => return Ok(Outcome::Success),
        Consent::Given => {}
        Consent::Ask if !stdin().is_terminal() => {
            return Err(CommandError::usage(command, "no terminal to ask on: give --yes or --dry-run"));
        }
        Consent::Ask => {
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

fn options(command: &'static str, arguments: Vec<OsString>) -> Result<Parsed<Options>, CommandError> {
    let wrong = |error: lexopt::Error| CommandError::usage(command, error);
    let mut parser = lexopt::Parser::from_args(arguments);
    let (mut consent, mut shim, mut release, mut bin_dir) = (Consent::Ask, None, None, None);
    let (mut root, mut config) = (PathBuf::from("/"), PathBuf::from("/etc/containerd/config.toml"));
    let (is_install, mut change) = (command == INSTALL, Config::Changed);
    let mut running = Running::Refused;
    while let Some(argument) = parser.next().map_err(wrong)? {
        match argument {
            Arg::Short('h') | Arg::Long("help") => return Ok(Parsed::Help),
            Arg::Long("dry-run") => consent = Consent::ShowOnly,
            Arg::Long("yes") if consent == Consent::ShowOnly => {}
            Arg::Long("yes") => consent = Consent::Given,
            Arg::Long("config") => config = absolute(command, "config", parser.value().map_err(wrong)?)?,
            Arg::Long("force") if !is_install => running = Running::LeftBehind,
            Arg::Long("no-config") if is_install => change = Config::LeftAlone,
            Arg::Long("bin-dir") => {
                bin_dir = Some(absolute(command, "bin-dir", parser.value().map_err(wrong)?)?)
            }
            Arg::Long("root") => root = absolute(command, "root", parser.value().map_err(wrong)?)?,
            Arg::Long("shim") if is_install => shim = Some(parser.value().map_err(wrong)?.into()),
            Arg::Long("containerd") if is_install => {
                release = Some(Release::argument(command, &parser.value().map_err(wrong)?)?);
            }
            other => return Err(wrong(other.unexpected())),
        }
    }
    let bin_dir = bin_dir.unwrap_or_else(default_bin_dir);
    Ok(Parsed::Run(Options {
        consent,
        running,
        config: change,
        layout: Layout { root, bin_dir, config },
        shim,
        release,
    }))
}

/// Makes a path absolute: files will name it, and their readers have other working directories.
fn absolute(command: &'static str, option: &str, path: OsString) -> Result<PathBuf, CommandError> {
    let path = PathBuf::from(path);
    let message = || format!("--{option} {}: not an absolute path", path.display());
    if path.is_absolute() { Ok(path) } else { Err(CommandError::usage(command, message())) }
}

fn default_bin_dir() -> PathBuf {
    let own = std::env::current_exe().ok().and_then(|path| path.parent().map(Path::to_owned));
    own.filter(|dir| dir == Path::new("/usr/bin")).unwrap_or_else(|| "/usr/local/bin".into())
}
