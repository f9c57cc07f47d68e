//! H5: who pays for messages, and what of podshim's is in a container for how long.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use cgroups::Stats;
use nix::time::{ClockId, clock_gettime};

use super::*;

/// A running container with its notify socket.
struct Listened {
    test: TestContainer,
    launched: Launched,
    cgroup: Cgroup,
    all: Statements,
    listener: NotifySocket,
    bundle: tempfile::TempDir,
}

impl Listened {
    async fn start() -> Self {
        let test = TestContainer::new(&["sleep", "1000"], |_| {});
        let (launched, cgroup) = test.start().await;
        let bundle = tempfile::tempdir().unwrap();
        let (all, listener) = listen(&test.reaper, &Bundle::new(bundle.path()));
        listener.receive_from(Some(&cgroup), &launched.process);
        Self { test, launched, cgroup, all, listener, bundle }
    }

    fn client(&self) -> UnixDatagram {
        let client = UnixDatagram::unbound().unwrap();
        client.connect(Bundle::new(self.bundle.path()).notify_socket_path()).unwrap();
        client
    }

    /// A process of the container that does this first.
    fn member(&self, job: impl Fn() -> io::Result<()> + Send + Sync + 'static) -> processes::reaper::Child {
        let (mut command, init) = (std::process::Command::new("sleep"), self.launched.process.pid());
        // SAFETY: what runs there makes system calls and allocates; no thread of the test holds a lock.
        unsafe {
            std::os::unix::process::CommandExt::pre_exec(command.arg("1000"), move || {
                join_groups_of(init)?;
                job()
            })
        };
        self.test.reaper.spawn(&mut command).unwrap()
    }

    /// Processor time of the container.
    fn charged(&self) -> Duration {
        match self.cgroup.stats() {
            Stats::V1(stats) => Duration::from_nanos(stats.cpu.unwrap().total),
            Stats::V2(_) => panic!("this test knows cgroup v1 only"),
        }
    }
}

fn time_of_this_thread() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).unwrap().into()
}

/// A flood costs the shim's thread nothing, and what it costs is charged to the container: 16 senders in 10 ms are looked up.
#[test]
fn h5_a_flood_of_messages_costs_the_shim_nothing() {
    run(async {
        let listened = Listened::start().await;
        let (client, is_over) = (listened.client(), Arc::new(AtomicBool::new(false)));
        let began = Instant::now();
        let over = is_over.clone();
        let flood = std::thread::spawn(move || {
            let mut count = 0_u32;
            while !over.load(Ordering::Relaxed) {
                client.send(b"STATUS=busy").unwrap();
                count += 1;
            }
            count
        });
        until(|| !listened.all.borrow().is_empty()).await;
        let (before, charged) = (time_of_this_thread(), listened.charged());
        tokio::time::sleep(Duration::from_secs(3)).await;
        let (used, inside) = (time_of_this_thread() - before, listened.charged() - charged);
        is_over.store(true, Ordering::Relaxed);
        let count = flood.join().unwrap();
        println!("{count} messages: {used:?} of the shim's thread, {inside:?} in the container");
        // The rest is in the queue.
        let most = began.elapsed().as_millis() / 10 * 16 + 600;
        assert!(count > 1000 && u128::from(count) <= most, "{count}, at most {most}");
        assert!(used < Duration::from_millis(30), "{used:?}");
        assert!(inside > used && inside < Duration::from_secs(2), "{inside:?}");
        assert!((2..=6).contains(&listened.all.borrow().len()), "{:?}", listened.all);
        // runc 1.3 refuses to delete a container while another process is in its groups.
        listened.listener.left().await;
        assert_eq!(receiver_of(&listened.listener), None);
        end(listened.launched).await;
    });
}

/// R6: what is killed in the container's groups may be a receiver: the next message is heard all the same. With the
/// container's process it goes too, and the messages of the next run count again.
#[test]
fn h5_a_receiver_is_replaced_and_ends_with_its_run() {
    run(async {
        let listened = Listened::start().await;
        let (all, listener, client) = (&listened.all, &listened.listener, listened.client());
        client.send(b"STATUS=x").unwrap();
        until(|| *all.borrow() == [Statement::Stranger]).await;
        let first = receiver_of(listener).unwrap();
        let killed = Process::open(Pid::from_raw(first.parse().unwrap())).unwrap();
        killed.signal(SignalNumber::KILL).unwrap();
        let member = listened.member(move || client.send(b"READY=1").map(drop));
        until(|| *all.borrow() == [Statement::Stranger, Statement::Ready]).await;
        let second = receiver_of(listener).unwrap();
        assert_ne!(first, second);
        let client = listened.client();
        client.send(b"READY=1").unwrap();
        tokio::time::sleep(Duration::from_millis(1200)).await;
        assert_eq!(all.borrow().len(), 2, "no message counts after READY=1");
        listener.ended();
        until_ended(&second).await;
        client.send(b"READY=1").unwrap();
        tokio::time::sleep(Duration::from_millis(300)).await;
        assert_eq!((receiver_of(listener), all.borrow().len()), (None, 2), "no run is there");
        listener.receive_from(Some(&listened.cgroup), &listened.launched.process);
        until(|| all.borrow().last() == Some(&Statement::Stranger)).await;
        let third = receiver_of(listener).unwrap();
        listener.ended();
        until_ended(&third).await;
        member.process.signal(SignalNumber::KILL).unwrap();
        within(member.exit).await;
        end(listened.launched).await;
    });
}
