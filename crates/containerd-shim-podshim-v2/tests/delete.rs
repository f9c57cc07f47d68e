//! `delete` as containerd runs it: it reports recorded exits, leaves live pods alone, and ends pods whose shim died.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

mod common;

use std::fs;
use std::io::Write;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, UNIX_EPOCH};

use common::container::{RealContainer, is_running};
use common::{LIMIT, Node, answer, end, finish, shut_down, spawn, wait_until};
use containerd_shim_protos::api::{CreateTaskRequest, DeleteResponse};
use containerd_shim_protos::protobuf::well_known_types::any::Any;
use containerd_shim_protos::sandbox_api::{CreateSandboxRequest, SandboxStatusRequest, StartSandboxRequest};
use containerd_shim_protos::sandbox_sync::SandboxClient;
use containerd_shim_protos::ttrpc::context::with_duration;
use containerd_shim_protos::{Client, TaskClient};
use nix::sys::signal::Signal;
use nix::unistd::Pid;
use oci_runtime::bundle::{Bundle, ExitRecord};

const TYPE: &str = "io.kubernetes.cri.container-type";
const SANDBOX: &str = "io.kubernetes.cri.sandbox-id";
const NAME: &str = "io.kubernetes.cri.container-name";

/// CONTRACT §1.8, trap 17: containerd also calls it for bundles whose Create never happened, and repeatedly.
#[test]
fn without_any_file_the_answer_is_empty() {
    let node = Node::new("bare");
    fs::create_dir_all(node.bundle("c1")).unwrap();
    for _ in 0..2 {
        assert_eq!(answer(node.delete("c1")), DeleteResponse::default());
    }
    assert_eq!(node.leftovers(), Vec::<String>::new());
}

/// Trap 16: the exit that the server recorded is reported, not 137; without a record the container counts as killed.
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

/// N3: in a live pod, `delete` for one container ends no container, not even that one: the server owns them.
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

/// N3, N10: a killed shim. containerd runs `delete` for every id at once; afterwards nothing of the pod is left, and
/// mains were asked to end before their sidecar.
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
    // The sandbox is killed without being asked first.
    assert_eq!(fs::read_to_string(node.dir.path().join("log/order")).unwrap(), "app\nproxy\n");
    assert_eq!(node.leftovers(), Vec::<String>::new());
}

/// N3, N10 with a sandbox that podshim made: no OCI runtime knows it, and the first `delete` ends it all the same, after the others.
/// They share its pid namespace: a sandbox that ends before them takes them along.
#[test]
fn a_dead_shims_own_sandbox_is_ended_last_from_each_bundle() {
    let plan = ("podshim.io/plan", "proxy=sidecar, app=main");
    for order in [["pause", "proxy", "app"], ["app", "pause", "proxy"]] {
        let node = Node::new("own");
        let bundle = node.make_bundle("pause", &[(TYPE, "sandbox"), (SANDBOX, "pause"), plan]);
        add_sandbox_spec(&bundle);
        let address = node.started("pause");
        let task = TaskClient::new(Client::connect(&address).unwrap());
        let create = CreateTaskRequest {
            id: "pause".to_owned(),
            bundle: bundle.display().to_string(),
            ..Default::default()
        };
        let pause = Pid::from_raw(task.create(with_duration(LIMIT), &create).unwrap().pid.cast_signed());
        let containers = ["proxy", "app"].map(|name| {
            let annotations = [(TYPE, "container"), (SANDBOX, "pause"), (NAME, name), plan];
            let container = RealContainer::run_beside(&node, name, &annotations, pause);
            assert_eq!(node.started(name), address);
            container
        });
        end(node.server(), Signal::SIGKILL);
        assert!(is_running(pause), "no shim, but a sandbox");
        answer(node.delete(order[0]));
        // It left its groups just before.
        wait_until("the sandbox's end", || !is_running(pause));
        for container in &containers {
            assert!(!container.lives(), "{order:?}: {:?} still runs", container.id());
        }
        let log = fs::read_to_string(node.dir.path().join("log/order")).unwrap();
        assert_eq!(log, "app\nproxy\n", "{order:?}");
        for id in &order[1..] {
            answer(node.delete(id));
        }
        let record = format!("/run/containerd/runc/.{}.podshim", node.namespace);
        assert!(!Path::new(&record).exists(), "{order:?}");
        assert_eq!(node.leftovers(), Vec::<String>::new(), "{order:?}");
    }
}

