//! Traps about the OCI runtime: one that hangs delays no other container, containerd may die while it works, and crun's
//! errors are handled like runc's.

use anyhow::{Context, Result, ensure};
use containerd_shim_protos::shim::shim::{
    CreateTaskRequest, CreateTaskResponse, DeleteRequest, DeleteResponse, StateRequest, StateResponse,
};
use e2e::cri::ContainerState;
use e2e::direct::container::{create_request, shim_of};
use e2e::{Containerd, FaultyRuntime, Pod, Program, RunningPod, Runtime, wait};

use e2e::durations::{SOON, seconds};
use e2e::task::{Task, shell, unique};

/// Checks that a task is RUNNING: containerd waits 2 s for State, and a task whose State takes longer is UNKNOWN or
/// missing. Not measured here, because on a busy machine `ctr` alone may take as long.
async fn ensure_state_is_answered(task: &Task<'_>) -> Result<()> {
    let status = task.status().await?;
    ensure!(status.as_ref().is_some_and(|(status, _)| status == "RUNNING"), "{}: {status:?}", task.id());
    Ok(())
}

/// Trap 10: State of every container in the pod is answered within containerd's limit, whatever the runtime is doing.
#[tokio::test]
async fn trap_10_state_is_answered_while_the_runtime_hangs() -> Result<()> {
    let node = Containerd::connect().await?;
    let runtime = FaultyRuntime::around("runc", node.directory())?;
    let config = runtime.config().display().to_string();
    // One shim for both, otherwise the one could not delay the other.
    let group = unique("trap10");
    let options = ["--runtime-config-path", config.as_str()];
    let quick = Task::run_in_group(&node, "trap10-quick", &group, &options, &["sleep", "600"]).await?;
    let group = format!("io.containerd.runc.v2.group={group}");
    let options = ["--runtime-config-path", config.as_str(), "--annotation", group.as_str()];
    let ensure_answered = async |command: &str| {
        runtime.wait_held(command).await?;
        ensure_state_is_answered(&quick).await.with_context(|| format!("during {command}"))?;
        runtime.release(command)
    };

    let slow = Task::named(&node, "trap10-slow");
    for command in ["create", "start"] {
        runtime.hold(command)?;
    }
    let run = async {
        let output = slow.attempt(&options, &["sleep", "600"]).await?;
        ensure!(output.exit_code == Some(0), "{output:?}");
        Ok(())
    };
    let watch = async {
        ensure_answered("create").await?;
        runtime.wait_held("start").await?;
        // The task that is being started answers too. It must not be CREATED: a containerd that is restarted now would
        // kill it (F11).
        ensure_state_is_answered(&slow).await.context("its own, during start")?;
        ensure_answered("start").await
    };
    tokio::try_join!(run, watch)?;

    for (command, words) in [("pause", &["pause"][..]), ("resume", &["resume"])] {
        runtime.hold(command)?;
        let (output, ()) = tokio::try_join!(slow.task(words), ensure_answered(command))?;
        ensure!(output.exit_code == Some(0), "{output:?}");
    }
    runtime.hold("exec")?;
    let (output, ()) = tokio::try_join!(slow.exec(&[], &["true"]), ensure_answered("exec"))?;
    ensure!(output.exit_code == Some(0), "{output:?}");
    runtime.hold("delete")?;
    let (output, ()) = tokio::try_join!(slow.task(&["rm", "--force"]), ensure_answered("delete"))?;
    ensure!(output.stderr.is_empty() || output.stderr.contains("exit code 137"), "{output:?}");
    slow.remove().await?;
    quick.remove().await
}

/// Trap 28: no lock is held during a kill: State is answered during a hundred of them, ten at a time. The `ctr` that asks
/// gets an eleventh of the machine, and so its answer before the last kill.
#[tokio::test]
async fn trap_28_state_is_answered_while_a_hundred_kills_are_under_way() -> Result<()> {
    let node = Containerd::connect().await?;
    let group = unique("trap28");
    let quick = Task::run_in_group(&node, "trap28-quick", &group, &[], &["sleep", "600"]).await?;
    let count = "trap 'echo >>/count' USR1; echo >/up; while :; do sleep 600 & wait $!; kill $!; done";
    let target = Task::run_in_group(&node, "trap28", &group, &[], &["sh", "-c", count]).await?;
    let id = target.id();
    wait::until("its signal handler", SOON, async || {
        Ok((target.exec(&[], &["test", "-e", "/up"]).await?.exit_code == Some(0)).then_some(()))
    })
    .await?;
    // Half of them go to all processes, through the cgroup, and must leave the container as it is.
    let kills = format!(
        "for lane in $(seq 5); do
             for i in $(seq 10); do ctr task kill -s USR1 {id} || exit; done & all=\"$all $!\"
             for i in $(seq 10); do ctr task kill -s CONT --all {id} || exit; done & all=\"$all $!\"
         done
         for one in $all; do wait $one || exit; done"
    );
    let under_way = shell(&node, &kills);
    tokio::pin!(under_way);
    let mut asked = 0;
    loop {
        tokio::select! {
            done = &mut under_way => break done.map(drop)?,
            answered = ensure_state_is_answered(&quick) => answered?,
        }
        asked += 1;
    }
    ensure!(asked > 0, "no State was requested meanwhile");
    let counted = target.run_script("wc -l </count").await?;
    // The kernel merges pending signals of one number.
    ensure!(counted.stdout.trim().parse::<u32>()? > 0, "{counted:?}");
    target.remove().await?;
    quick.remove().await
}

