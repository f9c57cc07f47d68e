//! The holds of a pod: since when each container is held, for what, and when that is worth a report.
//!
//! Owns these times (U13's, but the first after 10 s: most holds are over by then). The words are the shim's own. Knows no clock.

use std::collections::BTreeMap;
use std::time::Duration;

use control_api::container::{Role, State};
use control_api::{Container, InspectResponse, StopReason};

use super::started::awaited;

/// A hold is reported when it has lasted this long.
const REPORTS: [Duration; 4] =
    [Duration::from_secs(10), Duration::from_secs(60), Duration::from_secs(600), Duration::from_secs(3600)];
/// A change of the reason that lasts less long is not reported (U13).
const CHANGE_AFTER: Duration = Duration::from_secs(1);

/// All of a pod, by the ids of their containers.
#[derive(Debug, Default)]
pub(super) struct Holds(BTreeMap<String, Hold>);

#[derive(Debug)]
struct Hold {
    name: String,
    since: Duration,
    waits: Wait,
    waits_since: Duration,
    reported: Option<(usize, Wait)>,
}

/// What a held container waits for. A change of this is worth a report; another error of the same probe is not.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Wait {
    /// Such as `sidecar "proxy"`, or the whole reason.
    awaited: String,
    obstacle: Obstacle,
}

/// What keeps the awaited container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Obstacle {
    NotCreated,
    NotStarted,
    Held,
    AtWork,
    Ended,
    /// It waits for no container.
    Other,
}

/// A hold that is to be reported.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Due {
    /// The container's name.
    pub(super) name: String,
    /// For what it is held, in the shim's words.
    pub(super) reason: String,
    /// For so long.
    pub(super) after: Duration,
    /// Tells this report of the hold from the others, in each run of the agent alike.
    pub(super) occurrence: String,
}

/// What an inspection shows of the holds.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) due: Vec<Due>,
    /// The names of the containers that are held no more.
    pub(super) over: Vec<String>,
}

impl Holds {
    /// What there is to report now.
    pub(super) fn see(&mut self, pod: &InspectResponse, now: Duration) -> Found {
        let held: Vec<&Container> = pod.containers.iter().filter(|own| is_worth(pod, own)).collect();
        let mut found = Found::default();
        self.0.retain(|id, hold| {
            let goes_on = held.iter().any(|container| container.id == *id);
            if !goes_on {
                found.over.push(hold.name.clone());
            }
            goes_on
        });
        for container in held {
            let waits = wait_of(container, pod);
            // By the shim's clock: the hold may be older than the agent.
            let since = now.saturating_sub(Duration::from_millis(container.gate_wait_ms.unwrap_or_default()));
            let hold = self.0.entry(container.id.clone()).or_insert_with(|| Hold {
                name: container.name.clone(),
                since,
                waits: waits.clone(),
                waits_since: since,
                reported: None,
            });
            if hold.waits != waits {
                (hold.waits, hold.waits_since) = (waits, now);
            }
            found.due.extend(hold.report(container, now));
        }
        found
    }

    /// The names of the containers whose hold is reported.
    pub(super) fn reported(&self) -> impl Iterator<Item = &str> {
        self.0.values().filter(|hold| hold.reported.is_some()).map(|hold| hold.name.as_str())
    }

    /// When the next report is due, if nothing changes.
    pub(super) fn next_due(&self) -> Option<Duration> {
        self.0.values().filter_map(Hold::next_due).min()
    }
}

/// A standby is held by design, and in a stop the stop is what matters.
fn is_worth(pod: &InspectResponse, container: &Container) -> bool {
    container.state.enum_value_or_default() == State::HELD
        && container.role.enum_value_or_default() != Role::STANDBY
        && pod.stop_reason.enum_value_or_default() == StopReason::NOT_STOPPING
}

fn wait_of(container: &Container, pod: &InspectResponse) -> Wait {
    let awaited = awaited(&container.held_for);
    // As a shim names a member: its role and its name in quotes.
    let is_it = |other: &&Container| {
        let role = match other.role.enum_value_or_default() {
            Role::INIT => "init",
            Role::SIDECAR | Role::STANDBY => "sidecar",
            Role::MAIN => "main",
            Role::SANDBOX | Role::PASSTHROUGH => return false,
        };
        awaited == format!("{role} {:?}", other.name)
    };
    let obstacle = match pod.containers.iter().find(is_it).map(|other| other.state.enum_value_or_default()) {
        None => Obstacle::Other,
        Some(State::NOT_CREATED) => Obstacle::NotCreated,
        Some(State::CREATING | State::CREATED) => Obstacle::NotStarted,
        Some(State::HELD) => Obstacle::Held,
        Some(State::STOPPED | State::EXITED) => Obstacle::Ended,
        Some(
            State::STARTING
            | State::RUNNING
            | State::PAUSED
            | State::BACKING_OFF
            | State::RESTARTING
            | State::COMPLETED
            | State::ENDING,
        ) => Obstacle::AtWork,
    };
    Wait { awaited: awaited.to_owned(), obstacle }
}

