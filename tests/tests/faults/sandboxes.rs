//! A sandbox that podshim makes itself, on a node that has no descriptors left, no room, or a systemd that does not answer: the
//! error says so, nothing of the sandbox is left, and the same shim makes it once the node has what it needs.

use std::collections::BTreeSet;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use containerd_shim_protos::shim::oci::Options;
use containerd_shim_protos::shim::shim::CreateTaskRequest;
use e2e::direct::sandbox::DirectSandbox;
use e2e::durations::{SOON, at_most, pace, seconds};
use e2e::instance::{CgroupDriver, signal};
use e2e::{Containerd, Fault, FaultyRuntime, Task, wait};
use tempfile::TempDir;
use tokio::net::UnixListener;
use tokio::time::Instant;

/// More descriptors, pages or files than a sandbox needs.
const ENOUGH: u64 = 40;

/// Checks that a Create which failed has left no process, no control group, no mount and no record.
async fn ensure_nothing_left(sandbox: &DirectSandbox<'_>, root: &Path) -> Result<()> {
    let mounts = PathBuf::from(format!("/proc/{}/mounts", sandbox.shim().await?));
    ensure_nothing_left_in(&mounts, sandbox, root)
}

fn ensure_nothing_left_in(mounts: &Path, sandbox: &DirectSandbox<'_>, root: &Path) -> Result<()> {
    ensure!(sandbox.process().is_err(), "it has a process");
    let groups = control_groups(Path::new("/sys/fs/cgroup"), sandbox.id());
    ensure!(groups.is_empty(), "{groups:?}");
    let mounts = std::fs::read_to_string(mounts)?;
    ensure!(!mounts.contains(&format!("{}/rootfs", sandbox.id())), "{mounts}");
    let record = root.join(".podshim-e2e.podshim").join(sandbox.id());
    ensure!(!record.exists(), "{} is there", record.display());
    Ok(())
}

/// The control groups of that name. Those of other tests come and go meanwhile.
fn control_groups(directory: &Path, name: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let below =
        entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())).map(|entry| entry.path());
    below
        .flat_map(|path| match path.to_string_lossy().contains(name) {
            true => vec![path],
            false => control_groups(&path, name),
        })
        .collect()
}

/// Creates the sandbox with `give(0)`, `give(1)` and so on of what it needs, until there is enough, and removes it. Each Create
/// before that must fail with one of `words`.
async fn create_with_more_and_more(
    sandbox: DirectSandbox<'_>,
    create: &CreateTaskRequest,
    root: &Path,
    words: &[&str],
    give: impl AsyncFn(Option<u64>) -> Result<()>,
) -> Result<()> {
    let mut given = 0;
    loop {
        give(Some(given)).await?;
        let created = sandbox.try_create(create).await;
        give(None).await?;
        let Err(error) = created else { break };
        let error = error.to_string();
        ensure!(words.iter().any(|word| error.contains(word)), "{given}: {error}");
        ensure_nothing_left(&sandbox, root).await.with_context(|| format!("{given}: {error}"))?;
        given += 1;
        ensure!(given < ENOUGH, "no sandbox with {given}: {error}");
    }
    println!("created with {given}");
    ensure!(given > 1, "{given} are enough");
    sandbox.start().await?;
    let program = std::fs::read_link(sandbox.process()?.join("exe"))?;
    ensure!(program.to_string_lossy().contains("memfd:pause"), "{} made it", program.display());
    sandbox.remove().await
}

#[tokio::test]
async fn without_descriptors_a_sandbox_is_refused_and_nothing_is_left() -> Result<()> {
    let node = Containerd::connect().await?;
    let directory = tempfile::tempdir()?;
    let root = directory.path().join("runc");
    let sandbox = DirectSandbox::of(&node, directory.path(), Ok).await?;
    let create = sandbox.prepare(|bundle| bundle.options(&options(&root)))?;
    let shim = sandbox.shim().await?.to_string();
    let before =
        e2e::output("prlimit", ["--pid", &shim, "--nofile", "--noheadings", "--output", "SOFT"]).await?;
    let open: BTreeSet<u64> = std::fs::read_dir(format!("/proc/{shim}/fd"))?
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .collect();
    let limit = async |free: Option<u64>| {
        let limit = match free {
            Some(free) => {
                (0..).filter(|number| !open.contains(number)).nth(free.try_into()?).context("a number")?
            }
            None => before.trim().parse()?,
        };
        e2e::output("prlimit", ["--pid", &shim, &format!("--nofile={limit}:")]).await.map(drop)
    };
    // EMFILE.
    create_with_more_and_more(sandbox, &create, &root, &["os error 24", "EMFILE"], limit).await
}

