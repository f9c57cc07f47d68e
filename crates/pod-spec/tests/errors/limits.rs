//! Bounds on what pod authors write (DESIGN §6), and on the answers to it.

use pod_spec::{limits, parse};

use super::{PLAN, message};

#[test]
fn limits_are_kept() {
    let names = |count: usize| (1..=count).map(|n| format!("c{n}=main")).collect::<Vec<_>>().join(",");
    assert_eq!(message(&[("plan", &names(65))]), "podshim.io/plan: more than 64 containers");
    let group = (1..=9000).map(|n| n.to_string()).collect::<Vec<_>>().join("+") + "=init";
    assert_eq!(message(&[("plan", &group)]), "podshim.io/plan: more than 64 containers");
    let full = names(64) + ",*=main";
    assert_eq!(
        message(&[("plan", &full), ("grace.other", "1s")]),
        "podshim.io/plan: more than 64 containers"
    );

    let keys: Vec<String> = (0..99).map(|n| format!("grace.c{n}")).collect();
    let mut others: Vec<(&str, &str)> = keys.iter().map(|key| (key.as_str(), "1s")).collect();
    others.push(("plan", "*=main"));
    assert_eq!(message(&others), "podshim.io/plan: more than 64 containers");
    // S10: of a pod without `plan` the message names a key that the pod has.
    *others.last_mut().unwrap() = ("role.mesh", "sidecar");
    assert_eq!(message(&others), "podshim.io/role.mesh: more than 64 containers");
    let roles: Vec<String> = (0..65).map(|n| format!("role.c{n}")).collect();
    let roles: Vec<(&str, &str)> = roles.iter().map(|key| (key.as_str(), "sidecar")).collect();
    assert_eq!(message(&roles), "podshim.io/role.c0: more than 64 containers");
    let most = roles[1..].iter().map(|(key, value)| (format!("podshim.io/{key}"), *value));
    assert!(
        pod_spec::parse(most.collect::<Vec<_>>().iter().map(|(key, value)| (key.as_str(), *value))).is_ok()
    );
    // A list that could not be read, or not to its end, may have the name.
    assert_eq!(
        message(&[("plan", &names(70)), ("after.c1", "c70=ready")]),
        "podshim.io/plan: more than 64 containers"
    );
    assert!(!message(&[("plan", " "), ("after.app", "proxy=ready")]).contains("\"proxy\""));

    let plan = |name: usize| format!("{}=main", "x".repeat(name));
    assert!(pod_spec::parse([("podshim.io/plan", plan(limits::MAX_NAME_BYTES).as_str())]).is_ok());
    let no_name = message(&[("plan", &plan(limits::MAX_NAME_BYTES + 1))]);
    assert!(no_name.contains("is not a valid name: write at most 63 letters"), "{no_name}");

    let long = "x".repeat(limits::MAX_VALUE_BYTES + 1);
    let too_long = "the value has 65537 bytes, at most 65536 are allowed";
    assert_eq!(message(&[("plan", &long), ("ready.proxy", "none")]), format!("podshim.io/plan: {too_long}"));
    assert_eq!(message(&[PLAN, ("ready.proxy", &long)]), format!("podshim.io/ready.proxy: {too_long}"));
    assert_eq!(message(&[("role.mesh", &long)]), format!("podshim.io/role.mesh: {too_long}"));

    let just = format!("{}x", " ".repeat(limits::MAX_VALUE_BYTES - 1));
    assert!(!message(&[PLAN, ("ready.proxy", &just)]).contains("bytes"));
    assert!(message(&[("role.mesh", &long[1..])]).contains("unknown value"));

    let keys: Vec<String> = (0..=limits::MAX_KEYS).map(|n| format!("grace.c{n}")).collect();
    let many: Vec<(&str, &str)> = keys.iter().map(|key| (key.as_str(), "1s")).collect();
    let deep = |depth: usize| format!("log:{}a{}", "(".repeat(depth), ")".repeat(depth));
    let too_deep = message(&[("plan", "proxy=sidecar, app=main"), ("ready.proxy", &deep(40))]);
    assert!(too_deep.ends_with("the pattern is too large"), "{too_deep}");
    assert!(log_pattern::Pattern::parse(&deep(30)["log:".len()..]).is_ok());

    assert_eq!(message(&many), "podshim.io/plan: the pod has 1025 keys of podshim, at most 1024 are allowed");
    assert!(!message(&many[1..]).contains("keys of podshim"));
}

#[test]
fn a_job_of_keys_costs_no_more_than_its_message() {
    // Hints compare names letter by letter; only errors that are spelled out may cost one.
    let name = |n: usize| format!("{n:063}");
    let list = (0..64).map(|n| name(n) + "=main").collect::<Vec<_>>().join(",");
    let after = (100..164).map(|n| name(n) + "=ready").collect::<Vec<_>>().join(",");
    let mut annotations = vec![("plan".to_owned(), list)];
    annotations.extend((0..64).map(|n| (format!("after.{}", name(n)), after.clone())));
    annotations.extend((200..900).map(|n| (format!("grace.{}", name(n)), "1s".to_owned())));
    let annotations: Vec<(&str, &str)> = annotations.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
    let message = message(&annotations);
    assert_eq!(message.matches("did you mean").count(), limits::MAX_LISTED_ERRORS);
    let keyed: Vec<_> =
        annotations.iter().map(|(key, value)| (format!("podshim.io/{key}"), *value)).collect();
    let errors = parse(keyed.iter().map(|(key, value)| (key.as_str(), *value))).unwrap_err();
    let hints = errors.errors().iter().filter(|error| error.problem.nearest().is_some());
    assert_eq!(hints.count(), limits::MAX_LISTED_ERRORS);
}

#[test]
fn a_message_stays_one_bounded_line() {
    let commas = message(&[("plan", &",".repeat(60_000))]);
    assert!(commas.ends_with("more") && commas.len() < 2_000, "{commas}");
    let long = message(&[PLAN, ("zero-grace", &"\n\u{e9}".repeat(1_000))]);
    assert!(!long.contains('\n') && long.len() < 600, "{long}");
    let key = "k".repeat(5_000);
    assert!(message(&[PLAN, (&key, "x")]).len() < 300);
    let dependencies = message(&[PLAN, ("after.app", &",".repeat(60_000))]);
    assert!(dependencies.ends_with("more") && dependencies.len() < 2_500, "{dependencies}");
    let (list, after): (Vec<_>, Vec<_>) =
        (0..64).map(|n| (format!("c{n}=main"), format!("podshim.io/after.c{n}"))).unzip();
    let (list, commas) = (list.join(","), ",".repeat(60));
    let all = after.iter().map(|key| (key.as_str(), commas.as_str()));
    let all = parse(all.chain([("podshim.io/plan", list.as_str())])).unwrap_err();
    assert_eq!(all.errors().len(), limits::MAX_KEYS);
}
