use containerd_shim_protos::sandbox_api::CreateSandboxRequest;
use own_processes::{PodRoot, Sharing};
use protobuf::well_known_types::any::Any;
use serde_json::{Value, json};

use super::config::{Dns, Namespaces, PidSharing, PodConfig, UserSharing};
use super::spec::{SpecRewrite, of_sandbox, resolv_conf};
use super::*;

/// A field of a protobuf message that is text or another message.
fn field(number: u8, bytes: impl AsRef<[u8]>) -> Vec<u8> {
    let bytes = bytes.as_ref();
    let length = u8::try_from(bytes.len()).unwrap();
    assert!(length < 128, "one byte of length");
    [&[number << 3 | 2, length], bytes].concat()
}

fn number(number: u8, value: u8) -> Vec<u8> {
    vec![number << 3, value]
}

fn entry(key: &str, value: &str) -> Vec<u8> {
    [field(1, key), field(2, value)].concat()
}

/// The message of a kubelet for a pod with a network of its own, as CRI passes it on.
fn message(namespace_option: Vec<u8>) -> Any {
    let security = field(1, namespace_option);
    let value = [
        field(1, [field(1, "shop-0"), field(2, "uid-1"), field(3, "default")].concat()),
        field(2, "shop-0"),
        field(3, "/var/log/pods/shop-0"),
        field(4, [field(1, "10.96.0.10"), field(2, "svc"), field(3, "ndots:5")].concat()),
        field(6, entry("app", "shop")),
        field(7, entry("podshim.io/plan", "a=main")),
        field(7, entry("org.systemd.property.User", "'root'")),
        field(
            8,
            [field(1, "/kubepods/pod1"), field(2, security), field(3, entry("net.core.somaxconn", "99"))]
                .concat(),
        ),
    ]
    .concat();
    Any { type_url: "runtime.v1.PodSandboxConfig".to_owned(), value, ..Any::default() }
}

fn config(namespace_option: Vec<u8>) -> PodConfig {
    PodConfig::of(Some(&message(namespace_option))).unwrap().unwrap()
}

/// The kubelet's: pid CONTAINER.
fn usual() -> PodConfig {
    config(number(2, 1))
}

fn pins(config: &PodConfig, network: Option<&str>) -> (tempfile::TempDir, Pins) {
    let directory = tempfile::tempdir().unwrap();
    let request = PinsRequest {
        network: network.map(PathBuf::from),
        ipc: config.namespaces.ipc,
        root: None,
        hostname: "shop-0".to_owned(),
        sysctls: Vec::new(),
        files: Vec::new(),
    };
    let pins = Pins::make(&directory.path().join("sandbox"), &request).unwrap();
    (directory, pins)
}

const NET: &str = "/proc/self/ns/net";

fn corrected(config: &PodConfig, process_1: Option<i32>, mut spec: Value) -> Result<Value, SandboxError> {
    let network = (config.namespaces.network == Sharing::Pod).then_some(NET);
    let (directory, pins) = pins(config, network);
    let rewrite = SpecRewrite {
        config,
        network: network.map(Path::new),
        pins: &pins,
        process_1: process_1.map(Pid::from_raw),
    };
    let result = rewrite.correct(&mut spec);
    let place = directory.path().join("sandbox").display().to_string();
    Pins::remove(Path::new(&place)).unwrap();
    result.map(|()| serde_json::from_str(&spec.to_string().replace(&place, "PLACE")).unwrap())
}

/// What CRI writes for every container of a sandbox with pid 0, also in the node's namespaces.
fn of_cri(kinds: &[&str]) -> Value {
    let namespaces = kinds.iter().map(|kind| {
        let file = if *kind == "network" { "net" } else { kind };
        json!({"type": kind, "path": format!("/proc/0/ns/{file}")})
    });
    let namespaces: Vec<_> = [json!({"type": "mount"})].into_iter().chain(namespaces).collect();
    json!({"linux": {"namespaces": namespaces}, "root": {"path": "rootfs"}, "annotations": {"k": "v"}, "mounts": [
        {"destination": "/proc", "type": "proc", "source": "proc"},
        {"destination": "/dev/shm", "type": "tmpfs", "source": "shm", "options": ["size=65536k"]},
    ]})
}

fn paths(spec: &Value) -> Vec<(String, String)> {
    let namespaces = spec["linux"]["namespaces"].as_array().unwrap();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    namespaces.iter().map(|one| (text(&one["type"]), text(&one["path"]))).collect()
}

