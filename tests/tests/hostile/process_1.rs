//! What podshim's own process 1 has: what a container with CAP_SYS_PTRACE finds there in a shared pid namespace, and what its spec
//! gives it.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use containerd_shim_protos::shim::oci::Options;
use e2e::direct::bundle::Bundle;
use e2e::direct::sandbox::DirectSandbox;
use e2e::durations::{AMPLE, SOON};
use e2e::instance::CgroupDriver;
use e2e::pod::{NetworkAndIpc, PidNamespace};
use e2e::task::Task;
use e2e::{Containerd, Event, Pod, Program, RunningPod, Runtime, wait};
use serde_json::json;

const KEYCTL_GET_SECURITY: libc::c_long = 17;

async fn own_sandbox<'node>(node: &'node Containerd, program: Program) -> Result<RunningPod<'node>> {
    node.write_node_file("sandbox = \"own\"").await?;
    let pod = Pod::new("process1").pid_namespace(PidNamespace::Pod).container(program);
    let mut pod = pod.run(node, Runtime::Podshim).await?;
    pod.start("app").await?;
    pod.wait_for("app", Event::Started, 1, SOON).await?;
    pod.has_own_sandbox().await?;
    Ok(pod)
}

/// With CAP_SYS_PTRACE and without AppArmor's profile (a debugger's container) it sees all of it, and there is nothing of the node's.
#[tokio::test]
async fn what_process_1_has_is_not_the_nodes() -> Result<()> {
    let node = Containerd::start().await?;
    let pod = own_sandbox(&node, Program::new("app").capability("SYS_PTRACE").unconfined()).await?;
    let sh = async |script: &str| pod.exec("app", &["sh", "-c", script]).await;
    let output = sh("ls -A /proc/1/root/ /proc/1/cwd/; tr '\\0' ' ' </proc/1/environ; ls /proc/1/fd").await?;
    let shown: Vec<_> = output.stdout.split_whitespace().collect();
    ensure!(shown == ["/proc/1/cwd/:", "/proc/1/root/:", "0", "1", "2"], "{output:?}");
    for act in ["touch /proc/1/root/a", "mkdir /proc/1/root/a", "mknod /proc/1/root/a b 7 0"] {
        let output = sh(act).await?;
        ensure!(output.exit_code != 0 && output.stderr.contains("Read-only"), "{act}: {output:?}");
    }
    // It may stop it and look into its registers, as any debugger; the program goes on afterwards.
    let output = sh("tracer 1").await?;
    ensure!(output.stdout == "child: attached\n1: attached\n", "{output:?}");
    // What is open there is its own: the mode of the node's device stays.
    let before = std::fs::metadata("/dev/null")?;
    let pid = pod.sandbox_pid().await?;
    for stream in 0..=2 {
        let open = std::fs::metadata(format!("/proc/{pid}/fd/{stream}"))?;
        ensure!(
            (open.dev(), open.ino()) != (before.dev(), before.ino()),
            "the node's device is its stream {stream}"
        );
    }
    // The mode that it has, so that nothing comes of it where this fails.
    let output = sh("chmod 666 /proc/1/fd/0").await?;
    ensure!(output.exit_code != 0 && output.stderr.contains("Read-only"), "{output:?}");
    // Its program cannot be changed by any way.
    let output = sh("printf x >>/proc/1/exe").await?;
    ensure!(output.exit_code != 0, "{output:?}");
    let output = sh("cat /proc/1/comm").await?;
    ensure!(output.stdout == "pause\n", "{output:?}");
    pod.remove().await
}

/// In a shared pid namespace the kernel gives process 1 each orphan of the pod's containers: none stays as a zombie.
#[tokio::test]
async fn process_1_reaps_the_orphans_of_its_pod() -> Result<()> {
    let node = Containerd::start().await?;
    let pod = own_sandbox(&node, Program::new("app")).await?;
    let sh = async |script: &str| pod.exec("app", &["sh", "-c", script]).await;
    let orphans = sh("for i in 1 2 3; do sh -c 'sleep 1000 >/dev/null 2>&1 & echo $!'; done").await?.stdout;
    let orphans: Vec<_> = orphans.split_whitespace().collect();
    ensure!(orphans.len() == 3, "{orphans:?}");
    let files = orphans.iter().map(|pid| format!("/proc/{pid}/status")).collect::<Vec<_>>().join(" ");
    let parents = sh(&format!("grep -h PPid {files}")).await?.stdout;
    ensure!(parents == "PPid:\t1\n".repeat(3), "{parents:?}");
    let output = sh(&format!("kill {}", orphans.join(" "))).await?;
    ensure!(output.exit_code == 0, "{output:?}");
    wait::until("the orphans to be gone", AMPLE, async || {
        Ok((sh(&format!("cat {files}")).await?.stdout.is_empty()).then_some(()))
    })
    .await?;
    pod.remove().await
}

