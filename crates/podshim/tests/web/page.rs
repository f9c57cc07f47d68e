//! The page in a browser: what a person sees, types, and is read by a screen reader.

use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{env, fs, thread};

use control_api::container::{GateState, Role, State};
use control_api::event::Kind;
use control_api::{Container, Event, EventsResponse, InspectResponse, Past, StopReason, VERSION};
use node_state::past::file_of;
use protobuf::Message;
use tempfile::TempDir;

use crate::browser::{Browser, DOWN, ENTER, ESCAPE, TAB};
use crate::fake_shim::{FakeShim, container, held, now_ms};
use crate::server::Server;

/// A story is shown.
pub const STORY: &str = "document.querySelector('#why:not(:empty)')";

pub struct Node {
    pub run: TempDir,
    history: TempDir,
}

impl Node {
    pub fn new() -> Self {
        Self { run: tempfile::tempdir().unwrap(), history: tempfile::tempdir().unwrap() }
    }

    pub fn serve(&self) -> Server {
        Server::start(self.run.path(), self.history.path())
    }

    /// The pod `prod/web`, whose app waits for its proxy.
    pub fn held(&self) -> FakeShim {
        let shim = FakeShim::start(self.run.path(), "0123456789abcdef", "u-1", waiting());
        happens(&shim, 100, Kind::CREATED, "proxy", "");
        happens(&shim, 110, Kind::STARTING, "proxy", "");
        happens(&shim, 150, Kind::RUNNING, "proxy", "");
        happens(&shim, 160, Kind::CREATED, "app", "");
        happens(&shim, 170, Kind::HELD, "app", "sidecar \"proxy\": tcp:8080 refused");
        shim
    }

    /// A record of an earlier pod of that name.
    pub fn record(&self) {
        let ended = |name: &str, role: Role, code: u32| Container {
            real_exit_code: Some(code),
            shown_exit_code: Some(code),
            exited_at_ms: Some(now_ms() - 60_000),
            ..container(name, role, State::EXITED)
        };
        let event = |sequence: u64, kind: Kind| Event {
            sequence,
            wall_ms: now_ms() - 70_000 + i64::try_from(sequence * 1000).unwrap(),
            monotonic_ms: sequence * 1000,
            kind: kind.into(),
            id: "id-of-app".to_owned(),
            name: "app".to_owned(),
            ..Default::default()
        };
        let began = Event {
            stop_reason: StopReason::CALLER.into(),
            id: String::new(),
            name: String::new(),
            ..event(8, Kind::STOP_BEGAN)
        };
        let events = vec![
            event(1, Kind::CREATED),
            event(2, Kind::STARTING),
            event(3, Kind::RUNNING),
            began,
            Event { code: Some(7), ..event(9, Kind::EXITED) },
        ];
        let past = Past {
            pod: Some(InspectResponse {
                id: "fedcba9876543210".to_owned(),
                namespace: "k8s.io".to_owned(),
                pod_name: "web".to_owned(),
                pod_namespace: "prod".to_owned(),
                started_at_ms: now_ms() - 70_000,
                containers: vec![ended("app", Role::MAIN, 7)],
                ..Default::default()
            })
            .into(),
            events: Some(EventsResponse { events, ..Default::default() }).into(),
            version: VERSION,
            ended_at_ms: now_ms() - 60_000,
            ..Default::default()
        };
        let path = self.history.path().join(file_of(&past));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, past.write_to_bytes().unwrap()).unwrap();
    }
}

fn proxy(gate: GateState) -> Container {
    Container {
        gate: "tcp::8080".to_owned(),
        gate_state: gate.into(),
        ..container("proxy", Role::SIDECAR, State::RUNNING)
    }
}

fn waiting() -> Vec<Container> {
    let app = Container {
        after: vec!["proxy=ready".to_owned()],
        ..held("app", "sidecar \"proxy\": tcp:8080 refused", 170)
    };
    vec![proxy(GateState::STARTED), app]
}

pub fn happens(shim: &FakeShim, at_ms: u64, kind: Kind, name: &str, text: &str) {
    shim.happens(kind, name, |event| {
        event.monotonic_ms = at_ms;
        // The pod has lived for five seconds.
        event.wall_ms = event.wall_ms - 5_000 + i64::try_from(at_ms).unwrap();
        event.text = text.to_owned();
    });
}

