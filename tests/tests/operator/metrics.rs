//! Counters of real pods: they count what happened, survive the end of their pod, a killed shim and the exporter's restart, and
//! Prometheus reads them.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use e2e::Event::{Exiting, Started};
use e2e::durations::{AMPLE, SOON, milliseconds, seconds};
use e2e::instance::signal;
use e2e::{Containerd, Pod, Program, Runtime, wait};
use serde_json::{Value, json};

use super::{container, inspect, listed, podshim};

/// What `podshim metrics` writes, as a new process each time.
async fn metrics(node: &Containerd) -> Result<String> {
    podshim(node, &["metrics"], 0).await
}

/// The value of one series.
fn value(metrics: &str, series: &str) -> Result<f64> {
    let value = metrics.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    Ok(value.with_context(|| format!("no {series} in\n{metrics}"))?.parse()?)
}

/// Every counter, and every part of a histogram, of the first output is in the second one and has not become less.
fn is_monotonic(before: &str, after: &str) -> Result<()> {
    let mut kind = "";
    for line in before.lines() {
        if let Some(declared) = line.strip_prefix("# TYPE ") {
            kind = declared.rsplit(' ').next().unwrap_or_default();
        } else if !line.starts_with('#') && kind != "gauge" {
            let (series, was) = line.rsplit_once(' ').context("no value")?;
            let is = value(after, series)?;
            ensure!(is >= was.parse()?, "{series} was {was} and is {is}");
        }
    }
    Ok(())
}

const RESTARTS: &str = r#"podshim_restarts_total{namespace="e2e",role="sidecar"}"#;
const GATE_TIMEOUTS: &str = r#"podshim_gate_timeouts_total{namespace="e2e",role="main"}"#;
const GATE_FAILURES: &str = r#"podshim_gate_failures_total{namespace="e2e",role="sidecar"}"#;
const GATE_WAITS: &str = r#"podshim_gate_wait_seconds_count{namespace="e2e",role="main"}"#;
const WAITED: &str = r#"podshim_gate_wait_seconds_sum{namespace="e2e",role="main"}"#;
const KILLS: &str = r#"podshim_forced_kills_total{namespace="e2e",role="main",cause="budget"}"#;
const OVERRUNS: &str = r#"podshim_budget_overruns_total{namespace="e2e"}"#;
const STOPS: &str = r#"podshim_stops_total{namespace="e2e",reason="requested"}"#;
const STOP_TIMES: &str = r#"podshim_stop_seconds_count{namespace="e2e",role="sidecar"}"#;
const CREATES: &str = r#"podshim_runtime_call_seconds_count{call="create"}"#;
const STARTS: &str = r#"podshim_container_starts_total{namespace="e2e",role="sidecar"}"#;
const SUCCEEDED: &str = r#"podshim_completions_total{namespace="e2e",result="succeeded"}"#;
const FAILED: &str = r#"podshim_completions_total{namespace="e2e",result="failed"}"#;
const FAILED_EXECS: &str = r#"podshim_runtime_call_failures_total{call="exec"}"#;

/// A sidecar whose first run fails, so that podshim restarts it, and a main.
fn restarting(name: &str) -> Pod {
    Pod::new(name)
        .annotate("plan", "proxy=sidecar, app=main")
        .container(Program::new("proxy").runs_for_each(&[seconds(1), seconds(600)]).exits_each(&[3, 0]))
        .container(Program::new("app").ignores_term())
}

