//! The Sandbox API (CONTRACT §5) as containerd 2.3 calls it: one sandbox from Create to Shutdown, and what goes wrong. What a pod is
//! made from is what 2.3.4 sent; messages for what it does not send are built here.

mod process_1;
mod replay;

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use containerd_shim_protos::sandbox_api::*;
use containerd_shim_protos::sandbox_async::SandboxClient;
use containerd_shim_protos::shim::shim::*;
use containerd_shim_protos::shim_async::Client;
use containerd_shim_protos::types::task::Status;
use protobuf::MessageField;
use protobuf::well_known_types::any::Any;
use serde_json::{Value, json};
use tokio::time::timeout;
use ttrpc::Code;

use crate::recorded;
use crate::support::{CALL_LIMIT, Pod, context, refusal, with_pod};
use crate::traps::pass;

const PLAN: &str = "proxy=sidecar, app=main";

fn field(number: u8, bytes: impl AsRef<[u8]>) -> Vec<u8> {
    let bytes = bytes.as_ref();
    [&[number << 3 | 2, u8::try_from(bytes.len()).unwrap()], bytes].concat()
}

/// `runtime.v1.PodSandboxConfig` of a pod whose containers have pid namespaces of their own.
fn options(plan: &str, namespace_option: &[u8]) -> Any {
    options_with_name("shop-0", plan, namespace_option)
}

fn options_with_name(hostname: &str, plan: &str, namespace_option: &[u8]) -> Any {
    let annotation = [field(1, "podshim.io/plan"), field(2, plan)].concat();
    let security = field(1, namespace_option);
    let value = [
        field(1, [field(1, "shop-0"), field(3, "default")].concat()),
        field(2, hostname),
        field(7, annotation),
        field(8, field(2, security)),
    ];
    Any { type_url: "runtime.v1.PodSandboxConfig".to_owned(), value: value.concat(), ..Any::default() }
}

const OWN_PIDS: &[u8] = &[0x10, 1];

/// As 2.3.4 sent them, with `PLAN`.
fn usual() -> Any {
    let request: CreateSandboxRequest = recorded::request("shop", "CreateSandbox");
    request.options.unwrap()
}

struct Api {
    client: SandboxClient,
    bundle: PathBuf,
    place: PathBuf,
}

impl Api {
    async fn of(pod: &Pod) -> Self {
        let address = format!("unix://{}", pod.directory.path().join("shim").display());
        let client = SandboxClient::new(Client::connect(&address).await.unwrap());
        let bundle = pod.directory.path().join("bundle");
        fs::create_dir(&bundle).unwrap();
        Self { client, bundle, place: pod.directory.path().join("sandbox") }
    }

    /// With a sandbox that runs.
    async fn started(pod: &Pod, options: Any) -> Self {
        let api = Self::of(pod).await;
        api.create("pod", options).await.unwrap();
        api.start().await.unwrap();
        api
    }

    async fn create(&self, id: &str, options: Any) -> ttrpc::Result<CreateSandboxResponse> {
        self.create_in("/proc/self/ns/net", id, options).await
    }

    async fn create_in(&self, network: &str, id: &str, options: Any) -> ttrpc::Result<CreateSandboxResponse> {
        let request = CreateSandboxRequest {
            sandbox_id: id.to_owned(),
            bundle_path: self.bundle.display().to_string(),
            options: MessageField::some(options),
            netns_path: network.to_owned(),
            ..Default::default()
        };
        self.client.create_sandbox(context(), &request).await
    }

    async fn start(&self) -> ttrpc::Result<StartSandboxResponse> {
        let request = StartSandboxRequest { sandbox_id: "pod".to_owned(), ..Default::default() };
        self.client.start_sandbox(context(), &request).await
    }

    async fn status(&self) -> ttrpc::Result<SandboxStatusResponse> {
        let request =
            SandboxStatusRequest { sandbox_id: "pod".to_owned(), verbose: true, ..Default::default() };
        self.client.sandbox_status(context(), &request).await
    }

