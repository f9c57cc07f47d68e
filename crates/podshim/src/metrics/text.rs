//! Pieces of OpenMetrics' text: the head of a family, values and labels. Knows no metric.

use std::fmt::Write;

/// The lines at the head of a family. OpenMetrics wants a family's unit to be the end of its name.
pub(super) fn family(text: &mut String, name: &str, kind: &str, help: &str) {
    let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
    if name.ends_with("_seconds") {
        let _ = writeln!(text, "# UNIT {name} seconds");
    }
}

/// A label's value.
pub(super) fn escape(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// Milliseconds as seconds.
pub(super) fn seconds(milliseconds: u64) -> String {
    format!("{}.{:03}", milliseconds / 1000, milliseconds % 1000)
}
