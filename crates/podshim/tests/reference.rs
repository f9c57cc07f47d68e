//! Completions and man pages, as shells and man read them.

use std::fs;
use std::process::{Command, Output};

#[allow(clippy::disallowed_methods, reason = "a test runs programs as their users do")]
fn run(program: &str, arguments: &[&str]) -> Output {
    let output = Command::new(program).args(arguments).stdin(std::process::Stdio::null()).output();
    let output = output.expect("the program runs");
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    output
}

fn text(output: Output) -> String {
    String::from_utf8(output.stdout).expect("UTF-8")
}

fn podshim(arguments: &[&str]) -> String {
    text(run(env!("CARGO_BIN_EXE_podshim"), arguments))
}

/// What bash offers for these words while the last one is being typed.
fn offered(words: &str) -> Vec<String> {
    let script = podshim(&["completion", "bash"]);
    let count = words.split(' ').count() - 1;
    let ask = format!(
        "{script}\nCOMP_WORDS=({words}); [[ '{words}' != *' ' ]] || COMP_WORDS+=(''); COMP_CWORD={count}; _podshim\n\
         printf '%s\\n' \"${{COMPREPLY[@]}}\""
    );
    let offered = text(run("bash", &["-euc", &ask]));
    offered.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect()
}

/// A real bash runs the completion.
#[test]
fn bash_completes_commands_and_each_commands_options() {
    assert_eq!(offered("podshim unin"), ["uninstall"]);
    assert_eq!(offered("podshim dr"), ["drain"]);
    assert_eq!(offered("podshim drain --t"), ["--timeout"]);
    assert_eq!(offered("podshim install --c"), ["--config", "--containerd"]);
    assert_eq!(offered("podshim uninstall --c"), ["--config"]);
    assert_eq!(offered("podshim drain --timeout "), [""; 0]);
    assert!(offered("podshim check ").contains(&"Cargo.toml".to_owned()), "{:?}", offered("podshim check "));
    assert!(offered("podshim install --config Car").contains(&"Cargo.toml".to_owned()));
}

/// zsh and fish parse their completions without an error.
#[test]
fn zsh_and_fish_can_read_their_completions() {
    let directory = tempfile::tempdir().expect("a directory");
    for shell in ["zsh", "fish"] {
        let path = directory.path().join(shell);
        fs::write(&path, podshim(&["completion", shell])).expect("a file");
        run(shell, &["-n", path.to_str().expect("UTF-8")]);
    }
}

/// Every option of a help text is in all three completions and in the man page of its command.
#[test]
fn nothing_is_forgotten() {
    let pages = tempfile::tempdir().expect("a directory");
    podshim(&["man", pages.path().to_str().expect("UTF-8")]);
    let scripts = ["bash", "zsh", "fish"].map(|shell| podshim(&["completion", shell]));
    let mut options = 0;
    for command in podshim::commands::COMMANDS {
        let page =
            fs::read_to_string(pages.path().join(format!("podshim-{}.1", command.name))).expect("a page");
        for line in command.help.lines().filter(|line| line.starts_with("  --")) {
            let option = line.split_whitespace().next().expect("an option");
            options += 1;
            assert!(
                page.contains(&format!(".B {}", option.replace('-', "\\-"))),
                "{}: {option}",
                command.name
            );
            assert!(scripts[0].contains(option) && scripts[1].contains(&format!("'{option}[")), "{option}");
            let fish = format!("seen_subcommand_from {}' -l {}", command.name, &option[2..]);
            assert!(scripts[2].contains(&fish), "{fish}");
        }
        assert!(page.contains(".SH EXIT STATUS\n0"), "{page}");
        // A line of a page begins with text, or with a request on purpose.
        for line in page.lines().filter(|line| line.starts_with(['.', '\''])) {
            let request = line.split(' ').next().expect("a word");
            assert!(
                [".TH", ".SH", ".TP", ".B", ".BR", ".PP", ".br", ".nf", ".fi"].contains(&request),
                "{line}"
            );
        }
    }
    assert!(options > 20, "{options} options");
}
