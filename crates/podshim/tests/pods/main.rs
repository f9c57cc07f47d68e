//! The commands about running pods, with shims that answer as the test says: what the commands show, and that a shim
//! that is dead or hangs delays no other.

#![expect(clippy::unwrap_used, reason = "a test's harness fails by panicking")]

mod node;
mod terminal;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixListener;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use control_api::container::{Role, State};
use control_api::event::Cause;
use control_api::{Container, InspectResponse, Outcome, Past};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use node::{Node, command, web};
use node_state::entry::Entry;
use node_state::past::file_of;
use protobuf::Message;

/// Dead shims, shims that hang and shims that answer are all listed with their state, in the time of one.
#[test]
fn a_listing_survives_dead_and_hanging_shims() {
    let node = Node::new();
    node.pod(web());
    drop(UnixListener::bind(node.entry("dead", "batch")).unwrap());
    let listeners: Vec<_> = (0..5)
        .map(|number| UnixListener::bind(node.entry(&format!("hang-{number}"), "zz")).unwrap())
        .collect();
    #[expect(clippy::disallowed_methods, reason = "a test measures")]
    let begun = std::time::Instant::now();
    let (code, shown, errors) = node.podshim(&["ps"]);
    // Five shims that hang take as long as one: 2 s, not 10 s.
    assert!(begun.elapsed() < Duration::from_secs(8), "{:?}", begun.elapsed());
    drop(listeners);
    assert_eq!((code, errors.as_str()), (0, ""));
    assert_eq!(
        shown,
        "\
POD ID         POD         AGE  STATUS       CONTAINER  ROLE     STATE        RESTARTS
dead           prod/batch  -    shim dead    -          -        -            -
0123456789abc  prod/web    5m   running      proxy      sidecar  running      2
                                             logs       sidecar  backing-off  0
                                             app        main     held         0
                                             old        standby  stopped      0
hang-0         prod/zz     -    shim silent  -          -        -            -
hang-1         prod/zz     -    shim silent  -          -        -            -
hang-2         prod/zz     -    shim silent  -          -        -            -
hang-3         prod/zz     -    shim silent  -          -        -            -
hang-4         prod/zz     -    shim silent  -          -        -            -
"
    );
}

/// J2, U7, T3, R4: real and shown exit codes, reasons of holds, pending signals and restarts that are due.
#[test]
fn a_pod_is_shown_whole() {
    let node = Node::new();
    node.pod(web());
    let (code, shown, errors) = node.podshim(&["inspect", "prod/web"]);
    assert_eq!((code, errors.as_str()), (0, ""));
    assert_eq!(
        shown,
        "\
Pod prod/web
  id           0123456789abcdef
  uid          u-1
  containerd   namespace k8s.io
  shim         podshim 0.1.0, started 5m ago
  processor    shim 40ms, probes 1.5s, hooks 16ms, restarts 61ms, requests 5ms
  state        running

CONTAINER  ROLE     STATE        PID  GATE                  RESTARTS  EXIT
pause      sandbox  running      42   -                     0         -
proxy      sidecar  running      42   tcp::15021 (started)  2         7
logs       sidecar  backing-off  -    -                     0         3
app        main     held         42   -                     0         -
old        standby  stopped      42   -                     0         143, shown as 0

proxy: SIGTERM waits for its turn
logs: started again in 1m1.2s
app: held, waiting for sidecar \"proxy\": tcp:15021 refused
"
    );
    let (_, json, _) = node.podshim(&["inspect", "--json", "0123"]);
    let pod: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!((&pod["state"], &pod["stop"], &pod["error"]), (&"running".into(), &().into(), &().into()));
    let old = &pod["containers"][4];
    assert_eq!((&old["real_exit_code"], &old["shown_exit_code"]), (&143.into(), &0.into()));
    assert_eq!(pod["containers"][1]["pending_signal"], "SIGTERM");
    let (_, json, _) = node.podshim(&["ps", "--json"]);
    let listed: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(listed["pods"][0], pod);
}

