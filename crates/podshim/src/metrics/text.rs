//! Pieces of OpenMetrics' text: the head of a family, values and labels. Knows no metric.

use std::collections::BTreeSet;
use std::fmt::Write;

/// The lines at the head of a family. OpenMetrics wants a family's unit to be the end of its name.
pub(super) fn family(text: &mut String, name: &str, kind: &str, help: &str) {
    let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
    if name.ends_with("_seconds") {
        let _ = writeln!(text, "# UNIT {name} seconds");
    }
}

/// The same in Prometheus' older format, which has no families: help and type name the samples, those of a counter with its
/// `_total`, and there is neither a unit nor an end.
pub(super) fn older_format(open_metrics: &str) -> String {
    let head = |line: &'_ str| -> Option<(String, String, String)> {
        let mut words = line.strip_prefix("# ")?.splitn(3, ' ').map(str::to_owned);
        Some((words.next()?, words.next()?, words.next()?))
    };
    let types = open_metrics.lines().filter_map(head);
    let counters: BTreeSet<_> = types
        .filter(|(kind, _, value)| kind == "TYPE" && value == "counter")
        .map(|(_, name, _)| name)
        .collect();
    let mut text = String::with_capacity(open_metrics.len());
    for line in open_metrics.lines() {
        let _ = match head(line) {
            Some((kind, name, value)) if counters.contains(&name) => {
                writeln!(text, "# {kind} {name}_total {value}")
            }
            Some((kind, ..)) if kind == "UNIT" => Ok(()),
            None if line == "# EOF" => Ok(()),
            _ => writeln!(text, "{line}"),
        };
    }
    text
}

/// A label's value.
pub(super) fn escape(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// Milliseconds as seconds.
pub(super) fn seconds(milliseconds: u64) -> String {
    format!("{}.{:03}", milliseconds / 1000, milliseconds % 1000)
}
