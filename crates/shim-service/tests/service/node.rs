//! What the node's files mean for pods: its configuration, the drain, systemd's scopes.

use std::fs;
use std::path::Path;

use nix::sys::stat::Mode;
use serde_json::Value;
use ttrpc::Code;

use crate::PLAN;
use crate::support::{context, refusal, with_pod};

/// DESIGN §5, S1: with a mistake in the file, pods with annotations are refused, with file, line and key, before anything is
/// run. Other pods do not depend on it.
#[test]
fn s5_a_mistake_in_the_nodes_file_refuses_planned_pods_only() {
    with_pod(async |pod| {
        let file = pod.directory.path().join("config.toml");
        fs::write(&file, "grace = \"5s\"\nforbit = [\"exec:\"]\n").unwrap();
        let bundle = pod.bundle("app", "exec sleep 60", &[PLAN]);
        let (code, text) = refusal(pod.create("app").await);
        assert_eq!(code, Code::INVALID_ARGUMENT);
        let expected =
            format!("{}: line 2: unknown key \"forbit\" (did you mean \"forbid\"?)", file.display());
        assert!(text.contains(&expected), "{text}");
        assert!(!bundle.join("calls").exists(), "the runtime was called");

        pod.run("other", "exec sleep 60", &[]).await;
        fs::write(&file, "forbid = [\"pre-stop\"]\n").unwrap();
        let hook = ("podshim.io/pre-stop.proxy", "exec:true");
        pod.bundle("proxy", "exec sleep 60", &[PLAN, hook]);
        let (_, text) = refusal(pod.create("proxy").await);
        assert!(text.contains("podshim.io/pre-stop.proxy: \"pre-stop\" is forbidden on this node"), "{text}");
        pod.create("app").await.unwrap();
        for id in ["other", "app"] {
            pod.kill(id, 9).await.unwrap();
            pod.wait(id).await.unwrap();
            pod.delete(id).await.unwrap();
        }
    });
}

/// 11.4: CRI gives each container the annotations of its pod. They are read once, and the node's file with them: to open a
/// fifo in its place would hang.
#[test]
fn s5_the_plan_and_the_nodes_file_are_read_once_for_a_pod() {
    with_pod(async |pod| {
        pod.run("app", "exec sleep 60", &[PLAN]).await;
        nix::unistd::mkfifo(&pod.directory.path().join("config.toml"), Mode::S_IRWXU).unwrap();
        pod.run("other", "exec sleep 60", &[PLAN]).await;
        for id in ["other", "app"] {
            pod.kill(id, 9).await.unwrap();
            pod.wait(id).await.unwrap();
            pod.delete(id).await.unwrap();
        }
    });
}

/// N7: a kubelet would recreate what a drain stops, so creates are refused. Existing containers go on, and after the drain
/// creates work.
#[test]
fn n7_a_node_that_is_draining_takes_nothing_new() {
    with_pod(async |pod| {
        let file = pod.directory.path().join("draining");
        pod.run("old", "exec sleep 60", &[]).await;
        fs::write(&file, "").unwrap();
        let bundle = pod.bundle("new", "exec sleep 60", &[]);
        let (code, text) = refusal(pod.create("new").await);
        assert_eq!(code, Code::UNAVAILABLE);
        assert!(text.contains("container new: node is draining ("), "{text}");
        assert!(!bundle.join("calls").exists(), "the runtime was called");
        fs::remove_file(&file).unwrap();
        pod.create("new").await.unwrap();
        for id in ["old", "new"] {
            pod.kill(id, 9).await.unwrap();
            pod.wait(id).await.unwrap();
            pod.delete(id).await.unwrap();
        }
    });
}

/// N5, R6: every scope is stopped after the drain; the OCI runtime reads that from the spec.
#[test]
fn n5_systemd_has_to_wait_for_the_drain() {
    with_pod(async |pod| {
        for (id, annotations) in [("app", vec![PLAN]), ("proxy", vec![PLAN]), ("plain", vec![])] {
            in_scope(&pod.bundle(id, "exec sleep 60", &annotations), id);
            let mut request = pod.create_request(id);
            // Set, as this node's own init may not be systemd (DESIGN §5).
            request.options.as_mut().unwrap().value.extend(SYSTEMD_CGROUP);
            pod.client.create(context(), &request).await.unwrap();
        }
        let property = |id: &str, name: &str| {
            let spec = spec_of(&pod.directory.path().join(id));
            spec["annotations"][format!("org.systemd.property.{name}")].as_str().map(str::to_owned)
        };
        // R6: no scope names another that can be recreated. S8: a container outside the plan is after the drain too.
        for id in ["app", "proxy", "plain"] {
            assert_eq!(property(id, "Before").unwrap(), "['podshim-drain.service', 'shutdown.target']");
            assert_eq!(property(id, "After"), None);
        }
        assert_eq!(property("proxy", "TimeoutStopUSec").unwrap(), "uint64 32000000");
        for id in ["app", "proxy", "plain"] {
            pod.kill(id, 9).await.unwrap();
            pod.wait(id).await.unwrap();
            pod.delete(id).await.unwrap();
        }
    });
}

/// S1: the OCI runtime gets the spec as containerd has written it.
#[test]
fn s1_n5_without_a_plan_the_spec_is_not_touched() {
    with_pod(async |pod| {
        let bundle = pod.bundle("plain", "exec sleep 60", &[]);
        in_scope(&bundle, "plain");
        let before = fs::read(bundle.join("config.json")).unwrap();
        pod.create("plain").await.unwrap();
        assert_eq!(fs::read(bundle.join("config.json")).unwrap(), before);
        pod.kill("plain", 9).await.unwrap();
        pod.wait("plain").await.unwrap();
        pod.delete("plain").await.unwrap();
    });
}

/// `systemd_cgroup` of `containerd.runc.v1.Options` as a field: 9, a varint, true.
const SYSTEMD_CGROUP: [u8; 2] = [9 << 3, 1];

fn spec_of(bundle: &Path) -> Value {
    serde_json::from_slice(&fs::read(bundle.join("config.json")).unwrap()).unwrap()
}

/// `cgroupsPath` as CRI writes it for the systemd driver.
fn in_scope(bundle: &Path, id: &str) {
    let mut spec = spec_of(bundle);
    spec["linux"]["cgroupsPath"] = format!("pods.slice:test:{id}").into();
    fs::write(bundle.join("config.json"), spec.to_string()).unwrap();
}

/// S12: a pod with Kruise's marks alone does not depend on the node's file; its word makes a plan of them.
#[test]
fn s12_marks_count_where_the_nodes_file_says_so() {
    const MARKS: (&str, &str) = ("kruise.io/sidecarset-hash", r#"{"logs":{"sidecarList":["tail"]}}"#);
    let started: &[&str] = &["create", "start"];
    for (file, calls) in [
        ("", started),
        ("read = [\"kruise\"]\nforbit = []\n", started),
        ("read = [\"kruise\"]\n", &["create"]),
    ] {
        with_pod(async |pod| {
            fs::write(pod.directory.path().join("config.toml"), file).unwrap();
            pod.run("app", "exec sleep 60", &[MARKS]).await;
            assert_eq!(pod.calls("app"), calls, "{file}");
            pod.kill("app", 9).await.unwrap();
            pod.wait("app").await.unwrap();
            pod.delete("app").await.unwrap();
        });
    }
}
