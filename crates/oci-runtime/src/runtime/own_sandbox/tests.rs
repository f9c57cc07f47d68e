//! Sandboxes that podshim makes, on the machine's own kernel and control groups.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use cgroups::cgroup_mounts;
use own_processes::NotUnderstood;
use processes::SignalNumber;
use processes::reaper::ExitWatch;
use serde_json::{Value, json};
use streams::stdio::ChildStdio;
use test_support::{run, until, within};

use super::*;
use crate::runtime::{CheckpointOptions, CreateOptions, DeleteMode, Maker};
use crate::test_container::{TestContainer, process};

mod users;

/// A bundle whose spec asks for a sandbox; `adjust` may change it.
fn sandbox(adjust: impl FnOnce(&mut Value)) -> (Guarded, Container) {
    let test = TestContainer::new(&["/pause"], |spec| {
        let id = spec["linux"]["cgroupsPath"].as_str().unwrap().to_owned();
        spec["process"]["user"] = json!({"uid": 65535, "gid": 65534});
        spec["process"]["oomScoreAdj"] = json!(500);
        spec["process"]["rlimits"] = json!([{"type": "RLIMIT_NOFILE", "soft": 64, "hard": 128}]);
        spec["hostname"] = json!("shop");
        spec["linux"] = json!({
            "cgroupsPath": id,
            "resources": {"cpu": {"shares": 2}, "pids": {"limit": 7}},
            "sysctl": {"kernel.shmmni": "77", "net.ipv4.ip_unprivileged_port_start": "0"},
            "namespaces": [
                {"type": "pid"}, {"type": "mount"}, {"type": "ipc"}, {"type": "uts"}, {"type": "network"},
            ],
        });
        adjust(spec);
    });
    let request = request_of(&test.container).unwrap();
    let container = test.container.clone().made_by(Maker::Own(Rc::new(request)));
    (Guarded(test, container.clone()), container)
}

fn own(container: &Container) -> Rc<SandboxRequest> {
    match &container.maker {
        Maker::Own(request) => request.clone(),
        other => panic!("{other:?}"),
    }
}

fn request_of(container: &Container) -> Result<SandboxRequest, NotUnderstood> {
    let spec = fs::read(container.bundle().spec_path()).unwrap();
    SandboxRequest::of(&serde_json::from_slice(&spec).unwrap(), container.runtime.cgroup_driver)
}

/// Ends the sandbox if the test fails: no OCI runtime knows of it.
struct Guarded(TestContainer, Container);

impl std::ops::Deref for Guarded {
    type Target = TestContainer;

    fn deref(&self) -> &TestContainer {
        &self.0
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            return;
        }
        let path = own(&self.1).cgroups_path().path().to_owned();
        // On a thread of its own: this one may be inside of an executor, which does not nest.
        let removal = std::thread::spawn(move || {
            let executor = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let removed = executor
                .map(|executor| executor.block_on(remove_abandoned(&path, Instant::now() + DEATH_LIMIT)));
            if !matches!(removed, Ok(Ok(()))) {
                eprintln!("{path} is left: {removed:?}");
            }
        });
        let _ = removal.join();
    }
}

async fn create(container: &Container) -> Launched {
    container.create(ChildStdio::null(), CreateOptions::default()).await.unwrap()
}

fn status(launched: &Launched, field: &str) -> String {
    let text = fs::read_to_string(format!("/proc/{}/status", launched.process.pid())).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    line.unwrap_or_else(|| panic!("no {field}")).trim().to_owned()
}

fn of_process(launched: &Launched, file: &str) -> PathBuf {
    Path::new("/proc").join(launched.process.pid().to_string()).join(file)
}

async fn end(container: &Container, exit: ExitWatch) {
    container.delete(DeleteMode::Force).await.unwrap();
    within(exit).await;
}

/// What a file of the groups at a path says.
fn limit_in(path: &str, file: &str) -> Option<String> {
    let mounts = cgroup_mounts(&fs::read_to_string("/proc/self/mountinfo").unwrap());
    let texts = mounts.iter().map(|mount| fs::read_to_string(mount.directory_of(path).join(file)));
    Some(texts.into_iter().find_map(Result::ok)?.trim().to_owned())
}

/// Removes the groups that a test has made for its own, which was called `inner`.
fn remove_above(path: &str) {
    for hierarchy in fs::read_dir("/sys/fs/cgroup").unwrap() {
        let path = path.trim_start_matches('/').strip_suffix("/inner").unwrap();
        let _ = fs::remove_dir(hierarchy.unwrap().path().join(path));
    }
}

