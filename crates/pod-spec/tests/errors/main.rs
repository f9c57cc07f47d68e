//! A row for every error and warning line of 11.4, named after it, with the exact message, and a row for every wrong
//! form of a value. Messages are part of the interface: people read them in `kubectl describe`.

mod codes;
mod gates;
mod limits;
mod order;

use pod_spec::parse;

/// The message that answers a create with these annotations (keys without the prefix).
fn message(annotations: &[(&str, &str)]) -> String {
    let keyed: Vec<(String, &str)> =
        annotations.iter().map(|(key, value)| (format!("podshim.io/{key}"), *value)).collect();
    match parse(keyed.iter().map(|(key, value)| (key.as_str(), *value))) {
        Ok(parsed) => panic!("{annotations:?} is valid: {parsed:?}"),
        Err(invalid) => invalid.to_string(),
    }
}

/// A row: what 11.4 calls it, the annotations, the message without the prefix of its first key.
type Row<'a> = (&'a str, &'a [(&'a str, &'a str)], &'a str);

fn check(rows: &[Row<'_>]) {
    for (name, annotations, expected) in rows {
        assert_eq!(message(annotations), format!("podshim.io/{expected}"), "{name}");
    }
}

const PLAN: (&str, &str) = ("plan", "fetch=init, proxy=sidecar, app=main");

#[test]
fn keys() {
    check(&[
        (
            "unknown key (with nearest)",
            &[PLAN, ("garce", "1s")],
            r#"garce: unknown key (did you mean "podshim.io/grace"?)"#,
        ),
        (
            "unknown key of a container (with nearest)",
            &[PLAN, ("redy.proxy", "none")],
            r#"redy.proxy: unknown key (did you mean "podshim.io/ready.proxy"?)"#,
        ),
        (
            "unknown key that is nearly one of a container",
            &[PLAN, ("prestop", "exec:true")],
            r#"prestop: unknown key (did you mean "podshim.io/pre-stop.<container>"?)"#,
        ),
        ("unknown key, nothing near", &[PLAN, ("colour", "red")], "colour: unknown key"),
        ("unknown key, empty", &[PLAN, ("", "x")], ": unknown key"),
        ("unknown key, on one line", &[PLAN, ("a\n\u{2028}b", "x")], r"a\n\u{2028}b: unknown key"),
        (
            "a container's key without the container",
            &[PLAN, ("ready", "none")],
            "ready: a container is missing: write podshim.io/ready.<container>",
        ),
        (
            "a container's key with an empty container",
            &[PLAN, ("ready.", "none")],
            "ready.: a container is missing: write podshim.io/ready.<container>",
        ),
        (
            "a pod's key with a container",
            &[PLAN, ("exit-codes.proxy", "real")],
            r#"exit-codes.proxy: "exit-codes" is a key of the whole pod: write podshim.io/exit-codes"#,
        ),
        (
            "name in key.<c> not in plan",
            &[PLAN, ("ready.prxy", "none")],
            r#"ready.prxy: no container "prxy" in podshim.io/plan (did you mean "proxy"?)"#,
        ),
        (
            "name in key.<c> not in plan, nothing near",
            &[PLAN, ("grace.database", "1s")],
            r#"grace.database: no container "database" in podshim.io/plan"#,
        ),
        (
            "name in key.<c> not in plan, its value wrong too",
            &[PLAN, ("grace.prxy", "1")],
            "grace.prxy: no container \"prxy\" in podshim.io/plan (did you mean \"proxy\"?); \
             podshim.io/grace.prxy: \"1\" has no unit (write \"1s\" for seconds)",
        ),
        (
            "a key by name and by alias",
            &[("plan", "proxy@px=sidecar, app=main"), ("grace.px", "1s"), ("grace.proxy", "2s")],
            "grace.px: the same container is set by podshim.io/grace.proxy too: keep one of the two",
        ),
        (
            "plan empty but other keys present (plan missing)",
            &[("grace", "10s")],
            "plan: missing, but podshim.io/grace is set: add the plan, such as \"proxy=sidecar, app=main\"",
        ),
        (
            "plan missing, other keys still checked but for names",
            &[("ready.proxy", "htp:"), ("restart-policy", "never")],
            "plan: missing, but podshim.io/ready.proxy is set: add the plan, such as \"proxy=sidecar, app=main\"; \
             podshim.io/ready.proxy: unknown gate \"htp\" (did you mean \"http:\"?); \
             podshim.io/restart-policy: unknown value \"never\" (did you mean \"Never\"?)",
        ),
        ("plan misspelt", &[("plna", "app=main")], r#"plna: unknown key (did you mean "podshim.io/plan"?)"#),
    ]);
}

#[test]
fn values_of_the_pod() {
    check(&[
        (
            "unknown restart-policy",
            &[PLAN, ("restart-policy", "never")],
            r#"restart-policy: unknown value "never" (did you mean "Never"?)"#,
        ),
        (
            "unknown restart-policy, nothing near",
            &[PLAN, ("restart-policy", "sometimes")],
            r#"restart-policy: unknown value "sometimes" (one of: Always, OnFailure, Never)"#,
        ),
        (
            "unknown zero-grace",
            &[PLAN, ("zero-grace", "")],
            r#"zero-grace: unknown value "" (one of: obey, order)"#,
        ),
        (
            "unknown exit-codes",
            &[PLAN, ("exit-codes", "maskd")],
            r#"exit-codes: unknown value "maskd" (did you mean "masked"?)"#,
        ),
        (
            "exit-codes=real in a job that is restarted by codes",
            &[PLAN, ("exit-codes", "real"), ("restart-policy", "OnFailure")],
            r#"exit-codes: "real" cannot be used with restart-policy OnFailure: the kubelet restarts by these codes, and the job would never end (did you mean "masked"?)"#,
        ),
        ("grace < 0", &[PLAN, ("grace", "-1s")], r#"grace: "-1s" is negative"#),
        (
            "grace without unit",
            &[PLAN, ("grace", "30")],
            r#"grace: "30" has no unit (write "30s" for seconds)"#,
        ),
        (
            "grace of 0 without unit",
            &[PLAN, ("grace", "0")],
            r#"grace: "0" has no unit (write "0s" for seconds)"#,
        ),
        ("grace too long", &[PLAN, ("grace", "9000h")], r#"grace: "9000h" is longer than a year (8760h)"#),
        ("gate-timeout < 0", &[PLAN, ("gate-timeout", "-1s")], r#"gate-timeout: "-1s" is negative"#),
        (
            "gate-timeout in days",
            &[PLAN, ("gate-timeout", "1d")],
            r#"gate-timeout: unknown unit "d" in "1d" (one of: h, m, s, ms, us, ns)"#,
        ),
        (
            "zero-grace=order without sidecar",
            &[("plan", "app=main"), ("zero-grace", "order")],
            r#"zero-grace: "order" needs a sidecar in podshim.io/plan, there is none"#,
        ),
        (
            "a priority that is no number, without a plan",
            &[("drain-priority", "high")],
            r#"drain-priority: "high" is no priority: write a whole number, such as 1000; pods with a lower one end first"#,
        ),
        (
            "a priority that is too large",
            &[PLAN, ("drain-priority", "3000000000")],
            r#"drain-priority: "3000000000" is no priority: write a whole number, such as 1000; pods with a lower one end first"#,
        ),
        (
            "a priority of a container",
            &[PLAN, ("drain-priority.app", "7")],
            r#"drain-priority.app: "drain-priority" is a key of the whole pod: write podshim.io/drain-priority"#,
        ),
        (
            "a restart of a container without its name, which is no request either",
            &[PLAN, ("restart", "on-failure;limit=3")],
            r#"restart: a container is missing: write podshim.io/restart.<container>"#,
        ),
    ]);
}

#[test]
fn values_of_a_container() {
    check(&[
        (
            "init with ready.",
            &[PLAN, ("ready.fetch", "none")],
            r#"ready.fetch: "fetch" is an init container: it has no "ready""#,
        ),
        (
            "init with pre-stop.",
            &[PLAN, ("pre-stop.fetch", "exec:true")],
            r#"pre-stop.fetch: "fetch" is an init container: it has no "pre-stop""#,
        ),
        (
            "init with grace.",
            &[PLAN, ("grace.fetch", "1s")],
            r#"grace.fetch: "fetch" is an init container: it has no "grace""#,
        ),
        (
            "init with restart.=always",
            &[PLAN, ("restart.fetch", "always")],
            "restart.fetch: \"fetch\" is an init container: with \"always\" it would never be done \
             (did you mean \"on-failure\"?)",
        ),
        (
            "fatal on init (already is)",
            &[PLAN, ("fatal.fetch", "exit")],
            r#"fatal.fetch: "fetch" is an init container: its failure already fails the pod, remove the key"#,
        ),
        (
            "limit of a fatal end that restarts nothing",
            &[PLAN, ("fatal.proxy", "failure;limit=2")],
            r#"fatal.proxy: "failure" has no options: only "restart" has a limit (did you mean "restart;limit=5"?)"#,
        ),
        (
            "fatal restart without one restart",
            &[PLAN, ("fatal.app", "restart;limit=0")],
            r#"fatal.app: limit: "0" is not a number of at least 1"#,
        ),
        (
            "unknown option of fatal",
            &[PLAN, ("fatal.app", "restart;limits=3")],
            r#"fatal.app: unknown option "limits" (did you mean "limit"?)"#,
        ),
        (
            "fatal restart of a failure that is always restarted",
            &[PLAN, ("restart.app", "on-failure"), ("fatal.app", "restart")],
            "fatal.app: no exit would ever be fatal: podshim.io/restart.app restarts the container after each; \
             add a limit to it, or remove one of the two keys",
        ),
        (
            "unknown fatal word",
            &[PLAN, ("fatal.app", "restarts")],
            r#"fatal.app: unknown value "restarts" (did you mean "restart"?)"#,
        ),
        (
            "unknown fatal",
            &[PLAN, ("fatal.proxy", "failur")],
            r#"fatal.proxy: unknown value "failur" (did you mean "failure"?)"#,
        ),
        (
            "grace.<c> > grace",
            &[PLAN, ("grace", "10s"), ("grace.proxy", "1m30s")],
            "grace.proxy: 1m30s is longer than podshim.io/grace: write at most 10s, or raise podshim.io/grace",
        ),
        (
            "reserve > grace",
            &[PLAN, ("grace", "10s"), ("reserve", "12s")],
            "reserve: 12s is longer than podshim.io/grace: write at most 10s, or raise podshim.io/grace",
        ),
        ("grace.<c> < 0", &[PLAN, ("grace.proxy", "-1s")], r#"grace.proxy: "-1s" is negative"#),
        (
            "unknown stop-signal",
            &[PLAN, ("stop-signal.app", "SIGQIT")],
            r#"stop-signal.app: unknown signal "SIGQIT" (did you mean "QUIT"?)"#,
        ),
        (
            "stop-signal KILL",
            &[PLAN, ("stop-signal.app", "9")],
            "stop-signal.app: no program can handle SIGKILL, so it cannot be a stop signal: \
             write another, such as SIGTERM",
        ),
        (
            "stop-signal STOP",
            &[PLAN, ("stop-signal.app", "STOP")],
            "stop-signal.app: no program can handle SIGSTOP, so it cannot be a stop signal: \
             write another, such as SIGTERM",
        ),
        (
            "hook without exec",
            &[PLAN, ("pre-stop.proxy", "/bin/drain")],
            r#"pre-stop.proxy: "/bin/drain" is no hook: write "exec:<command>""#,
        ),
        (
            "hook with an unclosed quote",
            &[PLAN, ("on-terminate.proxy", "exec:sh -c 'drain")],
            "on-terminate.proxy: the quote ' is never closed",
        ),
        (
            "hook with shell syntax",
            &[PLAN, ("on-terminate.proxy", "exec:drain; sleep 5")],
            "on-terminate.proxy: quote the \";\": no shell reads this command (or write sh -c '...')",
        ),
        (
            "migrate without a standby",
            &[PLAN, ("migrate.proxy", "exec:true")],
            "migrate.proxy: \"proxy\" has no standby to take over from: write the pair as \"proxy|other=sidecar\"",
        ),
        (
            "after on a standby",
            &[("plan", "a=sidecar, p|q=sidecar, app=main"), ("after.q", "a=ready")],
            r#"after.q: "q" is the standby of "p" and has its place in the order: write podshim.io/after.p"#,
        ),
        (
            "after its own pair",
            &[("plan", "p|q=sidecar, app=main"), ("after.p", "q=ready")],
            r#"after.p: "q" cannot start after itself"#,
        ),
        (
            "unknown restart",
            &[PLAN, ("restart.proxy", "onfailure")],
            r#"restart.proxy: unknown value "onfailure" (did you mean "on-failure"?)"#,
        ),
        (
            "unknown restart option",
            &[PLAN, ("restart.proxy", "always;limt=3")],
            r#"restart.proxy: unknown option "limt" (did you mean "limit"?)"#,
        ),
        (
            "restart limit",
            &[PLAN, ("restart.proxy", "always;limit=-1")],
            r#"restart.proxy: limit: "-1" is not a number of at least 0"#,
        ),
        (
            "restart max below base",
            &[PLAN, ("restart.proxy", "always;base=2m")],
            "restart.proxy: max=1m is shorter than base=2m",
        ),
        (
            "restart base too short",
            &[PLAN, ("restart.proxy", "always;base=0s")],
            "restart.proxy: base: 0s is too short, at least 100ms",
        ),
        (
            "fatal failure that is always restarted",
            &[PLAN, ("restart.proxy", "on-failure"), ("fatal.proxy", "failure")],
            "fatal.proxy: no exit would ever be fatal: podshim.io/restart.proxy restarts the container after each; \
             add a limit to it, or remove one of the two keys",
        ),
        (
            "fatal exit that is always restarted",
            &[PLAN, ("restart.proxy", "always"), ("fatal.proxy", "exit")],
            "fatal.proxy: no exit would ever be fatal: podshim.io/restart.proxy restarts the container after each; \
             add a limit to it, or remove one of the two keys",
        ),
    ]);
}
