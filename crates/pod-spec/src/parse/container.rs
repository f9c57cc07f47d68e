//! The containers of a pod while its keys are read: looks names up, and reads the keys `key.<container>`. Owns which
//! keys a role may have (11.4); the modules beside it own the grammar of each value.

use std::collections::{BTreeMap, BTreeSet};

use crate::code_set::CodeSet;
use crate::command;
use crate::duration;
use crate::error::{Problem, printable_key};
use crate::excerpt::excerpt;
use crate::keys::ContainerKey;
use crate::limits::MAX_CONTAINERS;
use crate::name::is_name;
use crate::nearest::{Hint, hint_for_name};
use crate::plan::{Condition, Dependency, Gate, Member, Others, RestartMode, Role, Signal};
use crate::warning::Warning;

use super::after;
use super::fatal;
use super::findings::Findings;
use super::gate;
use super::list::{KEY as PLAN, List, Names};
use super::restart;

/// The containers so far.
#[derive(Debug)]
pub(super) struct Containers {
    pub(super) drafts: Vec<Draft>,
    pub(super) others: Others,
    /// What is no draft, as it is the kubelet's own (S8).
    pub(super) kubelets_own: BTreeSet<String>,
    pub(super) names: Names,
}

/// What is known of one container.
#[derive(Debug)]
pub(super) struct Draft {
    /// The values of its keys so far. Its gate and its order are set last, by [`Containers::members`].
    pub(super) member: Member,
    /// `None` if it is unknown, for which there is an error already.
    pub(super) role: Option<Role>,
    pub(super) origin: Origin,
    /// The annotations that set the container, without the prefix.
    pub(super) keys: BTreeMap<ContainerKey, String>,
    /// The value of `ready`, even if no container waits for it.
    gate: Option<Gate>,
    /// The value of `after`; its names may be wrong.
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
        // Without a role no plan comes of it.
        let member = Member::new(name, role.unwrap_or(Role::Main), entry);
        Self { member, role, origin, keys: BTreeMap::new(), gate: None, after: None }
    }

    fn is(&self, word: &str) -> bool {
        self.member.name == word || self.member.alias.as_deref() == Some(word)
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
            // Read before all other keys.
            ContainerKey::Role => {}
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
                    findings.error(key, Problem::InitAlwaysRestarted { name: self.member.name.clone() });
                }
                Ok(restart) if restart.codes().contains(0) && self.role == Some(Role::Init) => {
                    findings.error(key, Problem::InitSuccessRestarted { name: self.member.name.clone() });
                }
                Ok(restart) => self.member.restart = Some(restart),
                Err(problem) => findings.error(key, problem),
            },
            ContainerKey::Grace => {
                findings.keep(key, duration::parse(value).map(Some), &mut self.member.grace)
            }
            ContainerKey::OnTerminate => {
                findings.keep(key, hook(value).map(Some), &mut self.member.on_terminate)
            }
            ContainerKey::PreStop => findings.keep(key, hook(value).map(Some), &mut self.member.pre_stop),
            ContainerKey::Migrate => {
                if self.member.pair.is_none() && self.role.is_some() {
                    findings.error(key, Problem::NotInAPair { name: self.member.name.clone() });
                }
                findings.keep(key, hook(value).map(Some), &mut self.member.migrate);
            }
            ContainerKey::StopSignal => {
                findings.keep(key, Signal::parse_stop_signal(value).map(Some), &mut self.member.stop_signal);
            }
            ContainerKey::Fatal => findings.keep(key, fatal::parse(value).map(Some), &mut self.member.fatal),
        }
    }

    /// Why a key is not allowed for an init container (I6).
    fn not_for_init(&self, container_key: ContainerKey) -> Option<Problem> {
        let name = self.member.name.clone();
        match container_key {
            ContainerKey::Ready => Some(Problem::NotForInit { name, word: "ready" }),
            ContainerKey::PreStop => Some(Problem::NotForInit { name, word: "pre-stop" }),
            ContainerKey::Grace => Some(Problem::NotForInit { name, word: "grace" }),
            ContainerKey::Fatal => Some(Problem::InitIsFatal { name }),
            ContainerKey::Role
            | ContainerKey::After
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
            .map(|listed| {
                let mut draft = Draft::new(&listed.name, listed.role, listed.entry, Origin::List);
                draft.member.alias = listed.alias;
                draft.member.pair = listed.pair;
                draft
            })
            .collect();
        Self { drafts, others: list.others, kubelets_own: list.kubelets_own, names: list.names }
    }

    /// No containers, because there is no list to look names up in.
    pub(super) fn unknown() -> Self {
        let (drafts, kubelets_own) = (Vec::new(), BTreeSet::new());
        Self { drafts, others: Others::Passthrough, kubelets_own, names: Names::Unread }
    }

    /// Whether every container's role is known.
    pub(super) fn are_known(&self) -> bool {
        self.names == Names::Complete && self.drafts.iter().all(|draft| draft.role.is_some())
    }

    /// The key that says the plan, for what is wrong with all of it: `plan`, or the first of the roles (S10).
    pub(super) fn key(&self) -> &str {
        let roles = self.drafts.iter().filter_map(|draft| draft.keys.get(&ContainerKey::Role));
        roles.min().map_or(PLAN, String::as_str)
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
        // A role beside a plan is one error already (S10), and `none` is allowed there.
        if container_key == ContainerKey::Role {
            return;
        }
        if self.kubelets_own.contains(name) {
            findings.error(key, Problem::KeyOfKubeletsOwn { name: excerpt(name) });
            return;
        }
        let entry = self.drafts.last().map_or(0, |draft| draft.member.entry + 1);
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
        hint_for_name(
            name,
            listed.flat_map(|draft| [Some(&*draft.member.name), draft.member.alias.as_deref()]).flatten(),
        )
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
                let first = self.drafts[head].member.name.clone();
                findings.error(key, Problem::OrderOfThePair { name: draft.member.name.clone(), first });
            }
            for (name, condition) in draft.after.iter().flatten() {
                let problem = match self.index_of(name) {
                    None if self.kubelets_own.contains(name) => {
                        Problem::AfterKubeletsOwn { name: name.clone() }
                    }
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
                    Some(target) if *condition == Condition::Done => {
                        match self.drafts[target].member.restart.filter(|it| it.hides(CodeSet::range(0, 0))) {
                            None => continue,
                            Some(restart) if restart.mode == RestartMode::Always => {
                                Problem::AlwaysRestarted { name: name.clone() }
                            }
                            Some(_) => Problem::SuccessRestarted { name: name.clone() },
                        }
                    }
                    Some(_) => continue,
                };
                findings.error(key, problem);
            }
            edges.push(targets.into_iter().collect());
        }
        for cycle in after::cycles(&edges) {
            let path: Vec<String> =
                cycle.iter().map(|index| self.drafts[*index].member.name.clone()).collect();
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

    /// The plan's members, valid only if there is no error.
    pub(super) fn members(&self) -> Vec<Member> {
        let members = self.drafts.iter().filter_map(|draft| {
            // For a missing role there is an error already.
            let role = draft.role?;
            let gate = match &draft.gate {
                Some(gate) if role == Role::Sidecar || self.is_awaited(draft) => gate.clone(),
                _ => Gate::Running,
            };
            Some(Member { gate, after: self.dependencies(draft), ..draft.member.clone() })
        });
        members.collect()
    }

    /// The dependencies of a draft, valid once all names are known to be right.
    fn dependencies(&self, draft: &Draft) -> Option<Vec<Dependency>> {
        // V1: the keys of a pair's first container give its order.
        let first = draft.member.pair.map(|other| &self.drafts[other]).filter(|other| other.after.is_some());
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
        self.drafts[index].member.pair.map_or(index, |other| other.min(index))
    }
}
