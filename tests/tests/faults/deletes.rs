//! Deletes in a live pod: of one container, slow, repeated, and while containerd is started again. After each,
//! containerd runs the shim's `delete` action beside the living shim. That action ends whole pods if their shim is dead
//! (N3); here no other container may be affected.

use anyhow::{Context, Result, ensure};
use e2e::Event::{Exiting, Started, Term};
use e2e::cri::ContainerState;
use e2e::durations::{AMPLE, SOON, seconds};
use e2e::task::shell;
use e2e::{Containerd, FaultyRuntime, Pod, Program, RunningPod, Runtime, wait};

/// A pod of which `one` is stopped and deleted, and the pids that the others had before.
struct Neighbours<'node> {
    node: &'node Containerd,
    pod: RunningPod<'node>,
    pids: [libc::pid_t; 2],
}

impl<'node> Neighbours<'node> {
    const NAMES: [&'static str; 2] = ["s1", "two"];

    async fn of(node: &'node Containerd, name: &str) -> Result<Self> {
        let mut pod = Pod::new(name)
            .annotate("plan", "s1=sidecar, one=main, two=main")
            .container(Program::new("s1"))
            .container(Program::new("one").term_exit_code(3))
            .container(Program::new("two"))
            .run(node, Runtime::Podshim)
            .await?;
        pod.start_all(&["s1", "one", "two"]).await?;
        for name in ["s1", "one", "two"] {
            pod.wait_for(name, Started, 1, SOON).await?;
        }
        let cri = node.cri()?;
        let mut pids = [0; 2];
        for (pid, name) in pids.iter_mut().zip(Self::NAMES) {
            *pid = cri.container_pid(pod.id(name)?).await?;
        }
        Ok(Self { node, pod, pids })
    }

    /// Recreates `one`, as a kubelet does.
    async fn start_one_again(&mut self, count: usize) -> Result<()> {
        self.pod.start("one").await?;
        self.pod.wait_for("one", Started, count, SOON).await.map(drop)
    }

    /// Stops `one`. T12: a stop of one main of several does not stop the pod.
    async fn stop_one(&self) -> Result<()> {
        self.pod.stop("one", AMPLE).await
    }

    async fn ensure_untouched(&self, when: &str) -> Result<()> {
        let timeline = self.pod.timeline()?;
        for (name, pid) in Self::NAMES.into_iter().zip(self.pids) {
            let status = self.pod.status(name).await?;
            ensure!(status.state() == ContainerState::ContainerRunning, "{when}: {name}: {status:?}");
            let now = self.node.cri()?.container_pid(self.pod.id(name)?).await?;
            ensure!(now == pid, "{when}: {name} had pid {pid}, now {now}");
            ensure!(e2e::instance::is_alive(pid), "{when}: {name} has ended, and containerd does not know");
            let output = self.pod.exec(name, &["true"]).await?;
            ensure!(output.exit_code == 0, "{when}: {name}: {output:?}");
            let noticed = timeline.count(name, Term) + timeline.count(name, Exiting);
            ensure!(noticed == 0, "{when}: {name} got a stop signal\n{timeline}");
        }
        Ok(())
    }

    async fn ensure_one_has_ended(&self) -> Result<()> {
        let status = self.pod.wait_exited("one", SOON).await?;
        ensure!(status.exit_code == 3, "{status:?}");
        Ok(())
    }
}

/// N3: a regular delete, and several `delete` actions at once for each of the pod's containers, also for running ones
/// and pause, as a containerd runs them that cannot reach the shim.
#[tokio::test]
async fn n3_deletes_and_repeated_delete_actions_touch_nothing_in_a_live_pod() -> Result<()> {
    let node = Containerd::connect().await?;
    let mut group = Neighbours::of(&node, "deletes").await?;
    for attempt in 1..=3 {
        group.stop_one().await?;
        group.ensure_one_has_ended().await?;
        group.ensure_untouched(&format!("delete {attempt}")).await?;
        group.start_one_again(attempt + 1).await?;
    }
    let mut ids = vec![group.pod.sandbox()];
    for name in ["s1", "one", "two"] {
        ids.push(group.pod.id(name)?);
    }
    let bundles = node.directory().join("state/io.containerd.runtime.v2.task/k8s.io");
    let actions = format!(
        "for id in {ids}; do
             for turn in 1 2 3; do
                 containerd-shim-podshim-v2 -namespace k8s.io -address \"$CONTAINERD_ADDRESS\" \\
                     -publish-binary containerd -id $id -bundle {bundles}/$id delete >/dev/null & all=\"$all $!\"
             done
         done
         for one in $all; do wait $one || exit; done",
        ids = ids.join(" "),
        bundles = bundles.display(),
    );
    shell(&node, &actions).await?;
    group.ensure_untouched("after twelve delete actions").await?;
    group.stop_one().await?;
    group.ensure_one_has_ended().await?;
    group.pod.remove().await
}

/// Trap 12: the runtime's delete takes longer than the 10 s in which containerd's CRI handles an exit. containerd
/// repeats the delete until it is answered.
#[tokio::test]
async fn trap_12_a_delete_that_outlasts_containerds_limit_touches_no_other() -> Result<()> {
    let (runtime, node) = FaultyRuntime::of_a_node().await?;
    let group = Neighbours::of(&node, "slow-delete").await?;
    runtime.hold("delete")?;
    let (stopped, held) = tokio::join!(group.stop_one(), async {
        runtime.wait_held("delete").await?;
        wait::quiet_time(seconds(12)).await;
        group.ensure_untouched("during a slow delete").await?;
        ensure!(group.pod.is_known_to_its_runtime("one")?, "the delete was not slow");
        runtime.release("delete")
    });
    held?;
    stopped?;
    group.ensure_one_has_ended().await?;
    group.ensure_untouched("after a slow delete").await?;
    group.pod.remove().await
}

/// Traps 12 and 15: containerd is killed during a delete. The delete ends before the next containerd runs, or while
/// that loads its pods.
#[tokio::test]
async fn trap_12_a_delete_that_outlives_containerd_touches_no_other() -> Result<()> {
    let (runtime, node) = FaultyRuntime::of_a_node().await?;
    let mut group = Neighbours::of(&node, "outlived-delete").await?;
    for (count, ends_during_reload) in [(1, false), (2, true)] {
        let when =
            if ends_during_reload { "a delete during the reload" } else { "a delete before the reload" };
        runtime.hold("delete")?;
        let (stopped, killed) = tokio::join!(group.stop_one(), async {
            runtime.wait_held("delete").await?;
            node.kill().await
        });
        killed?;
        ensure!(stopped.is_err(), "{when}: an answer came although containerd was killed");
        if ends_during_reload {
            let (started, released) = tokio::join!(node.start_again(), async {
                wait::quiet_time(seconds(2)).await;
                runtime.release("delete")
            });
            released?;
            started?;
        } else {
            runtime.release("delete")?;
            wait::until("the end of the delete", SOON, async || {
                Ok((!group.pod.is_known_to_its_runtime("one")?).then_some(()))
            })
            .await?;
            node.start_again().await?;
        }
        wait::at_most(SOON, "the stop has no end", group.stop_one()).await.context(when)?;
        let status = group.pod.wait_exited("one", SOON).await?;
        // containerd shows 255 for an exit that it had received, and not yet stored when it was killed.
        ensure!([3, 255].contains(&status.exit_code), "{when}: {status:?}");
        group.ensure_untouched(when).await?;
        group.start_one_again(count + 1).await?;
    }
    group.pod.remove().await
}
