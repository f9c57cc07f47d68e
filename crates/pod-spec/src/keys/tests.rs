use super::*;

/// containerd passes annotations by globs whose `*` does not match a slash: with one slash in every key, the one
/// glob `podshim.io/*` passes all of them.
#[test]
fn trap_27_one_glob_passes_every_key() {
    assert_eq!(PREFIX.match_indices('/').map(|(at, _)| at).collect::<Vec<_>>(), [PREFIX.len() - 1]);
    let words = POD_KEYS.iter().map(|(word, _)| word).chain(CONTAINER_KEYS.iter().map(|(word, _)| word));
    for word in words {
        // In a container's key a name follows, which is a DNS label.
        assert!(!word.contains(['/', '.']), "{word}");
    }
}

/// A pod that has all of them: what is read is written again, and the reference has it.
#[test]
fn every_key_is_written_and_documented() {
    let keys = [
        ("plan", "a|b=sidecar, app=main"),
        ("restart-policy", "Never"),
        ("grace", "10s"),
        ("reserve", "3s"),
        ("gate-timeout", "5s"),
        ("zero-grace", "order"),
        ("exit-codes", "real"),
        ("oom-score", "own"),
        ("ready.a", "notify"),
        ("after.app", "a=ready"),
        ("restart.a", "always;limit=2"),
        ("grace.a", "1s"),
        ("on-terminate.a", "exec:true"),
        ("pre-stop.a", "exec:true"),
        ("stop-signal.a", "SIGINT"),
        ("fatal.app", "failure"),
        ("migrate.b", "exec:true"),
    ];
    let whole = keys.map(|(key, value)| (format!("{PREFIX}{key}"), value));
    let parsed = crate::parse(whole.iter().map(|(key, value)| (key.as_str(), *value))).expect("a plan");
    let written = parsed.plan.expect("a plan").to_annotations();
    let reference = include_str!("../../../../docs/annotations.md");
    let pod = POD_KEYS.iter().map(|(word, _)| (*word).to_owned());
    for word in pod.chain(CONTAINER_KEYS.iter().map(|(word, _)| format!("{word}."))) {
        let begins = |key: &String| key.strip_prefix(PREFIX).is_some_and(|key| key.starts_with(&word));
        // What `role.c` says is written as the plan's list (S10); a priority is no part of a plan (N11), nor a request (R14).
        let unwritten = ["role.", DRAIN_PRIORITY, RESTART_REQUEST].contains(&word.as_str());
        assert!(unwritten || written.keys().any(begins), "{word} is not written: {written:?}");
        assert!(reference.contains(&format!("`{word}")), "docs/annotations.md does not have `{word}");
    }
}

#[test]
fn tables_are_complete() {
    for role in [Role::Init, Role::Sidecar, Role::Main] {
        assert_ne!(role.to_string(), "");
    }
    for policy in [RestartPolicy::Always, RestartPolicy::OnFailure, RestartPolicy::Never] {
        assert_ne!(word_of(&RESTART_POLICIES, &policy), "");
    }
    for zero_grace in [ZeroGrace::Obey, ZeroGrace::Order] {
        assert_ne!(word_of(&ZERO_GRACES, &zero_grace), "");
    }
    for exit_codes in [ExitCodes::Masked, ExitCodes::Real] {
        assert_ne!(word_of(&EXIT_CODES, &exit_codes), "");
    }
    for oom_score in [OomScore::Own, OomScore::Protect] {
        assert_ne!(word_of(&OOM_SCORES, &oom_score), "");
    }
    for mode in [RestartMode::Never, RestartMode::OnFailure, RestartMode::Always, RestartMode::Visible] {
        assert_ne!(word_of(&RESTART_MODES, &mode), "");
    }
    for fatal in [Fatal::Failure, Fatal::Exit, Fatal::Restart { limit: Fatal::RESTARTS }] {
        assert_ne!(word_of(&FATALS, &fatal), "");
    }
    for condition in [Condition::Started, Condition::Ready, Condition::Done] {
        assert_ne!(word_of(&CONDITIONS, &condition), "");
    }
}
