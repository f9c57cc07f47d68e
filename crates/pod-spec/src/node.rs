//! What a node's administrator sets for all pods of the node: `/etc/podshim/config.toml`, without reading any file.
//!
//! Owns the words of that file and what they mean for a pod's annotations: defaults for what a pod does not set, what
//! it may not set, and the bounds that it must keep (DESIGN §6).

mod value;

use std::time::Duration;

use crate::duration::DurationText;
use crate::error::{InvalidPlan, PlanError, Problem};
use crate::excerpt::printable;
use crate::keys::{CONTAINER_KEYS, POD_KEYS, PREFIX, PodKey, RESTART_REQUEST, ZERO_GRACES};
use crate::kruise;
use crate::kubelets_own::NamePattern;
use crate::limits::{
    MAX_CONTAINERS, MAX_DURATION, MAX_LONE_STOP_WINDOW, MAX_PATTERN, MAX_REPLACE_WAIT, MIN_BACKOFF,
    MIN_LONE_STOP_WINDOW, MIN_PROBE_PERIOD, MIN_REPLACE_WAIT,
};
use crate::nearest::{Hint, choose};
use crate::parse::{Parsed, gate_kind, parse};
use crate::plan::{Backoff, Defaults, Gate, GateAction, Plan, Role, ZeroGrace};
use crate::toml::{TomlError, Value, assignments};
use crate::warning::Warning;

pub use value::ValueProblem;
use value::{
    choices_of, count_of, duration_of, duration_within, patterns_of, priority_of, program_of, size_of,
    sysctls_of, text_of, word_of, words_of,
};

/// The node's configuration. The default is that of a node without a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Node {
    defaults: Defaults,
    gate_timeout: Option<Duration>,
    zero_grace: ZeroGrace,
    /// The keys of the pod whose value here holds for every pod.
    fixed: Vec<&'static str>,
    /// Keys, and the beginnings of values, that no pod may use.
    forbidden: Vec<&'static str>,
    max_grace: Option<Duration>,
    max_containers: Option<usize>,
    min_period: Option<Duration>,
    min_backoff: Option<Duration>,
    max_pattern: Option<usize>,
    /// N11: lower ones count as this.
    min_drain_priority: i32,
    history: History,
    sandbox: SandboxMaker,
    sandbox_sysctls: Vec<(String, String)>,
    oci_runtime: Option<String>,
    kruise: KruiseMarks,
    kubelets_own: Vec<NamePattern>,
}

/// Whether podshim reads the marks of OpenKruise's SidecarSets as a plan (S12).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KruiseMarks {
    /// They say nothing to podshim.
    #[default]
    Ignored,
    /// They are the plan of a pod without one of its own.
    Read,
}

/// What the key `read` can name.
const READABLE: [(&str, KruiseMarks); 1] = [("kruise", KruiseMarks::Read)];

/// Who makes the process of a pod's sandbox.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SandboxMaker {
    /// podshim, with a program of its own; the OCI runtime where the spec asks for more than podshim does.
    #[default]
    Own,
    /// The OCI runtime, from the pause image.
    Runtime,
}

const SANDBOX_MAKERS: [(&str, SandboxMaker); 2] =
    [("own", SandboxMaker::Own), ("runtime", SandboxMaker::Runtime)];

/// How much podshim keeps of pods that are gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct History {
    /// Bytes in total; 0 keeps nothing.
    pub size: u64,
    /// Bytes for each of Kubernetes' namespaces.
    pub namespace_size: u64,
    /// For how long.
    pub age: Duration,
}

impl Default for History {
    fn default() -> Self {
        Self { size: 64 << 20, namespace_size: 8 << 20, age: Duration::from_secs(7 * 24 * 3600) }
    }
}

/// The first thing that is wrong in the file, with its line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NodeError {
    /// A line with invalid syntax.
    #[error(transparent)]
    Toml(#[from] TomlError),
    /// An unknown key.
    #[error("line {line}: unknown key {key:?}{hint}")]
    UnknownKey {
        /// Counted from 1.
        line: usize,
        /// The key.
        key: String,
        /// The nearest one.
        hint: Hint,
    },
    /// An invalid value for its key.
    #[error("line {line}: {key}: {problem}")]
    Value {
        /// Counted from 1.
        line: usize,
        /// The key.
        key: &'static str,
        /// What is wrong with it.
        problem: ValueProblem,
    },
}

