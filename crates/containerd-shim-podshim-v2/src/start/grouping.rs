//! Which containers share a shim (CONTRACT §2), and which need one that is already running.
//!
//! Pure: annotations in, an answer out.

use std::collections::BTreeMap;

use shim_service::cri::{ContainerType, SANDBOX_ID, container_type};

/// The annotations that name a group; the first one found decides, as in containerd's own shim. For a container of CRI
/// only the sandbox id counts: a pod may set the other key itself (`pod_annotations`), and would get into another pod's
/// shim with it.
const GROUP_KEYS: [&str; 2] = ["io.containerd.runc.v2.group", SANDBOX_ID];
const CRI_KEYS: [&str; 1] = [SANDBOX_ID];

/// The id of the group whose shim serves a container; the container's own id if it has no group.
pub fn group_of<'a>(annotations: &'a BTreeMap<String, String>, id: &'a str) -> &'a str {
    let keys = if container_type(annotations).is_some() { &CRI_KEYS[..] } else { &GROUP_KEYS };
    keys.iter().find_map(|key| annotations.get(*key)).map_or(id, String::as_str)
}

/// The place of a container in its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grouping<'a> {
    /// It may be the first of its group: a CRI sandbox, a container of `ctr`.
    MayBeFirst,
    /// A CRI container: its sandbox was started before it, and made the shim.
    PodMember {
        /// The sandbox's id.
        pod: &'a str,
    },
}

impl<'a> Grouping<'a> {
    /// Reads it from a container's annotations.
    pub fn of(annotations: &'a BTreeMap<String, String>) -> Self {
        match container_type(annotations) {
            Some(ContainerType::Container) => {
                Self::PodMember { pod: annotations.get(SANDBOX_ID).map_or("(unnamed)", String::as_str) }
            }
            Some(ContainerType::Sandbox) | None => Self::MayBeFirst,
        }
    }
}

#[cfg(test)]
mod tests {
    use shim_service::cri::CONTAINER_TYPE;

    use super::*;

    fn annotations(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    /// CONTRACT §2: runc's group first, then the sandbox, then the container alone.
    #[test]
    fn the_order_of_group_keys() {
        let both = annotations(&[(GROUP_KEYS[0], "g"), (SANDBOX_ID, "pod")]);
        assert_eq!(group_of(&both, "c1"), "g");
        assert_eq!(group_of(&annotations(&[(SANDBOX_ID, "pod")]), "c1"), "pod");
        assert_eq!(group_of(&annotations(&[]), "c1"), "c1");
        // Issue 18: for containers of CRI only CRI's own annotation counts.
        for kind in ["sandbox", "container"] {
            let hostile =
                annotations(&[(GROUP_KEYS[0], "other"), (SANDBOX_ID, "pod"), (CONTAINER_TYPE, kind)]);
            assert_eq!(group_of(&hostile, "c1"), "pod");
        }
    }

    /// N3: only a sandbox, or a container outside CRI, may get a new shim.
    #[test]
    fn only_cri_containers_need_a_live_shim() {
        let container = annotations(&[(CONTAINER_TYPE, "container"), (SANDBOX_ID, "pod")]);
        assert_eq!(Grouping::of(&container), Grouping::PodMember { pod: "pod" });
        let sandbox = annotations(&[(CONTAINER_TYPE, "sandbox"), (SANDBOX_ID, "pod")]);
        assert_eq!(Grouping::of(&sandbox), Grouping::MayBeFirst);
        assert_eq!(Grouping::of(&annotations(&[(GROUP_KEYS[0], "g")])), Grouping::MayBeFirst);
    }
}
