//! How the pod's containers ended, for operators: CRI deletes a task as soon as it has exited (F6), and without this an
//! ended pod would look as if nothing had ever run in it.
//!
//! Owns these exits and their bound. No rule of the pod may depend on them.

use std::collections::BTreeMap;

use pod_lifecycle::{Action, Exit, InspectedContainer, InspectedPart, InspectedState, Inspection, Pod};

/// The bound on the names. A plan has at most 64; under ctr each container has a name of its own.
const KEPT: usize = 256;

/// The newest exit of each container name.
#[derive(Clone, Debug, Default)]
pub(crate) struct LastExits {
    by_name: BTreeMap<Box<str>, LastExit>,
}

/// How the newest container of a name ended: its real exit, and the one that its caller was shown (J2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct LastExit {
    real: Exit,
    shown: Exit,
    restarts: u32,
    part: InspectedPart,
    name: Name,
}

/// Whether a container has a name beside its id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Name {
    Own,
    /// The sandbox and ctr's containers have none.
    Id,
}

impl LastExits {
    /// Keeps the exit that an action shows to the caller.
    pub(crate) fn record(&mut self, action: &Action, pod: &Pod) {
        let Action::Finish { container, shown, real } = action else { return };
        let known = pod.name_of(container).zip(pod.part_and_restarts(container));
        let Some((name, (part, restarts))) = known else { return };
        let kind = if name == container.as_str() { Name::Id } else { Name::Own };
        self.add(name, LastExit { real: *real, shown: *shown, restarts, part, name: kind });
    }

    fn add(&mut self, name: &str, exit: LastExit) {
        if let Some(known) = self.by_name.get_mut(name) {
            *known = exit;
        } else if self.by_name.len() < KEPT {
            self.by_name.insert(name.into(), exit);
        }
    }

    /// Adds the exits of deleted containers: to those that the plan names, and those that it does not name as new ones.
    pub(crate) fn fill_in(&self, inspection: &mut Inspection) {
        for container in &mut inspection.containers {
            if container.state == InspectedState::NotCreated
                && let Some(exit) = self.by_name.get(container.name.as_str())
            {
                container.real_exit = Some(exit.real);
                container.shown_exit = Some(exit.shown);
                container.restarts = exit.restarts;
            }
        }
        let unknown = |name: &str| !inspection.containers.iter().any(|container| container.name == name);
        // ctr's containers count only as mains, which `*=main` makes them.
        let counts = |exit: &LastExit| match exit.part {
            InspectedPart::Sandbox => false,
            InspectedPart::Passthrough => exit.name == Name::Own,
            InspectedPart::Planned(_) | InspectedPart::Standby => true,
        };
        let gone = self.by_name.iter().filter(|(name, exit)| counts(exit) && unknown(name));
        let gone: Vec<_> = gone.collect();
        for (name, exit) in gone {
            inspection.containers.push(InspectedContainer {
                real_exit: Some(exit.real),
                shown_exit: Some(exit.shown),
                restarts: exit.restarts,
                ..InspectedContainer::not_created(name, exit.part)
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use pod_lifecycle::PodTime;

    use super::*;

    fn finish(exits: &mut LastExits, name: &str, real: u32, shown: u32) {
        let exit = |code| Exit { code, ..Exit::default() };
        let (restarts, part) = (3, InspectedPart::Planned(pod_spec::Role::Main));
        let exit = LastExit { real: exit(real), shown: exit(shown), restarts, part, name: Name::Own };
        exits.add(name, exit);
    }

    #[test]
    fn the_newest_end_of_a_name_is_kept_and_names_are_bounded() {
        let mut exits = LastExits::default();
        finish(&mut exits, "app", 1, 1);
        finish(&mut exits, "app", 143, 0);
        let mut inspection = Pod::new().inspect(PodTime::ZERO);
        exits.fill_in(&mut inspection);
        let codes = |container: &InspectedContainer| {
            [container.real_exit, container.shown_exit].map(|exit| exit.map(|exit| exit.code))
        };
        assert_eq!(inspection.containers.iter().map(codes).collect::<Vec<_>>(), [[Some(143), Some(0)]]);
        for number in 0..2 * KEPT {
            finish(&mut exits, &number.to_string(), 0, 0);
        }
        assert_eq!(exits.by_name.len(), KEPT);
    }
}
