//! The node's configuration file, where it meets pods.

use std::fs;

use ttrpc::Code;

use crate::PLAN;
use crate::support::{refusal, with_pod};

/// DESIGN §5, S1: a mistake refuses pods with annotations, naming file, line and key, and nothing is run; other pods do
/// not notice. The file is read anew for each.
#[test]
fn s5_a_mistake_in_the_nodes_file_refuses_planned_pods_only() {
    with_pod(async |pod| {
        let file = pod.directory.path().join("config.toml");
        fs::write(&file, "grace = \"5s\"\nforbit = [\"exec:\"]\n").unwrap();
        let bundle = pod.bundle("app", "exec sleep 60", &[PLAN]);
        let (code, text) = refusal(pod.create("app").await);
        assert_eq!(code, Code::INVALID_ARGUMENT);
        let expected =
            format!("{}: line 2: unknown key \"forbit\" (did you mean \"forbid\"?)", file.display());
        assert!(text.contains(&expected), "{text}");
        assert!(!bundle.join("calls").exists(), "the runtime was called");

        pod.run("other", "exec sleep 60", &[]).await;
        fs::write(&file, "forbid = [\"pre-stop\"]\n").unwrap();
        let hook = ("podshim.io/pre-stop.proxy", "exec:true");
        pod.bundle("proxy", "exec sleep 60", &[PLAN, hook]);
        let (_, text) = refusal(pod.create("proxy").await);
        assert!(text.contains("podshim.io/pre-stop.proxy: \"pre-stop\" is forbidden on this node"), "{text}");
        pod.create("app").await.unwrap();
        for id in ["other", "app"] {
            pod.kill(id, 9).await.unwrap();
            pod.wait(id).await.unwrap();
            pod.delete(id).await.unwrap();
        }
    });
}
