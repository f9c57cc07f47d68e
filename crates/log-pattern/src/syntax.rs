//! Reads a pattern into a tree. Owns the syntax; nothing here matches.

use std::iter::Peekable;
use std::str::Chars;

use crate::char_set::{CaseSensitivity, CharSet, ClassKind};
use crate::error::PatternError;
use crate::limits::{MAX_ATOMS, MAX_DEPTH, MAX_REPEAT};

/// A part of a pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Node {
    /// One letter that is in the set.
    Letter(CharSet),
    /// The beginning of the line.
    Start,
    /// The end of the line.
    End,
    /// All of them, one after another; an empty sequence matches anywhere.
    Concat(Vec<Node>),
    /// Any one of them.
    Alternation(Vec<Node>),
    /// The node at least `least` times, at most `most`.
    Repeat { node: Box<Node>, least: u32, most: Option<u32> },
}

/// Reads a whole pattern.
pub(crate) fn parse(text: &str) -> Result<Node, PatternError> {
    let (text, case) = match text.strip_prefix("(?i)") {
        Some(rest) => (rest, CaseSensitivity::Insensitive),
        None => (text, CaseSensitivity::Sensitive),
    };
    if text.is_empty() {
        return Err(PatternError::Empty);
    }
    let mut reader = Reader { letters: text.chars().peekable(), case, atoms: 0 };
    let node = reader.alternatives(0)?;
    match reader.letters.next() {
        Some(_) => Err(PatternError::CloseGroup),
        None => Ok(node),
    }
}

struct Reader<'a> {
    letters: Peekable<Chars<'a>>,
    case: CaseSensitivity,
    /// Atoms so far: a tree of everything that fits into an annotation would take many times its memory.
    atoms: usize,
}

impl Reader<'_> {
    /// Reads to the end or to a `)`, which it leaves.
    fn alternatives(&mut self, depth: usize) -> Result<Node, PatternError> {
        if depth > MAX_DEPTH {
            return Err(PatternError::TooLarge);
        }
        let mut alternatives = vec![self.sequence(depth)?];
        while self.letters.next_if_eq(&'|').is_some() {
            alternatives.push(self.sequence(depth)?);
        }
        Ok(Node::Alternation(alternatives))
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
            // What is repeated already must not be repeated again: `a+?` and `a++` mean other things in other engines.
            let node = match nodes.pop() {
                Some(Node::Repeat { .. } | Node::Start | Node::End) | None => {
                    return Err(PatternError::NothingToRepeat { letter });
                }
                Some(node) => Box::new(node),
            };
            // Which of several matches is taken does not change whether there is one.
            self.letters.next_if_eq(&'?');
            nodes.push(Node::Repeat { node, least, most });
        }
        Ok(Node::Concat(nodes))
    }

    fn atom(&mut self, letter: char, depth: usize) -> Result<Node, PatternError> {
        self.atoms += 1;
        if self.atoms > MAX_ATOMS {
            return Err(PatternError::TooLarge);
        }
        let ranges = match letter {
            '(' => return self.group(depth),
            '^' => return Ok(Node::Start),
            '$' => return Ok(Node::End),
            '[' => return self.class().map(Node::Letter),
            '.' => {
                return Ok(Node::Letter(CharSet::new(
                    Vec::new(),
                    ClassKind::Negated,
                    CaseSensitivity::Sensitive,
                )));
            }
            '\\' => {
                let (ranges, kind) = self.escape()?;
                return Ok(Node::Letter(CharSet::new(ranges, kind, CaseSensitivity::Sensitive)));
            }
            literal => vec![(literal, literal)],
        };
        Ok(Node::Letter(CharSet::new(ranges, ClassKind::Listed, self.case)))
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

    /// What a backslash makes of the next letter.
    fn escape(&mut self) -> Result<(Vec<(char, char)>, ClassKind), PatternError> {
        let letter = self.letters.next().ok_or(PatternError::Escape)?;
        let ranges: &[(char, char)] = match letter.to_ascii_lowercase() {
            'd' => &[('0', '9')],
            'w' => &[('0', '9'), ('A', 'Z'), ('_', '_'), ('a', 'z')],
            's' => &[('\t', '\r'), (' ', ' ')],
            't' if letter == 't' => &[('\t', '\t')],
            _ if letter.is_ascii_punctuation() || letter == ' ' => &[(letter, letter)],
            _ => return Err(PatternError::Escape),
        };
        let kind = if letter.is_ascii_uppercase() { ClassKind::Negated } else { ClassKind::Listed };
        Ok((ranges.to_vec(), kind))
    }

    /// `[...]` after its bracket.
    fn class(&mut self) -> Result<CharSet, PatternError> {
        let kind = match self.letters.next_if_eq(&'^') {
            Some(_) => ClassKind::Negated,
            None => ClassKind::Listed,
        };
        let mut ranges = Vec::new();
        // A bracket at the very start stands for itself.
        let mut first = self.letters.next_if_eq(&']');
        loop {
            let letter = match first.take().or_else(|| self.letters.next()).ok_or(PatternError::OpenClass)? {
                ']' if !ranges.is_empty() => return Ok(CharSet::new(ranges, kind, self.case)),
                '[' => return Err(PatternError::NestedClass),
                '\\' => match self.escape()? {
                    (_, ClassKind::Negated) => return Err(PatternError::Escape),
                    (quoted, ClassKind::Listed) => match quoted[..] {
                        [(from, to)] if from == to => from,
                        _ => {
                            ranges.extend(quoted);
                            continue;
                        }
                    },
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
                '\\' => match self.escape()?.0[..] {
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