/// A pause image may say what it likes: of a pod's sandbox podshim takes nothing from it. The program of this one would end at once,
/// and the pod with it.
#[tokio::test]
async fn the_program_of_a_pause_image_does_not_run() -> Result<()> {
    let node = Containerd::start().await?;
    let file = node.directory().join("config.toml");
    let text = std::fs::read_to_string(&file)?;
    ensure!(text.contains("podshim.test/pause:1"), "{text}");
    std::fs::write(&file, text.replace("podshim.test/pause:1", "podshim.test/hostile-pause:1"))?;
    node.kill().await?;
    node.start_again().await?;
    let pod = own_sandbox(&node, Program::new("app").capability("SYS_PTRACE").unconfined()).await?;
    let output = pod.exec("app", &["sh", "-c", "cat /proc/1/comm; ls -A /proc/1/root/"]).await?;
    ensure!(output.stdout == "pause\n", "{output:?}");
    pod.remove().await
}

/// CRI gives a sandbox no profile of AppArmor. What another caller gives it confines podshim's own program. On a machine without
/// AppArmor the caller itself fails.
#[tokio::test]
async fn it_has_the_profile_that_its_caller_gives_it() -> Result<()> {
    let node = Containerd::start().await?;
    let enabled = std::fs::read_to_string("/sys/module/apparmor/parameters/enabled");
    let enabled = enabled.is_ok_and(|enabled| enabled.trim() == "Y");
    let task = Task::named(&node, "profile");
    let options = [
        "--annotation",
        "io.kubernetes.cri.container-type=sandbox",
        "--apparmor-default-profile",
        "podshim-e2e",
    ];
    let output = task.attempt(&options, &["/pause"]).await?;
    ensure!((output.exit_code == Some(0)) == enabled, "{output:?}");
    if !enabled {
        ensure!(output.stderr.to_lowercase().contains("apparmor"), "{output:?}");
    } else {
        let pid = task.wait_status("RUNNING").await?;
        let program = std::fs::read_link(format!("/proc/{pid}/exe"))?;
        ensure!(program.to_string_lossy().contains("memfd:pause"), "{} made it", program.display());
        let profile = std::fs::read_to_string(format!("/proc/{pid}/attr/apparmor/current"))?;
        ensure!(profile == "podshim-e2e (enforce)\n", "{profile:?}");
    }
    task.remove().await
}

/// N5: with the systemd driver it has a scope like that of the OCI runtime's sandbox: also what keeps systemd from stopping it before
/// the drain has ended.
#[tokio::test]
async fn it_has_a_scope_as_the_oci_runtimes() -> Result<()> {
    let node = Containerd::start().await?;
    if node.cgroup_driver()? == CgroupDriver::Cgroupfs {
        println!("this cgroup driver makes no scopes");
        return Ok(());
    }
    let (own, runtimes) = (scope_of_one(&node, "own").await?, scope_of_one(&node, "runtime").await?);
    ensure!(own == runtimes, "{own:?}, the OCI runtime's: {runtimes:?}");
    for property in ["Before=podshim-drain.service shutdown.target", "Conflicts=shutdown.target"] {
        ensure!(own.iter().any(|shown| shown == property), "no {property}: {own:?}");
    }
    Ok(())
}

/// The shim raises its own limit, which is not the sandbox's.
#[tokio::test]
async fn its_limit_of_open_files_is_that_of_the_oci_runtimes() -> Result<()> {
    let node = Containerd::start().await?;
    let mut limits = Vec::new();
    for maker in ["own", "runtime"] {
        let pod = pod_by(&node, maker).await?;
        let text = std::fs::read_to_string(format!("/proc/{}/limits", pod.sandbox_pid().await?))?;
        limits.push(text.lines().find(|line| line.starts_with("Max open files")).map(str::to_owned));
        pod.remove().await?;
    }
    ensure!(limits[0].is_some() && limits[0] == limits[1], "{limits:?}");
    Ok(())
}

