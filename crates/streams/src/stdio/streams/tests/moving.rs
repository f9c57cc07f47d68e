//! The movement of data: complete, in order, ended when it must end, and idle when nothing happens.

use nix::poll::PollFlags;
use nix::sys::resource::{UsageWho, getrusage};

use super::super::super::mover;
use super::*;

/// Lines `1` to `last`, as `seq` writes them.
#[derive(Debug)]
struct Sequence {
    next: u64,
    rest: Vec<u8>,
}

impl Sequence {
    fn new() -> Self {
        Self { next: 1, rest: Vec::new() }
    }

    /// Takes the next bytes of the stream and fails at the first one that is lost, doubled or out of order.
    fn take(&mut self, bytes: &[u8]) {
        self.rest.extend_from_slice(bytes);
        let complete = self.rest.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        for line in std::str::from_utf8(&self.rest[..complete]).unwrap().lines() {
            assert_eq!(line.parse(), Ok(self.next));
            self.next += 1;
        }
        self.rest.drain(..complete);
    }

    fn assert_ended_with(&self, last: u64) {
        assert_eq!((self.next, self.rest.len()), (last + 1, 0));
    }
}

/// The result of one read of a stream.
#[derive(Debug, PartialEq, Eq)]
enum ReadOutcome {
    Read,
    NothingYet,
    Eof,
}

fn read_once(mut reader: &File, sequence: &mut Sequence) -> ReadOutcome {
    let mut buffer = [0; 64 * 1024];
    match reader.read(&mut buffer) {
        Ok(0) => ReadOutcome::Eof,
        Ok(length) => {
            sequence.take(&buffer[..length]);
            ReadOutcome::Read
        }
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => ReadOutcome::NothingYet,
        Err(error) => panic!("{error}"),
    }
}

/// A reader that takes at most one buffer per turn of the timer.
async fn read_slowly(reader: &File, sequence: &mut Sequence) {
    until(|| read_once(reader, sequence) == ReadOutcome::Eof).await;
}

/// Fails if this thread does noticeable work for a while, by spinning or by waking up.
async fn assert_idle() {
    let usage = || {
        let usage = getrusage(UsageWho::RUSAGE_THREAD).unwrap();
        let time = usage.user_time() + usage.system_time();
        (usage.voluntary_context_switches(), time.tv_sec() * 1_000_000 + time.tv_usec())
    };
    let (wakeups, time) = usage();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let (wakeups_after, time_after) = usage();
    // One for the timer, and some tolerance for the machine.
    assert!(wakeups_after - wakeups <= 4, "{} wake-ups", wakeups_after - wakeups);
    assert!(time_after - time <= 20_000, "{} us of CPU time", time_after - time);
}

#[test]
fn fifty_megabytes_arrive_complete_and_in_order_at_a_slow_reader() {
    run(async {
        let reaper = Reaper::start().unwrap();
        let Stdout { reader, mut stdio, .. } = Stdout::new().await;
        let last = 7_000_000;
        let child = spawn(&reaper, &mut stdio, &format!("exec seq {last}"));
        stdio.finish_output();
        let mut sequence = Sequence::new();
        read_slowly(&reader, &mut sequence).await;
        sequence.assert_ended_with(last);
        assert_eq!(within(child.exit).await.code, 0);
    });
}

#[test]
fn a_reader_that_comes_and_goes_loses_nothing() {
    run(async {
        let reaper = Reaper::start().unwrap();
        let Stdout { path, mut reader, mut stdio, directory: _directory } = Stdout::new().await;
        let last = 500_000;
        let child = spawn(&reaper, &mut stdio, &format!("exec seq {last}"));
        stdio.finish_output();
        let mut sequence = Sequence::new();
        let mut reads = 0;
        until(|| {
            let outcome = read_once(&reader, &mut sequence);
            if outcome == ReadOutcome::Read {
                reads += 1;
                if reads % 5 == 0 {
                    // No reader until the next turn; meanwhile the fifo fills up.
                    reader = open_reader(&path);
                }
            }
            outcome == ReadOutcome::Eof
        })
        .await;
        sequence.assert_ended_with(last);
        assert!(reads > 20);
        assert_eq!(within(child.exit).await.code, 0);
    });
}