/// A file system in memory, mounted for one test.
struct SmallDisk(TempDir);

impl SmallDisk {
    async fn new() -> Result<Self> {
        let directory = tempfile::tempdir()?;
        e2e::output("mount", ["-t", "tmpfs", "-o", "size=64m", "small", &place(&directory)]).await?;
        Ok(Self(directory))
    }

    /// Leaves so many pages, or files, free.
    async fn leave(&self, what: Scarce, number: Option<u64>) -> Result<()> {
        let used = nix::sys::statvfs::statvfs(self.0.path())?;
        let (pages, files) = (used.blocks() - used.blocks_free(), used.files() - used.files_free());
        let limit = match (what, number) {
            (Scarce::Pages, Some(number)) => format!("remount,size={}", (pages + number).max(1) * 4096),
            (Scarce::Files, Some(number)) => format!("remount,nr_inodes={}", files + number),
            (_, None) => "remount,size=64m,nr_inodes=10000".to_owned(),
        };
        e2e::output("mount", ["-o", &limit, &place(&self.0)]).await.map(drop)
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = nix::mount::umount2(self.0.path(), nix::mount::MntFlags::MNT_DETACH);
    }
}

/// What a disk may run out of.
#[derive(Clone, Copy)]
enum Scarce {
    Pages,
    Files,
}

fn place(directory: &TempDir) -> String {
    directory.path().to_string_lossy().into_owned()
}

#[tokio::test]
async fn on_a_full_disk_a_sandbox_is_refused_and_nothing_is_left() -> Result<()> {
    let node = Containerd::connect().await?;
    for what in [Scarce::Pages, Scarce::Files] {
        let disk = SmallDisk::new().await?;
        let root = disk.0.path().join("runc");
        let sandbox = DirectSandbox::of(&node, disk.0.path(), Ok).await?;
        let create = sandbox.prepare(|bundle| bundle.options(&options(&root)))?;
        let leave = async |number| disk.leave(what, number).await;
        create_with_more_and_more(sandbox, &create, &root, &["os error 28", "ENOSPC"], leave).await?;
    }
    Ok(())
}

/// N5. The shim answers others meanwhile, and gives up in half a minute.
#[tokio::test]
async fn with_a_systemd_that_hangs_a_sandbox_is_refused_and_nothing_is_left() -> Result<()> {
    let node = Containerd::connect().await?;
    let directory = tempfile::tempdir()?;
    let root = directory.path().join("runc");
    // The kernel accepts for it.
    let _systemd = UnixListener::bind(directory.path().join("systemd"))?;
    let script = format!(
        "#!/bin/sh
exec unshare --mount sh -c 'mkdir -p /run/systemd && mount -t tmpfs hanging /run/systemd && : >/run/systemd/private &&
    mount --bind {}/systemd /run/systemd/private && exec SHIM \"$@\"' sh \"$@\"
",
        directory.path().display()
    );
    let sandbox =
        DirectSandbox::of(&node, directory.path(), |shim| shim.behind("beside-systemd", &script)).await?;
    let options = Options { systemd_cgroup: true, ..options(&root) };
    let cgroup = format!("system.slice:cri-containerd:{}", sandbox.id());
    let create = sandbox.prepare_in(&cgroup, |bundle| bundle.options(&options))?;
    let begun = Instant::now();
    let (created, asked) = tokio::join!(sandbox.try_create(&create), async {
        wait::quiet_time(Duration::from_secs(1)).await;
        sandbox.shim().await.map(|_| begun.elapsed())
    });
    ensure!(at_most(asked?, Duration::from_secs(2)), "the shim does not answer while it waits");
    let error = created.err().context("it was made without systemd")?.to_string();
    ensure!(error.contains("/run/systemd/private: no answer in 25s"), "{error}");
    ensure_nothing_left(&sandbox, &root).await?;
    sandbox.remove().await
}

/// A unit of systemd's that podshim did not make. It is stopped with this.
struct Unit(String);

impl Unit {
    /// A slice that may have no more groups below it.
    async fn full_slice() -> Result<Self> {
        let slice = Self(format!("full_{}.slice", std::process::id()));
        e2e::output("systemctl", ["start", &slice.0]).await?;
        std::fs::write(format!("/sys/fs/cgroup/{}/cgroup.max.descendants", slice.0), "0")?;
        Ok(slice)
    }

