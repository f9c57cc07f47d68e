//! A containerd for tests that answers one request of the CRI: Status, with its configuration.
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
    loop {
        let Ok(head) = take(9) else { return };
        let length = usize::from(head[1]) << 8 | usize::from(head[2]);
        if take(length).is_err() {
            return;
        }
        if head[3] == 0 {
            break;
        }
    }
    let content = status(directory);
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
