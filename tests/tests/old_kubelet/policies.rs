//! Faults under each restart policy: kills by liveness and startup probes, commands that do not exist, changed images;
//! each also with a kubelet that is killed and started again in the middle. After the fault the pod does what its
//! policy says (I8, T12, T15, T16, J3, J10).
//!
//! These tests run with podshim alone: without an order, nothing can keep a pod from its end. The kubelets are the
//! tests' own: their node file sets how long a caller has to recreate what it stopped (`replace-wait`).

use std::fs::File;
use std::rc::Rc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::Event::{Started, Starting, Term};
use e2e::durations::seconds;
use e2e::static_pod::RestartPolicy::{self, Always, Never, OnFailure};
use e2e::{ContainerState, Kubelet, Manifest, Phase, PodStatus, Program, Runtime, StaticPod, wait};
use serde_json::{Value, json};
use tokio::sync::{Barrier, Semaphore};
use tokio::task::{JoinSet, LocalSet};

use crate::support::{SOON, probe};

/// A kubelet's back-off of ten seconds may come twice, and several pods share the machine.
const LIMIT: Duration = seconds(150);
/// Longer than a kubelet takes to recreate what it killed: it does so in the same sync, or after its own restart.
const NODE_FILE: &str = "replace-wait = \"15s\"";
/// How long a job's main works on after the fault has happened, so long that a kubelet acts on the fault before.
const WORK: Duration = seconds(10);
/// A container that the kubelet kills ends so slowly that the kubelet itself is killed first.
const SLOW_END: Duration = seconds(6);

/// The points at which the pods of one kubelet wait for each other.
struct Moments {
    all_run: Barrier,
    /// One permit for each pod whose fault has happened.
    befallen: Semaphore,
}

/// A fault in a pod of the sidecars s1 and s2 and the main app.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// A liveness probe kills it once.
    Liveness(&'static str),
    /// Liveness probes kill all three, one after another.
    LivenessOfEach,
    /// A liveness probe kills s1 while the main is held, as the gate of s2 is closed.
    LivenessWhileHeld,
    /// s2 ends, and its end is fatal.
    Fatal,
    /// The main's startup probe kills it while it is held.
    StartupOfHeld,
    /// The startup probe of s2 kills it before its gate is open.
    StartupOfSidecar,
    /// The container's command does not exist.
    Missing(&'static str),
    /// The manifest is changed to another image for the container.
    Image(&'static str),
}

/// Whether the kubelet is killed during the fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum KubeletLife {
    Whole,
    /// It is killed and started again, three times; the first time while the containers that it kills are ending.
    KilledInBetween,
}

impl KubeletLife {
    /// The faults to test. A killed kubelet forgets how often its probes have failed, so faults by counted failures are
    /// only for one that lives.
    fn faults(self) -> &'static [Fault] {
        match self {
            KubeletLife::Whole => &[
                Fault::Liveness("s1"),
                Fault::Liveness("s2"),
                Fault::Liveness("app"),
                Fault::LivenessOfEach,
                Fault::LivenessWhileHeld,
                Fault::Fatal,
                Fault::StartupOfHeld,
                Fault::StartupOfSidecar,
                Fault::Missing("s2"),
                Fault::Missing("app"),
                Fault::Image("s1"),
                Fault::Image("app"),
            ],
            KubeletLife::KilledInBetween => &[
                Fault::Liveness("s1"),
                Fault::Liveness("app"),
                Fault::Missing("app"),
                Fault::Image("s1"),
                Fault::Image("app"),
            ],
        }
    }
}

fn wedged(name: &str) -> String {
    format!("wedged-{name}")
}

impl Fault {
    fn program(self, policy: RestartPolicy, kubelet: KubeletLife, name: &str) -> Program {
        let program = match (name, policy) {
            // T15: if a 0 after the stop signal counted at once, it would complete the job.
            ("app", OnFailure) => Program::new(name).runs_for(WORK).runs_from("/pod/befallen"),
            ("app", Never) => Program::new(name).runs_for(WORK).runs_from("/pod/befallen").term_exit_code(4),
            _ => Program::new(name),
        };
        match self {
            Fault::Missing(of) if of == name => program.missing(),
            Fault::Fatal if name == "s2" => {
                program.exits(1).runs_for_each(&[seconds(0), WORK + LIMIT]).runs_from("/pod/end-s2")
            }
            Fault::Liveness(of) | Fault::Image(of)
                if of == name && kubelet == KubeletLife::KilledInBetween =>
            {
                program.term_delay(SLOW_END)
            }
            _ => program.ready_file("/tmp/ready", seconds(0)),
        }
    }

