//! The page of `podshim web`: the node's pods with their timelines, as they live.
//!
//! Owns which request gets which answer, and that no other page of a browser can ask. `board` has what is shown, `follow` keeps it
//! up to date, `shown` is its form. Changes nothing: there is no request that asks a shim to do something.

mod board;
mod follow;
mod shown;

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use control_api::client::Client;
use node_state::entry::Entry;
use node_state::past;
use serde_json::json;

use self::board::{Board, Seen};
use crate::http::{Connection, PLAIN, Request, Server};
use crate::outcome::CommandError;
use crate::past::PastReport;
use crate::shims::ANSWER_LIMIT;

/// The page: script and style are in it.
const PAGE: &str = include_str!("web/page.html");
/// Where the page has the number that allows its script; it is another one for each answer.
const NONCE: &str = "{nonce}";
/// How many readers there may be at once, each with a thread.
const READERS: usize = 32;
/// How often a reader that waits gets a sign of life: so one that is gone is noticed.
const SIGN_OF_LIFE: Duration = Duration::from_secs(15);
/// How much is written to a reader at once.
const PART: usize = 64 << 10;
/// How many pods that have ended are listed.
const ENDED: usize = 200;
/// The list of them is good for a second, and for so many times as long as it took: reading may cost that part of a processor.
const ENDED_IS_GOOD: Duration = Duration::from_secs(1);
const PART_FOR_ENDED: u32 = 20;
/// How much time there is between two questions about one pod, which cost its shim something too.
const BETWEEN_QUESTIONS: Duration = Duration::from_millis(20);
/// How long a question waits for its turn.
const TURN: Duration = Duration::from_secs(1);
/// Of every answer: no other page may show or read it, and nothing keeps it.
const HEADERS: &str = "Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer\r\n\
                       Cross-Origin-Resource-Policy: same-origin\r\nX-Frame-Options: DENY\r\n";
const JSON: &str = "application/json";

/// What is served.
#[derive(Debug)]
pub struct Site {
    /// Where the shims are found.
    pub run_dir: PathBuf,
    /// Where the records of ended pods are.
    pub history_dir: PathBuf,
    /// The node's name.
    pub node: String,
}

/// What all readers share.
struct Shared {
    site: Site,
    board: Board,
    readers: AtomicUsize,
    ended: Mutex<Ended>,
    /// When the next question about a pod has its turn.
    next_turn: Mutex<Instant>,
}

/// The list of pods that have ended, as it was read last.
struct Ended {
    text: String,
    until: Instant,
}

/// Serves the page until SIGTERM or SIGINT.
///
/// # Errors
/// The address cannot be used.
pub fn run(address: SocketAddr, site: Site) -> Result<(), CommandError> {
    let server = Server::new(address)?;
    let begun = now();
    let shared = Arc::new(Shared {
        site,
        board: Board::default(),
        readers: AtomicUsize::new(0),
        ended: Mutex::new(Ended { text: String::new(), until: begun }),
        next_turn: Mutex::new(begun),
    });
    let following = shared.clone();
    thread::spawn(move || follow::run(&following.site.run_dir, &following.board));
    eprintln!("podshim: the page is at http://{}/", server.address());
    server.run(|mut connection| match Place::of(&shared) {
        Some(place) => {
            // A reader that goes away or sends nothing ends its thread, and nothing else. Without a thread it gets no answer.
            drop(thread::Builder::new().spawn(move || drop(place.shared.answer(connection))));
        }
        // The connection is new: so short an answer finds room in it.
        None => drop(busy(&mut connection)),
    })
}

fn busy(connection: &mut Connection) -> io::Result<()> {
    connection.answer("503 Service Unavailable", PLAIN, HEADERS, "too many readers\n")
}

#[allow(clippy::disallowed_methods, reason = "a command that waits; no decision about a pod is made here")]
fn now() -> Instant {
    Instant::now()
}

/// The place of a reader.
struct Place {
    shared: Arc<Shared>,
}

