//! Keeps the OCI runtime from blocking on the stderr that it shares with the process it makes (D7): until its call has succeeded,
//! no other reader takes anything out of that pipe, and a runtime repeats a long command or a hook's whole stderr there.
//!
//! Owns what it takes out meanwhile, within bounds. The movement of the stream passes that on after a success; after a failure
//! nothing does.

use std::{
    cell::RefCell,
    fs::File,
    io::{self, Read},
    rc::Rc,
    time::Duration,
};

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

/// Whose the output beyond the bound is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Excess {
    /// It may be the process's: it stays in the pipe.
    Leave,
    /// The runtime's own, which has said it in its log too.
    Drop,
}

/// The read end of a stderr pipe during one call of the runtime.
#[derive(Debug)]
pub(crate) struct Relief {
    reader: File,
    relieved: Relieved,
}

impl Relief {
    /// `source` is non-blocking, and not being moved yet.
    pub(super) fn of(source: &File, relieved: &Relieved) -> io::Result<Self> {
        Ok(Self { reader: source.try_clone()?, relieved: relieved.clone() })
    }

    /// Takes out what is there, if it is much. Returns when to look again.
    pub(crate) fn relieve(&self, excess: impl FnOnce() -> Excess) -> Duration {
        let waiting = unread(&self.reader).ok().and_then(|bytes| usize::try_from(bytes).ok()).unwrap_or(0);
        if waiting < MUCH {
            return PAUSE;
        }
        let mut kept = self.relieved.0.borrow_mut();
        let room = MOST.saturating_sub(kept.len());
        // A failed read leaves the pipe as it is; the next look tries again.
        let _ = (&self.reader).take(waiting.min(room) as u64).read_to_end(&mut kept);
        if waiting > room && excess() == Excess::Drop {
            let _ = io::copy(&mut (&self.reader).take((waiting - room) as u64), &mut io::sink());
        }
        PAUSE_AT_MUCH
    }

    /// The first look at a call.
    pub(crate) const FIRST_PAUSE: Duration = PAUSE;
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
        let relief = Relief::of(&reader, &relieved).unwrap();
        writer.write_all(b"a warning").unwrap();
        assert_eq!(relief.relieve(|| Excess::Drop), PAUSE);
        let mut written = 9;
        let full = || io::ErrorKind::WouldBlock;
        loop {
            match writer.write(&[b'x'; 4096]) {
                Ok(length) => written += length,
                Err(error) if error.kind() == full() && relieved.0.borrow().len() == MOST => break,
                Err(error) => {
                    assert_eq!(error.kind(), full());
                    assert_eq!(relief.relieve(|| Excess::Leave), PAUSE_AT_MUCH);
                }
            }
        }
        assert_eq!(relieved.take().len(), MOST);
        let mut left = Vec::new();
        assert_eq!((&reader).read_to_end(&mut left).unwrap_err().kind(), full());
        assert_eq!(MOST + left.len(), written);
        relieved.0.borrow_mut().resize(MOST, 0);
        writer.write_all(&[b'x'; 4 * MUCH]).unwrap();
        relief.relieve(|| Excess::Drop);
        assert_eq!((&reader).read(&mut [0]).unwrap_err().kind(), full());
    }
}
