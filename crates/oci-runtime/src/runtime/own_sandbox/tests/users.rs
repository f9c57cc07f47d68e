//! Sandboxes in user namespaces: new ones, and those that exist.

use test_support::UserNamespace;

use super::*;

/// Process 1 of a pod of the Sandbox API: the user namespace and the others exist, and its pid namespace has to be the user
/// namespace's, else no container can mount its /proc.
#[test]
fn in_the_user_namespace_of_a_pod_it_has_a_pid_namespace_that_belongs_to_it() {
    run(async {
        let pod = UserNamespace::with(&["--net", "--ipc", "--uts"]);
        let file = |name: &str| pod.namespace(name);
        let (_test, container) = sandbox(|spec| {
            spec["process"]["user"] = json!({"uid": 65535, "gid": 65534});
            spec["process"]["rlimits"] = Value::Null;
            spec["hostname"] = Value::Null;
            spec["linux"]["sysctl"] = Value::Null;
            let joined = [("user", "user"), ("network", "net"), ("ipc", "ipc"), ("uts", "uts")]
                .map(|(kind, name)| json!({"type": kind, "path": file(name)}));
            let new = [json!({"type": "mount"}), json!({"type": "pid"})];
            spec["linux"]["namespaces"] = joined.into_iter().chain(new).collect();
        });
        // As containerd makes the bundle of a sandbox of the Sandbox API.
        fs::set_permissions(container.bundle().path(), std::os::unix::fs::PermissionsExt::from_mode(0o700))
            .unwrap();
        let launched = create(&container).await;
        until(|| status(&launched, "Seccomp") == "2").await;
        assert_eq!(status(&launched, "Name"), "pause");
        assert_eq!(status(&launched, "Uid"), "265535\t265535\t265535\t265535");
        assert_eq!(status(&launched, "PPid"), std::process::id().to_string(), "it is the shim's child");
        assert_eq!(status(&launched, "NSpid").split_whitespace().last(), Some("1"));
        assert_eq!(fs::read_to_string(of_process(&launched, "oom_score_adj")).unwrap(), "500\n");
        for name in ["user", "net", "ipc", "uts"] {
            let inode = |path: &Path| fs::metadata(path).unwrap().ino();
            assert_eq!(inode(&of_process(&launched, &format!("ns/{name}"))), inode(&file(name)), "{name}");
        }
        // Its root mounts a /proc of that pid namespace, as the OCI runtime does for a container.
        let mut enter = std::process::Command::new("nsenter");
        enter.args(["--target", &launched.process.pid().to_string(), "--user", "--pid", "--setuid", "0"]);
        enter.args(["unshare", "--mount", "sh", "-c", "mount -t proc proc /proc && cat /proc/1/comm"]);
        #[expect(clippy::disallowed_methods, reason = "the test is the only waiter of its children")]
        let seen = enter.output().unwrap();
        assert_eq!(
            String::from_utf8_lossy(&seen.stdout),
            "pause\n",
            "{}",
            String::from_utf8_lossy(&seen.stderr)
        );
        end(&container, launched.exit).await;
    });
}

/// As CRI of containerd 2 writes it for `hostUsers: false`: the user and the network namespace exist, and the maps are those of
/// what exists; everything else is new, and the user namespace's.
fn in_the_user_namespace_of_cri(pod: &UserNamespace, first: u32) -> impl FnOnce(&mut Value) {
    let joined = [("user", "user"), ("network", "net")]
        .map(|(kind, name)| json!({"type": kind, "path": pod.namespace(name)}));
    move |spec| {
        let new = ["mount", "pid", "ipc", "uts"].map(|kind| json!({"type": kind}));
        spec["linux"]["namespaces"] = joined.into_iter().chain(new).collect();
        spec["linux"]["sysctl"] = json!({"net.ipv4.ip_unprivileged_port_start": "0"});
        let map = json!([{"containerID": 0, "hostID": first, "size": 65536}]);
        spec["linux"]["uidMappings"] = map.clone();
        spec["linux"]["gidMappings"] = map;
        spec["process"]["rlimits"] = json!([{"type": "RLIMIT_MSGQUEUE", "soft": 64, "hard": 128}]);
    }
}

