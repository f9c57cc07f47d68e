//! The containers of a pod while its keys are read: looks names up, and reads the keys `key.<container>`. Owns which
//! keys a role may have (11.4); the modules beside it own the grammar of each value.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::command;
use crate::duration;
use crate::error::{Problem, excerpt, printable_key};
use crate::keys::{ContainerKey, FATALS};
use crate::limits::MAX_CONTAINERS;
use crate::nearest::{Hint, hint_for_name};
use crate::plan::{Condition, Dependency, Fatal, Gate, Others, Restart, RestartMode, Role, Signal};
use crate::warning::Warning;

use super::after;
use super::findings::Findings;
use super::gate;
use super::list::{List, Names, is_name};
use super::restart;
use super::word;

/// The containers so far.
#[derive(Debug)]
pub(super) struct Containers {
    pub(super) drafts: Vec<Draft>,
    pub(super) others: Others,
    pub(super) names: Names,
}

/// What is known of one container.
#[derive(Debug)]
pub(super) struct Draft {
    pub(super) name: String,
    pub(super) alias: Option<String>,
    /// `None` if it is unknown, for which there is an error already.
    pub(super) role: Option<Role>,
    pub(super) entry: usize,
    pub(super) origin: Origin,
    /// The annotations that set the container, without the prefix.
    pub(super) keys: BTreeMap<ContainerKey, String>,
    pub(super) gate: Option<Gate>,
    pub(super) restart: Option<Restart>,
    pub(super) fatal: Option<Fatal>,
    pub(super) grace: Option<Duration>,
    pub(super) stop_signal: Option<Signal>,
    pub(super) on_terminate: Option<Vec<String>>,
    pub(super) pre_stop: Option<Vec<String>>,
    pub(super) migrate: Option<Vec<String>>,
    /// Its partner in a standby pair, as an index into the drafts.
    pub(super) pair: Option<usize>,
    after: Option<Vec<(String, Condition)>>,
}

/// Where a container's name comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// The plan's list.
    List,
    /// A key of a main that only `*=main` names.
    Key,
}

impl Draft {
    fn new(name: &str, role: Option<Role>, entry: usize, origin: Origin) -> Self {
        Self {
            name: name.to_owned(),
            alias: None,
            role,
            entry,
            origin,
            keys: BTreeMap::new(),
            gate: None,
            restart: None,
            fatal: None,
            grace: None,
            stop_signal: None,
            on_terminate: None,
            pre_stop: None,
            migrate: None,
            pair: None,
            after: None,
        }
    }

    fn is(&self, word: &str) -> bool {
        self.name == word || self.alias.as_deref() == Some(word)
    }

    /// Reads one key's value.
    fn set(&mut self, container_key: ContainerKey, key: &str, value: &str, findings: &mut Findings) {
        if let Some(other) = self.keys.insert(container_key, key.to_owned()) {
            findings.error(key, Problem::SetTwice { other: printable_key(&other) });
            return;
        }
        if self.role == Some(Role::Init)
            && let Some(problem) = self.not_for_init(container_key)
        {
            findings.error(key, problem);
            return;
        }
        match container_key {
            ContainerKey::Ready => match gate::parse(value) {
                Ok(gate) => self.gate = Some(gate),
                Err(error) => findings.error(key, error),
            },
            ContainerKey::After => {
                let (dependencies, problems) = after::parse(value);
                for problem in problems {
                    findings.error(key, problem);
                }
                let named =
                    dependencies.into_iter().map(|named| (named.name.to_owned(), named.condition)).collect();
                self.after = Some(named);
            }
            ContainerKey::Restart => match restart::parse(value) {
                Ok(restart) if restart.mode == RestartMode::Always && self.role == Some(Role::Init) => {
                    findings.error(key, Problem::InitAlwaysRestarted { name: self.name.clone() });
                }
                Ok(restart) => self.restart = Some(restart),
                Err(problem) => findings.error(key, problem),
            },
            ContainerKey::Grace => findings.keep(key, duration::parse(value).map(Some), &mut self.grace),
            ContainerKey::OnTerminate => findings.keep(key, hook(value).map(Some), &mut self.on_terminate),
            ContainerKey::PreStop => findings.keep(key, hook(value).map(Some), &mut self.pre_stop),
            ContainerKey::Migrate => {
                if self.pair.is_none() && self.role.is_some() {
                    findings.error(key, Problem::NotInAPair { name: self.name.clone() });
                }
                findings.keep(key, hook(value).map(Some), &mut self.migrate);
            }
            ContainerKey::StopSignal => {
                findings.keep(key, Signal::parse_stop_signal(value).map(Some), &mut self.stop_signal);
            }
            ContainerKey::Fatal => findings.keep(key, word(value, &FATALS).map(Some), &mut self.fatal),
        }
    }

