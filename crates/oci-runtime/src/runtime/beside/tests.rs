//! podshim's own exec beside that of the OCI runtime: what a process can see of itself, and what others can see of it.

use std::fs;
use std::io::Read;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::fs::PermissionsExt;
use std::rc::Rc;
use std::time::Duration;

use processes::SignalNumber;
use serde_json::{Value, json};
use streams::stdio::ChildEnd;
use test_support::{run, until, within};

use super::*;
use crate::runtime::CreateOptions;
use crate::test_container::{TestContainer, runtime_binary};

/// Before what crun 1.8 to 1.28 leaves as its caller has it: session, group, score, session keyring. podshim does as runc.
const NOT_OF_CRUN: &str = "not of crun: ";

/// All that a program sees of itself, but what differs for each process.
const SHOW: &str = r#"
exec > /tmp/$0 2>&1
differs='^(State|Pid|PPid|Tgid|NStgid|NSpid|NSpgid|NSsid|SigQ|Vm|Rss|Hugetlb|voluntary|nonvoluntary)'
grep -vE "$differs" /proc/$$/status
for file in limits cgroup mountinfo loginuid attr/current timerslack_ns personality coredump_filter; do
    echo "$file"; cat /proc/$$/$file
done
for kind in cgroup ipc mnt net pid user uts; do readlink /proc/$$/ns/$kind; done
awk '{ print "parent and terminal:", $4, $7; print "not of crun: group and session", ($1 == $5), ($1 == $6) }' /proc/$$/stat
echo "not of crun: score $(cat /proc/$$/oom_score_adj)"
grep "_ses.$1:" /proc/keys | awk '{ print "not of crun: keyring", $2, $5, $6, $7, $8, $9 }' | sort -u
umask; pwd; id; env; tty; readlink /proc/$$/cwd; readlink /proc/$$/root
echo "open:"; for file in /proc/$$/fd/*; do if [ -e $file ]; then echo "${file##*/}"; fi; done
"#;

/// Runs `SHOW` by both ways in a container of that spec, and returns what each has seen.
async fn both(adjust: impl FnOnce(&mut Value)) -> [String; 2] {
    let test = TestContainer::new(&["sleep", "1000"], adjust);
    let root = test.container.bundle().rootfs();
    fs::set_permissions(root.join("tmp"), fs::Permissions::from_mode(0o777)).unwrap();
    for applet in ["grep", "awk", "sort"] {
        std::os::unix::fs::symlink("busybox", root.join("bin").join(applet)).unwrap();
    }
    let (created, _) = test.start().await;
    let mut seen = Vec::new();
    for way in ["own", "runtime"] {
        let mut beside = test.beside(created.process.pid(), &["sh", "-c", SHOW, way, test.container.id()]);
        if way == "runtime" {
            let spec: Value =
                serde_json::from_slice(&fs::read(test.container.bundle().spec_path()).unwrap()).unwrap();
            beside.spec = BesideSpec::OfRuntime(Rc::new(spec["process"].clone()));
        } else {
            assert!(matches!(beside.spec, BesideSpec::Own(_)), "{beside:?}");
        }
        let launched = within(test.container.run_beside(&beside, ChildStdio::null())).await.unwrap();
        assert_eq!(within(launched.exit).await.code, 0, "{way}");
        seen.push(test.read(&format!("tmp/{way}")));
    }
    created.process.signal(SignalNumber::KILL).unwrap();
    within(created.exit).await;
    seen.try_into().unwrap()
}

fn assert_same([own, runtime]: [String; 2]) {
    let is_crun = runtime_binary().contains("crun");
    let counts = |line: &&str| !is_crun || !line.starts_with(NOT_OF_CRUN);
    let lines = |text: &str| text.lines().filter(counts).map(str::to_owned).collect::<Vec<_>>();
    let (own, runtime) = (lines(&own), lines(&runtime));
    let more: Vec<_> = own.iter().filter(|line| !runtime.contains(line)).collect();
    let less: Vec<_> = runtime.iter().filter(|line| !own.contains(line)).collect();
    assert!(more.is_empty() && less.is_empty(), "podshim's own: {more:#?}\nthe OCI runtime's: {less:#?}");
    assert_eq!(own, runtime);
    assert!(own.len() > 60, "{own:#?}");
}

#[test]
fn a_process_of_root_sees_what_the_runtimes_sees() {
    run(async { assert_same(both(|_| {}).await) });
}

