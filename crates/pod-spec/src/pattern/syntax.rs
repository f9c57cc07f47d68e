//! Reading a pattern into a tree. Owns the syntax; nothing here matches.

use std::iter::Peekable;
use std::str::Chars;

use super::{MAX_DEPTH, MAX_REPEAT, PatternError};

/// A part of a pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Node {
    /// One letter of a set.
    Letter(Set),
    /// The beginning of the line.
    Start,
    /// The end of the line.
    End,
    /// One after another; empty matches anywhere.
    Sequence(Vec<Node>),
    /// One of them.
    Either(Vec<Node>),
    /// At least `least` times, at most `most`.
    Repeat { node: Box<Node>, least: u32, most: Option<u32> },
}

/// A set of letters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Set {
    ranges: Vec<(char, char)>,
    sense: Sense,
    case: Case,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Sense {
    #[default]
    In,
    NotIn,
}

/// `(?i)`, for the letters of ASCII.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Case {
    #[default]
    Matters,
    Ignored,
}

impl Set {
    /// Whether a letter is one of it.
    pub(super) fn contains(&self, letter: char) -> bool {
        let listed = |letter: char| self.ranges.iter().any(|(from, to)| (*from..=*to).contains(&letter));
        let other_case = || {
            let other = if letter.is_ascii_lowercase() {
                letter.to_ascii_uppercase()
            } else {
                letter.to_ascii_lowercase()
            };
            self.case == Case::Ignored && listed(other)
        };
        (listed(letter) || other_case()) == (self.sense == Sense::In)
    }
}

/// Reads a whole pattern.
pub(super) fn parse(text: &str) -> Result<Node, PatternError> {
    let (text, case) = match text.strip_prefix("(?i)") {
        Some(rest) => (rest, Case::Ignored),
        None => (text, Case::Matters),
    };
    if text.is_empty() {
        return Err(PatternError::Empty);
    }
    let mut reader = Reader { letters: text.chars().peekable(), case };
    let node = reader.alternatives(0)?;
    match reader.letters.next() {
        Some(_) => Err(PatternError::CloseGroup),
        None => Ok(node),
    }
}

struct Reader<'a> {
    letters: Peekable<Chars<'a>>,
    case: Case,
}

