//! A real browser: Debian's chromium, which Debian's chromedriver drives over WebDriver.
//!
//! Owns both processes and the requests. WebDriver is JSON over HTTP, and these tests need six of its requests: a crate for it
//! (fantoccini, thirtyfour) would bring some twenty packages into every build of the tests.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

/// How long a page may take for what a test waits for.
const LIMIT: Duration = Duration::from_secs(30);
/// What WebDriver calls an element.
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";
/// WebDriver's names of keys.
pub const TAB: char = '\u{e004}';
pub const ENTER: char = '\u{e007}';
pub const ESCAPE: char = '\u{e00c}';
pub const DOWN: char = '\u{e015}';

pub struct Browser {
    driver: Child,
    port: u16,
    session: String,
    _profile: TempDir,
}

impl Drop for Browser {
    #[expect(clippy::disallowed_methods, reason = "a test ends what it has started")]
    fn drop(&mut self) {
        // It ends the browser too.
        let _ = self.ask("DELETE", "", &Value::Null);
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}

impl Browser {
    /// A browser that shows the page at that address.
    #[expect(clippy::disallowed_methods, reason = "a test runs programs as people do")]
    pub fn at(address: &str) -> Self {
        let missing = |program: &str| format!("{program}, which hack/setup --for tests installs");
        assert!(std::path::Path::new("/usr/bin/chromium").exists(), "no {}", missing("chromium"));
        let mut driver = Command::new("chromedriver")
            .arg("--port=0")
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| panic!("{}: {error}", missing("chromedriver")));
        let mut lines = BufReader::new(driver.stdout.take().unwrap()).lines().map_while(Result::ok);
        let port = lines.find_map(|line| {
            let rest = line.split("started successfully on port ").nth(1)?;
            rest.trim_end_matches('.').parse().ok()
        });
        // What it writes later must not block it.
        thread::spawn(move || lines.for_each(drop));
        let profile = tempfile::tempdir().unwrap();
        let mut browser =
            Self { driver, port: port.expect("a port"), session: String::new(), _profile: profile };
        let arguments = [
            "--headless=new".to_owned(),
            // The sandbox refuses root; the page is the test's own.
            "--no-sandbox".to_owned(),
            "--disable-gpu".to_owned(),
            "--disable-dev-shm-usage".to_owned(),
            "--disable-background-networking".to_owned(),
            "--force-color-profile=srgb".to_owned(),
            "--window-size=1000,900".to_owned(),
            format!("--user-data-dir={}", browser._profile.path().display()),
        ];
        let options = json!({ "binary": "/usr/bin/chromium", "args": arguments });
        let wanted = json!({ "capabilities": { "alwaysMatch": { "browserName": "chrome", "goog:chromeOptions": options } } });
        browser.session =
            browser.ask("POST", "", &wanted)["sessionId"].as_str().expect("a session").to_owned();
        browser.ask("POST", "/url", &json!({ "url": address }));
        browser
    }

    /// A request to the driver, of this session once there is one.
    fn ask(&self, method: &str, path: &str, body: &Value) -> Value {
        let session = if self.session.is_empty() { String::new() } else { format!("/{}", self.session) };
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.set_read_timeout(Some(LIMIT * 2)).unwrap();
        let length = body.len();
        write!(
            stream,
            "{method} /session{session}{path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n\
             Content-Length: {length}\r\nConnection: close\r\n\r\n{body}"
        )
        .unwrap();
        let mut answer = BufReader::new(stream);
        let mut length = 0;
        loop {
            let mut line = String::new();
            answer.read_line(&mut line).unwrap();
            match line.trim().split_once(':') {
                Some((key, value)) if key.eq_ignore_ascii_case("content-length") => {
                    length = value.trim().parse().unwrap();
                }
                Some(_) => {}
                None if line.trim().is_empty() => break,
                None => {}
            }
        }
        let mut content = vec![0; length];
        answer.read_exact(&mut content).unwrap();
        let value = serde_json::from_slice::<Value>(&content).unwrap()["value"].take();
        assert!(
            value.get("error").is_none_or(Value::is_null) || value.get("sessionId").is_some(),
            "{path}: {value}"
        );
        value
    }

    /// The value of a script's `return`.
    pub fn run(&self, script: &str) -> Value {
        self.ask("POST", "/execute/sync", &json!({ "script": script, "args": [] }))
    }

    /// Waits until a condition of the page is true.
    #[expect(clippy::disallowed_methods, reason = "a test waits")]
    pub fn until(&self, condition: &str) {
        let end = Instant::now() + LIMIT;
        while self.run(&format!("return Boolean({condition})")) != true {
            assert!(Instant::now() < end, "never: {condition}\n{}", self.text("body"));
            thread::sleep(Duration::from_millis(50));
        }
    }

    /// What a person reads of an element.
    pub fn text(&self, selector: &str) -> String {
        let text = self.run(&format!("return document.querySelector({selector:?}).innerText"));
        text.as_str().unwrap_or_default().to_owned()
    }

    /// Types keys, wherever the focus is.
    pub fn press(&self, keys: &[char]) {
        let keys = keys.iter().flat_map(|key| {
            ["keyDown", "keyUp"].map(|kind| json!({ "type": kind, "value": key.to_string() }))
        });
        let keys: Vec<_> = keys.collect();
        self.ask(
            "POST",
            "/actions",
            &json!({ "actions": [{ "type": "key", "id": "keys", "actions": keys }] }),
        );
    }

    /// The role and the name that a screen reader gets of an element.
    pub fn spoken(&self, selector: &str) -> (String, String) {
        let found = self.ask("POST", "/element", &json!({ "using": "css selector", "value": selector }));
        let id = found[ELEMENT].as_str().expect("an element").to_owned();
        let get = |what: &str| {
            let value = self.ask("GET", &format!("/element/{id}/computed{what}"), &Value::Null);
            value.as_str().unwrap_or_default().to_owned()
        };
        (get("role"), get("label"))
    }

    /// A picture of what is seen, as PNG in base64.
    pub fn picture(&self) -> String {
        self.ask("GET", "/screenshot", &Value::Null).as_str().expect("a picture").to_owned()
    }
}
