//! Whether the machine itself stood still: a virtual machine that its host pauses, or that gets no processor from it.
//!
//! Owns the thread that notices. Decides nothing: a test that checks how long a shim was away takes this time off.

use std::fs::read_to_string;
use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use tokio::time::Instant;

const STEP: Duration = Duration::from_millis(50);

static LONGEST_MS: AtomicU64 = AtomicU64::new(0);
static WATCH: Once = Once::new();

/// Notices it from now on.
pub(crate) fn watch() {
    WATCH.call_once(|| {
        // Without a thread nothing is taken off.
        let _ = thread::Builder::new().name("standstill".to_owned()).spawn(|| {
            loop {
                let (began, queued) = (Instant::now(), time_in_queue());
                thread::sleep(STEP);
                let late = began.elapsed().saturating_sub(STEP + time_in_queue().saturating_sub(queued));
                LONGEST_MS.fetch_max(late.as_millis() as u64, Ordering::Relaxed);
            }
        });
    });
}

/// The longest time for which the machine stood still since this test began.
pub fn longest() -> Duration {
    Duration::from_millis(LONGEST_MS.load(Ordering::Relaxed))
}

/// How long this thread has waited for a processor that others had: that is load, and shims count it likewise.
fn time_in_queue() -> Duration {
    let text = read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let queued = text.split(' ').nth(1).and_then(|nanoseconds| nanoseconds.parse().ok());
    Duration::from_nanos(queued.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command;

    /// A process that is stopped cannot tell that from a machine that is.
    #[tokio::test]
    async fn a_standstill_is_noticed() {
        watch();
        thread::sleep(STEP);
        let stop = format!("kill -STOP {0}; sleep 0.6; kill -CONT {0}", std::process::id());
        command::run("/bin/sh".as_ref(), ["-c", &stop]).await.expect("sh");
        thread::sleep(STEP * 2);
        assert!((500..2000).contains(&longest().as_millis()), "{:?}", longest());
    }
}
