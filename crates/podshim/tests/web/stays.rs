//! The page over time: what it costs, what stays as it is while things happen, and what it does when the server refuses it.

use std::thread;
use std::time::Duration;

use control_api::Container;
use control_api::container::{Role, State};
use control_api::event::Kind;

use crate::browser::Browser;
use crate::fake_shim::{FakeShim, container, held};
use crate::page::{Node, STORY, happens};
use crate::served::Events;

/// Opens the story of the pod `prod/<name>`.
fn opens(browser: &Browser, name: &str) {
    browser.run(&format!(
        "[...document.querySelectorAll('button[data-pod]')].find(it => it.textContent === 'prod/{name}').click()"
    ));
}

fn requests(browser: &Browser, of: &str) -> u64 {
    let script = format!(
        "return performance.getEntriesByType('resource').filter(it => new URL(it.name).pathname === '/{of}').length"
    );
    browser.run(&script).as_u64().unwrap()
}

/// As many as a plan may have, each of which waits for all before it.
#[test]
fn a_large_plan_is_drawn_at_once() {
    let node = Node::new();
    let name = |number: usize| format!("s{number}");
    let containers = (0..64).map(|number| Container {
        after: (0..number).map(|earlier| format!("{}=ready", name(earlier))).collect(),
        ..container(&name(number), Role::SIDECAR, State::RUNNING)
    });
    let _shim = FakeShim::start(node.run.path(), "abc", "u-1", containers.collect());
    let server = node.serve();
    let browser = Browser::at(&server.url());
    browser.until("document.querySelector('button[data-pod]')");
    opens(&browser, "web");
    browser.until("document.querySelectorAll('#story .node').length === 64");
    assert_eq!(browser.run("return document.querySelectorAll('#story .edge').length"), 63);
}

/// Its spare is not needed yet: that is no wait.
#[test]
fn a_standby_that_is_held_does_not_wait() {
    let node = Node::new();
    let standby = Container { role: Role::STANDBY.into(), ..held("proxy-b", "its turn", 5) };
    let _shim = FakeShim::start(
        node.run.path(),
        "abc",
        "u-1",
        vec![container("proxy", Role::SIDECAR, State::RUNNING), standby],
    );
    let server = node.serve();
    let browser = Browser::at(&server.url());
    browser.until("document.querySelector('#count').textContent === '1 of 1 pods'");
    assert_eq!(browser.run("return document.querySelectorAll('.waits').length"), 0);
}

#[test]
fn what_a_person_has_opened_and_focused_stays_while_things_happen() {
    let node = Node::new();
    node.record();
    let shim = node.held();
    let server = node.serve();
    let browser = Browser::at(&server.url());
    browser.until("document.querySelector('#pods svg')");
    // Seconds pass, and nothing happens: the same elements, the same words.
    browser.run("window.said = []; new MutationObserver(all => all.forEach(it => said.push(it.target.id)))
        .observe(document.querySelector('#count'), { childList: true, characterData: true, subtree: true });
        window.kept = document.querySelector('#pods svg'); window.label = kept.getAttribute('aria-label');
        window.bar = document.querySelector('rect[data-lane=app][data-phase=held]'); window.width = bar.getAttribute('width')");
    browser.until("bar.getAttribute('width') !== width");
    assert_eq!(
        browser
            .run("return kept.isConnected && bar.isConnected && kept.getAttribute('aria-label') === label"),
        true
    );
    opens(&browser, "web");
    browser.until(STORY);
    browser.run(
        "document.querySelector('#story summary').click(); document.querySelector('#story summary').focus();
        window.kept = [...document.querySelectorAll('#story svg, #story details, #story tr')]",
    );
    let before = requests(&browser, "ended");
    happens(&shim, 6_000, Kind::OUT_OF_MEMORY, "app", "");
    browser.until("document.querySelector('#story-rows').textContent.includes('out of memory')");
    let is = |what: &str| browser.run(&format!("return {what}"));
    assert_eq!(is("document.querySelector('#story details').open"), true);
    assert_eq!(is("document.activeElement.tagName"), "SUMMARY");
    assert_eq!(
        is("kept.filter(it => !it.isConnected).length <= 1"),
        true,
        "only its timeline is another one"
    );
    // What changes the plan is drawn, and what was open stays so.
    shim.shows(vec![
        container("app", Role::MAIN, State::RUNNING),
        container("proxy", Role::SIDECAR, State::RUNNING),
    ]);
    happens(&shim, 6_100, Kind::RUNNING, "app", "");
    browser.until("document.querySelector('#story-plan').textContent.includes('main, running')");
    assert_eq!(is("document.querySelector('#story details').open"), true);
    assert_eq!(is("document.activeElement.tagName"), "SUMMARY");
    browser.until("document.querySelector('#story-changes').textContent.includes('app (main) is running')");
    assert_eq!(requests(&browser, "ended"), before, "the records are read once for a story");
    assert_eq!(is("said.length"), 0, "the number of pods is the same");
}

/// The answers about one pod come after those about the next.
#[test]
fn the_story_is_of_the_pod_that_was_opened_last() {
    let node = Node::new();
    let app = || vec![container("app", Role::MAIN, State::RUNNING)];
    let _shims = [("cart", "aaa", "u-1"), ("web", "bbb", "u-2")]
        .map(|(name, id, uid)| FakeShim::named(name, node.run.path(), id, uid, app()));
    let server = node.serve();
    let browser = Browser::at(&server.url());
    browser.until("document.querySelectorAll('button[data-pod]').length === 2");
    browser.run(
        "const real = fetch; let first = true; window.fetch = async (what, ...more) => {
        const answer = await real(what, ...more);
        if (what === 'ended' && first) { first = false; await new Promise(done => setTimeout(done, 1500)); }
        return answer;
    }",
    );
    opens(&browser, "cart");
    thread::sleep(Duration::from_millis(500));
    opens(&browser, "web");
    browser.until(STORY);
    for _ in 0..10 {
        assert_eq!(browser.text("#story-title"), "prod/web");
        thread::sleep(Duration::from_millis(200));
    }
}

/// A refusal ends a browser's stream of events for good.
#[test]
fn a_page_that_was_refused_tries_again() {
    let node = Node::new();
    let shim = node.held();
    let server = node.serve();
    let mut readers: Vec<_> = (0..24).map(|_| Events::of(&server)).collect();
    for reader in &mut readers {
        reader.until("event: all\n");
    }
    let browser = Browser::at(&server.url());
    browser.until("document.querySelector('#count').textContent.startsWith('The connection is lost')");
    browser.run("document.querySelector('#name').dispatchEvent(new Event('input', { bubbles: true }))");
    assert!(browser.text("#count").starts_with("The connection is lost"), "{}", browser.text("#count"));
    drop(readers);
    // A reader that is gone is noticed when there is something for it.
    for at in [6_000, 6_500] {
        happens(&shim, at, Kind::OUT_OF_MEMORY, "app", "");
        thread::sleep(Duration::from_secs(1));
    }
    browser.until("document.querySelector('#count').textContent === '1 of 1 pods'");
}
