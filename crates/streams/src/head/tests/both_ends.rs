//! A container that holds the lock of its own pipe keeps no lock of containerd's fifo (H1): the kernel's splice from a pipe to a pipe
//! takes both locks, in the order of their addresses, and waits for the second one while it has the first.

use std::io::Read;
use std::os::fd::AsRawFd;
use std::sync::mpsc::{Receiver, channel};

use super::stuck::Holder;
use super::*;

/// Which of two pipes the kernel takes first is chance.
const TIMES: usize = 8;
const SHORT: Duration = Duration::from_millis(200);
/// A client's call that does not wait takes no time.
const NO_TIME: Duration = Duration::from_millis(500);

/// One stream of a container that holds the pipe's lock, with a hand of its own.
struct Held {
    client: File,
    holder: Holder,
    _streams: Streams,
    _directory: tempfile::TempDir,
}

#[derive(Clone, Copy)]
enum Which {
    Stdin,
    Stdout,
}

/// As a container opens its `/proc/self/fd/0` to write: a pipe has both ends for its owner.
fn opened_to_write(end: &OwnedFd) -> OwnedFd {
    let path = format!("/proc/self/fd/{}", end.as_raw_fd());
    File::options().write(true).open(path).unwrap().into()
}

impl Held {
    async fn new(which: Which) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = make_fifo(directory.path(), "fifo");
        let (client, paths) = match which {
            Which::Stdin => {
                let client = File::options().read(true).write(true).open(&path).unwrap();
                (client, StdioPaths { stdin: path, ..StdioPaths::default() })
            }
            Which::Stdout => (open_reader(&path), output_to(&path)),
        };
        let streams = open(&paths).await.unwrap();
        streams.connect().await.unwrap();
        let Attempt { mut child, held_back } = streams.attempt().ready().await.unwrap();
        let take = |end: &mut crate::stdio::ChildEnd| std::mem::take(end).into_inner().unwrap();
        let pipe = match which {
            Which::Stdin => opened_to_write(&take(&mut child.stdin)),
            Which::Stdout => take(&mut child.stdout),
        };
        // So that the hand moves something.
        match which {
            Which::Stdin => (&client).write_all(b"typed\n").unwrap(),
            Which::Stdout => File::from(pipe.try_clone().unwrap()).write_all(b"printed\n").unwrap(),
        }
        let holder = Holder::hold(pipe);
        tokio::time::sleep(SHORT).await;
        streams.accept(held_back);
        Self { client, holder, _streams: streams, _directory: directory }
    }

    /// What the client's next call brings, once it has ended.
    fn call(&self, which: Which) -> Receiver<usize> {
        let (sender, receiver) = channel();
        let mut client = self.client.try_clone().unwrap();
        std::thread::spawn(move || {
            let length = match which {
                Which::Stdin => client.write(b"more\n"),
                Which::Stdout => client.read(&mut [0; 64]),
            };
            let _ = sender.send(length.unwrap_or(0));
        });
        receiver
    }
}

fn a_client_does_not_wait(which: Which) {
    run(async {
        let mut all = Vec::new();
        for _ in 0..TIMES {
            all.push(Held::new(which).await);
        }
        tokio::time::sleep(SHORT).await;
        let calls: Vec<_> = all.iter().map(|held| held.call(which)).collect();
        let ended = calls.iter().filter(|call| call.recv_timeout(NO_TIME).is_ok()).count();
        // Before anything can fail: a thread that waits for the lock cannot be ended.
        all.into_iter().for_each(|held| held.holder.end());
        assert_eq!(ended, TIMES);
    });
}

#[test]
fn h1_a_client_that_writes_does_not_wait_for_a_container_that_holds_its_stdin() {
    a_client_does_not_wait(Which::Stdin);
}

#[test]
fn h1_a_client_that_reads_does_not_wait_for_a_container_that_holds_its_stdout() {
    a_client_does_not_wait(Which::Stdout);
}
