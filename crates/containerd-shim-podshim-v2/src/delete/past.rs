//! The record of a pod whose shim was killed: its name, the containers that were left, when they ended, and the exit codes
//! that the shim had recorded. The pod's earlier events, and containers that were deleted before, are lost with the shim.

use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use control_api::container::{Role as WireRole, State};
use control_api::{Container, InspectResponse, Past, VERSION};
use node_state::entry::Entry;
use oci_runtime::bundle::Bundle;
use pod_spec::Role;

use super::exit::now;
use super::group::{Member, Turn};

/// The containers that `delete` found.
#[derive(Debug)]
pub(super) struct DeadPod {
    containers: Vec<(Container, PathBuf)>,
    is_planned: bool,
}

impl DeadPod {
    /// Reads them before they are ended.
    pub(super) fn of(members: &[Member]) -> Self {
        let container = |member: &Member| Container {
            id: member.id.clone(),
            name: member.name.clone(),
            role: match (member.turn, member.role) {
                (Turn::Sandbox, _) => WireRole::SANDBOX,
                (_, Some(Role::Init)) => WireRole::INIT,
                (_, Some(Role::Sidecar)) => WireRole::SIDECAR,
                (_, Some(Role::Main)) => WireRole::MAIN,
                (_, None) => WireRole::PASSTHROUGH,
            }
            .into(),
            state: State::EXITED.into(),
            // Read before `delete` ends the container and records 137 for containerd: that is no code of the program.
            ..exit_codes(&member.bundle)
        };
        let containers = members.iter().map(|member| (container(member), member.bundle.path().to_owned()));
        let is_planned = members.iter().any(|member| member.is_planned);
        Self { containers: containers.collect(), is_planned }
    }

    /// Makes the record after they were ended, with the times of that.
    pub(super) fn record(self, entry: Entry) -> Option<Past> {
        // As after an orderly end of a shim: a container of ctr without a pod leaves no record.
        if entry.pod_name.is_empty() && !self.is_planned {
            return None;
        }
        let milliseconds = |at: SystemTime| {
            let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
            i64::try_from(since.as_millis()).unwrap_or_default()
        };
        let ended = |(container, path): (Container, PathBuf)| {
            let exit = Bundle::new(path).read_exit().ok().flatten();
            let exited_at = exit.map_or_else(now, |exit| exit.exited_at);
            Container { exited_at_ms: Some(milliseconds(exited_at)), ..container }
        };
        let pod = InspectResponse {
            version: VERSION,
            release: control_api::release(),
            id: entry.id,
            namespace: entry.namespace,
            pod_name: entry.pod_name,
            pod_namespace: entry.pod_namespace,
            containers: self.containers.into_iter().map(ended).collect(),
            ..Default::default()
        };
        Some(Past {
            version: VERSION,
            pod: Some(pod).into(),
            ended_at_ms: milliseconds(now()),
            shim_was_killed: true,
            ..Default::default()
        })
    }
}

/// The exit codes that the shim had recorded; none for a container that outlived its shim.
fn exit_codes(bundle: &Bundle) -> Container {
    let exit = bundle.read_exit().ok().flatten();
    Container {
        real_exit_code: exit.as_ref().map(|exit| exit.real_exit_status),
        shown_exit_code: exit.map(|exit| exit.exit_status),
        ..Default::default()
    }
}
