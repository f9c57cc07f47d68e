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

use super::{Cgroup, files::KeyedNumbers};
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
    /// The pause before the next look at a counter that may be behind its notification.
    recheck: Option<Duration>,
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
        let numbers = KeyedNumbers::read(&self.directory, self.file);
        (!numbers.is_empty()).then(|| numbers.get("oom_kill"))
    }
}

impl OomWatch {
    /// Starts watching; kills before this call are not reported.
    ///
    /// Fails with `Unsupported` when the container has no memory controller. A restart in place makes a
    /// new group, which needs a new watch (rule R6).
    pub fn new(cgroup: &Cgroup) -> io::Result<Self> {
        let (notifications, counter) = match cgroup {
            Cgroup::V1(hierarchies) => {
                let directory = hierarchies.memory.clone().ok_or_else(no_memory_controller)?;
                let order = NotificationOrder::BeforeCount;
                (watch_v1(&directory)?, Counter { directory, file: "memory.oom_control", order })
            }
            Cgroup::V2(directory) => {
                let order = NotificationOrder::AfterCount;
                (watch_v2(directory)?, Counter { directory: directory.clone(), file: "memory.events", order })
            }
        };
        let notifications = async_file::register(notifications, Interest::READABLE)?;
        let seen = counter.read().unwrap_or_default();
        Ok(Self { notifications, counter, seen, recheck: None })
    }

    /// Waits for the next OOM kill and returns how many there were since the last report; `None` when the
    /// group has been removed. Cancel-safe.
    pub async fn next(&mut self) -> Option<u64> {
        loop {
            // Look first: a kill between two waits must not be lost.
            let new = self.count_new()?;
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
        self.count_new().unwrap_or_default()
    }

    fn count_new(&mut self) -> Option<u64> {
        let kills = self.counter.read()?;
        let new = kills.saturating_sub(self.seen);
        self.seen = kills;
        Some(new)
    }

    async fn consume_notification(&self) -> io::Result<()> {
        // Longer than an eventfd's counter and than any inotify event of a watched file.
        let mut buffer = [0; 512];
        let read = self.notifications.async_io(Interest::READABLE, |mut file| file.read(&mut buffer));
        read.await.map(drop)
    }
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
