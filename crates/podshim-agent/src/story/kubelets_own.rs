//! The names of the pod's init and ephemeral containers: whether its shim has yet to get them (S15).
//!
//! Owns that a list is passed on once. A shim keeps the names and shows them: an agent that was restarted, or a second one, passes on
//! nothing again. Knows no clock.

use std::collections::BTreeSet;

use control_api::InspectResponse;

/// The names of a pod.
#[derive(Debug, Default)]
pub(super) struct KubeletsOwn {
    /// Those that the pod's object has.
    wanted: BTreeSet<String>,
    /// Those that were passed on last.
    passed: BTreeSet<String>,
    /// Those that the shim has; `None` if it has no use for any, or is of an earlier release.
    known: Option<BTreeSet<String>>,
}

impl KubeletsOwn {
    /// Takes what the shim shows.
    pub(super) fn see(&mut self, seen: &InspectResponse) {
        self.known = seen.kubelets_own.as_ref().map(|own| own.names.iter().cloned().collect());
    }

    /// Takes what the object has.
    pub(super) fn want(&mut self, names: &BTreeSet<String>) {
        if self.wanted != *names {
            self.wanted.clone_from(names);
        }
    }

    /// Whether the shim takes names.
    pub(super) fn are_taken(&self) -> bool {
        self.known.is_some()
    }

    /// Whether there are names to be passed on.
    pub(super) fn are_due(&self) -> bool {
        self.wanted != self.passed && self.known.as_ref().is_some_and(|known| !self.wanted.is_subset(known))
    }

    /// The names that are to be passed on now.
    pub(super) fn take(&mut self) -> Option<BTreeSet<String>> {
        self.are_due().then(|| {
            self.passed.clone_from(&self.wanted);
            self.wanted.clone()
        })
    }
}

#[cfg(test)]
mod tests {
    use control_api::Names;

    use super::*;

    fn names(of: &[&str]) -> BTreeSet<String> {
        of.iter().map(ToString::to_string).collect()
    }

    fn seen(known: Option<&[&str]>) -> InspectResponse {
        let known = known.map(|of| Names { names: names(of).into_iter().collect(), ..Default::default() });
        InspectResponse { kubelets_own: known.into(), ..Default::default() }
    }

    #[test]
    fn each_list_is_passed_on_once() {
        let mut own = KubeletsOwn::default();
        own.want(&names(&["load"]));
        assert_eq!((own.are_taken(), own.take()), (false, None), "no shim has answered");
        own.see(&seen(Some(&[])));
        assert_eq!((own.are_taken(), own.take()), (true, Some(names(&["load"]))));
        own.see(&seen(Some(&[])));
        assert_eq!(own.take(), None, "it is on its way, or was refused");
        own.see(&seen(Some(&["load"])));
        own.want(&names(&["load", "look"]));
        assert_eq!(own.take(), Some(names(&["load", "look"])));
        own.see(&seen(Some(&["load", "look"])));
        own.want(&names(&["load"]));
        assert_eq!(own.take(), None, "none is taken back");
    }

    /// After its own restart, or beside another agent.
    #[test]
    fn what_the_shim_has_is_not_passed_on() {
        let mut own = KubeletsOwn::default();
        own.want(&names(&["load"]));
        own.see(&seen(Some(&["load", "other"])));
        assert_eq!(own.take(), None);
    }

    /// One of an earlier release, or without a `*=main`.
    #[test]
    fn a_shim_that_has_no_use_for_them_is_not_asked() {
        let mut own = KubeletsOwn::default();
        own.want(&names(&["load"]));
        own.see(&seen(None));
        assert_eq!((own.are_taken(), own.take()), (false, None));
    }
}
