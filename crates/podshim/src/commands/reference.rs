//! `podshim completion` and `podshim man`: completions for shells, and man pages. They are for packages, so no help
//! lists them.

use std::ffi::OsString;
use std::path::Path;

use crate::arguments::{CommandError, Outcome};
use crate::output::print;
use crate::reference::{Shell, completion as script, man_pages};

/// Runs `podshim completion bash|zsh|fish`.
///
/// # Errors
/// A wrong call.
pub fn completion(arguments: &[OsString]) -> Result<Outcome, CommandError> {
    let shell = match arguments {
        [name] => name.to_str().and_then(Shell::named),
        _ => None,
    };
    let shell = shell.ok_or_else(|| CommandError::usage("", "usage: podshim completion bash|zsh|fish"))?;
    Ok(print(&script(shell)).map(|()| Outcome::Success)?)
}

/// Runs `podshim man DIR`: writes the pages there.
///
/// # Errors
/// A wrong call, or a page that cannot be written.
pub fn man(arguments: &[OsString]) -> Result<Outcome, CommandError> {
    let [directory] = arguments else {
        return Err(CommandError::usage("", "usage: podshim man DIR"));
    };
    for (name, page) in man_pages() {
        let path = Path::new(directory).join(name);
        let failed = |error| CommandError::Input(format!("{}: {error}", path.display()));
        std::fs::write(&path, page).map_err(failed)?;
    }
    Ok(Outcome::Success)
}
