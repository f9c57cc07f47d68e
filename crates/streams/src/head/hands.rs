//! Which hand gets what is new, and which one goes on with the streams of a hand that is away.
//!
//! Owns the pod's hands: one, and another one for each tenant that delays one, up to a bound.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::os::fd::{OwnedFd, RawFd};
use std::rc::{Rc, Weak};
use std::sync;
use std::time::Duration;

use threads::hand::{Alert, Hand, HandError, Held, Presence, Pulse, Tenant, WeakHand};
use tokio::sync::Notify;
use tokio::time::Instant;
use tracing::{debug, info, warn};

use crate::stdio::StandIn;

/// After this time without an answer a hand gets nothing new.
const ANSWERS_WITHIN: Duration = Duration::from_secs(1);
/// Most threads of a pod's streams, those included that wait in the kernel and have nothing else to do. A container can delay two, one
/// by its own streams and one by those of its execs. With the last one delayed too, all output of the pod waits.
pub const MOST: usize = 16;
/// A hand that has just been chosen goes on with another one's streams at once, unless it is delayed itself.
const STANDS_IN_WITHIN: Duration = Duration::from_millis(250);
/// Until the next try to let another hand go on.
const AGAIN: Duration = Duration::from_millis(500);
/// A container can let a hand go and delay it again each second: so often it is in the log.
const QUIET: Duration = Duration::from_secs(60);

/// A pod's hands.
#[derive(Clone, Debug)]
pub struct Hands(Rc<All>);

/// Whose processes have the other ends of some streams, and can hold their locks.
#[derive(Clone, Copy, Debug)]
pub enum Whose<'id> {
    /// The container's of this id.
    Container(&'id str),
    /// Those of its execs, without its own.
    ExecsOf(&'id str),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Container,
    Execs,
}

type Turn = sync::Weak<sync::Mutex<()>>;

#[derive(Debug)]
struct All {
    keeps: Vec<RawFd>,
    current: RefCell<Hand>,
    /// All whose thread is there.
    members: RefCell<Vec<Member>>,
    next: Cell<u64>,
    /// Of those that have ended.
    longest: Cell<Duration>,
    alert: Alert,
    /// The turns of containers, and of their execs.
    tenants: RefCell<BTreeMap<(Kind, String), Turn>>,
    /// Whether a task settles who goes on for which hand.
    is_settling: Cell<bool>,
    changed: Notify,
    words: Words,
}

#[derive(Debug)]
struct Member {
    number: u64,
    /// Nothing may live on it any more, while its thread waits.
    hand: WeakHand,
    pulse: Pulse,
    is_away: bool,
    /// What goes on with its streams meanwhile, and on which hand.
    stand_in: Option<(u64, Held<StandIn>)>,
}

impl Member {
    fn new(number: u64, hand: &Hand) -> Self {
        Self { number, hand: hand.downgrade(), pulse: hand.pulse(), is_away: false, stand_in: None }
    }
}

/// How much attention the streams of a pod get.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HandsAttention {
    /// The longest time in which a thread of the streams did one thing only.
    pub longest_away: Duration,
    /// How many of the threads are away now.
    pub away: usize,
    /// For how long the first of these.
    pub away_for: Option<Duration>,
}

impl Hands {
    /// `keeps` are descriptors that their threads use too, such as the log's. They must stay open, under these numbers.
    #[must_use]
    pub fn new(keeps: Vec<RawFd>) -> Self {
        Self(Rc::new_cyclic(|all| {
            let alert = Alert::default();
            let first = Hand::observed(keeps.clone(), observer(all.clone(), 0), alert.clone());
            All {
                keeps,
                members: RefCell::new(vec![Member::new(0, &first)]),
                current: RefCell::new(first),
                next: Cell::new(1),
                longest: Cell::default(),
                alert,
                tenants: RefCell::default(),
                is_settling: Cell::default(),
                changed: Notify::new(),
                words: Words::default(),
            }
        }))
    }

