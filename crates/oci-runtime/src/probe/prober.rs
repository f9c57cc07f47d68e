//! Asks a container's gate in a process in the container's own cgroup, one for as long as it is asked.
//!
//! A connection runs the container's packet filters, a path is as long a maze as it likes, its addresses are as many: work of the
//! container's choosing is the container's to pay. A process for each attempt would take a fork and an entry into each of its groups;
//! so one stays for the next attempt, also when one took longer than its time, and ends when none comes for a while. Owns that
//! process, how often there is a new one, and the pace: an attempt that has cost much makes the next one wait.

use std::cell::{Cell, RefCell};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::rc::Rc;
use std::time::Duration;

use cgroups::{Cgroup, Membership};
use nix::errno::Errno;
use nix::poll::PollFlags;
use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockType, recv, send, socketpair};
use nix::unistd::Pid;
use processes::Process;
use processes::helper_process::{self, HelperProcess};
use processes::reaper::Reaper;
use threads::{async_file, helper_thread};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::connect::HomeNetwork;
use super::deadline::{Failed, now, wait_for};
use super::question::Question;
use super::result::{ProbeResult, timed_out};

/// The process ends when it has not been asked for this time: then nothing of podshim's is in the container.
const LINGER: Duration = Duration::from_secs(3);
/// How much later than its own limit an answer may come.
const GRACE: Duration = Duration::from_millis(100);
/// Attempts take one part in so many of a processor.
const SHARE: u32 = 5;
/// The longest wait because of what the last attempt has cost.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// An attempt that has gone on for this time after its limit hangs: its process is killed, for the next one may have an answer.
const HANGS: Duration = Duration::from_secs(5);
/// One run of a container gets a new process no more often, whatever has ended the last one.
const START_PERIOD: Duration = Duration::from_secs(1);
/// A killed process that has not ended after this time hangs.
const STUCK: Duration = Duration::from_millis(200);
/// The processor time of a process, whether its attempt has succeeded, and why not.
const ANSWER_LONGEST: usize = 1024;

const HELPER_ENDED: &str = "cannot be probed: its helper process has ended";

/// Whom an attempt asks.
#[derive(Debug, Clone)]
pub struct Asked {
    /// The container's process.
    pub process: Rc<Process>,
    /// Its groups.
    pub cgroup: Option<Rc<Cgroup>>,
}

/// The attempts of one container, over all its runs. Only one is under way: a file system that never answers must not cost a
/// process for each of them. Clones are one.
#[derive(Debug, Clone, Default)]
pub struct Prober(Rc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    helper: RefCell<Option<Helper>>,
    /// How many have not ended.
    alive: Cell<u32>,
    one_has_ended: Notify,
    last: Cell<Last>,
    /// A process in a container's groups, and these.
    inside: RefCell<Option<(Pid, Membership)>>,
    not_before: Cell<Option<Instant>>,
    /// What the last one was started for, and when.
    last_start: RefCell<Option<(Pid, Question, Instant)>>,
}

/// A process that waits for attempts or makes one. Dropping it ends it.
#[derive(Debug)]
struct Helper {
    #[expect(dead_code, reason = "dropping it ends it")]
    process: HelperProcess,
    socket: Rc<AsyncFd<File>>,
    question: Question,
    process_asked: Pid,
    state: State,
    /// Its processor time before the attempt.
    used: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Idle,
    /// With an attempt that has this limit, also when it is over.
    Busy(Instant),
}

/// How the last process went, as long as it has not ended.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Last {
    /// It ends in a moment.
    #[default]
    Idle,
    /// In the middle of an attempt, which may take as long as it likes.
    InAnAttempt,
}

/// Whom an attempt is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Prepared {
    /// A process of an earlier attempt.
    Known,
    New,
    /// None yet: that of an earlier attempt asks something else, and is ending.
    AfterTheLast,
    /// None yet: the last one was started a moment ago.
    NotBefore(Instant),
}

/// What the shim hears of an attempt.
enum Reply {
    Answer(Result<(), Failed>),
    /// The process has ended.
    Ended,
}

fn because(why: &str) -> Failed {
    Failed::Because(why.to_owned())
}

