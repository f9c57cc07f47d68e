//! Publishes the pod's notices as containerd's events (CONTRACT §6).
//!
//! Owns the translation of each notice into an event and its topic. Decides nothing: what is published is `pod-lifecycle`'s.

use containerd_shim_protos::events::task::{
    TaskCreate, TaskDelete, TaskExecAdded, TaskExecStarted, TaskExit, TaskIO, TaskOOM, TaskPaused,
    TaskResumed, TaskStart,
};
use containerd_shim_protos::topics;
use containerd_shim_protos::types::mount::Mount;
use pod_lifecycle::Notice;

use crate::clock::timestamp;
use crate::publisher::Publisher;
use crate::resources::Resources;

/// Queues the event of a notice. `resources` are those of the notice's container.
pub(crate) fn publish(publisher: &Publisher, notice: Notice, resources: Option<&Resources>) {
    match notice {
        Notice::Created { container, pid } => {
            let Some(resources) = resources else { return };
            let streams = &resources.details().streams;
            let event = TaskCreate {
                container_id: container.to_string(),
                bundle: resources.details().bundle.to_string_lossy().into_owned(),
                rootfs: rootfs(resources),
                io: Some(TaskIO {
                    stdin: streams.stdin.clone(),
                    stdout: streams.stdout.clone(),
                    stderr: streams.stderr.clone(),
                    terminal: streams.has_terminal(),
                    ..TaskIO::default()
                })
                .into(),
                checkpoint: checkpoint_of(resources),
                pid,
                ..TaskCreate::default()
            };
            publisher.publish(topics::TASK_CREATE_EVENT_TOPIC, &event);
        }
        Notice::Started { container, pid } => {
            let event = TaskStart { container_id: container.to_string(), pid, ..TaskStart::default() };
            publisher.publish(topics::TASK_START_EVENT_TOPIC, &event);
        }
        Notice::ExecAdded { container, exec } => {
            let event = TaskExecAdded {
                container_id: container.to_string(),
                exec_id: exec.to_string(),
                ..TaskExecAdded::default()
            };
            publisher.publish(topics::TASK_EXEC_ADDED_EVENT_TOPIC, &event);
        }
        Notice::ExecStarted { container, exec, pid } => {
            let event = TaskExecStarted {
                container_id: container.to_string(),
                exec_id: exec.to_string(),
                pid,
                ..TaskExecStarted::default()
            };
            publisher.publish(topics::TASK_EXEC_STARTED_EVENT_TOPIC, &event);
        }
        Notice::Exited { target, pid, exit } => {
            let id = target.exec.as_ref().map_or(target.container.as_str(), |exec| exec.as_str());
            let event = TaskExit {
                id: id.to_owned(),
                container_id: target.container.to_string(),
                pid,
                exit_status: exit.code,
                exited_at: Some(timestamp(exit.at)).into(),
                ..TaskExit::default()
            };
            publisher.publish(topics::TASK_EXIT_EVENT_TOPIC, &event);
        }
        Notice::Deleted { container, deleted } => {
            let event = TaskDelete {
                container_id: container.to_string(),
                pid: deleted.pid,
                exit_status: deleted.exit.code,
                exited_at: Some(timestamp(deleted.exit.at)).into(),
                ..TaskDelete::default()
            };
            publisher.publish(topics::TASK_DELETE_EVENT_TOPIC, &event);
        }
        Notice::OutOfMemory { container } => {
            let event = TaskOOM { container_id: container.to_string(), ..TaskOOM::default() };
            publisher.publish(topics::TASK_OOM_EVENT_TOPIC, &event);
        }
        Notice::Paused { container } => {
            let event = TaskPaused { container_id: container.to_string(), ..TaskPaused::default() };
            publisher.publish(topics::TASK_PAUSED_EVENT_TOPIC, &event);
        }
        Notice::Resumed { container } => {
            let event = TaskResumed { container_id: container.to_string(), ..TaskResumed::default() };
            publisher.publish(topics::TASK_RESUMED_EVENT_TOPIC, &event);
        }
    }
}

/// The directory of the checkpoint that a container is restored from; empty if there is none.
fn checkpoint_of(resources: &Resources) -> String {
    let image = resources.details().checkpoint.as_ref();
    image.map(|image| image.path.to_string_lossy().into_owned()).unwrap_or_default()
}

fn rootfs(resources: &Resources) -> Vec<Mount> {
    let mounts = resources.details().rootfs.iter().map(|mount| Mount {
        type_: mount.kind.clone(),
        source: mount.source.clone(),
        options: mount.options.clone(),
        ..Mount::default()
    });
    mounts.collect()
}
