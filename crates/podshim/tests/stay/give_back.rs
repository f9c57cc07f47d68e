//! An installer ends at a moment in which containerd has a configuration that it does not take: the next one goes on from there.
//! And a restart that does not end is bounded.

use std::fs;
use std::time::{Duration, Instant};

use super::containerd::LOADED;
use super::node::{BREAKS, CONTAINERD, HANGS, Node, REFUSES};

const CONFIG: &str = "etc/containerd/config.toml";
const ORIGINAL: &str = "version = 2\n\n# the node's, without a line end";
const RESTARTED: &str = "run/podshim-restarted-configuration";
const REFUSED: &str = "run/podshim-refused-configuration";
const RESTART: [&str; 1] = ["--restart"];
/// Of an installer that does not wait long.
const SHORT: [&str; 3] = ["--restart", "--restart-timeout", "2s"];

/// A node on which this happens when containerd is restarted; `None` where a test cannot have one.
fn node(obstacle: &str) -> Option<Node> {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("skipped: another root directory is for root only");
        return None;
    }
    let node = Node::new().with_systemctl();
    fs::write(node.at(obstacle), "").expect("a file");
    fs::write(node.at(CONFIG), ORIGINAL).expect("a configuration");
    Some(node)
}

impl Node {
    fn read(&self, path: &str) -> String {
        fs::read_to_string(self.at(path)).unwrap_or_default()
    }

    fn restarts(&self) -> usize {
        self.calls().matches("\nrestart containerd.service").count()
    }

    /// An installer has restarted containerd, and ends before the answer.
    fn is_left_after_a_restart(&self) {
        let mut installer = self.install(&RESTART);
        installer.reports("containerd is restarted");
        installer.ends_at_sigterm();
        let config = self.read(CONFIG);
        assert!(config.contains("runtimes.podshim]"), "{config}");
        self.has_noted(&config);
    }

    /// The note of a restart has this configuration, below the unit and the files of before.
    fn has_noted(&self, config: &str) {
        let note = self.read(RESTARTED);
        let mut lines = note.splitn(3, '\n');
        assert_eq!(lines.next(), Some("containerd.service"), "{note}");
        assert_eq!(lines.nth(1), Some(config), "{note}");
    }

    /// The configuration is as before, containerd answers with it, and no note of a restart is left.
    fn is_as_before(&self) {
        assert_eq!(self.read(CONFIG), ORIGINAL);
        assert!(!self.at("etc/containerd/config.toml.before-podshim").exists());
        assert_eq!(self.has_runtime(), Some(1), "containerd answers");
        assert!(!self.at(RESTARTED).exists());
    }

    /// Another installer fails with these words.
    fn fails(&self, reason: &str) {
        let (code, printed) = self.install(&SHORT).ends();
        assert_eq!(code, Some(1), "{printed}");
        assert!(printed.contains(reason), "{printed}");
    }
}

/// containerd ends with the runtime, or answers without it. The next installer waits, and does not restart it with that once more.
#[test]
fn a_restart_that_was_not_waited_for_is_taken_back_by_the_next_installer() {
    for obstacle in [BREAKS, REFUSES] {
        let Some(node) = node(obstacle) else { return };
        node.is_left_after_a_restart();
        node.fails("for 2 s; its configuration is as before, with which it answers again");
        node.is_as_before();
        assert_eq!(node.restarts(), 2, "{}", node.calls());
        node.fails("nothing was changed");
        assert_eq!(node.restarts(), 2, "{}", node.calls());
    }
}

#[test]
fn a_containerd_that_answers_the_next_installer_keeps_its_configuration() {
    let Some(node) = node(BREAKS) else { return };
    node.is_left_after_a_restart();
    let mut installer = node.install(&RESTART);
    installer.says("waiting for its answer");
    fs::write(node.loaded(), "").expect("the runtime");
    let directory = node.at(CONTAINERD);
    fs::rename(directory.join("away"), directory.join("containerd.sock")).expect("the socket");
    installer.says("pods can run on podshim here");
    installer.ends_at_sigterm();
    assert_eq!(node.restarts(), 1, "{}", node.calls());
    assert!(node.read(CONFIG).contains("runtimes.podshim]"));
    assert!(!node.at(RESTARTED).exists());
}

/// A person has changed the configuration since: it is restarted with that, and the note is of that.
#[test]
fn a_note_of_another_configuration_does_not_count() {
    let Some(node) = node(REFUSES) else { return };
    node.is_left_after_a_restart();
    let changed = node.read(CONFIG) + "\n# changed by a person\n";
    node.write_after_the_start(CONFIG, &changed);
    let mut installer = node.install(&RESTART);
    installer.says("restarting the containerd of containerd");
    installer.reports("containerd is restarted");
    installer.ends_at_sigterm();
    assert_eq!(node.restarts(), 2, "{}", node.calls());
    node.has_noted(&changed);
    // Changed again, and containerd is newer than that: not even then.
    fs::write(node.at(CONFIG), changed.clone() + "# again\n").expect("a change");
    let socket = node.at(CONTAINERD).join("containerd.sock");
    let rights = fs::metadata(&socket).expect("the socket").permissions();
    fs::set_permissions(&socket, rights).expect("a time");
    let mut installer = node.install(&RESTART);
    installer.says("must be restarted on the node");
    installer.ends_at_sigterm();
    assert_eq!(node.restarts(), 2, "{}", node.calls());
}