impl Prober {
    /// Asks once; succeeds if the container answers within `timeout`. Cancel-safe.
    pub async fn ask(
        &self,
        reaper: &Reaper,
        asked: &Asked,
        question: &Question,
        timeout: Duration,
    ) -> ProbeResult {
        self.0.receive_late_answer();
        if let Some(until) = self.0.not_before.take() {
            tokio::time::sleep_until(until).await;
        }
        match self.answer(reaper, asked, question, timeout).await {
            Ok(()) => ProbeResult::Success,
            Err(Failed::OutOfTime) => ProbeResult::Failure(question.failure(&timed_out(timeout))),
            Err(Failed::Because(why)) => ProbeResult::Failure(question.failure(&why)),
        }
    }

    /// The container's process has ended: nothing of podshim's stays in its groups. [`Self::left`] waits for that.
    pub fn ended(&self) {
        self.0.end(&mut self.0.helper.borrow_mut());
    }

    /// Ends the process that asks, and waits until it has left the container's groups. A file system may keep it, though killed:
    /// then it is moved out of them.
    pub async fn left(&self) {
        self.ended();
        let ended = async {
            while self.0.inside.borrow().is_some() {
                self.0.one_has_ended.notified().await;
            }
        };
        if tokio::time::timeout(STUCK, ended).await.is_err()
            && let Some((pid, place)) = self.0.inside.take()
        {
            // On a thread: the kernel's lock for it takes milliseconds.
            let expelled = helper_thread::run("expel", move || {
                place.expel(pid);
                Ok(())
            });
            drop(expelled.await);
        }
    }

    async fn answer(
        &self,
        reaper: &Reaper,
        asked: &Asked,
        question: &Question,
        timeout: Duration,
    ) -> Result<(), Failed> {
        let (deadline, limit) = (now() + timeout, Instant::now() + timeout + GRACE);
        loop {
            if !asked.process.is_running() {
                return Err(because(question.gone()));
            }
            let prepared = self.prepare(reaper, asked, question)?;
            match prepared {
                Prepared::AfterTheLast => {}
                Prepared::NotBefore(due) if due > limit => return Err(because(HELPER_ENDED)),
                Prepared::NotBefore(due) => {
                    tokio::time::sleep_until(due).await;
                    continue;
                }
                Prepared::Known | Prepared::New => match self.attempt(deadline, limit).await {
                    Reply::Answer(answer) => return answer,
                    Reply::Ended if prepared == Prepared::New => {
                        return Err(because(HELPER_ENDED));
                    }
                    // It had waited long enough, or was killed with the container's processes.
                    Reply::Ended => {}
                },
            }
            while self.0.alive.get() > 0 {
                let ended = self.0.one_has_ended.notified();
                if tokio::time::timeout_at(limit, ended).await.is_err() {
                    return Err(Failed::OutOfTime);
                }
            }
        }
    }

    /// Makes sure that there is a process to ask.
    fn prepare(&self, reaper: &Reaper, asked: &Asked, question: &Question) -> Result<Prepared, Failed> {
        self.0.receive_late_answer();
        let mut helper = self.0.helper.borrow_mut();
        let is_the_same =
            |helper: &&Helper| (helper.process_asked, &helper.question) == (asked.process.pid(), question);
        match helper.as_ref().filter(is_the_same).map(|helper| helper.state) {
            Some(State::Idle) => return Ok(Prepared::Known),
            Some(State::Busy(limit)) if Instant::now() < limit + HANGS => {
                return Err(because(question.unanswered()));
            }
            _ => self.0.end(&mut helper),
        }
        match (self.0.alive.get(), self.0.last.get(), self.0.not_started_before(asked, question)) {
            (0, _, Some(due)) => Ok(Prepared::NotBefore(due)),
            (0, _, None) => {
                let started = self.start(reaper, asked, question);
                *helper =
                    Some(started.map_err(|error| Failed::Because(format!("cannot be probed: {error}")))?);
                Ok(Prepared::New)
            }
            (_, Last::Idle, _) => Ok(Prepared::AfterTheLast),
            (_, Last::InAnAttempt, _) => Err(because(question.unanswered())),
        }
    }

