//! Traps of the bootstrap and of the server process (CONTRACT, "Traps"), tested with the built binary and without a
//! containerd: what 2.3 sends, a log with a bad reader, and what is left when a server ends. One test per trap, named
//! after it.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

mod common;

use std::fs::{self, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use common::{LIMIT, Node, end, failed, finish, shut_down, spawn, succeeded, wait_until};
use containerd_shim_protos::api::{DeleteResponse, KillRequest, PidsRequest, ShutdownRequest};
use containerd_shim_protos::bootstrap_api::BootstrapResult;
use containerd_shim_protos::protobuf::Message;
use containerd_shim_protos::protobuf::well_known_types::any::Any;
use containerd_shim_protos::{Client, TaskClient, ttrpc};
use nix::sys::signal::Signal;
use nix::sys::stat::Mode;
use oci_runtime::bundle::{Bundle, ExitRecord};

const TYPE: &str = "io.kubernetes.cri.container-type";
const SANDBOX: &str = "io.kubernetes.cri.sandbox-id";

/// Runs a `start` with stdout and stderr in one pipe, as containerd does, and returns all output up to its end.
fn combined_output(mut command: Command, input: &[u8]) -> String {
    let (mut reader, writer) = std::io::pipe().unwrap();
    command.stdin(Stdio::piped()).stdout(writer.try_clone().unwrap()).stderr(writer);
    let mut child = spawn(&mut command);
    // The command holds the write ends too.
    drop(command);
    child.stdin.take().unwrap().write_all(input).unwrap();
    let mut output = String::new();
    reader.read_to_string(&mut output).unwrap();
    assert!(finish(child).status.success(), "{output}");
    output
}

fn runc_options(value: &[u8]) -> Any {
    Any { type_url: "containerd.runc.v1.Options".into(), value: value.to_vec(), ..Any::default() }
}

/// Trap 1: containerd takes stdout and stderr together for the address. Nothing that makes other programs print more
/// may add a word: not -debug, not a wrong environment, not a plan with warnings.
#[test]
fn trap_01_start_says_nothing_but_the_address() {
    let node = Node::new("trap01");
    let plan = ("podshim.io/plan", "proxy=sidecar, app=main");
    node.make_bundle("pause", &[(TYPE, "sandbox"), (SANDBOX, "pause"), plan, ("podshim.io/unknown", "x")]);
    node.make_bundle("app", &[(TYPE, "container"), (SANDBOX, "pause"), ("podshim.io/plan", "=")]);
    let input = node.bootstrap_params("pause", None);
    let start = |id: &str, input: &[u8]| {
        let mut command = node.command(id, "-debug");
        command.arg("start").env("RUST_LOG", "trace").env("RUST_BACKTRACE", "1");
        command.env("TTRPC_ADDRESS", "/nowhere").env("MAX_SHIM_VERSION", "x").env("GOMAXPROCS", "2");
        combined_output(command, input)
    };
    let first = start("pause", &input);
    let path = first.strip_prefix("unix://").expect("an address and nothing before it");
    assert_eq!(Path::new(path), fs::canonicalize(path).unwrap(), "something after the address");
    assert_eq!(start("app", &node.bootstrap_params("app", None)), first);
    shut_down(node.server(), &first);
    assert_eq!(node.leftovers(), Vec::<String>::new());
}

/// Trap 2: containerd reads until every process has closed the pipe. The server must not have it.
#[test]
fn trap_02_the_server_does_not_hold_starts_output() {
    let node = Node::new("trap02");
    node.make_bundle("c1", &[]);
    // Returns at the pipe's end; if the server held the pipe, never.
    let address = combined_output(node.command("c1", "start"), &node.bootstrap_params("c1", None));
    assert_eq!(node.started("c1"), address);
    shut_down(node.server(), &address);
}

/// Trap 3: 2.3's message decodes as an `Any` whose type is the container's id, whatever that is. Only the options and
/// the socket directory inside the message count.
#[test]
fn trap_03_bootstrap_params_are_not_options() {
    let node = Node::new("trap03");
    // The worst possible id.
    let id = "containerd.runc.v1.Options";
    node.make_bundle(id, &[]);
    let address = node.started(id);
    assert!(Path::new(&address["unix://".len()..]).starts_with(node.socket_dir()), "{address}");
    shut_down(node.server(), &address);
    // ShimCgroup, from the message's extension.
    let message = failed(finish(node.spawn_start(id, Some(runc_options(b"\x1a\x09/none/one")))));
    assert!(message.contains("/none/one"), "{message}");
    assert_eq!(node.leftovers(), Vec::<String>::new());
}

/// Trap 4: 1.6 takes the whole answer for an address, so every containerd gets the bare address; 2.3 first tries to
/// read it as protobuf, and that must fail.
#[test]
fn trap_04_the_answer_is_a_bare_address() {
    let node = Node::new("trap04");
    for id in ["c1", "c2", "c3", "c4"] {
        node.make_bundle(id, &[]);
        let address = node.started(id);
        assert!(address.starts_with("unix:///") && !address.contains(char::is_whitespace), "{address:?}");
        let as_protobuf = BootstrapResult::parse_from_bytes(address.as_bytes());
        assert!(as_protobuf.is_err(), "{as_protobuf:?}");
        let servers = node.servers();
        assert_eq!(servers.len(), 1, "{servers:?}");
        shut_down(servers[0], &address);
    }
}

/// Trap 25: every containerd but 1.6 sets MAX_SHIM_VERSION to 2, even those that support 3. The answer is the same for
/// any value.
#[test]
fn trap_25_max_shim_version_decides_nothing() {
    let node = Node::new("trap25");
    node.make_bundle("c1", &[]);
    let mut addresses = Vec::new();
    for version in [None, Some("2"), Some("3"), Some("99"), Some("")] {
        let mut command = node.command("c1", "start");
        command.env_remove("MAX_SHIM_VERSION").envs(version.map(|version| ("MAX_SHIM_VERSION", version)));
        let address = combined_output(command, &node.bootstrap_params("c1", None));
        shut_down(node.server(), &address);
        addresses.push(address);
    }
    addresses.dedup();
    assert_eq!(addresses.len(), 1, "{addresses:?}");
}

/// Trap 18: no end of a server leaves its socket: Shutdown, SIGTERM, a failed start. After SIGKILL, `delete` or the
/// next `start` removes it.
#[test]
fn trap_18_no_end_leaves_a_socket() {
    let node = Node::new("trap18");
    node.make_bundle("c1", &[]);
    let address = node.started("c1");
    shut_down(node.server(), &address);
    assert_eq!(node.leftovers(), Vec::<String>::new());
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        node.started("c1");
        end(node.server(), signal);
        assert_eq!(node.leftovers(), Vec::<String>::new(), "after {signal}");
    }
    let address = node.started("c1");
    end(node.server(), Signal::SIGKILL);
    assert!(node.leftovers().iter().any(|left| address.ends_with(left.as_str())), "no socket to leave");
    succeeded(node.delete("c1"));
    assert_eq!(node.leftovers(), Vec::<String>::new());
}

