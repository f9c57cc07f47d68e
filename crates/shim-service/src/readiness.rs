//! Hearing from a container that it is ready: lines of its output (`log:`) and its messages (`notify`).
//!
//! Owns what has been heard of each incarnation, from before its program starts, and the way the socket gets into the
//! container. What it means for the pod is `pod-lifecycle`'s.

use std::cell::{Cell, RefCell};
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use log_pattern::Pattern;
use oci_runtime::bundle::Bundle;
use oci_runtime::cgroup::Cgroup;
use oci_runtime::notify::{self, Message, NotifySocket, Sender};
use oci_runtime::stdio::{LineWatch, Piece, Watching};
use pod_lifecycle::{Failure, RefusalKind};
use pod_spec::GateAction;
use serde_json::{Value, json};
use tokio::sync::Notify;
use tracing::warn;

use crate::incarnation::failure;
use crate::resources::{Incarnation, Resources};
use crate::spec_file;

/// The socket's name in the container, in a directory that is the container's own: nothing is left in its image's file
/// system, and nothing of the node's is touched where a volume lies over that directory.
const SOCKET_NAME: &str = "podshim-notify";
/// Where it can be: the first one that is a tmpfs of the container. CRI and ctr give each container the first.
const SOCKET_DIRECTORIES: [&str; 2] = ["/dev", "/run"];
const NOTIFY_SOCKET: &str = "NOTIFY_SOCKET=";

/// What has been heard from one incarnation.
#[derive(Debug, Default)]
pub(crate) struct Heard {
    word: Cell<Word>,
    /// What there is to say while it is not ready.
    news: RefCell<String>,
    changed: Notify,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Word {
    #[default]
    Nothing,
    Ready,
}

impl Heard {
    fn is_ready(&self) -> bool {
        self.word.get() == Word::Ready
    }

    fn set_ready(&self) {
        self.word.set(Word::Ready);
        // Kept for the next waiter.
        self.changed.notify_one();
    }

    /// Waits for its word for at most `limit`; fails with what is known by then.
    pub(crate) async fn ready_within(&self, limit: Duration) -> Result<(), Failure> {
        let heard = async {
            while !self.is_ready() {
                self.changed.notified().await;
            }
        };
        match tokio::time::timeout(limit, heard).await {
            Ok(()) => Ok(()),
            Err(_) => Err(failure(self.news.borrow())),
        }
    }
}

/// The socket of a container whose gate is `notify`, over all its incarnations.
#[derive(Debug)]
pub(crate) struct Mailbox {
    _socket: NotifySocket,
    ear: Rc<RefCell<Option<Ear>>>,
}

/// Who is listened to at the moment.
#[derive(Debug)]
struct Ear {
    cgroup: Option<Rc<Cgroup>>,
    heard: Rc<Heard>,
}

/// Prepares the first create of a container for what its gate waits for.
///
/// # Errors
/// The gate could never open.
pub(crate) fn prepare(resources: &mut Resources, gate: &GateAction) -> Result<(), Failure> {
    match gate {
        GateAction::Log(_) if !resources.details.streams.paths().pass_output() => Err(Failure {
            message: format!(
                "container {}: its gate log: waits for a line, but its output does not pass through podshim: it needs \
                 fifos (as CRI has them) or a terminal, not a file, a logging program or nothing",
                resources.runtime.id()
            ),
            kind: RefusalKind::InvalidArgument,
        }),
        GateAction::Notify => {
            let ear: Rc<RefCell<Option<Ear>>> = Rc::default();
            add_socket(resources.bundle())?;
            let listening = ear.clone();
            let socket = NotifySocket::listen(
                resources.runtime.reaper(),
                resources.bundle(),
                move |sender, message| {
                    hear(&mut listening.borrow_mut(), &sender, message);
                },
            );
            let socket = socket
                .map_err(|error| failure(format!("cannot make the socket of its notify gate: {error}")))?;
            resources.mailbox = Some(Mailbox { _socket: socket, ear });
            Ok(())
        }
        _ => Ok(()),
    }
}

fn hear(ear: &mut Option<Ear>, sender: &Sender, message: Message) {
    // Whose gate is open may say what it likes.
    let Some(Ear { cgroup, heard }) = ear else { return };
    if message == Message::default() {
        return;
    }
    if !cgroup.as_ref().is_some_and(|cgroup| sender.is_in(cgroup)) {
        "notify: a message was not taken, for its sender is no process of the container"
            .clone_into(&mut heard.news.borrow_mut());
        return;
    }
    if let Some(status) = message.status {
        *heard.news.borrow_mut() = format!("notify: no READY=1 yet, its status is {status:?}");
    }
    if message.readiness == notify::Readiness::Ready {
        heard.set_ready();
        *ear = None;
    }
}

/// Begins to listen to a new incarnation, before its program runs. An earlier one is not listened to any more.
pub(crate) fn listen(
    resources: &Resources,
    incarnation: &mut Incarnation,
    gate: Option<&GateAction>,
    cgroup: Option<&Rc<Cgroup>>,
) {
    let heard = Rc::new(Heard::default());
    match gate {
        Some(GateAction::Log(pattern)) => {
            *heard.news.borrow_mut() = format!("log:{}: no such line yet", pattern.as_str());
            watch_lines(resources, incarnation, pattern, heard.clone());
        }
        Some(GateAction::Notify) => {
            "notify: no READY=1 yet".clone_into(&mut heard.news.borrow_mut());
            if let Some(mailbox) = &resources.mailbox {
                mailbox.ear.replace(Some(Ear { cgroup: cgroup.cloned(), heard: heard.clone() }));
            }
        }
        _ => return,
    }
    incarnation.heard = Some(heard);
}

fn watch_lines(resources: &Resources, incarnation: &Incarnation, pattern: &Pattern, heard: Rc<Heard>) {
    // Of both streams, whose lines come piece by piece: one matcher each.
    let watch = |heard: Rc<Heard>| {
        let mut matcher = pattern.matcher();
        matcher.begin();
        LineWatch::new(pattern.size(), resources.surroundings.looks.clone(), move |piece| {
            let is_found = match piece {
                Piece::Part(text) => matcher.advance(text),
                Piece::End => matcher.end(),
            };
            // The other stream may have had it.
            if !heard.is_ready() && !is_found {
                return Watching::GoesOn;
            }
            heard.set_ready();
            Watching::Ends
        })
    };
    if let Some(console) = &incarnation.console {
        console.watch_lines(&watch(heard.clone()));
    }
    if let Some(stdio) = &resources.stdio
        && let Err(error) = stdio.watch_lines(|| watch(heard.clone()))
    {
        warn!(container = resources.runtime.id(), %error, "cannot look at its output: its gate stays closed");
    }
}

/// Adds the socket and its name to the spec. A NOTIFY_SOCKET that was there is the node's or a mistake: it would lead
/// nowhere in the container.
fn add_socket(bundle: &Bundle) -> Result<(), Failure> {
    let mut mounted = None;
    let edited = spec_file::edit(bundle, |spec| mounted = mount_socket(spec, &bundle.notify_socket_path()));
    edited.map_err(|error| {
        failure(format!("cannot add the socket of its notify gate to config.json: {error}"))
    })?;
    mounted.ok_or_else(|| {
        failure("its notify gate has no place for a socket: neither /dev nor /run is a tmpfs of the container's own")
    })
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
    // Nothing but "bind": any other option is a remount, which a user namespace may forbid.
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

    /// U2: the container gets the socket and its name beside all it had.
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

    /// DESIGN §6: where a volume of the node lies over the directory, no file is made in it.
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
