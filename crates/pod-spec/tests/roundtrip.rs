//! Properties of the whole vocabulary: what a plan writes is read as the same plan; nothing that a pod author writes
//! makes the parser panic, or answer with a message that does not name the key.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use log_pattern::Pattern;
use pod_spec::{
    Backoff, CodeSet, Condition, Defaults, Dependency, ExitCodes, Fatal, Gate, GateAction, KubeletsOwn, Link,
    Member, OomScore, Others, Plan, ProbeTiming, Restart, RestartMode, RestartPolicy, Role, Settings, Signal,
    Source, Warning, ZeroGrace, limits, parse,
};
use proptest::collection::{btree_set, vec};
use proptest::option;
use proptest::prelude::*;

fn duration(least: Duration, most: Duration) -> impl Strategy<Value = Duration> {
    let nanoseconds = |d: Duration| u64::try_from(d.as_nanos()).expect("at most a year");
    // Round numbers, as people write them.
    let unit = prop::sample::select(vec![1, 1_000, 1_000_000, 1_000_000_000_u64]);
    (nanoseconds(least)..=nanoseconds(most), unit)
        .prop_map(move |(n, unit)| Duration::from_nanos((n / unit * unit).max(nanoseconds(least))))
}

fn name() -> impl Strategy<Value = String> {
    "[a-zA-Z0-9]([a-zA-Z0-9._-]{0,61}[a-zA-Z0-9])?"
}

fn host() -> impl Strategy<Value = IpAddr> {
    prop_oneof![
        Just(IpAddr::from([127, 0, 0, 1])),
        any::<[u8; 4]>().prop_map(IpAddr::from),
        any::<[u16; 8]>().prop_map(IpAddr::from),
    ]
    .prop_filter("unicast", |host| {
        let host = host.to_canonical();
        !host.is_unspecified() && !host.is_multicast() && host != IpAddr::from([255; 4])
    })
}

fn command() -> impl Strategy<Value = Vec<String>> {
    ("[^\0]{1,8}", vec("[^\0]{0,12}", 0..4)).prop_map(|(program, mut arguments)| {
        arguments.insert(0, program);
        arguments
    })
}

fn action() -> impl Strategy<Value = GateAction> {
    prop_oneof![
        command().prop_map(GateAction::Exec),
        (option::of(host()), 1..=u16::MAX).prop_map(|(host, port)| GateAction::Tcp { host, port }),
        (option::of(host()), 1..=u16::MAX, "/[!-:<-~]{0,12}")
            .prop_map(|(host, port, path)| GateAction::Http { host, port, path }),
        (1..=u16::MAX, option::of("[a-zA-Z.][!-:<-~]{0,12}"))
            .prop_map(|(port, service)| { GateAction::Grpc { port, service: service.unwrap_or_default() } }),
        "/([^\0;]{0,12}[!-:<-~])?".prop_map(GateAction::File),
        r"\^?[a-z](\\;|[a-z ]|\.\*|\\d\+|é|[0-9]\{2\}){0,4}[a-z]\$?"
            .prop_map(|text| GateAction::Log(Pattern::parse(&text).expect("a pattern"))),
        Just(GateAction::Notify),
    ]
}

fn timing() -> impl Strategy<Value = ProbeTiming> {
    let most = limits::MAX_DURATION;
    (
        duration(Duration::ZERO, most),
        duration(limits::MIN_PROBE_PERIOD, most),
        duration(limits::MIN_PROBE_TIMEOUT, most),
        1..=u32::MAX,
        1..=u32::MAX,
    )
        .prop_map(|(delay, period, timeout, failures, successes)| ProbeTiming {
            delay,
            period,
            timeout,
            failures,
            successes,
        })
}

fn gate() -> impl Strategy<Value = Gate> {
    prop_oneof![
        Just(Gate::Running),
        Just(Gate::Skip),
        (action(), prop_oneof![Just(ProbeTiming::default()), timing()]).prop_map(|(action, mut timing)| {
            if action.is_waited_for() {
                let ProbeTiming { timeout, successes, .. } = ProbeTiming::default();
                timing = ProbeTiming { timeout, successes, ..timing };
            }
            Gate::Probe { action, timing }
        }),
    ]
}

fn stop_signal() -> impl Strategy<Value = Signal> {
    (1..=64_u32).prop_filter_map("a program can handle it", |number| {
        Signal::new(number).filter(|signal| ![Signal::KILL, Signal::STOP].contains(signal))
    })
}

