//! Reports kills of the kernel's OOM killer in a container's cgroup.
//!
//! Only counts; it does not decide what an OOM kill means for the pod.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use nix::unistd::Pid;
use threads::{async_file, at_once};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::files::Directory;
use super::group::Cgroup;
use super::kernel_log;

/// First pause before a v1 counter is read again after a notification.
const RECHECK_FIRST: Duration = Duration::from_millis(1);
/// Last such pause; all of them together are a second.
const RECHECK_LONGEST: Duration = Duration::from_millis(512);

/// A watch for OOM kills in one container.
#[derive(Debug)]
pub struct OomWatch {
    /// The v1 eventfd or the v2 inotify: readable when the counter should be read.
    notifications: AsyncFd<File>,
    counter: Counter,
    seen: u64,
    /// The container's first process.
    pid: Pid,
    removed: Option<RemovedGroup>,
    /// The pause before the next read of a counter that may lag behind its notification.
    recheck: Option<Duration>,
}

/// Shows a kill after the group is gone (v2): systemd removes a scope with its last process, often before the shim is
/// scheduled, and the kernel delays a notification that follows another within 10 ms.
#[derive(Debug)]
struct RemovedGroup {
    /// The slice the scope was in: it counts the kills below it, and stays.
    slice: Counter,
    /// Its count when the group's own was last read.
    seen: u64,
    /// Whether a change of the group's own count was ever notified: a group that reaches its limit does that before a
    /// kill. Without it, a kill that the slice counted was in another container, unless the kernel's log names this one:
    /// where systemd removes the group before the kernel's queue of notifications gets to it, there is none.
    notified: bool,
}

/// The file whose `oom_kill` line counts the kills.
#[derive(Debug)]
struct Counter {
    directory: PathBuf,
    file: &'static str,
    order: NotificationOrder,
}

/// When the kernel notifies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NotificationOrder {
    /// v1: before it chooses a victim, so the count comes later, or never if memory was found after all.
    BeforeCount,
    /// v2.
    AfterCount,
}

impl Counter {
    /// `None` when the group is gone.
    fn read(&self) -> Option<u64> {
        let numbers = Directory::open(&self.directory)?.keyed(self.file);
        (!numbers.is_empty()).then(|| numbers.get("oom_kill"))
    }
}

impl OomWatch {
    /// Starts watching the container of which `pid` is the first process; kills before this call are not reported.
    ///
    /// A restart in place has another first
    /// process, and needs a new watch (rule R6).
    ///
    /// # Errors
    /// `Unsupported` if the container has no memory controller.
    pub fn new(cgroup: &Cgroup, pid: Pid) -> io::Result<Self> {
        let (notifications, counter, slice) = match cgroup {
            Cgroup::V1(hierarchies) => {
                let directory = hierarchies.memory.clone().ok_or_else(no_memory_controller)?;
                let order = NotificationOrder::BeforeCount;
                (watch_v1(&directory)?, Counter { directory, file: "memory.oom_control", order }, None)
            }
            Cgroup::V2(directory) => {
                let order = NotificationOrder::AfterCount;
                let counter = |directory: &Path| Counter {
                    directory: directory.to_owned(),
                    file: "memory.events",
                    order,
                };
                (watch_v2(directory)?, counter(directory), slice_of(directory).map(counter))
            }
        };
        let notifications = async_file::register(notifications, Interest::READABLE)?;
        let seen = counter.read().unwrap_or_default();
        let removed = slice.map(|slice| RemovedGroup {
            seen: slice.read().unwrap_or_default(),
            slice,
            notified: false,
        });
        Ok(Self { notifications, counter, seen, pid, removed, recheck: None })
    }

    /// Waits for the next OOM kill and returns how many there were since the last report; `None` when the group has
    /// been removed. Cancel-safe.
    pub async fn next(&mut self) -> Option<u64> {
        loop {
            // Read the counter first: a kill between two waits must not be lost.
            let Some(new) = self.count_new() else {
                // The group may be gone before the exit is seen, and then this is the last chance to report the kill.
                return Some(self.kills_of_a_removed_group()).filter(|kills| *kills > 0);
            };
            if new > 0 {
                self.recheck = None;
                return Some(new);
            }
            match self.recheck.filter(|pause| *pause <= RECHECK_LONGEST) {
                Some(pause) => {
                    tokio::time::sleep(pause).await;
                    self.recheck = Some(pause * 2);
                }
                None => {
                    self.consume_notification().await.ok()?;
                    self.recheck =
                        (self.counter.order == NotificationOrder::BeforeCount).then_some(RECHECK_FIRST);
                }
            }
        }
    }

