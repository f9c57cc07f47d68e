//! Ties a container to the gates that its program opens: a line of its output (`log:`), a message (`notify`).
//!
//! Owns how the notify socket gets into the container, and what of its output is searched. What readiness means for the pod is
//! `pod-lifecycle`'s.

use std::io;
use std::ops::ControlFlow;
use std::path::Path;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};

use cgroups::Cgroup;
use log_pattern::Pattern;
use pod_lifecycle::{Failure, RefusalKind};
use pod_spec::GateAction;
use serde_json::{Value, json};
use streams::stdio::Piece;
use tracing::warn;

use crate::error::failure;
use crate::incarnation::Incarnation;
use crate::readiness::{NotifyListener, Readiness};
use crate::resources::Resources;
use crate::spec_draft::SpecDraft;

/// The socket's name in the container. It lies in a directory that is the container's own: nothing is left in its image's file
/// system, nor in a volume of the node's.
const SOCKET_NAME: &str = "podshim-notify";
/// Where the socket can be: in the first of these that is a tmpfs of the container. CRI and ctr give each container a /dev.
const SOCKET_DIRECTORIES: [&str; 2] = ["/dev", "/run"];
const NOTIFY_SOCKET: &str = "NOTIFY_SOCKET=";

/// Prepares the first create of a container for its gate, and its spec.
///
/// # Errors
/// Why the gate could never open.
pub(crate) fn prepare(
    resources: &mut Resources,
    gate: Option<&GateAction>,
    draft: SpecDraft,
) -> Result<SpecDraft, Failure> {
    match gate {
        Some(GateAction::Log(_)) if !resources.details().streams.paths().pass_output() => Err(Failure {
            message: format!(
                "container {}: its gate log: waits for a line, but its output does not pass through podshim: it needs \
                 fifos (as CRI has them) or a terminal, not a file, a logging program or nothing",
                resources.runtime().id()
            ),
            kind: RefusalKind::InvalidArgument,
        }),
        Some(GateAction::Notify) => {
            let draft = add_socket(draft, &resources.bundle().notify_socket_path())?;
            let listener = NotifyListener::open(resources.runtime().reaper(), resources.bundle())
                .map_err(|error| failure(format!("cannot make the socket of its notify gate: {error}")))?;
            resources.notify_opened(listener);
            Ok(draft)
        }
        _ => Ok(draft),
    }
}

/// Begins to watch a new incarnation for its gate, before its program runs. An earlier incarnation no longer counts.
pub(crate) fn begin(
    resources: &Resources,
    incarnation: &mut Incarnation,
    gate: Option<&GateAction>,
    cgroup: Option<&Rc<Cgroup>>,
) {
    let readiness = match gate {
        Some(GateAction::Log(pattern)) => {
            let readiness = Readiness::not_yet(format!("log:{}: no such line yet", pattern.as_str()));
            watch_lines(resources, incarnation, pattern, readiness.clone());
            readiness
        }
        Some(GateAction::Notify) => {
            let readiness = Readiness::not_yet("notify: no READY=1 yet".to_owned());
            if let Some(listener) = resources.notify() {
                listener.expect(cgroup.map(Rc::as_ref), incarnation.process(), readiness.clone());
            }
            readiness
        }
        _ => return,
    };
    incarnation.listen(readiness);
}

fn watch_lines(
    resources: &Resources,
    incarnation: &Incarnation,
    pattern: &Pattern,
    readiness: Rc<Readiness>,
) {
    let Some(streams) = resources.streams() else { return };
    let (found, line) = match streams.promise() {
        Ok(promise) => promise,
        Err(error) => {
            warn!(container = resources.runtime().id(), %error, "its log gate stays closed");
            return;
        }
    };
    // The hand reads the lines. They come piece by piece, on two streams: each has its own matcher, and either may find it.
    let (found, pattern, steps) = (Arc::new(Mutex::new(Some(found))), pattern.clone(), pattern.size());
    let reader = move || {
        let (mut matcher, found) = (pattern.matcher(), found.clone());
        matcher.begin();
        move |piece: Piece<'_>| {
            let is_found = match piece {
                Piece::Part(text) => matcher.advance(text),
                Piece::End => matcher.end(),
            };
            let mut found = found.lock().unwrap_or_else(PoisonError::into_inner);
            if is_found && let Some(found) = found.take() {
                found.keep(());
            }
            // The line may have come on the other stream.
            if found.is_none() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        }
    };
    tokio::task::spawn_local(async move {
        // It fails when the streams end.
        if line.answer().await.is_ok() {
            readiness.became_ready();
        }
    });
    if let Some(terminal) = incarnation.terminal() {
        terminal.watch_lines(steps, reader.clone());
    }
    streams.watch_lines(resources.runtime().id().to_owned(), steps, reader);
}

