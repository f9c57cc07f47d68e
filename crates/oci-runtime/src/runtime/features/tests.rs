use std::path::PathBuf;

use test_support::{run, until, until_ended};

use super::*;

fn script(directory: &tempfile::TempDir, text: &str) -> PathBuf {
    let path = directory.path().join("runtime");
    std::fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
    std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    path
}

#[test]
fn an_object_is_the_answer_whatever_its_layout() {
    let directory = tempfile::tempdir().unwrap();
    let binary = script(&directory, r#"[ "$*" = features ] && echo '{ "ociVersionMin" : "1.0.0" }'"#);
    run(async {
        let reaper = Reaper::start().unwrap();
        let answer = features(&reaper, &binary).await.unwrap();
        assert_eq!(answer.as_deref(), Some(&br#"{"ociVersionMin":"1.0.0"}"#[..]));
    });
}

/// crun 1.8.1: "unknown command features", exit status 1.
#[test]
fn a_runtime_without_the_command_has_no_features() {
    let directory = tempfile::tempdir().unwrap();
    for text in ["echo '{}'; exit 1", "echo '{}'; kill -KILL $$", "echo nonsense", "echo '[]'", "true"] {
        let binary = script(&directory, text);
        run(async {
            let reaper = Reaper::start().unwrap();
            assert_eq!(features(&reaper, &binary).await.unwrap(), None, "{text}");
        });
    }
}

/// containerd asks while it starts: a runtime that hangs must not keep it from starting.
#[test]
fn a_runtime_that_hangs_is_killed_with_what_it_waits_for() {
    let directory = tempfile::tempdir().unwrap();
    let child = directory.path().join("child");
    let binary = script(&directory, &format!("sleep 1000 & echo $! >{}; wait", child.display()));
    run(async {
        let reaper = Reaper::start().unwrap();
        let in_time = async {
            until(|| std::fs::read_to_string(&child).is_ok_and(|pid| pid.ends_with('\n'))).await;
            tokio::time::pause();
            tokio::time::advance(TIME_LIMIT).await;
            tokio::time::resume();
        };
        let (answer, ()) = tokio::join!(features(&reaper, &binary), in_time);
        assert_eq!(answer.unwrap_err().kind(), io::ErrorKind::TimedOut);
        until_ended(std::fs::read_to_string(&child).unwrap().trim()).await;
    });
}

#[test]
fn a_runtime_that_is_not_there_is_an_error() {
    run(async {
        let reaper = Reaper::start().unwrap();
        let error = features(&reaper, Path::new("/no/such/runtime")).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    });
}
