//! Man pages and shell completions, made from the help texts of the commands: one description, so that no page can miss
//! an option.
//!
//! Owns parsing the layout of a help text: `usage:` lines, paragraphs, a line for each option (two spaces, the option,
//! two spaces or more, what it does; deeper lines continue that), `Exit codes:` last.

mod completion;
mod man;

pub use completion::{Shell, completion};
pub use man::{man_page, man_pages};

/// A command's help, parsed.
#[derive(Debug, Default)]
struct Help<'a> {
    usage: Vec<&'a str>,
    /// All lines that are nothing of the other fields; an indented line is shown as it is.
    text: Vec<&'a str>,
    options: Vec<HelpOption<'a>>,
    exit_codes: Option<&'a str>,
}

/// One option.
#[derive(Debug)]
struct HelpOption<'a> {
    /// The option with its dashes.
    name: &'a str,
    /// The word for its value, if it takes a value.
    value: Option<&'a str>,
    description: String,
}

impl<'a> Help<'a> {
    fn parse(help: &'a str) -> Self {
        let mut parsed = Self::default();
        let mut lines = help.lines();
        for line in lines.by_ref().take_while(|line| !line.is_empty()) {
            parsed.usage.push(line.trim_start_matches("usage:").trim());
        }
        let mut in_option = false;
        for line in lines {
            if let Some(codes) = line.strip_prefix("Exit codes: ") {
                parsed.exit_codes = Some(codes);
            } else if let Some(option) = HelpOption::parse(line) {
                parsed.options.push(option);
                in_option = true;
            } else if in_option && line.starts_with("      ") {
                let last = parsed.options.last_mut();
                last.into_iter().for_each(|option| option.description += &format!(" {}", line.trim()));
            } else {
                in_option = false;
                parsed.text.push(line);
            }
        }
        while parsed.text.last().is_some_and(|line| line.is_empty()) {
            parsed.text.pop();
        }
        parsed
    }
}

impl<'a> HelpOption<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let rest = line.strip_prefix("  ").filter(|rest| rest.starts_with('-'))?;
        let (written, description) = rest.split_once("  ")?;
        let mut words = written.split_whitespace();
        let name = words.next().filter(|name| !name.trim_start_matches('-').is_empty())?;
        Some(Self { name, value: words.next(), description: description.trim().to_owned() })
    }
}