#[test]
fn a_restricted_process_sees_what_the_runtimes_sees() {
    run(async {
        let seen = both(|spec| {
            let process = &mut spec["process"];
            process["user"] = json!({"uid": 1000, "gid": 100, "additionalGids": [7, 8]});
            process["capabilities"] = json!({
                "bounding": ["CAP_CHOWN", "CAP_KILL", "CAP_NET_BIND_SERVICE"],
                "effective": ["CAP_NET_BIND_SERVICE"],
                "permitted": ["CAP_NET_BIND_SERVICE"],
                "inheritable": ["CAP_NET_BIND_SERVICE"],
                "ambient": ["CAP_NET_BIND_SERVICE"],
            });
            process["noNewPrivileges"] = true.into();
            process["oomScoreAdj"] = 500.into();
            process["rlimits"] = json!([
                {"type": "RLIMIT_FSIZE", "soft": 1_000_000, "hard": 2_000_000},
                {"type": "RLIMIT_CORE", "soft": 0, "hard": 0},
            ]);
            process["cwd"] = "/tmp".into();
            process["env"] = json!(["Z=last", "PATH=/nothing:relative:/bin", "A=first\nsecond"]);
        });
        assert_same(seen.await);
    });
}

#[test]
fn a_process_of_a_user_namespace_sees_what_the_runtimes_sees() {
    run(async {
        let seen = both(|spec| {
            let map = json!([{"containerID": 0, "hostID": 100_000, "size": 65536}]);
            spec["linux"]["uidMappings"] = map.clone();
            spec["linux"]["gidMappings"] = map;
            spec["linux"]["namespaces"]
                .as_array_mut()
                .unwrap()
                .extend([json!({"type": "user"}), json!({"type": "cgroup"})]);
            spec["process"]["capabilities"] =
                json!({"bounding": ["CAP_KILL"], "permitted": ["CAP_KILL"], "effective": ["CAP_KILL"]});
        });
        assert_same(seen.await);
    });
}

/// What cannot be started is an error with its name, and nothing of it is left.
#[test]
fn a_failure_names_its_step_and_leaves_nothing() {
    run(async {
        let test = TestContainer::new(&["sleep", "1000"], |spec| {
            spec["process"]["cwd"] = "/tmp".into();
        });
        let (created, cgroup) = test.start().await;
        let init = created.process.pid();
        let attempt = async |command: &[&str]| {
            let beside = test.beside(init, command);
            let result = within(test.container.run_beside(&beside, ChildStdio::null())).await;
            result.map(drop).unwrap_err().to_string()
        };
        let id = test.container.id().to_owned();
        let says = |words: &str| format!("container {id:?}: cannot {words}");
        assert_eq!(
            attempt(&["no-such"]).await,
            says("execute \"no-such\": No such file or directory (os error 2)")
        );
        assert_eq!(attempt(&["/tmp"]).await, says("execute \"/tmp\": Permission denied (os error 13)"));
        fs::remove_dir(test.container.bundle().rootfs().join("tmp")).unwrap();
        let gone = attempt(&["true"]).await;
        assert_eq!(gone, says("change to its working directory: No such file or directory (os error 2)"));
        until(|| cgroup.pids().into_iter().eq([init])).await;
        test.container.pause(Some(&cgroup)).await.unwrap();
        assert!(attempt(&["true"]).await.ends_with("is paused: no process can be started in it"));
        test.container.resume(Some(&cgroup)).await.unwrap();
        let late = test.beside(init, &["true"]);
        created.process.signal(SignalNumber::KILL).unwrap();
        within(created.exit).await;
        let ended =
            within(test.container.run_beside(&late, ChildStdio::null())).await.unwrap_err().to_string();
        assert_eq!(ended, format!("container {id:?} has ended: no process can be started in it"));
    });
}

/// XP-1: also in a container whose init waits for its start.
#[test]
fn a_process_runs_in_a_container_that_is_held() {
    run(async {
        let test = TestContainer::new(&["sleep", "1000"], |_| {});
        let created = test.container.create(ChildStdio::null(), CreateOptions::default()).await.unwrap();
        let beside = test.beside(created.process.pid(), &["sh", "-c", "echo $$ > /tmp/here; exit 3"]);
        let launched = within(test.container.run_beside(&beside, ChildStdio::null())).await.unwrap();
        assert_eq!(within(launched.exit).await.code, 3);
        assert!(test.read("tmp/here").trim().parse::<u32>().is_ok_and(|pid| pid < 100));
        created.process.signal(SignalNumber::KILL).unwrap();
        within(created.exit).await;
    });
}

/// CVE-2019-5736: what a container reaches by `/proc/<pid>/exe` of a process that is about to execute its program is not the node's,
/// and cannot be changed.
#[test]
fn the_own_program_is_not_the_nodes_also_when_the_container_executes_it() {
    run(async {
        let test = TestContainer::new(&["sleep", "1000"], |_| {});
        let (created, _) = test.start().await;
        let root = test.container.bundle().rootfs();
        std::os::unix::fs::symlink("/proc/self/exe", root.join("bin/itself")).unwrap();
        fs::write(root.join("bin/script"), "#!/proc/self/exe\n").unwrap();
        fs::set_permissions(root.join("bin/script"), fs::Permissions::from_mode(0o755)).unwrap();
        let shim = fs::metadata("/proc/self/exe").unwrap();
        for command in ["itself", "script", "/proc/self/exe"] {
            let beside = test.beside(created.process.pid(), &[command]);
            let launched = within(test.container.run_beside(&beside, ChildStdio::null())).await.unwrap();
            // podshim's program without orders.
            assert_eq!(within(launched.exit).await.code, 1, "{command}");
        }
        assert_eq!(fs::metadata("/proc/self/exe").unwrap().len(), shim.len());
        created.process.signal(SignalNumber::KILL).unwrap();
        within(created.exit).await;
    });
}

