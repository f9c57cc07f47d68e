//! Which hand gets what is new.
//!
//! Owns the pod's hands: one, and another one as long as a container delays that.

use std::{cell::RefCell, os::fd::RawFd, rc::Rc, time::Duration};

use tracing::{info, warn};

use super::error::HandError;
use super::handle::{Hand, WeakHand};

/// After this time without an answer a hand gets nothing new.
const ANSWERS_WITHIN: Duration = Duration::from_secs(1);

/// A pod's hands.
#[derive(Clone, Debug)]
pub struct Hands(Rc<All>);

#[derive(Debug)]
struct All {
    keeps: Vec<RawFd>,
    current: RefCell<Hand>,
    /// The one before, while something lives on it.
    before: RefCell<WeakHand>,
}

impl Hands {
    /// `keeps` are descriptors that their threads use too, such as the log's. They must stay open, under these numbers.
    #[must_use]
    pub fn new(keeps: Vec<RawFd>) -> Self {
        let current = RefCell::new(Hand::new(keeps.clone()));
        Self(Rc::new(All { keeps, current, before: RefCell::default() }))
    }

    /// A hand that answers. If the current one does not, for a second, another one takes its place, unless there are two already.
    ///
    /// # Errors
    /// Neither answers.
    pub async fn free(&self) -> Result<Hand, HandError> {
        let current = self.0.current.borrow().clone();
        let Err(away) = current.answers(ANSWERS_WITHIN).await else { return Ok(current) };
        let before = self.0.before.borrow().upgrade();
        let next = match before {
            // Another caller has found that too, or it is the older one that is free.
            _ if !self.is_current(&current) => return Ok(self.0.current.borrow().clone()),
            Some(before) => before.answers(ANSWERS_WITHIN).await.map(|()| before).map_err(|_| away)?,
            None => Hand::new(self.0.keeps.clone()),
        };
        if self.is_current(&current) {
            warn!(
                "a container holds the lock of one of its pipes or of its terminal, and with it the thread of the pod's streams: a \
                 second thread gets what is new"
            );
            *self.0.before.borrow_mut() = current.downgrade();
            *self.0.current.borrow_mut() = next;
            tokio::task::spawn_local(async move {
                if current.answers(Duration::MAX).await.is_ok() {
                    info!("the first thread of the pod's streams answers again");
                }
            });
        }
        Ok(self.0.current.borrow().clone())
    }

    fn is_current(&self, hand: &Hand) -> bool {
        self.0.current.borrow().is(hand)
    }
}
