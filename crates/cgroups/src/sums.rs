//! Statistics of a container whose group was removed and recreated: what earlier groups have counted is added (R6), so that no
//! counter of an id ever falls. A caller that subtracts two readings would get a number near 2^64.
//!
//! Owns which numbers are counters, and which are the state of now. Only computes.

use super::group::Stats;
use super::v1::{self, BlkioEntry};
use super::v2;

/// Adds these fields of the earlier value.
macro_rules! add {
    ($now:expr, $earlier:expr; $($field:ident),+ $(,)?) => {
        { $($now.$field = $now.$field.saturating_add($earlier.$field);)+ }
    };
}

/// Keeps the higher value of these fields.
macro_rules! keep_highest {
    ($now:expr, $earlier:expr; $($field:ident),+ $(,)?) => {
        { $($now.$field = $now.$field.max($earlier.$field);)+ }
    };
}

impl Stats {
    /// These numbers with what `earlier` groups have counted.
    #[must_use]
    pub fn after(mut self, earlier: &Self) -> Self {
        match (&mut self, earlier) {
            (Self::V1(now), Self::V1(earlier)) => add_v1(now, earlier),
            (Self::V2(now), Self::V2(earlier)) => add_v2(now, earlier),
            // One machine has one version.
            _ => {}
        }
        self
    }
}

/// Adds where both exist. What an earlier group has counted alone counts as it is.
fn both<T: Clone>(now: &mut Option<T>, earlier: Option<&T>, add: impl FnOnce(&mut T, &T)) {
    match (now, earlier) {
        (Some(now), Some(earlier)) => add(now, earlier),
        (now @ None, Some(earlier)) => *now = Some(earlier.clone()),
        (_, None) => {}
    }
}

/// Adds each earlier entry to the one that is the same, or appends it: a new group has no entry for a device that it has not used.
fn entries<T: Clone>(
    now: &mut Vec<T>,
    earlier: &[T],
    is_same: impl Fn(&T, &T) -> bool,
    add: impl Fn(&mut T, &T),
) {
    for one in earlier {
        match now.iter_mut().find(|other| is_same(other, one)) {
            Some(now) => add(now, one),
            None => now.push(one.clone()),
        }
    }
}

fn add_v1(now: &mut v1::Stats, earlier: &v1::Stats) {
    both(&mut now.cpu, earlier.cpu.as_ref(), |now, earlier| {
        add!(now, earlier; total, kernel, user, periods, throttled_periods, throttled_time);
        now.per_cpu.resize(now.per_cpu.len().max(earlier.per_cpu.len()), 0);
        for (now, earlier) in now.per_cpu.iter_mut().zip(&earlier.per_cpu) {
            *now = now.saturating_add(*earlier);
        }
    });
    if let (Some(now), Some(earlier)) = (&mut now.memory, &earlier.memory) {
        add!(now.detail, earlier.detail; pgpgin, pgpgout, pgfault, pgmajfault);
        add!(now.detail, earlier.detail; total_pgpgin, total_pgpgout, total_pgfault, total_pgmajfault);
        add_memory(&mut now.usage, &earlier.usage);
        for (now, earlier) in [
            (&mut now.swap, &earlier.swap),
            (&mut now.kernel, &earlier.kernel),
            (&mut now.kernel_tcp, &earlier.kernel_tcp),
        ] {
            if let (Some(now), Some(earlier)) = (now, earlier) {
                add_memory(now, earlier);
            }
        }
    }
    both(&mut now.blkio, earlier.blkio.as_ref(), add_blkio);
    entries(
        &mut now.hugetlb,
        &earlier.hugetlb,
        |a, b| a.page_size == b.page_size,
        |now, earlier| {
            add!(now, earlier; failure_count);
            keep_highest!(now, earlier; max);
        },
    );
    if let (Some(now), Some(earlier)) = (&mut now.memory_oom_control, &earlier.memory_oom_control) {
        add!(now, earlier; oom_kill);
    }
}