/// A process in the container's pid namespace never has more rights than its program: the part with the shim's is done outside.
#[test]
fn no_process_of_the_shims_with_its_rights_is_seen_by_the_container() {
    run(async {
        let test = TestContainer::new(
            &[
                "sh",
                "-c",
                "while :; do for p in /proc/[0-9]*; do grep -sH CapEff $p/status; done; done > /tmp/seen",
            ],
            |_| {},
        );
        std::os::unix::fs::symlink("busybox", test.container.bundle().rootfs().join("bin/grep")).unwrap();
        let (created, _) = test.start().await;
        for _ in 0..40 {
            let beside = test.beside(created.process.pid(), &["true"]);
            let launched = within(test.container.run_beside(&beside, ChildStdio::null())).await.unwrap();
            assert_eq!(within(launched.exit).await.code, 0);
        }
        created.process.signal(SignalNumber::KILL).unwrap();
        within(created.exit).await;
        let seen = test.read("tmp/seen");
        let rights = |line: &str| line.rsplit('\t').next().and_then(|set| u64::from_str_radix(set, 16).ok());
        let most = seen.lines().filter_map(rights).max();
        assert_eq!(most, Some(0), "the test's spec has no capabilities");
    });
}

/// The streams of a gate are the node's own /dev/null.
#[test]
fn a_device_of_the_nodes_is_not_given_to_the_containers_user() {
    run(async {
        let test = TestContainer::new(&["sleep", "1000"], |spec| {
            spec["process"]["user"] = json!({"uid": 1000, "gid": 1000});
        });
        let (created, _) = test.start().await;
        let of_null =
            || fs::metadata("/dev/null").map(|null| (null.uid(), null.ctime(), null.ctime_nsec())).unwrap();
        let before = of_null();
        let beside = test.beside(created.process.pid(), &["true"]);
        let launched = within(test.container.run_beside(&beside, ChildStdio::null())).await.unwrap();
        assert_eq!(within(launched.exit).await.code, 0);
        assert_eq!(of_null(), before);
        let (mut output, pipe) = std::io::pipe().unwrap();
        let owner = pipe.try_clone().unwrap();
        let stdio = ChildStdio { stdout: ChildEnd::of(Some(pipe.into())), ..ChildStdio::null() };
        let beside = test.beside(created.process.pid(), &["sh", "-c", "echo here > /proc/self/fd/1"]);
        let launched = within(test.container.run_beside(&beside, stdio)).await.unwrap();
        assert_eq!(within(launched.exit).await.code, 0);
        assert_eq!(fs::File::from(OwnedFd::from(owner)).metadata().unwrap().uid(), 1000);
        let mut text = String::new();
        output.read_to_string(&mut text).unwrap();
        assert_eq!(text, "here\n");
        created.process.signal(SignalNumber::KILL).unwrap();
        within(created.exit).await;
    });
}

/// H3, T6: the end of a container is not waited for by a process that is on its way into it, and none is left.
#[test]
fn a_process_that_is_stopped_on_its_way_ends_with_its_container() {
    run(async {
        let test = TestContainer::new(&["sleep", "1000"], |_| {});
        let (created, cgroup) = test.start().await;
        // Who executes a file waits for its lease, 45 s at most.
        let path = test.container.bundle().rootfs().join("bin/leased");
        fs::copy("/bin/busybox", &path).unwrap();
        let leased = fs::File::open(&path).unwrap();
        const F_SETSIG: libc::c_int = 10;
        // SAFETY: no pointers. The signal of the break is one that is ignored.
        unsafe {
            assert_eq!(libc::fcntl(leased.as_raw_fd(), F_SETSIG, libc::SIGWINCH), 0);
            assert_eq!(libc::fcntl(leased.as_raw_fd(), libc::F_SETLEASE, libc::F_WRLCK), 0);
        }
        let (beside, container) = (test.beside(created.process.pid(), &["leased"]), test.container.clone());
        let start = tokio::task::spawn_local(async move {
            container.run_beside(&beside, ChildStdio::null()).await.map(drop)
        });
        until(|| cgroup.pids().len() > 1).await;
        tokio::time::sleep(Duration::from_millis(300)).await;
        assert!(!start.is_finished());
        created.process.signal(SignalNumber::KILL).unwrap();
        within(created.exit).await;
        // Either end of it may be seen first: it has ended with the container, or has not been started.
        if let Err(error) = within(start).await.unwrap() {
            let ended = error.to_string();
            assert!(ended.ends_with("has ended: no process can be started in it"), "{ended}");
        }
        until(|| cgroup.pids().is_empty()).await;
    });
}
