//! `delete` with incomplete input: bundles that lack files, containers that were only half made (CONTRACT §1.8).

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

mod common;

use std::fs;
use std::path::Path;

use common::container::{RealContainer, Stage, is_running};
use common::{Node, answer, end, shut_down};
use containerd_shim_protos::api::DeleteResponse;
use nix::sys::signal::Signal;
use oci_runtime::bundle::Bundle;
use shim_service::options::RuntimeOptions;

/// Where both OCI runtimes keep their state unless an option names another directory: known without any file of the
/// bundle.
const DEFAULT_ROOT: &str = "/run/containerd/runc";
/// Every file that containerd, the shim and the OCI runtime put into a bundle.
const FILES: [&str; 8] =
    ["address", "config.json", "exit.json", "init.pid", "log", "log.json", "options.json", "rootfs"];

fn container(node: &Node, stage: Stage) -> RealContainer {
    let container = RealContainer::make(node, "c1", &[], stage, "runc", Path::new(DEFAULT_ROOT));
    fs::write(container.bundle.path().join("log.json"), "").unwrap();
    nix::unistd::mkfifo(&container.bundle.path().join("log"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    container
}

fn remove(path: &Path) {
    match fs::symlink_metadata(path) {
        Ok(metadata) if metadata.is_dir() => fs::remove_dir_all(path).unwrap(),
        Ok(_) => fs::remove_file(path).unwrap(),
        Err(_) => {}
    }
}

/// The shim is killed under a running container; then files are lost: each one alone, and all of them.
#[test]
fn the_container_ends_whatever_file_its_bundle_lacks() {
    let each = FILES.map(|file| vec![file]);
    for (number, missing) in each.into_iter().chain([FILES.to_vec()]).enumerate() {
        let node = Node::new(&format!("missing-{number}"));
        let container = container(&node, Stage::Started);
        node.started("c1");
        let (pid, state) = (container.pid(), container.state());
        end(node.server(), Signal::SIGKILL);
        for file in &missing {
            remove(&container.bundle.path().join(file));
        }
        let first = answer(node.delete("c1"));
        assert!(!state.exists() && !is_running(pid), "without {missing:?}");
        // No file is left that could report it again: as for a container that was never created.
        let expected =
            if missing.contains(&"init.pid") { (0, 0) } else { (pid.as_raw().unsigned_abs(), 137) };
        assert_eq!((first.pid, first.exit_status), expected, "without {missing:?}");
        let again = answer(node.delete("c1"));
        assert_eq!(
            (again.pid, again.exit_status, again.exited_at),
            (first.pid, first.exit_status, first.exited_at)
        );
        if !missing.contains(&"address") {
            assert_eq!(node.leftovers(), Vec::<String>::new(), "without {missing:?}");
        }
    }
}

/// The shim died between `create` and `start`.
#[test]
fn a_created_container_is_removed() {
    let node = Node::new("created");
    let container = container(&node, Stage::Created);
    node.started("c1");
    end(node.server(), Signal::SIGKILL);
    assert_eq!(answer(node.delete("c1")).exit_status, 137);
    assert!(!container.lives() && !container.state().exists());
    assert_eq!(node.leftovers(), Vec::<String>::new());
}

/// The OCI runtime was killed in the middle of `create`: it made a directory and recorded nothing in it.
#[test]
fn what_a_killed_create_left_is_removed() {
    for binary in ["runc", "crun"] {
        let node = Node::new(&format!("half-{binary}"));
        let bundle = Bundle::new(node.make_bundle("c1", &[]));
        let root = node.dir.path().join("state");
        let state = root.join(&node.namespace).join("c1");
        let options = RuntimeOptions {
            binary_name: Some(binary.to_owned()),
            root: Some(root),
            ..RuntimeOptions::default()
        };
        node.started("c1");
        options.save(&bundle).unwrap();
        fs::create_dir_all(&state).unwrap();
        end(node.server(), Signal::SIGKILL);
        for _ in 0..2 {
            assert_eq!(answer(node.delete("c1")), DeleteResponse::default(), "{binary}");
        }
        assert!(!state.exists(), "{binary} left {}", state.display());
        assert_eq!(node.leftovers(), Vec::<String>::new());
    }
}

/// `start` ran and Create never came, or failed: other containers of the pod live on.
#[test]
fn a_bundle_without_a_create_in_a_live_pod() {
    let node = Node::new("never");
    let pod = [("io.kubernetes.cri.container-type", "sandbox"), ("io.kubernetes.cri.sandbox-id", "c1")];
    let pause = RealContainer::run(&node, "c1", &pod);
    let address = node.started("c1");
    let member = [("io.kubernetes.cri.container-type", "container"), ("io.kubernetes.cri.sandbox-id", "c1")];
    for missing in [&[][..], &["config.json"], &["address"], &["address", "config.json"]] {
        let bundle = node.make_bundle("c2", &member);
        node.started("c2");
        for file in missing {
            remove(&bundle.join(file));
        }
        assert_eq!(answer(node.delete("c2")), DeleteResponse::default(), "without {missing:?}");
        assert!(pause.lives() && node.servers().len() == 1, "without {missing:?}");
    }
    shut_down(node.server(), &address);
}
