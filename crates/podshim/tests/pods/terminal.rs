//! How wide the output is and whether it has colours: on a real terminal, and without one.

use std::io::Read;
use std::process::{Command, Stdio};

use nix::pty::{Winsize, openpty};

use super::node::{Node, command, web};

/// A table is as wide as the terminal, but never narrower than is readable; without a terminal nothing is cut.
#[test]
fn a_wide_table_fits_its_terminal() {
    let node = Node::new();
    let mut answer = web();
    answer.pod_name =
        "a-name-of-a-pod-that-is-rather-long-for-a-terminal-as-names-of-deployments-are".to_owned();
    node.pod(answer);
    let widest = |columns: Option<&str>| {
        let mut ps = command(&["ps"], node.root.path());
        columns.map(|columns| ps.env("COLUMNS", columns));
        #[expect(clippy::disallowed_methods, reason = "a test runs the command as its users do")]
        let shown = ps.output().unwrap().stdout;
        let shown = String::from_utf8(shown).unwrap();
        (shown.lines().map(|line| line.chars().count()).max().unwrap(), shown.contains("…"))
    };
    assert_eq!(widest(Some("80")), (80, true));
    assert_eq!(widest(Some("120")), (120, true));
    assert_eq!(widest(Some("40")), (80, true));
    let (whole, is_cut) = widest(None);
    assert!(whole > 140 && !is_cut, "{whole}");
    assert_eq!(widest(Some("1000")), (whole, false));
}

/// What a command writes to a terminal of that many columns.
fn on_terminal(mut command: Command, columns: u16) -> String {
    let size = Winsize { ws_row: 24, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    let terminal = openpty(&size, None).unwrap();
    #[expect(clippy::disallowed_methods, reason = "a test runs the command as its users do")]
    let mut running = command.env_remove("COLUMNS").stdout(Stdio::from(terminal.slave)).spawn().unwrap();
    // It keeps the terminal open for the next child: then no read would end.
    drop(command);
    let mut shown = Vec::new();
    // A terminal that no process has open any more answers with an error.
    let _ = std::fs::File::from(terminal.master).read_to_end(&mut shown);
    #[expect(clippy::disallowed_methods, reason = "a test runs the command as its users do")]
    let status = running.wait().unwrap();
    assert!(status.success(), "{status}");
    String::from_utf8(shown).unwrap().replace("\r\n", "\n")
}

/// The width of a real terminal counts, within bounds.
#[test]
fn a_table_and_a_picture_fit_the_terminal_that_they_are_on() {
    let node = Node::new();
    let mut answer = web();
    answer.pod_name = "a-name-of-a-pod-that-is-rather-long-for-a-terminal-".repeat(3) + "indeed";
    node.pod(answer);
    let widest = |columns: u16| {
        let mut ps = command(&["ps"], node.root.path());
        ps.env("NO_COLOR", "1");
        let shown = on_terminal(ps, columns);
        (shown.lines().map(|line| line.chars().count()).max().unwrap(), shown.contains('…'))
    };
    assert_eq!(widest(120), (120, true));
    assert_eq!(widest(60), (80, true), "no narrower than is readable");
    assert_eq!(widest(500), (200, true), "no wider than is readable");
    // A serial console does not know its size: nothing is cut.
    let (whole, is_cut) = widest(0);
    assert!(whole > 200 && !is_cut, "{whole}");

    let picture = |columns: u16| {
        let arguments =
            ["timeline", "--past", "--history-dir", "tests/golden/history/records", "shop/cart-1"];
        let mut timeline = command(&arguments, node.root.path());
        timeline.current_dir(env!("CARGO_MANIFEST_DIR")).env("NO_COLOR", "1");
        let shown = on_terminal(timeline, columns);
        shown.lines().find(|line| line.starts_with("proxy")).unwrap().chars().count()
    };
    // A column is left free.
    assert_eq!((picture(90), picture(150), picture(0)), (89, 149, 99));
}

/// Colours are for terminals, unless NO_COLOR says no: not if it is empty, and `--color` goes before it.
#[test]
fn colours_are_for_terminals_unless_they_are_refused() {
    let node = Node::new();
    node.pod(web());
    let is_coloured = |arguments: &[&str], refused: Option<&str>| {
        let mut inspect = command(&[arguments, &["inspect", "web"]].concat(), node.root.path());
        inspect.env_remove("NO_COLOR");
        refused.map(|value| inspect.env("NO_COLOR", value));
        on_terminal(inspect, 100).contains('\x1b')
    };
    assert!(is_coloured(&[], None));
    assert!(is_coloured(&[], Some("")), "no-color.org: when present and not an empty string");
    assert!(!is_coloured(&[], Some("1")));
    assert!(is_coloured(&["--color", "always"], Some("1")));
    assert!(!is_coloured(&["--color", "never"], None));
    let (_, piped, _) = node.podshim(&["inspect", "web"]);
    assert!(!piped.contains('\x1b'));
}

/// N10: what tells pods apart, time and name, is whole on a terminal of 80 columns.
#[test]
fn found_n10_a_history_has_whole_times_and_names_at_80_columns() {
    let history = |columns: Option<&str>| {
        let mut history = Command::new(env!("CARGO_BIN_EXE_podshim"));
        history.args(["history", "--history-dir", "tests/golden/history/records", "cart"]);
        history.current_dir(env!("CARGO_MANIFEST_DIR")).env_remove("COLUMNS");
        columns.map(|columns| history.env("COLUMNS", columns));
        #[expect(clippy::disallowed_methods, reason = "a test runs the command as its users do")]
        let shown = history.output().unwrap().stdout;
        String::from_utf8(shown).unwrap()
    };
    let shown = history(Some("80"));
    let (pods, _) = shown.split_once("cannot read").unwrap();
    assert_eq!(
        pods,
        "\
ENDED (UTC)          POD               LIVED  RESULT   WHY
2026-11-21 02:30:00  shop/cart-1       60s    stopped  caller
                     restarts 1; proxy 143 (shown as 0), app 0
2026-11-21 02:30:05  shop/cart-import  65s    failed   -
                     restarts 0; import 3
"
    );
    assert_eq!(history(None).lines().count(), 4, "in a pipe one line each");
}
