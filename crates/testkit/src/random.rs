//! Random scenarios: a pod, what its programs do, what its callers do and what goes wrong. The same seed gives the same
//! scenario.
//!
//! Owns the generator and its numbers, and no judgement: `invariants` knows what must hold, and `pod-spec` which
//! annotations fit together.

mod callers;
mod kubelet;
mod plan;
mod programs;

use std::time::Duration;

use crate::command::{Command, Scenario};

pub use kubelet::{KubeletRun, Trouble};

/// The scenario of a seed; its last command ends everything.
pub fn scenario(seed: u64) -> Scenario {
    let random = &mut Random::new(seed);
    let pod = plan::pod(random);
    let mut commands = vec![pod.head.clone()];
    commands.extend(programs::commands(random, &pod.names));
    commands.extend(callers::commands(random, &pod.names));
    commands.push(Command::End);
    Scenario(commands)
}

/// Numbers that only look random (SplitMix64): one addition and three mixes a number, and any seed is good.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number from 0 to `limit` - 1.
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit.max(1) as u64) as usize
    }

    /// True in that many cases out of a hundred.
    pub(crate) fn percent(&mut self, chance: usize) -> bool {
        self.below(100) < chance
    }

    /// One of the choices, of which there must be at least one.
    pub(crate) fn pick<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        &choices[self.below(choices.len())]
    }

    pub(crate) fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last + 1));
        }
    }

    /// Times near the usual limits and periods: just before, at and after each other.
    pub(crate) fn duration(&mut self) -> Duration {
        const MILLISECONDS: [u64; 14] =
            [0, 0, 1, 50, 100, 400, 999, 1000, 1500, 2000, 3000, 7000, 11_000, 31_000];
        Duration::from_millis(*self.pick(&MILLISECONDS))
    }
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

    /// Every annotation and every command is tried, in pods of every size.
    #[test]
    fn everything_that_can_be_said_is_said() {
        let all: Vec<_> = (0..2000).map(scenario).collect();
        let text: String = all.iter().map(ToString::to_string).collect();
        for word in [
            "ready.",
            "after.",
            "restart.",
            "grace.",
            "on-terminate.",
            "pre-stop.",
            "stop-signal.",
            "fatal.",
            "migrate.",
            "  grace:",
            "  gate-timeout:",
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
