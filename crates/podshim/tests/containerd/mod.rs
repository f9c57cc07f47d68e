//! A containerd for tests that answers two requests of the CRI: Status with its configuration, and ListPodSandbox.
//!
//! Its answers come from files beside its socket, so that a test, or a stand-in of systemctl, can change them at any time.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::thread;

use grpc_call::message::field;

/// If it is there, containerd has podshim's runtime.
pub const LOADED: &str = "loaded";
/// The name of the default runtime, if it is there.
pub const DEFAULT: &str = "default";
/// A line for each sandbox: its namespace, name, handler, and `ready` or `gone`.
pub const SANDBOXES: &str = "sandboxes";

/// Listens at a socket until the test ends.
pub fn listen(socket: &Path) {
    let listener = UnixListener::bind(socket).expect("a socket");
    let directory = socket.parent().expect("a directory").to_owned();
    thread::spawn(move || listener.incoming().flatten().for_each(|stream| answer(stream, &directory)));
}

fn answer(mut stream: UnixStream, directory: &Path) {
    let mut take = |length: usize| {
        let mut bytes = vec![0; length];
        stream.read_exact(&mut bytes).map(|()| bytes)
    };
    // The preface, and frames up to the first DATA.
    if take(24).is_err() {
        return;
    }
    let mut method = Vec::new();
    loop {
        let Ok(head) = take(9) else { return };
        let length = usize::from(head[1]) << 8 | usize::from(head[2]);
        let Ok(payload) = take(length) else { return };
        match head[3] {
            0 => break,
            1 => method = payload,
            _ => {}
        }
    }
    let content = match String::from_utf8_lossy(&method).contains("/ListPodSandbox") {
        true => sandboxes(directory),
        false => status(directory),
    };
    let message = [&[0][..], &(content.len() as u32).to_be_bytes(), &content].concat();
    let frame = |kind: u8, flags: u8, payload: &[u8]| {
        let [_, a, b, c] = (payload.len() as u32).to_be_bytes();
        [&[a, b, c, kind, flags, 0, 0, 0, 1][..], payload].concat()
    };
    let settings = vec![0, 0, 0, 4, 0, 0, 0, 0, 0];
    let bytes = [settings, frame(1, 4, &[0x88]), frame(0, 0, &message), frame(1, 5, &[0x88])].concat();
    // The client may have gone already.
    let _ = stream.write_all(&bytes);
}

fn status(directory: &Path) -> Vec<u8> {
    let name = if directory.join(LOADED).exists() { "podshim" } else { "runc" };
    let default = fs::read_to_string(directory.join(DEFAULT)).unwrap_or_default();
    let config = format!(
        "{{\"containerd\":{{\"defaultRuntimeName\":\"{default}\",\"runtimes\":{{\"{name}\":{{}}}}}}}}"
    );
    field(2, &[field(1, b"config"), field(2, config.as_bytes())].concat())
}

fn sandboxes(directory: &Path) -> Vec<u8> {
    let listed = fs::read_to_string(directory.join(SANDBOXES)).unwrap_or_default();
    let sandbox = |line: &str| {
        let words: Vec<_> = line.split(' ').collect();
        let [namespace, name, handler, state] = words[..] else { panic!("{line}") };
        let metadata = [field(1, name.as_bytes()), field(3, namespace.as_bytes())].concat();
        // What is zero is not sent.
        let state = if state == "gone" { vec![3 << 3, 1] } else { Vec::new() };
        field(1, &[field(1, b"id"), field(2, &metadata), state, field(7, handler.as_bytes())].concat())
    };
    listed.lines().flat_map(sandbox).collect()
}
