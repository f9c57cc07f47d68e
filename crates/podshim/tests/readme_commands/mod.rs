//! The README's three commands, from nothing to an ordered pod on a cluster: read from there. `hack/cluster test` runs them;
//! each `hack/test` sees that they are there.

/// Where the README puts its cluster.
pub const DIRECTORY: &str = "/tmp/c";

/// The words after `hack/cluster` in each: the one that makes the cluster, the one that makes the pod, and the one that shows its
/// log.
///
/// # Errors
/// The calls, if they are not three.
pub fn commands(readme: &str) -> Result<[Vec<&str>; 3], Vec<Vec<&str>>> {
    let calls = readme.lines().filter_map(|line| line.strip_prefix("    hack/cluster "));
    let without_comment = calls.filter_map(|call| call.split(" #").next());
    without_comment.map(|call| call.split_whitespace().collect()).collect::<Vec<_>>().try_into()
}
