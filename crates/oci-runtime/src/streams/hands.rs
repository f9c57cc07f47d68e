//! Which hand gets what is new, and which one goes on with the streams of a hand that is away.
//!
//! Owns the pod's hands: one, and another one for each that a container delays, up to a bound.

use std::{
    cell::{Cell, RefCell},
    os::fd::RawFd,
    rc::{Rc, Weak},
    time::Duration,
};

use tracing::{debug, info, warn};

use crate::{
    hand::{Hand, HandError, Held, Presence, WeakHand},
    stdio::StandIn,
};

/// After this time without an answer a hand gets nothing new.
const ANSWERS_WITHIN: Duration = Duration::from_secs(1);
/// Most threads of a pod's streams: so many containers less one can hold a lock each, and delay no other.
const MOST: usize = 4;

/// A pod's hands.
#[derive(Clone, Debug)]
pub struct Hands(Rc<All>);

#[derive(Debug)]
struct All {
    keeps: Vec<RawFd>,
    current: RefCell<Hand>,
    /// All that something lives on.
    members: RefCell<Vec<Member>>,
    next: Cell<u64>,
    /// Of those that were away and may have ended.
    longest: Cell<Duration>,
}

#[derive(Debug)]
struct Member {
    number: u64,
    hand: WeakHand,
    is_away: bool,
    /// What goes on with its streams meanwhile, and on which hand.
    stand_in: Option<(u64, Held<StandIn>)>,
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
            let first = Hand::observed(keeps.clone(), observer(all.clone(), 0));
            let member = Member { number: 0, hand: first.downgrade(), is_away: false, stand_in: None };
            All {
                keeps,
                current: RefCell::new(first),
                members: RefCell::new(vec![member]),
                next: Cell::new(1),
                longest: Cell::default(),
            }
        }))
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
        let hands = self.0.alive();
        let longest = hands.iter().map(|(_, hand)| hand.longest_away()).max();
        let away: Vec<Duration> = hands.iter().filter_map(|(_, hand)| hand.away_for()).collect();
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
        let is_away = presence == Presence::Away;
        if let Some(member) = self.members.borrow_mut().iter_mut().find(|member| member.number == number) {
            member.is_away = is_away;
            let longest = member.hand.upgrade().map(|hand| hand.longest_away());
            self.longest.set(self.longest.get().max(longest.unwrap_or_default()));
        }
        if is_away {
            warn!(
                "a container holds the lock of one of its pipes or of its terminal, and with it the thread of the pod's streams: a \
                 second thread gets what is new and goes on with the other streams"
            );
        } else {
            info!("the thread of the pod's streams that was away answers again");
        }
        tokio::task::spawn_local(self.settle());
    }

    fn alive(&self) -> Vec<(u64, Hand)> {
        let members = self.members.borrow();
        members.iter().filter_map(|member| Some((member.number, member.hand.upgrade()?))).collect()
    }

    /// A hand that is not away, not `but` this one: one that is there, or a new one.
    fn present(self: &Rc<Self>, but: Option<&Hand>) -> Option<(u64, Hand)> {
        self.members.borrow_mut().retain(|member| member.hand.upgrade().is_some());
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
        let hand = Hand::observed(self.keeps.clone(), observer(Rc::downgrade(self), number));
        let member = Member { number, hand: hand.downgrade(), is_away: false, stand_in: None };
        self.members.borrow_mut().push(member);
        Some((number, hand))
    }

    /// Each hand that is away has another one that goes on with its streams, and no other hand has.
    async fn settle(self: Rc<Self>) {
        loop {
            let Some((number, away)) = self.next_without_stand_in() else { return };
            let Some((host, hand)) = self.present(Some(&away)) else { return };
            let is_current = self.current.borrow().is(&away);
            if is_current {
                self.current.replace(hand.clone());
            }
            match stand_in(&hand, &away).await {
                Ok(stand_in) => self.goes_on(number, host, stand_in),
                // It is asked again with the next absence.
                Err(error) => return debug!(%error, "no other thread goes on with the streams"),
            }
        }
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

    fn goes_on(&self, number: u64, host: u64, stand_in: Held<StandIn>) {
        if let Some(member) = self.members.borrow_mut().iter_mut().find(|member| member.number == number) {
            member.stand_in = Some((host, stand_in));
        }
    }
}

/// Goes on, on `host`, with the streams of another hand.
async fn stand_in(host: &Hand, away: &Hand) -> Result<Held<StandIn>, HandError> {
    let (stock, shelf) = away.stock().ok_or(HandError::Closed)?;
    let make = move |shelf: Vec<std::os::fd::OwnedFd>| {
        let works = shelf.first().map(|shelf| stock.copies(shelf));
        let works = works.unwrap_or_else(|| Ok(Vec::new())).map_err(HandError::Start)?;
        Ok(StandIn::for_works(works))
    };
    host.place_with(ANSWERS_WITHIN, &[shelf], make).await
}
