//! Which runs there are: random ones with scripted callers or under a kubelet, or a grid of small pods. Owns how a
//! number becomes a scenario, and the name of a failing run's file.

use pod_spec::RestartPolicy;
use testkit::{FaultKind, KubeletRun, KubeletVersion, Scenario};

/// All policies, in the order of the table.
pub const POLICIES: [RestartPolicy; 3] =
    [RestartPolicy::Always, RestartPolicy::OnFailure, RestartPolicy::Never];

/// The runs, by numbers from 0.
pub enum Runs {
    /// Scripted callers.
    Scripted { runs: u64, seed: u64 },
    /// A kubelet that creates again what it stops, and crictl.
    TwoCallers { runs: u64, seed: u64, choice: Choice },
    /// A kubelet.
    Kubelet { runs: u64, seed: u64, choice: Choice },
    /// Small pods under a kubelet, one fault at each moment.
    Grid(Vec<(RestartPolicy, Scenario)>),
}

/// Which runs under a kubelet; without a policy or a kind of fault, all of them.
#[derive(Clone, Copy)]
pub struct Choice {
    pub version: KubeletVersion,
    pub policy: Option<RestartPolicy>,
    pub kind: Option<FaultKind>,
}

/// One run.
pub struct Run {
    /// The name of its file, and in messages.
    pub name: String,
    /// Its cell in the table: the policy, and a word for the kind of fault.
    pub cell: Option<(RestartPolicy, String)>,
    pub scenario: Scenario,
}

impl Choice {
    fn policies(self) -> Vec<RestartPolicy> {
        self.policy.map_or(POLICIES.to_vec(), |policy| vec![policy])
    }

    /// The run of a seed, which also selects the kind of fault.
    fn run(self, seed: u64, policy: RestartPolicy) -> KubeletRun {
        let kinds: Vec<_> = FaultKind::all().collect();
        let kind = self.kind.unwrap_or(kinds[(seed % kinds.len() as u64) as usize]);
        KubeletRun { version: self.version, policy, kind, seed }
    }
}

impl Runs {
    /// All small pods.
    pub fn grid(choice: Choice) -> Self {
        let of = |policy| {
            let scenarios = testkit::kubelet_grid(choice.version, policy);
            scenarios.map(move |scenario| (policy, scenario))
        };
        Self::Grid(choice.policies().into_iter().flat_map(of).collect())
    }

    pub fn count(&self) -> u64 {
        match self {
            Self::Scripted { runs, .. } => *runs,
            Self::TwoCallers { runs, choice, .. } | Self::Kubelet { runs, choice, .. } => {
                runs * choice.policies().len() as u64
            }
            Self::Grid(scenarios) => scenarios.len() as u64,
        }
    }

    pub fn play(&self, index: u64) -> Run {
        match self {
            Self::Scripted { seed, .. } => {
                let seed = seed.wrapping_add(index);
                let scenario = testkit::random_scenario(seed);
                Run { name: format!("seed-{seed}"), cell: None, scenario }
            }
            Self::TwoCallers { runs, seed, choice } => {
                let seed = seed.wrapping_add(index % runs);
                let policy = choice.policies()[(index / runs) as usize];
                let scenario = testkit::two_callers(policy, seed);
                let kind = "two callers".to_owned();
                Run {
                    name: format!("{}-two-callers-seed-{seed}", word(policy)),
                    cell: Some((policy, kind)),
                    scenario,
                }
            }
            Self::Kubelet { runs, seed, choice } => {
                let seed = seed.wrapping_add(index % runs);
                let policy = choice.policies()[(index / runs) as usize];
                let run = choice.run(seed, policy);
                let kind = run.kind.to_string();
                let name = format!("{}-{kind}-seed-{seed}", word(policy));
                Run { name, cell: Some((policy, kind)), scenario: run.scenario() }
            }
            Self::Grid(scenarios) => {
                let (policy, scenario) = &scenarios[index as usize];
                let name = format!("{}-grid-{index}", word(*policy));
                Run { name, cell: Some((*policy, "one fault".to_owned())), scenario: scenario.clone() }
            }
        }
    }
}

fn word(policy: RestartPolicy) -> String {
    format!("{policy:?}").to_lowercase()
}
