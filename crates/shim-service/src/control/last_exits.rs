//! How the programs of the pod's containers ended, for operators: CRI deletes a task as soon as it has exited (F6), and without this
//! an ended pod would look as if nothing had ever run in it. A restart in place (R6) hides an exit, and what the kernel killed for
//! memory, in the same way.
//!
//! Owns these exits and counts, and their bound. No rule of the pod may depend on them.

use std::collections::BTreeMap;

use control_api::Container;
use pod_lifecycle::{
    Action, ContainerId, Exit, InspectedContainer, InspectedPart, InspectedState, Inspection, Milestone,
    Operation, Pod,
};

use super::inspection::exited_at;

/// The bound on the names. A plan has at most 64; under ctr each container has a name of its own.
const KEPT: usize = 256;

/// What the programs of each container's name have been through.
#[derive(Clone, Debug, Default)]
pub(crate) struct LastExits {
    by_name: BTreeMap<Box<str>, Runs>,
}

/// The runs of all containers of a name, one after another.
#[derive(Clone, Copy, Debug, Default)]
struct Runs {
    /// How the last run ended, also if its caller sees nothing of that (R6).
    last: Option<Exit>,
    /// Of that run.
    memory: Memory,
    now: Run,
    /// What the kernel has killed for memory, in all runs.
    oom_kills: u32,
    /// Restarts of the containers that have ended for their callers: the core's counts begin at 0 with each.
    restarts_before: u32,
    /// How the newest container of the name ended for its caller.
    finished: Option<LastExit>,
}

/// Whether the kernel has killed something of a run for memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Memory {
    #[default]
    Enough,
    RanOut,
}

/// Whether a program runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Run {
    #[default]
    Ended,
    Goes(Memory),
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
    /// Keeps what an action says of a container's runs, and the exit that it shows to the caller.
    pub(crate) fn record(&mut self, action: &Action, pod: &Pod) {
        match action {
            Action::Finish { container, shown, real } => {
                let known = pod.name_of(container).zip(pod.part_and_restarts(container));
                let Some((name, (part, [restarts, total]))) = known else { return };
                let kind = if name == container.as_str() { Name::Id } else { Name::Own };
                let exit = LastExit { real: *real, shown: *shown, restarts, part, name: kind };
                self.add(name, |runs| runs.finish(exit, total));
            }
            Action::Run { container, operation: Operation::Start, .. } => {
                self.add_of(container, pod, Runs::begin)
            }
            Action::Record { container: Some(container), milestone } => {
                let change: fn(&mut Runs, &Milestone) = match milestone {
                    Milestone::Running { .. } => |runs, _| runs.goes(),
                    Milestone::OutOfMemory => |runs, _| runs.out_of_memory(),
                    Milestone::Exited { .. } => Runs::exited,
                    _ => return,
                };
                self.add_of(container, pod, |runs| change(runs, milestone));
            }
            _ => {}
        }
    }

    fn add_of(&mut self, id: &ContainerId, pod: &Pod, change: impl FnOnce(&mut Runs)) {
        if let Some(name) = pod.name_of(id) {
            self.add(name, change);
        }
    }

    fn add(&mut self, name: &str, change: impl FnOnce(&mut Runs)) {
        if let Some(known) = self.by_name.get_mut(name) {
            change(known);
        } else if self.by_name.len() < KEPT {
            let mut runs = Runs::default();
            change(&mut runs);
            self.by_name.insert(name.into(), runs);
        }
    }

    /// Adds the exits of deleted containers: to those that the plan names, and those that it does not name as new ones.
    pub(crate) fn fill_in(&self, inspection: &mut Inspection) {
        for container in &mut inspection.containers {
            let Some(runs) = self.by_name.get(container.name.as_str()) else { continue };
            match runs.finished {
                Some(exit) if container.state == InspectedState::NotCreated => {
                    container.real_exit = Some(exit.real);
                    container.shown_exit = Some(exit.shown);
                    container.restarts = exit.restarts;
                    container.restarts_total = runs.restarts_before;
                }
                // One that is over for its caller has its restarts among those already.
                _ if container.shown_exit.is_some() => container.restarts_total = runs.restarts_before,
                _ => {
                    container.restarts_total = container.restarts_total.saturating_add(runs.restarts_before);
                }
            }
        }
        let unknown = |name: &str| !inspection.containers.iter().any(|container| container.name == name);
        // ctr's containers count only as mains, which `*=main` makes them.
        let counts = |exit: &LastExit| match exit.part {
            InspectedPart::Sandbox => false,
            InspectedPart::Passthrough => exit.name == Name::Own,
            InspectedPart::Planned(_) | InspectedPart::Standby => true,
        };
        let finished = self.by_name.iter().filter_map(|(name, runs)| Some((name, runs, runs.finished?)));
        let gone: Vec<_> = finished.filter(|(name, _, exit)| counts(exit) && unknown(name)).collect();
        for (name, runs, exit) in gone {
            inspection.containers.push(InspectedContainer {
                real_exit: Some(exit.real),
                shown_exit: Some(exit.shown),
                restarts: exit.restarts,
                restarts_total: runs.restarts_before,
                ..InspectedContainer::not_created(name, exit.part)
            });
        }
    }

    /// Adds what an operator sees of runs whose end no caller saw: the exit of the one before, and what was killed for memory.
    pub(crate) fn fill_in_runs(&self, container: &mut Container) {
        let Some(runs) = self.by_name.get(container.name.as_str()) else { return };
        container.oom_kills = Some(runs.oom_kills);
        container.out_of_memory = runs.memory == Memory::RanOut;
        if let (None, Some(last), false) = (container.real_exit_code, runs.last, container.id.is_empty()) {
            container.real_exit_code = Some(last.code);
            container.exited_at_ms = exited_at(last);
        }
    }
}

