//! The names of pods in completions: clap makes the scripts and knows no pod. Owns what is added to each shell's script.

use clap::Command;
use clap_complete::Shell;

/// The commands that take a pod, and of these the one that takes pods that have ended.
const OF_PODS: [&str; 9] =
    ["history", "inspect", "ps", "restart", "stop", "switch", "timeline", "watch", "why"];
const OF_PAST: &str = "history";

/// The script with names of pods.
pub(super) fn added(shell: Shell, table: &Command, script: String) -> String {
    match shell {
        Shell::Bash => bash(table, &script),
        Shell::Zsh => zsh(&script),
        Shell::Fish => script + &fish(),
        _ => script,
    }
}

/// The options that take a value: what follows one is no pod.
fn with_value(table: &Command) -> Vec<String> {
    let commands = table.get_subcommands().filter(|command| OF_PODS.contains(&command.get_name()));
    let options = commands.chain([table]).flat_map(Command::get_arguments);
    let mut words: Vec<String> = options
        .filter(|option| option.get_action().takes_values() && !option.is_positional())
        .flat_map(|option| {
            let long = option.get_long().map(|long| format!("--{long}"));
            long.into_iter().chain(option.get_short().map(|short| format!("-{short}")))
        })
        .collect();
    words.sort();
    words.dedup();
    words
}

fn bash(table: &Command, script: &str) -> String {
    let generated = script.replacen("_podshim() {", "_podshim_words() {", 1);
    let (before, after) = generated.split_once("\nif [[ \"${BASH_VERSINFO[0]}\"").unwrap_or((&generated, ""));
    let (commands, options) = (OF_PODS.join("|"), with_value(table).join("|"));
    format!(
        "{before}
_podshim() {{
    _podshim_words \"$@\"
    [[ ${{COMP_CWORD}} -gt 1 && ${{COMP_WORDS[COMP_CWORD]}} != -* ]] || return 0
    case \"${{COMP_WORDS[COMP_CWORD - 1]}}\" in
        {options}) return 0 ;;
    esac
    local past=
    case \"${{COMP_WORDS[1]}}\" in
        {OF_PAST}) past=--past ;;
        {commands}) [[ \" ${{COMP_WORDS[*]}} \" != *\" --past \"* ]] || past=--past ;;
        *) return 0 ;;
    esac
    COMPREPLY=( $(compgen -W \"$(podshim pod-names $past 2>/dev/null)\" -- \"${{COMP_WORDS[COMP_CWORD]}}\") )
}}

if [[ \"${{BASH_VERSINFO[0]}}\"{after}"
    )
}

fn zsh(script: &str) -> String {
    let mut lines = Vec::new();
    for line in script.lines() {
        let is_pod =
            ["':pod -- ", "'*::pods -- ", "'::name -- A pod"].iter().any(|begin| line.starts_with(begin));
        let function = if line.starts_with("'::name") { "_podshim_past" } else { "_podshim_pods" };
        match line.strip_suffix(":' \\") {
            Some(text) if is_pod => lines.push(format!("{text}:{function}' \\")),
            _ => lines.push(line.to_owned()),
        }
    }
    let functions = "
_podshim_pods() { compadd -- ${(f)\"$(podshim pod-names 2>/dev/null)\"} }
_podshim_past() { compadd -- ${(f)\"$(podshim pod-names --past 2>/dev/null)\"} }
";
    let text = lines.join("\n") + "\n";
    match text.split_once("\n_podshim() {") {
        Some((before, after)) => format!("{before}{functions}\n_podshim() {{{after}"),
        None => text,
    }
}

fn fish() -> String {
    let line = |command: &str| {
        let past = if command == OF_PAST { " --past" } else { "" };
        format!(
            "complete -c podshim -n \"__fish_podshim_using_subcommand {command}\" -f -a \"(podshim pod-names{past} 2>/dev/null)\"\n"
        )
    };
    OF_PODS.iter().map(|command| line(command)).collect()
}
