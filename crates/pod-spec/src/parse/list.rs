//! The list in `podshim.io/plan`: `name[@alias]=role` entries, groups `a+b=role`, standby pairs `a|b=sidecar`, `*=main`, and
//! `name=none` for what is the kubelet's own.
//! Owns its grammar. Wrong entries keep their names, so that other keys that name them are not errors too. Never reads
//! another key.

use std::collections::BTreeSet;

use crate::error::ListError;
use crate::excerpt::excerpt;
use crate::keys::{ROLE_WORDS, RoleWord};
use crate::limits::MAX_CONTAINERS;
use crate::name::is_name;
use crate::nearest::choose;
use crate::plan::{Others, Role};

use super::findings::Findings;

pub(super) const KEY: &str = "plan";

/// The list as far as it could be read.
#[derive(Debug)]
pub(super) struct List {
    /// The containers in the order of the list.
    pub(super) listed: Vec<Listed>,
    /// Whether the list has `*=main`.
    pub(super) others: Others,
    /// The containers that are no members, as they are the kubelet's own (S8).
    pub(super) kubelets_own: BTreeSet<String>,
    /// Whether these are all names of the list.
    pub(super) names: Names,
}

/// Whether a name that is not in the list is an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Names {
    /// The whole list was read.
    Complete,
    /// The list, or its end, was not read.
    Unread,
}

/// One container of the list.
#[derive(Debug)]
pub(super) struct Listed {
    pub(super) name: String,
    pub(super) alias: Option<String>,
    /// `None` for an unknown role, which is one error already.
    pub(super) role: Option<Role>,
    /// The index of its entry.
    pub(super) entry: usize,
    /// Its partner in `a|b`, as an index into the list.
    pub(super) pair: Option<usize>,
}

/// Reads the list and notes everything that is wrong in it.
pub(super) fn parse(value: &str, findings: &mut Findings) -> List {
    let mut list = List::new(Others::Passthrough);
    if value.trim().is_empty() {
        findings.error(KEY, ListError::Empty);
        list.names = Names::Unread;
        return list;
    }
    let entries: Vec<&str> = value.split(',').map(str::trim).collect();
    for (index, entry) in entries.iter().enumerate() {
        let result = if entry.is_empty() {
            Err(ListError::EmptyEntry)
        } else if entry.starts_with('*') {
            list.others = Others::Mains;
            others(entry, if index + 1 == entries.len() { Position::Last } else { Position::Earlier })
        } else {
            list.read_entry(entry, index, findings)
        };
        if let Err(error) = result {
            findings.error(KEY, error);
        }
        let is_too_long = |count: usize| count > MAX_CONTAINERS;
        let own = list.kubelets_own.len();
        if is_too_long(list.listed.len()) || is_too_long(own) || is_too_long(index - own.min(index)) {
            findings.error(KEY, ListError::TooManyContainers);
            list.names = Names::Unread;
            return list;
        }
    }
    list.check_for_main(findings);
    list
}

/// Where an entry stands in the list.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Position {
    Earlier,
    Last,
}

/// Checks the entry of `*` (S8).
fn others(entry: &str, position: Position) -> Result<(), ListError> {
    let (names, role) = entry.split_once('=').unwrap_or((entry, ""));
    if names.trim() != "*" {
        return Err(ListError::OthersNotAlone { entry: excerpt(entry) });
    }
    if role.trim() != "main" {
        return Err(ListError::OthersNotMain { role: excerpt(role.trim()) });
    }
    if position == Position::Earlier {
        return Err(ListError::OthersNotLast);
    }
    Ok(())
}

impl List {
    /// One without an entry.
    pub(super) fn new(others: Others) -> Self {
        Self { listed: Vec::new(), others, kubelets_own: BTreeSet::new(), names: Names::Complete }
    }

