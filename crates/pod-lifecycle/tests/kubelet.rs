//! Pods whose caller is a kubelet: once no fault goes on, each does what its policy promises.
//!
//! Owns how many of them a test run is worth; `hack/simulate --kubelet` runs the random ones by the million. A failure
//! prints as a scenario: paste it into a file of `tests/scenarios` to keep it.

use pod_spec::RestartPolicy::{self, Always, Never, OnFailure};
use testkit::KubeletVersion::{self, Aware, Unaware};
use testkit::{KubeletRun, Scenario, Trouble};

/// So many that a policy takes a few seconds; each seed is another run of each trouble.
const SEEDS: std::ops::Range<u64> = 0..300;

fn promise_is_kept(what: &str, scenario: impl Fn() -> Scenario) {
    if let Some(failure) = testkit::check(&scenario()) {
        let (scenario, failure) = testkit::shrink(scenario(), failure);
        panic!("{what}: {}\n\n{scenario}----\n{}", failure.error, failure.trace.join("\n"));
    }
}

fn random_pods(version: KubeletVersion, policy: RestartPolicy) {
    for trouble in Trouble::all() {
        for seed in SEEDS {
            let run = KubeletRun { version, policy, trouble, seed };
            promise_is_kept(&format!("{version:?} {policy:?} {trouble} seed {seed}"), || run.scenario());
        }
    }
}

/// One fault at each moment.
fn small_pods(version: KubeletVersion, policy: RestartPolicy) {
    let mut count = 0;
    for scenario in testkit::kubelet_grid(version, policy) {
        promise_is_kept("one fault", || scenario.clone());
        count += 1;
    }
    println!("{version:?} {policy:?}: {count} runs");
}

#[test]
fn random_pods_under_always() {
    random_pods(Unaware, Always);
}

#[test]
fn random_pods_under_on_failure() {
    random_pods(Unaware, OnFailure);
}

#[test]
fn random_pods_under_never() {
    random_pods(Unaware, Never);
}

#[test]
fn random_pods_of_a_kubelet_with_native_sidecars() {
    for policy in [Always, OnFailure, Never] {
        random_pods(Aware, policy);
    }
}

#[test]
fn small_pods_under_always() {
    small_pods(Unaware, Always);
}

#[test]
fn small_pods_under_on_failure() {
    small_pods(Unaware, OnFailure);
}

#[test]
fn small_pods_under_never() {
    small_pods(Unaware, Never);
}

#[test]
fn small_pods_of_a_kubelet_with_native_sidecars() {
    for policy in [Always, OnFailure, Never] {
        small_pods(Aware, policy);
    }
}
