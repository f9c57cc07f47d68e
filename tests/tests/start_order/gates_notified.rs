//! Gates that wait for a report of the container: a line of its output (`log:`), or a message (`notify`).

use std::os::fd::AsRawFd;

use anyhow::{Result, ensure};
use e2e::Event::{Starting, Term};
use e2e::instance::status_number;
use e2e::{Containerd, Pod, Program, RunningPod, Runtime, wait};

use crate::support::{SOON, TOLERANCE, held_for, message, milliseconds, seconds, wait_started};

/// Where podshim puts the socket of a `notify` gate. An exec gets its environment from containerd, without
/// NOTIFY_SOCKET.
const SOCKET: &str = "/dev/podshim-notify";

/// U2: the gate opens with the first line that matches, on stdout or stderr, and the line still reaches the log.
#[tokio::test]
async fn u2_a_log_gate_opens_with_a_line() -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = Pod::new("u2-log")
        .annotate("plan", "s1=sidecar, s2=sidecar, app=main")
        .annotate("ready.s1", r"log:^listening on :\d+$;period=200ms;fail=1000")
        .annotate("ready.s2", "log:(?i)READY to (serve|work);fail=1000")
        .container(Program::new("s1"))
        .container(Program::new("s2"))
        .container(Program::new("app"))
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start("s1").await?;
    wait_started(&pod, &["s1"]).await?;
    pod.start_all(&["app", "s2"]).await?;
    let held = held_for(&pod, "app").await?;
    ensure!(held == r#"held: waiting for sidecar "s1": log:^listening on :\d+$: no such line yet"#, "{held}");
    for (name, next, line, stream) in
        [("s1", "s2", "listening on :8080", 1), ("s2", "app", "s2 is ready to work", 2)]
    {
        // Neither half a line nor a line that only contains the text may open the gate.
        for other in [format!("printf '{line}'"), "echo ': almost'".to_owned()] {
            pod.exec(name, &["sh", "-c", &format!("{other} > /proc/1/fd/{stream}")]).await?;
        }
        pod.wait_for_output(name, &format!("F {line}: almost\n")).await?;
        if name == "s1" {
            pod.timeline()?.doesnt_start(next)?;
        }
        pod.exec(name, &["sh", "-c", &format!("echo '{line}' > /proc/1/fd/{stream}")]).await?;
        wait_started(&pod, &[next]).await?;
        pod.timeline()?.has_not_restarted(name)?;
    }
    pod.wait_for_output("s1", "stdout F listening on :8080\n").await?;
    pod.wait_for_output("s2", "stderr F s2 is ready to work\n").await?;
    pod.remove().await
}

/// U4: no line within `fail` periods is a failure. Only the current run's line counts, not that of an earlier run.
#[tokio::test]
async fn u4_a_log_gate_is_armed_again_for_the_next_run() -> Result<()> {
    let node = Containerd::connect().await?;
    let in_second_run =
        "if grep -q 's1 Starting' /pod/timeline.log; then (sleep 1; echo ready) & else echo 'not rea'; fi";
    let mut pod = Pod::new("u4-log")
        .annotate("plan", "s1=sidecar, app=main")
        .annotate("ready.s1", "log:^ready$;period=500ms;fail=4")
        .container(Program::new("s1").begins_with_script(in_second_run))
        .container(Program::new("app"))
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start_all(&["app", "s1"]).await?;
    let timeline = wait_started(&pod, &["app"]).await?;
    timeline.in_order(&[("s1", Starting), ("s1", Term), ("app", Starting)])?;
    timeline.distance(("s1", Starting), ("s1", Term), seconds(2), TOLERANCE)?;
    ensure!(timeline.count("s1", Starting) == 2, "{timeline}");
    pod.wait_for_output("s1", "podshim: did not get ready: log:^ready$: no such line yet; restarting")
        .await?;
    pod.remove().await
}

