//! The language of scenarios: what callers and the world do, one command a line.
//!
//! Owns reading and writing commands, so that a failing random pod prints as a scenario file. The simulator executes
//! them.

use std::fmt;
use std::time::Duration;

use pod_lifecycle::{AfterCheckpoint, ContainerId, ExecId, Reach, Target};
use pod_spec::Signal;

use crate::kubelet::KubeletSetup;
use crate::kubelet::fault::Fault;
use crate::new_container::NewContainer;
use crate::operation_kind::OperationKind;
use crate::program::Program;
use crate::text::{parse_duration, parse_signal, show_duration, show_signal};

/// One command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// A new pod with a running pause container; podshim's annotations have no prefix.
    Pod {
        /// Which caller it has.
        caller: PodCaller,
        /// What the trace shows.
        detail: Detail,
        /// Key without prefix, value.
        annotations: Vec<(String, String)>,
    },
    /// The script of a container's program; `name/exec` for an exec.
    Program(String, Program),
    /// How long an operation on a container of that name takes.
    Slow(String, OperationKind, Duration),
    /// The next such operation fails.
    Fail(String, OperationKind),
    /// The next such operation does its work, and is reported as failed.
    Lose(String, OperationKind),
    /// Create a container.
    Create(NewContainer),
    /// Create and start, one after another, as CRI does.
    Up(Vec<String>),
    /// Start a container or exec.
    Start(Target),
    /// Register an exec.
    Exec(ContainerId, ExecId),
    /// Send a signal.
    Kill(Target, Signal, Reach),
    /// Wait for an exit.
    Wait(Target),
    /// The callers of all Waits for it are gone.
    Leave(Target),
    /// Delete a container or exec.
    Delete(Target),
    /// Let a standby take over.
    Switch(String),
    /// These containers are init or ephemeral ones by the pod's object.
    KubeletsOwn(Vec<String>),
    /// Restart the pod in place.
    Restart,
    /// Freeze.
    Pause(ContainerId),
    /// Thaw.
    Resume(ContainerId),
    /// Another process than podshim freezes it, and no caller's request says so.
    Freeze(ContainerId),
    /// Checkpoint.
    Checkpoint(ContainerId, AfterCheckpoint),
    /// A program exits by itself, now.
    Exit(Target, u32),
    /// The kernel kills the program for memory.
    OutOfMemory(ContainerId),
    /// containerd's StopContainer: TERM, and KILL after the time.
    StopContainer(ContainerId, Duration),
    /// containerd's StopPodSandbox: KILL to one container after another, waiting for each; pause is the last one (F4).
    StopSandbox(Vec<ContainerId>),
    /// A signal to the shim.
    StopPod(Option<Duration>),
    /// Let time pass.
    Advance(Duration),
    /// Let time pass until nothing is left to happen.
    Idle,
    /// A caller that ends the pod: TERM, then KILL until everything has ended, then every Delete. Nothing may be left.
    End,
    /// From now on a kubelet creates the pod's containers, as its only caller.
    Kubelet(KubeletSetup),
    /// A fault that befalls the pod under that kubelet.
    Fault(Fault),
    /// All faults are over: within that time the pod must do what its policy promises.
    Settle(Duration),
    /// Show how callers see it.
    View(Target),
    /// Show the pod as an operator sees it.
    Inspect,
}

/// Which caller created the pod.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PodCaller {
    /// The CRI plugin, with a sandbox.
    #[default]
    Cri,
    /// The CRI plugin, which kills and deletes each task that has exited (F6).
    CriWithCleanup,
    /// ctr: no sandbox, and signals have only their own meaning.
    Ctr,
}

/// What the trace shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Detail {
    /// Programs, exits, logs, and all answers but those of Create and Start.
    #[default]
    Usual,
    /// Events and all answers too.
    Everything,
    /// What the pod records of itself too, for the timeline.
    Timeline,
}

/// A line that is no command.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a command: {line:?}: {problem}")]
pub struct CommandError {
    /// The line.
    pub line: String,
    /// What is wrong with it.
    pub problem: String,
}

/// A list of commands that prints as the input part of a scenario file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scenario(pub Vec<Command>);

impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|command| writeln!(f, "{command}"))
    }
}