    /// A scope with a process.
    async fn scope(unit: &str, slice: &str) -> Result<Self> {
        #[expect(clippy::disallowed_methods, reason = "systemd has the process, and ends it with the unit")]
        std::process::Command::new("systemd-run")
            .args(["--scope", "--quiet", "--unit", unit, "--slice", slice, "sleep", "600"])
            .spawn()?;
        let scope = Self(unit.to_owned());
        wait::until("the scope to be there", SOON, async || Ok(scope.is_active().await?.then_some(())))
            .await?;
        Ok(scope)
    }

    async fn is_active(&self) -> Result<bool> {
        let state = e2e::output("systemctl", ["show", &self.0, "--property=ActiveState"]).await?;
        Ok(state.trim() == "ActiveState=active")
    }
}

impl Drop for Unit {
    #[expect(clippy::disallowed_methods, reason = "no reaper runs in a test")]
    fn drop(&mut self) {
        drop(std::process::Command::new("systemctl").args(["stop", &self.0]).status());
    }
}

/// systemd takes the request, and then its job fails: the caller learns it at once, not when the job should have ended.
#[tokio::test]
async fn a_scope_that_systemd_cannot_start_is_reported_at_once() -> Result<()> {
    let node = Containerd::connect().await?;
    if node.cgroup_driver()? == CgroupDriver::Cgroupfs {
        println!("this cgroup driver makes no scopes");
        return Ok(());
    }
    let directory = tempfile::tempdir()?;
    let root = directory.path().join("runc");
    let sandbox = DirectSandbox::of(&node, directory.path(), Ok).await?;
    let slice = Unit::full_slice().await?;
    let options = Options { systemd_cgroup: true, ..options(&root) };
    let cgroup = format!("{}:cri-containerd:{}", slice.0, sandbox.id());
    let create = sandbox.prepare_in(&cgroup, |bundle| bundle.options(&options))?;
    let begun = Instant::now();
    let error = sandbox.try_create(&create).await.err().context("it was made without a scope")?.to_string();
    ensure!(at_most(begun.elapsed(), Duration::from_secs(5)), "{error} after {:?}", begun.elapsed());
    ensure!(
        error.contains(&format!("systemd has not started cri-containerd-{}.scope", sandbox.id())),
        "{error}"
    );
    ensure_nothing_left(&sandbox, &root).await?;
    sandbox.remove().await
}

/// A unit in another slice has the name of the sandbox's scope: the create fails, and the unit lives on.
#[tokio::test]
async fn a_scope_of_another_caller_outlives_a_failed_create() -> Result<()> {
    let node = Containerd::connect().await?;
    if node.cgroup_driver()? == CgroupDriver::Cgroupfs {
        println!("this cgroup driver makes no scopes");
        return Ok(());
    }
    let directory = tempfile::tempdir()?;
    let root = directory.path().join("runc");
    let sandbox = DirectSandbox::of(&node, directory.path(), Ok).await?;
    let other = Unit::scope(&format!("cri-containerd-{}.scope", sandbox.id()), "system.slice").await?;
    let options = Options { systemd_cgroup: true, ..options(&root) };
    let cgroup = format!("user.slice:cri-containerd:{}", sandbox.id());
    let create = sandbox.prepare_in(&cgroup, |bundle| bundle.options(&options))?;
    let error =
        sandbox.try_create(&create).await.err().context("it was made in another's scope")?.to_string();
    ensure!(error.contains("systemd refuses"), "{error}");
    ensure!(other.is_active().await?, "it has ended another's scope");
    // Its process would be taken for the sandbox's.
    drop(other);
    sandbox.remove().await
}

/// With the other driver a control group may have the name of a scope, which is not the sandbox's.
#[tokio::test]
async fn a_scope_with_the_name_of_a_control_group_outlives_its_sandbox() -> Result<()> {
    if !Path::new("/run/systemd/private").exists() {
        println!("no systemd runs here");
        return Ok(());
    }
    let node = Containerd::connect().await?;
    let directory = tempfile::tempdir()?;
    let root = directory.path().join("runc");
    let sandbox = DirectSandbox::of(&node, directory.path(), Ok).await?;
    let unit = format!("cri-containerd-{}.scope", sandbox.id());
    let other = Unit::scope(&unit, "system.slice").await?;
    let group = format!("{}/{unit}", node.cgroup());
    let create = sandbox.prepare_in(&group, |bundle| bundle.options(&options(&root)))?;
    sandbox.try_create(&create).await?;
    sandbox.start().await?;
    sandbox.process()?;
    sandbox.remove().await?;
    ensure!(other.is_active().await?, "its end has ended another's scope");
    Ok(())
}

