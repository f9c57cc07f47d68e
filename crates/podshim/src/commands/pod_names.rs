//! `podshim pod-names`: the names of the node's pods, one a line. Completions of shells call it, so no help lists it.

use std::collections::BTreeMap;

use clap::Args;
use node_state::entry::Entry;

use crate::arguments::{HistoryArguments, NodeArguments};
use crate::outcome::{CommandError, Outcome};
use crate::output::print;
use crate::past;
use crate::shims::title;

/// Arguments of `podshim pod-names`.
#[derive(Args)]
pub struct Arguments {
    /// Of those that have ended
    #[arg(long)]
    past: bool,
    #[command(flatten)]
    node: NodeArguments,
    #[command(flatten)]
    history: HistoryArguments,
}

/// Runs the command. What cannot be read has no names: an error would be written into a line that a user types.
///
/// # Errors
/// The output cannot be written.
pub fn run(arguments: &Arguments) -> Result<Outcome, CommandError> {
    let mut names: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut add = |name: String, title: String| names.entry(name).or_default().push(title);
    if arguments.past {
        let (pods, _) = past::list(&arguments.history.history_dir, i64::MIN).unwrap_or_default();
        for pod in pods.into_iter().map(|past| past.pod) {
            add(pod.name.clone().unwrap_or_else(|| pod.id.clone()), pod.title());
        }
    } else {
        for entry in Entry::list(&arguments.node.run_dir).unwrap_or_default() {
            let name = if entry.pod_name.is_empty() { &entry.id } else { &entry.pod_name };
            add(name.clone(), title(&entry));
        }
    }
    // A name is enough where only one namespace has it.
    let lines = names.into_iter().flat_map(|(name, mut titles)| {
        titles.sort();
        titles.dedup();
        if titles.len() == 1 { vec![name] } else { titles }
    });
    Ok(print(&lines.map(|line| line + "\n").collect::<String>()).map(|()| Outcome::Success)?)
}
