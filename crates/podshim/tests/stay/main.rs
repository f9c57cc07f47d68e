//! `podshim install --stay`, as a DaemonSet's pod runs it: on a root made for the test, with a containerd that only
//! answers the CRI, and a systemctl that only writes down how it was called.

#[path = "../containerd/mod.rs"]
mod containerd;
mod give_back;
mod node;

use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use node::{CALLS, DOWN, DRAIN, FAILS, Node, REFUSES};

/// Without the permission it waits for a person to restart containerd. SIGTERM removes nothing.
#[test]
fn without_permission_it_waits_for_the_restart() {
    let node = Node::new();
    let mut installer = node.install(&[]);
    installer.says("the containerd of containerd must be restarted on the node");
    assert_eq!(node.has_runtime(), Some(1));
    fs::write(node.loaded(), "").expect("the restart");
    installer.says("pods can run on podshim here");
    assert_eq!(node.has_runtime(), Some(0));
    installer.ends_at_sigterm();
    for path in ["usr/local/bin/podshim", "usr/local/bin/containerd-shim-podshim-v2"] {
        assert!(node.at(path).exists(), "{path}");
    }
    let config = fs::read_to_string(node.at("etc/containerd/config.toml")).expect("a configuration");
    assert!(config.contains("runtimes.podshim]"), "{config}");
    // All is right already: a second one has nothing to do.
    let mut installer = node.install(&[]);
    let printed = installer.says("pods can run on podshim here");
    assert!(printed.starts_with("Nothing to do") && !printed.contains("restarted"), "{printed}");
    installer.ends_at_sigterm();
}

#[test]
fn it_ends_at_sigterm_while_it_waits() {
    let node = Node::new();
    let mut installer = node.install(&[]);
    installer.says("must be restarted");
    installer.ends_at_sigterm();
}

/// With the permission it restarts containerd once, and a second installer not again. Removal restarts it too.
#[test]
fn with_permission_it_restarts_only_what_has_changed() {
    if !nix::unistd::geteuid().is_root() {
        return eprintln!("skipped: another root directory is for root only");
    }
    let node = Node::new().with_systemctl();
    let mut installer = node.install(&["--restart"]);
    installer.says("restarting the containerd of containerd");
    installer.says("pods can run on podshim here");
    installer.ends_at_sigterm();
    let drain = "is-active --quiet podshim-drain.service\n";
    let start = format!("{drain}daemon-reload\nstart podshim-drain.service\n");
    let restart = "is-active --quiet containerd.service\nrestart containerd.service\n";
    assert_eq!(node.calls(), format!("{start}{restart}"));

    let mut installer = node.install(&["--restart"]);
    installer.says("pods can run on podshim here");
    installer.ends_at_sigterm();
    assert_eq!(node.calls(), format!("{start}{restart}{drain}"), "nothing has changed");

    // An installer that died after its changes: the socket is older than the configuration, and the runtime is missing.
    fs::remove_file(node.loaded()).expect("an old configuration in memory");
    let config = node.at("etc/containerd/config.toml");
    fs::set_permissions(&config, fs::metadata(&config).expect("a file").permissions()).expect("a time");
    let mut installer = node.install(&["--restart"]);
    installer.says("restarting the containerd of containerd");
    installer.says("pods can run on podshim here");
    installer.ends_at_sigterm();
    assert_eq!(node.calls(), format!("{start}{restart}{drain}{drain}{restart}"));

    fs::remove_file(node.at(CALLS)).expect("the calls");
    #[allow(clippy::disallowed_methods, reason = "a test runs the command as its users do")]
    let removed = node.command(&["uninstall", "--yes", "--restart"]).output().expect("runs");
    assert_eq!(removed.status.code(), Some(0), "{}", String::from_utf8_lossy(&removed.stderr));
    assert_eq!(
        node.calls(),
        "daemon-reload\nis-active --quiet containerd.service\nrestart containerd.service\n"
    );
    assert!(!node.at("usr/local/bin/podshim").exists());
}

/// N5: the drain's unit is started at once, without a restart of containerd: by the installer of a DaemonSet and by a person's.
#[test]
fn n5_the_drain_is_active_from_the_installation_on() {
    if !nix::unistd::geteuid().is_root() {
        return eprintln!("skipped: another root directory is for root only");
    }
    let node = Node::new().with_systemctl();
    let mut installer = node.install(&[]);
    installer.says("podshim-drain.service is started");
    installer.says("must be restarted on the node");
    assert!(node.at(DRAIN).exists() && !node.calls().contains("restart"), "{}", node.calls());
    installer.ends_at_sigterm();

    let node = Node::new().with_systemctl();
    let shim = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/install/gke.toml");
    let words = ["install", "--yes", "--shim", shim.to_str().expect("UTF-8")];
    for drains in [true, false] {
        #[allow(clippy::disallowed_methods, reason = "a test runs the command as its users do")]
        let output = node.command(&words).output().expect("podshim runs");
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(output.status.code(), Some(0), "{printed}");
        assert_eq!(printed.contains("podshim-drain.service is started"), drains, "{printed}");
        assert!(!printed.contains("systemctl start podshim-drain"), "{printed}");
        assert!(node.at(DRAIN).exists() && !node.calls().contains("restart"), "{}", node.calls());
    }
    // On a node with everything in place, too.
    fs::remove_file(node.at(DRAIN)).expect("the drain");
    let words = ["install", "--dry-run", "--shim", shim.to_str().expect("UTF-8")];
    #[allow(clippy::disallowed_methods, reason = "a test runs the command as its users do")]
    let output = node.command(&words).output().expect("podshim runs");
    assert!(String::from_utf8_lossy(&output.stdout).contains("Nothing to do"), "{output:?}");
    assert!(!node.at(DRAIN).exists(), "{}", node.calls());
}