fn sources(spec: &Value) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mounts = spec["mounts"].as_array().unwrap();
    mounts.iter().map(|one| (text(&one["destination"]), text(&one["source"]))).collect()
}

fn pairs(expected: &[(&str, &str)]) -> Vec<(String, String)> {
    expected.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect()
}

#[test]
fn cris_message_is_read_by_its_numbers() {
    let config = usual();
    assert_eq!((config.name.as_str(), config.uid.as_str()), ("shop-0", "uid-1"));
    assert_eq!((config.namespace.as_str(), config.hostname.as_str()), ("default", "shop-0"));
    let one = |text: &str| vec![text.to_owned()];
    assert_eq!(config.dns, Dns { servers: one("10.96.0.10"), searches: one("svc"), options: one("ndots:5") });
    assert_eq!(config.annotations["podshim.io/plan"], "a=main");
    assert_eq!(config.cgroup_parent, "/kubepods/pod1");
    assert_eq!(config.sysctls["net.core.somaxconn"], "99");
    let own = Namespaces {
        network: Sharing::Pod,
        ipc: Sharing::Pod,
        pid: PidSharing::Container,
        user: UserSharing::Node,
    };
    assert_eq!(config.namespaces, own);
    // proto3 does not send a 0: an empty option is POD for all.
    assert_eq!(super::tests::config(Vec::new()).namespaces, Namespaces { pid: PidSharing::Pod, ..own });
    let host = [number(1, 2), number(2, 2), number(3, 2), field(5, number(1, 2))].concat();
    let node = Namespaces { network: Sharing::Node, ipc: Sharing::Node, pid: PidSharing::Node, ..own };
    assert_eq!(super::tests::config(host).namespaces, node);
}

#[test]
fn a_user_namespace_needs_a_root_and_is_the_pods_or_the_nodes() {
    let mapping = |of_node: u8, in_pod: u8| [number(1, of_node), number(2, in_pod), number(3, 100)].concat();
    let user = |mode: u8, parts: &[Vec<u8>]| {
        config(field(5, [number(1, mode), parts.concat()].concat())).namespaces.user
    };
    let (uid, gid) = (field(2, mapping(70, 0)), field(3, mapping(80, 0)));
    let both = [uid.clone(), gid.clone()];
    assert_eq!(user(0, &both), UserSharing::Pod(PodRoot { uid: 70, gid: 80 }));
    assert_eq!(user(2, &both), UserSharing::Node);
    for (user, words) in [
        (user(0, &[uid]), "no group 0"),
        (user(0, &[field(2, mapping(70, 1)), gid]), "no user"),
        (user(0, &[]), "no user"),
        (user(1, &both), "the pod's or the node's"),
        (user(3, &both), "the pod's or the node's"),
    ] {
        let config = PodConfig { namespaces: Namespaces { user, ..usual().namespaces }, ..usual() };
        assert!(
            super::spec::refuse(&config, "node-1").is_err_and(|reason| reason.to_string().contains(words)),
            "{user:?}"
        );
    }
    let root = UserSharing::Pod(PodRoot { uid: 70, gid: 80 });
    let own = Namespaces { user: root, ..usual().namespaces };
    super::spec::refuse(&PodConfig { namespaces: own, ..usual() }, "node-1").unwrap();
    let of_node = Namespaces { network: Sharing::Node, ..own };
    let without_name = PodConfig { hostname: String::new(), namespaces: of_node, ..usual() };
    let reason = super::spec::refuse(&without_name, "node-1").unwrap_err().to_string();
    assert!(reason.contains("the node's network"), "{reason}");
}

#[test]
fn another_message_is_refused() {
    let other = Any { type_url: "acme.Sandbox".to_owned(), ..Any::default() };
    let error = PodConfig::of(Some(&other)).unwrap_err().to_string();
    assert!(error.contains("acme.Sandbox") && error.contains("runtime.v1.PodSandboxConfig"), "{error}");
    let broken = Any { value: vec![0x0a, 200], ..message(Vec::new()) };
    assert!(PodConfig::of(Some(&broken)).unwrap_err().to_string().contains("cannot be read"));
    assert_eq!(PodConfig::of(None).unwrap(), None);
}