    fn fields(self, name: &str) -> Value {
        let not_wedged = format!("/pod/{}", wedged(name));
        match self {
            _ if self.kills_by_liveness().contains(&name) => {
                json!({ "livenessProbe": probe(&["test", "!", "-e", &not_wedged], 1) })
            }
            Fault::StartupOfHeld if name == "app" => {
                json!({ "startupProbe": probe(&["test", "-e", "/tmp/ready"], 3) })
            }
            Fault::StartupOfSidecar if name == "s2" => {
                json!({ "startupProbe": probe(&["test", "-e", "/pod/open"], 3) })
            }
            _ => json!({}),
        }
    }

    /// The containers that liveness probes kill, in that order.
    fn kills_by_liveness(self) -> &'static [&'static str] {
        match self {
            Fault::Liveness("s1") | Fault::LivenessWhileHeld => &["s1"],
            Fault::Liveness("s2") => &["s2"],
            Fault::Liveness(_) => &["app"],
            Fault::LivenessOfEach => &["s1", "s2", "app"],
            _ => &[],
        }
    }

    /// Whether the main must run before the fault.
    fn befalls_what_runs(self) -> bool {
        matches!(self, Fault::Liveness(_) | Fault::LivenessOfEach | Fault::Image(_))
    }

    /// Whether s2 has a gate, which the test opens.
    fn has_gate(self) -> bool {
        matches!(self, Fault::StartupOfHeld | Fault::StartupOfSidecar | Fault::LivenessWhileHeld)
    }

    /// Whether the fault hits only a sidecar. Such a fault ends the main under no policy, whether the main is held or
    /// not (T12a).
    fn spares_main(self) -> bool {
        matches!(
            self,
            Fault::Liveness("s1" | "s2")
                | Fault::Image("s1")
                | Fault::LivenessWhileHeld
                | Fault::StartupOfSidecar
        )
    }

    fn manifest(self, policy: RestartPolicy, kubelet: KubeletLife, name: &str) -> Manifest {
        let mut manifest = Manifest::new(name)
            .changeable()
            .policy(policy)
            .grace(seconds(20))
            .annotate("plan", "s1=sidecar, s2=sidecar, app=main");
        if self.has_gate() {
            manifest = manifest.annotate("ready.s2", "exec:test -e /pod/open;period=200ms;fail=10000");
        }
        if self == Fault::Fatal {
            manifest = manifest.annotate("fatal.s2", "failure");
        }
        for name in ["s1", "s2", "app"] {
            manifest = manifest.container_with(self.program(policy, kubelet, name), self.fields(name));
        }
        manifest
    }

    /// Whether the fault fails the main of a job: under Never a kubelet recreates neither a container that its probe
    /// killed nor one that it could not start.
    fn loses_main(self, policy: RestartPolicy) -> bool {
        policy == Never
            && matches!(
                self,
                Fault::Liveness("app")
                    | Fault::LivenessOfEach
                    | Fault::Fatal
                    | Fault::Missing("app" | "s2")
                    | Fault::StartupOfHeld
                    | Fault::StartupOfSidecar
            )
    }
}

/// Makes a liveness probe fail once.
async fn wedge(pod: &StaticPod<'_>, name: &str) -> Result<()> {
    let file = pod.directory().join(wedged(name));
    File::create(&file)?;
    pod.wait_for(name, Term, 1, SOON).await?;
    Ok(std::fs::remove_file(file)?)
}

