//! Tells when the kernel's OOM killer strikes in a container's cgroup.
//!
//! Counts only; what an OOM means for the pod is decided elsewhere.

use std::{
    fs::File,
    io::{self, Read},
    os::fd::{AsRawFd, OwnedFd},
    path::{Path, PathBuf},
    time::Duration,
};

use nix::sys::{
    eventfd::{EfdFlags, EventFd},
    inotify::{AddWatchFlags, InitFlags, Inotify},
};
use tokio::io::{Interest, unix::AsyncFd};

use super::{Cgroup, files::Directory};
use crate::async_file;

/// First pause before a second look at a v1 counter after a notification.
const RECHECK_FIRST: Duration = Duration::from_millis(1);
/// Last such pause; all of them together are a second.
const RECHECK_LONGEST: Duration = Duration::from_millis(512);

/// A watch over the OOM kills in one container.
#[derive(Debug)]
pub struct OomWatch {
    /// The v1 eventfd or the v2 inotify: readable when the counter is worth a look.
    notifications: AsyncFd<File>,
    counter: Counter,
    seen: u64,
    removed: Option<RemovedGroup>,
    /// The pause before the next look at a counter that may be behind its notification.
    recheck: Option<Duration>,
}

/// What still tells of a kill when the group is gone (v2): systemd removes a scope with its last process, often before
/// the shim is scheduled, and the kernel holds a notification back that follows another within 10 ms.
#[derive(Debug)]
struct RemovedGroup {
    /// The slice the scope was in: it counts what is killed below it, and stays.
    slice: Counter,
    /// Its count when the group's own was last read.
    seen: u64,
    /// Whether the group's own count was ever notified of: a group that reaches its limit does that before a kill. Without
    /// it, a kill that the slice counted was another container's.
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
    /// v1: before it chooses a victim, so the count comes later, or never when memory was found after all.
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
    /// Starts watching; kills before this call are not reported.
    ///
    /// Fails with `Unsupported` when the container has no memory controller. A restart in place makes a
    /// new group, which needs a new watch (rule R6).
    pub fn new(cgroup: &Cgroup) -> io::Result<Self> {
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
        Ok(Self { notifications, counter, seen, removed, recheck: None })
    }

    /// Waits for the next OOM kill and returns how many there were since the last report; `None` when the
    /// group has been removed. Cancel-safe.
    pub async fn next(&mut self) -> Option<u64> {
        loop {
            // Look first: a kill between two waits must not be lost.
            let Some(new) = self.count_new() else {
                // The notification may be heard before the exit, and then this is the last look.
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

    /// Kills since the last report, without waiting. For the moment a process has ended: [`Self::next`] may
    /// not have been told yet why.
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
        let Some(removed) = self.removed.as_mut().filter(|removed| removed.notified) else { return 0 };
        let kills = removed.slice.read().unwrap_or(removed.seen);
        kills.saturating_sub(std::mem::replace(&mut removed.seen, kills))
    }

    fn count_new(&mut self) -> Option<u64> {
        // The slice first: a kill between the two is then still to be counted there.
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
            removed.notified |= tells_of_a_change(notifications);
        }
    }
}

/// Longer than an eventfd's counter and than any inotify event of a watched file.
type NotificationBuffer = [u8; 32];

/// Whether the first of these inotify events is of a change; the others are that the watch has ended.
fn tells_of_a_change(events: &[u8]) -> bool {
    // inotify(7): the watch's number, the mask, ...
    let mask = events.get(4..8).and_then(|mask| mask.try_into().ok()).map(u32::from_ne_bytes);
    mask.is_some_and(|mask| mask & AddWatchFlags::IN_MODIFY.bits() != 0)
}

/// The nearest group above that does not go with the container: runc's is a scope, crun's is below one.
fn slice_of(directory: &Path) -> Option<&Path> {
    let is_scope = |directory: &Path| directory.extension().is_some_and(|extension| extension == "scope");
    let in_scope = directory.ancestors().find(|directory| is_scope(directory));
    in_scope.unwrap_or(directory).parent()
}

fn watch_v1(directory: &Path) -> io::Result<File> {
    // The kernel signals this eventfd at every OOM in the group, and when the group is removed.
    let eventfd = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?;
    let eventfd = File::from(OwnedFd::from(eventfd));
    let control = File::open(directory.join("memory.oom_control"))?;
    std::fs::write(
        directory.join("cgroup.event_control"),
        format!("{} {}", eventfd.as_raw_fd(), control.as_raw_fd()),
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
