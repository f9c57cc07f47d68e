//! A row for every valid form of 11.2 and 11.3 that is implemented, with what the plan then holds; and the warnings of
//! 11.4, which never refuse a pod.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use log_pattern::Pattern;
use pod_spec::{
    Backoff, CodeSet, ExitCodes, Fatal, Gate, GateAction, Others, Parsed, Plan, ProbeTiming, Restart,
    RestartMode, RestartPolicy, Role, Signal, ZeroGrace, parse,
};

fn parsed(annotations: &[(&str, &str)]) -> Parsed {
    let keyed: Vec<(String, &str)> =
        annotations.iter().map(|(key, value)| (format!("podshim.io/{key}"), *value)).collect();
    parse(keyed.iter().map(|(key, value)| (key.as_str(), *value)))
        .unwrap_or_else(|invalid| panic!("{annotations:?}: {invalid}"))
}

fn plan(annotations: &[(&str, &str)]) -> Plan {
    parsed(annotations).plan.expect("a plan")
}

fn warnings(annotations: &[(&str, &str)]) -> Vec<String> {
    parsed(annotations).warnings.iter().map(ToString::to_string).collect()
}

/// N11: it is no part of a plan, and needs none.
#[test]
fn n11_a_drain_priority_needs_no_plan() {
    assert_eq!(parsed(&[("drain-priority", "1000")]).plan, None);
    let list = ("plan", "proxy=sidecar, app=main");
    assert_eq!(plan(&[list, ("drain-priority", "-7")]), plan(&[list]));
}

/// R14: it is no part of a plan, and needs none.
#[test]
fn r14_a_request_for_a_restart_needs_no_plan() {
    assert_eq!(parsed(&[("restart", "2026-12-01T03:00:00Z")]).plan, None);
    let list = ("plan", "proxy=sidecar, app=main");
    assert_eq!(plan(&[list, ("restart", "1")]), plan(&[list]));
}

/// Name, role and entry of every member.
fn members(plan: &Plan) -> Vec<(&str, Role, usize)> {
    plan.members.iter().map(|member| (member.name.as_str(), member.role, member.entry)).collect()
}

fn gate(value: &str) -> Gate {
    let plan = plan(&[("plan", "proxy=sidecar, app=main"), ("ready.proxy", value)]);
    plan.members[0].gate.clone()
}

fn probe(action: GateAction) -> Gate {
    Gate::Probe { action, timing: ProbeTiming::default() }
}

fn tcp(host: Option<IpAddr>, port: u16) -> Gate {
    probe(GateAction::Tcp { host, port })
}

fn http(host: Option<IpAddr>, port: u16, path: &str) -> Gate {
    probe(GateAction::Http { host, port, path: path.to_owned() })
}

fn at(host: impl Into<IpAddr>) -> Option<IpAddr> {
    Some(host.into())
}

fn grpc(service: &str) -> Gate {
    probe(GateAction::Grpc { port: 50051, service: service.to_owned() })
}

fn log(pattern: &str) -> Gate {
    probe(GateAction::Log(Pattern::parse(pattern).expect("a pattern")))
}

fn exec(arguments: &[&str]) -> Gate {
    probe(GateAction::Exec(arguments.iter().map(ToString::to_string).collect()))
}

#[test]
fn s1_a_pod_without_our_keys_has_no_plan() {
    for annotations in [
        &[][..],
        &[
            ("io.kubernetes.cri.container-type", "sandbox"),
            ("podshim.iox/plan", "x"),
            ("example/podshim.io/plan", ""),
        ],
    ] {
        assert_eq!(parse(annotations.iter().copied()), Ok(Parsed::default()));
    }
}

