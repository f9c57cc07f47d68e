//! What `kubectl describe pod` shows of a pod's life.

use anyhow::{Result, ensure};
use e2e::durations::seconds;
use e2e::{Cluster, Manifest, Program, Workload};

use super::{Agents, only_pod};
use crate::support::SOON;

/// U10, U4, R6: a hold, a gate's failure and a restart in place, in the words of `podshim ps`. The README shows what it prints.
#[tokio::test]
async fn describe_has_a_hold_a_gates_failure_and_a_restart() -> Result<()> {
    let cluster = Cluster::connect()?;
    let agents = Agents::install(&cluster).await?;
    // Its first run ends, its second one is never ready, and its third one is late.
    let script = "read n </tmp/run || n=0; echo $((n + 1)) >/tmp/run
        [ $n != 0 ] || { sleep 2; exit 1; }
        [ $n != 1 ] || { trap 'exit 3' TERM; sleep 600 & wait; }";
    let proxy = Program::new("proxy").begins_with_script(script).listens(8080, seconds(4));
    let manifest = Manifest::new("described")
        .annotate("plan", "proxy=sidecar, app=main")
        .annotate("ready.proxy", "tcp::8080;period=100ms;fail=60")
        .container(proxy)
        .container(Program::new("app"));
    let workload = Workload::pod(manifest).run(&cluster).await?;
    let pod = only_pod(&workload).await?;
    let story = agents
        .wait_story(
            &pod.name,
            &[
                "Normal .. Held .. podshim.io/agent .. \"app\" is held for 10s, waiting for sidecar \"proxy\"",
                "Warning .. GateFailed .. podshim.io/agent .. the gate of \"proxy\" failed: ",
                "Warning .. Restarted .. podshim.io/agent .. \"proxy\" exited with 1, and podshim started it again in place",
            ],
        )
        .await?;
    println!("{story}");
    // A person reads how old each is.
    let own: Vec<&str> = story.lines().filter(|line| line.contains("podshim.io/agent")).collect();
    ensure!(own.iter().all(|line| !line.contains("<unknown>")), "{own:#?}");
    workload.wait_event(&pod.name, ("app", e2e::Event::Started), 1, SOON).await?;
    workload.delete(SOON).await?;
    // The kubelet's restart count is 0 for what podshim restarted: all that Kubernetes knows of it is the event.
    ensure!(pod.status.containers.iter().all(|one| one.restarts == 0), "{pod:#?}");
    Ok(())
}

/// T9: a stop, its cause and its spent budget; the pod is gone when a person looks, and its events are not.
#[tokio::test]
async fn a_spent_budget_is_an_event() -> Result<()> {
    let cluster = Cluster::connect()?;
    let agents = Agents::install(&cluster).await?;
    let manifest = Manifest::new("spent")
        .annotate("plan", "proxy=sidecar, app=main")
        .annotate("grace", "4s")
        .container(Program::new("proxy").ignores_term())
        .container(Program::new("app").ignores_term());
    let workload = Workload::pod(manifest).run(&cluster).await?;
    let pod = only_pod(&workload).await?;
    workload.wait_event(&pod.name, ("app", e2e::Event::Started), 1, SOON).await?;
    workload.delete(SOON).await?;
    let events = agents.wait_reasons(&pod.uid, &["StopBegan", "BudgetSpent", "ForcedKill"]).await?;
    let note = |reason: &str| events.iter().find(|(own, ..)| own == reason).map(|(_, note, _)| note.as_str());
    ensure!(note("StopBegan") == Some("the stop begins (caller), within 4s"), "{events:#?}");
    ensure!(
        note("BudgetSpent") == Some("the stop's time is over: podshim kills what is left"),
        "{events:#?}"
    );
    Ok(())
}

/// A pod on another runtime has no event of the agent's, and a pod on podshim without a plan neither.
#[tokio::test]
async fn pods_without_a_plan_have_no_story() -> Result<()> {
    let cluster = Cluster::connect()?;
    let agents = Agents::install(&cluster).await?;
    let plain = |name: &str| Manifest::new(name).container(Program::new("app"));
    let without = Workload::pod(plain("no-plan")).run(&cluster).await?;
    let runc = Workload::pod(plain("on-runc")).on(e2e::Runtime::Runc).run(&cluster).await?;
    let (one, two) = (only_pod(&without).await?, only_pod(&runc).await?);
    without.delete(SOON).await?;
    runc.delete(SOON).await?;
    for pod in [one, two] {
        let events = agents.events(&pod.uid).await?;
        ensure!(events.is_empty(), "{events:#?}");
    }
    Ok(())
}
