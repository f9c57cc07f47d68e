//! A hand as the head has it: its thread, and keys to what lives there.
//!
//! Owns what is sent, and in which order. Never waits for a hand without a limit.

use std::cell::{Cell, OnceCell};
use std::future::Future;
use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Duration;

use super::answers::{Promise, Reply};
use super::attention::{Alert, Presence, Pulse};
use super::error::HandError;
use super::stock::Stock;
use super::table::{Guard, Table};
use super::tenant::{self, Tenant};
use super::thread::Thread;

/// One hand. Its thread starts with the first thing that is placed on it.
#[derive(Clone, Debug)]
pub struct Hand(Rc<Head>);

/// Gets to know when a hand is away, and when it is back.
pub type PresenceObserver = Rc<dyn Fn(Presence)>;

/// What the head has of a hand.
struct Head {
    keeps: Vec<RawFd>,
    thread: OnceCell<Thread>,
    next_key: Cell<u64>,
    observer: PresenceObserver,
    alert: Alert,
    pulse: Pulse,
}

impl std::fmt::Debug for Head {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Head").field("thread", &self.thread).finish_non_exhaustive()
    }
}

/// A hand that may have ended.
#[derive(Clone, Debug, Default)]
pub struct WeakHand(Weak<Head>);

impl WeakHand {
    /// It, if its thread or a handle is still there.
    pub fn upgrade(&self) -> Option<Hand> {
        self.0.upgrade().map(Hand)
    }
}

impl Hand {
    /// `keeps` are descriptors that its thread uses too, such as the log's. They must stay open, under these numbers.
    #[must_use]
    pub fn new(keeps: Vec<RawFd>) -> Self {
        Self::observed(keeps, Rc::new(|_| {}), Alert::default())
    }

    /// The same, with a word for each of its absences.
    pub fn observed(keeps: Vec<RawFd>, observer: PresenceObserver, alert: Alert) -> Self {
        let (thread, next_key, pulse) = (OnceCell::new(), Cell::new(0), Pulse::default());
        Self(Rc::new(Head { keeps, thread, next_key, observer, alert, pulse }))
    }

    fn thread(&self) -> Result<&Thread, HandError> {
        if let Some(thread) = self.thread_if_started() {
            return Ok(thread);
        }
        let Head { keeps, observer, alert, pulse, .. } = &*self.0;
        let observer = observer.clone();
        let thread = Thread::start(keeps, alert.clone(), pulse.clone(), move |presence| observer(presence));
        let thread = thread.map_err(HandError::Start)?;
        Ok(self.0.thread.get_or_init(|| thread))
    }

    fn thread_if_started(&self) -> Option<&Thread> {
        self.0.thread.get()
    }

    /// Without a thread nothing lives on it, and there is nothing to do.
    pub(super) fn send(&self, message: impl FnOnce(&Rc<Table>) + Send + 'static) {
        if let Some(thread) = self.thread_if_started() {
            thread.messages.send(Box::new(message));
        }
    }

    /// Waits until all that was sent before has begun, for at most `limit`.
    ///
    /// # Errors
    /// There is no thread any more, or it has not answered in time.
    pub async fn answers(&self, limit: Duration) -> Result<(), HandError> {
        if self.thread_if_started().is_none() {
            return Ok(());
        }
        let (promise, reply) = self.promise()?;
        self.send(move |_| promise.keep(()));
        reply.within(limit).await
    }

    /// It ends with the last handle and the last thing that lives on it.
    pub fn downgrade(&self) -> WeakHand {
        WeakHand(Rc::downgrade(&self.0))
    }

    /// Whether it is the same hand.
    pub fn is(&self, other: &Self) -> bool {
        Rc::ptr_eq(&self.0, &other.0)
    }