/// The proxy's gate opens, and the app starts.
fn opens(shim: &FakeShim) {
    let app =
        Container { after: vec!["proxy=ready".to_owned()], ..container("app", Role::MAIN, State::RUNNING) };
    shim.shows(vec![proxy(GateState::OPEN), app]);
    let last = 6_000;
    happens(shim, last, Kind::GATE_OPENED, "proxy", "");
    happens(shim, last + 10, Kind::STARTING, "app", "");
    happens(shim, last + 50, Kind::RUNNING, "app", "");
}

/// The width of a bar in the list, of the chart's 1000.
const WIDTH: &str =
    "return Number(document.querySelector('rect[data-lane=app][data-phase=held]').getAttribute('width'))";

#[test]
fn a_held_pod_appears_its_bar_moves_and_its_gate_opens() {
    let node = Node::new();
    let shim = node.held();
    let server = node.serve();
    let browser = Browser::at(&server.url());
    browser.until("document.querySelector('#count').textContent === '1 of 1 pods'");
    assert_eq!(browser.text("h1"), "Pods on node-1");
    assert!(
        browser.text("#pods").contains("app (main) is held, waiting for sidecar \"proxy\""),
        "{}",
        browser.text("#pods")
    );
    // Nothing happens to the pod, and its bar grows: the hold takes more and more of the pod's life.
    let width = || browser.run(WIDTH).as_f64().unwrap();
    let before = width();
    browser.until(&format!("(() => {{ {WIDTH} }})() > {before}"));
    assert!(
        browser.run("return document.querySelector('rect[data-lane=app][data-phase=running]')").is_null()
    );
    opens(&shim);
    browser.until("document.querySelector('rect[data-lane=app][data-phase=running]')");
    browser.until("!document.querySelector('.waits')");
    // The hold is over: its part of the life becomes less.
    let held = width();
    browser.until(&format!("(() => {{ {WIDTH} }})() < {held}"));
    browser.until("document.querySelector('#changes').textContent.includes('app (main) is running')");
    // Another pod comes, and this one goes.
    let other = FakeShim::named(
        "cart",
        node.run.path(),
        "11112222",
        "u-2",
        vec![container("app", Role::MAIN, State::RUNNING)],
    );
    browser.until("document.querySelector('#pods').innerText.includes('prod/cart')");
    let order =
        browser.run("return [...document.querySelectorAll('.pod > button')].map(it => it.textContent)");
    assert_eq!(order, serde_json::json!(["prod/cart", "prod/web"]));
    drop(shim);
    browser.until("!document.querySelector('#pods').innerText.includes('prod/web')");
    browser.until("document.querySelector('#changes').textContent === 'prod/web is gone'");
    drop(other);
}

#[test]
fn a_story_has_why_its_plan_what_happened_and_its_past() {
    let node = Node::new();
    node.record();
    let shim = node.held();
    let server = node.serve();
    let browser = Browser::at(&server.url());
    browser.until("document.querySelector('button[data-pod]')");
    browser.run("document.querySelector('button[data-pod]').click()");
    browser.until(STORY);
    let story = browser.text("#story");
    for text in [
        "prod/web: \"app\" is held for ",
        "waiting for sidecar \"proxy\"",
        "Earlier pods of this name",
        "held, waiting for sidecar \"proxy\"",
    ] {
        assert!(story.contains(text), "no {text:?} in\n{story}");
    }
    let (role, graph) = browser.spoken("svg[aria-label^='The plan as a graph']");
    assert_eq!(role, "image");
    assert_eq!(
        graph,
        "The plan as a graph. proxy (sidecar) starts at once. app (main) waits for proxy to be ready"
    );
    // It goes on while it is read.
    opens(&shim);
    browser.until("document.querySelector('#story').innerText.includes('gate open')");
    browser.until("document.querySelector('#why').textContent.startsWith('prod/web waits for nothing')");
    // Its past.
    browser.run("document.querySelector('#story td button').click()");
    browser.until("document.querySelector('#why').textContent.startsWith('prod/web is gone: it ended ')");
    let story = browser.text("#story");
    assert!(story.contains("\"app\" exited with 7") && story.contains("the stop begins (caller)"), "{story}");
    let resources =
        browser.run("return performance.getEntriesByType('resource').map(it => new URL(it.name).origin)");
    let own = format!("http://{}", server.address);
    assert!(resources.as_array().unwrap().iter().all(|origin| *origin == own), "{resources}");
}

