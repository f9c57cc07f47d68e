//! What of a spec podshim does itself, and what not.

use serde_json::json;

use super::*;

fn of_spec(spec: &Value) -> Result<SandboxRequest, NotUnderstood> {
    SandboxRequest::of_spec(spec, &NODE)
}

const NODE: NodeFeatures = NodeFeatures {
    driver: CgroupDriver::Cgroupfs,
    has_systemd: true,
    has_apparmor: true,
    has_selinux: true,
    has_seccomp: true,
};

/// As CRI of containerd 1.6 writes it, but for the long lists.
fn cri() -> Value {
    json!({
        "ociVersion": "1.0.2",
        "process": {
            "user": {"uid": 65535, "gid": 65535, "additionalGids": [65535]}, "args": ["/pause"],
            "env": ["PATH=/bin"], "cwd": "/", "noNewPrivileges": true, "oomScoreAdj": -998,
            "capabilities": {"bounding": ["CAP_CHOWN"]}, "rlimits": [{"type": "RLIMIT_NOFILE", "soft": 5, "hard": 6}],
        },
        "root": {"path": "rootfs", "readonly": true},
        "hostname": "shop",
        "mounts": [{"destination": "/proc", "type": "proc", "source": "proc"}],
        "annotations": {"io.kubernetes.cri.container-type": "sandbox"},
        "linux": {
            "sysctl": {"net.ipv4.ip_unprivileged_port_start": "0", "kernel.shmmax": "5"},
            "resources": {"devices": [{"allow": false, "access": "rwm"}], "cpu": {"shares": 2}},
            "cgroupsPath": "/kubepods/pod1/x",
            "namespaces": [
                {"type": "pid"}, {"type": "ipc"}, {"type": "uts"}, {"type": "mount"},
                {"type": "network", "path": "/run/netns/a"},
            ],
            "seccomp": {"defaultAction": "SCMP_ACT_ERRNO"},
            "maskedPaths": ["/proc/acpi"], "readonlyPaths": ["/proc/bus"],
        },
    })
}

#[test]
fn the_sandbox_of_cri_is_understood() {
    let request = of_spec(&cri()).unwrap();
    assert_eq!((request.uid, request.gid, request.oom_score_adj), (65535, 65535, Some(-998)));
    assert_eq!((&*request.hostname, request.cgroups_path.path()), ("shop", "/kubepods/pod1/x"));
    let new = [NamespaceKind::Pid, NamespaceKind::Ipc, NamespaceKind::Uts, NamespaceKind::Mount];
    assert_eq!(request.new, new);
    assert_eq!(request.joined, [(NamespaceKind::Network, PathBuf::from("/run/netns/a"))]);
    assert_eq!(request.rlimits, [(7, 5, 6)]);
    let sysctls = [("kernel/shmmax", "5"), ("net/ipv4/ip_unprivileged_port_start", "0")];
    assert_eq!(request.sysctls, sysctls.map(|(file, text)| (file.to_owned(), text.to_owned())));
}

