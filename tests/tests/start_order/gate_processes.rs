//! The process of an `exec:` gate, which podshim starts itself: it sees of itself what an exec of the OCI runtime sees.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use anyhow::{Context, Result, ensure};
use e2e::{Containerd, Pod, Program, Runtime, wait};

use crate::support::SOON;

/// What crun leaves as its caller has it: session, group, score, session keyring. podshim does as runc.
const NOT_OF_CRUN: &str = "not of crun: ";

/// AppArmor of Debian 13 and later has profiles for runc and crun that confine nothing; what these make is in them.
const UNCONFINED: &str = " (unconfined)";

/// All that a program sees of itself, but what differs for each process. Once: a gate's command runs again until it succeeds.
const SHOW: &str = r#"#!/bin/sh
[ -e /pod/shown.$1 ] && exit 0
exec > /pod/writing.$1 2>&1
differs='^(State|Pid|PPid|Tgid|NStgid|NSpid|NSpgid|NSsid|SigQ|Vm|Rss|Hugetlb|voluntary|nonvoluntary)'
grep -vE "$differs" /proc/$$/status
for file in limits cgroup mountinfo loginuid attr/current timerslack_ns personality coredump_filter; do
    echo "$file"; cat /proc/$$/$file
done
for kind in cgroup ipc mnt net pid user uts; do readlink /proc/$$/ns/$kind; done
awk '{ print "parent and terminal:", $4, $7; print "not of crun: group and session", ($1 == $5), ($1 == $6) }' /proc/$$/stat
echo "not of crun: score $(cat /proc/$$/oom_score_adj)"
grep "_ses\." /proc/keys | awk '{ print "not of crun: keyring", $2, $5, $6, $7, $8 }' | sort -u
umask; pwd; id; env; tty; readlink /proc/$$/cwd; readlink /proc/$$/root
echo "open:"; for file in /proc/$$/fd/*; do if [ -e $file ]; then echo "${file##*/}"; fi; done
mv /pod/writing.$1 /pod/shown.$1
"#;

/// U2, DESIGN 6: on each OCI runtime, cgroup version, driver and security module that the tests run on.
#[tokio::test]
async fn u2_a_gates_process_is_what_an_exec_of_the_runtime_is() -> Result<()> {
    let node = Containerd::connect().await?;
    let usual =
        Program::new("usual").variable("ZZZ", "last").variable("AAA", "first").memory_limit(200 << 20);
    let open = Program::new("open").capability("SYS_PTRACE").unconfined().oom_score(700);
    let mut pod = Pod::new("gate-processes").annotate("plan", "usual+open=sidecar, app=main");
    for name in ["usual", "open"] {
        pod = pod.annotate(&format!("ready.{name}"), &format!("exec:/pod/show own-{name};timeout=20s"));
    }
    let mut pod = pod
        .container(usual)
        .container(open)
        .container(Program::new("app"))
        .run(&node, Runtime::Podshim)
        .await?;
    let path = |name: &str| pod.directory().join(name);
    fs::write(path("show"), SHOW)?;
    fs::set_permissions(path("show"), fs::Permissions::from_mode(0o755))?;
    let directory = pod.directory().to_owned();
    for name in ["usual", "open"] {
        pod.start(name).await?;
        let own = directory.join(format!("shown.own-{name}"));
        let shown = wait::until("what its gate sees", SOON, async || Ok(own.exists().then_some(())));
        shown.await.with_context(|| format!("{name}: {}", own.display()))?;
        let exec = pod.exec(name, &["/pod/show", &format!("runtime-{name}")]).await?;
        ensure!(exec.exit_code == 0, "{exec:?}");
        let lines = |maker: &str| -> Result<Vec<String>> {
            let text = fs::read_to_string(directory.join(format!("shown.{maker}-{name}")))?;
            let is_crun = node.oci_runtime()? == "crun";
            let counts = |line: &&str| !is_crun || !line.starts_with(NOT_OF_CRUN);
            Ok(text
                .lines()
                .filter(counts)
                .map(|line| if line.ends_with(UNCONFINED) { "unconfined" } else { line }.to_owned())
                .collect())
        };
        let (own, runtime) = (lines("own")?, lines("runtime")?);
        let differ: Vec<_> = own.iter().zip(&runtime).filter(|(own, runtime)| own != runtime).collect();
        ensure!(
            differ.is_empty() && own.len() == runtime.len(),
            "{name}, own and the runtime's: {differ:#?}"
        );
        ensure!(own.len() > 60, "{own:#?}");
    }
    pod.remove().await
}