/// What few ranges can say, by `codes` or by `not`.
fn codes() -> impl Strategy<Value = CodeSet> {
    let range =
        (any::<u8>(), 0..9_u8).prop_map(|(first, more)| CodeSet::range(first, first.saturating_add(more)));
    let ranges = vec(range, 1..20).prop_map(|ranges| ranges.into_iter().fold(CodeSet::EMPTY, CodeSet::or));
    let missing = ranges.clone().prop_map(|ranges| CodeSet::FAILURES.without(ranges));
    prop_oneof![Just(CodeSet::FAILURES), ranges, missing]
}

fn restart() -> impl Strategy<Value = Restart> {
    let mode = prop_oneof![
        Just(RestartMode::Never),
        Just(RestartMode::OnFailure),
        Just(RestartMode::Always),
        Just(RestartMode::Visible),
    ];
    let most = limits::MAX_DURATION;
    let backoff =
        (duration(Duration::ZERO, most), duration(limits::MIN_BACKOFF, most), duration(Duration::ZERO, most))
            .prop_map(|(first, base, max)| Backoff { first, base, max: max.max(base) });
    let mode = (mode, codes()).prop_map(|(mode, codes)| {
        (mode, if mode == RestartMode::OnFailure { codes } else { CodeSet::FAILURES })
    });
    (mode, prop_oneof![Just(Backoff::default()), backoff], option::of(any::<u32>()))
        .prop_map(|((mode, codes), backoff, limit)| Restart { mode, codes, backoff, limit })
}

fn fatal() -> impl Strategy<Value = Fatal> {
    let limit = prop_oneof![Just(Fatal::RESTARTS), 1..=u32::MAX];
    prop_oneof![Just(Fatal::Failure), Just(Fatal::Exit), limit.prop_map(|limit| Fatal::Restart { limit })]
}

/// A container before it has its place in the list.
fn member() -> impl Strategy<Value = Member> {
    let role = prop_oneof![Just(Role::Init), Just(Role::Sidecar), Just(Role::Main)];
    let grace = option::of(duration(Duration::ZERO, Duration::from_secs(100)));
    let hooks = (option::of(command()), option::of(command()));
    let ends = (option::of(restart()), option::of(fatal()));
    (name(), option::of(name()), role, gate(), grace, option::of(stop_signal()), hooks, ends).prop_map(
        |(name, alias, role, gate, grace, stop_signal, (on_terminate, pre_stop), (restart, fatal))| Member {
            name,
            alias,
            role,
            entry: 0,
            after: None,
            pair: None,
            gate: if role == Role::Sidecar { gate } else { Gate::Running },
            restart: restart.filter(|it| role != Role::Init || !it.codes().contains(0)),
            // Only an exit that is shown can be fatal.
            fatal: fatal
                .filter(|_| role != Role::Init && restart.is_none_or(|restart| restart.limit.is_some())),
            grace: if role == Role::Init { None } else { grace },
            stop_signal,
            on_terminate,
            pre_stop: if role == Role::Init { None } else { pre_stop },
            migrate: None,
        },
    )
}

/// Puts containers into a list; `joins[i]` says whether container `i` joins the group before it, if it can.
fn arrange(members: Vec<Member>, joins: &[Join]) -> Vec<Member> {
    let mut words = BTreeSet::new();
    let mut arranged: Vec<Member> = Vec::new();
    for (mut member, join) in members.into_iter().zip(joins) {
        if !words.insert(member.name.clone()) {
            continue;
        }
        member.alias = member.alias.filter(|alias| words.insert(alias.clone()));
        member.entry = match arranged.last() {
            None => 0,
            Some(last) if *join == Join::Group && last.role == member.role && member.role != Role::Main => {
                last.entry
            }
            Some(last) => last.entry + 1,
        };
        arranged.push(member);
    }
    arranged
}

/// Makes a standby pair of two neighbouring sidecars that share an entry (V1).
fn pair_up(members: &mut [Member], migrate: Option<Vec<String>>) {
    let neighbours = |index: &usize| {
        let (one, other) = (&members[*index], &members[index + 1]);
        one.role == Role::Sidecar && one.entry == other.entry
    };
    if let Some(first) = (0..members.len().saturating_sub(1)).find(neighbours) {
        (members[first].pair, members[first + 1].pair) = (Some(first + 1), Some(first));
        members[first + 1].migrate = migrate;
    }
}