/// A pod whose shim is dead is still found by its name, and the command explains what a dead shim means.
#[test]
fn the_pod_of_a_dead_shim_is_reported() {
    let node = Node::new();
    drop(UnixListener::bind(node.entry("dead", "batch")).unwrap());
    let (code, shown, _) = node.podshim(&["inspect", "batch"]);
    assert_eq!(code, 1);
    assert!(
        shown.contains("state        shim dead\n  error        its shim is dead: no process listens at"),
        "{shown}"
    );
    assert!(shown.contains("runs podshim's `delete`: that ends the pod's containers"), "{shown}");
    for call in [&["stop", "batch"][..], &["switch", "batch", "proxy"]] {
        let (code, shown, errors) = node.podshim(call);
        assert_eq!((code, shown.as_str()), (1, ""));
        assert!(
            errors.starts_with("podshim: pod prod/batch: its shim is dead: no process listens at /"),
            "{errors}"
        );
    }
}

/// `podshim watch POD | head -1` ends, though nothing more happens for a long time.
#[test]
fn a_watch_ends_with_its_reader() {
    let node = Node::new();
    node.pod(web());
    #[expect(clippy::disallowed_methods, reason = "a test runs the command as its users do")]
    let mut watch = command(&["watch", "web"], node.root.path()).stdout(Stdio::piped()).spawn().unwrap();
    thread::sleep(Duration::from_millis(300));
    assert!(watch.try_wait().unwrap().is_none(), "it waits");
    drop(watch.stdout.take());
    // One call to the shim waits for 10 s.
    for _ in 0..50 {
        if let Some(status) = watch.try_wait().unwrap() {
            return assert!(status.success(), "{status}");
        }
        thread::sleep(Duration::from_millis(100));
    }
    watch.kill().unwrap();
    panic!("it still waits");
}

#[test]
fn a_pod_is_stopped_to_its_end() {
    let node = Node::new();
    node.pod(web());
    let (code, shown, errors) = node.podshim(&["stop", "--grace", "1.5s", "web"]);
    assert_eq!((code, errors.as_str()), (0, ""));
    assert!(shown.starts_with("pod prod/web: stopped in "), "{shown}");
}

/// A job's shim that nothing has deleted yet, as under ctr, answers with the job's outcome: it has stopped too.
#[test]
fn a_job_that_is_complete_has_stopped() {
    let node = Node::new();
    node.pod(InspectResponse { outcome: Outcome::SUCCEEDED.into(), ..web() });
    let (code, shown, errors) = node.podshim(&["stop", "--grace", "1.5s", "web"]);
    assert_eq!((code, errors.as_str()), (0, ""));
    assert!(shown.starts_with("pod prod/web: stopped in "), "{shown}");
}

#[test]
fn a_restart_waits_until_the_pod_runs() {
    let node = Node::new();
    let named = |name: &str| InspectResponse { pod_name: name.to_owned(), id: format!("id-{name}"), ..web() };
    for name in ["web", "stuck", "done"] {
        node.pod(named(name));
    }
    let (code, shown, errors) = node.podshim(&["restart", "web"]);
    assert_eq!((code, errors.as_str()), (0, ""));
    assert!(shown.starts_with("pod prod/web: restarted in "), "{shown}");
    let (code, shown, _) = node.podshim(&["restart", "--timeout", "2s", "stuck"]);
    assert_eq!(code, 1);
    assert!(shown.starts_with("pod prod/stuck: not restarted after "), "{shown}");
    assert!(shown.ends_with("app waits for sidecar \"proxy\": tcp:15021 refused\n"), "{shown}");
    let (code, shown, errors) = node.podshim(&["restart", "done"]);
    assert_eq!((code, shown.as_str()), (1, ""));
    assert_eq!(errors, "podshim: pod prod/done: cannot restart the pod: it is complete\n");
    let (code, json, _) = node.podshim(&["restart", "--json", "web"]);
    let report: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!((code, &report["restarted"], &report["pod"]["name"]), (0, &true.into(), &"web".into()));
}

#[test]
fn a_switch_tells_how_it_ended() {
    let node = Node::new();
    node.pod(web());
    let (code, shown, _) = node.podshim(&["switch", "web", "proxy"]);
    assert_eq!((code, shown.as_str()), (0, "pod prod/web: the standby of proxy has taken over\n"));
    let (code, _, errors) = node.podshim(&["switch", "web", "ghost"]);
    assert_eq!((code, errors.as_str()), (1, "podshim: pod prod/web: no container \"ghost\" in the plan\n"));
}

