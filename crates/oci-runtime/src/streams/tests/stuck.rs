//! A container that holds the lock of its own pipe (H1): the hand waits in the kernel, and the head goes on.

use std::{
    os::{fd::OwnedFd, unix::net::UnixStream},
    thread::JoinHandle,
};

use super::*;

const SHORT: Duration = Duration::from_millis(100);
/// What the head does while the hand is stuck takes no time.
const NO_TIME: Duration = Duration::from_millis(500);

/// A process of a container that splices from a silent socket into its own stdout: the kernel holds the pipe's lock while it waits
/// for the socket.
struct Holder {
    peer: UnixStream,
    thread: JoinHandle<()>,
}

impl Holder {
    fn hold(pipe: OwnedFd) -> Self {
        let (peer, silent) = UnixStream::pair().unwrap();
        let thread = std::thread::spawn(move || {
            let _ = splice(silent.as_fd(), None, pipe.as_fd(), None, 4096, SpliceFFlags::empty());
        });
        Self { peer, thread }
    }

    /// As a SIGKILL does.
    fn end(self) {
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

impl Stuck {
    async fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = make_fifo(directory.path(), "stdout");
        let reader = open_reader(&path);
        let hands = Hands::new(Vec::new());
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
        let threads = || std::fs::read_dir("/proc/self/task").unwrap().count();
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
