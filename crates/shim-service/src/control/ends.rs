//! How the containers of a pod ended, for operators: CRI deletes a task as soon as it has exited (F6), and what is shown
//! of a pod then should not be that nothing ever ran.
//!
//! Owns what is kept and its bound, for the life of the sandbox. Decides nothing: no rule sees it.

use std::collections::BTreeMap;

use pod_lifecycle::{
    Action, ContainerId, Exit, InspectedContainer, InspectedPart, InspectedState, Inspection,
};

/// So many names are kept. A plan has 64; under ctr each container has a name of its own.
const KEPT: usize = 256;

/// The newest end of each name.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ends {
    by_name: BTreeMap<Box<str>, End>,
}

/// How the newest container of a name ended: really, and as its caller was shown (J2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct End {
    real: Exit,
    shown: Exit,
    name: Name,
}

/// Whether people know what it is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Name {
    Own,
    /// Of the sandbox, and of what ctr makes.
    Id,
}

impl Ends {
    /// Keeps what an action says of an end. `name` is that of its container.
    pub(crate) fn learn<'a>(&mut self, action: &Action, name: impl FnOnce(&ContainerId) -> Option<&'a str>) {
        let Action::Finish { container, shown, real } = action else { return };
        let Some(name) = name(container) else { return };
        let is_id = name == container.as_str();
        let end = End { real: *real, shown: *shown, name: if is_id { Name::Id } else { Name::Own } };
        if let Some(known) = self.by_name.get_mut(name) {
            *known = end;
        } else if self.by_name.len() < KEPT {
            self.by_name.insert(name.into(), end);
        }
    }

    /// What is known of containers that the pod does not have any more: those of the plan, and those that it does not name,
    /// which are added.
    pub(crate) fn complete(&self, inspection: &mut Inspection) {
        for container in &mut inspection.containers {
            if container.state == InspectedState::NotCreated
                && let Some(end) = self.by_name.get(container.name.as_str())
            {
                container.real_exit = Some(end.real);
                container.shown_exit = Some(end.shown);
            }
        }
        let unknown = |name: &str| !inspection.containers.iter().any(|container| container.name == name);
        let gone = self.by_name.iter().filter(|(name, end)| end.name == Name::Own && unknown(name));
        let gone: Vec<_> = gone.collect();
        for (name, end) in gone {
            inspection.containers.push(InspectedContainer {
                real_exit: Some(end.real),
                shown_exit: Some(end.shown),
                ..InspectedContainer::not_created(name, InspectedPart::Passthrough)
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use pod_lifecycle::{Pod, PodTime};

    use super::*;

    fn finish(ends: &mut Ends, name: &str, real: u32, shown: u32) {
        let exit = |code| Exit { code, ..Exit::default() };
        let container = ContainerId::from("c");
        let action = Action::Finish { container, shown: exit(shown), real: exit(real) };
        ends.learn(&action, |_| Some(name));
    }

    #[test]
    fn the_newest_end_of_a_name_is_kept_and_names_are_bounded() {
        let mut ends = Ends::default();
        finish(&mut ends, "app", 1, 1);
        finish(&mut ends, "app", 143, 0);
        let mut inspection = Pod::new().inspect(PodTime::ZERO);
        ends.complete(&mut inspection);
        let codes = |container: &InspectedContainer| {
            [container.real_exit, container.shown_exit].map(|exit| exit.map(|exit| exit.code))
        };
        assert_eq!(inspection.containers.iter().map(codes).collect::<Vec<_>>(), [[Some(143), Some(0)]]);
        for number in 0..2 * KEPT {
            finish(&mut ends, &number.to_string(), 0, 0);
        }
        assert_eq!(ends.by_name.len(), KEPT);
    }
}