    /// A promise that a message takes to the hand.
    ///
    /// # Errors
    /// There is no thread.
    pub fn promise<R>(&self) -> Result<(Promise<R>, Reply<R>), HandError> {
        let (thread, hand) = (self.thread()?, self.clone());
        Ok(thread.awaited.promise(&thread.answers, move |id| hand.send(move |table| table.end_act(id))))
    }

    /// A key for what is going to be placed on the hand, of a tenant's if it touches what a container can delay.
    pub fn reserve<T>(&self, tenant: Option<&Tenant>) -> Held<T> {
        let key = self.0.next_key.get();
        self.0.next_key.set(key + 1);
        let tenant = tenant.cloned();
        Held { hand: self.clone(), key, tenant, is_given: Cell::new(false), _object: PhantomData }
    }

    /// Places on the hand what `make` makes there, within `limit`.
    ///
    /// Cancel-safe: then nothing is placed.
    ///
    /// # Errors
    /// What `make` fails with, or why the hand does not answer.
    pub async fn place<T: 'static, E, F, Made>(
        &self,
        limit: Duration,
        tenant: Option<&Tenant>,
        make: F,
    ) -> Result<Held<T>, E>
    where
        F: FnOnce() -> Made + Send + 'static,
        Made: Future<Output = Result<T, E>> + 'static,
        E: From<HandError> + Send + 'static,
    {
        let (promise, reply) = self.promise()?;
        let held = self.reserve::<T>(tenant);
        let (key, tenant) = (held.key, tenant.cloned());
        self.send(move |table| {
            let place = table.clone();
            table.run(promise, tenant, async move { make().await.map(|made| place.insert(key, made)) });
        });
        reply.within(limit).await??;
        Ok(held)
    }

    /// Places on the hand what `make` makes there of descriptors of this thread's, within `limit`.
    ///
    /// # Errors
    /// As of [`Self::place`], and that no descriptor is left.
    pub async fn place_with<T: 'static, E, F>(
        &self,
        limit: Duration,
        descriptors: &[BorrowedFd<'_>],
        make: F,
    ) -> Result<Held<T>, E>
    where
        F: FnOnce(Vec<OwnedFd>) -> Result<T, E> + Send + 'static,
        E: From<HandError> + Send + 'static,
    {
        let (promise, reply) = self.promise()?;
        let held = self.reserve::<T>(None);
        let key = held.key;
        self.thread()?.borrower.send(key, descriptors).map_err(|_| HandError::Closed)?;
        self.send(move |table| {
            let given = table.given(key).map_err(|_| HandError::Closed.into());
            promise.keep(given.and_then(make).map(|made| table.insert(key, made)));
        });
        reply.within(limit).await??;
        Ok(held)
    }

    /// What another hand needs to go on with its works: the stock, and its descriptor.
    pub fn stock(&self) -> Option<(Arc<Stock>, BorrowedFd<'_>)> {
        self.thread_if_started().map(|thread| (thread.stock.clone(), thread.shelf.as_fd()))
    }

    /// Whether its thread is there, and what it does.
    pub fn pulse(&self) -> Pulse {
        self.0.pulse.clone()
    }

    /// The alert has changed.
    pub fn check_soon(&self) {
        if let Some(thread) = self.thread_if_started() {
            thread.attention.check_soon();
        }
    }

    /// The descriptors that [`Guard::lend`] has sent under this key.
    ///
    /// # Errors
    /// They have not come, or there is no thread.
    pub fn borrowed(&self, key: u64) -> io::Result<Vec<OwnedFd>> {
        match self.thread_if_started() {
            Some(thread) => thread.borrower.take(key),
            None => Err(io::ErrorKind::NotConnected.into()),
        }
    }
}

/// Something that lives on a hand. Dropping this drops it there.
#[derive(Debug)]
pub struct Held<T> {
    hand: Hand,
    key: u64,
    tenant: Option<Tenant>,
    is_given: Cell<bool>,
    _object: PhantomData<fn() -> T>,
}

