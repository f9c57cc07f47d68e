//! Pods that `ctr` creates: the same orders as through CRI, and everything else that `ctr` can ask of a task.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use e2e::Event::{Exiting, Signal, Started, Starting, Term};
use e2e::real_servers::on_a_terminal;
use e2e::{Containerd, Footprint, Program, Runtime, wait};

use crate::ctr_pod::{CtrPod, IMAGE, NAMESPACE, TaskStatus, shell};
use crate::support::{SOON, milliseconds, seconds};

/// S2, T3, T1, U7 without CRI: there is one shim, the main is held until its sidecar runs, and the sidecar's stop
/// signal is kept until the main has ended.
#[tokio::test]
async fn ctr_pods_start_and_stop_in_order() -> Result<()> {
    let node = Containerd::connect().await?;
    let programs =
        vec![Program::new("s1"), Program::new("app").term_delay(milliseconds(500)).term_exit_code(3)];
    let mut pod = CtrPod::new(&node, "s1=sidecar, app=main", programs)?;
    pod.run("app").await?;
    wait::until("the line about the hold", SOON, async || {
        Ok(pod
            .output("app")?
            .contains("podshim: held: waiting for sidecar \"s1\": not created yet")
            .then_some(()))
    })
    .await?;
    pod.timeline()?.doesnt_start("app")?;
    ensure!(pod.status("app").await? == TaskStatus::Running, "F11: a held task is shown as running");
    pod.run("s1").await?;
    pod.wait_for("app", Started, 1).await?.before(("s1", Starting), ("app", Starting))?;
    let addresses =
        (node.shim_address(NAMESPACE, &pod.id("s1"))?, node.shim_address(NAMESPACE, &pod.id("app"))?);
    ensure!(addresses.0 == addresses.1, "two shims: {addresses:?}");

    pod.task(&["kill"], "s1").await?;
    wait::quiet_time(seconds(1)).await;
    ensure!(pod.timeline()?.count("s1", Term) == 0, "{}", pod.timeline()?);
    pod.task(&["kill"], "app").await?;
    pod.wait_stopped("s1", SOON).await?;
    pod.timeline()?.in_order(&[("app", Term), ("app", Exiting), ("s1", Term), ("s1", Exiting)])?;
    let codes = (pod.delete("app").await?, pod.delete("s1").await?);
    ensure!(codes == (3, 0), "J2, J3: {codes:?}");
    pod.remove().await
}

/// K7 without CRI: only the known stop signals stop a sidecar. USR1 reaches it at once, QUIT is kept until its turn.
#[tokio::test]
async fn k7_without_cri_only_stop_signals_are_held() -> Result<()> {
    let node = Containerd::connect().await?;
    let s1 = Program::new("s1").stop_signal(libc::SIGQUIT);
    let mut pod = CtrPod::new(&node, "s1=sidecar, app=main", vec![s1, Program::new("app")])?;
    pod.run("s1").await?;
    pod.run("app").await?;
    for name in ["s1", "app"] {
        pod.wait_for(name, Started, 1).await?;
    }
    pod.task(&["kill", "-s", "QUIT"], "s1").await?;
    pod.task(&["kill", "-s", "USR1"], "s1").await?;
    let timeline = pod.wait_for("s1", Signal, 1).await?;
    ensure!(timeline.of("s1", Signal).all(|entry| entry.code == libc::SIGUSR1), "{timeline}");
    ensure!(timeline.count("s1", Term) == 0, "{timeline}");
    pod.task(&["kill"], "app").await?;
    pod.wait_stopped("s1", SOON).await?;
    let timeline = pod.timeline()?;
    timeline.in_order(&[("app", Exiting), ("s1", Term), ("s1", Exiting)])?;
    ensure!(timeline.of("s1", Term).all(|entry| entry.code == libc::SIGQUIT), "{timeline}");
    pod.remove().await
}

/// K3 without CRI: a signal that is no stop signal is refused, because it would kill the process that holds the
/// container.
#[tokio::test]
async fn k3_other_signals_to_a_held_container_are_refused() -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = CtrPod::new(&node, "s1=sidecar, app=main", vec![Program::new("s1"), Program::new("app")])?;
    pod.run("app").await?;
    let refusal = pod.task(&["kill", "-s", "HUP"], "app").await.expect_err("it is held").to_string();
    ensure!(refusal.contains("held"), "{refusal}");
    pod.run("s1").await?;
    pod.wait_for("app", Started, 1).await?;
    pod.remove().await
}

