//! What a test needs beside its pod: a terminal for a command, and a server that is not the tests' own.

use std::fs::File;

use anyhow::Result;
use tokio::net::{TcpListener, UnixStream};
use tokio::task::JoinHandle;

use crate::ctr::Output;
use crate::instance::{Containerd, in_network_namespace};
use crate::pod::RunningPod;

/// Runs a command on a terminal of 33 rows. Its stdin is a fifo that never ends, because the end of a terminal's input
/// hangs the terminal up.
///
/// # Errors
/// It cannot be started.
pub async fn on_a_terminal(name: &str, node: &Containerd, command: &str) -> Result<Output> {
    let fifo = node.directory().join(format!("{name}.terminal"));
    let script = format!(
        "mkfifo {fifo}; script -qec 'stty rows 33 cols 77; {command}' /dev/null <>{fifo}; rm {fifo}",
        fifo = fifo.display()
    );
    node.ctr().output(&["--run", "timeout", "60", "sh", "-c", &script]).await
}

/// Serves the health service of the node's own containerd, a real gRPC server, at a port in the pod's network.
///
/// # Errors
/// The container is not there, or the port is taken.
pub async fn health_service(
    node: &Containerd,
    pod: &RunningPod<'_>,
    container: &str,
    port: u16,
) -> Result<JoinHandle<()>> {
    let pid = node.cri()?.container_pid(pod.id(container)?).await?;
    let network = File::open(format!("/proc/{pid}/ns/net"))?;
    let listener =
        in_network_namespace(network, move || Ok(std::net::TcpListener::bind(("127.0.0.1", port))?)).await?;
    listener.set_nonblocking(true)?;
    let (listener, socket) = (TcpListener::from_std(listener)?, node.directory().join("containerd.sock"));
    Ok(tokio::spawn(async move {
        while let (Ok((mut probe, _)), Ok(mut server)) =
            (listener.accept().await, UnixStream::connect(&socket).await)
        {
            tokio::spawn(async move { tokio::io::copy_bidirectional(&mut probe, &mut server).await });
        }
    }))
}