/// A person at ctr may choose any name; one in Kubernetes chooses texts. All of it is text.
#[test]
fn a_hostile_pods_name_is_text() {
    const MARKUP: &str = "<img src=x onerror=\"document.title='hit'\"><script>document.title='hit'</script>";
    let node = Node::new();
    let hostile = Container {
        after: vec![format!("{MARKUP}=ready"), "constructor=ready".to_owned()],
        ..held(MARKUP, MARKUP, 5)
    };
    let other = Container {
        after: vec![format!("{MARKUP}=ready")],
        ..container("__proto__", Role::MAIN, State::RUNNING)
    };
    let shim = FakeShim::start(node.run.path(), "0123456789abcdef", "u-1", vec![hostile, other]);
    shim.change(|pod| {
        pod.pod_name = format!("{MARKUP}</title>");
        pod.pod_namespace = format!("\"'>{MARKUP}");
        pod.fault = MARKUP.to_owned();
    });
    happens(&shim, 1, Kind::CREATED, MARKUP, "");
    happens(&shim, 2, Kind::HELD, MARKUP, MARKUP);
    let server = node.serve();
    let browser = Browser::at(&server.url());
    browser.until("document.querySelector('button[data-pod]')");
    browser.run("document.querySelector('button[data-pod]').click()");
    browser.until(STORY);
    assert!(browser.text("#story-title").contains(MARKUP), "{}", browser.text("#story-title"));
    assert!(browser.text(".pod").contains(MARKUP));
    assert_eq!(
        browser.run(
            "return document.querySelectorAll('img, body script + *, #pods script, #story script').length"
        ),
        0
    );
    assert_eq!(browser.run("return document.title"), "podshim: node-1");
    // Its namespace as a filter, too.
    browser.run("const it = document.querySelector('#namespace'); it.selectedIndex = 1; it.dispatchEvent(new Event('input', {bubbles: true}))");
    browser.until("document.querySelector('#count').textContent === '1 of 1 pods'");
    // A script that comes in all the same would not run.
    browser.run("const it = document.createElement('script'); it.textContent = \"document.title = 'hit'\"; document.body.append(it)");
    browser.run("const it = document.createElement('div'); it.innerHTML = \"<img src=x onerror=\\\"document.title='hit'\\\">\"; document.body.append(it)");
    thread::sleep(Duration::from_millis(300));
    assert_eq!(browser.run("return document.title"), "podshim: node-1");
}

