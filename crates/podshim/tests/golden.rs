//! What each command says, held against files: `golden/COMMAND/*` are its inputs, `golden/cases.txt` the calls, and
//! `golden/COMMAND/*.out` what each call must write, with its exit code.
//!
//! With `PODSHIM_REWRITE_GOLDEN` set the outputs are written anew; each must then be read before it is kept.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden")
}

/// A call's standard output, standard error and exit code, as a golden file has them.
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
    let mut wrong = Vec::new();
    let mut listed = Vec::new();
    for case in cases.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let (name, call) = case.split_once(": ").expect("NAME: ARGUMENTS");
        let path = folder().join(format!("{name}.out"));
        let said = run(&call.split_whitespace().collect::<Vec<_>>());
        if rewrite {
            fs::write(&path, &said).expect("a golden file");
        }
        let expected = fs::read_to_string(&path).unwrap_or_default();
        if said != expected {
            wrong.push(format!("{name}:\n{said}\n  instead of:\n{expected}"));
        }
        listed.push(path);
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
    for path in outputs(&folder()) {
        assert!(listed.contains(&path), "{} belongs to no case", path.display());
    }
}

fn outputs(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path());
    let paths: Vec<PathBuf> =
        entries.flat_map(|path| if path.is_dir() { outputs(&path) } else { vec![path] }).collect();
    paths.into_iter().filter(|path| path.extension().is_some_and(|extension| extension == "out")).collect()
}
