//! The order of a plan, as data: what each member waits for when it starts, and what it outlives when the pod stops. Owns
//! how the list, parallel groups and `after.<c>` become one acyclic relation. Never decides which container may start or
//! stop at a given moment: `pod-lifecycle` does.
//!
//! `after.<c>` takes the place of the list for `c`: it starts after what that names and nothing else. For the others `c`
//! keeps its place in the list, or moves behind what it waits for if the list has that further back. So every link leads to
//! a smaller place, or to the same place where `after` says so: the list never closes a circle.

use crate::plan::{Condition, Member, Plan, Role};

/// The place of what comes after the whole list: mains, and members that wait for one.
const BEHIND_THE_LIST: usize = usize::MAX;

/// One member needs another: it starts after it, is gone before it, or both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// The member that comes first: an index into [`Plan::members`].
    pub earlier: usize,
    /// The condition on the earlier member before the later one may start; `None` if only the stop has an order.
    pub until: Option<Condition>,
}

/// The order of a whole plan, computed once: so the code that asks it and the code that shows it cannot differ.
#[derive(Clone, Debug)]
pub struct Order {
    links: Vec<Vec<Link>>,
    awaited: Vec<bool>,
    unnamed_main: Vec<Link>,
    steps: u32,
    steps_after: Vec<u32>,
}

impl Order {
    /// The order of a plan.
    pub fn of(plan: &Plan) -> Self {
        let links: Vec<Vec<Link>> = (0..plan.members.len()).map(|index| plan.links(index)).collect();
        let asks = |link: &Link| matches!(link.until, Some(Condition::Started | Condition::Ready));
        let is_awaited = |(index, member): (usize, &Member)| {
            // Every main that `*=main` adds waits for the sidecars.
            member.role == Role::Sidecar
                || links.iter().flatten().any(|link| link.earlier == index && asks(link))
        };
        let awaited = plan.members.iter().enumerate().map(is_awaited).collect();
        let (steps, steps_after) = plan.steps(&links);
        Self { awaited, unnamed_main: plan.links_of_unnamed_main(), links, steps, steps_after }
    }

    /// How many steps follow the mains in a stop: the longest chain of sidecars, each of which outlives the one before it (T1, T19).
    pub fn steps(&self) -> u32 {
        self.steps
    }

    /// How many steps follow a member.
    pub fn steps_after(&self, member: usize) -> u32 {
        self.steps_after[member]
    }

    /// What a member needs: [`Plan::links`].
    pub fn links(&self, member: usize) -> &[Link] {
        &self.links[member]
    }

    /// What a main needs if only `*=main` names it: [`Plan::links_of_unnamed_main`].
    pub fn links_of_unnamed_main(&self) -> &[Link] {
        &self.unnamed_main
    }

    /// Whether it matters when a member's program has been exec'd or is ready: if so, podshim checks its gate (U1, U2).
    pub fn is_awaited(&self, member: usize) -> bool {
        self.awaited[member]
    }
}

/// Whether a member with these links must have ended before the `earlier` one may get its stop signal (T1): the order
/// of a stop is the start order reversed.
pub fn needs(links: &[Link], earlier: usize) -> bool {
    links.iter().any(|link| link.earlier == earlier)
}

impl Plan {
    /// What a member needs. Sidecars that it needs, directly or through others, outlive it: the order of a stop is this
    /// relation reversed. Every sidecar outlives a main (T1).
    pub fn links(&self, member: usize) -> Vec<Link> {
        let places = self.places();
        let mut waits = self.waits(&self.members[member], &places);
        let mut reached: Vec<usize> = waits.iter().map(|link| link.earlier).collect();
        let mut next = 0;
        while let Some(index) = reached.get(next).copied() {
            next += 1;
            for link in self.waits(&self.members[index], &places) {
                if !reached.contains(&link.earlier) {
                    reached.push(link.earlier);
                }
            }
        }
        if self.members[member].role == Role::Main {
            reached.extend(0..self.members.len());
        }
        for earlier in reached {
            let is_new = waits.iter().all(|link| link.earlier != earlier);
            if is_new && self.members[earlier].role == Role::Sidecar {
                waits.push(Link { earlier, until: None });
            }
        }
        waits
    }

    /// What a main needs that the plan does not name (`*=main`).
    pub fn links_of_unnamed_main(&self) -> Vec<Link> {
        let places = self.places();
        let sidecar = |index: usize| self.members[index].role == Role::Sidecar;
        let outlives = |index: &usize| places[*index] == BEHIND_THE_LIST && sidecar(*index);
        let last = (0..places.len()).filter(outlives).map(|earlier| Link { earlier, until: None });
        self.waits_by_list(BEHIND_THE_LIST, &places).chain(last).collect()
    }

    /// How many steps follow the mains, and each member.
    fn steps(&self, links: &[Vec<Link>]) -> (u32, Vec<u32>) {
        let is_sidecar = |index: usize| self.members[index].role == Role::Sidecar;
        let mut after = vec![0; links.len()];
        // At most as many passes as the longest chain has members; links close no circle.
        for _ in links {
            let before = after.clone();
            for (index, links) in links.iter().enumerate() {
                let outlives = links.iter().map(|link| link.earlier).filter(|earlier| is_sidecar(*earlier));
                after[index] = outlives.map(|earlier| before[earlier] + 1).max().unwrap_or(0);
            }
            if after == before {
                break;
            }
        }
        // Every sidecar outlives every main.
        let sidecars = (0..after.len()).filter(|index| is_sidecar(*index));
        (sidecars.map(|index| after[index] + 1).max().unwrap_or(0), after)
    }

    /// Each member's place, for the members that follow the list.
    fn places(&self) -> Vec<usize> {
        let mut places: Vec<usize> = self.members.iter().map(Member::own_place).collect();
        // At most as many passes as the longest chain has members; `after` has no circles.
        for _ in &self.members {
            let before = places.clone();
            for (index, member) in self.members.iter().enumerate() {
                for dependency in member.after.iter().flatten() {
                    places[index] = places[index].max(places[dependency.member]);
                }
            }
            if places == before {
                break;
            }
        }
        places
    }

    fn waits(&self, member: &Member, places: &[usize]) -> Vec<Link> {
        match &member.after {
            Some(dependencies) => dependencies
                .iter()
                .flat_map(|dependency| {
                    // What needs one container of a pair needs the other too: they take turns (V2).
                    [Some(dependency.member), self.members[dependency.member].pair]
                        .into_iter()
                        .flatten()
                        .map(|earlier| Link { earlier, until: Some(dependency.condition) })
                })
                .collect(),
            None => self.waits_by_list(member.own_place(), places).collect(),
        }
    }

    fn waits_by_list(&self, place: usize, places: &[usize]) -> impl Iterator<Item = Link> {
        let earlier = move |(index, member): (usize, &Member)| {
            (places[index] < place).then_some(Link { earlier: index, until: Some(member.usual_condition()) })
        };
        self.members.iter().enumerate().filter_map(earlier)
    }
}

impl Member {
    /// S2: a main comes behind the whole list, wherever the list names it.
    fn own_place(&self) -> usize {
        if self.role == Role::Main { BEHIND_THE_LIST } else { self.entry }
    }

    /// What members that follow the list wait for.
    fn usual_condition(&self) -> Condition {
        if self.role == Role::Init { Condition::Done } else { Condition::Ready }
    }
}
