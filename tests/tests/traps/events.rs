//! Traps about events: each exit is published once, in its place, with its code, whatever happens at the same time.

use anyhow::{Context, Result, ensure};
use e2e::instance::signal;
use e2e::pod::PidNamespace;
use e2e::{Containerd, EventLog, Pod, Program, Runtime, TaskEvent, wait};

use e2e::durations::SOON;
use e2e::task::{Task, shell, shim_pid, unique};

/// Rounds and execs of the race between the exits of an init and of its execs.
const ROUNDS: usize = 20;
const EXECS: usize = 5;

/// Checks that the events have exactly these topics, in this order.
fn ensure_order(events: &[TaskEvent], expected: &[&str]) -> Result<()> {
    let found: Vec<_> = events.iter().map(|event| event.topic.as_str()).collect();
    ensure!(found == expected, "{found:?}, not {expected:?}: {events:#?}");
    Ok(())
}

fn is_inits_exit(event: &TaskEvent) -> bool {
    event.topic == "exit" && event.exec.is_none()
}

/// The shim's events. containerd 2.1 publishes an exit and a deletion of its own, one after the other, when a Delete has taken longer
/// than CRI's 10 s and the next one finds no task.
fn without_containerds_own(mut events: Vec<TaskEvent>) -> Vec<TaskEvent> {
    let is_pair = |pair: &[TaskEvent]| is_inits_exit(&pair[0]) && pair[1].topic == "delete";
    if events.iter().filter(|event| is_inits_exit(event)).count() == 2
        && let Some(at) = events.windows(2).position(is_pair)
    {
        events.drain(at..at + 2);
    }
    events
}

/// Trap 7: without a PID namespace of its own the init's end does not end the execs. Their exits must still be
/// published before its own, or clients that wait for them hang.
#[tokio::test]
async fn trap_07_an_execs_exit_comes_before_its_inits() -> Result<()> {
    let node = Containerd::connect().await?;
    let log = EventLog::record(&node).await?;
    let names: Vec<_> = (0..ROUNDS).map(|round| format!("app{round}")).collect();
    let mut pod = Pod::new("trap07").pid_namespace(PidNamespace::Pod);
    for name in &names {
        pod = pod.container(Program::new(name));
    }
    let mut pod = pod.run(&node, Runtime::Podshim).await?;
    for name in &names {
        pod.start(name).await?;
        let id = pod.id(name)?;
        shell(
            &node,
            &format!(
                "for i in $(seq {EXECS}); do
                     ctr -n k8s.io task exec -d --exec-id e$i {id} sleep 600 & all=\"$all $!\"
                 done
                 for one in $all; do wait $one || exit; done"
            ),
        )
        .await?;
    }
    for name in &names {
        signal(node.cri()?.container_pid(pod.id(name)?).await?, libc::SIGKILL)?;
    }
    for name in &names {
        let id = pod.id(name)?;
        let ended = wait::until("the init's exit after its execs'", SOON, async || {
            let mut exits = without_containerds_own(log.of(id)?);
            exits.retain(|event| event.topic == "exit");
            let last_is_inits = exits.last().is_some_and(is_inits_exit);
            Ok((exits.len() == EXECS + 1 && last_is_inits).then_some(exits))
        });
        let exits = ended.await.with_context(|| format!("{name}: {:#?}", log.of(id)))?;
        ensure!(exits.iter().all(|exit| exit.exit_status == 137), "{name}: {exits:#?}");
    }
    pod.remove().await
}

/// Trap 8: even if a program ends before its start event is published, the start event comes first, and each event
/// once.
#[tokio::test]
async fn trap_08_an_early_exit_comes_after_its_start() -> Result<()> {
    let node = Containerd::connect().await?;
    let log = EventLog::record(&node).await?;
    let prefix = unique("trap08");
    // Five at a time: the race needs a busy machine.
    shell(
        &node,
        &format!(
            "seq 50 | xargs -P 5 -I N sh -ec '
                 ctr run -d --runtime {runtime} podshim.test/busybox:1 {prefix}-N true
                 until ctr task rm {prefix}-N 2>/dev/null; do sleep 0.05; done
                 ctr container rm {prefix}-N'",
            runtime = Runtime::Podshim.runtime_type(),
        ),
    )
    .await?;
    for number in 1..=50 {
        let id = format!("{prefix}-{number}");
        let events = log.wait_for(&id, SOON, |event| event.topic == "delete").await?;
        ensure_order(&events, &["create", "start", "exit", "delete"])?;
        e2e::Footprint::of_containers(&[&id]).wait_gone(&node, SOON).await?;
    }
    Ok(())
}

