//! What a plan's probes and restarts cost, by the figures of docs/costs.md. Owns the cost above which it warns.

use std::time::Duration;

use pod_spec::{DurationText, Gate, GateAction, Member, Plan, Restart, RestartMode};

use crate::finding::{Finding, Severity};

/// Processor time of one `exec:` probe, whatever the program is, in a container with a seccomp profile: a call of the OCI runtime. podshim
/// starts that of another container itself, for a part of it.
const EXEC_PROBE: Duration = Duration::from_millis(15);
const OWN_PART: f64 = 0.06;
/// Processor time of one restart in place: delete, create and start.
const RESTART: Duration = Duration::from_millis(60);
/// So many restarts are over soon, whatever their delay.
const FEW_RESTARTS: u32 = 100;
/// A part of a processor that is not worth a warning.
const UNNOTICED: f64 = 0.1;

/// Warnings if `exec:` probes take more than a tenth of a processor while their gates are closed, or restarts of programs
/// that fail at once. `place` returns a key's line and value.
pub fn of_plan<'a>(
    file: &str,
    plan: &Plan,
    place: impl Fn(&str) -> (usize, Option<&'a str>),
) -> impl Iterator<Item = Finding> {
    let at = |word: &str, member: &Member, message: String| {
        let keys = [Some(member.name.as_str()), member.alias.as_deref()].into_iter().flatten();
        let mut keys = keys.map(|name| format!("{}{word}.{name}", pod_spec::PREFIX));
        let key = keys.find(|key| place(key).1.is_some()).unwrap_or_default();
        let (line, value) = place(&key);
        let finding = Finding::new(Severity::Warning, file, line, message).key(&key);
        value.map_or(finding.clone(), |value| finding.value(value))
    };
    let probes = of_probes(plan).map(|(member, message, fix)| at("ready", member, message).fix(fix));
    let restarts = of_restarts(plan).map(|(member, message, fix)| at("restart", member, message).fix(fix));
    [probes, restarts].into_iter().flatten()
}

/// What one kind of work costs: whom it is done for how often, and how much of a processor all of it takes.
struct WorkCost<'a> {
    members: Vec<(&'a Member, Duration)>,
    each: Duration,
}

impl<'a> WorkCost<'a> {
    /// The part of a processor.
    fn part(&self) -> f64 {
        self.members.iter().map(|(_, period)| self.each.as_secs_f64() / period.as_secs_f64()).sum()
    }

    /// Whose work costs most, if all of it is worth a warning.
    fn worst(&self) -> Option<&'a Member> {
        let (member, _) = self.members.iter().min_by_key(|(_, period)| *period)?;
        (self.part() > UNNOTICED * 1.001).then_some(*member)
    }

    fn names(&self) -> String {
        let names: Vec<_> = self.members.iter().map(|(member, _)| format!("{:?}", member.name)).collect();
        names.join(", ")
    }

    /// With this period for each, all stay within the limit.
    fn period(&self) -> DurationText {
        let count = u32::try_from(self.members.len()).unwrap_or(u32::MAX);
        let share = self.each.as_secs_f64() / UNNOTICED * f64::from(count);
        DurationText(Duration::from_millis((share * 10.0).ceil() as u64 * 100))
    }
}

fn of_probes(plan: &Plan) -> Option<(&Member, String, String)> {
    let probes = plan.members.iter().filter_map(|member| match &member.gate {
        Gate::Probe { action: GateAction::Exec(_), timing, .. } => Some((member, timing.period)),
        _ => None,
    });
    let work = WorkCost { members: probes.collect(), each: EXEC_PROBE };
    let worst = work.worst()?;
    let message = format!(
        "exec: probes of {} take {:.2} of a processor beside the pod's limits until their gates are open, where their containers have \
         a seccomp profile, and {:.2} where they have none",
        work.names(),
        work.part(),
        work.part() * OWN_PART,
    );
    let period = work.period();
    let fix =
        format!("write period={period} or longer, or ask in another way: other probes cost next to nothing");
    Some((worst, message, fix))
}

fn of_restarts(plan: &Plan) -> Option<(&Member, String, String)> {
    let lasts = |restart: &Restart| {
        matches!(restart.mode, RestartMode::Always | RestartMode::OnFailure)
            && restart.limit.is_none_or(|limit| limit > FEW_RESTARTS)
    };
    let restarts = plan.members.iter().filter_map(|member| {
        let restart = member.restart.filter(lasts)?;
        // The delays grow to the longest; a restart takes its own time too.
        Some((member, restart.backoff.max + RESTART))
    });
    let work = WorkCost { members: restarts.collect(), each: RESTART };
    let worst = work.worst()?;
    let message = format!(
        "restarts of {} take {:.2} of a processor beside the pod's limits while the program fails at once",
        work.names(),
        work.part(),
    );
    let period = work.period();
    Some((worst, message, format!("write max={period} or longer: the delay doubles from base up to it")))
}
