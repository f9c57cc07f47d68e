//! The binary `podshim`: parses the arguments, runs the command, and turns its outcome into an exit code.

#![forbid(unsafe_code)]

use std::ffi::OsString;
use std::process::ExitCode;

use clap::FromArgMatches;
use podshim::commands::{Arguments, table};
use podshim::outcome::{CommandError, Outcome};
use podshim::output::print;
use podshim::usage::error_of;

fn main() -> ExitCode {
    match run(std::env::args_os().collect()) {
        Ok(Outcome::Success) => ExitCode::SUCCESS,
        Ok(Outcome::Findings) => ExitCode::from(1),
        Err(error) => {
            eprintln!("podshim: {}", error.advice(nix::unistd::geteuid().is_root()));
            ExitCode::from(error.exit_code())
        }
    }
}

fn run(mut words: Vec<OsString>) -> Result<Outcome, CommandError> {
    // As with git: another word for the option, also of a command (`podshim help ps`).
    if words.get(1).is_some_and(|word| word == "help") {
        words.remove(1);
        words.truncate(2);
        words.push("-h".into());
    }
    let table = table();
    let parsed = table.clone().try_get_matches_from(&words);
    let arguments = match parsed.and_then(|matches| Arguments::from_arg_matches(&matches)) {
        Ok(arguments) => arguments,
        Err(error) if !error.use_stderr() => return Ok(print(&error.to_string()).map(|()| Outcome::Success)?),
        Err(error) => return Err(error_of(&error, &table, &words)),
    };
    arguments.color.choose();
    arguments.command.run()
}
