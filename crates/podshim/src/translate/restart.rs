//! What `restartPolicyRules` of a container (KEP-5307, KEP-5532) become: `restart.<c>` (R13) and `fatal.<c>` (R14). Owns the mapping, and the remark for
//! each rule that has no counterpart.

use pod_spec::limits::MAX_CODE_RANGES;
use pod_spec::{Backoff, CodeSet, Fatal, Member, Restart, RestartMode, RestartPolicy, Role};

use super::change::Remarks;
use crate::finding::Severity;
use crate::yaml::Node;

/// The field of the rules.
pub const RULES: &str = "restartPolicyRules";

/// Carries a container's rules over to its member of the plan; `field` is their path. `policy` is the pod's.
pub fn carry_over(
    container: &Node,
    policy: RestartPolicy,
    member: &mut Member,
    field: &str,
    remarks: &mut Remarks<'_>,
) {
    let Some((key, rules)) = container.entry(RULES) else { return };
    let mut say = |what: String| remarks.say(Severity::Warning, key, field.to_owned(), what);
    let own = match container.text_of("restartPolicy") {
        Some("Never") => CodeSet::EMPTY,
        Some("OnFailure") => CodeSet::FAILURES,
        Some("Always") => CodeSet::ALL,
        _ => codes_of_policy(policy),
    };
    // After which codes the whole pod restarts.
    let mut whole = CodeSet::EMPTY;
    let mut restarted = own;
    // The first rule that matches counts.
    let mut left = CodeSet::ALL;
    for rule in rules.items() {
        match Rule::read(rule) {
            Ok(Rule { codes, action: Action::Restart }) => {
                restarted = restarted.or(codes.and(left));
                left = left.without(codes);
            }
            Ok(Rule { codes, action: Action::RestartAllContainers }) => {
                whole = whole.or(codes.and(left));
                left = left.without(codes);
            }
            Err(what) => say(format!("a rule is not carried over: {what}")),
        }
    }
    // An init that has exited with 0 is done, whatever its rules say.
    if member.role == Role::Init {
        restarted = restarted.without(CodeSet::range(0, 0));
    }
    if whole != CodeSet::EMPTY {
        let alone = restarted.without(whole);
        match whole_pod(whole, alone, member) {
            Ok(()) => {
                restarted = alone;
                member.fatal = Some(Fatal::Restart { limit: Fatal::RESTARTS });
            }
            Err(why) => say(format!("{:?} is not carried over: {why}", "RestartAllContainers")),
        }
    }
    if restarted.fewest_ranges() > MAX_CODE_RANGES {
        let count = restarted.fewest_ranges();
        say(format!("not carried over: {count} ranges of codes, podshim takes {MAX_CODE_RANGES} at most"));
        return;
    }
    member.restart = restart(restarted, member.role, policy);
    if member.role == Role::Main && member.restart.is_some() {
        say("podshim restarts it in place: the kubelet neither sees nor counts that".to_owned());
        let others = codes_of_policy(policy).without(restarted);
        if others != CodeSet::EMPTY {
            let policy = match policy {
                RestartPolicy::Always => "Always",
                RestartPolicy::OnFailure => "OnFailure",
                RestartPolicy::Never => "Never",
            };
            say(format!(
                "a kubelet that does not know a container's own restartPolicy restarts it after the exit codes \
                 {others} too, as the pod's is {policy}"
            ));
        }
    }
}

/// Why `fatal.<c>=restart` (R14) does not say that the pod restarts after the codes of `whole`: it does so after every
/// failure that does not restart the container alone.
fn whole_pod(whole: CodeSet, alone: CodeSet, member: &Member) -> Result<(), String> {
    let others = CodeSet::FAILURES.without(whole).without(alone);
    if member.role == Role::Init {
        return Err(format!("podshim.io/fatal.{} is not for an init container", member.name));
    }
    if whole.contains(0) {
        return Err(format!("podshim.io/fatal.{}: restart is after a failure, and 0 is none", member.name));
    }
    if others != CodeSet::EMPTY {
        return Err(format!(
            "podshim.io/fatal.{}: restart would restart the pod after {others} too, which restart nothing here",
            member.name
        ));
    }
    Ok(())
}

/// The key for these codes; `None` if the container is restarted so without a key.
fn restart(codes: CodeSet, role: Role, policy: RestartPolicy) -> Option<Restart> {
    let mode = match codes {
        CodeSet::EMPTY => RestartMode::Never,
        CodeSet::ALL => RestartMode::Always,
        _ => RestartMode::OnFailure,
    };
    let usual = match role {
        Role::Sidecar => codes == CodeSet::ALL,
        Role::Init if policy == RestartPolicy::Never => codes == CodeSet::EMPTY,
        Role::Init => codes == CodeSet::FAILURES,
        Role::Main => codes == CodeSet::EMPTY,
    };
    let codes = if mode == RestartMode::OnFailure { codes } else { CodeSet::FAILURES };
    (!usual).then_some(Restart { mode, codes, backoff: Backoff::default(), limit: None })
}

/// After which exit codes a kubelet restarts the mains of a pod with that policy.
fn codes_of_policy(policy: RestartPolicy) -> CodeSet {
    match policy {
        RestartPolicy::Always => CodeSet::ALL,
        RestartPolicy::OnFailure => CodeSet::FAILURES,
        RestartPolicy::Never => CodeSet::EMPTY,
    }
}

/// One rule.
struct Rule {
    codes: CodeSet,
    action: Action,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Restart,
    RestartAllContainers,
}

impl Rule {
    /// Reads a rule, or says what is unknown in it.
    fn read(rule: &Node) -> Result<Self, String> {
        let action = match rule.text_of("action") {
            Some("Restart") => Action::Restart,
            Some("RestartAllContainers") => Action::RestartAllContainers,
            other => {
                return Err(format!(
                    "unknown action {:?} (did you mean \"Restart\"?)",
                    other.unwrap_or_default()
                ));
            }
        };
        let Some(codes) = rule.get("exitCodes") else { return Err("it has no exitCodes".to_owned()) };
        let mut named = CodeSet::EMPTY;
        for value in codes.get("values").into_iter().flat_map(Node::items) {
            let text = value.text().unwrap_or_default();
            let Ok(code) = text.parse::<u8>() else {
                return Err(format!("{text:?} is no exit code, these are 0 to 255"));
            };
            named = named.or(CodeSet::range(code, code));
        }
        let codes = match codes.text_of("operator") {
            Some("In") => named,
            Some("NotIn") => CodeSet::ALL.without(named),
            other => {
                return Err(format!("unknown operator {:?} (one of: In, NotIn)", other.unwrap_or_default()));
            }
        };
        Ok(Self { codes, action })
    }
}
