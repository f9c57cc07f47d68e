//! How fast the shim answers each request of the Task service, over its own socket.

use std::time::Duration;

use anyhow::Result;
use containerd_shim_protos::api::{
    Empty, ExecProcessRequest, StateRequest, StateResponse, StatsRequest, StatsResponse,
};
use e2e::direct::bundle::{Bundle, process};
use protobuf::well_known_types::any::Any;
use tokio::task::JoinSet;

use super::own_shim::{Addresses, OwnShim, Terminal};
use crate::contender::{Contender, SHIMS};
use crate::figures::{Figures, quantile};
use crate::rounds::{Bench, timed};

/// How many requests are in flight at once, where the measurement sends many.
const IN_FLIGHT: usize = 32;

/// How often a request is repeated whose answer takes microseconds.
const REPEATED: usize = 50;

pub async fn measure(bench: &Bench, figures: &mut Figures) -> Result<()> {
    let rounds = bench.choose(10, 3);
    let flood = bench.choose(10_000, 2_000);
    bench
        .alternate("rpc", rounds, &SHIMS, figures, async |contender, figures| {
            life(bench, contender, flood, figures).await
        })
        .await
}

async fn life(bench: &Bench, contender: Contender, flood: usize, figures: &mut Figures) -> Result<()> {
    let Some(runtime) = contender.handler() else { return Ok(()) };
    OwnShim::with(bench.node, runtime, async |shim| {
        shim.start_action("app", &Bundle::program(&["sleep", "1000"])).await?;
        figures.add_time("Create", contender, shim.create("app", &Addresses::default(), Terminal::No).await?);
        figures.add_time("Start", contender, shim.start("app", "").await?.1);
        let state = StateRequest { id: "app".to_owned(), ..Default::default() };
        let stats = StatsRequest { id: "app".to_owned(), ..Default::default() };
        for _ in 0..REPEATED {
            figures.add_time("State", contender, shim.call::<StateResponse>("State", &state).await?.1);
            figures.add_time("Stats", contender, shim.call::<StatsResponse>("Stats", &stats).await?.1);
            // SIGCONT does not affect a running program.
            figures.add_time("Kill", contender, shim.kill("app", libc::SIGCONT).await?);
        }
        exec(shim, contender, figures).await?;
        let times = flooded(shim, &state, flood).await?;
        let label = format!("State, {IN_FLIGHT} at once: 99th percentile");
        figures.add_time(&label, contender, Duration::from_secs_f64(quantile(times, 0.99)));
        let (killed, reported) = (shim.kill("app", libc::SIGKILL).await?, shim.wait("app", "").await?);
        figures.add_time("SIGKILL → the exit is reported", contender, killed + reported);
        figures.add_time("Delete", contender, shim.delete("app", "").await?);
        Ok(())
    })
    .await
}

async fn exec(shim: &OwnShim, contender: Contender, figures: &mut Figures) -> Result<()> {
    let spec = Any { value: process(&["true"]).to_string().into_bytes(), ..Any::default() };
    for number in 0..5 {
        let exec_id = format!("exec{number}");
        let request = ExecProcessRequest {
            id: "app".to_owned(),
            exec_id: exec_id.clone(),
            spec: Some(spec.clone()).into(),
            ..Default::default()
        };
        let exec = shim.call::<Empty>("Exec", &request).await?.1;
        let start = shim.start("app", &exec_id).await?.1;
        let wait = shim.wait("app", &exec_id).await?;
        figures.add_time("Exec, its Start and its end", contender, exec + start + wait);
        shim.delete("app", &exec_id).await?;
    }
    Ok(())
}

/// How long each of many requests takes, in seconds, with [`IN_FLIGHT`] of them at once.
async fn flooded(shim: &OwnShim, request: &StateRequest, count: usize) -> Result<Vec<f64>> {
    let mut callers = JoinSet::new();
    for _ in 0..IN_FLIGHT {
        let (connection, request) = (shim.connection()?.clone(), request.clone());
        callers.spawn(async move {
            let mut times = Vec::new();
            for _ in 0..count / IN_FLIGHT {
                let call = async { Ok(connection.call::<_, StateResponse>("State", &request).await?) };
                times.push(timed(call).await?.1.as_secs_f64());
            }
            anyhow::Ok(times)
        });
    }
    let mut times = Vec::new();
    while let Some(done) = callers.join_next().await {
        times.extend(done??);
    }
    Ok(times)
}
