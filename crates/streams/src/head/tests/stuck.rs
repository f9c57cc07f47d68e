//! A container that holds the lock of its own pipe (H1): the hand waits in the kernel, and the head goes on.

use std::io::Read;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::thread::JoinHandle;

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use test_support::DEADLINE;

use super::*;
use crate::head::hands::MOST;

pub(super) const SHORT: Duration = Duration::from_millis(100);
/// What the head does while the hand is stuck takes no time.
pub(super) const NO_TIME: Duration = Duration::from_millis(500);

/// A process of a container that splices from a silent socket into its own stdout: the kernel holds the pipe's lock while it waits
/// for the socket.
pub(super) struct Holder {
    peer: UnixStream,
    thread: JoinHandle<()>,
}

impl Holder {
    pub(super) fn hold(pipe: OwnedFd) -> Self {
        let (peer, silent) = UnixStream::pair().unwrap();
        let (begins, begun) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            begins.send(()).unwrap();
            let _ = splice(silent.as_fd(), None, pipe.as_fd(), None, 4096, SpliceFFlags::empty());
        });
        // On a busy machine a thread begins late.
        begun.recv().unwrap();
        Self { peer, thread }
    }

    /// As a SIGKILL does.
    pub(super) fn end(self) {
        drop(self.peer);
        self.thread.join().unwrap();
    }
}

/// Two containers on one hand, the first of which holds it.
struct Stuck {
    hands: Hands,
    reader: File,
    streams: Streams,
    child: crate::stdio::ChildStdio,
    holder: Holder,
    _directory: tempfile::TempDir,
}

fn a_container(id: &str) -> Whose<'_> {
    Whose::Container(id)
}

fn execs_of_one(_: &str) -> Whose<'_> {
    Whose::ExecsOf("c")
}

/// Containers whose output is being moved, and which then hold their locks, all at the same time.
async fn many_stuck(hands: &Hands, count: usize, whose: fn(&str) -> Whose<'_>) -> Vec<Stuck> {
    let mut begun = Vec::new();
    for number in 0..count {
        let directory = tempfile::tempdir().unwrap();
        let path = make_fifo(directory.path(), "stdout");
        let reader = open_reader(&path);
        let streams = open_of(hands, whose(&number.to_string()), &output_to(&path)).await.unwrap();
        streams.connect().await.unwrap();
        let Attempt { mut child, held_back } = streams.attempt().ready().await.unwrap();
        let pipe = std::mem::take(&mut child.stdout).into_inner().unwrap();
        streams.accept(held_back);
        streams.settled().await.unwrap();
        begun.push((reader, streams, child, pipe, directory));
    }
    // The hand comes to none of them until all hold.
    begun[0].1.stdio.tell(|_| std::thread::sleep(SHORT * 4));
    let hold = |(reader, streams, child, pipe, directory): (_, _, _, OwnedFd, _)| {
        File::from(pipe.try_clone().unwrap()).write_all(b"first\n").unwrap();
        let holder = Holder::hold(pipe);
        Stuck { hands: hands.clone(), reader, streams, child, holder, _directory: directory }
    };
    let stuck = begun.into_iter().map(hold).collect();
    tokio::time::sleep(SHORT).await;
    stuck
}

impl Stuck {
    async fn new() -> Self {
        Self::on(Hands::new(Vec::new())).await
    }

    async fn on(hands: Hands) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = make_fifo(directory.path(), "stdout");
        let reader = open_reader(&path);
        let streams = open_on(&hands, &output_to(&path)).await.unwrap();
        streams.connect().await.unwrap();
        let Attempt { mut child, held_back } = streams.attempt().ready().await.unwrap();
        let pipe = std::mem::take(&mut child.stdout).into_inner().unwrap();
        File::from(pipe.try_clone().unwrap()).write_all(b"first\n").unwrap();
        let holder = Holder::hold(pipe);
        // So that the lock is held before the hand comes.
        tokio::time::sleep(SHORT).await;
        streams.accept(held_back);
        Self { hands, reader, streams, child, holder, _directory: directory }
    }

    async fn is_stuck(&self) -> bool {
        self.streams.stdio.ask_within(SHORT, |_| async {}).await.is_err()
    }
}

fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").unwrap().count()
}

