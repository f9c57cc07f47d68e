//! The checks that need several keys. Owns only that step; it runs after all keys have been read.

use crate::code_set::CodeSet;
use crate::duration::DurationText;
use crate::error::{ListError, Problem, printable_key};
use crate::keys::{ContainerKey, RESTART_POLICIES, word_of};
use crate::limits::MAX_CONTAINERS;
use crate::plan::{ExitCodes, Fatal, Others, RestartPolicy, Role, Settings, ZeroGrace};
use crate::warning::Warning;

use super::container::{Containers, Draft, Origin};
use super::findings::Findings;
use super::list::KEY as PLAN;

/// The checks of 11.4 that need more than one key.
pub(super) fn check(settings: &Settings, containers: &Containers, findings: &mut Findings) {
    if containers.others == Others::Mains {
        check_others(settings, containers, findings);
    }
    // Keys of mains by `*=main` may have added containers to those of the list.
    if containers.are_known() && containers.drafts.len() > MAX_CONTAINERS {
        findings.error(containers.key(), ListError::TooManyContainers);
    }
    for draft in &containers.drafts {
        check_grace(settings, draft, findings);
        check_fatal(draft, findings);
        if let Some(key) = draft.keys.get(&ContainerKey::Ready)
            && draft.role == Some(Role::Main)
            && !containers.is_awaited(draft)
        {
            findings.warn(Warning::UnusedGate { key: printable_key(key), name: draft.member.name.clone() });
        }
    }
    let is_sidecar = |draft: &Draft| draft.role == Some(Role::Sidecar);
    if settings.zero_grace == ZeroGrace::Order
        && containers.are_known()
        && !containers.drafts.iter().any(is_sidecar)
    {
        findings.error("zero-grace", Problem::OrderWithoutSidecar);
    }
    check_reserve(settings, containers, findings);
    match (settings.exit_codes, settings.restart_policy) {
        (ExitCodes::Real, RestartPolicy::Always) => {
            findings.warn(Warning::RealCodesAlways { key: printable_key("exit-codes") });
        }
        (ExitCodes::Real, RestartPolicy::OnFailure) => {
            findings.error("exit-codes", Problem::RealCodesOnFailure);
        }
        _ => {}
    }
}

/// Checks what `*=main` must not, or need not, stand beside.
fn check_others(settings: &Settings, containers: &Containers, findings: &mut Findings) {
    if settings.restart_policy != RestartPolicy::Always {
        let policy = word_of(&RESTART_POLICIES, &settings.restart_policy);
        match containers.key() {
            PLAN => findings.error(PLAN, ListError::OthersInJob { policy }),
            role => findings.error(role, Problem::MainsOfJobUnknown { policy }),
        }
    }
    let named = |draft: &&Draft| draft.role == Some(Role::Main) && draft.origin == Origin::List;
    if let Some(main) = containers.drafts.iter().find(named) {
        findings
            .warn(Warning::NamedMainAndOthers { key: printable_key("plan"), name: main.member.name.clone() });
    }
}

/// T19: what is kept lies inside the budget, if the plan sets that.
fn check_reserve(settings: &Settings, containers: &Containers, findings: &mut Findings) {
    let Some(reserve) = settings.reserve else { return };
    let is_sidecar = |draft: &Draft| draft.role == Some(Role::Sidecar);
    if containers.are_known() && !containers.drafts.iter().any(is_sidecar) {
        findings.warn(Warning::UnusedReserve { key: printable_key("reserve") });
    }
    if let Some(grace) = settings.grace.filter(|grace| reserve > *grace) {
        let (reserve, grace) = (DurationText(reserve).to_string(), DurationText(grace).to_string());
        findings.error("reserve", Problem::ReserveAboveGrace { reserve, grace });
    }
}

/// T8: a container's grace lies inside the pod's, if the plan sets that.
fn check_grace(settings: &Settings, draft: &Draft, findings: &mut Findings) {
    if let (Some(grace), Some(pod_grace)) = (draft.member.grace, settings.grace)
        && grace > pod_grace
        && let Some(key) = draft.keys.get(&ContainerKey::Grace)
    {
        findings.error(
            key,
            Problem::GraceAbovePod {
                grace: DurationText(grace).to_string(),
                pod_grace: DurationText(pod_grace).to_string(),
            },
        );
    }
}

/// R9: beside an explicit `restart` only an exit after which podshim does not restart is fatal; there must be one.
fn check_fatal(draft: &Draft, findings: &mut Findings) {
    let (Some(fatal), Some(restart)) = (draft.member.fatal, draft.member.restart) else { return };
    let unseen = match fatal {
        Fatal::Failure | Fatal::Restart { .. } => restart.hides(CodeSet::FAILURES),
        Fatal::Exit => restart.hides(CodeSet::ALL),
    };
    if let (true, Some(key), Some(other)) =
        (unseen, draft.keys.get(&ContainerKey::Fatal), draft.keys.get(&ContainerKey::Restart))
    {
        findings.error(key, Problem::FatalNeverSeen { restart: printable_key(other) });
    }
}
