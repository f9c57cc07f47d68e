//! Checks the node's file, `/etc/podshim/config.toml`.

use manifests::finding::{Finding, Severity};
use manifests::source::Source;
use pod_spec::Node as NodeFile;

/// All findings on the file. The shim's parser stops at the first mistake, so each wrong line is blanked and the file
/// parsed again.
pub fn check(source: &Source) -> Vec<Finding> {
    let mut lines: Vec<&str> = source.text.lines().collect();
    let mut findings = Vec::new();
    while let Err(error) = NodeFile::parse(&lines.join("\n")) {
        let line = error.line();
        let Some(place) = lines.get_mut(line.wrapping_sub(1)) else { break };
        // The finding is printed behind `file:line:`, so the message needs no line.
        let message = error.to_string();
        let message = message.strip_prefix(&format!("line {line}: ")).unwrap_or(&message);
        let mut finding = Finding::new(Severity::Error, &source.name, line, message);
        if let Some((key, value)) = place.split_once('=') {
            finding = finding.key(key.trim()).value(value.trim());
        }
        if let Some(word) = error.nearest() {
            finding = finding.nearest(&word).fix(format!("write {word:?}"));
        }
        findings.push(finding);
        *place = "";
    }
    findings
}
