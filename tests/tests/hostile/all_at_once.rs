//! All attacks at once, beside a good pod whose starts and stops must stay punctual.

use std::net::TcpStream;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use e2e::durations::{near, pace};
use e2e::fuse::{ENDLESS, Fuse};
use e2e::{Containerd, Pod, Program, RunningPod, Runtime, wait};

use crate::children::stormy;
use crate::leases::with_leases;
use crate::messages::{Flood, send_lingering};
use crate::probes::{addressed, filtered, maze};
use crate::support::{EndsWithTest, ensure_serving};
use crate::work::{begin_stop, large_pattern, probing, restarting, start, stopping};

/// How long a good sidecar takes to end after its main, in each round.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// How much longer the good pod's stop may take under this load.
const TOLERANCE: Duration = Duration::from_secs(4);
/// How long the start of the good pod's sandbox and of its two containers may take under it, which is most of all the OCI runtime's.
const STARTED: Duration = Duration::from_secs(10);
/// Writers of `oom_score_adj`, for which the kernel has one lock.
const WRITERS: usize = 8;

/// Rounds of good pods: `hack/stress --hostile` runs more of them.
fn rounds() -> usize {
    std::env::var("PODSHIM_HOSTILE_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(3)
}

/// Hostile pods, each with a container in which an exec must be served all the time.
#[derive(Default)]
struct Crowd<'node> {
    pods: Vec<(RunningPod<'node>, &'static str)>,
    ends: Vec<EndsWithTest>,
}

impl<'node> Crowd<'node> {
    /// Before its containers are started, so that what a failed test leaves ends.
    fn join(&mut self, pod: RunningPod<'node>, served: &'static str) -> Result<&mut RunningPod<'node>> {
        self.ends.push(EndsWithTest::of(&pod)?);
        self.pods.push((pod, served));
        let Some((pod, _)) = self.pods.last_mut() else { unreachable!("it was just pushed") };
        Ok(pod)
    }

    async fn ensure_serving(&self) -> Result<()> {
        for (pod, served) in &self.pods {
            ensure_serving(pod, served).await?;
        }
        Ok(())
    }

    async fn end(self) -> Result<()> {
        for (pod, _) in self.pods {
            wait::at_most(Duration::from_secs(50), "a hostile pod cannot be stopped", pod.stop_sandbox())
                .await?;
            pod.remove().await?;
        }
        Ok(())
    }
}

/// A flood of lines, descriptors whose close lingers, a flood of messages, a file system that does not answer. Returns what goes on
/// from outside of the pod until it is dropped.
async fn streams_and_sockets<'node>(
    node: &'node Containerd,
    crowd: &mut Crowd<'node>,
    fuse: &Fuse,
) -> Result<(Vec<TcpStream>, Flood)> {
    let flood = "yes bbbbbbbbbbbbbbbb & while true; do head -c 16000 /dev/zero | tr '\\0' b; echo; done &";
    let pod = Pod::new("hostile")
        .annotate("plan", "log+mail+flood+file=sidecar, app=main")
        .annotate("ready.flood", "notify;fail=100000")
        .annotate("ready.log", &large_pattern())
        .annotate("ready.mail", "notify;fail=100000")
        .annotate("ready.file", &format!("file:/fuse/{ENDLESS};period=100ms;timeout=200ms;fail=100000"))
        .kubelet_grace(Duration::from_secs(i64::MAX.unsigned_abs()))
        .container(Program::new("log").begins_with_script(flood))
        .container(Program::new("mail").ignores_term())
        .container(Program::new("flood"))
        .container(Program::new("file").mount(fuse.path(), "/fuse"))
        .container(Program::new("app"))
        .run(node, Runtime::Podshim)
        .await?;
    let pod = crowd.join(pod, "mail")?;
    pod.start_all(&["log", "mail", "flood", "file", "app"]).await?;
    Ok((send_lingering(node, pod, "mail")?, Flood::begin(node, pod, "flood")?))
}

