//! Every number in its field of the v2 message, and nothing where the kernel reports nothing.

use cgroups::Stats;
use containerd_shim_protos::cgroups_v2::metrics as messages;
use protobuf::{Message, SpecialFields};

use super::*;
use crate::metrics::to_any;

fn decode(stats: cgroup::Stats) -> Metrics {
    let any = to_any(&Stats::V2(Box::new(stats)));
    assert_eq!(any.type_url, "io.containerd.cgroups.v2.Metrics");
    Metrics::parse_from_bytes(&any.value).unwrap()
}

fn pressure_numbers(first: u32) -> cgroup::PressureStats {
    let line = |first: u32| cgroup::Pressure {
        average_10: f64::from(first) + 0.5,
        average_60: f64::from(first) + 1.5,
        average_300: f64::from(first) + 2.5,
        total: u64::from(first) + 3,
    };
    cgroup::PressureStats { some: line(first), full: line(first + 4) }
}

fn pressure_message(first: u32) -> messages::PSIStats {
    let line = |first: u32| messages::PSIData {
        avg10: f64::from(first) + 0.5,
        avg60: f64::from(first) + 1.5,
        avg300: f64::from(first) + 2.5,
        total: u64::from(first) + 3,
        special_fields: SpecialFields::new(),
    };
    messages::PSIStats {
        some: Some(line(first)).into(),
        full: Some(line(first + 4)).into(),
        special_fields: SpecialFields::new(),
    }
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

fn io_numbers(first: u64) -> cgroup::IoEntry {
    cgroup::IoEntry {
        major: first,
        minor: first + 1,
        read_bytes: first + 2,
        written_bytes: first + 3,
        reads: first + 4,
        writes: first + 5,
    }
}

fn io_message(first: u64) -> messages::IOEntry {
    messages::IOEntry {
        major: first,
        minor: first + 1,
        rbytes: first + 2,
        wbytes: first + 3,
        rios: first + 4,
        wios: first + 5,
        special_fields: SpecialFields::new(),
    }
}

/// A different value in every field. No `..default()`: a new field does not compile until it is here.
fn numbers() -> cgroup::Stats {
    cgroup::Stats {
        pids: Some(cgroup::PidsStats { current: 1, limit: u64::MAX }),
        cpu: Some(cgroup::CpuStats {
            detail: cgroup::CpuDetail {
                usage_usec: 2,
                user_usec: 3,
                system_usec: 4,
                nr_periods: 5,
                nr_throttled: 6,
                throttled_usec: 7,
                nr_bursts: 8,
                burst_usec: 9,
            },
            pressure: Some(pressure_numbers(11)),
        }),
        memory: Some(cgroup::MemoryStats {
            detail: cgroup::MemoryDetail {
                anon: 101,
                file: 102,
                kernel_stack: 103,
                slab: 104,
                sock: 105,
                shmem: 106,
                file_mapped: 107,
                file_dirty: 108,
                file_writeback: 109,
                anon_thp: 110,
                inactive_anon: 111,
                active_anon: 112,
                inactive_file: 113,
                active_file: 114,
                unevictable: 115,
                slab_reclaimable: 116,
                slab_unreclaimable: 117,
                pgfault: 118,
                pgmajfault: 119,
                workingset_refault: 120,
                workingset_activate: 121,
                workingset_nodereclaim: 122,
                pgrefill: 123,
                pgscan: 124,
                pgsteal: 125,
                pgactivate: 126,
                pgdeactivate: 127,
                pglazyfree: 128,
                pglazyfreed: 129,
                thp_fault_alloc: 130,
                thp_collapse_alloc: 131,
            },
            usage: 201,
            usage_limit: 202,
            max_usage: 203,
            swap_usage: 204,
            swap_limit: 205,
            swap_max_usage: 206,
            pressure: Some(pressure_numbers(211)),
        }),
        rdma: cgroup::RdmaStats {
            current: vec![rdma_numbers("mlx4_0", 301), rdma_numbers("mlx4_1", 311)],
            limit: vec![rdma_numbers("mlx4_2", 321)],
        },
        io: Some(cgroup::IoStats {
            usage: vec![io_numbers(401), io_numbers(411)],
            pressure: Some(pressure_numbers(421)),
        }),
        hugetlb: vec![
            cgroup::HugetlbStats { current: 501, max: 502, page_size: "2MB".to_owned(), failure_count: 503 },
            cgroup::HugetlbStats { current: 504, max: 505, page_size: "1GB".to_owned(), failure_count: 506 },
        ],
        memory_events: Some(cgroup::MemoryEvents {
            low: 601,
            high: 602,
            max: 603,
            oom: 604,
            oom_kill: 605,
            oom_group_kill: 606,
        }),
    }
}

fn message() -> Metrics {
    let hugetlb = |current, max, failcnt, pagesize: &str| messages::HugeTlbStat {
        current,
        max,
        pagesize: pagesize.to_owned(),
        failcnt,
        special_fields: SpecialFields::new(),
    };
    let pids = messages::PidsStat { current: 1, limit: u64::MAX, special_fields: SpecialFields::new() };
    Metrics {
        pids: Some(pids).into(),
        cpu: Some(messages::CPUStat {
            usage_usec: 2,
            user_usec: 3,
            system_usec: 4,
            nr_periods: 5,
            nr_throttled: 6,
            throttled_usec: 7,
            psi: Some(pressure_message(11)).into(),
            nr_bursts: 8,
            burst_usec: 9,
            special_fields: SpecialFields::new(),
        })
        .into(),
        memory: Some(memory_message()).into(),
        rdma: Some(messages::RdmaStat {
            current: vec![rdma_message("mlx4_0", 301), rdma_message("mlx4_1", 311)],
            limit: vec![rdma_message("mlx4_2", 321)],
            special_fields: SpecialFields::new(),
        })
        .into(),
        io: Some(messages::IOStat {
            usage: vec![io_message(401), io_message(411)],
            psi: Some(pressure_message(421)).into(),
            special_fields: SpecialFields::new(),
        })
        .into(),
        hugetlb: vec![hugetlb(501, 502, 503, "2MB"), hugetlb(504, 505, 506, "1GB")],
        memory_events: Some(messages::MemoryEvents {
            low: 601,
            high: 602,
            max: 603,
            oom: 604,
            oom_kill: 605,
            oom_group_kill: 606,
            special_fields: SpecialFields::new(),
        })
        .into(),
        network: Vec::new(),
        special_fields: SpecialFields::new(),
    }
}

fn memory_message() -> messages::MemoryStat {
    messages::MemoryStat {
        anon: 101,
        file: 102,
        kernel_stack: 103,
        slab: 104,
        sock: 105,
        shmem: 106,
        file_mapped: 107,
        file_dirty: 108,
        file_writeback: 109,
        anon_thp: 110,
        inactive_anon: 111,
        active_anon: 112,
        inactive_file: 113,
        active_file: 114,
        unevictable: 115,
        slab_reclaimable: 116,
        slab_unreclaimable: 117,
        pgfault: 118,
        pgmajfault: 119,
        workingset_refault: 120,
        workingset_activate: 121,
        workingset_nodereclaim: 122,
        pgrefill: 123,
        pgscan: 124,
        pgsteal: 125,
        pgactivate: 126,
        pgdeactivate: 127,
        pglazyfree: 128,
        pglazyfreed: 129,
        thp_fault_alloc: 130,
        thp_collapse_alloc: 131,
        usage: 201,
        usage_limit: 202,
        max_usage: 203,
        swap_usage: 204,
        swap_limit: 205,
        swap_max_usage: 206,
        psi: Some(pressure_message(211)).into(),
        special_fields: SpecialFields::new(),
    }
}

#[test]
fn every_number_is_in_its_field() {
    assert_eq!(decode(numbers()), message());
}

/// All but rdma, which containerd's own shim tells of on every node.
#[test]
fn controllers_that_are_not_there_stay_unset() {
    let rdma = Some(messages::RdmaStat::default()).into();
    assert_eq!(decode(cgroup::Stats::default()), Metrics { rdma, ..Metrics::default() });
}

/// With psi=0 there are no pressure files; zeros would read as "no pressure at all".
#[test]
fn pressure_that_is_not_there_stays_unset() {
    let decoded = decode(cgroup::Stats {
        cpu: Some(cgroup::CpuStats::default()),
        memory: Some(cgroup::MemoryStats::default()),
        io: Some(cgroup::IoStats::default()),
        ..cgroup::Stats::default()
    });

    let (cpu, memory, io) = (decoded.cpu.unwrap(), decoded.memory.unwrap(), decoded.io.unwrap());
    for pressure in [cpu.psi, memory.psi, io.psi] {
        assert_eq!(pressure.as_ref(), None);
    }
}
