//! `http:`, `grpc:` and `file:` gates (U2, U4, U6) with real servers and files, and with hostile ones (DESIGN §6).

use anyhow::{Result, ensure};
use e2e::Event::{Starting, Term};
use e2e::real_servers::health_service;
use e2e::{Containerd, Pod, Program, RunningPod, Runtime};

use crate::support::{SOON, held_for, lines_of_podshim, ready_in_run, wait_started};

/// A sidecar that serves the files of `/www` on port 8080 of its loopback.
fn web_server(name: &str) -> Program {
    Program::new(name).begins_with_script("mkdir /www && httpd -p 127.0.0.1:8080 -h /www")
}

/// A sidecar that answers every connection to port 8080 with the output of `command`.
fn answering(name: &str, command: &str) -> Program {
    Program::new(name).begins_with_script(&format!(
        "echo '{command}' > /answer; nc -ll -p 8080 -e sh /answer > /dev/null 2>&1 &"
    ))
}

/// U2, U6: the first answer with a good status opens the gate; until then the hold's line shows the status.
#[tokio::test]
async fn u2_an_http_gate_opens_with_the_status() -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = Pod::new("u2-http")
        .annotate("plan", "s1=sidecar, app=main")
        .annotate("ready.s1", "http::8080/healthz;period=200ms;fail=1000")
        .container(web_server("s1"))
        .container(Program::new("app"))
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start("s1").await?;
    wait_started(&pod, &["s1"]).await?;
    pod.start("app").await?;
    let held = held_for(&pod, "app").await?;
    ensure!(held == r#"held: waiting for sidecar "s1": http:8080/healthz: 404"#, "{held}");
    pod.timeline()?.doesnt_start("app")?;
    pod.exec("s1", &["touch", "/www/healthz"]).await?;
    wait_started(&pod, &["app"]).await?;
    pod.remove().await
}

/// U2: programs that listen only on the pod's IP, to which a kubelet's own probe would connect, open their gates.
#[tokio::test]
async fn u2_gates_without_a_host_find_programs_on_the_pods_ip() -> Result<()> {
    let node = Containerd::connect().await?;
    let server = |name, port| {
        let of_pod = "$(ip -4 -o addr show scope global | sed 's/.* inet \\([0-9.]*\\).*/\\1/')";
        Program::new(name).begins_with_script(&format!(
            "mkdir /www && touch /www/healthz && (sleep 1; exec httpd -p {of_pod}:{port} -h /www) &"
        ))
    };
    let mut pod = Pod::new("u2-pod-ip")
        .annotate("plan", "s1=sidecar, s2=sidecar, app=main")
        .annotate("ready.s1", "tcp::8080;period=200ms")
        .annotate("ready.s2", "http::8081/healthz;period=200ms")
        .container(server("s1", 8080))
        .container(server("s2", 8081))
        .container(Program::new("app"))
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start_all(&["app", "s2", "s1"]).await?;
    let timeline = wait_started(&pod, &["app"]).await?;
    timeline.in_order(&[("s1", Starting), ("s2", Starting), ("app", Starting)])?;
    timeline.has_not_restarted("s1")?;
    timeline.has_not_restarted("s2")?;
    pod.remove().await
}

/// U2, DESIGN §6: a redirect is a good status, and podshim does not follow it: at the target of this one no server
/// answers.
#[tokio::test]
async fn u2_an_http_gate_follows_no_redirect() -> Result<()> {
    let node = Containerd::connect().await?;
    let redirect = r#"printf "HTTP/1.1 302 Found\r\nLocation: http://192.0.2.1/\r\n\r\n""#;
    let mut pod = Pod::new("u2-redirect")
        .annotate("plan", "s1=sidecar, app=main")
        .annotate("ready.s1", "http::8080/;period=200ms")
        .container(answering("s1", redirect))
        .container(Program::new("app"))
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start_all(&["app", "s1"]).await?;
    let timeline = wait_started(&pod, &["app"]).await?;
    timeline.has_not_restarted("s1")?;
    pod.remove().await
}

