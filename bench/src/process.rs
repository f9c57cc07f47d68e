//! What a shim's process costs, by the kernel's figures.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::wait;

/// A shim's server process.
#[derive(Clone, Debug)]
pub struct Shim {
    process: PathBuf,
}

/// A process's memory in kB, and what else it holds.
#[derive(Clone, Copy, Debug, Default)]
pub struct Holdings {
    pub resident: f64,
    pub proportional: f64,
    pub private_dirty: f64,
    pub threads: f64,
    pub open_files: f64,
}

impl Shim {
    /// The shim with `id` as a word of its command line: a sandbox's id, or a namespace that only this shim has.
    pub fn of(id: &str) -> Result<Self> {
        let mut shims = Self::of_each(&[id.to_owned()])?;
        shims.pop().with_context(|| format!("no shim of {id}"))
    }

    /// The shims of many ids, one for each: reads the process table once.
    pub fn of_each(ids: &[String]) -> Result<Vec<Self>> {
        let mut found: BTreeMap<&str, Self> = BTreeMap::new();
        for entry in fs::read_dir("/proc")? {
            let process = entry?.path();
            // The process may have ended meanwhile, or the entry is no process.
            let Ok(line) = fs::read(process.join("cmdline")) else { continue };
            let line = String::from_utf8_lossy(&line);
            let mut words = line.split('\0');
            if !words.next().is_some_and(|program| program.contains("containerd-shim-")) {
                continue;
            }
            if let Some(id) = words.find_map(|word| ids.iter().find(|id| *id == word)) {
                found.insert(id, Self { process });
            }
        }
        ensure!(found.len() == ids.len(), "{} of {} shims run", found.len(), ids.len());
        Ok(found.into_values().collect())
    }

    /// What it holds now.
    pub fn holdings(&self) -> Result<Holdings> {
        let memory = |key| number(&self.process.join("smaps_rollup"), key);
        let open_files = fs::read_dir(self.process.join("fd"))?.count();
        Ok(Holdings {
            resident: memory("Rss:")?,
            proportional: memory("Pss:")?,
            private_dirty: memory("Private_Dirty:")?,
            threads: number(&self.process.join("status"), "Threads:")?,
            #[expect(clippy::cast_precision_loss, reason = "a few dozen")]
            open_files: open_files as f64,
        })
    }

    /// The proportional memory of its pod's sandbox, in kB. Only for a pod without containers: the sandbox is the shim's one
    /// child.
    pub fn sandbox_proportional(&self) -> Result<f64> {
        number(&self.only_child()?.join("smaps_rollup"), "Pss:")
    }

    /// What the sandbox's own cgroup is charged for, in kB: with the kernel's memory for its namespaces and tables.
    pub fn sandbox_cgroup(&self) -> Result<f64> {
        let groups = fs::read_to_string(self.only_child()?.join("cgroup"))?;
        let below =
            |start| groups.lines().find_map(|line| line.split_once(start).map(|(_, path)| path.to_owned()));
        let file = match below(":memory:") {
            Some(path) => format!("/sys/fs/cgroup/memory{path}/memory.usage_in_bytes"),
            None => format!("/sys/fs/cgroup{}/memory.current", below("0::").context("no memory cgroup")?),
        };
        let bytes: f64 = fs::read_to_string(&file).with_context(|| file)?.trim().parse()?;
        Ok(bytes / 1024.0)
    }

    fn only_child(&self) -> Result<PathBuf> {
        let mut children = String::new();
        for thread in self.threads()? {
            children += &fs::read_to_string(thread.join("children"))?;
        }
        let pids: Vec<&str> = children.split_whitespace().collect();
        ensure!(pids.len() == 1, "children of {}: {pids:?}", self.process.display());
        Ok(Path::new("/proc").join(pids[0]))
    }

    /// The processor time its threads have used.
    pub fn processor_time(&self) -> Result<Duration> {
        let mut nanoseconds = 0;
        for thread in self.threads()? {
            let text = fs::read_to_string(thread.join("schedstat"))?;
            nanoseconds += text.split(' ').next().context("schedstat")?.parse::<u64>()?;
        }
        Ok(Duration::from_nanos(nanoseconds))
    }

    /// How often its threads have slept and were woken up.
    pub fn wake_ups(&self) -> Result<f64> {
        self.threads()?.iter().map(|thread| number(&thread.join("status"), "voluntary_ctxt_switches:")).sum()
    }

    /// Waits until it rests: half a second without a wake-up. Waits 5 s at most, as a shim may never rest.
    pub async fn settle(&self) -> Result<()> {
        for _ in 0..10 {
            let before = self.wake_ups()?;
            wait::quiet_time(Duration::from_millis(500)).await;
            if (self.wake_ups()? - before).abs() < 0.5 {
                return Ok(());
            }
        }
        Ok(())
    }

    fn threads(&self) -> Result<Vec<PathBuf>> {
        fs::read_dir(self.process.join("task"))?.map(|entry| Ok(entry?.path())).collect()
    }
}

fn number(path: &Path, key: &str) -> Result<f64> {
    let text = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let value = text.lines().find_map(|line| line.strip_prefix(key)?.split_whitespace().next());
    let value = value.with_context(|| format!("no {key} in {}", path.display()))?;
    Ok(value.parse()?)
}