/// What podshim needs to make a sandbox itself.
fn add_sandbox_spec(bundle: &Path) {
    let config = bundle.join("config.json");
    let mut spec: serde_json::Value = serde_json::from_slice(&fs::read(&config).unwrap()).unwrap();
    spec["linux"] = serde_json::json!({
        "cgroupsPath": format!("/podshim-test-{}-pause", std::process::id()),
        "namespaces": [{"type": "pid"}, {"type": "mount"}, {"type": "ipc"}, {"type": "uts"}],
    });
    fs::write(&config, spec.to_string()).unwrap();
}

/// N3, N10 with the Sandbox API: containerd keeps the sandbox's bundle in another folder than the containers', and runs `delete`
/// for them in any order. The first one ends the pod in its order, whichever it is for.
#[test]
fn a_dead_shims_pod_of_the_sandbox_api_is_ended_in_order_from_each_bundle() {
    for order in [["pod", "proxy", "app"], ["proxy", "app", "pod"], ["app", "pod", "proxy"]] {
        let node = Node::of_sandbox_api("api", "pod");
        let address = node.started("pod");
        let place = sandbox_of(&node, &address);
        let plan = ("podshim.io/plan", "proxy=sidecar, app=main");
        let containers = ["proxy", "app"].map(|name| {
            let annotations = [(TYPE, "container"), (SANDBOX, "pod"), (NAME, name), plan];
            let container = RealContainer::run(&node, name, &annotations);
            assert_eq!(node.started(name), address);
            container
        });
        end(node.server(), Signal::SIGKILL);
        assert!(place.join("ipc").exists(), "what the shim held is still there");
        answer(node.delete(order[0]));
        for container in &containers {
            assert!(!container.lives(), "{order:?}: {:?} still runs", container.id());
        }
        assert_eq!(
            fs::read_to_string(node.dir.path().join("log/order")).unwrap(),
            "app\nproxy\n",
            "{order:?}"
        );
        assert!(!place.exists(), "{order:?}: {}", place.display());
        for id in &order[1..] {
            answer(node.delete(id));
        }
        assert_eq!(node.leftovers(), Vec::<String>::new(), "{order:?}");
    }
}

/// With a process 1, for a pod that shares its pid namespace, it has control groups and a record besides.
#[test]
fn a_dead_shims_process_1_of_the_sandbox_api_is_ended() {
    let node = Node::of_sandbox_api("process-1", "pod");
    let address = node.started("pod");
    let parent = format!("/podshim-test-{}-api", std::process::id());
    let message =
        |number: u8, bytes: &[u8]| [&[number << 3 | 2, bytes.len().try_into().unwrap()], bytes].concat();
    // The node's network, and the pid namespace of the pod, which is 0.
    let namespaces = message(1, &[1 << 3, 2]);
    let linux = [message(1, parent.as_bytes()), message(2, &namespaces)].concat();
    let options = Any {
        type_url: "runtime.v1.PodSandboxConfig".to_owned(),
        value: message(8, &linux),
        ..Any::default()
    };
    let place = sandbox_with(&node, &address, Some(options));
    let status = SandboxStatusRequest { sandbox_id: "pod".to_owned(), verbose: true, ..Default::default() };
    let sandbox = SandboxClient::new(Client::connect(&address).unwrap());
    let status = sandbox.sandbox_status(with_duration(LIMIT), &status).unwrap();
    // Its pid is 0 for containerd, not for a person.
    let info: serde_json::Value = serde_json::from_str(&status.info["info"]).unwrap();
    let pid = u32::try_from(info["pid"].as_u64().unwrap()).unwrap();
    let process_1 = Pid::from_raw(pid.cast_signed());
    assert!(is_running(process_1), "{pid}");
    let membership = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap();
    assert!(membership.contains(&format!("{parent}/pod")), "{membership}");
    end(node.server(), Signal::SIGKILL);
    assert!(is_running(process_1) && place.join("ipc").exists());
    let record = format!("/run/containerd/runc/.{}.podshim", node.namespace);
    assert!(Path::new(&record).exists());
    answer(node.delete("pod"));
    wait_until("the end of process 1", || !is_running(process_1));
    assert!(!place.exists(), "{}", place.display());
    assert!(!Path::new(&record).exists());
    let root = PathBuf::from("/sys/fs/cgroup");
    let hierarchies: Vec<_> = fs::read_dir(&root).unwrap().flatten().map(|entry| entry.path()).collect();
    for directory in hierarchies.into_iter().chain([root]) {
        let group = directory.join(&parent[1..]);
        assert!(!group.join("pod").exists(), "{}", group.display());
        let _ = fs::remove_dir(group);
    }
    assert_eq!(node.leftovers(), Vec::<String>::new());
}

