//! One kind of what waits: by what it is about, the newer one in the place of the older.
//!
//! Owns what is on its way to the API server, too: until its request has an answer it can be withdrawn, and then it is not sent again.

use std::collections::BTreeMap;
use std::time::Duration;

/// What there is to do.
#[derive(Debug, PartialEq, Eq)]
pub enum Next<T> {
    /// Send this.
    Send(T),
    /// Nothing until then.
    Wait(Duration),
    /// Nothing.
    Idle,
}

/// What waits or is on its way.
#[derive(Debug)]
pub(super) struct Queue<K, T> {
    entries: BTreeMap<K, Waiting<T>>,
    /// The place of the next one.
    place: u64,
}

/// One that waits: the lowest place goes first.
#[derive(Debug)]
struct Waiting<T> {
    place: u64,
    way: Way,
    what: T,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// It may be sent from then on.
    NotBefore(Duration),
    /// Its request has no answer yet.
    Sent,
}

impl<K, T> Default for Queue<K, T> {
    fn default() -> Self {
        Self { entries: BTreeMap::new(), place: 0 }
    }
}

impl<K: Clone + Ord, T: Clone> Queue<K, T> {
    /// Adds one, in the place of an older one about the same.
    pub(super) fn add(&mut self, key: K, what: T) {
        let (place, way) = (self.next_place(), Way::NotBefore(Duration::ZERO));
        self.entries.insert(key, Waiting { place, way, what });
    }

    /// Removes one, whether it waits or is on its way.
    pub(super) fn remove(&mut self, key: &K) {
        self.entries.remove(key);
    }

    /// Removes those that wait and of which it is not so any more. Returns how many.
    pub(super) fn drop_waiting(&mut self, still: impl Fn(&T) -> bool) -> usize {
        let before = self.entries.len();
        self.entries.retain(|_, waiting| waiting.way == Way::Sent || still(&waiting.what));
        before - self.entries.len()
    }

    /// Keeps those about which it is so.
    pub(super) fn retain(&mut self, is_kept: impl Fn(&K) -> bool) {
        self.entries.retain(|key, _| is_kept(key));
    }

    /// Removes the one that has waited longest, if there are more than so many.
    pub(super) fn bound(&mut self, most: usize) -> usize {
        if self.entries.len() <= most {
            return 0;
        }
        let waiting = self.entries.iter().filter(|(_, waiting)| waiting.way != Way::Sent);
        let oldest = waiting.min_by_key(|(_, waiting)| waiting.place).map(|(key, _)| key.clone());
        oldest.and_then(|key| self.entries.remove(&key)).map_or(0, |_| 1)
    }

    /// Which one is to be sent next.
    pub(super) fn first(&self, now: Duration) -> Next<K> {
        let waiting = self.entries.iter().filter_map(|(key, waiting)| match waiting.way {
            Way::NotBefore(until) => Some((until, waiting.place, key)),
            Way::Sent => None,
        });
        match waiting.clone().filter(|(until, ..)| *until <= now).min_by_key(|(_, place, _)| *place) {
            Some((_, _, key)) => Next::Send(key.clone()),
            None => waiting.map(|(until, ..)| until).min().map_or(Next::Idle, Next::Wait),
        }
    }

    /// It is on its way from now on.
    pub(super) fn send(&mut self, key: &K) -> Next<T> {
        self.entries.get_mut(key).map_or(Next::Idle, |waiting| {
            waiting.way = Way::Sent;
            Next::Send(waiting.what.clone())
        })
    }

    /// The request of the one that was on its way has an answer.
    pub(super) fn answered(&mut self, key: &K) {
        if self.entries.get(key).is_some_and(|waiting| waiting.way == Way::Sent) {
            self.entries.remove(key);
        }
    }

    /// The one that was on its way could not be written: it waits again, unless it was withdrawn or a newer one waits.
    pub(super) fn give_back(&mut self, key: &K, not_before: Duration) {
        let place = self.next_place();
        if let Some(waiting) = self.entries.get_mut(key).filter(|waiting| waiting.way == Way::Sent) {
            (waiting.place, waiting.way) = (place, Way::NotBefore(not_before));
        }
    }

    fn next_place(&mut self) -> u64 {
        self.place += 1;
        self.place
    }
}