#[derive(Clone, Copy)]
enum NodeKey {
    Grace,
    GateTimeout,
    ZeroGrace,
    BackoffBase,
    BackoffMax,
    Fixed,
    Forbid,
    MaxGrace,
    MaxContainers,
    MinPeriod,
    MinBackoff,
    MaxPattern,
    MinDrainPriority,
    ReplaceWait,
    LoneStopWindow,
    VisibleAfter,
    HistorySize,
    HistoryNamespaceSize,
    HistoryAge,
    Sandbox,
    SandboxSysctls,
    OciRuntime,
    Read,
    KubeletsOwn,
}

const KEYS: [(&str, NodeKey); 24] = [
    ("grace", NodeKey::Grace),
    ("gate-timeout", NodeKey::GateTimeout),
    ("zero-grace", NodeKey::ZeroGrace),
    ("backoff-base", NodeKey::BackoffBase),
    ("backoff-max", NodeKey::BackoffMax),
    ("fixed", NodeKey::Fixed),
    ("forbid", NodeKey::Forbid),
    ("max-grace", NodeKey::MaxGrace),
    ("max-containers", NodeKey::MaxContainers),
    ("min-period", NodeKey::MinPeriod),
    ("replace-wait", NodeKey::ReplaceWait),
    ("lone-stop-window", NodeKey::LoneStopWindow),
    ("visible-after", NodeKey::VisibleAfter),
    ("min-backoff", NodeKey::MinBackoff),
    ("max-pattern", NodeKey::MaxPattern),
    ("min-drain-priority", NodeKey::MinDrainPriority),
    ("history-size", NodeKey::HistorySize),
    ("history-namespace-size", NodeKey::HistoryNamespaceSize),
    ("history-age", NodeKey::HistoryAge),
    ("sandbox", NodeKey::Sandbox),
    ("sandbox-sysctls", NodeKey::SandboxSysctls),
    ("oci-runtime", NodeKey::OciRuntime),
    ("read", NodeKey::Read),
    ("kubelets-own", NodeKey::KubeletsOwn),
];

/// The keys whose value is a gate or a hook.
const KEYS_OF_VALUES: [&str; 4] = ["ready", "on-terminate", "pre-stop", "migrate"];

/// No pod could keep a larger bound.
const MOST_OF_A_BOUND: Duration = Duration::from_secs(3600);

/// The kinds of gates and hooks that the node can forbid.
const VALUES: [&str; 7] = ["exec:", "http:", "tcp:", "grpc:", "log:", "notify", "file:"];

impl Node {
    /// Reads the file's text.
    ///
    /// # Errors
    /// The first thing that is wrong, with its line, its key and the nearest valid word.
    pub fn parse(text: &str) -> Result<Self, NodeError> {
        let mut node = Self::default();
        let mut last_delay = None;
        for assignment in assignments(text) {
            let assignment = assignment?;
            let line = assignment.line;
            let key = choose(assignment.key, &KEYS).map_err(|hint| NodeError::UnknownKey {
                line,
                key: printable(assignment.key),
                hint,
            })?;
            let word = KEYS.iter().find(|(word, _)| *word == assignment.key).map_or("", |(word, _)| *word);
            node.set(key, assignment.value).map_err(|problem| NodeError::Value {
                line,
                key: word,
                problem,
            })?;
            if matches!(key, NodeKey::BackoffBase | NodeKey::BackoffMax) {
                last_delay = Some((line, key, word));
            }
        }
        // Compared only now, because either may come first.
        let Backoff { base, max, .. } = node.defaults.backoff;
        if let Some((line, key, word)) = last_delay.filter(|_| max < base) {
            let problem = match key {
                NodeKey::BackoffBase => ValueProblem::AboveMax(DurationText(max)),
                _ => ValueProblem::BelowBase(DurationText(base)),
            };
            return Err(NodeError::Value { line, key: word, problem });
        }
        Ok(node)
    }

