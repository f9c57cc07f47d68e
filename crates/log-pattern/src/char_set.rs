//! A set of letters as sorted ranges, so that its cost depends on what it means and not on how it is written.

use std::sync::Arc;

/// A set of letters: ordered ranges that neither overlap nor touch. Clones share them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CharSet(Arc<[(char, char)]>);

/// Whether the set has the listed letters or all others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClassKind {
    Listed,
    Negated,
}

/// Whether `a` matches `A` too, for ASCII letters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CaseSensitivity {
    Sensitive,
    Insensitive,
}

impl CharSet {
    /// From ranges in any order, which may overlap.
    pub(crate) fn new(mut ranges: Vec<(char, char)>, kind: ClassKind, case: CaseSensitivity) -> Self {
        if case == CaseSensitivity::Insensitive {
            for index in 0..ranges.len() {
                ranges.extend(other_case(ranges[index]).into_iter().flatten());
            }
        }
        ranges.sort_unstable();
        let mut merged: Vec<(char, char)> = Vec::new();
        for (from, to) in ranges {
            match merged.last_mut() {
                Some((_, end)) if next(*end).is_none_or(|next| from <= next) => *end = (*end).max(to),
                _ => merged.push((from, to)),
            }
        }
        let ranges = if kind == ClassKind::Negated { complement(&merged) } else { merged };
        Self(ranges.into())
    }

    /// Whether the set has a letter.
    pub(crate) fn contains(&self, letter: char) -> bool {
        let at = self.0.partition_point(|(_, to)| *to < letter);
        self.0.get(at).is_some_and(|(from, _)| *from <= letter)
    }

    /// How many ranges it has.
    pub(crate) fn ranges(&self) -> usize {
        self.0.len()
    }

    /// The same for all clones of a set, and different for any other set as long as a clone exists.
    pub(crate) fn identity(&self) -> *const (char, char) {
        self.0.as_ptr()
    }
}

/// The ASCII letters of a range, in the other case.
fn other_case((from, to): (char, char)) -> [Option<(char, char)>; 2] {
    [('a', 'z', 'A'), ('A', 'Z', 'a')].map(|(first, last, other)| {
        let (from, to) = (from.max(first), to.min(last));
        let shift = |letter: char| char::from_u32(u32::from(letter) - u32::from(first) + u32::from(other));
        (from <= to).then(|| Some((shift(from)?, shift(to)?))).flatten()
    })
}

fn complement(ranges: &[(char, char)]) -> Vec<(char, char)> {
    let mut others = Vec::with_capacity(ranges.len() + 1);
    let mut begin = Some('\0');
    for (from, to) in ranges {
        if let (Some(begin), Some(end)) = (begin, before(*from))
            && begin <= end
        {
            others.push((begin, end));
        }
        begin = next(*to);
    }
    others.extend(begin.map(|begin| (begin, char::MAX)));
    others
}

/// The next letter; surrogates are no letters.
fn next(letter: char) -> Option<char> {
    (letter..=char::MAX).nth(1)
}

fn before(letter: char) -> Option<char> {
    ('\0'..letter).next_back()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_is_as_large_as_what_it_means() {
        let set =
            |ranges: &[(char, char)], kind| CharSet::new(ranges.to_vec(), kind, CaseSensitivity::Sensitive);
        let many: Vec<_> =
            std::iter::repeat_n([('b', 'b'), ('a', 'c'), ('d', 'd')], 1000).flatten().collect();
        assert_eq!(set(&many, ClassKind::Listed).0[..], [('a', 'd')]);
        assert_eq!(set(&many, ClassKind::Negated).0[..], [('\0', '`'), ('e', char::MAX)]);
        assert_eq!(set(&[], ClassKind::Negated).0[..], [('\0', char::MAX)]);
        assert_eq!(set(&[('\0', char::MAX)], ClassKind::Negated).0[..], []);
        let both = CharSet::new(vec![('X', 'b')], ClassKind::Listed, CaseSensitivity::Insensitive);
        assert_eq!(both.0[..], [('A', 'B'), ('X', 'b'), ('x', 'z')]);
        // Surrogates are no letters: the letters on both sides of them touch.
        assert_eq!(set(&[('\u{d7ff}', '\u{d7ff}'), ('\u{e000}', '\u{e000}')], ClassKind::Listed).ranges(), 1);
    }
}