    async fn wait(&self) -> ttrpc::Result<WaitSandboxResponse> {
        let request = WaitSandboxRequest { sandbox_id: "pod".to_owned(), ..Default::default() };
        self.client.wait_sandbox(context(), &request).await
    }

    async fn stop(&self, id: &str) -> ttrpc::Result<StopSandboxResponse> {
        let request = StopSandboxRequest { sandbox_id: id.to_owned(), ..Default::default() };
        self.client.stop_sandbox(context(), &request).await
    }

    async fn shutdown(&self) -> ttrpc::Result<ShutdownSandboxResponse> {
        let request = ShutdownSandboxRequest { sandbox_id: "pod".to_owned(), ..Default::default() };
        self.client.shutdown_sandbox(context(), &request).await
    }
}

/// A container as the CRI of 2.3.4 describes it for a sandbox without a pid.
fn container(pod: &Pod, id: &str, name: &str, program: &str) {
    container_of("shop", pod, id, name, program);
}

/// As that of a recorded pod.
fn container_of(recorded: &str, pod: &Pod, id: &str, name: &str, program: &str) {
    let kind = [
        ("io.kubernetes.cri.container-type", "container"),
        ("io.kubernetes.cri.sandbox-id", "pod"),
        ("io.kubernetes.cri.container-name", name),
    ];
    let bundle = pod.bundle(id, program, &kind);
    let path = bundle.join("config.json");
    let mut spec: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    let mut recorded = recorded::spec(recorded);
    spec["linux"]["namespaces"] = recorded["namespaces"].take();
    spec["mounts"] = recorded["mounts"].take();
    fs::write(path, spec.to_string()).unwrap();
}

async fn ends(pod: Pod) {
    timeout(CALL_LIMIT, pod.served).await.expect("the server ends").unwrap().unwrap();
}

/// The whole life, and what containerd reads of it: pid 0 and a spec, READY, an exit, an end. No event is about the sandbox.
#[test]
fn a_pod_without_a_process() {
    with_pod(async |mut pod| {
        let api = Api::of(&pod).await;
        api.create("pod", usual()).await.unwrap();
        let started = api.start().await.unwrap();
        assert_eq!(started.pid, 0);
        assert_eq!(started.spec.type_url, "types.containerd.io/opencontainers/runtime-spec/1/Spec");
        let spec: Value = serde_json::from_slice(&started.spec.value).unwrap();
        let ipc = api.place.join("ipc").display().to_string();
        assert_eq!(spec.pointer("/linux/namespaces/2").unwrap(), &json!({"type": "ipc", "path": ipc}));
        let status = api.status().await.unwrap();
        assert_eq!((status.sandbox_id.as_str(), status.pid), ("pod", 0));
        assert_eq!(status.state, "SANDBOX_READY");
        let info: Value = serde_json::from_str(&status.info["info"]).unwrap();
        assert_eq!(info["processStatus"], "running");
        assert_eq!(info["netNamespaceClosed"], false);
        let platform = api.client.platform(context(), &PlatformRequest::new()).await.unwrap().platform;
        assert_eq!(platform.os, "linux");

        // The plan came with the sandbox alone.
        container(&pod, "c-app", "app", "exec sleep 60");
        pod.create("c-app").await.unwrap();
        pod.start("c-app").await.unwrap();
        assert_eq!(pod.state("c-app").await.unwrap().status.enum_value(), Ok(Status::RUNNING));
        assert!(
            !pod.calls("c-app").contains(&"start".to_owned()),
            "the app is held: its sidecar does not run"
        );
        container(&pod, "c-proxy", "proxy", "exec sleep 60");
        pod.create("c-proxy").await.unwrap();
        pod.start("c-proxy").await.unwrap();
        let path = pod.directory.path().join("c-app/config.json");
        let spec: Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
        assert_eq!(spec.pointer("/linux/namespaces/1/path").unwrap(), ipc.as_str());
        assert!(!spec.to_string().contains("/proc/0/"), "{spec}");
        assert_eq!(spec["annotations"]["podshim.io/plan"], PLAN);

        api.stop("pod").await.unwrap();
        for id in ["c-app", "c-proxy"] {
            pod.wait(id).await.unwrap();
            pod.delete(id).await.unwrap();
            // containerd sends it after each container.
            let shutdown = ShutdownRequest { id: id.to_owned(), ..Default::default() };
            pod.client.shutdown(context(), &shutdown).await.unwrap();
        }
        assert!(!api.place.exists(), "StopSandbox lets go of everything");
        assert_eq!(api.status().await.unwrap().state, "SANDBOX_NOTREADY");
        assert_eq!(api.wait().await.unwrap().exit_status, 137);
        api.stop("pod").await.unwrap();
        api.shutdown().await.unwrap();
        let events = pod.events(8).await;
        assert!(
            events.iter().all(|event| event.contains("c-app") || event.contains("c-proxy")),
            "{events:?}"
        );
        ends(pod).await;
    });
}

