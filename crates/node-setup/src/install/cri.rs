//! What the node's containerd answers on its CRI socket: its version, its runtimes, and its pods.
//!
//! Owns these requests and the few fields that are read of their answers.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use control_api::text::printable;
use grpc_call::message::{self, Value};
use grpc_call::{Call, CallError};

use super::containerd::HANDLER;

/// How long containerd may be silent.
const SILENCE: Duration = Duration::from_secs(5);
/// As a kubelet allows: a pod's annotations may be 256 kB.
const MAX_ANSWER: usize = 16 << 20;
/// ListPodSandbox's request with the filter `state: SANDBOX_READY`: containerd keeps ended sandboxes, too.
const READY_ONLY: [u8; 4] = [0x0a, 0x02, 0x12, 0x00];
/// The state SANDBOX_READY. What is zero is not sent.
const READY: u64 = 0;

/// Whether the running containerd has podshim's runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loaded {
    /// It starts pods on podshim.
    Yes,
    /// It has not read a configuration with podshim's runtime.
    No,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum CriError {
    /// The socket cannot be used.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// containerd refused the request, as it does while it starts.
    #[error("it does not serve the CRI yet")]
    Refused,
    /// The answer is not gRPC.
    #[error(transparent)]
    Call(CallError),
    /// The answer is not what a containerd sends.
    #[error("its answer is not understood: {0}")]
    Malformed(&'static str),
}

impl From<CallError> for CriError {
    fn from(error: CallError) -> Self {
        match error {
            CallError::Refused => Self::Refused,
            other => Self::Call(other),
        }
    }
}

/// The version of the containerd that listens there.
///
/// # Errors
/// It does not answer.
pub fn version(socket: &Path) -> Result<String, CriError> {
    let answer = ask(socket, "/runtime.v1.RuntimeService/Version", &[])?;
    let version =
        message::first(&answer, 3).and_then(Value::bytes).ok_or(CriError::Malformed("no version"))?;
    Ok(String::from_utf8_lossy(version).into_owned())
}

/// Whether the containerd that listens there has podshim's runtime.
///
/// # Errors
/// It does not answer.
pub fn loaded(socket: &Path) -> Result<Loaded, CriError> {
    let config = config(socket)?;
    let runtime = config.get("containerd").and_then(|it| it.get("runtimes")).and_then(|it| it.get(HANDLER));
    Ok(if runtime.is_some() { Loaded::Yes } else { Loaded::No })
}

/// The default runtime of the containerd that listens there, if it says which.
///
/// # Errors
/// It does not answer.
pub fn default_runtime(socket: &Path) -> Result<Option<String>, CriError> {
    let config = config(socket)?;
    let name = config.get("containerd").and_then(|it| it.get("defaultRuntimeName"));
    Ok(name.and_then(|name| name.as_str()).map(str::to_owned))
}

/// A pod's sandbox that has not ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sandbox {
    /// Its pod: namespace/name.
    pub pod: String,
    /// The runtime that its RuntimeClass names; empty for the default runtime.
    pub handler: String,
}

/// The sandboxes of the containerd that listens there which have not ended.
///
/// # Errors
/// It does not answer.
pub fn sandboxes(socket: &Path) -> Result<Vec<Sandbox>, CriError> {
    let answer = ask(socket, "/runtime.v1.RuntimeService/ListPodSandbox", &READY_ONLY)?;
    let text = |message, number| {
        let bytes = message::first(message, number).and_then(Value::bytes).unwrap_or_default();
        printable(&String::from_utf8_lossy(bytes))
    };
    let items = message::fields(&answer).filter(|(number, _)| *number == 1);
    let items = items.filter_map(|(_, value)| value.bytes());
    let live = items.filter(|item| message::first(item, 3).and_then(Value::number).unwrap_or(READY) == READY);
    let sandbox = |item| {
        let metadata = message::first(item, 2).and_then(Value::bytes).unwrap_or_default();
        Sandbox { pod: format!("{}/{}", text(metadata, 3), text(metadata, 1)), handler: text(item, 7) }
    };
    Ok(live.map(sandbox).collect())
}

