//! The pod's actions, executed at once and in order: replies, events, signals, lines for logs, the record of an
//! exit. What takes time is handed to `operations`.

use std::time::SystemTime;

use oci_runtime::bundle::ExitRecord;
use oci_runtime::process::SignalNumber;
use oci_runtime::termination_message;
use pod_lifecycle::{Action, ContainerId, Exit, Notice, Reach, SignalCause, Target, Tell};
use pod_spec::Signal;
use tracing::{error, info, warn};

use crate::control::history::words_of;
use crate::error::ServiceError;
use crate::names::names;
use crate::notice;
use crate::owner::Owner;
use crate::resources::Resources;

impl Owner {
    pub(crate) fn execute(&mut self, action: Action) {
        match action {
            Action::Run { op, container, operation } => self.run(op, container, operation),
            Action::Signal { target, signal, reach, cause } => self.signal(&target, signal, reach, cause),
            Action::Reply { request, result } => {
                self.checkpoints.remove(&request);
                if let Some(answer) = self.requests.remove(&request) {
                    // The caller may be gone; the effect stands (DESIGN §3).
                    let _ = answer.send(result.map_err(ServiceError::from));
                }
            }
            Action::Publish(notice) => {
                let resources = self.containers.get(notice.container());
                if let Notice::Deleted { container, .. } = &notice {
                    names().forget(container.as_str());
                }
                notice::publish(&self.publisher, notice, resources);
            }
            Action::LimitOomScore { container, highest } => self.limit_oom_score(&container, highest),
            Action::Tell { container, line, to } => self.tell(&container, &line, to),
            Action::Finish { container, shown, real } => self.finish(&container, shown, real),
            // The history has it already.
            Action::Record { .. } => {}
            Action::Warn(line) => warn!("{line}"),
            Action::Note(line) => info!("{line}"),
        }
    }

    fn signal(&mut self, target: &Target, signal: Signal, reach: Reach, cause: SignalCause) {
        let Some(resources) = self.containers.get(&target.container) else { return };
        let process = match &target.exec {
            None => resources.process(),
            Some(exec) => resources.execs.get(exec).and_then(|record| record.process.as_ref()),
        };
        let (Some(process), Ok(number)) = (process, SignalNumber::new(signal.number().into())) else {
            return;
        };
        let (container, exec) = (&target.container, target.exec.as_ref().map(ToString::to_string));
        info!(%container, exec, signal = signal.number(), name = %signal, cause = words_of(cause), "signal");
        // SIGKILL to the init takes the others with it, by the kernel or by KillRemaining.
        if let (Some(cgroup), Reach::All) = (resources.cgroup(), reach)
            && signal != Signal::KILL
        {
            let (process, cgroup, target) = (process.clone(), cgroup.clone(), target.clone());
            tokio::task::spawn_local(async move {
                if let Err(error) = cgroup.signal_members(number).await {
                    warn!(%target, %error, "cannot signal every process: only the first gets the signal");
                    if let Err(error) = process.signal(number) {
                        warn!(%target, %error, "cannot send a signal");
                    }
                }
            });
        } else if let Err(error) = process.signal(number) {
            warn!(%target, %error, "cannot send a signal");
        }
    }

    /// N8. At once: the program must not run a moment with its own value.
    fn limit_oom_score(&self, id: &ContainerId, highest: i32) {
        let Some(cgroup) = self.containers.get(id).and_then(Resources::cgroup) else { return };
        match cgroup.limit_oom_score(highest) {
            Ok(()) => info!(container = %id, highest, "oom_score_adj is at most that of its mains"),
            Err(error) => warn!(container = %id, highest, %error, "cannot lower its oom_score_adj"),
        }
    }

    fn tell(&self, id: &ContainerId, line: &str, to: Tell) {
        info!(container = %id, "{line}");
        let Some(resources) = self.containers.get(id) else { return };
        if let Some(stdio) = &resources.stdio {
            stdio.write_line(line);
        }
        if let (Tell::LogAndTerminationMessage, Some(path)) = (to, &resources.termination_message)
            && let Err(error) = termination_message::write(resources.runtime.reaper(), path, line)
        {
            warn!(container = %id, path = %path.display(), %error, "cannot write the termination message");
        }
    }

    fn finish(&mut self, id: &ContainerId, shown: Exit, real: Exit) {
        if shown.code != real.code {
            info!(container = %id, shown = shown.code, real = real.code, "callers see another exit code");
        }
        let Some(resources) = self.containers.get_mut(id) else { return };
        if let Some(stdio) = &mut resources.stdio {
            stdio.finish_output();
        }
        let Some(last) = &resources.last else { return };
        let record = ExitRecord {
            pid: last.pid,
            exit_status: shown.code,
            real_exit_status: real.code,
            exited_at: SystemTime::UNIX_EPOCH + shown.at.0,
        };
        if let Err(error) = resources.bundle().write_exit(&record) {
            // `delete` then says 137, as a stock shim always does.
            error!(container = %id, %error, "cannot record the exit");
        }
    }
}