/// A roll-out ends the installer: the next one is of a release that writes another runtime. What containerd gets back is not that of
/// the first.
#[test]
fn the_next_release_does_not_give_back_what_did_not_answer() {
    let Some(node) = node(BREAKS) else { return };
    node.is_left_after_a_restart();
    let first = node.read(CONFIG);
    fs::create_dir_all(node.at("etc/podshim")).expect("a directory");
    fs::write(node.at("etc/podshim/config.toml"), "read = [\"kruise\"]\n").expect("the node's file");
    // That one is killed, too.
    node.is_left_after_a_restart();
    node.fails("for 2 s; its configuration is as before, with which it answers again");
    assert_ne!(node.read(REFUSED), first, "another text was tried");
    node.is_as_before();
    assert_eq!(node.restarts(), 3, "{}", node.calls());
}

/// Killed after the note of the refusal: before the file was given back, and between that and the restart.
#[test]
fn what_a_killed_installer_has_not_given_back_is_given_back_before_the_refusal() {
    for moment in [Moment::BeforeTheFiles, Moment::BeforeTheRestart] {
        let Some(node) = node(BREAKS) else { return };
        node.is_left_after_a_restart();
        fs::write(node.at(REFUSED), node.read(CONFIG)).expect("the note");
        if moment == Moment::BeforeTheRestart {
            fs::write(node.at(CONFIG), ORIGINAL).expect("the configuration");
            fs::remove_file(node.at("etc/containerd/config.toml.before-podshim")).expect("the backup");
        }
        node.fails(
            "did not take this configuration at its last restart; its configuration is as before, with which it answers again",
        );
        node.is_as_before();
        assert_eq!(node.restarts(), 2, "{}", node.calls());
        node.fails("did not take this configuration at its last restart; it has the one of before; nothing was changed");
        assert_eq!(node.restarts(), 2, "{}", node.calls());
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Moment {
    BeforeTheFiles,
    BeforeTheRestart,
}

/// The node has the runtime of an earlier release, with which containerd runs; it does not start with the one of this release. The
/// installer is killed after the restart, before the file was given back, and between that and the restart.
#[test]
fn the_runtime_of_an_earlier_release_comes_back_byte_for_byte() {
    for moment in [None, Some(Moment::BeforeTheFiles), Some(Moment::BeforeTheRestart)] {
        let Some(node) = node("nothing") else { return };
        let mut installer = node.install(&RESTART);
        installer.says("pods can run on podshim here");
        installer.ends_at_sigterm();
        let earlier = node.read(CONFIG);
        fs::write(node.at(BREAKS), "kruise").expect("a file");
        fs::create_dir_all(node.at("etc/podshim")).expect("a directory");
        fs::write(node.at("etc/podshim/config.toml"), "read = [\"kruise\"]\n").expect("the node's file");
        node.is_left_after_a_restart();
        assert_ne!(node.read(CONFIG), earlier);
        if moment.is_some() {
            fs::write(node.at(REFUSED), node.read(CONFIG)).expect("the note");
        }
        if moment == Some(Moment::BeforeTheRestart) {
            fs::write(node.at(CONFIG), &earlier).expect("the configuration");
        }
        node.fails("its configuration is as before, with which it has the runtime again");
        assert_eq!(node.read(CONFIG), earlier);
        assert_eq!(node.has_runtime(), Some(0));
        assert_eq!(node.read("etc/containerd/config.toml.before-podshim"), ORIGINAL);
        assert!(!node.at(RESTARTED).exists());
        assert_eq!(node.restarts(), 3, "{}", node.calls());
        node.fails("nothing was changed");
        assert_eq!((node.read(CONFIG), node.restarts()), (earlier, 3));
    }
}

/// The restart hangs, and the installer is killed: containerd answers, with the runtime of the earlier release. The next installer
/// restarts it, and takes the answer for one of this release only then.
#[test]
fn a_containerd_with_the_runtime_of_an_earlier_release_is_restarted_by_the_next_installer() {
    for breaks in [Breaks::Never, Breaks::WithThisRelease] {
        let Some(node) = node("nothing") else { return };
        let mut installer = node.install(&RESTART);
        installer.says("pods can run on podshim here");
        installer.ends_at_sigterm();
        let earlier = node.read(CONFIG);
        fs::create_dir_all(node.at("etc/podshim")).expect("a directory");
        fs::write(node.at("etc/podshim/config.toml"), "read = [\"kruise\"]\n").expect("the node's file");
        fs::write(node.at(HANGS), "restart").expect("a file");
        let mut installer = node.install(&RESTART);
        installer.reports("systemctl hangs");
        installer.ends_at_sigterm();
        let config = node.read(CONFIG);
        assert_ne!(config, earlier);
        assert_eq!(node.has_runtime(), Some(0), "that of the earlier release");
        if breaks == Breaks::WithThisRelease {
            fs::write(node.at(BREAKS), "kruise").expect("a file");
            node.fails("its configuration is as before, with which it has the runtime again");
            assert_eq!((node.read(CONFIG), node.restarts()), (earlier, 4), "{}", node.calls());
        } else {
            let mut installer = node.install(&RESTART);
            installer.reports("containerd is restarted");
            installer.says("pods can run on podshim here");
            installer.ends_at_sigterm();
            assert_eq!((node.read(CONFIG), node.restarts()), (config, 3), "{}", node.calls());
        }
        assert!(!node.at(RESTARTED).exists());
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Breaks {
    Never,
    WithThisRelease,
}

/// The installer of the change ended before the restart. What the next one notes is the same as if it had made the change.
#[test]
fn a_refused_configuration_that_was_in_place_is_not_tried_again() {
    let Some(node) = node(REFUSES) else { return };
    let mut installer = node.install(&[]);
    installer.says("must be restarted on the node");
    installer.ends_at_sigterm();
    node.fails("its configuration is as before, with which it answers again");
    node.is_as_before();
    assert_eq!(node.restarts(), 2, "{}", node.calls());
    node.fails("nothing was changed");
    assert_eq!(node.restarts(), 2, "{}", node.calls());
}

/// A person has mended the cause and restarted containerd, and the note is still there.
#[test]
fn a_refusal_does_not_count_once_containerd_runs_with_it() {
    let Some(node) = node("nothing") else { return };
    let mut installer = node.install(&RESTART);
    installer.says("pods can run on podshim here");
    installer.ends_at_sigterm();
    let config = node.read(CONFIG);
    fs::write(node.at(REFUSED), &config).expect("the note");
    assert!(node.at(CONTAINERD).join(LOADED).exists());
    let mut installer = node.install(&RESTART);
    installer.says("pods can run on podshim here");
    installer.ends_at_sigterm();
    assert_eq!((node.read(CONFIG), node.restarts()), (config, 1));
    assert!(!node.at(REFUSED).exists());
}

/// systemctl waits for a unit that does not start.
#[test]
fn a_restart_that_hangs_is_bounded() {
    let Some(node) = node(HANGS) else { return };
    fs::write(node.at(HANGS), "restart").expect("a file");
    node.fails("`systemctl restart containerd.service` had not ended after 2 s");
    node.is_as_before();
    assert_eq!(node.restarts(), 2, "{}", node.calls());
}

/// Whichever call of systemctl waits for a systemd that hangs.
#[test]
#[allow(clippy::disallowed_methods, reason = "a test measures how long the end takes")]
fn it_ends_at_sigterm_while_systemctl_hangs() {
    let before = ["is-active --quiet podshim-drain", "daemon-reload", "start podshim-drain"];
    for call in before.into_iter().chain(["is-active --quiet containerd", "restart"]) {
        let Some(node) = node(HANGS) else { return };
        fs::write(node.at(HANGS), call).expect("a file");
        let mut installer = node.install(&RESTART);
        installer.reports("systemctl hangs");
        let begin = Instant::now();
        installer.ends_at_sigterm();
        assert!(begin.elapsed() < Duration::from_secs(20), "{call}: {:?}", begin.elapsed());
        // Nothing is begun after the signal.
        assert_eq!(
            node.calls().lines().last().map(|last| last.starts_with(call)),
            Some(true),
            "{}",
            node.calls()
        );
        // The next one does not know whether systemd goes on: it restarts containerd, which has not started since the change.
        let mut installer = node.install(&RESTART);
        installer.says("pods can run on podshim here");
        installer.ends_at_sigterm();
        assert!(!node.at(RESTARTED).exists());
    }
}

/// The note has the unit that is to be restarted: it is not active.
#[test]
fn removal_restarts_a_containerd_that_is_down_and_removes_the_notes() {
    let Some(node) = node(BREAKS) else { return };
    node.is_left_after_a_restart();
    fs::write(node.at(REFUSED), "another").expect("the note");
    #[allow(clippy::disallowed_methods, reason = "a test runs the command as its users do")]
    let removed = node.command(&["uninstall", "--yes", "--force", "--restart"]).output().expect("runs");
    assert_eq!(removed.status.code(), Some(0), "{}", String::from_utf8_lossy(&removed.stderr));
    node.is_as_before();
    assert!(!node.at(REFUSED).exists());
}