    /// In whose turns streams are worked on.
    pub(super) fn tenant(&self, whose: Whose<'_>) -> Tenant {
        let key = match whose {
            Whose::Container(id) => (Kind::Container, id.to_owned()),
            Whose::ExecsOf(id) => (Kind::Execs, id.to_owned()),
        };
        let mut tenants = self.0.tenants.borrow_mut();
        if let Some(turn) = tenants.get(&key).and_then(sync::Weak::upgrade) {
            return Tenant::of(turn);
        }
        tenants.retain(|_, turn| turn.strong_count() > 0);
        let tenant = Tenant::default();
        tenants.insert(key, tenant.downgrade());
        tenant
    }

    /// A hand that answers. If the current one does not, for a second, another one takes its place, unless there are too many already.
    ///
    /// # Errors
    /// None answers.
    pub async fn free(&self) -> Result<Hand, HandError> {
        let current = self.0.current.borrow().clone();
        let Err(away) = current.answers(ANSWERS_WITHIN).await else { return Ok(current) };
        // Another caller may have found that too.
        let next = self.0.current.borrow().clone();
        if !next.is(&current) {
            return Ok(next);
        }
        let (_, next) = self.0.present(Some(&current)).ok_or(away)?;
        next.answers(ANSWERS_WITHIN).await?;
        self.0.current.replace(next.clone());
        Ok(next)
    }

    /// The figures for operators.
    pub fn attention(&self) -> HandsAttention {
        let members = self.0.members.borrow();
        let longest = members.iter().map(|member| member.pulse.longest_away()).max();
        let away: Vec<Duration> = members.iter().filter_map(|member| member.pulse.away_for()).collect();
        HandsAttention {
            longest_away: longest.unwrap_or_default().max(self.0.longest.get()),
            away: away.len(),
            away_for: away.into_iter().max(),
        }
    }
}

fn observer(all: Weak<All>, number: u64) -> Rc<dyn Fn(Presence)> {
    Rc::new(move |presence| {
        if let Some(all) = all.upgrade() {
            all.has_changed(number, presence);
        }
    })
}

impl All {
    fn has_changed(self: Rc<Self>, number: u64, presence: Presence) {
        if let Some(member) = self.members.borrow_mut().iter_mut().find(|member| member.number == number) {
            member.is_away = presence == Presence::Away;
        }
        self.words.log(presence);
        self.changed.notify_one();
        if !self.is_settling.replace(true) {
            tokio::task::spawn_local(settle(Rc::downgrade(&self)));
        }
    }

    /// Forgets those whose thread has ended.
    fn forget_ended(&self) {
        let longest = &self.longest;
        self.members.borrow_mut().retain(|member| {
            let is_there = member.pulse.is_there();
            if !is_there {
                longest.set(longest.get().max(member.pulse.longest_away()));
            }
            is_there
        });
    }

    /// A hand that is not away, not `but` this one: one that is there, or a new one.
    fn present(self: &Rc<Self>, but: Option<&Hand>) -> Option<(u64, Hand)> {
        self.forget_ended();
        let is_free = |member: &&Member| !member.is_away;
        let found = self.members.borrow().iter().filter(is_free).find_map(|member| {
            let hand = member.hand.upgrade()?;
            (!but.is_some_and(|but| hand.is(but))).then_some((member.number, hand))
        });
        if found.is_some() || self.members.borrow().len() >= MOST {
            return found;
        }
        let number = self.next.get();
        self.next.set(number + 1);
        let hand =
            Hand::observed(self.keeps.clone(), observer(Rc::downgrade(self), number), self.alert.clone());
        self.members.borrow_mut().push(Member::new(number, &hand));
        Some((number, hand))
    }

    /// While one is away, an absence of another one is seen sooner. Returns whether one is away.
    fn alert(&self) -> bool {
        self.forget_ended();
        let members = self.members.borrow();
        let is_any_away = members.iter().any(|member| member.is_away);
        if !is_any_away {
            self.alert.end();
        } else if self.alert.raise() {
            members.iter().filter_map(|member| member.hand.upgrade()).for_each(|hand| hand.check_soon());
        }
        is_any_away
    }

