//! The log's lines for events that no other file logs: exits, restarts, OOM kills, the phases of a stop.
//!
//! Owns the texts of these lines. Each event is logged once.

use std::time::Duration;

use pod_lifecycle::{Action, ContainerId, Milestone};
use tracing::info;

/// Logs what the actions of one event mean, if no other file does.
pub(crate) fn write(actions: &[Action]) {
    for (container, line) in lines(actions) {
        match container {
            Some(container) => info!(%container, "{line}"),
            None => info!("{line}"),
        }
    }
}

/// An exit and the restart that follows it are one line. A restart follows its exit later if processes of the container
/// are left, and has no exit if a held container lost its process.
fn lines(actions: &[Action]) -> impl Iterator<Item = (Option<&ContainerId>, String)> {
    let milestones = actions.iter().filter_map(|action| match action {
        Action::Record { container, milestone } => Some((container.as_ref(), milestone)),
        _ => None,
    });
    milestones.clone().filter_map(move |(container, milestone)| {
        let mut same = milestones.clone().filter(|(other, _)| *other == container);
        let line = match milestone {
            Milestone::Exited { exit } => {
                let delay = same.find_map(|(_, milestone)| match milestone {
                    Milestone::RestartDue { delay } => Some(format!("; {}", restart(*delay))),
                    _ => None,
                });
                format!("exited with code {}{}", exit.code, delay.unwrap_or_default())
            }
            Milestone::RestartDue { delay }
                if !same.any(|(_, milestone)| matches!(milestone, Milestone::Exited { .. })) =>
            {
                restart(*delay)
            }
            Milestone::OutOfMemory => "out of memory: the kernel has killed a process of it".to_owned(),
            Milestone::LastCall => {
                "the stop's time is over: every container that is left gets its stop signal".to_owned()
            }
            Milestone::BudgetSpent => {
                "the stop's time is spent: every container that is left is killed".to_owned()
            }
            _ => return None,
        };
        Some((container, line))
    })
}

fn restart(delay: Duration) -> String {
    if delay.is_zero() { "restart at once".to_owned() } else { format!("restart in {delay:?}") }
}

#[cfg(test)]
mod tests {

    use pod_lifecycle::{Exit, WallTime};

    use super::*;

    #[test]
    fn an_exit_is_one_line_with_its_restart() {
        let record =
            |id: &str, milestone| Action::Record { container: Some(ContainerId::from(id)), milestone };
        let exited = |code| Milestone::Exited { exit: Exit { code, at: WallTime::default() } };
        let due = || Milestone::RestartDue { delay: Duration::from_secs(1) };
        let logged = |actions: &[Action]| lines(actions).map(|(_, line)| line).collect::<Vec<_>>();
        let one_event = [record("a", exited(3)), record("b", due()), record("a", due())];
        assert_eq!(logged(&one_event), ["exited with code 3; restart in 1s", "restart in 1s"]);
        // Its processes end first.
        assert_eq!(logged(&one_event[..2]), ["exited with code 3", "restart in 1s"]);
        assert_eq!(logged(&one_event[2..]), ["restart in 1s"]);
        let at_once = [record("a", exited(1)), record("a", Milestone::RestartDue { delay: Duration::ZERO })];
        assert_eq!(logged(&at_once), ["exited with code 1; restart at once"]);
    }
}
