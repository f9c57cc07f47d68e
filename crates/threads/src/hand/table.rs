//! What lives on a hand, by key.
//!
//! Owns who may use it when: one act at a time, in the order in which they were sent. Runs on the hand's thread alone.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::ops::{Deref, DerefMut};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;

use tokio::task::AbortHandle;

use super::answers::Promise;
use super::lending::End;
use super::tenant::{self, Tenant};

type Act = Box<dyn FnOnce(&Rc<Table>)>;

/// All that lives on one hand, and what goes on with it.
pub(super) struct Table {
    slots: RefCell<BTreeMap<u64, Slot>>,
    /// Acts whose reply is waited for: those that run can be ended.
    acts: RefCell<BTreeMap<u64, Option<AbortHandle>>>,
    lender: End,
    /// The head has gone.
    pub(super) is_over: Cell<bool>,
}

#[derive(Default)]
struct Slot {
    /// `None` while an act has it.
    object: Option<Box<dyn Any>>,
    waiting: VecDeque<Act>,
    /// It goes when the act that has it gives it back.
    is_unwanted: bool,
}

impl Table {
    pub(super) fn new(lender: End) -> Self {
        Self { slots: RefCell::default(), acts: RefCell::default(), lender, is_over: Cell::new(false) }
    }

    pub(super) fn clear(&self) {
        let all = std::mem::take(&mut *self.slots.borrow_mut());
        drop(all);
    }

    /// An act has come that may have to wait.
    pub(super) fn act_comes(&self, id: u64) {
        self.acts.borrow_mut().insert(id, None);
    }

    pub(super) fn is_act_wanted(&self, id: u64) -> bool {
        self.acts.borrow().contains_key(&id)
    }

    /// Runs an act to its end, or until its reply is not waited for any more.
    pub(super) fn run<R: Send + 'static>(
        self: &Rc<Self>,
        promise: Promise<R>,
        tenant: Option<Tenant>,
        act: impl Future<Output = R> + 'static,
    ) {
        let (id, table) = (promise.id(), self.clone());
        let task = tenant::spawn_for(tenant, async move {
            let result = act.await;
            table.acts.borrow_mut().remove(&id);
            promise.keep(result);
        });
        self.acts.borrow_mut().insert(id, Some(task.abort_handle()));
    }

    /// Its reply is not waited for any more.
    pub(super) fn end_act(&self, id: u64) {
        if let Some(Some(task)) = self.acts.borrow_mut().remove(&id) {
            task.abort();
        }
    }

    /// What the head has sent under this key.
    pub(super) fn given(&self, key: u64) -> io::Result<Vec<OwnedFd>> {
        self.lender.take(key)
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.slots.borrow().len()
    }

    pub(super) fn insert<T: 'static>(&self, key: u64, object: T) {
        let slot = Slot { object: Some(Box::new(object)), ..Slot::default() };
        self.slots.borrow_mut().insert(key, slot);
    }

    /// Runs `act` now, or when the act that has the object has ended. Without an object it is dropped.
    pub(super) fn when_free(self: &Rc<Self>, key: u64, act: Act) {
        if let Some(slot) = self.slots.borrow_mut().get_mut(&key)
            && slot.object.is_none()
        {
            slot.waiting.push_back(act);
            return;
        }
        act(self);
    }

    /// The object, if no act has it.
    pub(super) fn take<T: 'static>(self: &Rc<Self>, key: u64) -> Option<Guard<T>> {
        let object = self.slots.borrow_mut().get_mut(&key)?.object.take()?;
        Some(Guard { table: self.clone(), key, object: object.downcast().ok() })
    }

    pub(super) fn remove(&self, key: u64) {
        let mut slots = self.slots.borrow_mut();
        let removed = match slots.get_mut(&key) {
            Some(slot) if slot.object.is_none() => {
                slot.is_unwanted = true;
                None
            }
            _ => slots.remove(&key),
        };
        drop(slots);
        drop(removed);
    }

    fn give_back(self: &Rc<Self>, key: u64, object: Box<dyn Any>) {
        let is_unwanted = self.slots.borrow().get(&key).is_none_or(|slot| slot.is_unwanted);
        if is_unwanted {
            drop(object);
            return self.end(key);
        }
        let mut slots = self.slots.borrow_mut();
        let Some(slot) = slots.get_mut(&key) else { return };
        slot.object = Some(object);
        let waiting = std::mem::take(&mut slot.waiting);
        drop(slots);
        // One of them may take it again; those behind it then wait again, in their order.
        for act in waiting {
            self.when_free(key, act);
        }
    }

    /// It is there no more; what waits for it has to see that.
    fn end(self: &Rc<Self>, key: u64) {
        let waiting = self.slots.borrow_mut().remove(&key).map(|slot| slot.waiting);
        for act in waiting.into_iter().flatten() {
            act(self);
        }
    }
}

/// An object in use. Dropping this gives it back.
pub struct Guard<T: 'static> {
    table: Rc<Table>,
    key: u64,
    object: Option<Box<T>>,
}

impl<T> Guard<T> {
    /// Places something else.
    pub fn place<U: 'static>(&self, key: u64, object: U) {
        self.table.insert(key, object);
    }

    /// What is placed under another key, if no act has it.
    pub fn other<U: 'static>(&self, key: u64) -> Option<Guard<U>> {
        self.table.take(key)
    }

    /// Lends descriptors to the head, and keeps its own copies under the same key: the head's are then never the last ones, and the
    /// head may close them whatever a container does.
    ///
    /// # Errors
    /// The kernel's.
    pub fn lend(&self, key: u64, descriptors: Vec<OwnedFd>) -> io::Result<()> {
        let borrowed: Vec<BorrowedFd<'_>> = descriptors.iter().map(AsFd::as_fd).collect();
        self.table.lender.send(key, &borrowed)?;
        self.place(key, descriptors);
        Ok(())
    }

    /// The object itself: nothing is given back.
    pub fn into_inner(mut self) -> T {
        let Some(object) = self.object.take() else {
            unreachable!("a guard has its object until it is dropped")
        };
        self.table.end(self.key);
        *object
    }
}

impl<T> Deref for Guard<T> {
    type Target = T;

    fn deref(&self) -> &T {
        match &self.object {
            Some(object) => object,
            None => unreachable!("a guard has its object until it is dropped"),
        }
    }
}

impl<T> DerefMut for Guard<T> {
    fn deref_mut(&mut self) -> &mut T {
        match &mut self.object {
            Some(object) => object,
            None => unreachable!("a guard has its object until it is dropped"),
        }
    }
}

impl<T: 'static> Drop for Guard<T> {
    fn drop(&mut self) {
        if let Some(object) = self.object.take() {
            self.table.give_back(self.key, object);
        }
    }
}
