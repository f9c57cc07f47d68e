//! Checks a container's gate once: the probe of each kind of gate (U1, U2).
//!
//! Owns the way from a check to a probe and back to an outcome. When a gate is checked, and what the outcome means, is
//! `pod-lifecycle`'s decision.

use std::rc::Rc;
use std::time::Duration;

use oci_runtime::probe::{self, Asked, Endpoint, ProbeResult, Question};
use pod_lifecycle::Check;
use pod_spec::GateAction;
use processes::reaper::Charge;
use processes::{ExecOutcome, Process};
use tokio::time::Instant;

use crate::error::failure;
use crate::report::CompletionReporter;
use crate::resources::Resources;

/// Runs the check as a task.
pub(crate) fn check(resources: &mut Resources, check: Check, done: CompletionReporter) {
    let Some(incarnation) = resources.incarnation() else {
        return done.fail(failure("it has no process"));
    };
    let process = incarnation.process().clone();
    match check {
        Check::Executed { timeout } => {
            let runtime_init = incarnation.runtime_init();
            done.spawn(async move {
                let Some(runtime_init) = runtime_init else { return Err(failure("it has ended")) };
                match process.wait_for_exec(runtime_init, Instant::now() + timeout).await {
                    ExecOutcome::Executed => Ok(()),
                    ExecOutcome::Exited => Err(failure("it has ended")),
                    ExecOutcome::TimedOut => Err(failure("its program has not been started yet")),
                }
            });
        }
        Check::Probe { action: GateAction::Tcp { host, port }, timeout } => {
            ask(resources, process, Question::Tcp(Endpoint { host, port }), timeout, done);
        }
        Check::Probe { action: GateAction::Http { host, port, path }, timeout } => {
            let endpoint = Endpoint { host, port };
            ask(resources, process, Question::Http { endpoint, path }, timeout, done);
        }
        Check::Probe { action: GateAction::Grpc { port, service }, timeout } => {
            ask(resources, process, Question::Grpc { port, service }, timeout, done);
        }
        Check::Probe { action: GateAction::File(path), timeout } => {
            ask(resources, process, Question::File(path), timeout, done);
        }
        Check::Probe { action: GateAction::Log(_) | GateAction::Notify, timeout } => {
            let Some(readiness) = incarnation.readiness().cloned() else {
                return done.fail(failure("no listener is set up for it"));
            };
            done.spawn(async move { readiness.within(timeout).await });
        }
        Check::Probe { action: GateAction::Exec(command), timeout } => {
            let process = match resources.beside(format!("podshim-gate-{}", done.op().0), &command) {
                Ok(process) => process,
                Err(failure) => return done.fail(failure),
            };
            let runtime = resources.runtime().charged_to(Charge::Probes);
            let (throttle, hurry) = (resources.context().throttle.clone(), resources.hurry().clone());
            done.spawn(async move {
                let _turn = throttle.acquire(&hurry).await;
                match probe::exec(&runtime, &process, timeout).await {
                    ProbeResult::Success => Ok(()),
                    ProbeResult::Failure(reason) => {
                        Err(failure(format!("exec:{}: {reason}", command.join(" "))))
                    }
                }
            });
        }
    }
}

/// Asks the container's gate, whose answer costs the container.
fn ask(
    resources: &Resources,
    process: Rc<Process>,
    question: Question,
    timeout: Duration,
    done: CompletionReporter,
) {
    let (prober, reaper) =
        (resources.prober().clone(), resources.runtime().reaper().charged_to(Charge::Probes));
    let asked = Asked { process, cgroup: resources.cgroup().cloned() };
    done.spawn(async move {
        match prober.ask(&reaper, &asked, &question, timeout).await {
            ProbeResult::Success => Ok(()),
            ProbeResult::Failure(reason) => Err(failure(reason)),
        }
    });
}
