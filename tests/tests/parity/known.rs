//! The intended differences: reads and matches `known.txt`. May never let a difference pass that no line there
//! describes.

use anyhow::{Context, Result};

use crate::differences::Difference;

/// An intended difference, as a line of the table.
#[derive(Clone, Debug)]
pub struct Known {
    /// The scenario in which it must occur.
    pub seen_in: &'static str,
    reach: Reach,
    occurs: Occurs,
    line: &'static str,
    step: &'static str,
    field: &'static str,
    runc: &'static str,
    podshim: &'static str,
    nodes: &'static str,
}

/// The properties of a node that decide which of the differences occur.
#[derive(Clone, Debug)]
pub struct Node {
    /// containerd's version, as in `2.1`.
    pub containerd: String,
    /// `runc` or `crun`.
    pub oci_runtime: String,
    /// Whether shims can be given a core scheduling group.
    pub core_scheduling: CoreScheduling,
}

/// What the kernel can do for `SCHED_CORE`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CoreScheduling {
    /// It has core scheduling (`CONFIG_SCHED_CORE`, and a processor with more threads than cores).
    Possible,
    /// Its prctl fails. `no-core-scheduling` in the table.
    Impossible,
}

impl CoreScheduling {
    /// What the running kernel can do.
    pub fn of_this_kernel() -> Self {
        let mut cookie = 0_u64;
        // SAFETY: PR_SCHED_CORE_GET for the calling thread writes one u64 to the given address, which is that of a
        // local variable.
        let answer = unsafe {
            libc::prctl(libc::PR_SCHED_CORE, libc::PR_SCHED_CORE_GET, 0, 0, std::ptr::from_mut(&mut cookie))
        };
        if answer == 0 { Self::Possible } else { Self::Impossible }
    }
}

/// Whether a difference occurs each time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Occurs {
    /// It does.
    Always,
    /// By a race in the Go shim.
    ByChance,
}

/// Where else a difference may occur.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reach {
    /// Nowhere.
    Scenario,
    /// In every other scenario.
    Everywhere,
}

/// The whole table.
pub fn table() -> Result<Vec<Known>> {
    let lines = include_str!("known.txt").lines();
    lines.filter(|line| !line.is_empty() && !line.starts_with('#')).map(Known::parse).collect()
}

impl Known {
    fn parse(line: &'static str) -> Result<Self> {
        let parts: Vec<_> = line.split(" | ").collect();
        let (seen_in, step, field, runc, podshim, nodes) = match parts[..] {
            [seen_in, step, field, runc, podshim] => (seen_in, step, field, runc, podshim, ""),
            [seen_in, step, field, runc, podshim, nodes] => (seen_in, step, field, runc, podshim, nodes),
            _ => {
                let error = anyhow::anyhow!("{} parts, not 5 or 6", parts.len());
                return Err(error).with_context(|| line.to_owned());
            }
        };
        let (seen_in, reach) = match seen_in.strip_suffix('+') {
            Some(seen_in) => (seen_in, Reach::Everywhere),
            None => (seen_in, Reach::Scenario),
        };
        let (seen_in, occurs) = match seen_in.strip_suffix('?') {
            Some(seen_in) => (seen_in, Occurs::ByChance),
            None => (seen_in, Occurs::Always),
        };
        Ok(Self { seen_in, reach, occurs, line, step, field, runc, podshim, nodes })
    }

    /// Whether the line applies to such a node: nothing in its last part excludes the node.
    pub fn is_about(&self, node: &Node) -> bool {
        let (kernels, words): (Vec<_>, Vec<_>) =
            self.nodes.split_whitespace().partition(|word| *word == "no-core-scheduling");
        let (runtimes, versions): (Vec<_>, Vec<_>) =
            words.into_iter().partition(|word| matches!(*word, "runc" | "crun"));
        (kernels.is_empty() || node.core_scheduling == CoreScheduling::Impossible)
            && (runtimes.is_empty() || runtimes.contains(&&*node.oci_runtime))
            && (versions.is_empty() || versions.contains(&&*node.containerd))
    }

    /// Whether a difference in a scenario matches this line.
    pub fn is(&self, scenario: &str, difference: &Difference) -> bool {
        (self.reach == Reach::Everywhere || self.seen_in == scenario)
            && fits(self.step, &difference.step)
            && fits(self.field, &difference.field)
            && fits_value(self.runc, difference.runc.as_deref())
            && fits_value(self.podshim, difference.podshim.as_deref())
    }

    /// Whether it must occur in its scenario.
    pub fn must_occur_in(&self, scenario: &str) -> bool {
        self.seen_in == scenario && self.occurs == Occurs::Always
    }

    /// The line as it is written.
    pub fn line(&self) -> &str {
        self.line
    }
}

fn fits_value(pattern: &str, value: Option<&str>) -> bool {
    match value {
        Some(value) => pattern != "-" && fits(pattern, value),
        None => pattern == "-",
    }
}

/// Whether a text fits a pattern in which `*` stands for any text.
fn fits(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(mut rest) = text.strip_prefix(parts.next().unwrap_or_default()) else { return false };
    let Some(last) = parts.next_back() else { return rest.is_empty() };
    for part in parts {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes() {
        let node = Node {
            containerd: "1.7".to_owned(),
            oci_runtime: "crun".to_owned(),
            core_scheduling: CoreScheduling::Possible,
        };
        for (nodes, about) in [
            ("", true),
            (" | 1.7", true),
            (" | 1.6 1.7 crun", true),
            (" | 2.1", false),
            (" | 1.7 runc", false),
            (" | 1.7 no-core-scheduling", false),
        ] {
            let line: &'static str = format!("a | b | c | d | e{nodes}").leak();
            assert_eq!(Known::parse(line).unwrap().is_about(&node), about, "{line}");
        }
    }

    #[test]
    fn patterns() {
        for (pattern, text, fit) in [
            ("a", "a", true),
            ("a", "ab", false),
            ("*", "", true),
            ("a*", "abc", true),
            ("*c", "abc", true),
            ("a*c", "ac", true),
            ("ab*bc", "abc", false),
            ("a*b*c", "a1b2c", true),
            ("a*b*c", "acb", false),
        ] {
            assert_eq!(fits(pattern, text), fit, "{pattern} {text}");
        }
    }
}