impl Runs {
    /// Another run begins: its program may run out of memory before its start has been answered.
    fn begin(&mut self) {
        self.now = Run::Goes(Memory::Enough);
    }

    /// It has begun, also where nothing was started: a restored one.
    fn goes(&mut self) {
        if self.now == Run::Ended {
            self.begin();
        }
    }

    /// The kernel reports it before or after the exit.
    fn out_of_memory(&mut self) {
        self.oom_kills = self.oom_kills.saturating_add(1);
        match &mut self.now {
            Run::Goes(memory) => *memory = Memory::RanOut,
            Run::Ended => self.memory = Memory::RanOut,
        }
    }

    /// A run ends. One that ends with 0 has outlived what was killed of it.
    fn exited(&mut self, milestone: &Milestone) {
        let Milestone::Exited { exit } = milestone else { return };
        self.memory = match self.now {
            Run::Goes(memory) if exit.code != 0 => memory,
            _ => Memory::Enough,
        };
        (self.now, self.last) = (Run::Ended, Some(*exit));
    }

    /// The container has ended for its caller; it has had so many restarts in all.
    fn finish(&mut self, exit: LastExit, restarts: u32) {
        self.restarts_before = self.restarts_before.saturating_add(restarts);
        self.finished = Some(exit);
    }
}

#[cfg(test)]
mod tests {
    use pod_lifecycle::PodTime;

    use super::*;

    fn finish(exits: &mut LastExits, name: &str, real: u32, shown: u32) {
        let exit = |code| Exit { code, ..Exit::default() };
        let (restarts, part) = (1, InspectedPart::Planned(pod_spec::Role::Main));
        let exit = LastExit { real: exit(real), shown: exit(shown), restarts, part, name: Name::Own };
        exits.add(name, |runs| runs.finish(exit, 3));
    }

    /// N7: a kubelet recreates a container, and the restarts of the one before still count.
    #[test]
    fn found_n7_the_total_of_a_name_outlives_its_containers() {
        let mut exits = LastExits::default();
        finish(&mut exits, "app", 1, 1);
        let of = |state, shown_exit| {
            let part = InspectedPart::Planned(pod_spec::Role::Main);
            let alone = InspectedContainer::not_created("app", part);
            let live = InspectedContainer { state, shown_exit, restarts: 1, restarts_total: 2, ..alone };
            let mut inspection = Inspection { containers: vec![live], ..Pod::new().inspect(PodTime::ZERO) };
            exits.fill_in(&mut inspection);
            inspection.containers[0].restarts_total
        };
        assert_eq!(of(InspectedState::Running, None), 5, "the next one of the name");
        assert_eq!(of(InspectedState::Stopped, Some(Exit::default())), 3, "the same one, which has ended");
        assert_eq!(of(InspectedState::NotCreated, None), 3);
    }

    /// N5, N8: a program that has run out of memory before its start was answered.
    #[test]
    fn found_n8_an_exit_for_memory_may_come_before_the_end_of_its_start() {
        let mut runs = Runs::default();
        for _ in 0..2 {
            runs.begin();
            runs.out_of_memory();
            runs.goes();
            runs.exited(&Milestone::Exited { exit: Exit { code: 137, ..Exit::default() } });
            assert_eq!(runs.memory, Memory::RanOut);
        }
    }

    /// N5, N8: what a restart in place hides is kept, whether the kernel says that memory ran out before or after the exit.
    #[test]
    fn found_n8_an_exit_for_memory_is_kept_over_a_restart_in_place() {
        let exited = |code| Milestone::Exited { exit: Exit { code, ..Exit::default() } };
        for late in [false, true] {
            let mut exits = LastExits::default();
            exits.add("proxy", |runs| {
                runs.begin();
                if late {
                    runs.exited(&exited(137));
                    runs.out_of_memory();
                } else {
                    runs.out_of_memory();
                    runs.exited(&exited(137));
                }
                runs.begin();
            });
            let seen = |exits: &LastExits| {
                let (id, name) = ("id-of-proxy".to_owned(), "proxy".to_owned());
                let mut container = Container { id, name, ..Default::default() };
                exits.fill_in_runs(&mut container);
                (container.real_exit_code, container.out_of_memory, container.oom_kills)
            };
            assert_eq!(seen(&exits), (Some(137), true, Some(1)), "late: {late}");
            exits.add("proxy", |runs| runs.exited(&exited(0)));
            assert_eq!(seen(&exits), (Some(0), false, Some(1)), "late: {late}");
        }
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
