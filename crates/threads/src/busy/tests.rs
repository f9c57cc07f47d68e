use test_support::run_for_any_time;

use super::*;

/// Four busy threads per processor, and one that wants to run only for a moment.
#[test]
fn a_wait_for_a_processor_is_not_counted() {
    let over = std::sync::atomic::AtomicBool::new(false);
    let is_over = || over.load(std::sync::atomic::Ordering::Relaxed);
    let work = |milliseconds| {
        let queue = RunQueue::of_this_thread();
        let began = Instant::now();
        while began.elapsed() < Duration::from_millis(milliseconds) {}
        queue.time()
    };
    std::thread::scope(|scope| {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        for _ in 0..4 * processors {
            scope.spawn(|| while !is_over() {});
        }
        let waited = work(300);
        over.store(true, std::sync::atomic::Ordering::Relaxed);
        assert!(waited > Duration::from_millis(60), "{waited:?}");
    });
    end_of_round(Duration::from_millis(500), Duration::from_millis(400));
    assert_eq!(longest().time, Duration::from_millis(100));
}

#[test]
fn the_longest_round_is_known_with_what_took_it() {
    let sleep = |milliseconds| std::thread::sleep(Duration::from_millis(milliseconds));
    run_for_any_time(measured(async {
        during("something", || sleep(30));
        tokio::task::yield_now().await;
        during("something short", || sleep(1));
        tokio::task::yield_now().await;
        // This round is not over yet.
        during("what is under way", || sleep(100));
        let LongestRound { time, on } = longest();
        assert_eq!(on, "something");
        assert!(time.as_millis() >= 30, "{time:?}");
    }));
    assert_eq!(longest().on, "what is under way");
    run_for_any_time(measured(named("a task", async {
        sleep(250);
        sleep(250);
    })));
    assert_eq!(longest().on, "a task");
    run_for_any_time(measured(async { (0..9).for_each(|_| during("one of many", || sleep(150))) }));
    assert_eq!(longest().on, NOTHING_LONG);
}
