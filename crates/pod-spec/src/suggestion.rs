//! The nearest valid word of an error, for tools that show it apart from the message. Owns only where each error keeps
//! it.

use std::borrow::Cow;

use crate::duration::DurationError;
use crate::error::{GateError, ListError, OptionError, Problem};
use crate::nearest::{Hint, nearest};
use crate::node::{NodeError, ValueProblem};
use crate::signal::SignalError;

impl Problem {
    /// The valid word that was probably meant.
    pub fn nearest(&self) -> Option<Cow<'_, str>> {
        match self {
            Self::Duration(error) => error.nearest(),
            Self::UnknownKey { hint }
            | Self::NoSuchContainer { hint, .. }
            | Self::UnknownValue { hint, .. }
            | Self::UnknownCondition { hint, .. }
            | Self::List(ListError::UnknownRole { hint, .. })
            | Self::Gate(
                GateError::Unknown { hint, .. } | GateError::Option(OptionError::Unknown { hint, .. }),
            )
            | Self::Option(OptionError::Unknown { hint, .. })
            | Self::Signal(SignalError::Unknown { hint, .. }) => hint.word().map(Cow::Borrowed),
            _ => None,
        }
    }
}

impl NodeError {
    /// The valid word that was probably meant.
    pub fn nearest(&self) -> Option<Cow<'_, str>> {
        match self {
            Self::UnknownKey { hint, .. }
            | Self::Value { problem: ValueProblem::UnknownWord { hint, .. }, .. } => {
                hint.word().map(Cow::Borrowed)
            }
            Self::Value { problem: ValueProblem::Duration(error), .. } => error.nearest(),
            _ => None,
        }
    }

    /// The line of the file that is wrong, counted from 1.
    pub fn line(&self) -> usize {
        match self {
            Self::Toml(error) => error.line(),
            Self::UnknownKey { line, .. } | Self::Value { line, .. } => *line,
        }
    }
}

impl DurationError {
    fn nearest(&self) -> Option<Cow<'_, str>> {
        match self {
            // Seconds, as in every Kubernetes field that is a number without a unit.
            Self::NoUnit { value } => Some(Cow::Owned(format!("{value}s"))),
            _ => None,
        }
    }
}

impl Hint {
    fn word(&self) -> Option<&str> {
        match self {
            Self::Nearest(word) => Some(word),
            Self::OneOf(_) | Self::Nothing => None,
        }
    }
}

/// The valid word nearest to a wrong one, if one is near enough to be what was meant.
pub fn nearest_word<'a>(word: &str, valid: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    nearest(word, valid)
}

#[cfg(test)]
mod tests {
    use super::nearest_word;
    use crate::{Node, parse};

    #[test]
    fn the_nearest_word_is_one_of_the_valid_ones() {
        assert_eq!(nearest_word("prxy", ["app", "proxy"]), Some("proxy"));
        assert_eq!(nearest_word("x", ["app", "proxy"]), None);
    }

    #[test]
    fn an_error_gives_its_nearest_word_apart() {
        for (plan, grace, word) in
            [("a=mian", "5s", Some("main")), ("a=main", "5", Some("5s")), ("a=main", "x", None)]
        {
            let errors = parse([("podshim.io/plan", plan), ("podshim.io/grace", grace)]).unwrap_err();
            assert_eq!(errors.errors()[0].problem.nearest().as_deref(), word, "{errors}");
        }
        let error = Node::parse("# a comment\nmax-patern = 20\n").unwrap_err();
        assert_eq!((error.nearest().as_deref(), error.line()), (Some("max-pattern"), 2), "{error}");
        for (file, word) in
            [("grace = \"30\"", Some("30s")), ("zero-grace = \"ordr\"", Some("order")), ("grace = 30", None)]
        {
            assert_eq!(Node::parse(file).unwrap_err().nearest().as_deref(), word, "{file}");
        }
    }
}