/// CNI removes the network after StopSandbox: a file or a mount of podshim's would keep it, with its interfaces.
#[test]
fn a_stopped_sandbox_lets_go_of_its_network() {
    with_pod(async |pod| {
        let api = Api::of(&pod).await;
        #[expect(
            clippy::disallowed_methods,
            clippy::zombie_processes,
            reason = "the shim's reaper waits for it"
        )]
        let mut network =
            std::process::Command::new("unshare").args(["--net", "sleep", "600"]).spawn().unwrap();
        let path = format!("/proc/{}/ns/net", network.id());
        let name = |path: &str| fs::read_link(path).unwrap().display().to_string();
        let own = name("/proc/self/ns/net");
        while name(&path) == own {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let held = || {
            let files = fs::read_dir("/proc/self/fd").unwrap().flatten();
            let files = files.filter_map(|file| fs::read_link(file.path()).ok());
            let mut held: Vec<_> = files.map(|file| file.display().to_string()).collect();
            let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
            held.extend(mounts.lines().map(str::to_owned));
            held.retain(|one| one.contains(&name(&path)));
            held
        };
        api.create_in(&path, "pod", usual()).await.unwrap();
        api.start().await.unwrap();
        api.stop("pod").await.unwrap();
        assert_eq!(held(), Vec::<String>::new());
        // That is how a file would show.
        let file = fs::File::open(&path).unwrap();
        assert_eq!(held().len(), 1);
        drop(file);
        network.kill().unwrap();
        api.shutdown().await.unwrap();
        ends(pod).await;
    });
}

/// K13: the sandbox of a pod goes last, however it is stopped.
#[test]
fn k13_a_stop_of_the_sandbox_ends_its_containers_first() {
    with_pod(async |pod| {
        let api = Api::started(&pod, options("app=main", OWN_PIDS)).await;
        container(&pod, "c-app", "app", "exec sleep 60");
        pod.create("c-app").await.unwrap();
        pod.start("c-app").await.unwrap();
        api.stop("pod").await.unwrap();
        assert_eq!(pod.state("c-app").await.unwrap().status.enum_value(), Ok(Status::STOPPED));
        pod.delete("c-app").await.unwrap();
        api.shutdown().await.unwrap();
        ends(pod).await;
    });
}

/// A restarted containerd connects with the sandbox's id, which is no task, and asks for its end once more.
#[test]
fn trap_31_a_restarted_containerd_finds_its_sandbox() {
    with_pod(async |pod| {
        let api = Api::started(&pod, usual()).await;
        let connect = ConnectRequest { id: "pod".to_owned(), ..Default::default() };
        let connected = pod.client.connect(context(), &connect).await.unwrap();
        assert_eq!((connected.shim_pid, connected.task_pid), (std::process::id(), 0));
        let first = api.wait();
        let second = async {
            api.client.ping_sandbox(context(), &PingRequest::new()).await.unwrap();
            api.stop("pod").await.unwrap();
            api.wait().await
        };
        let (first, second) = tokio::join!(first, second);
        assert_eq!((first.unwrap().exit_status, second.unwrap().exit_status), (137, 137));
        api.shutdown().await.unwrap();
        ends(pod).await;
    });
}