/// Has the shim make and start the sandbox `pod`. Returns where its mounts are.
fn sandbox_of(node: &Node, address: &str) -> PathBuf {
    sandbox_with(node, address, None)
}

/// [`sandbox_of`] with options.
fn sandbox_with(node: &Node, address: &str, options: Option<Any>) -> PathBuf {
    let sandbox = SandboxClient::new(Client::connect(address).unwrap());
    let create = CreateSandboxRequest {
        sandbox_id: "pod".to_owned(),
        bundle_path: node.bundle("pod").display().to_string(),
        options: options.into(),
        ..Default::default()
    };
    sandbox.create_sandbox(with_duration(LIMIT), &create).unwrap();
    let start = StartSandboxRequest { sandbox_id: "pod".to_owned(), ..Default::default() };
    sandbox.start_sandbox(with_duration(LIMIT), &start).unwrap();
    let states = fs::read_dir(node.state_dir()).unwrap().flatten();
    let mut places = states.map(|state| state.path().join("sandbox"));
    places.find(|place| place.exists()).expect("its mounts are below the pod's state")
}

/// Without a plan there is no order to keep, only an end, as with containerd's own shim.
#[test]
fn a_dead_shims_container_without_a_plan_is_killed() {
    let node = Node::new("plain");
    let container = RealContainer::run(&node, "c1", &[]);
    let address = node.started("c1");
    // As if the shim was killed during the handover of a terminal.
    let consoles = shim_service::console_directory(Path::new(address.trim_start_matches("unix://")));
    fs::create_dir_all(consoles.join("XXXXXX")).unwrap();
    end(node.server(), Signal::SIGKILL);
    assert_eq!(answer(node.delete("c1")).exit_status, 137);
    assert!(!container.lives());
    assert!(!consoles.exists());
    assert!(!node.dir.path().join("log/order").exists());
    assert_eq!(node.leftovers(), Vec::<String>::new());
}

/// N3: the kernel closes a killed shim's connections before its listening socket and its lock, and containerd calls
/// `delete` at once. A `delete` that took the shim for alive would end nothing, and containerd would remove the bundle
/// by which others could find the container.
#[test]
fn n3_a_shim_that_is_being_killed_is_not_taken_for_alive() {
    let node = Node::new("dying");
    let container = RealContainer::run(&node, "c1", &[]);
    let socket = node.started("c1").replace("unix://", "");
    end(node.server(), Signal::SIGKILL);
    // Plays the rest of the shim for as long as the test likes: a process without a program, a socket and a lock.
    let dying = spawn(&mut Command::new("true"));
    wait_until("the end of the process", || fs::read_link(format!("/proc/{}/exe", dying.id())).is_err());
    fs::remove_file(&socket).unwrap();
    let listener = UnixListener::bind(&socket).unwrap();
    let state = fs::read_dir(node.state_dir()).unwrap().next().unwrap().unwrap();
    let lock = fs::File::options().write(true).truncate(true).open(state.path().join("server.lock")).unwrap();
    writeln!(&lock, "{}", dying.id()).unwrap();
    lock.lock().unwrap();
    let mut delete = spawn(&mut node.command("c1", "delete"));
    wait_until("the delete to wait for the lock", || waits_for_lock(delete.id()));
    assert_eq!(delete.try_wait().unwrap(), None, "it thinks the shim alive");
    // The listening socket is closed last.
    drop(lock);
    assert_eq!(answer(finish(delete)).exit_status, 137);
    assert!(!container.lives() && !container.state().exists());
    drop(listener);
    finish(dying);
}

/// Whether one of its threads waits in `flock`, or it has ended.
fn waits_for_lock(process: u32) -> bool {
    let Ok(threads) = fs::read_dir(format!("/proc/{process}/task")) else { return true };
    let is_waiting = |thread: fs::DirEntry| {
        let call = fs::read_to_string(thread.path().join("syscall")).unwrap_or_default();
        call.split(' ').next() == Some(&libc::SYS_flock.to_string())
    };
    fs::read_link(format!("/proc/{process}/exe")).is_err() || threads.flatten().any(is_waiting)
}
