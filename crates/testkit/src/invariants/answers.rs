//! The promises about what callers see: answers, events, State and exit codes agree (F6, F11, F13), and codes change by rule
//! only (J2 to J4, J10).

use pod_lifecycle::{ContainerId, Exit, KubeletType, Notice, Pod, Reply, Request, RequestId, Status, Target};
use pod_spec::{ExitCodes, RestartPolicy, Role};

use super::picture::{Container, Process};
use super::stop::{Cause, End};
use super::{Invariants, Verdict};

impl Invariants {
    /// J10: under OnFailure a stop after which the pod goes on shows no 0, and the end of a job shows only 0; an interrupted init
    /// never shows 0 elsewhere (I4).
    fn may_show_for_policy(&self, id: &ContainerId, shown: Exit, real: Exit) -> bool {
        let Some(container) = self.containers.get(id) else { return false };
        let as_stopped = real.code == 0 && shown.code == 143;
        let is_interrupted = container.interrupted || container.is_given_up || container.was_to_run_again();
        if container.role == Some(Role::Init) && is_interrupted && as_stopped {
            return true;
        }
        self.policy() == Some(RestartPolicy::OnFailure)
            && match container.role {
                Some(Role::Sidecar) => as_stopped,
                // R7: or it was about to be restarted.
                Some(Role::Main) => {
                    let restarts =
                        self.member(&container.name).is_some_and(|member| member.restart.is_some());
                    as_stopped && self.may_be_stopping() && (is_interrupted || restarts)
                }
                Some(Role::Init) => shown.code == 0 && self.may_be_stopping(),
                None => false,
            }
    }