#[test]
fn what_is_new_beside_an_existing_user_namespace_belongs_to_it() {
    run(async {
        let pod = UserNamespace::with(&["--net"]);
        let (_test, container) = sandbox(in_the_user_namespace_of_cri(&pod, 200_000));
        let launched = create(&container).await;
        until(|| status(&launched, "Seccomp") == "2").await;
        assert_eq!(status(&launched, "Uid"), "265535\t265535\t265535\t265535");
        assert_eq!(status(&launched, "PPid"), std::process::id().to_string(), "it is the shim's child");
        assert_eq!(status(&launched, "NSpid").split_whitespace().last(), Some("1"));
        assert_eq!(fs::read_to_string(of_process(&launched, "oom_score_adj")).unwrap(), "500\n");
        let limits = fs::read_to_string(of_process(&launched, "limits")).unwrap();
        let queue = limits.lines().find(|line| line.starts_with("Max msgqueue size")).unwrap();
        assert_eq!(queue.split_whitespace().skip(3).take(2).collect::<Vec<_>>(), ["64", "128"]);
        let inode = |path: &Path| fs::metadata(path).unwrap().ino();
        for name in ["user", "net"] {
            assert_eq!(
                inode(&of_process(&launched, &format!("ns/{name}"))),
                inode(&pod.namespace(name)),
                "{name}"
            );
        }
        for name in ["ipc", "uts", "pid", "mnt"] {
            let theirs = inode(&of_process(&launched, &format!("ns/{name}")));
            assert_ne!(theirs, inode(Path::new(&format!("/proc/self/ns/{name}"))), "{name}");
            assert_ne!(theirs, inode(&pod.namespace(name)), "{name}");
        }
        // Root of a container may change the host name, and mount a /proc: both are its user namespace's.
        let mut enter = std::process::Command::new("nsenter");
        enter.args([
            "--target",
            &launched.process.pid().to_string(),
            "--user",
            "--pid",
            "--uts",
            "--ipc",
            "--net",
        ]);
        enter.args(["--setuid", "0", "unshare", "--mount", "sh", "-c"]);
        enter.arg(
            "hostname; hostname other && hostname; cat /proc/sys/net/ipv4/ip_unprivileged_port_start; \
             mount -t proc proc /proc && cat /proc/1/comm; mount -t mqueue q /proc/fs && echo queue
             for act in 'chmod 0 /proc/1/fd/0' 'chown 0 /proc/1/fd/0' 'touch /proc/1/root/a'; do
                 $act 2>/dev/null && echo $act
             done; nsenter --target 1 --mount chmod 0 /dev/null 2>/dev/null && echo entered",
        );
        // The node's null device, as no device can be made here.
        let device =
            || fs::metadata(of_process(&launched, "fd/0")).map(|file| (file.rdev(), file.uid(), file.mode()));
        let before = device().unwrap();
        assert_eq!(before.0, fs::metadata("/dev/null").unwrap().rdev());
        #[expect(clippy::disallowed_methods, reason = "the test is the only waiter of its children")]
        let seen = enter.output().unwrap();
        let errors = String::from_utf8_lossy(&seen.stderr).into_owned();
        assert_eq!(String::from_utf8_lossy(&seen.stdout), "shop\nother\n0\npause\nqueue\n", "{errors}");
        assert_eq!(device().unwrap(), before, "the mode of the node's null device");
        end(&container, launched.exit).await;
    });
}

/// The inner child sets it up: only there it is root of what owns the network.
#[test]
fn a_new_network_beside_an_existing_user_namespace_has_its_loopback_up() {
    run(async {
        let pod = UserNamespace::with(&[]);
        let (_test, container) = sandbox(|spec| {
            in_the_user_namespace_of_cri(&pod, 200_000)(spec);
            let namespaces = spec["linux"]["namespaces"].as_array_mut().unwrap();
            let network = namespaces.iter_mut().find(|one| one["type"] == "network").unwrap();
            *network = json!({"type": "network"});
        });
        let launched = create(&container).await;
        let pid = launched.process.pid().to_string();
        let mut enter = std::process::Command::new("nsenter");
        enter.args(["--target", &pid, "--user", "--net", "--setuid", "0", "ip", "link", "show", "lo"]);
        #[expect(clippy::disallowed_methods, reason = "nsenter is no child of the reaper's")]
        let output = enter.output().unwrap();
        let shown = String::from_utf8_lossy(&output.stdout);
        assert!(shown.contains("LOOPBACK,UP"), "{output:?}");
        end(&container, launched.exit).await;
    });
}

