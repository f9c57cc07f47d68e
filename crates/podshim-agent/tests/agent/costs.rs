//! What an agent costs on a full node, with fake shims: against the tests' own API server, and a real one. Measurements, no checks.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::{Agent, FakeShim, GATE, World, pod, starting, starts, until};

const PODS: usize = 250;
/// How long nothing happens.
const IDLE: Duration = Duration::from_secs(50);

/// Its memory and its wake-ups, and its processor time in ticks.
fn usage(agent: &Agent) -> String {
    let of = |file: &str| std::fs::read_to_string(format!("/proc/{}/{file}", agent.0.id())).unwrap();
    let status = of("status");
    let is_wanted = |line: &&str| ["VmRSS", "VmHWM", "voluntary"].iter().any(|key| line.starts_with(key));
    let lines: Vec<&str> = status.lines().filter(is_wanted).collect();
    let stat = of("stat");
    let ticks: Vec<&str> = stat.split(' ').skip(13).take(2).collect();
    format!("{} ticks {}", lines.join(" "), ticks.join("+"))
}

fn idle(agent: &Agent) {
    println!("{}", usage(agent));
    thread::sleep(IDLE);
    println!("after {IDLE:?}: {}", usage(agent));
}

#[test]
#[ignore = "a measurement: PODSHIM_AGENT names a release's program"]
fn a_node_with_250_pods() {
    let world = World::new();
    let shims: Vec<FakeShim> = (0..PODS)
        .map(|number| {
            let (name, uid) = (format!("web-{number}"), format!("u-{number}"));
            let mut object = pod(&uid, GATE);
            object["metadata"]["name"] = json!(name);
            world.api.pod(object);
            FakeShim::named(&name, world.run.path(), &format!("s-{number}"), &uid, starting(0))
        })
        .collect();
    shims.iter().for_each(starts);
    let is_started = |number: usize| {
        world.api.condition("prod", &format!("web-{number}")).is_some_and(|(status, ..)| status == "True")
    };
    until(PODS, || (0..PODS).filter(|number| is_started(*number)).count());
    println!("{} writes", world.api.writes().len());
    idle(&world.agent);
}

/// A cluster of `hack/cluster`.
struct RealCluster(PathBuf);

