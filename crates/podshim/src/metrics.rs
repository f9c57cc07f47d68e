//! Pods in OpenMetrics, which is also Prometheus' text format. Owns the names of the metrics; dashboards and alerts rely on them.

mod counters;
mod text;

use std::collections::BTreeMap;
use std::fmt::Write;

use control_api::container::Role;
use node_state::counts::Counts;

use self::text::{escape, seconds};
use crate::pods::{ContainerReport, PodReport, PodState};
use crate::words::DisplayWord;

/// All metrics of these pods, and what was counted in each namespace.
pub fn exposition(pods: &[PodReport], counts: &BTreeMap<String, Counts>) -> String {
    let mut text = String::new();
    gauges(&mut text, pods);
    counters::write(&mut text, counts);
    text.push_str("# EOF\n");
    text
}

/// An exposition in Prometheus' older text format.
pub fn older_format(exposition: &str) -> String {
    text::older_format(exposition)
}

/// How the threads of the pods' streams fare.
fn write_streams(text: &mut String, pods: &[&PodReport]) {
    let mut write = |name: &str, help: &str, time: fn(&PodReport) -> Option<u64>| {
        family(text, name, help);
        for (pod, time) in pods.iter().filter_map(|pod| Some((pod, time(pod)?))) {
            let _ = writeln!(text, "{name}{{{}}} {}", labels(pod), seconds(time));
        }
    };
    write(
        "podshim_shim_streams_longest_away_seconds",
        "The longest that a thread of the pod's streams was away from them.",
        |pod| pod.streams_longest_away_ms,
    );
    write(
        "podshim_shim_streams_away_seconds",
        "For how long a thread of the pod's streams has been away now.",
        |pod| pod.streams_away_ms,
    );
}

/// What pods are now. It ends with the pod.
fn gauges(text: &mut String, pods: &[PodReport]) {
    family(text, "podshim_pods", "Pods on this node, by state; dead and silent are those of their shims.");
    for state in PodState::ALL {
        let name = label(state);
        let count = pods.iter().filter(|pod| pod.state == state).count();
        let _ = writeln!(text, "podshim_pods{{state=\"{name}\"}} {count}");
    }
    let pods = &newest_of_each_name(pods)[..];
    family(text, "podshim_pod_info", "What a pod is served by.");
    for pod in pods {
        let release = pod.release.as_deref().unwrap_or_default();
        let _ = writeln!(
            text,
            "podshim_pod_info{{{},id=\"{}\",release=\"{}\"}} 1",
            labels(pod),
            escape(&pod.id),
            escape(release)
        );
    }
    family(text, "podshim_pod_stopping", "Whether a stop of the pod is under way, with its reason.");
    for (pod, stop) in pods.iter().filter_map(|pod| Some((pod, pod.stop.as_ref()?))) {
        let _ = writeln!(text, "podshim_pod_stopping{{{},reason=\"{}\"}} 1", labels(pod), stop.reason.word());
    }
    family(
        text,
        "podshim_pod_stop_budget_seconds",
        "What is left of a stop's time, where podshim counts it.",
    );
    for (pod, left) in pods.iter().filter_map(|pod| Some((pod, pod.stop.as_ref()?.left_ms?))) {
        let _ = writeln!(text, "podshim_pod_stop_budget_seconds{{{}}} {}", labels(pod), seconds(left));
    }
    family(
        text,
        "podshim_shim_longest_away_seconds",
        "The longest that a pod's shim was away from what it serves.",
    );
    for (pod, away) in pods.iter().filter_map(|pod| Some((pod, pod.longest_away_ms?))) {
        let _ = writeln!(text, "podshim_shim_longest_away_seconds{{{}}} {}", labels(pod), seconds(away));
    }
    write_streams(text, pods);
    family(
        text,
        "podshim_pod_processor_seconds",
        "Processor time spent for a pod outside of its containers' cgroups, by what it was for.",
    );
    for (pod, cost) in pods.iter().filter_map(|pod| Some((pod, pod.cost.as_ref()?))) {
        for (name, time) in cost.parts() {
            let (labels, time) = (labels(pod), seconds(time));
            let _ = writeln!(text, "podshim_pod_processor_seconds{{{labels},for=\"{name}\"}} {time}");
        }
    }
    gauges_of_containers(text, pods);
}

