//! What befalls a random pod under a kubelet. Owns the kinds of faults, and what there is of each in a run; what a fault does is
//! `kubelet::fault`'s.

use std::fmt;
use std::time::Duration;

use crate::command::Command;
use crate::kubelet::fault::Fault;
use crate::operation_kind::OperationKind;
use crate::text::millis;
use crate::world::RUNTIME_LIMIT;
use fuzz_input::Rng;

/// What befalls a pod in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FaultKind {
    /// Programs that crash at first, nothing else.
    None,
    /// One kill by a probe.
    Probe,
    /// Several kills by a probe.
    Probes,
    /// One create or start that fails.
    Start,
    /// A main whose command does not exist.
    Broken,
    /// Image updates.
    Image,
    /// Images that cannot be pulled for a while, new and updated ones.
    Pull,
    /// The kubelet restarts, in the middle of kills and starts.
    Restart,
    /// Dead containers are removed.
    Forget,
    /// Programs exit.
    Crash,
    /// Sidecars that do not get ready for a while.
    Unready,
    /// `fatal.c=failure`, and programs that fail.
    Fatal,
    /// The kernel kills programs for memory.
    OutOfMemory,
    /// The pod is deleted, perhaps again with a shorter grace.
    Delete,
    /// The pod is evicted.
    Evict,
    /// Any of them together.
    Mixed,
    /// All containers are restarted in the living sandbox (RestartAllContainers).
    RestartAll,
    /// `kubectl debug` adds a container, perhaps with a crash.
    Debug,
    /// crictl stops and removes containers while the kubelet reacts.
    Crictl,
    /// Only keys of the pod's author: `restart`, `after`, `exit-codes=real`, and programs that fail.
    Keys,
}

const FAULT_KINDS: [(&str, FaultKind); 20] = [
    ("none", FaultKind::None),
    ("probe", FaultKind::Probe),
    ("probes", FaultKind::Probes),
    ("start", FaultKind::Start),
    ("broken", FaultKind::Broken),
    ("image", FaultKind::Image),
    ("pull", FaultKind::Pull),
    ("restart", FaultKind::Restart),
    ("forget", FaultKind::Forget),
    ("crash", FaultKind::Crash),
    ("unready", FaultKind::Unready),
    ("fatal", FaultKind::Fatal),
    ("oom", FaultKind::OutOfMemory),
    ("delete", FaultKind::Delete),
    ("evict", FaultKind::Evict),
    ("mixed", FaultKind::Mixed),
    ("keys", FaultKind::Keys),
    ("restart-all", FaultKind::RestartAll),
    ("debug", FaultKind::Debug),
    ("crictl", FaultKind::Crictl),
];

impl FaultKind {
    /// Its place in the table: each kind has pods of its own.
    pub(super) fn place(self) -> usize {
        FAULT_KINDS.iter().position(|(_, kind)| *kind == self).unwrap_or_default()
    }

    /// All kinds, in the order of the table.
    pub fn all() -> impl Iterator<Item = Self> {
        FAULT_KINDS.iter().map(|(_, kind)| *kind)
    }

    /// The kind of a word.
    ///
    /// # Errors
    /// If the word is unknown; the error has all valid ones.
    pub fn parse(text: &str) -> Result<Self, String> {
        let known = FAULT_KINDS.iter().find(|(word, _)| *word == text).map(|(_, kind)| *kind);
        known.ok_or_else(|| format!("{text:?} is none of {}", FAULT_KINDS.map(|(word, _)| word).join(", ")))
    }
}

impl fmt::Display for FaultKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(FAULT_KINDS.iter().find(|(_, kind)| kind == self).map_or("", |(word, _)| *word))
    }
}

/// As long as the runtime lets an operation hang.
pub(super) const HANGING: Duration = Duration::from_secs(119);

/// An operation of podshim's own that is slow, or that hangs for as long as the runtime lets it.
pub(super) fn slow(random: &mut Rng, name: String, hanging: Option<Duration>) -> Command {
    const KINDS: [OperationKind; 6] = [
        OperationKind::Create,
        OperationKind::Start,
        OperationKind::Recreate,
        OperationKind::KillRemaining,
        OperationKind::Remove,
        OperationKind::Check,
    ];
    let time = hanging.unwrap_or(millis(*random.pick(&[300, 2500])));
    Command::Slow(name, *random.pick(&KINDS), time)
}

/// Faults before and after the kubelet begins, each after a pause.
#[derive(Default)]
pub(super) struct Faults {
    pub(super) before: Vec<Command>,
    pub(super) after: Vec<Command>,
    /// Whether time passes before the faults are over.
    pub(super) more: bool,
}