    fn set(&mut self, key: NodeKey, value: Value) -> Result<(), ValueProblem> {
        match key {
            NodeKey::Grace => self.defaults.grace = duration_of(value)?,
            NodeKey::GateTimeout => {
                self.gate_timeout = Some(duration_of(value)?).filter(|limit| !limit.is_zero())
            }
            NodeKey::ZeroGrace => self.zero_grace = word_of(&text_of(value)?, &ZERO_GRACES)?,
            NodeKey::BackoffBase => self.defaults.backoff.base = duration_of(value)?.max(MIN_BACKOFF),
            NodeKey::BackoffMax => self.defaults.backoff.max = duration_of(value)?,
            NodeKey::Fixed => {
                let words = [PodKey::GateTimeout, PodKey::ZeroGrace];
                let words: Vec<_> = POD_KEYS.iter().filter(|(_, key)| words.contains(key)).copied().collect();
                self.fixed = words_of(value, &words)?;
            }
            NodeKey::Forbid => {
                let pod = POD_KEYS.iter().filter(|(_, key)| *key != PodKey::Plan).map(|(word, _)| *word);
                let all = pod.chain(CONTAINER_KEYS.iter().map(|(word, _)| *word)).chain(VALUES);
                let all: Vec<_> = all.map(|word| (word, ())).collect();
                self.forbidden = words_of(value, &all)?;
            }
            NodeKey::MaxGrace => self.max_grace = Some(duration_of(value)?),
            NodeKey::MaxContainers => self.max_containers = Some(count_of(value, 1, MAX_CONTAINERS)?),
            NodeKey::MinPeriod => {
                self.min_period = Some(duration_within(value, MIN_PROBE_PERIOD, MOST_OF_A_BOUND)?)
            }
            NodeKey::MinBackoff => {
                self.min_backoff = Some(duration_within(value, MIN_BACKOFF, MOST_OF_A_BOUND)?)
            }
            NodeKey::MaxPattern => self.max_pattern = Some(count_of(value, 16, MAX_PATTERN)?),
            NodeKey::MinDrainPriority => self.min_drain_priority = priority_of(value)?,
            NodeKey::ReplaceWait => {
                self.defaults.replace_wait = duration_within(value, MIN_REPLACE_WAIT, MAX_REPLACE_WAIT)?;
            }
            NodeKey::LoneStopWindow => {
                self.defaults.lone_stop_window =
                    duration_within(value, MIN_LONE_STOP_WINDOW, MAX_LONE_STOP_WINDOW)?;
            }
            NodeKey::HistorySize => self.history.size = size_of(value)?,
            NodeKey::HistoryNamespaceSize => self.history.namespace_size = size_of(value)?,
            NodeKey::HistoryAge => self.history.age = duration_of(value)?,
            NodeKey::Sandbox => self.sandbox = word_of(&text_of(value)?, &SANDBOX_MAKERS)?,
            NodeKey::SandboxSysctls => self.sandbox_sysctls = sysctls_of(value)?,
            NodeKey::OciRuntime => self.oci_runtime = Some(program_of(value)?),
            NodeKey::Read => {
                let read = choices_of(value, &READABLE, "a list of strings, such as [\"kruise\"]")?;
                self.kruise = read.last().copied().unwrap_or_default();
            }
            NodeKey::KubeletsOwn => self.kubelets_own = patterns_of(value)?,
            NodeKey::VisibleAfter => {
                let Value::Number(count) = value else { return Err(ValueProblem::Kind("a number")) };
                let count = u32::try_from(count)
                    .map_err(|_| ValueProblem::Range { least: 0.to_string(), most: u32::MAX.to_string() })?;
                self.defaults.visible_after = Some(count).filter(|count| *count > 0);
            }
        }
        Ok(())
    }