/// H1: on 981875e7 the thread that answers containerd waited there, and no stop ended the container.
#[test]
fn h1_a_pipe_whose_lock_a_container_holds_stops_the_hand_and_not_the_head() {
    run(async {
        let stuck = Stuck::new().await;
        assert!(stuck.is_stuck().await);
        let Stuck { reader, mut streams, child, holder, .. } = stuck;
        let begun = Instant::now();
        streams.write_line("held");
        streams.close_stdin();
        streams.finish_output();
        // The head's copies are not the last ones.
        drop(child);
        assert!(begun.elapsed() < NO_TIME, "{:?}", begun.elapsed());
        streams.drain(SHORT).await;
        assert!(begun.elapsed() < SHORT + LATE + NO_TIME, "{:?}", begun.elapsed());
        assert_eq!(read_available(&reader), "");
        // What was sent meanwhile is done in its order as soon as the container is killed.
        holder.end();
        assert_eq!(within(read_to_end(&reader)).await, "first\npodshim: held\n");
    });
}

/// H1: one container's act is no other's: what is new gets a hand of its own, and there are two at most.
#[test]
fn h1_new_streams_get_another_hand_while_the_first_is_stuck() {
    run(async {
        let stuck = Stuck::new().await;
        assert!(stuck.is_stuck().await);
        let directory = tempfile::tempdir().unwrap();
        let path = make_fifo(directory.path(), "other");
        let reader = open_reader(&path);
        let reaper = Reaper::start().unwrap();
        let before = threads();
        let mut all = Vec::new();
        for word in ["one", "two"] {
            let begun = Instant::now();
            let streams = open_on(&stuck.hands, &output_to(&path)).await.unwrap();
            streams.connect().await.unwrap();
            within(spawn(&reaper, &streams, &format!("echo {word}")).await.exit).await;
            until(|| read_available(&reader) == format!("{word}\n")).await;
            assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
            all.push(streams);
        }
        assert_eq!(threads(), before + 1);
        // What is to be done with the first one's waits, and fails with the reason.
        let reply = stuck.streams.stdio.ask_within(SHORT, |_| async {});
        let error = reply.await.unwrap_err().to_string();
        assert!(error.contains("a container of the pod holds the lock of one of its pipes"), "{error}");
        stuck.holder.end();
        until(|| read_available(&stuck.reader) == "first\n").await;
    });
}

/// Another container on the same hand, which writes to its pipe what it likes.
pub(super) struct Other {
    reader: File,
    pipe: File,
    streams: Streams,
    _directory: tempfile::TempDir,
}

impl Other {
    pub(super) async fn on(hands: &Hands) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = make_fifo(directory.path(), "other");
        let reader = open_reader(&path);
        let streams = open_on(hands, &output_to(&path)).await.unwrap();
        streams.connect().await.unwrap();
        let Attempt { mut child, held_back } = streams.attempt().ready().await.unwrap();
        let pipe = File::from(std::mem::take(&mut child.stdout).into_inner().unwrap());
        streams.accept(held_back);
        streams.settled().await.unwrap();
        Self { reader, pipe, streams, _directory: directory }
    }

    pub(super) async fn expect(&mut self, text: &str) -> Duration {
        self.pipe.write_all(text.as_bytes()).unwrap();
        let (begun, mut seen) = (Instant::now(), String::new());
        until(|| {
            seen.push_str(&read_available(&self.reader));
            seen == text
        })
        .await;
        begun.elapsed()
    }
}

/// How long one container's act may delay another one's output.
pub(super) const A_SECOND: Duration = Duration::from_secs(1);