fn gauges_of_containers(text: &mut String, pods: &[&PodReport]) {
    let of_container = |container: &ContainerReport| Some(format!(",state=\"{}\"}} 1", container.state_word));
    containers(text, pods, "podshim_container_state", "The state of a container.", of_container);
    let help = "Restarts by podshim since the program last ran for ten minutes.";
    containers(text, pods, "podshim_container_restarts", help, |container| {
        Some(format!("}} {}", container.restarts))
    });
    let help = "All restarts by podshim of the containers of a name.";
    containers(text, pods, "podshim_container_lifetime_restarts", help, |container| {
        Some(format!("}} {}", container.restarts_total?))
    });
    let help = "How often the kernel killed a process of a container for memory.";
    containers(text, pods, "podshim_container_oom_kills", help, |container| {
        Some(format!("}} {}", container.oom_kills?))
    });
    let help =
        "For how long a program has not ended after a signal that is to end it, and why that was sent.";
    containers(text, pods, "podshim_container_stopping_seconds", help, |container| {
        let (signal, cause) = (container.stop_signal.as_ref()?, container.stop_cause?.word());
        let time = seconds(container.stopping_for_ms?);
        Some(format!(",signal=\"{}\",cause=\"{cause}\"}} {time}", escape(signal)))
    });
    let help = "How the program of a container really ended last, also while it runs again.";
    containers(text, pods, "podshim_container_last_exit_code", help, |container| {
        Some(format!("}} {}", container.real_exit_code?))
    });
    let help = "When a container is started again.";
    containers(text, pods, "podshim_container_restart_in_seconds", help, |container| {
        Some(format!("}} {}", seconds(container.restart_in_ms?)))
    });
    let help = "How long a container waits for gates before its program starts, or has waited last.";
    containers(text, pods, "podshim_container_gate_wait_seconds", help, |container| {
        Some(format!("}} {}", seconds(container.gate_wait_ms?)))
    });
}

/// The value of the label `state`: the state's words, without what a metric of pods need not say.
fn label(state: PodState) -> &'static str {
    match state {
        PodState::ShimDead => "dead",
        PodState::ShimSilent => "silent",
        other => other.words(),
    }
}

fn family(text: &mut String, name: &str, help: &str) {
    text::family(text, name, "gauge", help);
}

fn containers(
    text: &mut String,
    pods: &[&PodReport],
    name: &str,
    help: &str,
    rest: impl Fn(&ContainerReport) -> Option<String>,
) {
    family(text, name, help);
    for pod in pods {
        for container in one_of_each_name(pod) {
            if let Some(rest) = rest(container) {
                let (labels, own, role) = (labels(pod), escape(&container.name), container.role.word());
                let _ = writeln!(text, "{name}{{{labels},container=\"{own}\",role=\"{role}\"{rest}");
            }
        }
    }
}

/// A pod's name is used again while the pod that had it, or its sandbox, still ends: each series is there once, of the newest
/// pod. One whose shim does not answer has no age: it counts as the oldest.
fn newest_of_each_name(pods: &[PodReport]) -> Vec<&PodReport> {
    let mut newest: BTreeMap<_, &PodReport> = BTreeMap::new();
    for pod in pods {
        let kept = newest.entry(name(pod)).or_insert(pod);
        if kept.started_at_ms < pod.started_at_ms {
            *kept = pod;
        }
    }
    newest.into_values().collect()
}

/// The containers without the sandbox; of those with the same name one that has not ended, else the last one.
fn one_of_each_name(pod: &PodReport) -> Vec<&ContainerReport> {
    let mut chosen: Vec<&ContainerReport> = Vec::new();
    for container in pod.containers.iter().filter(|container| container.role != Role::SANDBOX) {
        match chosen.iter_mut().find(|other| other.name == container.name) {
            Some(other) if other.has_ended() || !container.has_ended() => *other = container,
            Some(_) => {}
            None => chosen.push(container),
        }
    }
    chosen
}

/// What a pod is called: its namespace and name. One without a name in Kubernetes has its id as the name.
fn name(pod: &PodReport) -> (&str, &str) {
    (pod.pod_namespace.as_deref().unwrap_or_default(), pod.name.as_deref().unwrap_or(&pod.id))
}

/// The labels that identify a pod for people.
fn labels(pod: &PodReport) -> String {
    let (namespace, name) = name(pod);
    format!("namespace=\"{}\",pod=\"{}\"", escape(namespace), escape(name))
}