/// A pod that is up, whose sandbox `maker` makes.
pub async fn pod_by<'node>(node: &'node Containerd, maker: &str) -> Result<RunningPod<'node>> {
    node.write_node_file(&format!("sandbox = {maker:?}")).await?;
    let pod = Pod::new("made").annotate("plan", "app=main").container(Program::new("app"));
    let mut pod = pod.run(node, Runtime::Podshim).await?;
    pod.start("app").await?;
    ensure!(pod.has_own_sandbox().await.is_ok() == (maker == "own"), "another made it");
    Ok(pod)
}

/// The properties of the scope of a pod's sandbox, which `maker` makes, without the names of other scopes.
async fn scope_of_one(node: &Containerd, maker: &str) -> Result<Vec<String>> {
    let pod = pod_by(node, maker).await?;
    let scope = format!("cri-containerd-{}.scope", pod.sandbox());
    let properties = "--property=Before,Conflicts,TimeoutStopUSec,Delegate,DefaultDependencies,CPUWeight,CPUShares,\
                      CPUQuotaPerSecUSec,MemoryMax,MemoryAccounting,TasksAccounting,ActiveState";
    let shown = e2e::output("systemctl", ["show", &scope, properties]).await?;
    let without_scopes = |line: &str| {
        let (name, value) = line.split_once('=').unwrap_or((line, ""));
        let mut words: Vec<_> = value.split_whitespace().filter(|word| !word.ends_with(".scope")).collect();
        words.sort_unstable();
        format!("{name}={}", words.join(" "))
    };
    let mut shown: Vec<_> = shown.lines().map(without_scopes).collect();
    shown.sort_unstable();
    pod.stop_sandbox().await?;
    pod.remove().await?;
    let left = e2e::output("systemctl", ["show", &scope, "--property=ActiveState"]).await?;
    ensure!(left.trim() == "ActiveState=inactive", "{left}");
    Ok(shown)
}

/// What a caller asks of a task is answered as for the OCI runtime's sandbox.
#[tokio::test]
async fn it_answers_as_any_task() -> Result<()> {
    let node = Containerd::start().await?;
    let (own, runtimes) = (answers_of_one(&node, "own").await?, answers_of_one(&node, "runtime").await?);
    println!("{own:#?}");
    ensure!(own == runtimes, "{own:#?}, the OCI runtime's: {runtimes:#?}");
    Ok(())
}

/// What `ctr tasks` prints of the sandbox of a pod, which `maker` makes, without what differs between two pods.
async fn answers_of_one(node: &Containerd, maker: &str) -> Result<Vec<String>> {
    let pod = pod_by(node, maker).await?;
    let (id, pid) = (pod.sandbox().to_owned(), pod.sandbox_pid().await?.to_string());
    let ask = async |arguments: &[&str]| {
        let output = node.ctr().output(&[&["-n", "k8s.io", "tasks"], arguments].concat()).await?;
        anyhow::Ok((output.exit_code, output.stdout, output.stderr))
    };
    let mut answers = Vec::new();
    for arguments in [
        ["ps", &id],
        ["pause", &id],
        ["list", ""],
        ["pause", &id],
        ["resume", &id],
        ["list", ""],
        ["resume", &id],
        ["start", &id],
        ["delete", &id],
    ] {
        let arguments: Vec<_> = arguments.into_iter().filter(|word| !word.is_empty()).collect();
        let (exit_code, printed, _) = ask(&arguments).await?;
        // Whole words: the id of another test's pod may have the digits of this pid.
        let lines = printed.lines().map(|line| {
            let words = line.split_whitespace().map(|word| match word {
                word if word == id => "ID",
                word if word == pid => "PID",
                word => word,
            });
            words.collect::<Vec<_>>()
        });
        let of_it: Vec<_> = lines.filter(|words| words.contains(&"ID") || words.contains(&"PID")).collect();
        answers.push(format!("{}: {exit_code:?} {of_it:?}", arguments[0]));
    }
    let (exit_code, metrics, error) = ask(&["metrics", "--format", "json", &id]).await?;
    let metrics: serde_json::Value = serde_json::from_str(&metrics).with_context(|| error)?;
    let kinds: Vec<_> = metrics.as_object().context("no metrics")?.keys().cloned().collect();
    answers.push(format!("metrics: {exit_code:?} {kinds:?} {}", metrics["pids"]["current"]));
    let (exit_code, _, error) = ask(&["exec", "--exec-id", "probe", &id, "/bin/sh"]).await?;
    // podshim has runc's words.
    let words = if node.oci_runtime()? == "runc" { error.replace(&id, "ID") } else { String::new() };
    answers.push(format!("exec: {exit_code:?} {words}"));
    pod.stop_sandbox().await?;
    pod.remove().await?;
    Ok(answers)
}