/// Exec with output and code, pause, resume and metrics work for a planned container as for any other.
#[tokio::test]
async fn exec_pause_resume_and_metrics_work() -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = CtrPod::new(&node, "s1=sidecar, app=main", vec![Program::new("s1"), Program::new("app")])?;
    pod.run("s1").await?;
    pod.run("app").await?;
    pod.wait_for("app", Started, 1).await?;
    for name in ["s1", "app"] {
        // Ends half a second late: a `ctr` that learns of the end before it has read the output drops that output.
        let script = "echo out; echo err >&2; sleep 0.5; exit 6";
        let output = pod.exec(&["--exec-id", "e1"], name, &["sh", "-c", script]).await?;
        ensure!((output.stdout.trim(), output.exit_code) == ("out", Some(6)), "{output:?}");
        ensure!(output.stderr.contains("err"), "{output:?}");
        pod.task(&["pause"], name).await?;
        ensure!(pod.status(name).await? == TaskStatus::Paused, "{name} is not paused");
        pod.task(&["resume"], name).await?;
        ensure!(pod.status(name).await? == TaskStatus::Running, "{name} is not resumed");
        let metrics = pod.task(&["metrics"], name).await?;
        // ctr's name of the field on cgroup v2, and on v1.
        let is_v2 = Path::new("/sys/fs/cgroup/cgroup.controllers").exists();
        let usage = if is_v2 { "memory.usage " } else { "memory.usage_in_bytes" };
        ensure!(metrics.contains(usage) && metrics.contains(&pod.id(name)), "{metrics}");
    }
    pod.remove().await
}

/// A terminal for an exec in a planned container, and for a container without a plan.
#[tokio::test]
async fn terminals_work() -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = CtrPod::new(&node, "s1=sidecar, app=main", vec![Program::new("s1"), Program::new("app")])?;
    pod.run("s1").await?;
    pod.run("app").await?;
    pod.wait_for("app", Started, 1).await?;
    let id = pod.id("app");
    // `ctr` sets the size only when the process already runs.
    let inside = r#"sh -c "tty; until stty size 2>/dev/null | grep 33; do sleep 0.1; done; sleep 0.5""#;
    let output = on_a_terminal(&id, &node, &format!("ctr task exec -t --exec-id tty {id} {inside}")).await?;
    ensure!(output.stdout.contains("/dev/pts/0") && output.stdout.contains("33 77"), "{output:?}");
    pod.remove().await?;

    let (id, runtime) = (format!("tty-{}", std::process::id()), Runtime::Podshim.runtime_type());
    let run = format!("ctr run --rm -t --runtime {runtime} {IMAGE} {id} {inside}");
    let output = on_a_terminal(&id, &node, &run).await?;
    ensure!(output.stdout.contains("/dev/pts/0") && output.stdout.contains("33 77"), "{output:?}");
    Footprint::of_containers(&[&id]).wait_gone(&node, SOON).await
}

/// Input arrives at stdin, and so does its end (CloseIO): `cat` and `wc` end only then.
#[tokio::test]
async fn stdin_arrives_and_ends() -> Result<()> {
    let node = Containerd::connect().await?;
    let (alone, runtime) = (format!("stdin-{}", std::process::id()), Runtime::Podshim.runtime_type());
    let fed = Feed::new(&node, &alone).await?;
    let script = format!("exec ctr run --rm --runtime {runtime} {IMAGE} {alone} cat <{}", fed.path.display());
    let (output, fed) = tokio::join!(shell(&node, &script), fed.until_processes("hello\n", 1));
    let (output, ()) = (output?, fed?);
    ensure!((output.stdout.as_str(), output.exit_code) == ("hello\n", Some(0)), "{output:?}");
    Footprint::of_containers(&[&alone]).wait_gone(&node, SOON).await?;

    let mut pod = CtrPod::new(&node, "app=main", vec![Program::new("app")])?;
    pod.run("app").await?;
    pod.wait_for("app", Started, 1).await?;
    let id = pod.id("app");
    let fed = Feed::new(&node, &id).await?;
    let script =
        format!("exec ctr task exec --exec-id count {id} sh -c 'wc -c; sleep 0.5' <{}", fed.path.display());
    let (output, fed) = tokio::join!(pod.shell(&script), fed.until_processes("12345", 3));
    let (output, ()) = (output?, fed?);
    ensure!((output.stdout.trim(), output.exit_code) == ("5", Some(0)), "{output:?}");
    pod.remove().await
}

/// The stdin of a `ctr`. It must stay open until the process runs: `ctr` of 1.6 never forwards an end that comes
/// earlier.
struct Feed<'node> {
    node: &'node Containerd,
    id: String,
    path: PathBuf,
    writer: File,
}

