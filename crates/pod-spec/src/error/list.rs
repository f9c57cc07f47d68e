//! What can be wrong with the list of a plan: its entries, names and roles. Owns the wording; `parse` finds them.

use crate::keys::PREFIX;
use crate::limits::{MAX_CONTAINERS, MAX_NAME_BYTES};
use crate::nearest::Hint;

/// What can be wrong with the list in `podshim.io/plan`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ListError {
    /// An empty list.
    #[error("empty: write name=role entries in start order, such as \"proxy=sidecar, app=main\"")]
    Empty,
    /// An empty entry: between two commas, or before or after one.
    #[error("an entry is empty: remove the extra comma")]
    EmptyEntry,
    /// An entry without `=`.
    #[error("{entry:?} has no role: write name=role with init, sidecar, main or none")]
    NoRole {
        /// The entry.
        entry: String,
    },
    /// An unknown role.
    #[error("unknown role {role:?} in {entry:?}{hint}")]
    UnknownRole {
        /// The role.
        role: String,
        /// The entry.
        entry: String,
        /// The valid ones.
        hint: Hint,
    },
    /// A name that no container can have.
    #[error(
        "{name:?} in {entry:?} is not a valid name: write at most {MAX_NAME_BYTES} letters, digits, \"-\", \"_\" and \".\", \
         beginning and ending with a letter or digit"
    )]
    InvalidName {
        /// The name.
        name: String,
        /// The entry.
        entry: String,
    },
    /// A name or an alias that is taken already.
    #[error("duplicate name {name:?}")]
    DuplicateName {
        /// The name.
        name: String,
    },
    /// More containers than [`MAX_CONTAINERS`].
    #[error("more than {MAX_CONTAINERS} containers")]
    TooManyContainers,
    /// No main and no `*=main` (S4).
    #[error("no main container: a plan needs one, such as \"app=main\", or \"*=main\"")]
    NoMain,
    /// `*` before another entry.
    #[error("\"*\" must be the last entry")]
    OthersNotLast,
    /// `*` with a role other than main.
    #[error("\"*\" can only be main, not {role:?}")]
    OthersNotMain {
        /// The role that was written.
        role: String,
    },
    /// `*` in a group, a pair, or with an alias.
    #[error("\"*\" stands alone, not as in {entry:?}")]
    OthersNotAlone {
        /// The entry.
        entry: String,
    },
    /// `none` for a group, for a pair, or with an alias (S8).
    #[error("{entry:?}: \"none\" is for one container, without an alias: give each its own entry")]
    KubeletsOwnNotAlone {
        /// The entry.
        entry: String,
    },
    /// A group of mains: mains always start together (S3).
    #[error("{entry:?}: mains start together anyway, give each its own entry")]
    GroupOfMains {
        /// The entry.
        entry: String,
    },
    /// A standby whose role is not sidecar (11.6).
    #[error("{entry:?}: only a sidecar can have a standby")]
    StandbyNotSidecar {
        /// The entry.
        entry: String,
    },
    /// More than one standby (11.6).
    #[error("{entry:?}: a sidecar has one standby at most")]
    TooManyStandbys {
        /// The entry.
        entry: String,
    },
    /// `*=main` in a job: callers create containers one by one, so the first main could complete it before the second
    /// exists.
    #[error("\"*=main\" cannot be combined with {PREFIX}restart-policy={policy}: name each main")]
    OthersInJob {
        /// The restart policy.
        policy: &'static str,
    },
}