/// The configuration with which a containerd runs.
fn config(socket: &Path) -> Result<serde_json::Value, CriError> {
    // `verbose`, by which the answer has the configuration.
    let answer = ask(socket, "/runtime.v1.RuntimeService/Status", &[0x08, 1])?;
    let info =
        message::fields(&answer).filter(|(number, _)| *number == 2).filter_map(|(_, value)| value.bytes());
    let part = |entry, number| message::first(entry, number).and_then(Value::bytes);
    let config = info.filter(|entry| part(entry, 1) == Some(b"config")).find_map(|entry| part(entry, 2));
    let config = config.ok_or(CriError::Malformed("no configuration"))?;
    serde_json::from_slice(config).map_err(|_| CriError::Malformed("a configuration that is not JSON"))
}

/// The answer to one request.
fn ask(socket: &Path, method: &str, request: &[u8]) -> Result<Vec<u8>, CriError> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(SILENCE))?;
    stream.set_write_timeout(Some(SILENCE))?;
    let mut call = Call::new(method, "localhost", request, MAX_ANSWER);
    stream.write_all(&call.request())?;
    let mut bytes = [0; 4096];
    loop {
        let length = stream.read(&mut bytes)?;
        if length == 0 {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
        let received = call.receive(&bytes[..length])?;
        if let Some(message) = received.message {
            return Ok(message);
        }
        // If containerd has gone, the next read says so, after what it sent before.
        let _ = stream.write_all(&received.reply);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;
    use std::thread;

    /// What the function says of a server that sends this once it has been asked.
    fn asked<T>(answer: Vec<u8>, ask: impl Fn(&Path) -> T) -> T {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        let server = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut preface = [0; 24];
            stream.read_exact(&mut preface).unwrap();
            // The client may have gone already.
            let _ = stream.write_all(&answer);
            let _ = stream.read_to_end(&mut Vec::new());
        });
        let loaded = ask(&path);
        server.join().unwrap();
        loaded
    }

    /// Frames of HTTP/2: its settings, and one with the message that ends the stream.
    fn answer(content: &[u8]) -> Vec<u8> {
        let message = [&[0][..], &(content.len() as u32).to_be_bytes(), content].concat();
        let [_, a, b, c] = (message.len() as u32).to_be_bytes();
        [&[0, 0, 0, 4, 0, 0, 0, 0, 0, a, b, c, 0, 1, 0, 0, 0, 1][..], &message].concat()
    }

    fn field(number: u8, value: &str) -> Vec<u8> {
        message::field(number, value.as_bytes())
    }

    fn status(config: &str) -> Vec<u8> {
        let entry = |key, value| message::field(2, &[field(1, key), field(2, value)].concat());
        [message::field(1, &[8, 1]), entry("golang", "\"go1.20\""), entry("config", config)].concat()
    }

    #[test]
    fn the_running_configuration_says_whether_podshim_is_loaded() {
        let with =
            r#"{"containerd":{"runtimes":{"podshim":{"runtimeType":"io.containerd.podshim.v2"},"runc":{}}}}"#;
        for (config, wanted) in
            [(with.to_owned(), Loaded::Yes), (with.replace("podshim", "gvisor"), Loaded::No)]
        {
            assert_eq!(asked(answer(&status(&config)), loaded).unwrap(), wanted);
        }
        assert!(matches!(asked(answer(&status("no JSON")), loaded), Err(CriError::Malformed(_))));
    }

    #[test]
    fn the_version_is_the_third_field() {
        let content = [(1, "0.1.0"), (2, "containerd"), (3, "v2.1.4"), (4, "v1")];
        let content: Vec<u8> = content.iter().flat_map(|(number, value)| field(*number, value)).collect();
        assert_eq!(asked(answer(&content), version).unwrap(), "v2.1.4");
    }

    #[test]
    fn a_containerd_that_starts_or_is_gone_is_named() {
        let settings = vec![0, 0, 0, 4, 0, 0, 0, 0, 0];
        let refused = [settings.clone(), vec![0, 0, 1, 1, 5, 0, 0, 0, 1, 0x88]].concat();
        assert!(matches!(asked(refused, version), Err(CriError::Refused)));
        assert!(matches!(
            asked(b"HTTP/1.1 400\r\n\r\n".to_vec(), version),
            Err(CriError::Call(CallError::NotGrpc))
        ));
        assert!(matches!(version(Path::new("/nowhere/socket")), Err(CriError::Io(_))));
    }
}