#[test]
fn s2_the_list_is_the_start_order() {
    let plan = plan(&[("plan", "i1=init,s1=sidecar , i2 = init,\n s2=sidecar,app=main,web=main")]);
    assert_eq!(
        members(&plan),
        [
            ("i1", Role::Init, 0),
            ("s1", Role::Sidecar, 1),
            ("i2", Role::Init, 2),
            ("s2", Role::Sidecar, 3),
            ("app", Role::Main, 4),
            ("web", Role::Main, 5),
        ]
    );
    assert_eq!(plan.others, Others::Passthrough);
    assert_eq!(
        (
            plan.settings.restart_policy,
            plan.settings.grace,
            plan.settings.gate_timeout,
            plan.settings.zero_grace,
            plan.settings.exit_codes
        ),
        (RestartPolicy::Always, None, None, ZeroGrace::Obey, ExitCodes::Masked)
    );
    assert!(plan.members.iter().all(|m| m.gate == Gate::Running && m.grace.is_none() && m.alias.is_none()));
}

#[test]
fn i7_members_of_a_group_share_their_entry() {
    let plan = plan(&[("plan", "a + b=init, c+d@x+e=sidecar, app=main")]);
    assert_eq!(
        members(&plan),
        [
            ("a", Role::Init, 0),
            ("b", Role::Init, 0),
            ("c", Role::Sidecar, 1),
            ("d", Role::Sidecar, 1),
            ("e", Role::Sidecar, 1),
            ("app", Role::Main, 2),
        ]
    );
}

#[test]
fn s8_all_others_can_be_mains() {
    let annotations = [("plan", "proxy=sidecar, *=main")];
    assert_eq!(plan(&annotations).others, Others::Mains);
    assert_eq!(members(&plan(&annotations)), [("proxy", Role::Sidecar, 0)]);
    assert_eq!(warnings(&annotations), Vec::<String>::new());
    assert_eq!(plan(&[("plan", "*=main")]).members, []);
}

#[test]
fn s8_a_key_of_an_unnamed_main_names_it() {
    let annotations = [("plan", "proxy=sidecar, *=main"), ("grace.web", "5s"), ("stop-signal.web", "QUIT")];
    let plan = plan(&annotations);
    assert_eq!(members(&plan), [("proxy", Role::Sidecar, 0), ("web", Role::Main, 1)]);
    assert_eq!(plan.members[1].grace, Some(Duration::from_secs(5)));
    assert_eq!(plan.members[1].stop_signal, Some(Signal::QUIT));
    assert_eq!(warnings(&annotations), Vec::<String>::new());
}

/// S8, K1: a word in the list, and a role beside a list as beside other roles, say the same.
#[test]
fn s8_found_k1_none_is_the_kubelets_own() {
    let by_list = plan(&[("plan", "istio-init=none, proxy=sidecar, load=none, *=main")]);
    assert_eq!(members(&by_list), [("proxy", Role::Sidecar, 1)]);
    let own = ["istio-init", "load", "debugger-7xk2p"];
    assert_eq!(own.map(|name| by_list.makes_main_of(name)), [false; 3]);
    assert_eq!(["web", "proxy"].map(|name| by_list.makes_main_of(name)), [true, false]);
    let named: Vec<&String> = by_list.kubelets_own.named.iter().collect();
    assert_eq!(named, ["istio-init", "load"]);
    let roles = [("role.istio-init", "none"), ("role.load", " none "), ("role.proxy", "sidecar")];
    assert_eq!(plan(&roles).kubelets_own, by_list.kubelets_own);
    let beside = [("plan", "proxy=sidecar, *=main"), roles[0], roles[1]];
    assert_eq!(plan(&beside), plan(&roles));
    // Said twice it is said once.
    assert_eq!(plan(&[("plan", "a=none, app=main"), ("role.a", "none")]).kubelets_own.named.len(), 1);
    let job = plan(&[("role.a", "none"), ("role.app", "main"), ("restart-policy", "Never")]);
    assert_eq!((members(&job), job.others), (vec![("app", Role::Main, 0)], Others::Passthrough));
    // A role of the plan wins over the names that are known everywhere.
    let named = plan(&[("plan", "vault-agent-init=init, *=main")]);
    assert_eq!(members(&named), [("vault-agent-init", Role::Init, 0)]);
    let by_key = plan(&[("plan", "*=main"), ("grace.debugger-ui", "5s")]);
    assert_eq!(members(&by_key), [("debugger-ui", Role::Main, 0)]);
}