    /// Lets another hand go on with the streams of the next one that is away and has none. Returns whether that was to be done.
    async fn settle_next(self: &Rc<Self>) -> Result<bool, HandError> {
        let Some((number, away)) = self.next_without_stand_in() else { return Ok(false) };
        let Some((host, hand)) = self.present(Some(&away)) else { return Ok(false) };
        if self.current.borrow().is(&away) {
            self.current.replace(hand.clone());
        }
        let stand_in = stand_in(&hand, &away).await?;
        // It may have come back meanwhile; then this ends at once.
        let mut members = self.members.borrow_mut();
        let member = members.iter_mut().find(|member| member.number == number && member.is_away);
        if let Some(member) = member {
            member.stand_in = Some((host, stand_in));
        }
        Ok(true)
    }

    fn next_without_stand_in(&self) -> Option<(u64, Hand)> {
        let mut members = self.members.borrow_mut();
        let away: Vec<u64> =
            members.iter().filter(|member| member.is_away).map(|member| member.number).collect();
        for member in members.iter_mut() {
            let is_over = |(host, _): &(u64, Held<StandIn>)| !member.is_away || away.contains(host);
            if member.stand_in.as_ref().is_some_and(is_over) {
                member.stand_in = None;
            }
        }
        members
            .iter()
            .filter(|member| member.is_away && member.stand_in.is_none())
            .find_map(|member| Some((member.number, member.hand.upgrade()?)))
    }
}

/// As long as a hand is away: it has another one that goes on with its streams, and no other hand has.
async fn settle(all: Weak<All>) {
    while let Some(all) = all.upgrade() {
        let is_any_away = all.alert();
        match all.settle_next().await {
            Ok(true) => continue,
            Ok(false) if !is_any_away => return all.is_settling.set(false),
            Ok(false) => {}
            Err(error) => debug!(%error, "no other thread goes on with the streams"),
        }
        // There may be room for another one, or descriptors. A thread that has ended says nothing.
        let _ = tokio::time::timeout(AGAIN, all.changed.notified()).await;
    }
}

/// Goes on, on `host`, with the streams of another hand.
async fn stand_in(host: &Hand, away: &Hand) -> Result<Held<StandIn>, HandError> {
    let (stock, shelf) = away.stock().ok_or(HandError::Closed)?;
    let make = move |shelf: Vec<OwnedFd>| {
        let works = shelf.first().map(|shelf| stock.copies(shelf));
        let works = works.unwrap_or_else(|| Ok(Vec::new())).map_err(HandError::Start)?;
        Ok(StandIn::for_works(works))
    };
    host.place_with(STANDS_IN_WITHIN, &[shelf], make).await
}

/// What the log says of absences.
#[derive(Debug, Default)]
struct Words {
    last: Cell<Option<Instant>>,
    unlogged: Cell<u32>,
    is_logged: Cell<bool>,
}

impl Words {
    fn log(&self, presence: Presence) {
        match presence {
            Presence::Away => {
                if let Some(absences) = self.next_absence() {
                    warn!(
                        absences,
                        "a container holds the lock of one of its pipes or of its terminal, and with it the thread of the pod's \
                         streams: another thread gets what is new and goes on with the other streams"
                    );
                }
            }
            Presence::Back if self.is_logged.take() => {
                info!("the thread of the pod's streams that was away answers again");
            }
            Presence::Back => {}
        }
    }

    /// How many there were since the last line, this one included, if there is to be a line.
    fn next_absence(&self) -> Option<u32> {
        let absences = self.unlogged.get() + 1;
        let is_due = self.last.get().is_none_or(|last| last.elapsed() >= QUIET);
        self.unlogged.set(if is_due { 0 } else { absences });
        if is_due {
            self.last.set(Some(Instant::now()));
            self.is_logged.set(true);
        }
        is_due.then_some(absences)
    }
}

#[cfg(test)]
mod tests;
