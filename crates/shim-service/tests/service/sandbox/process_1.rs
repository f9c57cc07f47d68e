//! A pod that shares its pid namespace: podshim makes process 1 of it, which callers do not see as a task of the sandbox.

use std::path::Path;

use containerd_shim_protos::{cgroups, cgroups_v2};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use protobuf::Message;

use super::*;

/// The pod's control group, which a kubelet makes, in each hierarchy.
struct PodGroup {
    path: String,
    directories: Vec<PathBuf>,
}

impl PodGroup {
    fn make() -> Self {
        let path = format!("/podshim-test-{}", std::process::id());
        let root = Path::new("/sys/fs/cgroup");
        let hierarchies = match root.join("cgroup.procs").exists() {
            true => vec![root.to_owned()],
            false => fs::read_dir(root).unwrap().map(|entry| entry.unwrap().path()).collect(),
        };
        // Of links such as cpu, for cpu,cpuacct, one is enough.
        let hierarchies = hierarchies.into_iter().filter(|path| path.is_dir() && !path.is_symlink());
        let directories: Vec<_> = hierarchies.map(|hierarchy| hierarchy.join(&path[1..])).collect();
        for directory in &directories {
            fs::create_dir(directory).unwrap();
        }
        Self { path, directories }
    }
}

impl Drop for PodGroup {
    fn drop(&mut self) {
        for directory in &self.directories {
            // A test that fails leaves what it has made.
            let removed = fs::remove_dir(directory);
            assert!(std::thread::panicking() || removed.is_ok(), "{}: {removed:?}", directory.display());
        }
    }
}

/// What a kubelet says of a pod with `shareProcessNamespace: true`: all namespaces are the pod's.
fn shared(group: &PodGroup) -> Any {
    let annotation = [field(1, "podshim.io/plan"), field(2, "app=main")].concat();
    let linux = [field(1, &group.path), field(2, field(1, []))].concat();
    let value = [field(1, field(1, "shop-0")), field(2, "shop-0"), field(7, annotation), field(8, linux)];
    Any { type_url: "runtime.v1.PodSandboxConfig".to_owned(), value: value.concat(), ..Any::default() }
}

async fn process_1(api: &Api) -> Pid {
    let info: Value = serde_json::from_str(&api.status().await.unwrap().info["info"]).unwrap();
    Pid::from_raw(i32::try_from(info["pid"].as_i64().unwrap()).unwrap())
}