/// Trap 9: a storm of exits, most of them of orphans that only the shim reaps: none is lost, none is published twice.
#[tokio::test]
async fn trap_09_no_exit_is_lost_in_a_storm() -> Result<()> {
    let node = Containerd::connect().await?;
    let log = EventLog::record(&node).await?;
    // In the node's PID namespace orphans become children of the shim.
    let storm = "i=0; while [ $i -lt 3000 ]; do (sleep 0.01 &); i=$((i + 1)); done";
    let mut pod = Pod::new("trap09")
        .pid_namespace(PidNamespace::Node)
        .container(Program::new("quiet"))
        .container(Program::new("storm").begins_with_script(storm))
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start_all(&["quiet", "storm"]).await?;
    let id = pod.id("quiet")?;
    // Every exec leaves three orphans and has a code of its own; `ctr task exec` ends with that code.
    let codes = shell(
        &node,
        &format!(
            "seq 200 | xargs -P 8 -I N sh -c '
                 ctr -n k8s.io task exec --exec-id eN {id} sh -c \"for n in 1 2 3; do (sleep 0.0\\$n &) ; done; exit \\$((N % 100))\"
                 echo N $?'"
        ),
    )
    .await?;
    let mut reported = 0;
    for line in codes.lines() {
        let (number, code) = line.split_once(' ').unwrap_or_default();
        ensure!(code.parse::<u32>()? == number.parse::<u32>()? % 100, "exec {number} ended with {code}");
        reported += 1;
    }
    ensure!(reported == 200, "{reported} of 200 execs: {codes}");
    let last = |event: &TaskEvent| event.topic == "exit" && event.exec.as_deref() == Some("e200");
    log.wait_for(id, SOON, last).await?;
    let mut repeated = 0;
    for number in 1..=200u64 {
        let exec = format!("e{number}");
        let is_exit = |event: &TaskEvent| event.topic == "exit" && event.exec.as_ref() == Some(&exec);
        let events = log.wait_for(id, SOON, is_exit).await?;
        let mut own: Vec<_> = events.into_iter().filter(|event| event.exec.as_ref() == Some(&exec)).collect();
        let received = own.len();
        own.dedup();
        repeated += received - own.len();
        ensure_order(&own, &["exec-added", "exec-started", "exit"])?;
        ensure!(own[2].exit_status == number % 100, "{own:#?}");
    }
    // A containerd that has not answered for five seconds gets an event again: on a busy machine one of 600.
    ensure!(repeated <= 3, "{repeated} events came twice");
    // The shim has reaped all orphans: it has no dead child.
    pod.wait_for("storm", e2e::Event::Started, 1, SOON).await?;
    let shim = shim_pid(&pod.leftovers()?)?;
    e2e::wait::until("the shim to have reaped all", SOON, async || {
        let children = std::fs::read_to_string(format!("/proc/{shim}/task/{shim}/children"))?;
        let dead = children.split_whitespace().filter_map(|pid| pid.parse().ok());
        Ok((!dead.into_iter().any(|pid| !e2e::instance::is_alive(pid))).then_some(()))
    })
    .await?;
    pod.remove().await
}

/// Trap 16: `delete` reports the exit code that the shim saw before it died, not 137.
#[tokio::test]
async fn trap_16_a_dead_shims_exits_keep_their_codes() -> Result<()> {
    let node = Containerd::connect().await?;
    let log = EventLog::record(&node).await?;
    let task = Task::run(&node, "trap16", &[], &["sh", "-c", "exit 3"]).await?;
    log.wait_for(task.id(), SOON, |event| event.topic == "exit").await?;
    signal(task.shim()?, libc::SIGKILL)?;
    let events = log.wait_for(task.id(), SOON, |event| event.topic == "delete").await?;
    let codes: Vec<_> = events
        .iter()
        .filter(|event| matches!(event.topic.as_str(), "exit" | "delete"))
        .map(|event| event.exit_status)
        .collect();
    ensure!(codes.len() >= 2 && codes.iter().all(|code| *code == 3), "{events:#?}");
    task.remove().await
}

/// Trap 16, the other half: a container that ran when its shim was killed ends too, and is reported as killed.
#[tokio::test]
async fn trap_16_what_a_dead_shim_ran_is_reported_as_killed() -> Result<()> {
    let node = Containerd::connect().await?;
    let log = EventLog::record(&node).await?;
    let task = Task::run(&node, "trap16-live", &[], &["sleep", "600"]).await?;
    signal(task.shim()?, libc::SIGKILL)?;
    let events = log.wait_for(task.id(), SOON, |event| event.topic == "delete").await?;
    let exits: Vec<_> = events.iter().filter(|event| event.topic == "exit").collect();
    ensure!(exits.len() == 1 && exits[0].exit_status == 137, "{events:#?}");
    task.remove().await
}

/// Trap 17: a container whose Create failed has no exit, neither from the shim nor from `delete`; the user gets the
/// runtime's error.
#[tokio::test]
async fn trap_17_a_failed_create_has_no_exit() -> Result<()> {
    let node = Containerd::connect().await?;
    let log = EventLog::record(&node).await?;
    let task = Task::named(&node, "trap17");
    let output = task.attempt(&[], &["/no/such/program"]).await?;
    ensure!(output.exit_code != Some(0) && output.stderr.contains("/no/such/program"), "{output:?}");
    // Events come in order, so an event of the failed create would have come before this one.
    let after = Task::run(&node, "trap17-after", &[], &["true"]).await?;
    log.wait_for(after.id(), SOON, |event| event.topic == "exit").await?;
    let events = log.of(task.id())?;
    ensure!(events.is_empty(), "{events:#?}");
    after.remove().await?;
    task.remove().await
}
