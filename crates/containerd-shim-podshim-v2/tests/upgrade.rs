//! Other releases of podshim: how `delete` reads their files, and a program file that is replaced while it starts a
//! server (docs/upgrades.md). The e2e tests run two real builds.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

mod common;

use std::fs;
use std::io::Write;
use std::process::Stdio;

use common::container::RealContainer;
use common::{Node, answer, end, finish, shut_down, spawn, succeeded};
use containerd_shim_protos::api::DeleteResponse;
use containerd_shim_protos::protobuf::Message;
use nix::sys::signal::Signal;
use oci_runtime::bundle::Bundle;

/// A package manager replaces the program's file while `start` reads its input: the server is the build that was run,
/// not the file that lies there now.
#[test]
fn a_program_that_is_replaced_meanwhile_still_makes_a_server() {
    let mut node = Node::new("replaced");
    node.make_bundle("c1", &[]);
    let built = std::mem::replace(&mut node.program, node.dir.path().join("shim"));
    fs::copy(built, &node.program).unwrap();
    let mut start = spawn(node.command("c1", "start").stdin(Stdio::piped()));
    let new = node.dir.path().join("shim.new");
    fs::copy("/bin/false", &new).unwrap();
    fs::rename(new, &node.program).unwrap();
    start.stdin.take().unwrap().write_all(&node.bootstrap_params("c1", None)).unwrap();
    let address = succeeded(finish(start));
    let program = fs::read_link(format!("/proc/{}/exe", node.server())).unwrap();
    assert!(program.to_string_lossy().ends_with("/shim (deleted)"), "{}", program.display());
    shut_down(node.server(), &address);
}

/// Additions of a newer release to the files in a bundle are ignored: this release's `delete`, as after a downgrade,
/// finds runtime, group and exit.
#[test]
fn what_a_newer_release_has_added_is_ignored() {
    let node = Node::new("newer");
    let container = RealContainer::run(&node, "c1", &[]);
    node.started("c1");
    let options = container.bundle.path().join("options.json");
    let mut newer: serde_json::Value = serde_json::from_slice(&fs::read(&options).unwrap()).unwrap();
    newer["version"] = 2.into();
    newer["sandbox"] = serde_json::json!({ "root": "/elsewhere" });
    fs::write(&options, newer.to_string()).unwrap();
    let exit = r#"{"version":2,"pid":42,"exit_status":3,"exited_at_seconds":1,"exited_at_nanoseconds":0,"cause":{}}"#;
    fs::write(container.bundle.exit_path(), exit).unwrap();
    end(node.server(), Signal::SIGKILL);
    let deleted = answer(node.delete("c1"));
    assert_eq!((deleted.pid, deleted.exit_status), (42, 3));
    assert!(!container.lives() && !container.state().exists());
    assert_eq!(node.leftovers(), Vec::<String>::new());
}

/// A file that cannot be parsed at all is reported, and counts as missing: the container ends all the same.
#[test]
fn what_cannot_be_understood_is_reported_and_left_aside() {
    let node = Node::new("strange");
    let bundle = Bundle::new(node.make_bundle("c1", &[]));
    node.started("c1");
    for (name, text) in [
        ("options.json", r#"{"version":9,"binary_name":["runc"]}"#),
        ("exit.json", r#"{"version":9,"exit":{"code":3}}"#),
        // The address of a shim can also be computed.
        ("address", r#"{"version":9,"address":"unix:///elsewhere"}"#),
        ("init.pid", "4194304"),
    ] {
        fs::write(bundle.path().join(name), text).unwrap();
    }
    end(node.server(), Signal::SIGKILL);
    let deleted = finish(spawn(&mut node.command("c1", "delete")));
    let logged = String::from_utf8_lossy(&deleted.stderr);
    let mut lines = logged.lines();
    for what in ["options.json: invalid type", "exit.json is damaged: missing field"] {
        assert!(lines.next().is_some_and(|line| line.contains(what)), "no {what} in {logged}");
    }
    let answer = DeleteResponse::parse_from_bytes(&deleted.stdout).unwrap();
    assert_eq!((deleted.status.success(), answer.pid, answer.exit_status), (true, 4_194_304, 137));
}
