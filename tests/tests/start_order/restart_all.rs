//! RestartAllContainers of a kubelet (T18, KEP-5532): it ends all containers of a living sandbox, removes them and makes them again.

use std::time::Duration;

use anyhow::{Result, ensure};
use e2e::Event::{Exiting, Starting};
use e2e::{Containerd, Pod, Program, RunningPod, Runtime};

use crate::support::{SOON, exit_with, seconds, wait_started};

/// How long a program may take from its exec, at which a bare gate opens (U1), to the line that it writes, on a busy processor.
const FIRST_TURN: Duration = Duration::from_millis(200);

const POLICIES: [&str; 3] = ["Always", "OnFailure", "Never"];

const INIT_FIRST: &str = "i1=init, s1=sidecar, app=main";
const SIDECAR_FIRST: &str = "s1=sidecar, i1=init, app=main";

async fn pod_under<'node>(node: &'node Containerd, policy: &str, plan: &str) -> Result<RunningPod<'node>> {
    Pod::new("restart-all")
        .annotate("plan", plan)
        .annotate("restart-policy", policy)
        .container(Program::new("i1").runs_for(seconds(1)).exits(0))
        .container(Program::new("s1"))
        // Of the exit code that a rule names.
        .container(Program::new("app").runs_for(seconds(1)).exits(42))
        .run(node, Runtime::Podshim)
        .await
}

/// T18, I5: the init is one of initContainers: its kubelet sees its exit before it creates the others, in the second round too.
#[tokio::test]
async fn t18_found_k3_an_init_container_runs_again() -> Result<()> {
    let node = Containerd::connect().await?;
    for policy in POLICIES {
        let mut pod = pod_under(&node, policy, INIT_FIRST).await?;
        pod.start("i1").await?;
        exit_with(&pod, &[("i1", 0)]).await?;
        pod.start_all(&["s1", "app"]).await?;
        exit_with(&pod, &[("app", 42)]).await?;
        pod.stop_all_at_once(seconds(30)).await?;
        pod.sync(&["i1"]).await?;
        exit_with(&pod, &[("i1", 0)]).await?;
        pod.start_all(&["s1", "app"]).await?;
        expect_second_round(&pod, ["i1", "s1", "app"]).await?;
        pod.remove().await?;
    }
    Ok(())
}

/// T18, U7: the init stands in `containers`: its kubelet makes all of them at once, one after another.
#[tokio::test]
async fn t18_found_k2_an_init_among_the_containers_runs_again() -> Result<()> {
    let node = Containerd::connect().await?;
    for (plan, order) in [(INIT_FIRST, ["i1", "s1", "app"]), (SIDECAR_FIRST, ["s1", "i1", "app"])] {
        for policy in POLICIES {
            let mut pod = pod_under(&node, policy, plan).await?;
            pod.start_all(&order).await?;
            exit_with(&pod, &[("app", 42)]).await?;
            pod.stop_all_at_once(seconds(30)).await?;
            pod.sync(&order).await?;
            expect_second_round(&pod, order).await?;
            pod.remove().await?;
        }
    }
    Ok(())
}

/// The second round has the order of the first.
async fn expect_second_round(pod: &RunningPod<'_>, order: [&str; 3]) -> Result<()> {
    pod.wait_for("app", Starting, 2, SOON).await?;
    let timeline = wait_started(pod, &order).await?;
    let second = |name, event| timeline.of(name, event).nth(1).map(|entry| entry.at);
    let begun = order.map(|name| second(name, Starting));
    let is_late = |pair: &[Option<Duration>]| pair[0] > pair[1].map(|at| at + FIRST_TURN);
    ensure!(begun[0].is_some() && !begun.windows(2).any(is_late), "not in their order:\n{timeline}");
    ensure!(second("i1", Exiting) <= second("app", Starting), "the main did not wait:\n{timeline}");
    ensure!(timeline.count("i1", Starting) == 2, "once in each round:\n{timeline}");
    Ok(())
}
