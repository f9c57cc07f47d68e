//! What a hand promises: order, its own descriptors, and that nothing stays of what is given up.

use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use test_support::{run, until};

use super::*;

const SHORT: Duration = Duration::from_millis(50);

fn hand() -> Hand {
    Hand::new(Vec::new())
}

async fn place<T: Send + 'static>(hand: &Hand, object: T) -> Held<T> {
    hand.place(AT_ONCE, None, move || async move { Ok::<T, HandError>(object) }).await.unwrap()
}

/// A gate on the way of an act, which the test opens. No channel of tokio's: it would ring in the other thread's table.
#[derive(Clone, Default)]
struct Gate(Arc<AtomicBool>);

fn gate() -> (Gate, Gate) {
    let gate = Gate::default();
    (gate.clone(), gate)
}

impl Gate {
    fn open(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    async fn passed(&self) {
        until(|| self.0.load(Ordering::Relaxed)).await;
    }
}

/// How much lives on it.
async fn count(hand: &Hand) -> usize {
    let (promise, reply) = hand.promise().unwrap();
    hand.send(move |table| promise.keep(table.len()));
    reply.within(AT_ONCE).await.unwrap()
}

#[test]
fn acts_come_in_their_order_also_behind_one_that_waits() {
    run(async {
        let hand = hand();
        let words = place(&hand, Vec::new()).await;
        let (go, wait) = gate();
        words.tell(|words| words.push("one"));
        let asked = words.ask(move |mut words| async move {
            wait.passed().await;
            words.push("two");
        });
        words.tell(|words| words.push("three"));
        let all = words.ask(|words| async move { words.clone() });
        go.open();
        asked.unwrap().within(AT_ONCE).await.unwrap();
        assert_eq!(all.unwrap().within(AT_ONCE).await.unwrap(), ["one", "two", "three"]);
    });
}

#[test]
fn what_is_not_waited_for_any_more_ends_and_leaves_nothing() {
    run(async {
        let hand = hand();
        let number = place(&hand, 1).await;
        let never = |limit| hand.place(limit, None, std::future::pending::<Result<u8, HandError>>);
        assert!(matches!(never(SHORT).await, Err(HandError::Away { limit: SHORT })));
        let endless = number.ask(|_number| std::future::pending::<()>());
        assert!(matches!(endless.unwrap().within(SHORT).await, Err(HandError::Away { .. })));
        assert_eq!(number.ask(|number| async move { *number }).unwrap().within(AT_ONCE).await.unwrap(), 1);
        drop(number);
        assert_eq!(count(&hand).await, 0);
    });
}

#[test]
fn an_object_that_is_dropped_or_given_away_in_an_act_is_gone_after_it() {
    run(async {
        let hand = hand();
        let (from, to) = (place(&hand, 2).await, place(&hand, 3).await);
        let (go, wait) = gate();
        let waiting = to.ask(move |_to| async move { wait.passed().await });
        to.give(from, |to, from| *to += from);
        let sum = to.ask(|to| async move { *to });
        go.open();
        waiting.unwrap().within(AT_ONCE).await.unwrap();
        assert_eq!(sum.unwrap().within(AT_ONCE).await.unwrap(), 5);
        // One whose receiver goes meanwhile is dropped with it.
        let (go, wait) = gate();
        let waiting = to.ask(move |_to| async move { wait.passed().await });
        to.give(place(&hand, 4).await, |to, from| *to += from);
        drop(to);
        go.open();
        let _ = waiting.unwrap().within(AT_ONCE).await;
        assert_eq!(count(&hand).await, 0);
        let turned = place(&hand, 5).await.turned_into(|number: i32| number.to_string());
        assert_eq!(
            turned.ask(|text| async move { text.clone() }).unwrap().within(AT_ONCE).await.unwrap(),
            "5"
        );
    });
}

/// A thread in state D keeps no connection and no lock of the shim.
#[test]
fn its_descriptors_are_its_own_but_those_that_it_keeps() {
    run(async {
        let (kept, other) = (tempfile::tempfile().unwrap(), tempfile::tempfile().unwrap());
        let hand = Hand::new(vec![kept.as_raw_fd()]);
        let nothing = place(&hand, ()).await;
        let (kept, other) = (kept.as_raw_fd(), other.as_raw_fd());
        let open = nothing.ask(move |_nothing| async move {
            [kept, other].map(|number| std::fs::read_link(format!("/proc/thread-self/fd/{number}")).is_ok())
        });
        assert_eq!(open.unwrap().within(AT_ONCE).await.unwrap(), [true, false]);
    });
}

#[test]
fn descriptors_are_lent_by_key_and_kept_meanwhile() {
    run(async {
        let hand = hand();
        let nothing = place(&hand, ()).await;
        let (one, two) = (hand.reserve::<Vec<OwnedFd>>(None), hand.reserve::<Vec<OwnedFd>>(None));
        let keys = [one.key(), two.key()];
        let lent = nothing.ask(move |nothing| async move {
            for key in keys {
                let (reader, writer) = nix::unistd::pipe().unwrap();
                nix::unistd::write(&writer, &[u8::try_from(key).unwrap()]).unwrap();
                nothing.lend(key, vec![reader]).unwrap();
            }
        });
        lent.unwrap().within(AT_ONCE).await.unwrap();
        for held in [two, one] {
            let [reader] = hand.borrowed(held.key()).unwrap().try_into().unwrap();
            let mut byte = [0];
            assert_eq!(nix::unistd::read(&reader, &mut byte).unwrap(), 1);
            assert_eq!(u64::from(byte[0]), held.key());
        }
        assert_eq!(count(&hand).await, 1);
    });
}

/// D9: the head has no room for what is lent. Its reason is that, and what had room is closed.
#[test]
fn d9_a_loan_without_room_says_so_and_leaves_nothing() {
    run(async {
        let hand = hand();
        let nothing = place(&hand, ()).await;
        let open = || std::fs::read_dir("/proc/self/fd").unwrap().count();
        let before = open();
        let lent = hand.reserve::<Vec<OwnedFd>>(None);
        let key = lent.key();
        let lend = nothing.ask_within(AT_ONCE, move |nothing| async move {
            let three = (0..3).map(|_| OwnedFd::from(std::fs::File::open("/dev/null").unwrap())).collect();
            nothing.lend(key, three).unwrap();
        });
        lend.await.unwrap();
        // Room for one.
        let next = std::fs::File::open("/dev/null").unwrap().as_raw_fd();
        let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
        setrlimit(Resource::RLIMIT_NOFILE, u64::try_from(next + 1).unwrap(), hard).unwrap();
        let borrowed = hand.borrowed(key);
        setrlimit(Resource::RLIMIT_NOFILE, soft, hard).unwrap();
        assert_eq!(borrowed.unwrap_err().raw_os_error(), Some(libc::EMFILE));
        assert_eq!(open(), before);
    });
}

/// Where no descriptors are left, the thread does not start, and nothing of it stays.
#[test]
fn d9_a_hand_that_cannot_start_leaves_nothing() {
    run(async {
        let open = || std::fs::read_dir("/proc/self/fd").unwrap().count();
        let before = open();
        for left in 0..12 {
            let taken: Vec<_> = (0..left).map(|_| std::fs::File::open("/dev/null").unwrap()).collect();
            let highest = taken.iter().map(AsRawFd::as_raw_fd).max().unwrap_or(2);
            drop(taken);
            let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
            setrlimit(Resource::RLIMIT_NOFILE, u64::try_from(highest + 1).unwrap(), hard).unwrap();
            let hand = hand();
            let placed = hand.place(AT_ONCE, None, || async { Ok::<(), HandError>(()) }).await;
            setrlimit(Resource::RLIMIT_NOFILE, soft, hard).unwrap();
            if let Err(error) = placed {
                assert!(error.to_string().contains("cannot start the thread"), "{error}");
                drop(hand);
                assert_eq!(open(), before);
            }
        }
        let hand = hand();
        let nothing = place(&hand, ()).await;
        // Two ends of lines and their copies for reading, the socket, the timer, and where copies are.
        assert!(open() <= before + 7, "{} for {before}", open());
        drop((nothing, hand));
        until(|| open() == before).await;
    });
}
