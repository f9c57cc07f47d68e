//! What each version of containerd writes to the standard input of `start` (CONTRACT §1.2, M1), byte for byte: encoded
//! by `protoc` from containerd's own message definitions, not by the code under test.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

mod common;

use std::io::Write;
use std::path::Path;
use std::process::Stdio;

use common::{LIMIT, Node, finish, shut_down, spawn, succeeded};
use containerd_shim_protos::api::{ConnectRequest, StateRequest};
use containerd_shim_protos::ttrpc::{self, Code};
use containerd_shim_protos::{Client, TaskClient};
use oci_runtime::bundle::Bundle;
use shim_service::options::RuntimeOptions;

/// The namespace and the id inside the recordings.
const NAMESPACE: &str = "podshim-recorded";
const ID: &str = "c1";

/// 1.6 to 2.2 with runc's options: no_pivot_root, binary_name crun, root /run/podshim-recorded.
const RUNC_OPTIONS: &str = "0a1a636f6e7461696e6572642e72756e632e76312e4f7074696f6e73121f080132046372756e3a152f\
    72756e2f706f647368696d2d7265636f72646564";
/// 1.6 and 1.7, `ctr run --no-pivot` with a runtime that is not named after runc.
const CREATE_OPTIONS: &str = "0a23636f6e7461696e6572642e6c696e75782e72756e632e4372656174654f7074696f6e73120208\
    01";
/// CRI of 1.7 to 2.2 with an options table: BinaryName, Root and SystemdCgroup = false in `config_body`.
const OPTIONS_TABLE: &str = "0a1972756e74696d656f7074696f6e732e76312e4f7074696f6e73124b1a4942696e6172794e616d65\
    203d20226372756e220a526f6f74203d20222f72756e2f706f647368696d2d7265636f72646564220a53797374656d644367726f75\
    70203d2066616c73650a";
/// 2.3.4 without options. What a real one sent on 2026-11-27 differs in ids and paths alone, with the log level of the next.
const BOOTSTRAP: &str = "0a0263311210706f647368696d2d7265636f72646564220676322e332e342a2b2f72756e2f706f6473686\
    96d2d7265636f726465642f636f6e7461696e6572642e736f636b2e747472706332252f72756e2f706f647368696d2d7265636f726\
    465642f636f6e7461696e6572642e736f636b3a132f7573722f62696e2f636f6e7461696e6572644a112f72756e2f636f6e7461696\
    e6572642f73";
/// 2.3.4 at log level debug, runc's options from above as an extension.
const BOOTSTRAP_WITH_OPTIONS: &str = "0a0263311210706f647368696d2d7265636f7264656418fcffffffffffffffff01220676\
    322e332e342a2b2f72756e2f706f647368696d2d7265636f726465642f636f6e7461696e6572642e736f636b2e747472706332252f\
    72756e2f706f647368696d2d7265636f726465642f636f6e7461696e6572642e736f636b3a132f7573722f62696e2f636f6e746169\
    6e657264423f0a3d0a1a636f6e7461696e6572642e72756e632e76312e4f7074696f6e73121f080132046372756e3a152f72756e2f\
    706f647368696d2d7265636f726465644a112f72756e2f636f6e7461696e6572642f73";

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.bytes().filter(u8::is_ascii_hexdigit).collect();
    let pairs = digits.chunks(2).map(|pair| str::from_utf8(pair).unwrap());
    pairs.map(|pair| u8::from_str_radix(pair, 16).unwrap()).collect()
}

/// What `start` prints when it reads `input`.
fn address_of(node: &Node, input: &[u8]) -> String {
    let mut child = spawn(node.command(ID, "start").stdin(Stdio::piped()));
    child.stdin.take().unwrap().write_all(input).unwrap();
    succeeded(finish(child))
}

/// Runs `start` with a recording, and calls the server at the address that it prints.
fn start(name: &str, input: &[u8], verbosity: &[&str]) {
    let mut node = Node::new(name);
    node.namespace = NAMESPACE.to_owned();
    node.make_bundle(ID, &[]);
    let address = address_of(&node, input);

    // 64 hexadecimal digits in the default directory: every containerd takes that for "ttrpc, task v2".
    let digits = address.strip_prefix("unix:///run/containerd/s/").unwrap_or_else(|| panic!("{address}"));
    assert!(digits.len() == 64 && digits.bytes().all(|digit| digit.is_ascii_hexdigit()), "{address}");
    let server = node.server();
    let line = std::fs::read_to_string(format!("/proc/{server}/cmdline")).unwrap();
    let flags: Vec<&str> = line.split('\0').filter(|word| *word == "-debug").collect();
    assert_eq!(flags, verbosity, "the log level");

    // CONTRACT §9: Connect never fails, State of an unknown id is NotFound.
    let task = TaskClient::new(Client::connect(&address).unwrap());
    let context = || ttrpc::context::with_duration(LIMIT);
    let connect = ConnectRequest { id: ID.to_owned(), ..ConnectRequest::default() };
    let connected = task.connect(context(), &connect).unwrap();
    assert_eq!((connected.shim_pid, connected.task_pid), (server.as_raw().unsigned_abs(), 0));
    let state = StateRequest { id: ID.to_owned(), ..StateRequest::default() };
    match task.state(context(), &state).unwrap_err() {
        ttrpc::Error::RpcStatus(status) => assert_eq!(status.code(), Code::NOT_FOUND, "{status:?}"),
        error => panic!("{error}"),
    }
    shut_down(server, &address);
    assert_eq!(node.leftovers(), Vec::<String>::new());
}

/// No request of the Sandbox API has options, so `start` keeps them where the bundle has no spec yet (CONTRACT §1.7).
fn options_are_kept(name: &str, input: &[u8], binary_name: Option<&str>) {
    let mut node = Node::new(name);
    node.namespace = NAMESPACE.to_owned();
    let bundle = node.make_bundle(ID, &[]);
    std::fs::remove_file(bundle.join("config.json")).unwrap();
    let address = address_of(&node, input);
    let kept = RuntimeOptions::load(&Bundle::new(&bundle)).unwrap();
    assert_eq!(kept.binary_name.as_deref(), binary_name, "{name}");
    assert_eq!(kept.root.as_deref(), binary_name.map(|_| Path::new("/run/podshim-recorded")), "{name}");
    shut_down(node.server(), &address);
    assert_eq!(node.leftovers(), Vec::<String>::new());
}

/// One test for all, because the namespace in the recordings is fixed and its state is shared.
#[test]
fn every_form_of_standard_input_starts_a_server() {
    start("nothing", b"", &[]);
    start("runc-options", &bytes(RUNC_OPTIONS), &[]);
    start("create-options", &bytes(CREATE_OPTIONS), &[]);
    start("options-table", &bytes(OPTIONS_TABLE), &[]);
    start("bootstrap", &bytes(BOOTSTRAP), &[]);
    start("bootstrap-options", &bytes(BOOTSTRAP_WITH_OPTIONS), &["-debug"]);
    options_are_kept("kept-options-table", &bytes(OPTIONS_TABLE), Some("crun"));
    options_are_kept("kept-bootstrap-options", &bytes(BOOTSTRAP_WITH_OPTIONS), Some("crun"));
    options_are_kept("kept-bootstrap", &bytes(BOOTSTRAP), None);
}
