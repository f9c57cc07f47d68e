//! The hand's thread: its descriptors, its runtime, its end.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::sync::{Arc, mpsc};

use tokio::runtime::Runtime;
use tokio::task::{JoinHandle, LocalSet};
use tracing::error;

use super::answers::{Answer, Awaited};
use super::attention::{self, Alert, Attention, Presence, Pulse};
use super::lending::{self, End};
use super::line::{Bell, Line, Reader};
use super::own_table::HeadsDescriptors;
use super::stock::{self, Stock};
use super::table::Table;
use super::tenant;

pub(super) type Message = Box<dyn FnOnce(&Rc<Table>) + Send>;

/// Of the thread's stack the kernel gives what is used.
const STACK: usize = 256 * 1024;

/// What the head has of the thread, which ends when this is dropped.
#[derive(Debug)]
pub(super) struct Thread {
    pub(super) messages: Arc<Line<Message>>,
    pub(super) answers: Arc<Line<Answer>>,
    pub(super) awaited: Awaited,
    pub(super) borrower: End,
    pub(super) attention: Arc<Attention>,
    pub(super) stock: Arc<Stock>,
    /// Where the descriptors of what is in stock are.
    pub(super) shelf: OwnedFd,
    on_the_head: [JoinHandle<()>; 2],
    _bells: [Bell; 2],
}

impl Thread {
    /// Must run inside a `LocalSet`, on which the answers come. Returns when the thread has descriptors of its own.
    /// `changed` gets to know when it is away, and when it is back.
    pub(super) fn start(
        keeps: &[RawFd],
        alert: Alert,
        pulse: Pulse,
        changed: impl Fn(Presence) + 'static,
    ) -> io::Result<Self> {
        let (borrower, lender) = lending::pair()?;
        let (messages, message_bell) = Line::open()?;
        let (answers, answer_bell) = Line::open()?;
        let reader = Reader::new(answers.clone(), &answer_bell)?;
        let (attention, timer) = Attention::open(alert)?;
        let timer = attention::on_the_head(timer)?;
        let [shelf, door] = stock::ends()?;
        let stock = Stock::new();
        let mut keeps = keeps.to_vec();
        let shelf_and_door = [shelf.as_raw_fd(), door.as_raw_fd()];
        keeps.extend([lender.as_raw_fd(), messages.bell(), answers.bell(), attention.timer()]);
        keeps.extend(shelf_and_door);
        let ends = Ends {
            messages: messages.clone(),
            answers: answers.clone(),
            lender: lender.as_raw_fd(),
            attention: attention.clone(),
            stock: stock.clone(),
            shelf_and_door,
        };
        pulse.begin(attention.clone());
        let (ready, is_ready) = mpsc::sync_channel(1);
        std::thread::Builder::new().name("hand".to_owned()).stack_size(STACK).spawn(move || {
            let (runtime, parted) = match runtime_of_its_own(&keeps) {
                Ok(runtime) => (Some(runtime), Ok(())),
                Err(error) => (None, Err(error)),
            };
            // The head waits for it.
            let _ = ready.send(parted.map(|()| nix::unistd::gettid()));
            let Some(runtime) = runtime else { return };
            if let Err(error) = ends.serve(&runtime) {
                error!(%error, "the thread of the pod's streams has ended: no container can be created");
            }
            drop(runtime);
            drop(pulse);
        })?;
        let number = is_ready.recv().map_err(|_| io::Error::from(io::ErrorKind::BrokenPipe))??;
        // From here on the thread has them, in its own table.
        drop((lender, door));
        let awaited = Awaited::default();
        let on_the_head = [
            tokio::task::spawn_local(awaited.clone().read(reader)),
            tokio::task::spawn_local(attention.clone().watch(number.as_raw(), timer, changed)),
        ];
        let _bells = [message_bell, answer_bell];
        Ok(Self { messages, answers, awaited, borrower, attention, stock, shelf, on_the_head, _bells })
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        self.messages.send(Box::new(|table| table.is_over.set(true)));
        self.on_the_head.iter().for_each(JoinHandle::abort);
        // Before the bells, which this thread closes now.
        self.answers.close();
    }
}

/// What the thread has of the head's.
struct Ends {
    messages: Arc<Line<Message>>,
    answers: Arc<Line<Answer>>,
    /// Its number, the same in both tables.
    lender: RawFd,
    attention: Arc<Attention>,
    stock: Arc<Stock>,
    /// Their numbers too.
    shelf_and_door: [RawFd; 2],
}

impl Ends {
    fn serve(self, runtime: &Runtime) -> io::Result<()> {
        let Self { messages, answers, lender, attention, stock, shelf_and_door } = self;
        // SAFETY: these numbers were kept, and they are this thread's only objects for them.
        let (bell, _answer_bell) = unsafe { (messages.bell_of_this_table(), answers.bell_of_this_table()) };
        // SAFETY: as above.
        let lender = unsafe { End::of_this_table(lender) };
        // SAFETY: as above.
        unsafe { stock::keep(stock, shelf_and_door) };
        let table = Rc::new(Table::new(lender));
        let mark = tenant::hand_of_this_thread();
        let all = LocalSet::new();
        let served = runtime.block_on(attention.measured(all.run_until(async {
            let reader = Reader::new(messages.clone(), &bell)?;
            while !table.is_over.get() {
                for message in reader.next().await? {
                    message(&table);
                }
            }
            Ok(())
        })));
        // Their promises are dropped, while the bells are open.
        messages.close();
        drop(mark);
        drop(all);
        table.clear();
        served
    }
}

/// From here on this thread has descriptors of its own: the three standard ones, which are the null device, and `keeps`. Returns its
/// runtime, which is made on the way.
fn runtime_of_its_own(keeps: &[RawFd]) -> io::Result<Runtime> {
    let theirs = HeadsDescriptors::left_behind(keeps)?;
    let (silent, peer) = UnixStream::pair()?;
    // With its feature "signal", tokio's driver copies a descriptor that the head's runtime has opened for all of them, and wakes the
    // tasks of all from whichever thread reads it. This thread's copy is one on which nothing comes.
    for number in theirs.numbers() {
        // SAFETY: the table is this thread's alone, and no object of this thread owns one of these numbers.
        if unsafe { libc::dup3(silent.as_raw_fd(), *number, libc::O_CLOEXEC) } < 0 {
            return Err(io::Error::last_os_error());
        }
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    drop(theirs);
    // Only now: a copy whose peer has gone is always ready.
    std::mem::forget(peer);
    Ok(runtime)
}
