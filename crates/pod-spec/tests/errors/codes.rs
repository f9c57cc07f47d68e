//! What can be wrong with exit codes of `restart.<c>` (R13).

use super::{PLAN, check};

#[test]
fn r13_exit_codes() {
    let many: Vec<_> = (0..21).map(|code| (code * 2).to_string()).collect();
    let many = format!("on-failure;codes={}", many.join(","));
    check(&[
        (
            "no code",
            &[PLAN, ("restart.app", "on-failure;codes=1,256")],
            r#"restart.app: codes: "256" is no exit code: write 0 to 255, or a range such as 100-110"#,
        ),
        (
            "a sign",
            &[PLAN, ("restart.app", "on-failure;not=+1")],
            r#"restart.app: not: "+1" is no exit code: write 0 to 255, or a range such as 100-110"#,
        ),
        (
            "a name",
            &[PLAN, ("restart.app", "on-failure;codes=SIGTERM")],
            r#"restart.app: codes: "SIGTERM" is no exit code: write 0 to 255, or a range such as 100-110"#,
        ),
        (
            "an empty entry",
            &[PLAN, ("restart.app", "on-failure;codes=1,,2")],
            r#"restart.app: codes: "" is no exit code: write 0 to 255, or a range such as 100-110"#,
        ),
        (
            "half a range",
            &[PLAN, ("restart.app", "on-failure;codes=1-")],
            r#"restart.app: codes: "1-" is no exit code: write 0 to 255, or a range such as 100-110"#,
        ),
        (
            "no codes",
            &[PLAN, ("restart.app", "on-failure;codes=")],
            r#"restart.app: option "codes" has no value: write option=value"#,
        ),
        (
            "a range backwards",
            &[PLAN, ("restart.app", "on-failure;codes=110-100")],
            r#"restart.app: codes: 110-100 goes backwards (did you mean "100-110"?)"#,
        ),
        (
            "too many",
            &[PLAN, ("restart.app", &many)],
            "restart.app: codes: 21 codes and ranges, at most 20 are allowed: join neighbours to ranges",
        ),
        (
            "all codes",
            &[PLAN, ("restart.app", "on-failure;codes=0-255")],
            r#"restart.app: codes: these are all exit codes (did you mean "always" instead of "on-failure"?)"#,
        ),
        (
            "no code left",
            &[PLAN, ("restart.app", "on-failure;not=1-255")],
            "restart.app: not: no failure is left after which it restarts \
             (did you mean \"never\" instead of \"on-failure\"?)",
        ),
        (
            "both",
            &[PLAN, ("restart.app", "on-failure;codes=1;not=2")],
            r#"restart.app: "codes" and "not" are both given: keep one of the two"#,
        ),
        (
            "one twice",
            &[PLAN, ("restart.app", "on-failure;codes=1;codes=2")],
            r#"restart.app: option "codes" is given twice"#,
        ),
        (
            "another word",
            &[PLAN, ("restart.app", "always;not=2")],
            r#"restart.app: "not" is an option of "on-failure", and "always" does not go by codes"#,
        ),
        (
            "nearly a word",
            &[PLAN, ("restart.app", "on-failure;code=2")],
            r#"restart.app: unknown option "code" (did you mean "codes"?)"#,
        ),
        (
            "0 of an init",
            &[PLAN, ("restart.fetch", "on-failure;codes=0,1")],
            "restart.fetch: \"fetch\" is an init container: with 0 in \"codes\" it would never be done, remove the 0",
        ),
        (
            "done after what is restarted after 0",
            &[
                ("plan", "app=main, next=main"),
                ("restart.app", "on-failure;codes=0,1"),
                ("after.next", "app=done"),
            ],
            r#"after.next: "app" is restarted after 0 too and so never "done": remove the 0 from its codes"#,
        ),
        (
            "fatal failures that are all restarted",
            &[PLAN, ("restart.app", "on-failure;codes=1-255"), ("fatal.app", "failure")],
            "fatal.app: no exit would ever be fatal: podshim.io/restart.app restarts the container after each; \
             add a limit to it, or remove one of the two keys",
        ),
    ]);
}
