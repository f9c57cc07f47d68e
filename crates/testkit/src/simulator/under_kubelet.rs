//! A pod whose caller is a kubelet: its calls become requests, and answers and exits go back to it.
//!
//! Owns the loop between the two, and the wait for what the pod's policy promises.

use std::time::Duration;

use pod_lifecycle::{Action, ContainerId, RequestId, Target};

use super::{RunError, Simulator};
use crate::command::Command;
use crate::kubelet::fault::Fault;
use crate::kubelet::{Kubelet, ShimCall};
use crate::world::ProcessEvent;

/// Between two checks of the promise.
const CHECK_INTERVAL: Duration = Duration::from_secs(20);
/// What an operation that hangs still does when its pod has ended: the runtime ends it before that.
const LAST_OPERATIONS: Duration = Duration::from_secs(150);
/// A pod that goes on must keep its promise for this long: longer than a kubelet's longest back-off, so that a
/// container that restarts for ever is noticed.
const STEADY: Duration = Duration::from_secs(360);

impl Simulator {
    pub(super) fn see(&mut self, event: &ProcessEvent) {
        self.trace.process_event(self.now, event);
        let Some(kubelet) = &mut self.kubelet else { return };
        match event {
            ProcessEvent::Started(Target { container, exec: None }) => kubelet.began(self.now, container),
            ProcessEvent::Exited(Target { container, exec: None }, code) => {
                kubelet.ledger().ended(container, *code)
            }
            _ => {}
        }
    }

    pub(super) fn tell_kubelet_of_answer(&mut self, request: RequestId, action: &Action) {
        if let (Some(kubelet), Action::Reply { result, .. }) = (&mut self.kubelet, action) {
            let result = result.as_ref().map(|_| ()).map_err(|refusal| refusal.kind);
            kubelet.cri().answered(self.now, request, result);
        }
    }

    pub(super) fn tell_kubelet_of_exit(&mut self, container: &ContainerId, code: u32) {
        if let Some(kubelet) = &mut self.kubelet {
            kubelet.exited(self.now, container, code);
        }
    }

    pub(super) fn wake_kubelet(&mut self) -> Result<(), RunError> {
        let Some(kubelet) = &mut self.kubelet else { return Ok(()) };
        kubelet.wake(self.now);
        self.show_notes();
        while let Some((call, asked)) = self.kubelet.as_mut().and_then(|kubelet| kubelet.next_call()) {
            // The answer may come before the request returns.
            let request = RequestId(self.next_request + 1);
            if let Some(kubelet) = &mut self.kubelet {
                kubelet.cri().asked(request, call);
            }
            self.execute_now(&match asked {
                ShimCall::Create(new) => Command::Create(new),
                ShimCall::Start(id) => Command::Start(Target::init(id)),
                ShimCall::Kill(id, signal, reach) => Command::Kill(Target::init(id), signal, reach),
                ShimCall::Delete(id) => Command::Delete(Target::init(id)),
            })?;
        }
        Ok(())
    }

    pub(super) fn apply_fault(&mut self, fault: &Fault) -> Result<(), RunError> {
        let newest = |kubelet: &Option<Box<Kubelet>>, name: &str| {
            kubelet.as_ref().and_then(|kubelet| kubelet.running_of(name)).cloned()
        };
        match fault {
            Fault::Broken(name, kind) => self.world.fail_always(name.clone(), *kind),
            Fault::Crash(name, code) => {
                if let Some(id) = newest(&self.kubelet, name) {
                    self.execute_now(&Command::Exit(Target::init(id), *code))?;
                }
            }
            Fault::OutOfMemory(name) => {
                if let Some(id) = newest(&self.kubelet, name) {
                    self.execute_now(&Command::OutOfMemory(id))?;
                }
            }
            _ => {}
        }
        self.trace.push(self.now, &format!("fault {fault}"));
        if let Some(kubelet) = &mut self.kubelet {
            kubelet.apply_fault(self.now, fault);
        }
        self.show_notes();
        Ok(())
    }

    fn show_notes(&mut self) {
        for note in self.kubelet.iter_mut().flat_map(|kubelet| kubelet.take_notes()) {
            self.trace.push(self.now, &note);
        }
    }

    /// Waits until the pod has done what its policy promises; a pod that goes on must do it for a while.
    pub(super) fn settle(&mut self, limit: Duration) -> Result<(), RunError> {
        self.world.heal();
        let Some(kubelet) = &mut self.kubelet else { return Ok(()) };
        kubelet.heal();
        let end = self.now + limit;
        loop {
            let unkept = self.unkept();
            if unkept.is_none() {
                let before = self.now;
                if self.kubelet.as_ref().is_some_and(|kubelet| kubelet.is_over()) {
                    self.run_until(Some(self.now + LAST_OPERATIONS))?;
                    self.none_is_left(self.live(), "ended by its kubelet")?;
                    return self.check_idle();
                }
                self.run_until(Some(self.now + STEADY))?;
                let last = self.kubelet.as_ref().and_then(|kubelet| kubelet.last_start());
                if self.unkept().is_none() && last.is_none_or(|last| last <= before) {
                    return self.check_idle();
                }
            }
            if self.now >= end {
                let what = unkept.unwrap_or_else(|| "the pod is never steady".to_owned());
                return Err(RunError::Unkept { now: self.now, what });
            }
            self.run_until(Some((self.now + CHECK_INTERVAL).min(end)))?;
        }
    }

    fn unkept(&self) -> Option<String> {
        self.kubelet.as_ref()?.unkept(self.plan.as_ref(), &self.pod)
    }
}