/// runc 1.1 ignores the spec's maps then, later ones refuse it: podshim leaves the answer to it.
#[test]
fn maps_that_are_not_those_of_the_existing_user_namespace_are_the_oci_runtimes() {
    run(async {
        let pod = UserNamespace::with(&["--net"]);
        let request =
            |test: &TestContainer| request_of(&test.container).map(|_| ()).map_err(|error| error.to_string());
        let with = |first: u32| {
            TestContainer::new(&["/pause"], |spec| {
                let path = spec["linux"]["cgroupsPath"].clone();
                in_the_user_namespace_of_cri(&pod, first)(spec);
                spec["linux"]["cgroupsPath"] = path;
            })
        };
        assert_eq!(request(&with(200_000)), Ok(()));
        let error = request(&with(300_000)).unwrap_err();
        assert!(error.contains("its mappings are not those of the spec"), "{error}");
    });
}

/// The namespaces are of its user namespace, as those of an OCI runtime are, and the node's root did what only it may do.
#[test]
fn in_a_user_namespace_it_is_an_unprivileged_user_on_the_node() {
    run(async {
        let (_test, container) = sandbox(in_a_user_namespace);
        let launched = create(&container).await;
        until(|| status(&launched, "Seccomp") == "2").await;
        assert_eq!(status(&launched, "Uid"), "165535\t165535\t165535\t165535");
        assert_eq!(status(&launched, "Gid"), "165534\t165534\t165534\t165534");
        for set in ["CapPrm", "CapEff", "CapBnd"] {
            assert_eq!(status(&launched, set), "0000000000000000", "{set}");
        }
        let map = fs::read_to_string(of_process(&launched, "uid_map")).unwrap();
        assert_eq!(map.split_whitespace().collect::<Vec<_>>(), ["0", "100000", "65536"]);
        assert_eq!(fs::read_to_string(of_process(&launched, "oom_score_adj")).unwrap().trim(), "500");
        assert_eq!(fs::read_to_string("/proc/self/oom_score_adj").unwrap().trim(), "0");
        let limits = fs::read_to_string(of_process(&launched, "limits")).unwrap();
        let files = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
        assert_eq!(files.split_whitespace().skip(3).take(2).collect::<Vec<_>>(), ["64", "128"]);
        assert_eq!(fs::read_dir(of_process(&launched, "root")).unwrap().count(), 0, "its root is empty");
        let mounts = fs::read_to_string(of_process(&launched, "mounts")).unwrap();
        assert_eq!(mounts.lines().count(), 1, "{mounts}");
        assert!(mounts.starts_with("tmpfs / tmpfs ro,nosuid,nodev,noexec"), "{mounts}");
        // A container that enters them is root there: the kernel asks which user namespace owns each.
        let pid = launched.process.pid().to_string();
        let mut enter = std::process::Command::new("nsenter");
        enter.args(["--target", &pid, "--user", "--net", "--uts", "--setuid", "0", "sh", "-c"]);
        enter.arg("ip link add dummy7 type dummy; hostname other; hostname; cat /proc/sys/net/ipv4/ip_unprivileged_port_start; ip link show lo | grep -o LOOPBACK,UP");
        #[expect(clippy::disallowed_methods, reason = "nsenter is no child of the reaper's")]
        let output = enter.output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout), "other\n0\nLOOPBACK,UP\n", "{output:?}");
        let membership = fs::read_to_string(of_process(&launched, "cgroup")).unwrap();
        let path = own(&container).cgroups_path().path().to_owned();
        let groups = Groups::at(&path).unwrap();
        let in_it = membership.lines().filter(|line| line.ends_with(&path)).count();
        assert_eq!(in_it, groups.entrances().unwrap().files.len(), "{membership}");
        assert_eq!(limit_in(&path, "pids.max").as_deref(), Some("7"));
        container.start().await.unwrap();
        end(&container, launched.exit).await;
        assert!(groups.entrances().is_err(), "its groups are gone");
    });
}

/// What waits at the barrier ends with the preparations, and leaves nothing.
#[test]
fn a_map_that_the_kernel_refuses_leaves_no_process() {
    run(async {
        let (_test, container) = sandbox(|spec| {
            in_a_user_namespace(spec);
            // Two of its users would be one of the node's.
            let twice = json!([
                {"containerID": 0, "hostID": 100_000, "size": 10}, {"containerID": 10, "hostID": 100_000, "size": 10},
            ]);
            spec["linux"]["uidMappings"] = twice;
        });
        let created = container.create(ChildStdio::null(), CreateOptions::default()).await;
        let error = created.map(|_| ()).unwrap_err().to_string();
        assert!(error.contains("uid_map: Invalid argument"), "{error}");
        assert_eq!(container.recorded_sandbox().unwrap(), None);
        let path = own(&container).cgroups_path().path().to_owned();
        assert!(Groups::at(&path).unwrap().entrances().is_err(), "its groups are gone");
    });
}
