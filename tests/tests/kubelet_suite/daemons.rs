//! Restarts of the node and of the kubelet under a pod (D, N, O). A restart of the node ends the sandbox and makes
//! another one. Instead of the kubelet the tests kill containerd, and with it the CRI's whole view of the pods.

use anyhow::{Context, Result, ensure};
use e2e::Event::{Exiting, Starting};
use e2e::cri::ContainerStatus;
use e2e::durations::{SOON, milliseconds, seconds};
use e2e::{Containerd, Event, Pod, Program, RunningPod, Runtime, wait};

/// Runs a pod twice, as before and after a restart of its node, each time in this order. Its main is created first and
/// waits for all others.
async fn the_order_is_that_of_the_first_time(plan: &str, containers: &[Program]) -> Result<()> {
    let node = Containerd::connect().await?;
    let names: Vec<_> = containers.iter().map(Program::name).collect();
    for _ in 0..2 {
        let mut pod = Pod::new("reboot").annotate("plan", plan);
        for program in containers {
            if program.name().starts_with('s') {
                let ready = format!("ready.{}", program.name());
                pod = pod.annotate(&ready, "exec:test -e /tmp/ready;period=100ms");
            }
            pod = pod.container(program.clone());
        }
        let mut pod = pod.run(&node, Runtime::Podshim).await?;
        for name in names.iter().rev() {
            pod.start(name).await?;
        }
        let timeline = pod.wait_for("regular", Event::Started, 1, SOON).await?;
        for pair in names.windows(2) {
            timeline.before((pair[0], Starting), (pair[1], Starting))?;
            if pair[0].starts_with("init") {
                timeline.completes_before(pair[0], pair[1])?;
            }
        }
        pod.stop_sandbox().await?;
        for name in &names {
            pod.timeline()?.has_not_restarted(name)?;
        }
        pod.remove().await?;
    }
    Ok(())
}

fn init(name: &str) -> Program {
    Program::new(name).runs_for(milliseconds(300)).exits(0)
}

#[tokio::test]
async fn ks_d1_all_inits_run_again_in_order_after_a_restart_of_the_node() -> Result<()> {
    let containers = [init("init1"), init("init2"), init("init3"), Program::new("regular")];
    the_order_is_that_of_the_first_time("init1=init, init2=init, init3=init, regular=main", &containers).await
}

/// ks-N1.
#[tokio::test]
async fn ks_d1_n1_sidecars_start_again_in_order_after_a_restart_of_the_node() -> Result<()> {
    let sidecar = Program::new("s2").ready_file("/tmp/ready", milliseconds(300));
    let containers = [init("init1"), sidecar, init("init3"), Program::new("regular")];
    the_order_is_that_of_the_first_time("init1=init, s2=sidecar, init3=init, regular=main", &containers).await
}

async fn restart_containerd(node: &Containerd) -> Result<()> {
    node.kill().await?;
    node.start_again().await
}

/// Starts a pod of three inits and a main. Waits for the exit of the first two before the next, as a kubelet does.
async fn pod_of_inits<'node>(node: &'node Containerd, last: Program) -> Result<RunningPod<'node>> {
    let mut pod = Pod::new("inits")
        .annotate("plan", "init1=init, init2=init, init3=init, regular=main")
        .container(init("init1"))
        .container(init("init2"))
        .container(last)
        .container(Program::new("regular"))
        .run(node, Runtime::Podshim)
        .await?;
    for name in ["init1", "init2"] {
        pod.start(name).await?;
        pod.wait_exited(name, SOON).await?;
    }
    pod.start("init3").await?;
    Ok(pod)
}

async fn remove_containers(node: &Containerd, pod: &RunningPod<'_>, names: &[&str]) -> Result<()> {
    for name in names {
        node.cri()?.remove_container(pod.id(name)?).await?;
    }
    Ok(())
}

/// ks-D2, ks-D3, I4, N1: a running pod's inits do not run again, also when their containers have been removed
/// meanwhile.
#[tokio::test]
async fn ks_d2_d3_completed_inits_of_a_running_pod_do_not_run_again() -> Result<()> {
    let node = Containerd::start().await?;
    let mut pod = pod_of_inits(&node, init("init3")).await?;
    pod.wait_exited("init3", SOON).await?;
    pod.start("regular").await?;
    pod.wait_for("regular", Event::Started, 1, SOON).await?;
    restart_containerd(&node).await?;
    for name in ["init1", "init2", "init3"] {
        let status = pod.wait_exited(name, SOON).await?;
        ensure!(status.exit_code == 0, "{status:?}");
    }
    remove_containers(&node, &pod, &["init1", "init2", "init3"]).await?;
    restart_containerd(&node).await?;
    // A kubelet that lost sight of them may recreate them.
    for name in ["init1", "init2", "init3"] {
        pod.start(name).await?;
    }
    wait::quiet_time(seconds(1)).await;
    for name in ["init1", "init2", "init3", "regular"] {
        pod.timeline()?.has_not_restarted(name)?;
    }
    pod.remove().await
}

