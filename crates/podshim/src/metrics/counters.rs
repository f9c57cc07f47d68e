//! What was counted in each namespace since the node was booted: counters and histograms.
//!
//! Owns their names, labels and zeros. A counter is there with 0 from its namespace's first pod on: an alert on an increase would
//! miss the first one otherwise. The labels are bounded: namespaces by `node_state::counts`, all others are words of podshim.

use std::collections::BTreeMap;
use std::fmt::Write;

use control_api::StopReason;
use node_state::counts::{BOUNDS_MS, Completion, Count, CountedRole, Counts, Histogram, Measure};

use super::text::{escape, family, seconds};

/// Who sends a SIGKILL.
const CAUSES: [&str; 3] = ["budget", "grace", "caller"];
/// The commands of an OCI runtime.
const CALLS: [&str; 11] = [
    "create",
    "start",
    "delete",
    "kill",
    "exec",
    "pause",
    "resume",
    "update",
    "state",
    "checkpoint",
    "restore",
];

/// Counts by namespace.
type ByNamespace = BTreeMap<String, Counts>;

/// A sample's labels and count for each role.
fn by_role(count: fn(CountedRole) -> Count<'static>) -> Vec<(String, Count<'static>)> {
    CountedRole::ALL.map(|role| (format!(",role=\"{role}\""), count(role))).to_vec()
}

pub(super) fn write(text: &mut String, counts: &ByNamespace) {
    starts_and_ends(text, counts);
    counter(
        text,
        "podshim_restarts",
        "Starts of a program by podshim after its end.",
        counts,
        &by_role(Count::Restarts),
    );
    counter(
        text,
        "podshim_gate_failures",
        "Gates that did not open in time.",
        counts,
        &by_role(Count::GateFailures),
    );
    counter(
        text,
        "podshim_gate_timeouts",
        "Containers that were held for the whole gate-timeout.",
        counts,
        &by_role(Count::GateTimeouts),
    );
    let kills = CountedRole::ALL.iter().flat_map(|role| {
        CAUSES.map(|cause| (format!(",role=\"{role}\",cause=\"{cause}\""), Count::ForcedKills(*role, cause)))
    });
    counter(
        text,
        "podshim_forced_kills",
        "Programs that got SIGKILL, by who sent it: podshim for the pod's or the container's time, or a caller.",
        counts,
        &kills.collect::<Vec<_>>(),
    );
    counter(
        text,
        "podshim_oom_kills",
        "Processes that the kernel killed for memory, also of a container that podshim restarted in place.",
        counts,
        &by_role(Count::OomKills),
    );
    let stop = |reason: StopReason| (format!(",reason=\"{}\"", reason.word()), Count::Stops(reason.word()));
    let stops: Vec<_> = StopReason::reasons().map(stop).collect();
    counter(text, "podshim_stops", "Stops of a pod, by their first reason.", counts, &stops);
    counter(
        text,
        "podshim_budget_overruns",
        "Stops whose time was spent before all containers had ended.",
        counts,
        &[(String::new(), Count::BudgetOverruns)],
    );
    durations(text, counts);
    of_node(text, counts);
}

fn durations(text: &mut String, counts: &ByNamespace) {
    by_role_histogram(
        text,
        "podshim_gate_wait_seconds",
        "How long containers were held for gates.",
        counts,
        Measure::GateWait,
    );
    by_role_histogram(
        text,
        "podshim_stop_seconds",
        "From a program's stop signal to its end.",
        counts,
        Measure::Stop,
    );
}

/// Of programs, and of pods that come to their own end.
fn starts_and_ends(text: &mut String, counts: &ByNamespace) {
    counter(text, "podshim_container_starts", "Starts of a program.", counts, &by_role(Count::Starts));
    counter(
        text,
        "podshim_container_start_failures",
        "Programs that could not be started.",
        counts,
        &by_role(Count::StartFailures),
    );
    let completion = |result: Completion| (format!(",result=\"{result}\""), Count::Completions(result));
    counter(
        text,
        "podshim_completions",
        "Pods that came to their own end, by whether all mains exited with 0.",
        counts,
        &Completion::ALL.map(completion),
    );
}

/// What is the node's matter: summed over all namespaces.
fn of_node(text: &mut String, counts: &ByNamespace) {
    let mut sum = Counts::default();
    counts.values().for_each(|counts| sum.add_all(counts));
    let name = "podshim_runtime_call_seconds";
    family(text, name, "histogram", "Calls of the OCI runtime, by its command.");
    for call in CALLS {
        if let Some(histogram) = sum.histogram(Measure::RuntimeCall(call)) {
            write_histogram(text, name, &format!("call=\"{call}\""), &histogram);
        }
    }
    let name = "podshim_runtime_call_failures";
    family(text, name, "counter", "Calls of the OCI runtime that failed, by its command.");
    for call in CALLS {
        let count = sum.of(Count::RuntimeFailures(call));
        let _ = writeln!(text, "{name}_total{{call=\"{call}\"}} {count}");
    }
    let name = "podshim_events_dropped";
    family(text, name, "counter", "Events that containerd did not get.");
    let _ = writeln!(text, "{name}_total {}", sum.of(Count::EventsDropped));
}

/// A counter with one sample for each namespace and each of these labels.
fn counter(text: &mut String, name: &str, help: &str, counts: &ByNamespace, samples: &[(String, Count<'_>)]) {
    family(text, name, "counter", help);
    for (namespace, counts) in counts {
        for (labels, count) in samples {
            let (namespace, count) = (escape(namespace), counts.of(*count));
            let _ = writeln!(text, "{name}_total{{namespace=\"{namespace}\"{labels}}} {count}");
        }
    }
}

/// A histogram with a series for each namespace and role that has observations: zeros would be a thousand lines.
fn by_role_histogram(
    text: &mut String,
    name: &str,
    help: &str,
    counts: &ByNamespace,
    measure: fn(CountedRole) -> Measure<'static>,
) {
    family(text, name, "histogram", help);
    for (namespace, counts) in counts {
        for role in CountedRole::ALL {
            if let Some(histogram) = counts.histogram(measure(role)) {
                let labels = format!("namespace=\"{}\",role=\"{role}\"", escape(namespace));
                write_histogram(text, name, &labels, &histogram);
            }
        }
    }
}

fn write_histogram(text: &mut String, name: &str, labels: &str, histogram: &Histogram) {
    for (bound, count) in BOUNDS_MS.iter().zip(histogram.within) {
        let _ = writeln!(text, "{name}_bucket{{{labels},le=\"{}\"}} {count}", canonical_seconds(*bound));
    }
    let (count, sum) = (histogram.count, seconds(histogram.sum_ms));
    let _ = writeln!(text, "{name}_bucket{{{labels},le=\"+Inf\"}} {count}");
    let _ = writeln!(text, "{name}_count{{{labels}}} {count}\n{name}_sum{{{labels}}} {sum}");
}

/// OpenMetrics has one form for each bound: `0.3`, `1.0`.
fn canonical_seconds(milliseconds: u64) -> String {
    let text = seconds(milliseconds);
    let short = text.trim_end_matches('0');
    if short.ends_with('.') { format!("{short}0") } else { short.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_written_in_the_one_form_that_open_metrics_has() {
        let bounds = BOUNDS_MS.map(canonical_seconds);
        let canonical =
            ["0.01", "0.03", "0.1", "0.3", "1.0", "3.0", "5.0", "10.0", "30.0", "60.0", "300.0", "1800.0"];
        assert_eq!(bounds, canonical);
    }
}