impl RealCluster {
    #[expect(clippy::disallowed_methods, reason = "a measurement asks as a person does")]
    fn kubectl(&self, words: &[&str]) -> String {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../hack/cluster");
        let output = Command::new(script).arg("kubectl").arg(&self.0).args(words).output().unwrap();
        assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    fn apply(&self, objects: &[Value]) {
        let file = self.0.join("objects.json");
        let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
        std::fs::write(&file, list.to_string()).unwrap();
        self.kubectl(&["apply", "--filename", file.to_str().unwrap()]);
    }

    /// An agent of `node-7` in the control plane's network, as its administrator.
    #[expect(clippy::disallowed_methods, reason = "a test runs the agent as a node does")]
    fn agent(&self, run: &std::path::Path) -> Agent {
        let holder = std::fs::read_to_string(self.0.join("holder.pid")).unwrap();
        let mut command = Command::new("nsenter");
        command.args(["--target", holder.trim(), "--net", "--"]);
        command.arg(std::env::var("PODSHIM_AGENT").unwrap());
        command.args(["--node", "node-7", "--node-file", "/nonexistent", "--run-dir"]).arg(run);
        command.env("KUBECONFIG", self.0.join("admin.kubeconfig")).stdin(Stdio::null());
        Agent(command.spawn().unwrap())
    }

    /// How many requests the API server has answered: patches of a pod's status, and events that were written.
    fn requests(&self) -> [u64; 2] {
        let metrics = self.kubectl(&["get", "--raw", "/metrics"]);
        let count = |wanted: &[&str]| -> u64 {
            let lines = metrics.lines().filter(|line| line.starts_with("apiserver_request_total{"));
            let own = lines.filter(|line| wanted.iter().all(|word| line.contains(word)));
            own.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum()
        };
        let status = ["verb=\"PATCH\"", "resource=\"pods\"", "subresource=\"status\""];
        [count(&status), count(&["group=\"events.k8s.io\"", "resource=\"events\""])]
    }

    /// The pods of the measurement with their uids, and those whose condition is that.
    fn pods(&self) -> (Vec<(String, String)>, usize) {
        let list: Value =
            serde_json::from_str(&self.kubectl(&["--namespace", "prod", "get", "pods", "--output=json"]))
                .unwrap();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let items = list["items"].as_array().unwrap();
        let is_true = |pod: &&Value| {
            let conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
            conditions.into_iter().any(|one| one["type"] == "podshim.io/Started" && one["status"] == "True")
        };
        let names = items.iter().map(|pod| (text(&pod["metadata"]["name"]), text(&pod["metadata"]["uid"])));
        (names.collect(), items.iter().filter(is_true).count())
    }
}

/// Against the API server of the cluster in PODSHIM_CLUSTER_DIR, on a node without a kubelet.
#[test]
#[ignore = "a measurement: PODSHIM_AGENT names a release's program, PODSHIM_CLUSTER_DIR a cluster of hack/cluster"]
#[expect(clippy::disallowed_methods, reason = "a measurement")]
fn a_node_with_250_pods_of_a_cluster() {
    let cluster = RealCluster(std::env::var("PODSHIM_CLUSTER_DIR").unwrap().into());
    let mut objects = vec![
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "prod"}}),
        json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-7"}}),
    ];
    cluster.apply(&objects);
    // The controller manager makes the account that pods run as.
    until(true, || {
        cluster
            .kubectl(&[
                "--namespace",
                "prod",
                "get",
                "serviceaccount",
                "default",
                "--output=jsonpath={.secrets}",
            ])
            .len()
            > 2
    });
    objects = (0..PODS)
        .map(|number| {
            let mut object = pod("", GATE);
            object["metadata"]["name"] = json!(format!("web-{number}"));
            object["metadata"].as_object_mut().unwrap().remove("uid");
            object.as_object_mut().unwrap().remove("status");
            object["spec"]["tolerations"] = json!([{"operator": "Exists"}]);
            for container in object["spec"]["containers"].as_array_mut().unwrap() {
                container["image"] = json!("none");
            }
            object
        })
        .collect();
    cluster.apply(&objects);
    let (pods, _) = cluster.pods();
    assert_eq!(pods.len(), PODS);
    let (run, before) = (tempfile::tempdir().unwrap(), cluster.requests());
    let agent = cluster.agent(run.path());
    thread::sleep(Duration::from_secs(5));
    println!("250 pods listed, no shim: {}", usage(&agent));
    let begin = Instant::now();
    let shims: Vec<FakeShim> = pods
        .iter()
        .map(|(name, uid)| FakeShim::named(name, run.path(), &format!("s-{name}"), uid, starting(0)))
        .collect();
    shims.iter().for_each(starts);
    until(PODS, || cluster.pods().1);
    let after = cluster.requests();
    println!("started within {:?}; requests {before:?} -> {after:?}", begin.elapsed());
    idle(&agent);
    // 1,000 starts a minute: every pod restarts a sidecar four times, once each 15 s.
    let (begin, before) = (Instant::now(), cluster.requests());
    for round in 1..=4_u64 {
        for shim in &shims {
            shim.change(|pod| pod.stop_reason = control_api::StopReason::RESTART.into());
            shim.happens(control_api::event::Kind::POD_RESTART, "", |_| {});
            shim.change(|pod| pod.stop_reason = control_api::StopReason::NOT_STOPPING.into());
            shim.happens(control_api::event::Kind::STOP_ENDED, "", |_| {});
            thread::sleep(Duration::from_millis(50));
        }
        thread::sleep(
            (Duration::from_secs(15) * u32::try_from(round).unwrap()).saturating_sub(begin.elapsed()),
        );
    }
    println!(
        "1,000 restarts in {:?}: requests {before:?} -> {:?}; {}",
        begin.elapsed(),
        cluster.requests(),
        usage(&agent)
    );
    drop(agent);
    cluster.kubectl(&["delete", "namespace", "prod", "--wait=false"]);
    cluster.kubectl(&["--namespace", "prod", "delete", "pods", "--all", "--grace-period=0", "--force"]);
    cluster.kubectl(&["delete", "node", "node-7"]);
}
