//! A value of the node's file: a duration, a count, a size, a word. Owns what is wrong with one. Never knows its key.

use std::time::Duration;

use crate::duration::{self, DurationError, DurationText};
use crate::excerpt::excerpt;
use crate::kubelets_own::NamePattern;
use crate::nearest::{Hint, choose};
use crate::toml::Value;

/// What is wrong with a value of the file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ValueProblem {
    /// A value of the wrong kind.
    #[error("must be {0}")]
    Kind(&'static str),
    /// An invalid duration.
    #[error(transparent)]
    Duration(#[from] DurationError),
    /// A word that is not one of the valid ones.
    #[error("unknown word {word:?}{hint}")]
    UnknownWord {
        /// The word.
        word: String,
        /// The nearest one.
        hint: Hint,
    },
    /// `backoff-max` is shorter than `backoff-base`, and is set later.
    #[error("is shorter than backoff-base ({0})")]
    BelowBase(DurationText),
    /// `backoff-base` is longer than `backoff-max`, and is set later.
    #[error("is longer than backoff-max ({0})")]
    AboveMax(DurationText),
    /// A bound that every pod meets, or that none can.
    #[error("must be between {least} and {most}")]
    Range {
        /// The smallest one.
        least: String,
        /// The largest one.
        most: String,
    },
}

pub(super) fn text_of(value: Value) -> Result<String, ValueProblem> {
    match value {
        Value::Text(text) => Ok(text),
        _ => Err(ValueProblem::Kind("a string in quotes")),
    }
}

pub(super) fn duration_of(value: Value) -> Result<Duration, ValueProblem> {
    Ok(duration::parse(&text_of(value)?)?)
}

/// Reads a duration that is not shorter than the bound that holds everywhere, and not so long that no pod can keep it.
pub(super) fn duration_within(
    value: Value,
    least: Duration,
    most: Duration,
) -> Result<Duration, ValueProblem> {
    let duration = duration_of(value)?;
    if (least..=most).contains(&duration) {
        return Ok(duration);
    }
    let show = |duration| DurationText(duration).to_string();
    Err(ValueProblem::Range { least: show(least), most: show(most) })
}

pub(super) fn count_of(value: Value, least: usize, most: usize) -> Result<usize, ValueProblem> {
    let Value::Number(count) = value else { return Err(ValueProblem::Kind("a number")) };
    let count = usize::try_from(count).unwrap_or_default();
    if (least..=most).contains(&count) {
        return Ok(count);
    }
    Err(ValueProblem::Range { least: least.to_string(), most: most.to_string() })
}

/// A priority of a drain that pods may go down to (N11): 0, which is that of a pod without the key, or less.
pub(super) fn priority_of(value: Value) -> Result<i32, ValueProblem> {
    let Value::Number(number) = value else { return Err(ValueProblem::Kind("a number")) };
    let least = || ValueProblem::Range { least: i32::MIN.to_string(), most: 0.to_string() };
    i32::try_from(number).ok().filter(|priority| *priority <= 0).ok_or_else(least)
}

/// A size in bytes, as Kubernetes writes it.
pub(super) fn size_of(value: Value) -> Result<u64, ValueProblem> {
    const KIND: ValueProblem = ValueProblem::Kind("a size, such as \"64Mi\"");
    let text = match value {
        Value::Number(bytes) => return u64::try_from(bytes).map_err(|_| KIND),
        Value::Text(text) => text,
        Value::Switch(_) | Value::List(_) => return Err(KIND),
    };
    let units = [("Ki", 10), ("Mi", 20), ("Gi", 30)];
    let (count, unit) =
        units.into_iter().find_map(|(name, shift)| Some((text.strip_suffix(name)?, shift))).ok_or(KIND)?;
    let count: u64 = count.parse().map_err(|_| KIND)?;
    count.checked_mul(1 << unit).ok_or(KIND)
}

pub(super) fn word_of<T: Copy>(word: &str, words: &[(&'static str, T)]) -> Result<T, ValueProblem> {
    choose(word, words).map_err(|hint| ValueProblem::UnknownWord { word: excerpt(word), hint })
}

/// `net.` alone: of the node's namespaces no default may change anything, and a pod may share its node's ipc.
pub(super) fn sysctls_of(value: Value) -> Result<Vec<(String, String)>, ValueProblem> {
    let kind = ValueProblem::Kind("a list of \"net.NAME=VALUE\"");
    let Value::List(list) = value else { return Err(kind) };
    let sysctl = |text: &String| {
        let (name, value) = text.split_once('=')?;
        let (name, value) = (name.trim(), value.trim());
        (name.starts_with("net.") && !value.is_empty()).then(|| (name.to_owned(), value.to_owned()))
    };
    list.iter().map(|text| sysctl(text).ok_or(kind.clone())).collect()
}

/// The name of a program in the `PATH`, or an absolute path.
pub(super) fn program_of(value: Value) -> Result<String, ValueProblem> {
    let program = text_of(value)?;
    let is_name = !program.is_empty() && !program.contains('/');
    let is_plain = !program.starts_with('-')
        && !program.contains(|letter: char| letter.is_whitespace() || letter.is_control());
    match is_plain && (is_name || program.starts_with('/')) {
        true => Ok(program),
        false => Err(ValueProblem::Kind("a program's name, such as \"crun\", or its absolute path")),
    }
}

/// A list of containers' names, and of beginnings of names.
pub(super) fn patterns_of(value: Value) -> Result<Vec<NamePattern>, ValueProblem> {
    let kind = ValueProblem::Kind("a list of container names, or of beginnings such as \"debugger-*\"");
    let Value::List(list) = value else { return Err(kind) };
    list.iter().map(|text| NamePattern::new(text).ok_or(kind.clone())).collect()
}

/// A list of some of those words.
pub(super) fn words_of<T: Copy>(
    value: Value,
    words: &[(&'static str, T)],
) -> Result<Vec<&'static str>, ValueProblem> {
    let own: Vec<_> = words.iter().map(|(word, _)| (*word, *word)).collect();
    choices_of(value, &own, "a list of strings, such as [\"grace\"]")
}

/// What the words of a list stand for.
pub(super) fn choices_of<T: Copy>(
    value: Value,
    words: &[(&'static str, T)],
    kind: &'static str,
) -> Result<Vec<T>, ValueProblem> {
    let Value::List(list) = value else { return Err(ValueProblem::Kind(kind)) };
    list.iter().map(|word| word_of(word, words)).collect()
}
