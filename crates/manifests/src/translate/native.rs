//! What a pod with native sidecars becomes. Owns the mapping, field by field, and the remark for each field that has no
//! counterpart below the CRI.
//!
//! The first sidecar and everything after it move to the front of `containers`. The kubelet creates `containers` in
//! order and waits for none of them, so podshim keeps the order. Inits before the first sidecar stay: any kubelet runs
//! them first.

use std::time::Duration;

use pod_spec::{
    Condition, Dependency, Gate, KubeletsOwn, Member, Others, Plan, RestartMode, RestartPolicy, Role,
    Settings, Signal,
};

use super::change::{Change, Injection, Remarks};
use super::{probe, restart};
use crate::finding::{Finding, Severity};
use crate::manifest::{Container, List, Template};
use crate::restart_rules::{POLICY, RULES};
use crate::sidecarset::InjectPolicy;
use crate::yaml::Node;

/// Kubernetes' limit on the part of an annotation's key after the slash.
const MAX_KEY_NAME: usize = 63;

/// Whether a pod may be changed: its RuntimeClass is podshim's or unset, and it has no plan. If not, a remark says why.
pub fn may_change(template: &Template<'_>, runtime_class: &str, remarks: &mut Remarks<'_>) -> bool {
    // S10: a plan beside roles would be an error.
    let says_plan = |key: &str| key == "podshim.io/plan" || key.starts_with("podshim.io/role.");
    let entries = template.annotations().into_iter().flat_map(|own| own.entries());
    // S8: `none` is no part of a plan.
    let mut keys = entries.filter(|(_, value)| value.text() != Some("none")).map(|(key, _)| key);
    if let Some((key, word)) = keys.find_map(|key| Some((key, key.text().filter(|word| says_plan(word))?))) {
        let what = "the pod has a plan already: left as it is";
        remarks.say(Severity::Error, key, word.to_owned(), what);
        return false;
    }
    let own_class = template.spec.entry("runtimeClassName");
    if let Some((key, value)) = own_class.filter(|(_, value)| value.text() != Some(runtime_class)) {
        let own = value.text().unwrap_or_default();
        let what = format!(
            "is {own:?}, so podshim would not run it: left as it is (if that is podshim, name it with --runtime-class)"
        );
        remarks.say(Severity::Error, key, "runtimeClassName".to_owned(), what);
        return false;
    }
    true
}

