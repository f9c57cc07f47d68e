//! cgroup v1: one directory per controller, also on hybrid hosts.

use std::fs;
use std::path::{Path, PathBuf};

use super::files::{CgroupMount, Directory};
pub use super::files::{RdmaEntry, RdmaStats};

/// Ticks per second in the kernel's reports to user space, on every architecture that Debian supports.
const USER_HZ: u64 = 100;
const NANOSECONDS_PER_TICK: u64 = 1_000_000_000 / USER_HZ;

/// Directories of one container, per controller; `None` where a controller is not mounted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Hierarchies {
    pub(super) blkio: Option<PathBuf>,
    pub(super) cpu: Option<PathBuf>,
    pub(super) cpuacct: Option<PathBuf>,
    pub(super) freezer: Option<PathBuf>,
    pub(super) hugetlb: Option<PathBuf>,
    pub(super) memory: Option<PathBuf>,
    pub(super) pids: Option<PathBuf>,
    pub(super) rdma: Option<PathBuf>,
    pub(super) devices: Option<PathBuf>,
}

impl Hierarchies {
    pub(super) fn locate(membership: &str, mounts: &[CgroupMount]) -> Self {
        let group_of = |controller: &str| {
            membership.lines().find_map(|line| {
                let mut fields = line.splitn(3, ':').skip(1);
                let controllers = fields.next()?;
                let path = fields.next()?;
                controllers.split(',').any(|one| one == controller).then_some(path)
            })
        };
        let directory = |controller: &str| {
            let mount = mounts
                .iter()
                .find(|mount| !mount.is_v2() && mount.controllers.iter().any(|one| one == controller))?;
            Some(mount.directory_of(group_of(controller)?))
        };
        Self {
            blkio: directory("blkio"),
            cpu: directory("cpu"),
            cpuacct: directory("cpuacct"),
            freezer: directory("freezer"),
            hugetlb: directory("hugetlb"),
            memory: directory("memory"),
            pids: directory("pids"),
            rdma: directory("rdma"),
            devices: directory("devices"),
        }
    }

    /// All directories that exist; controllers that are mounted together share one.
    pub(super) fn directories(&self) -> impl Iterator<Item = &Path> {
        let all = [
            &self.blkio,
            &self.cpu,
            &self.cpuacct,
            &self.freezer,
            &self.hugetlb,
            &self.memory,
            &self.pids,
            &self.rdma,
            &self.devices,
        ];
        all.into_iter().filter_map(Option::as_deref)
    }

    /// The directory that lists the container's processes: runtimes always join the first two of these.
    pub(super) fn process_directory(&self) -> Option<&Path> {
        self.process_hierarchy().map(|(_, directory)| directory)
    }

    /// The controller whose directory that is.
    pub(super) fn process_controller(&self) -> Option<&'static str> {
        self.process_hierarchy().map(|(controller, _)| controller)
    }

    fn process_hierarchy(&self) -> Option<(&'static str, &Path)> {
        let candidates = [
            ("devices", &self.devices),
            ("freezer", &self.freezer),
            ("pids", &self.pids),
            ("memory", &self.memory),
        ];
        candidates.into_iter().find_map(|(controller, directory)| Some((controller, directory.as_deref()?)))
    }
}

/// Everything `io.containerd.cgroups.v1.Metrics` carries, except networks (which belong to the sandbox) and the
/// scheduler states (which containerd's runc shim does not fill).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stats {
    /// One entry per huge page size.
    pub hugetlb: Vec<HugetlbStats>,
    /// Number of processes.
    pub pids: Option<PidsStats>,
    /// CPU time.
    pub cpu: Option<CpuStats>,
    /// Memory.
    pub memory: Option<MemoryStats>,
    /// Block devices.
    pub blkio: Option<BlkioStats>,
    /// Remote DMA.
    pub rdma: Option<RdmaStats>,
    /// Out of memory handling.
    pub memory_oom_control: Option<MemoryOomControl>,
}

/// Huge pages of one size, in bytes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HugetlbStats {
    /// In use.
    pub usage: u64,
    /// Highest use.
    pub max: u64,
    /// Refused allocations.
    pub failure_count: u64,
    /// Page size, such as `2MB`.
    pub page_size: String,
}

/// Number of processes and threads.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PidsStats {
    /// Now.
    pub current: u64,
    /// Allowed; 0 for no limit, as in containerd's shim.
    pub limit: u64,
}

/// CPU time, in nanoseconds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CpuStats {
    /// All of it.
    pub total: u64,
    /// In the kernel.
    pub kernel: u64,
    /// In user mode.
    pub user: u64,
    /// Per CPU.
    pub per_cpu: Vec<u64>,
    /// Enforcement periods that passed.
    pub periods: u64,
    /// Periods in which the group was throttled.
    pub throttled_periods: u64,
    /// Time throttled, in nanoseconds.
    pub throttled_time: u64,
}

/// One accounted kind of memory, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MemoryEntry {
    /// Allowed.
    pub limit: u64,
    /// In use.
    pub usage: u64,
    /// Highest use.
    pub max: u64,
    /// Times the limit was hit.
    pub failure_count: u64,
}

