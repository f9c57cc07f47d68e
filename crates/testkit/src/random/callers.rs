//! Random callers and faults: orderly callers that start and stop a pod as kubelets do, and requests in any order,
//! repeated, or missing. Owns which are tried and how often.

use std::time::Duration;

use pod_lifecycle::{
    AfterCheckpoint, ContainerId, KubeletHook, KubeletType, Origin, PidNamespace, Reach, Target,
};
use pod_spec::Signal;

use crate::command::Command;
use crate::new_container::NewContainer;
use crate::operation_kind::OperationKind;
use crate::world::RUNTIME_LIMIT;
use fuzz_input::Rng;

const PAUSE: &str = "pause";
/// Most requests of any kind in a part of a run.
const MOST_AT_RANDOM: usize = 24;

pub(super) fn commands(random: &mut Rng, names: &[String]) -> Vec<Command> {
    let mut commands = Vec::new();
    for _ in 0..random.below(3) {
        commands.push(fault(random, names));
    }
    if random.percent(90) {
        start_all(random, names, &mut commands);
    }
    let most = if random.percent(50) { 5 } else { MOST_AT_RANDOM };
    for _ in 0..random.below(most) {
        commands.push(any(random, names));
    }
    if random.percent(60) {
        stop_all(random, names, &mut commands);
        for _ in 0..random.below(most) {
            commands.push(any(random, names));
        }
    }
    // T14: another round.
    if random.percent(25) {
        commands.push(Command::Advance(random.duration()));
        for name in names {
            if random.percent(60) {
                commands.extend([Command::Create(again(name)), Command::Start(Target::init(id(name, "-2")))]);
            }
        }
        if random.percent(50) {
            stop_all(random, names, &mut commands);
        }
    }
    commands
}

/// S15: an agent that knows the pod's object, at any moment and of any container. By numbers of its own: other seeds keep their pods.
pub(super) fn add_kubelets_own(seed: u64, names: &[String], commands: &mut Vec<Command>) {
    let random = &mut Rng::new(seed ^ 0x515_0b9e_c700);
    if random.percent(12) {
        for _ in 0..1 + random.below(2) {
            let names = (0..1 + random.below(2)).map(|_| random.pick(names).clone()).collect();
            commands.insert(1 + random.below(commands.len()), Command::KubeletsOwn(names));
        }
    }
}

fn id(name: &str, suffix: &str) -> ContainerId {
    format!("{name}{suffix}").as_str().into()
}

fn again(name: &str) -> NewContainer {
    NewContainer { id: id(name, "-2"), ..NewContainer::named(name) }
}

/// Starts some containers in some order: each at once as a kubelet does, or with creates before starts.
fn start_all(random: &mut Rng, names: &[String], commands: &mut Vec<Command>) {
    let mut order = names.to_vec();
    if random.percent(60) {
        random.shuffle(&mut order);
    }
    if random.percent(30) {
        order.truncate(random.below(order.len() + 1));
    }
    if random.percent(70) {
        for name in order {
            commands.push(Command::Up(vec![name]));
            if random.percent(25) {
                commands.push(any(random, names));
            }
        }
        return;
    }
    commands.extend(order.iter().map(|name| Command::Create(new(random, name))));
    random.shuffle(&mut order);
    for name in order {
        commands.push(Command::Start(Target::init(id(&name, ""))));
        if random.percent(25) {
            commands.push(any(random, names));
        }
    }
}

/// A stop of the pod as callers ask for it.
fn stop_all(random: &mut Rng, names: &[String], commands: &mut Vec<Command>) {
    let mut order = names.to_vec();
    random.shuffle(&mut order);
    match random.below(6) {
        // A kubelet: all at the same moment, each with its own remaining grace.
        0 | 1 => {
            let grace = random.duration();
            commands.extend(order.iter().map(|name| Command::StopContainer(id(name, ""), grace)));
        }
        // One after another, in the wrong order.
        2 => {
            for name in order {
                commands.push(Command::StopContainer(id(&name, ""), random.duration()));
                commands.push(Command::Advance(random.duration()));
            }
        }
        3 => commands.push(Command::StopSandbox(order.iter().map(|name| id(name, "")).collect())),
        4 => commands.push(Command::StopPod(random.percent(70).then(|| random.duration()))),
        _ => {
            let kill =
                |name: &String| Command::Kill(Target::init(id(name, "")), Signal::KILL, Reach::Process);
            commands.extend(order.iter().map(kill));
        }
    }
}

