//! H4, H6: who pays for an attempt.

use cgroups::{Cgroup, Stats};
use nix::sys::signal::{Signal, kill};
use nix::time::{ClockId, clock_gettime};

use super::*;

/// A container with a listener on its loopback.
struct Listening {
    test: TestContainer,
    launched: Launched,
    cgroup: Rc<Cgroup>,
    listener: TcpListener,
}

impl Listening {
    async fn start() -> Self {
        let test = TestContainer::new(&["sleep", "1000"], |_| {});
        let (launched, cgroup) = test.start().await;
        let namespace = launched.process.open_namespace("net").unwrap();
        let listener = helper_thread::run("listener", move || {
            setns(namespace, CloneFlags::CLONE_NEWNET)?;
            bring_loopback_up()?;
            TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        });
        Self { test, launched, cgroup: Rc::new(cgroup), listener: listener.await.unwrap() }
    }

    fn asked(&self) -> Asked {
        let process = Rc::new(Process::open(self.launched.process.pid()).unwrap());
        Asked { process, cgroup: Some(self.cgroup.clone()) }
    }

    /// Runs a program in its network namespace.
    async fn configure(&self, program: &str, input: String) {
        let namespace = format!("--net=/proc/{}/ns/net", self.launched.process.pid());
        let file = self.test.path("input");
        std::fs::write(&file, input).unwrap();
        let mut command = std::process::Command::new("nsenter");
        command.args([&namespace, "sh", "-c", program]).stdin(std::fs::File::open(file).unwrap());
        let child = self.test.reaper.spawn(&mut command).unwrap();
        assert_eq!(within(child.exit).await.code, 0, "{program}");
    }

    fn charged(&self) -> Duration {
        match self.cgroup.stats() {
            Stats::V1(stats) => Duration::from_nanos(stats.cpu.unwrap().total),
            Stats::V2(_) => panic!("this test knows cgroup v1 only"),
        }
    }

    async fn end(self) {
        self.launched.process.signal(SignalNumber::KILL).unwrap();
        within(self.launched.exit).await;
    }
}

/// Processor time of this process, with all of its threads, and of the children that it has reaped.
fn own_time() -> Duration {
    clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID).unwrap().into()
}

/// Children of this process with that name.
fn helpers() -> Vec<String> {
    let threads = std::fs::read_dir("/proc/self/task").unwrap();
    let children: String = threads
        .map(|thread| std::fs::read_to_string(thread.unwrap().path().join("children")).unwrap())
        .collect();
    let is_helper = |pid: &&str| {
        std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name == "podshim-probe\n")
    };
    children.split_whitespace().filter(is_helper).map(str::to_owned).collect()
}

/// One process answers attempt after attempt, in the container's cgroup; the shim's thread asks and hears. It goes with the
/// container's process.
#[test]
fn h4_attempts_are_made_by_one_process_in_the_containers_cgroup() {
    run(async {
        let listening = Listening::start().await;
        let (asked, prober) = (listening.asked(), Prober::default());
        let endpoint = loopback(&listening.listener);
        let question = Question::Tcp(endpoint);
        let ask = async || within(prober.ask(&listening.test.reaper, &asked, &question, TIMEOUT)).await;
        assert_eq!(ask().await, ProbeResult::Success);
        let first = helpers();
        let (before, charged) = (own_time(), listening.charged());
        for _ in 0..200 {
            assert_eq!(ask().await, ProbeResult::Success);
            drop(listening.listener.accept().unwrap());
        }
        let (used, inside) = ((own_time() - before) / 200, (listening.charged() - charged) / 200);
        println!("an attempt takes {used:?} of this process, {inside:?} of the container");
        assert_eq!((first.len(), helpers()), (1, first.clone()));
        assert!(used < Duration::from_millis(2) && inside > Duration::from_micros(10), "{used:?} {inside:?}");
        prober.ended();
        // The next run has one of its own.
        assert_eq!(ask().await, ProbeResult::Success);
        assert_ne!(helpers(), first);
        prober.ended();
        listening.end().await;
    });
}

