//! Man pages.

use super::Help;
use crate::commands::{COMMANDS, Command};

/// The page of podshim as a whole and one for each command: file name and text.
pub fn man_pages() -> Vec<(String, String)> {
    let mut page = title("podshim");
    page += ".SH NAME\npodshim \\- for people who write pods or look after a node\n.SH SYNOPSIS\n.B podshim\nCOMMAND ...\n";
    page += ".SH DESCRIPTION\nCommands, each with a man page and a \\-h of its own:\n";
    for command in COMMANDS {
        page += &format!(".TP\n.BR podshim\\-{} (1)\n{}\n", escaped(command.name), escaped(command.summary));
    }
    page += ".SH FILES\n.TP\n.I /etc/podshim/config.toml\nthe node's word on the pods of podshim\n";
    page += ".TP\n.I /run/podshim/draining\nwhile it is there, the node takes no new pods\n";
    let own = ("podshim.1".to_owned(), page);
    let others = COMMANDS.iter().map(|command| (format!("podshim-{}.1", command.name), man_page(command)));
    [own].into_iter().chain(others).collect()
}

/// The page of one command.
pub fn man_page(command: &Command) -> String {
    let help = Help::parse(command.help);
    let name = format!("podshim-{}", command.name);
    let mut page = title(&name);
    page += &format!(".SH NAME\n{} \\- {}\n.SH SYNOPSIS\n", escaped(&name), escaped(command.summary));
    for usage in &help.usage {
        page += &format!("{}\n.br\n", escaped(usage));
    }
    page += ".SH DESCRIPTION\n";
    let mut is_literal = false;
    for line in &help.text {
        let literal = line.starts_with(' ');
        if literal != is_literal {
            page += if literal { ".nf\n" } else { ".fi\n" };
            is_literal = literal;
        }
        page += &match *line {
            "" => ".PP\n".to_owned(),
            line => format!("{}\n", escaped(line)),
        };
    }
    if is_literal {
        page += ".fi\n";
    }
    page += ".SH OPTIONS\n";
    for option in &help.options {
        let value = option.value.map(|value| format!(" {}", escaped(value))).unwrap_or_default();
        page += &format!(".TP\n.B {}{value}\n{}\n", escaped(option.name), escaped(&option.description));
    }
    if let Some(codes) = help.exit_codes {
        page += &format!(".SH EXIT STATUS\n{}\n", escaped(codes));
    }
    page + ".SH SEE ALSO\n.BR podshim (1)\n"
}

fn title(name: &str) -> String {
    format!(".TH {} 1 \"\" \"podshim {}\"\n", escaped(&name.to_uppercase()), env!("CARGO_PKG_VERSION"))
}

/// Escapes text for roff: at the start of a line a dot or an apostrophe would be a request, and a plain dash would
/// become a hyphen.
fn escaped(text: &str) -> String {
    let text = text.replace('\\', "\\e").replace('-', "\\-");
    if text.trim_start().starts_with(['.', '\'']) { format!("\\&{text}") } else { text }
}