    pub(super) fn replied(&mut self, id: RequestId, reply: Option<&Reply>) -> Verdict {
        if !self.answered.insert(id) {
            return self.violated(format!("request {} is answered twice", id.0));
        }
        let Some(request) = self.requests.remove(&id) else {
            return self.violated(format!("request {} was never made", id.0));
        };
        let created = self.creating.remove(&id);
        match (&request, reply) {
            // Refused or failed: it never existed.
            (Request::Create { .. }, None) => {
                if let Some(container) = created {
                    self.containers.remove(&container);
                }
                Ok(())
            }
            (Request::KubeletsOwn(names), Some(_)) => {
                self.learns(names);
                Ok(())
            }
            (Request::Restart, Some(_)) => {
                self.restarts_the_pod();
                Ok(())
            }
            (Request::Wait(target), Some(Reply::Exit(exit))) => self.agrees(target, *exit, "Wait"),
            (Request::Delete(target), Some(Reply::Deleted(deleted))) => {
                self.agrees(target, deleted.exit, "Delete")
            }
            (Request::Kill { target: Target { container, exec: None }, signal, .. }, Some(_)) => {
                self.kill_accepted(&container.clone(), *signal);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Masked codes are the same wherever they are shown (F6).
    fn agrees(&self, target: &Target, exit: Exit, whence: &str) -> Verdict {
        let shown = self.containers.get(&target.container).and_then(|c| match &target.exec {
            None => c.shown,
            Some(exec) => c.execs.get(exec).and_then(|exec| exec.exited),
        });
        let shown = shown.or(self.deleted.get(&target.container).copied().filter(|_| target.exec.is_none()));
        match shown {
            Some(shown) if shown != exit => self.violated(format!(
                "{whence} of {target} says {}, its TaskExit said {}",
                exit.code, shown.code
            )),
            _ => Ok(()),
        }
    }

    pub(super) fn published(&mut self, notice: &Notice) -> Verdict {
        match notice {
            Notice::Started { container, pid } => {
                let Some(state) = self.containers.get_mut(container) else { return Ok(()) };
                let late = state.shown.is_some();
                state.started = true;
                state.held_since = self.now;
                state.view_pid = *pid;
                if late {
                    return self.violated(format!("TaskStart of {container} after its TaskExit"));
                }
                Ok(())
            }
            Notice::ExecStarted { container, exec, .. } => {
                let Some(state) = self.containers.get_mut(container) else { return Ok(()) };
                state.execs.entry(exec.clone()).or_default().started = true;
                Ok(())
            }
            Notice::Exited { target, exit, .. } => {
                if target.exec.is_none() {
                    self.may_show_completed(&target.container)?;
                }
                self.exit_published(target, *exit)
            }
            Notice::Deleted { container, deleted } => {
                self.agrees(&Target::init(container.clone()), deleted.exit, "TaskDelete")?;
                if let Some(gone) = self.containers.remove(container) {
                    self.newest.retain(|_, id| id != container);
                    self.deleted.extend(gone.shown.map(|shown| (container.clone(), shown)));
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn exit_published(&mut self, target: &Target, exit: Exit) -> Verdict {
        let Some(state) = self.containers.get_mut(&target.container) else {
            return self.violated(format!("TaskExit of {target}, which is not there"));
        };
        if state.shown.is_some() {
            return self.violated(format!("TaskExit of {target} after the container's own TaskExit"));
        }
        match &target.exec {
            None => {
                state.shown = Some(exit);
                state.held = None;
                if let Some(hook) = state.hook {
                    return self.violated(format!("TaskExit of {target} before the end of its {hook} hook"));
                }
                let running = matches!(state.process, Process::Program { .. });
                let unfinished = state.execs.iter().find(|(_, exec)| exec.started && exec.exited.is_none());
                if let Some(exec) = unfinished.map(|(id, _)| id.clone()) {
                    return self.violated(format!("TaskExit of {target} before the one of its exec {exec}"));
                }
                if running {
                    return self.violated(format!("TaskExit of {target}, whose program runs"));
                }
                Ok(())
            }
            Some(exec) => {
                let record = state.execs.entry(exec.clone()).or_default();
                record.exited = Some(exit);
                if !record.started {
                    return self.violated(format!("TaskExit of {target} before its TaskExecStarted"));
                }
                Ok(())
            }
        }
    }

    pub(super) fn finished(&mut self, id: &ContainerId, shown: Exit, real: Exit) -> Verdict {
        self.agrees(&Target::init(id.clone()), shown, "Finish")?;
        if let Some(container) = self.containers.get(id).filter(|container| container.role.is_some()) {
            let (name, ran) = (container.name.clone(), container.ran);
            let (is_main, role) = (container.role == Some(Role::Main), container.role);
            // T12: also in a stop that was taken back.
            let by_caller = self.is_asked(&name) || container.asked_ever;
            // U4 ends it in order to restart it, unless its caller wants its end too.
            let for_restart = container.gate_failed && !container.asked_ever;
            let interrupted = (container.interrupted || container.killed) && !for_restart;
            let counts_from = if by_caller { self.now + self.defaults().replace_wait } else { self.now };
            let code = if is_main { shown.code } else { real.code };
            let end = End { at: self.now, code, counts_from, ran, round: self.rounds };
            // R4: under Never the pod goes on without a sidecar that is not restarted.
            let by_itself = match self.is_read {
                // T15: what its caller stopped may come back.
                true => ran && !container.is_native() && !by_caller && !interrupted,
                // Enough to start what waits for it; whether it must start is not judged.
                false => container.held.is_none(),
            };
            let given_up = role == Some(Role::Sidecar)
                && self.policy() == Some(RestartPolicy::Never)
                && !self.is_stopping()
                && !container.caller_killed
                && by_itself;
            let ended_with_pod = self.is_stopping() && !by_caller;
            if let Some(picture) = self.members.get_mut(&name) {
                picture.ended_with_pod = ended_with_pod;
                // J11: a container that never ran does not undo an earlier end.
                if !is_main || ran || picture.end.is_none() {
                    picture.end = Some(end);
                }
                if given_up {
                    picture.opens();
                }
            }
        }
        let sidecar = self.containers.get(id).is_some_and(|container| container.role == Some(Role::Sidecar));
        if self.is_sandbox(id) && self.plan.is_some() {
            self.begin_stop(Cause::Sandbox);
        }
        self.may_show(id, real)?;
        self.may_have_ended(id, shown, real)?;
        self.may_stay_away(id)?;
        let masked = (sidecar && shown.code == 0) || self.may_show_for_policy(id, shown, real);
        if shown != real && !masked {
            return self.violated(format!("{id} is shown with {}, but it was {}", shown.code, real.code));
        }
        if self.is_sandbox(id) && self.plan.is_some() {
            self.begin_stop(Cause::Sandbox);
        }
        if self.containers.get(id).is_some_and(|container| container.role.is_some()) {
            self.may_fail_the_pod(id, real.code);
        }
        if self.is_read {
            self.read_begin();
        }
        Ok(())
    }

    /// R5, J2, J9, J10: the codes that an end may have.
    fn may_have_ended(&self, id: &ContainerId, shown: Exit, real: Exit) -> Verdict {
        let Some(container) = self.containers.get(id).filter(|it| self.is_read && it.role.is_some()) else {
            return Ok(());
        };
        let is_single = self.partner(&container.name).is_none();
        if let Some(last) =
            container.last_exit.filter(|_| container.ran && container.exited_in_program && is_single)
        {
            let is_killed_since = (container.caller_killed || self.is_asked_to_kill(id)) && real.code == 137;
            if last.code != real.code && !is_killed_since {
                return self.violated(format!(
                    "{id} has ended with {}, its last code is {} (R5)",
                    real.code, last.code
                ));
            }
        }
        let is_sidecar = container.role == Some(Role::Sidecar);
        let never_starts = container.never_starts || self.may_never_start(container);
        if real.code == 125 && !container.ran && !never_starts {
            return self
                .violated(format!("{id} has ended with 125, and nothing keeps it from starting (J9)"));
        }
        let completes = self.stop.is_some_and(|stop| stop.cause == Cause::Completed);
        if container.role == Some(Role::Init) && container.was_to_run_again() && shown.code == 0 && !completes
        {
            return self.violated(format!("{id} was about to run again, and is shown with 0 (J10)"));
        }
        let Some(stop) = self.stop.filter(|_| is_sidecar && !container.is_obeyed && container.ran) else {
            return Ok(());
        };
        let masks = self.plan.as_ref().is_some_and(|plan| plan.settings.exit_codes == ExitCodes::Masked);
        let expected = match self.policy() {
            Some(RestartPolicy::OnFailure) if stop.goes_on() => {
                if real.code == 0 {
                    143
                } else {
                    real.code
                }
            }
            _ if masks => 0,
            _ => real.code,
        };
        match shown.code == expected {
            true => Ok(()),
            false => self.violated(format!(
                "{id} is shown with {} in a stop, not with {expected} (J2, J10)",
                shown.code
            )),
        }
    }

    /// I5: whether a caller may see that an init has completed.
    fn may_show_completed(&mut self, id: &ContainerId) -> Verdict {
        // Without a sandbox any stop shows it, also one that begins because another init has completed just now.
        if self.is_read {
            self.read_begin();
        }
        let Some(container) =
            self.containers.get(id).filter(|it| self.is_read && it.role == Some(Role::Init))
        else {
            return Ok(());
        };
        let has_completed = self.members.get(&container.name).is_some_and(|member| member.completed);
        // A caller may be waiting if nothing lives that comes after it: only what is left out of doubt is judged.
        let later = |it: &Container| {
            let waits =
                it.role.is_some() && self.waits(&it.name).iter().any(|(name, _)| *name == container.name);
            it.shown.is_none() && it.started && (it.role == Some(Role::Main) || waits)
        };
        let is_hidden = self.policy() == Some(RestartPolicy::Always)
            && container.kubelet_type != Some(KubeletType::Init)
            && container.ran
            && has_completed
            && !self.is_asked(&container.name)
            && !container.caller_killed
            && self.stop.is_none()
            && self.planned().any(|(_, it)| later(it));
        match is_hidden {
            true => self.violated(format!("init {id} has completed, and its caller would run it again (I5)")),
            false => Ok(()),
        }
    }

    /// F11, F13: a container that was started and is not final is RUNNING, with the pid of a live process.
    pub(super) fn check_view(&self, id: &ContainerId, pod: &Pod) -> Verdict {
        let state = &self.containers[id];
        let Ok(view) = pod.view(&Target::init(id.clone())) else { return Ok(()) };
        if let Some(shown) = state.shown {
            let agrees = view.exit == Some(shown) && view.status == Status::Stopped;
            return if agrees { Ok(()) } else { self.violated(format!("{id} has exited, State differs")) };
        }
        if !state.started {
            return Ok(());
        }
        if !matches!(view.status, Status::Running | Status::Paused) {
            return self.violated(format!("{id} is not final and shown as {:?}", view.status));
        }
        let alive = self.containers.values().any(|other| other.pid() == Some(view.pid));
        let anyone = self.containers.values().any(Container::runs_program);
        if anyone && !alive {
            return self.violated(format!("{id} is shown with pid {}, which is dead (F13)", view.pid));
        }
        Ok(())
    }
}
