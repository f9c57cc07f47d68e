//! A turn is one thread's at a time; what has none waits, keeps its order, and ends in a turn too.

use std::rc::Rc;
use std::thread::JoinHandle;

use test_support::{run, until};

use super::*;

/// Another thread that has the turn, as a hand that waits in the kernel has it.
struct Other {
    over: std::sync::mpsc::Sender<()>,
    thread: JoinHandle<()>,
}

impl Other {
    fn takes(tenant: &Tenant) -> Self {
        let (over, is_over) = std::sync::mpsc::channel::<()>();
        let (ready, is_ready) = std::sync::mpsc::channel();
        let tenant = tenant.clone();
        let thread = std::thread::spawn(move || {
            let _turn = tenant.take_turn().unwrap();
            ready.send(()).unwrap();
            let _ = is_over.recv();
        });
        is_ready.recv().unwrap();
        Self { over, thread }
    }

    fn ends(self) {
        drop(self.over);
        self.thread.join().unwrap();
    }
}

/// Says whose turn it was when it was dropped.
struct Dropped(Rc<RefCell<Vec<bool>>>);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.borrow_mut().push(current().is_some());
    }
}

#[test]
fn work_waits_for_its_tenants_turn_and_for_no_other() {
    run(async {
        let (delayed, free) = (Tenant::default(), Tenant::default());
        let other = Other::takes(&delayed);
        let has_turn = || async { assert!(current().is_some()) };
        let waiting = spawn_for(Some(delayed.clone()), has_turn());
        spawn_for(Some(free), has_turn()).await.unwrap();
        tokio::time::sleep(TAKEN * 2).await;
        assert!(!waiting.is_finished());
        other.ends();
        waiting.await.unwrap();
        assert!(current().is_none());
    });
}

#[test]
fn what_is_ended_while_another_thread_has_the_turn_is_dropped_in_a_later_one() {
    run(async {
        let _mark = hand_of_this_thread();
        let (tenant, seen) = (Tenant::default(), Rc::default());
        let mark = Dropped(Rc::clone(&seen));
        let task = spawn_for(Some(tenant.clone()), async move {
            let _mark = mark;
            std::future::pending::<()>().await;
        });
        tokio::task::yield_now().await;
        let other = Other::takes(&tenant);
        task.abort();
        assert!(task.await.is_err());
        tokio::time::sleep(TAKEN * 2).await;
        assert_eq!(*seen.borrow(), [false; 0]);
        other.ends();
        until(|| *seen.borrow() == [true]).await;
    });
}

#[test]
fn inside_of_a_turn_there_is_another_one_of_the_same_tenant() {
    run(async {
        let (tenant, seen) = (Tenant::default(), Rc::new(Cell::new(0)));
        let (inner, count) = (tenant.clone(), seen.clone());
        in_turn(Some(tenant.clone()), move || {
            in_turn(Some(inner), move || count.set(1));
        });
        assert_eq!(seen.get(), 1);
        // Spawned in it, it is of the same tenant.
        let spawned = spawn_for(Some(tenant), async {
            spawn(async { assert!(current().is_some()) }).await.unwrap();
        });
        spawned.await.unwrap();
    });
}