#[test]
fn while_containerd_is_away_the_container_waits_and_nothing_spins() {
    run(async {
        let reaper = Reaper::start().unwrap();
        let Stdout { path, reader, mut stdio, directory: _directory } = Stdout::new().await;
        drop(reader);
        let last = 100_000;
        let child = spawn(&reaper, &mut stdio, &format!("exec seq {last}"));
        // Full on both sides: neither the container nor the mover can continue.
        until(|| {
            let output = stdio.stdout.as_ref().unwrap();
            let ends = [output.writer.as_ref(), output.process_end()];
            ends.iter().all(|end| !mover::is_ready(end.unwrap(), PollFlags::POLLOUT).unwrap())
        })
        .await;
        assert_idle().await;
        assert!(child.process.is_running());
        stdio.finish_output();
        let mut sequence = Sequence::new();
        read_slowly(&open_reader(&path), &mut sequence).await;
        sequence.assert_ended_with(last);
        assert_eq!(within(child.exit).await.code, 0);
    });
}

#[test]
fn an_idle_stream_does_not_wake_the_shim() {
    run(async {
        let reaper = Reaper::start().unwrap();
        let directory = tempfile::tempdir().unwrap();
        let (stdin, stdout) = (make_fifo(directory.path(), "stdin"), make_fifo(directory.path(), "stdout"));
        let reader = open_reader(&stdout);
        let mut stdio = open(&StdioPaths { stdin, ..output_to(&stdout) }).await;
        let child = spawn(&reaper, &mut stdio, "echo ready; exec sleep 1000");
        until(|| read_available(&reader) == "ready\n").await;
        assert_idle().await;
        child.process.signal(SignalNumber::KILL).unwrap();
        within(child.exit).await;
    });
}

#[test]
fn lines_of_the_container_and_of_ours_do_not_tear_each_other() {
    run(async {
        let reaper = Reaper::start().unwrap();
        let Stdout { reader, mut stdio, .. } = Stdout::new().await;
        let script = "i=0; while [ $i -lt 2000 ]; do echo container; i=$((i+1)); done";
        let mut child = spawn(&reaper, &mut stdio, script);
        let mut seen = String::new();
        until(|| {
            stdio.write_line("ours");
            seen.push_str(&read_available(&reader));
            !child.process.is_running()
        })
        .await;
        within(&mut child.exit).await;
        stdio.finish_output();
        seen.push_str(&read_to_end(&reader).await);
        assert!(seen.lines().all(|line| line == "container" || line == "podshim: ours"));
        assert_eq!(seen.lines().filter(|line| *line == "container").count(), 2000);
    });
}

#[test]
fn a_background_process_cannot_keep_containerd_from_seeing_eof() {
    run(async {
        let reaper = Reaper::start().unwrap();
        let Stdout { reader, mut stdio, .. } = Stdout::new().await;
        let background = stdio.attempt().unwrap().child;
        let child = spawn(&reaper, &mut stdio, "echo last words");
        within(child.exit).await;
        stdio.finish_output();
        until(|| read_available(&reader) == "last words\n").await;
        assert_open_and_empty(&reader);
        let began = Instant::now();
        within(stdio.drain(SHORT)).await;
        assert!(began.elapsed() >= SHORT);
        // At once: no task has to run first.
        assert_eq!((&reader).read(&mut [0; 1]).unwrap(), 0);
        drop(background);
    });
}