fn add_memory(now: &mut v1::MemoryEntry, earlier: &v1::MemoryEntry) {
    add!(now, earlier; failure_count);
    keep_highest!(now, earlier; max);
}

/// All but the queue, which is of now.
fn add_blkio(now: &mut v1::BlkioStats, earlier: &v1::BlkioStats) {
    let is_same = |a: &BlkioEntry, b: &BlkioEntry| {
        (a.major, a.minor, a.operation.as_str()) == (b.major, b.minor, b.operation.as_str())
    };
    for (now, earlier) in [
        (&mut now.service_bytes, &earlier.service_bytes),
        (&mut now.serviced, &earlier.serviced),
        (&mut now.service_time, &earlier.service_time),
        (&mut now.wait_time, &earlier.wait_time),
        (&mut now.merged, &earlier.merged),
        (&mut now.time, &earlier.time),
        (&mut now.sectors, &earlier.sectors),
    ] {
        entries(now, earlier, is_same, |now, earlier| add!(now, earlier; value));
    }
}

fn add_v2(now: &mut v2::Stats, earlier: &v2::Stats) {
    both(&mut now.cpu, earlier.cpu.as_ref(), |now, earlier| {
        add!(now.detail, earlier.detail; usage_usec, user_usec, system_usec, nr_periods, nr_throttled);
        add!(now.detail, earlier.detail; throttled_usec, nr_bursts, burst_usec);
        add_pressure(&mut now.pressure, earlier.pressure.as_ref());
    });
    if let (Some(now), Some(earlier)) = (&mut now.memory, &earlier.memory) {
        add!(now.detail, earlier.detail; pgfault, pgmajfault, workingset_refault, workingset_activate);
        add!(now.detail, earlier.detail; workingset_nodereclaim, pgrefill, pgscan, pgsteal, pgactivate);
        add!(now.detail, earlier.detail; pgdeactivate, pglazyfree, pglazyfreed, thp_fault_alloc);
        add!(now.detail, earlier.detail; thp_collapse_alloc);
        keep_highest!(now, earlier; max_usage, swap_max_usage);
        add_pressure(&mut now.pressure, earlier.pressure.as_ref());
    }
    both(&mut now.io, earlier.io.as_ref(), |now, earlier| {
        let is_same = |a: &v2::IoEntry, b: &v2::IoEntry| (a.major, a.minor) == (b.major, b.minor);
        entries(&mut now.usage, &earlier.usage, is_same, |now, earlier| {
            add!(now, earlier; read_bytes, written_bytes, reads, writes);
        });
        add_pressure(&mut now.pressure, earlier.pressure.as_ref());
    });
    entries(
        &mut now.hugetlb,
        &earlier.hugetlb,
        |a, b| a.page_size == b.page_size,
        |now, earlier| add!(now, earlier; failure_count),
    );
    both(&mut now.memory_events, earlier.memory_events.as_ref(), |now, earlier| {
        add!(now, earlier; low, high, max, oom, oom_kill, oom_group_kill);
    });
}