/// `hostNetwork`, `hostIPC` and `hostPID`: the sandbox and its container have the namespaces of the node's containerd.
#[tokio::test]
async fn it_has_the_nodes_namespaces_where_the_pod_has_them() -> Result<()> {
    let node = Containerd::start().await?;
    node.write_node_file("sandbox = \"own\"").await?;
    let mut pod = Pod::new("node")
        .pid_namespace(PidNamespace::Node)
        .network_and_ipc(NetworkAndIpc::Node)
        .container(Program::new("app"))
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start("app").await?;
    pod.has_own_sandbox().await?;
    let sandbox = pod.sandbox_pid().await?;
    let app = node.cri()?.container_pid(pod.id("app")?).await?;
    // The pod's shim has those of its containerd.
    let shim = pod.shim_pid()?;
    for kind in ["net", "ipc", "pid"] {
        let link = |pid: libc::pid_t| std::fs::read_link(format!("/proc/{pid}/ns/{kind}"));
        let (nodes, its, apps) = (link(shim)?, link(sandbox)?, link(app)?);
        ensure!(its == nodes && apps == nodes, "{kind}: {nodes:?}, sandbox {its:?}, app {apps:?}");
    }
    pod.stop_sandbox().await?;
    pod.remove().await
}

/// `vm.memfd_noexec` 2 forbids the execution of all files in memory (Linux 6.3): podshim's program then runs from a file system of its
/// own. The setting is a pid namespace's, so that this shim has one. Older kernels do not have it.
#[tokio::test]
async fn a_node_that_forbids_files_in_memory_has_sandboxes_of_its_own() -> Result<()> {
    if !std::fs::exists("/proc/sys/vm/memfd_noexec")? {
        println!("this kernel has no vm.memfd_noexec");
        return Ok(());
    }
    let node = Containerd::start().await?;
    // A pid namespace lives as long as its first process.
    let script = "#!/bin/sh
unshare --pid --fork --mount-proc sh -c 'echo 2 >/proc/sys/vm/memfd_noexec && \"$@\" >answer.new
    mv answer.new answer
    while test -e \"$0\"; do sleep 0.1; done' \"$PWD\" SHIM \"$@\" >/dev/null 2>errors </dev/null &
for try in $(seq 100); do
    test -e answer && break
    sleep 0.1
done
cat errors >&2
cat answer
";
    let directory = tempfile::tempdir()?;
    let sandbox = DirectSandbox::of(&node, directory.path(), |shim| shim.behind("noexec", script)).await?;
    sandbox.create(Ok).await?;
    let process = sandbox.process()?;
    let program = std::fs::read_link(process.join("exe"))?;
    ensure!(program == Path::new("/pause"), "{}", program.display());
    sandbox.remove().await
}

/// The names of its uts namespace, and a session keyring of its own unless the options say `NoNewKeyring`, as with the OCI runtime.
#[tokio::test]
async fn it_has_the_names_and_the_keyring_of_its_spec() -> Result<()> {
    let node = Containerd::start().await?;
    for no_new_keyring in [false, true] {
        let directory = tempfile::tempdir()?;
        let sandbox = DirectSandbox::of(&node, directory.path(), Ok).await?;
        let options = Options { no_new_keyring, ..Options::default() };
        let named = |bundle: Bundle| bundle.spec(|spec| spec["domainname"] = json!("shop.example"));
        sandbox.create(|bundle| named(bundle).options(&options)).await?;
        let process = sandbox.process()?;
        let program = std::fs::read_link(process.join("exe"))?;
        ensure!(program.to_string_lossy().contains("memfd:pause"), "{} made it", program.display());
        let files = ["/proc/sys/kernel/hostname", "/proc/sys/kernel/domainname"];
        let uts = format!("--uts={}", process.join("ns/uts").display());
        let names = e2e::output("nsenter", [&uts, "cat", files[0], files[1]]).await?;
        ensure!(names == "parity\nshop.example\n", "{names:?}");
        let keyrings = std::fs::read_to_string("/proc/keys")?;
        let has_own = keyrings.contains(&format!("_ses.{}:", sandbox.id()));
        ensure!(has_own != no_new_keyring, "{keyrings}");
        sandbox.remove().await?;
    }
    Ok(())
}