/// DESIGN §6: an answer without an end is a failure, and the sidecar is restarted for it (U4).
#[tokio::test]
async fn u2_an_endless_answer_is_a_failure() -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = Pod::new("u2-endless")
        .annotate("plan", "s1=sidecar, app=main")
        .annotate("ready.s1", "http::8080/;period=200ms;timeout=500ms;fail=5")
        .container(answering("s1", r#"while :; do printf xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx; done"#))
        .container(Program::new("app"))
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start_all(&["app", "s1"]).await?;
    let timeline = pod.wait_for("s1", Starting, 2, SOON).await?;
    timeline.doesnt_start("app")?;
    let output = pod.wait_for_output("s1", "podshim: did not get ready: ").await?;
    let failures = ["no HTTP answer", "timed out after 500ms"];
    let is_logged = lines_of_podshim(&output).iter().any(|line| {
        failures.iter().any(|why| *line == format!("did not get ready: http:8080/: {why}; restarting"))
    });
    ensure!(is_logged, "{output}");
    pod.remove().await
}

/// U2, U4: a `file:` gate opens when the file exists, in the run that makes it.
#[tokio::test]
async fn u2_u4_a_file_gate_opens_in_the_run_that_makes_the_file() -> Result<()> {
    let node = Containerd::connect().await?;
    let in_second_run = "if grep -q 's1 Starting' /pod/timeline.log; then (sleep 1; touch /tmp/ready) & fi";
    let mut pod = Pod::new("u2-file")
        .annotate("plan", "s1=sidecar, app=main")
        .annotate("ready.s1", "file:/tmp/ready;period=200ms;fail=15")
        .container(Program::new("s1").begins_with_script(in_second_run))
        .container(Program::new("app"))
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start("s1").await?;
    wait_started(&pod, &["s1"]).await?;
    pod.start("app").await?;
    let timeline = wait_started(&pod, &["app"]).await?;
    timeline.in_order(&[("s1", Starting), ("s1", Term), ("app", Starting)])?;
    ensure!(timeline.count("s1", Starting) == 2, "{timeline}");
    let held = held_for(&pod, "app").await?;
    ensure!(held == r#"held: waiting for sidecar "s1": file:/tmp/ready is not there"#, "{held}");
    pod.remove().await
}

/// DESIGN §6: another container plants a link in a volume they share. A link to a file of the node, out of the root, or
/// through a process's root does not open the gate; a link that stays inside does.
#[tokio::test]
async fn u2_a_file_gate_is_not_opened_by_links_out_of_the_root() -> Result<()> {
    let node = Containerd::connect().await?;
    let of_the_node = tempfile::NamedTempFile::new()?;
    let path = of_the_node.path().display();
    let attempt = async |target: &str| {
        let mut pod = Pod::new("u2-links")
            .annotate("plan", "hostile=sidecar, s1=sidecar, app=main")
            .annotate("gate-timeout", "3s")
            .annotate("ready.hostile", &ready_in_run("hostile", 1, "period=100ms"))
            .annotate("ready.s1", "file:/pod/link;period=100ms;fail=1000")
            .container(Program::new("hostile").begins_with_script(&format!("ln -s {target} /pod/link")))
            .container(Program::new("s1"))
            .container(Program::new("app").exits(0))
            .run(&node, Runtime::Podshim)
            .await?;
        pod.start_all(&["hostile", "s1", "app"]).await?;
        let code = pod.wait_exited("app", SOON).await?.exit_code;
        let output = pod.output("app")?;
        pod.remove().await?;
        anyhow::Ok((code, output))
    };
    for target in [format!("{path}"), format!("../../../../../..{path}"), format!("/proc/1/root{path}")] {
        let (code, output) = attempt(&target).await?;
        ensure!(
            code == 125 && output.contains(r#"held 3s for sidecar "s1": file:/pod/link "#),
            "{target}: {output}"
        );
    }
    let (code, output) = attempt("/bin/busybox").await?;
    ensure!(code == 0, "{output}");
    Ok(())
}

/// A pod whose main waits for that gate of its sidecar.
async fn with_grpc_gate<'a>(node: &'a Containerd, gate: &str) -> Result<RunningPod<'a>> {
    let mut pod = Pod::new("u2-grpc")
        .annotate("plan", "s1=sidecar, app=main")
        .annotate("ready.s1", &format!("{gate};period=200ms;fail=1000"))
        .container(Program::new("s1"))
        .container(Program::new("app"))
        .run(node, Runtime::Podshim)
        .await?;
    pod.start("s1").await?;
    Ok(pod)
}

/// U2: the health service of gRPC opens a gate when it answers SERVING.
#[tokio::test]
async fn u2_a_grpc_gate_opens_with_the_health_services_word() -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = with_grpc_gate(&node, "grpc:50051").await?;
    pod.start("app").await?;
    let held = held_for(&pod, "app").await?;
    ensure!(held == r#"held: waiting for sidecar "s1": grpc:50051: refused"#, "{held}");
    let server = health_service(&node, &pod, "s1", 50051).await?;
    wait_started(&pod, &["app"]).await?;
    server.abort();
    pod.remove().await
}

/// U2: a service that the health service does not know is not ready.
#[tokio::test]
async fn u2_a_grpc_gate_of_an_unknown_service_stays_closed() -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = with_grpc_gate(&node, "grpc:50051/none.of.its").await?;
    let server = health_service(&node, &pod, "s1", 50051).await?;
    pod.start("app").await?;
    let held = held_for(&pod, "app").await?;
    let why = "grpc:50051/none.of.its: no service of that name, or no grpc.health.v1";
    ensure!(held == format!(r#"held: waiting for sidecar "s1": {why}"#), "{held}");
    pod.timeline()?.doesnt_start("app")?;
    server.abort();
    pod.remove().await
}
