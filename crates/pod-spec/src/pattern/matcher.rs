//! Looking for a pattern in a line: all ways at once, a letter at a time, so that no pattern is slower than its number
//! of instructions for each letter.

use std::sync::Arc;

use super::compile::{Instruction, Program};

/// Looks for one pattern in lines. Keeps nothing from line to line but its memory.
#[derive(Debug)]
pub struct Matcher {
    program: Arc<Program>,
    /// Instructions to go on with.
    open: Vec<usize>,
    /// Those that wait for a letter.
    waiting: Vec<usize>,
    /// The last position at which each instruction was visited.
    visited: Vec<usize>,
}

impl Matcher {
    pub(super) fn new(program: Arc<Program>) -> Self {
        let visited = vec![0; program.len()];
        Self { program, open: Vec::new(), waiting: Vec::new(), visited }
    }

    /// Whether the pattern is found in the line, which has no line end.
    pub fn is_match(&mut self, line: &str) -> bool {
        self.open.clear();
        self.waiting.clear();
        self.visited.fill(0);
        let mut letters = line.chars().peekable();
        for position in 1.. {
            // It may begin anywhere.
            self.open.push(0);
            if self.follow(position, letters.peek().is_none()) {
                return true;
            }
            let Some(letter) = letters.next() else { return false };
            for at in self.waiting.drain(..) {
                if let Instruction::Letter(set) = &self.program[at]
                    && set.contains(letter)
                {
                    self.open.push(at + 1);
                }
            }
        }
        false
    }

    /// Follows all open ways up to where they need a letter; true if one of them is at the end of the pattern.
    fn follow(&mut self, position: usize, is_end: bool) -> bool {
        while let Some(at) = self.open.pop() {
            if std::mem::replace(&mut self.visited[at], position) == position {
                continue;
            }
            match &self.program[at] {
                Instruction::Match => return true,
                Instruction::Letter(_) => self.waiting.push(at),
                Instruction::Start if position == 1 => self.open.push(at + 1),
                Instruction::End if is_end => self.open.push(at + 1),
                Instruction::Start | Instruction::End => {}
                Instruction::Split(there) => self.open.extend([at + 1, *there]),
                Instruction::Jump(there) => self.open.push(*there),
            }
        }
        false
    }
}
