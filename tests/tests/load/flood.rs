//! Every byte of a container's output arrives at the reader of its fifo.
//!
//! The test is that reader, and talks to the shim itself: under load `ctr` 1.6 loses the end of an output, with either
//! shim, because it leaves when the task is deleted.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::thread;

use anyhow::{Context, Result, anyhow, ensure};
use containerd_shim_protos::shim::shim::{
    CreateTaskRequest, CreateTaskResponse, DeleteRequest, DeleteResponse, StartRequest, StartResponse,
    WaitRequest, WaitResponse,
};
use e2e::direct::bundle::{Bundle, root_file_system};
use e2e::direct::shim::{Binary, Connection};
use e2e::durations::{AMPLE, pace};
use e2e::task::unique;
use e2e::{Containerd, Runtime, wait};
use nix::sys::stat::Mode;

use crate::share_of;

#[tokio::test]
async fn a_flood_of_output_arrives_whole() -> Result<()> {
    let node = Containerd::connect().await?;
    let (id, count) = (unique("flood"), share_of(1024));
    let directory = tempfile::tempdir()?;
    let binary = Binary::find(&node, Runtime::Podshim, id.clone(), directory.path())?;
    let bundle = directory.path().join(&id);
    Bundle::program(&["dd", "if=/dev/zero", "bs=1M", &format!("count={count}")])
        .write(&bundle, &format!("{}/{id}", node.cgroup()))?;
    // containerd holds the other end of the log.
    let _log = File::options().read(true).write(true).open(bundle.join("log"))?;
    let output = directory.path().join("stdout");
    nix::unistd::mkfifo(&output, Mode::S_IRWXU)?;

    let started = binary.act("start", &id, &bundle, None).await?;
    ensure!(started.exit_code == Some(0), "{started:?}");
    let (shim, _) = Connection::open(&started.stdout).await?;
    let create = CreateTaskRequest {
        id: id.clone(),
        bundle: bundle.to_string_lossy().into_owned(),
        rootfs: vec![root_file_system(directory.path())?],
        stdout: output.to_string_lossy().into_owned(),
        ..Default::default()
    };
    let reader = thread::spawn(move || length_of(&output));
    shim.call::<_, CreateTaskResponse>("Create", &create).await?;
    shim.call::<_, StartResponse>("Start", &StartRequest { id: id.clone(), ..Default::default() }).await?;
    let wait_for_exit = WaitRequest { id: id.clone(), ..Default::default() };
    let exit = async { Ok(shim.call::<_, WaitResponse>("Wait", &wait_for_exit).await?) };
    let exit = wait::at_most(AMPLE * pace(), "the end of a flood", exit).await?;
    ensure!(exit.exit_status == 0, "dd has ended with {}", exit.exit_status);
    shim.call::<_, DeleteResponse>("Delete", &DeleteRequest { id: id.clone(), ..Default::default() }).await?;
    let arrived = reader.join().map_err(|_| anyhow!("the reader panicked"))?.context("cannot read")?;
    shim.shutdown(&id).await;
    ensure!(arrived == count << 20, "{arrived} of {} bytes", count << 20);
    println!("{count} MiB of output");
    Ok(())
}

/// How many bytes come out of a fifo.
fn length_of(fifo: &Path) -> std::io::Result<usize> {
    let (mut file, mut buffer, mut length) = (File::open(fifo)?, vec![0; 65536], 0);
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(length),
            more => length += more,
        }
    }
}