impl Scenario {
    /// Reads commands; lines that begin with `#` are comments, indented lines after `pod` its annotations.
    ///
    /// # Errors
    /// The first line that is no command.
    pub fn parse<'a>(lines: impl IntoIterator<Item = &'a str>) -> Result<Self, CommandError> {
        let mut commands = Vec::new();
        for line in lines {
            let error = |problem: &str| CommandError { line: line.to_owned(), problem: problem.to_owned() };
            if line.trim().is_empty() || line.starts_with('#') {
                continue;
            }
            if line.starts_with(' ') {
                let Some(Command::Pod { annotations, .. }) = commands.last_mut() else {
                    return Err(error("annotations follow `pod`"));
                };
                let (key, value) = line.split_once(": ").ok_or_else(|| error("write `  key: value`"))?;
                annotations.push((key.trim().to_owned(), value.trim().to_owned()));
                continue;
            }
            commands.push(parse_command(line).map_err(|problem| error(&problem))?);
        }
        Ok(Self(commands))
    }
}

fn parse_command(line: &str) -> Result<Command, String> {
    let mut words = line.split_whitespace();
    let verb = words.next().unwrap_or_default();
    let rest: Vec<&str> = words.collect();
    let word =
        |index: usize| rest.get(index).copied().ok_or_else(|| format!("word {} is missing", index + 2));
    let duration = |index: usize| {
        let text = word(index)?;
        parse_duration(text).ok_or_else(|| format!("{text:?} is no duration"))
    };
    Ok(match verb {
        "pod" => parse_pod(&rest)?,
        "program" => {
            let (name, script) =
                line["program".len()..].split_once(": ").ok_or("write `program NAME: ...`")?;
            Command::Program(name.trim().to_owned(), Program::parse(script)?)
        }
        "slow" => Command::Slow(word(0)?.to_owned(), OperationKind::parse(word(1)?)?, duration(2)?),
        "fail" => Command::Fail(word(0)?.to_owned(), OperationKind::parse(word(1)?)?),
        "lose" => match OperationKind::parse(word(1)?)? {
            kind if kind.can_be_lost() => Command::Lose(word(0)?.to_owned(), kind),
            kind => return Err(format!("the driver never loses a {kind}")),
        },
        "create" => Command::Create(NewContainer::parse(&rest)?),
        "up" => Command::Up(rest.iter().map(|name| (*name).to_owned()).collect()),
        "start" => Command::Start(parse_target(word(0)?)),
        "exec" => match parse_target(word(0)?) {
            Target { container, exec: Some(exec) } => Command::Exec(container, exec),
            _ => return Err("write `exec CONTAINER/EXEC`".to_owned()),
        },
        "kill" => {
            let signal = parse_signal(word(1)?).ok_or_else(|| format!("{:?} is no signal", rest[1]))?;
            let reach = if rest.get(2) == Some(&"all") { Reach::All } else { Reach::Process };
            Command::Kill(parse_target(word(0)?), signal, reach)
        }
        "wait" => Command::Wait(parse_target(word(0)?)),
        "leave" => Command::Leave(parse_target(word(0)?)),
        "delete" => Command::Delete(parse_target(word(0)?)),
        "switch" => Command::Switch(word(0)?.to_owned()),
        "kubelets-own" => Command::KubeletsOwn(rest.iter().map(|name| (*name).to_owned()).collect()),
        "restart" => Command::Restart,
        "pause" => Command::Pause(word(0)?.into()),
        "freeze" => Command::Freeze(word(0)?.into()),
        "resume" => Command::Resume(word(0)?.into()),
        "checkpoint" => {
            let after = match word(1).ok() {
                None => AfterCheckpoint::LeaveRunning,
                Some("exit") => AfterCheckpoint::End,
                Some(other) => return Err(format!("{other:?} is not \"exit\"")),
            };
            Command::Checkpoint(word(0)?.into(), after)
        }
        "exit" => {
            let code = word(1)?.parse().map_err(|_| format!("{:?} is no exit code", rest[1]))?;
            Command::Exit(parse_target(word(0)?), code)
        }
        "oom" => Command::OutOfMemory(word(0)?.into()),
        "stop-container" => Command::StopContainer(word(0)?.into(), duration(1)?),
        "stop-sandbox" => Command::StopSandbox(rest.iter().map(|id| (*id).into()).collect()),
        "stop-pod" if rest.is_empty() => Command::StopPod(None),
        "stop-pod" => Command::StopPod(Some(duration(0)?)),
        "advance" => Command::Advance(duration(0)?),
        "idle" => Command::Idle,
        "end" => Command::End,
        "kubelet" => Command::Kubelet(KubeletSetup::parse(&rest)?),
        "fault" => Command::Fault(Fault::parse(&rest)?),
        "settle" => Command::Settle(duration(0)?),
        "view" => Command::View(parse_target(word(0)?)),
        "inspect" => Command::Inspect,
        _ => return Err("unknown verb".to_owned()),
    })
}

