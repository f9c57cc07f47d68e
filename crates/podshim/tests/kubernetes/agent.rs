//! dist/kubernetes/agent: names agree, rights are what docs/agent.md says, and nothing of the node can be written.

use std::collections::BTreeSet;

use manifests::yaml::Node;
use node_state::past::HISTORY_ROOT;
use pod_spec::STARTED_CONDITION;

use super::{Part, objects_of, texts};

fn all(kind: &str) -> Vec<Node> {
    let objects = objects_of(&[Part::Agent]).into_iter().filter(|(of, _)| of == kind);
    let those: Vec<_> = objects.map(|(_, object)| object).collect();
    assert!(!those.is_empty(), "no {kind}");
    those
}

fn text<'a>(object: &'a Node, path: &[&str]) -> &'a str {
    object.at(path).and_then(Node::text).unwrap_or_else(|| panic!("no {path:?}"))
}

#[test]
fn the_names_agree() {
    for kind in ["Namespace", "ServiceAccount", "ClusterRole", "ClusterRoleBinding", "DaemonSet"] {
        let objects = all(kind);
        assert_eq!((objects.len(), text(&objects[0], &["metadata", "name"])), (1, "podshim-agent"), "{kind}");
        if !["Namespace", "ClusterRole", "ClusterRoleBinding"].contains(&kind) {
            assert_eq!(text(&objects[0], &["metadata", "namespace"]), "podshim-agent", "{kind}");
        }
    }
    let binding = &all("ClusterRoleBinding")[0];
    assert_eq!(text(binding, &["roleRef", "name"]), "podshim-agent");
    let subject = &binding.get("subjects").expect("subjects").items()[0];
    assert_eq!((text(subject, &["name"]), text(subject, &["namespace"])), ("podshim-agent", "podshim-agent"));
    let policies = all("ValidatingAdmissionPolicy");
    let bound: Vec<_> = all("ValidatingAdmissionPolicyBinding");
    let names: BTreeSet<_> = policies.iter().map(|policy| text(policy, &["metadata", "name"])).collect();
    assert_eq!(names, bound.iter().map(|binding| text(binding, &["spec", "policyName"])).collect());
    for policy in &policies {
        let condition = &policy.at(&["spec", "matchConditions"]).expect("a condition").items()[0];
        let user = "request.userInfo.username == 'system:serviceaccount:podshim-agent:podshim-agent'";
        assert_eq!(text(condition, &["expression"]), user);
    }
}

/// The words of the agent's code.
#[test]
fn the_policies_have_the_agents_words() {
    let rules = include_str!("../../../../dist/kubernetes/agent-policy/policy.yaml");
    let source = include_str!("../../../podshim-agent/src/cluster/request.rs");
    assert!(source.contains("const CONTROLLER: &str = \"podshim.io/agent\";"));
    for word in ["podshim.io/agent", STARTED_CONDITION] {
        assert!(rules.contains(&format!("'{word}'")), "{word}");
    }
}

#[test]
fn rights_are_the_least() {
    let role = &all("ClusterRole")[0];
    let rules: Vec<_> = role
        .get("rules")
        .expect("rules")
        .items()
        .iter()
        .map(|rule| ["apiGroups", "resources", "verbs"].map(|key| texts(rule, key).join(" ")))
        .collect();
    let expected = [
        ["", "pods", "get list watch"],
        ["", "pods/status", "patch"],
        ["events.k8s.io", "events", "create patch"],
    ];
    assert_eq!(rules, expected);
    let daemon_set = &all("DaemonSet")[0];
    let pod = daemon_set.at(&["spec", "template", "spec"]).expect("a pod");
    for key in ["hostPID", "hostIPC", "hostNetwork"] {
        assert!(pod.get(key).is_none(), "{key}");
    }
    assert_eq!(text(pod, &["automountServiceAccountToken"]), "false");
    let containers = pod.get("containers").expect("containers").items();
    let [agent, command] = containers else { panic!("{} containers", containers.len()) };
    let paths = |container: &Node| {
        let mounts = container.get("volumeMounts").expect("mounts").items();
        assert!(mounts.iter().all(|mount| text(mount, &["readOnly"]) == "true"));
        mounts.iter().map(|mount| text(mount, &["mountPath"]).to_owned()).collect::<Vec<_>>()
    };
    for container in containers {
        assert_eq!(text(container, &["image"]), format!("podshim-agent:{}", env!("CARGO_PKG_VERSION")));
        let context = container.get("securityContext").expect("a context");
        assert_eq!(text(context, &["allowPrivilegeEscalation"]), "false");
        assert_eq!(text(context, &["readOnlyRootFilesystem"]), "true");
        let capabilities = context.get("capabilities").expect("capabilities");
        assert_eq!(
            (texts(capabilities, "drop"), texts(capabilities, "add")),
            (vec!["ALL"], vec!["DAC_OVERRIDE"])
        );
        let variable = &container.get("env").expect("a variable").items()[0];
        assert_eq!(text(variable, &["name"]), "NODE_NAME");
        assert_eq!(text(variable, &["valueFrom", "fieldRef", "fieldPath"]), "spec.nodeName");
    }
    assert_eq!(paths(agent)[..3], ["/run/podshim", "/run/containerd/s", "/etc/podshim"]);
    // A person who runs a command in it finds no token.
    assert_eq!(paths(command), ["/run/podshim", "/run/containerd/s", HISTORY_ROOT]);
    assert_eq!(text(command, &["name"]), "podshim", "kubectl podshim runs its command in it");
    let [program, words @ ..] = &texts(command, "command")[..] else { panic!("no command") };
    assert_eq!(*program, "/podshim");
    let words = std::iter::once("podshim").chain(words.iter().copied());
    assert!(podshim::commands::table().try_get_matches_from(words).is_ok());
}
