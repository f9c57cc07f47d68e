//! What a container's own `restartPolicy` and `restartPolicyRules` (KEP-5307, KEP-5532) become: `restart.<c>` (R13, R15) and `fatal.<c>`
//! (R14). Owns the mapping, and the remark for each rule that has no counterpart. `check` asks it, too.

use pod_spec::limits::MAX_CODE_RANGES;
use pod_spec::{Backoff, CodeSet, Fatal, Member, Restart, RestartMode, RestartPolicy, Role};

use super::change::Remarks;
use crate::finding::Severity;
use crate::yaml::Node;

/// The field of the rules.
pub const RULES: &str = "restartPolicyRules";
/// The field of a container's own policy.
pub const POLICY: &str = "restartPolicy";

/// After which exit codes a kubelet restarts a container, and after which all containers of the pod.
pub(crate) struct Wanted {
    /// The container alone, by its policy.
    own: CodeSet,
    /// The container alone, by its policy and its rules.
    pub(crate) alone: CodeSet,
    /// All containers of its pod.
    pub(crate) all: CodeSet,
    /// The rules that cannot be read, and why.
    pub(crate) unread: Vec<String>,
}

impl Wanted {
    /// Of a container in a pod with that policy; `None` if it says nothing of its own.
    pub(crate) fn of(container: &Node, policy: RestartPolicy) -> Option<Self> {
        let rules = container.get(RULES);
        let own = match container.text_of(POLICY) {
            Some("Never") => CodeSet::EMPTY,
            Some("OnFailure") => CodeSet::FAILURES,
            Some("Always") => CodeSet::ALL,
            _ if rules.is_none() => return None,
            _ => codes_of_policy(policy),
        };
        let mut wanted = Self { own, alone: own, all: CodeSet::EMPTY, unread: Vec::new() };
        // The first rule that matches counts.
        let mut left = CodeSet::ALL;
        for rule in rules.into_iter().flat_map(Node::items) {
            match Rule::read(rule) {
                Ok(Rule { codes, action }) => {
                    let codes = codes.and(left);
                    match action {
                        Action::Restart => wanted.alone = wanted.alone.or(codes),
                        Action::RestartAllContainers => wanted.all = wanted.all.or(codes),
                    }
                    left = left.without(codes);
                }
                Err(what) => wanted.unread.push(what),
            }
        }
        wanted.alone = wanted.alone.without(wanted.all);
        Some(wanted)
    }
}

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

/// As the pod's spec says it.
pub(crate) fn word_of(policy: RestartPolicy) -> &'static str {
    match policy {
        RestartPolicy::Always => "Always",
        RestartPolicy::OnFailure => "OnFailure",
        RestartPolicy::Never => "Never",
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

/// The key for these codes; `None` if the container is restarted so without a key: a main by its kubelet.
pub(crate) fn restart(codes: CodeSet, role: Role, policy: RestartPolicy) -> Option<Restart> {
    let mode = match codes {
        CodeSet::EMPTY => RestartMode::Never,
        CodeSet::ALL => RestartMode::Always,
        _ => RestartMode::OnFailure,
    };
    let usual = match role {
        Role::Sidecar => codes == CodeSet::ALL,
        Role::Init if policy == RestartPolicy::Never => codes == CodeSet::EMPTY,
        Role::Init => codes == CodeSet::FAILURES,
        Role::Main => codes == codes_of_policy(policy),
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
