//! A random pod: its plan and every annotation that fits it.
//!
//! Owns which values are tried. `pod-spec` decides which of them fit together: a key that does not fit is left out.

use pod_spec::{RestartPolicy, Role};

use crate::command::{Command, Detail, PodCaller};
use crate::fairness::gate_outlasts_holds;
use fuzz_input::Rng;

/// The largest pod.
const MOST_MEMBERS: usize = 12;
/// The largest pod under a kubelet: larger ones find nothing more, and take longer.
const MOST_UNDER_A_KUBELET: usize = 7;

/// A pod, and the names its containers may have.
pub(super) struct RandomPod {
    pub(super) head: Command,
    pub(super) names: Vec<String>,
}

/// A container of the plan, by the name its keys use.
struct Planned {
    key: String,
    role: PlannedRole,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PlannedRole {
    Init,
    Sidecar,
    /// The second of a pair.
    Standby,
    Main,
}

const GATES: [&str; 13] = [
    "none",
    "tcp::80;period=1s;fail=2",
    "tcp::80;fail=1",
    "exec:ready;period=500ms;fail=3;ok=2;delay=1s",
    "http::80/;period=700ms;fail=2",
    "grpc:80/a.B;period=600ms;fail=2",
    "log:ready;period=300ms;fail=4;delay=400ms",
    "notify;fail=2",
    "file:/ready;period=100ms;delay=500ms",
    "tcp::80;period=100ms;timeout=3s",
    "exec:ready;ok=3;fail=1",
    "notify;delay=2s;period=5s",
    "log:ready",
];
const RESTARTS: [&str; 8] = [
    "never",
    "visible",
    "on-failure",
    "always",
    "on-failure;limit=1;base=500ms",
    "always;limit=2",
    "always;first=1s;base=2s;max=3s",
    "on-failure;max=60s;limit=1",
];
const CODES: [&str; 4] = [";codes=1,3", ";not=137", ";codes=0,130-143", ""];
const SIGNALS: [&str; 5] = ["USR1", "HUP", "WINCH", "QUIT", "RTMIN+3"];

pub(super) fn pod(random: &mut Rng) -> RandomPod {
    let caller = *random.pick(&[PodCaller::Cri, PodCaller::Cri, PodCaller::CriWithCleanup, PodCaller::Ctr]);
    let head = |annotations| Command::Pod { caller, detail: Detail::Usual, annotations };
    // S1: a pod without a plan.
    if random.percent(3) {
        return RandomPod { head: head(Vec::new()), names: vec!["c0".to_owned(), "c1".to_owned()] };
    }
    let (plan, planned, mut names) = plan(random);
    // Chosen by the plan itself: a number more or less would make other pods of every seed.
    let roles = if plan.len().is_multiple_of(7) { by_role(&plan) } else { None };
    let is_with_own = plan.len().is_multiple_of(5);
    let mut annotations = roles.unwrap_or_else(|| vec![("plan".to_owned(), plan)]);
    if is_with_own {
        // S8: what its annotations call the kubelet's own, and what is so everywhere.
        annotations.push(("role.own0".to_owned(), "none".to_owned()));
        names.extend(["own0".to_owned(), "debugger-x".to_owned()]);
    }
    for key in keys(random, &planned) {
        annotations.push(key);
        if !is_valid(&annotations) {
            annotations.pop();
        }
    }
    RandomPod { head: head(annotations), names }
}

/// A pod with that policy and a plan.
pub(super) fn pod_of(random: &mut Rng, policy: RestartPolicy) -> RandomPod {
    loop {
        let mut pod = pod(random);
        let Command::Pod { annotations, .. } = &mut pod.head else { continue };
        if annotations.is_empty() {
            continue;
        }
        annotations.retain(|(key, _)| key != "restart-policy");
        annotations.push(("restart-policy".to_owned(), format!("{policy:?}")));
        if is_valid(annotations) {
            return pod;
        }
    }
}

/// S10: the same containers with a role each, in the order that roles have; `None` for what roles cannot say.
fn by_role(plan: &str) -> Option<Vec<(String, String)>> {
    if plan.contains(['@', '+', '|']) {
        return None;
    }
    let entries = plan.split(',').filter_map(|entry| entry.trim().split_once('='));
    let named = entries.filter(|(name, _)| *name != "*");
    let roles: Vec<_> = named.map(|(name, role)| (format!("role.{name}"), role.to_owned())).collect();
    (!roles.is_empty()).then_some(roles)
}

/// S10: inits first, then sidecars, then mains. Within a role the names are in order already.
fn is_in_order_of_roles(planned: &[Planned]) -> bool {
    let place = |container: &Planned| match container.role {
        PlannedRole::Init => 0,
        PlannedRole::Sidecar | PlannedRole::Standby => 1,
        PlannedRole::Main => 2,
    };
    planned.is_sorted_by_key(place)
}

/// A pod whose every container is named, without standbys, for a kubelet of that policy.
pub(super) struct KubeletPod {
    pub(super) annotations: Vec<(String, String)>,
    pub(super) members: Vec<(String, Role)>,
}

impl KubeletPod {
    /// KEP-5307: the first init, or the last main, has a restart policy of its own, which the plan repeats as `translate` writes it.
    pub(super) fn has_own_policy(&mut self, role: Role, policy: RestartPolicy, own: RestartPolicy) {
        let of_role = |(_, other): &&(String, Role)| *other == role;
        let found = match role {
            Role::Init => self.members.iter().find(of_role),
            Role::Sidecar => None,
            Role::Main => self.members.iter().rev().find(of_role),
        };
        let Some((name, _)) = found.filter(|_| own != policy) else { return };
        let word = match own {
            RestartPolicy::Always => "always",
            RestartPolicy::OnFailure => "on-failure",
            RestartPolicy::Never => "never",
        };
        self.annotations.push((format!("restart.{name}"), word.to_owned()));
        if !is_valid(&self.annotations) {
            self.annotations.pop();
        }
    }
}

/// Which keys a pod under a kubelet has beside those that change no restarts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Extra {
    None,
    Fatal,
    /// `restart`, `after`, `exit-codes=real`.
    Rest,
}