    /// Kills since the last report, without waiting. For the moment when a process has ended: [`Self::next`] may not
    /// have got the notification yet.
    pub fn new_kills(&mut self) -> u64 {
        match self.count_new() {
            Some(kills) => kills,
            None => self.kills_of_a_removed_group(),
        }
    }

    fn kills_of_a_removed_group(&mut self) -> u64 {
        let mut buffer = NotificationBuffer::default();
        let pending = self.notifications.get_ref().read(&mut buffer).unwrap_or_default();
        self.note(&buffer[..pending]);
        let Some(removed) = &mut self.removed else { return 0 };
        let count = removed.slice.read().unwrap_or(removed.seen);
        let kills = count.saturating_sub(removed.seen);
        if kills == 0 || !(removed.notified || kernel_log::has_killed_for_memory(self.pid)) {
            return 0;
        }
        removed.seen = count;
        kills
    }

    fn count_new(&mut self) -> Option<u64> {
        // Read the slice first: a kill between the two reads is then still counted there later.
        let before = self.removed.as_ref().and_then(|removed| removed.slice.read());
        let kills = self.counter.read()?;
        let new = kills.saturating_sub(self.seen);
        self.seen = kills;
        if let Some(removed) = &mut self.removed {
            let now = if new > 0 { removed.slice.read() } else { before };
            removed.seen = now.unwrap_or(removed.seen);
        }
        Some(new)
    }

    async fn consume_notification(&mut self) -> io::Result<()> {
        let mut buffer = NotificationBuffer::default();
        let read = self.notifications.async_io(Interest::READABLE, |mut file| file.read(&mut buffer)).await?;
        self.note(&buffer[..read]);
        Ok(())
    }

    fn note(&mut self, notifications: &[u8]) {
        if let Some(removed) = &mut self.removed {
            removed.notified |= reports_a_change(notifications);
        }
    }
}

/// Longer than an eventfd's counter and than any inotify event of a watched file.
type NotificationBuffer = [u8; 32];

/// Whether the first of these inotify events reports a change; the only other event says that the watch has ended.
fn reports_a_change(events: &[u8]) -> bool {
    // inotify(7): the watch's number, the mask, ...
    let mask = events.get(4..8).and_then(|mask| mask.try_into().ok()).map(u32::from_ne_bytes);
    mask.is_some_and(|mask| mask & AddWatchFlags::IN_MODIFY.bits() != 0)
}

/// The nearest group above that outlives the container: runc's group is a scope, crun's is below a scope.
fn slice_of(directory: &Path) -> Option<&Path> {
    let is_scope = |directory: &Path| directory.extension().is_some_and(|extension| extension == "scope");
    let in_scope = directory.ancestors().find(|directory| is_scope(directory));
    in_scope.unwrap_or(directory).parent()
}

fn watch_v1(directory: &Path) -> io::Result<File> {
    // The kernel signals this eventfd at every OOM in the group, and when the group is removed.
    let eventfd = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?;
    let eventfd = File::from(OwnedFd::from(eventfd));
    let control = at_once::open(&directory.join("memory.oom_control"), File::options().read(true))?;
    at_once::write(
        directory.join("cgroup.event_control"),
        &format!("{} {}", eventfd.as_raw_fd(), control.as_raw_fd()),
    )?;
    Ok(eventfd)
}

fn watch_v2(directory: &Path) -> io::Result<File> {
    let events = directory.join("memory.events");
    if !events.exists() {
        return Err(no_memory_controller());
    }
    let inotify = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK)?;
    inotify.add_watch(&events, AddWatchFlags::IN_MODIFY)?;
    Ok(File::from(OwnedFd::from(inotify)))
}

fn no_memory_controller() -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, "the container has no memory controller")
}
