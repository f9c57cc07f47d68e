//! `podshim why`: says in one paragraph what a pod waits for, since when, and what to do.

use clap::Args;

use crate::arguments::{HistoryArguments, NodeArguments, PodArgument};
use crate::clock::now_ms;
use crate::outcome::{CommandError, Outcome};
use crate::output::print;
use crate::past;
use crate::pods::{PodReport, PodState};
use crate::shims::{FindError, Shim};
use crate::terminal::columns;
use crate::why::{of_past, paragraph};

/// What `-h` says before the arguments.
const ABOUT: &str = "\
Says in one paragraph why a pod is where it is: what it waits for, since when, and what to do. Of a pod that is gone it says
how it ended, if there is a record of it.";
const EXIT_CODES: &str = "\
Exit codes: 0; 1 there is no such pod, or its shim is dead or does not answer; 2 wrong arguments.";

/// Arguments of `podshim why`.
#[derive(Args)]
#[command(before_help = ABOUT, after_help = EXIT_CODES)]
pub struct Arguments {
    #[command(flatten)]
    node: NodeArguments,
    #[command(flatten)]
    history: HistoryArguments,
    #[command(flatten)]
    pod: PodArgument,
}

/// Runs the command.
///
/// # Errors
/// No such pod.
pub fn run(arguments: &Arguments) -> Result<Outcome, CommandError> {
    let entry = match arguments.pod.find(&arguments.node) {
        Ok(entry) => entry,
        Err(unknown @ FindError::Unknown { .. }) => {
            let namespace = arguments.pod.namespace.namespace.as_deref();
            let past = past::find(&arguments.history.history_dir, &arguments.pod.pod, namespace);
            // Without a record the pod is unknown, and why there is none does not matter.
            let past = past.map_err(|_| unknown)?;
            print(&(wrapped(&of_past(&past, now_ms()), columns()) + "\n"))?;
            return Ok(Outcome::Success);
        }
        Err(error) => return Err(error.into()),
    };
    let pod = PodReport::of(Shim::asked(entry));
    print(&(wrapped(&paragraph(&pod), columns()) + "\n"))?;
    let known = !matches!(pod.state, PodState::ShimDead | PodState::ShimSilent);
    Ok(if known { Outcome::Success } else { Outcome::Findings })
}

/// The text in lines as wide as the terminal; without one it is one line.
fn wrapped(text: &str, columns: Option<usize>) -> String {
    let Some(columns) = columns else { return text.to_owned() };
    let (mut lines, mut used) = (String::new(), 0);
    for word in text.split(' ') {
        let length = word.chars().count();
        let separator = match used {
            0 => "",
            _ if used + 1 + length > columns => "\n",
            _ => " ",
        };
        used = if separator == " " { used + 1 + length } else { length };
        lines += separator;
        lines += word;
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::wrapped;

    #[test]
    fn lines_are_as_wide_as_the_terminal() {
        assert_eq!(wrapped("ab cd efghijk l", Some(5)), "ab cd\nefghijk\nl");
        assert_eq!(wrapped("ab cd", None), "ab cd");
    }
}
