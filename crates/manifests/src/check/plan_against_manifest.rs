//! Whether a valid plan fits the pod it stands on: its containers, its restart policy, its probes and hooks. The shim
//! cannot see these; a plan that does not fit holds a pod for ever, or never ends its job.

use std::time::Duration;

use pod_spec::{
    DurationText, ExitCodes, Gate, Link, Member, Others, PREFIX, Plan, RestartPolicy, Role,
    STARTED_CONDITION, Source, nearest_word,
};

use super::kruise::Marked;
use super::waits::links_of;
use super::{
    gate_of_another, in_place, kubelets_own, other_place, own_restart, pod_restart, proposal, short_steps,
    stop_signal,
};
use crate::annotations::annotation_line;
use crate::finding::{Finding, Severity};
use crate::manifest::{self, Container, List, Template};
use crate::yaml::Node;

/// The default of terminationGracePeriodSeconds.
const KUBELET_GRACE: u64 = 30;

struct PlanAgainstManifest<'a> {
    file: &'a str,
    template: &'a Template<'a>,
    annotations: &'a Node,
    plan: &'a Plan,
    containers: Vec<Container<'a>>,
    /// The names of containers that something adds later.
    injected: &'a [String],
}

/// Adds a finding for everything that does not pair.
pub fn check(
    file: &str,
    template: &Template<'_>,
    annotations: &Node,
    plan: &Plan,
    injected: &[String],
    findings: &mut Vec<Finding>,
) {
    let pair = PlanAgainstManifest::of(file, template, annotations, plan, injected);
    if plan.settings.source == Source::Annotations {
        pair.check_names(findings);
        pair.check_policy(findings);
    }
    findings.extend(gate_needs_the_agent(file, template));
    pair.check_pod(findings);
    let marked = Marked { file, template, annotations, plan, containers: &pair.containers };
    marked.check_plan(injected, findings);
    marked.check_barrier(|container| pair.awaited_by(container), findings);
    for member in 0..plan.members.len() {
        findings.extend(gate_of_another::of_member(file, member, plan, &pair.containers, annotations));
    }
    for container in &pair.containers {
        pair.check_container(container, findings);
        pair.check_hold(container, findings);
        findings.extend(kubelets_own::of_container(file, container, plan, annotations));
        if let Some((_, member)) = plan.member(container.name) {
            findings.extend(own_restart::of_container(file, container, member, plan));
            findings.extend(in_place::of_container(file, container, member, plan));
            findings.extend(pair.ended_init(container, member));
        }
    }
}

/// The findings that a pod which runs has, too: its object and its plan disagree.
pub(super) fn contradictions(
    file: &str,
    template: &Template<'_>,
    annotations: &Node,
    plan: &Plan,
) -> Vec<Finding> {
    let pair = PlanAgainstManifest::of(file, template, annotations, plan, &[]);
    let mut findings = Vec::new();
    if plan.settings.source == Source::Annotations {
        pair.check_policy(&mut findings);
    }
    for container in &pair.containers {
        if let Some((_, member)) = plan.member(container.name) {
            findings.extend(other_place::of_container(file, container, member.role));
            findings.extend(own_restart::of_container(file, container, member, plan));
        }
    }
    findings
}

/// The init containers that `*=main` takes for mains (S8).
pub(super) fn mistaken_mains(
    file: &str,
    template: &Template<'_>,
    annotations: &Node,
    plan: &Plan,
) -> Vec<Finding> {
    let containers = template.containers();
    containers.iter().filter_map(|own| kubelets_own::of_container(file, own, plan, annotations)).collect()
}

impl<'a> PlanAgainstManifest<'a> {
    fn of(
        file: &'a str,
        template: &'a Template<'a>,
        annotations: &'a Node,
        plan: &'a Plan,
        injected: &'a [String],
    ) -> Self {
        Self { file, template, annotations, plan, containers: template.containers(), injected }
    }
}