/// The keys that every pod under a kubelet may have.
const KUBELET_KEYS: [&str; 12] = [
    "reserve",
    "grace",
    "gate-timeout",
    "zero-grace",
    "oom-score",
    "exit-codes",
    "ready.",
    "grace.",
    "on-terminate.",
    "pre-stop.",
    "stop-signal.",
    "restart-policy",
];

pub(super) fn kubelet_pod(random: &mut Rng, policy: RestartPolicy, extra: Extra) -> KubeletPod {
    let (mut list, mut planned, mut names) = loop {
        let (list, planned, names) = plan(random);
        if !list.contains(['|', '*']) && names.len() <= MOST_UNDER_A_KUBELET {
            break (list, planned, names);
        }
    };
    if policy == RestartPolicy::Always && extra == Extra::None && list.len() % 3 == 1 {
        name_no_main(&mut list, &mut planned, &mut names);
    }
    // Only where roles have the same order: the kubelet creates the containers in the order of the list.
    let roles =
        if list.len().is_multiple_of(3) && is_in_order_of_roles(&planned) { by_role(&list) } else { None };
    let mut annotations = roles.unwrap_or_else(|| vec![("plan".to_owned(), list)]);
    match policy {
        // Without the key the policy is the same.
        RestartPolicy::Always if random.percent(50) => {}
        RestartPolicy::Always => annotations.push(("restart-policy".to_owned(), "Always".to_owned())),
        RestartPolicy::OnFailure => annotations.push(("restart-policy".to_owned(), "OnFailure".to_owned())),
        RestartPolicy::Never => annotations.push(("restart-policy".to_owned(), "Never".to_owned())),
    }
    let mut wanted = keys(random, &planned);
    wanted.retain(|(key, value)| {
        let real_codes = key == "exit-codes" && value == "real";
        KUBELET_KEYS.iter().any(|known| key == known || (known.ends_with('.') && key.starts_with(known)))
            && key != "restart-policy"
            && !(matches!(extra, Extra::Fatal | Extra::Rest) && key == "gate-timeout")
            && !(real_codes && policy == RestartPolicy::OnFailure && extra != Extra::Rest)
            || (extra == Extra::Rest && can_come_true(key, value, policy, &planned))
    });
    if extra == Extra::Fatal && random.percent(50) {
        let choices: Vec<_> =
            planned.iter().filter(|container| container.role != PlannedRole::Init).collect();
        for _ in 0..1 + random.below(2) {
            let container = *random.pick::<&Planned>(&choices);
            let fatal = or_restart("failure", annotations.len() + wanted.len());
            wanted.push((format!("fatal.{}", container.key), fatal));
        }
    }
    for (key, value) in wanted {
        if annotations.iter().any(|(known, _)| *known == key) {
            continue;
        }
        annotations.push((key, value));
        if !is_valid(&annotations) {
            annotations.pop();
        }
    }
    if is_strangled(&annotations) {
        annotations.retain(|(key, _)| key != "gate-timeout");
    }
    let main = PlannedRole::Main;
    let all = planned.iter().map(|container| container.role).chain(std::iter::repeat(main));
    let roles = all.map(|role| match role {
        PlannedRole::Init => Role::Init,
        PlannedRole::Sidecar | PlannedRole::Standby => Role::Sidecar,
        PlannedRole::Main => Role::Main,
    });
    KubeletPod { annotations, members: names.into_iter().zip(roles).collect() }
}

