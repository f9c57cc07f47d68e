//! Compares the output of each command with files: `golden/COMMAND/*` are its inputs, `golden/cases.txt` lists the
//! calls, and `golden/COMMAND/*.out` has what each call must write, with its exit code.
//!
//! With `PODSHIM_REWRITE_GOLDEN` set the test rewrites the outputs; read each before you keep it.

use control_api::container::{Role, State};
use control_api::event::Kind;
use control_api::{Container, Event, EventsResponse, InspectResponse, Outcome, Past, StopReason};
use node_state::past::file_of;
use protobuf::Message;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// 2026-11-21, half past two.
const NIGHT_MS: i64 = 1_795_228_200_000;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden")
}

/// A call's standard output, standard error and exit code, in the form of a golden file.
#[allow(clippy::disallowed_methods, reason = "a test runs the command as its users do")]
fn run(arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_podshim"))
        .args(arguments)
        .current_dir(folder())
        .stdin(std::process::Stdio::null())
        .output()
        .expect("podshim runs");
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let mut text = format!("$ podshim {}\n{out}", arguments.join(" "));
    if !err.is_empty() {
        text += &format!("-- stderr\n{err}");
    }
    text + &format!("-- exit {}\n", output.status.code().expect("an exit code"))
}

#[test]
fn commands_say_what_their_golden_files_have() {
    let cases = fs::read_to_string(folder().join("cases.txt")).expect("the cases");
    let rewrite = std::env::var_os("PODSHIM_REWRITE_GOLDEN").is_some();
    if rewrite {
        keep_records(&folder().join("history/records"));
    }
    let mut wrong = Vec::new();
    let mut listed = Vec::new();
    for case in cases.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let (name, call) = case.split_once(": ").expect("NAME: ARGUMENTS");
        let path = folder().join(format!("{name}.out"));
        let printed = run(&call.split_whitespace().collect::<Vec<_>>());
        if rewrite {
            fs::write(&path, &printed).expect("a golden file");
        }
        let expected = fs::read_to_string(&path).unwrap_or_default();
        if printed != expected {
            wrong.push(format!("{name}:\n{printed}\n  instead of:\n{expected}"));
        }
        listed.push(path);
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
    for path in outputs(&folder()) {
        assert!(listed.contains(&path), "{} belongs to no case", path.display());
    }
}

/// Writes the records for `podshim history`: of a pod that the kubelet stopped, of a job, of a pod whose shim was
/// killed, and an unreadable record.
fn keep_records(root: &Path) {
    let container = |name: &str, role: Role, real: u32, shown: u32| Container {
        name: name.to_owned(),
        role: role.into(),
        state: State::EXITED.into(),
        real_exit_code: Some(real),
        shown_exit_code: Some(shown),
        exited_at_ms: Some(NIGHT_MS),
        ..Default::default()
    };
    // Such as one that outlived its shim.
    let unseen = |name: &str, role: Role| Container {
        real_exit_code: None,
        shown_exit_code: None,
        ..container(name, role, 0, 0)
    };
    let event = |at: u64, name: &str, kind: Kind| Event {
        sequence: at,
        wall_ms: NIGHT_MS - 60_000 + i64::try_from(at).expect("a time"),
        monotonic_ms: at,
        id: if name.is_empty() { String::new() } else { format!("id-of-{name}") },
        name: name.to_owned(),
        kind: kind.into(),
        ..Default::default()
    };
    let pod = |name: &str, outcome: Outcome, containers: Vec<Container>| InspectResponse {
        id: format!("{name}-0123456789abcdef"),
        namespace: "k8s.io".to_owned(),
        pod_name: name.to_owned(),
        pod_namespace: "shop".to_owned(),
        started_at_ms: NIGHT_MS - 60_000,
        outcome: outcome.into(),
        containers,
        ..Default::default()
    };
    let stopped = Past {
        pod: Some(pod(
            "cart-1",
            Outcome::NOT_ENDED,
            vec![container("proxy", Role::SIDECAR, 143, 0), container("app", Role::MAIN, 0, 0)],
        ))
        .into(),
        events: Some(EventsResponse {
            events: vec![
                event(100, "app", Kind::CREATED),
                Event { text: "sidecar \"proxy\"".to_owned(), ..event(110, "app", Kind::HELD) },
                event(200, "proxy", Kind::CREATED),
                event(210, "proxy", Kind::STARTING),
                event(300, "proxy", Kind::RUNNING),
                event(310, "proxy", Kind::GATE_OPENED),
                event(311, "app", Kind::STARTING),
                event(320, "app", Kind::RUNNING),
                Event { code: Some(1), ..event(20_000, "proxy", Kind::EXITED) },
                Event { duration_ms: Some(0), ..event(20_001, "proxy", Kind::RESTART_DUE) },
                event(20_002, "proxy", Kind::STARTING),
                event(20_050, "proxy", Kind::RUNNING),
                Event { stop_reason: StopReason::CALLER.into(), ..event(59_000, "", Kind::STOP_BEGAN) },
                Event { code: Some(0), ..event(59_100, "app", Kind::EXITED) },
                Event { code: Some(143), ..event(59_300, "proxy", Kind::EXITED) },
                event(59_400, "", Kind::STOP_ENDED),
            ],
            ..Default::default()
        })
        .into(),
        ended_at_ms: NIGHT_MS,
        ..Default::default()
    };
    let job = Past {
        pod: Some(pod("cart-import", Outcome::FAILED, vec![container("import", Role::MAIN, 3, 3)])).into(),
        ended_at_ms: NIGHT_MS + 5_000,
        ..Default::default()
    };
    let mut killed = Past {
        pod: Some(pod(
            "till",
            Outcome::NOT_ENDED,
            vec![
                unseen("till-0123456789abcdef", Role::SANDBOX),
                unseen("proxy", Role::SIDECAR),
                Container { exited_at_ms: Some(NIGHT_MS - 1500), ..container("app", Role::MAIN, 4, 4) },
            ],
        ))
        .into(),
        ended_at_ms: NIGHT_MS + 7_000,
        shim_was_killed: true,
        ..Default::default()
    };
    killed.pod.mut_or_insert_default().started_at_ms = 0;
    for mut past in [stopped, job, killed] {
        past.version = control_api::VERSION;
        fs::create_dir_all(root.join("shop")).expect("a directory");
        fs::write(root.join(file_of(&past)), past.write_to_bytes().expect("bytes")).expect("a record");
    }
    fs::write(root.join("shop/damaged.past"), "no record").expect("a file");
}

fn outputs(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path());
    let paths: Vec<PathBuf> =
        entries.flat_map(|path| if path.is_dir() { outputs(&path) } else { vec![path] }).collect();
    paths.into_iter().filter(|path| path.extension().is_some_and(|extension| extension == "out")).collect()
}