/// Trap 21: a created container whose program was not started (here: held, U7) can be killed. If it could not, its
/// sandbox's stop would hang.
#[tokio::test]
async fn trap_21_a_created_container_can_be_killed() -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = Pod::new("trap21")
        .annotate("plan", "proxy=sidecar, one=main, two=main")
        .annotate("ready.proxy", "exec:false;fail=1000")
        .container(Program::new("proxy"))
        .container(Program::new("one"))
        .container(Program::new("two"))
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start_all(&["proxy", "one", "two"]).await?;
    node.ctr().run(&["-n", "k8s.io", "task", "kill", "-s", "KILL", pod.id("one")?]).await?;
    ensure!(pod.wait_exited("one", SOON).await?.exit_code == 137, "{}", pod.timeline()?);
    wait::at_most(SOON, "the sandbox cannot be stopped", pod.stop_sandbox()).await?;
    ensure!(pod.wait_exited("two", SOON).await?.exit_code == 137, "{}", pod.timeline()?);
    for name in ["one", "two"] {
        pod.timeline()?.doesnt_start(name)?;
    }
    pod.remove().await
}

/// Trap 24: crun's error texts differ from runc's; the answers on which containerd acts are the same, and the user gets
/// the texts.
#[tokio::test]
async fn trap_24_cruns_words_mean_the_same() -> Result<()> {
    let node = Containerd::connect().await?;
    for real in ["runc", "crun"] {
        let runtime = FaultyRuntime::around(real, node.directory())?;
        let config = runtime.config().display().to_string();
        let options = ["--runtime-config-path", config.as_str()];

        let missing = Task::named(&node, "trap24-missing");
        let output = missing.attempt(&options, &["/no/such/program"]).await?;
        ensure!(
            output.exit_code == Some(1) && output.stderr.contains("/no/such/program"),
            "{real}: {output:?}"
        );
        missing.remove().await?;

        let task = Task::run(&node, "trap24", &options, &["sleep", "600"]).await?;
        let output = task.exec(&[], &["/no/such/program"]).await?;
        ensure!(
            output.exit_code == Some(1) && output.stderr.contains("/no/such/program"),
            "{real}: {output:?}"
        );
        let output = task.task(&["kill", "-s", "KILL", "--all"]).await?;
        ensure!(output.exit_code == Some(0), "{real}: {output:?}");
        task.wait_status("STOPPED").await?;
        // checkKillError of containerd's own shim turns this error into NotFound, which callers ignore.
        let output = task.task(&["kill"]).await?;
        // (ctr 2.x leaves the code out.)
        ensure!(output.stderr.contains("process already finished"), "{real}: {output:?}");
        // `runc kill --all` finds no process, which is no error.
        let output = task.task(&["kill", "--all"]).await?;
        ensure!(output.exit_code == Some(0), "{real}: {output:?}");
        let output = task.exec(&[], &["true"]).await?;
        ensure!(output.exit_code == Some(1), "{real}: an exec in an exited container: {output:?}");
        task.remove().await?;
    }
    Ok(())
}

/// Kills containerd while the runtime, which goes on when it is released, creates the pod's app.
async fn kill_during_a_create(
    runtime: &FaultyRuntime,
    node: &Containerd,
    pod: &mut RunningPod<'_>,
) -> Result<()> {
    runtime.hold("create")?;
    let (started, killed) = tokio::join!(pod.start("app"), async {
        runtime.wait_held("create").await?;
        node.kill().await
    });
    killed?;
    ensure!(started.is_err(), "an answer came although containerd was killed");
    Ok(())
}

