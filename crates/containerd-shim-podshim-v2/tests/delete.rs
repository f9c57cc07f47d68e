//! `delete` as containerd runs it: recorded exits, hands off live pods, and the end of a pod whose shim died.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

mod common;

use std::fs;
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use common::container::RealContainer;
use common::{Node, answer, end, finish, shut_down, spawn};
use containerd_shim_protos::api::DeleteResponse;
use nix::sys::signal::Signal;
use nix::unistd::Pid;
use oci_runtime::bundle::{Bundle, ExitRecord};

const TYPE: &str = "io.kubernetes.cri.container-type";
const SANDBOX: &str = "io.kubernetes.cri.sandbox-id";
const NAME: &str = "io.kubernetes.cri.container-name";

/// CONTRACT §1.8, trap 17: containerd calls it for bundles whose Create never happened, and again.
#[test]
fn without_any_file_the_answer_is_empty() {
    let node = Node::new("bare");
    fs::create_dir_all(node.bundle("c1")).unwrap();
    for _ in 0..2 {
        assert_eq!(answer(node.delete("c1")), DeleteResponse::default());
    }
    assert_eq!(node.leftovers(), Vec::<String>::new());
}

/// Trap 16: what the server recorded is reported, not 137; without a record the container counts as killed.
#[test]
fn the_recorded_exit_is_reported() {
    let node = Node::new("record");
    let bundle = Bundle::new(node.make_bundle("c1", &[]));
    fs::write(bundle.init_pid_path(), "4194304").unwrap();
    let unseen = answer(node.delete("c1"));
    assert_eq!((unseen.pid, unseen.exit_status), (4_194_304, 137));
    assert!(unseen.exited_at.seconds > 0);

    let exited_at = UNIX_EPOCH + Duration::from_secs(1_700_000_000);
    bundle
        .write_exit(&ExitRecord { pid: Pid::from_raw(42), exit_status: 3, real_exit_status: 3, exited_at })
        .unwrap();
    let seen = answer(node.delete("c1"));
    assert_eq!((seen.pid, seen.exit_status, seen.exited_at.seconds), (42, 3, 1_700_000_000));
    assert_eq!(node.leftovers(), Vec::<String>::new());
}

/// N3: the end of one container of a live pod touches no other, nor itself: the server owns them.
#[test]
fn a_live_pod_is_left_alone() {
    let node = Node::new("live");
    let pod = [(TYPE, "sandbox"), (SANDBOX, "pause")];
    let pause = RealContainer::run(&node, "pause", &pod);
    let address = node.started("pause");
    let app = RealContainer::run(&node, "app", &[(TYPE, "container"), (SANDBOX, "pause"), (NAME, "app")]);
    node.started("app");
    assert_eq!(answer(node.delete("app")).exit_status, 137);
    assert!(app.lives() && pause.lives());
    shut_down(node.server(), &address);
}

/// N3, N10: a killed shim. containerd runs `delete` for every id at once; afterwards nothing of the pod is left,
/// and mains were asked to end before their sidecar.
#[test]
fn a_dead_shims_pod_is_ended_in_order() {
    let node = Node::new("dead");
    let plan = ("podshim.io/plan", "proxy=sidecar, app=main");
    let annotations = |name| [(TYPE, "container"), (SANDBOX, "pause"), (NAME, name), plan];
    let pause = RealContainer::run(&node, "pause", &[(TYPE, "sandbox"), (SANDBOX, "pause"), plan]);
    let address = node.started("pause");
    let containers = [
        pause,
        RealContainer::run(&node, "proxy", &annotations("proxy")),
        RealContainer::run(&node, "app", &annotations("app")),
    ];
    let ids = ["pause", "proxy", "app"];
    for id in &ids[1..] {
        assert_eq!(node.started(id), address);
    }
    end(node.server(), Signal::SIGKILL);
    let deletes: Vec<_> = ids.iter().map(|id| spawn(&mut node.command(id, "delete"))).collect();
    for delete in deletes {
        let answer = answer(finish(delete));
        assert_eq!(answer.exit_status, 137);
    }
    for container in &containers {
        assert!(!container.lives(), "{:?} still runs", container.id());
        assert!(!container.root.join(container.id()).exists());
    }
    // The sandbox is killed, not asked.
    assert_eq!(fs::read_to_string(node.dir.path().join("log/order")).unwrap(), "app\nproxy\n");
    assert_eq!(node.leftovers(), Vec::<String>::new());
}

/// Without a plan there is no order to keep, only an end: as under containerd's own shim.
#[test]
fn a_dead_shims_container_without_a_plan_is_killed() {
    let node = Node::new("plain");
    let container = RealContainer::run(&node, "c1", &[]);
    let address = node.started("c1");
    // As if it was killed while a terminal was handed over.
    let consoles = shim_service::console_directory(Path::new(address.trim_start_matches("unix://")));
    fs::create_dir_all(consoles.join("XXXXXX")).unwrap();
    end(node.server(), Signal::SIGKILL);
    assert_eq!(answer(node.delete("c1")).exit_status, 137);
    assert!(!container.lives());
    assert!(!consoles.exists());
    assert!(!node.dir.path().join("log/order").exists());
    assert_eq!(node.leftovers(), Vec::<String>::new());
}