/// Kills it, and waits until the shim knows.
async fn lose_process_1(api: &Api) {
    kill(process_1(api).await, Signal::SIGKILL).unwrap();
    for _ in 0..500 {
        let info: Value = serde_json::from_str(&api.status().await.unwrap().info["info"]).unwrap();
        if info["processStatus"] == "stopped" {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("the shim does not know that process 1 has ended");
}

fn status_line(pid: Pid, field: &str) -> String {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    line.unwrap_or_default().trim().to_owned()
}

/// From Create to Shutdown. The pid is 0 for containerd, which would signal it; a container's spec has the namespace all the same.
#[test]
fn a_pod_that_shares_its_pid_namespace_has_a_process_1() {
    with_pod(async |pod| {
        let group = PodGroup::make();
        let api = Api::started(&pod, shared(&group)).await;
        let status = api.status().await.unwrap();
        assert_eq!((status.pid, status.state.as_str()), (0, "SANDBOX_READY"));
        let process_1 = process_1(&api).await;
        // The kernel lets the maker go on before the process has its new name.
        for _ in 0..100 {
            if status_line(process_1, "Name") == "pause" {
                break;
            }
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
        assert_eq!(status_line(process_1, "Name"), "pause");
        assert_eq!(status_line(process_1, "NSpid").split_whitespace().last(), Some("1"));
        let inode = |path: PathBuf| std::os::unix::fs::MetadataExt::ino(&fs::metadata(path).unwrap());
        let of_process = |kind: &str| inode(format!("/proc/{process_1}/ns/{kind}").into());
        assert_eq!(of_process("ipc"), inode(api.place.join("ipc")));
        assert_eq!(of_process("uts"), inode(api.place.join("uts")));

        container_of("shared-pid", &pod, "c-app", "app", "exec sleep 60");
        pod.create("c-app").await.unwrap();
        let path = pod.directory.path().join("c-app/config.json");
        let spec: Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
        let namespaces = spec.pointer("/linux/namespaces").and_then(Value::as_array).unwrap();
        let pids = json!({"type": "pid", "path": format!("/proc/{process_1}/ns/pid")});
        assert!(namespaces.contains(&pids), "{namespaces:?}");
        pod.start("c-app").await.unwrap();

        api.stop("pod").await.unwrap();
        assert_eq!(pod.state("c-app").await.unwrap().status.enum_value(), Ok(Status::STOPPED));
        // What has ended is released a moment later (H3).
        let left = status_line(process_1, "State");
        assert!(left.is_empty() || left.starts_with(['Z', 'X']), "StopSandbox ends it: {left}");
        assert!(!api.place.exists());
        pod.delete("c-app").await.unwrap();
        assert_eq!(api.wait().await.unwrap().exit_status, 137);
        api.shutdown().await.unwrap();
        ends(pod).await;
    });
}

/// The kernel then kills what is in its pid namespace: the pod has ended, as with pause.
#[test]
fn a_pod_whose_process_1_dies_has_ended() {
    with_pod(async |pod| {
        let group = PodGroup::make();
        let api = Api::started(&pod, shared(&group)).await;
        kill(process_1(&api).await, Signal::SIGKILL).unwrap();
        assert_eq!(api.wait().await.unwrap().exit_status, 137);
        assert_eq!(api.status().await.unwrap().state, "SANDBOX_NOTREADY");
        api.shutdown().await.unwrap();
        ends(pod).await;
    });
}

/// Also if it dies before its caller has started it: it is given up as any other, and its caller finds out.
#[test]
fn trap_32_a_sandbox_whose_process_1_dies_before_its_start_ends() {
    with_pod(async |pod| {
        let group = PodGroup::make();
        let api = Api::of(&pod).await;
        api.create("pod", shared(&group)).await.unwrap();
        lose_process_1(&api).await;
        pass(Duration::from_secs(301)).await;
        until_gone(&api).await;
        pass(Duration::from_secs(121)).await;
        ends(pod).await;
        assert!(!api.place.exists());
    });
}

/// The containerd that comes back ends it with a Shutdown, as one whose process 1 lives.
#[test]
fn trap_32_a_sandbox_whose_process_1_has_died_before_its_start_ends_with_shutdown() {
    with_pod(async |pod| {
        let group = PodGroup::make();
        let api = Api::of(&pod).await;
        api.create("pod", shared(&group)).await.unwrap();
        lose_process_1(&api).await;
        pod.client.shutdown(context(), &ShutdownRequest::new()).await.unwrap();
        ends(pod).await;
        assert!(!api.place.exists());
    });
}

/// The removal of one that is given up may fail: then it is tried again as late, and not all the time.
#[test]
fn trap_32_a_removal_that_fails_is_tried_again_later() {
    with_pod(async |pod| {
        let group = PodGroup::make();
        let api = Api::of(&pod).await;
        api.create("pod", shared(&group)).await.unwrap();
        lose_process_1(&api).await;
        let record = format!("/run/containerd/runc/.test-{}.podshim/pod", std::process::id());
        let kept = fs::read(&record).unwrap();
        fs::remove_file(&record).unwrap();
        fs::create_dir(&record).unwrap();
        pass(Duration::from_secs(301)).await;
        api.status().await.unwrap();
        let before = processor_time();
        for _ in 0..5 {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        let used = processor_time() - before;
        assert!(used < Duration::from_millis(100), "{used:?} in half a second");
        assert!(api.status().await.is_ok(), "it cannot be removed");
        fs::remove_dir(&record).unwrap();
        fs::write(&record, kept).unwrap();
        pass(Duration::from_secs(301)).await;
        until_gone(&api).await;
        pass(Duration::from_secs(121)).await;
        ends(pod).await;
    });
}

/// Of this thread, which the shim shares.
fn processor_time() -> Duration {
    let text = fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    Duration::from_nanos(text.split_whitespace().next().unwrap().parse().unwrap())
}

/// Those of the pod's group, with all that is below it.
#[test]
fn the_metrics_of_a_sandbox_are_those_of_its_pod() {
    with_pod(async |pod| {
        let group = PodGroup::make();
        let api = Api::started(&pod, shared(&group)).await;
        let request = SandboxMetricsRequest { sandbox_id: "pod".to_owned(), ..Default::default() };
        let answer = api.client.sandbox_metrics(context(), &request).await.unwrap();
        let metric = answer.metrics.as_ref().unwrap();
        assert_eq!(metric.id, "pod");
        assert!(metric.timestamp.seconds > 1_700_000_000);
        let data = &metric.data;
        let processes = match data.type_url.as_str() {
            "io.containerd.cgroups.v1.Metrics" => {
                cgroups::metrics::Metrics::parse_from_bytes(&data.value).unwrap().pids.current
            }
            "io.containerd.cgroups.v2.Metrics" => {
                cgroups_v2::metrics::Metrics::parse_from_bytes(&data.value).unwrap().pids.current
            }
            other => panic!("{other}"),
        };
        assert_eq!(processes, 1, "process 1");
        api.shutdown().await.unwrap();
        ends(pod).await;
    });
}
