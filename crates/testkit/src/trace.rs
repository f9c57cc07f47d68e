//! The trace of a run: what programs, callers and logs saw, one line each, with the time.
//!
//! Owns the wording. Program lines read like the log trick's: `app.start`, `app.TERM`, `app.exit(0)`.

use pod_lifecycle::{
    Action, AfterCheckpoint, ContainerId, Milestone, Notice, PodTime, RefusalKind, Reply, Request, Status,
    View,
};

use crate::command::{Detail, show_target};
use crate::text::{show_cause, show_signal};
use crate::world::ProcessEvent;

/// The lines so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Trace {
    lines: Vec<String>,
    pub(crate) detail: Detail,
}

impl Trace {
    pub(crate) fn push(&mut self, now: PodTime, line: &str) {
        self.lines.push(format!("{now} {line}"));
    }

    pub(crate) fn take(&mut self) -> Vec<String> {
        std::mem::take(&mut self.lines)
    }

    pub(crate) fn process_event(&mut self, now: PodTime, event: &ProcessEvent) {
        let line = match event {
            ProcessEvent::Started(target) => format!("{}.start", show_target(target)),
            ProcessEvent::Signalled(target, signal) => {
                format!("{}.{}", show_target(target), show_signal(*signal))
            }
            ProcessEvent::Exited(target, code) => format!("{}.exit({code})", show_target(target)),
        };
        self.push(now, &line);
    }

    /// A reply to `request`.
    pub(crate) fn reply(&mut self, now: PodTime, request: &Request, reply: &Action) {
        let Action::Reply { result, .. } = reply else { return };
        let routine = matches!(request, Request::Create { .. } | Request::Start(_) | Request::Exec { .. });
        if routine && result.is_ok() && self.detail != Detail::Everything {
            return;
        }
        let answer = match result {
            Ok(Reply::Ok) => "ok".to_owned(),
            Ok(Reply::Pid(_)) => "started".to_owned(),
            Ok(Reply::Exit(exit)) => format!("exit {}", exit.code),
            Ok(Reply::Deleted(deleted)) => format!("exit {}", deleted.exit.code),
            Err(refusal) => format!("{}: {}", kind(refusal.kind), refusal.message),
        };
        let answer = match (request, result) {
            (Request::Create { .. }, Ok(_)) => "created".to_owned(),
            _ => answer,
        };
        self.push(now, &format!("{} -> {answer}", show_request(request)));
    }

    /// The line of an action that is no reply and no operation.
    pub(crate) fn action(&mut self, now: PodTime, action: &Action) {
        let line = match action {
            Action::Publish(notice) => match (notice, self.detail) {
                (Notice::Exited { target, exit, .. }, _) => {
                    format!("TaskExit {} {}", show_target(target), exit.code)
                }
                (Notice::OutOfMemory { container }, _) => format!("TaskOOM {container}"),
                (Notice::Paused { container }, _) => format!("TaskPaused {container}"),
                (Notice::Resumed { container }, _) => format!("TaskResumed {container}"),
                (_, Detail::Usual | Detail::Timeline) => return,
                (Notice::Created { container, .. }, _) => format!("TaskCreate {container}"),
                (Notice::Started { container, .. }, _) => format!("TaskStart {container}"),
                (Notice::ExecAdded { container, exec }, _) => format!("TaskExecAdded {container}/{exec}"),
                (Notice::ExecStarted { container, exec, .. }, _) => {
                    format!("TaskExecStarted {container}/{exec}")
                }
                (Notice::Deleted { container, deleted }, _) => {
                    format!("TaskDelete {container} {}", deleted.exit.code)
                }
            },
            Action::Record { container, milestone } if self.detail == Detail::Timeline => {
                let what = container.as_ref().map_or("pod", ContainerId::as_str);
                format!("{what} * {}", show_milestone(milestone))
            }
            Action::Signal { target, signal, cause, .. } if self.detail == Detail::Timeline => {
                format!("{} * {}: {cause:?}", show_target(target), show_signal(*signal))
            }
            Action::LimitOomScore { container, highest } => {
                format!("{container} oom-score at most {highest}")
            }
            Action::GiveUpCreate { container } => format!("{container} create is given up"),
            Action::GiveUp { container, .. } => format!("{container} operation is given up"),
            Action::WriteLine { container, line, .. } => format!("{container} log: {line}"),
            Action::Finish { container, shown, real } if shown.code != real.code => {
                format!("{container} really exited with {}", real.code)
            }
            _ => return,
        };
        self.push(now, &line);
    }