/// The changes to a pod. `None` if it has no native sidecar and gets none, or if it cannot be translated; in the second
/// case a remark says why.
pub fn change(
    file: &str,
    template: &Template<'_>,
    runtime_class: &str,
    injection: Option<&Injection>,
    remarks: &mut Vec<Finding>,
) -> Option<Change> {
    let containers = template.containers();
    let first = containers.iter().position(|container| container.list == List::NativeSidecar);
    if first.is_none() && injection.is_none_or(|injection| injection.sidecars.is_empty()) {
        return None;
    }
    let mut own = Remarks { file, list: remarks };
    if !may_change(template, runtime_class, &mut own) {
        return None;
    }
    let inits = containers.iter().filter(|container| container.list != List::Regular).count();
    let stay = first.unwrap_or(inits);
    let is_injected = |name: &str| {
        let mut members = injection.iter().flat_map(|it| &it.sidecars).flat_map(|sidecar| &sidecar.members);
        members.any(|member| member.name == name)
    };
    let (moved, regular): (Vec<&Container<'_>>, Vec<&Container<'_>>) =
        containers[stay..].iter().partition(|container| container.list != List::Regular);
    let mains: Vec<&Container<'_>> =
        regular.into_iter().filter(|container| !is_injected(container.name)).collect();
    let mut plan = plan(template);
    // S8: the inits that stay are the kubelet's own.
    plan.kubelets_own.named = containers[..stay].iter().map(|container| container.name.to_owned()).collect();
    if let Some((key, _)) =
        template.spec.entry("terminationGracePeriodSeconds").filter(|_| plan.settings.grace.is_some())
    {
        let what = "enforced by podshim too: a delete with a longer --grace-period has no more time";
        own.say(Severity::Warning, key, "terminationGracePeriodSeconds".to_owned(), what);
    }
    let mut removed = Vec::new();
    for (place, container) in moved.iter().enumerate() {
        let file =
            injection.and_then(|injection| injection.files.get(container.name)).map_or(file, String::as_str);
        let mut remarks = Remarks { file, list: &mut *own.list };
        let is_sidecar = container.list == List::NativeSidecar;
        let role = if is_sidecar { Role::Sidecar } else { Role::Init };
        let mut member = Member::new(container.name, role, plan.members.len());
        if is_sidecar {
            removed.push(sidecar(container, plan.settings.restart_policy, place, &mut member, &mut remarks)?);
        } else {
            removed.push(init(container, plan.settings.restart_policy, &mut member, &mut remarks));
        }
        plan.members.push(member);
    }
    if let Some(injection) = injection {
        add_injected(injection, mains.len(), &mut plan);
    }
    for container in &mains {
        let mut member = Member::new(container.name, Role::Main, plan.members.len());
        main(container, plan.settings.restart_policy, &mut member, &mut own);
        plan.members.push(member);
    }
    give_aliases(&mut plan);
    let annotations: Vec<_> = plan.to_annotations().into_iter().collect();
    let pairs = annotations.iter().map(|(key, value)| (key.as_str(), value.as_str()));
    if let Err(invalid) = pod_spec::parse(pairs) {
        let node = containers.get(stay).map_or(template.spec, |container| container.node);
        own.say(Severity::Error, node, "initContainers".to_owned(), format!("left as it is: {invalid}"));
        return None;
    }
    let runtime_class = template.spec.get("runtimeClassName").is_none().then(|| runtime_class.to_owned());
    Some(Change { stay, removed, annotations, runtime_class })
}

/// Adds the sidecars of SidecarSets to the plan, behind the pod's own sidecars. The caller adds the pod's `mains` mains
/// next.
fn add_injected(injection: &Injection, mains: usize, plan: &mut Plan) {
    let count: usize = injection.sidecars.iter().map(|sidecar| sidecar.members.len()).sum();
    let first_main = plan.members.len() + count;
    let after_mains = || {
        let mains = first_main..first_main + mains;
        mains.map(|member| Dependency { member, condition: Condition::Started }).collect()
    };
    let placed = |policy| injection.sidecars.iter().filter(move |sidecar| sidecar.policy == policy);
    for sidecar in placed(InjectPolicy::Before).chain(placed(InjectPolicy::After)) {
        let entry = plan.members.len();
        let is_pair = sidecar.members.len() == 2;
        for (place, member) in sidecar.members.iter().enumerate() {
            let mut member = member.clone();
            member.entry = entry;
            member.pair = is_pair.then_some(entry + 1 - place);
            // A sidecar behind the mains holds no main, yet T1 stops it after them.
            member.after = (sidecar.policy == InjectPolicy::After).then(after_mains);
            plan.members.push(member);
        }
    }
}

/// The pod's restart policy.
pub fn policy_of(template: &Template<'_>) -> RestartPolicy {
    match template.restart_policy() {
        "Never" => RestartPolicy::Never,
        "OnFailure" => RestartPolicy::OnFailure,
        _ => RestartPolicy::Always,
    }
}

fn plan(template: &Template<'_>) -> Plan {
    let grace = template.spec.number_of("terminationGracePeriodSeconds").filter(|seconds| *seconds > 0);
    let settings = Settings {
        restart_policy: policy_of(template),
        grace: grace.map(Duration::from_secs),
        ..Settings::default()
    };
    let kubelets_own = KubeletsOwn::default();
    Plan { members: Vec::new(), others: Others::Passthrough, kubelets_own, settings }
}