/// The labels of its spec are those of its process, of its program and of its root. On a machine without SELinux the OCI runtime
/// refuses them. `hack/vm-selinux` runs this where a container's process can begin with a container's file alone.
#[tokio::test]
async fn it_has_the_labels_that_its_caller_gives_it() -> Result<()> {
    let node = Containerd::start().await?;
    let (label, files) =
        ("system_u:system_r:container_t:s0:c1,c2", "system_u:object_r:container_file_t:s0:c1,c2");
    let directory = tempfile::tempdir()?;
    let sandbox = DirectSandbox::of(&node, directory.path(), Ok).await?;
    let created = sandbox.create(|bundle| {
        Ok(bundle.spec(|spec| {
            spec["process"]["selinuxLabel"] = json!(label);
            spec["linux"]["mountLabel"] = json!(files);
        }))
    });
    let created = created.await;
    if !std::fs::exists("/sys/fs/selinux/enforce")? {
        let refused = created.unwrap_err().to_string();
        ensure!(refused.to_lowercase().contains("selinux"), "{refused}");
        return sandbox.remove().await;
    }
    created?;
    let process = sandbox.process()?;
    let program = std::fs::read_link(process.join("exe"))?;
    ensure!(program.to_string_lossy().contains("memfd:pause"), "{} made it", program.display());
    let own = std::fs::read_to_string(process.join("attr/current"))?;
    ensure!(own.trim_matches(['\0', '\n']) == label, "{own:?}");
    let keyring = label_of_keyring(&format!("_ses.{}:", sandbox.id()))?;
    ensure!(keyring == label, "{keyring:?}");
    let mounts = std::fs::read_to_string(process.join("mounts"))?;
    ensure!(mounts.lines().count() == 1 && mounts.contains(&format!("context=\"{files}\"")), "{mounts}");
    sandbox.remove().await
}

fn label_of_keyring(name: &str) -> Result<String> {
    let keys = std::fs::read_to_string("/proc/keys")?;
    let key = keys.lines().find(|line| line.contains(name)).context("it has no keyring")?;
    let serial = u32::from_str_radix(key.split_whitespace().next().unwrap_or_default(), 16)?;
    let mut label = [0_u8; 256];
    // SAFETY: the kernel writes at most as many bytes as there are.
    let length = unsafe {
        libc::syscall(libc::SYS_keyctl, KEYCTL_GET_SECURITY, serial, label.as_mut_ptr(), label.len())
    };
    let length = usize::try_from(length).context("the kernel does not say the keyring's label")?;
    Ok(String::from_utf8_lossy(&label[..length]).trim_end_matches('\0').to_owned())
}

/// docs/sandbox.md: a spec with anything that podshim does not do itself is the OCI runtime's, and one line of the log says why.
#[tokio::test]
async fn one_line_says_why_the_oci_runtime_makes_a_sandbox() -> Result<()> {
    let node = Containerd::start().await?;
    node.write_node_file("sandbox = \"own\"").await?;
    let task = Task::named(&node, "not-own");
    // An annotation of crun.
    let (kind, of_crun) = ("io.kubernetes.cri.container-type=sandbox", "run.oci.keep_original_groups=1");
    let options = ["--annotation", kind, "--annotation", of_crun];
    let output = task.attempt(&options, &["sleep", "600"]).await?;
    ensure!(output.exit_code == Some(0), "{output:?}");
    let pid = task.wait_status("RUNNING").await?;
    let program = std::fs::read_link(format!("/proc/{pid}/exe"))?;
    ensure!(!program.to_string_lossy().contains("memfd:"), "{}", program.display());
    // containerd copies the shim's log.
    let lines = wait::until("the line", SOON, async || {
        let log = std::fs::read_to_string(node.directory().join("containerd.log"))?;
        let lines = log.lines().filter(|line| line.contains("the OCI runtime makes the sandbox"));
        Ok(Some(lines.map(str::to_owned).collect::<Vec<_>>()).filter(|lines| !lines.is_empty()))
    })
    .await?;
    ensure!(lines.len() == 1, "{lines:?}");
    ensure!(lines[0].contains("run.oci.keep_original_groups"), "{lines:?}");
    task.remove().await
}
