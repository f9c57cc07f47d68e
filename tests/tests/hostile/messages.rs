//! The notify socket.

use std::fs::File;
use std::io::{IoSlice, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixDatagram;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::durations::SOON;
use e2e::processor_time::{processor_time, time_inside};
use e2e::{Containerd, Pod, Program, RunningPod, Runtime, wait};
use nix::sys::signal::{Signal, kill};
use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg, setsockopt, sockopt};
use nix::unistd::Pid;

use crate::support::{EndsWithTest, PROMPT, ensure_serving};

/// A TCP connection whose last close takes an hour, because no process reads its other end.
fn lingering() -> Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let mut socket = TcpStream::connect(listener.local_addr()?)?;
    let (other_end, _) = listener.accept()?;
    setsockopt(&socket, sockopt::Linger, &libc::linger { l_onoff: 1, l_linger: 3600 })?;
    socket.set_nonblocking(true)?;
    while socket.write(&[b'x'; 1 << 16]).is_ok() {}
    Ok((socket, other_end))
}

/// A socket from which messages go to a container's notify socket.
fn connected(node: &Containerd, pod: &RunningPod<'_>, container: &str) -> Result<UnixDatagram> {
    let bundles = node.directory_inside()?.join("state/io.containerd.runtime.v2.task/k8s.io");
    let bundle = bundles.join(pod.id(container)?);
    let directory = File::open(&bundle).with_context(|| bundle.display().to_string())?;
    let client = UnixDatagram::unbound()?;
    client.connect(format!("/proc/self/fd/{}/notify.sock", directory.as_raw_fd()))?;
    Ok(client)
}

/// Sends copies of one descriptor along with a message.
fn send_with(client: &UnixDatagram, descriptor: RawFd, copies: usize) -> Result<()> {
    let rights = vec![descriptor; copies];
    let message = [ControlMessage::ScmRights(&rights)];
    sendmsg::<()>(client.as_raw_fd(), &[IoSlice::new(b"STATUS=x")], &message, MsgFlags::empty(), None)?;
    Ok(())
}

/// Sends such descriptors as a process of the container can: one by one, more than there is room for, and some that are
/// never received. The shim is stopped meanwhile, so that its close is the last one and has to wait. Returns the other
/// ends; dropping them ends the wait.
pub fn send_lingering(node: &Containerd, pod: &RunningPod<'_>, container: &str) -> Result<Vec<TcpStream>> {
    let client = connected(node, pod, container)?;
    client.set_nonblocking(true)?;
    let shim = Pid::from_raw(pod.shim_pid()?);
    kill(shim, Signal::SIGSTOP)?;
    let mut other_ends = Vec::new();
    for copies in [1, 60, 253, 1, 1] {
        let (socket, other_end) = lingering()?;
        send_with(&client, socket.as_raw_fd(), copies)?;
        other_ends.push(other_end);
        // A helper of the shim may have closed its copy before. Then this is the last close, so it is on a thread,
        // which ends with the test.
        std::thread::spawn(move || drop(socket));
    }
    // Time for the threads to close their descriptors.
    std::thread::sleep(Duration::from_millis(100));
    kill(shim, Signal::SIGCONT)?;
    Ok(other_ends)
}

/// Messages to a container's notify socket without a break, until this is dropped.
pub struct Flood(Arc<AtomicBool>);

impl Flood {
    pub fn begin(node: &Containerd, pod: &RunningPod<'_>, container: &str) -> Result<Self> {
        let client = connected(node, pod, container)?;
        client.set_write_timeout(Some(Duration::from_millis(100)))?;
        let flood = Self(Arc::default());
        let over = flood.0.clone();
        std::thread::spawn(move || {
            while !over.load(Ordering::Relaxed) {
                // The socket ends with its pod.
                if client.send(b"STATUS=busy").is_err() {
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
        });
        Ok(flood)
    }
}

impl Drop for Flood {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// H5: each message took half a millisecond of the shim's thread.
#[tokio::test]
async fn h5_a_flood_of_messages_costs_the_container() -> Result<()> {
    const WINDOW: Duration = Duration::from_secs(5);
    let node = Containerd::connect().await?;
    let mut pod =
        Pod::new("flooding").annotate("plan", "s1+s2+s3+s4=sidecar, app=main").container(Program::new("app"));
    let names = ["s1", "s2", "s3", "s4"];
    for name in names {
        pod = pod.annotate(&format!("ready.{name}"), "notify;fail=100000").container(Program::new(name));
    }
    let mut pod = pod.run(&node, Runtime::Podshim).await?;
    let _end = EndsWithTest::of(&pod)?;
    pod.start_all(&names).await?;
    let floods = names.map(|name| Flood::begin(&node, &pod, name));
    let shim = pod.shim_pid()?;
    let (before, inside) = (processor_time(shim)?, time_inside(&node, &pod)?);
    wait::quiet_time(WINDOW).await;
    let (own, inside) =
        (processor_time(shim)?.own - before.own, time_inside(&node, &pod)?.saturating_sub(inside));
    println!("in {WINDOW:?}: {own:?} of the shim, {inside:?} in the pod");
    ensure!(own <= Duration::from_millis(300), "{own:?} of the shim");
    ensure!(inside >= Duration::from_millis(50), "{inside:?} in the pod: nothing was received");
    pod.start("app").await?;
    ensure_serving(&pod, "s1").await?;
    drop(floods);
    pod.remove().await
}

/// H5: runc 1.3 and later refuse to delete a container in whose groups another process is, and a flood's receiver is one.
#[tokio::test]
async fn h5_a_container_is_removed_in_the_middle_of_a_flood() -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = Pod::new("flooded-to-the-end")
        .annotate("plan", "s1=sidecar, app=main")
        .container(Program::new("app"));
    pod = pod.annotate("ready.s1", "notify;fail=100000").container(Program::new("s1"));
    let mut pod = pod.run(&node, Runtime::Podshim).await?;
    let _end = EndsWithTest::of(&pod)?;
    for _ in 0..5 {
        pod.start("s1").await?;
        let flood = Flood::begin(&node, &pod, "s1")?;
        // A receiver is in its groups.
        let inside = time_inside(&node, &pod)?;
        wait::until("a receiver's work", SOON, async || {
            Ok((time_inside(&node, &pod)? > inside + Duration::from_millis(20)).then_some(()))
        })
        .await?;
        wait::at_most(PROMPT, "a stop in a flood", pod.stop("s1", Duration::from_secs(1))).await?;
        let removed = node.cri()?;
        wait::at_most(PROMPT, "a removal in a flood", removed.remove_container(pod.id("s1")?)).await?;
        drop(flood);
    }
    wait::at_most(PROMPT, "the end of the pod", pod.stop_sandbox()).await?;
    pod.remove().await
}

/// Issue 18: the container decided how long the close of a received descriptor took, on the shim's only thread.
/// StartContainer ran into its deadline, the stop of another container hung, and the pod could not be removed any more.
#[tokio::test]
async fn u2_a_descriptor_that_lingers_stops_no_other() -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = Pod::new("lingering")
        .annotate("plan", "s1=sidecar, app=main")
        .annotate("ready.s1", "notify;fail=1000")
        .container(Program::new("s1"))
        .container(Program::new("app"))
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start("s1").await?;
    let other_ends = send_lingering(&node, &pod, "s1")?;
    pod.start("app").await?;
    ensure_serving(&pod, "s1").await?;
    pod.stop("app", Duration::from_secs(1)).await?;
    pod.remove().await?;
    drop(other_ends);
    Ok(())
}
