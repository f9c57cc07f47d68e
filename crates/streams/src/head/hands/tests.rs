//! Which hand goes on for which, and what the log has of it.

use test_support::{run, run_for_any_time, until};

use super::*;

/// A container that lets go and holds again each second fills no log.
#[test]
fn absences_are_logged_once_a_minute_and_counted() {
    run_for_any_time(async {
        tokio::time::pause();
        let words = Words::default();
        assert_eq!(words.next_absence(), Some(1));
        for _ in 0..30 {
            tokio::time::advance(Duration::from_secs(1)).await;
            assert_eq!(words.next_absence(), None);
        }
        tokio::time::advance(QUIET).await;
        assert_eq!(words.next_absence(), Some(31));
    });
}

/// A hand that does one thing only, for so long. A thread that sleeps is away as one that waits in the kernel is.
async fn on_a_hand(hand: &Hand) -> Held<()> {
    hand.place(ANSWERS_WITHIN, None, || async { Ok::<(), HandError>(()) }).await.unwrap()
}

fn stand_ins(hands: &Hands) -> usize {
    hands.0.members.borrow().iter().filter(|member| member.stand_in.is_some()).count()
}

fn away(hands: &Hands) -> usize {
    hands.0.members.borrow().iter().filter(|member| member.is_away).count()
}

/// A hand that comes back while another one is about to go on for it has its streams again, alone.
#[test]
fn no_hand_goes_on_for_one_that_is_back() {
    run(async {
        let hands = Hands::new(Vec::new());
        let first = on_a_hand(&hands.free().await.unwrap()).await;
        first.tell(|_| std::thread::sleep(Duration::from_millis(900)));
        until(|| stand_ins(&hands) == 1).await;
        let second = on_a_hand(&hands.free().await.unwrap()).await;
        assert!(!second.hand().is(first.hand()));
        until(|| away(&hands) == 0 && stand_ins(&hands) == 0).await;
        // The second one answers only after the first one is back.
        first.tell(|_| std::thread::sleep(Duration::from_millis(850)));
        tokio::time::sleep(Duration::from_millis(700)).await;
        second.tell(|_| std::thread::sleep(Duration::from_millis(240)));
        until(|| away(&hands) > 0).await;
        until(|| away(&hands) == 0).await;
        tokio::time::sleep(STANDS_IN_WITHIN).await;
        assert_eq!(stand_ins(&hands), 0);
        until(|| !hands.0.is_settling.get()).await;
    });
}

/// One that has nothing to do any more counts for as long as its thread is there.
#[test]
fn a_hand_without_an_owner_counts_until_its_thread_ends() {
    run(async {
        let hands = Hands::new(Vec::new());
        let first = on_a_hand(&hands.free().await.unwrap()).await;
        first.tell(|_| std::thread::sleep(Duration::from_millis(2500)));
        until(|| away(&hands) == 1).await;
        drop(first);
        let second = on_a_hand(&hands.free().await.unwrap()).await;
        assert_eq!(hands.0.members.borrow().len(), 2);
        assert_eq!(hands.attention().away, 1);
        until(|| hands.0.members.borrow().len() == 1).await;
        assert!(hands.attention().longest_away >= Duration::from_secs(2));
        drop(second);
    });
}
