//! Random scenarios: a pod, what its programs do, what its callers do and what goes wrong. The same seed gives the same
//! scenario.
//!
//! Owns which scenarios there are, and no judgement: `invariants` knows what must hold, and `pod-spec` which
//! annotations fit together.

mod callers;
mod faults;
mod injected;
mod kubelet;
mod kubelets_programs;
mod plan;
mod programs;
mod run;
mod two_callers;

use crate::command::{Command, Scenario};
use fuzz_input::Rng;

pub use faults::FaultKind;
pub use run::KubeletRun;
pub use two_callers::scenario as two_callers;

/// The scenario of a seed; its last command ends everything.
pub fn scenario(seed: u64) -> Scenario {
    let random = &mut Rng::new(seed);
    let pod = plan::pod(random);
    let mut commands = vec![pod.head.clone()];
    commands.extend(programs::commands(random, &pod.names));
    commands.extend(callers::commands(random, &pod.names));
    callers::add_kubelets_own(seed, &pod.names, &mut commands);
    commands.push(Command::End);
    Scenario(commands)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A seed is a scenario, and the scenario is its text: the text of a failing run is enough to repeat it.
    #[test]
    fn a_seed_gives_one_scenario_and_its_text_gives_it_again() {
        for seed in 0..300 {
            let text = scenario(seed).to_string();
            assert_eq!(text, scenario(seed).to_string());
            assert_eq!(Scenario::parse(text.lines()).map(|read| read.to_string()), Ok(text));
        }
    }

    #[test]
    fn two_callers_are_their_text_too() {
        for seed in 0..300 {
            let text = two_callers(pod_spec::RestartPolicy::OnFailure, seed).to_string();
            assert_eq!(Scenario::parse(text.lines()).map(|read| read.to_string()), Ok(text));
        }
    }

    /// Every annotation and every command is tried, in pods of every size.
    #[test]
    fn every_annotation_and_command_is_tried() {
        let all: Vec<_> = (0..2000).map(scenario).collect();
        let text: String = all.iter().map(ToString::to_string).collect();
        for word in [
            "ready.",
            "after.",
            "restart.",
            ";codes=",
            ";not=",
            "grace.",
            "on-terminate.",
            "pre-stop.",
            "stop-signal.",
            "fatal.",
            "migrate.",
            "  grace:",
            "  gate-timeout:",
            "  reserve:",
            "zero-grace: order",
            "exit-codes: real",
            "oom-score: protect",
            "*=main",
            "\nlose ",
            "\nfail ",
            "\nslow ",
            "\ncheckpoint ",
            "from-checkpoint",
            "\nswitch ",
            "\nkubelets-own ",
            "\npause ",
            "\nresume ",
            "\nstop-sandbox ",
            "\nstop-pod",
            "\noom ",
            "\nexec ",
            "\nkill pause ",
            "type=ephemeral",
            ": RTMIN+3",
        ] {
            assert!(text.contains(word), "no {word:?}");
        }
        let members = |scenario: &Scenario| match scenario.0.first() {
            Some(Command::Pod { annotations, .. }) => {
                annotations.first().map_or(0, |(_, plan)| plan.matches([',', '+', '|']).count() + 1)
            }
            _ => 0,
        };
        for size in 2..=12 {
            assert!(all.iter().any(|scenario| members(scenario) == size), "no pod of {size}");
        }
    }
}
