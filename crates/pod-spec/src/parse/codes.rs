//! Lists of exit codes, `1,42,100-110` (R13). Owns their grammar.

use crate::code_set::CodeSet;
use crate::error::CodesError;
use crate::excerpt::excerpt;
use crate::limits::MAX_CODE_RANGES;

/// Which exit codes a list names: those after which podshim restarts the container, or those after which it does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ListedCodes {
    Restarted,
    NotRestarted,
}

/// The codes after which podshim restarts the container. Codes that are named twice count once.
pub(super) fn parse(listed: ListedCodes, text: &str) -> Result<CodeSet, CodesError> {
    let count = text.split(',').count();
    if count > MAX_CODE_RANGES {
        return Err(CodesError::TooMany { count });
    }
    let mut named = CodeSet::EMPTY;
    for entry in text.split(',') {
        named = named.or(range(entry.trim())?);
    }
    let restarted = match listed {
        ListedCodes::Restarted => named,
        ListedCodes::NotRestarted => CodeSet::FAILURES.without(named),
    };
    match restarted {
        CodeSet::ALL => Err(CodesError::All),
        CodeSet::EMPTY => Err(CodesError::NoneLeft),
        restarted => Ok(restarted),
    }
}

/// One code, or `first-last`.
fn range(entry: &str) -> Result<CodeSet, CodesError> {
    let (first, last) = entry.split_once('-').unwrap_or((entry, entry));
    let (Some(first), Some(last)) = (code(first), code(last)) else {
        return Err(CodesError::NoCode { entry: excerpt(entry) });
    };
    if last < first {
        return Err(CodesError::Backwards { first: last, last: first });
    }
    Ok(CodeSet::range(first, last))
}

fn code(text: &str) -> Option<u8> {
    // Rust's own parser accepts a sign, the grammar does not.
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| digits)
}