impl<'node> Feed<'node> {
    /// A fifo, with its writing end open.
    async fn new(node: &'node Containerd, id: &str) -> Result<Self> {
        let path = node.directory().join(format!("{id}.stdin"));
        let made = shell(node, &format!("mkfifo {}", path.display())).await?;
        ensure!(made.exit_code == Some(0), "{made:?}");
        // Opened for reading too, so that the open does not wait for a reader.
        let writer = OpenOptions::new().read(true).write(true).open(&path)?;
        Ok(Self { node, id: id.to_owned(), path, writer })
    }

    /// Writes the text, and closes the input when the container has that many processes.
    async fn until_processes(mut self, text: &str, count: usize) -> Result<()> {
        self.writer.write_all(text.as_bytes())?;
        wait::until(&format!("{count} processes in {}", self.id), SOON, async || {
            let output = self.node.ctr().output(&["task", "ps", &self.id]).await?;
            Ok((output.stdout.lines().count() == count + 1).then_some(()))
        })
        .await?;
        std::fs::remove_file(&self.path)?;
        Ok(())
    }
}

/// An event of a task: its topic, and the exec that it is about, if any.
type TaskEvent = (String, Option<String>);

/// CONTRACT §6: the events of a task come in the order of its life; an exec that ends with the init exits first.
#[tokio::test]
async fn events_come_in_the_order_of_the_tasks_life() -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = CtrPod::new(&node, "s1=sidecar, app=main", vec![Program::new("s1"), Program::new("app")])?;
    let file = node.directory().join(format!("events-{}", std::process::id()));
    let record = format!(
        "ctr events >{file} & events=$!; until [ -e {file}.stop ]; do sleep 0.1; done; kill $events",
        file = file.display()
    );
    let stop = file.with_extension("stop");
    let life = async {
        wait::until("the subscription", SOON, async || {
            // A label on an image causes an event and disturbs no test.
            node.ctr().run(&["images", "label", IMAGE, "podshim.test/events=yes"]).await?;
            Ok((!std::fs::read_to_string(&file).unwrap_or_default().is_empty()).then_some(()))
        })
        .await?;
        pod.run("app").await?;
        pod.run("s1").await?;
        pod.wait_for("app", Started, 1).await?;
        for name in ["app", "s1"] {
            pod.exec(&["-d", "--exec-id", "idle"], name, &["sleep", "60"]).await?;
        }
        pod.task(&["kill"], "s1").await?;
        pod.task(&["kill"], "app").await?;
        pod.wait_stopped("s1", SOON).await?;
        for name in ["app", "s1"] {
            pod.delete(name).await?;
        }
        wait::until("the last event", SOON, async || {
            let last = task_events(&file, &pod.id("s1"))?.pop();
            Ok(last.filter(|(topic, _)| topic == "/tasks/delete").map(drop))
        })
        .await
    };
    let (recorded, life) = tokio::join!(shell(&node, &record), async {
        let result = life.await;
        std::fs::write(&stop, "")?;
        result
    });
    recorded?;
    life?;
    for name in ["app", "s1"] {
        let expected = [
            ("/tasks/create", None),
            ("/tasks/start", None),
            ("/tasks/exec-added", Some("idle")),
            ("/tasks/exec-started", Some("idle")),
            ("/tasks/exit", Some("idle")),
            ("/tasks/exit", None),
            ("/tasks/delete", None),
        ];
        let found = task_events(&file, &pod.id(name))?;
        let same = found.len() == expected.len()
            && found
                .iter()
                .zip(expected)
                .all(|((topic, exec), (wanted, of))| topic == wanted && exec.as_deref() == of);
        ensure!(same, "{name}: {found:#?}");
    }
    std::fs::remove_file(&file)?;
    std::fs::remove_file(&stop)?;
    pod.remove().await
}

/// The task events of one container that `ctr events` has written: time, namespace, topic, and the event as JSON.
fn task_events(file: &std::path::Path, id: &str) -> Result<Vec<TaskEvent>> {
    let text = std::fs::read_to_string(file)?;
    // The last line may be incomplete.
    let lines = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
    let mut events = Vec::new();
    for line in lines.filter(|line| line.contains(" /tasks/")) {
        let (head, json) =
            line.split_once(" {").with_context(|| format!("an event of another form: {line}"))?;
        let event: serde_json::Value = serde_json::from_str(&format!("{{{json}"))?;
        let text = |key: &str| event[key].as_str().filter(|text| !text.is_empty());
        if text("container_id") != Some(id) {
            continue;
        }
        let exec = text("exec_id").or(text("id").filter(|process| *process != id));
        let topic = head.split(' ').next_back().context("no topic")?;
        events.push((topic.to_owned(), exec.map(str::to_owned)));
    }
    Ok(events)
}
