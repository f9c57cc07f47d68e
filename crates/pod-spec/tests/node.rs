//! What a node's file may contain, every error in it, and its effect on a pod's annotations.

use std::time::Duration;

use pod_spec::{Node, PREFIX, Parsed, SandboxMaker, ZeroGrace};

fn node(text: &str) -> Node {
    Node::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn pod(node: &Node, keys: &[(&str, &str)]) -> Result<Parsed, String> {
    let keys: Vec<_> = keys.iter().map(|(key, value)| (format!("{PREFIX}{key}"), *value)).collect();
    node.parse_pod(keys.iter().map(|(key, value)| (key.as_str(), *value))).map_err(|error| error.to_string())
}

const PLAN: (&str, &str) = ("plan", "proxy=sidecar, app=main");

/// DESIGN §5: an error names line, key and nearest valid word.
#[test]
fn a_bad_file_names_line_key_and_nearest_word() {
    for (text, expected) in [
        ("gate-timout = \"5s\"", r#"line 1: unknown key "gate-timout" (did you mean "gate-timeout"?)"#),
        ("# a comment\n\ngrace = 30", "line 3: grace: must be a string in quotes"),
        ("grace = \"30\"", r#"line 1: grace: "30" has no unit (write "30s" for seconds)"#),
        ("zero-grace = \"ordr\"", r#"line 1: zero-grace: unknown word "ordr" (did you mean "order"?)"#),
        (
            "forbid = [\"exec:\", \"prestop\"]",
            r#"line 1: forbid: unknown word "prestop" (did you mean "pre-stop"?)"#,
        ),
        ("forbid = \"exec:\"", r#"line 1: forbid: must be a list of strings, such as ["grace"]"#),
        ("fixed = [\"grace\"]", r#"line 1: fixed: unknown word "grace" (one of: gate-timeout, zero-grace)"#),
        ("read = \"kruise\"", r#"line 1: read: must be a list of strings, such as ["kruise"]"#),
        (
            "kubelets-own = [\"a b\"]",
            "line 1: kubelets-own: must be a list of container names, or of beginnings such as \"debugger-*\"",
        ),
        (
            "kubelets-own = [\"*\"]",
            "line 1: kubelets-own: must be a list of container names, or of beginnings such as \"debugger-*\"",
        ),
        (
            "kubelets-own = \"load\"",
            "line 1: kubelets-own: must be a list of container names, or of beginnings such as \"debugger-*\"",
        ),
        ("read = [\"kruse\"]", r#"line 1: read: unknown word "kruse" (did you mean "kruise"?)"#),
        ("max-containers = 0", "line 1: max-containers: must be between 1 and 64"),
        ("max-pattern = 1000", "line 1: max-pattern: must be between 16 and 512"),
        ("min-backoff = \"1ms\"", "line 1: min-backoff: must be between 100ms and 1h"),
        ("min-period = \"1ms\"", "line 1: min-period: must be between 100ms and 1h"),
        ("replace-wait = \"0s\"", "line 1: replace-wait: must be between 1s and 24h"),
        ("lone-stop-window = \"2m\"", "line 1: lone-stop-window: must be between 100ms and 1m"),
        ("min-drain-priority = 1", "line 1: min-drain-priority: must be between -2147483648 and 0"),
        ("min-drain-priority = \"low\"", "line 1: min-drain-priority: must be a number"),
        ("visible-after = \"5\"", "line 1: visible-after: must be a number"),
        ("visible-after = -1", "line 1: visible-after: must be between 0 and 4294967295"),
        (
            "backoff-base = \"10s\"\nbackoff-max = \"1s\"",
            "line 2: backoff-max: is shorter than backoff-base (10s)",
        ),
        (
            "backoff-max = \"5s\"\nbackoff-base = \"10s\"",
            "line 2: backoff-base: is longer than backoff-max (5s)",
        ),
        ("backoff-base = \"2m\"", "line 1: backoff-base: is longer than backoff-max (1m)"),
        ("[limits]", r#"line 1: expected `Key = value`, found "[limits]""#),
        (
            "forbid = [\"exec:\" \"tcp:\"]",
            "line 1: forbid: cannot read [\"exec:\" \"tcp:\"]: a string in quotes, true, false, a whole number or a \
             list of strings is expected",
        ),
        (
            "grace = \"5s\"\nforbid = [\n  \"exec:\",\nmax-grace = \"1m\"",
            "line 2: forbid: cannot read [: a string in quotes, true, false, a whole number or a list of strings is \
             expected",
        ),
        (
            "forbid = [\"exec:\", \"tcp\n:\"]",
            "line 1: forbid: cannot read [\"exec:\", \"tcp: a string in quotes, true, false, a whole number or a list \
             of strings is expected",
        ),
        (
            "forbid = [\n  \"exec:\",\n] x\ngrace = \"5s\"",
            "line 1: forbid: cannot read [: a string in quotes, true, false, a whole number or a list of strings is \
             expected",
        ),
        ("forbid = [\n  \"exec:\",\n]\n\ngrace = 5", "line 5: grace: must be a string in quotes"),
    ] {
        assert_eq!(Node::parse(text).expect_err(text).to_string(), expected);
    }
}

/// DESIGN §5: a TOML list may continue over several lines, with comments and a comma at the end.
#[test]
fn a_list_may_go_on_over_several_lines() {
    let expected = node("forbid = [\"exec:\", \"fatal\"]\ngrace = \"5s\"");
    for list in [
        "[\n  \"exec:\",\n  \"fatal\",\n]",
        "[\r\n\t\"exec:\"\r\n\t, # commands\r\n\r\n\t# and = [more\r\n\t'fatal'\r\n] # all\r",
        "[ \"exec:\",\n\"fatal\" ]",
    ] {
        assert_eq!(node(&format!("forbid = {list}\ngrace = \"5s\"")), expected, "{list}");
    }
}

/// The delays are compared when both are known.
#[test]
fn the_order_of_the_lines_does_not_matter() {
    let delays = ["backoff-base = \"200ms\"", "backoff-max = \"500ms\""];
    let [one, other] = [node(&delays.join("\n")), node(&format!("{}\n{}", delays[1], delays[0]))];
    assert_eq!(one, other);
}

#[test]
fn what_a_pod_does_not_say_the_node_says() {
    let node = node(
        "grace = \"5s\"  # of podshim's own stops\ngate-timeout = \"1m\"\nzero-grace = 'order'\nbackoff-base = \"2s\"\n\
         backoff-max = \"8s\"",
    );
    let plan = pod(&node, &[PLAN]).expect("a pod").plan.expect("a plan");
    assert_eq!((plan.settings.grace, plan.settings.defaults.grace), (None, Duration::from_secs(5)));
    assert_eq!(
        (plan.settings.gate_timeout, plan.settings.zero_grace),
        (Some(Duration::from_secs(60)), ZeroGrace::Order)
    );
    assert_eq!(plan.settings.defaults.backoff.base, Duration::from_secs(2));
    let usual = (
        plan.settings.defaults.replace_wait,
        plan.settings.defaults.lone_stop_window,
        plan.settings.defaults.visible_after,
    );
    assert_eq!(usual, (Duration::from_secs(300), Duration::from_secs(2), Some(5)));
    let own = [PLAN, ("gate-timeout", "0"), ("zero-grace", "obey"), ("restart.proxy", "always;limit=3")];
    let plan = pod(&node, &own).expect("a pod").plan.expect("a plan");
    assert_eq!((plan.settings.gate_timeout, plan.settings.zero_grace), (None, ZeroGrace::Obey));
    assert_eq!(plan.members[0].restart.map(|restart| restart.backoff.max), Some(Duration::from_secs(8)));
    // Without a sidecar there is no order to keep, which is no error.
    let plan = pod(&node, &[("plan", "app=main")]).expect("a pod").plan.expect("a plan");
    assert_eq!(plan.settings.zero_grace, ZeroGrace::Obey);
}

/// N11: a pod that names a lower one takes no time of a drain from the others, unless the node lets it.
#[test]
fn n11_found_h8_a_node_says_how_low_a_pod_may_go() {
    let usual = Node::default();
    assert_eq!([-5, 0, 1000].map(|own| usual.drain_priority(own)), [0, 0, 1000]);
    let low = node("min-drain-priority = -10");
    assert_eq!([-11, -10, -5, 7].map(|own| low.drain_priority(own)), [-10, -10, -5, 7]);
}

/// 11.2, DESIGN §6: what a node forbids is refused in a pod without a plan too, where the key needs none.
#[test]
fn n11_found_h8_a_node_forbids_a_key_that_needs_no_plan() {
    for (key, value) in [("drain-priority", "-1"), ("restart", "2026-12-01T03:00:00Z")] {
        let node = node(&format!("forbid = [\"{key}\"]"));
        let refused = pod(&node, &[(key, value)]).expect_err("forbidden").to_string();
        assert_eq!(refused, format!("podshim.io/{key}: \"{key}\" is forbidden on this node"));
        pod(&node, &[]).expect("it says nothing");
        pod(&Node::default(), &[(key, value)]).expect("allowed");
    }
}

/// S10: `none` is no role.
#[test]
fn s10_a_node_that_forbids_roles_allows_none() {
    let node = node("forbid = [\"role\"]");
    pod(&node, &[("role.init", "none")]).expect("no role");
    pod(&node, &[PLAN, ("role.init", "none")]).expect("no role beside a plan");
    let refused = pod(&node, &[("role.app", "main")]).expect_err("forbidden").to_string();
    assert_eq!(refused, "podshim.io/role.app: \"role\" is forbidden on this node");
}

/// T15, T16, R12: what only the node sets.
#[test]
fn how_long_a_caller_may_take() {
    let text = "replace-wait = \"10m\"\nlone-stop-window = \"4s\"\nvisible-after = 0";
    let defaults = pod(&node(text), &[PLAN]).expect("a pod").plan.expect("a plan").settings.defaults;
    let found = (defaults.replace_wait, defaults.lone_stop_window, defaults.visible_after);
    assert_eq!(found, (Duration::from_secs(600), Duration::from_secs(4), None));
    let defaults =
        pod(&node("visible-after = 9"), &[PLAN]).expect("a pod").plan.expect("a plan").settings.defaults;
    assert_eq!(defaults.visible_after, Some(9));
}

/// What containerd sets by itself, and no request of the Sandbox API has.
#[test]
fn the_node_sets_sysctls_of_pods_networks() {
    let text = "sandbox-sysctls = [\"net.ipv4.ip_unprivileged_port_start=0\", \"net.ipv4.ping_group_range = 0 2147483647\"]";
    let expected =
        [("net.ipv4.ip_unprivileged_port_start", "0"), ("net.ipv4.ping_group_range", "0 2147483647")];
    let expected = expected.map(|(name, value)| (name.to_owned(), value.to_owned()));
    assert_eq!(Node::parse(text).unwrap().sandbox_sysctls(), expected);
    for wrong in ["\"net.x=1\"", "[\"kernel.panic=1\"]", "[\"net.x\"]", "[\"net.x=\"]", "[1]"] {
        let error = Node::parse(&format!("sandbox-sysctls = {wrong}")).unwrap_err().to_string();
        assert!(error.starts_with("line 1: "), "{error}");
    }
}

/// What runs the containers of all pods.
#[test]
fn the_node_names_the_oci_runtime() {
    for program in ["crun", "/opt/bin/youki"] {
        let node = Node::parse(&format!("oci-runtime = {program:?}")).unwrap();
        assert_eq!(node.oci_runtime(), Some(program));
    }
    assert_eq!(Node::default().oci_runtime(), None);
    for wrong in ["\"\"", "\"bin/crun\"", "\"crun --debug\"", "\"-x\"", "[\"crun\"]"] {
        let error = Node::parse(&format!("oci-runtime = {wrong}")).unwrap_err().to_string();
        assert!(error.starts_with("line 1: oci-runtime: must be "), "{error}");
    }
}

/// What is no matter of a pod: how much is kept of ended pods, and who makes sandboxes.
#[test]
fn what_the_node_keeps_and_who_makes_sandboxes() {
    let text = "history-size = 1048576\nhistory-age = \"1h\"\nsandbox = \"runtime\"";
    let node = node(text);
    assert_eq!((node.history().size, node.history().age), (1 << 20, Duration::from_secs(3600)));
    assert_eq!(node.sandbox_maker(), SandboxMaker::Runtime);
}

#[test]
fn sizes_are_written_as_in_kubernetes() {
    for (size, bytes) in [("\"3Ki\"", 3 << 10), ("\"2Mi\"", 2 << 20), ("\"1Gi\"", 1 << 30), ("0", 0)] {
        assert_eq!(node(&format!("history-size = {size}")).history().size, bytes, "{size}");
    }
    for wrong in ["\"3\"", "\"3M\"", "\"-3Mi\"", "-3", "true", "\"99999999999Gi\""] {
        let error = Node::parse(&format!("history-size = {wrong}")).expect_err(wrong).to_string();
        assert_eq!(error, "line 1: history-size: must be a size, such as \"64Mi\"", "{wrong}");
    }
}

/// Bounds are inclusive, and keys of a pod may be forbidden, but for its plan.
#[test]
fn what_is_just_allowed() {
    assert_eq!(
        node("backoff-base = \"5s\"\nbackoff-max = \"5s\""),
        node("backoff-max = \"5s\"\nbackoff-base = \"5s\"")
    );
    let bounds = node("max-grace = \"1m\"\nmin-period = \"1s\"\nforbid = [\"exit-codes\"]");
    pod(&bounds, &[PLAN, ("grace", "1m"), ("ready.proxy", "tcp::80;period=1s")]).expect("at the bounds");
    pod(&bounds, &[PLAN, ("exit-codes", "real")]).expect_err("forbidden");
    let bounds = node("min-backoff = \"2s\"");
    pod(&bounds, &[PLAN, ("restart.proxy", "always;base=2s;max=9s")]).expect("at the bound");
    let pattern = [PLAN, ("ready.proxy", "log:(a|b|c|d|e)+ x")];
    pod(&node("max-pattern = 31"), &pattern).expect("at the bound");
    pod(&node("max-pattern = 30"), &pattern).expect_err("one step more");
    Node::parse("forbid = [\"plan\"]").expect_err("without a plan there is nothing to forbid");
}

/// DESIGN §6.
#[test]
fn what_the_node_forbids_fixes_or_bounds_is_refused() {
    let node = node(
        "forbid = [\"exec:\", \"fatal\"]\nfixed = [\"zero-grace\"]\nmax-grace = \"1m\"\nmax-containers = 2\n\
         min-period = \"1s\"\nmin-backoff = \"2s\"\nmax-pattern = 20",
    );
    for (keys, expected) in [
        (
            &[PLAN, ("ready.proxy", "exec:true")][..],
            r#"podshim.io/ready.proxy: "exec:" is forbidden on this node"#,
        ),
        (
            &[PLAN, ("pre-stop.app", "exec:true")],
            r#"podshim.io/pre-stop.app: "exec:" is forbidden on this node"#,
        ),
        (&[PLAN, ("fatal.proxy", "exit")], r#"podshim.io/fatal.proxy: "fatal" is forbidden on this node"#),
        (&[PLAN, ("zero-grace", "obey")], "podshim.io/zero-grace: is fixed on this node: remove the key"),
        (&[PLAN, ("grace", "2m")], "podshim.io/grace: this node allows at most 1m"),
        (&[PLAN, ("grace.proxy", "2m")], "podshim.io/grace.proxy: this node allows at most 1m"),
        (&[PLAN, ("reserve", "2m")], "podshim.io/reserve: this node allows at most 1m"),
        (
            &[("plan", "a=sidecar, b=sidecar, c=main")],
            "podshim.io/plan: this node allows at most 2 containers",
        ),
        (
            &[PLAN, ("ready.proxy", "tcp::80;period=500ms")],
            "podshim.io/ready.proxy: this node allows a period of at least 1s",
        ),
        (
            &[PLAN, ("restart.proxy", "always;base=500ms")],
            "podshim.io/restart.proxy: this node allows a base of at least 2s",
        ),
        (
            &[PLAN, ("ready.proxy", "log:(a|b|c|d|e)+ x")],
            "podshim.io/ready.proxy: this node allows a pattern of at most 20 steps (this one has 31)",
        ),
    ] {
        assert_eq!(pod(&node, keys).expect_err(expected), expected);
    }
    let plan = pod(&node, &[PLAN, ("grace", "1m"), ("ready.proxy", "tcp::80"), ("restart.proxy", "always")]);
    let plan = plan.expect("a pod").plan.expect("a plan");
    assert_eq!(plan.members[0].restart.map(|restart| restart.backoff.base), Some(Duration::from_secs(2)));
    assert_eq!(plan.settings.defaults.backoff.base, Duration::from_secs(2));
    assert_eq!(plan.settings.defaults.grace, Duration::from_secs(30));
    assert_eq!(pod(&node, &[]).expect("a pod").plan, None);
}

/// DESIGN §6, issue 18: the node forbids what the parser reads. The parser ignored a blank before the colon, and the
/// check did not see such a value.
#[test]
fn a_blank_does_not_get_around_what_is_forbidden() {
    let all = node(r#"forbid = ["exec:", "tcp:", "http:", "log:", "file:", "notify"]"#);
    for value in [
        "exec :true",
        "tcp ::80",
        "http\t::80/",
        "log :a",
        "file\u{a0}:/x",
        " notify ;period=1s",
        "exec:true",
    ] {
        let word = value.trim().split([' ', '\t', '\u{a0}', ':']).next().expect("a word");
        let error = pod(&all, &[PLAN, ("ready.proxy", value)]).expect_err(value);
        assert!(error.contains(word) && error.ends_with("is forbidden on this node"), "{value}: {error}");
    }
    // A value that only begins with the same letters is not forbidden.
    let plan = [("plan", "notify=sidecar, app=main"), ("ready.notify", "running")];
    assert!(pod(&all, &plan).is_ok());
    // The largest possible grace, with and without a bound of the node.
    assert_eq!(node("max-grace = \"10s\"").longest_grace(), Duration::from_secs(10));
    assert_eq!(all.longest_grace(), pod_spec::limits::MAX_DURATION);
    let plan = pod(&node("max-grace = \"10s\""), &[PLAN]).expect("a pod").plan.expect("a plan");
    assert_eq!(plan.settings.defaults.grace, Duration::from_secs(10));
}

/// S8: the node's names are added to those that are known everywhere, and a role of the plan wins over both.
#[test]
fn s8_found_k1_the_nodes_own_names() {
    let node = Node::parse("kubelets-own = [\"load\", \"copy-*\"]").expect("a node's file");
    let pod = |list: &str| node.parse_pod([("podshim.io/plan", list)]).expect("valid").plan.expect("a plan");
    let names = ["load", "copy-x", "loader", "linkerd-init", "debugger-abcde", "web"];
    let all = pod("proxy=sidecar, *=main");
    assert_eq!(names.map(|name| all.makes_main_of(name)), [false, false, true, false, false, true]);
    assert_eq!(
        pod("load=init, *=main").member("load").map(|(_, load)| load.role),
        Some(pod_spec::Role::Init)
    );
}
