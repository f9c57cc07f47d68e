//! A container's own `restartPolicy` and `restartPolicyRules` (KEP-5307, KEP-5532) beside the plan: the kubelet restarts it by these, and
//! podshim by `restart.<c>` (R13, R15). Owns where the two have another end of the container in mind.

use pod_spec::limits::MAX_CODE_RANGES;
use pod_spec::{CodeSet, Fatal, Member, PREFIX, Plan, RestartMode, RestartPolicy, Role};
use thiserror::Error;

use crate::finding::{Finding, Severity};
use crate::manifest::Container;
use crate::restart_rules::{POLICY, RULES, Wanted, restart};

/// After which exit codes podshim restarts a planned container in place (R1, R7, I3, R13).
pub(super) fn in_place(member: &Member, policy: RestartPolicy) -> CodeSet {
    match (member.restart.map(|restart| (restart.mode, restart.codes)), member.role) {
        (Some((RestartMode::Never | RestartMode::Visible, _)), _) => CodeSet::EMPTY,
        (Some((RestartMode::OnFailure, codes)), _) => codes,
        (Some((RestartMode::Always, _)), _) | (None, Role::Sidecar) => CodeSet::ALL,
        (None, Role::Init) if policy != RestartPolicy::Never => CodeSet::FAILURES,
        (None, Role::Init | Role::Main) => CodeSet::EMPTY,
    }
}

/// The findings on a planned container.
pub(super) fn of_container(
    file: &str,
    container: &Container<'_>,
    member: &Member,
    plan: &Plan,
) -> Vec<Finding> {
    let policy = plan.settings.restart_policy;
    let Some(wanted) = Wanted::of(container.node, policy) else { return Vec::new() };
    let key = container.node.entry(RULES).or_else(|| container.node.entry(POLICY));
    let line = key.map_or(container.node.start.line, |(key, _)| key.start.line);
    let ours = in_place(member, policy);
    let restarts_pod = matches!(member.fatal, Some(Fatal::Restart { .. }));
    let hidden = wanted.all.and(ours);
    let found = if hidden != CodeSet::EMPTY && !restarts_pod {
        let name = container.name;
        let message = format!(
            "RestartAllContainers of {name:?} never happens after the exit codes {hidden}: podshim restarts {name:?} in place, \
             and the kubelet sees no exit"
        );
        Some((Severity::Warning, message))
    } else {
        contradiction(container.name, member, policy, &wanted)
    };
    let Some((severity, message)) = found else { return Vec::new() };
    vec![match mend(member, policy, &wanted) {
        Ok(fix) => Finding::new(severity, file, line, message).fix(fix),
        Err(why) => Finding::new(severity, file, line, format!("{message}; {why}")),
    }]
}

/// What one of the two does that the other does not expect.
fn contradiction(
    name: &str,
    member: &Member,
    policy: RestartPolicy,
    wanted: &Wanted,
) -> Option<(Severity, String)> {
    let ours = in_place(member, policy);
    let theirs = match member.role {
        // A completed init is not restarted, whatever its policy.
        Role::Init => wanted.alone.without(CodeSet::range(0, 0)),
        Role::Sidecar | Role::Main => wanted.alone,
    };
    let mode = member.restart.map(|restart| restart.mode);
    let more = ours.without(theirs).without(wanted.all);
    if more != CodeSet::EMPTY {
        let message = format!(
            "podshim restarts {name:?} after the exit codes {more}, and by its own restartPolicy it is not restarted"
        );
        return Some((Severity::Warning, message));
    }
    // What podshim takes for the last exit.
    let shown = CodeSet::ALL.without(ours);
    let last = match (member.role, policy, mode) {
        (Role::Sidecar, ..)
        | (_, RestartPolicy::Always, None | Some(RestartMode::Visible | RestartMode::Always)) => {
            CodeSet::EMPTY
        }
        (Role::Main, RestartPolicy::Always, _) => CodeSet::EMPTY,
        (Role::Init, _, Some(RestartMode::Never | RestartMode::OnFailure)) | (_, RestartPolicy::Never, _) => {
            shown
        }
        (Role::Main, _, Some(RestartMode::Never | RestartMode::OnFailure)) => shown,
        (Role::Main, ..) => CodeSet::range(0, 0).and(shown),
        (Role::Init, ..) => CodeSet::EMPTY,
    };
    let early = last.and(theirs);
    if early != CodeSet::EMPTY {
        let what = if member.role == Role::Main { "takes the job for complete" } else { "lets the pod fail" };
        let message = format!(
            "by its own restartPolicy the kubelet restarts {name:?} after the exit codes {early}, and podshim {what}"
        );
        return Some((Severity::Error, message));
    }
    let awaited = shown.without(last).without(theirs).without(wanted.all);
    if (member.role, policy) == (Role::Main, RestartPolicy::OnFailure) && awaited != CodeSet::EMPTY {
        let message = format!(
            "by its own restartPolicy the kubelet does not restart {name:?} after the exit codes {awaited}, and podshim waits \
             for that: the sidecars run for ever"
        );
        return Some((Severity::Error, message));
    }
    None
}

/// No value of the key says so much.
#[derive(Debug, Error)]
#[error("{key} takes {MAX_CODE_RANGES} codes and ranges at most, and this would need {count}")]
struct TooManyCodes {
    key: String,
    count: usize,
}

/// The key that says what the container's own policy does, or why none can.
fn mend(member: &Member, policy: RestartPolicy, wanted: &Wanted) -> Result<String, TooManyCodes> {
    let key = format!("{PREFIX}restart.{}", member.alias.as_ref().unwrap_or(&member.name));
    // The kubelet acts on what it sees.
    if wanted.all != CodeSet::EMPTY && member.role != Role::Main {
        return Ok(format!("write {key}: visible"));
    }
    let codes = match member.role {
        Role::Init => wanted.alone.without(CodeSet::range(0, 0)),
        Role::Sidecar | Role::Main => wanted.alone,
    };
    let count = codes.fewest_ranges();
    if count > MAX_CODE_RANGES {
        return Err(TooManyCodes { key, count });
    }
    Ok(match restart(codes, member.role, policy) {
        Some(restart) => format!("write {key}: {restart}"),
        None => format!("remove {key}: without it the plan says the same"),
    })
}