impl Hold {
    /// How many of [`REPORTS`] are over.
    fn stage(&self, now: Duration) -> usize {
        REPORTS.iter().filter(|after| self.since + **after <= now).count()
    }

    fn report(&mut self, container: &Container, now: Duration) -> Option<Due> {
        let stage = self.stage(now);
        let is_due = match &self.reported {
            _ if stage == 0 => false,
            None => true,
            Some((before, _)) if stage > *before => true,
            Some((_, waits)) => *waits != self.waits && now >= self.waits_since + CHANGE_AFTER,
        };
        if !is_due {
            return None;
        }
        self.reported = Some((stage, self.waits.clone()));
        let Wait { awaited, obstacle } = &self.waits;
        Some(Due {
            name: self.name.clone(),
            reason: container.held_for.clone(),
            after: Duration::from_secs((now - self.since).as_secs()),
            occurrence: format!("{} {stage} {awaited} {obstacle:?}", container.id),
        })
    }

    fn next_due(&self) -> Option<Duration> {
        let Some((stage, waits)) = &self.reported else { return Some(self.since + REPORTS[0]) };
        let change = (*waits != self.waits).then_some(self.waits_since + CHANGE_AFTER);
        REPORTS.get(*stage).map(|after| self.since + *after).into_iter().chain(change).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(proxy: State, reason: &str, held_ms: u64) -> InspectResponse {
        let container = |name: &str, role: Role, state: State| Container {
            id: format!("id-of-{name}"),
            name: name.to_owned(),
            role: role.into(),
            state: state.into(),
            ..Default::default()
        };
        let app = Container {
            held_for: format!("sidecar \"proxy\": {reason}"),
            gate_wait_ms: Some(held_ms),
            ..container("app", Role::MAIN, State::HELD)
        };
        InspectResponse {
            containers: vec![container("proxy", Role::SIDECAR, proxy), app],
            ..Default::default()
        }
    }

    /// What is reported of a pod that is inspected whenever it is due, from a hold's beginning on.
    fn after(holds: &mut Holds, pod: &InspectResponse, now: u64) -> Option<u64> {
        let mut due = holds.see(pod, Duration::from_secs(now)).due;
        assert!(due.len() < 2, "{due:?}");
        due.pop().map(|due| due.after.as_secs())
    }

    #[test]
    fn u13_a_hold_is_reported_at_its_times() {
        let (mut holds, pod) = (Holds::default(), pod(State::RUNNING, "refused", 0));
        assert_eq!(after(&mut holds, &pod, 100), None);
        let mut found = Vec::new();
        // The shim's clock says how old it was when it was seen first.
        while let Some(due) = holds.next_due() {
            found.push((due.as_secs() - 100, after(&mut holds, &pod, due.as_secs())));
        }
        assert_eq!(found, [(10, Some(10)), (60, Some(60)), (600, Some(600)), (3600, Some(3600))]);
    }

    #[test]
    fn another_reason_is_reported_when_it_has_lasted() {
        let mut holds = Holds::default();
        assert_eq!(after(&mut holds, &pod(State::NOT_CREATED, "not created yet", 12_000), 20), Some(12));
        assert_eq!(after(&mut holds, &pod(State::RUNNING, "refused", 15_000), 23), None);
        assert_eq!(holds.next_due(), Some(Duration::from_secs(24)));
        assert_eq!(after(&mut holds, &pod(State::RUNNING, "timed out", 16_000), 24), Some(16));
        // The same obstacle in other words.
        assert_eq!(after(&mut holds, &pod(State::RUNNING, "refused", 30_000), 38), None);
        assert_eq!(holds.next_due(), Some(Duration::from_secs(68)));
    }

    /// An agent that was restarted names the same report alike, and makes up for none that is over.
    #[test]
    fn a_restarted_agent_repeats_itself() {
        let seen = pod(State::RUNNING, "refused", 700_000);
        let first = Holds::default().see(&seen, Duration::from_secs(705)).due;
        assert_eq!((first.len(), first[0].after.as_secs()), (1, 700));
        assert_eq!(first, Holds::default().see(&seen, Duration::from_secs(9900)).due);
    }

    #[test]
    fn the_end_of_a_hold_is_found() {
        let mut holds = Holds::default();
        let mut seen = pod(State::RUNNING, "refused", 11_000);
        assert_eq!(after(&mut holds, &seen, 50), Some(11));
        seen.containers[1].state = State::RUNNING.into();
        let found = holds.see(&seen, Duration::from_secs(51));
        assert_eq!(found, Found { due: vec![], over: vec!["app".to_owned()] });
        assert_eq!(holds.next_due(), None);
    }

    #[test]
    fn a_standby_and_a_stop_are_not_reported() {
        let mut seen = pod(State::RUNNING, "refused", 11_000);
        seen.containers[1].role = Role::STANDBY.into();
        assert_eq!(after(&mut Holds::default(), &seen, 50), None);
        let mut seen = pod(State::RUNNING, "refused", 11_000);
        seen.stop_reason = StopReason::CALLER.into();
        assert_eq!(after(&mut Holds::default(), &seen, 50), None);
    }
}
