//! What another hand needs to go on with a hand's work while that is away: for each piece two descriptors, and what is known of it.
//!
//! Owns the descriptors' second copies. They are in flight, in a message that no thread receives: the kernel keeps them without a table,
//! and another hand gets copies by looking at the message (MSG_PEEK). A hand that waits in the kernel cannot give anything out any more,
//! its table is closed to the head, and to open a pipe a second time through /proc would take the pipe's lock. The hand itself takes
//! a piece's copies back before it closes its own, so that the last close is never the head's. When the shim is killed, the kernel drops
//! what is in flight after the head's own descriptors, its connections and its lock.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::io::{self, IoSlice};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nix::sys::socket::{
    AddressFamily, ControlMessage, MsgFlags, SockFlag, SockType, recv, sendmsg, socketpair,
};

use super::lending::receive;

/// The kernel lets 253 descriptors travel with one message (`SCM_MAX_FD`). A piece of work beyond that waits for its own hand: the newest
/// ones of more than 63 containers.
const MOST: usize = 126;

/// A piece of work that another hand goes on with.
pub struct Work {
    /// What is known of it.
    pub what: Arc<dyn Any + Send + Sync>,
    /// This thread's own.
    pub descriptors: [OwnedFd; 2],
}

/// What is known of each, and the numbers of its descriptors in its hand's table.
type Works = BTreeMap<u64, (Arc<dyn Any + Send + Sync>, [RawFd; 2])>;

/// One hand's works, as all threads have them.
pub struct Stock {
    works: Mutex<Works>,
}

impl std::fmt::Debug for Stock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stock").finish_non_exhaustive()
    }
}

/// The two ends of a stock's socket; what is sent into the second one stays in the first one.
pub(super) fn ends() -> io::Result<[OwnedFd; 2]> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let (shelf, door) = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, flags)?;
    Ok([shelf, door])
}

impl Stock {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self { works: Mutex::default() })
    }

    fn works(&self) -> MutexGuard<'_, Works> {
        self.works.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Copies of all that is in stock. `shelf` is this thread's own.
    ///
    /// # Errors
    /// The kernel's: no descriptor is left.
    pub fn copies(&self, shelf: &OwnedFd) -> io::Result<Vec<Work>> {
        let works = self.works();
        if works.is_empty() {
            return Ok(Vec::new());
        }
        let mut keys = [0; MOST * size_of::<u64>()];
        let (length, descriptors) = receive::<{ 2 * MOST }>(shelf, &mut keys, libc::MSG_PEEK)?;
        let (keys, _) = keys[..length].as_chunks();
        let mut descriptors = descriptors.into_iter();
        let mut copies = Vec::new();
        for key in keys {
            let (Some(from), Some(to)) = (descriptors.next(), descriptors.next()) else { break };
            if let Some((what, _)) = works.get(&u64::from_ne_bytes(*key)) {
                copies.push(Work { what: what.clone(), descriptors: [from, to] });
            }
        }
        Ok(copies)
    }
}

thread_local! {
    static OF_THREAD: RefCell<Option<Rc<Keeper>>> = const { RefCell::new(None) };
}

/// A stock as its own hand has it.
#[derive(Debug)]
struct Keeper {
    stock: Arc<Stock>,
    shelf: OwnedFd,
    door: OwnedFd,
    /// Whether a message is in the socket.
    is_full: Cell<bool>,
}

/// From here on this thread keeps this stock.
///
/// # Safety
/// It has kept the two numbers open, and nothing owns them there.
pub(super) unsafe fn keep(stock: Arc<Stock>, numbers: [RawFd; 2]) {
    // SAFETY: the caller's.
    let [shelf, door] = numbers.map(|number| unsafe { OwnedFd::from_raw_fd(number) });
    OF_THREAD.set(Some(Rc::new(Keeper { stock, shelf, door, is_full: Cell::new(false) })));
}

/// A piece of work in stock; dropping this takes it out.
pub struct Stocked {
    keeper: Rc<Keeper>,
    key: u64,
}

/// Puts a piece of work in stock: `descriptors` stay open until the result is dropped. Does nothing on a thread that is no hand.
pub fn put(what: Arc<dyn Any + Send + Sync>, descriptors: [BorrowedFd<'_>; 2]) -> Option<Stocked> {
    let keeper = OF_THREAD.with_borrow(Clone::clone)?;
    let mut works = keeper.stock.works();
    let key = works.last_key_value().map_or(0, |(last, _)| last + 1);
    works.insert(key, (what, descriptors.map(|one| one.as_raw_fd())));
    keeper.publish(&works);
    drop(works);
    Some(Stocked { keeper, key })
}

impl Keeper {
    /// First what is in stock now, then what was before is dropped: it is never without.
    fn publish(&self, works: &Works) {
        let all = || works.iter().take(MOST);
        let keys: Vec<u8> = all().flat_map(|(key, _)| key.to_ne_bytes()).collect();
        let numbers: Vec<RawFd> = all().flat_map(|(_, (_, numbers))| *numbers).collect();
        // Where the kernel has no room for it, these works wait for their own hand.
        let is_sent = !numbers.is_empty() && {
            let rights = [ControlMessage::ScmRights(&numbers)];
            let keys = [IoSlice::new(&keys)];
            sendmsg::<()>(self.door.as_raw_fd(), &keys, &rights, MsgFlags::empty(), None).is_ok()
        };
        if self.is_full.replace(is_sent) {
            // Without room for its descriptors they are not received, but closed.
            let _ = recv(self.shelf.as_raw_fd(), &mut [0], MsgFlags::MSG_DONTWAIT);
        }
    }
}

impl Drop for Stocked {
    fn drop(&mut self) {
        let mut works = self.keeper.stock.works();
        works.remove(&self.key);
        self.keeper.publish(&works);
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::{AsFd, IntoRawFd};

    use super::*;

    #[test]
    fn works_beyond_what_a_message_carries_wait_for_their_own_hand() {
        let [shelf, door] = ends().unwrap();
        let mine = shelf.try_clone().unwrap();
        let stock = Stock::new();
        // SAFETY: both numbers are open, and nothing owns them any more.
        unsafe { keep(stock.clone(), [shelf.into_raw_fd(), door.into_raw_fd()]) };
        let file = File::open("/dev/null").unwrap();
        let put_one = |number: usize| put(Arc::new(number), [file.as_fd(), file.as_fd()]).unwrap();
        let mut works: Vec<Stocked> = (0..MOST + 4).map(put_one).collect();
        let numbers = || -> Vec<usize> {
            let copies = stock.copies(&mine).unwrap();
            copies.iter().map(|work| *work.what.downcast_ref().unwrap()).collect()
        };
        assert_eq!(numbers(), (0..MOST).collect::<Vec<_>>());
        drop(works.remove(7));
        let kept: Vec<_> = (0..=MOST).filter(|number| *number != 7).collect();
        assert_eq!(numbers(), kept);
        drop(works);
        assert!(numbers().is_empty());
    }
}
