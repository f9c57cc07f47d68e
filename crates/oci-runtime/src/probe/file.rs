//! `file:` probes: is a path there, seen from inside the container (rule U2)?
//!
//! Owns one look. Never opens the file itself: whatever the container made of it, a fifo or a device, stays untouched.

use std::{
    io,
    os::fd::OwnedFd,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat2};

use super::{ProbeResult, timed_out};
use crate::{helper_thread, process::Process};

/// The looks of one container, of which only one is under way at a time: a file system that never answers (FUSE, NFS)
/// must not cost a thread for each.
#[derive(Debug, Clone, Default)]
pub struct FileLooks(Arc<AtomicBool>);

/// A look under way; it is over when this is dropped, however it ends.
struct Look(Arc<AtomicBool>);

impl Look {
    fn begin(looks: &FileLooks) -> Option<Self> {
        // Relaxed: the flag is all that is shared.
        (!looks.0.swap(true, Ordering::Relaxed)).then(|| Self(looks.0.clone()))
    }
}

impl Drop for Look {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

/// Succeeds when something exists at `path` in the root of `process` within `timeout`.
///
/// Links are followed inside that root only and magic links (`/proc/<pid>/root`) never, so no link that a container
/// plants in a shared volume leads out of it (DESIGN §6). Mounts are those the process sees. Cancel-safe.
pub async fn file(process: &Process, path: &str, looks: &FileLooks, timeout: Duration) -> ProbeResult {
    let failure = match tokio::time::timeout(timeout, look(process, path, looks)).await {
        Ok(Ok(())) => return ProbeResult::Success,
        Ok(Err(error)) if error.kind() == io::ErrorKind::NotFound => "is not there".to_owned(),
        Ok(Err(error)) => format!("cannot be looked for: {error}"),
        Err(_) => timed_out(timeout),
    };
    ProbeResult::Failure(format!("file:{path} {failure}"))
}

async fn look(process: &Process, path: &str, looks: &FileLooks) -> io::Result<()> {
    let (root, path) = (process.open_root()?, path.to_owned());
    let Some(under_way) = Look::begin(looks) else {
        return Err(io::Error::new(
            io::ErrorKind::ResourceBusy,
            "its file system has not answered the last look",
        ));
    };
    helper_thread::run("probe", move || {
        let found = exists(&root, &path);
        drop(under_way);
        found
    })
    .await
}

fn exists(root: &OwnedFd, path: &str) -> io::Result<()> {
    let how = OpenHow::new()
        .flags(OFlag::O_PATH | OFlag::O_CLOEXEC)
        .resolve(ResolveFlag::RESOLVE_IN_ROOT | ResolveFlag::RESOLVE_NO_MAGICLINKS);
    openat2(root, path, how)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        reaper::Reaper,
        test_support::{run, within},
    };

    /// U2, DESIGN §6: a look that does not come back must not cost a thread for each period.
    #[test]
    fn u2_a_file_system_that_never_answers_costs_one_look() {
        run(async {
            let reaper = Reaper::start().unwrap();
            let own = reaper.spawn(std::process::Command::new("sleep").arg("1000")).unwrap();
            let looks = FileLooks::default();
            let limit = Duration::from_secs(5);
            let under_way = Look::begin(&looks).unwrap();
            let refused = within(file(&own.process, "/", &looks, limit)).await.to_string();
            assert_eq!(
                refused,
                "file:/ cannot be looked for: its file system has not answered the last look"
            );
            drop(under_way);
            assert_eq!(within(file(&own.process, "/", &looks, limit)).await, ProbeResult::Success);
            own.process.signal(crate::process::SignalNumber::KILL).unwrap();
            within(own.exit).await;
        });
    }
}