/// Signals the process with that number.
fn signal(helper: &str, signal: Signal) {
    kill(nix::unistd::Pid::from_raw(helper.parse().unwrap()), signal).unwrap();
}

/// A process that was killed with the container's processes is replaced, and the attempt does not fail. What kills it all the time
/// gets one a second.
#[test]
fn h4_a_killed_helper_fails_no_attempt() {
    run(async {
        let listening = Listening::start().await;
        let (asked, prober, began) = (listening.asked(), Prober::default(), Instant::now());
        let question = Question::Tcp(loopback(&listening.listener));
        for _ in 0..3 {
            let result = within(prober.ask(&listening.test.reaper, &asked, &question, TIMEOUT)).await;
            assert_eq!(result, ProbeResult::Success);
            helpers().iter().for_each(|helper| signal(helper, Signal::SIGKILL));
        }
        let took = began.elapsed();
        assert!(took >= Duration::from_secs(2), "three processes in {took:?}");
        prober.ended();
        listening.end().await;
    });
}

/// H4, H6: an attempt that takes longer than its time costs no further process, until it hangs.
#[test]
fn h4_a_helper_outlives_an_attempt_that_is_late() {
    run(async {
        let listening = Listening::start().await;
        let (asked, prober) = (listening.asked(), Prober::default());
        let question = Question::Tcp(loopback(&listening.listener));
        let ask = async |timeout| {
            within(prober.ask(&listening.test.reaper, &asked, &question, timeout)).await.to_string()
        };
        let short = Duration::from_millis(200);
        assert_eq!(ask(TIMEOUT).await, ProbeResult::Success.to_string());
        let first = helpers();
        signal(&first[0], Signal::SIGSTOP);
        assert!(ask(short).await.contains("timed out"));
        for _ in 0..10 {
            assert!(ask(short).await.contains("the last attempt has not ended"));
        }
        assert_eq!(helpers(), first);
        signal(&first[0], Signal::SIGCONT);
        tokio::time::sleep(short).await;
        assert_eq!(ask(TIMEOUT).await, ProbeResult::Success.to_string());
        assert_eq!(helpers(), first);
        // One that hangs for good is replaced.
        signal(&first[0], Signal::SIGSTOP);
        assert!(ask(short).await.contains("timed out"));
        tokio::time::sleep(Duration::from_millis(5500)).await;
        assert!(ask(TIMEOUT).await.contains("the last attempt has not ended"));
        test_support::until(|| helpers().is_empty()).await;
        assert_eq!(ask(TIMEOUT).await, ProbeResult::Success.to_string());
        prober.ended();
        listening.end().await;
    });
}

/// H6: 5,000 addresses, which each attempt without a host lists.
#[test]
fn h6_the_containers_addresses_are_listed_at_its_own_cost() {
    run(async {
        let listening = Listening::start().await;
        let add = |number: u32| format!("addr add 10.{}.{}.1/32 dev lo\n", number / 200, number % 200);
        listening.configure("exec ip -batch -", (0..5_000).map(add).collect()).await;
        let (asked, prober) = (listening.asked(), Prober::default());
        let question = Question::Tcp(Endpoint { host: None, port: 1 });
        let (before, charged, began) = (own_time(), listening.charged(), Instant::now());
        for _ in 0..5 {
            let result = within(prober.ask(&listening.test.reaper, &asked, &question, TIMEOUT)).await;
            assert_eq!(result.to_string(), "tcp:1 refused");
        }
        let (used, inside, took) = (own_time() - before, listening.charged() - charged, began.elapsed());
        println!("five attempts: {used:?} of this process, {inside:?} of the container in {took:?}");
        assert!(inside > used * 3, "{inside:?} {used:?}");
        assert!(
            took > inside * 2,
            "{inside:?} in {took:?}: an attempt that costs much makes the next one wait"
        );
        prober.ended();
        listening.end().await;
    });
}