    /// Why a key is not allowed for an init container (I6).
    fn not_for_init(&self, container_key: ContainerKey) -> Option<Problem> {
        let name = self.name.clone();
        match container_key {
            ContainerKey::Ready => Some(Problem::NotForInit { name, word: "ready" }),
            ContainerKey::PreStop => Some(Problem::NotForInit { name, word: "pre-stop" }),
            ContainerKey::Grace => Some(Problem::NotForInit { name, word: "grace" }),
            ContainerKey::Fatal => Some(Problem::InitIsFatal { name }),
            ContainerKey::After
            | ContainerKey::Restart
            | ContainerKey::OnTerminate
            | ContainerKey::Migrate
            | ContainerKey::StopSignal => None,
        }
    }
}

/// Reads a hook, which runs a command in the container (H1, H2).
fn hook(value: &str) -> Result<Vec<String>, Problem> {
    match value.strip_prefix("exec:").map(command::parse_whole) {
        Some(command) => Ok(command?),
        None => Err(Problem::HookNotExec { value: excerpt(value) }),
    }
}

impl Containers {
    /// The containers of a list.
    pub(super) fn from_list(list: List) -> Self {
        let drafts = list
            .listed
            .into_iter()
            .map(|listed| Draft {
                alias: listed.alias,
                pair: listed.pair,
                ..Draft::new(&listed.name, listed.role, listed.entry, Origin::List)
            })
            .collect();
        Self { drafts, others: list.others, names: list.names }
    }

    /// No containers, because there is no list to look names up in.
    pub(super) fn unknown() -> Self {
        Self { drafts: Vec::new(), others: Others::Passthrough, names: Names::Unread }
    }

    /// Whether every container's role is known.
    pub(super) fn are_known(&self) -> bool {
        self.names == Names::Complete && self.drafts.iter().all(|draft| draft.role.is_some())
    }

    /// Reads `key.<name>`; `key` is without the prefix.
    pub(super) fn set(
        &mut self,
        container_key: ContainerKey,
        name: &str,
        key: &str,
        value: &str,
        findings: &mut Findings,
    ) {
        if let Some(draft) = self.drafts.iter_mut().find(|draft| draft.is(name)) {
            draft.set(container_key, key, value, findings);
            return;
        }
        let entry = self.drafts.last().map_or(0, |draft| draft.entry + 1);
        let room = self.drafts.len() <= MAX_CONTAINERS;
        if self.names == Names::Complete && self.others == Others::Mains && is_name(name) && room {
            if let hint @ Hint::Nearest(_) = self.hint(name, findings) {
                findings.warn(Warning::NearlyPlanned {
                    key: printable_key(key),
                    name: name.to_owned(),
                    hint,
                });
            }
            let mut draft = Draft::new(name, Some(Role::Main), entry, Origin::Key);
            draft.set(container_key, key, value, findings);
            self.drafts.push(draft);
            return;
        }
        // Without room the error is "more than 64 containers".
        if self.names == Names::Complete && room {
            findings.error(
                key,
                Problem::NoSuchContainer { name: excerpt(name), hint: self.hint(name, findings) },
            );
        }
        // The value may be wrong too.
        Draft::new(name, None, entry, Origin::Key).set(container_key, key, value, findings);
    }