impl PlanAgainstManifest<'_> {
    fn finding(&self, severity: Severity, line: usize, message: String) -> Finding {
        Finding::new(severity, self.file, line, message)
    }

    /// A finding on an annotation.
    fn at_key(&self, severity: Severity, word: &str, message: String) -> Finding {
        let key = format!("{PREFIX}{word}");
        let finding = self.finding(severity, annotation_line(self.annotations, &key), message).key(&key);
        match self.annotations.text_of(&key) {
            Some(value) => finding.value(value),
            None => finding,
        }
    }

    /// U10: if no container has a name that the plan lists, the others wait for that container for ever.
    fn check_names(&self, findings: &mut Vec<Finding>) {
        let injected = || self.injected.iter().map(String::as_str);
        let names = || self.containers.iter().map(|container| container.name).chain(injected());
        for member in self.plan.members.iter().filter(|member| names().all(|name| name != member.name)) {
            let keys = self.keys_of(&member.name);
            if !proposal::lists(self.annotations, &member.name) {
                // With `*=main`, a key alone makes the container that it names a main.
                for key in keys {
                    let message = format!("the pod has no container {:?}", member.name);
                    let finding = self.at_key(Severity::Error, &key, message);
                    findings.push(match nearest_word(&member.name, names()) {
                        Some(word) => finding.nearest(word).fix(format!("write {word:?}")),
                        None => finding.fix("remove it"),
                    });
                }
                continue;
            }
            let message = format!("{:?} is in the plan, and the pod has no such container", member.name);
            let finding = self.at_key(Severity::Error, "plan", message);
            let free = names().filter(|name| self.plan.member(name).is_none());
            findings.push(match nearest_word(&member.name, free) {
                Some(word) => {
                    let keys: Vec<String> = keys.iter().map(|key| format!("{PREFIX}{key}")).collect();
                    let also = if keys.is_empty() { "" } else { ", also in " };
                    finding.nearest(word).fix(format!("write {word:?}{also}{}", keys.join(" and ")))
                }
                None => finding.fix(format!(
                    "add the container, or check with --injected {} if something adds it later",
                    member.name
                )),
            });
        }
        if self.plan.others == Others::Passthrough {
            let regular = self.containers.iter().filter(|container| container.list == List::Regular);
            // A container that a misspelt name of the plan probably means is reported with that name.
            let meant: Vec<&str> = self.plan.members.iter().map(|member| self.meant(&member.name)).collect();
            for container in regular.filter(|container| !meant.contains(&container.name)) {
                let message = format!(
                    "container {:?} is not in the plan: never held, and no container waits for it",
                    container.name
                );
                let fix =
                    proposal::add_main(self.annotations, container.name, self.template.restart_policy());
                let line = container.node.start.line;
                findings.push(self.finding(Severity::Warning, line, message).fix(fix));
            }
            for name in injected().filter(|name| self.plan.member(name).is_none()) {
                let message = format!(
                    "container {name:?}, which is injected, is not in the plan: nothing waits for it"
                );
                let fix = proposal::add_sidecar(self.annotations, name);
                let finding = self.at_key(Severity::Warning, &proposal::plan_key(self.annotations), message);
                findings.push(finding.fix(fix));
            }
        }
    }

    /// The keys that name a container, without the prefix: its own, and the `after` of others.
    fn keys_of(&self, name: &str) -> Vec<String> {
        let own = manifest::pairs(self.annotations).filter_map(|(key, value)| {
            let key = key.strip_prefix(PREFIX)?;
            let (word, of) = key.split_once('.')?;
            let names_it = || value.split(',').any(|one| one.trim().split('=').next() == Some(name));
            (of == name || (word == "after" && names_it())).then(|| key.to_owned())
        });
        own.collect()
    }

    fn check_policy(&self, findings: &mut Vec<Finding>) {
        let own = match self.plan.settings.restart_policy {
            RestartPolicy::Always => "Always",
            RestartPolicy::OnFailure => "OnFailure",
            RestartPolicy::Never => "Never",
        };
        // J1: the CRI does not carry the pod's restartPolicy, so the annotations must repeat it.
        let policy = self.template.restart_policy();
        if policy != own {
            let message = format!("the pod's restartPolicy is {policy}, the plan's is {own}");
            let finding = self.at_key(Severity::Error, "restart-policy", message);
            let fix = proposal::restart_policy(self.template, self.annotations, self.plan.others);
            findings.push(finding.nearest(policy).fix(fix));
        }
    }

    fn check_pod(&self, findings: &mut Vec<Finding>) {
        if let Some(message) = codes(self.plan) {
            findings.push(self.at_key(Severity::Note, "restart-policy", message));
        }
        let kubelet = self.template.spec.number_of("terminationGracePeriodSeconds").unwrap_or(KUBELET_GRACE);
        if let Some(grace) = self.plan.settings.grace.filter(|grace| *grace > Duration::from_secs(kubelet)) {
            let message = format!(
                "{} is longer than the pod's terminationGracePeriodSeconds ({kubelet}): the kubelet kills first",
                DurationText(grace)
            );
            let seconds = grace.as_secs() + u64::from(grace.subsec_nanos() > 0);
            let fix = format!("write terminationGracePeriodSeconds: {seconds}");
            findings.push(self.at_key(Severity::Warning, "grace", message).fix(fix));
        }
        if let Some((message, fix)) = short_steps::of_plan(self.plan, Duration::from_secs(kubelet)) {
            let word = if self.plan.settings.reserve.is_some() { "reserve" } else { "grace" };
            findings.push(self.at_key(Severity::Warning, word, message).fix(fix));
        }
        if self.template.spec.get("runtimeClassName").is_none() {
            let message = "no runtimeClassName: only a node whose default runtime is podshim heeds the plan";
            let line = self.template.spec.start.line;
            let finding = self.finding(Severity::Warning, line, message.to_owned());
            findings.push(finding.fix("add runtimeClassName: podshim to the pod's spec"));
        }
    }

    fn check_container(&self, container: &Container<'_>, findings: &mut Vec<Finding>) {
        let Some((_, member)) = self.plan.member(container.name) else { return };
        let line = container.node.start.line;
        let name = container.name;
        if (container.list, member.role) == (List::NativeSidecar, Role::Sidecar) {
            let message = format!(
                "{name:?} is a sidecar for the kubelet too: one older than 1.29 waits for its exit, for ever"
            );
            findings.push(self.finding(Severity::Note, line, message));
        }
        for pod_restart::Warning { line, message, fix } in
            pod_restart::of_container(container, member, self.plan)
        {
            let finding = self.finding(Severity::Warning, line, message);
            findings.push(match fix {
                Some(fix) => finding.fix(fix),
                None => finding,
            });
        }
        findings.extend(other_place::of_container(self.file, container, member.role));
        let mut note = |severity, line, message: String, fix: &str| {
            findings.push(self.finding(severity, line, message).fix(fix));
        };
        if container.list == List::Init
            && let Some(later) = self.first_later(container, &self.awaited_by(container))
        {
            note(
                Severity::Error,
                line,
                format!(
                    "{name:?} waits for {later:?}, which the kubelet creates only when {name:?} has ended"
                ),
                "move it to containers",
            );
        }
        if let Some((line, message, fix)) = stop_signal::of_container(container, member) {
            note(Severity::Warning, line, message, &fix);
        }
        // H5: the kubelet runs a preStop hook at the start of the stop.
        if member.role == Role::Sidecar
            && let Some((key, _)) =
                container.node.get("lifecycle").and_then(|lifecycle| lifecycle.entry("preStop"))
        {
            note(
                Severity::Warning,
                key.start.line,
                format!(
                    "the kubelet runs the preStop hook of {name:?} when the pod's stop begins: its mains still need it"
                ),
                &proposal::pre_stop(member, container.node),
            );
        }
    }

    /// H7: a kubelet counts an init of `containers` that has ended as not ready, and one that I5 hides as ready.
    fn ended_init(&self, container: &Container<'_>, member: &Member) -> Option<Finding> {
        let is_hidden = self.plan.settings.restart_policy == RestartPolicy::Always
            || self.plan.members.iter().any(Member::restarts_the_pod);
        if (container.list, member.role) != (List::Regular, Role::Init) || is_hidden {
            return None;
        }
        let name = container.name;
        let advice = match self.awaited_by(container).is_empty() {
            true => "as one of initContainers it would not count",
            false => "a Service needs publishNotReadyAddresses",
        };
        let message =
            format!("once {name:?} has ended the pod's condition Ready stays false for ever: {advice}");
        Some(self.finding(Severity::Note, container.node.start.line, message))
    }

    /// Warns where the kubelet's probes and hooks harm a held container, or a missing probe does (U9, U12). Includes
    /// mains that only `*=main` names.
    fn check_hold(&self, container: &Container<'_>, findings: &mut Vec<Finding>) {
        let (name, awaited) = (container.name, self.awaited_by(container));
        if awaited.is_empty() {
            return;
        }
        let role = self.plan.member(name).map_or(Role::Main, |(_, member)| member.role);
        if role == Role::Main && self.template.is_rolled_out() && readiness_gate(self.template).is_none() {
            findings.extend(self.ready_while_held(container));
        }
        findings.extend(self.hook_while_held(container, &awaited));
        let mut note = |line, message: String, fix: &str| {
            findings.push(self.finding(Severity::Warning, line, message).fix(fix));
        };
        if container.node.get("startupProbe").is_none()
            && let Some((key, _)) = container.node.entry("livenessProbe")
        {
            note(
                key.start.line,
                format!("the kubelet asks {name:?} while it is held, and kills it if that takes too long"),
                "give it a startupProbe that allows for the time it is held",
            );
        }
        let Some((key, probe)) = container.node.entry("startupProbe") else { return };
        let number = |key, usual| probe.number_of(key).unwrap_or(usual);
        // The defaults of the Kubernetes API.
        let (period, delay) = (number("periodSeconds", 10).max(1), number("initialDelaySeconds", 0));
        let seconds = period.saturating_mul(number("failureThreshold", 3));
        let allowed = Duration::from_secs(seconds.saturating_add(delay));
        let gates = awaited.iter().map(|awaited| longest_wait(&self.plan.members[*awaited].gate));
        let gates = gates.fold(Duration::ZERO, Duration::saturating_add);
        let longest = self.plan.settings.gate_timeout.map_or(gates, |limit| limit.min(gates));
        if allowed < longest {
            let threshold = longest.as_secs().saturating_add(1).saturating_sub(delay).div_ceil(period);
            let [allowed, longest] = [allowed, longest].map(DurationText);
            let message = format!(
                "the kubelet kills {name:?} when its startupProbe has failed for {allowed}, and it may be held for {longest}"
            );
            note(
                key.start.line,
                message,
                &format!("write failureThreshold: {threshold} in its startupProbe"),
            );
        }
    }

    /// U12: the kubelet runs a postStart hook while its container is held, creates nothing else meanwhile, and kills the container if
    /// it fails.
    fn hook_while_held(&self, container: &Container<'_>, awaited: &[usize]) -> Option<Finding> {
        let (name, line) = (container.name, container.node.at(&["lifecycle", "postStart"])?.start.line);
        if let Some(later) = self.first_later(container, awaited) {
            let message = format!(
                "{name:?} waits for {later:?}, which is created only when the postStart hook of {name:?} \
                 has ended: a hook that needs its own program never ends"
            );
            let finding = self.finding(Severity::Warning, line, message);
            return Some(finding.fix(format!("list {later} before {name}")));
        }
        let earlier = self.first_held_for(awaited)?;
        let message = format!(
            "the kubelet runs the postStart hook of {name:?} while {name:?} is held for {earlier:?}: a hook that needs its own \
             program fails, and the kubelet kills {name:?}; let the hook wait, or the program do what it does"
        );
        Some(self.finding(Severity::Warning, line, message))
    }

    /// Says if a kubelet takes a container for ready while it is held. A port is open only when the program runs, but a
    /// command runs in a held container too (U8). A kubelet counts no container as ready before its startup probe has
    /// succeeded (seen with 1.20).
    fn ready_while_held(&self, container: &Container<'_>) -> Option<Finding> {
        let name = container.name;
        let probes = ["startupProbe", "readinessProbe"].map(|key| container.node.entry(key));
        if probes.iter().flatten().any(|(_, probe)| probe.get("exec").is_none()) {
            return None;
        }
        let unready = "a roll-out goes on, and replaces every pod that serves, even if what it waits for never gets ready";
        let Some((key, _)) = probes.into_iter().flatten().next_back() else {
            let message = format!("{name:?} counts as ready while it is held: {unready}");
            let finding = self.finding(Severity::Warning, container.node.start.line, message);
            return Some(finding.fix("give it a readinessProbe"));
        };
        let message = format!(
            "the kubelet runs this command while {name:?} is held, too: if it succeeds without the program, {name:?} \
             counts as ready and {unready}"
        );
        Some(self.finding(Severity::Note, key.start.line, message))
    }

    /// The members that a container waits for, directly or through others.
    fn awaited_by(&self, container: &Container<'_>) -> Vec<usize> {
        let own = self.plan.member(container.name).map(|(index, _)| index);
        let waits = |links: Vec<Link>| links.into_iter().filter(|link| link.until.is_some());
        let mut reached: Vec<usize> =
            waits(links_of(container, self.plan)).map(|link| link.earlier).collect();
        let mut next = 0;
        while let Some(member) = reached.get(next).copied() {
            next += 1;
            for link in waits(self.plan.links(member)) {
                if !reached.contains(&link.earlier) && Some(link.earlier) != own {
                    reached.push(link.earlier);
                }
            }
        }
        reached
    }

    /// The first of the awaited members that the pod lists behind a container, so that the kubelet creates it later.
    fn first_later(&self, container: &Container<'_>, awaited: &[usize]) -> Option<&str> {
        let place = |name: &str| self.containers.iter().position(|other| other.name == name);
        let own = place(container.name);
        let mut names = awaited.iter().map(|member| self.meant(&self.plan.members[*member].name));
        names.find(|name| place(name) > own)
    }

    /// The first of the awaited members that a kubelet does not wait for itself: one of `containers` (S9).
    fn first_held_for(&self, awaited: &[usize]) -> Option<&str> {
        let mut names = awaited.iter().map(|member| self.meant(&self.plan.members[*member].name));
        names.find(|name| {
            let own = self.containers.iter().find(|container| container.name == *name);
            own.is_none_or(|container| container.list == List::Regular)
        })
    }

    /// A name of the plan, or, if the pod has no such container, the container that the name probably means. So all
    /// findings on a container with a misspelt name are reported at once.
    fn meant<'b>(&'b self, name: &'b str) -> &'b str {
        let mut names = self.containers.iter().map(|container| container.name);
        if names.any(|own| own == name) {
            return name;
        }
        let free = self.containers.iter().map(|container| container.name);
        nearest_word(name, free.filter(|name| self.plan.member(name).is_none())).unwrap_or(name)
    }
}