/// S8: the last main of a plan is one by `*=main`, if the plan names no other; in some pods beside a second one.
fn name_no_main(list: &mut String, planned: &mut Vec<Planned>, names: &mut Vec<String>) {
    let is_main = |container: &Planned| container.role == PlannedRole::Main;
    let is_last = planned.last().is_some_and(is_main);
    if let (true, 1, Some((before, _))) =
        (is_last, planned.iter().filter(|it| is_main(it)).count(), list.rsplit_once(", "))
    {
        *list = format!("{before}, *=main");
        planned.pop();
        if list.len().is_multiple_of(2) {
            names.push(format!("c{}", names.len()));
        }
    }
}

/// Whether a pod with that key can do what its policy promises, whatever its programs do at first.
fn can_come_true(key: &str, value: &str, policy: RestartPolicy, planned: &[Planned]) -> bool {
    let role =
        |name: &str| planned.iter().find(|container| container.key == name).map(|container| container.role);
    let Some((word, name)) = key.split_once('.') else { return false };
    let is_main = |name: &str| role(name) == Some(PlannedRole::Main);
    match word {
        // A job has no end if its main is restarted whatever its exit code.
        // Nor if it does not repeat an exit that its kubelet, which knows one policy for all, does (J1).
        "restart" => {
            let is_own = value.starts_with("never") || value.contains(";codes=") || value.contains(";not=");
            let ends = policy == RestartPolicy::OnFailure && is_own;
            !is_main(name) || policy == RestartPolicy::Always || !is_endless(value) && !ends
        }
        // A main may end before it gets ready, and under Always it is never done.
        "after" => value.split(", ").filter_map(|entry| entry.split_once('=')).all(|(other, condition)| {
            !is_main(other) || (condition == "done" && policy != RestartPolicy::Always)
        }),
        _ => false,
    }
}

/// Whether podshim restarts a container with that `restart` after an exit with 0.
fn is_endless(restart: &str) -> bool {
    restart.starts_with("always") || restart.contains("codes=0")
}

fn is_valid(annotations: &[(String, String)]) -> bool {
    parse(annotations).is_some()
}

fn is_strangled(annotations: &[(String, String)]) -> bool {
    parse(annotations).and_then(|parsed| parsed.plan).is_some_and(|plan| gate_outlasts_holds(&plan))
}

