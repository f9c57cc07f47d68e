//! The limits of podshim's own process 1 after an Update, beside those of the sandbox that runc makes.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use containerd_shim_protos::shim::shim::UpdateTaskRequest;
use containerd_shim_protos::types::empty::Empty;
use e2e::Containerd;
use e2e::direct::shim::Connection;
use protobuf::MessageField;
use protobuf::well_known_types::any::Any;
use serde_json::json;

use crate::process_1::pod_by;

/// An Update changes the same in its control groups, and in its scope, as in those of runc's sandbox. crun 1.28 has a group of its own
/// inside of the scope, turns shares into another weight, and takes 100 ms for a quota alone.
#[tokio::test]
async fn an_update_limits_it_as_runcs() -> Result<()> {
    let node = Containerd::start().await?;
    let own = limits_after_updates(&node, "own").await?;
    if node.oci_runtime()? == "runc" {
        let runcs = limits_after_updates(&node, "runtime").await?;
        ensure!(own == runcs, "{own:#?}, runc's: {runcs:#?}");
    }
    ensure!(own.windows(2).all(|two| two[0] != two[1]), "an Update changed nothing: {own:#?}");
    Ok(())
}

/// The limits of the sandbox of a pod, which `maker` makes: before the first Update, and after each.
async fn limits_after_updates(node: &Containerd, maker: &str) -> Result<Vec<Vec<String>>> {
    let pod = pod_by(node, maker).await?;
    let socket = format!("unix://{}", node.shim_socket("k8s.io", pod.sandbox())?.display());
    let (shim, _) = Connection::open(socket.as_bytes()).await?;
    let mut limits = vec![limits_of(pod.sandbox_pid().await?).await?];
    let updates = [
        json!({"pids": {"limit": 9}}),
        // The most, which is the highest weight of v2 with every runc: what is in between 1.3 converts otherwise than 1.1.
        json!({"cpu": {"shares": 262_144}}),
        json!({"cpu": {"quota": 50_000, "period": 100_000}}),
        json!({"cpu": {"quota": 20_000, "period": 40_000}}),
        json!({"cpu": {"quota": 30_000}}),
        json!({"cpu": {"period": 100_000}}),
        json!({"cpu": {"quota": 20_000}}),
        json!({"memory": {"limit": 64 << 20}}),
        json!({"memory": {"limit": 128 << 20}, "cpu": {"shares": 2}, "pids": {"limit": -1}}),
        json!({"memory": {"limit": -1}, "pids": {"limit": 11}}),
    ];
    for resources in updates {
        let words = resources.to_string();
        let resources = Any {
            type_url: "types.containerd.io/opencontainers/runtime-spec/1/LinuxResources".to_owned(),
            value: words.clone().into_bytes(),
            ..Any::default()
        };
        let request = UpdateTaskRequest {
            id: pod.sandbox().to_owned(),
            resources: MessageField::some(resources),
            ..Default::default()
        };
        let updated = shim.call::<_, Empty>("Update", &request).await;
        ensure!(updated.is_ok(), "{maker}: {words}: {updated:?}");
        limits.push(limits_of(pod.sandbox_pid().await?).await?);
    }
    pod.stop_sandbox().await?;
    pod.remove().await?;
    Ok(limits)
}

/// The limits in a process's control groups, of both versions, and those that systemd knows of its scope.
async fn limits_of(pid: libc::pid_t) -> Result<Vec<String>> {
    const FILES: [&str; 8] = [
        "pids.max",
        "cpu.max",
        "cpu.weight",
        "memory.max",
        "cpu.shares",
        "cpu.cfs_quota_us",
        "cpu.cfs_period_us",
        "memory.limit_in_bytes",
    ];
    let membership = std::fs::read_to_string(format!("/proc/{pid}/cgroup"))?;
    let (mut found, mut scope) = (Vec::new(), None);
    for line in membership.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (hierarchy, group) = (fields.next().context("no hierarchy")?, fields.next().context("no group")?);
        let directory = Path::new("/sys/fs/cgroup").join(hierarchy).join(group.trim_start_matches('/'));
        // A file that the kernel does not have is none of either.
        let text = |file: &str| std::fs::read_to_string(directory.join(file)).ok();
        found.extend(FILES.iter().filter_map(|file| Some(format!("{file} {}", text(file)?.trim()))));
        scope = scope.or(group.rsplit('/').next().filter(|name| name.ends_with(".scope")));
    }
    if let Some(scope) = scope {
        let properties = "--property=TasksMax,MemoryMax,MemoryLimit,CPUWeight,CPUShares,CPUQuotaPerSecUSec,CPUQuotaPeriodUSec";
        let shown = e2e::output("systemctl", ["show", scope, properties]).await?;
        // systemd's own period is the one that the OCI runtime names.
        found.extend(shown.lines().map(|line| line.replace("PeriodUSec=infinity", "PeriodUSec=100ms")));
    }
    found.sort_unstable();
    Ok(found)
}
