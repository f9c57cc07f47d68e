//! Pods whose caller is a kubelet: once all faults are over, each pod does what its policy promises.
//!
//! Owns how many of these pods a test run plays; `hack/simulate --kubelet` runs the random ones by the million. A
//! failure prints as a scenario: paste it into a file of `tests/scenarios` to keep it.

use std::collections::BTreeMap;

use pod_spec::RestartPolicy::{self, Always, Never, OnFailure};
use testkit::KubeletVersion::{self, Aware, Unaware};
use testkit::{FaultKind, KubeletRun, Scenario};

/// For each kind of fault: so many that a policy takes a few seconds. Each seed is another run.
const SEEDS: std::ops::Range<u64> = 0..300;
/// How many kinds of failures a test shows. Each is shrunk, which takes thousands of runs.
const MOST_KINDS: usize = 4;

/// Plays all scenarios, and shows the smallest run of each kind of failure.
fn promises_are_kept(scenarios: impl Iterator<Item = Scenario>) {
    let (mut count, mut found) = (0, BTreeMap::new());
    for scenario in scenarios {
        count += 1;
        if let Some(failure) = testkit::check(&scenario) {
            found.entry(failure.kind()).or_insert((scenario, failure, 0)).2 += 1;
        }
    }
    println!("{count} runs");
    let kinds = found.len();
    for (scenario, failure, times) in found.into_values().take(MOST_KINDS) {
        let (scenario, failure) = testkit::shrink(scenario, failure);
        println!("{times} of {count}: {}\n\n{scenario}----\n{}\n", failure.error, failure.trace.join("\n"));
    }
    assert!(kinds == 0, "{kinds} kinds of failures");
}

fn random_pods(version: KubeletVersion, policies: &[RestartPolicy]) {
    // The policies share as many runs as one policy has alone.
    let seeds = SEEDS.start..SEEDS.end / policies.len() as u64;
    let seeds = &seeds;
    let runs = policies.iter().flat_map(|policy| {
        FaultKind::all().flat_map(move |kind| {
            seeds.clone().map(move |seed| KubeletRun { version, policy: *policy, kind, seed })
        })
    });
    promises_are_kept(runs.map(KubeletRun::scenario));
}

/// One fault at each moment.
fn small_pods(version: KubeletVersion, policies: &[RestartPolicy]) {
    promises_are_kept(policies.iter().flat_map(|policy| testkit::kubelet_grid(version, *policy)));
}

#[test]
fn random_pods_under_always() {
    random_pods(Unaware, &[Always]);
}

#[test]
fn random_pods_under_on_failure() {
    random_pods(Unaware, &[OnFailure]);
}

#[test]
fn random_pods_under_never() {
    random_pods(Unaware, &[Never]);
}

#[test]
fn random_pods_of_a_kubelet_with_native_sidecars() {
    random_pods(Aware, &[Always, OnFailure, Never]);
}

#[test]
fn small_pods_under_always() {
    small_pods(Unaware, &[Always]);
}

#[test]
fn small_pods_under_on_failure() {
    small_pods(Unaware, &[OnFailure]);
}

#[test]
fn small_pods_under_never() {
    small_pods(Unaware, &[Never]);
}

#[test]
fn small_pods_of_a_kubelet_with_native_sidecars() {
    small_pods(Aware, &[Always, OnFailure, Never]);
}
