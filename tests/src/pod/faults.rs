//! What tests of faults ask of a running pod: its shim, what is left of it, and a kubelet's next sync when containerd
//! is back. Kills no process itself.

use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::{Created, RunningPod, Shim};
use crate::cri::ContainerState;
use crate::durations::SOON;
use crate::{task, wait};

impl RunningPod<'_> {
    /// The pid of the pod's shim.
    ///
    /// # Errors
    /// If it has none.
    pub fn shim_pid(&self) -> Result<libc::pid_t> {
        task::shim_pid(&self.leftovers()?)
    }

    /// The longest time that the shim's one thread served nothing, and what it did then. `None` if the shim does not
    /// report it: it is dead, of another release, or not podshim.
    ///
    /// # Errors
    /// If the shim lives and does not answer.
    pub async fn longest_away(&self) -> Result<Option<(Duration, String)>> {
        if self.shim == Shim::Other || self.shim_pid().is_err() {
            return Ok(None);
        }
        // Inside the instance, where the shims' sockets are.
        let answer =
            self.node.ctr().output(&["--run", "podshim", "inspect", "--json", &self.sandbox]).await?;
        if answer.exit_code != Some(0) && self.shim_pid().is_err() {
            return Ok(None);
        }
        ensure!(answer.exit_code == Some(0), "{answer:?}");
        let answer: serde_json::Value = serde_json::from_str(&answer.stdout)?;
        let on = answer["longest_away_on"].as_str().unwrap_or_default().to_owned();
        Ok(answer["longest_away_ms"].as_u64().map(|away| (Duration::from_millis(away), on)))
    }

    /// Waits until `unwanted` accepts none of the pod's [`leftovers`](Self::leftovers).
    ///
    /// # Errors
    /// If one is still there after that time; the error lists all.
    pub async fn wait_rid_of(
        &self,
        what: &str,
        within: Duration,
        unwanted: impl Fn(&str) -> bool,
    ) -> Result<()> {
        wait::until(&format!("no {what} of the pod to be left"), within, async || {
            let left = self.leftovers()?;
            Ok((!left.iter().any(|line| unwanted(line))).then_some(()))
        })
        .await
        .with_context(|| format!("left: {:#?}", self.leftovers()))
    }

    /// Whether the OCI runtime still has the newest container of that name. It has it until containerd asks for the
    /// delete.
    ///
    /// # Errors
    /// If no container has that name, or the instance is not up.
    pub fn is_known_to_its_runtime(&self, name: &str) -> Result<bool> {
        let state = self.node.root()?.join("run/containerd/runc/k8s.io").join(self.id(name)?);
        Ok(state.exists())
    }

    /// Does what a kubelet does for these containers, in this order, once containerd is back: it leaves running ones
    /// alone, and removes, recreates and starts the others.
    ///
    /// # Errors
    /// What containerd answers.
    pub async fn sync(&mut self, names: &[&str]) -> Result<()> {
        let listed = self.cri.list_containers(&self.sandbox).await?;
        let mut running = Vec::new();
        for container in listed {
            let name = container.metadata.clone().context("a container without a name")?.name;
            // containerd was killed before it answered the create.
            if !self.containers.iter().any(|created| created.id == container.id) {
                self.footprint.add_container(&container.id);
                self.containers.push(Created { name: name.clone(), id: container.id.clone() });
            }
            if container.state() == ContainerState::ContainerRunning {
                running.push(name);
            } else {
                self.cri.stop_container(&container.id, Duration::ZERO).await?;
                self.cri.remove_container(&container.id).await?;
                self.containers.retain(|created| created.id != container.id);
            }
        }
        for name in names {
            if running.iter().any(|running| running == name) {
                continue;
            }
            // Retried, as by a kubelet's next sync. The new containerd may still be removing what the killed one had
            // begun, and 2.x finds the directory of an unfinished snapshot only when it collects garbage.
            let mut last = None;
            wait::until(&format!("{name} to be started again"), SOON, async || {
                match self.start(name).await {
                    Ok(()) => Ok(Some(())),
                    Err(error) if is_of_a_cut_off_create(&format!("{error:#}")) => {
                        last = Some(error);
                        Ok(None)
                    }
                    Err(error) => Err(error),
                }
            })
            .await
            .with_context(|| format!("the last attempt: {last:?}"))?;
        }
        Ok(())
    }
}

/// Whether a create fails because containerd was killed in the middle of an earlier one. It succeeds later.
#[must_use]
pub fn is_of_a_cut_off_create(error: &str) -> bool {
    error.contains("which has not ended") || error.contains("/snapshots/") && error.contains("file exists")
}

/// Whether a line of a pod's [leftovers](RunningPod::leftovers) must vanish as soon as its shim has ended. The network
/// namespace and the CRI's files may stay: the caller removes them with the pod.
#[must_use]
pub fn is_of_a_shim(line: &str) -> bool {
    let kind = line.split(':').next().unwrap_or_default();
    match kind {
        "mount" => line.contains("/rootfs"),
        "file" => {
            ["/run/podshim/", "/run/containerd/s/", "/runc/k8s.io/"].iter().any(|part| line.contains(part))
        }
        _ => true,
    }
}
