//! The files that a command is given. Owns reading them, with a limit, and the errors when that fails.

use std::fs::File;
use std::io::{self, Read};

use manifests::source::Source;

/// Larger than any manifest or configuration.
const MAX_BYTES: u64 = 16 * 1024 * 1024;

/// Why a file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// It cannot be opened or read, or is not UTF-8.
    #[error("{name}: {source}")]
    Read {
        /// The file.
        name: String,
        /// The system's error.
        source: io::Error,
    },
    /// It is too large to be a manifest or a configuration.
    #[error("{name}: larger than {} MiB", MAX_BYTES / 1024 / 1024)]
    TooLarge {
        /// The file.
        name: String,
    },
}

/// Reads a file, or standard input for `-`.
///
/// # Errors
/// It cannot be read, is not UTF-8, or is too large.
pub fn read(name: &str) -> Result<Source, SourceError> {
    let failed = |source| SourceError::Read { name: name.to_owned(), source };
    let mut input: Box<dyn Read> =
        if name == "-" { Box::new(io::stdin()) } else { Box::new(File::open(name).map_err(failed)?) };
    let mut text = String::new();
    let read = input.by_ref().take(MAX_BYTES + 1).read_to_string(&mut text).map_err(failed)?;
    if read as u64 > MAX_BYTES {
        return Err(SourceError::TooLarge { name: name.to_owned() });
    }
    Ok(Source { name: name.to_owned(), text })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_too_large_is_refused() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let name = file.path().to_str().expect("a path in UTF-8");
        file.as_file().set_len(MAX_BYTES).expect("its length");
        assert_eq!(read(name).expect("as large as may be").text.len() as u64, MAX_BYTES);
        file.as_file().set_len(MAX_BYTES + 1).expect("its length");
        let error = read(name).expect_err("too large").to_string();
        assert_eq!(error, format!("{name}: larger than 16 MiB"));
    }
}
