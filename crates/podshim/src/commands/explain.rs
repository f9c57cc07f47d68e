//! `podshim explain`: what docs/annotations.md says of a key, on a node that has only the package.

use clap::Args;
use pod_spec::{PREFIX, nearest_word};

use crate::outcome::{CommandError, Outcome};
use crate::output::print;
use crate::reference::annotations::{Entry, entries};

/// What `-h` says before the arguments.
const ABOUT: &str = "\
Says what an annotation of podshim or a key of the node's file does, and which values it takes; without KEY it lists all. man
podshim-annotations and man podshim-config have the whole.";
const EXIT_CODES: &str = "\
Exit codes: 0; 1 there is no such key; 2 wrong arguments.";

/// Arguments of `podshim explain`.
#[derive(Args)]
#[command(before_help = ABOUT, after_help = EXIT_CODES)]
pub struct Arguments {
    /// Such as ready, podshim.io/ready.proxy or max-grace
    #[arg(value_name = "KEY")]
    key: Option<String>,
}

/// Runs the command.
///
/// # Errors
/// No such key.
pub fn run(arguments: &Arguments) -> Result<Outcome, CommandError> {
    let all = entries();
    let Some(key) = &arguments.key else {
        let lines = all.iter().map(|entry| format!("{:26} {}\n", entry.key, entry.summary()));
        return Ok(print(&lines.collect::<String>()).map(|()| Outcome::Success)?);
    };
    let word = word_of(key);
    // `grace` is a key of the pod and of a container, `grace.c` of a container only.
    let of_container = |key: &str| key.trim_start_matches(PREFIX).contains('.');
    let is_meant =
        |entry: &&Entry| word_of(&entry.key) == word && (of_container(&entry.key) || !of_container(key));
    let found: Vec<_> = all.iter().filter(is_meant).map(Entry::show).collect();
    if found.is_empty() {
        let nearest = nearest_word(word, all.iter().map(|entry| word_of(&entry.key)));
        let hint = nearest.map(|nearest| format!(" (did you mean {nearest:?}?)")).unwrap_or_default();
        return Err(CommandError::Input(format!("no key {key:?}{hint}: `podshim explain` lists them")));
    }
    Ok(print(&found.join("\n")).map(|()| Outcome::Success)?)
}

/// The word of a key, without prefix and container.
fn word_of(key: &str) -> &str {
    let own = key.strip_prefix(PREFIX).unwrap_or(key);
    own.split('.').next().unwrap_or(own)
}