/// Sends requests that a server with -debug logs: many times what the log's pipe holds.
fn fill_log(address: &str) {
    let task = TaskClient::new(Client::connect(address).unwrap());
    for _ in 0..2000 {
        let request = KillRequest { id: "no-such-id".into(), signal: 15, ..KillRequest::default() };
        let answer = task.kill(ttrpc::context::with_duration(LIMIT), &request);
        assert!(answer.is_err_and(|error| error.to_string().contains("not found")));
    }
}

/// A bundle with the fifo that containerd makes for the log.
fn bundle_with_log(node: &Node) -> std::path::PathBuf {
    let log = node.make_bundle("c1", &[]).join("log");
    nix::unistd::mkfifo(&log, Mode::from_bits_truncate(0o700)).unwrap();
    log
}

fn start_with_debug(node: &Node) -> String {
    let mut command = node.command("c1", "-debug");
    command.arg("start");
    combined_output(command, &node.bootstrap_params("c1", None))
}

/// Trap 19: a log whose reader has gone (a containerd that died), and one that is never read (one that hangs): the
/// server goes on serving, and ends when it is asked to.
#[test]
fn trap_19_a_log_without_a_reader_stops_no_other() {
    let node = Node::new("trap19");
    let log = bundle_with_log(&node);
    // containerd opens the fifo for both and reads; here it dies.
    let reader = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(&log).unwrap();
    let address = start_with_debug(&node);
    drop(reader);
    fill_log(&address);
    shut_down(node.server(), &address);

    let mut reader = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(&log).unwrap();
    let address = start_with_debug(&node);
    fill_log(&address);
    // A reader that comes back gets whole lines, and a line that says how many are missing.
    let mut text = vec![0; 1 << 20];
    let length = reader.read(&mut text).unwrap();
    let text = String::from_utf8_lossy(&text[..length]);
    assert!(text.starts_with("time=") && text.ends_with('\n'), "{text}");
    fill_log(&address);
    let mut more = vec![0; 1 << 20];
    let length = reader.read(&mut more).unwrap();
    let more = String::from_utf8_lossy(&more[..length]);
    assert!(more.contains("log lines were dropped"), "{more}");
    shut_down(node.server(), &address);
    assert_eq!(node.leftovers(), Vec::<String>::new());
}

