//! Checks a container's gate once: the probe of each kind of gate (U1, U2).
//!
//! Owns the way from a check to a probe and back to an outcome. When a gate is checked, and what the outcome means, is
//! `pod-lifecycle`'s decision.

use oci_runtime::probe::{self, Endpoint, ProbeResult};
use oci_runtime::process::ExecOutcome;
use oci_runtime::reaper::Charge;
use pod_lifecycle::{Check, Failure};
use pod_spec::GateAction;
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
            let endpoint = Endpoint { host, port };
            done.spawn(async move { verdict(probe::tcp(&process, endpoint, timeout).await) });
        }
        Check::Probe { action: GateAction::Http { host, port, path }, timeout } => {
            let endpoint = Endpoint { host, port };
            done.spawn(async move { verdict(probe::http(&process, endpoint, &path, timeout).await) });
        }
        Check::Probe { action: GateAction::Grpc { port, service }, timeout } => {
            done.spawn(async move { verdict(probe::grpc(&process, port, &service, timeout).await) });
        }
        Check::Probe { action: GateAction::Log(_) | GateAction::Notify, timeout } => {
            let Some(readiness) = incarnation.readiness().cloned() else {
                return done.fail(failure("no listener is set up for it"));
            };
            done.spawn(async move { readiness.within(timeout).await });
        }
        Check::Probe { action: GateAction::File(path), timeout } => {
            let (checks, reaper) =
                (resources.file_checks().clone(), resources.runtime().reaper().charged_to(Charge::Probes));
            done.spawn(async move { verdict(probe::file(&reaper, &process, &path, &checks, timeout).await) });
        }
        Check::Probe { action: GateAction::Exec(command), timeout } => {
            let process = match resources.process_with(&command) {
                Ok(process) => process,
                Err(failure) => return done.fail(failure),
            };
            let runtime = resources.runtime().charged_to(Charge::Probes);
            let throttle = resources.context().throttle.clone();
            let id = format!("podshim-gate-{}", done.op().0);
            done.spawn(async move {
                let _turn = throttle.acquire().await;
                match probe::exec(&runtime, &id, &process, timeout).await {
                    ProbeResult::Success => Ok(()),
                    ProbeResult::Failure(reason) => {
                        Err(failure(format!("exec:{}: {reason}", command.join(" "))))
                    }
                }
            });
        }
    }
}

fn verdict(result: ProbeResult) -> Result<(), Failure> {
    match result {
        ProbeResult::Success => Ok(()),
        ProbeResult::Failure(reason) => Err(failure(reason)),
    }
}