impl<T: 'static> Held<T> {
    /// Where it lives on the hand.
    pub fn key(&self) -> u64 {
        self.key
    }

    /// The hand on which it lives.
    pub fn hand(&self) -> &Hand {
        &self.hand
    }

    /// Whose processes can delay it.
    pub fn tenant(&self) -> Option<&Tenant> {
        self.tenant.as_ref()
    }

    /// A key for something else of the same tenant's on the same hand.
    pub fn reserve<U>(&self) -> Held<U> {
        self.hand.reserve(self.tenant())
    }

    /// Does `act` with it, after all that was sent before.
    pub fn tell(&self, act: impl FnOnce(&mut T) + Send + 'static) {
        let (key, tenant) = (self.key, self.tenant.clone());
        self.when_free(move |table| {
            if let Some(mut guard) = table.take::<T>(key) {
                tenant::in_turn(tenant, move || act(&mut guard));
            }
        });
    }

    /// Does `act` with it, after all that was sent before; what is sent later waits until that has ended. The message leaves at once.
    ///
    /// Dropping the reply ends what goes on.
    ///
    /// # Errors
    /// There is no thread.
    pub fn ask<R, F, Act>(&self, act: F) -> Result<Reply<R>, HandError>
    where
        R: Send + 'static,
        F: FnOnce(Guard<T>) -> Act + Send + 'static,
        Act: Future<Output = R> + 'static,
    {
        let (promise, reply) = self.hand.promise()?;
        let (key, id, tenant) = (self.key, promise.id(), self.tenant.clone());
        self.hand.send(move |table| table.act_comes(id));
        self.when_free(move |table| {
            if table.is_act_wanted(id)
                && let Some(guard) = table.take::<T>(key)
            {
                table.run(promise, tenant, async move { act(guard).await });
            }
        });
        Ok(reply)
    }

    /// The same, for at most `limit`.
    ///
    /// # Errors
    /// There is no thread, or it has not answered in time.
    pub async fn ask_within<R, F, Act>(&self, limit: Duration, act: F) -> Result<R, HandError>
    where
        R: Send + 'static,
        F: FnOnce(Guard<T>) -> Act + Send + 'static,
        Act: Future<Output = R> + 'static,
    {
        self.ask(act)?.within(limit).await
    }

    /// Gives it another object, which does not live on the hand any more then.
    pub fn give<U: 'static>(&self, other: Held<U>, act: fn(&mut T, U)) {
        let (key, given, tenant) = (self.key, other.give_up(), self.tenant.clone());
        self.when_free(move |table| {
            let (guard, other) = (table.take::<T>(key), table.take::<U>(given));
            tenant::in_turn(tenant, move || {
                let other = other.map(Guard::into_inner);
                if let (Some(mut guard), Some(other)) = (guard, other) {
                    act(&mut guard, other);
                }
            });
        });
    }

    /// Replaces it there by what `become_other` makes of it.
    pub fn turned_into<U: 'static>(self, become_other: fn(T) -> U) -> Held<U> {
        let other = self.reserve::<U>();
        let (from, to, tenant) = (self.key, other.key, self.tenant.clone());
        self.when_free(move |table| {
            let place = table.clone();
            if let Some(guard) = table.take::<T>(from) {
                tenant::in_turn(tenant, move || place.insert(to, become_other(guard.into_inner())));
            }
        });
        self.give_up();
        other
    }

    fn when_free(&self, act: impl FnOnce(&Rc<Table>) + Send + 'static) {
        let key = self.key;
        self.hand.send(move |table| table.when_free(key, Box::new(act)));
    }

    /// From here on a message owns it.
    fn give_up(self) -> u64 {
        self.is_given.set(true);
        self.key
    }
}

impl<T> Drop for Held<T> {
    fn drop(&mut self) {
        let (key, tenant) = (self.key, self.tenant.take());
        if !self.is_given.get() {
            self.hand.send(move |table| {
                let table = table.clone();
                tenant::in_turn(tenant, move || table.remove(key));
            });
        }
    }
}
