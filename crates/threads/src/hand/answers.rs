//! What a hand answers: a promise that a message takes to it, and the reply that the head waits for.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tracing::error;

use super::error::HandError;
use super::line::{Line, Reader};

/// The result of what was promised under this number; none if the promise was dropped.
#[derive(Debug)]
pub(super) struct Answer {
    id: u64,
    result: Option<Box<dyn Any + Send>>,
}

type Sender = oneshot::Sender<Box<dyn Any + Send>>;

/// Who waits for which answer. The head's own: the other thread may not wake a task of the head's.
#[derive(Clone, Debug, Default)]
pub(super) struct Awaited {
    senders: Rc<RefCell<BTreeMap<u64, Sender>>>,
    next: Rc<Cell<u64>>,
}

impl Awaited {
    /// `give_up` is called with the promise's number when the reply is not waited for any more.
    pub(super) fn promise<R>(
        &self,
        line: &Arc<Line<Answer>>,
        give_up: impl FnOnce(u64) + 'static,
    ) -> (Promise<R>, Reply<R>) {
        let id = self.next.get();
        self.next.set(id + 1);
        let (sender, receiver) = oneshot::channel();
        self.senders.borrow_mut().insert(id, sender);
        let promise = Promise { id, line: line.clone(), is_kept: false, _result: PhantomData };
        let awaited = self.clone();
        let give_up = move || {
            awaited.senders.borrow_mut().remove(&id);
            give_up(id);
        };
        (promise, Reply { receiver, give_up: Some(Box::new(give_up)), _result: PhantomData })
    }

    /// Passes the answers on.
    pub(super) async fn read(self, answers: Reader<Answer>) {
        loop {
            match answers.next().await {
                Ok(batch) => batch.into_iter().for_each(|answer| self.pass_on(answer)),
                Err(error) => {
                    return error!(%error, "no answer comes from the thread of the pod's streams any more");
                }
            }
        }
    }

    fn pass_on(&self, Answer { id, result }: Answer) {
        let sender = self.senders.borrow_mut().remove(&id);
        if let (Some(sender), Some(result)) = (sender, result) {
            // It fails if the reply is not waited for any more.
            let _ = sender.send(result);
        }
    }
}

/// To be kept on the hand. Dropping it ends the wait for it.
#[derive(Debug)]
pub struct Promise<R> {
    id: u64,
    line: Arc<Line<Answer>>,
    is_kept: bool,
    _result: PhantomData<fn(R)>,
}

impl<R> Promise<R> {
    pub(super) fn id(&self) -> u64 {
        self.id
    }
}

impl<R: Send + 'static> Promise<R> {
    /// Answers.
    pub fn keep(mut self, result: R) {
        self.is_kept = true;
        self.line.send(Answer { id: self.id, result: Some(Box::new(result)) });
    }
}

impl<R> Drop for Promise<R> {
    fn drop(&mut self) {
        if !self.is_kept {
            self.line.send(Answer { id: self.id, result: None });
        }
    }
}

/// An answer that is to come. Dropping this ends what goes on for it.
pub struct Reply<R> {
    receiver: oneshot::Receiver<Box<dyn Any + Send>>,
    /// None once it has come.
    give_up: Option<Box<dyn FnOnce()>>,
    _result: PhantomData<fn() -> R>,
}

impl<R: 'static> Reply<R> {
    /// Waits for it.
    ///
    /// # Errors
    /// The promise was dropped, or the hand is away.
    pub async fn within(self, limit: Duration) -> Result<R, HandError> {
        match tokio::time::timeout(limit, self.answer()).await {
            Ok(answer) => answer,
            Err(_) => Err(HandError::Away { limit }),
        }
    }

    /// Waits for it without a limit.
    ///
    /// # Errors
    /// The promise was dropped.
    pub async fn answer(mut self) -> Result<R, HandError> {
        let answer = (&mut self.receiver).await;
        self.give_up = None;
        answer.ok().and_then(|answer| answer.downcast().ok()).map(|answer| *answer).ok_or(HandError::Closed)
    }
}

impl<R> Drop for Reply<R> {
    fn drop(&mut self) {
        if let Some(give_up) = self.give_up.take() {
            give_up();
        }
    }
}

impl<R> std::fmt::Debug for Reply<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reply").field("has_come", &self.give_up.is_none()).finish_non_exhaustive()
    }
}