/// Gives containers dependencies: all on containers before them, or all on containers behind them, so that there is no
/// circle. `links[i]` are choices for container `i`.
fn connect(members: &mut [Member], links: &[Vec<(usize, Condition)>], direction: Direction) {
    for index in 0..members.len() {
        let mut dependencies: Vec<Dependency> = Vec::new();
        for (choice, condition) in &links[index] {
            let member = match direction {
                Direction::Backwards => choice % (index + 1),
                Direction::Forwards => index + choice % (members.len() - index),
            };
            let member = members[member].pair.map_or(member, |other| other.min(member));
            let own = members[index].pair.map_or(index, |other| other.min(index));
            if member == own || dependencies.iter().any(|other| other.member == member) {
                continue;
            }
            let is_sidecar = members[member].role == Role::Sidecar;
            let unending = members[member].restart.is_some_and(|restart| restart.limit.is_none());
            let condition = match condition {
                Condition::Done if is_sidecar || unending => Condition::Ready,
                condition => *condition,
            };
            dependencies.push(Dependency { member, condition });
        }
        // The first one's keys give the order of a pair.
        members[index].after = match members[index].pair.filter(|first| *first < index) {
            Some(first) => members[first].after.clone(),
            None => (!dependencies.is_empty()).then_some(dependencies),
        };
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    Backwards,
    Forwards,
}

fn links() -> impl Strategy<Value = Vec<Vec<(usize, Condition)>>> {
    let condition = prop_oneof![Just(Condition::Started), Just(Condition::Ready), Just(Condition::Done)];
    vec(prop_oneof![2 => Just(Vec::new()), 1 => vec((0..64_usize, condition), 1..4)], 12)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Join {
    Group,
    NewEntry,
}

prop_compose! {
    fn plan()(
        members in vec(member(), 1..12),
        joins in vec(prop_oneof![Just(Join::Group), Just(Join::NewEntry)], 12),
        others in prop_oneof![Just(Others::Passthrough), Just(Others::Mains)],
        restart_policy in prop_oneof![
            Just(RestartPolicy::Always), Just(RestartPolicy::OnFailure), Just(RestartPolicy::Never)
        ],
        grace in option::of(duration(Duration::from_secs(100), limits::MAX_DURATION)),
        reserve in option::of(duration(Duration::ZERO, Duration::from_secs(100))),
        gate_timeout in option::of(duration(Duration::from_nanos(1), limits::MAX_DURATION)),
        zero_grace in prop_oneof![Just(ZeroGrace::Obey), Just(ZeroGrace::Order)],
        exit_codes in prop_oneof![Just(ExitCodes::Masked), Just(ExitCodes::Real)],
        oom_score in prop_oneof![Just(OomScore::Own), Just(OomScore::Protect)],
        migrate in option::of(command()),
        links in links(),
        direction in prop_oneof![Just(Direction::Backwards), Just(Direction::Forwards)],
        named in btree_set("own-[a-z]{1,4}", 0..3),
    ) -> Plan {
        let mut members = arrange(members, &joins);
        // A plan has a main (S4): if there is none, the last container becomes one.
        if others == Others::Passthrough
            && !members.iter().any(|member| member.role == Role::Main)
            && let Some(mut last) = members.pop()
        {
            last.role = Role::Main;
            last.gate = Gate::Running;
            last.fatal = None;
            last.entry = members.last().map_or(0, |before| before.entry + 1);
            members.push(last);
        }
        pair_up(&mut members, migrate);
        connect(&mut members, &links, direction);
        let restart_policy = if others == Others::Mains { RestartPolicy::Always } else { restart_policy };
        // J10: the two exclude each other.
        let exit_codes =
            if restart_policy == RestartPolicy::OnFailure { ExitCodes::Masked } else { exit_codes };
        // "order" needs a sidecar (11.4).
        let has_sidecar = members.iter().any(|member| member.role == Role::Sidecar);
        let zero_grace = if has_sidecar { zero_grace } else { ZeroGrace::Obey };
        let reserve = reserve.filter(|_| has_sidecar);
        let (source, defaults) = (Source::Annotations, Defaults::default());
        let settings = Settings {
            source, restart_policy, grace, reserve, gate_timeout, zero_grace, exit_codes, oom_score, defaults
        };
        Plan { members, others, kubelets_own: KubeletsOwn { named, listed: Vec::new() }, settings }
    }
}

/// Text that is close enough to the vocabulary to reach every branch.
fn value() -> impl Strategy<Value = String> {
    let fragment = prop_oneof![
        "[ ,;:=+|@*./0-9a-z-]{0,6}",
        any::<String>(),
        prop::sample::select(vec![
            "proxy",
            "app",
            "init",
            "sidecar",
            "main",
            "*",
            "=main",
            ",",
            ";",
            ":",
            "=",
            "exec:",
            "tcp:",
            "http:",
            "log:",
            "file:",
            "notify",
            "(a|b)+",
            "[^a-z]",
            "running",
            "none",
            "[",
            "]",
            "\"",
            "'",
            "\\",
            "127.0.0.1",
            "[::1]",
            ":80",
            "period",
            "ok",
            "fail",
            "1s",
            "-5m",
            "99999999999999999999h",
            "ready",
            "done",
            "started",
            "always",
            "never",
            "limit=3",
            "SIGTERM",
            "RTMIN+",
            "64",
            "Never",
            "order",
            "real",
        ])
        .prop_map(str::to_owned),
    ];
    vec(fragment, 0..8).prop_map(|fragments| fragments.concat())
}

fn key() -> impl Strategy<Value = String> {
    let word = prop::sample::select(vec![
        "plan",
        "restart-policy",
        "grace",
        "reserve",
        "gate-timeout",
        "zero-grace",
        "exit-codes",
        "oom-score",
        "drain-priority",
        "ready",
        "after",
        "restart",
        "on-terminate",
        "pre-stop",
        "stop-signal",
        "fatal",
        "redy",
    ]);
    let name =
        prop_oneof!["[a-z.]{0,5}", prop::sample::select(vec!["proxy", "app", "px"]).prop_map(str::to_owned)];
    prop_oneof![
        8 => (word.clone(), name).prop_map(|(word, name)| format!("{word}.{name}")),
        4 => word.prop_map(str::to_owned),
        1 => any::<String>(),
    ]
}

fn list() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("proxy@px=sidecar, app=main".to_owned()),
        Just("fetch=init, proxy@px=sidecar, *=main".to_owned()),
        value(),
    ]
}