/// DESIGN §6: a flood on both streams, with endless lines in it, neither hides the line nor blocks the container, and
/// the shim does not store it.
#[tokio::test]
async fn u2_a_log_gate_stands_a_flood() -> Result<()> {
    let node = Containerd::connect().await?;
    let flood = "(yes 'not ready at all' | head -c 1000000; head -c 500000 /dev/zero | tr '\\0' x; echo; echo ready; \
                 touch /tmp/written) & yes | head -c 2000000 >&2 &";
    let mut pod = Pod::new("u2-flood")
        .annotate("plan", "s1=sidecar, app=main")
        .annotate("ready.s1", "log:^(r|re)+ady$;fail=1000")
        .container(Program::new("s1").begins_with_script(flood))
        .container(Program::new("app"))
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start_all(&["app", "s1"]).await?;
    let timeline = wait_started(&pod, &["app"]).await?;
    timeline.has_not_restarted("s1")?;
    wait::until("the flood to have passed", SOON, async || {
        Ok((pod.exec("s1", &["test", "-e", "/tmp/written"]).await?.exit_code == 0).then_some(()))
    })
    .await?;
    let kilobytes = status_number(pod.shim_pid()?, "RssAnon")?;
    ensure!(kilobytes < 16_000, "the shim keeps {kilobytes} kB");
    pod.remove().await
}

/// U2: `READY=1` opens the gate; until then the hold's line shows the status that the sidecar sent.
#[tokio::test]
async fn u2_a_notify_gate_opens_with_ready() -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = Pod::new("u2-notify")
        .annotate("plan", "s1=sidecar, s2=sidecar, app=main")
        .annotate("ready.s1", "notify")
        .annotate("ready.s2", "notify;period=200ms;fail=1000")
        .container(Program::new("s1").notifies("MAINPID=1\nREADY=1\nSTATUS=up", seconds(2)))
        .container(Program::new("s2").notifies("STATUS=loading", seconds(0)))
        .container(Program::new("app"))
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start_all(&["s1", "s2"]).await?;
    let timeline = wait_started(&pod, &["s2"]).await?;
    timeline.distance(("s1", Starting), ("s2", Starting), milliseconds(2900), TOLERANCE)?;
    pod.start("app").await?;
    let held = held_for(&pod, "app").await?;
    ensure!(
        held == r#"held: waiting for sidecar "s2": notify: no READY=1 yet, its status is "loading""#,
        "{held}"
    );
    // U2: an exec is a process of the container too, and can use the socket.
    exec_sends_ready(&pod, "s2").await?;
    wait_started(&pod, &["app"]).await?;
    pod.remove().await
}

/// U4, R6: a sidecar that sends no READY=1 is restarted, and its next run uses the same socket.
#[tokio::test]
async fn u4_a_notify_gate_is_armed_again_for_the_next_run() -> Result<()> {
    let node = Containerd::connect().await?;
    let in_second_run = "grep -q 's1 Starting' /pod/timeline.log || set -- \"$@\" --notify-after 1000";
    let mut pod = Pod::new("u4-notify")
        .annotate("plan", "s1=sidecar, app=main")
        .annotate("ready.s1", "notify;delay=500ms;period=500ms;fail=3")
        .container(Program::new("s1").notifies("READY=1", seconds(1)).begins_with_script(in_second_run))
        .container(Program::new("app"))
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start_all(&["app", "s1"]).await?;
    let timeline = wait_started(&pod, &["app"]).await?;
    timeline.in_order(&[("s1", Starting), ("s1", Term), ("app", Starting)])?;
    timeline.distance(("s1", Starting), ("s1", Term), seconds(2), TOLERANCE)?;
    ensure!(timeline.count("s1", Starting) == 2, "{timeline}");
    pod.remove().await
}

/// An exec of the container sends READY=1 to the socket.
async fn exec_sends_ready(pod: &RunningPod<'_>, container: &str) -> Result<()> {
    let sender = ["/bin/pod-member", "--name", "helper", "--run", "0.5"];
    let message = ["--notify-to", SOCKET, "--notify", "READY=1"];
    let output = pod.exec(container, &[&sender[..], &message].concat()).await?;
    ensure!(output.exit_code == 0, "{output:?}");
    Ok(())
}

/// Starts app, which waits for a notify gate, and checks that its hold's line reports a message from a sender outside
/// of the container.
async fn holds_without_taking(pod: &mut RunningPod<'_>) -> Result<()> {
    pod.start("app").await?;
    let held = held_for(pod, "app").await?;
    ensure!(
        held.ends_with("notify: a message was not taken, for its sender is no process of the container"),
        "{held}"
    );
    pod.timeline()?.doesnt_start("app")
}