/// H1: the output of a container that was there before goes on within a second, and its own hand has it again afterwards.
#[test]
fn h1_another_containers_output_goes_on_within_a_second_while_the_hand_is_stuck() {
    run(async {
        let hands = Hands::new(Vec::new());
        let mut other = Other::on(&hands).await;
        other.expect("before\n").await;
        let stuck = Stuck::on(hands.clone()).await;
        assert!(stuck.is_stuck().await);
        let took = other.expect("meanwhile\n").await;
        assert!(took < A_SECOND + NO_TIME, "{took:?}");
        assert!(other.expect("and on\n").await < NO_TIME);
        let attention = hands.attention();
        assert_eq!(attention.away, 1, "{attention:?}");
        assert!(attention.away_for.unwrap() >= Duration::from_millis(700), "{attention:?}");
        stuck.holder.end();
        until(|| read_available(&stuck.reader) == "first\n").await;
        until(|| hands.attention().away == 0).await;
        assert!(hands.attention().longest_away >= Duration::from_millis(700));
        // A second time.
        for word in ["after\n", "and after\n"] {
            other.expect(word).await;
            tokio::time::sleep(SHORT).await;
        }
        let mut streams = other.streams;
        drop(other.pipe);
        within(streams.drain(A_SECOND)).await;
        drop(streams);
        assert_eq!(within(read_to_end(&other.reader)).await, "");
    });
}