impl Reader<'_> {
    /// Up to the end or a `)`, which is left.
    fn alternatives(&mut self, depth: usize) -> Result<Node, PatternError> {
        if depth > MAX_DEPTH {
            return Err(PatternError::TooLarge);
        }
        let mut alternatives = vec![self.sequence(depth)?];
        while self.letters.next_if_eq(&'|').is_some() {
            alternatives.push(self.sequence(depth)?);
        }
        Ok(Node::Either(alternatives))
    }

    fn sequence(&mut self, depth: usize) -> Result<Node, PatternError> {
        let mut nodes: Vec<Node> = Vec::new();
        while let Some(letter) = self.letters.next_if(|letter| !matches!(letter, '|' | ')')) {
            let (least, most) = match letter {
                '*' => (0, None),
                '+' => (1, None),
                '?' => (0, Some(1)),
                '{' => self.counts()?,
                _ => {
                    nodes.push(self.atom(letter, depth)?);
                    continue;
                }
            };
            // What is repeated already is not again: `a+?` and `a++` mean other things elsewhere.
            let node = match nodes.pop() {
                Some(Node::Repeat { .. } | Node::Start | Node::End) | None => {
                    return Err(PatternError::NothingToRepeat { letter });
                }
                Some(node) => Box::new(node),
            };
            // Which of several matches is taken makes no difference to whether there is one.
            self.letters.next_if_eq(&'?');
            nodes.push(Node::Repeat { node, least, most });
        }
        Ok(Node::Sequence(nodes))
    }

    fn atom(&mut self, letter: char, depth: usize) -> Result<Node, PatternError> {
        let ranges = match letter {
            '(' => return self.group(depth),
            '^' => return Ok(Node::Start),
            '$' => return Ok(Node::End),
            '[' => return self.class().map(Node::Letter),
            '.' => return Ok(Node::Letter(Set { sense: Sense::NotIn, ..Set::default() })),
            '\\' => return self.escape().map(Node::Letter),
            literal => vec![(literal, literal)],
        };
        Ok(Node::Letter(Set { ranges, sense: Sense::In, case: self.case }))
    }

    fn group(&mut self, depth: usize) -> Result<Node, PatternError> {
        if self.letters.next_if_eq(&'?').is_some() && self.letters.next_if_eq(&':').is_none() {
            return Err(PatternError::Group);
        }
        let node = self.alternatives(depth + 1)?;
        match self.letters.next() {
            Some(_) => Ok(node),
            None => Err(PatternError::OpenGroup),
        }
    }

    /// `{m}`, `{m,}` or `{m,n}` after its brace.
    fn counts(&mut self) -> Result<(u32, Option<u32>), PatternError> {
        let least = self.count()?.ok_or(PatternError::Repetition)?;
        let most = match self.letters.next() {
            Some('}') => return Ok((least, Some(least))),
            Some(',') => self.count()?,
            _ => return Err(PatternError::Repetition),
        };
        match (self.letters.next(), most) {
            (Some('}'), Some(most)) if most < least => Err(PatternError::Repetition),
            (Some('}'), most) => Ok((least, most)),
            _ => Err(PatternError::Repetition),
        }
    }

    /// A number, if there is one.
    fn count(&mut self) -> Result<Option<u32>, PatternError> {
        let mut count = None;
        while let Some(digit) = self.letters.peek().and_then(|letter| letter.to_digit(10)) {
            self.letters.next();
            let more = count.unwrap_or(0) * 10 + digit;
            if more > MAX_REPEAT {
                return Err(PatternError::Repetition);
            }
            count = Some(more);
        }
        Ok(count)
    }

    /// What a backslash makes of the letter after it.
    fn escape(&mut self) -> Result<Set, PatternError> {
        let letter = self.letters.next().ok_or(PatternError::Escape)?;
        let ranges: &[(char, char)] = match letter.to_ascii_lowercase() {
            'd' => &[('0', '9')],
            'w' => &[('0', '9'), ('A', 'Z'), ('_', '_'), ('a', 'z')],
            's' => &[('\t', '\r'), (' ', ' ')],
            't' if letter == 't' => &[('\t', '\t')],
            _ if letter.is_ascii_punctuation() || letter == ' ' => &[(letter, letter)],
            _ => return Err(PatternError::Escape),
        };
        let sense = if letter.is_ascii_uppercase() { Sense::NotIn } else { Sense::In };
        Ok(Set { ranges: ranges.to_vec(), sense, case: Case::Matters })
    }

    /// `[...]` after its bracket.
    fn class(&mut self) -> Result<Set, PatternError> {
        let sense = match self.letters.next_if_eq(&'^') {
            Some(_) => Sense::NotIn,
            None => Sense::In,
        };
        let mut ranges = Vec::new();
        // A bracket at the very beginning stands for itself.
        let mut first = self.letters.next_if_eq(&']');
        loop {
            let letter = match first.take().or_else(|| self.letters.next()).ok_or(PatternError::OpenClass)? {
                ']' if !ranges.is_empty() => return Ok(Set { ranges, sense, case: self.case }),
                '[' => return Err(PatternError::NestedClass),
                '\\' => match self.escape()? {
                    Set { sense: Sense::In, ranges: quoted, .. }
                        if quoted.len() == 1 && quoted[0].0 == quoted[0].1 =>
                    {
                        quoted[0].0
                    }
                    Set { sense: Sense::In, ranges: several, .. } => {
                        ranges.extend(several);
                        continue;
                    }
                    Set { sense: Sense::NotIn, .. } => return Err(PatternError::Escape),
                },
                letter => letter,
            };
            let mut ahead = self.letters.clone();
            if ahead.next() != Some('-') || ahead.next() == Some(']') {
                ranges.push((letter, letter));
                continue;
            }
            self.letters.next();
            let last = match self.letters.next().ok_or(PatternError::OpenClass)? {
                '\\' => match self.escape()?.ranges[..] {
                    [(from, to)] if from == to => to,
                    _ => return Err(PatternError::Range),
                },
                '[' => return Err(PatternError::NestedClass),
                letter => letter,
            };
            if last < letter {
                return Err(PatternError::Range);
            }
            ranges.push((letter, last));
        }
    }
}
