//! `io.containerd.cgroups.v1.Metrics`.
//!
//! Owns the names of its fields, and which parts are sent empty instead of unset: those that some release of containerd
//! dereferences without a check.

#[cfg(test)]
mod tests;

use cgroups::v1 as cgroup;
use containerd_shim_protos::cgroups::metrics::{
    BlkIOEntry, BlkIOStat, CPUStat, CPUUsage, HugetlbStat, MemoryEntry, MemoryOomControl, MemoryStat,
    Metrics, PidsStat, RdmaEntry, RdmaStat, Throttle,
};

/// All numbers of one container. `network` and `cgroup_stats` stay unset, as the runc shim leaves them.
pub(super) fn metrics(stats: &cgroup::Stats) -> Metrics {
    Metrics {
        hugetlb: stats.hugetlb.iter().map(hugetlb).collect(),
        pids: stats.pids.as_ref().map(pids).into(),
        cpu: stats.cpu.as_ref().map(cpu).into(),
        memory: stats.memory.as_ref().map(memory).into(),
        blkio: stats.blkio.as_ref().map(blkio).into(),
        rdma: stats.rdma.as_ref().map(rdma).into(),
        memory_oom_control: stats.memory_oom_control.as_ref().map(memory_oom_control).into(),
        ..Metrics::default()
    }
}

fn hugetlb(stats: &cgroup::HugetlbStats) -> HugetlbStat {
    HugetlbStat {
        usage: stats.usage,
        max: stats.max,
        failcnt: stats.failure_count,
        pagesize: stats.page_size.clone(),
        ..HugetlbStat::default()
    }
}

fn pids(stats: &cgroup::PidsStats) -> PidsStat {
    PidsStat { current: stats.current, limit: stats.limit, ..PidsStat::default() }
}

/// Both parts are always set: containerd's collector, in 2.x too, checks only `cpu`.
fn cpu(stats: &cgroup::CpuStats) -> CPUStat {
    let usage = CPUUsage {
        total: stats.total,
        kernel: stats.kernel,
        user: stats.user,
        per_cpu: stats.per_cpu.clone(),
        ..CPUUsage::default()
    };
    let throttling = Throttle {
        periods: stats.periods,
        throttled_periods: stats.throttled_periods,
        throttled_time: stats.throttled_time,
        ..Throttle::default()
    };
    CPUStat { usage: Some(usage).into(), throttling: Some(throttling).into(), ..CPUStat::default() }
}

/// All four entries are always set, to zero where the kernel counts nothing: before containerd#8535 (1.6.20 is older)
/// containerd's collector panics on a missing one. The runc shim sends zeros as well.
fn memory(stats: &cgroup::MemoryStats) -> MemoryStat {
    let optional_entry = |entry: &Option<cgroup::MemoryEntry>| Some(memory_entry(&entry.unwrap_or_default()));
    let detail = &stats.detail;
    MemoryStat {
        cache: detail.cache,
        rss: detail.rss,
        rss_huge: detail.rss_huge,
        mapped_file: detail.mapped_file,
        dirty: detail.dirty,
        writeback: detail.writeback,
        pg_pg_in: detail.pgpgin,
        pg_pg_out: detail.pgpgout,
        pg_fault: detail.pgfault,
        pg_maj_fault: detail.pgmajfault,
        inactive_anon: detail.inactive_anon,
        active_anon: detail.active_anon,
        inactive_file: detail.inactive_file,
        active_file: detail.active_file,
        unevictable: detail.unevictable,
        hierarchical_memory_limit: detail.hierarchical_memory_limit,
        hierarchical_swap_limit: detail.hierarchical_swap_limit,
        total_cache: detail.total_cache,
        total_rss: detail.total_rss,
        total_rss_huge: detail.total_rss_huge,
        total_mapped_file: detail.total_mapped_file,
        total_dirty: detail.total_dirty,
        total_writeback: detail.total_writeback,
        total_pg_pg_in: detail.total_pgpgin,
        total_pg_pg_out: detail.total_pgpgout,
        total_pg_fault: detail.total_pgfault,
        total_pg_maj_fault: detail.total_pgmajfault,
        total_inactive_anon: detail.total_inactive_anon,
        total_active_anon: detail.total_active_anon,
        total_inactive_file: detail.total_inactive_file,
        total_active_file: detail.total_active_file,
        total_unevictable: detail.total_unevictable,
        usage: Some(memory_entry(&stats.usage)).into(),
        swap: optional_entry(&stats.swap).into(),
        kernel: optional_entry(&stats.kernel).into(),
        kernel_tcp: optional_entry(&stats.kernel_tcp).into(),
        ..MemoryStat::default()
    }
}

fn memory_entry(entry: &cgroup::MemoryEntry) -> MemoryEntry {
    MemoryEntry {
        limit: entry.limit,
        usage: entry.usage,
        max: entry.max,
        failcnt: entry.failure_count,
        ..MemoryEntry::default()
    }
}

fn memory_oom_control(control: &cgroup::MemoryOomControl) -> MemoryOomControl {
    MemoryOomControl {
        oom_kill_disable: control.oom_kill_disable,
        under_oom: control.under_oom,
        oom_kill: control.oom_kill,
        ..MemoryOomControl::default()
    }
}

fn blkio(stats: &cgroup::BlkioStats) -> BlkIOStat {
    let entries = |entries: &[cgroup::BlkioEntry]| entries.iter().map(blkio_entry).collect();
    BlkIOStat {
        io_service_bytes_recursive: entries(&stats.service_bytes),
        io_serviced_recursive: entries(&stats.serviced),
        io_queued_recursive: entries(&stats.queued),
        io_service_time_recursive: entries(&stats.service_time),
        io_wait_time_recursive: entries(&stats.wait_time),
        io_merged_recursive: entries(&stats.merged),
        io_time_recursive: entries(&stats.time),
        sectors_recursive: entries(&stats.sectors),
        ..BlkIOStat::default()
    }
}

fn blkio_entry(entry: &cgroup::BlkioEntry) -> BlkIOEntry {
    BlkIOEntry {
        op: entry.operation.clone(),
        device: entry.device.clone(),
        major: entry.major,
        minor: entry.minor,
        value: entry.value,
        ..BlkIOEntry::default()
    }
}

fn rdma(stats: &cgroup::RdmaStats) -> RdmaStat {
    let entries = |entries: &[cgroup::RdmaEntry]| entries.iter().map(rdma_entry).collect();
    RdmaStat { current: entries(&stats.current), limit: entries(&stats.limit), ..RdmaStat::default() }
}

fn rdma_entry(entry: &cgroup::RdmaEntry) -> RdmaEntry {
    RdmaEntry {
        device: entry.device.clone(),
        hca_handles: entry.hca_handles,
        hca_objects: entry.hca_objects,
        ..RdmaEntry::default()
    }
}
