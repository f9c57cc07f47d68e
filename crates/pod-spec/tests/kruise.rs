//! What OpenKruise's marks mean on a node that reads them (S12), and what is wrong with those that make no plan.

use pod_spec::kruise::{GLOBS, LAUNCH, SIDECARSETS, WORKING, is_mark};
use pod_spec::limits::{MAX_CONTAINERS, MAX_VALUE_BYTES};
use pod_spec::{KruiseMarks, Node, Parsed, RestartPolicy, Role, Source};

fn read_by(node: &str, annotations: &[(&str, &str)]) -> Parsed {
    let node = Node::parse(node).expect("a node's file");
    node.parse_pod(annotations.iter().copied()).expect("marks refuse no pod")
}

fn read(annotations: &[(&str, &str)]) -> Parsed {
    read_by("read = [\"kruise\"]", annotations)
}

fn list(parsed: &Parsed) -> String {
    parsed.plan.as_ref().expect("a plan").to_annotations().remove("podshim.io/plan").expect("a list")
}

const LOGS: (&str, &str) =
    (SIDECARSETS, r#"{"logs":{"sidecarSetName":"logs","hash":"x","sidecarList":["tail","ship"]}}"#);

#[test]
fn s12_the_lists_are_sidecars_and_all_else_is_main() {
    let parsed = read(&[LOGS, (LAUNCH, "Ordered"), ("kruise.io/sidecarset-injected-list", "logs")]);
    assert_eq!((list(&parsed).as_str(), parsed.warnings.len()), ("tail=sidecar, ship=sidecar, *=main", 0));
    let plan = parsed.plan.expect("a plan");
    assert_eq!((plan.settings.source, plan.settings.restart_policy), (Source::Kruise, RestartPolicy::Always));
    // SidecarSets by name; a container that two have belongs to the first.
    let sets = r#" {"z":{"sidecarList":["b","c"]}, "a":{"sidecarList":["c","a"]}} "#;
    assert_eq!(list(&read(&[(SIDECARSETS, sets)])), "c=sidecar, a=sidecar, b=sidecar, *=main");
}

/// S12: Kruise's controller flips the two; a standby pair would be podshim's to flip.
#[test]
fn s12_a_hot_pair_is_a_group() {
    let working = (WORKING, r#"{"envoy":"envoy-2","gone":"gone-1"}"#);
    let parsed = read(&[(SIDECARSETS, r#"{"mesh":{"sidecarList":["a","envoy"]}}"#), working]);
    assert_eq!(list(&parsed), "a=sidecar, envoy-1+envoy-2=sidecar, *=main");
    let plan = parsed.plan.expect("a plan");
    assert!(plan.members.iter().all(|member| member.role == Role::Sidecar && member.pair.is_none()));
}

/// S12: without the word in the node's file nothing changes; podshim's own words win, but for a drain priority.
#[test]
fn s12_when_marks_count() {
    assert_eq!(read_by("", &[LOGS]), Parsed::default());
    let own = read(&[LOGS, ("podshim.io/plan", "ship=sidecar, app=main")]);
    assert_eq!(list(&own), "ship=sidecar, app=main");
    assert_eq!(own.plan.expect("a plan").settings.source, Source::Annotations);
    assert_eq!(read(&[LOGS, ("podshim.io/drain-priority", "5")]).plan, read(&[LOGS]).plan);
    let refused = Node::parse("read = [\"kruise\"]").expect("a node's file");
    let refused = refused.parse_pod([LOGS, ("podshim.io/grace", "5s")]).expect_err("a wrong annotation");
    assert!(refused.to_string().contains("podshim.io/plan"), "{refused}");
    assert!(is_mark(SIDECARSETS) && is_mark(WORKING) && !is_mark(LAUNCH) && GLOBS.len() == 3);
    // What `podshim install` and `podshim check` ask.
    for (file, marks) in [("", KruiseMarks::Ignored), ("read = [\"kruise\"]", KruiseMarks::Read)] {
        assert_eq!(Node::parse(file).expect("a node's file").kruise_marks(), marks, "{file:?}");
    }
}

/// The node's defaults hold for such a plan too.
#[test]
fn s12_the_nodes_defaults_hold() {
    let parsed = read_by("read = [\"kruise\"]\ngate-timeout = \"5s\"\nzero-grace = \"order\"", &[LOGS]);
    let keys = parsed.plan.expect("a plan").to_annotations();
    assert_eq!(keys["podshim.io/gate-timeout"], "5s");
    assert_eq!(keys["podshim.io/zero-grace"], "order");
}

/// S12: marks are not their pod author's words, so they refuse no pod.
#[test]
fn s12_marks_that_make_no_plan_are_a_warning() {
    let long = format!(r#"{{"a":{{"sidecarList":["{}"]}}}}"#, "x".repeat(64));
    let many = (0..65).map(|number| format!("\"c{number}\"")).collect::<Vec<_>>().join(",");
    let many = format!(r#"{{"a":{{"sidecarList":[{many}]}}}}"#);
    let size = |bytes: usize| format!(r#"{{"a":"{}"}}"#, "x".repeat(bytes - r#"{"a":""}"#.len()));
    let (largest, huge) = (size(MAX_VALUE_BYTES), size(MAX_VALUE_BYTES + 1));
    let form = "kruise.io/sidecarset-hash is not what OpenKruise writes";
    for (value, problem) in [
        ("", form),
        ("[]", form),
        ("{", form),
        (&huge, form),
        (&largest, "no SidecarSet has a sidecarList"),
        (r#"{"a":{"sidecarList":[1]}}"#, form),
        (r#"{"a":"6b3c"}"#, "no SidecarSet has a sidecarList"),
        (r#"{"a":{"sidecarList":["x=y"]}}"#, "\"x=y\" is no container's name"),
        (&long, &format!("\"{}\" is no container's name", "x".repeat(64))),
        (&many, "more than 64 containers"),
    ] {
        let parsed = read(&[(SIDECARSETS, value)]);
        let warnings: Vec<_> = parsed.warnings.iter().map(ToString::to_string).collect();
        let expected = format!("OpenKruise's marks are not read, and the pod has no plan: {problem}");
        assert_eq!((parsed.plan, warnings), (None, vec![expected]));
    }
    let parsed = read(&[LOGS, (WORKING, "envoy-1")]);
    assert!(parsed.plan.is_none() && parsed.warnings[0].to_string().contains(WORKING));
    let parsed = read_by("read = [\"kruise\"]\nmax-containers = 1", &[LOGS]);
    assert!(parsed.plan.is_none() && parsed.warnings[0].to_string().ends_with("more than 1 containers"));
    for nothing in ["{}", r#"{"a":{"sidecarList":[]}}"#] {
        assert_eq!(read(&[(SIDECARSETS, nothing)]), Parsed::default(), "{nothing}");
    }
}

/// S12: the same bound as for a plan (11.2), inclusive, for names of both kinds.
#[test]
fn s12_as_many_containers_as_a_plan_may_have() {
    let sidecars = |count: usize| (0..count).map(|number| format!("c{number}")).collect::<Vec<_>>();
    let set = |names: &[String]| serde_json::json!({ "a": { "sidecarList": names } }).to_string();
    let most = read(&[(SIDECARSETS, &set(&sidecars(MAX_CONTAINERS)))]);
    assert_eq!(most.plan.map(|plan| plan.members.len()), Some(MAX_CONTAINERS));
    // A hot one adds two at once, over the bound.
    let parsed = read(&[(SIDECARSETS, &set(&sidecars(MAX_CONTAINERS))), (WORKING, r#"{"c63":"c63-1"}"#)]);
    assert!(parsed.plan.is_none() && parsed.warnings[0].to_string().ends_with("more than 64 containers"));
}

/// S8, S12: what podshim's annotations call `none` is in no plan of Kruise's, and does not take the place of that plan.
#[test]
fn s12_found_k1_none_stands_beside_the_marks() {
    let parsed = read(&[LOGS, ("podshim.io/role.istio", "none"), ("podshim.io/role.tail", "none")]);
    assert_eq!(list(&parsed), "ship=sidecar, istio=none, tail=none, *=main");
    assert_eq!(read(&[LOGS, ("podshim.io/role.tail", "none"), ("podshim.io/role.ship", "none")]).plan, None);
}