    /// Reads one entry that is not the `*`; returns what is wrong with its role.
    fn read_entry(&mut self, entry: &str, index: usize, findings: &mut Findings) -> Result<(), ListError> {
        let whole = || excerpt(entry);
        let (names, role) = match entry.split_once('=') {
            Some((names, role)) => (names, Some(role.trim())),
            None => (entry, None),
        };
        let chosen = match role.map(|role| choose(role, &ROLE_WORDS)) {
            Some(Ok(RoleWord::KubeletsOwn)) => return self.read_kubelets_own(names.trim(), entry),
            Some(Ok(RoleWord::Planned(role))) => Some(role),
            Some(Err(_)) | None => None,
        };
        let group: Vec<&str> = names.split('+').collect();
        for pair in &group {
            let pair: Vec<&str> = pair.split('|').collect();
            let first = self.listed.len();
            for name in &pair {
                self.read_name(name.trim(), entry, chosen, index, findings);
            }
            match (pair.len(), chosen) {
                (1, _) => {}
                (2, Some(Role::Sidecar)) => {
                    // A refused name is not in the list.
                    if let [one, other] = &mut self.listed[first..] {
                        (one.pair, other.pair) = (Some(first + 1), Some(first));
                    }
                }
                (2, Some(_)) => return Err(ListError::StandbyNotSidecar { entry: whole() }),
                // The unknown role is the error.
                (2, None) => {}
                _ => return Err(ListError::TooManyStandbys { entry: whole() }),
            }
        }
        match (role, chosen) {
            (None, _) => Err(ListError::NoRole { entry: whole() }),
            (Some(role), None) => Err(match choose(role, &ROLE_WORDS) {
                Err(hint) => ListError::UnknownRole { role: excerpt(role), entry: whole(), hint },
                Ok(_) => ListError::NoRole { entry: whole() },
            }),
            (Some(_), Some(Role::Main)) if group.len() > 1 => Err(ListError::GroupOfMains { entry: whole() }),
            (Some(_), Some(_)) => Ok(()),
        }
    }

    /// S8: reads the name of an entry `name=none`.
    fn read_kubelets_own(&mut self, name: &str, entry: &str) -> Result<(), ListError> {
        if name.contains(['@', '+', '|']) {
            return Err(ListError::KubeletsOwnNotAlone { entry: excerpt(entry) });
        }
        if !is_name(name) {
            return Err(ListError::InvalidName { name: excerpt(name), entry: excerpt(entry) });
        }
        if self.has(name) || !self.kubelets_own.insert(name.to_owned()) {
            return Err(ListError::DuplicateName { name: name.to_owned() });
        }
        Ok(())
    }

    /// Reads `name` or `name@alias`.
    fn read_name(
        &mut self,
        text: &str,
        entry: &str,
        role: Option<Role>,
        index: usize,
        findings: &mut Findings,
    ) {
        let (name, alias) = match text.split_once('@') {
            Some((name, alias)) => (name.trim(), Some(alias.trim())),
            None => (text, None),
        };
        if self.listed.len() > MAX_CONTAINERS {
            // The error comes once, at the end of the entry.
            return;
        }
        if name == "*" {
            findings.error(KEY, ListError::OthersNotAlone { entry: excerpt(entry) });
            return;
        }
        for word in [Some(name), alias].into_iter().flatten() {
            if !is_name(word) {
                findings.error(KEY, ListError::InvalidName { name: excerpt(word), entry: excerpt(entry) });
            } else if self.has(word) || alias == Some(name) {
                findings.error(KEY, ListError::DuplicateName { name: word.to_owned() });
                return;
            }
        }
        self.listed.push(Listed {
            name: name.to_owned(),
            alias: alias.map(str::to_owned),
            role,
            entry: index,
            pair: None,
        });
    }

    fn has(&self, word: &str) -> bool {
        self.listed.iter().any(|listed| listed.is(word)) || self.kubelets_own.contains(word)
    }

    /// S4; no error if a role could not be read, because that one may be the main.
    fn check_for_main(&self, findings: &mut Findings) {
        let may_be_main = |listed: &Listed| listed.role.is_none_or(|role| role == Role::Main);
        if self.others == Others::Passthrough
            && !(self.listed.is_empty() && self.kubelets_own.is_empty())
            && !self.listed.iter().any(may_be_main)
        {
            findings.error(KEY, ListError::NoMain);
        }
    }
}

impl Listed {
    /// Whether this container has that name or alias.
    pub(super) fn is(&self, word: &str) -> bool {
        self.name == word || self.alias.as_deref() == Some(word)
    }
}
