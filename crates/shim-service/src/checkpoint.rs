//! Checkpoint and restore, from the request to the call of the OCI runtime.
//!
//! Owns that way. Whether a checkpoint is made is `pod-lifecycle`'s decision, how the runtime is called is `oci-runtime`'s.

use std::rc::Rc;

use oci_runtime::runtime;
use pod_lifecycle::{AfterCheckpoint, ContainerId, Outcome, Request};

use crate::details::CheckpointDetails;
use crate::error::{failure, runtime_failure};
use crate::report::{CompletionReporter, OperationResult};
use crate::resources::Resources;

/// The request to the pod. Adds to `details` the `criu` that the container's options name.
pub(crate) fn request(
    resources: Option<&Resources>,
    container: ContainerId,
    details: &mut CheckpointDetails,
) -> Request {
    let after = match details.options.after {
        runtime::AfterCheckpoint::LeaveRunning => AfterCheckpoint::LeaveRunning,
        runtime::AfterCheckpoint::End => AfterCheckpoint::End,
    };
    if let Some(resources) = resources {
        details.options.criu_path = resources.details().options.criu_path.clone();
    }
    Request::Checkpoint { container, after }
}

/// Writes the checkpoint. Without `details` its request was answered meanwhile: no caller waits for it.
pub(crate) fn write(resources: &Resources, details: Option<Rc<CheckpointDetails>>, done: CompletionReporter) {
    let Some(details) = details else {
        return done.fail(failure("its caller does not wait for this checkpoint any more"));
    };
    let (runtime, cgroup) = (resources.runtime().clone(), resources.cgroup().cloned());
    done.spawn(async move {
        let written = runtime.checkpoint(&details.path, &details.options, cgroup.as_deref()).await;
        written.map_err(runtime_failure)
    });
}

/// A create without a process: Start restores it.
pub(crate) fn prepare_restore(resources: &Resources, done: CompletionReporter) {
    let launcher = resources.launcher();
    tokio::task::spawn_local(async move {
        match launcher.prepare().await {
            Ok(streams) => done.finish(Outcome::Ok, OperationResult::Streams(Box::new(streams))),
            Err(failed) => done.fail_create(failed),
        }
    });
}

pub(crate) fn restore(resources: &Resources, done: CompletionReporter) {
    let streams = match resources.next_streams() {
        Ok(streams) => streams,
        Err(failure) => return done.fail(failure),
    };
    let (launcher, limits, size) = (resources.launcher(), resources.limits().cloned(), resources.size());
    tokio::task::spawn_local(async move {
        match launcher.restore(streams, limits, size).await {
            Ok(new) => done.finish(new.outcome(), OperationResult::Recreated(Box::new(new))),
            Err(failure) => done.fail(failure),
        }
    });
}
