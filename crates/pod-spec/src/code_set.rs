//! A set of exit codes (R13). Owns the set and its ranges; `parse::codes` owns the grammar and its errors.

use std::fmt;

/// Exit codes from 0 to 255, which are all that a process can have. Thirty-two bytes, however many they are.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct CodeSet([u64; 4]);

impl CodeSet {
    /// No code.
    pub const EMPTY: Self = Self([0; 4]);
    /// Every code.
    pub const ALL: Self = Self([u64::MAX; 4]);
    /// Every code but 0.
    pub const FAILURES: Self = Self([u64::MAX - 1, u64::MAX, u64::MAX, u64::MAX]);

    /// The codes from `first` to `last`; none if `last` is below `first`.
    pub fn range(first: u8, last: u8) -> Self {
        let mut set = Self::EMPTY;
        for code in first..=last {
            set.0[usize::from(code / 64)] |= 1 << (code % 64);
        }
        set
    }

    /// Whether the code is one of them.
    pub fn contains(self, code: u32) -> bool {
        u8::try_from(code).is_ok_and(|code| self.0[usize::from(code / 64)] >> (code % 64) & 1 == 1)
    }

    /// The codes of either.
    pub fn or(self, other: Self) -> Self {
        self.combine(other, |own, other| own | other)
    }

    /// The codes of both.
    pub fn and(self, other: Self) -> Self {
        self.combine(other, |own, other| own & other)
    }

    /// Its codes that the other does not have.
    pub fn without(self, other: Self) -> Self {
        self.combine(other, |own, other| own & !other)
    }

    /// Its ranges in ascending order, as long as they can be: their first and last code.
    pub fn ranges(self) -> impl Iterator<Item = (u8, u8)> {
        let starts = move |code: &u8| self.has(*code) && !code.checked_sub(1).is_some_and(|it| self.has(it));
        (0..=u8::MAX).filter(starts).map(move |first| {
            (first, (first..=u8::MAX).take_while(|code| self.has(*code)).last().unwrap_or(first))
        })
    }

    /// The word and the codes that write it after `on-failure` with the fewest ranges: `codes`, or `not` with the
    /// failures that are missing.
    pub(crate) fn shortest(self) -> (&'static str, Self) {
        let missing = Self::FAILURES.without(self);
        if !self.has(0) && missing.ranges().count() < self.ranges().count() {
            ("not", missing)
        } else {
            ("codes", self)
        }
    }

    /// How many ranges its shortest form has.
    pub fn fewest_ranges(self) -> usize {
        self.shortest().1.ranges().count()
    }

    fn has(self, code: u8) -> bool {
        self.contains(u32::from(code))
    }

    fn combine(self, other: Self, with: impl Fn(u64, u64) -> u64) -> Self {
        let mut words = self.0;
        for (own, other) in words.iter_mut().zip(other.0) {
            *own = with(*own, other);
        }
        Self(words)
    }
}

impl fmt::Display for CodeSet {
    /// `1,42,100-110`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (first, last)) in self.ranges().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            match first == last {
                true => write!(f, "{comma}{first}")?,
                false => write!(f, "{comma}{first}-{last}")?,
            }
        }
        Ok(())
    }
}

impl fmt::Debug for CodeSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CodeSet({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r13_sets_have_their_codes_and_ranges() {
        let set = CodeSet::range(1, 1).or(CodeSet::range(100, 110)).or(CodeSet::range(105, 128));
        assert_eq!(set.to_string(), "1,100-128");
        for (code, is_in) in [(0, false), (1, true), (2, false), (100, true), (128, true), (129, false)] {
            assert_eq!(set.contains(code), is_in, "{code}");
        }
        // A process has no such code.
        assert!(!CodeSet::ALL.contains(256));
        assert_eq!(CodeSet::ALL.to_string(), "0-255");
        assert_eq!(CodeSet::FAILURES.to_string(), "1-255");
        assert_eq!(CodeSet::EMPTY.to_string(), "");
        assert_eq!(CodeSet::range(9, 8), CodeSet::EMPTY);
        assert_eq!(CodeSet::ALL.without(CodeSet::FAILURES), CodeSet::range(0, 0));
        assert_eq!(set.and(CodeSet::range(0, 100)).to_string(), "1,100");
        assert_eq!(size_of::<CodeSet>(), 32);
    }

    #[test]
    fn r13_a_set_is_written_with_the_fewest_ranges() {
        let (word, codes) = CodeSet::FAILURES.without(CodeSet::range(42, 42)).shortest();
        assert_eq!((word, codes.to_string()), ("not", "42".to_owned()));
        // `not` never means 0 too.
        let (word, codes) = CodeSet::ALL.without(CodeSet::range(42, 42)).shortest();
        assert_eq!((word, codes.to_string()), ("codes", "0-41,43-255".to_owned()));
        assert_eq!(CodeSet::range(7, 9).fewest_ranges(), 1);
        assert_eq!(CodeSet::range(7, 9).or(CodeSet::range(20, 20)).fewest_ranges(), 2);
        // As many either way: the codes themselves.
        assert_eq!(CodeSet::range(1, 100).shortest().0, "codes");
    }
}