fn new(random: &mut Rng, name: &str) -> NewContainer {
    let mut new = NewContainer::named(name);
    if random.percent(25) {
        new.id = id(name, "-2");
    }
    if random.percent(20) {
        new.pid_namespace = PidNamespace::Shared;
    }
    new.kubelet_type = *random.pick(&[
        None,
        None,
        None,
        Some(KubeletType::Init),
        Some(KubeletType::Regular),
        Some(KubeletType::Ephemeral),
    ]);
    new.kubelet_grace = random.percent(15).then(|| random.duration());
    new.kubelet = *random.pick(&[None, None, Some(KubeletHook::None), Some(KubeletHook::PreStop)]);
    new.oom_score_adj = random.percent(15).then(|| *random.pick(&[-997, 0, 900, 999]));
    if random.percent(8) {
        new.origin = Origin::Checkpoint;
    }
    new
}

fn some_id(random: &mut Rng, names: &[String]) -> ContainerId {
    match random.below(20) {
        0 => "extra".into(),
        1 => PAUSE.into(),
        2..=5 => id(random.pick::<String>(names), "-2"),
        _ => id(random.pick::<String>(names), ""),
    }
}

fn target(random: &mut Rng, names: &[String]) -> Target {
    let exec = *random.pick(&[None, None, None, Some("e1"), Some("e2")]);
    Target { container: some_id(random, names), exec: exec.map(Into::into) }
}

fn signal(random: &mut Rng) -> Signal {
    let usual =
        [Signal::TERM, Signal::TERM, Signal::TERM, Signal::KILL, Signal::KILL, Signal::HUP, Signal::QUIT];
    let any = u32::try_from(1 + random.below(64)).ok().and_then(Signal::new);
    if random.percent(10) { any.unwrap_or(Signal::TERM) } else { *random.pick(&usual) }
}

/// How long an operation hangs. No end waits for those without an end (T10); of the others the runtime makes an end, or podshim one of
/// the runtime.
pub(super) fn hanging(random: &mut Rng, kind: OperationKind) -> Duration {
    let is_given_up = matches!(
        kind,
        OperationKind::Recreate
            | OperationKind::Start
            | OperationKind::StartExec
            | OperationKind::RunHook
            | OperationKind::Check
    );
    match is_given_up && random.percent(30) {
        true => Duration::from_secs(100_000),
        false if random.percent(50) => RUNTIME_LIMIT,
        false => Duration::from_secs(119),
    }
}

/// An operation that fails, is slow, or is reported as failed.
fn fault(random: &mut Rng, names: &[String]) -> Command {
    let kinds: Vec<_> = OperationKind::all().collect();
    let (name, kind) = (random.pick(names).clone(), *random.pick(&kinds));
    match random.below(3) {
        0 if kind.can_be_lost() => Command::Lose(name, kind),
        0 | 1 => Command::Fail(name, kind),
        // As long as a call of the runtime may take, or without an end; most are short.
        _ if random.percent(8) => Command::Slow(name, kind, hanging(random, kind)),
        _ => Command::Slow(name, kind, random.duration()),
    }
}

/// Any request, at any time, for any container.
fn any(random: &mut Rng, names: &[String]) -> Command {
    match random.below(66) {
        0..=3 => {
            let name = random.pick(names).clone();
            Command::Create(new(random, &name))
        }
        4 => Command::Create(new(random, "extra")),
        5..=7 => Command::Up(vec![random.pick(names).clone()]),
        8..=12 => Command::Start(target(random, names)),
        13..=15 => Command::Exec(some_id(random, names), (*random.pick(&["e1", "e2"])).into()),
        16..=23 => {
            let reach = *random.pick(&[Reach::Process, Reach::Process, Reach::All]);
            Command::Kill(target(random, names), signal(random), reach)
        }
        24 | 25 => Command::Wait(target(random, names)),
        26..=28 => Command::Delete(target(random, names)),
        29 => Command::Switch(random.pick(names).clone()),
        // R14. A name less would make other pods of every seed.
        30 => {
            let _ = random.pick(names);
            Command::Restart
        }
        31 => Command::Pause(some_id(random, names)),
        32 => Command::Freeze(some_id(random, names)),
        33 | 34 => Command::Resume(some_id(random, names)),
        35..=38 => Command::Exit(target(random, names), *random.pick(&[0, 1, 137])),
        39 => Command::OutOfMemory(some_id(random, names)),
        40..=42 => Command::StopContainer(some_id(random, names), random.duration()),
        43 => Command::StopPod(random.percent(50).then(|| random.duration())),
        44 => Command::Kill(
            Target::init(PAUSE.into()),
            *random.pick(&[Signal::TERM, Signal::KILL]),
            Reach::Process,
        ),
        45 => Command::Exit(Target::init(PAUSE.into()), 0),
        46 | 47 => {
            let after = *random.pick(&[AfterCheckpoint::LeaveRunning, AfterCheckpoint::End]);
            Command::Checkpoint(some_id(random, names), after)
        }
        48..=51 => fault(random, names),
        _ => Command::Advance(random.duration()),
    }
}
