//! What comes of the operations that the owner began: a new process is taken over and watched, what is removed is
//! forgotten.
//!
//! Owns the step from an operation's result to what the owner keeps of it, and hearing of a process's OOM kills and
//! end. It never waits: the watching is a task that reports to the owner's inbox.

use std::rc::Rc;

use oci_runtime::cgroup::OomWatch;
use oci_runtime::reaper::ExitWatch;
use pod_lifecycle::{ContainerId, Event, OpId, Outcome, Target};
use tracing::warn;

use crate::error::failure;
use crate::incarnation::{LastIncarnation, NewIncarnation};
use crate::listen;
use crate::names::names;
use crate::notice::wall_time;
use crate::owner::{Owner, wall_clock};
use crate::report::{Completion, Product, Report};

impl Owner {
    pub(crate) fn complete(&mut self, completion: Completion) {
        let Completion { op, container, mut outcome, product } = completion;
        let mut born = None;
        match product {
            Product::Nothing => {}
            Product::Stdio(stdio) => {
                self.end_unused_fifos(&container);
                if let Some(resources) = self.containers.get_mut(&container) {
                    resources.stdio = Some(*stdio);
                }
            }
            Product::Created(created) => {
                let (stdio, new) = *created;
                self.end_unused_fifos(&container);
                if let Some(resources) = self.containers.get_mut(&container) {
                    resources.stdio = Some(stdio);
                }
                born = Some((Target::init(container.clone()), self.adopt(&container, new)));
            }
            Product::Recreated(new) if self.is_outdated(&container, &new) => {
                return self.update_new(op, container, outcome, new);
            }
            Product::Recreated(new) => {
                born = Some((Target::init(container.clone()), self.adopt(&container, *new)));
            }
            Product::Exec(exec, new) => {
                if let Some(record) = self.containers.get_mut(&container).and_then(|r| r.execs.get_mut(&exec))
                {
                    record.stdio = Some(new.stdio);
                    record.console = new.console;
                    if let (Some(console), Some(size)) = (&record.console, record.size)
                        && let Err(error) = console.resize(size)
                    {
                        warn!(container = %container, %exec, %error, "cannot resize its terminal");
                    }
                    record.process = Some(new.process);
                }
                let life = Life { exit: new.exit, oom: None };
                born = Some((Target { container: container.clone(), exec: Some(exec) }, life));
            }
            Product::Removed if self.delete_is_heard(&container) => {
                self.containers.remove(&container);
                self.history.forget(&container);
            }
            // Trap 12: containerd gave up waiting. Were it forgotten now, the next Delete would get NotFound,
            // no Shutdown would follow, and the shim would stay for ever.
            Product::Removed => {
                outcome = Outcome::Failed(failure("no caller waited for the end of its delete"))
            }
            Product::CreateFailed(fifos) => {
                self.containers.remove(&container);
                names().forget(container.as_str());
                self.unused_fifos = Some((container.clone(), fifos));
            }
            Product::RemovedExec(exec) => {
                if let Some(resources) = self.containers.get_mut(&container) {
                    resources.execs.remove(&exec);
                }
            }
        }
        self.feed(Event::Done { op, outcome, at: wall_time(wall_clock()) });
        // After the Done, so that the pod knows the process whose exit it hears of.
        if let Some((target, life)) = born {
            self.watch(target, life);
        }
    }

    /// Whether an Update came while a process was made (R6): its caller got the answer that it holds.
    fn is_outdated(&self, id: &ContainerId, new: &NewIncarnation) -> bool {
        let wanted = self.containers.get(id).and_then(|resources| resources.update.as_ref());
        wanted.is_some_and(|wanted| new.limits.as_ref().is_none_or(|limits| !Rc::ptr_eq(limits, wanted)))
    }

    /// Before the pod hears of the process, so that no program runs with older limits.
    fn update_new(&self, op: OpId, container: ContainerId, outcome: Outcome, mut new: Box<NewIncarnation>) {
        let Some(resources) = self.containers.get(&container) else { return };
        let (launcher, update, reports) =
            (resources.launcher(), resources.update.clone(), self.reports.clone());
        tokio::task::spawn_local(async move {
            launcher.update_again(&mut new, update).await;
            let product = Product::Recreated(new);
            // The owner has ended: no report is read any more.
            let _ = reports.send(Report::Completed(Completion { op, container, outcome, product }));
        });
    }

    /// Whether a Delete's end reaches its caller, or containerd has forgotten the container anyway: it removes
    /// the bundle then.
    fn delete_is_heard(&self, id: &ContainerId) -> bool {
        let Some(resources) = self.containers.get(id) else { return true };
        let answers = resources.deletes.iter().filter_map(|request| self.requests.get(request));
        answers.into_iter().any(|answer| !answer.is_closed()) || !resources.details.bundle.exists()
    }

    /// Takes a container's new process over.
    fn adopt(&mut self, id: &ContainerId, new: NewIncarnation) -> Life {
        let NewIncarnation { mut incarnation, held_back, cgroup, exit, oom, limits: _ } = new;
        let pid = incarnation.process().pid();
        self.history.remember(pid, id);
        if let Some(resources) = self.containers.get_mut(id) {
            listen::listen(resources, &mut incarnation, self.pod.closed_gate(id), cgroup.as_ref());
            // R6: the last size that was asked for, also while it was made.
            if let (Some(console), Some(size)) = (incarnation.console(), resources.size)
                && let Err(error) = console.resize(size)
            {
                warn!(container = %id, %error, "cannot resize its terminal");
            }
            resources.incarnation = Some(incarnation);
            if let Some(stdio) = &mut resources.stdio {
                stdio.accept(held_back);
            }
            resources.last = Some(LastIncarnation { pid, cgroup });
            resources.read_stats_of_scope();
        }
        Life { exit, oom }
    }

    /// Reports a process's OOM kills and its exit, in that order: CRI asks why a container died only once.
    fn watch(&self, target: Target, life: Life) {
        let reports = self.reports.clone();
        let Life { mut exit, mut oom } = life;
        tokio::task::spawn_local(async move {
            let exit = loop {
                tokio::select! {
                    biased;
                    exit = &mut exit => break exit,
                    Some(_) = next_oom(&mut oom) => {
                        let _ = reports.send(Report::OutOfMemory { container: target.container.clone() });
                    }
                }
            };
            // The kernel counts a kill after it has reported it (v1): look once more.
            if oom.is_some_and(|mut oom| oom.new_kills() > 0) {
                let _ = reports.send(Report::OutOfMemory { container: target.container.clone() });
            }
            let _ = reports.send(Report::Exited { target, exit });
        });
    }
}

/// What is to be heard of a process after its birth.
struct Life {
    exit: ExitWatch,
    oom: Option<OomWatch>,
}

/// The next OOM kill; never, once there is nothing to watch.
async fn next_oom(watch: &mut Option<OomWatch>) -> Option<u64> {
    match watch {
        Some(oom) => match oom.next().await {
            Some(kills) => Some(kills),
            None => {
                *watch = None;
                std::future::pending().await
            }
        },
        None => std::future::pending().await,
    }
}