/// DESIGN §6: `READY=1` of another container, which reaches the socket through a shared pid namespace, does not open
/// the gate, and the hold's line reports it.
#[tokio::test]
async fn u2_another_containers_ready_is_not_taken() -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = Pod::new("u2-impostor")
        .pid_namespace(e2e::pod::PidNamespace::Pod)
        .annotate("plan", "s1=sidecar, app=main")
        .annotate("ready.s1", "notify;period=200ms;fail=1000")
        .container(Program::new("s1"))
        .container(Program::new("hostile").begins_with_script("until ls /proc/*/root/dev/podshim-notify; do sleep 0.1; done; ln -s $(ls /proc/*/root/dev/podshim-notify | head -n 1) /tmp/s").notifies_at("/tmp/s", "READY=1", seconds(0)))
        .container(Program::new("app"))
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start_all(&["s1"]).await?;
    wait_started(&pod, &["s1"]).await?;
    // The message must come first: the hold's line comes once, a second after app's start.
    pod.start("hostile").await?;
    wait_started(&pod, &["hostile"]).await?;
    holds_without_taking(&mut pod).await?;
    exec_sends_ready(&pod, "s1").await?;
    wait_started(&pod, &["app"]).await?;
    pod.remove().await
}

/// DESIGN §6: a process outside of the pod cannot open the gate, though root finds the socket in the bundle. A daemon
/// of the container can, though only its cgroups tie it to the container.
#[tokio::test]
async fn u2_ready_is_taken_from_a_daemon_and_from_no_process_outside() -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = Pod::new("u2-outside")
        .annotate("plan", "s1=sidecar, app=main")
        .annotate("ready.s1", "notify;period=200ms;fail=1000")
        .container(Program::new("s1"))
        .container(Program::new("app"))
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start("s1").await?;
    wait_started(&pod, &["s1"]).await?;
    let bundles = node.directory_inside()?.join("state/io.containerd.runtime.v2.task/k8s.io");
    // An address by descriptor, because the bundle's path is too long for a socket address.
    let bundle = std::fs::File::open(bundles.join(pod.id("s1")?))?;
    let outsider = std::os::unix::net::UnixDatagram::unbound()?;
    outsider.send_to(b"READY=1", format!("/proc/self/fd/{}/notify.sock", bundle.as_raw_fd()))?;
    holds_without_taking(&mut pod).await?;
    let daemon = format!(
        "(setsid /bin/pod-member --name daemon --run 0.5 --notify-to {SOCKET} --notify READY=1 </dev/null >/dev/null 2>&1 &)"
    );
    let output = pod.exec("s1", &["sh", "-c", &daemon]).await?;
    ensure!(output.exit_code == 0, "{output:?}");
    wait_started(&pod, &["app"]).await?;
    pod.remove().await
}

/// README: if the output does not pass through podshim, or there is no place for a socket, the create fails and says
/// why.
#[tokio::test]
async fn u2_what_could_never_be_received_is_refused() -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = Pod::new("u2-dev")
        .annotate("plan", "s1=sidecar, app=main")
        .annotate("ready.s1", "notify")
        .container(Program::new("s1").mount(std::path::Path::new("/dev"), "/dev"))
        .container(Program::new("app"))
        .run(&node, Runtime::Podshim)
        .await?;
    let refused = message(&pod.start("s1").await.err().unwrap_or_else(|| anyhow::anyhow!("started")));
    ensure!(refused.contains("neither /dev nor /run is a tmpfs of the container's own"), "{refused}");
    pod.remove().await?;
    let file = node.directory().join("u2-file.log");
    let to_a_file = format!("file://{}", file.display());
    let refused = node
        .ctr()
        .run(&[
            "run",
            "--detach",
            "--runtime",
            Runtime::Podshim.runtime_type(),
            "--log-uri",
            &to_a_file,
            "--annotation",
            "podshim.io/plan=u2-file=sidecar, app=main",
            "--annotation",
            "podshim.io/ready.u2-file=log:x",
            "podshim.test/busybox:1",
            "u2-file",
            "sleep",
            "1000",
        ])
        .await;
    let refused = message(&refused.err().unwrap_or_else(|| anyhow::anyhow!("started")));
    node.ctr().run(&["containers", "rm", "u2-file"]).await?;
    ensure!(refused.contains("its output does not pass through podshim"), "{refused}");
    ensure!(!file.exists(), "nothing was opened");
    Ok(())
}