pub(super) fn parse(annotations: &[(String, String)]) -> Option<pod_spec::Parsed> {
    let full: Vec<_> =
        annotations.iter().map(|(key, value)| (format!("{}{key}", pod_spec::PREFIX), value)).collect();
    pod_spec::parse(full.iter().map(|(key, value)| (key.as_str(), value.as_str()))).ok()
}

/// The list, its containers, and all names that may be created.
fn plan(random: &mut Rng) -> (String, Vec<Planned>, Vec<String>) {
    // Small pods find most; large ones find what needs many containers.
    let size = if random.percent(70) { 2 + random.below(4) } else { 2 + random.below(MOST_MEMBERS - 1) };
    let (mut words, mut planned, mut names) = (Vec::new(), Vec::new(), Vec::new());
    while names.len() + 1 < size {
        let left = size - 1 - names.len();
        let (word, role, separator, most) = *random.pick(&[
            ("init", PlannedRole::Init, "+", 3),
            ("sidecar", PlannedRole::Sidecar, "+", 3),
            ("sidecar", PlannedRole::Sidecar, "+", 1),
            ("sidecar", PlannedRole::Standby, "|", 2),
            ("main", PlannedRole::Main, "", 1),
        ]);
        let count = match role {
            PlannedRole::Standby => 2,
            _ if random.percent(75) => 1,
            _ => 1 + random.below(most),
        };
        if count > left {
            continue_with_single(&mut words, &mut planned, &mut names, word, role);
            continue;
        }
        let mut group = Vec::new();
        for index in 0..count {
            let name = format!("c{}", names.len());
            // 11.3: a long name has a short alias for its keys.
            let alias = random.percent(8).then(|| format!("x{}", names.len()));
            let role = if role == PlannedRole::Standby && index == 0 { PlannedRole::Sidecar } else { role };
            planned.push(Planned { key: alias.clone().unwrap_or_else(|| name.clone()), role });
            group.push(alias.map_or(name.clone(), |alias| format!("{name}@{alias}")));
            names.push(name);
        }
        words.push(format!("{}={word}", group.join(separator)));
    }
    if random.percent(8) {
        words.push("*=main".to_owned());
        names.extend(["any0".to_owned(), "any1".to_owned()]);
    } else {
        continue_with_single(&mut words, &mut planned, &mut names, "main", PlannedRole::Main);
    }
    (words.join(", "), planned, names)
}

fn continue_with_single(
    words: &mut Vec<String>,
    planned: &mut Vec<Planned>,
    names: &mut Vec<String>,
    word: &str,
    role: PlannedRole,
) {
    let name = format!("c{}", names.len());
    let role = if role == PlannedRole::Standby { PlannedRole::Sidecar } else { role };
    words.push(format!("{name}={word}"));
    planned.push(Planned { key: name.clone(), role });
    names.push(name);
}

