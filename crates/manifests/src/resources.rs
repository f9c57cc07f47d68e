//! What a pod asks of its node: what the scheduler counts for it, its limits and its QoS class.
//!
//! Owns Kubernetes' arithmetic for these. A container of `containers` counts from the pod's first moment to its last; one of
//! `initContainers` only until it has ended, unless it is a native sidecar (KEP-753). Knows no plan.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use crate::manifest::{List, Template};
use crate::quantity::Quantity;
use crate::yaml::Node;

/// Amounts of resources by their names.
pub type Amounts = BTreeMap<String, Quantity>;

/// What a container, or a pod as a whole (KEP-2837), says of its resources.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Asked {
    requests: Amounts,
    limits: Amounts,
}

/// All that a pod's manifest says of its resources.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodResources {
    containers: Vec<(String, List, Asked)>,
    pod: Asked,
    overhead: Amounts,
}

/// What a pod's containers come to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Counted {
    /// What the scheduler counts.
    #[serde(serialize_with = "as_text")]
    pub requests: Amounts,
    /// Of the pod's cgroup: of each resource that every container limits.
    #[serde(serialize_with = "as_text")]
    pub limits: Amounts,
}

/// The class by which a kubelet and the kernel choose who goes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Qos {
    /// Every container has a limit of both processors and memory, and requests the same.
    Guaranteed,
    /// Neither of the others.
    Burstable,
    /// No container asks for processors or memory.
    BestEffort,
}

impl PodResources {
    /// Reads a pod's; `None` if an amount in it is none that the API server takes.
    pub fn of(template: &Template<'_>) -> Option<Self> {
        let containers = template.containers().into_iter().map(|container| {
            let asked = Asked::of(container.node.get("resources"))?;
            Some((container.name.to_owned(), container.list, asked))
        });
        Some(Self {
            containers: containers.collect::<Option<_>>()?,
            pod: Asked::of(template.spec.get("resources"))?,
            overhead: amounts(template.spec.get("overhead"))?,
        })
    }

    /// What they come to as the manifest has them.
    pub fn counted(&self) -> Counted {
        self.sum(self.containers.iter().map(|(_, list, asked)| (*list, asked)))
    }

    /// What they would come to if these were `initContainers`, in this order, before all others.
    pub fn counted_with(&self, native: &[(&str, List)]) -> Counted {
        let first = native.iter().filter_map(|(name, list)| {
            let (.., asked) = self.containers.iter().find(|(own, ..)| own == name)?;
            Some((*list, asked))
        });
        let is_left = |name: &str| native.iter().all(|(native, _)| *native != name);
        let others = self.containers.iter().filter(|(name, ..)| is_left(name));
        self.sum(first.chain(others.map(|(_, list, asked)| (*list, asked))))
    }

    /// The pod's QoS class. Where a container stands does not change it.
    pub fn qos(&self) -> Qos {
        const COUNTED: [&str; 2] = ["cpu", "memory"];
        let all: Vec<&Asked> = match self.pod.is_empty() {
            true => self.containers.iter().map(|(.., asked)| asked).collect(),
            false => vec![&self.pod],
        };
        let is_set =
            |amounts: &Amounts, name: &str| amounts.get(name).is_some_and(|it| *it > Quantity::default());
        let asks = |asked: &&Asked| {
            COUNTED.iter().any(|name| is_set(&asked.requests, name) || is_set(&asked.limits, name))
        };
        let is_bounded = |asked: &Asked| {
            COUNTED.iter().all(|name| {
                is_set(&asked.limits, name) && asked.requests.get(*name) == asked.limits.get(*name)
            })
        };
        match (all.iter().any(asks), all.iter().all(|asked| is_bounded(asked))) {
            (false, _) => Qos::BestEffort,
            (true, true) => Qos::Guaranteed,
            (true, false) => Qos::Burstable,
        }
    }

    fn sum<'a>(&'a self, containers: impl Iterator<Item = (List, &'a Asked)>) -> Counted {
        let containers: Vec<(List, &Asked)> = containers.collect();
        let all = || containers.iter().map(|(_, asked)| *asked).chain([&self.pod]);
        let requested: BTreeSet<&String> = all().flat_map(|asked| asked.requests.keys()).collect();
        let limited = all().flat_map(|asked| asked.limits.keys()).filter(|name| {
            self.pod.limits.contains_key(*name)
                || containers.iter().all(|(_, asked)| asked.limits.contains_key(*name))
        });
        let limited: BTreeSet<&String> = limited.collect();
        let sum = |names: BTreeSet<&String>, of: fn(&Asked) -> &Amounts| {
            let sums = names.into_iter().map(|name| {
                let whole = of(&self.pod).get(name).copied();
                let sum = whole.unwrap_or_else(|| at_once(&containers, |asked| of(asked).get(name).copied()));
                (name.clone(), sum + self.overhead.get(name).copied().unwrap_or_default())
            });
            sums.collect()
        };
        Counted { requests: sum(requested, |it| &it.requests), limits: sum(limited, |it| &it.limits) }
    }
}

