//! What containerd writes to the standard input of `start` and `-info` (CONTRACT §1.2, §8).
//!
//! Owns the reading (bounded in size and time), and the distinction of the two messages that `start` may get. That
//! never fails: a shim that refused an unknown input could not be started by a newer containerd.

use std::io::{self, IsTerminal, Read};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use containerd_shim::bootstrap::BootstrapParams;
use containerd_shim::{Flags, StartOpts};
use containerd_shim_protos::protobuf::Message;
use containerd_shim_protos::protobuf::well_known_types::any::Any;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use shim_service::options::{RuntimeOptions, runtime_options};

/// Both messages have some hundred bytes.
const SIZE_LIMIT: usize = 1 << 20;
/// containerd closes its end as soon as it has written, even on a busy node; a user's pipe may never close.
const TIME_LIMIT: Duration = Duration::from_secs(2);

/// What `start` learns from its flags and its standard input.
#[derive(Debug, Default)]
pub struct StartInput {
    /// containerd: its sockets, the directory for the shim's socket, whether it wants lines for debugging.
    pub containerd: StartOpts,
    /// The runtime options, as far as they could be read. Create gets them too and reports what is wrong.
    pub options: RuntimeOptions,
}

impl StartInput {
    /// Reads and parses the process's standard input.
    pub fn from_stdin(flags: &Flags) -> Self {
        Self::parse(&read(), flags)
    }

    /// Parses the input. 2.3's `BootstrapParams` can be decoded as an `Any` too (both start with two strings), so the
    /// check is whether they contain the id and the namespace that containerd also passes as flags.
    fn parse(bytes: &[u8], flags: &Flags) -> Self {
        let sent = match BootstrapParams::parse_from_bytes(bytes) {
            Ok(params) if params.instance_id == flags.id && params.namespace == flags.namespace => {
                params.into()
            }
            _ => StartOpts {
                extensions: Any::parse_from_bytes(bytes).into_iter().collect(),
                ..StartOpts::default()
            },
        };
        let options = sent.extensions.iter().find_map(|any| runtime_options(Some(any)).ok());
        let containerd = StartOpts {
            id: flags.id.clone(),
            namespace: flags.namespace.clone(),
            address: flags.address.clone(),
            debug: sent.debug || flags.debug,
            // containerd-shim would make a socket relative to the bundle.
            socket_dir: sent.socket_dir.filter(|directory| directory.starts_with('/')),
            ..sent
        };
        Self { containerd, options: options.unwrap_or_default() }
    }
}

/// The process's standard input; empty if it is a terminal.
pub fn read() -> Vec<u8> {
    let stdin = io::stdin();
    if stdin.is_terminal() { Vec::new() } else { read_bounded(stdin.lock(), TIME_LIMIT) }
}

/// Reads to the end, to the size limit, or until `limit` has passed, whichever is first.
#[expect(clippy::disallowed_methods, reason = "a read that must end needs a clock, and no driver runs here")]
fn read_bounded(mut input: impl Read + AsFd, limit: Duration) -> Vec<u8> {
    let deadline = Instant::now() + limit;
    let mut bytes = Vec::new();
    let mut chunk = [0; 4096];
    while bytes.len() < SIZE_LIMIT {
        let left = deadline.saturating_duration_since(Instant::now());
        let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::ZERO);
        match poll(&mut [PollFd::new(input.as_fd(), PollFlags::POLLIN)], timeout) {
            Err(nix::errno::Errno::EINTR) => continue,
            Ok(0) | Err(_) => break,
            Ok(_) => {}
        }
        match input.read(&mut chunk) {
            Ok(0) => break,
            Ok(count) => bytes.extend_from_slice(&chunk[..count]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => break,
        }
    }
    bytes
}