#[test]
fn a_drain_without_time_still_hands_over_what_fits() {
    run(async {
        let Stdout { reader, mut stdio, .. } = Stdout::new().await;
        let mut background = reopen(stdio.stdout.as_ref().unwrap().process_end().unwrap()).unwrap();
        background.write_all(b"last words\n").unwrap();
        stdio.drain(Duration::ZERO).await;
        assert_eq!(read_to_end(&reader).await, "last words\n");
        // As after any cut, a process that still writes gets an error.
        assert_eq!(background.write_all(b"x").unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    });
}

#[test]
fn a_drain_ends_early_when_the_stream_has_ended_and_may_be_repeated() {
    run(async {
        let reaper = Reaper::start().unwrap();
        let Stdout { reader, mut stdio, .. } = Stdout::new().await;
        within(spawn(&reaper, &mut stdio, "echo out").exit).await;
        // Far beyond the test's own deadline.
        for _ in 0..2 {
            within(stdio.drain(Duration::from_secs(3600))).await;
        }
        assert_eq!(read_to_end(&reader).await, "out\n");
    });
}

#[test]
fn nothing_moves_before_the_start_and_a_stream_that_never_started_just_ends() {
    run(async {
        let reaper = Reaper::start().unwrap();
        let directory = tempfile::tempdir().unwrap();
        let stdout = make_fifo(directory.path(), "stdout");
        let reader = open_reader(&stdout);
        let mut stdio = Stdio::open(&output_to(&stdout), StreamOwner::default()).unwrap();
        let attempt = stdio.attempt().unwrap();
        stdio.connect().await.unwrap();
        within(reaper.spawn(&mut shell(attempt.child, "echo the runtime failed")).unwrap().exit).await;
        tokio::task::yield_now().await;
        assert_open_and_empty(&reader);
        stdio.finish_output();
        assert_eq!((&reader).read(&mut [0; 1]).unwrap(), 0);
    });
}

/// R6: the output of a failed re-create is not the container's either, although the stream already moves. What came
/// before and after it arrives in order.
#[test]
fn r6_a_failed_attempt_between_two_incarnations_leaves_no_word_on_stderr() {
    run(async {
        let reaper = Reaper::start().unwrap();
        let directory = tempfile::tempdir().unwrap();
        let stderr = make_fifo(directory.path(), "stderr");
        let reader = open_reader(&stderr);
        let mut stdio = open(&StdioPaths { stderr, ..StdioPaths::default() }).await;
        within(spawn(&reaper, &mut stdio, "seq 1 2000 >&2").exit).await;
        for _ in 0..3 {
            let Attempt { child, held_back } = stdio.attempt().unwrap();
            let mut failing = shell(child, "echo container_linux.go: no such file >&2; exit 1");
            within(reaper.spawn(&mut failing).unwrap().exit).await;
            drop((failing, held_back));
        }
        within(spawn(&reaper, &mut stdio, "seq 2001 4000 >&2").exit).await;
        within(spawn(&reaper, &mut stdio, "seq 4001 6000 >&2").exit).await;
        let mut sequence = Sequence::new();
        let reading = async { read_slowly(&reader, &mut sequence).await };
        within(async { tokio::join!(reading, stdio.drain(Duration::from_secs(3600))) }).await;
        sequence.assert_ended_with(6000);
    });
}

#[test]
fn stdin_arrives_complete_and_ends_with_close_io() {
    run(async {
        let reaper = Reaper::start().unwrap();
        let directory = tempfile::tempdir().unwrap();
        let (stdin, stdout) = (make_fifo(directory.path(), "stdin"), make_fifo(directory.path(), "stdout"));
        let reader = open_reader(&stdout);
        let mut stdio = open(&StdioPaths { stdin: stdin.clone(), ..output_to(&stdout) }).await;
        let child = spawn(&reaper, &mut stdio, "exec cat");
        let last = 200_000;
        // Plays containerd's client, which blocks if the container does not read.
        let mut client = Command::new("/bin/sh");
        client.args(["-c", &format!("exec seq {last} > {stdin}")]);
        let client = reaper.spawn(&mut client).unwrap();
        let mut sequence = Sequence::new();
        until(|| {
            if read_once(&reader, &mut sequence) == ReadOutcome::Read {
                // While the client is in the middle of its data.
                stdio.close_stdin();
            }
            sequence.next > last
        })
        .await;
        assert_eq!(within(client.exit).await.code, 0);
        assert_eq!(within(child.exit).await.code, 0);
    });
}

#[test]
fn nothing_stays_open() {
    run(async {
        let reaper = Reaper::start().unwrap();
        let before = open_files_of_a_thread_with_streams().await;
        for _ in 0..3 {
            let directory = tempfile::tempdir().unwrap();
            let [stdin, stdout, stderr] =
                ["stdin", "stdout", "stderr"].map(|name| make_fifo(directory.path(), name));
            let (out, err) = (open_reader(&stdout), open_reader(&stderr));
            let paths = StdioPaths { stdin, stderr, ..output_to(&stdout) };
            let mut stdio = open(&paths).await;
            within(spawn(&reaper, &mut stdio, "echo out; echo err >&2").exit).await;
            within(stdio.drain(SHORT)).await;
            assert_eq!(read_to_end(&out).await, "out\n");
            assert_eq!(read_to_end(&err).await, "err\n");
            // And a set that is dropped while it moves.
            open(&paths).await;
        }
        until(|| open_files() == before).await;
    });
}