/// Fills in the plan's `member` for a sidecar that `place` others may hold. Returns the fields that podshim takes over;
/// `None` if the pod cannot be translated.
pub fn sidecar(
    container: &Container<'_>,
    policy: RestartPolicy,
    place: usize,
    member: &mut Member,
    remarks: &mut Remarks<'_>,
) -> Option<Vec<Vec<&'static str>>> {
    let (node, name) = (container.node, container.name);
    let list = if container.list == List::Regular { "containers" } else { "initContainers" };
    let field = |path: &str| format!("{list}[{name}].{path}");
    let mut removed = vec![vec![POLICY]];
    removed.extend(startup_probe(node, &field, member, remarks)?);
    removed.extend(pre_stop(node, &field, member, remarks));
    stop_signal(container, member, field("lifecycle.stopSignal"), remarks);
    restart::carry_over(node, policy, member, &format!("{list}[{name}]"), remarks);
    if node.get(RULES).is_some() {
        // Kubernetes refuses rules without a restartPolicy beside them.
        removed.push(vec![RULES]);
    }
    if let Some((key, _)) = node.entry("livenessProbe").filter(|_| place > 0 || member.gate != Gate::Running)
    {
        let what = "the kubelet asks before it is ready too, and while it is held: allow for that in \
                    initialDelaySeconds";
        remarks.say(Severity::Warning, key, field("livenessProbe"), what);
    }
    if let Some((key, _)) = node.get("lifecycle").and_then(|it| it.entry("postStart")) {
        if place > 0 {
            let what = "the kubelet runs it while the sidecar may still be held, and creates nothing after it until it ends";
            remarks.say(Severity::Warning, key, field("lifecycle.postStart"), what);
        }
        let what = format!(
            "not run again after a restart in place, which the kubelet does not see (podshim.io/restart.{name}: visible)"
        );
        remarks.say(Severity::Warning, key, field("lifecycle.postStart"), what);
    }
    Some(removed)
}

/// Its startupProbe is the gate. Returns the field, if it has one; `None`: nothing of it can be one.
fn startup_probe(
    node: &Node,
    field: &impl Fn(&str) -> String,
    member: &mut Member,
    remarks: &mut Remarks<'_>,
) -> Option<Option<Vec<&'static str>>> {
    let Some((key, probe)) = node.entry("startupProbe") else { return Some(None) };
    let translated = probe::gate(node, probe);
    for (part, what) in translated.remarks {
        remarks.say(Severity::Warning, key, field(&format!("startupProbe.{part}")), what);
    }
    let Some(gate) = translated.gate else {
        let what = "nothing of it can be asked, so a kubelet would never start what follows: left as it is";
        remarks.say(Severity::Error, key, field("startupProbe"), what);
        return None;
    };
    member.gate = gate;
    // R8: only podshim restarts the sidecar. The kubelet's startup probe would also count the time that the
    // sidecar is held (U9).
    Some(Some(vec!["startupProbe"]))
}

/// Its preStop hook, if it is a command. Returns the field then.
fn pre_stop(
    node: &Node,
    field: &impl Fn(&str) -> String,
    member: &mut Member,
    remarks: &mut Remarks<'_>,
) -> Option<Vec<&'static str>> {
    let lifecycle = node.get("lifecycle")?;
    let (key, hook) = lifecycle.entry("preStop")?;
    let mut say = |what| remarks.say(Severity::Warning, key, field("lifecycle.preStop"), what);
    let Some(command) = hook.at(&["exec", "command"]) else {
        say("stays with the kubelet, which runs it when the stop begins");
        return None;
    };
    member.pre_stop = Some(command.items().iter().filter_map(Node::text).map(str::to_owned).collect());
    say("runs just before its stop signal, when the mains are gone; a kubelet runs it when the stop begins \
         (podshim.io/on-terminate does that)");
    Some(if lifecycle.entries().len() == 1 { vec!["lifecycle"] } else { vec!["lifecycle", "preStop"] })
}

/// K18: podshim's own stops send `lifecycle.stopSignal` too.
fn stop_signal(container: &Container<'_>, member: &mut Member, field: String, remarks: &mut Remarks<'_>) {
    if let Some((key, signal)) = container.stop_signal() {
        member.stop_signal = Some(signal).filter(|signal| *signal != Signal::TERM);
        let what = "podshim's own stops send it; a kubelet or containerd that does not know it sends the image's \
                    STOPSIGNAL in its stops";
        remarks.say(Severity::Warning, key, field, what);
    }
}

