//! Translates a probe into a gate. Owns which fields of a probe a gate does not have, and the remark for each.

use std::net::IpAddr;
use std::time::Duration;

use pod_spec::{Gate, GateAction, ProbeTiming};

use crate::yaml::Node;

/// The gate in place of a probe, and how it differs.
pub struct TranslatedProbe {
    /// `None`: podshim has no such probe.
    pub gate: Option<Gate>,
    /// Each field of the probe that is not carried over as it is, and what becomes of it.
    pub remarks: Vec<(&'static str, String)>,
}

/// Translates a probe of a container.
pub fn gate(container: &Node, probe: &Node) -> TranslatedProbe {
    let mut remarks = Vec::new();
    let action = action(container, probe, &mut remarks);
    if probe.get("terminationGracePeriodSeconds").is_some() {
        let what = "not carried over: a sidecar that does not get ready is stopped within its grace";
        remarks.push(("terminationGracePeriodSeconds", what.to_owned()));
    }
    let seconds = |key, usual| Duration::from_secs(probe.number_of(key).unwrap_or(usual));
    // The defaults of the Kubernetes API.
    let timing = ProbeTiming {
        delay: seconds("initialDelaySeconds", 0),
        period: seconds("periodSeconds", 10),
        timeout: seconds("timeoutSeconds", 1),
        failures: probe
            .number_of("failureThreshold")
            .and_then(|count| u32::try_from(count).ok())
            .unwrap_or(3),
        successes: 1,
    };
    TranslatedProbe { gate: action.map(|action| Gate::Probe { action, timing }), remarks }
}

fn action(container: &Node, probe: &Node, remarks: &mut Vec<(&'static str, String)>) -> Option<GateAction> {
    // The kubelet probes the pod's IP, or another host from the node. podshim probes the pod's own addresses.
    let host = None;
    if let Some(command) = probe.at(&["exec", "command"]) {
        return Some(GateAction::Exec(
            command.items().iter().filter_map(Node::text).map(str::to_owned).collect(),
        ));
    }
    let (field, node) =
        ["httpGet", "tcpSocket", "grpc"].iter().find_map(|key| Some((*key, probe.get(key)?)))?;
    let Some(port) = node.get("port").and_then(|port| port_of(container, port)) else {
        remarks.push((field, "its port is none of the container's".to_owned()));
        return None;
    };
    if node.text_of("host").is_some_and(|host| !is_loopback(host)) {
        let what = "host: not carried over, podshim asks at the pod's own addresses";
        remarks.push((field, what.to_owned()));
    }
    let is_https = node.text_of("scheme").is_some_and(|scheme| scheme.eq_ignore_ascii_case("https"));
    if field == "grpc" {
        return Some(GateAction::Grpc {
            port,
            service: node.text_of("service").unwrap_or_default().to_owned(),
        });
    }
    if is_https {
        remarks.push((field, "HTTPS cannot be asked: ready when the port takes connections".to_owned()));
        return Some(GateAction::Tcp { host, port });
    }
    if field == "tcpSocket" {
        return Some(GateAction::Tcp { host, port });
    }
    if node.get("httpHeaders").is_some_and(|headers| !headers.items().is_empty()) {
        remarks.push((field, "httpHeaders: not carried over".to_owned()));
    }
    let path = node.text_of("path").filter(|path| !path.is_empty()).unwrap_or("/");
    let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
    Some(GateAction::Http { host, port, path })
}

/// Whether it is the loopback, which podshim probes too in a pod with hostNetwork.
fn is_loopback(host: &str) -> bool {
    host == "localhost" || host.parse().is_ok_and(|ip: IpAddr| ip.is_loopback())
}

/// The port that a probe gives as a number, or as the name of one of the container's ports.
fn port_of(container: &Node, port: &Node) -> Option<u16> {
    let text = port.text()?;
    let number = text.parse().ok().or_else(|| {
        let ports = container.get("ports")?.items();
        let named = ports.iter().find(|port| port.text_of("name") == Some(text))?;
        u16::try_from(named.number_of("containerPort")?).ok()
    })?;
    (number > 0).then_some(number)
}