    fn start(&self, reaper: &Reaper, asked: &Asked, question: &Question) -> io::Result<Helper> {
        let container =
            asked.cgroup.as_deref().and_then(|cgroup| Membership::of(cgroup, asked.process.pid()));
        let (shim, helpers) =
            socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC)?;
        let shim = Rc::new(async_file::register(File::from(shim), Interest::READABLE)?);
        let files: Vec<_> = asked.process.pidfd().into_iter().chain([helpers.as_fd()]).collect();
        let job = || answer_all(helpers.as_fd(), container.as_ref(), &asked.process, question);
        // SAFETY: the job does not panic and takes no lock.
        let (process, exit) = unsafe { helper_process::run(reaper, c"podshim-probe", &files, job) }?;
        self.0.last_start.replace(Some((asked.process.pid(), question.clone(), Instant::now())));
        self.0.alive.set(self.0.alive.get() + 1);
        self.0.last.set(Last::Idle);
        self.0.inside.replace(container.map(|container| (process.pid(), container)));
        let shared = self.0.clone();
        tokio::task::spawn_local(async move {
            exit.await;
            shared.inside.take();
            shared.alive.set(shared.alive.get() - 1);
            shared.one_has_ended.notify_waiters();
        });
        let (question, process_asked) = (question.clone(), asked.process.pid());
        Ok(Helper {
            process,
            socket: shim,
            question,
            process_asked,
            state: State::Idle,
            used: Duration::ZERO,
        })
    }

    async fn attempt(&self, deadline: Duration, limit: Instant) -> Reply {
        let Some(socket) = self.0.begin(limit) else { return Reply::Ended };
        let packet = u64::try_from(deadline.as_nanos()).unwrap_or(u64::MAX).to_ne_bytes();
        let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
        if send(socket.get_ref().as_raw_fd(), &packet, flags).is_err() {
            self.0.has_ended(&socket);
            return Reply::Ended;
        }
        match tokio::time::timeout_at(limit, answer_on(&socket)).await {
            Ok(Some(Answer { used, outcome })) => {
                self.0.has_answered(&socket, used);
                Reply::Answer(outcome)
            }
            Ok(None) => {
                self.0.has_ended(&socket);
                Reply::Ended
            }
            // It goes on with that attempt.
            Err(_) => Reply::Answer(Err(Failed::OutOfTime)),
        }
    }
}

impl Shared {
    /// An attempt begins. Its process is busy until it answers, also when no caller waits for that any more.
    fn begin(&self, limit: Instant) -> Option<Rc<AsyncFd<File>>> {
        let mut helper = self.helper.borrow_mut();
        let helper = helper.as_mut()?;
        helper.state = State::Busy(limit);
        Some(helper.socket.clone())
    }

    /// `used` is all processor time of the process with this socket so far.
    fn has_answered(&self, socket: &Rc<AsyncFd<File>>, used: Duration) {
        if let Some(helper) = self.helper.borrow_mut().as_mut()
            && Rc::ptr_eq(&helper.socket, socket)
        {
            let pause = (used.saturating_sub(helper.used) * (SHARE - 1)).min(LONGEST_PAUSE);
            self.not_before.set(Some(Instant::now() + pause));
            (helper.state, helper.used) = (State::Idle, used);
        }
    }

    fn has_ended(&self, socket: &Rc<AsyncFd<File>>) {
        self.helper.borrow_mut().take_if(|helper| Rc::ptr_eq(&helper.socket, socket));
    }

    /// Of an attempt that took longer than its time.
    fn receive_late_answer(&self) {
        let busy = |helper: &Helper| match helper.state {
            State::Idle => None,
            State::Busy(_) => Some(helper.socket.clone()),
        };
        let Some(socket) = self.helper.borrow().as_ref().and_then(busy) else { return };
        let mut packet = [0; ANSWER_LONGEST];
        match recv(socket.get_ref().as_raw_fd(), &mut packet, MsgFlags::MSG_DONTWAIT) {
            Err(Errno::EAGAIN | Errno::EINTR) => {}
            received => match received.ok().and_then(|length| Answer::decode(&packet[..length])) {
                Some(answer) => self.has_answered(&socket, answer.used),
                None => self.has_ended(&socket),
            },
        }
    }

    fn end(&self, helper: &mut Option<Helper>) {
        if let Some(Helper { state: State::Busy(_), .. }) = helper.take() {
            self.last.set(Last::InAnAttempt);
        }
    }

    /// Until when a process for this has to wait, because there was one a moment ago.
    fn not_started_before(&self, asked: &Asked, question: &Question) -> Option<Instant> {
        let last = self.last_start.borrow();
        let is_the_same =
            |(pid, last, _): &&(Pid, Question, Instant)| *pid == asked.process.pid() && last == question;
        let (.., at) = last.as_ref().filter(is_the_same)?;
        Some(*at + START_PERIOD).filter(|due| *due > Instant::now())
    }
}