/// Fills in the plan's `member` for an init. Returns the fields that podshim takes over.
fn init(
    container: &Container<'_>,
    policy: RestartPolicy,
    member: &mut Member,
    remarks: &mut Remarks<'_>,
) -> Vec<Vec<&'static str>> {
    let (node, name) = (container.node, container.name);
    restart::carry_over(node, policy, member, &format!("initContainers[{name}]"), remarks);
    if let Some((key, _)) = node.get("resources").and_then(|resources| resources.entry("requests")) {
        let what = "requested for as long as the pod lives, beside those of the mains";
        remarks.say(Severity::Warning, key, format!("initContainers[{name}].resources.requests"), what);
    }
    let is_retried = member.restart.is_none_or(|restart| restart.mode != RestartMode::Never);
    if policy == RestartPolicy::OnFailure && is_retried {
        let what = "its failures are retried by podshim, unseen: a Job's backoffLimit does not count them";
        remarks.say(Severity::Warning, node, format!("initContainers[{name}]"), what);
    }
    if policy != RestartPolicy::Always {
        let what = "once it has ended the pod's condition Ready stays false";
        remarks.say(Severity::Warning, node, format!("initContainers[{name}]"), what);
    }
    let taken_over = [RULES, POLICY].into_iter().filter(|key| node.get(key).is_some());
    taken_over.map(|key| vec![key]).collect()
}

/// Fills in the plan's `member` for a main, all fields of which stay: a kubelet that knows its rules sees no exit that
/// podshim restarts after.
fn main(container: &Container<'_>, policy: RestartPolicy, member: &mut Member, remarks: &mut Remarks<'_>) {
    let (node, name) = (container.node, container.name);
    restart::carry_over(node, policy, member, &format!("containers[{name}]"), remarks);
    stop_signal(container, member, format!("containers[{name}].lifecycle.stopSignal"), remarks);
    if let Some((key, _)) = node.get("lifecycle").and_then(|it| it.entry("postStart")) {
        let what = "the kubelet runs it while the main is held: one that asks its own program fails, and the kubelet kills the \
                    main";
        remarks.say(Severity::Warning, key, format!("containers[{name}].lifecycle.postStart"), what);
    }
    if let Some((key, _)) = node.entry("livenessProbe").filter(|_| node.get("startupProbe").is_none()) {
        let what =
            "the kubelet asks while it is held, and kills it if that takes too long: give it a startupProbe";
        remarks.say(Severity::Warning, key, format!("containers[{name}].livenessProbe"), what);
    }
    // Before its startup probe has succeeded a kubelet counts no container as ready.
    let answers_late = node.get("startupProbe").is_some_and(|probe| probe.get("exec").is_none());
    if node.get("readinessProbe").is_none() && node.get("ports").is_some() && !answers_late {
        let what =
            "none: the kubelet takes it for ready while it is held, so give it one if it is in a Service";
        remarks.say(Severity::Warning, node, format!("containers[{name}].readinessProbe"), what);
    }
}

/// 11.3: gives a member an alias where its name is too long for an annotation's key.
fn give_aliases(plan: &mut Plan) {
    let names: Vec<String> = plan.members.iter().map(|member| member.name.clone()).collect();
    for (index, member) in plan.members.iter_mut().enumerate() {
        let keys = [
            ("stop-signal.", member.stop_signal.is_some()),
            ("pre-stop.", member.pre_stop.is_some()),
            ("migrate.", member.migrate.is_some()),
            ("restart.", member.restart.is_some()),
            ("after.", member.after.is_some()),
            ("ready.", member.gate != Gate::Running),
        ];
        let longest = keys.iter().find(|(_, is_used)| *is_used).map_or(0, |(key, _)| key.len());
        if longest > 0 && longest + member.name.len() > MAX_KEY_NAME {
            let mut alias = (index + 1..).map(|number| format!("c{number}"));
            member.alias = alias.find(|alias| !names.contains(alias));
        }
    }
}
