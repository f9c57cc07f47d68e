//! The callers of the churn: some lanes side by side, each with one pod after another of the same name. A pod is begun
//! while its predecessor ends. A caller whose containerd is killed does what a kubelet does: it removes the pod when
//! containerd is back.

use std::cell::Cell;
use std::time::Duration;

use anyhow::{Context, Result};
use e2e::durations::{AMPLE, pace};
use e2e::pod::faults::is_of_a_cut_off_create;
use e2e::pod::remove_all_of;
use e2e::{Containerd, RunningPod, Runtime, wait};
use tokio::time::Instant;

use crate::lives::Life;
use crate::outages::Outages;

/// How many names are in use at once, each by up to two pods.
const LANES: usize = 3;

/// How many pods are begun from one outage to the next.
const PODS_BETWEEN_OUTAGES: usize = 10;

/// How long half a pod's life may take.
const LIMIT: Duration = AMPLE;

/// containerd's own shim leaves cgroups of pods that were cut off, which cannot be removed as empty ones: the run goes on.
const LIMIT_WITH_RUNC: Duration = Duration::from_secs(10);

/// How often a line says how far it is.
const PROGRESS: Duration = Duration::from_secs(30);

/// Whether containerd is killed meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kills {
    /// It is not.
    None,
    /// After every few pods.
    EveryFewPods,
}

/// A run of many pods.
#[derive(Debug)]
pub(crate) struct Run<'node> {
    node: &'node Containerd,
    runtime: Runtime,
    kills: Kills,
    count: usize,
    begun: Cell<usize>,
    ended: Cell<usize>,
    cut_off: Cell<usize>,
    outages: Outages,
}

/// A pod between its two halves.
struct Pod<'node> {
    life: Life,
    uid: String,
    running: Option<RunningPod<'node>>,
}

impl<'node> Run<'node> {
    /// Runs `count` pods to their end. Says how many its containerd cut off.
    pub(crate) async fn all(
        node: &'node Containerd,
        runtime: Runtime,
        kills: Kills,
        count: usize,
    ) -> Result<()> {
        let run = Self {
            node,
            runtime,
            kills,
            count,
            begun: Cell::default(),
            ended: Cell::default(),
            cut_off: Cell::default(),
            outages: Outages::default(),
        };
        let start = Instant::now();
        let lanes = async { wait::all((0..LANES).map(|lane| run.lane(lane))).await };
        let outages = async { if kills == Kills::EveryFewPods { run.outages().await } else { Ok(()) } };
        let progress = async {
            while run.ended.get() < count {
                wait::quiet_time(PROGRESS).await;
                run.report(start);
            }
        };
        let work = async { tokio::try_join!(lanes, outages) };
        tokio::select! {
            result = work => result.map(drop)?,
            () = progress => {}
        }
        run.report(start);
        Ok(())
    }

    fn report(&self, start: Instant) {
        println!(
            "{:?}, kills {:?}: {} of {} pods in {} s, {} outages cut off {}",
            self.runtime,
            self.kills,
            self.ended.get(),
            self.count,
            start.elapsed().as_secs(),
            self.outages.count(),
            self.cut_off.get(),
        );
    }

    async fn outages(&self) -> Result<()> {
        loop {
            let next = (self.outages.count() + 1) * PODS_BETWEEN_OUTAGES;
            while self.begun.get() < next {
                if self.ended.get() >= self.count {
                    return Ok(());
                }
                wait::quiet_time(Duration::from_millis(50)).await;
            }
            self.outages.happen(self.node).await?;
        }
    }

    async fn lane(&self, lane: usize) -> Result<()> {
        let mut previous = None;
        loop {
            let (ended, next) = tokio::join!(self.end(previous.take()), self.begin(lane));
            ended?;
            let Some(next) = next? else { return Ok(()) };
            previous = Some(next);
        }
    }

    async fn begin(&self, lane: usize) -> Result<Option<Pod<'node>>> {
        let number = self.begun.get();
        if number == self.count {
            return Ok(None);
        }
        self.begun.set(number + 1);
        let life = Life::of(number);
        let pod = life.pod(&format!("churn-{lane}"));
        let uid = pod.uid().to_owned();
        let running = self.unless_cut_off(&uid, life, life.begin(self.node, pod)).await?;
        Ok(Some(Pod { life, uid, running }))
    }

    async fn end(&self, pod: Option<Pod<'node>>) -> Result<()> {
        let Some(pod) = pod else { return Ok(()) };
        if let Some(running) = pod.running {
            let end = pod.life.end(self.node, self.runtime, running);
            self.unless_cut_off(&pod.uid, pod.life, end).await?;
        }
        self.ended.set(self.ended.get() + 1);
        Ok(())
    }

    /// The result of half a life. `None` if it failed because containerd was killed, meanwhile or in
    /// an earlier create: then the pod is removed.
    async fn unless_cut_off<T>(
        &self,
        uid: &str,
        life: Life,
        half: impl Future<Output = Result<T>>,
    ) -> Result<Option<T>> {
        self.outages.wait_over().await?;
        let outages = self.outages.count();
        let result = wait::at_most(LIMIT, "half a pod's life takes too long", half).await;
        let is_cut_off = |error: &anyhow::Error| {
            self.outages.count() != outages || outages > 0 && is_of_a_cut_off_create(&format!("{error:#}"))
        };
        match result {
            Err(error) if !is_cut_off(&error) => Err(error.context(format!("{life:?}, pod {uid}"))),
            Err(error) => {
                self.cut_off.set(self.cut_off.get() + 1);
                self.remove(uid).await.with_context(|| format!("{life:?}, which was cut off: {error:#}"))?;
                Ok(None)
            }
            Ok(value) => Ok(Some(value)),
        }
    }

    /// Removes a pod as often as it takes.
    async fn remove(&self, uid: &str) -> Result<()> {
        let limit = if self.runtime == Runtime::Runc { LIMIT_WITH_RUNC } else { 5 * LIMIT };
        let deadline = Instant::now() + limit * pace();
        loop {
            self.outages.wait_over().await?;
            let removed = tokio::time::timeout(LIMIT / 2, remove_all_of(self.node, uid)).await;
            match removed {
                Ok(Ok(())) => return Ok(()),
                // containerd 1.6 drops an exit that comes while it loads its containers, with any shim, and waits for it
                // for ever (docs/containerd.md, 6).
                Err(_) if self.node.version()? < (1, 7) => self.outages.happen(self.node).await?,
                _ if Instant::now() >= deadline && self.runtime == Runtime::Runc => return Ok(()),
                Ok(Err(error)) if Instant::now() >= deadline => return Err(error),
                Err(_) if Instant::now() >= deadline => anyhow::bail!("the pod {uid} cannot be removed"),
                _ => wait::quiet_time(Duration::from_millis(300)).await,
            }
        }
    }
}