/// What the process says of an attempt.
struct Answer {
    /// Its processor time so far.
    used: Duration,
    outcome: Result<(), Failed>,
}

impl Answer {
    fn encode(&self) -> Vec<u8> {
        let (kind, why) = match &self.outcome {
            Ok(()) => (0, ""),
            Err(Failed::OutOfTime) => (1, ""),
            Err(Failed::Because(why)) => (2, why.as_str()),
        };
        let used = u64::try_from(self.used.as_nanos()).unwrap_or(u64::MAX);
        let mut packet = [&used.to_ne_bytes()[..], &[kind], why.as_bytes()].concat();
        packet.truncate(ANSWER_LONGEST);
        packet
    }

    fn decode(packet: &[u8]) -> Option<Self> {
        let (used, rest) = packet.split_first_chunk()?;
        let (kind, why) = rest.split_first()?;
        let outcome = match kind {
            0 => Ok(()),
            1 => Err(Failed::OutOfTime),
            _ => Err(Failed::Because(String::from_utf8_lossy(why).into_owned())),
        };
        Some(Self { used: Duration::from_nanos(u64::from_ne_bytes(*used)), outcome })
    }
}

/// Waits for the answer; `None` when the process has ended.
async fn answer_on(socket: &AsyncFd<File>) -> Option<Answer> {
    let mut packet = [0; ANSWER_LONGEST];
    loop {
        let mut readable = socket.readable().await.ok()?;
        match recv(socket.get_ref().as_raw_fd(), &mut packet, MsgFlags::MSG_DONTWAIT) {
            Err(Errno::EAGAIN) => readable.clear_ready(),
            Err(Errno::EINTR) => {}
            Ok(length) => return Answer::decode(&packet[..length]),
            Err(_) => return None,
        }
    }
}

/// What the process does: answers one attempt after the other, until none has come for a while.
fn answer_all(
    shim: BorrowedFd<'_>,
    container: Option<&Membership>,
    process: &Process,
    question: &Question,
) -> u8 {
    let Ok(home) = HomeNetwork::of_this_thread() else { return helper_process::NOT_BEGUN };
    let mut place = container;
    while wait_for(shim, PollFlags::POLLIN, now() + LINGER).is_ok() {
        let mut deadline = [0; size_of::<u64>()];
        if recv(shim.as_raw_fd(), &mut deadline, MsgFlags::empty()) != Ok(deadline.len()) {
            return 0;
        }
        let deadline = Duration::from_nanos(u64::from_ne_bytes(deadline));
        let entered = place.map_or(Ok(()), Membership::enter);
        let outcome = match entered {
            Ok(()) => {
                place = None;
                question.ask(process, home, deadline)
            }
            Err(error) => {
                Err(Failed::Because(format!("cannot be probed: its cgroup cannot be entered: {error}")))
            }
        };
        let answer = Answer { used: processes::processor_time(), outcome };
        if send(shim.as_raw_fd(), &answer.encode(), MsgFlags::MSG_NOSIGNAL).is_err() {
            return 0;
        }
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;
    use test_support::{run, within};

    /// U2, DESIGN §6: a look that does not return must not cost another one in each period.
    #[test]
    fn u2_a_file_system_that_never_answers_costs_one_check() {
        run(async {
            let reaper = Reaper::start().unwrap();
            let own = reaper.spawn(std::process::Command::new("sleep").arg("1000")).unwrap();
            let asked = Asked { process: Rc::new(own.process), cgroup: None };
            let (prober, limit) = (Prober::default(), Duration::from_secs(5));
            let question = Question::File("/".to_owned());
            // As if one were in a look that no signal ends.
            prober.0.alive.set(1);
            prober.0.last.set(Last::InAnAttempt);
            let refused = within(prober.ask(&reaper, &asked, &question, limit)).await.to_string();
            assert_eq!(
                refused,
                "file:/ cannot be looked for: its file system has not answered the last look"
            );
            prober.0.alive.set(0);
            assert_eq!(within(prober.ask(&reaper, &asked, &question, limit)).await, ProbeResult::Success);
            asked.process.signal(processes::SignalNumber::KILL).unwrap();
            within(own.exit).await;
        });
    }
}
