//! Rows about the order of a plan: its list, the roles that take the place of a list, and dependencies.

use super::{PLAN, check};

#[test]
fn the_list() {
    let empty = "plan: empty: write name=role entries in start order, such as \"proxy=sidecar, app=main\"";
    check(&[
        ("plan empty", &[("plan", "")], empty),
        ("plan empty, other keys present", &[("plan", " \n"), ("grace.app", "1s")], empty),
        (
            "unknown role",
            &[("plan", "proxy=sidcar, app=main")],
            r#"plan: unknown role "sidcar" in "proxy=sidcar" (did you mean "sidecar"?)"#,
        ),
        (
            "unknown role of a standby pair",
            &[("plan", "a|b=sidcar, app=main")],
            r#"plan: unknown role "sidcar" in "a|b=sidcar" (did you mean "sidecar"?)"#,
        ),
        (
            "unknown role, case",
            &[("plan", "app=Main")],
            r#"plan: unknown role "Main" in "app=Main" (did you mean "main"?)"#,
        ),
        (
            "unknown role, nothing near",
            &[("plan", "app=job")],
            r#"plan: unknown role "job" in "app=job" (one of: init, sidecar, main, none)"#,
        ),
        (
            "unknown role, two signs",
            &[("plan", "a=b=main, app=main")],
            r#"plan: unknown role "b=main" in "a=b=main" (did you mean "main"?)"#,
        ),
        (
            "role missing",
            &[("plan", "app")],
            r#"plan: "app" has no role: write name=role with init, sidecar, main or none"#,
        ),
        (
            "role missing, keys of that container are no errors",
            &[("plan", "proxy, app=main"), ("ready.proxy", "none")],
            r#"plan: "proxy" has no role: write name=role with init, sidecar, main or none"#,
        ),
        ("empty entry", &[("plan", "a=init,,app=main")], "plan: an entry is empty: remove the extra comma"),
        ("comma at the end", &[("plan", "app=main,")], "plan: an entry is empty: remove the extra comma"),
        ("duplicate name", &[("plan", "a=init, a=sidecar, app=main")], r#"plan: duplicate name "a""#),
        ("duplicate name in a group", &[("plan", "a+a=init, app=main")], r#"plan: duplicate name "a""#),
        ("duplicate alias", &[("plan", "a@x=init, b@x=init, app=main")], r#"plan: duplicate name "x""#),
        ("alias that is a name", &[("plan", "a=init, b@a=init, app=main")], r#"plan: duplicate name "a""#),
        ("alias that is its own name", &[("plan", "a@a=init, app=main")], r#"plan: duplicate name "a""#),
        (
            "none alone",
            &[("plan", "a=none")],
            r#"plan: no main container: a plan needs one, such as "app=main", or "*=main""#,
        ),
        ("none twice", &[("plan", "a=none, a=none, app=main")], r#"plan: duplicate name "a""#),
        ("none and a role", &[("plan", "a=none, a=init, app=main")], r#"plan: duplicate name "a""#),
        ("a role and none", &[("plan", "a@b=init, b=none, app=main")], r#"plan: duplicate name "b""#),
        (
            "none in a group",
            &[("plan", "a+b=none, app=main")],
            r#"plan: "a+b=none": "none" is for one container, without an alias: give each its own entry"#,
        ),
        (
            "none with an alias",
            &[("plan", "a@x=none, app=main")],
            r#"plan: "a@x=none": "none" is for one container, without an alias: give each its own entry"#,
        ),
        (
            "none of a pair",
            &[("plan", "a|b=none, app=main")],
            r#"plan: "a|b=none": "none" is for one container, without an alias: give each its own entry"#,
        ),
        ("none of others", &[("plan", "a=main, *=none")], r#"plan: "*" can only be main, not "none""#),
        (
            "none with an invalid name",
            &[("plan", "a b=none, app=main")],
            "plan: \"a b\" in \"a b=none\" is not a valid name: write at most 63 letters, digits, \"-\", \"_\" and \".\", \
             beginning and ending with a letter or digit",
        ),
        (
            "role none with an invalid name",
            &[("plan", "app=main"), ("role.a b", "none")],
            "role.a b: \"a b\" in \"role.a b\" is not a valid name: write at most 63 letters, digits, \"-\", \"_\" and \".\", \
             beginning and ending with a letter or digit",
        ),
        (
            "role none of a planned one",
            &[("plan", "a=init, b@x=init, app=main"), ("role.a", "none"), ("role.x", "none")],
            r#"role.a: "a" has another role in podshim.io/plan: remove one of the two; podshim.io/role.x: "x" has another role in podshim.io/plan: remove one of the two"#,
        ),
        (
            "keys of none",
            &[("plan", "a=none, app=main"), ("grace.a", "5s"), ("after.app", "a=done")],
            r#"grace.a: "a" is the kubelet's own ("none"), and podshim does nothing with it: remove the key; podshim.io/after.app: "a" is the kubelet's own ("none"), which runs it before the plan: remove it here"#,
        ),
        (
            "none is no plan for other keys",
            &[("role.a", "none"), ("role.b", "none"), ("grace", "5s")],
            r#"plan: missing, but podshim.io/grace is set: add the plan, such as "proxy=sidecar, app=main""#,
        ),
        (
            "a job of roles that has none",
            &[("role.a", "none"), ("role.b", "sidecar"), ("restart-policy", "Never")],
            r#"role.b: with podshim.io/restart-policy=Never podshim has to know the mains: add podshim.io/role.<container>: "main" for each"#,
        ),
        (
            "invalid name",
            &[("plan", "my app=main")],
            "plan: \"my app\" in \"my app=main\" is not a valid name: write at most 63 letters, digits, \"-\", \"_\" and \".\", \
             beginning and ending with a letter or digit",
        ),
        (
            "empty alias",
            &[("plan", "app@=main")],
            "plan: \"\" in \"app@=main\" is not a valid name: write at most 63 letters, digits, \"-\", \"_\" and \".\", \
             beginning and ending with a letter or digit",
        ),
        (
            "no main",
            &[("plan", "a=init, b=sidecar")],
            "plan: no main container: a plan needs one, such as \"app=main\", or \"*=main\"",
        ),
        ("* not last", &[("plan", "*=main, a=sidecar")], r#"plan: "*" must be the last entry"#),
        ("* twice", &[("plan", "*=main, *=main")], r#"plan: "*" must be the last entry"#),
        ("* not main", &[("plan", "a=main, *=sidecar")], r#"plan: "*" can only be main, not "sidecar""#),
        ("* without role", &[("plan", "a=main, *")], r#"plan: "*" can only be main, not """#),
        ("* in a group", &[("plan", "*+a=main")], r#"plan: "*" stands alone, not as in "*+a=main""#),
        (
            "* later in a group",
            &[("plan", "a+*=init, app=main")],
            r#"plan: "*" stands alone, not as in "a+*=init""#,
        ),
        ("* with an alias", &[("plan", "*@all=main")], r#"plan: "*" stands alone, not as in "*@all=main""#),
        (
            "group of mains",
            &[("plan", "a+b=main")],
            r#"plan: "a+b=main": mains start together anyway, give each its own entry"#,
        ),
        (
            "standby of an init",
            &[("plan", "a|b=init, app=main")],
            r#"plan: "a|b=init": only a sidecar can have a standby"#,
        ),
        (
            "two standbys",
            &[("plan", "a|b|c=sidecar, app=main")],
            r#"plan: "a|b|c=sidecar": a sidecar has one standby at most"#,
        ),
        (
            "*=main with restart-policy Never",
            &[("plan", "a=sidecar, *=main"), ("restart-policy", "Never")],
            r#"plan: "*=main" cannot be combined with podshim.io/restart-policy=Never: name each main"#,
        ),
        (
            "*=main with restart-policy OnFailure",
            &[("plan", "*=main"), ("restart-policy", "OnFailure")],
            r#"plan: "*=main" cannot be combined with podshim.io/restart-policy=OnFailure: name each main"#,
        ),
        (
            "several at once",
            &[("plan", "a=int, a=init, =main"), ("grace", "5")],
            "plan: unknown role \"int\" in \"a=int\" (did you mean \"init\"?); podshim.io/plan: duplicate name \"a\"; \
             podshim.io/plan: \"\" in \"=main\" is not a valid name: write at most 63 letters, digits, \"-\", \"_\" and \".\", \
             beginning and ending with a letter or digit; \
             podshim.io/grace: \"5\" has no unit (write \"5s\" for seconds)",
        ),
    ]);
}

#[test]
fn roles() {
    check(&[
        (
            "plan and role",
            &[PLAN, ("role.mesh", "sidecar")],
            r#"role.mesh: podshim.io/plan is set too: add "mesh" to the plan and remove the key, or replace the plan by a podshim.io/role.<container> for each init and sidecar"#,
        ),
        (
            "a job without a main",
            &[("role.mesh", "sidecar"), ("restart-policy", "Never")],
            r#"role.mesh: with podshim.io/restart-policy=Never podshim has to know the mains: add podshim.io/role.<container>: "main" for each"#,
        ),
        (
            "unknown role (with nearest)",
            &[("role.mesh", "sidcar")],
            r#"role.mesh: unknown value "sidcar" (did you mean "sidecar"?)"#,
        ),
        (
            "a role without the container",
            &[PLAN, ("role", "sidecar")],
            "role: a container is missing: write podshim.io/role.<container>",
        ),
    ]);
}

#[test]
fn dependencies() {
    let plan = ("plan", "i1=init, s1=sidecar, s2=sidecar, app=main");
    check(&[
        (
            "after an unknown container",
            &[plan, ("after.app", "s3=ready")],
            r#"after.app: no container "s3" in podshim.io/plan (did you mean "s1"?)"#,
        ),
        ("after to itself", &[plan, ("after.s1", "s1=ready")], r#"after.s1: "s1" cannot start after itself"#),
        (
            "x=done where x is a sidecar",
            &[plan, ("after.app", "s1=done")],
            r#"after.app: "s1" is a sidecar and never "done" (did you mean "s1=ready"?)"#,
        ),
        (
            "x=done where x is always restarted",
            &[("plan", "seed=main, app=main"), ("after.app", "seed=done"), ("restart.seed", "always")],
            "after.app: \"seed\" is restarted \"always\" and so never \"done\" (did you mean \"on-failure\"?)",
        ),
        (
            "unknown condition",
            &[plan, ("after.app", "s1=redy")],
            r#"after.app: unknown condition "redy" in "s1=redy" (did you mean "ready"?)"#,
        ),
        (
            "no condition",
            &[plan, ("after.app", "s1")],
            r#"after.app: "s1" is not a dependency: write container=ready, container=done or container=started"#,
        ),
        (
            "no dependency at all",
            &[plan, ("after.app", "")],
            r#"after.app: "" is not a dependency: write container=ready, container=done or container=started"#,
        ),
        ("named twice", &[plan, ("after.app", "s1=ready, s1=started")], r#"after.app: "s1" is named twice"#),
        (
            "cycle in after",
            &[plan, ("after.s1", "s2=started"), ("after.s2", "app=started"), ("after.app", "s1=ready")],
            "after.s1: cycle: s1 after s2 after app after s1",
        ),
    ]);
}