/// containerd 2.3 undoes nothing when it cannot pull its pause image; its next start sends this Shutdown.
#[test]
fn trap_32_a_sandbox_that_was_never_started_ends_with_shutdown() {
    with_pod(async |pod| {
        let api = Api::of(&pod).await;
        api.create("pod", usual()).await.unwrap();
        assert_eq!(api.status().await.unwrap().state, "SANDBOX_NOTREADY");
        pod.client.shutdown(context(), &ShutdownRequest::new()).await.unwrap();
        ends(pod).await;
        assert!(!api.place.exists());
    });
}

/// And by itself, if containerd does not come back.
#[test]
fn trap_32_a_sandbox_that_no_caller_starts_ends() {
    with_pod(async |pod| {
        let api = Api::of(&pod).await;
        api.create("pod", usual()).await.unwrap();
        // A kubelet gives up RunPodSandbox after four minutes, in which an image may be pulled.
        pass(Duration::from_secs(299)).await;
        assert_eq!(api.status().await.unwrap().state, "SANDBOX_NOTREADY");
        pass(Duration::from_secs(2)).await;
        until_gone(&api).await;
        // As without any container (trap 15).
        pass(Duration::from_secs(121)).await;
        ends(pod).await;
        assert!(!api.place.exists());
    });
}