macro_rules! keyed_struct {
    ($(#[$attribute:meta])* $name:ident { $($(#[$field_attribute:meta])* $field:ident: $key:literal,)* }) => {
        $(#[$attribute])*
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
        pub struct $name {
            $($(#[$field_attribute])* #[doc = concat!("`", $key, "`.")] pub $field: u64,)*
        }

        impl $name {
            pub(super) fn from_numbers(numbers: &super::files::KeyedNumbers) -> Self {
                Self { $($field: numbers.get($key),)* }
            }
        }
    };
}
pub(super) use keyed_struct;

keyed_struct! {
    /// The fields of `memory.stat`: bytes, or events for the paging counters.
    MemoryDetail {
        cache: "cache",
        rss: "rss",
        rss_huge: "rss_huge",
        mapped_file: "mapped_file",
        dirty: "dirty",
        writeback: "writeback",
        pgpgin: "pgpgin",
        pgpgout: "pgpgout",
        pgfault: "pgfault",
        pgmajfault: "pgmajfault",
        inactive_anon: "inactive_anon",
        active_anon: "active_anon",
        inactive_file: "inactive_file",
        active_file: "active_file",
        unevictable: "unevictable",
        hierarchical_memory_limit: "hierarchical_memory_limit",
        hierarchical_swap_limit: "hierarchical_memsw_limit",
        total_cache: "total_cache",
        total_rss: "total_rss",
        total_rss_huge: "total_rss_huge",
        total_mapped_file: "total_mapped_file",
        total_dirty: "total_dirty",
        total_writeback: "total_writeback",
        total_pgpgin: "total_pgpgin",
        total_pgpgout: "total_pgpgout",
        total_pgfault: "total_pgfault",
        total_pgmajfault: "total_pgmajfault",
        total_inactive_anon: "total_inactive_anon",
        total_active_anon: "total_active_anon",
        total_inactive_file: "total_inactive_file",
        total_active_file: "total_active_file",
        total_unevictable: "total_unevictable",
    }
}

/// Memory.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MemoryStats {
    /// `memory.stat`.
    pub detail: MemoryDetail,
    /// All memory.
    pub usage: MemoryEntry,
    /// Memory and swap together; `None` without swap accounting.
    pub swap: Option<MemoryEntry>,
    /// Kernel memory.
    pub kernel: Option<MemoryEntry>,
    /// TCP buffers.
    pub kernel_tcp: Option<MemoryEntry>,
}

keyed_struct! {
    /// `memory.oom_control`.
    MemoryOomControl {
        oom_kill_disable: "oom_kill_disable",
        under_oom: "under_oom",
        oom_kill: "oom_kill",
    }
}

/// Block device counters; each list has an entry per device and operation.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BlkioStats {
    /// Bytes moved.
    pub service_bytes: Vec<BlkioEntry>,
    /// Requests served.
    pub serviced: Vec<BlkioEntry>,
    /// Requests queued.
    pub queued: Vec<BlkioEntry>,
    /// Nanoseconds in service.
    pub service_time: Vec<BlkioEntry>,
    /// Nanoseconds waiting.
    pub wait_time: Vec<BlkioEntry>,
    /// Requests merged.
    pub merged: Vec<BlkioEntry>,
    /// Milliseconds of disk time.
    pub time: Vec<BlkioEntry>,
    /// Sectors moved.
    pub sectors: Vec<BlkioEntry>,
}

/// One counter of one device.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BlkioEntry {
    /// `Read`, `Write`, `Total`...; empty where the kernel does not split.
    pub operation: String,
    /// Device name, such as `/dev/sda`; empty when unknown.
    pub device: String,
    /// Major number.
    pub major: u64,
    /// Minor number.
    pub minor: u64,
    /// The count.
    pub value: u64,
}

impl Stats {
    pub(super) fn read(hierarchies: &Hierarchies) -> Self {
        let open = |controller: &Option<PathBuf>| controller.as_deref().and_then(Directory::open);
        let Hierarchies { blkio, cpu, cpuacct, hugetlb, memory, pids, rdma, .. } = hierarchies;
        let memory = open(memory);
        Self {
            hugetlb: open(hugetlb).as_ref().map(read_hugetlb).unwrap_or_default(),
            pids: open(pids).as_ref().and_then(read_pids),
            cpu: read_cpu(open(cpu).as_ref(), open(cpuacct).as_ref()),
            memory: memory.as_ref().and_then(read_memory),
            blkio: open(blkio).as_ref().map(read_blkio),
            rdma: open(rdma).as_ref().and_then(RdmaStats::read),
            memory_oom_control: memory.as_ref().and_then(|directory| {
                let numbers = directory.keyed("memory.oom_control");
                (!numbers.is_empty()).then(|| MemoryOomControl::from_numbers(&numbers))
            }),
        }
    }
}

fn read_hugetlb(directory: &Directory) -> Vec<HugetlbStats> {
    let entry = |page_size: String| {
        let field = |name| directory.number(&format!("hugetlb.{page_size}.{name}")).unwrap_or_default();
        HugetlbStats {
            usage: field("usage_in_bytes"),
            max: field("max_usage_in_bytes"),
            failure_count: field("failcnt"),
            page_size,
        }
    };
    directory.huge_page_sizes().into_iter().map(entry).collect()
}

fn read_pids(directory: &Directory) -> Option<PidsStats> {
    let limit = directory.number("pids.max").filter(|limit| *limit != u64::MAX);
    Some(PidsStats { current: directory.number("pids.current")?, limit: limit.unwrap_or_default() })
}

fn read_cpu(cpu: Option<&Directory>, cpuacct: Option<&Directory>) -> Option<CpuStats> {
    let mut stats = CpuStats::default();
    if let Some(directory) = cpuacct {
        stats.total = directory.number("cpuacct.usage")?;
        let ticks = directory.keyed("cpuacct.stat");
        stats.user = ticks.get("user") * NANOSECONDS_PER_TICK;
        stats.kernel = ticks.get("system") * NANOSECONDS_PER_TICK;
        let per_cpu = directory.text("cpuacct.usage_percpu").unwrap_or_default();
        stats.per_cpu = per_cpu.split_whitespace().filter_map(|number| number.parse().ok()).collect();
    }
    if let Some(directory) = cpu {
        let throttling = directory.keyed("cpu.stat");
        stats.periods = throttling.get("nr_periods");
        stats.throttled_periods = throttling.get("nr_throttled");
        stats.throttled_time = throttling.get("throttled_time");
    }
    (cpu.is_some() || cpuacct.is_some()).then_some(stats)
}

fn read_memory(directory: &Directory) -> Option<MemoryStats> {
    let entry = |prefix: &str| {
        let field = |name| directory.number(&format!("memory.{prefix}{name}"));
        Some(MemoryEntry {
            usage: field("usage_in_bytes")?,
            limit: field("limit_in_bytes").unwrap_or_default(),
            max: field("max_usage_in_bytes").unwrap_or_default(),
            failure_count: field("failcnt").unwrap_or_default(),
        })
    };
    Some(MemoryStats {
        usage: entry("")?,
        detail: MemoryDetail::from_numbers(&directory.keyed("memory.stat")),
        swap: entry("memsw."),
        kernel: entry("kmem."),
        kernel_tcp: entry("kmem.tcp."),
    })
}

fn read_blkio(directory: &Directory) -> BlkioStats {
    // The throttling layer counts with every IO scheduler; the files of cfq and bfq count only with their own.
    let first_filled = |names: &[&str]| {
        names
            .iter()
            .map(|name| read_blkio_file(directory, name))
            .find(|list| !list.is_empty())
            .unwrap_or_default()
    };
    BlkioStats {
        service_bytes: first_filled(&[
            "blkio.bfq.io_service_bytes_recursive",
            "blkio.io_service_bytes_recursive",
            "blkio.throttle.io_service_bytes_recursive",
            "blkio.throttle.io_service_bytes",
        ]),
        serviced: first_filled(&[
            "blkio.bfq.io_serviced_recursive",
            "blkio.io_serviced_recursive",
            "blkio.throttle.io_serviced_recursive",
            "blkio.throttle.io_serviced",
        ]),
        queued: first_filled(&["blkio.bfq.io_queued_recursive", "blkio.io_queued_recursive"]),
        service_time: first_filled(&[
            "blkio.bfq.io_service_time_recursive",
            "blkio.io_service_time_recursive",
        ]),
        wait_time: first_filled(&["blkio.bfq.io_wait_time_recursive", "blkio.io_wait_time_recursive"]),
        merged: first_filled(&["blkio.bfq.io_merged_recursive", "blkio.io_merged_recursive"]),
        time: first_filled(&["blkio.bfq.time_recursive", "blkio.time_recursive"]),
        sectors: first_filled(&["blkio.bfq.sectors_recursive", "blkio.sectors_recursive"]),
    }
}

fn read_blkio_file(directory: &Directory, file: &str) -> Vec<BlkioEntry> {
    let text = directory.text(file).unwrap_or_default();
    text.lines().filter_map(blkio_entry).collect()
}

/// `8:0 Read 4096`, or `8:0 4096`; the closing `Total 4096` has no device and is left out.
fn blkio_entry(line: &str) -> Option<BlkioEntry> {
    let mut words = line.split_whitespace();
    let (major, minor) = words.next()?.split_once(':')?;
    let (operation, value) = match (words.next()?, words.next()) {
        (operation, Some(value)) => (operation, value),
        (value, None) => ("", value),
    };
    let (major, minor) = (major.parse().ok()?, minor.parse().ok()?);
    Some(BlkioEntry {
        operation: operation.to_owned(),
        device: device_name(major, minor),
        major,
        minor,
        value: value.parse().ok()?,
    })
}

fn device_name(major: u64, minor: u64) -> String {
    let link = fs::read_link(format!("/sys/dev/block/{major}:{minor}"));
    match link.ok().as_deref().and_then(Path::file_name) {
        Some(name) => format!("/dev/{}", name.to_string_lossy()),
        None => String::new(),
    }
}
