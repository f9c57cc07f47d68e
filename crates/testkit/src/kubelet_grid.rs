//! Small pods under a kubelet with one fault at each moment at which something happens, and just after it.
//!
//! Owns which pods and faults there are. The moments are those of the same pod without a fault, so that none is left
//! out: a kill meets a start, the end of a grace, or the second between an exit and the kubelet's look at it.

use std::collections::BTreeSet;
use std::time::Duration;

use pod_spec::{RestartPolicy, Role};

use crate::command::{Command, Detail, PodCaller, Scenario};
use crate::kubelet::fault::Fault;
use crate::kubelet::{KubeletSetup, KubeletVersion, PodContainer, SpecPart};
use crate::operation_kind::OperationKind;
use crate::program::{OnStop, Program, Run, RunEnd};
use crate::simulator::Simulator;
use crate::text::millis;

/// The plans, with the roles of their containers.
const PLANS: [(&str, &[(&str, Role)]); 5] = [
    ("s=sidecar, m=main", &[("s", Role::Sidecar), ("m", Role::Main)]),
    ("i=init, s=sidecar, m=main", &[("i", Role::Init), ("s", Role::Sidecar), ("m", Role::Main)]),
    ("s=sidecar, t=sidecar, m=main", &[("s", Role::Sidecar), ("t", Role::Sidecar), ("m", Role::Main)]),
    ("s=sidecar, m=main, n=main", &[("s", Role::Sidecar), ("m", Role::Main), ("n", Role::Main)]),
    ("i=init, m=main", &[("i", Role::Init), ("m", Role::Main)]),
];

/// How programs react to a stop signal.
const MANNERS: [OnStop; 3] = [
    OnStop::Exits(RunEnd { code: 143, after: Duration::ZERO }),
    OnStop::Exits(RunEnd { code: 0, after: Duration::from_millis(1200) }),
    OnStop::Ignores,
];

/// What else is special about a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    /// Nothing: the kubelet lists its containers as the plan does.
    Plain,
    /// The mains are listed first, and the sidecar `s` has a gate.
    MainsFirst,
    /// The mains have a preStop hook, which holds back their stop signal.
    Hooked,
    /// A failure of any but an init ends the pod (R9).
    Fatal,
}

const SHAPES: [Shape; 4] = [Shape::Plain, Shape::MainsFirst, Shape::Hooked, Shape::Fatal];

/// `SETTLE` is longer than any of these pods needs; for `FIRST_SYNC` the pod without a fault is watched.
const SETTLE: Duration = Duration::from_secs(3600);
const FIRST_SYNC: Duration = Duration::from_secs(40);
const GRACE: Duration = Duration::from_secs(4);

/// All scenarios of one policy.
pub fn scenarios(version: KubeletVersion, policy: RestartPolicy) -> impl Iterator<Item = Scenario> {
    let pods = PLANS.iter().flat_map(move |(plan, members)| {
        MANNERS.iter().flat_map(move |manner| {
            SHAPES.into_iter().map(move |shape| {
                (pod(version, policy, plan, members, *manner, shape), faults(members, shape))
            })
        })
    });
    pods.flat_map(move |(head, faults)| {
        let moments = moments(&head);
        moments.into_iter().flat_map(move |moment| {
            let head = head.clone();
            faults.clone().into_iter().map(move |fault| {
                let mut commands = head.clone();
                // The fault comes when the kubelet begins, or later.
                commands.push(Command::Advance(moment));
                commands.extend(fault);
                commands.push(Command::Settle(SETTLE));
                Scenario(commands)
            })
        })
    })
}

