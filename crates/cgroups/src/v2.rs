//! cgroup v2: one directory with the files of all controllers.

use std::path::Path;

use super::files::Directory;
pub use super::files::{RdmaEntry, RdmaStats};
use super::v1::keyed_struct;

/// Everything `io.containerd.cgroups.v2.Metrics` carries, except networks.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Stats {
    /// Number of processes.
    pub pids: Option<PidsStats>,
    /// CPU time.
    pub cpu: Option<CpuStats>,
    /// Memory.
    pub memory: Option<MemoryStats>,
    /// Remote DMA; empty without its controller, as in containerd's own shim.
    pub rdma: RdmaStats,
    /// Block devices.
    pub io: Option<IoStats>,
    /// One entry per huge page size.
    pub hugetlb: Vec<HugetlbStats>,
    /// `memory.events`.
    pub memory_events: Option<MemoryEvents>,
}

/// Number of processes and threads.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PidsStats {
    /// Now.
    pub current: u64,
    /// Allowed; `u64::MAX` for no limit.
    pub limit: u64,
}

/// One line of a pressure file.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Pressure {
    /// Percent of the last 10 s.
    pub average_10: f64,
    /// Percent of the last 60 s.
    pub average_60: f64,
    /// Percent of the last 300 s.
    pub average_300: f64,
    /// Microseconds in all.
    pub total: u64,
}

/// Pressure stall information.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct PressureStats {
    /// Some tasks were stalled.
    pub some: Pressure,
    /// All tasks were stalled.
    pub full: Pressure,
}

/// CPU time.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct CpuStats {
    /// `cpu.stat`.
    pub detail: CpuDetail,
    /// `cpu.pressure`.
    pub pressure: Option<PressureStats>,
}

/// Memory.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct MemoryStats {
    /// `memory.stat`.
    pub detail: MemoryDetail,
    /// Bytes in use.
    pub usage: u64,
    /// Bytes allowed; `u64::MAX` for no limit.
    pub usage_limit: u64,
    /// Highest use in bytes (Linux 5.19).
    pub max_usage: u64,
    /// Swap in use, in bytes.
    pub swap_usage: u64,
    /// Swap allowed, in bytes; `u64::MAX` for no limit.
    pub swap_limit: u64,
    /// Highest swap use in bytes (Linux 6.5).
    pub swap_max_usage: u64,
    /// `memory.pressure`.
    pub pressure: Option<PressureStats>,
}

keyed_struct! {
    /// The fields of `cpu.stat`; times in microseconds.
    CpuDetail {
        usage_usec: "usage_usec",
        user_usec: "user_usec",
        system_usec: "system_usec",
        nr_periods: "nr_periods",
        nr_throttled: "nr_throttled",
        throttled_usec: "throttled_usec",
        nr_bursts: "nr_bursts",
        burst_usec: "burst_usec",
    }
}

keyed_struct! {
    /// The fields of `memory.stat` that containerd's message contains: bytes, or events.
    MemoryDetail {
        anon: "anon",
        file: "file",
        kernel_stack: "kernel_stack",
        slab: "slab",
        sock: "sock",
        shmem: "shmem",
        file_mapped: "file_mapped",
        file_dirty: "file_dirty",
        file_writeback: "file_writeback",
        anon_thp: "anon_thp",
        inactive_anon: "inactive_anon",
        active_anon: "active_anon",
        inactive_file: "inactive_file",
        active_file: "active_file",
        unevictable: "unevictable",
        slab_reclaimable: "slab_reclaimable",
        slab_unreclaimable: "slab_unreclaimable",
        pgfault: "pgfault",
        pgmajfault: "pgmajfault",
        workingset_refault: "workingset_refault",
        workingset_activate: "workingset_activate",
        workingset_nodereclaim: "workingset_nodereclaim",
        pgrefill: "pgrefill",
        pgscan: "pgscan",
        pgsteal: "pgsteal",
        pgactivate: "pgactivate",
        pgdeactivate: "pgdeactivate",
        pglazyfree: "pglazyfree",
        pglazyfreed: "pglazyfreed",
        thp_fault_alloc: "thp_fault_alloc",
        thp_collapse_alloc: "thp_collapse_alloc",
    }
}

keyed_struct! {
    /// `memory.events`.
    MemoryEvents {
        low: "low",
        high: "high",
        max: "max",
        oom: "oom",
        oom_kill: "oom_kill",
        oom_group_kill: "oom_group_kill",
    }
}

/// Block devices.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct IoStats {
    /// One entry per device.
    pub usage: Vec<IoEntry>,
    /// `io.pressure`.
    pub pressure: Option<PressureStats>,
}

/// Counters of one device.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct IoEntry {
    /// Major number.
    pub major: u64,
    /// Minor number.
    pub minor: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Read requests.
    pub reads: u64,
    /// Write requests.
    pub writes: u64,
}

