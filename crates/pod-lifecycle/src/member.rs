//! The member table: what has become of each planned container in this sandbox.
//!
//! Startup, shutdown and restart all read it; order is data here (entries), never code.

use pod_spec::{Gate, Member, Role};

use crate::container::{Ask, Container};
use crate::event::{ContainerId, Exit};
use crate::pod::Pod;

/// One planned container and what is known of it, over all the tasks that bear its name.
#[derive(Clone, Debug)]
pub(crate) struct MemberState {
    pub(crate) member: Member,
    /// The newest task of that name, until it is deleted.
    pub(crate) current: Option<ContainerId>,
    /// Whether its program was let start in this round: a newer task of the name does not wait again (S6).
    pub(crate) release: Release,
    /// A sidecar's gate. Once open it stays open for the round (U3).
    pub(crate) gate: GateState,
    /// How an init completed; it never runs again in this sandbox (I4).
    pub(crate) completed: Option<Exit>,
    /// The real exit of the newest task, once it is final (J1, J6).
    pub(crate) ended: Option<Exit>,
    /// How a caller asked for its end, if one did. It outlives the task, which CRI deletes as soon as it has
    /// exited (F6): counted until a newer task of the name is created or the stop is over (T12).
    pub(crate) asked: Option<Ask>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Release {
    Waiting,
    Released,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GateState {
    Closed,
    Open,
}

impl MemberState {
    pub(crate) fn new(member: Member) -> Self {
        Self {
            member,
            current: None,
            release: Release::Waiting,
            gate: GateState::Closed,
            completed: None,
            ended: None,
            asked: None,
        }
    }

    /// Whether later entries may go on, as far as this member is concerned.
    pub(crate) fn lets_next_start(&self) -> bool {
        match self.member.role {
            Role::Init => self.completed.is_some(),
            Role::Sidecar => self.gate == GateState::Open,
            // Mains come after the whole list, wherever it names them (S2).
            Role::Main => true,
        }
    }
}

/// A planned main that only `*=main` names (S8).
pub(crate) fn unnamed_main(name: &str) -> Member {
    Member {
        name: name.to_owned(),
        alias: None,
        role: Role::Main,
        entry: usize::MAX,
        gate: Gate::Running,
        grace: None,
        stop_signal: None,
    }
}

impl Pod {
    pub(crate) fn role(&self, container: &Container) -> Option<Role> {
        container.member().map(|index| self.members[index].member.role)
    }

    /// The newest container of a member, if it is still known.
    pub(crate) fn current(&self, member: usize) -> Option<&Container> {
        self.containers.get(self.members[member].current.as_ref()?)
    }

    /// The newest containers of all members. An older task of a name is final: nothing depends on it.
    pub(crate) fn planned(&self) -> impl Iterator<Item = (&MemberState, &Container)> {
        self.members.iter().filter_map(|state| Some((state, self.containers.get(state.current.as_ref()?)?)))
    }

    /// The ids of the planned containers that satisfy a condition, in plan order.
    pub(crate) fn planned_where(
        &self,
        wanted: impl Fn(&MemberState, &Container) -> bool,
    ) -> Vec<ContainerId> {
        self.planned().filter(|(s, c)| wanted(s, c)).map(|(_, c)| c.id.clone()).collect()
    }

    /// Whether `later` needs `earlier`: mains need every sidecar, inits and sidecars those of earlier entries.
    /// Start order is this relation, stop order its reverse.
    pub(crate) fn needs(later: &Member, earlier: &Member) -> bool {
        match (later.role, earlier.role) {
            (_, Role::Main) => false,
            (Role::Main, _) => true,
            (Role::Init | Role::Sidecar, _) => later.entry > earlier.entry,
        }
    }
}
