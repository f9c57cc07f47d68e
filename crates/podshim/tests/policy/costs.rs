//! What dist/policy costs an API server of the largest pods that it takes, and that it writes what the evaluation of `admission`
//! writes. A pod that cost more than the limits would be refused.

use std::collections::BTreeMap;

use serde_json::{Value as Json, json};

use crate::admission::{Admitted, Policy};
use crate::cost::{Evaluation, LIMIT_OF_CONDITIONS, LIMIT_OF_ONE, LIMIT_OF_PATCH};

/// The longest name that fits into each key: 55 letters.
fn long(kind: &str, number: usize) -> String {
    format!("{kind}{number:03}-{}", "n".repeat(50))
}

fn rule(operator: &str, values: &[i64], action: &str) -> Json {
    json!({"action": action, "exitCodes": {"operator": operator, "values": values}})
}

fn pod(policy: &str, inits: Vec<Json>, containers: Vec<Json>) -> Json {
    let mut pod = json!({"metadata": {"name": "p", "namespace": "default"},
        "spec": {"restartPolicy": policy, "containers": containers}});
    if !inits.is_empty() {
        pod["spec"]["initContainers"] = inits.into();
    }
    pod
}

fn many(count: usize, container: impl Fn(usize) -> Json) -> Vec<Json> {
    (0..count).map(container).collect()
}

fn main(number: usize) -> Json {
    json!({"name": long("c", number), "image": "x"})
}

fn native(number: usize) -> Json {
    json!({"name": long("s", number), "image": "x", "restartPolicy": "Always"})
}

fn init(number: usize) -> Json {
    json!({"name": long("i", number), "image": "x"})
}

/// As many annotations as 256 KiB have, which is Kubernetes' bound.
fn with_annotations(mut pod: Json) -> Json {
    let letters: Vec<char> = ('a'..='z').chain('0'..='9').collect();
    let mut annotations = serde_json::Map::new();
    for a in &letters {
        for b in &letters {
            for c in &letters {
                annotations.insert(format!("{a}{b}{c}"), json!(""));
            }
        }
    }
    for number in 0..17_500 {
        annotations.insert(format!("x{number:05}"), json!(""));
    }
    pod["metadata"]["annotations"] = annotations.into();
    pod
}

/// What costs most, in one way each.
fn largest() -> Vec<(&'static str, Json)> {
    let rules_of_all = |action: &str| vec![rule("In", &[1], action); 20];
    let native_with_rules = |number| {
        let mut native = native(number);
        native["restartPolicyRules"] = rules_of_all("RestartAllContainers").into();
        native
    };
    let main_with_rules = |number| {
        let mut main = main(number);
        main["restartPolicy"] = json!("Never");
        main["restartPolicyRules"] = rules_of_all("Restart").into();
        main
    };
    let mut planned = pod("Never", many(64, init), many(64, main));
    let mains: Vec<String> = (0..64).map(|number| format!("{}=main", long("c", number))).collect();
    planned["metadata"]["annotations"] = json!({"podshim.io/plan": format!("{:<10000}", mains.join(","))});
    let short = |kind: &'static str| move |number| json!({"name": format!("{kind}{number}"), "image": "x"});
    let mut with_roles = pod("Always", vec![json!({"name": "s", "restartPolicy": "Always"})], many(1, main));
    let roles = (0..3000).map(|number| (format!("podshim.io/role.x{number}"), json!("sidecar")));
    with_roles["metadata"]["annotations"] = Json::Object(roles.collect());
    let named = |kind: &'static str, count| {
        many(count, move |number| {
            let mut container = json!({"name": format!("container-{kind}-{number}"), "image": "x"});
            if kind == "s" {
                container["restartPolicy"] = json!("Always");
            }
            container
        })
    };
    vec![
        ("63 native sidecars", pod("Always", many(63, native_with_rules), many(1, main))),
        ("32 and 32", pod("Never", many(32, native), many(32, main_with_rules))),
        ("64 mains with rules", pod("Never", Vec::new(), many(64, main_with_rules))),
        ("63 inits", pod("Never", many(63, init), many(1, main))),
        ("63 and 63", pod("Always", named("s", 63), named("c", 63))),
        ("a long plan", planned),
        ("30,000 and 30,000", pod("Always", many(30_000, short("i")), many(30_000, short("c")))),
        ("annotations", with_annotations(pod("Always", many(63, native), many(1, main)))),
        ("roles of later containers", with_roles),
    ]
}

/// The policy's expressions, ready to be counted.
struct Counter {
    policy: Policy,
    conditions: Vec<(String, cel::IdedExpr)>,
    variables: BTreeMap<String, cel::IdedExpr>,
    patch: cel::IdedExpr,
}

/// What the API server does with one pod.
#[derive(Debug)]
struct Counted {
    /// The cost of each condition.
    conditions: Vec<(String, u64)>,
    skipped: Option<String>,
    /// The cost of the patch, and of each variable that it needs.
    patch: Vec<(String, u64)>,
}