async fn until_gone(api: &Api) {
    let gone = async {
        while api.status().await.is_ok() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(CALL_LIMIT, gone).await.expect("it is removed");
}

/// And a started one does not, nor with time: containerd sends it after each container.
#[test]
fn trap_32_a_started_sandbox_outlives_shutdown() {
    with_pod(async |pod| {
        let api = Api::started(&pod, usual()).await;
        pod.client.shutdown(context(), &ShutdownRequest::new()).await.unwrap();
        pass(Duration::from_secs(301)).await;
        assert_eq!(api.status().await.unwrap().state, "SANDBOX_READY");
        api.shutdown().await.unwrap();
        ends(pod).await;
    });
}

/// What is refused leaves nothing, and the shim takes the next one.
#[test]
fn a_sandbox_that_is_refused_leaves_nothing() {
    with_pod(async |pod| {
        let api = Api::of(&pod).await;
        // A user namespace without ids, and the network's owner is the node.
        let users = [OWN_PIDS, &field(5, [])].concat();
        let of_node: CreateSandboxRequest = recorded::request("user-namespace", "CreateSandbox");
        let foreign = Any { type_url: "acme.Pod".to_owned(), ..Any::default() };
        for (id, options, word) in [
            ("pod", options(PLAN, &users), "no user"),
            ("pod", of_node.options.unwrap(), "the node's own"),
            ("pod", options("app=mian", OWN_PIDS), "mian"),
            // Process 1 is podshim's own with runc and crun alone.
            ("pod", options(PLAN, &[]), "process 1"),
            ("other", usual(), "serves"),
            ("pod", foreign, "acme.Pod"),
        ] {
            if word == "process 1" {
                let options = json!({"binary_name": pod.directory.path().join("runtime")});
                fs::write(api.bundle.join("options.json"), options.to_string()).unwrap();
            }
            let (code, text) = refusal(api.create(id, options).await);
            assert_eq!(code, Code::INVALID_ARGUMENT, "{text}");
            assert!(text.contains(word), "{text}");
            assert!(!api.place.exists(), "{word}");
            assert_eq!(refusal(api.status().await).0, Code::NOT_FOUND);
            api.stop("pod").await.unwrap();
        }
        api.create("pod", usual()).await.unwrap();
        assert_eq!(refusal(api.create("pod", usual()).await).0, Code::ALREADY_EXISTS);
        api.shutdown().await.unwrap();
        ends(pod).await;
    });
}

/// Fail closed: CRI makes a network namespace before Create for every pod but those of the node's network. A pod that lost its
/// own must not find itself in the node's.
#[test]
fn a_pod_with_a_network_of_its_own_needs_its_namespace() {
    with_pod(async |pod| {
        let api = Api::of(&pod).await;
        let request = |options: Any| CreateSandboxRequest {
            sandbox_id: "pod".to_owned(),
            bundle_path: api.bundle.display().to_string(),
            options: MessageField::some(options),
            ..Default::default()
        };
        let created = api.client.create_sandbox(context(), &request(usual())).await;
        let (code, text) = refusal(created);
        assert_eq!(code, Code::INVALID_ARGUMENT, "{text}");
        assert!(text.contains("network is POD and netns_path is \"\""), "{text}");
        assert!(!api.place.exists());
        assert_eq!(refusal(api.status().await).0, Code::NOT_FOUND);
        // NODE: the network alone. D10: with the node's network goes the node's name.
        let of_node = [OWN_PIDS, &[0x08, 2]].concat();
        let (code, text) =
            refusal(api.client.create_sandbox(context(), &request(options(PLAN, &of_node))).await);
        assert_eq!(code, Code::INVALID_ARGUMENT, "{text}");
        assert!(text.contains("hostname is \"shop-0\"") && !api.place.exists(), "{text}");
        let of_node = options_with_name("", PLAN, &of_node);
        api.client.create_sandbox(context(), &request(of_node)).await.unwrap();
        assert!(!api.place.join("uts").exists());
        api.shutdown().await.unwrap();
        ends(pod).await;
    });
}

/// containerd that is killed while it waits for the answer to ShutdownSandbox does not ask again.
#[test]
fn a_shutdown_goes_on_without_its_caller() {
    with_pod(async |pod| {
        let api = Api::started(&pod, options("app=main", OWN_PIDS)).await;
        let is_deaf = pod.directory.path().join("deaf");
        let program = format!("trap '' TERM; touch {}; while :; do sleep 0.1; done", is_deaf.display());
        container(&pod, "c-app", "app", &program);
        pod.create("c-app").await.unwrap();
        pod.start("c-app").await.unwrap();
        let deaf = async {
            while !is_deaf.exists() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(CALL_LIMIT, deaf).await.expect("the app runs");
        let address = format!("unix://{}", pod.directory.path().join("shim").display());
        let client = Client::connect(&address).await.unwrap();
        let request = ShutdownSandboxRequest { sandbox_id: "pod".to_owned(), ..Default::default() };
        let caller = SandboxClient::new(client.clone());
        let call = tokio::spawn(async move { caller.shutdown_sandbox(context(), &request).await });
        // The app, which ignores its signal, keeps it from being answered.
        tokio::time::sleep(Duration::from_millis(300)).await;
        assert!(!call.is_finished());
        call.abort();
        drop(client);
        pod.wait("c-app").await.unwrap();
        pod.delete("c-app").await.unwrap();
        ends(pod).await;
        assert!(!api.place.exists());
    });
}

/// Fail closed: without such a sandbox the namespace of no process is refused too.
#[test]
fn trap_29_a_container_without_a_sandbox_joins_no_process() {
    with_pod(async |pod| {
        container(&pod, "c-app", "app", "exit 0");
        let (code, text) = refusal(pod.create("c-app").await);
        assert_eq!(code, Code::INVALID_ARGUMENT);
        assert!(text.contains("/proc/0/ns/ipc"), "{text}");
    });
}

/// SIGTERM to the shim, a drain: the pod stops in order, and the mounts go with it.
#[test]
fn t12_an_operators_stop_ends_the_sandbox_too() {
    with_pod(async |pod| {
        let api = Api::started(&pod, options("app=main", OWN_PIDS)).await;
        container(&pod, "c-app", "app", "exec sleep 60");
        pod.create("c-app").await.unwrap();
        pod.start("c-app").await.unwrap();
        nix::sys::signal::raise(nix::sys::signal::Signal::SIGTERM).unwrap();
        assert_eq!(api.wait().await.unwrap().exit_status, 0);
        assert!(!api.place.exists());
        ends(pod).await;
    });
}