/// The readinessGate that is true only when every main runs.
fn readiness_gate<'a>(template: &Template<'a>) -> Option<&'a Node> {
    let gates = template.spec.get("readinessGates").into_iter().flat_map(Node::items);
    gates.into_iter().find(|gate| gate.text_of("conditionType") == Some(STARTED_CONDITION))
}

/// docs/agent.md: no kubelet writes that condition.
fn gate_needs_the_agent(file: &str, template: &Template<'_>) -> Option<Finding> {
    let gate = readiness_gate(template)?;
    let message = format!(
        "the pod is never Ready on a node without podshim's agent, which alone writes {STARTED_CONDITION} (docs/agent.md)"
    );
    Some(Finding::new(Severity::Note, file, gate.start.line, message))
}

/// How long a gate may stay closed before podshim restarts its sidecar.
fn longest_wait(gate: &Gate) -> Duration {
    match gate {
        Gate::Probe { timing, .. } => {
            timing.delay.saturating_add(timing.period.saturating_mul(timing.failures))
        }
        Gate::Running | Gate::Skip => Duration::ZERO,
    }
}

/// A note on the exit codes that callers see, for the restart policies under which they matter (J2, J10).
fn codes(plan: &Plan) -> Option<String> {
    let has_sidecar = plan.members.iter().any(|member| member.role == Role::Sidecar);
    let shown_restarts = |member: &Member| {
        member.role == Role::Sidecar && member.restart.is_some_and(|restart| restart.limit.is_some())
    };
    match (plan.settings.restart_policy, plan.settings.exit_codes) {
        (RestartPolicy::OnFailure, _) if has_sidecar => {
            let also = match plan.members.iter().find(|member| shown_restarts(member)) {
                Some(member) => format!(", and an exit of {:?} once its limit is reached", member.name),
                None => String::new(),
            };
            Some(format!(
                "sidecars show 0 when the job is done; what is stopped before that shows 143 instead of 0, to be run again \
                 (a liveness kill, another image, `fatal`{also}): each counts against a job's backoffLimit"
            ))
        }
        (RestartPolicy::Never, ExitCodes::Real) if has_sidecar => {
            Some("sidecars show their own codes: one other than 0 makes the pod Failed, although its mains succeeded".to_owned())
        }
        _ => None,
    }
}
