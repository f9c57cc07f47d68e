//! From the tree to a list of instructions for the matcher. Owns the limit on how many there may be.

use super::syntax::{Node, Set};
use super::{MAX_INSTRUCTIONS, PatternError};

/// The instructions; the first one begins.
pub(super) type Program = Vec<Instruction>;

/// One step of a match. Where nothing else is said, the next instruction follows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Instruction {
    /// Take one letter of the set.
    Letter(Set),
    /// Go on only at the beginning of the line.
    Start,
    /// Go on only at its end.
    End,
    /// Go on there too.
    Split(usize),
    /// Go on there.
    Jump(usize),
    /// Found.
    Match,
}

pub(super) fn compile(node: &Node) -> Result<Program, PatternError> {
    let mut compiler = Compiler { program: Vec::new(), visits: 0 };
    compiler.node(node)?;
    compiler.push(Instruction::Match)?;
    Ok(compiler.program)
}

struct Compiler {
    program: Program,
    /// Repeated nodes that come to nothing cost time all the same.
    visits: usize,
}

impl Compiler {
    fn push(&mut self, instruction: Instruction) -> Result<usize, PatternError> {
        if self.program.len() >= MAX_INSTRUCTIONS {
            return Err(PatternError::TooLarge);
        }
        self.program.push(instruction);
        Ok(self.program.len() - 1)
    }

    fn node(&mut self, node: &Node) -> Result<(), PatternError> {
        self.visits += 1;
        if self.visits > 16 * MAX_INSTRUCTIONS {
            return Err(PatternError::TooLarge);
        }
        match node {
            Node::Letter(set) => self.push(Instruction::Letter(set.clone())).map(drop),
            Node::Start => self.push(Instruction::Start).map(drop),
            Node::End => self.push(Instruction::End).map(drop),
            Node::Sequence(nodes) => nodes.iter().try_for_each(|node| self.node(node)),
            Node::Either(nodes) => self.either(nodes),
            Node::Repeat { node, least, most } => self.repeat(node, *least, *most),
        }
    }

    fn either(&mut self, nodes: &[Node]) -> Result<(), PatternError> {
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
