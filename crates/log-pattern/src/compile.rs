//! From the tree to a list of instructions for the matcher. Owns the limit on the number of instructions and on the
//! ranges of their sets.

use std::collections::BTreeSet;

use crate::char_set::CharSet;
use crate::error::PatternError;
use crate::limits::{MAX_ATOMS, MAX_SIZE};
use crate::syntax::Node;

/// The instructions; a match begins at the first one.
pub(crate) type Program = Vec<Instruction>;

/// One step of a match. The next instruction follows, unless the step says otherwise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Instruction {
    /// Take one letter of the set.
    Letter(CharSet),
    /// Go on only at the beginning of the line.
    Start,
    /// Go on only at its end.
    End,
    /// Go on at that instruction too.
    Split(usize),
    /// Go on at that instruction.
    Jump(usize),
    /// The pattern is found.
    Match,
}

pub(crate) fn compile(node: &Node) -> Result<Program, PatternError> {
    let mut compiler = Compiler { program: Vec::new(), visits: 0 };
    compiler.node(node)?;
    compiler.push(Instruction::Match)?;
    if size(&compiler.program) > MAX_SIZE {
        return Err(PatternError::TooLarge);
    }
    Ok(compiler.program)
}

/// Instructions, and the ranges beyond the first of each set. A set that several instructions share, as the rounds of a
/// repetition do, counts once.
pub(crate) fn size(program: &Program) -> usize {
    let mut seen = BTreeSet::new();
    let sets = program.iter().filter_map(|instruction| match instruction {
        Instruction::Letter(set) => Some(set),
        _ => None,
    });
    let distinct = sets.filter(|set| seen.insert(set.identity()));
    program.len() + distinct.map(|set| set.ranges().saturating_sub(1)).sum::<usize>()
}

struct Compiler {
    program: Program,
    /// Repeated nodes that produce no instruction cost time all the same.
    visits: usize,
}

impl Compiler {
    fn push(&mut self, instruction: Instruction) -> Result<usize, PatternError> {
        if self.program.len() >= MAX_SIZE {
            return Err(PatternError::TooLarge);
        }
        self.program.push(instruction);
        Ok(self.program.len() - 1)
    }

    fn node(&mut self, node: &Node) -> Result<(), PatternError> {
        self.visits += 1;
        if self.visits > MAX_ATOMS {
            return Err(PatternError::TooLarge);
        }
        match node {
            Node::Letter(set) => self.push(Instruction::Letter(set.clone())).map(drop),
            Node::Start => self.push(Instruction::Start).map(drop),
            Node::End => self.push(Instruction::End).map(drop),
            Node::Concat(nodes) => nodes.iter().try_for_each(|node| self.node(node)),
            Node::Alternation(nodes) => self.alternation(nodes),
            Node::Repeat { node, least, most } => self.repeat(node, *least, *most),
        }
    }

    fn alternation(&mut self, nodes: &[Node]) -> Result<(), PatternError> {
        let Some((last, others)) = nodes.split_last() else { return Ok(()) };
        let mut ends = Vec::new();
        for node in others {
            let split = self.push(Instruction::Split(0))?;
            self.node(node)?;
            ends.push(self.push(Instruction::Jump(0))?);
            self.program[split] = Instruction::Split(self.program.len());
        }
        self.node(last)?;
        for end in ends {
            self.program[end] = Instruction::Jump(self.program.len());
        }
        Ok(())
    }

    fn repeat(&mut self, node: &Node, least: u32, most: Option<u32>) -> Result<(), PatternError> {
        for _ in 0..least {
            self.node(node)?;
        }
        let Some(most) = most else {
            let split = self.push(Instruction::Split(0))?;
            self.node(node)?;
            self.push(Instruction::Jump(split))?;
            self.program[split] = Instruction::Split(self.program.len());
            return Ok(());
        };
        let mut splits = Vec::new();
        for _ in least..most {
            splits.push(self.push(Instruction::Split(0))?);
            self.node(node)?;
        }
        for split in splits {
            self.program[split] = Instruction::Split(self.program.len());
        }
        Ok(())
    }
}
