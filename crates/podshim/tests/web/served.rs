//! The server as programs reach it that are no page of its own: who gets an answer, and what it costs the shims.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixListener;
use std::thread;
use std::time::{Duration, Instant};

use control_api::container::{Role, State};
use control_api::event::Kind;
use control_api::{Container, InspectResponse, Past, VERSION};
use node_state::entry::Entry;
use node_state::past::file_of;
use protobuf::Message;

use crate::fake_shim::{FakeShim, container};
use crate::server::Server;

const OWN: &str = "Host: 127.0.0.1\r\n";

fn server(run: &std::path::Path) -> Server {
    Server::start(run, run)
}

#[test]
fn only_the_loopbacks_own_names_and_no_other_site_are_answered() {
    let run = tempfile::tempdir().unwrap();
    let _shim = FakeShim::start(run.path(), "abc", "u-1", vec![container("app", Role::MAIN, State::RUNNING)]);
    let mut server = server(run.path());
    let page = server.ask("GET /", OWN);
    assert!(page.starts_with("HTTP/1.1 200 OK\r\nContent-Type: text/html"), "{page}");
    let policy = page.lines().find(|line| line.starts_with("Content-Security-Policy: ")).unwrap();
    assert!(
        policy.contains("default-src 'none'; script-src 'nonce-")
            && policy.contains("frame-ancestors 'none'"),
        "{policy}"
    );
    let nonce = policy.split("'nonce-").nth(1).unwrap().split('\'').next().unwrap();
    assert!(page.contains(&format!("<script nonce=\"{nonce}\">")) && !page.contains("{nonce}"));
    assert!(!server.ask("GET /", OWN).contains(nonce), "each answer has a number of its own");
    for (line, headers, status) in [
        // DNS rebinding: the page of another name, which has this address now.
        ("GET /", "Host: evil.example\r\n", 403),
        ("GET /pod?key=k8s.io/abc", "Host: evil.example:9754\r\n", 403),
        ("GET /events", "Host: evil.example\r\n", 403),
        ("GET /", "", 403),
        // Another page, which cannot read the answer.
        ("GET /ended", "Host: localhost\r\nSec-Fetch-Site: cross-site\r\n", 403),
        // A link on another page is a person's choice.
        ("GET /", "Host: localhost\r\nSec-Fetch-Site: cross-site\r\n", 200),
        ("GET /pod?key=k8s.io/abc", "Host: localhost:1\r\nSec-Fetch-Site: same-origin\r\n", 200),
        ("GET /pod?key=k8s.io/abcd", OWN, 404),
        ("GET /pod", OWN, 404),
        ("GET /pod?key=k8s.io%2Fabc", OWN, 200),
        ("GET /pod?key=other/abc", OWN, 404),
        ("GET /ended", OWN, 200),
        ("GET /nothing", OWN, 404),
        ("POST /pod?key=k8s.io/abc", OWN, 405),
        ("DELETE /", OWN, 405),
    ] {
        let answer = server.ask(line, headers);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{line} {headers}: {answer}");
        assert!(!answer.to_ascii_lowercase().contains("access-control-allow"), "{answer}");
        assert!(answer.contains("Cross-Origin-Resource-Policy: same-origin\r\n"), "{answer}");
    }
    assert_eq!(server.end(), Some(0));
}

/// What the shims are asked while no page is open, and while nothing happens: nothing.
#[test]
#[expect(clippy::disallowed_methods, reason = "a test waits")]
fn a_shim_is_asked_only_for_a_reader_and_only_when_something_happens() {
    let run = tempfile::tempdir().unwrap();
    let shim = FakeShim::start(run.path(), "abc", "u-1", vec![container("app", Role::MAIN, State::RUNNING)]);
    let server = server(run.path());
    thread::sleep(Duration::from_millis(1500));
    assert_eq!(shim.inspected(), 0, "no page is open");
    let mut reader = Events::of(&server);
    reader.until("event: all\n");
    let asked = shim.inspected();
    assert!((1..=3).contains(&asked), "{asked}");
    thread::sleep(Duration::from_secs(2));
    assert_eq!(shim.inspected(), asked, "nothing happens");
    shim.happens(Kind::OUT_OF_MEMORY, "app", |event| event.monotonic_ms = 5);
    reader.until("out of memory");
    // The page shows the event before it has asked what the pod is like after it.
    let end = Instant::now() + Duration::from_secs(10);
    while shim.inspected() == asked && Instant::now() < end {
        thread::sleep(Duration::from_millis(20));
    }
    thread::sleep(Duration::from_secs(1));
    assert_eq!(shim.inspected(), asked + 1, "one event is one question");
    drop(reader);
    // It notices that the reader is gone when it has something for it.
    shim.happens(Kind::PAUSED, "app", |event| event.monotonic_ms = 6);
    thread::sleep(Duration::from_secs(1));
    shim.happens(Kind::RESUMED, "app", |event| event.monotonic_ms = 7);
    thread::sleep(Duration::from_secs(3));
    let asked = shim.inspected();
    shim.happens(Kind::PAUSED, "app", |event| event.monotonic_ms = 8);
    thread::sleep(Duration::from_secs(1));
    assert_eq!(shim.inspected(), asked, "no page is open any more");
}