pub(super) fn faults(random: &mut Rng, kind: FaultKind, names: &[String], mains: &[String]) -> Faults {
    let mut faults = Faults { more: random.percent(50), ..Faults::default() };
    let fault = |fault| Command::Fault(fault);
    let name = |random: &mut Rng| random.pick(names).clone();
    let probe = |random: &mut Rng| {
        let name = random.pick(names).clone();
        fault(if random.percent(70) { Fault::Liveness(name) } else { Fault::Startup(name) })
    };
    let failure = |random: &mut Rng| {
        let kind = *random.pick(&[OperationKind::Create, OperationKind::Start]);
        Command::Fail(random.pick(names).clone(), kind)
    };
    let Faults { before, after, .. } = &mut faults;
    match kind {
        FaultKind::None | FaultKind::Unready | FaultKind::Keys => {}
        FaultKind::Fatal | FaultKind::Crash => {
            for _ in 0..1 + random.below(3) {
                after.push(fault(Fault::Crash(name(random), *random.pick(&[0, 1, 1, 137]))));
            }
        }
        FaultKind::Probe => after.push(probe(random)),
        FaultKind::Probes => after.extend((0..2 + random.below(5)).map(|_| probe(random))),
        FaultKind::Start => {
            let failure = failure(random);
            // Its runtime never returns.
            if let Command::Fail(name, kind) = &failure
                && random.percent(25)
            {
                before.push(Command::Slow(name.clone(), *kind, RUNTIME_LIMIT));
            }
            before.push(failure);
        }
        FaultKind::Broken => {
            let kind = *random.pick(&[OperationKind::Create, OperationKind::Start]);
            before.push(fault(Fault::Broken(random.pick(mains).clone(), kind)));
        }
        FaultKind::Image => {
            after.extend((0..1 + random.below(3)).map(|_| fault(Fault::Image(name(random)))));
        }
        FaultKind::Pull => {
            for _ in 0..1 + random.below(2) {
                let name = name(random);
                let time = *random.pick(&[1, 7, 40, 200]);
                after.push(fault(Fault::Pull(name.clone(), Duration::from_secs(time))));
                if random.percent(70) {
                    after.push(fault(Fault::Image(name)));
                }
            }
        }
        FaultKind::Restart => {
            for _ in 0..1 + random.below(3) {
                match random.below(4) {
                    0 => {}
                    1 => after.push(fault(Fault::Image(name(random)))),
                    _ => after.push(probe(random)),
                }
                after.push(fault(Fault::Restart(*random.pick(&[
                    millis(1000),
                    millis(5000),
                    millis(40_000),
                ]))));
            }
        }
        FaultKind::Forget => {
            after.extend((0..1 + random.below(3)).map(|_| fault(Fault::Forget(name(random)))))
        }
        FaultKind::OutOfMemory => {
            after.extend((0..1 + random.below(3)).map(|_| fault(Fault::OutOfMemory(name(random)))));
        }
        FaultKind::Delete => {
            if random.percent(30) {
                after.push(probe(random));
            }
            after.push(fault(Fault::Delete(Duration::from_secs(*random.pick(&[2, 5, 30])))));
            if random.percent(30) {
                after.push(fault(Fault::Delete(Duration::from_secs(2))));
            }
            if random.percent(20) {
                after.push(fault(Fault::Restart(millis(3000))));
            }
        }
        FaultKind::Debug => {
            after.push(fault(Fault::Debug("debugger-7xk2p".to_owned())));
            if random.percent(50) {
                after.push(fault(Fault::Crash(name(random), 1)));
            }
            if random.percent(30) {
                after.push(fault(Fault::RestartAll));
            }
        }
        FaultKind::Crictl => {
            for _ in 0..1 + random.below(4) {
                let name = name(random);
                let time = *random.pick(&[0, 0, 1000, 5000, 30_000]);
                after.push(fault(Fault::Crictl(name.clone(), millis(time))));
                match random.below(8) {
                    0 => after.push(fault(Fault::Forget(name))),
                    1 => after.push(probe(random)),
                    2 => after.push(slow(random, name, Some(HANGING))),
                    3 => after.push(fault(Fault::Restart(millis(3000)))),
                    _ => {}
                }
            }
        }
        FaultKind::RestartAll => {
            for _ in 0..1 + random.below(2) {
                if random.percent(60) {
                    after.push(fault(Fault::Crash(name(random), 42)));
                }
                after.push(fault(Fault::RestartAll));
                if random.percent(20) {
                    after.push(fault(Fault::Restart(millis(3000))));
                }
            }
        }
        FaultKind::Evict => after.push(fault(Fault::Evict)),
        FaultKind::Mixed => {
            for _ in 0..2 + random.below(6) {
                let kinds = [
                    FaultKind::Probe,
                    FaultKind::Probe,
                    FaultKind::Start,
                    FaultKind::Image,
                    FaultKind::Pull,
                    FaultKind::Restart,
                    FaultKind::Forget,
                    FaultKind::Crash,
                    FaultKind::OutOfMemory,
                    FaultKind::Crictl,
                ];
                let kind = *random.pick(&kinds);
                let one = self::faults(random, kind, names, mains);
                after.extend(one.before.into_iter().chain(one.after));
            }
        }
    }
    faults
}