/// S8: which containers are the kubelet's own is no plan, and no reason to refuse a job without one.
#[test]
fn s8_found_k1_none_alone_is_no_plan() {
    let annotations = [("podshim.io/role.istio-init", "none"), ("podshim.io/drain-priority", "5")];
    let parsed = parse(annotations).expect("valid");
    assert_eq!((parsed.plan, parsed.kubelets_own.len()), (None, 1));
}

/// Each kind has its own bound of 64.
#[test]
fn s8_found_k1_as_many_as_planned_ones() {
    let names = |word: &str| (0..64).map(|number| format!("{word}{number}={word}")).collect::<Vec<_>>();
    let list = [names("none"), names("init"), vec!["*=main".to_owned()]].concat();
    let plan = plan(&[("plan", &list.join(","))]);
    assert_eq!((plan.members.len(), plan.kubelets_own.named.len()), (64, 64));
}

#[test]
fn an_alias_stands_for_its_name_in_keys() {
    let plan = plan(&[
        ("plan", "a-name-much-too-long-for-the-key-on-terminate-in-kubernetes@px=sidecar, app=main"),
        ("ready.px", "none"),
        ("grace.a-name-much-too-long-for-the-key-on-terminate-in-kubernetes", "2s"),
    ]);
    let proxy = &plan.members[0];
    assert_eq!(proxy.alias.as_deref(), Some("px"));
    assert_eq!((&proxy.gate, proxy.grace), (&Gate::Skip, Some(Duration::from_secs(2))));
    assert!(plan.member("px").is_none(), "containers are known by name only");
}

#[test]
fn names_may_be_what_ctr_allows() {
    let plan = plan(&[("plan", "My.App_2-x=main"), ("grace.My.App_2-x", "1s")]);
    assert_eq!(plan.members[0].grace, Some(Duration::from_secs(1)));
}

#[test]
fn the_pods_keys() {
    let base = ("plan", "proxy=sidecar, app=main");
    for (value, policy) in [
        ("Always", RestartPolicy::Always),
        ("OnFailure", RestartPolicy::OnFailure),
        (" Never ", RestartPolicy::Never),
    ] {
        assert_eq!(plan(&[base, ("restart-policy", value)]).settings.restart_policy, policy);
    }
    for (value, grace) in
        [("0s", 0), ("10s", 10_000), ("1h30m", 5_400_000), ("1.5s", 1_500), (" 2s\n", 2_000)]
    {
        assert_eq!(plan(&[base, ("grace", value)]).settings.grace, Some(Duration::from_millis(grace)));
    }
    for (value, timeout) in [("0", None), ("0s", None), ("5s", Some(Duration::from_secs(5)))] {
        assert_eq!(plan(&[base, ("gate-timeout", value)]).settings.gate_timeout, timeout, "{value}");
    }
    for (value, zero_grace) in [("obey", ZeroGrace::Obey), ("order", ZeroGrace::Order)] {
        assert_eq!(plan(&[base, ("zero-grace", value)]).settings.zero_grace, zero_grace);
    }
    for (value, exit_codes) in [("masked", ExitCodes::Masked), ("real", ExitCodes::Real)] {
        assert_eq!(plan(&[base, ("exit-codes", value)]).settings.exit_codes, exit_codes);
    }
}