#[test]
fn dead_and_silent_shims_delay_no_other() {
    let run = tempfile::tempdir().unwrap();
    let alive = FakeShim::named(
        "alive",
        run.path(),
        "aaa",
        "u-1",
        vec![container("app", Role::MAIN, State::RUNNING)],
    );
    let entry = |id: &str| {
        let directory = run.path().join("k8s.io").join(id);
        fs::create_dir_all(&directory).unwrap();
        let socket = directory.join("socket");
        let text = serde_json::json!({"version": 1, "id": id, "namespace": "k8s.io", "socket": socket, "pod_name": id, "pod_namespace": "prod", "drain_priority": 0});
        fs::write(directory.join("pod.json"), text.to_string()).unwrap();
        socket
    };
    entry("dead");
    let _silent = std::os::unix::net::UnixListener::bind(entry("silent")).unwrap();
    let server = server(run.path());
    let mut reader = Events::of(&server);
    reader.until("prod/alive");
    reader.until("event: all\n");
    let text = reader.text.clone();
    assert!(text.contains("shim dead") && text.contains("shim silent"), "{text}");
    let answer = server.ask("GET /pod?key=k8s.io/dead", OWN);
    assert!(answer.starts_with("HTTP/1.1 200 OK") && answer.contains("its shim is dead"), "{answer}");
    drop(alive);
    reader.until("event: gone\ndata: \"k8s.io/aaa\"");
}

/// Readers that stay are bounded, and one that sends nothing keeps its place for two seconds at most.
#[test]
fn readers_are_bounded() {
    let run = tempfile::tempdir().unwrap();
    let server = server(run.path());
    let mut silent: Vec<_> = (0..40).map(|_| TcpStream::connect(&server.address).unwrap()).collect();
    let mut answer = String::new();
    silent.last_mut().unwrap().read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
    thread::sleep(Duration::from_secs(3));
    assert!(server.ask("GET /ended", OWN).starts_with("HTTP/1.1 200 OK"));
    // An endless head.
    let mut endless = server.sent("GET / HTTP/1.1\r\n");
    endless.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let _ = endless.write_all(&vec![b'x'; 100_000]);
    let end = endless.read_to_end(&mut Vec::new());
    assert!(
        end.as_ref().map_or_else(|error| error.kind() == ErrorKind::ConnectionReset, |_| true),
        "not closed: {end:?}"
    );
    assert!(server.ask("GET /ended", OWN).starts_with("HTTP/1.1 200 OK"));
}

/// Readers that stay leave places for questions.
#[test]
fn readers_of_events_do_not_take_all_places() {
    let run = tempfile::tempdir().unwrap();
    let server = server(run.path());
    let mut readers: Vec<_> = (0..24).map(|_| Events::of(&server)).collect();
    for reader in &mut readers {
        reader.until("event: all\n");
    }
    assert!(server.ask("GET /events", OWN).starts_with("HTTP/1.1 503 "));
    assert!(server.ask("GET /ended", OWN).starts_with("HTTP/1.1 200 OK"));
}