/// Causes the fault, and undoes it where that is possible. Pods that must run before the fault wait for each other.
async fn apply(fault: Fault, pod: &StaticPod<'_>, changed: &Manifest, all_run: &Barrier) -> Result<()> {
    let touch = |name: &str| File::create(pod.directory().join(name)).map(drop);
    let runs = async {
        pod.wait_for("app", Started, 1, SOON).await?;
        pod.wait_seen(SOON).await
    };
    match fault {
        Fault::Missing(_) => {}
        Fault::Liveness(_) | Fault::LivenessOfEach => {
            let ran = runs.await;
            all_run.wait().await;
            ran?;
            for name in fault.kills_by_liveness() {
                wedge(pod, name).await?;
            }
        }
        Fault::LivenessWhileHeld => {
            pod.wait_for("s2", Started, 1, SOON).await?;
            pod.wait_status("that all containers run", SOON, all_are_running).await?;
            wedge(pod, "s1").await?;
            let ended = |status: &PodStatus| {
                status.of("s1").is_ok_and(|it| it.restarts > 0 || !it.state.is_running())
            };
            pod.wait_status("that the liveness probe has killed", LIMIT, ended).await?;
            touch("open")?;
        }
        Fault::Fatal => {
            runs.await?;
            touch("end-s2")?;
            pod.wait_for("app", Term, 1, SOON).await?;
        }
        Fault::Image(name) => {
            let ran = runs.await;
            all_run.wait().await;
            ran?;
            pod.change(changed)?;
            pod.wait_for(name, Term, 1, SOON).await?;
        }
        Fault::StartupOfHeld | Fault::StartupOfSidecar => {
            let name = if fault == Fault::StartupOfHeld { "app" } else { "s2" };
            let killed = |status: &PodStatus| {
                status.of(name).is_ok_and(|it| it.restarts > 0 || !it.state.is_running())
            };
            pod.wait_for("s2", Started, 1, SOON).await?;
            pod.wait_status("that all containers run", SOON, all_are_running).await?;
            pod.wait_status("that the startup probe has killed", LIMIT, killed).await?;
            touch("open")?;
        }
    }
    Ok(())
}

fn all_are_running(status: &PodStatus) -> bool {
    status.containers.iter().all(|container| container.state.is_running())
}

/// Checks what the policy promises for a job.
fn job_is_done(fault: Fault, policy: RestartPolicy, kubelet: KubeletLife, status: &PodStatus) -> Result<()> {
    let app = status.code("app");
    match fault {
        // U6, I2, I8: the gate that the main waited for can no longer open.
        Fault::Missing("s2") | Fault::StartupOfSidecar if policy == Never => {
            ensure!(app == Some(125), "{status:#?}");
            let ContainerState::Terminated { message, .. } = &status.of("app")?.state else {
                unreachable!("it has a code")
            };
            ensure!(message.contains("not started: sidecar \"s2\""), "{message}");
        }
        // A kubelet that is started after the main's end does not know that it had stopped the main. Under Never the
        // main has then ended for good.
        Fault::Image("app") if policy == Never && kubelet == KubeletLife::KilledInBetween => {
            ensure!(matches!(app, Some(0 | 4)), "{status:#?}");
        }
        _ if fault.loses_main(policy) => ensure!(app.is_some_and(|code| code != 0), "{status:#?}"),
        _ => ensure!(app == Some(0), "{status:#?}"),
    }
    ensure!(policy == Never || status.phase == Phase::Succeeded, "{status:#?}");
    Ok(())
}

/// The life of one pod: the fault, and the check that the pod then does what its policy says.
async fn life(
    kubelet: &Kubelet,
    (policy, kubelet_life): (RestartPolicy, KubeletLife),
    fault: Fault,
    moments: &Moments,
) -> Result<()> {
    let manifest =
        fault.manifest(policy, kubelet_life, &format!("{policy:?}-{}", name_of(fault)).to_lowercase());
    let changed = match fault {
        Fault::Image(name) => manifest.clone().with_image(name, "podshim.test/stops-by-hup:1"),
        _ => manifest.clone(),
    };
    let pod = manifest.run(kubelet)?;
    apply(fault, &pod, &changed, &moments.all_run).await?;
    File::create(pod.directory().join("befallen"))?;
    moments.befallen.add_permits(1);
    match (policy, fault) {
        // Under this policy the kubelet retries the container again and again, and the others live on.
        (Always | OnFailure, Fault::Missing(name)) => {
            let is_tried = |status: &PodStatus| status.of(name).is_ok_and(|it| it.restarts >= 1);
            let status = pod.wait_status("that it is tried again", LIMIT, is_tried).await?;
            let s1 = status.of("s1")?;
            ensure!(s1.state.is_running() && s1.restarts == 0, "{status:#?}");
        }
        (Never | OnFailure, _) => {
            let status = pod.wait_status("that the pod has ended", LIMIT, PodStatus::has_ended).await?;
            job_is_done(fault, policy, kubelet_life, &status)?;
            ensure!(!fault.spares_main() || status.of("app")?.restarts == 0, "{status:#?}");
        }
        (Always, _) => {
            let status = pod.wait_seen(LIMIT).await?;
            ensure!(!fault.spares_main() || status.of("app")?.restarts == 0, "{status:#?}");
            let again = fault.kills_by_liveness().contains(&"app")
                || matches!(fault, Fault::Image("app") | Fault::Fatal);
            let starts = if again { 2 } else { 1 };
            let timeline = pod.wait_for("app", Started, starts, LIMIT).await?;
            ensure!(timeline.count("app", Starting) == starts, "{timeline}");
        }
    }
    pod.delete()?;
    pod.wait_ended(LIMIT).await?;
    Ok(())
}

