use test_support::run;

use super::*;

/// A watch that records whole lines, and wants no more after "end".
fn watch(steps_per_letter: usize) -> (Rc<RefCell<Vec<String>>>, LineWatch) {
    let seen = Rc::new(RefCell::new(Vec::new()));
    let (writes, mut line) = (seen.clone(), String::new());
    let watch = LineWatch::new(steps_per_letter, LinePace::default(), move |piece| match piece {
        Piece::Part(text) => {
            line += text;
            ControlFlow::Continue(())
        }
        Piece::End => {
            let ends = if line == "end" { ControlFlow::Break(()) } else { ControlFlow::Continue(()) };
            writes.borrow_mut().push(std::mem::take(&mut line));
            ends
        }
    });
    (seen, watch)
}

#[test]
fn lines_are_whole_however_they_come() {
    run(async {
        // First everything at once, then in pieces of a few bytes.
        for steps in [1, TURN_STEPS / 5] {
            let (seen, watch) = watch(steps);
            let mut lines = Lines::new(watch);
            for piece in [&b"one\ntw"[..], b"o\n\nth", b"re", b"e\r", b"\n\xff!\nno end"] {
                assert_eq!(lines.feed(piece).await, ControlFlow::Continue(()));
            }
            assert_eq!(*seen.borrow(), ["one", "two", "", "three", "\u{fffd}!"]);
            assert_eq!(lines.feed(b"\nend\nafter\n").await, ControlFlow::Break(()));
            assert_eq!(lines.feed(b"after\n").await, ControlFlow::Break(()));
            assert_eq!(seen.borrow()[5..], ["no end", "end"]);
        }
    });
}

/// DESIGN §6: a line without an end costs no memory, and the next line is whole again.
#[test]
fn a_line_is_inspected_up_to_its_bound() {
    run(async {
        let (seen, watch) = watch(1);
        let mut lines = Lines::new(watch);
        for _ in 0..100 {
            let _ = lines.feed(&[b'x'; 1000]).await;
        }
        assert!(lines.begun.capacity() <= 2 * LINE_LONGEST);
        let _ = lines.feed(b"\nshort\n").await;
        let lengths: Vec<_> = seen.borrow().iter().map(String::len).collect();
        assert_eq!(lengths, [LINE_LONGEST, 5]);
    });
}

/// DESIGN §6, issue 18: reading lines happens outside of the container's limits. Within one line other tasks get
/// the thread, and all lines of a pod together take only a part of a processor.
#[test]
fn inspection_takes_a_part_of_the_time() {
    run(async {
        let pace = LinePace::default();
        let inspect = |_: Piece<'_>| ControlFlow::Continue(());
        let began = tokio::time::Instant::now();
        let mut others = 0;
        let line = [&[b'x'; LINE_LONGEST][..], b"\n"].concat();
        let two = async || {
            let watch = LineWatch::new(50, pace.clone(), inspect);
            let _ = Lines::new(watch).feed(&line).await;
        };
        let mut both = std::pin::pin!(async { tokio::join!(two(), two()) });
        loop {
            tokio::select! {
                biased;
                _ = &mut both => break,
                () = tokio::task::yield_now() => others += 1,
            }
        }
        // Two times eight turns of two thousand bytes each.
        assert!(began.elapsed() >= PAUSE * 16, "{:?}", began.elapsed());
        assert!(others > 16, "{others}");
    });
}

/// U2: a fifth of a processor, also where a machine needs six times as long for a step as another one.
#[test]
fn a_turn_that_costs_more_has_a_longer_pause() {
    run(async {
        let cost = Duration::from_millis(3);
        let inspect = move |piece: Piece<'_>| {
            let began = thread_processor_time();
            while piece != Piece::End && thread_processor_time() - began < cost {}
            ControlFlow::Continue(())
        };
        let watch = LineWatch::new(50, LinePace::default(), inspect);
        let line = [&[b'x'; LINE_LONGEST][..], b"\n"].concat();
        let began = tokio::time::Instant::now();
        let _ = Lines::new(watch).feed(&line).await;
        // Eight turns.
        assert!(began.elapsed() >= cost * 5 * 8, "{:?}", began.elapsed());
    });
}

/// H1: a stream whose container delays another hand does not go on, and the lines of other containers are read all the same.
#[test]
fn a_stream_that_does_not_go_on_keeps_no_other_waiting() {
    run(async {
        let pace = LinePace::default();
        let line = [&[b'x'; LINE_LONGEST][..], b"\n"].concat();
        let one = async || {
            let watch = LineWatch::new(50, pace.clone(), |_: Piece<'_>| ControlFlow::Continue(()));
            let _ = Lines::new(watch).feed(&line).await;
        };
        let mut first = std::pin::pin!(one());
        assert!(tokio::time::timeout(Duration::ZERO, &mut first).await.is_err(), "it has no pause");
        one().await;
    });
}