/// Never half of a spec: whatever is not known is the OCI runtime's.
#[test]
fn what_is_not_known_is_named() {
    for (place, value, reason) in [
        ("/hooks", json!({"prestart": [{"path": "/bin/true"}]}), "hooks"),
        ("/vm", json!({"kernel": {"path": "k"}}), "vm"),
        ("/process/terminal", json!(true), "process.terminal"),
        (
            "/annotations/org.systemd.property.TimeoutStopSec",
            json!("5"),
            "annotation org.systemd.property.TimeoutStopSec",
        ),
        ("/annotations/run.oci.keep_original_groups", json!("1"), "annotation run.oci.keep_original_groups"),
        ("/annotations/module.wasm.image~1variant", json!("compat"), "annotation module.wasm.image/variant"),
        ("/process/user/umask", json!(18), "process.user.umask"),
        // It is a mask, and not none.
        ("/process/user/umask", json!(0), "process.user.umask"),
        ("/process/user/uid", json!(u32::MAX), "process.user.uid"),
        ("/process/user/gid", json!(-1), "process.user.gid"),
        ("/process/scheduler", json!({"policy": "SCHED_FIFO"}), "process.scheduler"),
        ("/process/rlimits/0/type", json!("RLIMIT_NEW"), "process.rlimits RLIMIT_NEW"),
        (
            "/linux/uidMappings",
            json!([{"containerID": 0, "hostID": 1, "size": 5}]),
            "a user namespace without both of its mappings",
        ),
        ("/linux/timeOffsets", json!({"boottime": {"secs": 1}}), "linux.timeOffsets"),
        ("/linux/netDevices", json!({"eth0": {}}), "linux.netDevices"),
        ("/linux/seccomp/listenerPath", json!("/run/agent"), "linux.seccomp.listenerPath"),
        ("/linux/namespaces/0/type", json!("user"), "a user namespace without both of its mappings"),
        ("/linux/namespaces/0/type", json!("time"), "a \"time\" namespace"),
        ("/linux/namespaces/0/path", json!("/proc/1/ns/pid"), "the Pid namespace \"/proc/1/ns/pid\""),
        ("/linux/namespaces/2/type", json!("cgroup"), "hostname without a uts namespace"),
        ("/linux/namespaces/3/type", json!("cgroup"), "a sandbox in the node's mount namespace"),
        // runc refuses it; which of the two would it be?
        ("/linux/namespaces/2/type", json!("network"), "a second Network namespace"),
        ("/linux/sysctl/kernel.pid_max", json!("5"), "linux.sysctl.kernel.pid_max"),
        ("/linux/sysctl/net.a~1b", json!("5"), "linux.sysctl.net.a/b"),
        ("/linux/sysctl/net.ipv4.x", json!(5), "linux.sysctl.net.ipv4.x"),
        ("/linux/resources/cpu/cpus", json!("0"), "linux.resources.cpu.cpus"),
        ("/linux/resources/blockIO", json!({"weight": 100}), "linux.resources.blockIO.weight"),
    ] {
        let mut spec = cri();
        let (above, key) = place.rsplit_once('/').unwrap();
        spec.pointer_mut(above).unwrap()[key.replace("~1", "/")] = value.clone();
        if let (Some(list), Ok(index)) =
            (spec.pointer_mut(above).and_then(Value::as_array_mut), key.parse::<usize>())
        {
            list[index] = value;
        }
        let error = of_spec(&spec).unwrap_err();
        assert_eq!(error.to_string(), format!("{reason} is not done by podshim itself"), "{place}");
    }
}

#[test]
fn what_a_spec_needs_of_the_node() {
    let mut spec = cri();
    let without = SandboxRequest::of_spec(&spec, &NodeFeatures { has_seccomp: false, ..NODE });
    assert_eq!(without.unwrap_err().to_string(), "a kernel without seccomp filters");
    spec["process"]["apparmorProfile"] = json!("cri-containerd.apparmor.d");
    assert_eq!(of_spec(&spec).unwrap().profile, "cri-containerd.apparmor.d");
    let without = SandboxRequest::of_spec(&spec, &NodeFeatures { has_apparmor: false, ..NODE });
    assert_eq!(without.unwrap_err().to_string(), "process.apparmorProfile on a node without AppArmor");

    for field in [("process", "selinuxLabel"), ("linux", "mountLabel")] {
        let mut spec = cri();
        let (part, key) = field;
        spec[part][key] = json!("system_u:object_r:container_file_t:s0:c1,c2");
        assert!(of_spec(&spec).is_err(), "{field:?}");
        let without = SandboxRequest::of_spec(&spec, &NodeFeatures { has_selinux: false, ..NODE });
        assert_eq!(without.unwrap_err().to_string(), "labels of SELinux on a node without it", "{field:?}");
    }
    let mut spec = cri();
    spec["process"]["selinuxLabel"] = json!("system_u:system_r:container_t:s0:c1,c2");
    spec["linux"]["mountLabel"] = json!("system_u:object_r:container_file_t:s0:c1,c2");
    assert_eq!(of_spec(&spec).unwrap().mount_label, "system_u:object_r:container_file_t:s0:c1,c2");
    spec["linux"]["mountLabel"] = json!("\"");
    assert!(of_spec(&spec).is_err());

    let mut spec = cri();
    spec["linux"]["cgroupsPath"] = json!("kubepods-pod1.slice:cri-containerd:x");
    assert!(of_spec(&spec).is_err());
    let systemd = NodeFeatures { driver: CgroupDriver::Systemd, ..NODE };
    let request = SandboxRequest::of_spec(&spec, &systemd).unwrap();
    assert_eq!(request.cgroups_path.path(), "/kubepods.slice/kubepods-pod1.slice/cri-containerd-x.scope");
    assert!(request.needs_help());
    spec["linux"]["resources"]["cpu"] = json!({"quota": 50_000, "period": 100_000});
    assert!(SandboxRequest::of_spec(&spec, &systemd).is_ok());
    spec["linux"]["resources"]["cpu"]["period"] = json!(50_000);
    let unusual = SandboxRequest::of_spec(&spec, &systemd).unwrap_err().to_string();
    assert_eq!(unusual, "linux.resources.cpu.period of a scope is not done by podshim itself");
    let without = SandboxRequest::of_spec(&spec, &NodeFeatures { has_systemd: false, ..systemd });
    assert_eq!(without.unwrap_err().to_string(), "a scope without systemd");
}

