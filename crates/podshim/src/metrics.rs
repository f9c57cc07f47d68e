//! Pods in Prometheus' text format. Owns the names of the metrics; dashboards rely on them.

use std::fmt::Write;

use control_api::container::Role;

use crate::pods::{ContainerReport, PodReport, PodState};
use crate::words::DisplayWord;

/// All metrics of these pods.
pub fn exposition(pods: &[PodReport]) -> String {
    let mut text = String::new();
    family(
        &mut text,
        "podshim_pods",
        "Pods on this node, by state; dead and silent are those of their shims.",
    );
    for (state, name) in STATES {
        let count = pods.iter().filter(|pod| pod.state == state).count();
        let _ = writeln!(text, "podshim_pods{{state=\"{name}\"}} {count}");
    }
    family(&mut text, "podshim_pod_info", "What a pod is served by.");
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
    family(&mut text, "podshim_pod_stopping", "Whether a stop of the pod is under way, with its reason.");
    for (pod, stop) in pods.iter().filter_map(|pod| Some((pod, pod.stop.as_ref()?))) {
        let _ = writeln!(text, "podshim_pod_stopping{{{},reason=\"{}\"}} 1", labels(pod), stop.reason.word());
    }
    family(
        &mut text,
        "podshim_pod_stop_budget_seconds",
        "What is left of a stop's time, where podshim counts it.",
    );
    for (pod, left) in pods.iter().filter_map(|pod| Some((pod, pod.stop.as_ref()?.left_ms?))) {
        let _ = writeln!(text, "podshim_pod_stop_budget_seconds{{{}}} {}", labels(pod), seconds(left));
    }
    family(
        &mut text,
        "podshim_shim_longest_away_seconds",
        "The longest that a pod's shim was away from what it serves.",
    );
    for (pod, away) in pods.iter().filter_map(|pod| Some((pod, pod.longest_away_ms?))) {
        let _ = writeln!(text, "podshim_shim_longest_away_seconds{{{}}} {}", labels(pod), seconds(away));
    }
    family(
        &mut text,
        "podshim_pod_processor_seconds",
        "Processor time spent for a pod outside of its containers' cgroups, by what it was for.",
    );
    for (pod, cost) in pods.iter().filter_map(|pod| Some((pod, pod.cost.as_ref()?))) {
        for (name, time) in cost.parts() {
            let (labels, time) = (labels(pod), seconds(time));
            let _ = writeln!(text, "podshim_pod_processor_seconds{{{labels},for=\"{name}\"}} {time}");
        }
    }
    let of_container =
        |container: &ContainerReport| Some(format!(",state=\"{}\"}} 1", container.state.word()));
    containers(&mut text, pods, "podshim_container_state", "The state of a container.", of_container);
    let help = "Restarts by podshim since the program last ran for ten minutes.";
    containers(&mut text, pods, "podshim_container_restarts", help, |container| {
        Some(format!("}} {}", container.restarts))
    });
    let help = "How the program of a container really ended last.";
    containers(&mut text, pods, "podshim_container_last_exit_code", help, |container| {
        Some(format!("}} {}", container.real_exit_code?))
    });
    let help = "When a container is started again.";
    containers(&mut text, pods, "podshim_container_restart_in_seconds", help, |container| {
        Some(format!("}} {}", seconds(container.restart_in_ms?)))
    });
    text
}

const STATES: [(PodState, &str); 7] = [
    (PodState::Running, "running"),
    (PodState::Stopping, "stopping"),
    (PodState::Completed, "completed"),
    (PodState::Failed, "failed"),
    (PodState::Stopped, "stopped"),
    (PodState::ShimDead, "dead"),
    (PodState::ShimSilent, "silent"),
];

fn family(text: &mut String, name: &str, help: &str) {
    // All are gauges: a shim counts only during its pod's life, and the numbers end with it.
    let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} gauge");
}

fn containers(
    text: &mut String,
    pods: &[PodReport],
    name: &str,
    help: &str,
    rest: impl Fn(&ContainerReport) -> Option<String>,
) {
    family(text, name, help);
    for pod in pods {
        for container in pod.containers.iter().filter(|container| container.role != Role::SANDBOX) {
            if let Some(rest) = rest(container) {
                let (labels, own, role) = (labels(pod), escape(&container.name), container.role.word());
                let _ = writeln!(text, "{name}{{{labels},container=\"{own}\",role=\"{role}\"{rest}");
            }
        }
    }
}

/// The labels that identify a pod for people. A pod without a name in Kubernetes has its id as the name.
fn labels(pod: &PodReport) -> String {
    let name = pod.name.as_deref().unwrap_or(&pod.id);
    let namespace = pod.pod_namespace.as_deref().unwrap_or_default();
    format!("namespace=\"{}\",pod=\"{}\"", escape(namespace), escape(name))
}

fn escape(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

fn seconds(milliseconds: u64) -> String {
    format!("{}.{:03}", milliseconds / 1000, milliseconds % 1000)
}
