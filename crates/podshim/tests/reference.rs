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

/// What bash offers for these words while the last one is being typed. `compopt` works only while a user types.
fn offered(words: &str) -> Vec<String> {
    let script = podshim(&["completion", "bash"]);
    let count = words.split(' ').count() - 1;
    let ask = format!(
        "{script}\ncompopt() {{ :; }}\nCOMP_WORDS=({words}); [[ '{words}' != *' ' ]] || COMP_WORDS+=(''); COMP_CWORD={count}\n\
         _podshim podshim \"${{COMP_WORDS[COMP_CWORD]}}\" \"${{COMP_WORDS[COMP_CWORD - 1]}}\"\n\
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
    assert_eq!(offered("podshim install --c"), ["--config", "--containerd", "--color"]);
    assert_eq!(offered("podshim uninstall --con"), ["--config"]);
    assert_eq!(offered("podshim drain --timeout "), [""; 0]);
    assert!(offered("podshim install --config Car").contains(&"Cargo.toml".to_owned()));
}

/// N19: a pod's name is completed where a pod is meant, and not as the value of an option.
#[test]
fn found_n19_bash_completes_names_of_pods() {
    let path = tempfile::tempdir().expect("a directory");
    let stub = path.path().join("podshim");
    fs::write(&stub, "#!/bin/sh\n[ \"$2\" = --past ] && echo gone-1 || printf 'web-1\\nweb-2\\nshop\\n'\n")
        .expect("a file");
    fs::set_permissions(&stub, std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("its mode");
    let offered = |words: &str| {
        let script = podshim(&["completion", "bash"]);
        let count = words.split(' ').count() - 1;
        let ask = format!(
            "PATH={}:$PATH\n{script}\ncompopt() {{ :; }}\nCOMP_WORDS=({words}); [[ '{words}' != *' ' ]] || COMP_WORDS+=('')\n\
             COMP_CWORD={count}\n_podshim podshim \"${{COMP_WORDS[COMP_CWORD]}}\" \"${{COMP_WORDS[COMP_CWORD - 1]}}\"\n\
             printf '%s\\n' \"${{COMPREPLY[@]}}\"",
            path.path().display()
        );
        let offered = text(run("bash", &["-uc", &ask]));
        offered.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(offered("podshim stop web"), ["web-1", "web-2"]);
    assert_eq!(offered("podshim inspect "), ["web-1", "web-2", "shop"]);
    assert_eq!(offered("podshim history "), ["gone-1"]);
    assert_eq!(offered("podshim timeline --past g"), ["gone-1"]);
    assert!(!offered("podshim stop --grace web").contains(&"web-1".to_owned()));
    assert_eq!(offered("podshim stop --g"), ["--grace"]);
    for shell in ["zsh", "fish"] {
        let script = podshim(&["completion", shell]);
        assert!(script.matches("podshim pod-names").count() >= 2, "{shell}: {script}");
    }
}

/// N19: the reference is on a node that has only the package: each key in the man page and in `explain`, and the shim's page.
#[test]
fn found_n19_each_key_is_in_the_man_page_and_explained() {
    let pages = tempfile::tempdir().expect("a directory");
    podshim(&["man", pages.path().to_str().expect("UTF-8")]);
    let page = |name: &str| fs::read_to_string(pages.path().join(name)).expect("a page").replace("\\-", "-");
    let (annotations, node_file) = (page("podshim-annotations.5"), page("podshim-config.5"));
    let all = podshim(&["explain"]);
    let keys: Vec<&str> = all.lines().filter_map(|line| line.split_whitespace().next()).collect();
    for key in [
        "podshim.io/plan",
        "podshim.io/ready.c",
        "podshim.io/drain-priority",
        "max-grace",
        "history-age",
        "read",
    ] {
        assert!(keys.contains(&key), "{key}: {all}");
    }
    for key in &keys {
        let word = key.trim_start_matches("podshim.io/");
        let page = if *key == word { &node_file } else { &annotations };
        assert!(page.contains(word), "{key}: {page}");
        assert!(podshim(&["explain", key]).contains(&format!("{key} (")), "{key}");
    }
    assert!(node_file.contains(".SH \"SEE ALSO\""), "{node_file}");
    assert!(page("containerd-shim-podshim-v2.8").contains("SIGTERM and SIGINT stop the pod in order"));
    for name in ["podshim-annotations.5", "podshim-config.5", "containerd-shim-podshim-v2.8"] {
        assert!(!page(name).contains('`'), "{name}: {}", page(name));
    }
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

/// Every option that podshim parses is in its command's help, in all three completions and in the man page.
#[test]
fn every_option_is_in_help_man_page_and_completions() {
    let pages = tempfile::tempdir().expect("a directory");
    podshim(&["man", pages.path().to_str().expect("UTF-8")]);
    let scripts = ["bash", "zsh", "fish"].map(|shell| podshim(&["completion", shell]));
    let mut table = podshim::commands::table();
    table.build();
    table.clone().debug_assert();
    let mut options = 0;
    for command in table.get_subcommands().filter(|command| !command.is_hide_set()) {
        let name = command.get_name();
        let page = fs::read_to_string(pages.path().join(format!("podshim-{name}.1"))).expect("a page");
        let help = podshim(&[name, "-h"]);
        for option in command.get_arguments().filter_map(clap::Arg::get_long) {
            options += 1;
            assert!(help.contains(&format!(" --{option}")), "{name} --{option}: {help}");
            let in_page = format!("\\-\\-{}", option.replace('-', "\\-"));
            assert!(page.contains(&in_page), "{name} --{option}: {page}");
            let [bash, zsh, fish] = &scripts;
            assert!(
                part(bash, &format!("podshim__subcmd__{name})"), ";;").contains(&format!("--{option}")),
                "{name} --{option}"
            );
            assert!(
                part(zsh, &format!("({name})\n_arguments"), "\n;;").contains(&format!("--{option}")),
                "{name} --{option}"
            );
            let in_fish = format!("__fish_podshim_using_subcommand {name}\" ");
            let offered = |line: &str| line.contains(&in_fish) && line.contains(&format!("-l {option} "));
            assert!(fish.lines().any(offered), "{name} --{option}");
        }
        assert!(page.contains(".SH \"EXIT STATUS\"\n0"), "{page}");
        assert!(help.ends_with("2 wrong arguments.\n"), "{help}");
    }
    assert!(options > 60, "{options} options");
}

/// The text from one mark to the next other one.
fn part<'a>(text: &'a str, from: &str, to: &str) -> &'a str {
    let rest = text.split_once(from).unwrap_or_else(|| panic!("no {from:?} in {text}")).1;
    rest.split_once(to).map_or(rest, |(part, _)| part)
}