/// The most that is asked for at one time, from the first init to the last container.
fn at_once(containers: &[(List, &Asked)], of: impl Fn(&Asked) -> Option<Quantity>) -> Quantity {
    let (mut lasting, mut most) = (Quantity::default(), Quantity::default());
    for (list, asked) in containers {
        let amount = of(asked).unwrap_or_default();
        match list {
            List::Init => most = most.max(lasting + amount),
            List::NativeSidecar | List::Regular => lasting = lasting + amount,
        }
    }
    most.max(lasting)
}

impl Asked {
    fn of(resources: Option<&Node>) -> Option<Self> {
        let part = |key| amounts(resources.and_then(|resources| resources.get(key)));
        let (mut requests, limits) = (part("requests")?, part("limits")?);
        // The API server takes a limit for the request where there is none.
        for (name, limit) in &limits {
            requests.entry(name.clone()).or_insert(*limit);
        }
        Some(Self { requests, limits })
    }

    fn is_empty(&self) -> bool {
        self.requests.is_empty() && self.limits.is_empty()
    }
}

fn amounts(node: Option<&Node>) -> Option<Amounts> {
    let entries = node.map(Node::entries).unwrap_or_default();
    entries
        .iter()
        .map(|(name, amount)| Some((name.text()?.to_owned(), Quantity::parse(amount.text()?)?)))
        .collect()
}

/// An amount as this resource is written.
pub fn written(name: &str, amount: Quantity) -> String {
    if name == "cpu" { amount.in_thousandths() } else { amount.to_string() }
}

fn as_text<S: serde::Serializer>(amounts: &Amounts, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(amounts.iter().map(|(name, amount)| (name, written(name, *amount))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest;
    use crate::yaml;

    fn resources(spec: &str) -> Option<PodResources> {
        let text = format!("kind: Pod\nspec:\n{spec}");
        let documents = yaml::documents(&text).expect("YAML");
        let document = documents.first().expect("a document");
        PodResources::of(manifest::all_templates(document).first().expect("a pod"))
    }

    fn shown(amounts: &Amounts) -> String {
        let shown = amounts.iter().map(|(name, amount)| format!("{name} {}", written(name, *amount)));
        shown.collect::<Vec<_>>().join(", ")
    }

    const POD: &str = "  initContainers:
  - {name: net, resources: {requests: {cpu: 300m}}}
  containers:
  - {name: fetch, resources: {requests: {cpu: 1, memory: 512Mi}}}
  - {name: proxy, resources: {requests: {cpu: 100m}, limits: {memory: 128Mi}}}
  - {name: app, resources: {requests: {cpu: 500m, memory: 256Mi}}}
";

    #[test]
    fn j_plain_containers_count_together_and_native_ones_in_turn() {
        let pod = resources(POD).expect("valid amounts");
        assert_eq!(shown(&pod.counted().requests), "cpu 1600m, memory 896Mi");
        assert_eq!(pod.counted().limits, Amounts::new(), "not every container has one");
        let native = pod.counted_with(&[("proxy", List::NativeSidecar), ("fetch", List::Init)]);
        // While fetch runs: 100m and 1.
        assert_eq!(shown(&native.requests), "cpu 1100m, memory 640Mi");
        let native = pod.counted_with(&[("fetch", List::Init), ("proxy", List::NativeSidecar)]);
        assert_eq!(shown(&native.requests), "cpu 1, memory 512Mi");
        assert_eq!(pod.qos(), Qos::Burstable);
    }

    #[test]
    fn j_the_class_is_of_all_containers() {
        let qos = |containers: &str| resources(&format!("  containers:\n{containers}")).map(|pod| pod.qos());
        let bounded = "  - {name: a, resources: {limits: {cpu: 1, memory: 1Gi}}}\n";
        assert_eq!(qos(bounded), Some(Qos::Guaranteed));
        assert_eq!(qos(&format!("{bounded}  - {{name: b}}\n")), Some(Qos::Burstable));
        assert_eq!(qos("  - {name: a, resources: {requests: {nvidia.com/gpu: 1}}}\n"), Some(Qos::BestEffort));
        assert_eq!(qos("  - {name: a, resources: {requests: {cpu: much}}}\n"), None);
    }

    #[test]
    fn j_a_pods_own_amounts_and_overhead_count() {
        let whole =
            "  resources: {limits: {cpu: 2}, requests: {cpu: 2, memory: 1Gi}}\n  overhead: {memory: 16Mi}\n";
        let pod = resources(&format!("{whole}{POD}")).expect("valid amounts");
        assert_eq!(shown(&pod.counted().requests), "cpu 2, memory 1040Mi");
        assert_eq!(shown(&pod.counted().limits), "cpu 2");
        assert_eq!(pod.qos(), Qos::Burstable);
    }
}