/// A containerd that answers without the runtime, and one that does not start: it gets its configuration back, byte for byte,
/// is restarted with it, and left alone until something changes.
#[test]
fn a_containerd_that_does_not_take_the_runtime_gets_its_configuration_back() {
    if !nix::unistd::geteuid().is_root() {
        return eprintln!("skipped: another root directory is for root only");
    }
    for obstacle in [REFUSES, FAILS] {
        let node = Node::new().with_systemctl();
        fs::write(node.at(obstacle), "").expect("a file");
        let config = node.at("etc/containerd/config.toml");
        let original = "version = 2\n\n# the node's, without a line end";
        // On some nodes it is a link.
        let target = if obstacle == FAILS { node.at("etc/containerd/node.toml") } else { config.clone() };
        fs::write(&target, original).expect("a configuration");
        fs::set_permissions(&target, fs::Permissions::from_mode(0o640)).expect("permissions");
        if target != config {
            let _ = fs::remove_file(&config);
            std::os::unix::fs::symlink("node.toml", &config).expect("a link");
        }
        let options = ["--restart", "--restart-timeout", "2s"];
        let fails = |options: &[&str], reason: &str| {
            let (code, printed) = node.install(options).ends();
            assert_eq!(code, Some(1), "{printed}");
            assert!(printed.contains(reason), "{printed}");
            assert_eq!(fs::read_to_string(&config).expect("the configuration"), original, "{printed}");
            let mode = fs::metadata(&config).expect("the configuration").permissions().mode();
            assert_eq!(mode & 0o777, 0o640);
            assert!(!node.at("etc/containerd/config.toml.before-podshim").exists());
        };
        fails(&options, "does not have podshim's runtime after its restart");
        let restarts = || node.calls().matches("\nrestart containerd.service").count();
        assert_eq!(restarts(), 2, "{}", node.calls());
        // Another container of the DaemonSet's pod: containerd is not restarted again.
        fails(&options, "did not take this configuration at its last restart");
        assert_eq!(restarts(), 2, "{}", node.calls());
        // The cause is mended.
        fs::remove_file(node.at(obstacle)).expect("the obstacle");
        let _ = fs::remove_file(node.at(DOWN));
        fs::remove_file(node.at("run/podshim-refused-configuration")).expect("what was refused");
        let mut installer = node.install(&options);
        installer.says("pods can run on podshim here");
        installer.ends_at_sigterm();
        assert!(fs::read_to_string(&config).expect("the configuration").contains("runtimes.podshim]"));
        assert!(!node.at("run/podshim-refused-configuration").exists());
    }
}

/// The node is labelled once its containerd has the runtime, and not before.
#[test]
fn the_node_is_labelled_when_pods_can_run() {
    let node = Node::new();
    let proxy = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = proxy.local_addr().expect("an address").to_string();
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = asked.clone();
    thread::spawn(move || {
        for mut stream in proxy.incoming().flatten() {
            let mut request = [0; 1024];
            let length = stream.read(&mut request).unwrap_or(0);
            let request = String::from_utf8_lossy(&request[..length]).into_owned();
            assert!(request.starts_with("PATCH /api/v1/nodes/node-7 "), "{request}");
            counted.fetch_add(1, Ordering::SeqCst);
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
        }
    });
    let mut installer = node.install(&["--label-proxy", &address, "--node", "node-7"]);
    installer.says("must be restarted");
    assert_eq!(asked.load(Ordering::SeqCst), 0);
    fs::write(node.loaded(), "").expect("the restart");
    installer.says("pods can run on podshim here; the node is labelled");
    assert_eq!(asked.load(Ordering::SeqCst), 1);
    installer.ends_at_sigterm();
}

#[test]
fn words_that_do_not_go_together_are_refused() {
    let node = Node::new();
    for words in [
        &["install", "--restart"][..],
        &["install", "--stay", "--restart-timeout", "5s"],
        &["install", "--stay", "--label-proxy", "127.0.0.1:1"],
        &["install", "--stay", "--label-proxy", "127.0.0.1:1", "--node", "../secrets"],
        &["install", "--stay", "--dry-run"],
        &["uninstall", "--restart", "--dry-run"],
    ] {
        #[allow(clippy::disallowed_methods, reason = "a test runs the command as its users do")]
        let output = node.command(words).stderr(Stdio::null()).output().expect("podshim runs");
        assert_eq!(output.status.code(), Some(2), "{words:?}");
    }
    assert!(!node.at("usr/local").exists());
}
