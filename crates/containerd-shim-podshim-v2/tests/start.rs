//! `start` as containerd runs it: one shim for each pod, an address in time, nothing left after a failure.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

mod common;

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::Stdio;

use common::{Cgroups, Node, end, failed, finish, shut_down, spawn, succeeded};
use containerd_shim_protos::protobuf::well_known_types::any::Any;
use nix::sys::signal::Signal;

const GROUP: &str = "io.containerd.runc.v2.group";
const TYPE: &str = "io.kubernetes.cri.container-type";
const SANDBOX: &str = "io.kubernetes.cri.sandbox-id";

fn path_of(address: &str) -> &str {
    address.strip_prefix("unix://").expect("a plain unix address")
}

/// CONTRACT §1.3 and §1.4, trap 2: a plain address on stdout, live when printed, and in the bundle too. The server runs
/// independently, and leaves nothing when it ends in an orderly way.
#[test]
fn a_shim_for_one_container() {
    let node = Node::new("one");
    let bundle = node.make_bundle("c1", &[]);
    let address = node.started("c1");
    UnixStream::connect(path_of(&address)).unwrap();
    assert_eq!(fs::read_to_string(bundle.join("address")).unwrap(), address);
    assert_eq!(fs::metadata(path_of(&address)).unwrap().permissions().mode() & 0o777, 0o600);

    let server = node.server();
    assert_eq!(nix::unistd::getpgid(Some(server)).unwrap(), server);
    for fd in 0..3 {
        assert_eq!(fs::read_link(format!("/proc/{server}/fd/{fd}")).unwrap().to_str(), Some("/dev/null"));
    }
    let score = |pid: &str| -> i32 {
        fs::read_to_string(format!("/proc/{pid}/oom_score_adj")).unwrap().trim().parse().unwrap()
    };
    assert_eq!(score(&server.to_string()), (score("self") + 1).min(1000));

    shut_down(server, &address);
    assert_eq!(node.leftovers(), Vec::<String>::new());
}

/// CONTRACT §2: the pause container makes the shim and the pod's containers find it; no second server is forked.
#[test]
fn containers_of_a_pod_share_the_sandboxes_shim() {
    let node = Node::new("pod");
    node.make_bundle("pause", &[(TYPE, "sandbox"), (SANDBOX, "pause")]);
    let bundle = node.make_bundle("app", &[(TYPE, "container"), (SANDBOX, "pause")]);
    let address = node.started("pause");
    let server = node.server();
    assert_eq!(node.started("app"), address);
    assert_eq!(fs::read_to_string(bundle.join("address")).unwrap(), address);
    assert_eq!(node.server(), server);
}

/// Two `start`s at once must not make two shims, whichever comes first.
#[test]
fn twenty_starts_make_one_shim() {
    let node = Node::new("race");
    for round in 0..3 {
        let group = format!("group-{round}");
        let ids: Vec<_> = (0..20).map(|n| format!("c{round}-{n}")).collect();
        for id in &ids {
            node.make_bundle(id, &[(GROUP, &group)]);
        }
        let starts: Vec<_> = ids.iter().map(|id| node.spawn_start(id, None)).collect();
        let addresses: BTreeSet<_> = starts.into_iter().map(|start| succeeded(finish(start))).collect();
        assert_eq!(addresses.len(), 1, "{addresses:?}");
        for address in &addresses {
            shut_down(node.server(), address);
        }
        assert_eq!(node.leftovers(), Vec::<String>::new());
    }
}

/// The socket of a killed shim blocks no `start`; `ctr` containers simply get a new shim.
#[test]
fn a_dead_shims_socket_is_replaced() {
    let node = Node::new("stale");
    node.make_bundle("c1", &[]);
    let address = node.started("c1");
    let killed = node.server();
    end(killed, Signal::SIGKILL);
    assert_eq!(node.started("c1"), address);
    assert_ne!(node.server(), killed);
}

/// N3: a new shim would not know the pod's plan.
#[test]
fn a_container_whose_pod_lost_its_shim_is_refused() {
    let node = Node::new("gone");
    node.make_bundle("app", &[(TYPE, "container"), (SANDBOX, "pod-7")]);
    let message = failed(node.start("app"));
    assert!(message.starts_with("the pod's shim is gone: container app belongs to pod pod-7"), "{message}");
    assert_eq!(node.leftovers(), Vec::<String>::new());
}

/// CONTRACT §1.2: 1.6 to 2.2 send nothing or options. Any other input is no reason to fail, and neither is an input
/// that never ends.
#[test]
fn standard_input_never_fails_a_start() {
    let node = Node::new("stdin");
    node.make_bundle("c1", &[]);
    let options = b"\x0a\x1acontainerd.runc.v1.Options\x12\x02\x08\x01";
    for input in [&b""[..], options, b"\x0a\x04acme", b"garbage", &[0xff; 100]] {
        let mut child = spawn(node.command("c1", "start").stdin(Stdio::piped()));
        child.stdin.take().unwrap().write_all(input).unwrap();
        let address = succeeded(finish(child));
        assert!(path_of(&address).starts_with("/run/containerd/s/"), "{address}");
    }
    let mut child = spawn(node.command("c1", "start").stdin(Stdio::piped()));
    let held_open = child.stdin.take();
    let address = succeeded(finish(child));
    drop(held_open);
    shut_down(node.server(), &address);
    assert_eq!(node.leftovers(), Vec::<String>::new());
}

