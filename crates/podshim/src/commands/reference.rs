//! `podshim completion` and `podshim man`: completions for shells, and man pages. They are for packages, so no help
//! lists them.

use std::path::PathBuf;

use clap::{Args, ValueHint};
use clap_complete::Shell;

use crate::outcome::{CommandError, Outcome};
use crate::output::print;
use crate::reference::{completion as script, man_pages};

/// Arguments of `podshim completion`.
#[derive(Args)]
pub struct CompletionArguments {
    /// The shell
    #[arg(value_name = "SHELL")]
    shell: Shell,
}

/// Arguments of `podshim man`.
#[derive(Args)]
pub struct ManArguments {
    /// Where to write the pages
    #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
    directory: PathBuf,
}

/// Runs `podshim completion`.
///
/// # Errors
/// The output cannot be written.
pub fn completion(arguments: &CompletionArguments, table: &clap::Command) -> Result<Outcome, CommandError> {
    Ok(print(&script(arguments.shell, table)).map(|()| Outcome::Success)?)
}

/// Runs `podshim man`.
///
/// # Errors
/// A page that cannot be written.
pub fn man(arguments: &ManArguments, table: &clap::Command) -> Result<Outcome, CommandError> {
    for (name, page) in man_pages(table) {
        let path = arguments.directory.join(name);
        let failed = |error| CommandError::Input(format!("{}: {error}", path.display()));
        std::fs::write(&path, page).map_err(failed)?;
    }
    Ok(Outcome::Success)
}
