//! How long State takes with many requests in flight, on both shims in the same run. Talks to the shim's socket
//! directly, because containerd's own time would hide the shim's.

use std::rc::Rc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use containerd_shim_protos::api::{KillRequest, StateRequest};
use containerd_shim_protos::protobuf::Message;
use containerd_shim_protos::ttrpc::asynchronous::Client;
use containerd_shim_protos::ttrpc::{self};
use e2e::durations::pace;
use e2e::task::{NAMESPACE, Task};
use e2e::{Containerd, Runtime, Usage};
use tokio::time::Instant;

use super::share_of;

const IN_FLIGHT: usize = 32;
/// Every answer takes less, also a Kill of containerd's own shim, for which it runs the OCI runtime (times the machine's
/// [`pace`]).
const CALL_LIMIT: Duration = Duration::from_secs(10);
/// The 99th percentile of State's duration may not exceed this, unless containerd's own shim is slower too.
const STATE_LIMIT: Duration = Duration::from_millis(50);

struct Shim {
    client: Client,
    service: String,
}

impl Shim {
    async fn of(node: &Containerd, runtime: Runtime, task: &Task<'_>) -> Result<Self> {
        let address = format!("unix://{}", node.shim_socket(NAMESPACE, task.id())?.display());
        // containerd's own shim serves the task API version that its containerd asks for.
        let version = if runtime == Runtime::Runc && node.version()? >= (2, 0) { 3 } else { 2 };
        let client = Client::connect(&address).await.with_context(|| address.clone())?;
        Ok(Self { client, service: format!("containerd.task.v{version}.Task") })
    }

    async fn call(&self, method: &str, request: &impl Message) -> Result<()> {
        let request = ttrpc::Request {
            service: self.service.clone(),
            method: method.to_owned(),
            timeout_nano: (CALL_LIMIT * pace()).as_nanos().try_into()?,
            payload: request.write_to_bytes()?,
            ..Default::default()
        };
        self.client.request(request).await.with_context(|| method.to_owned()).map(drop)
    }
}

/// The 99th percentile of State's duration. Every other request is a signal that changes nothing.
async fn measure(node: &Containerd, runtime: Runtime) -> Result<Duration> {
    let task =
        Task::run(node, "requests", &["--runtime", runtime.runtime_type()], &["sleep", "3600"]).await?;
    let shim = Rc::new(Shim::of(node, runtime, &task).await?);
    let before =
        if runtime == Runtime::Podshim { Some((task.shim()?, Usage::of(task.shim()?)?)) } else { None };
    let each = share_of(10_000).div_ceil(IN_FLIGHT);
    let local = tokio::task::LocalSet::new();
    let lanes: Vec<_> = (0..IN_FLIGHT)
        .map(|_| {
            let (shim, id) = (shim.clone(), task.id().to_owned());
            local.spawn_local(async move {
                let state = StateRequest { id: id.clone(), ..Default::default() };
                let kill = KillRequest { id, signal: 18, ..Default::default() };
                let mut times = Vec::new();
                for turn in 0..each {
                    if turn % 2 == 1 {
                        shim.call("Kill", &kill).await?;
                        continue;
                    }
                    let begun = Instant::now();
                    shim.call("State", &state).await?;
                    times.push(begun.elapsed());
                }
                anyhow::Ok(times)
            })
        })
        .collect();
    let mut times = Vec::new();
    local
        .run_until(async {
            for lane in lanes {
                times.extend(lane.await??);
            }
            anyhow::Ok(())
        })
        .await?;
    drop(shim);
    if let Some((shim, before)) = before {
        before.wait_regained(shim).await?;
    }
    task.remove().await?;
    times.sort_unstable();
    let slowest = times[times.len() * 99 / 100];
    println!("{runtime:?}: {} requests, State at the 99th percentile {slowest:?}", IN_FLIGHT * each);
    Ok(slowest)
}

#[tokio::test]
async fn state_is_answered_as_fast_as_by_containerds_own_shim() -> Result<()> {
    let node = Containerd::connect().await?;
    let (theirs, ours) = (measure(&node, Runtime::Runc).await?, measure(&node, Runtime::Podshim).await?);
    // If both shims are slow, the machine is.
    ensure!(ours <= theirs.max(STATE_LIMIT), "{ours:?}, containerd's own shim {theirs:?}");
    Ok(())
}