proptest! {
    #[test]
    fn a_plan_is_read_as_it_was_written(plan in plan()) {
        let annotations = plan.to_annotations();
        let parsed = parse(annotations.iter().map(|(key, value)| (key.as_str(), value.as_str())));
        let parsed = parsed.map_err(|invalid| TestCaseError::fail(format!("{annotations:?}: {invalid}")))?;
        prop_assert_eq!(parsed.plan, Some(plan));
        let expected = |warning: &Warning| {
            matches!(warning, Warning::RealCodesAlways { .. } | Warning::NamedMainAndOthers { .. })
        };
        let unexpected: Vec<String> =
            parsed.warnings.iter().filter(|warning| !expected(warning)).map(ToString::to_string).collect();
        prop_assert_eq!(unexpected, Vec::<String>::new());
    }

    /// 11.3: whatever `after` says, some container can always start next, and the list's order bends around it.
    #[test]
    fn the_order_of_a_plan_has_no_circle(plan in plan()) {
        let links: Vec<_> = (0..plan.members.len()).map(|member| plan.links(member)).collect();
        let mut started = BTreeSet::new();
        while started.len() < links.len() {
            let next = (0..links.len()).find(|member| {
                let waits = |link: &&Link| link.until.is_some() && !started.contains(&link.earlier);
                !started.contains(member) && links[*member].iter().find(waits).is_none()
            });
            prop_assert!(next.is_some(), "only {started:?} can start: {links:?}");
            started.extend(next);
        }
    }

    #[test]
    fn any_annotations_give_a_plan_or_errors_that_name_their_keys(
        list in option::of(list()),
        mut annotations in vec((key(), value()), 0..6),
    ) {
        annotations.extend(list.map(|list| ("plan".to_owned(), list)));
        let keyed: Vec<(String, String)> =
            annotations.into_iter().map(|(key, value)| (format!("podshim.io/{key}"), value)).collect();
        match parse(keyed.iter().map(|(key, value)| (key.as_str(), value.as_str()))) {
            Ok(parsed) => {
                // N11, R14.
                let need_none = ["podshim.io/drain-priority", "podshim.io/restart"];
                let has_none = keyed.iter().all(|(key, _)| need_none.contains(&key.as_str()));
                prop_assert_eq!(parsed.plan.is_none(), has_none);
                if let Some(plan) = parsed.plan {
                    let written = plan.to_annotations();
                    let again = parse(written.iter().map(|(key, value)| (key.as_str(), value.as_str())));
                    prop_assert_eq!(again.map(|parsed| parsed.plan), Ok(Some(plan)));
                }
            }
            Err(invalid) => {
                let message = invalid.to_string();
                prop_assert!(!message.chars().any(char::is_control), "one line: {message:?}");
                for error in invalid.errors().iter().take(limits::MAX_LISTED_ERRORS) {
                    prop_assert!(message.contains(&error.to_string()));
                    // A missing plan is the one error about a key that is not in the input.
                    let written = keyed.iter().any(|(key, _)| printable(key) == error.key);
                    prop_assert!(written || error.key == "podshim.io/plan", "{error}");
                }
            }
        }
    }
}

/// A key as messages show it.
fn printable(key: &str) -> String {
    if key.len() > 96 + "podshim.io/".len() {
        let end =
            (0..=96 + "podshim.io/".len()).rev().find(|end| key.is_char_boundary(*end)).expect("0 is one");
        return printable(&key[..end]) + "...";
    }
    key.chars()
        .flat_map(|c| if matches!(c, '"' | '\'' | '\\') { vec![c] } else { c.escape_debug().collect() })
        .collect()
}