/// R2, U4, U6, T6, K8: each is counted once, is there after the end of its pod, and is never less.
#[tokio::test]
async fn r2_u6_t6_counters_survive_their_pod() -> Result<()> {
    let node = Containerd::start().await?;
    ensure!(!metrics(&node).await?.contains(RESTARTS), "a namespace without a pod has counters");

    // T19: else what hangs would end before the budget, which no stop would overrun.
    let mut pod = restarting("metrics-kill").annotate("reserve", "0s").run(&node, Runtime::Podshim).await?;
    let zeros = metrics(&node).await?;
    for series in [RESTARTS, GATE_TIMEOUTS, GATE_FAILURES, KILLS, OVERRUNS, STOPS] {
        ensure!(value(&zeros, series)? == 0.0, "an alert would miss the first increase of {series}");
    }
    pod.start_all(&["proxy", "app"]).await?;
    pod.wait_for("proxy", Started, 2, SOON).await?;
    let failed = pod.exec("app", &["/no/such/program"]).await;
    ensure!(failed.is_err(), "{failed:?}");
    podshim(&node, &["stop", "--grace", "1s", pod.sandbox()], 0).await?;
    let stopped = metrics(&node).await?;
    is_monotonic(&zeros, &stopped)?;
    for (series, count) in
        [(STARTS, 2.0), (RESTARTS, 1.0), (KILLS, 1.0), (OVERRUNS, 1.0), (STOPS, 1.0), (STOP_TIMES, 1.0)]
    {
        ensure!(value(&stopped, series)? == count, "{series} is not {count}:\n{stopped}");
    }
    ensure!(value(&stopped, CREATES)? >= 3.0 && value(&stopped, FAILED_EXECS)? >= 1.0, "{stopped}");

    let mut timed_out = Pod::new("metrics-gate")
        .annotate("plan", "proxy=sidecar, app=main")
        .annotate("gate-timeout", "3s")
        .annotate("ready.proxy", "tcp::15021;period=100ms;fail=5")
        .container(Program::new("proxy"))
        .container(Program::new("app"))
        .run(&node, Runtime::Podshim)
        .await?;
    timed_out.start_all(&["proxy", "app"]).await?;
    let held = wait::until("a held container's wait", SOON, async || {
        let answer = inspect(&node, &timed_out).await?;
        Ok(container(&answer, "app")?["gate_wait_ms"].as_u64().filter(|wait| *wait > 0))
    });
    ensure!(held.await? < 3000);
    let of_app = format!(
        "podshim_container_gate_wait_seconds{{namespace=\"e2e\",pod=\"{}\",container=\"app\",role=\"main\"}}",
        timed_out.name()
    );
    ensure!(value(&metrics(&node).await?, &of_app)? > 0.0);
    timed_out.wait_exited("app", AMPLE).await?;
    let ended = metrics(&node).await?;
    is_monotonic(&stopped, &ended)?;
    ensure!(value(&ended, GATE_TIMEOUTS)? == 1.0 && value(&ended, GATE_FAILURES)? >= 1.0, "{ended}");
    ensure!(value(&ended, GATE_WAITS)? >= 1.0 && value(&ended, WAITED)? >= 3.0, "{ended}");

    pod.remove().await?;
    timed_out.remove().await?;
    let gone = metrics(&node).await?;
    is_monotonic(&ended, &gone)?;
    for (series, count) in
        [(RESTARTS, 1.0), (KILLS, 1.0), (OVERRUNS, 1.0), (STOPS, 1.0), (GATE_TIMEOUTS, 1.0)]
    {
        ensure!(value(&gone, series)? == count || series == RESTARTS, "{series} is not {count}:\n{gone}");
    }
    ensure!(!gone.contains(&of_app), "a gauge of a pod that is gone");
    Ok(())
}

/// N3: what a killed shim has counted is in its pod's entry while containerd is down, and in the totals after the `delete`.
#[tokio::test]
async fn n3_counters_survive_a_killed_shim() -> Result<()> {
    let node = Containerd::start().await?;
    let mut pod = restarting("metrics-dead").run(&node, Runtime::Podshim).await?;
    pod.start_all(&["proxy", "app"]).await?;
    pod.wait_for("proxy", Started, 2, SOON).await?;
    let counted = async || Ok((value(&metrics(&node).await?, RESTARTS)? == 1.0).then_some(()));
    wait::until("the restart to be counted", SOON, counted).await?;
    let before = metrics(&node).await?;
    node.kill().await?;
    signal(pod.shim_pid()?, libc::SIGKILL)?;
    let dead = metrics(&node).await?;
    is_monotonic(&before, &dead)?;
    node.start_again().await?;
    wait::until("the dead shim's entry to go", AMPLE, async || {
        Ok(listed(&node, pod.sandbox()).await?.is_none().then_some(()))
    })
    .await?;
    let after = metrics(&node).await?;
    is_monotonic(&dead, &after)?;
    ensure!(value(&after, RESTARTS)? == 1.0, "{after}");
    pod.remove().await?;
    is_monotonic(&after, &metrics(&node).await?)
}

