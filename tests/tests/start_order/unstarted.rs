//! A container that its caller has left between its create and its start (S14).

use anyhow::{Result, ensure};
use containerd_shim_protos::shim::shim::{
    CreateTaskResponse, DeleteRequest, DeleteResponse, WaitRequest, WaitResponse,
};
use e2e::direct::container::{create_request, shim_of};
use e2e::{Containerd, Pod, Program, Runtime};

use crate::support::wait_started;

/// S14: a main that was never started gives its name to the next one.
#[tokio::test]
async fn s14_a_main_takes_the_name_of_one_that_was_never_started() -> Result<()> {
    takes_the_name("app").await
}

/// Trap 33: containerd keeps the task of a kubelet that was killed, and CRI can neither start nor remove it. The kubelet's
/// next container of that name starts all the same.
#[tokio::test]
async fn trap_33_an_unstarted_sidecar_does_not_keep_its_name() -> Result<()> {
    takes_the_name("s1").await
}

/// The first task is created as containerd did it: CRI has no request that stops there.
async fn takes_the_name(name: &str) -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = Pod::new(&format!("s14-{name}"))
        .annotate("plan", "s1=sidecar, app=main")
        .container(Program::new("s1"))
        .container(Program::new("app"))
        .run(&node, Runtime::Podshim)
        .await?;
    let directory = tempfile::tempdir()?;
    let create = create_request(&node, &pod, name, directory.path())?;
    let shim = shim_of(&node, &pod).await?;
    shim.call::<_, CreateTaskResponse>("Create", &create).await?;

    pod.start_all(&["s1", "app"]).await?;
    wait_started(&pod, &["s1", "app"]).await?;
    let id = create.id;
    let wait = WaitRequest { id: id.clone(), ..Default::default() };
    let first = shim.call::<_, WaitResponse>("Wait", &wait).await?;
    ensure!(first.exit_status == 137, "{first:?}");
    shim.call::<_, DeleteResponse>("Delete", &DeleteRequest { id, ..Default::default() }).await?;
    pod.remove().await
}
