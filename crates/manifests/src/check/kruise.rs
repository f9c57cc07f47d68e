//! OpenKruise's marks on the pod of a manifest: what they do not say, and where Kruise's start barrier and the plan would have
//! two containers wait for each other (S12, S13). Owns what of Kruise's words a manifest has and a shim does not see.

use pod_spec::{Plan, RestartPolicy, Source, kruise};

use crate::annotations::annotation_line;
use crate::finding::{Finding, Severity};
use crate::manifest::{Container, List, Template};
use crate::yaml::Node;

/// The pod, and its plan.
pub(super) struct Marked<'a> {
    pub(super) file: &'a str,
    pub(super) template: &'a Template<'a>,
    pub(super) annotations: &'a Node,
    pub(super) plan: &'a Plan,
    pub(super) containers: &'a [Container<'a>],
}

impl Marked<'_> {
    fn at_mark(&self, severity: Severity, message: String) -> Finding {
        let line = annotation_line(self.annotations, kruise::SIDECARSETS);
        Finding::new(severity, self.file, line, message).key(kruise::SIDECARSETS)
    }

    /// What a plan of the marks lacks (S12).
    pub(super) fn check_plan(&self, injected: &[String], findings: &mut Vec<Finding>) {
        if self.plan.settings.source != Source::Kruise {
            return;
        }
        let is_there = |name: &str| {
            self.containers.iter().any(|container| container.name == name)
                || injected.iter().any(|injected| injected == name)
        };
        for member in self.plan.members.iter().filter(|member| !is_there(&member.name)) {
            let message = format!(
                "Kruise has injected {:?}, and the pod has no such container: the others wait for it for ever",
                member.name
            );
            findings.push(
                self.at_mark(Severity::Error, message)
                    .fix("check the pod as it runs: kubectl get pod NAME -o yaml"),
            );
        }
        let policy = self.template.restart_policy();
        if self.plan.settings.restart_policy == RestartPolicy::Always && policy != "Always" {
            let message = format!(
                "the pod's restartPolicy is {policy}, and Kruise's marks do not say so: its sidecars run on when the mains \
                 have ended, unless Kruise's terminator stops them"
            );
            let fix = "give the pod a podshim.io/plan that names its mains, and podshim.io/restart-policy";
            findings.push(self.at_mark(Severity::Warning, message).fix(fix));
        }
    }

    /// Where the barrier would wait for a container that the plan holds. `awaited` are the members that a container waits
    /// for.
    pub(super) fn check_barrier(
        &self,
        awaited: impl Fn(&Container<'_>) -> Vec<usize>,
        findings: &mut Vec<Finding>,
    ) {
        let regular: Vec<_> = self.containers.iter().filter(|it| it.list == List::Regular).collect();
        let Some(priorities) = self.priorities(&regular) else { return };
        let of = |name: &str| {
            let place = regular.iter().position(|container| container.name == name)?;
            Some((regular[place].name, priorities[place]))
        };
        for (container, priority) in regular.iter().zip(&priorities) {
            let waits = awaited(container);
            let mut names = waits.iter().map(|member| self.plan.members[*member].name.as_str());
            let Some((later, _)) = names.find_map(|name| of(name).filter(|(_, other)| other < priority))
            else {
                continue;
            };
            let line = container.node.start.line;
            let name = container.name;
            findings.push(match self.plan.settings.source {
                Source::Kruise => {
                    let message = format!(
                        "Kruise's start barrier starts {name:?} before {later:?}, and Kruise's lists have {later:?} first: the \
                         start is the barrier's, podshim does not hold {name:?}"
                    );
                    Finding::new(Severity::Warning, self.file, line, message)
                        .fix(format!("give {name} a lower priority than {later}, or neither of them one"))
                }
                Source::Annotations => {
                    let message = format!(
                        "{name:?} is held until {later:?} lets it, and Kruise's start barrier keeps {later:?} from being created \
                         until {name:?} is ready: they may wait for each other for ever"
                    );
                    Finding::new(Severity::Error, self.file, line, message)
                        .fix(format!("remove {} and {}: the plan has the order", kruise::PRIORITY, kruise::LAUNCH))
                }
            });
        }
    }

    /// The priorities by which Kruise's webhook makes barriers; `None` if it makes none.
    fn priorities(&self, regular: &[&Container<'_>]) -> Option<Vec<i64>> {
        if self.annotations.text_of(kruise::LAUNCH) == Some("Ordered") {
            return Some(
                (0..regular.len())
                    .filter_map(|place| i64::try_from(place).ok())
                    .map(|place| -place)
                    .collect(),
            );
        }
        let priorities: Vec<i64> =
            regular.iter().map(|container| priority(container).unwrap_or_default()).collect();
        priorities.iter().any(|priority| *priority != priorities[0]).then_some(priorities)
    }
}

/// What a container says, or, if Kruise's webhook has seen it, the key of its barrier: `p_<priority>`.
fn priority(container: &Container<'_>) -> Option<i64> {
    let variables = container.node.get("env").map(Node::items).unwrap_or_default();
    let named = |name: &str| variables.iter().find(|variable| variable.text_of("name") == Some(name));
    let own = named(kruise::PRIORITY).and_then(|variable| variable.text_of("value")?.parse().ok());
    own.or_else(|| {
        let key = named(kruise::BARRIER)?.at(&["valueFrom", "configMapKeyRef", "key"])?.text()?;
        key.strip_prefix("p_")?.parse().ok()
    })
}