/// CONTRACT §5: pid 0 is in no container's spec when the OCI runtime reads it.
#[test]
fn trap_29_the_namespaces_of_no_process_are_replaced() {
    let usual = corrected(&usual(), None, of_cri(&["network", "ipc", "uts"])).unwrap();
    let own = [("mount", ""), ("network", NET), ("ipc", "PLACE/ipc"), ("uts", "PLACE/uts")];
    assert_eq!(paths(&usual), pairs(&own));
    let shared = corrected(&config(Vec::new()), Some(17), of_cri(&["pid"])).unwrap();
    assert_eq!(paths(&shared), pairs(&[("mount", ""), ("pid", "/proc/17/ns/pid")]));
    // CRI writes these for the node's namespaces too: without an entry the container stays in them.
    let node = config([number(1, 2), number(2, 2), number(3, 2)].concat());
    let node = corrected(&node, None, of_cri(&["network", "ipc", "uts", "pid"])).unwrap();
    assert_eq!(paths(&node), pairs(&[("mount", "")]));
}

/// D10: a container with `pid: POD` in a pod with `pid: CONTAINER`, which the OCI runtime puts beside pause, has a namespace of its own.
#[test]
fn trap_29_d10_a_container_that_joins_an_unshared_pid_namespace_has_its_own() {
    let spec = corrected(&usual(), None, of_cri(&["pid"])).unwrap();
    assert_eq!(paths(&spec), pairs(&[("mount", ""), ("pid", "")]));
}

/// D10: as runc refuses a hostname without a uts namespace of its own. A kubelet sends none for `hostNetwork`.
#[test]
fn d10_a_hostname_beside_the_nodes_network_is_refused() {
    let of_node = Namespaces { network: Sharing::Node, ..usual().namespaces };
    let named = |hostname: &str| PodConfig { hostname: hostname.to_owned(), namespaces: of_node, ..usual() };
    let reason = super::spec::refuse(&named("shop-0"), "node-1").unwrap_err().to_string();
    assert!(reason.contains("\"shop-0\"") && reason.contains("network"), "{reason}");
    for name in ["", "node-1"] {
        super::spec::refuse(&named(name), "node-1").unwrap();
    }
    super::spec::refuse(&usual(), "node-1").unwrap();
}

/// D10: `netNamespaceClosed` of `crictl inspectp`.
#[test]
fn d10_a_network_namespace_is_closed_when_its_path_names_none() {
    assert!(!is_closed(Path::new(NET)));
    for path in ["/proc/0/ns/net", "/etc/hostname", "/run/netns/podshim-never-made"] {
        assert!(is_closed(Path::new(path)), "{path}");
    }
}

/// The pods and the containers that containerd 2.3.4 described, as the OCI runtime gets them.
#[test]
fn trap_29_what_containerd_writes_for_pid_0_reaches_no_runtime() {
    let shared = [("/etc/hostname", "PLACE/hostname"), ("/etc/hosts", "PLACE/hosts")];
    let own = [("pid", ""), ("ipc", "PLACE/ipc"), ("uts", "PLACE/uts"), ("mount", ""), ("network", NET)];
    let of_process_1 = [("pid", "/proc/17/ns/pid"), own[1], own[2], own[3], own[4]];
    for (pod, process_1, namespaces, shm) in [
        ("shop", None, own.as_slice(), "PLACE/shm"),
        ("shared-pid", Some(17), of_process_1.as_slice(), "PLACE/shm"),
        ("node-net", None, &[("pid", ""), ("mount", "")], "/dev/shm"),
    ] {
        let create: CreateSandboxRequest = recorded::request(pod, "CreateSandbox");
        let config = PodConfig::of(create.options.as_ref()).unwrap().unwrap();
        assert_eq!(config.cgroup_parent, "/podshim-recorded/pod0");
        assert_eq!(config.network(&create.netns_path).unwrap().is_some(), pod != "node-net");
        let mut recorded = recorded::spec(pod);
        let spec = json!({"linux": {"namespaces": recorded["namespaces"].take()}, "mounts": recorded["mounts"].take()});
        let spec = corrected(&config, process_1, spec).unwrap();
        assert_eq!(paths(&spec), pairs(namespaces), "{pod}");
        let sources = sources(&spec);
        for (place, source) in shared.into_iter().chain([("/dev/shm", shm)]) {
            let found: Vec<_> = sources.iter().filter(|(found, _)| found == place).collect();
            assert_eq!(found, [&(place.to_owned(), source.to_owned())], "{pod}: {place}");
        }
    }
    let create: CreateSandboxRequest = recorded::request("user-namespace", "CreateSandbox");
    let config = PodConfig::of(create.options.as_ref()).unwrap().unwrap();
    assert_eq!(config.namespaces.user, UserSharing::Pod(PodRoot { uid: 200_000, gid: 200_000 }));
}

