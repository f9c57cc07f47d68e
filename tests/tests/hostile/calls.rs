//! Every call of a head in a pod's whole life, against the table of docs/trust.md. A call that the table does not have may wait for a
//! container: it needs a look at the kernel's locks, and a row.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::calls::{Call, HeadTrace};
use e2e::durations::{SOON, seconds};
use e2e::real_servers::{health_service, on_a_terminal};
use e2e::{Containerd, Event, Pod, Program, RunningPod, Runtime};

const DOCUMENT: &str = include_str!("../../../docs/trust.md");
const HEADING: &str = "### Every call of the head";

/// A row of the table: some calls, each on each of some kinds.
struct Row {
    line: &'static str,
    calls: BTreeSet<&'static str>,
    kinds: BTreeSet<&'static str>,
}

impl Row {
    fn of(line: &'static str) -> Result<Self> {
        let cells: Vec<_> = line.trim_matches('|').split('|').collect();
        let [calls, kinds, reason] = cells[..] else { anyhow::bail!("not three cells: {line}") };
        let words = |cell: &'static str| cell.split('`').skip(1).step_by(2).collect();
        let row = Self { line, calls: words(calls), kinds: words(kinds) };
        ensure!(!row.calls.is_empty() && !row.kinds.is_empty(), "no call or no kind: {line}");
        ensure!(!reason.trim().is_empty(), "no reason: {line}");
        Ok(row)
    }

    fn has(&self, call: &Call) -> bool {
        self.calls.contains(call.name) && self.kinds.contains(&call.kind[..])
    }
}

fn table() -> Result<Vec<Row>> {
    let (_, section) = DOCUMENT.split_once(HEADING).context("no table of calls")?;
    let section = section.split("\n#").next().unwrap_or_default();
    let rows = section.lines().filter(|line| line.starts_with("| `"));
    rows.map(Row::of).collect()
}

/// A plan with each kind of gate, hooks, and a sidecar that is restarted.
fn pod() -> Pod {
    let server = "mkdir /www && touch /www/index.html && httpd -p 127.0.0.1:8081 -h /www";
    Pod::new("calls")
        .annotate("plan", "setup=init, exec+tcp+http+grpc+file+log+notify=sidecar, flaky=sidecar, app=main")
        .annotate("ready.exec", "exec:true;period=200ms")
        .annotate("ready.tcp", "tcp::8080;period=200ms;fail=1000")
        .annotate("ready.http", "http::8081/;period=200ms;fail=1000")
        .annotate("ready.grpc", "grpc:50051;period=200ms;fail=1000")
        .annotate("ready.file", "file:/tmp/ready;period=200ms;fail=1000")
        .annotate("ready.log", "log:go on")
        .annotate("ready.notify", "notify")
        .annotate("restart.flaky", "always;first=100ms;base=100ms")
        .annotate("on-terminate.app", "exec:true")
        .annotate("pre-stop.app", "exec:true")
        .container(Program::new("setup").exits(0))
        .container(Program::new("exec"))
        .container(Program::new("tcp").listens(8080, Duration::from_millis(500)))
        .container(Program::new("http").begins_with_script(server))
        .container(Program::new("grpc"))
        .container(Program::new("file").ready_file("/tmp/ready", Duration::from_millis(500)))
        .container(Program::new("log").prints("go on"))
        .container(Program::new("notify").notifies("READY=1", Duration::from_millis(500)))
        .container(Program::new("flaky").runs_for_each(&[Duration::from_millis(300), 1000 * SOON]))
        .container(Program::new("app").opens_stdin().oom_score(500))
}

const CONTAINERS: [&str; 10] =
    ["setup", "exec", "tcp", "http", "grpc", "file", "log", "notify", "flaky", "app"];

async fn live(node: &Containerd, mut pod: RunningPod<'_>) -> Result<()> {
    pod.start_all(&CONTAINERS).await?;
    let _server = health_service(node, &pod, "grpc", 50051).await?;
    pod.wait_for("app", Event::Started, 1, SOON).await?;
    pod.wait_for("flaky", Event::Started, 2, SOON).await?;
    let output = pod.exec("app", &["/bin/sh", "-c", "echo out; echo err >&2"]).await?;
    ensure!(output.exit_code == 0, "{output:?}");
    let cri = node.cri()?;
    let app = pod.id("app")?.to_owned();
    cri.container_stats(&app).await?;
    cri.update_memory_limit(&app, 64 << 20).await?;
    pod.longest_away().await?.context("the shim does not answer podshim inspect")?;
    for command in ["pause", "resume", "ps", "metrics"] {
        node.ctr().run(&["--namespace", "k8s.io", "tasks", command, &app]).await?;
    }
    let exec = format!("ctr --namespace k8s.io task exec -t --exec-id tty {app} tty");
    let output = on_a_terminal(&app, node, &exec).await?;
    ensure!(output.stdout.contains("/dev/pts/"), "{output:?}");
    pod.stop("exec", seconds(5)).await?;
    pod.remove().await
}

/// H1 to H4, by the kernel's own word: what the shim's first thread does from the sandbox's beginning to the pod's end.
#[tokio::test]
async fn every_call_of_the_head_is_in_the_table() -> Result<()> {
    let rows = table()?;
    ensure!(rows.len() > 10, "{} rows", rows.len());
    let node = Containerd::connect().await?;
    let pod = pod();
    let trace = HeadTrace::of_sandbox_with(&node, pod.uid())?;
    let lived = match pod.run(&node, Runtime::Podshim).await {
        Ok(pod) => live(&node, pod).await,
        Err(error) => Err(error),
    };
    // A shim that lives on would have it wait for ever.
    lived?;
    let calls = tokio::task::spawn_blocking(|| trace.calls()).await??;
    let count: usize = calls.values().map(|(count, _)| count).sum();
    println!("{count} calls, {} different ones", calls.len());
    ensure!(count > 1000, "{count} calls in a whole life");
    for row in rows.iter().filter(|row| !calls.keys().any(|call| row.has(call))) {
        println!("not met: {}", row.line);
    }
    let unknown: Vec<_> = calls.iter().filter(|(call, _)| !rows.iter().any(|row| row.has(call))).collect();
    for (Call { name, kind }, (count, example)) in &unknown {
        println!("`{name}` on `{kind}`: {count} times, such as {example}");
    }
    ensure!(unknown.is_empty(), "{} calls of the head are not in docs/trust.md, {HEADING:?}", unknown.len());
    Ok(())
}