/// The program runs as the spec's user, with nothing to do harm with.
#[test]
fn it_has_nothing_and_can_do_nothing() {
    run(async {
        let (_test, container) = sandbox(|_| {});
        let launched = create(&container).await;
        // Its last preparations are its own.
        until(|| status(&launched, "Seccomp") == "2").await;
        assert_eq!(status(&launched, "Name"), "pause");
        assert_eq!(status(&launched, "Uid"), "65535\t65535\t65535\t65535");
        assert_eq!(status(&launched, "Gid"), "65534\t65534\t65534\t65534");
        assert_eq!(status(&launched, "Groups"), "");
        assert_eq!(status(&launched, "NoNewPrivs"), "1");
        for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
            assert_eq!(status(&launched, set), "0000000000000000", "{set}");
        }
        assert_eq!(status(&launched, "NSpid").split_whitespace().last(), Some("1"));
        assert_eq!(fs::read(of_process(&launched, "environ")).unwrap(), b"");
        assert_eq!(fs::read(of_process(&launched, "cmdline")).unwrap(), b"/pause\0");
        assert_eq!(fs::read_dir(of_process(&launched, "root")).unwrap().count(), 0, "its root is empty");
        let mounts = fs::read_to_string(of_process(&launched, "mounts")).unwrap();
        assert_eq!(mounts.lines().count(), 1, "{mounts}");
        assert!(mounts.starts_with("tmpfs / tmpfs ro,nosuid,nodev,noexec"), "{mounts}");
        let files: Vec<_> =
            fs::read_dir(of_process(&launched, "fd")).unwrap().map(|file| file.unwrap().path()).collect();
        assert_eq!(files.len(), 3);
        let node = fs::metadata("/dev/null").unwrap();
        for file in files {
            let stream = fs::metadata(&file).unwrap();
            assert_eq!(stream.rdev(), node.rdev(), "{}", file.display());
            // Who may ptrace it can change the mode and the owner of what it has open.
            assert_ne!(stream.dev(), node.dev(), "the node's own /dev/null");
        }
        // Not dumpable: its files are root's, so no process of its user can look into it.
        assert_eq!(fs::metadata(of_process(&launched, "mem")).unwrap().uid(), 0);
        // Whom the kernel does not let read its program it makes not dumpable itself, from the exec on.
        assert_eq!(fs::metadata(of_process(&launched, "exe")).unwrap().mode() & 0o777, 0o111);
        let resident: u64 = status(&launched, "VmRSS").trim_end_matches(" kB").parse().unwrap();
        assert!(resident <= 64, "{resident} kB");
        end(&container, launched.exit).await;
    });
}

