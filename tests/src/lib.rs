//! The harness of podshim's end-to-end tests and its demo: a private containerd, pods whose containers record what
//! happens to them, and checks of that record. It drives containerd through CRI and `ctr` only and may never reach into
//! the shim.
//!
//! A test reads like this:
//!
//! ```text
//! let node = Containerd::connect().await?;
//! let mut pod = Pod::new("order").annotate("plan", "s1=sidecar, app=main")
//!     .container(Program::new("s1"))
//!     .container(Program::new("app").exits(0))
//!     .run(&node, Runtime::Podshim).await?;
//! pod.start_all(&["app", "s1"]).await?;
//! pod.wait_exited("app", Duration::from_secs(5)).await?;
//! pod.timeline()?.starts_before("s1", "app")?;
//! pod.remove().await
//! ```

pub mod build;
pub mod calls;
pub mod chart;
pub mod cluster;
mod command;
pub mod cri;
pub mod ctr;
pub mod direct;
pub mod durations;
pub mod events;
pub mod faulty_runtime;
pub mod freezer;
pub mod fuse;
pub mod instance;
pub mod inventory;
pub mod kubelet;
pub mod leftovers;
pub mod pod;
pub mod processor_time;
pub mod program;
pub mod real_servers;
pub mod static_pod;
pub mod task;
pub mod timeline;
pub mod usage;
pub mod wait;

pub use build::Build;
pub use cluster::Cluster;
pub use cluster::workload::{ClusterPod, RunningWorkload, Workload};
pub use command::{hack, output};
pub use cri::{Cri, ExecOutput};
pub use ctr::Ctr;
pub use events::{EventLog, TaskEvent};
pub use faulty_runtime::{Fault, FaultyRuntime};
pub use instance::{Containerd, Runtime};
pub use inventory::Inventory;
pub use kubelet::Kubelet;
pub use leftovers::Footprint;
pub use pod::{Pod, RunningPod};
pub use program::Program;
pub use static_pod::{ContainerState, Manifest, Phase, PodStatus, StaticPod};
pub use task::Task;
pub use timeline::{Event, Timeline};
pub use usage::Usage;