impl Place {
    /// A place, if one is left.
    fn of(shared: &Arc<Shared>) -> Option<Self> {
        let place = Self { shared: shared.clone() };
        (shared.readers.fetch_add(1, Ordering::SeqCst) < READERS).then_some(place)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.shared.readers.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Shared {
    fn answer(&self, mut connection: Connection) -> io::Result<()> {
        let request = Request::read(&mut connection)?;
        let Some(path) = request.path() else {
            return connection.answer("405 Method Not Allowed", PLAIN, HEADERS, "only GET\n");
        };
        if !is_for_this_host(&request) || (path != "/" && is_of_another_site(&request)) {
            return connection.answer("403 Forbidden", PLAIN, HEADERS, "only for pages of this address\n");
        }
        let found = match path {
            "/" => return page(&mut connection),
            "/events" => return self.events(&mut connection),
            "/pod" | "/past" if !self.has_turn() => return busy(&mut connection),
            "/pod" => self.pod(&request),
            "/past" => self.past(&request),
            "/ended" => Some(self.ended()),
            _ => None,
        };
        match found {
            Some(text) => {
                connection.renew();
                connection.answer("200 OK", JSON, HEADERS, &text)
            }
            None => connection.answer("404 Not Found", PLAIN, HEADERS, "there is no such thing\n"),
        }
    }

    /// What happens, until the reader is gone.
    fn events(&self, connection: &mut Connection) -> io::Result<()> {
        let Some(viewer) = self.board.viewer() else { return busy(connection) };
        write!(
            connection,
            "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n{HEADERS}\r\n"
        )?;
        let node = json!({ "node": self.site.node });
        write!(connection, "retry: 2000\nevent: begin\ndata: {node}\n\n")?;
        let mut seen = Seen::default();
        loop {
            let text = viewer.next(&mut seen, SIGN_OF_LIFE);
            // A reader at the other end of a slow line has time for each part.
            for part in text.as_deref().unwrap_or(":\n\n").as_bytes().chunks(PART) {
                connection.renew();
                connection.write_all(part)?;
            }
        }
    }

    /// Waits for the turn of a question; whether it comes soon.
    fn has_turn(&self) -> bool {
        let (now, mut next) = (now(), self.next_turn.lock().unwrap_or_else(PoisonError::into_inner));
        let turn = now.max(*next);
        let wait = turn - now;
        if wait > TURN {
            return false;
        }
        *next = turn + BETWEEN_QUESTIONS;
        drop(next);
        thread::sleep(wait);
        true
    }

    /// All there is to know of a pod that a shim serves.
    fn pod(&self, request: &Request) -> Option<String> {
        let key = key_in(request)?;
        let entry =
            Entry::list(&self.site.run_dir).ok()?.into_iter().find(|entry| shown::key(entry) == key)?;
        let asked = Client::connect(&entry.socket, ANSWER_LIMIT)
            .and_then(|client| Ok((client.inspect()?, client.events(0, Duration::ZERO)?)));
        let story = match asked {
            Ok((pod, events)) => shown::story(pod, events),
            Err(error) => shown::story_of_silent(entry, error),
        };
        Some(story.to_string())
    }

    /// The same of one that is gone: the newest, or that with this end.
    fn past(&self, request: &Request) -> Option<String> {
        let key = key_in(request)?;
        let (namespace, id) = key.split_once('/')?;
        let ended: Option<i64> = request.value("ended").and_then(|at| at.parse().ok());
        // One record at a time is in memory.
        let _alone = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        let mut all = past::of_id(&self.site.history_dir, id).ok()?;
        let found = all.find(|past| {
            past.pod.namespace == namespace && ended.is_none_or(|ended| past.ended_at_ms == ended)
        });
        Some(shown::story_of_past(PastReport::of(found?)).to_string())
    }

    fn ended(&self) -> String {
        let mut last = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        let begun = now();
        if begun >= last.until {
            let all = past::newest(&self.site.history_dir).into_iter().flatten();
            let newest: Vec<_> = all.take(ENDED).map(|past| shown::ended(&PastReport::of(past))).collect();
            last.text = json!({ "pods": newest }).to_string();
            last.until = now() + ENDED_IS_GOOD.max(begun.elapsed() * PART_FOR_ENDED);
        }
        last.text.clone()
    }
}

/// The key of the pod that is asked for. An id of containerd's has no letter that a browser would write otherwise.
fn key_in(request: &Request) -> Option<String> {
    Some(request.value("key")?.replace("%2F", "/"))
}

fn page(connection: &mut Connection) -> io::Result<()> {
    let mut random = [0; 16];
    File::open("/dev/urandom")?.read_exact(&mut random)?;
    let nonce: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
    let policy = format!(
        "Content-Security-Policy: default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; connect-src 'self'; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'none'\r\n{HEADERS}"
    );
    connection.answer("200 OK", "text/html; charset=utf-8", &policy, &PAGE.replace(NONCE, &nonce))
}

/// Whether the reader has asked a name or an address of the loopback. A page of another site may give its own name this address (DNS
/// rebinding): its browser then sends that name. The port may be another one's, as that of `kubectl port-forward`.
fn is_for_this_host(request: &Request) -> bool {
    let mut hosts = request.header("host");
    let (Some(host), None) = (hosts.next(), hosts.next()) else { return false };
    let name = match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, _)) => address,
        None => host.split(':').next().unwrap_or_default(),
    };
    name.eq_ignore_ascii_case("localhost") || name.parse().is_ok_and(|address: IpAddr| address.is_loopback())
}