/// J1, I2: a pod's own end is counted once, by its result.
#[tokio::test]
async fn j1_i2_the_own_ends_of_pods_are_counted() -> Result<()> {
    let node = Containerd::start().await?;
    let job = |name: &str, init: u8, main: Program| {
        let (init, proxy) =
            (Program::new("init").exits(init).runs_for(milliseconds(1)), Program::new("proxy"));
        Pod::new(name)
            .annotate("plan", "init=init, proxy=sidecar, app=main")
            .annotate("restart-policy", "Never")
            .container(init)
            .container(proxy)
            .container(main)
    };
    let main = |code| Program::new("app").exits(code).runs_for(milliseconds(200));
    for (pod, succeeded, failed) in [
        (job("metrics-succeeds", 0, main(0)), 1.0, 0.0),
        (job("metrics-fails", 0, main(3)), 1.0, 1.0),
        (job("metrics-init", 1, main(0)), 1.0, 2.0),
    ] {
        let mut pod = pod.run(&node, Runtime::Podshim).await?;
        pod.start_all(&["init", "proxy", "app"]).await?;
        for name in ["app", "proxy"] {
            pod.wait_exited(name, AMPLE).await?;
        }
        let counted = metrics(&node).await?;
        ensure!(value(&counted, SUCCEEDED)? == succeeded && value(&counted, FAILED)? == failed, "{counted}");
        pod.remove().await?;
    }
    let mut pod =
        job("metrics-missing", 0, Program::new("app").missing()).run(&node, Runtime::Podshim).await?;
    pod.start_all(&["init", "proxy"]).await?;
    pod.create("app").await?;
    ensure!(pod.start("app").await.is_err(), "app has been started");
    pod.wait_exited("proxy", AMPLE).await?;
    pod.remove().await?;
    let counted = metrics(&node).await?;
    for (series, count) in [(STARTS, 3.0), (SUCCEEDED, 1.0), (FAILED, 3.0)] {
        ensure!(value(&counted, series)? == count, "{series} is not {count}:\n{counted}");
    }
    Ok(())
}

/// The panels of the dashboard that have something to show of the pod of `prometheus_reads_the_metrics_and_the_rules`.
const SHOWN: [&str; 4] = [
    "Pods by state",
    "Restarts by podshim",
    "Calls of the OCI runtime, 90th percentile",
    "Processor time for pods outside of their cgroups",
];

/// The queries of the dashboard as rules for Prometheus, which evaluates each then, and the names of those in `SHOWN`.
fn dashboard_rules() -> Result<(Value, Vec<String>)> {
    let dashboard: Value = serde_json::from_str(include_str!("../../../dist/monitoring/dashboard.json"))?;
    let (mut rules, mut shown) = (Vec::new(), Vec::new());
    for panel in dashboard["panels"].as_array().context("no panels")? {
        for target in panel["targets"].as_array().context("no targets")? {
            let name = format!("dashboard:{}", rules.len());
            // Grafana puts in its variables.
            let query = target["expr"]
                .as_str()
                .context("no query")?
                .replace("$namespace", "e2e")
                .replace("$instance", ".*");
            rules.push(json!({"record": name, "expr": query}));
            if panel["title"].as_str().is_some_and(|title| SHOWN.contains(&title)) {
                shown.push(name);
            }
        }
    }
    ensure!(shown.len() == SHOWN.len(), "{shown:?}");
    Ok((json!({"groups": [{"name": "dashboard", "rules": rules}]}), shown))
}