/// Feeds bad input to `start`'s parser: no panic, and no socket relative to the directory it was started in. Only for
/// tests and a target of `fuzz/`.
#[cfg(any(test, fuzzing))]
pub fn bad_input(bytes: &[u8]) {
    let flags = Flags { id: "c1".into(), namespace: "k8s.io".into(), ..Flags::default() };
    let input = StartInput::parse(bytes, &flags);
    assert!(input.containerd.socket_address("c1").starts_with("unix:///"));
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use containerd_shim::bootstrap::Extension;
    use containerd_shim_protos::protobuf::EnumOrUnknown;

    use super::*;

    fn runc_options() -> Any {
        Any {
            type_url: "containerd.runc.v1.Options".into(),
            value: b"\x1a\x06/shims\x32\x04crun".to_vec(),
            ..Any::default()
        }
    }

    fn params() -> BootstrapParams {
        BootstrapParams {
            instance_id: "c1".into(),
            namespace: "k8s.io".into(),
            log_level: EnumOrUnknown::from_i32(-4),
            containerd_version: "v2.3.4".into(),
            containerd_ttrpc_address: "/run/c.sock.ttrpc".into(),
            extensions: vec![
                Extension { value: Some(Any::default()).into(), ..Extension::default() },
                Extension { value: Some(runc_options()).into(), ..Extension::default() },
            ],
            socket_dir: Some("/run/containerd/s".into()),
            ..BootstrapParams::default()
        }
    }

    fn parse(bytes: &[u8]) -> StartInput {
        let flags = Flags {
            id: "c1".into(),
            namespace: "k8s.io".into(),
            address: "/run/c.sock".into(),
            ..Flags::default()
        };
        StartInput::parse(bytes, &flags)
    }

    #[test]
    fn runtime_options_alone() {
        let input = parse(&runc_options().write_to_bytes().unwrap());
        assert_eq!(input.options.shim_cgroup.as_deref(), Some("/shims"));
        assert_eq!(input.containerd.ttrpc_address, "");
    }

    /// Trap 3: 2.3's message decodes as an Any of type "c1".
    #[test]
    fn bootstrap_params_of_2_3() {
        let mut params = params();
        params.extensions.remove(0);
        let input = parse(&params.write_to_bytes().unwrap());
        assert_eq!(
            input.options,
            RuntimeOptions {
                shim_cgroup: Some("/shims".into()),
                binary_name: Some("crun".into()),
                ..RuntimeOptions::default()
            }
        );
        let StartOpts { address, ttrpc_address, socket_dir, debug, .. } = input.containerd;
        assert_eq!((address.as_str(), ttrpc_address.as_str()), ("/run/c.sock", "/run/c.sock.ttrpc"));
        assert_eq!((socket_dir.as_deref(), debug), (Some("/run/containerd/s"), true));
    }

    /// Why it is checked here: a socket in the bundle would be gone with the container.
    #[test]
    fn a_relative_directory_is_not_taken() {
        let params = BootstrapParams { socket_dir: Some("s".into()), ..params() };
        assert_eq!(StartOpts::from(params.clone()).socket_address("g")[..9], *"unix://s/");
        let input = parse(&params.write_to_bytes().unwrap());
        assert!(input.containerd.socket_address("g").starts_with("unix:///run/containerd/s/"));
    }

    /// `start` never fails because of an unknown input.
    #[test]
    fn anything_else_is_nothing() {
        let unknown = Any { type_url: "acme.Options".into(), value: vec![1, 2], ..Any::default() };
        let mut foreign = params();
        foreign.instance_id = "another".into();
        for bytes in [
            Vec::new(),
            b"hello".to_vec(),
            vec![0xff; 300],
            unknown.write_to_bytes().unwrap(),
            foreign.write_to_bytes().unwrap(),
        ] {
            let StartInput { containerd, options } = parse(&bytes);
            assert_eq!(options, RuntimeOptions::default(), "{bytes:?}");
            assert_eq!((containerd.ttrpc_address.as_str(), containerd.socket_dir), ("", None), "{bytes:?}");
        }
    }

    /// A pipe that is never closed must not make `start` hang.
    #[test]
    fn an_open_pipe_is_not_waited_for() {
        let (reader, mut writer) = io::pipe().unwrap();
        writer.write_all(b"abc").unwrap();
        assert_eq!(read_bounded(&reader, Duration::from_millis(50)), b"abc");
        drop(writer);
        assert_eq!(read_bounded(&reader, TIME_LIMIT), b"");
    }

    /// Input without an end is not kept completely either.
    #[test]
    fn an_endless_input_is_cut() {
        let endless = std::fs::File::open("/dev/zero").unwrap();
        assert_eq!(read_bounded(&endless, TIME_LIMIT).len(), SIZE_LIMIT);
    }

    #[test]
    fn fuzz_start_input() {
        let (_, bootstrap) = &fuzz_input::known("start_input")[0];
        assert!(parse(bootstrap).options.binary_name.is_some(), "what is known reaches nothing");
        fuzz_input::fuzz("start_input", bad_input);
    }
}
