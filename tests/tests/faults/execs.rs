//! An exec whose client opens no side of its output: a client that was killed between its two steps.

use std::fs::File;

use anyhow::{Result, ensure};
use containerd_shim_protos::shim::shim::{
    CreateTaskRequest, CreateTaskResponse, DeleteRequest, DeleteResponse, ExecProcessRequest, KillRequest,
    StartRequest, StartResponse, WaitRequest, WaitResponse,
};
use containerd_shim_protos::types::empty::Empty;
use e2e::direct::bundle::{Bundle, process, root_file_system};
use e2e::direct::shim::{Binary, Connection};
use e2e::durations::{SOON, pace};
use e2e::task::unique;
use e2e::{Containerd, Runtime, wait};
use nix::sys::stat::Mode;
use protobuf::well_known_types::any::Any;

/// T10: its start waits for that client, and its container's end waits no longer than a second for the start.
#[tokio::test]
async fn t10_an_exec_that_no_client_reads_keeps_no_exit_back() -> Result<()> {
    let node = Containerd::connect().await?;
    let id = unique("unread");
    let directory = tempfile::tempdir()?;
    let binary = Binary::find(&node, Runtime::Podshim, id.clone(), directory.path())?;
    let bundle = directory.path().join(&id);
    Bundle::program(&["sleep", "1000"]).write(&bundle, &format!("{}/{id}", node.cgroup()))?;
    // containerd holds the other end of the log.
    let _log = File::options().read(true).write(true).open(bundle.join("log"))?;
    let unread = directory.path().join("stdout");
    nix::unistd::mkfifo(&unread, Mode::S_IRWXU)?;

    let started = binary.act("start", &id, &bundle, None).await?;
    ensure!(started.exit_code == Some(0), "{started:?}");
    let (shim, _) = Connection::open(&started.stdout).await?;
    let create = CreateTaskRequest {
        id: id.clone(),
        bundle: bundle.to_string_lossy().into_owned(),
        rootfs: vec![root_file_system(directory.path())?],
        ..Default::default()
    };
    shim.call::<_, CreateTaskResponse>("Create", &create).await?;
    shim.call::<_, StartResponse>("Start", &StartRequest { id: id.clone(), ..Default::default() }).await?;
    let exec = ExecProcessRequest {
        id: id.clone(),
        exec_id: "unread".to_owned(),
        stdout: unread.to_string_lossy().into_owned(),
        spec: Some(Any { value: process(&["sleep", "1000"]).to_string().into_bytes(), ..Default::default() })
            .into(),
        ..Default::default()
    };
    shim.call::<_, Empty>("Exec", &exec).await?;
    let start = StartRequest { id: id.clone(), exec_id: "unread".to_owned(), ..Default::default() };
    let started = {
        let shim = shim.clone();
        tokio::spawn(async move { shim.call::<_, StartResponse>("Start", &start).await })
    };
    tokio::time::sleep(pace() * std::time::Duration::from_millis(500)).await;
    ensure!(
        !started.is_finished(),
        "the start of an exec that no client reads has ended: {:?}",
        started.await?
    );

    let kill = KillRequest { id: id.clone(), signal: 9, ..Default::default() };
    shim.call::<_, Empty>("Kill", &kill).await?;
    let wait_for_exit = WaitRequest { id: id.clone(), ..Default::default() };
    let exit = async { Ok(shim.call::<_, WaitResponse>("Wait", &wait_for_exit).await?) };
    let exit = wait::at_most(SOON * pace(), "the exit of a container with such an exec", exit).await?;
    ensure!(exit.exit_status == 137, "it has ended with {}", exit.exit_status);
    let answer = started.await?;
    ensure!(answer.is_err(), "the exec was started: {answer:?}");
    shim.call::<_, DeleteResponse>("Delete", &DeleteRequest { id: id.clone(), ..Default::default() }).await?;
    shim.shutdown(&id).await;
    Ok(())
}
