//! Shell completions: the commands, the options of each, and files where an option or a command takes one.

use super::{Help, HelpOption};
use crate::commands::COMMANDS;

/// A shell for which there are completions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shell {
    /// bash.
    Bash,
    /// zsh.
    Zsh,
    /// fish.
    Fish,
}

impl Shell {
    /// The shell of that name.
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "bash" => Some(Self::Bash),
            "zsh" => Some(Self::Zsh),
            "fish" => Some(Self::Fish),
            _ => None,
        }
    }
}

/// The completion script for a shell.
pub fn completion(shell: Shell) -> String {
    match shell {
        Shell::Bash => bash(),
        Shell::Zsh => zsh(),
        Shell::Fish => fish(),
    }
}

fn takes_path(option: &HelpOption<'_>) -> bool {
    matches!(option.value, Some("FILE" | "DIR"))
}

fn bash() -> String {
    let names: Vec<_> = COMMANDS.iter().map(|command| command.name).collect();
    let mut script = format!(
        "# Completion of podshim for bash. Made from what its commands say with -h.\n\
         _podshim() {{\n    local word=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD - 1]}} options=''\n    \
         COMPREPLY=()\n    if [ \"$COMP_CWORD\" = 1 ]; then\n        \
         mapfile -t COMPREPLY < <(compgen -W '{} -h -V' -- \"$word\")\n        return\n    fi\n    \
         case ${{COMP_WORDS[1]}} in\n",
        names.join(" ")
    );
    for command in COMMANDS {
        let help = Help::parse(command.help);
        let options: Vec<_> = help.options.iter().map(|option| option.name).collect();
        script += &format!("    {}) options='{}' ;;\n", command.name, options.join(" "));
    }
    script += "    esac\n    case ${COMP_WORDS[1]}/$before in\n";
    for command in COMMANDS {
        for option in Help::parse(command.help).options.iter().filter(|option| option.value.is_some()) {
            let what = if takes_path(option) { "files" } else { "nothing" };
            script += &format!("    {}/{}) options={what} ;;\n", command.name, option.name);
        }
    }
    script
        + "    esac\n    case $options/$word in\n    nothing/*) ;;\n    \
           [!f]*/-*) mapfile -t COMPREPLY < <(compgen -W \"$options\" -- \"$word\") ;;\n    \
           *) mapfile -t COMPREPLY < <(compgen -f -- \"$word\") ;;\n    esac\n}\n\
           complete -o filenames -F _podshim podshim\n"
}

fn zsh() -> String {
    let mut script =
        "#compdef podshim\n# Completion of podshim for zsh. Made from what its commands say with -h.\n\
                      _podshim() {\n    if ((CURRENT == 2)); then\n        local -a commands=(\n"
            .to_owned();
    for command in COMMANDS {
        script += &format!("            {}\n", quoted(&format!("{}:{}", command.name, command.summary)));
    }
    script += "        )\n        _describe command commands\n        return\n    fi\n    local command=${words[2]}\n    \
               shift words\n    ((CURRENT--))\n    case $command in\n";
    for command in COMMANDS {
        script += &format!("    {})\n        _arguments", command.name);
        for option in &Help::parse(command.help).options {
            let description = option.description.replace(['[', ']', ':'], " ");
            let value = match option.value {
                Some(value) if takes_path(option) => format!(":{value}:_files"),
                Some(value) => format!(":{value}: "),
                None => String::new(),
            };
            script +=
                &format!(" \\\n            {}", quoted(&format!("{}[{description}]{value}", option.name)));
        }
        script += " \\\n            '*:file:_files'\n        ;;\n";
    }
    script + "    esac\n}\n_podshim \"$@\"\n"
}

fn fish() -> String {
    let mut script =
        "# Completion of podshim for fish. Made from what its commands say with -h.\n".to_owned();
    for command in COMMANDS {
        script += &format!(
            "complete -c podshim -n __fish_use_subcommand -f -a {} -d {}\n",
            command.name,
            quoted(command.summary)
        );
        for option in &Help::parse(command.help).options {
            let name = match option.name.strip_prefix("--") {
                Some(long) => format!("-l {long}"),
                None => format!("-s {}", option.name.trim_start_matches('-')),
            };
            let value = match option.value {
                Some(_) if takes_path(option) => " -r -F",
                Some(_) => " -x",
                None => "",
            };
            script += &format!(
                "complete -c podshim -n '__fish_seen_subcommand_from {}' {name}{value} -d {}\n",
                command.name,
                quoted(&option.description)
            );
        }
    }
    script
}

/// In single quotes, for all three shells. No escape of an apostrophe works in fish and in the others, so a typographic
/// one replaces it.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "\u{2019}"))
}