/// Prometheus itself scrapes the exporter, takes its answer for OpenMetrics, and evaluates the alert rules and the dashboard's
/// queries on it; and the strictest parser of OpenMetrics takes it.
#[tokio::test]
async fn prometheus_reads_the_metrics_and_the_rules() -> Result<()> {
    let node = Containerd::start().await?;
    let mut pod = restarting("metrics-scraped").run(&node, Runtime::Podshim).await?;
    pod.start_all(&["proxy", "app"]).await?;
    pod.wait_for("proxy", Exiting, 1, SOON).await?;
    pod.wait_for("proxy", Started, 2, SOON).await?;
    let rules =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../dist/monitoring/alerts.yaml").canonicalize()?;
    let (dashboard, shown) = dashboard_rules()?;
    // Each rule has been evaluated, and those with a result have recorded it.
    let is_evaluated = shown.iter().map(|name| format!("grep -q '\"{name}\"' $directory/recorded"));
    let is_evaluated = is_evaluated.collect::<Vec<_>>().join(" && ");
    let script = format!(
        r#"set -e
        directory=$(mktemp -d)
        cat >$directory/dashboard.json <<'END'
{dashboard}
END
        podshim metrics --listen 127.0.0.1:9753 & exporter=$!
        cat >$directory/config.yml <<'END'
global: {{scrape_interval: 500ms, scrape_timeout: 500ms, evaluation_interval: 500ms}}
rule_files: [{}, dashboard.json]
scrape_configs: [{{job_name: podshim, static_configs: [{{targets: ['127.0.0.1:9753']}}]}}]
END
        prometheus --config.file=$directory/config.yml --storage.tsdb.path=$directory/data \
            --web.listen-address=127.0.0.1:9754 >$directory/log 2>&1 & server=$!
        trap 'kill $exporter $server; rm -rf $directory' EXIT
        ask() {{ busybox wget -q -O - "http://127.0.0.1:9754/api/v1/$1"; }}
        is_read() {{
            ask 'query?query=podshim_restarts_total%3E0' | grep -q sidecar &&
                ask 'query?query=%7B__name__%3D~%22dashboard%3A.*%22%7D' >$directory/recorded &&
                ask rules >$directory/rules &&
                ! grep -q '"health":"unknown"' $directory/rules && {is_evaluated}
        }}
        for attempt in $(seq 100); do
            if is_read 2>$directory/errors; then
                ask 'query?query=podshim_stop_seconds_bucket%20or%20podshim_restarts_total%3E0'; echo
                ask 'targets/metadata?metric=podshim_restarts'; echo
                ask 'targets/metadata?metric=podshim_gate_wait_seconds'; echo
                cat $directory/rules; echo
                exit
            fi
            sleep 0.2
        done
        cat $directory/log $directory/errors $directory/recorded >&2
        exit 1"#,
        rules.display()
    );
    let output = node.ctr().output(&["--run", "sh", "-c", &script]).await?;
    ensure!(output.exit_code == Some(0), "{output:?}");
    let answers = output.stdout.lines().map(serde_json::from_str).collect::<Result<Vec<Value>, _>>()?;
    let [restarts, counter, histogram, rules] = answers.as_slice() else { anyhow::bail!("{output:?}") };
    let sample = &restarts["data"]["result"][0];
    ensure!(sample["metric"]["role"] == "sidecar" && sample["value"][1] == "1", "{restarts}");
    // Only in OpenMetrics the family of a counter has no _total, and a family a unit.
    ensure!(counter["data"][0]["type"] == "counter", "{counter}");
    ensure!(
        histogram["data"][0]["type"] == "histogram" && histogram["data"][0]["unit"] == "seconds",
        "{histogram}"
    );
    let groups = rules["data"]["groups"].as_array().context("no groups")?;
    let loaded: Vec<_> = groups.iter().flat_map(|group| group["rules"].as_array()).flatten().collect();
    let of_dashboard = dashboard["groups"][0]["rules"].as_array().map_or(0, Vec::len);
    ensure!(loaded.len() > of_dashboard + 5 && loaded.iter().all(|rule| rule["health"] == "ok"), "{rules}");

    let parsed = node
        .ctr()
        .output(&["--run", "sh", "-c", &format!("podshim metrics | /usr/bin/python3 -c '{STRICT_PARSER}'")])
        .await?;
    ensure!(parsed.exit_code == Some(0), "{parsed:?}");
    ensure!(parsed.stdout.lines().any(|family| family == "podshim_restarts counter"), "{parsed:?}");
    pod.stop_all_at_once(milliseconds(500)).await?;
    pod.remove().await
}

