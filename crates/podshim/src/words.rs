//! The words for the control API's enums, as `docs/podshim-json.md` has them.
//!
//! Owns those words. Scripts rely on them: words may be added, but no word changes its meaning.

use std::fmt::Debug;

use control_api::container::{GateState, Role, State};
use control_api::event::{Cause, Kind};
use control_api::{Budget, StopReason};
use serde::Serializer;

/// An enum of `proto/podshim/v1/pod.proto`.
pub trait DisplayWord: Copy + Debug {
    /// The word for a value: its name there, so `not-created` for `NOT_CREATED`.
    fn word(self) -> String {
        word_of_name(self)
    }
}

fn word_of_name(value: impl Debug) -> String {
    format!("{value:?}").to_lowercase().replace('_', "-")
}

impl DisplayWord for Role {}
impl DisplayWord for State {}
impl DisplayWord for GateState {}
impl DisplayWord for Kind {}

impl DisplayWord for Cause {
    fn word(self) -> String {
        Self::word(self).to_owned()
    }
}

impl DisplayWord for StopReason {
    fn word(self) -> String {
        Self::word(self).to_owned()
    }
}

impl DisplayWord for Budget {
    fn word(self) -> String {
        match self {
            Self::NONE | Self::CALLERS => "caller".to_owned(),
            other => word_of_name(other),
        }
    }
}

/// Serializes a value as its word.
pub(crate) fn serialize<S: Serializer>(value: &impl DisplayWord, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&value.word())
}

/// Serializes a value as its word, if there is one.
pub(crate) fn serialize_some<S: Serializer>(
    value: &Option<impl DisplayWord>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match value {
        Some(value) => serialize(value, serializer),
        None => serializer.serialize_none(),
    }
}

#[cfg(test)]
mod tests {
    use protobuf::Enum;

    use super::*;

    /// A name that changes in pod.proto must not change what scripts read.
    #[test]
    fn every_word_is_in_the_documentation() {
        fn missing<T: Enum + DisplayWord>(nothing: T) -> Vec<String> {
            let documented = include_str!("../../../docs/podshim-json.md");
            let words = T::VALUES.iter().filter(|value| **value != nothing).map(|value| value.word());
            words.filter(|word| !documented.contains(&format!("`{word}`"))).collect()
        }
        assert_eq!(missing(Role::default()), [""; 0]);
        assert_eq!(missing(State::default()), [""; 0]);
        assert_eq!(missing(GateState::default()), [""; 0]);
        assert_eq!(missing(Kind::UNKNOWN), [""; 0]);
        assert_eq!(missing(Cause::NO_CAUSE), [""; 0]);
        assert_eq!(missing(StopReason::NOT_STOPPING), [""; 0]);
        assert_eq!(missing(Budget::NONE), [""; 0]);
    }
}
