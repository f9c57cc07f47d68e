//! What a plan's probes cost, by the figures of docs/costs.md. Owns the cost above which it warns.

use std::time::Duration;

use pod_spec::{DurationText, Gate, GateAction, Plan};

use crate::finding::{Finding, Severity};

/// Processor time of one `exec:` probe: a call of the OCI runtime, whatever the program is. Other probes take a
/// hundredth of it.
const EXEC_PROBE: Duration = Duration::from_millis(15);
/// A part of a processor that is not worth a warning.
const UNNOTICED: f64 = 0.1;

/// A warning if `exec:` probes take more than a tenth of a processor while their gates are closed. `place` returns a
/// key's line and value.
pub fn of_probes<'a>(
    file: &str,
    plan: &Plan,
    place: impl Fn(&str) -> (usize, Option<&'a str>),
) -> Option<Finding> {
    let probes: Vec<_> = plan
        .members
        .iter()
        .filter_map(|member| match &member.gate {
            Gate::Probe { action: GateAction::Exec(_), timing, .. } => Some((&member.name, timing.period)),
            _ => None,
        })
        .collect();
    let part: f64 = probes.iter().map(|(_, period)| EXEC_PROBE.as_secs_f64() / period.as_secs_f64()).sum();
    let (name, _) = probes.iter().min_by_key(|(_, period)| *period).filter(|_| part > UNNOTICED * 1.001)?;
    let key = format!("{}ready.{name}", pod_spec::PREFIX);
    let (line, value) = place(&key);
    let names: Vec<_> = probes.iter().map(|(name, _)| format!("{name:?}")).collect();
    let message = format!(
        "exec: probes of {} take {part:.2} of a processor beside the pod's limits until their gates are open",
        names.join(", "),
    );
    let finding = Finding::new(Severity::Warning, file, line, message).key(&key);
    let finding = value.map_or(finding.clone(), |value| finding.value(value));
    // With this period for each, all probes together stay within the limit.
    let share =
        EXEC_PROBE.as_secs_f64() / UNNOTICED * f64::from(u32::try_from(probes.len()).unwrap_or(u32::MAX));
    let period = DurationText(Duration::from_millis((share * 10.0).ceil() as u64 * 100));
    Some(finding.fix(format!(
        "write period={period} or longer, or ask in another way: other probes cost next to nothing"
    )))
}