/// Trap 15: containerd dies in the middle of a container's create. The shim finishes it. The next containerd finds a
/// task in CREATED and ends it, and the pod can be used and removed as any other.
#[tokio::test]
async fn trap_15_containerd_may_die_during_a_create() -> Result<()> {
    let (runtime, node) = FaultyRuntime::of_a_node().await?;
    let mut pod = Pod::new("trap15").container(Program::new("app")).run(&node, Runtime::Podshim).await?;
    kill_during_a_create(&runtime, &node, &mut pod).await?;
    runtime.release("create")?;
    // The next containerd looks only then; the test below has one that looks before.
    let sandbox = pod.sandbox().to_owned();
    wait::until("the create to be over", SOON, async || {
        // Where podshim makes the sandboxes, the container is the runtime's first.
        let known = std::fs::read_dir(node.root()?.join("run/containerd/runc/k8s.io"));
        // The state file of runc, and of crun.
        let is_made =
            |path: std::path::PathBuf| ["state.json", "status"].iter().any(|file| path.join(file).exists());
        Ok(known
            .into_iter()
            .flatten()
            .flatten()
            .filter(|entry| *entry.file_name() != *sandbox)
            .any(|entry| is_made(entry.path()))
            .then_some(()))
    })
    .await?;
    node.start_again().await?;
    let status = pod.status("app").await?;
    ensure!(status.state() != ContainerState::ContainerRunning, "{status:?}");
    pod.start("app").await?;
    pod.wait_for("app", e2e::Event::Started, 1, SOON).await?;
    pod.remove().await
}

/// Trap 15: the next containerd looks while the runtime still creates the container. If containerd 1.6 gets no State, it
/// takes the container for one without a task. It then removes the container alone, and the task keeps its name in use.
/// Or it refuses the removal, because the task exists by then.
#[tokio::test]
async fn trap_15_a_create_that_outlives_containerd_can_be_removed() -> Result<()> {
    let (runtime, node) = FaultyRuntime::of_a_node().await?;
    let mut pod = Pod::new("trap15-late")
        .annotate("plan", "app=main")
        .container(Program::new("app"))
        .run(&node, Runtime::Podshim)
        .await?;
    kill_during_a_create(&runtime, &node, &mut pod).await?;
    {
        let serving = node.start_again();
        tokio::pin!(serving);
        // A CRI that deletes the task waits for the end of its create before it serves.
        let served = tokio::time::timeout(seconds(4), &mut serving).await;
        runtime.release("create")?;
        match served {
            Ok(served) => served?,
            Err(_) => serving.await?,
        }
    }
    pod.sync(&["app"]).await?;
    pod.wait_for("app", e2e::Event::Started, 1, SOON).await?;
    pod.remove().await
}

/// Trap 15: the create still waits for containerd to open the container's output when containerd is killed. The next containerd
/// deletes the container before it serves (1.7 and 2.x), and opens no output until then: the create must not wait for it.
#[tokio::test]
async fn trap_15_a_delete_ends_the_wait_of_a_create_for_containerd() -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = Pod::new("trap15-output")
        .annotate("plan", "app=main")
        .annotate("restart-policy", "Never")
        .container(Program::new("app"))
        .run(&node, Runtime::Podshim)
        .await?;
    let directory = tempfile::tempdir()?;
    let output = directory.path().join("output");
    nix::unistd::mkfifo(&output, nix::sys::stat::Mode::from_bits_truncate(0o600))?;
    let stdout = output.to_string_lossy().into_owned();
    let create = CreateTaskRequest { stdout, ..create_request(&node, &pod, "app", directory.path())? };
    let (shim, id) = (shim_of(&node, &pod).await?, create.id.clone());
    let state = StateRequest { id: id.clone(), ..Default::default() };
    let delete = DeleteRequest { id, ..Default::default() };
    let (created, deleted) = tokio::join!(shim.call::<_, CreateTaskResponse>("Create", &create), async {
        wait::until("the create to be under way", SOON, async || {
            Ok(shim.call::<_, StateResponse>("State", &state).await.ok().map(drop))
        })
        .await?;
        // The create would wait 30 s.
        let deleted = shim.call::<_, DeleteResponse>("Delete", &delete);
        wait::at_most(SOON, "the Delete", async { anyhow::Ok(deleted.await) }).await
    });
    let (created, deleted) = (format!("{created:?}"), format!("{:?}", deleted?));
    ensure!(created.contains("was deleted before containerd had opened its side of the output"), "{created}");
    ensure!(deleted.contains("NOT_FOUND"), "{deleted}");
    // It is no failed start.
    pod.start("app").await?;
    pod.wait_for("app", e2e::Event::Started, 1, SOON).await?;
    pod.remove().await
}

/// Trap 15, the first container of a shim: in whatever state the next containerd finds it, its removal leaves nothing.
#[tokio::test]
async fn trap_15_containerd_may_die_during_a_shims_first_create() -> Result<()> {
    let (runtime, node) = FaultyRuntime::of_a_node().await?;
    let task = Task::named(&node, "trap15-first");
    let config = runtime.config().display().to_string();
    let options = ["--runtime-config-path", config.as_str()];
    runtime.hold("create")?;
    let (output, killed) = tokio::join!(task.attempt(&options, &["sleep", "600"]), async {
        runtime.wait_held("create").await?;
        node.kill().await
    });
    killed?;
    let output = output?;
    ensure!(output.exit_code != Some(0), "{output:?}");
    runtime.release("create")?;
    node.start_again().await?;
    task.remove().await
}