/// Adds the socket and its name to the spec. An earlier NOTIFY_SOCKET is replaced: no other socket is there in the container.
fn add_socket(draft: SpecDraft, socket: &Path) -> Result<SpecDraft, Failure> {
    const NO_PLACE: &str =
        "its notify gate has no place for a socket: neither /dev nor /run is a tmpfs of the container's own";
    let added = draft.changed(|spec| mount_socket(spec, socket).ok_or_else(|| io::Error::other(NO_PLACE)));
    added.map_err(failure)
}

fn mount_socket(spec: &mut Value, socket: &Path) -> Option<()> {
    let mounts = spec.get_mut("mounts")?.as_array_mut()?;
    let is_own = |directory: &&&str| {
        let at = |mount: &&Value| {
            mount["destination"].as_str().is_some_and(|path| path.trim_end_matches('/') == **directory)
        };
        // A later mount hides an earlier one.
        mounts.iter().rfind(at).is_some_and(|mount| mount["type"] == "tmpfs")
    };
    let destination = format!("{}/{SOCKET_NAME}", SOCKET_DIRECTORIES.iter().find(is_own)?);
    // Only "bind": any other option needs a remount, which a user namespace may forbid.
    mounts.push(json!({
        "destination": destination, "type": "bind", "source": socket.to_string_lossy(), "options": ["bind"]
    }));
    let environment = spec.pointer_mut("/process/env");
    let variable = Value::from(format!("{NOTIFY_SOCKET}{destination}"));
    match environment.and_then(Value::as_array_mut) {
        Some(environment) => {
            environment.retain(|entry| !entry.as_str().is_some_and(|entry| entry.starts_with(NOTIFY_SOCKET)));
            environment.push(variable);
        }
        None => spec["process"]["env"] = Value::Array(vec![variable]),
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mounted(mut spec: Value) -> Option<Value> {
        mount_socket(&mut spec, Path::new("/bundle/notify.sock")).map(|()| spec)
    }

    /// U2: the container gets the socket and its name, and keeps all it had.
    #[test]
    fn u2_the_notify_socket_is_added_to_the_spec() {
        let dev = json!({"destination": "/dev", "type": "tmpfs", "source": "tmpfs"});
        let spec = mounted(json!({
            "ociVersion": "1.0.2", "x": 1, "mounts": [dev],
            "process": {"args": ["a"], "env": ["PATH=/bin", "NOTIFY_SOCKET=/of/the/node", "NOTIFY_SOCKETS=x"]},
        }));
        let socket = json!({
            "destination": "/dev/podshim-notify", "type": "bind", "source": "/bundle/notify.sock", "options": ["bind"],
        });
        let expected = json!({
            "ociVersion": "1.0.2", "x": 1, "mounts": [dev, socket],
            "process": {
                "args": ["a"], "env": ["PATH=/bin", "NOTIFY_SOCKETS=x", "NOTIFY_SOCKET=/dev/podshim-notify"],
            },
        });
        assert_eq!(spec, Some(expected));
        let without_environment =
            mounted(json!({"mounts": [dev], "process": {"args": ["a"]}})).expect("mounted");
        assert_eq!(without_environment["process"]["env"], json!(["NOTIFY_SOCKET=/dev/podshim-notify"]));
    }

    /// DESIGN §6: where a volume of the node lies over the directory, no file is created in it.
    #[test]
    fn u2_the_notify_socket_is_never_put_into_a_volume() {
        let tmpfs = |path: &str| json!({"destination": path, "type": "tmpfs"});
        let volume = |path: &str| json!({"destination": path, "type": "bind", "source": "/x"});
        for (mounts, place) in [
            (json!([tmpfs("/dev"), volume("/dev/shm")]), Some("/dev/podshim-notify")),
            (json!([tmpfs("/dev"), volume("/dev"), tmpfs("/run/")]), Some("/run/podshim-notify")),
            (json!([volume("/dev")]), None),
            (json!([tmpfs("/dev"), volume("/dev/")]), None),
            (json!([]), None),
        ] {
            let spec = mounted(json!({"mounts": mounts, "process": {}}));
            let found = spec.as_ref().map(|spec| spec["mounts"].as_array().expect("mounts"));
            let found = found.and_then(|mounts| mounts.last()?["destination"].as_str());
            assert_eq!(found, place, "{mounts}");
        }
    }
}