    /// The nearest name or alias of the list.
    fn hint(&self, name: &str, findings: &Findings) -> Hint {
        if !findings.is_next_listed() {
            return Hint::Nothing;
        }
        let listed = self.drafts.iter().filter(|draft| draft.origin == Origin::List);
        hint_for_name(name, listed.flat_map(|draft| [Some(&*draft.name), draft.alias.as_deref()]).flatten())
    }

    /// Looks up what `after` names, once every name is known, and searches for cycles.
    pub(super) fn check_after(&self, findings: &mut Findings) {
        let mut edges = Vec::with_capacity(self.drafts.len());
        for (index, draft) in self.drafts.iter().enumerate() {
            let key = draft.keys.get(&ContainerKey::After).map_or("", String::as_str);
            let mut targets = BTreeSet::new();
            if let (Some(_), head) = (&draft.after, self.head(index))
                && head != index
            {
                let first = self.drafts[head].name.clone();
                findings.error(key, Problem::OrderOfThePair { name: draft.name.clone(), first });
            }
            for (name, condition) in draft.after.iter().flatten() {
                let problem = match self.index_of(name) {
                    None if self.names == Names::Unread => continue,
                    None => Problem::NoSuchContainer { name: excerpt(name), hint: self.hint(name, findings) },
                    Some(target) if target == index => Problem::AfterItself { name: name.clone() },
                    Some(target) if !targets.insert(target) => {
                        Problem::DependencyTwice { name: name.clone() }
                    }
                    Some(target)
                        if *condition == Condition::Done
                            && self.drafts[target].role == Some(Role::Sidecar) =>
                    {
                        Problem::SidecarNeverDone { name: name.clone() }
                    }
                    Some(target)
                        if *condition == Condition::Done
                            && self.drafts[target].restart.is_some_and(|it| it.never_shows_success()) =>
                    {
                        Problem::AlwaysRestarted { name: name.clone() }
                    }
                    Some(_) => continue,
                };
                findings.error(key, problem);
            }
            edges.push(targets.into_iter().collect());
        }
        for cycle in after::cycles(&edges) {
            let path: Vec<String> = cycle.iter().map(|index| self.drafts[*index].name.clone()).collect();
            let first = cycle.first().and_then(|index| self.drafts[*index].keys.get(&ContainerKey::After));
            findings.error(first.map_or("", String::as_str), Problem::Cycle { path });
        }
    }

    /// Whether a container waits for that one's gate.
    pub(super) fn is_awaited(&self, awaited: &Draft) -> bool {
        let waits =
            |(name, condition): &(String, Condition)| *condition == Condition::Ready && awaited.is(name);
        self.drafts.iter().any(|draft| draft.after.iter().flatten().any(waits))
    }

    /// The dependencies of a draft, valid once all names are known to be right.
    pub(super) fn dependencies(&self, draft: &Draft) -> Option<Vec<Dependency>> {
        // V1: the keys of a pair's first container give its order.
        let first = draft.pair.map(|other| &self.drafts[other]).filter(|other| other.after.is_some());
        let resolved = first.unwrap_or(draft).after.as_ref()?.iter().filter_map(|(name, condition)| {
            Some(Dependency { member: self.index_of(name)?, condition: *condition })
        });
        Some(resolved.collect())
    }

    /// The container with that name or alias; for either one of a standby pair, the pair's first.
    fn index_of(&self, name: &str) -> Option<usize> {
        self.drafts.iter().position(|other| other.is(name)).map(|index| self.head(index))
    }

    fn head(&self, index: usize) -> usize {
        self.drafts[index].pair.map_or(index, |other| other.min(index))
    }
}
