//! Many pods, one after another and side by side, made, killed, restarted and removed with podshim as the node's default
//! runtime: afterwards the node has no more than before. `hack/test` makes a few, `hack/stress --churn` thousands.

mod calls;
mod default_runtime;
mod lanes;
mod lives;
mod nodes;
mod outages;

/// How many pods a run makes, and how many execs and restarts. `hack/stress --churn` sets it.
const CHURN: &str = "PODSHIM_CHURN";

/// The number of pods of this run, of which a few suffice to find what every pod leaves.
fn pods() -> usize {
    std::env::var(CHURN).ok().and_then(|count| count.parse().ok()).unwrap_or(24)
}