fn parse_pod(words: &[&str]) -> Result<Command, String> {
    let (mut caller, mut detail) = (PodCaller::Cri, Detail::Usual);
    for word in words {
        match *word {
            "ctr" => caller = PodCaller::Ctr,
            "cleanup" => caller = PodCaller::CriWithCleanup,
            "verbose" => detail = Detail::Everything,
            "timeline" => detail = Detail::Timeline,
            _ => return Err(format!("unknown kind of pod {word:?}")),
        }
    }
    Ok(Command::Pod { caller, detail, annotations: Vec::new() })
}

fn parse_target(text: &str) -> Target {
    match text.split_once('/') {
        Some((container, exec)) => Target { container: container.into(), exec: Some(exec.into()) },
        None => Target::init(text.into()),
    }
}

/// A target as commands and traces write it.
pub(crate) fn show_target(target: &Target) -> String {
    match &target.exec {
        Some(exec) => format!("{}/{exec}", target.container),
        None => target.container.to_string(),
    }
}

impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pod { caller, detail, annotations } => {
                let caller = match caller {
                    PodCaller::Cri => "",
                    PodCaller::CriWithCleanup => " cleanup",
                    PodCaller::Ctr => " ctr",
                };
                let detail = match detail {
                    Detail::Usual => "",
                    Detail::Everything => " verbose",
                    Detail::Timeline => " timeline",
                };
                write!(f, "pod{caller}{detail}")?;
                annotations.iter().try_for_each(|(key, value)| write!(f, "\n  {key}: {value}"))
            }
            Self::Program(name, program) => write!(f, "program {name}: {program}"),
            Self::Slow(name, kind, time) => write!(f, "slow {name} {kind} {}", show_duration(*time)),
            Self::Fail(name, kind) => write!(f, "fail {name} {kind}"),
            Self::Lose(name, kind) => write!(f, "lose {name} {kind}"),
            Self::Create(new) => write!(f, "create {new}"),
            Self::Up(names) => write!(f, "up {}", names.join(" ")),
            Self::Start(target) => write!(f, "start {}", show_target(target)),
            Self::Exec(container, exec) => write!(f, "exec {container}/{exec}"),
            Self::Kill(target, signal, reach) => {
                let reach = if *reach == Reach::All { " all" } else { "" };
                write!(f, "kill {} {}{reach}", show_target(target), show_signal(*signal))
            }
            Self::Wait(target) => write!(f, "wait {}", show_target(target)),
            Self::Leave(target) => write!(f, "leave {}", show_target(target)),
            Self::Delete(target) => write!(f, "delete {}", show_target(target)),
            Self::Switch(name) => write!(f, "switch {name}"),
            Self::KubeletsOwn(names) => write!(f, "kubelets-own {}", names.join(" ")),
            Self::Restart => f.write_str("restart"),
            Self::Pause(container) => write!(f, "pause {container}"),
            Self::Freeze(container) => write!(f, "freeze {container}"),
            Self::Resume(container) => write!(f, "resume {container}"),
            Self::Checkpoint(container, AfterCheckpoint::LeaveRunning) => write!(f, "checkpoint {container}"),
            Self::Checkpoint(container, AfterCheckpoint::End) => write!(f, "checkpoint {container} exit"),
            Self::Exit(target, code) => write!(f, "exit {} {code}", show_target(target)),
            Self::OutOfMemory(container) => write!(f, "oom {container}"),
            Self::StopContainer(id, grace) => write!(f, "stop-container {id} {}", show_duration(*grace)),
            Self::StopSandbox(ids) => {
                write!(f, "stop-sandbox")?;
                ids.iter().try_for_each(|id| write!(f, " {id}"))
            }
            Self::StopPod(None) => write!(f, "stop-pod"),
            Self::StopPod(Some(grace)) => write!(f, "stop-pod {}", show_duration(*grace)),
            Self::Advance(time) => write!(f, "advance {}", show_duration(*time)),
            Self::Idle => write!(f, "idle"),
            Self::End => write!(f, "end"),
            Self::Kubelet(setup) => write!(f, "kubelet {setup}"),
            Self::Fault(fault) => write!(f, "fault {fault}"),
            Self::Settle(time) => write!(f, "settle {}", show_duration(*time)),
            Self::View(target) => write!(f, "view {}", show_target(target)),
            Self::Inspect => f.write_str("inspect"),
        }
    }
}