/// What makes others work: restarts, also in a stop without end, and probes of each kind.
async fn work<'node>(node: &'node Containerd, crowd: &mut Crowd<'node>) -> Result<()> {
    let restarts = crowd.join(restarting(5).run(node, Runtime::Podshim).await?, "app")?;
    start(restarts, 5).await?;
    let stop = crowd.join(stopping(5).run(node, Runtime::Podshim).await?, "deaf")?;
    begin_stop(stop, 5).await?;
    let probes = crowd.join(probing(5).run(node, Runtime::Podshim).await?, "s1")?;
    start(probes, 5).await?;
    crowd.join(maze().run(node, Runtime::Podshim).await?, "s1")?.start("s1").await?;
    crowd.join(filtered(node).await?, "s1")?;
    crowd.join(addressed(node).await?, "s1")?;
    Ok(())
}

/// What holds locks of the kernel, or keeps them busy, and what wakes the shim.
async fn locks_and_signals<'node>(node: &'node Containerd, crowd: &mut Crowd<'node>) -> Result<()> {
    let holding = Pod::new("holding").container(Program::new("holder").holds_stdout());
    let holding = holding.container(Program::new("other")).run(node, Runtime::Podshim).await?;
    crowd.join(holding, "other")?.start_all(&["other", "holder"]).await?;
    crowd.join(with_leases(node, "leasing").await?, "other")?;
    let storm = stormy("siblings").run(node, Runtime::Podshim).await?;
    crowd.join(storm, "other")?.start_all(&["other", "stormy"]).await?;
    let writer = "(while :; do echo 500 >/proc/self/oom_score_adj; done) &\n".repeat(WRITERS);
    let scores = Pod::new("scores").container(Program::new("writer").begins_with_script(&writer));
    let scores = scores.container(Program::new("other")).run(node, Runtime::Podshim).await?;
    crowd.join(scores, "other")?.start_all(&["other", "writer"]).await
}

#[expect(clippy::disallowed_methods, reason = "a test measures")]
fn now() -> Instant {
    Instant::now()
}

/// The times of one good pod beside all that: of its start, and of its stop in order.
async fn good_pod(node: &Containerd) -> Result<[Duration; 2]> {
    let begun = now();
    let mut good = Pod::new("good")
        .annotate("plan", "s1=sidecar, app=main")
        .container(Program::new("s1").term_delay(LAST_WORDS))
        .container(Program::new("app"))
        .run(node, Runtime::Podshim)
        .await?;
    good.start_all(&["s1", "app"]).await?;
    let started = begun.elapsed();
    ensure_serving(&good, "app").await?;
    let begun = now();
    good.stop_all_at_once(Duration::from_secs(30)).await?;
    let stopped = begun.elapsed();
    good.timeline()?.exits_before("app", "s1")?;
    good.remove().await?;
    Ok([started, stopped])
}

#[tokio::test]
async fn a_good_pod_stays_punctual_beside_all_of_them() -> Result<()> {
    let node = Containerd::connect().await?;
    let fuse = Fuse::mount(&node, "all").await?;
    fuse.falls_silent();
    let (mut crowd, begun) = (Crowd::default(), now());
    let going_on = streams_and_sockets(&node, &mut crowd, &fuse).await?;
    work(&node, &mut crowd).await?;
    locks_and_signals(&node, &mut crowd).await?;
    println!("{} hostile pods after {:?}", crowd.pods.len(), begun.elapsed());
    for round in 0..rounds() {
        let [started, stopped] = good_pod(&node).await?;
        println!("round {round}: started in {started:?}, stopped in {stopped:?}");
        ensure!(started <= STARTED * pace(), "the good pod's start took {started:?}");
        ensure!(near(stopped, LAST_WORDS, TOLERANCE), "the good pod's stop took {stopped:?}");
        crowd.ensure_serving().await?;
    }
    println!("their end begins after {:?}", begun.elapsed());
    crowd.end().await?;
    println!("their end after {:?}", begun.elapsed());
    drop(going_on);
    fuse.end().await
}
