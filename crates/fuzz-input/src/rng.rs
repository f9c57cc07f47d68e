//! Pseudo-random numbers: the same seed gives the same ones.

use std::time::Duration;

/// Numbers that only look random (SplitMix64): one addition and three mixes a number, and any seed is good.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// The numbers of a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number from 0 to `limit` - 1.
    pub fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit.max(1) as u64) as usize
    }

    /// True in that many cases out of a hundred.
    pub fn percent(&mut self, chance: usize) -> bool {
        self.below(100) < chance
    }

    /// One of the choices, of which there must be at least one.
    pub fn pick<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        &choices[self.below(choices.len())]
    }

    /// Another order, each as likely.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last + 1));
        }
    }

    /// Times near the usual limits and periods: just before, at and after each other.
    pub fn duration(&mut self) -> Duration {
        const MILLISECONDS: [u64; 14] =
            [0, 0, 1, 50, 100, 400, 999, 1000, 1500, 2000, 3000, 7000, 11_000, 31_000];
        Duration::from_millis(*self.pick(&MILLISECONDS))
    }
}