#[test]
fn the_keyboard_reaches_everything_and_a_screen_reader_has_its_words() {
    let node = Node::new();
    node.record();
    let _shim = node.held();
    let server = node.serve();
    let browser = Browser::at(&server.url());
    browser.until("document.querySelector('button[data-pod]') && document.querySelector('#ended button')");
    // All that a mouse can use is reached by Tab, in the order in which it is seen.
    let usable = browser
        .run("return document.querySelectorAll('main button, header select, header input').length")
        .as_u64()
        .unwrap();
    let mut reached = Vec::new();
    for _ in 0..usable {
        browser.press(&[TAB]);
        let at = browser.run("const it = document.activeElement; return it.id || it.textContent");
        reached.push(at.as_str().unwrap().to_owned());
    }
    assert_eq!(reached, ["namespace", "state", "name", "window", "prod/web", "renew", "prod/web"]);
    for (selector, role, name) in [
        ("#namespace", "combobox", "Namespace"),
        ("#state", "combobox", "State"),
        ("#name", "searchbox", "Name contains"),
        ("#window", "combobox", "Timeline"),
        ("#count", "status", ""),
        ("#pods", "list", "Pods"),
        ("button[data-pod]", "button", "prod/web"),
    ] {
        assert_eq!(browser.spoken(selector), (role.to_owned(), name.to_owned()), "{selector}");
    }
    let (role, chart) = browser.spoken("#pods svg");
    assert_eq!(role, "image");
    assert!(
        chart.starts_with("Timeline since ") && chart.contains("app (main): created 0.0s, held "),
        "{chart}"
    );
    // Enter opens the story, whose title has the focus; Tab stays in it; Escape closes it, and the focus is where it was.
    browser.run("document.querySelector('button[data-pod]').focus()");
    browser.press(&[ENTER]);
    browser.until(STORY);
    assert_eq!(browser.run("return document.activeElement.id"), "story-title");
    assert_eq!(browser.spoken("#story"), ("dialog".to_owned(), "prod/web".to_owned()));
    let mut inside = Vec::new();
    for _ in 0..6 {
        browser.press(&[TAB]);
        // Between the last and the first the browser itself has the focus: then it is on no element but the body.
        inside.push(browser.run("const it = document.activeElement; return it === document.body ? 'none' : document.querySelector('#story').contains(it) ? it.tagName : 'outside'"));
    }
    let count = |what: &str| inside.iter().filter(|it| **it == what).count();
    assert!(
        count("outside") == 0 && count("none") <= 2 && count("SUMMARY") > 0 && count("BUTTON") > 1,
        "{inside:?}"
    );
    browser.press(&[ESCAPE]);
    browser.until("!document.querySelector('#story').open");
    assert_eq!(browser.run("return document.activeElement.dataset.pod"), "k8s.io/0123456789abcdef");
    // A filter by the keyboard alone.
    browser.run("document.querySelector('#state').focus()");
    browser.press(&[DOWN]);
    browser.until("document.querySelector('#state').value === 'waiting' && document.querySelector('#count').textContent === '1 of 1 pods'");
    browser.press(&[DOWN, DOWN]);
    browser.until("document.querySelector('#state').value !== 'waiting' && document.querySelector('#count').textContent === '0 of 1 pods'");
    browser.run("document.querySelector('#state').value = ''; document.querySelector('#name').focus()");
    browser.press(&['z']);
    browser.until("document.querySelector('#count').textContent === '0 of 1 pods'");
}

#[test]
fn a_page_whose_server_was_away_shows_what_is_there_by_then() {
    let node = Node::new();
    let shim = node.held();
    let other = FakeShim::named(
        "cart",
        node.run.path(),
        "11112222",
        "u-2",
        vec![container("app", Role::MAIN, State::RUNNING)],
    );
    let mut server = node.serve();
    let browser = Browser::at(&server.url());
    browser.until("document.querySelector('#count').textContent === '2 of 2 pods'");
    assert_eq!(server.end(), Some(0));
    browser.until("document.querySelector('#count').textContent.startsWith('The connection is lost')");
    drop(other);
    let _server = Server::at(&server.address, node.run.path(), node.history.path());
    browser.until("document.querySelector('#count').textContent === '1 of 1 pods'");
    browser.until("!document.querySelector('#pods').innerText.includes('prod/cart')");
    opens(&shim);
    browser.until("document.querySelector('rect[data-lane=app][data-phase=running]')");
}

