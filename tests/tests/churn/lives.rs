//! The lives that a pod of the churn may have. Each ends with the pod removed and nothing of it left; none knows that
//! containerd may be killed meanwhile.

use std::time::Duration;

use anyhow::{Result, ensure};
use e2e::Event::Started;
use e2e::durations::{AMPLE, SOON, milliseconds};
use e2e::instance::signal;
use e2e::{Containerd, Pod, Program, RunningPod, Runtime};

/// What becomes of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Life {
    /// An exec, and a stop of all containers.
    Stopped,
    /// Removed without a stop: all are killed.
    Killed,
    /// The sidecar's process is killed, and runs again before the stop.
    Restarted,
    /// The main ends and is created once more.
    Recreated,
    /// Removed while the main is still held.
    Held,
    /// The shim is killed.
    WithoutShim,
    /// Removed, and made once more with the same name and UID, as a static pod is.
    Again,
}

const LIVES: [Life; 7] = [
    Life::Stopped,
    Life::Killed,
    Life::Restarted,
    Life::Recreated,
    Life::Held,
    Life::WithoutShim,
    Life::Again,
];

impl Life {
    /// Which life the pod with that number has.
    pub(crate) fn of(number: usize) -> Self {
        LIVES[number % LIVES.len()]
    }

    /// A pod for this life.
    pub(crate) fn pod(self, name: &str) -> Pod {
        let main = Program::new("app");
        let main =
            if self == Life::Recreated { main.runs_for_each(&[milliseconds(50), AMPLE]) } else { main };
        let ready = if self == Life::Held { AMPLE } else { Duration::ZERO };
        Pod::new("churn")
            .called(name)
            .annotate("plan", "s1=sidecar, app=main")
            .annotate("ready.s1", "exec:test -e /tmp/ready;period=100ms;fail=1000")
            .annotate("restart.s1", "always;base=100ms")
            .container(Program::new("s1").ready_file("/tmp/ready", ready))
            .container(main)
    }

    /// Runs the pod up to the moment at which it ends.
    pub(crate) async fn begin(self, node: &Containerd, pod: Pod) -> Result<RunningPod<'_>> {
        let mut pod = run(node, pod).await?;
        if self == Life::Held {
            pod.start_all(&["app", "s1"]).await?;
            return Ok(pod);
        }
        up(&mut pod).await?;
        Ok(pod)
    }

    /// Ends the pod and removes it.
    pub(crate) async fn end(
        self,
        node: &Containerd,
        runtime: Runtime,
        mut pod: RunningPod<'_>,
    ) -> Result<()> {
        match self {
            Life::Stopped => {
                let output = pod.exec("s1", &["true"]).await?;
                ensure!(output.exit_code == 0, "{output:?}");
                pod.stop_all_at_once(AMPLE).await?;
            }
            Life::Restarted if runtime == Runtime::Podshim => {
                signal(pod.pid("s1").await?, libc::SIGKILL)?;
                pod.wait_for("s1", Started, 2, SOON).await?;
                pod.stop_all_at_once(AMPLE).await?;
            }
            Life::Recreated => {
                pod.wait_exited("app", SOON).await?;
                pod.start("app").await?;
                pod.wait_for("app", Started, 2, SOON).await?;
                pod.stop_all_at_once(AMPLE).await?;
            }
            Life::WithoutShim if runtime == Runtime::Podshim => {
                signal(pod.shim_pid()?, libc::SIGKILL)?;
                // Until then containerd from 1.7 on refuses to remove them: it says that they run.
                for name in ["app", "s1"] {
                    pod.wait_exited(name, SOON).await?;
                }
            }
            // containerd's own shim restarts nothing, and leaves its containers when it is killed.
            Life::Killed | Life::Held | Life::Restarted | Life::WithoutShim => {}
            Life::Again => {
                let same = pod.pod().clone();
                pod.remove().await?;
                pod = run(node, same).await?;
                up(&mut pod).await?;
            }
        }
        pod.remove().await
    }
}

/// RunPodSandbox without the name of a handler: on the default runtime.
async fn run(node: &Containerd, pod: Pod) -> Result<RunningPod<'_>> {
    pod.run_handler(node, "").await
}

async fn up(pod: &mut RunningPod<'_>) -> Result<()> {
    pod.start_all(&["app", "s1"]).await?;
    pod.wait_for("app", Started, 1, SOON).await.map(drop)
}