/// Random keys; an earlier key keeps out later ones that do not fit.
fn keys(random: &mut Rng, planned: &[Planned]) -> Vec<(String, String)> {
    let mut keys = Vec::new();
    let mut pod_key = |random: &mut Rng, chance, key: &str, values: &[&str]| {
        if random.percent(chance) {
            keys.push((key.to_owned(), (*random.pick(values)).to_owned()));
        }
    };
    pod_key(random, 75, "restart-policy", &["Always", "OnFailure", "OnFailure", "Never", "Never"]);
    pod_key(random, 35, "grace", &["0s", "1s", "3s", "8s", "40s"]);
    pod_key(random, 15, "gate-timeout", &["1s", "2s", "5s"]);
    pod_key(random, 35, "zero-grace", &["order", "order", "obey"]);
    pod_key(random, 35, "exit-codes", &["real", "masked"]);
    pod_key(random, 20, "oom-score", &["protect", "own"]);
    if let Some(reserve) = reserve(planned.len() * 5 + keys.len()) {
        keys.push(("reserve".to_owned(), reserve.to_owned()));
    }
    // Pods with few keys and pods with many find different things.
    let density = *random.pick(&[0, 10, 25, 60]);
    let mut container_keys = Vec::new();
    for (index, container) in planned.iter().enumerate() {
        let mut key = |random: &mut Rng, key: &str, value: String| {
            if random.percent(density) {
                container_keys.push((format!("{key}.{}", container.key), value));
            }
        };
        let is_sidecar = matches!(container.role, PlannedRole::Sidecar | PlannedRole::Standby);
        if is_sidecar || random.percent(20) {
            let gate = (*random.pick(&GATES)).to_owned();
            key(random, "ready", gate);
        }
        let restart = (*random.pick(&RESTARTS)).to_owned();
        key(random, "restart", with_codes(restart, planned.len() * 5 + index));
        let grace = (*random.pick(&["0s", "1s", "3s"])).to_owned();
        key(random, "grace", grace);
        key(random, "on-terminate", "exec:drain".to_owned());
        key(random, "pre-stop", "exec:flush".to_owned());
        let signal = (*random.pick(&SIGNALS)).to_owned();
        key(random, "stop-signal", signal);
        let fatal = *random.pick(&["failure", "exit"]);
        key(random, "fatal", or_restart(fatal, planned.len() + index));
        if container.role == PlannedRole::Standby {
            key(random, "migrate", "exec:migrate".to_owned());
        }
        if let Some(after) = after(random, index, planned) {
            key(random, "after", after);
        }
    }
    keys.extend(container_keys);
    keys
}

/// T19: some pods keep another part of the budget. Chosen by the number of containers and keys: a number more or less would make other
/// pods of every seed.
fn reserve(place: usize) -> Option<&'static str> {
    const FIGURES: [Option<&str>; 7] = [None, Some("1s"), None, Some("20s"), None, Some("0s"), Some("3s")];
    FIGURES[place % FIGURES.len()]
}

/// R14: some failures restart the pod instead. Chosen by the container's place: a number more or less would make other
/// pods of every seed.
fn or_restart(fatal: &str, place: usize) -> String {
    const WORDS: [Option<&str>; 4] = [None, Some("restart;limit=2"), None, Some("restart")];
    WORDS[place % WORDS.len()].unwrap_or(fatal).to_owned()
}

/// R13: some restarts on failure go by codes. Chosen by the container's place: a number more or less would make other
/// pods of every seed.
fn with_codes(restart: String, place: usize) -> String {
    match (restart.strip_prefix("on-failure"), CODES[place % CODES.len()]) {
        (Some(rest), codes) => format!("on-failure{codes}{rest}"),
        (None, _) => restart,
    }
}

/// One or two dependencies; circles are refused like everything that does not fit.
fn after(random: &mut Rng, own: usize, planned: &[Planned]) -> Option<String> {
    let mut entries: Vec<String> = Vec::new();
    for _ in 0..1 + random.below(2) {
        let other = random.below(planned.len());
        let Planned { key, role } = &planned[other];
        let condition = match role {
            PlannedRole::Sidecar | PlannedRole::Standby => *random.pick(&["started", "ready"]),
            PlannedRole::Init | PlannedRole::Main => *random.pick(&["started", "done", "ready"]),
        };
        if other != own && !entries.iter().any(|entry| entry.starts_with(&format!("{key}="))) {
            entries.push(format!("{key}={condition}"));
        }
    }
    (!entries.is_empty()).then(|| entries.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// S8: a pod of one or of two mains that its plan does not name.
    #[test]
    fn the_mains_of_a_plan_without_names() {
        let mut unnamed: Vec<usize> = Vec::new();
        for seed in 0..300 {
            let pod = kubelet_pod(&mut Rng::new(seed), RestartPolicy::Always, Extra::None);
            let list = pod.annotations.iter().find(|(key, value)| key == "plan" && value.ends_with("*=main"));
            let named = list.map(|(_, list)| list.split([',', '+']).count() - 1);
            unnamed.extend(named.map(|named| pod.members.len() - named));
        }
        unnamed.sort_unstable();
        unnamed.dedup();
        assert_eq!(unnamed, [1, 2]);
    }
}