    pub(crate) fn view(&mut self, now: PodTime, what: &str, view: &View, whose: &str) {
        let status = match view.status {
            Status::Created => "CREATED",
            Status::Running => "RUNNING",
            Status::Paused => "PAUSED",
            Status::Stopped => "STOPPED",
        };
        let exit = view.exit.map(|exit| format!(" exit {}", exit.code)).unwrap_or_default();
        self.push(now, &format!("view {what} -> {status}{exit}, {whose}"));
    }
}

/// A request as a scenario writes it.
pub(crate) fn show_request(request: &Request) -> String {
    match request {
        Request::Create { container, .. } => format!("create {container}"),
        Request::Exec { container, exec } => format!("exec {container}/{exec}"),
        Request::Start(target) => format!("start {}", show_target(target)),
        Request::Kill { target, signal, .. } => {
            format!("kill {} {}", show_target(target), show_signal(*signal))
        }
        Request::Wait(target) => format!("wait {}", show_target(target)),
        Request::Delete(target) => format!("delete {}", show_target(target)),
        Request::Switch(name) => format!("switch {name}"),
        Request::KubeletsOwn(names) => {
            format!("kubelets-own {}", names.iter().map(String::as_str).collect::<Vec<_>>().join(" "))
        }
        Request::Restart => "restart".to_owned(),
        Request::Pause(container) => format!("pause {container}"),
        Request::Resume(container) => format!("resume {container}"),
        Request::Checkpoint { container, after: AfterCheckpoint::LeaveRunning } => {
            format!("checkpoint {container}")
        }
        Request::Checkpoint { container, after: AfterCheckpoint::End } => {
            format!("checkpoint {container} exit")
        }
    }
}

/// Without the clock of the wall, which a simulation has not.
fn show_milestone(milestone: &Milestone) -> String {
    match milestone {
        Milestone::Held { reason } => format!("held: {reason}"),
        Milestone::Running { .. } => "running".to_owned(),
        Milestone::StartFailed { reason } => format!("start failed: {reason}"),
        Milestone::GateOpened => "gate opened".to_owned(),
        Milestone::GateFailed { reason } => format!("gate failed: {reason}"),
        Milestone::GateTimedOut => "gate timed out".to_owned(),
        Milestone::Exited { exit } => format!("exited {}", exit.code),
        Milestone::RestartDue { delay } => format!("restart due in {delay:?}"),
        Milestone::OutOfMemory => "out of memory".to_owned(),
        Milestone::SignalHeld { signal } => format!("held {}", show_signal(*signal)),
        Milestone::HookEnded { hook, failure: None } => format!("{hook:?} hook ended"),
        Milestone::HookEnded { hook, failure: Some(failure) } => format!("{hook:?} hook failed: {failure}"),
        Milestone::SwitchBegan => "switch began".to_owned(),
        Milestone::Switched => "switched".to_owned(),
        Milestone::SwitchFailed { reason } => format!("switch failed: {reason}"),
        Milestone::StopBegan(stop) => {
            format!("stop began: {}, budget {:?}", show_cause(stop.cause), stop.budget)
        }
        Milestone::PodRestart { reason, delay } => format!("restart in {delay:?}: {reason}"),
        Milestone::LastCall => "last call".to_owned(),
        Milestone::BudgetSpent => "budget spent".to_owned(),
        Milestone::StopEnded => "stop ended".to_owned(),
    }
}

fn kind(kind: RefusalKind) -> &'static str {
    match kind {
        RefusalKind::NotFound => "NotFound",
        RefusalKind::AlreadyExists => "AlreadyExists",
        RefusalKind::FailedPrecondition => "FailedPrecondition",
        RefusalKind::InvalidArgument => "InvalidArgument",
        RefusalKind::Unimplemented => "Unimplemented",
        RefusalKind::Internal => "Internal",
        RefusalKind::DeadlineExceeded => "DeadlineExceeded",
    }
}