/// Fail closed: a namespace that the pod has not is no reason to run in the node's.
#[test]
fn trap_29_a_namespace_that_the_pod_has_not_is_refused() {
    for (config, kinds, process_1) in
        [(usual(), "user", None), (usual(), "time", None), (config(Vec::new()), "pid", None)]
    {
        let error = corrected(&config, process_1, of_cri(&[kinds])).unwrap_err().to_string();
        assert!(error.contains(kinds), "{error}");
    }
    let left: Spec = serde_json::from_value(of_cri(&["cgroup"])).unwrap();
    assert!(refuse_no_process(&left).unwrap_err().to_string().contains("/proc/0/ns/cgroup"));
    refuse_no_process(&Spec::default()).unwrap();
}

/// containerd mounts only what it has made: without these a container sees its image's files and a /dev/shm of its own.
#[test]
fn trap_30_the_containers_have_the_pods_files_and_its_shm() {
    let spec = corrected(&usual(), None, of_cri(&[])).unwrap();
    let expected = [
        ("/proc", "proc"),
        ("/etc/hostname", "PLACE/hostname"),
        ("/etc/hosts", "PLACE/hosts"),
        ("/etc/resolv.conf", "PLACE/resolv.conf"),
        ("/dev/shm", "PLACE/shm"),
    ];
    assert_eq!(sources(&spec), pairs(&expected));
    // What the kubelet or the pod's author mounts stays; what containerd 1.7 names does not exist.
    let mut own = of_cri(&[]);
    let cri = "/run/containerd/io.containerd.grpc.v1.cri/sandboxes/1";
    own["root"]["readonly"] = true.into();
    own["mounts"] = json!([
        {"destination": "/etc/hosts", "type": "bind", "source": "/var/lib/kubelet/pods/1/etc-hosts"},
        {"destination": "/etc/resolv.conf", "type": "bind", "source": format!("{cri}/resolv.conf")},
        {"destination": "/dev/shm", "type": "bind", "source": "/var/lib/kubelet/pods/1/volumes/memory"},
    ]);
    let spec = corrected(&usual(), None, own).unwrap();
    let expected = [
        ("/etc/hosts", "/var/lib/kubelet/pods/1/etc-hosts"),
        ("/dev/shm", "/var/lib/kubelet/pods/1/volumes/memory"),
        ("/etc/hostname", "PLACE/hostname"),
        ("/etc/resolv.conf", "PLACE/resolv.conf"),
    ];
    assert_eq!(sources(&spec), pairs(&expected));
    assert_eq!(spec["mounts"][2]["options"], json!(["rbind", "rprivate", "ro"]));
}

/// containerd cleans the paths before it compares them, and sorts mounts by depth.
#[test]
fn trap_30_no_file_of_the_pod_hides_a_volume() {
    let volumes = |places: &[&str]| {
        let volume = |place: &&str| json!({"destination": place, "type": "bind", "source": "/volume"});
        let mut spec = of_cri(&[]);
        spec["mounts"].as_array_mut().unwrap().extend(places.iter().map(volume));
        let places = sources(&corrected(&usual(), None, spec).unwrap());
        places.into_iter().filter(|(place, _)| place.starts_with("/dev")).collect::<Vec<_>>()
    };
    for written in ["/dev/shm/", "/dev//shm", "/dev/../dev/shm"] {
        assert_eq!(volumes(&[written]), pairs(&[(written, "/volume")]));
    }
    let inside = [("/dev/shm", "PLACE/shm"), ("/dev/shm/cache", "/volume")];
    assert_eq!(volumes(&["/dev/shm/cache"]), pairs(&inside));
    let above = [("/dev", "/volume"), ("/dev/shm", "PLACE/shm")];
    assert_eq!(volumes(&["/dev"]), pairs(&above));
}

