//! Random pods, callers and worlds: every promise holds after every step, and a pod that its callers end is gone.
//!
//! Owns how many of them a test run plays; `hack/simulate` runs the same ones by the million. A failure prints as a
//! scenario: paste it into a file of `tests/scenarios` to keep it.

use pod_spec::RestartPolicy;
use testkit::Scenario;

/// So many that a run takes well under a minute in a debug build; each seed is another scenario.
const SEEDS: u64 = 10_000;

/// `hack/mutants` plays fewer for each change, and all for the changes that these did not notice.
fn seeds() -> u64 {
    std::env::var("PODSHIM_SEEDS").map_or(SEEDS, |seeds| seeds.parse().expect("PODSHIM_SEEDS is a number"))
}

/// DESIGN §2's promises hold, whatever happens.
#[test]
fn promises_hold() {
    hold_in(testkit::random_scenario, 1);
}

/// And with two callers, a kubelet and crictl beside it.
#[test]
fn promises_hold_with_two_callers() {
    for policy in [RestartPolicy::Always, RestartPolicy::OnFailure, RestartPolicy::Never] {
        hold_in(|seed| testkit::two_callers(policy, seed), 12);
    }
}

/// Plays that part of the seeds.
fn hold_in(scenario: impl Fn(u64) -> Scenario, part: u64) {
    for seed in 0..seeds() / part {
        if let Some(failure) = testkit::check(&scenario(seed)) {
            let (scenario, failure) = testkit::shrink(scenario(seed), failure);
            panic!("seed {seed}: {}\n\n{scenario}----\n{}", failure.error, failure.trace.join("\n"));
        }
    }
}
