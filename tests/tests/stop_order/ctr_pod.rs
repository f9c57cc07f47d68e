//! A pod that only `ctr` creates: one annotation groups its containers, another names each of them. Owns the containers
//! and the pod's directory; the tests of rules are in [`crate::ctr_pods`].

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::ctr::Output;
use e2e::{Containerd, Event, Footprint, Program, Runtime, Timeline, wait};

use crate::support::SOON;

/// The namespace that `ctr` uses by default.
pub(crate) const NAMESPACE: &str = "default";

/// The image of every container.
pub(crate) const IMAGE: &str = "podshim.test/busybox:1";

static NEXT: AtomicU32 = AtomicU32::new(0);

/// The status of a task that callers see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TaskStatus {
    Running,
    Paused,
    Stopped,
}

/// The pod. As with pods of CRI, `hack/containerd-down` removes the pod of a failed test.
pub(crate) struct CtrPod<'node> {
    node: &'node Containerd,
    name: String,
    plan: String,
    programs: Vec<Program>,
    directory: PathBuf,
    footprint: Footprint,
}

impl<'node> CtrPod<'node> {
    /// A pod of these programs with this plan. Nothing runs yet.
    pub(crate) fn new(node: &'node Containerd, plan: &str, programs: Vec<Program>) -> Result<Self> {
        let name = format!("ctr-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let directory = node.directory().join("pods").join(&name);
        std::fs::create_dir_all(&directory)?;
        let ids: Vec<_> = programs.iter().map(|program| format!("{name}-{}", program.name())).collect();
        let footprint = Footprint::of_containers(&ids.iter().map(String::as_str).collect::<Vec<_>>());
        let plan = format!("podshim.io/plan={plan}");
        Ok(Self { node, name, plan, programs, directory, footprint })
    }

    /// The id of the container of that name.
    pub(crate) fn id(&self, name: &str) -> String {
        format!("{}-{name}", self.name)
    }

    /// `ctr run -d`: creates and starts the container of that name.
    pub(crate) async fn run(&mut self, name: &str) -> Result<()> {
        let program = self.programs.iter().find(|program| program.name() == name);
        let command =
            program.with_context(|| format!("the pod has no container {name}"))?.command("/pod/log");
        let mount = format!("type=bind,src={},dst=/pod,options=rbind:rw", self.directory.display());
        let output = format!("file://{}/{name}.output", self.directory.display());
        let (group, title) = (
            format!("io.kubernetes.cri.sandbox-id={}", self.name),
            format!("io.kubernetes.cri.container-name={name}"),
        );
        let id = self.id(name);
        let mut words = vec!["run", "-d", "--runtime", Runtime::Podshim.runtime_type(), "--log-uri", &output];
        words.extend(["--annotation", &group, "--annotation", &title, "--annotation", &self.plan]);
        words.extend(["--mount", &mount, IMAGE, &id]);
        words.extend(command.iter().map(String::as_str));
        self.node.ctr().run(&words).await?;
        self.footprint.add_shim_socket(self.node, NAMESPACE, &id)
    }

    /// Runs `ctr task COMMAND... ID` and returns its output.
    pub(crate) async fn task(&self, command: &[&str], name: &str) -> Result<String> {
        let id = self.id(name);
        let words = ["task"].iter().chain(command).copied().chain([id.as_str()]).collect::<Vec<_>>();
        self.node.ctr().run(&words).await
    }

    /// Runs `ctr task exec FLAGS... ID COMMAND...` and returns its output and exit code.
    pub(crate) async fn exec(&self, flags: &[&str], name: &str, command: &[&str]) -> Result<Output> {
        let id = self.id(name);
        let words = ["task", "exec"].iter().chain(flags).copied().chain([id.as_str()]);
        self.node.ctr().output(&words.chain(command.iter().copied()).collect::<Vec<_>>()).await
    }

    /// Runs a shell script inside the instance of this pod's containerd; `ctr` finds that by its environment.
    pub(crate) async fn shell(&self, script: &str) -> Result<Output> {
        shell(self.node, script).await
    }

    /// The status of the task of that name in `ctr task ls`.
    pub(crate) async fn status(&self, name: &str) -> Result<TaskStatus> {
        let (id, list) = (self.id(name), self.node.ctr().run(&["task", "ls"]).await?);
        let line = list.lines().find(|line| line.split_whitespace().next() == Some(&id));
        match line.and_then(|line| line.split_whitespace().last()) {
            Some("RUNNING") => Ok(TaskStatus::Running),
            Some("PAUSED") => Ok(TaskStatus::Paused),
            Some("STOPPED") => Ok(TaskStatus::Stopped),
            other => anyhow::bail!("the status of {id} is {other:?} in\n{list}"),
        }
    }

    /// Waits until the task's exit is shown.
    pub(crate) async fn wait_stopped(&self, name: &str, within: Duration) -> Result<()> {
        wait::until(&format!("{name} to be stopped"), within, async || {
            Ok((self.status(name).await? == TaskStatus::Stopped).then_some(()))
        })
        .await
        .with_context(|| format!("the timeline so far:\n{}", self.timeline().unwrap_or_default()))
    }

    /// Deletes the stopped task of that name and returns the exit code that Delete answers.
    pub(crate) async fn delete(&self, name: &str) -> Result<i32> {
        let output = self.node.ctr().output(&["task", "rm", &self.id(name)]).await?;
        ensure!(output.exit_code == Some(0), "{output:?}");
        // ctr prints a code other than 0 in a warning, after this text.
        let code = output.stderr.split_once("non-zero exit code ");
        let code = code.map(|(_, rest)| rest.chars().take_while(char::is_ascii_digit).collect::<String>());
        Ok(code.map_or(Ok(0), |code| code.parse())?)
    }

    /// Waits until a container has recorded an event that often.
    pub(crate) async fn wait_for(&self, name: &str, event: Event, count: usize) -> Result<Timeline> {
        wait::until(&format!("{name} {event:?} ({count})"), SOON, async || {
            let timeline = self.timeline()?;
            Ok((timeline.count(name, event) >= count).then_some(timeline))
        })
        .await
        .with_context(|| format!("the timeline so far:\n{}", self.timeline().unwrap_or_default()))
    }

    /// What happened so far.
    pub(crate) fn timeline(&self) -> Result<Timeline> {
        match std::fs::read_to_string(self.directory.join("log")) {
            Ok(log) => Timeline::parse(&log),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Timeline::default()),
            Err(error) => Err(error.into()),
        }
    }

    /// The output of a container, with the lines that podshim added to it.
    pub(crate) fn output(&self, name: &str) -> Result<String> {
        Ok(std::fs::read_to_string(self.directory.join(format!("{name}.output")))?)
    }

    /// Kills what still runs, removes all containers, and checks that nothing is left.
    pub(crate) async fn remove(self) -> Result<()> {
        for program in &self.programs {
            let id = self.id(program.name());
            // Not checked: the test may have deleted the task, and a killed task's exit code is not 0.
            self.node.ctr().output(&["task", "rm", "--force", &id]).await?;
            let removed = self.node.ctr().output(&["container", "rm", &id]).await?;
            ensure!(removed.exit_code == Some(0), "{removed:?}");
        }
        self.footprint.wait_gone(self.node, SOON).await?;
        std::fs::remove_dir_all(&self.directory)?;
        Ok(())
    }
}

/// Runs a shell script inside an instance; `ctr` in it finds its containerd by the environment.
pub(crate) async fn shell(node: &Containerd, script: &str) -> Result<Output> {
    node.ctr().output(&["--run", "timeout", "60", "sh", "-c", script]).await
}