    /// Reads a pod's annotations under this node's configuration.
    ///
    /// # Errors
    /// What [`parse`] finds wrong; otherwise everything that the node does not allow.
    pub fn parse_pod<'a>(
        &self,
        annotations: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<Parsed, InvalidPlan> {
        let all: Vec<(&str, &str)> = annotations.into_iter().collect();
        let ours: Vec<_> = all.iter().copied().filter(|(key, _)| key.starts_with(PREFIX)).collect();
        let mut parsed = parse(ours.iter().copied())?;
        let mut errors = Vec::new();
        // Also of a pod without a plan, which may have keys that need none (11.2).
        for (key, value) in &ours {
            self.check_key(key.strip_prefix(PREFIX).unwrap_or_default(), value.trim(), &mut errors);
        }
        if let Some(plan) = &parsed.plan {
            self.check_plan(plan, &mut errors);
        }
        if let Some(invalid) = InvalidPlan::from_errors(errors) {
            return Err(invalid);
        }
        if let Some(plan) = &mut parsed.plan {
            let says = |word: &str| ours.iter().any(|(key, _)| key.strip_prefix(PREFIX) == Some(word));
            self.complete(plan, says);
        } else if self.kruise == KruiseMarks::Read {
            self.read_kruise(&all, &mut parsed);
        }
        Ok(parsed)
    }

    /// S12: the plan of Kruise's marks, for a pod that has none of its own.
    fn read_kruise(&self, annotations: &[(&str, &str)], parsed: &mut Parsed) {
        let most = self.max_containers.unwrap_or(MAX_CONTAINERS);
        match kruise::plan(annotations, &parsed.kubelets_own, most) {
            None => {}
            Some(Ok(mut plan)) => {
                self.complete(&mut plan, |_| false);
                plan.kubelets_own.named = std::mem::take(&mut parsed.kubelets_own);
                parsed.plan = Some(plan);
            }
            Some(Err(problem)) => parsed.warnings.push(Warning::UnreadMarks { problem }),
        }
    }

    /// Whether Kruise's marks on a pod count.
    pub fn kruise_marks(&self) -> KruiseMarks {
        self.kruise
    }

    /// N11: the priority with which a pod counts in a drain of this node, if its own is `own`. Lower ones would each take a part of
    /// the drain's time from all that come after them.
    pub fn drain_priority(&self, own: i32) -> i32 {
        own.max(self.min_drain_priority)
    }

    /// How much podshim keeps of pods that are gone.
    pub fn history(&self) -> History {
        self.history
    }

    /// Who makes the process of a pod's sandbox.
    pub fn sandbox_maker(&self) -> SandboxMaker {
        self.sandbox
    }

    /// For the Sandbox API, where containerd's own defaults do not reach a shim: what a pod with a network of its own gets unless
    /// it sets the same itself.
    pub fn sandbox_sysctls(&self) -> &[(String, String)] {
        &self.sandbox_sysctls
    }

    /// The OCI runtime of containers whose runtime in containerd's configuration names none: a program in the shim's `PATH`, or an
    /// absolute path.
    pub fn oci_runtime(&self) -> Option<&str> {
        self.oci_runtime.as_deref()
    }

    /// The longest grace from any source: podshim cuts what a kubelet, an operator or this node sets to it.
    pub fn longest_grace(&self) -> Duration {
        self.max_grace.unwrap_or(MAX_DURATION)
    }

    /// R14: whether the node refuses restarts that an annotation asks for, as it refuses the key.
    pub fn refuses_restart_requests(&self) -> bool {
        let mut errors = Vec::new();
        self.check_key(RESTART_REQUEST, "", &mut errors);
        !errors.is_empty()
    }

    /// Checks a key and its value against what the node forbids.
    fn check_key(&self, key: &str, value: &str, errors: &mut Vec<PlanError>) {
        let word = key.split_once('.').map_or(key, |(word, _)| word);
        // S10: it gives no role, and a policy writes it for containers that are the kubelet's own.
        if word == "role" && value == "none" {
            return;
        }
        // As the value is read, not as it is written: "exec :x" is `exec` too.
        let kind = Some(gate_kind(value).0).filter(|_| KEYS_OF_VALUES.contains(&word));
        let hit = |forbidden: &&&str| {
            **forbidden == word
                || (VALUES.contains(forbidden) && kind == Some(forbidden.trim_end_matches(':')))
        };
        if let Some(forbidden) = self.forbidden.iter().find(hit) {
            errors.push(PlanError::new(key, Problem::ForbiddenByNode { word: forbidden }));
        } else if self.fixed.contains(&key) {
            errors.push(PlanError::new(key, Problem::FixedByNode));
        }
    }

