//! A container's own `restartPolicy` and `restartPolicyRules` (KEP-5307, KEP-5532): after which exit codes a kubelet restarts it, and the
//! `restart.<c>` (R13, R15) that says the same. Owns reading these fields; `check` and `translate` ask it.

use pod_spec::{Backoff, CodeSet, Restart, RestartMode, RestartPolicy, Role, nearest_word};
use thiserror::Error;

use crate::yaml::Node;

/// The field of the rules.
pub const RULES: &str = "restartPolicyRules";
/// The field of a container's own policy.
pub const POLICY: &str = "restartPolicy";

/// What a rule does.
const ACTIONS: [&str; 2] = ["Restart", "RestartAllContainers"];

/// After which exit codes a kubelet restarts a container, and after which all containers of the pod.
pub(crate) struct Wanted {
    /// The container alone, by its policy.
    pub(crate) own: CodeSet,
    /// The container alone, by its policy and its rules.
    pub(crate) alone: CodeSet,
    /// All containers of its pod.
    pub(crate) all: CodeSet,
    /// The rules that cannot be read, and why.
    pub(crate) unread: Vec<RuleError>,
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
                Err(error) => wanted.unread.push(error),
            }
        }
        wanted.alone = wanted.alone.without(wanted.all);
        Some(wanted)
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
pub(crate) fn codes_of_policy(policy: RestartPolicy) -> CodeSet {
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

/// What is unknown in a rule.
#[derive(Debug, Error)]
pub(crate) enum RuleError {
    #[error("unknown action {word:?} (did you mean {:?}?)", nearest_word(word, ACTIONS).unwrap_or(ACTIONS[0]))]
    Action { word: String },
    #[error("it has no exitCodes")]
    NoCodes,
    #[error("{text:?} is no exit code, these are 0 to 255")]
    Code { text: String },
    #[error("unknown operator {word:?} (one of: In, NotIn)")]
    Operator { word: String },
}

impl Rule {
    fn read(rule: &Node) -> Result<Self, RuleError> {
        let action = match rule.text_of("action") {
            Some("Restart") => Action::Restart,
            Some("RestartAllContainers") => Action::RestartAllContainers,
            other => return Err(RuleError::Action { word: other.unwrap_or_default().to_owned() }),
        };
        let Some(codes) = rule.get("exitCodes") else { return Err(RuleError::NoCodes) };
        let mut named = CodeSet::EMPTY;
        for value in codes.get("values").into_iter().flat_map(Node::items) {
            let text = value.text().unwrap_or_default();
            let Ok(code) = text.parse::<u8>() else {
                return Err(RuleError::Code { text: text.to_owned() });
            };
            named = named.or(CodeSet::range(code, code));
        }
        let codes = match codes.text_of("operator") {
            Some("In") => named,
            Some("NotIn") => CodeSet::ALL.without(named),
            other => return Err(RuleError::Operator { word: other.unwrap_or_default().to_owned() }),
        };
        Ok(Self { codes, action })
    }
}