#[test]
fn gates() {
    for (value, expected) in [
        ("running", Gate::Running),
        ("none", Gate::Skip),
        ("tcp::80", tcp(None, 80)),
        ("tcp:127.0.0.1:80", tcp(at(Ipv4Addr::LOCALHOST), 80)),
        ("tcp:10.1.2.3:65535", tcp(at(Ipv4Addr::new(10, 1, 2, 3)), 65535)),
        ("tcp:[::1]:1", tcp(at(Ipv6Addr::LOCALHOST), 1)),
        ("http::15021/healthz/ready", http(None, 15021, "/healthz/ready")),
        ("http:[::1]:80/?a=b", http(at(Ipv6Addr::LOCALHOST), 80, "/?a=b")),
        ("grpc:50051", grpc("")),
        ("grpc: 50051/shop.v1.Cart ;fail=30", grpc("shop.v1.Cart")),
        ("log:^ready\\; .*$", log(r"^ready\; .*$")),
        ("log: listening on [0-9]+ ; fail=30", log("listening on [0-9]+")),
        ("notify", probe(GateAction::Notify)),
        ("file:/run/ready", probe(GateAction::File("/run/ready".to_owned()))),
        ("exec:test -f /tmp/x", exec(&["test", "-f", "/tmp/x"])),
        ("exec: sh -c 'a; b' ", exec(&["sh", "-c", "a; b"])),
        (r#"exec:["sh", "-c", "a; b"]"#, exec(&["sh", "-c", "a; b"])),
    ] {
        assert_eq!(gate(value), expected, "{value}");
    }
}

#[test]
fn probe_options_in_any_order() {
    let expected = ProbeTiming {
        delay: Duration::from_secs(2),
        period: Duration::from_millis(100),
        timeout: Duration::from_secs(3),
        failures: 4,
        successes: 5,
    };
    for value in [
        "tcp::80;delay=2s;period=100ms;timeout=3s;fail=4;ok=5",
        "tcp::80 ; ok = 5 ;fail=4; timeout=3s; delay=2s;period=100ms",
        "exec:test -f '/a;b';ok=5;fail=4;timeout=3s;delay=2s;period=100ms",
        r#"exec:["true"];ok=5;fail=4;timeout=3s;delay=2s;period=100ms"#,
    ] {
        let Gate::Probe { timing, .. } = gate(value) else { panic!("{value} is a probe") };
        assert_eq!(timing, expected, "{value}");
    }
}

#[test]
fn t8_a_containers_grace_fits_into_the_pods() {
    let base = ("plan", "proxy=sidecar, app=main");
    let plan = plan(&[base, ("grace", "10s"), ("grace.proxy", "10s"), ("grace.app", "0s")]);
    assert_eq!(plan.members[0].grace, Some(Duration::from_secs(10)));
    assert_eq!(plan.members[1].grace, Some(Duration::ZERO));
}

/// H1, H2: every container of the plan may have hooks; an init no `pre-stop` (I6).
#[test]
fn h1_h2_hooks_are_commands() {
    let plan = plan(&[
        ("plan", "fetch=init, proxy=sidecar, app=main"),
        ("on-terminate.fetch", "exec:true"),
        ("on-terminate.proxy", "exec:drain --now 'a b'"),
        ("pre-stop.app", r#"exec:["sh", "-c", "a; b"]"#),
    ]);
    let words = |words: &[&str]| Some(words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>());
    let [fetch, proxy, app] = &plan.members[..] else { panic!("three members") };
    assert_eq!((&fetch.on_terminate, &fetch.pre_stop), (&words(&["true"]), &None));
    assert_eq!((&proxy.on_terminate, &proxy.pre_stop), (&words(&["drain", "--now", "a b"]), &None));
    assert_eq!((&app.on_terminate, &app.pre_stop), (&None, &words(&["sh", "-c", "a; b"])));
}

#[test]
fn r4_restarts_and_their_delays() {
    let restart = |value| {
        let plan = plan(&[("plan", "proxy=sidecar, app=main"), ("restart.proxy", value)]);
        plan.members[0].restart.expect("a restart")
    };
    for (value, mode) in [
        ("never", RestartMode::Never),
        ("on-failure", RestartMode::OnFailure),
        ("always", RestartMode::Always),
        ("visible", RestartMode::Visible),
    ] {
        let expected = Restart { mode, codes: CodeSet::FAILURES, backoff: Backoff::default(), limit: None };
        assert_eq!(restart(value), expected, "{value}");
    }
    let expected = Restart {
        mode: RestartMode::OnFailure,
        codes: CodeSet::FAILURES,
        backoff: Backoff {
            first: Duration::from_secs(2),
            base: Duration::from_millis(100),
            max: Duration::from_secs(5),
        },
        limit: Some(3),
    };
    assert_eq!(restart("on-failure;first=2s;base=100ms;max=5s;limit=3"), expected);
    assert_eq!(restart("on-failure ; limit = 3; max=5s;base=100ms;first=2s"), expected);
}

#[test]
fn r13_restarts_by_exit_code() {
    let restart = |value: &str| {
        let plan = plan(&[("plan", "proxy=sidecar, app=main"), ("restart.app", value)]);
        plan.members[1].restart.expect("a restart")
    };
    for (value, codes) in [
        ("on-failure;codes=42", "42"),
        ("on-failure;codes=1,42,100-110", "1,42,100-110"),
        ("on-failure ; codes = 100 - 110 , 42 , 1", "1,42,100-110"),
        // What is named twice counts once.
        ("on-failure;codes=1,1-5,3-9,42", "1-9,42"),
        ("on-failure;codes=0,255", "0,255"),
        ("on-failure;codes=0-254", "0-254"),
        ("on-failure;not=42", "1-41,43-255"),
        ("on-failure;not=0,1-254", "255"),
        ("on-failure;not=0", "1-255"),
    ] {
        let restart = restart(&value.replace(" - ", "-"));
        assert_eq!(
            (restart.mode, restart.codes.to_string()),
            (RestartMode::OnFailure, codes.to_owned()),
            "{value}"
        );
    }
    let all = restart("on-failure;limit=3;codes=7;base=5s");
    assert_eq!(
        (all.limit, all.backoff.base, all.codes.to_string()),
        (Some(3), Duration::from_secs(5), "7".to_owned())
    );
    // As many as are allowed.
    let twenty: Vec<_> = (0..20).map(|code| (code * 3).to_string()).collect();
    assert_eq!(restart(&format!("on-failure;codes={}", twenty.join(","))).codes.ranges().count(), 20);
}

#[test]
fn r13_r9_another_code_may_be_fatal_or_done() {
    let plan = plan(&[
        ("plan", "proxy=sidecar, app=main, next=main"),
        ("fatal.proxy", "failure"),
        ("restart.proxy", "on-failure;codes=42"),
        ("fatal.next", "exit"),
        ("restart.next", "on-failure;codes=0,42"),
        ("after.next", "app=done"),
        ("restart.app", "on-failure;not=42"),
    ]);
    assert_eq!(plan.members[0].fatal, Some(Fatal::Failure));
}

#[test]
fn r14_a_fatal_exit_may_restart_the_pod() {
    let plan = plan(&[
        ("plan", "proxy=sidecar, app=main, other=main"),
        ("fatal.proxy", "restart"),
        ("fatal.app", " restart ; limit = 2 "),
        ("restart.app", "on-failure;not=42"),
    ]);
    assert_eq!(plan.members[0].fatal, Some(Fatal::Restart { limit: Fatal::RESTARTS }));
    assert_eq!(plan.members[1].fatal, Some(Fatal::Restart { limit: 2 }));
    assert!(plan.members.iter().any(|member| member.restarts_the_pod()));
    let keys = plan.to_annotations();
    let written = ["podshim.io/fatal.proxy", "podshim.io/fatal.app"].map(|key| keys[key].as_str());
    assert_eq!(written, ["restart", "restart;limit=2"]);
    let plan = self::plan(&[("plan", "proxy=sidecar, app=main"), ("fatal.proxy", "failure")]);
    assert!(!plan.members.iter().any(|member| member.restarts_the_pod()));
}

#[test]
fn r9_a_fatal_exit_may_come_after_the_last_restart() {
    let plan = plan(&[
        ("plan", "proxy=sidecar, app=main"),
        ("fatal.proxy", "failure"),
        ("restart.proxy", "on-failure;limit=2"),
        ("fatal.app", "exit"),
    ]);
    assert_eq!(plan.members[0].fatal, Some(Fatal::Failure));
    assert_eq!(plan.members[1].fatal, Some(Fatal::Exit));
}

#[test]
fn k7_stop_signals() {
    for (value, signal) in [
        ("QUIT", Signal::QUIT),
        ("SIGHUP", Signal::HUP),
        ("15", Signal::TERM),
        ("SIGRTMIN+3", Signal::RTMIN_PLUS_3),
    ] {
        let plan =
            plan(&[("plan", "i=init, app=main"), ("stop-signal.app", value), ("stop-signal.i", value)]);
        assert_eq!(plan.members[0].stop_signal, Some(signal));
        assert_eq!(plan.members[1].stop_signal, Some(signal));
    }
}

#[test]
fn sixty_four_containers_and_all_others_are_allowed() {
    let list = (1..=64).map(|n| format!("c{n}=sidecar,")).collect::<String>() + "*=main";
    assert_eq!(plan(&[("plan", &list)]).members.len(), 64);
}

#[test]
fn warnings_of_11_4() {
    let base = ("plan", "proxy=sidecar, app=main");
    let none: Vec<String> = Vec::new();
    assert_eq!(
        warnings(&[base, ("ready.app", "tcp::80")]),
        [r#"podshim.io/ready.app: nothing waits for main "app", its gate has no effect"#]
    );
    assert_eq!(
        warnings(&[base, ("exit-codes", "real")]),
        [
            r#"podshim.io/exit-codes: "real" changes nothing with restart-policy Always: callers restart on every exit code"#
        ]
    );
    assert_eq!(warnings(&[base, ("exit-codes", "real"), ("restart-policy", "Never")]), none);
    assert_eq!(warnings(&[base, ("reserve", "3s")]), none);
    assert_eq!(
        warnings(&[("plan", "app=main"), ("reserve", "3s")]),
        ["podshim.io/reserve: the plan has no sidecar that could stop after the mains, it has no effect"]
    );
    assert_eq!(
        warnings(&[("plan", "app=main, *=main")]),
        [r#"podshim.io/plan: "app" is a main by "*=main" already"#]
    );
    assert_eq!(
        warnings(&[("plan", "proxy=sidecar, *=main"), ("grace.prxy", "1s")]),
        [
            r#"podshim.io/grace.prxy: "prxy" is not in the plan and counts as a main of "*=main" (did you mean "proxy"?)"#
        ]
    );
}

#[test]
fn a_main_has_no_gate_even_if_one_is_written() {
    let plan = plan(&[("plan", "app=main"), ("ready.app", "tcp::80")]);
    assert_eq!(plan.members[0].gate, Gate::Running);
    let plan = self::plan(&[("plan", "a=main, b=main"), ("ready.a", "tcp::80"), ("after.b", "a=started")]);
    assert_eq!(plan.members[0].gate, Gate::Running);
}

/// S10: the same plan as the list in the documented order, whatever the order of the keys.
#[test]
fn s10_roles_are_a_plan_that_is_written_container_by_container() {
    let by_role = [
        ("role.b-log", "sidecar"),
        ("role.a-mesh", " sidecar "),
        ("role.z-setup", "init"),
        ("after.a-mesh", "b-log=ready"),
        ("ready.b-log", "tcp::1"),
    ];
    let mut by_list = vec![("plan", "z-setup=init, a-mesh=sidecar, b-log=sidecar, *=main")];
    by_list.extend_from_slice(&by_role[3..]);
    let expected = plan(&by_list);
    assert_eq!(plan(&by_role), expected);
    let mut reversed = by_role;
    reversed.reverse();
    assert_eq!(plan(&reversed), expected);
    assert_eq!(warnings(&by_role), Vec::<String>::new());
}

/// S11: without a named main all others are mains; with one, or in a job, the mains are those that are named.
#[test]
fn s11_a_named_main_names_all_mains() {
    assert_eq!(plan(&[("role.a", "sidecar")]).others, Others::Mains);
    let job = plan(&[("role.a", "sidecar"), ("role.work", "main"), ("restart-policy", "Never")]);
    assert_eq!(job, plan(&[("plan", "a=sidecar, work=main"), ("restart-policy", "Never")]));
}