/// A pod that is gone is found by its key and its end, and only so.
#[test]
fn a_record_is_found_by_its_key() {
    let (run, history) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    for (ended_at_ms, code) in [(1_000, 3), (2_000, 4)] {
        let app = Container { real_exit_code: Some(code), ..container("app", Role::MAIN, State::EXITED) };
        let pod = InspectResponse {
            id: "abc".to_owned(),
            namespace: "default".to_owned(),
            containers: vec![app],
            ..Default::default()
        };
        let past = Past { version: VERSION, pod: Some(pod).into(), ended_at_ms, ..Default::default() };
        let path = history.path().join(file_of(&past));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, past.write_to_bytes().unwrap()).unwrap();
    }
    let server = Server::start(run.path(), history.path());
    let listed = server.ask("GET /ended", OWN);
    assert!(listed.matches("\"key\":\"default/abc\"").count() == 2, "{listed}");
    for (query, found) in [
        ("default/abc", Some("exited with 4")),
        ("default/abc&ended=1000", Some("exited with 3")),
        ("default/abc&ended=3000", None),
        ("k8s.io/abc", None),
        ("default/ab", None),
        ("abc", None),
    ] {
        let answer = server.ask(&format!("GET /past?key={query}"), OWN);
        let status = if found.is_some() { "200" } else { "404" };
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{query}: {answer}");
        assert!(answer.contains(found.unwrap_or_default()), "{query}: {answer}");
    }
    // Who asks again and again gets what was read last.
    fs::remove_dir_all(history.path()).unwrap();
    assert_eq!(server.ask("GET /ended", OWN), listed);
}

/// The end of most pods, and a pod that has the id of the one before it.
#[test]
fn a_pod_that_ends_has_no_dead_shim_and_leaves_nothing_to_its_successor() {
    let run = tempfile::tempdir().unwrap();
    let app = || vec![container("app", Role::MAIN, State::RUNNING)];
    let server = server(run.path());
    let mut reader = Events::of(&server);
    for (name, kind) in [("first", Kind::OUT_OF_MEMORY), ("second", Kind::PAUSED), ("third", Kind::PAUSED)] {
        let shim = FakeShim::named(name, run.path(), "abc", "u-1", app());
        shim.happens(kind, "app", |event| event.monotonic_ms = 5);
        reader.until(&format!("prod/{name}"));
        reader.until_quiet();
        let last = reader.text.rsplit("event: pod").next().unwrap().to_owned();
        assert!(last.contains(&format!("prod/{name}")) && last.contains("app"), "{last}");
        assert_eq!(last.contains("out of memory"), name == "first", "{last}");
        drop(shim);
    }
    reader.until("event: gone\ndata: \"k8s.io/abc\"");
    thread::sleep(Duration::from_secs(2));
    assert!(!reader.text.contains("shim dead"), "{}", reader.text);
}

/// A shim that answers with nonsense is shown as one that gives no answer, and the others are shown.
#[test]
fn a_shim_that_answers_nonsense_keeps_no_page_waiting() {
    let run = tempfile::tempdir().unwrap();
    let directory = run.path().join("k8s.io/liar");
    fs::create_dir_all(&directory).unwrap();
    let listener = UnixListener::bind(directory.join("socket")).unwrap();
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let _ = stream.write_all(&[0xff; 10]);
            thread::spawn(move || stream.read_to_end(&mut Vec::new()));
        }
    });
    let entry = Entry {
        id: "liar".to_owned(),
        namespace: "k8s.io".to_owned(),
        socket: directory.join("socket"),
        ..Entry::default()
    };
    entry.write_to(&directory).unwrap();
    let server = server(run.path());
    let mut reader = Events::of(&server);
    reader.until("event: all\n");
    assert!(reader.text.contains("shim silent"), "{}", reader.text);
}

#[test]
fn only_a_loopback_address_is_taken() {
    for address in ["0.0.0.0:0", "[::]:0", "192.0.2.1:80", "localhost"] {
        #[expect(clippy::disallowed_methods, reason = "a test runs the command as its users do")]
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_podshim"))
            .args(["web", "--listen", address])
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(2), "{address}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

/// A reader of server-sent events.
pub struct Events {
    stream: TcpStream,
    text: String,
}

impl Events {
    pub fn of(server: &Server) -> Self {
        let stream = server.sent(&format!("GET /events HTTP/1.1\r\n{OWN}\r\n"));
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        Self { stream, text: String::new() }
    }

    /// Reads until that text has come.
    pub fn until(&mut self, text: &str) {
        let mut chunk = [0; 4096];
        while !self.text.contains(text) {
            let length = self.stream.read(&mut chunk).unwrap();
            assert!(length > 0, "the server has closed it: {}", self.text);
            self.text += &String::from_utf8_lossy(&chunk[..length]);
        }
    }
    /// Reads until nothing has come for a second and a half: a second after a pod has come it is found.
    fn until_quiet(&mut self) {
        let mut chunk = [0; 4096];
        self.stream.set_read_timeout(Some(Duration::from_millis(1500))).unwrap();
        while let Ok(length) = self.stream.read(&mut chunk) {
            assert!(length > 0, "the server has closed it: {}", self.text);
            self.text += &String::from_utf8_lossy(&chunk[..length]);
        }
        self.stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    }
}