/// Prints the families that the parser of Prometheus' client library finds; it refuses what the format does not allow.
const STRICT_PARSER: &str = r#"
import sys
from prometheus_client.openmetrics.parser import text_string_to_metric_families
for family in text_string_to_metric_families(sys.stdin.read()):
    print(family.name, family.type)
"#;

/// Reads one request, answers it, and returns its body.
fn take_spans(listener: &TcpListener) -> Result<Value> {
    let (mut stream, _) = listener.accept()?;
    stream.set_read_timeout(Some(SOON))?;
    let mut request = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        let text = String::from_utf8_lossy(&request).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: "));
            if body.len() >= length.context("no length")?.parse()? {
                ensure!(head.starts_with("POST /v1/traces HTTP/1.1"), "{head}");
                stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")?;
                return Ok(serde_json::from_str(body)?);
            }
        }
        let read = stream.read(&mut buffer)?;
        ensure!(read > 0, "the request ends early: {text}");
        request.extend_from_slice(&buffer[..read]);
    }
}

/// S3, T1: a collector gets a pod's life as one trace, to the span of the pod itself.
#[tokio::test]
async fn s3_t1_a_life_is_sent_as_spans() -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = Pod::new("metrics-spans")
        .annotate("plan", "proxy=sidecar, app=main")
        .container(Program::new("proxy").start_delay(seconds(1)))
        .container(Program::new("app"))
        .run(&node, Runtime::Podshim)
        .await?;
    // The socket stays in the instance's network.
    let collector = node.in_network(|| Ok(TcpListener::bind("127.0.0.1:0")?)).await?;
    let address = collector.local_addr()?.to_string();
    let (watches, has_spans) = tokio::sync::oneshot::channel();
    let received = std::thread::spawn(move || -> Result<Vec<Value>> {
        let mut spans: Vec<Value> = Vec::new();
        let mut watches = Some(watches);
        while !spans.iter().any(|span| span["name"] == "pod") {
            let request = take_spans(&collector)?;
            let resource = &request["resourceSpans"][0];
            spans.extend(resource["scopeSpans"][0]["spans"].as_array().context("no spans")?.iter().cloned());
            watches.take().map(|watches| watches.send(()));
        }
        Ok(spans)
    });
    let sandbox = pod.sandbox().to_owned();
    pod.start_all(&["app", "proxy"]).await?;
    pod.wait_for("app", Started, 1, SOON).await?;
    let words = ["watch", "--otlp", &address, &sandbox];
    let life = async {
        // A pod that has gone before the command has asked for it has no events.
        tokio::time::timeout(AMPLE, has_spans).await.context("no spans of a pod that lives")??;
        pod.stop_all_at_once(SOON).await?;
        pod.remove().await
    };
    let (watched, ended) = tokio::join!(podshim(&node, &words, 0), life);
    ended?;
    watched?;
    let spans = received.join().map_err(|_| anyhow::anyhow!("the collector panicked"))??;
    for name in ["proxy: start", "proxy: run", "app: held", "app: run", "stop", "pod"] {
        ensure!(spans.iter().any(|span| span["name"] == name), "no {name}: {spans:?}");
    }
    ensure!(spans.iter().all(|span| span["traceId"] == sandbox[..32]), "{spans:?}");
    Ok(())
}
