//! A plan said container by container: `role.<c>` (S10). Owns the order of such a plan, and which containers are its mains;
//! makes of it what `list` makes of `podshim.io/plan`, so that nothing else knows the two forms apart. Never reads a list.

use std::collections::BTreeMap;

use crate::error::{ListError, Problem};
use crate::excerpt::excerpt;
use crate::keys::ROLES;
use crate::limits::{MAX_CONTAINERS, MAX_VALUE_BYTES};
use crate::name::is_name;
use crate::nearest::choose;
use crate::plan::{Others, Role};

use super::findings::Findings;
use super::list::{List, Listed, Names};

/// Key, container and value of each `role.<c>`, by name. A `role` without a container is an error of its key.
pub(super) fn of<'a>(ours: &BTreeMap<&'a str, &'a str>) -> Vec<(&'a str, &'a str, &'a str)> {
    let role = |(key, value): (&&'a str, &&'a str)| Some((*key, key.strip_prefix("role.")?, value.trim()));
    ours.iter().filter_map(role).filter(|(_, name, _)| !name.is_empty()).collect()
}

/// S10: the inits, then the sidecars, then the mains, each by name: a kubelet creates its own init containers before all
/// others, and an init behind a sidecar would wait for ever.
pub(super) fn list(roles: &[(&str, &str, &str)], findings: &mut Findings) -> List {
    let mut list = List { listed: Vec::new(), others: Others::Mains, names: Names::Complete };
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
            if value.len() > MAX_VALUE_BYTES { Err(None) } else { choose(value, &ROLES).map_err(Some) };
        if let Err(Some(hint)) = &role {
            findings.error(key, Problem::UnknownValue { value: excerpt(value), hint: hint.clone() });
        }
        let role = role.ok();
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