/// Whether a browser says that a page of another site asks. It could not read the answer, but each one takes a reader's place.
fn is_of_another_site(request: &Request) -> bool {
    request.header("sec-fetch-site").any(|site| !matches!(site, "same-origin" | "none"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_the_loopback_are_answered() {
        let asked =
            |headers: &str| is_for_this_host(&Request::of(&format!("GET / HTTP/1.1\r\n{headers}\r\n\r\n")));
        for host in ["localhost", "LOCALHOST:8080", "127.0.0.1:9754", "127.9.9.9", "[::1]:9754", "[::1]"] {
            assert!(asked(&format!("Host: {host}")), "{host}");
        }
        for host in [
            "",
            "evil.example",
            "evil.example:9754",
            "localhost.evil.example",
            "10.0.0.1:9754",
            "[::2]:1",
            "127.0.0.1.evil.example",
        ] {
            assert!(!asked(&format!("Host: {host}")), "{host}");
        }
        assert!(!asked("Accept: */*"), "no name at all");
        assert!(!asked("Host: localhost\r\nHost: evil.example"));
    }

    #[test]
    fn another_sites_pages_are_refused() {
        let asked = |site: &str| {
            is_of_another_site(&Request::of(&format!("GET / HTTP/1.1\r\nSec-Fetch-Site: {site}\r\n\r\n")))
        };
        assert!(asked("cross-site") && asked("same-site"));
        assert!(!asked("same-origin") && !asked("none"));
        assert!(!is_of_another_site(&Request::of("GET / HTTP/1.1\r\n\r\n")), "curl");
    }

    /// A pod's author writes names and commands. What makes markup, code or a request of a text is not in the page.
    #[test]
    fn the_page_makes_only_text_of_texts_and_asks_only_its_own_address() {
        for dangerous in [
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "eval(",
            "Function(",
            "setAttribute(\"on",
            "srcdoc",
            "javascript:",
            "https://",
            "//cdn",
            "import(",
            "style=",
            "onclick=",
            "localStorage",
            "cookie",
        ] {
            assert!(!PAGE.contains(dangerous), "{dangerous}");
        }
        let addresses: Vec<_> = PAGE.match_indices("http://").map(|(at, _)| &PAGE[at..at + 26]).collect();
        assert_eq!(
            addresses,
            ["http://www.w3.org/2000/svg"],
            "the name of a language, which no browser asks"
        );
        assert_eq!(
            PAGE.matches(NONCE).count(),
            PAGE.matches("<script").count() + PAGE.matches("<style").count()
        );
    }
}