/// Trap 16: `delete` after a SIGKILL of the server reports what the server had recorded. (With a real containerd: e2e.)
#[test]
fn trap_16_delete_reports_what_the_server_recorded() {
    let node = Node::new("trap16");
    let bundle = Bundle::new(node.make_bundle("c1", &[]));
    node.started("c1");
    let exited_at = std::time::UNIX_EPOCH + std::time::Duration::new(1_700_000_000, 5);
    let pid = nix::unistd::Pid::from_raw(4_194_304);
    bundle.write_exit(&ExitRecord { pid, exit_status: 3, real_exit_status: 3, exited_at }).unwrap();
    end(node.server(), Signal::SIGKILL);
    // containerd may ask again.
    for _ in 0..2 {
        let output = node.delete("c1");
        assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
        let answer = DeleteResponse::parse_from_bytes(&output.stdout).unwrap();
        assert_eq!((answer.pid, answer.exit_status), (4_194_304, 3));
        assert_eq!((answer.exited_at.seconds, answer.exited_at.nanos), (1_700_000_000, 5));
    }
    assert_eq!(node.leftovers(), Vec::<String>::new());
}

/// Trap 15: containerd died between `start` and the first Create. `delete` removes the traces of the idle server;
/// SIGTERM or Shutdown end the server at once, because it has nothing to stop.
#[test]
fn trap_15_a_shim_without_a_task_can_be_ended() {
    let node = Node::new("trap15");
    node.make_bundle("c1", &[]);
    let address = node.started("c1");
    // containerd 1.7 and later send this request when they start: the answer "not found" makes them delete the shim.
    let task = TaskClient::new(Client::connect(&address).unwrap());
    let pids = PidsRequest { id: "c1".into(), ..Default::default() };
    let answer = task.pids(ttrpc::context::with_duration(LIMIT), &pids);
    assert!(answer.is_err_and(|error| error.to_string().contains("not found")));
    let context = ttrpc::context::with_duration(LIMIT);
    let server = node.server();
    task.shutdown(context, &ShutdownRequest { id: "c1".into(), ..Default::default() }).unwrap();
    wait_until("the server's end", || node.servers().is_empty());
    // The kernel removes a process's command line before its files.
    wait_until("the end of its files", || !Path::new(&format!("/proc/{server}/fd/0")).exists());
    succeeded(node.delete("c1"));
    assert_eq!(node.leftovers(), Vec::<String>::new());
}