/// What the pictures show is compared as text; with PODSHIM_REWRITE_GOLDEN set they become those of docs/kubectl.md.
#[test]
fn the_pictures_of_the_docs_are_of_this_page() {
    let node = Node::new();
    node.record();
    let shop = FakeShim::named("shop-5d8f", node.run.path(), "2222333344445555", "u-2", Vec::new());
    let fetch = Container { real_exit_code: Some(0), ..container("fetch", Role::INIT, State::COMPLETED) };
    let after = |one: Container, waits: &[&str]| Container {
        after: waits.iter().map(|it| (*it).to_owned()).collect(),
        ..one
    };
    shop.change(|pod| pod.pod_namespace = "shop".to_owned());
    shop.shows(vec![
        fetch,
        after(container("proxy", Role::SIDECAR, State::RUNNING), &["fetch=done"]),
        after(container("logs", Role::SIDECAR, State::RUNNING), &["fetch=done"]),
        after(container("web", Role::MAIN, State::RUNNING), &["fetch=done", "proxy=ready", "logs=ready"]),
        after(container("worker", Role::MAIN, State::RUNNING), &["fetch=done", "proxy=ready"]),
    ]);
    let all: [(u64, Kind, &str); 19] = [
        (100, Kind::CREATED, "worker"),
        (110, Kind::HELD, "worker"),
        (150, Kind::CREATED, "web"),
        (160, Kind::HELD, "web"),
        (300, Kind::CREATED, "logs"),
        (310, Kind::HELD, "logs"),
        (400, Kind::CREATED, "proxy"),
        (410, Kind::HELD, "proxy"),
        (500, Kind::CREATED, "fetch"),
        (510, Kind::STARTING, "fetch"),
        (530, Kind::RUNNING, "fetch"),
        (1500, Kind::EXITED, "fetch"),
        (1510, Kind::STARTING, "proxy"),
        (1520, Kind::RUNNING, "proxy"),
        (1530, Kind::STARTING, "logs"),
        (1540, Kind::RUNNING, "logs"),
        (2600, Kind::GATE_OPENED, "proxy"),
        (2610, Kind::RUNNING, "worker"),
        (3100, Kind::RUNNING, "web"),
    ];
    for (at, kind, name) in all {
        shop.happens(kind, name, |event| {
            event.code = (kind == Kind::EXITED).then_some(0);
            (event.monotonic_ms, event.wall_ms) = (at, event.wall_ms - 5_000 + i64::try_from(at).unwrap());
        });
    }
    let _held = node.held();
    let server = node.serve();
    let browser = Browser::at(&server.url());
    browser.until(
        "document.querySelectorAll('#pods svg').length === 2 && document.querySelector('#ended button')",
    );
    let list = browser.text("#pods");
    for text in ["shop/shop-5d8f", "prod/web", "app (main) is held, waiting for sidecar \"proxy\""] {
        assert!(list.contains(text), "no {text:?} in\n{list}");
    }
    assert_eq!(browser.run(LANES), serde_json::json!([2, 5]), "each container has bars");
    let seen = browser.run("return document.documentElement.scrollWidth <= innerWidth");
    assert_eq!(seen, true, "nothing is wider than the window");
    is_of_the_docs("web.png", &browser.picture());
    browser.run("document.querySelector('button[data-pod=\"k8s.io/2222333344445555\"]').click()");
    browser.until(STORY);
    assert_eq!(
        browser.run("return [...document.querySelectorAll('#story h3')].map(it => it.textContent)"),
        serde_json::json!(["Timeline", "Plan", "Containers", "What happened"])
    );
    // Of the ways to web and worker only the longest are drawn.
    assert_eq!(browser.run("return document.querySelectorAll('#story .edge').length"), 5);
    is_of_the_docs("web-story.png", &browser.picture());
}

/// How many lanes with bars each chart of the list has.
const LANES: &str = "return [...document.querySelectorAll('#pods svg')].map(svg =>
    new Set([...svg.querySelectorAll('rect')].map(it => it.dataset.lane)).size)";

fn is_of_the_docs(name: &str, picture: &str) {
    let picture = decoded(picture);
    assert!(picture.starts_with(b"\x89PNG\r\n\x1a\n") && picture.len() > 20_000, "{} bytes", picture.len());
    let kept = docs().join(name);
    if env::var_os("PODSHIM_REWRITE_GOLDEN").is_some() {
        fs::write(&kept, &picture).unwrap();
    }
    let kept = fs::read(&kept).unwrap();
    // Its times and letters differ from machine to machine; the size is that of this test's window.
    assert_eq!(
        kept.get(16..24),
        picture.get(16..24),
        "docs/{name} was not made by this test: PODSHIM_REWRITE_GOLDEN=1 makes it"
    );
}

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs")
}

/// Of base64.
fn decoded(text: &str) -> Vec<u8> {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let digits = text.bytes().filter_map(|byte| DIGITS.iter().position(|digit| *digit == byte));
    let digits: Vec<_> = digits.map(|digit| u32::try_from(digit).unwrap()).collect();
    let bytes = digits.chunks(4).flat_map(|group| {
        let value = group.iter().fold(0, |value, digit| value << 6 | digit) << (6 * (4 - group.len()));
        value.to_be_bytes()[1..group.len()].to_vec()
    });
    bytes.collect()
}