/// As CRI of containerd 2 writes it: the network is its own too, and containerd takes it from the process.
#[test]
fn a_user_namespace_has_both_maps_and_makes_all_others() {
    let mut spec = cri();
    let map = json!([{"containerID": 0, "hostID": 65536, "size": 65536}]);
    spec["linux"]["uidMappings"] = map.clone();
    spec["linux"]["gidMappings"] = map;
    spec["linux"]["namespaces"][4] = json!({"type": "user"});
    spec["linux"]["sysctl"] = Value::Null;
    let request = of_spec(&spec).unwrap();
    assert!(request.needs_help());
    assert_eq!(request.id_maps.unwrap().uids, "0 65536 65536\n");
    spec["linux"]["namespaces"][2]["path"] = json!("/proc/1/ns/uts");
    let reason = "a user namespace beside an existing namespace is not done by podshim itself";
    assert_eq!(of_spec(&spec).unwrap_err().to_string(), reason);
}

/// As podshim writes it for a pod of the Sandbox API, and as CRI of containerd 2 does, with the maps of what exists.
#[test]
fn an_existing_user_namespace_is_joined() {
    let mut spec = cri();
    spec["hostname"] = Value::Null;
    spec["linux"]["sysctl"] = Value::Null;
    let joined =
        ["user", "ipc", "uts", "network"].map(|kind| json!({"type": kind, "path": format!("/run/{kind}")}));
    let new = [json!({"type": "mount"}), json!({"type": "pid"})];
    spec["linux"]["namespaces"] = joined.into_iter().chain(new).collect();
    let request = of_spec(&spec).unwrap();
    assert!(!request.needs_help() && request.joined.contains(&(NamespaceKind::User, "/run/user".into())));
    spec["linux"]["namespaces"][1] = json!({"type": "ipc"});
    let map = json!([{"containerID": 0, "hostID": 65536, "size": 65536}]);
    spec["linux"]["uidMappings"] = map.clone();
    spec["linux"]["gidMappings"] = map;
    let request = of_spec(&spec).unwrap();
    assert!(!request.needs_help(), "its maps are written");
    assert_eq!((request.id_maps, request.maps_of_joined.unwrap().uids), (None, "0 65536 65536\n".to_owned()));
}

/// A value of another kind is not the same as none: a user that is no number is not root.
#[test]
fn what_is_no_value_of_its_field_is_the_oci_runtimes() {
    for (place, value) in [
        ("/process/user/uid", json!("app")),
        ("/process/user/uid", json!(-1)),
        ("/process/user/gid", json!(5_000_000_000_u64)),
        ("/process/oomScoreAdj", json!("low")),
        ("/process/rlimits", json!({"RLIMIT_NOFILE": 5})),
        ("/process/terminal", json!("yes")),
        ("/hostname", json!(["shop"])),
        ("/linux/sysctl", json!(["net.a=1"])),
        ("/linux/namespaces", json!({"type": "mount"})),
        ("/linux/cgroupsPath", json!(7)),
        ("/linux/resources", json!(["cpu"])),
        ("/linux/resources/cpu", json!({"shares": -5})),
        ("/linux/resources/cpu", json!({"quota": "half"})),
        ("/linux/resources/memory", json!({"limit": 1.5})),
        // Here zero says something.
        ("/linux/resources/memory", json!({"swappiness": 0})),
    ] {
        let mut spec = cri();
        let (above, key) = place.rsplit_once('/').unwrap();
        let above = spec.pointer_mut(above).unwrap();
        above[key] = value.clone();
        assert!(of_spec(&spec).is_err(), "{place}: {value}");
    }
}

/// A field that says nothing needs nothing, whatever it is called.
#[test]
fn what_says_nothing_is_no_reason() {
    let mut spec = cri();
    spec["hooks"] = json!({"prestart": []});
    spec["process"]["selinuxLabel"] = json!("");
    spec["linux"]["intelRdt"] = Value::Null;
    spec["linux"]["resources"]["memory"] = json!({"swap": 0});
    assert!(of_spec(&spec).is_ok());
}