/// All of a pod's annotations arrive here, and only podshim's go further: systemd and the OCI runtime act on others.
#[test]
fn the_plan_reaches_every_spec_and_other_annotations_none() {
    let config = usual();
    let spec = corrected(&config, None, of_cri(&[])).unwrap();
    assert_eq!(spec["annotations"], json!({"k": "v", "podshim.io/plan": "a=main"}));
    let (directory, pins) = pins(&config, Some(NET));
    let spec = of_sandbox("pod", &config, Some(Path::new(NET)), &pins);
    Pins::remove(&directory.path().join("sandbox")).unwrap();
    assert_eq!(
        spec["annotations"],
        json!({
            "podshim.io/plan": "a=main",
            "io.kubernetes.cri.container-type": "sandbox",
            "io.kubernetes.cri.sandbox-id": "pod",
            "io.kubernetes.cri.sandbox-name": "shop-0",
            "io.kubernetes.cri.sandbox-namespace": "default",
            "io.kubernetes.cri.sandbox-uid": "uid-1",
        })
    );
    assert_eq!(spec["linux"]["cgroupsPath"], Value::Null, "no process, no group");
}

#[test]
fn process_1_has_the_place_of_a_pause_container() {
    let mut config = config(Vec::new());
    let (directory, pins) = pins(&config, None);
    for (parent, path) in [
        ("/kubepods/pod1", "/kubepods/pod1/pod"),
        ("", "/pod"),
        ("/kubepods.slice/kubepods-pod1.slice", "kubepods-pod1.slice:cri-containerd:pod"),
    ] {
        config.cgroup_parent = parent.to_owned();
        assert_eq!(of_sandbox("pod", &config, None, &pins)["linux"]["cgroupsPath"], path);
    }
    Pins::remove(&directory.path().join("sandbox")).unwrap();
}

#[test]
fn a_node_without_the_capability_keeps_its_score() {
    for (status, expected) in
        [("Name:\tx\nCapEff:\t000001ffffffffff\n", true), ("CapEff:\t00000000feffffff\n", false), ("", false)]
    {
        assert_eq!(super::spec::may_lower_its_score(status), expected, "{status}");
    }
}

#[test]
fn the_resolver_is_the_pods_or_a_copy_of_the_nodes() {
    let text = |config: &PodConfig| String::from_utf8(resolv_conf(config, b"node\n".to_vec())).unwrap();
    assert_eq!(text(&usual()), "search svc\nnameserver 10.96.0.10\noptions ndots:5\n");
    assert_eq!(text(&PodConfig::default()), "node\n");
}

#[test]
fn the_nodes_default_sysctls_are_the_pods_where_it_says_nothing() {
    let node = [("net.core.somaxconn", "1"), ("net.ipv4.ip_unprivileged_port_start", "0")];
    let node = node.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let expected = [("net.core.somaxconn", "99"), ("net.ipv4.ip_unprivileged_port_start", "0")];
    assert_eq!(with_defaults(&usual(), &node), pairs(&expected));
}

/// `ctr sandboxes run`.
#[test]
fn without_cri_the_network_is_the_one_that_is_named() {
    assert_eq!(PodConfig::without_cri("").network("").unwrap(), None);
    assert_eq!(PodConfig::without_cri(NET).network(NET).unwrap(), Some(NET.into()));
}

/// Trap 32: a sandbox that no caller has started is given up; one whose removal fails is removed once more, and not without a break.
#[tokio::test(start_paused = true)]
async fn trap_32_a_removal_is_tried_again_after_the_same_time() {
    let directory = tempfile::tempdir().unwrap();
    let mut config = usual();
    config.sysctls.clear();
    let details = SandboxDetails { bundle: directory.path().to_owned(), config, netns_path: NET.to_owned() };
    let place = directory.path().join("sandbox");
    let mut sandbox = PodSandbox::make(&ContainerId::from("pod"), &place, &details, &[]).unwrap();
    let view = View { status: Status::Created, pid: 1, exit: None, has_process: true };
    let begin = Instant::now();
    assert_eq!(sandbox.forgotten_at(&view), Some(begin + FORGOTTEN_AFTER));
    tokio::time::advance(FORGOTTEN_AFTER).await;
    sandbox.removal_begins();
    assert_eq!(sandbox.forgotten_at(&view), Some(begin + 2 * FORGOTTEN_AFTER));
    sandbox.start_begins();
    assert_eq!(sandbox.forgotten_at(&view), None);
    sandbox.discard();
    assert!(!place.exists());
}
