//! What a container's own restart policy and rules become: `restart.<c>` (R13, R15) and `fatal.<c>` (R14). Owns the remark for each rule
//! that has no counterpart.

use pod_spec::limits::MAX_CODE_RANGES;
use pod_spec::{CodeSet, Fatal, Member, RestartMode, RestartPolicy, Role};
use thiserror::Error;

use super::change::Remarks;
use crate::finding::Severity;
use crate::restart_rules::{POLICY, RULES, Wanted, codes_of_policy, restart, word_of};
use crate::yaml::Node;

/// Carries a container's own policy and rules over to its member of the plan; `field` is the container's path. `policy` is the pod's.
pub fn carry_over(
    container: &Node,
    policy: RestartPolicy,
    member: &mut Member,
    field: &str,
    remarks: &mut Remarks<'_>,
) {
    let Some(Wanted { own, alone, all, unread }) = Wanted::of(container, policy) else { return };
    let Some((key, _)) = container.entry(RULES).or_else(|| container.entry(POLICY)) else { return };
    let field = format!("{field}.{}", key.text().unwrap_or_default());
    let mut say = |what: String| remarks.say(Severity::Warning, key, field.clone(), what);
    unread.into_iter().for_each(|what| say(format!("a rule is not carried over: {what}")));
    // An init that has exited with 0 is done, whatever its rules say.
    let done = if member.role == Role::Init { CodeSet::range(0, 0) } else { CodeSet::EMPTY };
    let mut restarted = alone.without(done);
    if all != CodeSet::EMPTY {
        match whole_pod(all, restarted, member) {
            Ok(()) => member.fatal = Some(Fatal::Restart { limit: Fatal::RESTARTS }),
            Err(why) => {
                // Then at least what its policy restarts alone is restarted.
                restarted = restarted.or(own.and(all)).without(done);
                say(format!("{:?} is not carried over: {why}", "RestartAllContainers"));
            }
        }
    }
    if restarted.fewest_ranges() > MAX_CODE_RANGES {
        let count = restarted.fewest_ranges();
        say(format!("not carried over: {count} ranges of codes, podshim takes {MAX_CODE_RANGES} at most"));
        return;
    }
    member.restart = restart(restarted, member.role, policy);
    if let (Role::Main, Some(restart)) = (member.role, member.restart) {
        if restart.mode != RestartMode::Never {
            say("podshim restarts it in place: the kubelet neither sees nor counts that".to_owned());
        }
        let others = codes_of_policy(policy).without(restarted);
        if others != CodeSet::EMPTY {
            say(format!(
                "a kubelet that does not know a container's own restartPolicy restarts it after the exit codes \
                 {others} too, as the pod's is {}",
                word_of(policy)
            ));
        }
    }
}

/// Why `fatal.<c>=restart` does not say what a rule says.
#[derive(Debug, Error)]
enum NotWholePod {
    #[error("podshim.io/fatal.{name} is not for an init container")]
    Init { name: String },
    #[error("podshim.io/fatal.{name}: restart is after a failure, and 0 is none")]
    Success { name: String },
    #[error(
        "podshim.io/fatal.{name}: restart would restart the pod after {others} too, which restart nothing here"
    )]
    Others { name: String, others: CodeSet },
}

/// Whether `fatal.<c>=restart` (R14) says that the pod restarts after the codes of `whole`: it does so after every
/// failure that does not restart the container alone.
fn whole_pod(whole: CodeSet, alone: CodeSet, member: &Member) -> Result<(), NotWholePod> {
    let others = CodeSet::FAILURES.without(whole).without(alone);
    let name = || member.name.clone();
    if member.role == Role::Init {
        return Err(NotWholePod::Init { name: name() });
    }
    if whole.contains(0) {
        return Err(NotWholePod::Success { name: name() });
    }
    if others != CodeSet::EMPTY {
        return Err(NotWholePod::Others { name: name(), others });
    }
    Ok(())
}