/// Huge pages of one size, in bytes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HugetlbStats {
    /// In use.
    pub current: u64,
    /// Allowed; `u64::MAX` for no limit.
    pub max: u64,
    /// Page size, such as `2MB`.
    pub page_size: String,
    /// Refused allocations.
    pub failure_count: u64,
}

impl Stats {
    pub(super) fn read(path: &Path) -> Self {
        let Some(directory) = &Directory::open(path) else { return Self::default() };
        let events = directory.keyed("memory.events");
        Self {
            pids: directory.number("pids.current").map(|current| PidsStats {
                current,
                limit: directory.number("pids.max").unwrap_or_default(),
            }),
            cpu: read_cpu(directory),
            memory: read_memory(directory),
            rdma: RdmaStats::read(directory).unwrap_or_default(),
            io: read_io(directory),
            hugetlb: read_hugetlb(directory),
            memory_events: (!events.is_empty()).then(|| MemoryEvents::from_numbers(&events)),
        }
    }
}

fn read_cpu(directory: &Directory) -> Option<CpuStats> {
    let numbers = directory.keyed("cpu.stat");
    (!numbers.is_empty()).then(|| CpuStats {
        detail: CpuDetail::from_numbers(&numbers),
        pressure: read_pressure(directory, "cpu.pressure"),
    })
}

fn read_memory(directory: &Directory) -> Option<MemoryStats> {
    let number = |file| directory.number(file).unwrap_or_default();
    let numbers = directory.keyed("memory.stat");
    let mut detail = MemoryDetail::from_numbers(&numbers);
    // Linux 5.9 split these two by kind of page; containerd's message has the sums.
    let sum = |field: &str| numbers.get(&format!("{field}_anon")) + numbers.get(&format!("{field}_file"));
    if detail.workingset_refault == 0 {
        detail.workingset_refault = sum("workingset_refault");
    }
    if detail.workingset_activate == 0 {
        detail.workingset_activate = sum("workingset_activate");
    }
    Some(MemoryStats {
        detail,
        usage: directory.number("memory.current")?,
        usage_limit: number("memory.max"),
        max_usage: number("memory.peak"),
        swap_usage: number("memory.swap.current"),
        swap_limit: number("memory.swap.max"),
        swap_max_usage: number("memory.swap.peak"),
        pressure: read_pressure(directory, "memory.pressure"),
    })
}

fn read_io(directory: &Directory) -> Option<IoStats> {
    let text = directory.text("io.stat")?;
    Some(IoStats {
        usage: text.lines().filter_map(io_entry).collect(),
        pressure: read_pressure(directory, "io.pressure"),
    })
}

/// `8:0 rbytes=4096 wbytes=0 rios=1 wios=0 dbytes=0 dios=0`.
fn io_entry(line: &str) -> Option<IoEntry> {
    let mut words = line.split_whitespace();
    let (major, minor) = words.next()?.split_once(':')?;
    let mut entry = IoEntry { major: major.parse().ok()?, minor: minor.parse().ok()?, ..IoEntry::default() };
    for (key, value) in words.filter_map(|word| word.split_once('=')) {
        let field = match key {
            "rbytes" => &mut entry.read_bytes,
            "wbytes" => &mut entry.written_bytes,
            "rios" => &mut entry.reads,
            "wios" => &mut entry.writes,
            _ => continue,
        };
        *field = value.parse().ok()?;
    }
    Some(entry)
}

fn read_hugetlb(directory: &Directory) -> Vec<HugetlbStats> {
    let entry = |page_size: String| {
        let file = |name| format!("hugetlb.{page_size}.{name}");
        HugetlbStats {
            current: directory.number(&file("current")).unwrap_or_default(),
            max: directory.number(&file("max")).unwrap_or_default(),
            failure_count: directory.keyed(&file("events")).get("max"),
            page_size,
        }
    };
    directory.huge_page_sizes().into_iter().map(entry).collect()
}

/// `some avg10=0.00 avg60=0.00 avg300=0.00 total=0`, and the same for `full`.
fn read_pressure(directory: &Directory, file: &str) -> Option<PressureStats> {
    // Reading fails with EOPNOTSUPP when the kernel was booted with psi=0.
    parse_pressure(&directory.text(file)?)
}

fn parse_pressure(text: &str) -> Option<PressureStats> {
    let line = |kind: &str| {
        let mut pressure = Pressure::default();
        let fields = text.lines().find_map(|line| line.strip_prefix(kind))?;
        for (key, value) in fields.split_whitespace().filter_map(|word| word.split_once('=')) {
            match key {
                "avg10" => pressure.average_10 = value.parse().ok()?,
                "avg60" => pressure.average_60 = value.parse().ok()?,
                "avg300" => pressure.average_300 = value.parse().ok()?,
                "total" => pressure.total = value.parse().ok()?,
                _ => {}
            }
        }
        Some(pressure)
    };
    // Older kernels have no `full` line for the CPU.
    Some(PressureStats { some: line("some ")?, full: line("full ").unwrap_or_default() })
}