/// H1: two threads move the same stream for a moment when the first one comes back. Each byte comes once, and in its order.
#[test]
fn h1_no_output_is_lost_or_comes_twice_when_the_hand_comes_back() {
    run(async {
        let hands = Hands::new(Vec::new());
        let other = Other::on(&hands).await;
        let lines = |number: usize| (0..number).map(|line| format!("line {line}\n")).collect::<String>();
        const LINES: usize = 300_000;
        let mut pipe = other.pipe.try_clone().unwrap();
        nix::fcntl::fcntl(&pipe, nix::fcntl::FcntlArg::F_SETFL(nix::fcntl::OFlag::empty())).unwrap();
        let writer = std::thread::spawn(move || pipe.write_all(lines(LINES).as_bytes()).unwrap());
        let (mut seen, whole) = (String::new(), lines(LINES));
        let begun = Instant::now();
        let (mut stuck, mut ends, mut turns) = (None, begun, 0);
        while seen.len() < whole.len() && begun.elapsed() < DEADLINE {
            // Slowly, so that the hand is away and comes back several times meanwhile.
            let mut part = [0; 2048];
            let length = (&other.reader).read(&mut part).unwrap_or(0);
            let more = str::from_utf8(&part[..length]).unwrap();
            assert!(whole[seen.len()..].starts_with(more), "after {} bytes", seen.len());
            seen.push_str(more);
            if stuck.is_none() && turns < 3 {
                stuck = Some(Stuck::on(hands.clone()).await);
                (ends, turns) = (Instant::now() + Duration::from_millis(1200), turns + 1);
            } else if Instant::now() > ends
                && let Some(Stuck { holder, .. }) = stuck.take()
            {
                holder.end();
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        assert_eq!(seen.len(), whole.len());
        assert_eq!(turns, 3);
        writer.join().unwrap();
    });
}

/// H1: where no descriptors are left, no other hand can go on; it does as soon as there are some.
#[test]
fn h1_d9_another_hand_goes_on_when_there_are_descriptors_again() {
    run(async {
        let hands = Hands::new(Vec::new());
        let mut other = Other::on(&hands).await;
        let stuck = Stuck::on(hands.clone()).await;
        let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
        let next = std::fs::File::open("/dev/null").unwrap().as_raw_fd();
        setrlimit(Resource::RLIMIT_NOFILE, u64::try_from(next).unwrap(), hard).unwrap();
        tokio::time::sleep(A_SECOND * 2).await;
        setrlimit(Resource::RLIMIT_NOFILE, soft, hard).unwrap();
        let took = other.expect("meanwhile\n").await;
        stuck.holder.end();
        assert!(took < A_SECOND, "{took:?}");
    });
}

/// So many containers hold a lock.
const MANY: usize = 9;

/// H1: a process of another container is made meanwhile, with streams that are opened once more. The first ones end when their hand is
/// back, and until then the client sees no end.
#[test]
fn h1_a_neighbours_streams_are_opened_once_more_while_their_hand_is_stuck() {
    run(async {
        let hands = Hands::new(Vec::new());
        let Other { mut pipe, streams, reader, _directory } = Other::on(&hands).await;
        let stuck = Stuck::on(hands.clone()).await;
        until(|| hands.attention().away == 1).await;
        let begun = Instant::now();
        let error = streams.attempt().ready_unless_away().await.unwrap_err();
        assert!(error.is_of_a_hand_that_is_away(), "{error}");
        assert!(begun.elapsed() < A_SECOND + NO_TIME, "{:?}", begun.elapsed());
        pipe.write_all(b"before\n").unwrap();
        let mut seen = String::new();
        let mut until_seen = async |text: &str| {
            until(|| {
                seen += &read_available(&reader);
                seen == text
            })
            .await;
        };
        until_seen("before\n").await;
        let path = _directory.path().join("other");
        let again = open_on(&hands, &output_to(path.to_str().unwrap())).await.unwrap();
        again.connect().await.unwrap();
        drop((pipe, streams));
        within(spawn(&Reaper::start().unwrap(), &again, "echo again").await.exit).await;
        again.finish_output();
        until_seen("before\nagain\n").await;
        assert!(tokio::time::timeout(A_SECOND, read_to_end(&reader)).await.is_err(), "its end was seen");
        stuck.holder.end();
        assert_eq!(within(read_to_end(&reader)).await, "");
    });
}

/// H1: many containers of a pod hold the lock of their pipe at once. Each delays one thread; another one's output goes on within a second
/// all the same, and comes whole.
#[test]
fn h1_many_containers_that_hold_their_locks_delay_a_thread_each_and_another_one_for_a_second() {
    run(async {
        let hands = Hands::new(Vec::new());
        let mut other = Other::on(&hands).await;
        other.expect("before\n").await;
        let before = threads();
        let stuck = many_stuck(&hands, MANY, a_container).await;
        let took = other.expect("meanwhile\n").await;
        assert!(took < A_SECOND + NO_TIME, "{took:?}");
        until(|| hands.attention().away == MANY).await;
        tokio::time::sleep(A_SECOND).await;
        let (now, attention) = (threads(), hands.attention());
        let quick = other.expect("and on\n").await;
        // Each holder is a thread of the test's own.
        assert!(now <= before + 2 * MANY, "{now} threads, {before} before");
        assert_eq!(attention.away, MANY);
        assert!(quick < NO_TIME, "{quick:?}");
        for Stuck { reader, holder, .. } in stuck {
            holder.end();
            until(|| read_available(&reader) == "first\n").await;
        }
        until(|| hands.attention().away == 0).await;
        other.expect("after\n").await;
    });
}

/// H1: however many pipes one container holds, it delays one thread.
#[test]
fn h1_one_container_that_holds_many_locks_delays_one_thread() {
    run(async {
        let hands = Hands::new(Vec::new());
        let mut other = Other::on(&hands).await;
        let before = threads();
        let stuck = many_stuck(&hands, MANY, execs_of_one).await;
        let took = other.expect("meanwhile\n").await;
        assert!(took < A_SECOND + NO_TIME, "{took:?}");
        tokio::time::sleep(A_SECOND).await;
        let (now, attention) = (threads(), hands.attention());
        assert_eq!((now, attention.away), (before + MANY + 1, 1));
        // What is done with the others of its streams waits too, and delays no thread.
        for stuck in &stuck {
            stuck.streams.finish_output();
        }
        tokio::time::sleep(A_SECOND).await;
        assert_eq!((threads(), hands.attention().away), (before + MANY + 1, 1));
        // Its own output waits until it holds none.
        let rest = stuck.into_iter().map(|Stuck { reader, holder, streams, _directory, .. }| {
            holder.end();
            (reader, streams, _directory)
        });
        for (reader, ..) in rest.collect::<Vec<_>>() {
            until(|| read_available(&reader) == "first\n").await;
        }
        until(|| hands.attention().away == 0).await;
    });
}

/// H1: the bound holds also when every hand is delayed, those included on which nothing lives that is not another hand's.
#[test]
fn h1_there_are_so_many_hands_at_the_most() {
    run(async {
        let hands = Hands::new(Vec::new());
        let before = threads();
        let stuck = many_stuck(&hands, MOST + 4, a_container).await;
        let holders = stuck.len();
        until(|| hands.attention().away == MOST).await;
        tokio::time::sleep(A_SECOND * 2).await;
        assert_eq!(threads(), before + holders + MOST);
        // All goes on when they let go.
        for Stuck { reader, holder, .. } in stuck {
            holder.end();
            until(|| read_available(&reader) == "first\n").await;
        }
        until(|| hands.attention().away == 0).await;
    });
}