fn name_of(fault: Fault) -> String {
    let text = format!("{fault:?}").replace(['"', ')'], "").replace('(', "-");
    text.to_lowercase()
}

/// All faults under one policy, each in a pod of its own, under one kubelet.
async fn every_row(policy: RestartPolicy, kubelet_life: KubeletLife) -> Result<()> {
    let kubelet = Kubelet::start(Runtime::Podshim).await?;
    kubelet.node().write_node_file(NODE_FILE).await?;
    let faults = kubelet_life.faults();
    let kubelet = Rc::new(kubelet);
    let run_before = faults.iter().filter(|fault| fault.befalls_what_runs()).count();
    let moments = Rc::new(Moments { all_run: Barrier::new(run_before), befallen: Semaphore::new(0) });
    let lives = async {
        let mut lives = JoinSet::new();
        for fault in faults.iter().copied() {
            let (kubelet, moments) = (Rc::clone(&kubelet), Rc::clone(&moments));
            lives.spawn_local(async move {
                let lived = life(&kubelet, (policy, kubelet_life), fault, &moments).await;
                if lived.is_err() {
                    // Otherwise the kubelet's kill would wait for this pod's fault.
                    moments.befallen.add_permits(1);
                }
                lived.with_context(|| format!("{policy:?}, {fault:?}"))
            });
        }
        lives.join_all().await
    };
    let restarts = async {
        if kubelet_life == KubeletLife::KilledInBetween {
            // Wait until no Start is under way. A kubelet that is killed in the middle of a Start cancels it, and under
            // Never does not recreate that container: that would be another fault than the one under test.
            drop(moments.befallen.acquire_many(u32::try_from(faults.len())?).await?);
            wait::quiet_time(seconds(1)).await;
            for _ in 0..3 {
                kubelet.kill().await?;
                kubelet.start_again().await?;
                wait::quiet_time(seconds(4)).await;
            }
        }
        Ok(())
    };
    let both = async { tokio::join!(lives, restarts) };
    let (results, restarts): (Vec<Result<()>>, Result<()>) = LocalSet::new().run_until(both).await;
    let failures: Vec<_> =
        results.into_iter().filter_map(Result::err).map(|error| format!("{error:#}")).collect();
    ensure!(failures.is_empty(), "{} of {} pods:\n{}", failures.len(), faults.len(), failures.join("\n\n"));
    restarts
}

#[tokio::test]
async fn i8_t15_t16_every_row_under_never() -> Result<()> {
    every_row(Never, KubeletLife::Whole).await
}

#[tokio::test]
async fn j10_t15_t16_every_row_under_on_failure() -> Result<()> {
    every_row(OnFailure, KubeletLife::Whole).await
}

#[tokio::test]
async fn t12_t16_every_row_under_always() -> Result<()> {
    every_row(Always, KubeletLife::Whole).await
}

#[tokio::test]
async fn n2_i8_t15_every_row_under_never_with_a_kubelet_that_is_killed() -> Result<()> {
    every_row(Never, KubeletLife::KilledInBetween).await
}

#[tokio::test]
async fn n2_j10_t15_every_row_under_on_failure_with_a_kubelet_that_is_killed() -> Result<()> {
    every_row(OnFailure, KubeletLife::KilledInBetween).await
}

#[tokio::test]
async fn n2_t12_every_row_under_always_with_a_kubelet_that_is_killed() -> Result<()> {
    every_row(Always, KubeletLife::KilledInBetween).await
}
