//! A pod's texts on a terminal (docs/trust.md): whatever a pod's author and its programs have written, a command prints
//! as many lines as for a harmless pod, and no control characters that a terminal would obey.

#![expect(clippy::unwrap_used, reason = "a test's harness fails by panicking")]

use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;

use async_trait::async_trait;
use control_api::container::{GateState, State};
use control_api::event::Kind;
use control_api::{
    Container, Event, EventsRequest, EventsResponse, InspectRequest, InspectResponse, StopRequest,
    StopResponse, SwitchRequest, SwitchResponse, VERSION, create_pod,
};
use node_state::entry::Entry;
use ttrpc::asynchronous::{Server, TtrpcContext};

/// A shim that puts this text into every field that takes a text. It sends its events once, and then it is gone.
struct Shim(String, Mutex<u32>);

#[async_trait]
impl control_api::Pod for Shim {
    async fn inspect(&self, _: &TtrpcContext, _: InspectRequest) -> ttrpc::Result<InspectResponse> {
        let text = || self.0.clone();
        let container = Container {
            id: text(),
            name: text(),
            gate: text(),
            gate_state: GateState::CLOSED.into(),
            held_for: text(),
            state: State::HELD.into(),
            ..Default::default()
        };
        Ok(InspectResponse {
            version: VERSION,
            id: text(),
            namespace: text(),
            pod_name: text(),
            pod_namespace: text(),
            pod_uid: text(),
            release: text(),
            longest_away_us: Some(1),
            streams_longest_away_us: Some(1),
            streams_away_us: Some(1),
            longest_away_on: text(),
            containers: vec![container.clone(), container],
            ..Default::default()
        })
    }

    async fn stop(&self, _: &TtrpcContext, _: StopRequest) -> ttrpc::Result<StopResponse> {
        Err(ttrpc::Error::RpcStatus(ttrpc::get_status(ttrpc::Code::UNKNOWN, self.0.clone())))
    }

    async fn switch(&self, _: &TtrpcContext, _: SwitchRequest) -> ttrpc::Result<SwitchResponse> {
        Err(ttrpc::Error::RpcStatus(ttrpc::get_status(ttrpc::Code::NOT_FOUND, self.0.clone())))
    }

    async fn events(&self, _: &TtrpcContext, request: EventsRequest) -> ttrpc::Result<EventsResponse> {
        let mut asked = self.1.lock().unwrap();
        *asked += 1;
        if request.after > 0 {
            return Err(ttrpc::Error::RpcStatus(ttrpc::get_status(
                ttrpc::Code::NOT_FOUND,
                "gone".to_owned(),
            )));
        }
        let kinds = [Kind::CREATED, Kind::HELD, Kind::GATE_FAILED, Kind::START_FAILED, Kind::HOOK_ENDED];
        let events = kinds.into_iter().zip(1..).map(|(kind, sequence)| Event {
            sequence,
            kind: kind.into(),
            monotonic_ms: sequence * 10,
            id: self.0.clone(),
            name: self.0.clone(),
            text: self.0.clone(),
            failure: self.0.clone(),
            ..Default::default()
        });
        Ok(EventsResponse { version: VERSION, events: events.collect(), ..Default::default() })
    }
}

/// The output of each command for such a pod, without colours.
#[allow(clippy::disallowed_methods, reason = "a test runs the command as its users do")]
fn printed(text: &str) -> Vec<(String, String)> {
    let root = tempfile::tempdir().unwrap();
    let directory = root.path().join("k8s.io/pod");
    std::fs::create_dir_all(&directory).unwrap();
    let socket = directory.join("socket");
    let entry = Entry {
        version: VERSION,
        id: "known".to_owned(),
        namespace: text.to_owned(),
        socket: socket.clone(),
        pod_name: text.to_owned(),
        pod_namespace: text.to_owned(),
        ..Entry::default()
    };
    entry.write_to(&directory).unwrap();
    let (ready, is_ready) = mpsc::channel();
    let shim = Shim(text.to_owned(), Mutex::new(0));
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let address = format!("unix://{}", socket.display());
            let mut server =
                Server::new().bind(&address).unwrap().register_service(create_pod(Arc::new(shim)));
            server.start().await.unwrap();
            ready.send(()).unwrap();
            std::future::pending::<()>().await;
        });
    });
    is_ready.recv().unwrap();
    let run = |words: &str| {
        let (command, rest) = words.split_once(' ').unwrap_or((words, ""));
        let output = Command::new(env!("CARGO_BIN_EXE_podshim"))
            .arg(command)
            .args(["--run-dir".as_ref(), root.path().as_os_str()])
            .args(rest.split_whitespace())
            .env("NO_COLOR", "1")
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let out = [output.stdout, output.stderr].concat();
        (words.to_owned(), String::from_utf8(out).unwrap())
    };
    ["ps", "inspect known", "watch known", "timeline known", "metrics", "stop known", "switch known x"]
        .map(run)
        .into()
}

#[test]
fn a_text_of_a_pod_is_letters_and_nothing_else() {
    let harmless = printed("harmless");
    for (command, text) in &harmless {
        assert!(text.contains("harmless"), "{command} says nothing of it: {text}");
    }
    for hostile in [
        "tcp:1\n  state        running\n",
        "\x1b[2J\x1b[1;1Hall is well",
        "\x1b]0;title\x07\x1b]8;;http://x\x1b\\link",
        "a\r\nb\x0bc\x0cd\te\0f\x7f",
        "\u{9b}31mred\u{85}next\u{2028}line\u{2029}",
        "\u{202e}desrever\u{2066}\u{200f}",
    ] {
        for ((command, text), (_, usual)) in printed(hostile).iter().zip(&harmless) {
            let wrong = |letter: char| letter.is_control() && letter != '\n';
            let turns = |letter: char| matches!(letter, '\u{2028}' | '\u{2029}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{200e}' | '\u{200f}');
            assert!(!text.contains(|letter| wrong(letter) || turns(letter)), "{command}: {text:?}");
            assert_eq!(text.lines().count(), usual.lines().count(), "{command} of {hostile:?}: {text}");
        }
    }
}