impl Counter {
    fn new() -> Self {
        let policy = Policy::read();
        let compiled = |(name, text): &(String, String)| (name.clone(), policy.compile(text));
        Self {
            conditions: policy.conditions.iter().map(compiled).collect(),
            variables: policy.variables.iter().map(compiled).collect(),
            patch: policy.compile(&policy.mutation),
            policy,
        }
    }

    /// The conditions alone.
    fn select(&self, pod: &Json) -> Counted {
        let none = BTreeMap::new();
        let mut counted = Counted { conditions: Vec::new(), skipped: None, patch: Vec::new() };
        for (name, condition) in &self.conditions {
            let mut evaluation = Evaluation::new(pod, &none);
            let value = evaluation.run(name, condition);
            counted.conditions.append(&mut evaluation.costs);
            if value.json() == Json::Bool(false) && counted.skipped.is_none() {
                counted.skipped = Some(name.clone());
            }
        }
        counted
    }

    fn count(&self, pod: &Json) -> Counted {
        let mut counted = self.select(pod);
        if counted.skipped.is_none() {
            let mut evaluation = Evaluation::new(pod, &self.variables);
            let patch = evaluation.run("patch", &self.patch).json();
            counted.patch = evaluation.costs;
            let Admitted::Patched(expected) = self.policy.admit(&mut pod.clone()) else { panic!("skipped") };
            let adds = expected.iter().map(|add| json!({"op": "add", "path": add.path, "value": add.value}));
            assert_eq!(patch, adds.collect::<Json>(), "two evaluations");
        }
        counted
    }
}

fn sum(costs: &[(String, u64)]) -> u64 {
    costs.iter().map(|(_, cost)| cost).sum()
}

#[test]
fn found_k9_the_largest_pods_cost_less_than_the_limits() {
    let counter = Counter::new();
    for (what, pod) in largest() {
        let counted = counter.count(&pod);
        for (name, cost) in counted.conditions.iter().chain(&counted.patch) {
            // docs/admission.md promises half of it.
            assert!(*cost < LIMIT_OF_ONE / 2, "{what}: {name} costs {cost}");
        }
        assert!(sum(&counted.conditions) < LIMIT_OF_CONDITIONS, "{what}: {counted:?}");
        assert!(sum(&counted.patch) < LIMIT_OF_PATCH, "{what}: {counted:?}");
    }
}

/// The counter is right: for these expressions an API server of Kubernetes 1.36.2 counted as much on a pod of 64 mains (its own
/// packages, by hand, on 2026-11-28). The counter never counts less, and little more.
#[test]
fn found_k9_the_counter_counts_what_an_api_server_counts() {
    let counter = Counter::new();
    let pod = pod("Always", Vec::new(), many(64, main));
    for (real, expression) in [
        (
            80007,
            "object.spec.containers.map(c, c.name).filter(name, object.spec.containers.map(c, c.name).indexOf(name) + 1 > \
             0).size() > 0",
        ),
        (
            580,
            "object.spec.containers.all(c, has(c.image) && !has(c.restartPolicy) ? c.image == 'x' : c.name in ['a', 'b'])",
        ),
        (
            8468,
            "object.spec.containers.map(c, {'key': 'podshim.io/role.' + c.name, 'value': 'main'}).filter(entry, \
             entry.key.startsWith('podshim.io/')).map(entry, entry.key).join(',').replace(',', ';').contains(';podshim.io/')",
        ),
        (
            2121,
            "object.spec.containers.map(c, c.name.size()).sum() > 64 && object.spec.containers.exists(c, c.name == \
             object.spec.containers[63].name)",
        ),
    ] {
        let none = BTreeMap::new();
        let mut evaluation = Evaluation::new(&pod, &none);
        assert_eq!(
            evaluation.run("it", &counter.policy.compile(expression)).json(),
            json!(true),
            "{expression}"
        );
        let counted = sum(&evaluation.costs);
        assert!((real..real + real / 20).contains(&counted), "{counted} instead of {real}: {expression}");
    }
}

/// What podshim would refuse, and what would cost too much, is left as it is.
#[test]
fn found_k9_found_k10_a_pod_with_more_roles_than_a_plan_takes_is_left_alone() {
    let counter = Counter::new();
    for (what, pod) in largest() {
        let skipped = counter.select(&pod).skipped;
        let is_too_large = ["63 and 63", "30,000 and 30,000", "roles of later containers"].contains(&what);
        assert_eq!(skipped.as_deref(), is_too_large.then_some("roles-fit-into-a-plan"), "{what}");
    }
    // Each of 64 containers has a role, and one that comes later would be the 65th.
    let mut most = pod("Always", many(32, native), many(32, main));
    assert_eq!(counter.select(&most).skipped, None);
    let roles = (0..32).map(|number| (format!("podshim.io/role.{}", long("s", number)), json!("sidecar")));
    most["metadata"]["annotations"] = Json::Object(roles.collect());
    assert_eq!(counter.select(&most).skipped, None);
    most["metadata"]["annotations"]["podshim.io/role.later"] = json!("sidecar");
    assert_eq!(counter.select(&most).skipped.as_deref(), Some("roles-fit-into-a-plan"));
}