/// ks-D4, ks-D5: the same while the last init still runs: it goes on, and the main starts after it.
#[tokio::test]
async fn ks_d4_d5_completed_inits_of_a_starting_pod_do_not_run_again() -> Result<()> {
    let node = Containerd::start().await?;
    let mut pod = pod_of_inits(&node, Program::new("init3")).await?;
    pod.wait_for("init3", Event::Started, 1, SOON).await?;
    restart_containerd(&node).await?;
    remove_containers(&node, &pod, &["init1", "init2"]).await?;
    restart_containerd(&node).await?;
    pod.start("regular").await?;
    for name in ["init1", "init2"] {
        pod.start(name).await?;
    }
    wait::quiet_time(seconds(1)).await;
    pod.timeline()?.doesnt_start("regular")?;
    // By a signal from inside the container: for podshim it ends by itself, with 0.
    pod.exec("init3", &["kill", "1"]).await?;
    let timeline = pod.wait_for("regular", Event::Started, 1, SOON).await?;
    timeline.completes_before("init3", "regular")?;
    for name in ["init1", "init2", "init3", "regular"] {
        timeline.has_not_restarted(name)?;
    }
    pod.remove().await
}

/// Which probes the containers of a pod have. podshim runs a sidecar's start probe, as its gate. The kubelet, here the
/// test, runs all others, as execs.
#[derive(Clone, Copy, Debug)]
struct Probes {
    start: bool,
    readiness: bool,
}

const PROBES: [Probes; 4] = [
    Probes { start: false, readiness: false },
    Probes { start: true, readiness: false },
    Probes { start: false, readiness: true },
    Probes { start: true, readiness: true },
];

/// A pod, and the status of each container before the restart.
struct Observed<'node> {
    pod: RunningPod<'node>,
    probes: Probes,
    before: Vec<ContainerStatus>,
}

const READY: [&str; 3] = ["test", "-e", "/tmp/ready"];

/// Starts a pod and waits until its probes succeed.
async fn observed<'node>(
    node: &'node Containerd,
    plan: &str,
    names: &[&str],
    probes: Probes,
) -> Result<Observed<'node>> {
    let mut pod = Pod::new("o").annotate("plan", plan);
    for name in names {
        if probes.start && plan.contains(&format!("{name}=sidecar")) {
            pod = pod.annotate(&format!("ready.{name}"), "exec:test -e /tmp/ready;period=200ms");
        }
        pod = pod.container(Program::new(name).ready_file("/tmp/ready", seconds(1)));
    }
    let mut pod = pod.run(node, Runtime::Podshim).await?;
    pod.start_all(names).await?;
    let mut before = Vec::new();
    for name in names {
        pod.wait_for(name, Event::Started, 1, SOON).await?;
        if probes.start || probes.readiness {
            wait::until("it to be ready", SOON, async || {
                Ok((pod.exec(name, &READY).await?.exit_code == 0).then_some(()))
            })
            .await?;
        }
        before.push(pod.status(name).await?);
    }
    Ok(Observed { pod, probes, before })
}

impl Observed<'_> {
    /// Checks that no container was affected: each has the same state since the same time, the same attempt and one
    /// run, and is ready.
    async fn check(self) -> Result<()> {
        let timeline = self.pod.timeline()?;
        for before in &self.before {
            let name = &before.metadata.as_ref().context("no metadata")?.name;
            let now = self.pod.status(name).await?;
            let seen = |status: &ContainerStatus| (status.state, status.started_at, status.metadata.clone());
            ensure!(seen(&now) == seen(before), "{:?}: {before:?}, then {now:?}", self.probes);
            if self.probes.readiness {
                let ready = self.pod.exec(name, &READY).await?;
                ensure!(ready.exit_code == 0, "{name} is not ready any more: {ready:?}");
            }
            timeline.has_not_restarted(name)?;
            ensure!(timeline.count(name, Exiting) == 0, "{timeline}");
        }
        self.pod.remove().await
    }
}

/// ks-O1 to ks-O12, N1: containers of every kind, with every combination of probes, outlast a restart of containerd
/// unchanged: one main (ks-O1 to ks-O4), two (ks-O5 to ks-O8), a sidecar and a main (ks-O9 to ks-O12).
#[tokio::test]
async fn ks_o1_o12_no_container_changes_when_the_kubelet_restarts() -> Result<()> {
    let node = Containerd::start().await?;
    let kinds = [
        ("regular=main", &["regular"][..]),
        ("regular1=main, regular2=main", &["regular1", "regular2"]),
        ("s1=sidecar, regular=main", &["s1", "regular"]),
    ];
    let mut pods = Vec::new();
    for (plan, names) in kinds {
        for probes in PROBES {
            pods.push(observed(&node, plan, names, probes).await?);
        }
    }
    restart_containerd(&node).await?;
    for pod in pods {
        pod.check().await?;
    }
    Ok(())
}
