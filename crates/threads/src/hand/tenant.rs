//! Whose pipes and terminals a hand works on: no two hands at once on those of one tenant.
//!
//! Owns each tenant's turn. A thread takes it for one poll, and keeps it while it waits in the kernel for a lock that the tenant's
//! processes hold. Another thread looks again later, so a tenant stops one hand at the most, however many pipes it holds; and what
//! one thread does with a stream never comes between what another one does.

use std::cell::{Cell, RefCell};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::Sleep;

/// Until the next look at a turn that another hand has: that one waits in the kernel, or has it for a moment.
const TAKEN: Duration = Duration::from_millis(50);

/// The processes that can hold the locks of some streams: those of one container, or of its execs.
#[derive(Clone, Debug, Default)]
pub struct Tenant(Arc<Mutex<()>>);

thread_local! {
    static CURRENT: RefCell<Option<Tenant>> = const { RefCell::new(None) };
    /// Whether this thread is a hand, on which what has to wait can go on later.
    static IS_HAND: Cell<bool> = const { Cell::new(false) };
}

/// This thread is a hand until the result is dropped.
pub(super) fn hand_of_this_thread() -> HandMark {
    IS_HAND.set(true);
    HandMark(())
}

/// See [`hand_of_this_thread`].
pub(super) struct HandMark(());

impl Drop for HandMark {
    fn drop(&mut self) {
        IS_HAND.set(false);
    }
}

/// Whose turn this thread has.
pub fn current() -> Option<Tenant> {
    CURRENT.with_borrow(Clone::clone)
}

/// A tenant's turn. Dropping this ends it.
struct Turn<'tenant> {
    // None inside of a turn of the same tenant.
    _lock: Option<MutexGuard<'tenant, ()>>,
    before: Option<Tenant>,
}

impl Tenant {
    /// Its turn, as one has it who does not keep the tenant.
    pub fn downgrade(&self) -> std::sync::Weak<Mutex<()>> {
        Arc::downgrade(&self.0)
    }

    /// The tenant of a turn that was kept.
    pub fn of(turn: Arc<Mutex<()>>) -> Self {
        Self(turn)
    }

    fn take_turn(&self) -> Option<Turn<'_>> {
        let has_it =
            CURRENT.with_borrow(|current| current.as_ref().is_some_and(|it| Arc::ptr_eq(&it.0, &self.0)));
        let lock = match has_it {
            true => None,
            false => match self.0.try_lock() {
                Ok(lock) => Some(lock),
                Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
                Err(TryLockError::WouldBlock) => return None,
            },
        };
        Some(Turn { _lock: lock, before: CURRENT.replace(Some(self.clone())) })
    }

    /// Drops some of the tenant's work, and with it perhaps the last close of a pipe, now or in a later turn.
    fn drop_in_turn(&self, work: Work) {
        if let Some(_turn) = self.take_turn() {
            return drop(work);
        }
        // A hand that ends has nothing else to do.
        if IS_HAND.get() {
            tokio::task::spawn_local(dropped_later(self.clone(), work));
        }
    }
}

async fn dropped_later(tenant: Tenant, work: Work) {
    loop {
        tokio::time::sleep(TAKEN).await;
        if let Some(_turn) = tenant.take_turn() {
            return drop(work);
        }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        CURRENT.set(self.before.take());
    }
}

/// Does something in a turn of the tenant's, now or as soon as it has one. Without a tenant, now.
pub(super) fn in_turn(tenant: Option<Tenant>, act: impl FnOnce() + 'static) {
    let Some(tenant) = tenant else { return act() };
    if let Some(_turn) = tenant.take_turn() {
        return act();
    }
    spawn_for(Some(tenant), async move { act() });
}

/// Spawns on the current `LocalSet` what works for the tenant whose turn it is.
pub fn spawn(work: impl Future<Output = ()> + 'static) -> JoinHandle<()> {
    spawn_for(current(), work)
}

/// The same for this tenant.
pub fn spawn_for(tenant: Option<Tenant>, work: impl Future<Output = ()> + 'static) -> JoinHandle<()> {
    tokio::task::spawn_local(Turns::of(tenant, work))
}

/// Of one type, whatever it is: each type of a task is some kilobytes of code.
type Work = Pin<Box<dyn Future<Output = ()>>>;

/// Work each of whose polls, and whose end, is in a turn of the tenant's.
struct Turns {
    tenant: Option<Tenant>,
    /// None once it has ended.
    work: Option<Work>,
    pause: Option<Pin<Box<Sleep>>>,
}

impl Turns {
    fn of(tenant: Option<Tenant>, work: impl Future<Output = ()> + 'static) -> Self {
        Self { tenant, work: Some(Box::pin(work)), pause: None }
    }
}

impl Future for Turns {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let Self { tenant, work, pause } = &mut *self;
        loop {
            if let Some(pause) = pause {
                ready!(pause.as_mut().poll(context));
            }
            *pause = None;
            let turn = match tenant {
                None => None,
                Some(tenant) => match tenant.take_turn() {
                    None => {
                        *pause = Some(Box::pin(tokio::time::sleep(TAKEN)));
                        continue;
                    }
                    turn => turn,
                },
            };
            // It is not polled again after its end.
            let Some(future) = work else { return Poll::Pending };
            let result = future.as_mut().poll(context);
            if result.is_ready() {
                *work = None;
            }
            drop(turn);
            return result;
        }
    }
}

impl Drop for Turns {
    fn drop(&mut self) {
        if let (Some(tenant), Some(work)) = (&self.tenant, self.work.take()) {
            tenant.drop_in_turn(work);
        }
    }
}

#[cfg(test)]
mod tests;