/// N3: at each step of a sandbox's making, in its own namespaces and in a user namespace, whose child waits for the shim.
#[tokio::test]
async fn n3_a_shim_that_is_killed_while_it_makes_a_sandbox_leaves_nothing() -> Result<()> {
    const POINTS: u32 = 16;
    let node = Containerd::connect().await?;
    let map = serde_json::json!([{"containerID": 0, "hostID": 100_000, "size": 65536}]);
    for in_user_namespace in [false, true] {
        let mut made = 0;
        let mut span = Duration::ZERO;
        // The first is not killed, and tells how long it takes.
        for point in 0..=POINTS {
            let directory = tempfile::tempdir()?;
            let root = directory.path().join("runc");
            let sandbox = DirectSandbox::of(&node, directory.path(), Ok).await?;
            let create = sandbox.prepare(|bundle| {
                let bundle = bundle.spec(|spec| {
                    if in_user_namespace && let Some(list) = spec["linux"]["namespaces"].as_array_mut() {
                        list.push(serde_json::json!({"type": "user"}));
                        spec["linux"]["uidMappings"] = map.clone();
                        spec["linux"]["gidMappings"] = map.clone();
                    }
                });
                bundle.options(&options(&root))
            })?;
            // A user namespace's root has to get there, as containerd lets it.
            for place in [directory.path().to_owned(), directory.path().join(sandbox.id())] {
                std::fs::set_permissions(place, Permissions::from_mode(0o711))?;
            }
            let shim = sandbox.shim().await?;
            let begun = Instant::now();
            if point == 0 {
                sandbox.try_create(&create).await?;
                span = begun.elapsed();
                sandbox.remove().await?;
                continue;
            }
            let (created, killed) = tokio::join!(sandbox.try_create(&create), async {
                while begun.elapsed() < span * point / POINTS {
                    tokio::task::yield_now().await;
                }
                signal(shim, libc::SIGKILL)
            });
            killed?;
            made += u32::from(created.is_ok());
            // containerd calls `delete` when its connection is closed.
            wait::until("the connection to be closed", seconds(5), async || {
                Ok(sandbox.shim().await.is_err().then_some(()))
            })
            .await?;
            sandbox.delete_of_dead_shim().await.with_context(|| format!("{point} of {span:?}"))?;
            ensure_nothing_left_in(Path::new("/proc/self/mounts"), &sandbox, &root)
                .with_context(|| format!("{point} of {span:?}"))?;
        }
        println!("{made} of {POINTS} were made before their shim was killed, in {span:?}");
        ensure!(made < POINTS, "no shim was killed while it made a sandbox");
    }
    Ok(())
}

/// N3: the removal of its containers takes all of the time that `delete` has, as their runtime hangs. The sandbox goes all the same.
#[tokio::test]
async fn n3_a_killed_shim_whose_runtime_hangs_leaves_no_sandbox() -> Result<()> {
    let node = Containerd::start().await?;
    node.write_node_file("sandbox = \"own\"").await?;
    let runtime = FaultyRuntime::around("runc", node.directory())?;
    let config = runtime.config().display().to_string();
    let options = ["--runtime-config-path", config.as_str(), "--annotation"];
    let as_sandbox = [&options[..], &["io.kubernetes.cri.container-type=sandbox"]].concat();
    let sandbox = Task::run(&node, "n3-sandbox", &as_sandbox, &["/pause"]).await?;
    let pid = sandbox.wait_status("RUNNING").await?;
    let program = std::fs::read_link(format!("/proc/{pid}/exe"))?;
    ensure!(program.to_string_lossy().contains("memfd:pause"), "{} made it", program.display());
    let of_pod = format!("io.kubernetes.cri.sandbox-id={}", sandbox.id());
    let as_container =
        [&options[..], &["io.kubernetes.cri.container-type=container", "--annotation", &of_pod]].concat();
    let app = Task::run(&node, "n3-app", &as_container, &["sleep", "600"]).await?;
    runtime.break_command("delete", Fault::Hangs)?;
    signal(sandbox.shim()?, libc::SIGKILL)?;
    runtime.wait_broken("delete").await?;
    wait::until("nothing of the sandbox to be left", seconds(10) * pace(), async || {
        Ok(sandbox.leftovers()?.is_empty().then_some(()))
    })
    .await
    .with_context(|| format!("{:#?}", sandbox.leftovers()))?;
    // The runtime's own record of the other.
    for record in app.leftovers()? {
        std::fs::remove_dir_all(record.trim_start_matches("file: "))?;
    }
    app.remove().await?;
    sandbox.remove().await
}

fn options(root: &Path) -> Options {
    Options { root: root.to_string_lossy().into_owned(), ..Options::default() }
}
