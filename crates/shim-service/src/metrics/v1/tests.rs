//! Every number in its field of the v1 message, and the parts that may not be missing.

use cgroups::Stats;
use containerd_shim_protos::cgroups::metrics as messages;
use protobuf::{Message, SpecialFields};

use super::*;
use crate::metrics::to_any;

fn decode(stats: cgroup::Stats) -> Metrics {
    let any = to_any(&Stats::V1(Box::new(stats)));
    assert_eq!(any.type_url, "io.containerd.cgroups.v1.Metrics");
    Metrics::parse_from_bytes(&any.value).unwrap()
}

fn entry_numbers(first: u64) -> cgroup::MemoryEntry {
    cgroup::MemoryEntry { limit: first, usage: first + 1, max: first + 2, failure_count: first + 3 }
}

fn entry_message(first: u64) -> messages::MemoryEntry {
    messages::MemoryEntry {
        limit: first,
        usage: first + 1,
        max: first + 2,
        failcnt: first + 3,
        special_fields: SpecialFields::new(),
    }
}

fn blkio_numbers(operation: &str, first: u64) -> Vec<cgroup::BlkioEntry> {
    let (operation, device) = (operation.to_owned(), format!("/dev/{operation}"));
    vec![cgroup::BlkioEntry { operation, device, major: first, minor: first + 1, value: first + 2 }]
}

fn blkio_message(op: &str, first: u64) -> Vec<messages::BlkIOEntry> {
    vec![messages::BlkIOEntry {
        op: op.to_owned(),
        device: format!("/dev/{op}"),
        major: first,
        minor: first + 1,
        value: first + 2,
        special_fields: SpecialFields::new(),
    }]
}

fn rdma_numbers(device: &str, first: u32) -> cgroup::RdmaEntry {
    cgroup::RdmaEntry { device: device.to_owned(), hca_handles: first, hca_objects: first + 1 }
}

fn rdma_message(device: &str, first: u32) -> messages::RdmaEntry {
    messages::RdmaEntry {
        device: device.to_owned(),
        hca_handles: first,
        hca_objects: first + 1,
        special_fields: SpecialFields::new(),
    }
}

/// A different value in every field. No `..default()`: a new field does not compile until it is here.
fn numbers() -> cgroup::Stats {
    cgroup::Stats {
        hugetlb: vec![
            cgroup::HugetlbStats { usage: 1, max: 2, failure_count: 3, page_size: "2MB".to_owned() },
            cgroup::HugetlbStats { usage: 4, max: 5, failure_count: 6, page_size: "1GB".to_owned() },
        ],
        pids: Some(cgroup::PidsStats { current: 7, limit: 8 }),
        cpu: Some(cgroup::CpuStats {
            total: 9,
            kernel: 10,
            user: 11,
            per_cpu: vec![12, 13],
            periods: 14,
            throttled_periods: 15,
            throttled_time: 16,
        }),
        memory: Some(cgroup::MemoryStats {
            detail: cgroup::MemoryDetail {
                cache: 101,
                rss: 102,
                rss_huge: 103,
                mapped_file: 104,
                dirty: 105,
                writeback: 106,
                pgpgin: 107,
                pgpgout: 108,
                pgfault: 109,
                pgmajfault: 110,
                inactive_anon: 111,
                active_anon: 112,
                inactive_file: 113,
                active_file: 114,
                unevictable: 115,
                hierarchical_memory_limit: 116,
                hierarchical_swap_limit: 117,
                total_cache: 118,
                total_rss: 119,
                total_rss_huge: 120,
                total_mapped_file: 121,
                total_dirty: 122,
                total_writeback: 123,
                total_pgpgin: 124,
                total_pgpgout: 125,
                total_pgfault: 126,
                total_pgmajfault: 127,
                total_inactive_anon: 128,
                total_active_anon: 129,
                total_inactive_file: 130,
                total_active_file: 131,
                total_unevictable: 132,
            },
            usage: entry_numbers(201),
            swap: Some(entry_numbers(211)),
            kernel: Some(entry_numbers(221)),
            kernel_tcp: Some(entry_numbers(231)),
        }),
        blkio: Some(cgroup::BlkioStats {
            service_bytes: blkio_numbers("Read", 301),
            serviced: blkio_numbers("Write", 311),
            queued: blkio_numbers("Sync", 321),
            service_time: blkio_numbers("Async", 331),
            wait_time: blkio_numbers("Discard", 341),
            merged: blkio_numbers("Total", 351),
            time: blkio_numbers("Time", 361),
            sectors: blkio_numbers("Sectors", 371),
        }),
        rdma: Some(cgroup::RdmaStats {
            current: vec![rdma_numbers("mlx4_0", 401), rdma_numbers("mlx4_1", 411)],
            limit: vec![rdma_numbers("mlx4_2", 421)],
        }),
        memory_oom_control: Some(cgroup::MemoryOomControl {
            oom_kill_disable: 501,
            under_oom: 502,
            oom_kill: 503,
        }),
    }
}

