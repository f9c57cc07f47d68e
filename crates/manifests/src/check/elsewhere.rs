//! Annotations of podshim that are in no pod template: an object of a kind that puts them elsewhere, values for a chart, or a
//! mistake. Owns which keys nothing else looks at, so that no file with a plan is passed over in silence.

use pod_spec::Node as NodeFile;

use super::pod;
use crate::annotations::is_ours;
use crate::finding::{Finding, Severity};
use crate::manifest::{Template, patched_annotations, walk};
use crate::source::Source;
use crate::yaml::{Document, Node};

/// The one label of podshim, which a node has.
const LABEL: &str = "podshim.io/ready";

/// Adds a warning for each mapping with keys of podshim that no template has. If it has a plan of its own, that is checked, too.
pub(super) fn check(
    source: &Source,
    document: &Document,
    templates: &[Template<'_>],
    node: &NodeFile,
    findings: &mut Vec<Finding>,
) {
    let known = templates.iter().flat_map(|template| [template.annotations(), template.outer_annotations()]);
    let patched: Vec<_> = patched_annotations(document).collect();
    let known: Vec<&Node> = known.flatten().chain(patched).collect();
    for mapping in walk(&document.root) {
        let mut ours = mapping.entries().iter().filter_map(|(key, _)| {
            let name = key.text().filter(|name| is_ours(name) && *name != LABEL)?;
            Some((name, key.start.line))
        });
        let Some((name, line)) = ours.next() else { continue };
        if known.iter().any(|known| std::ptr::eq(*known, mapping)) {
            continue;
        }
        let is_plan = |name: &str| name == "podshim.io/plan" || name.starts_with("podshim.io/role.");
        if is_plan(name) || ours.any(|(name, _)| is_plan(name)) {
            pod::check_alone(&source.name, mapping, node, findings);
        }
        let message = "is not among the annotations of a pod template: podshim check cannot see whether it reaches a pod";
        let fix = "write it into the metadata.annotations beside the spec that has the containers";
        findings.push(Finding::new(Severity::Warning, &source.name, line, message).key(name).fix(fix));
    }
}
