//! Random pods, callers and worlds: every promise holds after every step, and a pod that its callers end is gone.
//!
//! Owns how many of them a test run plays; `hack/simulate` runs the same ones by the million. A failure prints as a
//! scenario: paste it into a file of `tests/scenarios` to keep it.

/// So many that a run takes well under a minute in a debug build; each seed is another scenario.
const SEEDS: u64 = 10_000;

/// `hack/mutants` plays fewer for each change, and all for the changes that these did not notice.
fn seeds() -> u64 {
    std::env::var("PODSHIM_SEEDS").map_or(SEEDS, |seeds| seeds.parse().expect("PODSHIM_SEEDS is a number"))
}

/// DESIGN §2's promises hold, whatever happens.
#[test]
fn promises_hold() {
    for seed in 0..seeds() {
        if let Some(failure) = testkit::check(&testkit::random_scenario(seed)) {
            let (scenario, failure) = testkit::shrink(testkit::random_scenario(seed), failure);
            panic!("seed {seed}: {}\n\n{scenario}----\n{}", failure.error, failure.trace.join("\n"));
        }
    }
}