/// Prometheus gets the same text from the command and over HTTP. The server refuses other requests, and a client that
/// sends nothing does not block it for long.
#[test]
fn metrics_are_written_and_served() {
    let node = Node::new();
    node.pod(InspectResponse { pod_name: "we\"b".to_owned(), ..web() });
    node.pod(InspectResponse {
        id: "fedcba9876543210".to_owned(),
        pod_name: "job".to_owned(),
        outcome: Outcome::SUCCEEDED.into(),
        containers: vec![Container {
            name: "import".to_owned(),
            role: Role::MAIN.into(),
            state: State::EXITED.into(),
            real_exit_code: Some(0),
            ..Default::default()
        }],
        cost: None.into(),
        ..web()
    });
    drop(UnixListener::bind(node.entry("dead", "batch")).unwrap());
    let (code, text, _) = node.podshim(&["metrics"]);
    assert_eq!(code, 0);
    let of_pod = r#"namespace="prod",pod="we\"b""#;
    for line in [
        r#"podshim_pods{state="running"} 1"#.to_owned(),
        r#"podshim_pods{state="dead"} 1"#.to_owned(),
        r#"podshim_pods{state="completed"} 1"#.to_owned(),
        r#"podshim_pods{state="failed"} 0"#.to_owned(),
        r#"podshim_container_state{namespace="prod",pod="job",container="import",role="main",state="exited"} 1"#
            .to_owned(),
        format!(r#"podshim_pod_processor_seconds{{{of_pod},for="shim"}} 0.040"#),
        format!(r#"podshim_pod_processor_seconds{{{of_pod},for="probes"}} 1.500"#),
        format!(r#"podshim_pod_processor_seconds{{{of_pod},for="hooks"}} 0.016"#),
        format!(r#"podshim_pod_processor_seconds{{{of_pod},for="restarts"}} 0.061"#),
        format!(r#"podshim_pod_processor_seconds{{{of_pod},for="requests"}} 0.005"#),
        format!(r#"podshim_pod_info{{{of_pod},id="0123456789abcdef",release="0.1.0"}} 1"#),
        format!(r#"podshim_container_state{{{of_pod},container="app",role="main",state="held"}} 1"#),
        format!(r#"podshim_container_restarts{{{of_pod},container="proxy",role="sidecar"}} 2"#),
        format!(r#"podshim_container_last_exit_code{{{of_pod},container="old",role="standby"}} 143"#),
        format!(r#"podshim_container_restart_in_seconds{{{of_pod},container="logs",role="sidecar"}} 61.250"#),
        // A namespace has zeros from its first pod on.
        r#"podshim_restarts_total{namespace="prod",role="sidecar"} 0"#.to_owned(),
    ] {
        assert!(text.lines().any(|own| own == line), "no {line} in\n{text}");
    }
    // Each sample belongs to the family whose TYPE line is the last one before it.
    let mut family = (String::new(), String::new());
    for line in text.lines() {
        if let Some(declared) = line.strip_prefix("# TYPE ") {
            let (name, kind) = declared.split_once(' ').unwrap();
            family = (name.to_owned(), kind.to_owned());
        } else if !line.starts_with('#') {
            let (name, kind) = (&family.0, family.1.as_str());
            let suffix = line.split(['{', ' ']).next().unwrap().strip_prefix(name.as_str()).unwrap_or(line);
            let suffixes: &[&str] = match kind {
                "gauge" => &[""],
                "counter" => &["_total"],
                "histogram" => &["_bucket", "_count", "_sum"],
                _ => &[],
            };
            assert!(suffixes.contains(&suffix), "{line} in {name}, a {kind}");
        }
    }
    assert!(text.ends_with("\n# EOF\n"));

    let mut served = command(&["metrics", "--listen", "127.0.0.1:0"], node.root.path());
    #[expect(clippy::disallowed_methods, reason = "a test runs the command as its users do")]
    let mut served = served.stderr(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(served.stderr.take().unwrap()).read_line(&mut line).unwrap();
    let address =
        line.trim().strip_prefix("podshim: metrics on http://").unwrap().strip_suffix("/metrics").unwrap();
    let ask = |request: &str| {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    };
    let silent = TcpStream::connect(address).unwrap();
    let scraped = ask("GET /metrics HTTP/1.1\r\nHost: node\r\n\r\n");
    assert!(scraped.starts_with("HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4"), "{scraped}");
    assert!(scraped.ends_with(&podshim::metrics::older_format(&text)), "{scraped}");
    let accept = "text/html, application/openmetrics-text;version=1.0.0;q=0.8,text/plain;q=0.3";
    let scraped = ask(&format!("GET /metrics HTTP/1.1\r\naccept: {accept}\r\n\r\n"));
    let open_metrics =
        "HTTP/1.1 200 OK\r\nContent-Type: application/openmetrics-text; version=1.0.0; charset=utf-8\r\n";
    assert!(scraped.starts_with(open_metrics) && scraped.ends_with(&text), "{scraped}");
    drop(silent);
    a_slow_scraper_has_two_seconds_in_all(address);
    // The server reads at most so many bytes: it does not wait for the end of an endless head.
    let endless = format!("GET /metrics HTTP/1.1\r\nX: {:8166}", "");
    assert_eq!(endless.len(), 8192);
    assert!(ask(&endless).starts_with("HTTP/1.1 200 OK"));
    assert!(ask("GET / HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404"));
    assert!(ask("POST /metrics HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 405"));
    // Process 1 of a container gets no signal that it does not take: the exporter's pod would end only by its grace.
    kill(Pid::from_raw(served.id().try_into().unwrap()), Signal::SIGTERM).unwrap();
    #[expect(clippy::disallowed_methods, reason = "a test runs the command as its users do")]
    let status = served.wait().unwrap();
    assert_eq!(status.code(), Some(0), "{status}");
}

/// A scraper that sends a byte each half second, for as long as it is let: the next one is served all the same.
fn a_slow_scraper_has_two_seconds_in_all(address: &str) {
    let mut slow = TcpStream::connect(address).unwrap();
    let began = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap();
    // The server closes the connection: a write to it fails after that.
    let drips = (0..20).take_while(|_| {
        thread::sleep(Duration::from_millis(500));
        slow.write_all(b"G").is_ok()
    });
    let drips = drips.count();
    let took = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().saturating_sub(began);
    assert!(drips < 12, "the server listened to {drips} bytes of a slow scraper for {took:?}");
}

/// N3: without the shim's program containerd could not clean up after a pod, so `uninstall` names each pod, also one whose
/// shim is dead, says what to do, and changes nothing. --force removes the program anyway.
#[test]
#[expect(clippy::disallowed_methods, reason = "a test runs the command as its users do")]
fn n3_uninstall_refuses_while_pods_run() {
    let root = tempfile::tempdir().unwrap();
    let node = Node::below(root.path());
    fs::create_dir_all(root.path().join("usr/local/bin")).unwrap();
    let shim = root.path().join("usr/local/bin/containerd-shim-podshim-v2");
    fs::write(&shim, "a program").unwrap();
    let uninstall = |more: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_podshim"));
        command.args(["uninstall", "--yes", "--root"]).arg(root.path()).args(more).stdin(Stdio::null());
        let output = command.output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    drop(UnixListener::bind(node.entry("dead", "batch")).unwrap());
    node.pod(web());
    let (code, errors) = uninstall(&[]);
    assert_eq!(code, Some(1), "{errors}");
    assert!(errors.contains("prod/web: end them first, with `podshim drain`"), "{errors}");
    assert!(errors.contains("shim is dead: prod/batch"), "{errors}");
    assert!(shim.exists());
    fs::remove_dir_all(node.root.path().join("k8s.io/0123456789abcdef")).unwrap();
    let (code, errors) = uninstall(&[]);
    assert_eq!(code, Some(1), "containerd runs the program of the shim to clean up");
    assert!(!errors.contains("prod/web") && errors.contains("shim is dead: prod/batch"), "{errors}");
    let ended = |container: Container| Container { state: State::EXITED.into(), ..container };
    let containers = web().containers.into_iter().map(ended).collect();
    node.pod(InspectResponse { outcome: Outcome::SUCCEEDED.into(), containers, ..web() });
    let (code, errors) = uninstall(&[]);
    assert_eq!(code, Some(1));
    assert!(errors.contains("prod/web: start containerd, which must take their exits"), "{errors}");
    assert!(shim.exists());
    assert_eq!(uninstall(&["--force"]), (Some(0), String::new()));
    assert!(!shim.exists());
    for pod in ["0123456789abcdef", "dead"] {
        fs::remove_dir_all(node.root.path().join("k8s.io").join(pod)).unwrap();
    }
    fs::write(&shim, "a program").unwrap();
    assert_eq!(uninstall(&[]), (Some(0), String::new()), "no pod needs it any more");
}

/// N1: `stop web-1` while only `web-10` lives ends nothing; so do `restart` and `switch`. With the whole name they print all of it.
#[test]
fn found_n1_a_prefix_ends_no_pod() {
    let node = Node::new();
    node.pod(InspectResponse { pod_name: "web-10".to_owned(), ..web() });
    for prefix in ["web-1", "w", "prod/web-1"] {
        for call in
            [&["stop", "--grace", "1.5s", prefix][..], &["restart", prefix], &["switch", prefix, "proxy"]]
        {
            let (code, shown, errors) = node.podshim(call);
            assert_eq!((code, shown.as_str()), (1, ""), "{call:?}");
            assert!(errors.starts_with(&format!("podshim: no pod {prefix:?}: ")), "{call:?}: {errors}");
        }
    }
    let (_, json, _) = node.podshim(&["inspect", "--json", "web-1"]);
    assert!(json.contains("\"state\": \"running\""), "it is stopped: {json}");
    let (code, shown, _) = node.podshim(&["switch", "web-10", "proxy"]);
    assert_eq!((code, shown.as_str()), (0, "pod prod/web-10: the standby of proxy has taken over\n"));
    let (code, json, _) = node.podshim(&["stop", "--grace", "1.5s", "--json", "web-10"]);
    let report: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(
        (code, &report["name"], &report["id"]),
        (0, &"prod/web-10".into(), &"0123456789abcdef".into())
    );
}

/// N2, R14: what had shown its exit is not run again by a restart, and the answer says so.
#[test]
fn r14_found_n2_a_restart_names_what_it_does_not_run_again() {
    let node = Node::new();
    let fetch = Container {
        name: "fetch".to_owned(),
        role: Role::INIT.into(),
        state: State::EXITED.into(),
        real_exit_code: Some(0),
        shown_exit_code: Some(0),
        exited_at_ms: Some(1_000),
        ..Default::default()
    };
    let migrate = Container { name: "migrate".to_owned(), state: State::COMPLETED.into(), ..fetch.clone() };
    let mut pod = web();
    pod.containers.splice(1..1, [fetch, migrate]);
    node.pod(pod);
    let (code, shown, errors) = node.podshim(&["restart", "web"]);
    assert_eq!((code, errors.as_str()), (0, ""));
    let (_, rest) = shown.split_once('\n').unwrap();
    assert_eq!(rest, "not run again, as their caller has seen their exits: fetch\n", "{shown}");
    let (_, help, _) = node.podshim(&["restart", "-h"]);
    assert!(!help.contains("inits included"), "{help}");
    let (_, json, _) = node.podshim(&["restart", "--json", "web"]);
    let report: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(report["not_run_again"], serde_json::json!(["fetch"]));
}

/// N12: `stop` returns when the pod's record is there, which is written after its shim has gone.
#[test]
fn found_n12_a_stop_returns_when_the_record_is_written() {
    let node = Node::new();
    node.pod(web());
    let history = tempfile::tempdir().unwrap();
    let (root, records) = (node.root.path().to_owned(), history.path().to_owned());
    // The mock's pod has stopped within some seconds; its shim goes then, and the disk is slow.
    let ends = thread::spawn(move || {
        thread::sleep(Duration::from_millis(4000));
        fs::remove_dir_all(root.join("k8s.io/0123456789abcdef")).unwrap();
        thread::sleep(Duration::from_millis(1500));
        let past = Past { version: 1, pod: Some(web()).into(), ended_at_ms: 1, ..Default::default() };
        let file = records.join(file_of(&past));
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(&file, past.write_to_bytes().unwrap()).unwrap();
    });
    let records = history.path().to_str().unwrap();
    let (code, json, errors) =
        node.podshim(&["stop", "--grace", "1.5s", "--json", "web", "--history-dir", records]);
    let is_there = history.path().join("prod").exists();
    ends.join().unwrap();
    assert_eq!((code, errors.as_str()), (0, ""));
    assert!(is_there, "it returned before the record was written");
    let report: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(report["recorded"], true);
}

/// N17: a drain lists what it would end, class by class, and ends nothing without an answer.
#[test]
fn found_n17_a_drain_asks_first() {
    let node = Node::new();
    node.pod(web());
    let mut late = node.entry("fedcba9876543210", "mesh");
    late.pop();
    let entry = Entry::read_from(&late).unwrap();
    Entry { drain_priority: 1000, ..entry }.write_to(&late).unwrap();
    let (code, shown, errors) = node.podshim(&["drain", "--dry-run"]);
    assert_eq!((code, errors.as_str()), (0, ""));
    assert_eq!(
        shown,
        "\
DRAIN PRIORITY  POD        STATUS
0               prod/web   running
1000            prod/mesh  shim dead
2 pods would end, in 2 classes, the lowest priority first.
"
    );
    let (code, json, _) = node.podshim(&["drain", "--dry-run", "--json"]);
    let report: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!((code, &report["draining"]), (0, &false.into()));
    assert_eq!(report["would_end"][1]["drain_priority"], 1000);
    let (code, shown, errors) = node.podshim(&["drain"]);
    assert_eq!((code, shown.as_str()), (2, ""));
    assert!(errors.contains("no terminal to ask on: give --yes or --dry-run"), "{errors}");
    assert!(!node.root.path().join("draining").exists());
    let (_, json, _) = node.podshim(&["inspect", "--json", "web"]);
    assert!(json.contains("\"state\": \"running\""), "{json}");
}

/// A sidecar that was killed for memory twice and runs again, an app that ignores its stop signal.
fn busy() -> InspectResponse {
    let mut pod = web();
    pod.pod_name = "busy".to_owned();
    pod.id = "busy-0123456789".to_owned();
    pod.containers.truncate(4);
    let [_, proxy, logs, app] = &mut pod.containers[..] else { panic!("four containers") };
    (proxy.restarts, proxy.restarts_total, proxy.pending_signal) = (1, Some(31), 0);
    (proxy.real_exit_code, proxy.out_of_memory, proxy.oom_kills) = (Some(137), true, Some(2));
    (logs.restarts_total, logs.oom_kills) = (Some(0), Some(1));
    (app.state, app.stop_signal, app.stop_cause) = (State::RUNNING.into(), 15, Cause::BY_CALLER.into());
    (app.stopping_for_ms, app.kill_in_ms) = (Some(12_300), Some(17_000));
    app.held_for = String::new();
    pod
}

/// N5: how a restarted sidecar ended is shown while it runs. N7: a total that never falls, and R4's count beside it. N8: an OOM kill
/// that no caller saw.
#[test]
fn found_n5_n7_n8_what_a_restart_in_place_hides_is_shown() {
    let node = Node::new();
    node.pod(busy());
    let (_, shown, _) = node.podshim(&["inspect", "busy"]);
    let line = |text: &str| {
        assert!(
            shown.lines().any(|line| line.split_whitespace().collect::<Vec<_>>().join(" ") == text),
            "{shown}"
        );
    };
    line("proxy sidecar running 42 tcp::15021 (started) 31 137 OOM killed");
    line("proxy: 31 restarts, 1 since it last ran for ten minutes");
    line("proxy: OOM killed twice, at last in the run that ended last");
    line("logs: OOM killed once");
    let (_, listed, _) = node.podshim(&["ps"]);
    assert!(listed.lines().any(|line| line.ends_with("sidecar  running                31")), "{listed}");
    let (_, metrics, _) = node.podshim(&["metrics"]);
    for line in [
        r#"podshim_container_last_exit_code{namespace="prod",pod="busy",container="proxy",role="sidecar"} 137"#,
        r#"podshim_container_restarts{namespace="prod",pod="busy",container="proxy",role="sidecar"} 1"#,
        r#"podshim_container_lifetime_restarts{namespace="prod",pod="busy",container="proxy",role="sidecar"} 31"#,
        r#"podshim_container_oom_kills{namespace="prod",pod="busy",container="proxy",role="sidecar"} 2"#,
        r#"podshim_oom_kills_total{namespace="prod",role="sidecar"} 0"#,
    ] {
        assert!(metrics.lines().any(|own| own == line), "no {line} in\n{metrics}");
    }
}

/// N6: a container that ignores its stop signal is stopping, since when and by whom.
#[test]
fn found_n6_what_ignores_its_stop_signal_is_stopping() {
    let node = Node::new();
    node.pod(busy());
    let (_, listed, _) = node.podshim(&["ps"]);
    assert!(
        listed.lines().any(|line| line.contains("app        main     stopping 12s (caller)")),
        "{listed}"
    );
    let (_, shown, _) = node.podshim(&["inspect", "busy"]);
    assert!(shown.contains("app        main     stopping"), "{shown}");
    assert!(
        shown.contains("\napp: stopping since SIGTERM 12.3s ago: from its caller\napp: SIGKILL in 17s\n"),
        "{shown}"
    );
    let (_, json, _) = node.podshim(&["inspect", "--json", "busy"]);
    let pod: serde_json::Value = serde_json::from_str(&json).unwrap();
    let app = &pod["containers"][3];
    assert_eq!((&app["state"], &app["stop_cause"]), (&"stopping".into(), &"caller".into()));
    assert_eq!((&app["stop_signal"], &app["stopping_for_ms"]), (&"SIGTERM".into(), &12_300.into()));
    let (_, metrics, _) = node.podshim(&["metrics"]);
    let of_app = r#"namespace="prod",pod="busy",container="app",role="main""#;
    for line in [
        format!(r#"podshim_container_state{{{of_app},state="stopping"}} 1"#),
        format!(r#"podshim_container_stopping_seconds{{{of_app},signal="SIGTERM",cause="caller"}} 12.300"#),
    ] {
        assert!(metrics.lines().any(|own| own == line), "no {line} in\n{metrics}");
    }
}

/// N19: pods by name, by namespace and by state; `-o json` is `--json`.
#[test]
fn found_n19_pods_are_chosen_by_name_namespace_and_state() {
    let node = Node::new();
    node.pod(web());
    node.pod(InspectResponse { pod_name: "web-2".to_owned(), id: "id-2".to_owned(), ..web() });
    drop(UnixListener::bind(node.entry("dead", "batch")).unwrap());
    let names = |arguments: &[&str]| {
        let (code, json, errors) = node.podshim(&[&["ps", "-o", "json"], arguments].concat());
        assert_eq!((code, errors.as_str()), (0, ""), "{arguments:?}");
        let listed: serde_json::Value = serde_json::from_str(&json).unwrap();
        let names =
            listed["pods"].as_array().unwrap().iter().map(|pod| pod["name"].as_str().unwrap().to_owned());
        names.collect::<Vec<_>>().join(" ")
    };
    assert_eq!(names(&[]), "batch web web-2");
    assert_eq!(names(&["web-2"]), "web-2");
    assert_eq!(names(&["prod/web", "batch"]), "batch web");
    assert_eq!(names(&["-n", "prod", "web-2"]), "web-2");
    assert_eq!(names(&["-n", "test"]), "");
    assert_eq!(names(&["--state", "shim-dead"]), "batch");
    let (_, wide, _) = node.podshim(&["ps", "--wide", "web-2"]);
    let shims: Vec<_> = wide.lines().filter_map(|line| line.split_whitespace().last()).collect();
    assert_eq!(shims[..3], ["SHIM", "0.1.0", "0"], "{wide}");
    let (code, _, errors) = node.podshim(&["ps", "till"]);
    assert_eq!((code, errors.contains("no pod \"till\"")), (1, true), "{errors}");
    let (code, _, errors) = node.podshim(&["restart", "-n", "test", "web"]);
    assert_eq!((code, errors.contains("no pod \"web\"")), (1, true), "{errors}");
    assert_eq!(node.podshim(&["inspect", "-n", "prod", "web", "-o", "json"]).0, 0);
    let (code, shown, _) = node.podshim(&["pod-names"]);
    assert_eq!((code, shown.as_str()), (0, "batch\nweb\nweb-2\n"));
}
