//! A plan said container by container: `role.<c>` (S10). Owns the order of such a plan, and which containers are its mains;
//! makes of it what `list` makes of `podshim.io/plan`, so that nothing else knows the two forms apart. Also which containers
//! are said to be the kubelet's own, which is no form of a plan. Never reads a list.

use std::collections::{BTreeMap, BTreeSet};

use crate::error::{ListError, Problem};
use crate::excerpt::excerpt;
use crate::keys::{KUBELETS_OWN, ROLE_WORDS, RoleWord};
use crate::limits::{MAX_CONTAINERS, MAX_VALUE_BYTES};
use crate::name::is_name;
use crate::nearest::choose;
use crate::plan::{Others, Role};

use super::findings::Findings;
use super::list::{List, Listed, Names};

/// Key, container and value of a `role.<c>`.
type RoleKey<'a> = (&'a str, &'a str, &'a str);

/// The `role.<c>` of a pod, by name.
pub(super) struct Roles<'a> {
    /// Those that make a plan (S10).
    pub(super) planned: Vec<RoleKey<'a>>,
    /// `role.c: none` (S8).
    kubelets_own: Vec<RoleKey<'a>>,
}

impl<'a> Roles<'a> {
    /// A `role` without a container is an error of its key.
    pub(super) fn of(ours: &BTreeMap<&'a str, &'a str>) -> Self {
        let role =
            |(key, value): (&&'a str, &&'a str)| Some((*key, key.strip_prefix("role.")?, value.trim()));
        let roles = ours.iter().filter_map(role).filter(|(_, name, _)| !name.is_empty());
        let (kubelets_own, planned) = roles.partition(|(_, _, value)| *value == KUBELETS_OWN);
        Self { planned, kubelets_own }
    }

    /// The names of those that are the kubelet's own.
    pub(super) fn kubelets_own(&self, findings: &mut Findings) -> BTreeSet<String> {
        for (key, name, _) in self.kubelets_own.iter().filter(|(_, name, _)| !is_name(name)) {
            findings.error(key, ListError::InvalidName { name: excerpt(name), entry: excerpt(key) });
        }
        self.kubelets_own.iter().map(|(_, name, _)| (*name).to_owned()).collect()
    }

    /// Whether these keys say nothing else than which containers are the kubelet's own: that is no plan.
    pub(super) fn say_no_more(&self, ours: &BTreeMap<&str, &str>) -> bool {
        self.kubelets_own.len() == ours.len()
    }

    /// Whether a key makes no plan, and needs none.
    pub(super) fn needs_no_plan(&self, key: &str) -> bool {
        self.kubelets_own.iter().any(|(own, _, _)| *own == key)
    }

    /// A container of the list is not the kubelet's own.
    pub(super) fn check_planned(&self, list: &List, findings: &mut Findings) {
        for (key, name, _) in &self.kubelets_own {
            if list.listed.iter().any(|listed| listed.is(name)) {
                findings.error(key, Problem::KubeletsOwnIsPlanned { name: excerpt(name) });
            }
        }
    }
}

/// S10: the inits, then the sidecars, then the mains, each by name: a kubelet creates its own init containers before all
/// others, and an init behind a sidecar would wait for ever.
pub(super) fn list(roles: &[RoleKey<'_>], findings: &mut Findings) -> List {
    let mut list = List::new(Others::Mains);
    if roles.len() > MAX_CONTAINERS {
        findings.error(roles[0].0, ListError::TooManyContainers);
        list.names = Names::Unread;
        return list;
    }
    for &(key, name, value) in roles {
        if !is_name(name) {
            findings.error(key, ListError::InvalidName { name: excerpt(name), entry: excerpt(key) });
        }
        // A value that is too long is an error already.
        let role =
            if value.len() > MAX_VALUE_BYTES { Err(None) } else { choose(value, &ROLE_WORDS).map_err(Some) };
        if let Err(Some(hint)) = &role {
            findings.error(key, Problem::UnknownValue { value: excerpt(value), hint: hint.clone() });
        }
        let role = match role {
            Ok(RoleWord::Planned(role)) => Some(role),
            // The kubelet's own are not among these.
            Ok(RoleWord::KubeletsOwn) | Err(_) => None,
        };
        if role.is_none_or(|role| role == Role::Main) {
            // S11: a named main says that the author names them all.
            list.others = Others::Passthrough;
        }
        list.listed.push(Listed { name: name.to_owned(), alias: None, role, entry: 0, pair: None });
    }
    // Stable: within a role the order is that of the names.
    list.listed.sort_by_key(|listed| listed.role);
    for (entry, listed) in list.listed.iter_mut().enumerate() {
        listed.entry = entry;
    }
    list
}
