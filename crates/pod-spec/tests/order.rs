//! Rows for what a plan's list, groups and `after.<c>` mean for the order of start and stop (S2, I7, T1, 11.3).

use pod_spec::{Condition, Link, Order, Plan, parse};

fn plan(annotations: &[(&str, &str)]) -> Plan {
    let keyed: Vec<(String, &str)> =
        annotations.iter().map(|(key, value)| (format!("podshim.io/{key}"), *value)).collect();
    let parsed = parse(keyed.iter().map(|(key, value)| (key.as_str(), *value)));
    parsed.unwrap_or_else(|invalid| panic!("{annotations:?}: {invalid}")).plan.expect("a plan")
}

/// The links of a list: `"a ready"` waits for the gate of `a`, `"a"` only ends before it.
fn show(plan: &Plan, links: &[Link]) -> Vec<String> {
    let mut shown: Vec<String> = links
        .iter()
        .map(|link| {
            let name = &plan.members[link.earlier].name;
            match link.until {
                Some(Condition::Started) => format!("{name} started"),
                Some(Condition::Ready) => format!("{name} ready"),
                Some(Condition::Done) => format!("{name} done"),
                None => name.clone(),
            }
        })
        .collect();
    shown.sort();
    shown
}

fn check(annotations: &[(&str, &str)], expected: &[(&str, &[&str])]) {
    let plan = plan(annotations);
    let order = Order::of(&plan);
    for (name, links) in expected {
        let (index, _) = plan.member(name).expect("a container of the plan");
        assert_eq!(show(&plan, &plan.links(index)), *links, "{name} in {annotations:?}");
        assert_eq!(order.links(index), plan.links(index), "{name} in {annotations:?}");
    }
}

#[test]
fn s2_i7_the_list_and_its_groups() {
    check(
        &[("plan", "i=init, a+b=sidecar, app=main, c=sidecar")],
        &[
            ("i", &[]),
            ("a", &["i done"]),
            ("b", &["i done"]),
            ("c", &["a ready", "b ready", "i done"]),
            ("app", &["a ready", "b ready", "c ready", "i done"]),
        ],
    );
}

#[test]
fn after_takes_the_place_of_the_list() {
    // `c` does not wait for `b`; members that follow the list still wait for `c`; all outlive the main (T1).
    check(
        &[
            ("plan", "a=sidecar, b=sidecar, c=sidecar, d=sidecar, app=main, web=main"),
            ("after.c", "a=started"),
            ("after.app", "c=ready"),
        ],
        &[
            ("b", &["a ready"]),
            ("c", &["a started"]),
            ("d", &["a ready", "b ready", "c ready"]),
            ("app", &["a", "b", "c ready", "d"]),
            ("web", &["a ready", "b ready", "c ready", "d ready"]),
        ],
    );
}

#[test]
fn a_stop_reverses_what_is_needed_through_others() {
    // The init in the middle has ended by then: `b` still ends before `a`.
    check(
        &[
            ("plan", "a=sidecar, i=init, b=sidecar, app=main"),
            ("after.i", "a=ready"),
            ("after.b", "i=done"),
            ("after.app", "b=ready"),
        ],
        &[("b", &["a", "i done"])],
    );
}

#[test]
fn the_list_bends_around_what_after_moves_back() {
    // `a` comes behind `c`, so members before `c` do not wait for it, and those behind `c` do.
    check(
        &[("plan", "a=sidecar, b=sidecar, c=sidecar, d=sidecar, app=main"), ("after.a", "c=ready")],
        &[
            ("a", &["b", "c ready"]),
            ("b", &[]),
            ("c", &["b ready"]),
            ("d", &["a ready", "b ready", "c ready"]),
            ("app", &["a ready", "b ready", "c ready", "d ready"]),
        ],
    );
}

#[test]
fn v1_v2_a_standby_pair_has_one_place() {
    check(
        &[
            ("plan", "a=sidecar, p|q=sidecar, b=sidecar, app=main"),
            ("after.p", "a=started"),
            ("after.b", "q=ready"),
        ],
        &[
            ("p", &["a started"]),
            ("q", &["a started"]),
            ("b", &["a", "p ready", "q ready"]),
            ("app", &["a ready", "b ready", "p ready", "q ready"]),
        ],
    );
}

#[test]
fn mains_can_be_waited_for() {
    // No main waits for what comes after a main, and every sidecar still outlives every main.
    check(
        &[
            ("plan", "a=sidecar, late=sidecar, seed=main, web=main"),
            ("after.late", "seed=started"),
            ("after.web", "seed=done"),
        ],
        &[
            ("seed", &["a ready", "late"]),
            ("late", &["a", "seed started"]),
            ("web", &["a", "late", "seed done"]),
        ],
    );
}

#[test]
fn s8_an_unnamed_main_needs_what_a_named_one_does() {
    let plan =
        plan(&[("plan", "i=init, a=sidecar, late=sidecar, web=main, *=main"), ("after.late", "web=started")]);
    assert_eq!(show(&plan, &plan.links_of_unnamed_main()), ["a ready", "i done", "late"]);
    assert_eq!(Order::of(&plan).links_of_unnamed_main(), plan.links_of_unnamed_main());
}

#[test]
fn a_gate_of_a_main_counts_when_a_container_waits_for_it() {
    let annotations = [("plan", "a=main, b=main"), ("ready.a", "tcp::80"), ("after.b", "a=ready")];
    assert!(matches!(plan(&annotations).members[0].gate, pod_spec::Gate::Probe { .. }));
}

/// U1, U2: whose gate podshim checks: that of a sidecar, as mains that `*=main` adds wait for it, and of what another
/// container waits for to be started or ready.
#[test]
fn u1_u2_gates_that_others_wait_for() {
    let awaited = |after: &str| {
        let plan = plan(&[("plan", "i=init, s=sidecar, a=main, b=main"), ("after.b", after)]);
        let order = Order::of(&plan);
        (0..plan.members.len()).map(|index| order.is_awaited(index)).collect::<Vec<_>>()
    };
    assert_eq!(awaited("a=ready"), [false, true, true, false]);
    assert_eq!(awaited("a=started"), [false, true, true, false]);
    assert_eq!(awaited("a=done"), [false, true, false, false]);
}

/// T1, S2: who needs whom, which is also the order of the stop reversed.
#[test]
fn t1_s2_who_needs_whom() {
    let plan = plan(&[("plan", "i=init, s1+s2=sidecar, app=main")]);
    let needs = |later: &str, earlier: &str| {
        let index = |name| plan.member(name).expect("a container of the plan").0;
        pod_spec::needs(&plan.links(index(later)), index(earlier))
    };
    assert!(needs("app", "s1") && needs("app", "s2") && needs("s1", "i"));
    assert!(!needs("s2", "s1") && !needs("s1", "s2") && !needs("s1", "app"));
}