/// It is where the spec says, with the spec's limits.
#[test]
fn its_namespaces_groups_and_limits_are_those_of_the_spec() {
    run(async {
        let (_test, container) = sandbox(|_| {});
        let launched = create(&container).await;
        for namespace in ["pid_for_children", "mnt", "ipc", "uts", "net"] {
            let link = |process: &str| fs::read_link(format!("/proc/{process}/ns/{namespace}")).unwrap();
            assert_ne!(link(&launched.process.pid().to_string()), link("self"), "{namespace}");
        }
        let oom_score_adj = fs::read_to_string(of_process(&launched, "oom_score_adj")).unwrap();
        assert_eq!(oom_score_adj.trim(), "500");
        assert_eq!(
            fs::read_to_string("/proc/self/oom_score_adj").unwrap().trim(),
            "0",
            "the shim keeps its own"
        );
        let limits = fs::read_to_string(of_process(&launched, "limits")).unwrap();
        let files = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
        assert_eq!(files.split_whitespace().skip(3).take(2).collect::<Vec<_>>(), ["64", "128"]);
        let inside = |command: &[&str]| {
            let pid = launched.process.pid().to_string();
            let mut enter = std::process::Command::new("nsenter");
            enter.args(["--target", &pid, "--uts", "--ipc", "--net"]).args(command);
            #[expect(clippy::disallowed_methods, reason = "nsenter is no child of the reaper's")]
            let output = enter.output().unwrap();
            String::from_utf8(output.stdout).unwrap().trim().to_owned()
        };
        assert_eq!(inside(&["hostname"]), "shop");
        assert_eq!(inside(&["cat", "/proc/sys/kernel/shmmni"]), "77");
        assert_eq!(inside(&["cat", "/proc/sys/net/ipv4/ip_unprivileged_port_start"]), "0");
        let loopback = inside(&["ip", "link", "show", "lo"]);
        assert!(loopback.contains("LOOPBACK,UP"), "{loopback}");
        let cgroup = Cgroup::of_pid(launched.process.pid()).unwrap();
        assert_eq!(cgroup.pids().into_iter().collect::<Vec<_>>(), [launched.process.pid()]);
        let path = own(&container).cgroups_path().path().to_owned();
        let membership = fs::read_to_string(of_process(&launched, "cgroup")).unwrap();
        let groups = Groups::at(&path).unwrap();
        let in_it = membership.lines().filter(|line| line.ends_with(&path)).count();
        assert_eq!(in_it, groups.entrances().unwrap().files.len(), "{membership}");
        let limits = limit_in(&path, "pids.max");
        assert_eq!(limits.as_deref(), Some("7"));
        container.update(br#"{"pids": {"limit": 9}}"#).await.unwrap();
        assert_eq!(limit_in(&path, "pids.max").as_deref(), Some("9"));
        end(&container, launched.exit).await;
        assert!(groups.entrances().is_err(), "its groups are gone");
        assert_eq!(container.recorded_sandbox().unwrap(), None);
    });
}

/// What the five limits become is compared with runc's by the e2e test `an_update_limits_it_as_runcs`.
#[test]
fn an_update_of_any_other_limit_is_refused_and_changes_none() {
    run(async {
        let (_test, container) = sandbox(|_| {});
        let launched = create(&container).await;
        let path = own(&container).cgroups_path().path().to_owned();
        let update = async |document: Value| container.update(document.to_string().as_bytes()).await;
        update(json!({"pids": {"limit": 9}})).await.unwrap();
        for (field, document) in [
            ("cpu.burst", json!({"cpu": {"quota": 50_000, "burst": 20_000}, "pids": {"limit": 10}})),
            ("memory.swap", json!({"memory": {"limit": 64 << 20, "swap": 96 << 20}, "pids": {"limit": 10}})),
            ("hugepageLimits", json!({"hugepageLimits": [{"pageSize": "2MB", "limit": 4 << 20}]})),
        ] {
            let error = update(document).await.unwrap_err().to_string();
            let named = format!("linux.resources.{field} is not done by podshim itself; {UPDATED}");
            assert!(error.contains(&named), "{error}");
        }
        assert_eq!(limit_in(&path, "pids.max").as_deref(), Some("9"));
        end(&container, launched.exit).await;
    });
}

/// A node that is itself a container may not let root make a device. The streams are not the node's then, either.
#[test]
fn where_no_device_can_be_made_its_streams_are_files_of_its_own() {
    run(async {
        let (_test, container) = sandbox(|_| {});
        without_mknod();
        let launched = create(&container).await;
        until(|| status(&launched, "Seccomp") == "2").await;
        let root = fs::metadata(of_process(&launched, "root")).unwrap();
        for stream in 0..=2 {
            let file = fs::metadata(of_process(&launched, &format!("fd/{stream}"))).unwrap();
            assert!(file.is_file() && file.len() == 0, "{file:?}");
            assert_eq!(file.dev(), root.dev(), "of its own root");
            assert_eq!(file.nlink(), 0, "without a name");
        }
        end(&container, launched.exit).await;
    });
}

/// Takes CAP_MKNOD from this thread, and so from the children that it makes.
fn without_mknod() {
    const VERSION_3: u32 = 0x2008_0522;
    const MKNOD: u32 = 1 << 27;
    let (header, mut sets) = ([VERSION_3, 0], [0_u32; 6]);
    // SAFETY: version 3 has six numbers, of which the first is the lower half of the effective set.
    unsafe {
        assert_eq!(libc::syscall(libc::SYS_capget, header.as_ptr(), sets.as_mut_ptr()), 0);
        sets[0] &= !MKNOD;
        assert_eq!(libc::syscall(libc::SYS_capset, header.as_ptr(), sets.as_ptr()), 0);
    }
}

/// Makes the sandbox's process, and does `act` while it waits at its barrier, which the shim then gives up.
async fn at_a_barrier(container: &Container, act: impl AsyncFnOnce(Pid)) -> Result<Pid, String> {
    let request = own(container);
    let (mut barrier, end) = barrier().unwrap();
    fs::create_dir_all(container.bundle.rootfs()).unwrap();
    let (root, entry) = (container.bundle.rootfs(), CgroupEntry::Barrier(&end));
    let setup = ChildSetup::new(&request, "shop", &root, &entry, SessionKeyring::New).unwrap();
    let pid = Arc::new(AtomicI32::new(0));
    let made = helper_thread::run("sandbox", {
        let pid = pid.clone();
        move || Ok(setup.make(&pid))
    });
    let acted = async {
        assert!(barrier.has_arrived().await.unwrap());
        act(Pid::from_raw(pid.load(Ordering::Acquire))).await;
        drop(barrier);
    };
    let (made, ()) = tokio::join!(made, acted);
    made.unwrap().map_err(|error| error.to_string())
}

/// By the OOM killer, or by an operator: there is no sandbox then, whose exit could be waited for.
#[test]
fn a_child_that_is_killed_before_it_runs_its_program_is_a_failure() {
    run(async {
        let (_test, container) = sandbox(|_| {});
        let made = at_a_barrier(&container, async |pid| {
            nix::sys::signal::kill(pid, nix::sys::signal::SIGKILL).unwrap();
        });
        let error = made.await.unwrap_err();
        let expected =
            "cannot wait until the shim has prepared it: the process was killed before it ran its program";
        assert_eq!(error, expected);
    });
}

/// What callers do with any container.
#[test]
fn it_starts_ends_at_sigterm_and_is_deleted() {
    run(async {
        let (_test, container) = sandbox(|_| {});
        let launched = create(&container).await;
        container.start().await.unwrap();
        assert_eq!(container.bundle().read_init_pid().unwrap(), launched.process.pid());
        let refusal = container.exec("probe", &process(&["sh"]), ChildStdio::null(), None).await.unwrap_err();
        let expected = "OCI runtime exec failed: exec failed: unable to start container process: exec: \"sh\": executable \
                        file not found in $PATH";
        assert_eq!(refusal.to_string(), expected);
        let path = container.bundle().path().join("checkpoint");
        let refusal =
            container.checkpoint(&path, &CheckpointOptions::default(), None).await.unwrap_err().to_string();
        assert!(
            refusal.starts_with("OCI runtime checkpoint failed: podshim makes this sandbox itself"),
            "{refusal}"
        );
        // Ignored, as by any process 1 without a handler.
        for signal in [1, 10, 12, 17, 18, 21] {
            launched.process.signal(SignalNumber::new(signal).unwrap()).unwrap();
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        assert!(launched.process.is_running());
        launched.process.signal(SignalNumber::TERM).unwrap();
        let exit = within(launched.exit).await;
        assert_eq!((exit.code, exit.signal), (0, None));
        container.delete(DeleteMode::Ended).await.unwrap();
        container.delete(DeleteMode::Ended).await.unwrap();
    });
}

/// Without a pid namespace of its own it is a process of the node's; everything else stays.
#[test]
fn it_can_be_in_the_nodes_namespaces() {
    run(async {
        let (_test, container) = sandbox(|spec| {
            spec["hostname"] = json!("");
            spec["linux"]["sysctl"] = json!({});
            spec["linux"]["namespaces"] = json!([{"type": "mount"}]);
        });
        let launched = create(&container).await;
        for namespace in ["pid", "ipc", "uts", "net"] {
            let link = |process: &str| fs::read_link(format!("/proc/{process}/ns/{namespace}")).unwrap();
            assert_eq!(link(&launched.process.pid().to_string()), link("self"), "{namespace}");
        }
        launched.process.signal(SignalNumber::new(2).unwrap()).unwrap();
        assert_eq!(within(launched.exit).await.code, 0, "SIGINT");
        container.delete(DeleteMode::Ended).await.unwrap();
    });
}

/// Another shim's `delete` knows only the container's id and the runtime's root: no bundle is needed (N3).
#[test]
fn n3_it_is_deleted_by_one_who_did_not_make_it() {
    run(async {
        let (test, container) = sandbox(|_| {});
        let launched = create(&container).await;
        fs::remove_dir_all(container.bundle().path()).unwrap();
        test.container.delete(DeleteMode::Force).await.unwrap();
        assert_eq!(within(launched.exit).await.signal, Some(9));
        assert!(Groups::at(own(&container).cgroups_path().path()).unwrap().entrances().is_err());
    });
}

/// A failure names its step, and leaves nothing.
#[test]
fn what_cannot_be_made_leaves_nothing() {
    run(async {
        let (test, container) = sandbox(|spec| {
            spec["linux"]["namespaces"] =
                json!([{"type": "mount"}, {"type": "network", "path": "/dev/null"}]);
            spec["hostname"] = json!("");
            spec["linux"]["sysctl"] = json!({});
        });
        let error = container.create(ChildStdio::null(), CreateOptions::default()).await.unwrap_err();
        assert!(error.to_string().contains("cannot join a namespace: Invalid argument"), "{error}");
        let groups = Groups::at(own(&container).cgroups_path().path()).unwrap();
        assert!(groups.entrances().is_err());
        assert!(!test.path(".root.podshim").exists());
    });
}

/// The child becomes another user in the shim's memory, for which the kernel takes the dumps of that memory away.
#[test]
fn the_shim_stays_dumpable() {
    run(async {
        let (_test, container) = sandbox(|_| {});
        // SAFETY: asks a number of this process.
        let dumpable = || unsafe { libc::prctl(libc::PR_GET_DUMPABLE) };
        assert_eq!(dumpable(), 1);
        let launched = create(&container).await;
        assert_eq!(dumpable(), 1);
        end(&container, launched.exit).await;
    });
}

/// In a new one.
fn in_a_user_namespace(spec: &mut Value) {
    spec["process"]["user"] = json!({"uid": 65535, "gid": 65534});
    let map = json!([{"containerID": 0, "hostID": 100_000, "size": 65536}]);
    spec["linux"]["uidMappings"] = map.clone();
    spec["linux"]["gidMappings"] = map;
    spec["linux"]["sysctl"] = json!({"net.ipv4.ip_unprivileged_port_start": "0"});
    spec["linux"]["namespaces"].as_array_mut().unwrap().push(json!({"type": "user"}));
}

/// The child has the shim's memory and next to no rights of its own: another process could write into the shim by way of it.
#[test]
fn the_child_opens_the_shims_memory_to_no_other_process() {
    run(async {
        // The root of the node owns the user namespace, with or without capabilities.
        let (_test, container) = sandbox(in_a_user_namespace);
        let made = at_a_barrier(&container, async |pid| {
            let without_capabilities = ["setpriv", "--bounding-set", "-all", "--inh-caps", "-all"];
            assert!(!may_write_memory_of(pid, &without_capabilities), "a root without capabilities");
            assert!(may_write_memory_of(pid, &[]), "the node's root: else this test shows nothing");
        });
        made.await.unwrap_err();
    });
}

/// Whether a shell behind these words may open a process's memory for writing.
fn may_write_memory_of(pid: Pid, before: &[&str]) -> bool {
    let mut attacker = std::process::Command::new("env");
    attacker.args(before).args(["sh", "-c", &format!("echo tries; exec 3<>/proc/{pid}/mem")]);
    attacker.stderr(std::process::Stdio::null());
    #[expect(clippy::disallowed_methods, reason = "the test is the only waiter of its children")]
    let tried = attacker.output().unwrap();
    assert_eq!(String::from_utf8_lossy(&tried.stdout), "tries\n", "{before:?}");
    tried.status.success()
}

/// What is in its groups at its end is killed, so they must be its own from the beginning.
#[test]
fn a_group_with_processes_in_it_is_left_alone() {
    run(async {
        let (_test, container) = sandbox(|_| {});
        let first = create(&container).await;
        let error = container.create(ChildStdio::null(), CreateOptions::default()).await.unwrap_err();
        assert!(error.to_string().contains("has processes in it"), "{error}");
        assert!(first.process.is_running());
        end(&container, first.exit).await;
    });
}

/// A group in its group is killed with it.
#[test]
fn a_group_with_a_group_in_it_that_has_processes_is_left_alone() {
    run(async {
        let (_test, container) = sandbox(|_| {});
        let path = own(&container).cgroups_path().path().to_owned();
        let group = Path::new("/sys/fs/cgroup/pids").join(path.trim_start_matches('/'));
        let inner = group.join("inner");
        fs::create_dir_all(&inner).unwrap();
        #[expect(clippy::disallowed_methods, reason = "the test is the only waiter of its children")]
        let mut other = std::process::Command::new("sleep").arg("600").spawn().unwrap();
        fs::write(inner.join("cgroup.procs"), other.id().to_string()).unwrap();
        let error = container.create(ChildStdio::null(), CreateOptions::default()).await.unwrap_err();
        assert!(error.to_string().contains("has processes in it"), "{error}");
        let ended = other.try_wait().unwrap();
        assert!(ended.is_none());
        other.kill().unwrap();
        #[expect(clippy::disallowed_methods, reason = "the test is the only waiter of its children")]
        other.wait().unwrap();
        until(|| fs::remove_dir(&inner).is_ok()).await;
        fs::remove_dir(&group).unwrap();
    });
}

/// An administrator has frozen the group above: the shim would wait for the thaw inside of its clone.
#[test]
fn in_a_frozen_group_no_sandbox_is_made() {
    run(async {
        let (_test, container) = sandbox(|spec| {
            let path = spec["linux"]["cgroupsPath"].as_str().unwrap().to_owned();
            spec["linux"]["cgroupsPath"] = format!("{path}-frozen/inner").into();
        });
        let path = own(&container).cgroups_path().path().to_owned();
        let above = Path::new("/sys/fs/cgroup/freezer").join(path.trim_start_matches('/'));
        let above = above.parent().unwrap();
        fs::create_dir_all(above).unwrap();
        fs::write(above.join("freezer.state"), "FROZEN").unwrap();
        let error = container.create(ChildStdio::null(), CreateOptions::default()).await.unwrap_err();
        assert!(error.to_string().contains("is frozen"), "{error}");
        fs::write(above.join("freezer.state"), "THAWED").unwrap();
        let launched = create(&container).await;
        end(&container, launched.exit).await;
        remove_above(&path);
    });
}

/// While it is being made it has the shim's files, and opens more.
#[test]
fn it_may_have_few_open_files() {
    for adjust in [in_a_user_namespace, |_: &mut Value| {}] {
        run(async {
            let (_test, container) = sandbox(|spec| {
                adjust(spec);
                spec["process"]["rlimits"] = json!([{"type": "RLIMIT_NOFILE", "soft": 3, "hard": 1024}]);
            });
            let launched = create(&container).await;
            let limits = fs::read_to_string(of_process(&launched, "limits")).unwrap();
            let of_files = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
            let words: Vec<_> = of_files.split_whitespace().skip(3).take(2).collect();
            assert_eq!(words, ["3", "1024"]);
            end(&container, launched.exit).await;
        });
    }
}

/// As runc: with the old quota the new period would be more than the group above has.
#[test]
fn a_shorter_period_comes_with_its_quota() {
    run(async {
        let (_test, container) = sandbox(|spec| {
            let path = spec["linux"]["cgroupsPath"].as_str().unwrap().to_owned();
            spec["linux"]["cgroupsPath"] = format!("{path}-bounded/inner").into();
            spec["linux"]["resources"] = json!({"cpu": {"quota": 100_000, "period": 100_000}});
        });
        let path = own(&container).cgroups_path().path().to_owned();
        let group = Path::new("/sys/fs/cgroup/cpu").join(path.trim_start_matches('/'));
        let above = group.parent().unwrap();
        fs::create_dir_all(above).unwrap();
        fs::write(above.join("cpu.cfs_quota_us"), "100000").unwrap();
        let launched = create(&container).await;
        container.update(br#"{"cpu": {"quota": 50000, "period": 50000}}"#).await.unwrap();
        for file in ["cpu.cfs_quota_us", "cpu.cfs_period_us"] {
            assert_eq!(fs::read_to_string(group.join(file)).unwrap(), "50000\n", "{file}");
        }
        end(&container, launched.exit).await;
        remove_above(&path);
    });
}

/// The OCI runtime refuses it too: it would change the node's own network.
#[test]
fn no_sysctl_changes_the_nodes_network() {
    run(async {
        let name = "/proc/sys/net/ipv4/ip_unprivileged_port_start";
        let before = fs::read_to_string(name).unwrap();
        let (_test, container) = sandbox(|spec| {
            spec["linux"]["sysctl"] = json!({"net.ipv4.ip_unprivileged_port_start": before.trim()});
            spec["linux"]["namespaces"][4]["path"] = json!("/proc/self/ns/net");
        });
        let error = container.create(ChildStdio::null(), CreateOptions::default()).await.unwrap_err();
        assert!(error.to_string().contains("the node's network namespace"), "{error}");
    });
}
