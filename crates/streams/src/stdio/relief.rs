//! Keeps the OCI runtime from blocking on the stderr that it shares with the process it makes (D7): until its call has succeeded,
//! no other reader takes anything out of that pipe, and a runtime repeats a long command or a hook's whole stderr there.
//!
//! Owns what it takes out meanwhile, within bounds. The movement of the stream passes that on after a success; after a failure
//! nothing does.

use std::cell::RefCell;
use std::fs::File;
use std::io::{self, Read};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use threads::hand::tenant;
use tokio::task::JoinHandle;

use super::pipe::unread;

/// Most of what is kept. What the runtime says beyond that is dropped, and a process that writes more waits for its readers.
const MOST: usize = 1024 * 1024;
/// A pipe with less in it is left alone: a pipe holds 64 KiB, and most calls write nothing.
const MUCH: usize = 16 * 1024;
/// Until the next look. A call takes less than the first one.
const PAUSE: Duration = Duration::from_millis(100);
const PAUSE_AT_MUCH: Duration = Duration::from_millis(5);

/// What was taken out of a pipe before its movement began.
#[derive(Debug, Default, Clone)]
pub(super) struct Relieved(Rc<RefCell<Vec<u8>>>);

impl Relieved {
    pub(super) fn take(&self) -> Vec<u8> {
        self.0.take()
    }
}

/// Whose the output beyond the bound is, as the thread says that has called the runtime. At first it may be the process's, and stays
/// in the pipe.
#[derive(Debug, Default, Clone)]
pub struct Excess(Arc<AtomicBool>);

impl Excess {
    /// It is the runtime's own, which has said it in its log too: from now on it is dropped.
    pub fn is_the_runtimes(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    fn may_be_dropped(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// The read end of a stderr pipe during one call of the runtime.
#[derive(Debug)]
pub(super) struct Relief {
    reader: File,
    relieved: Relieved,
    excess: Excess,
}

impl Relief {
    /// `source` is non-blocking, and not being moved yet.
    pub(super) fn of(source: &File, relieved: &Relieved, excess: &Excess) -> io::Result<Self> {
        Ok(Self { reader: source.try_clone()?, relieved: relieved.clone(), excess: excess.clone() })
    }

    /// Looks again and again, on the current `LocalSet`.
    pub(super) fn begin(self) -> ReliefTask {
        ReliefTask(tenant::spawn(async move {
            let mut pause = PAUSE;
            loop {
                tokio::time::sleep(pause).await;
                pause = self.relieve();
            }
        }))
    }

    /// Takes out what is there, if it is much. Returns when to look again.
    fn relieve(&self) -> Duration {
        let waiting = unread(&self.reader).ok().and_then(|bytes| usize::try_from(bytes).ok()).unwrap_or(0);
        if waiting < MUCH {
            return PAUSE;
        }
        let mut kept = self.relieved.0.borrow_mut();
        let room = MOST.saturating_sub(kept.len());
        // A failed read leaves the pipe as it is; the next look tries again.
        let _ = (&self.reader).take(waiting.min(room) as u64).read_to_end(&mut kept);
        if waiting > room && self.excess.may_be_dropped() {
            let _ = io::copy(&mut (&self.reader).take((waiting - room) as u64), &mut io::sink());
        }
        PAUSE_AT_MUCH
    }
}

/// Looks at a pipe until this is dropped.
#[derive(Debug)]
pub(super) struct ReliefTask(JoinHandle<()>);

impl Drop for ReliefTask {
    fn drop(&mut self) {
        self.0.abort();
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::super::pipe::nonblocking_pipe;
    use super::*;

    /// D7: what is kept is bounded, and only what belongs to no process is dropped.
    #[test]
    fn d7_memory_is_bounded_and_no_output_is_dropped_unless_it_is_the_runtimes() {
        let (reader, mut writer) = nonblocking_pipe().unwrap();
        let relieved = Relieved::default();
        let excess = Excess::default();
        let relief = Relief::of(&reader, &relieved, &excess).unwrap();
        writer.write_all(b"a warning").unwrap();
        assert_eq!(relief.relieve(), PAUSE);
        let mut written = 9;
        let full = || io::ErrorKind::WouldBlock;
        loop {
            match writer.write(&[b'x'; 4096]) {
                Ok(length) => written += length,
                Err(error) if error.kind() == full() && relieved.0.borrow().len() == MOST => break,
                Err(error) => {
                    assert_eq!(error.kind(), full());
                    assert_eq!(relief.relieve(), PAUSE_AT_MUCH);
                }
            }
        }
        assert_eq!(relieved.take().len(), MOST);
        let mut left = Vec::new();
        assert_eq!((&reader).read_to_end(&mut left).unwrap_err().kind(), full());
        assert_eq!(MOST + left.len(), written);
        relieved.0.borrow_mut().resize(MOST, 0);
        writer.write_all(&[b'x'; 4 * MUCH]).unwrap();
        excess.is_the_runtimes();
        relief.relieve();
        assert_eq!((&reader).read(&mut [0]).unwrap_err().kind(), full());
    }
}
