//! Questions before a command changes what is hard to get back. Owns who can be asked, and what counts as a yes.

use std::io::{BufRead, IsTerminal, Write, stderr, stdin};

use crate::outcome::CommandError;

/// What was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Go on.
    Yes,
    /// Change nothing.
    No,
}

/// Asks on the terminal; the output stays what a program reads.
///
/// # Errors
/// There is no terminal: the caller must have said `--yes`.
pub fn ask(question: &str, command: &'static str) -> Result<Answer, CommandError> {
    if !stdin().is_terminal() {
        return Err(CommandError::usage(command, "no terminal to ask on: give --yes or --dry-run"));
    }
    eprint!("{question} [y/N] ");
    stderr().flush()?;
    let mut answer = String::new();
    stdin().lock().read_line(&mut answer)?;
    Ok(if matches!(answer.trim(), "y" | "Y" | "yes") { Answer::Yes } else { Answer::No })
}
