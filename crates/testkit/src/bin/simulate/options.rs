//! The command line. Owns its words (`hack/simulate -h`).

use std::path::PathBuf;

use testkit::{FaultKind, KubeletVersion};

use crate::runs::{Choice, Runs};

/// What to do.
pub struct Options {
    pub jobs: usize,
    /// Where failing scenarios are written.
    pub out: PathBuf,
    pub ends: Ends,
    pub prints: Prints,
    pub task: Task,
}

/// When a run of many is over.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Ends {
    AfterAll,
    /// One failure is enough, and no smaller scenario is looked for.
    AtFailure,
}

/// What is printed at the end.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Prints {
    Failures,
    /// Also one number for everything that all runs have shown.
    Digest,
}

/// What to run.
pub enum Task {
    Replay(PathBuf),
    Run(Runs),
}

/// Reads the arguments.
///
/// # Errors
/// The first wrong argument.
pub fn options(mut words: impl Iterator<Item = String>) -> Result<Options, String> {
    let mut jobs = std::thread::available_parallelism().map_or(1, usize::from);
    let (mut runs, mut seed, mut out, mut replay) = (1_000_000, 0, PathBuf::from("target/simulate"), None);
    let mut choice = Choice { version: KubeletVersion::Unaware, policy: None, kind: None };
    let (mut under_kubelet, mut two_callers, mut grid) = (false, false, false);
    let (mut ends, mut prints) = (Ends::AfterAll, Prints::Failures);
    while let Some(word) = words.next() {
        match word.as_str() {
            "--kubelet" => under_kubelet = true,
            "--two-callers" => two_callers = true,
            "--aware" => choice.version = KubeletVersion::Aware,
            "--grid" => grid = true,
            "--until-failure" => ends = Ends::AtFailure,
            "--digest" => prints = Prints::Digest,
            _ => {
                let value = words.next().ok_or_else(|| format!("{word} needs a value"))?;
                let number = || value.parse::<u64>().map_err(|_| format!("{word}: {value:?} is no number"));
                match word.as_str() {
                    "--runs" => runs = number()?,
                    "--seed" => seed = number()?,
                    "--jobs" => jobs = usize::try_from(number()?.max(1)).unwrap_or(1),
                    "--out" => out = value.into(),
                    "--replay" => replay = Some(PathBuf::from(value)),
                    "--policy" => choice.policy = Some(testkit::parse_policy(&value)?),
                    "--fault" => choice.kind = Some(FaultKind::parse(&value)?),
                    _ => return Err(format!("unknown argument {word}")),
                }
            }
        }
    }
    let asks_for_kubelet = grid || choice.kind.is_some() || choice.version == KubeletVersion::Aware;
    if asks_for_kubelet && !under_kubelet {
        return Err("--aware, --grid and --fault are for --kubelet".to_owned());
    }
    if choice.policy.is_some() && under_kubelet == two_callers {
        return Err("--policy is for one of --kubelet and --two-callers".to_owned());
    }
    if grid && choice.kind.is_some() {
        return Err("--grid has every fault".to_owned());
    }
    let task = match (replay, under_kubelet) {
        (Some(path), _) => Task::Replay(path),
        (None, false) if two_callers => Task::Run(Runs::TwoCallers { runs, seed, choice }),
        (None, false) => Task::Run(Runs::Scripted { runs, seed }),
        (None, true) if grid => Task::Run(Runs::grid(choice)),
        (None, true) => Task::Run(Runs::Kubelet { runs, seed, choice }),
    };
    Ok(Options { jobs, out, ends, prints, task })
}
