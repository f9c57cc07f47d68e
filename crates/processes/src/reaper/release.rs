//! The release of dead processes of containers, on a thread of its own (H3): the kernel drops all that it keeps below /proc/PID then,
//! which is as much as a container has looked at, seconds of work.
//!
//! Owns that thread, which ends when there has been nothing to release for a moment. It only works, and never waits for a container. Its
//! descriptors are its own, as a hand's are: a killed shim's connections and lock are closed while it works.

use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use nix::unistd::Pid;
use threads::hand::HeadsDescriptors;
use threads::hand::line::{Bell, Line, Reader};

/// How long the thread stays after the last release.
const IDLE: Duration = Duration::from_millis(100);
const STACK: usize = 64 * 1024;

/// The thread, while there is one.
#[derive(Debug, Default)]
pub(super) struct Releases(Rc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    thread: RefCell<Option<Rc<Thread>>>,
    /// How many there have been.
    count: Cell<u64>,
}

/// Its number, and whose pids become free.
type Job = (u64, Vec<Pid>);

#[derive(Debug)]
enum Answer {
    /// By the number of its job.
    Released(u64, io::Result<()>),
    /// No more answers come.
    Ended,
}

/// It ends when this is dropped.
#[derive(Debug)]
struct Thread {
    jobs: mpsc::Sender<Job>,
    answers: Arc<Line<Answer>>,
    reader: Reader<Answer>,
    _bell: Bell,
}

impl Releases {
    /// Frees the pids on the thread, one call at a time. Where there can be none, here.
    pub(super) async fn release(&self, pids: Vec<Pid>) -> io::Result<()> {
        let Ok(thread) = self.0.thread() else { return all(&pids) };
        self.0.count.set(self.0.count.get() + 1);
        let released = thread.release(self.0.count.get(), pids).await;
        drop(thread);
        tokio::task::spawn_local(end_when_idle(self.0.clone()));
        released
    }
}

impl Shared {
    fn thread(&self) -> io::Result<Rc<Thread>> {
        let mut place = self.thread.borrow_mut();
        let thread = match place.take() {
            Some(thread) => thread,
            None => Rc::new(Thread::start()?),
        };
        Ok(place.insert(thread).clone())
    }
}

/// Ends the thread, unless it has released something meanwhile. The thread itself could not know that nothing is on its way to it.
async fn end_when_idle(releases: Rc<Shared>) {
    let count = releases.count.get();
    tokio::time::sleep(IDLE).await;
    if releases.count.get() == count {
        releases.thread.take();
    }
}

impl Thread {
    fn start() -> io::Result<Self> {
        let (answers, bell) = Line::open()?;
        let reader = Reader::new(answers.clone(), &bell)?;
        let (jobs, theirs) = mpsc::channel::<Job>();
        let line = answers.clone();
        std::thread::Builder::new().name("release".to_owned()).stack_size(STACK).spawn(move || {
            // Where that fails it works all the same.
            drop(HeadsDescriptors::left_behind(&[line.bell()]));
            let line = EndsWithWord(line);
            while let Ok((job, pids)) = theirs.recv() {
                line.0.send(Answer::Released(job, all(&pids)));
            }
        })?;
        Ok(Self { jobs, answers, reader, _bell: bell })
    }

    async fn release(&self, job: u64, pids: Vec<Pid>) -> io::Result<()> {
        if let Err(mpsc::SendError((_, pids))) = self.jobs.send((job, pids.clone())) {
            return all(&pids);
        }
        loop {
            let answers = self.reader.next().await?;
            for answer in answers {
                match answer {
                    Answer::Released(of, released) if of == job => return released,
                    // A caller of before has not waited for it.
                    Answer::Released(..) => {}
                    Answer::Ended => return all(&pids),
                }
            }
        }
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        // Before the bell, whose number may be another file's then.
        self.answers.close();
    }
}

/// The end of the thread, whatever its reason, is an answer too.
struct EndsWithWord(Arc<Line<Answer>>);

impl Drop for EndsWithWord {
    fn drop(&mut self) {
        self.0.send(Answer::Ended);
    }
}

/// Frees all of them; the first error.
fn all(pids: &[Pid]) -> io::Result<()> {
    let results: Vec<_> = pids.iter().map(|pid| now(*pid)).collect();
    results.into_iter().collect()
}

/// Frees the pid.
pub(super) fn now(pid: Pid) -> io::Result<()> {
    // SAFETY: siginfo_t is plain data for which all zeroes is a valid value.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    let flags = libc::WEXITED | libc::WNOHANG;
    // SAFETY: `info` is a valid siginfo_t for the kernel to fill.
    match unsafe { libc::waitid(libc::P_PID, pid.as_raw() as libc::id_t, &mut info, flags) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests;
