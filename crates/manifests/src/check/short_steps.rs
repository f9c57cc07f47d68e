//! A budget that is too short for 2 s for each step of a stop (T19). Owns that warning's words.

use std::time::Duration;

use pod_spec::{DurationText, Order, PREFIX, Plan, STEP_TIME, Shares};

/// What a pod has for each step after its mains if its mains hang, and the fix; `None` if that is 2 s, or if the plan keeps nothing.
/// `kubelet` is the pod's terminationGracePeriodSeconds.
pub fn of_plan(plan: &Plan, kubelet: Duration) -> Option<(String, String)> {
    let usual = plan.settings.grace.unwrap_or(kubelet);
    let budget = usual.min(kubelet);
    let steps = Order::of(plan).steps();
    let step = Shares::of(budget, plan.settings.reserve, usual, steps).step()?;
    if step >= STEP_TIME {
        return None;
    }
    let (count, one) = if steps == 1 {
        ("one step follows".to_owned(), "it")
    } else {
        (format!("{steps} steps follow"), "each")
    };
    let message = format!(
        "{count} the mains in a stop, and a budget of {} keeps {} for {one}, not 2s",
        DurationText(budget),
        milliseconds(step)
    );
    let least = STEP_TIME.saturating_mul(steps);
    let fix = match plan.settings.reserve {
        Some(_) => format!("write {PREFIX}reserve: {}", DurationText(least)),
        // T19: a third of the budget is kept at most.
        None if plan.settings.grace.is_some_and(|grace| grace < least * 3) => {
            format!("write {PREFIX}grace: {}s, and terminationGracePeriodSeconds: {0}", (least * 3).as_secs())
        }
        None => format!("write terminationGracePeriodSeconds: {}", (least * 3).as_secs()),
    };
    Some((message, fix))
}

/// A part of a budget, as people read it.
fn milliseconds(part: Duration) -> DurationText {
    DurationText(Duration::from_millis(u64::try_from(part.as_millis()).unwrap_or(u64::MAX)))
}
