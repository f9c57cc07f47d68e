//! `io.containerd.cgroups.v2.Metrics`.
//!
//! Owns the names of its fields. Decides nothing.

#[cfg(test)]
mod tests;

use cgroups::v2 as cgroup;
use containerd_shim_protos::cgroups_v2::metrics::{
    CPUStat, HugeTlbStat, IOEntry, IOStat, MemoryEvents, MemoryStat, Metrics, PSIData, PSIStats, PidsStat,
    RdmaEntry, RdmaStat,
};

/// All numbers of one container. `network` stays unset.
pub(super) fn metrics(stats: &cgroup::Stats) -> Metrics {
    Metrics {
        pids: stats.pids.as_ref().map(pids).into(),
        cpu: stats.cpu.as_ref().map(cpu).into(),
        memory: stats.memory.as_ref().map(memory).into(),
        rdma: Some(rdma(&stats.rdma)).into(),
        io: stats.io.as_ref().map(io).into(),
        hugetlb: stats.hugetlb.iter().map(hugetlb).collect(),
        memory_events: stats.memory_events.as_ref().map(memory_events).into(),
        ..Metrics::default()
    }
}

fn pids(stats: &cgroup::PidsStats) -> PidsStat {
    PidsStat { current: stats.current, limit: stats.limit, ..PidsStat::default() }
}

fn cpu(stats: &cgroup::CpuStats) -> CPUStat {
    let detail = &stats.detail;
    CPUStat {
        usage_usec: detail.usage_usec,
        user_usec: detail.user_usec,
        system_usec: detail.system_usec,
        nr_periods: detail.nr_periods,
        nr_throttled: detail.nr_throttled,
        throttled_usec: detail.throttled_usec,
        psi: stats.pressure.as_ref().map(pressure_stats).into(),
        nr_bursts: detail.nr_bursts,
        burst_usec: detail.burst_usec,
        ..CPUStat::default()
    }
}

fn memory(stats: &cgroup::MemoryStats) -> MemoryStat {
    let detail = &stats.detail;
    MemoryStat {
        anon: detail.anon,
        file: detail.file,
        kernel_stack: detail.kernel_stack,
        slab: detail.slab,
        sock: detail.sock,
        shmem: detail.shmem,
        file_mapped: detail.file_mapped,
        file_dirty: detail.file_dirty,
        file_writeback: detail.file_writeback,
        anon_thp: detail.anon_thp,
        inactive_anon: detail.inactive_anon,
        active_anon: detail.active_anon,
        inactive_file: detail.inactive_file,
        active_file: detail.active_file,
        unevictable: detail.unevictable,
        slab_reclaimable: detail.slab_reclaimable,
        slab_unreclaimable: detail.slab_unreclaimable,
        pgfault: detail.pgfault,
        pgmajfault: detail.pgmajfault,
        workingset_refault: detail.workingset_refault,
        workingset_activate: detail.workingset_activate,
        workingset_nodereclaim: detail.workingset_nodereclaim,
        pgrefill: detail.pgrefill,
        pgscan: detail.pgscan,
        pgsteal: detail.pgsteal,
        pgactivate: detail.pgactivate,
        pgdeactivate: detail.pgdeactivate,
        pglazyfree: detail.pglazyfree,
        pglazyfreed: detail.pglazyfreed,
        thp_fault_alloc: detail.thp_fault_alloc,
        thp_collapse_alloc: detail.thp_collapse_alloc,
        usage: stats.usage,
        usage_limit: stats.usage_limit,
        swap_usage: stats.swap_usage,
        swap_limit: stats.swap_limit,
        max_usage: stats.max_usage,
        swap_max_usage: stats.swap_max_usage,
        psi: stats.pressure.as_ref().map(pressure_stats).into(),
        ..MemoryStat::default()
    }
}

fn memory_events(events: &cgroup::MemoryEvents) -> MemoryEvents {
    MemoryEvents {
        low: events.low,
        high: events.high,
        max: events.max,
        oom: events.oom,
        oom_kill: events.oom_kill,
        oom_group_kill: events.oom_group_kill,
        ..MemoryEvents::default()
    }
}

fn pressure_stats(stats: &cgroup::PressureStats) -> PSIStats {
    PSIStats {
        some: Some(pressure(&stats.some)).into(),
        full: Some(pressure(&stats.full)).into(),
        ..PSIStats::default()
    }
}

fn pressure(pressure: &cgroup::Pressure) -> PSIData {
    PSIData {
        avg10: pressure.average_10,
        avg60: pressure.average_60,
        avg300: pressure.average_300,
        total: pressure.total,
        ..PSIData::default()
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

fn io(stats: &cgroup::IoStats) -> IOStat {
    IOStat {
        usage: stats.usage.iter().map(io_entry).collect(),
        psi: stats.pressure.as_ref().map(pressure_stats).into(),
        ..IOStat::default()
    }
}

fn io_entry(entry: &cgroup::IoEntry) -> IOEntry {
    IOEntry {
        major: entry.major,
        minor: entry.minor,
        rbytes: entry.read_bytes,
        wbytes: entry.written_bytes,
        rios: entry.reads,
        wios: entry.writes,
        ..IOEntry::default()
    }
}

fn hugetlb(stats: &cgroup::HugetlbStats) -> HugeTlbStat {
    HugeTlbStat {
        current: stats.current,
        max: stats.max,
        pagesize: stats.page_size.clone(),
        failcnt: stats.failure_count,
        ..HugeTlbStat::default()
    }
}
