//! `delete` as containerd runs it: recorded exits, hands off live pods, and the end of a pod whose shim died.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

mod common;

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, UNIX_EPOCH};

use common::{Node, end, finish, shut_down, spawn, succeeded, wait_until};
use containerd_shim_protos::api::DeleteResponse;
use containerd_shim_protos::protobuf::Message;
use nix::sys::signal::Signal;
use nix::unistd::Pid;
use oci_runtime::bundle::{Bundle, ExitRecord};
use shim_service::options::RuntimeOptions;

const TYPE: &str = "io.kubernetes.cri.container-type";
const SANDBOX: &str = "io.kubernetes.cri.sandbox-id";
const NAME: &str = "io.kubernetes.cri.container-name";

fn answer(output: std::process::Output) -> DeleteResponse {
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    assert!(output.status.success(), "{}", output.status);
    DeleteResponse::parse_from_bytes(&output.stdout).unwrap()
}

/// A container of real runc whose program notes in `log` that it started and that it was asked to end.
struct RealContainer {
    bundle: Bundle,
    root: std::path::PathBuf,
}

impl RealContainer {
    fn run(node: &Node, id: &str, annotations: &[(&str, &str)]) -> Self {
        let path = node.bundle(id);
        let log = node.dir.path().join("log");
        for dir in ["rootfs/bin", "rootfs/log", "rootfs/proc", "rootfs/dev", "rootfs/sys"] {
            fs::create_dir_all(path.join(dir)).unwrap();
        }
        fs::create_dir_all(&log).unwrap();
        fs::copy("/bin/busybox", path.join("rootfs/bin/busybox")).expect("busybox-static is installed");
        succeeded(finish(spawn(quiet(Command::new("runc").args(["spec", "--bundle"]).arg(&path)))));
        let config = path.join("config.json");
        let mut spec: serde_json::Value = serde_json::from_slice(&fs::read(&config).unwrap()).unwrap();
        // A plain read waits for nothing but the signal; the trap runs as soon as the read ends.
        let script = format!(
            "trap 'echo {id} >> /log/order; exit 0' TERM; echo up > /log/{id}; while :; do busybox sleep 1 & wait $!; done"
        );
        spec["process"]["args"] = serde_json::json!(["/bin/busybox", "sh", "-c", script]);
        spec["process"]["env"] = serde_json::json!(["PATH=/bin"]);
        spec["process"]["terminal"] = false.into();
        spec["root"]["readonly"] = false.into();
        spec["annotations"] =
            annotations.iter().map(|(key, value)| ((*key).to_owned(), serde_json::json!(value))).collect();
        let bind =
            serde_json::json!({ "destination": "/log", "type": "bind", "source": log, "options": ["rbind"] });
        spec["mounts"].as_array_mut().unwrap().push(bind);
        fs::write(&config, spec.to_string()).unwrap();

        let root = node.dir.path().join("runc");
        let bundle = Bundle::new(&path);
        let options = RuntimeOptions { root: Some(root.clone()), ..RuntimeOptions::default() };
        options.save(&bundle).unwrap();
        let root = root.join(&node.namespace);
        let mut create = Command::new("runc");
        create.arg("--root").arg(&root).args(["run", "--detach", "--pid-file"]).arg(bundle.init_pid_path());
        create.arg("--bundle").arg(&path).arg(id);
        // The container keeps these: pipes would keep the test waiting.
        create.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        assert!(finish(spawn(&mut create)).status.success(), "runc run {id}");
        wait_until("the container's start", || log.join(id).exists());
        Self { bundle, root }
    }

    fn pid(&self) -> Pid {
        self.bundle.read_init_pid().unwrap()
    }

    fn lives(&self) -> bool {
        // A zombie waits for whoever is init here: it has ended.
        fs::read_to_string(format!("/proc/{}/stat", self.pid())).is_ok_and(|stat| !stat.contains(") Z "))
    }

    fn id(&self) -> &Path {
        Path::new(self.bundle.path().file_name().unwrap())
    }
}

impl Drop for RealContainer {
    fn drop(&mut self) {
        let mut delete = Command::new("runc");
        delete.arg("--root").arg(&self.root).args(["delete", "--force"]).arg(self.id());
        finish(spawn(quiet(&mut delete)));
    }
}

fn quiet(command: &mut Command) -> &mut Command {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null())
}

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
    bundle.write_exit(&ExitRecord { pid: Pid::from_raw(42), exit_status: 3, exited_at }).unwrap();
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
    node.started("c1");
    end(node.server(), Signal::SIGKILL);
    assert_eq!(answer(node.delete("c1")).exit_status, 137);
    assert!(!container.lives());
    assert!(!node.dir.path().join("log/order").exists());
    assert_eq!(node.leftovers(), Vec::<String>::new());
}