/// CONTRACT §1.8: after a failed `start` containerd cleans up nothing.
#[test]
fn a_failed_start_leaves_nothing() {
    let node = Node::new("failed");
    node.make_bundle("c1", &[]);
    let options = Any {
        type_url: "containerd.runc.v1.Options".into(),
        value: b"\x1a\x09/none/one".to_vec(),
        ..Any::default()
    };
    let message = failed(finish(node.spawn_start("c1", Some(options))));
    assert!(message.contains("ShimCgroup: no cgroup \"/none/one\""), "{message}");
    assert_eq!(node.leftovers(), Vec::<String>::new());

    // The server already runs when writing the address fails.
    let bundle = node.make_bundle("c2", &[]);
    fs::create_dir(bundle.join("address")).unwrap();
    let message = failed(node.start("c2"));
    assert!(message.contains("address file in"), "{message}");
    assert_eq!(node.leftovers(), Vec::<String>::new());

    let bundle = node.make_bundle("c3", &[]);
    fs::write(bundle.join("config.json"), "{").unwrap();
    let message = failed(node.start("c3"));
    assert!(message.contains("config.json is damaged"), "{message}");
    assert_eq!(node.leftovers(), Vec::<String>::new());
}

/// A sandbox of `sandboxer = "shim"` has no config.json (CONTRACT §5). The runtime's options come with `start` alone, and its
/// CreateSandbox reads them from the bundle.
#[test]
fn a_bundle_without_a_spec_is_its_own_group_and_keeps_its_options() {
    let node = Node::new("specless");
    let bundle = node.make_bundle("c1", &[]);
    fs::remove_file(bundle.join("config.json")).unwrap();
    let options = Any {
        type_url: "containerd.runc.v1.Options".into(),
        value: b"\x32\x04crun".to_vec(),
        ..Any::default()
    };
    succeeded(finish(node.spawn_start("c1", Some(options))));
    let kept: serde_json::Value =
        serde_json::from_slice(&fs::read(bundle.join("options.json")).unwrap()).unwrap();
    assert_eq!(kept["binary_name"], "crun");
}

#[test]
fn run_by_hand_it_says_what_it_is() {
    let node = Node::new("hand");
    node.make_bundle("c1", &[]);
    let mut command = node.command("c1", "-unused");
    command.args(["-h"]);
    let message = failed(finish(spawn(&mut command)));
    assert!(message.contains("flag provided but not defined: -unused"), "{message}");

    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_containerd-shim-podshim-v2"));
    command.args(["-namespace", "n", "-id", "i", "-address", "a"]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let message = failed(finish(spawn(&mut command)));
    assert!(message.starts_with("without an action this program is the server"), "{message}");
}

/// CONTRACT §8, upstream's TestShimInCgroup: the server runs in the cgroup that the option names, which must exist.
#[test]
fn the_shim_goes_where_shim_cgroup_says() {
    let name = format!("podshim-start-{}", std::process::id());
    // v1: a new cpuset has no processors and accepts no process before it gets some.
    let cgroups = Cgroups::make(&name, &["memory", "pids"]);
    let node = Node::new("cgroup");
    node.make_bundle("c1", &[]);
    let mut value = vec![3 << 3 | 2, u8::try_from(name.len() + 1).unwrap(), b'/'];
    value.extend_from_slice(name.as_bytes());
    let options = Any { type_url: "containerd.runc.v1.Options".into(), value, ..Any::default() };
    let address = succeeded(finish(node.spawn_start("c1", Some(options))));
    let server = node.server();
    for cgroup in &cgroups.0 {
        assert_eq!(fs::read_to_string(cgroup.join("cgroup.procs")).unwrap(), format!("{server}\n"));
    }
    shut_down(server, &address);
    assert_eq!(node.leftovers(), Vec::<String>::new());
}

/// CONTRACT §1.1: `SCHED_CORE` asks for isolation. The server gets a cookie of its own, or there is no server.
#[test]
fn core_scheduling_is_done_or_refused() {
    let node = Node::new("core");
    node.make_bundle("c1", &[]);
    // In a process group of its own, as containerd runs it: the whole group gets the cookie.
    let output = finish(spawn(node.command("c1", "start").process_group(0).env("SCHED_CORE", "1")));
    if output.status.success() {
        let server = node.server();
        assert!(cookie(server.as_raw()).unwrap() != 0, "no cookie");
        assert_eq!(cookie(0).unwrap(), 0, "the caller has one too");
        shut_down(server, &succeeded(output));
    } else {
        let message = failed(output);
        assert!(message.contains("SCHED_CORE is set and core scheduling is not possible: "), "{message}");
        // The kernel refuses the same to every process.
        cookie(0).unwrap_err();
    }
    assert_eq!(node.leftovers(), Vec::<String>::new());
}

/// The core scheduling cookie of a process.
fn cookie(pid: i32) -> std::io::Result<u64> {
    const PR_SCHED_CORE: libc::c_int = 62;
    let mut cookie = 0u64;
    // PR_SCHED_CORE_GET, of a single thread.
    let (get, one_thread) = (0 as libc::c_ulong, 0 as libc::c_ulong);
    // SAFETY: the kernel writes one u64 through the pointer, which outlives the call.
    let result = unsafe {
        libc::prctl(PR_SCHED_CORE, get, pid as libc::c_ulong, one_thread, &raw mut cookie as libc::c_ulong)
    };
    if result == 0 { Ok(cookie) } else { Err(std::io::Error::last_os_error()) }
}