fn pod(
    version: KubeletVersion,
    policy: RestartPolicy,
    plan: &str,
    members: &[(&str, Role)],
    on_stop: OnStop,
    shape: Shape,
) -> Vec<Command> {
    let mut annotations =
        vec![("plan".to_owned(), plan.to_owned()), ("restart-policy".to_owned(), format!("{policy:?}"))];
    if shape == Shape::MainsFirst && members.iter().any(|(name, _)| *name == "s") {
        annotations.push(("ready.s".to_owned(), "tcp::80;period=500ms;fail=9".to_owned()));
    }
    if shape == Shape::Fatal {
        let others = members.iter().filter(|(_, role)| *role != Role::Init);
        annotations.extend(others.map(|(name, _)| (format!("fatal.{name}"), "failure".to_owned())));
    }
    let mut commands =
        vec![Command::Pod { caller: PodCaller::CriWithCleanup, detail: Detail::Usual, annotations }];
    for (name, role) in members {
        let ends = match (role, policy) {
            (Role::Init, _) => Some(2000),
            (Role::Main, RestartPolicy::Always) | (Role::Sidecar, _) => None,
            (Role::Main, _) => Some(if *name == "m" { 5300 } else { 9100 }),
        };
        let ends = ends.map(|after| RunEnd { code: 0, after: millis(after) });
        let run = Run { ends, on_stop, ..Run::default() };
        // A sidecar gets ready late the first time.
        let first = Run { ready_after: Some(millis(2000)), ..run.clone() };
        let runs = if *role == Role::Sidecar { vec![first, run] } else { vec![run] };
        commands.push(Command::Program((*name).to_owned(), Program::new(runs)));
    }
    let mut containers: Vec<_> = members
        .iter()
        .map(|(name, role)| PodContainer {
            part: match (version, role) {
                (KubeletVersion::Unaware, _) | (_, Role::Main) => SpecPart::Regular,
                (KubeletVersion::Aware, Role::Init) => SpecPart::Init,
                (KubeletVersion::Aware, Role::Sidecar) => SpecPart::Sidecar,
            },
            has_startup_probe: version == KubeletVersion::Aware
                && shape == Shape::MainsFirst
                && *role == Role::Sidecar,
            hook: (shape == Shape::Hooked && *role == Role::Main).then_some(millis(1000)),
            ..PodContainer::named(name)
        })
        .collect();
    if shape == Shape::MainsFirst && version == KubeletVersion::Unaware {
        containers.reverse();
    }
    commands.push(Command::Kubelet(KubeletSetup { version, policy, seed: 0, grace: GRACE, containers }));
    commands
}

/// The moments at which something happens to that pod without a fault, and the middle between each two.
fn moments(head: &[Command]) -> BTreeSet<Duration> {
    let mut simulator = Simulator::default();
    let commands = head.iter().cloned().chain([Command::Advance(FIRST_SYNC)]);
    // A run that fails here fails in each of the scenarios.
    let _ = simulator.run(&Scenario(commands.collect()));
    let mut moments: BTreeSet<Duration> =
        simulator.take_trace().iter().filter_map(|line| time_of(line)).collect();
    moments.insert(Duration::ZERO);
    let all: Vec<_> = moments.iter().copied().collect();
    moments.extend(all.windows(2).map(|pair| pair[0] + (pair[1] - pair[0]) / 2));
    moments.extend(all.last().map(|last| *last + millis(700)));
    moments
}

fn time_of(line: &str) -> Option<Duration> {
    let (seconds, milliseconds) = line.split(' ').next()?.split_once('.')?;
    Some(Duration::from_secs(seconds.parse().ok()?) + millis(milliseconds.parse().ok()?))
}

/// The faults of the pod, each at one moment.
fn faults(members: &[(&str, Role)], shape: Shape) -> Vec<Vec<Command>> {
    let fault = |fault| Command::Fault(fault);
    let mut faults = vec![
        vec![fault(Fault::Restart(millis(3000)))],
        vec![fault(Fault::Delete(GRACE))],
        vec![fault(Fault::Evict)],
        vec![fault(Fault::RestartAll)],
        vec![
            fault(Fault::Delete(GRACE)),
            Command::Advance(millis(1000)),
            fault(Fault::Restart(millis(1000))),
        ],
    ];
    for (name, role) in members {
        let name = (*name).to_owned();
        let probe = || fault(Fault::Liveness(name.clone()));
        let image = || fault(Fault::Image(name.clone()));
        faults.extend([
            vec![probe()],
            vec![image()],
            vec![fault(Fault::Startup(name.clone()))],
            vec![fault(Fault::OutOfMemory(name.clone()))],
            vec![Command::Fail(name.clone(), OperationKind::Create)],
            vec![Command::Fail(name.clone(), OperationKind::Start)],
            vec![fault(Fault::Forget(name.clone()))],
            vec![fault(Fault::Crash(name.clone(), 0))],
            vec![fault(Fault::Crash(name.clone(), 1))],
            // In the middle of the kubelet's kill.
            vec![probe(), Command::Advance(millis(1100)), fault(Fault::Restart(millis(1000)))],
            vec![image(), Command::Advance(millis(1100)), fault(Fault::Restart(millis(1000)))],
            vec![fault(Fault::Pull(name.clone(), Duration::from_secs(20))), image()],
            // The kubelet's create or start after its own kill fails.
            vec![Command::Fail(name.clone(), OperationKind::Create), probe()],
            vec![Command::Fail(name.clone(), OperationKind::Start), image()],
        ]);
        // Without an init or a sidecar no policy promises anything, nor if the main's failure is fatal each time.
        if *role == Role::Main && shape != Shape::Fatal {
            faults.push(vec![fault(Fault::Broken(name.clone(), OperationKind::Create))]);
            faults.push(vec![fault(Fault::Broken(name.clone(), OperationKind::Start))]);
        }
        for (other, _) in members.iter().filter(|(other, _)| *other != name) {
            faults.push(vec![probe(), fault(Fault::Liveness((*other).to_owned()))]);
        }
    }
    faults
}