    fn check_plan(&self, plan: &Plan, errors: &mut Vec<PlanError>) {
        let mut beyond = |key: &str, most: String| {
            errors.push(PlanError::new(key, Problem::BeyondNode { bound: most }));
        };
        if let Some(most) = self.max_containers.filter(|most| plan.members.len() > *most) {
            beyond("plan", format!("at most {most} containers"));
        }
        let members = plan.members.iter();
        let graces = members.map(|member| (format!("grace.{}", member.key_name()), member.grace));
        let pod = [("grace", plan.settings.grace), ("reserve", plan.settings.reserve)];
        let pod = pod.map(|(key, figure)| (key.to_owned(), figure));
        for (key, grace) in graces.chain(pod) {
            if let Some(most) = self.max_grace.filter(|most| grace.is_some_and(|grace| grace > *most)) {
                beyond(&key, format!("at most {}", DurationText(most)));
            }
        }
        for member in &plan.members {
            if let (Gate::Probe { timing, .. }, Some(least)) = (&member.gate, self.min_period)
                && timing.period < least
            {
                let key = format!("ready.{}", member.key_name());
                beyond(&key, format!("a period of at least {}", DurationText(least)));
            }
            if let (Gate::Probe { action: GateAction::Log(pattern), .. }, Some(most)) =
                (&member.gate, self.max_pattern)
                && pattern.size() > most
            {
                let key = format!("ready.{}", member.key_name());
                beyond(&key, format!("a pattern of at most {most} steps (this one has {})", pattern.size()));
            }
            if let (Some(restart), Some(least)) = (member.restart, self.min_backoff)
                && restart.backoff != Backoff::default()
                && restart.backoff.base < least
            {
                let key = format!("restart.{}", member.key_name());
                beyond(&key, format!("a base of at least {}", DurationText(least)));
            }
        }
    }

    /// Fills in what the pod does not set itself.
    fn complete(&self, plan: &mut Plan, says: impl Fn(&str) -> bool) {
        plan.settings.defaults = self.defaults;
        plan.kubelets_own.listed.clone_from(&self.kubelets_own);
        plan.settings.defaults.grace = plan.settings.defaults.grace.min(self.longest_grace());
        if let Some(least) = self.min_backoff {
            let backoff = &mut plan.settings.defaults.backoff;
            backoff.base = backoff.base.max(least);
            backoff.max = backoff.max.max(backoff.base);
        }
        if !says("gate-timeout") {
            plan.settings.gate_timeout = self.gate_timeout;
        }
        // Without a sidecar there is no order to keep (11.4).
        if !says("zero-grace") && plan.members.iter().any(|member| member.role == Role::Sidecar) {
            plan.settings.zero_grace = self.zero_grace;
        }
        let backoff = plan.settings.defaults.backoff;
        for restart in plan.members.iter_mut().flat_map(|member| &mut member.restart) {
            if restart.backoff == Backoff::default() {
                restart.backoff = backoff;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a node's administrator finds: the example file that the packages bring, and the page.
    #[test]
    fn found_n20_the_example_file_and_the_page_have_every_key() {
        let example = include_str!("../../../dist/config.toml");
        let page = include_str!("../../../docs/annotations.md");
        let settings: Vec<_> = example.lines().filter_map(|line| line.strip_prefix('#')).collect();
        for (key, _) in KEYS {
            let begin = format!("{key} = ");
            let setting = settings.iter().find(|line| line.starts_with(&begin));
            let setting = setting.unwrap_or_else(|| panic!("dist/config.toml lacks {key}"));
            if let Err(error) = Node::parse(setting) {
                panic!("dist/config.toml: {error}");
            }
            assert!(page.contains(&format!("\n    {begin}")), "docs/annotations.md lacks {key}");
        }
        let kinds = example.lines().find(|line| line.contains("kinds of values")).expect("a line");
        for kind in VALUES {
            assert!(kinds.contains(kind), "dist/config.toml: forbid: {kind}");
        }
    }
}
