//! What would hang or end otherwise, because a pod's object and its plan disagree: restart policies, and containers that the
//! kubelet starts otherwise than the plan has it. Owns which of `check`'s findings these are: a program asks for them about a pod that
//! runs, when advice on its manifest comes too late. Decides nothing itself: the findings are `check`'s own.

use pod_spec::Node as NodeFile;

use super::plan_against_manifest;
use crate::finding::Finding;
use crate::manifest::{pairs, templates};
use crate::yaml;

/// The contradictions of a pod.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Contradictions {
    /// What its shim cannot know.
    pub findings: Vec<Finding>,
    /// Containers of `initContainers` that are mains for a shim that does not get their names (S15).
    pub mistaken_mains: Vec<Finding>,
}

/// The contradictions of a pod, as its object in JSON or YAML says it. None for a pod without a valid plan, whose own errors its shim
/// reports.
#[must_use]
pub fn contradictions(pod: &str, node: &NodeFile) -> Contradictions {
    let mut found = Contradictions::default();
    let Ok(documents) = yaml::documents(pod) else { return found };
    for template in documents.iter().flat_map(templates) {
        let Some(annotations) = template.annotations() else { continue };
        let Ok(parsed) = node.parse_pod(pairs(annotations)) else { continue };
        if let Some(plan) = &parsed.plan {
            let findings = plan_against_manifest::contradictions("", &template, annotations, plan);
            let mistaken = plan_against_manifest::mistaken_mains("", &template, annotations, plan);
            found.findings.extend(findings);
            found.mistaken_mains.extend(mistaken);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(annotations: &str, spec: &str) -> Vec<(String, Option<String>)> {
        let pod = format!(
            "{{\"kind\":\"Pod\",\"metadata\":{{\"annotations\":{{{annotations}}}}},\"spec\":{{{spec}}}}}"
        );
        let Contradictions { findings, mistaken_mains } = contradictions(&pod, &NodeFile::default());
        findings.into_iter().chain(mistaken_mains).map(|finding| (finding.message, finding.fix)).collect()
    }

    #[test]
    fn restart_policies_that_differ() {
        let found = of(
            r#""podshim.io/plan":"proxy=sidecar, app=main""#,
            r#""restartPolicy":"Never","containers":[{"name":"app"},{"name":"proxy"}]"#,
        );
        let message = "the pod's restartPolicy is Never, the plan's is Always".to_owned();
        assert_eq!(found, [(message, Some("write podshim.io/restart-policy: Never".to_owned()))]);
    }

    #[test]
    fn a_containers_own_policy_that_the_plan_does_not_have() {
        let found = of(
            r#""podshim.io/plan":"app=main","podshim.io/restart-policy":"OnFailure""#,
            r#""restartPolicy":"OnFailure","containers":[{"name":"app","restartPolicy":"Never"}]"#,
        );
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].1.as_deref(), Some("write podshim.io/restart.app: never"));
    }

    #[test]
    fn init_containers_that_the_plan_takes_for_others() {
        let unnamed = of(
            r#""podshim.io/plan":"proxy=sidecar, *=main""#,
            r#""initContainers":[{"name":"setup"}],"containers":[{"name":"app"},{"name":"proxy"}]"#,
        );
        assert_eq!(unnamed.len(), 1, "{unnamed:?}");
        assert_eq!(unnamed[0].1.as_deref(), Some("write podshim.io/role.setup: none"));
        let named = of(
            r#""podshim.io/plan":"proxy=sidecar, app=main""#,
            r#""initContainers":[{"name":"proxy"}],"containers":[{"name":"app"}]"#,
        );
        assert_eq!(named.len(), 1, "{named:?}");
        assert_eq!(named[0].1.as_deref(), Some("move it to containers"));
    }

    #[test]
    fn what_agrees_or_cannot_be_read_has_none() {
        let spec = r#""initContainers":[{"name":"setup"}],"containers":[{"name":"app"},{"name":"proxy"}]"#;
        for annotations in [
            "",
            r#""podshim.io/plan":"proxy=sidecar, app=main""#,
            r#""podshim.io/plan":"proxy=sidecar, *=main","podshim.io/role.setup":"none""#,
            r#""podshim.io/plan":"proxy=sidecra""#,
        ] {
            assert_eq!(of(annotations, spec), [], "{annotations}");
        }
        assert_eq!(contradictions("{", &NodeFile::default()), Contradictions::default());
    }
}