fn message() -> Metrics {
    let hugetlb = |usage, max, failcnt, pagesize: &str| messages::HugetlbStat {
        usage,
        max,
        failcnt,
        pagesize: pagesize.to_owned(),
        special_fields: SpecialFields::new(),
    };
    let usage = messages::CPUUsage {
        total: 9,
        kernel: 10,
        user: 11,
        per_cpu: vec![12, 13],
        special_fields: SpecialFields::new(),
    };
    let throttling = messages::Throttle {
        periods: 14,
        throttled_periods: 15,
        throttled_time: 16,
        special_fields: SpecialFields::new(),
    };
    Metrics {
        hugetlb: vec![hugetlb(1, 2, 3, "2MB"), hugetlb(4, 5, 6, "1GB")],
        pids: Some(messages::PidsStat { current: 7, limit: 8, special_fields: SpecialFields::new() }).into(),
        cpu: Some(messages::CPUStat {
            usage: Some(usage).into(),
            throttling: Some(throttling).into(),
            special_fields: SpecialFields::new(),
        })
        .into(),
        memory: Some(memory_message()).into(),
        blkio: Some(messages::BlkIOStat {
            io_service_bytes_recursive: blkio_message("Read", 301),
            io_serviced_recursive: blkio_message("Write", 311),
            io_queued_recursive: blkio_message("Sync", 321),
            io_service_time_recursive: blkio_message("Async", 331),
            io_wait_time_recursive: blkio_message("Discard", 341),
            io_merged_recursive: blkio_message("Total", 351),
            io_time_recursive: blkio_message("Time", 361),
            sectors_recursive: blkio_message("Sectors", 371),
            special_fields: SpecialFields::new(),
        })
        .into(),
        rdma: Some(messages::RdmaStat {
            current: vec![rdma_message("mlx4_0", 401), rdma_message("mlx4_1", 411)],
            limit: vec![rdma_message("mlx4_2", 421)],
            special_fields: SpecialFields::new(),
        })
        .into(),
        network: Vec::new(),
        cgroup_stats: None.into(),
        memory_oom_control: Some(messages::MemoryOomControl {
            oom_kill_disable: 501,
            under_oom: 502,
            oom_kill: 503,
            special_fields: SpecialFields::new(),
        })
        .into(),
        special_fields: SpecialFields::new(),
    }
}

fn memory_message() -> messages::MemoryStat {
    messages::MemoryStat {
        cache: 101,
        rss: 102,
        rss_huge: 103,
        mapped_file: 104,
        dirty: 105,
        writeback: 106,
        pg_pg_in: 107,
        pg_pg_out: 108,
        pg_fault: 109,
        pg_maj_fault: 110,
        inactive_anon: 111,
        active_anon: 112,
        inactive_file: 113,
        active_file: 114,
        unevictable: 115,
        hierarchical_memory_limit: 116,
        hierarchical_swap_limit: 117,
        total_cache: 118,
        total_rss: 119,
        total_rss_huge: 120,
        total_mapped_file: 121,
        total_dirty: 122,
        total_writeback: 123,
        total_pg_pg_in: 124,
        total_pg_pg_out: 125,
        total_pg_fault: 126,
        total_pg_maj_fault: 127,
        total_inactive_anon: 128,
        total_active_anon: 129,
        total_inactive_file: 130,
        total_active_file: 131,
        total_unevictable: 132,
        usage: Some(entry_message(201)).into(),
        swap: Some(entry_message(211)).into(),
        kernel: Some(entry_message(221)).into(),
        kernel_tcp: Some(entry_message(231)).into(),
        special_fields: SpecialFields::new(),
    }
}

#[test]
fn every_number_is_in_its_field() {
    assert_eq!(decode(numbers()), message());
}

#[test]
fn controllers_that_are_not_there_stay_unset() {
    assert_eq!(decode(cgroup::Stats::default()), Metrics::default());
}

/// containerd#8535: before it, containerd panics on a `memory` without one of its entries; and still on a `cpu`
/// without one of its parts.
#[test]
fn parts_that_containerd_does_not_check_are_zero_instead_of_unset() {
    let decoded = decode(cgroup::Stats {
        cpu: Some(cgroup::CpuStats::default()),
        memory: Some(cgroup::MemoryStats::default()),
        ..cgroup::Stats::default()
    });

    assert_eq!(decoded.cpu.usage.as_ref(), Some(&messages::CPUUsage::default()));
    assert_eq!(decoded.cpu.throttling.as_ref(), Some(&messages::Throttle::default()));
    let memory = decoded.memory.unwrap();
    for entry in [memory.usage, memory.swap, memory.kernel, memory.kernel_tcp] {
        assert_eq!(entry.as_ref(), Some(&messages::MemoryEntry::default()));
    }
}
