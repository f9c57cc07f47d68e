//! The value of `after.<c>`: `x=ready, y=done, z=started`, and the cycles that several of them can make. Owns the
//! grammar and the search; `container` knows which containers there are.
//!
//! Only the `after` keys themselves can make a cycle: the list's order bends around them (`order`).

use crate::error::Problem;
use crate::excerpt::excerpt;
use crate::keys::CONDITIONS;
use crate::limits::MAX_CONTAINERS;
use crate::nearest::choose;
use crate::plan::Condition;

/// One dependency, its name not looked up yet.
#[derive(Debug)]
pub(super) struct NamedDependency<'a> {
    pub(super) name: &'a str,
    pub(super) condition: Condition,
}

/// Reads the list; the second part is everything wrong in it.
pub(super) fn parse(value: &str) -> (Vec<NamedDependency<'_>>, Vec<Problem>) {
    let mut dependencies: Vec<NamedDependency<'_>> = Vec::new();
    let mut problems = Vec::new();
    for (index, entry) in value.split(',').map(str::trim).enumerate() {
        if index >= MAX_CONTAINERS {
            problems.push(Problem::TooManyDependencies);
            break;
        }
        let Some((name, condition)) = entry.split_once('=').map(|(name, word)| (name.trim(), word.trim()))
        else {
            problems.push(Problem::DependencyMalformed { entry: excerpt(entry) });
            continue;
        };
        match choose(condition, &CONDITIONS) {
            Ok(condition) => dependencies.push(NamedDependency { name, condition }),
            Err(hint) => problems.push(Problem::UnknownCondition {
                condition: excerpt(condition),
                entry: excerpt(entry),
                hint,
            }),
        }
    }
    (dependencies, problems)
}

/// Every cycle that a depth-first search closes, as indices; the first is repeated at the end. `edges[i]`
/// lists what container `i` waits for.
pub(super) fn cycles(edges: &[Vec<usize>]) -> Vec<Vec<usize>> {
    let mut search =
        Search { edges, visited: vec![Visited::Never; edges.len()], path: Vec::new(), found: Vec::new() };
    for container in 0..edges.len() {
        search.visit(container);
    }
    search.found
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Visited {
    Never,
    OnPath,
    Done,
}

struct Search<'a> {
    edges: &'a [Vec<usize>],
    visited: Vec<Visited>,
    path: Vec<usize>,
    found: Vec<Vec<usize>>,
}

impl Search<'_> {
    /// Recursion is at most as deep as there are containers.
    fn visit(&mut self, container: usize) {
        match self.visited[container] {
            Visited::Done => {}
            Visited::OnPath => {
                let start = self.path.iter().position(|on_path| *on_path == container).unwrap_or(0);
                let mut cycle = self.path[start..].to_vec();
                cycle.push(container);
                self.found.push(cycle);
            }
            Visited::Never => {
                self.visited[container] = Visited::OnPath;
                self.path.push(container);
                for next in &self.edges[container] {
                    self.visit(*next);
                }
                self.path.pop();
                self.visited[container] = Visited::Done;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cycle_is_found_once_and_a_diamond_is_none() {
        assert_eq!(cycles(&[vec![1, 2], vec![3], vec![3], vec![]]), Vec::<Vec<usize>>::new());
        assert_eq!(cycles(&[vec![1], vec![2], vec![0]]), [[0, 1, 2, 0]]);
        assert_eq!(cycles(&[vec![1], vec![2], vec![1], vec![4], vec![3]]), [[1, 2, 1], [3, 4, 3]]);
    }
}
