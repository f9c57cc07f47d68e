//! Looks for a pattern in a line: follows all ways at once, letter by letter, so that each letter costs at most as many
//! steps as the pattern has instructions.

use std::sync::Arc;

use crate::compile::{Instruction, Program};

/// Looks for one pattern in lines. Keeps only its memory from line to line.
#[derive(Debug)]
pub struct Matcher {
    program: Arc<Program>,
    /// Instructions to follow next.
    open: Vec<usize>,
    /// Instructions that wait for a letter.
    waiting: Vec<usize>,
    /// Instructions that wait for the end of the line.
    at_end: Vec<usize>,
    /// The last position at which each instruction was visited.
    visited: Vec<u64>,
    /// Counts over all lines, so that nothing need be cleared between two.
    position: u64,
    place: Place,
}

/// The place in the line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Beginning,
    Middle,
    End,
}

impl Matcher {
    pub(crate) fn new(program: Arc<Program>) -> Self {
        let visited = vec![0; program.len()];
        let (open, waiting, at_end) = (Vec::new(), Vec::new(), Vec::new());
        Self { program, open, waiting, at_end, visited, position: 1, place: Place::Beginning }
    }

    /// Whether the pattern is found in the line, which has no line end.
    pub fn is_match(&mut self, line: &str) -> bool {
        self.begin();
        self.advance(line) || self.end()
    }

    /// Begins a new line.
    pub fn begin(&mut self) {
        self.open.clear();
        self.waiting.clear();
        self.at_end.clear();
        self.position += 1;
        self.place = Place::Beginning;
    }

    /// Looks at the next letters of the line; true if the pattern is found, whatever follows. So a caller can pass a
    /// long line piece by piece: each letter takes at most [`Pattern::size`](crate::Pattern::size) steps.
    pub fn advance(&mut self, letters: &str) -> bool {
        for letter in letters.chars() {
            if self.follow_from_here() {
                return true;
            }
            for at in self.waiting.drain(..) {
                if let Instruction::Letter(set) = &self.program[at]
                    && set.contains(letter)
                {
                    self.open.push(at + 1);
                }
            }
            self.at_end.clear();
            self.position += 1;
            self.place = Place::Middle;
        }
        false
    }

    /// The line is over: whether the pattern is found at its end.
    pub fn end(&mut self) -> bool {
        if self.follow_from_here() {
            return true;
        }
        // Only the instructions that waited for the end of the line are left to follow.
        self.open.extend(self.at_end.drain(..).map(|at| at + 1));
        let opened_at = self.place;
        self.place = Place::End;
        let found = self.follow(opened_at);
        self.begin();
        found
    }

    /// The pattern may begin anywhere.
    fn follow_from_here(&mut self) -> bool {
        self.open.push(0);
        self.follow(self.place)
    }

    /// Follows all open ways, opened at that place, to where they need a letter; true if one reaches the end of the pattern.
    fn follow(&mut self, opened_at: Place) -> bool {
        while let Some(at) = self.open.pop() {
            if std::mem::replace(&mut self.visited[at], self.position) == self.position {
                continue;
            }
            match &self.program[at] {
                Instruction::Match => return true,
                Instruction::Letter(_) => self.waiting.push(at),
                Instruction::Start if opened_at == Place::Beginning => self.open.push(at + 1),
                Instruction::Start => {}
                Instruction::End if self.place == Place::End => self.open.push(at + 1),
                Instruction::End => self.at_end.push(at),
                Instruction::Split(there) => self.open.extend([at + 1, *there]),
                Instruction::Jump(there) => self.open.push(*there),
            }
        }
        false
    }
}