/// The averages are of now.
fn add_pressure(now: &mut Option<v2::PressureStats>, earlier: Option<&v2::PressureStats>) {
    if let (Some(now), Some(earlier)) = (now, earlier) {
        add!(now.some, earlier.some; total);
        add!(now.full, earlier.full; total);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blkio(device: u64, operation: &str, value: u64) -> BlkioEntry {
        BlkioEntry { operation: operation.to_owned(), major: device, value, ..BlkioEntry::default() }
    }

    #[test]
    fn d2_r6_counters_of_v1_are_added_and_what_is_now_is_not() {
        let stats = |total, per_cpu: &[u64], usage, max, failures, blkio: Vec<BlkioEntry>| {
            let entry = v1::MemoryEntry { limit: 100, usage, max, failure_count: failures };
            Stats::V1(Box::new(v1::Stats {
                cpu: Some(v1::CpuStats {
                    total,
                    user: 1,
                    throttled_time: 7,
                    per_cpu: per_cpu.to_vec(),
                    ..Default::default()
                }),
                memory: Some(v1::MemoryStats {
                    detail: v1::MemoryDetail {
                        rss: usage,
                        pgfault: 5,
                        total_pgfault: 6,
                        ..Default::default()
                    },
                    usage: entry,
                    swap: Some(entry),
                    ..Default::default()
                }),
                blkio: Some(v1::BlkioStats {
                    service_bytes: blkio.clone(),
                    queued: blkio,
                    ..Default::default()
                }),
                pids: Some(v1::PidsStats { current: 1, limit: 9 }),
                ..Default::default()
            }))
        };
        let earlier = stats(1000, &[600, 400, 0], 50, 90, 3, vec![blkio(8, "Read", 10), blkio(9, "Read", 4)]);
        let now = stats(10, &[10], 20, 30, 1, vec![blkio(8, "Read", 1), blkio(8, "Write", 2)]);
        let Stats::V1(sum) = now.after(&earlier) else { panic!() };
        let cpu = sum.cpu.unwrap();
        assert_eq!((cpu.total, cpu.user, cpu.throttled_time), (1010, 2, 14));
        assert_eq!(cpu.per_cpu, [610, 400, 0]);
        let memory = sum.memory.unwrap();
        let entry = v1::MemoryEntry { limit: 100, usage: 20, max: 90, failure_count: 4 };
        assert_eq!((memory.usage, memory.swap), (entry, Some(entry)));
        assert_eq!((memory.detail.rss, memory.detail.pgfault, memory.detail.total_pgfault), (20, 10, 12));
        let io = sum.blkio.unwrap();
        assert_eq!(io.service_bytes, [blkio(8, "Read", 11), blkio(8, "Write", 2), blkio(9, "Read", 4)]);
        assert_eq!(io.queued, [blkio(8, "Read", 1), blkio(8, "Write", 2)]);
        assert_eq!(sum.pids, Some(v1::PidsStats { current: 1, limit: 9 }));
    }

    #[test]
    fn d2_r6_counters_of_v2_are_added_and_what_is_now_is_not() {
        let stats = |usage_usec, usage, device, reads| {
            let pressure = v2::Pressure { average_10: 1.5, total: 3, ..Default::default() };
            let pressure = Some(v2::PressureStats { some: pressure, full: pressure });
            Stats::V2(Box::new(v2::Stats {
                cpu: Some(v2::CpuStats {
                    detail: v2::CpuDetail { usage_usec, nr_throttled: 1, ..Default::default() },
                    pressure,
                }),
                memory: Some(v2::MemoryStats {
                    detail: v2::MemoryDetail { anon: usage, pgfault: 4, ..Default::default() },
                    usage,
                    max_usage: usage + 1,
                    ..Default::default()
                }),
                io: Some(v2::IoStats {
                    usage: vec![v2::IoEntry { major: device, reads, ..Default::default() }],
                    pressure,
                }),
                memory_events: Some(v2::MemoryEvents { oom_kill: 1, ..Default::default() }),
                ..Default::default()
            }))
        };
        let Stats::V2(sum) = stats(10, 20, 8, 2).after(&stats(1000, 90, 9, 5)) else { panic!() };
        let cpu = sum.cpu.unwrap();
        assert_eq!((cpu.detail.usage_usec, cpu.detail.nr_throttled), (1010, 2));
        let pressure = cpu.pressure.unwrap();
        assert_eq!((pressure.some.total, pressure.full.total), (6, 6));
        assert!((pressure.some.average_10 - 1.5).abs() < f64::EPSILON);
        let memory = sum.memory.unwrap();
        assert_eq!((memory.usage, memory.max_usage), (20, 91));
        assert_eq!((memory.detail.anon, memory.detail.pgfault), (20, 8));
        let io: Vec<_> = sum.io.unwrap().usage.iter().map(|one| (one.major, one.reads)).collect();
        assert_eq!(io, [(8, 2), (9, 5)]);
        assert_eq!(sum.memory_events.unwrap().oom_kill, 2);
    }
}
