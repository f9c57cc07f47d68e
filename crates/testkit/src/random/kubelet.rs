//! Random pods under a kubelet: plans, programs that behave in the end, and one kind of fault for each run. Owns what
//! is tried and how often; `kubelet` knows what the result must be.

use std::fmt;
use std::time::Duration;

use pod_spec::{CodeSet, RestartMode, RestartPolicy, Role};

use super::plan;
use crate::command::{Command, Detail, PodCaller, Scenario};
use crate::kubelet::fault::Fault;
use crate::kubelet::{KubeletSetup, KubeletVersion, PodContainer, SpecPart};
use crate::operation_kind::OperationKind;
use crate::program::{OnStop, Program, Run, RunEnd};
use crate::text::millis;
use crate::world::RUNTIME_LIMIT;
use fuzz_input::Rng;

/// Longer than a pod needs that waits for replaced containers (5 min) after back-offs of 5 min each.
const SETTLE: Duration = Duration::from_secs(3600);

/// A run: the same values give the same run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KubeletRun {
    /// What the kubelet knows of sidecars.
    pub version: KubeletVersion,
    /// The pod's restart policy, and the plan's.
    pub policy: RestartPolicy,
    /// What befalls the pod.
    pub kind: FaultKind,
    /// Everything else.
    pub seed: u64,
}

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

impl KubeletRun {
    /// The scenario of this run.
    pub fn scenario(self) -> Scenario {
        // Each kind and policy has pods of its own.
        let place = FAULT_KINDS.iter().position(|(_, kind)| *kind == self.kind).unwrap_or_default();
        let stream = (place as u64) << 48 | (self.policy as u64) << 56 | (self.version as u64) << 60;
        let random = &mut Rng::new(self.seed ^ stream);
        let extra = match self.kind {
            FaultKind::Fatal => plan::Extra::Fatal,
            // A kubelet that knows native sidecars creates mains last: a container that waits for one would never
            // start.
            FaultKind::Keys if self.version == KubeletVersion::Unaware => plan::Extra::Rest,
            _ => plan::Extra::None,
        };
        let mut pod = plan::kubelet_pod(random, self.policy, extra);
        self.own_policies(&mut pod);
        let injected = self.injected();
        if injected == Some(INJECTED) {
            pod.annotations.push((format!("role.{INJECTED}"), "none".to_owned()));
        }
        let annotations = pod.annotations.clone();
        let head = Command::Pod { caller: PodCaller::CriWithCleanup, detail: Detail::Usual, annotations };
        let mut commands = vec![head];
        for (name, role) in &pod.members {
            let program = program(random, *role, self, own_policy(self, &pod, name));
            commands.push(Command::Program(name.clone(), program));
        }
        if random.percent(25) {
            let (name, _) = random.pick(&pod.members).clone();
            // T18 wants every container to have ended, and one whose create hangs has not.
            let hangs = self.kind != FaultKind::RestartAll && random.percent(20);
            commands.push(slow(random, name, hangs.then_some(HANGING)));
        }
        let names: Vec<String> = pod.members.iter().map(|(name, _)| name.clone()).collect();
        let mains: Vec<String> = pod
            .members
            .iter()
            .filter(|(_, role)| *role == Role::Main)
            .map(|(name, _)| name.clone())
            .collect();
        let faults = faults(random, self.kind, &names, &mains);
        commands.extend(faults.before);
        let mut setup = setup(random, self, &pod.members);
        for container in &mut setup.containers {
            container.own_policy = own_policy(self, &pod, &container.name);
        }
        if let Some(name) = injected {
            let container = PodContainer { part: SpecPart::Init, ..PodContainer::named(name) };
            setup.containers.insert(0, container);
            commands.push(Command::Program(name.to_owned(), self.injected_program()));
        }
        let mut after = faults.after;
        let facts = facts(&mut setup, &mut after, self);
        commands.extend(facts.programs);
        commands.push(Command::Kubelet(setup));
        commands.extend(facts.of_object);
        for command in after {
            commands.extend([Command::Advance(pause(random)), command]);
        }
        if faults.more {
            commands.push(Command::Advance(pause(random)));
        }
        commands.push(Command::Settle(SETTLE));
        if self.policy == RestartPolicy::Always && random.percent(50) {
            let grace = *random.pick(&[2, 5, 30]);
            commands
                .extend([Command::Fault(Fault::Delete(Duration::from_secs(grace))), Command::Settle(SETTLE)]);
        }
        Scenario(commands)
    }
}

/// An injector's init that only its annotation calls the kubelet's own.
const INJECTED: &str = "injected";

impl KubeletRun {
    /// S8: the name of an init of an injector's, which the plan does not name.
    fn injected(self) -> Option<&'static str> {
        const NAMES: [Option<&str>; 8] =
            [Some("istio-init"), None, None, None, Some(INJECTED), None, None, None];
        NAMES[(self.seed % NAMES.len() as u64) as usize]
    }

    fn injected_program(self) -> Program {
        let ends = |code| Run { ends: Some(RunEnd { code, after: millis(300) }), ..Run::default() };
        let fails = self.policy != RestartPolicy::Never && self.seed.is_multiple_of(3);
        Program::new(if fails { vec![ends(1), ends(0)] } else { vec![ends(0)] })
    }

    /// KEP-5307: some containers have a policy of their own, which kubelets of 1.34 and later know.
    fn own_policies(self, pod: &mut plan::KubeletPod) {
        if self.version == KubeletVersion::Unaware || self.kind == FaultKind::Fatal {
            return;
        }
        let other = if self.seed.is_multiple_of(2) { RestartPolicy::OnFailure } else { RestartPolicy::Never };
        let of_init =
            if self.policy == RestartPolicy::Never { RestartPolicy::OnFailure } else { RestartPolicy::Never };
        match self.seed % 7 {
            1 => pod.has_own_policy(Role::Init, self.policy, of_init),
            // One whose command does not exist is retried for ever.
            4 if self.policy == RestartPolicy::Always && self.kind != FaultKind::Broken => {
                pod.has_own_policy(Role::Main, self.policy, other);
            }
            _ => {}
        }
    }
}

/// What an agent knows of the pod's object.
#[derive(Default)]
struct Facts {
    programs: Vec<Command>,
    of_object: Vec<Command>,
}

/// S15: an init of an injector's that has no well-known name, and a container of `kubectl debug` with a name of its own. An agent names all
/// that the pod's object has of these, soon after the kubelet has begun. By numbers of its own: other seeds keep their pods.
fn facts(setup: &mut KubeletSetup, after: &mut [Command], run: KubeletRun) -> Facts {
    let random = &mut Rng::new(run.seed ^ 0x515_fac7 ^ (run.policy as u64) << 56);
    if !random.percent(30) {
        return Facts::default();
    }
    let mut facts = Facts::default();
    if run.version == KubeletVersion::Aware {
        let inject = PodContainer { part: SpecPart::Init, ..PodContainer::named("inject") };
        setup.containers.insert(0, inject);
        let ends = Some(RunEnd { code: 0, after: millis(*random.pick(&[0, 300, 5000])) });
        let runs = vec![Run { ends, ..Run::default() }];
        facts.programs.push(Command::Program("inject".to_owned(), Program::new(runs)));
    }
    let own = setup.containers.iter().filter(|container| container.part != SpecPart::Regular);
    let mut names: Vec<String> = own.map(|container| container.name.clone()).collect();
    let pause = millis(*random.pick(&[0, 0, 10, 200, 1000, 4000, 15_000]));
    if !names.is_empty() {
        facts.of_object = vec![Command::Advance(pause), Command::KubeletsOwn(names.clone())];
    }
    // It has the pod's object as soon as the kubelet has it.
    if let Some(place) = after.iter().position(|it| matches!(it, Command::Fault(Fault::Debug(_)))) {
        names.push("look".to_owned());
        after[place] = Command::Fault(Fault::Debug("look".to_owned()));
        facts.of_object.push(Command::KubeletsOwn(names));
    }
    facts
}

/// As long as the runtime lets an operation hang.
const HANGING: Duration = Duration::from_secs(119);

/// An operation of podshim's own that is slow, or that hangs for as long as the runtime lets it.
fn slow(random: &mut Rng, name: String, hanging: Option<Duration>) -> Command {
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

/// A container's own restart policy (KEP-5307). Of an init, and of a main under Always, it is what the plan's `restart` says. Of a main
/// under OnFailure it is Never where that says that its failure ends it (J1); under Never its kubelet may recreate it (J11), unless
/// `gate-timeout` works against that (`fairness`).
fn own_policy(run: KubeletRun, pod: &plan::KubeletPod, name: &str) -> Option<RestartPolicy> {
    let role = pod.members.iter().find(|(other, _)| other == name).map(|(_, role)| *role)?;
    let plan = plan::parse(&pod.annotations)?.plan?;
    let restart = plan.member(name)?.1.restart;
    let is_aware = run.version == KubeletVersion::Aware;
    let ends = restart.is_some_and(|restart| match restart.mode {
        RestartMode::Never => true,
        RestartMode::OnFailure => restart.codes != CodeSet::FAILURES,
        RestartMode::Always | RestartMode::Visible => false,
    });
    match (role, run.policy) {
        (Role::Init, _) | (Role::Main, RestartPolicy::Always) if is_aware => match restart?.mode {
            RestartMode::Never => Some(RestartPolicy::Never),
            RestartMode::OnFailure => Some(RestartPolicy::OnFailure),
            RestartMode::Always | RestartMode::Visible => None,
        },
        (Role::Main, RestartPolicy::OnFailure) if ends => Some(RestartPolicy::Never),
        // One whose command does not exist is retried for ever.
        (Role::Main, RestartPolicy::Never)
            if is_aware
                && restart.is_none()
                && run.kind != FaultKind::Broken
                && plan.settings.gate_timeout.is_none() =>
        {
            run.seed.is_multiple_of(3).then_some(RestartPolicy::OnFailure)
        }
        _ => None,
    }
}

fn setup(random: &mut Rng, run: KubeletRun, members: &[(String, Role)]) -> KubeletSetup {
    let part = |role| match role {
        _ if run.version == KubeletVersion::Unaware => SpecPart::Regular,
        Role::Init => SpecPart::Init,
        Role::Sidecar => SpecPart::Sidecar,
        Role::Main => SpecPart::Regular,
    };
    let container =
        |(name, role): &(String, Role)| PodContainer { part: part(*role), ..PodContainer::named(name) };
    let mut containers: Vec<_> = members.iter().map(container).collect();
    match run.version {
        // The order of the spec is not that of the plan (U10).
        KubeletVersion::Unaware => random.shuffle(&mut containers),
        // But the order of its init containers is.
        KubeletVersion::Aware => containers.sort_by_key(|container| container.part == SpecPart::Regular),
    }
    for container in &mut containers {
        container.has_startup_probe = container.part == SpecPart::Sidecar && random.percent(30);
        if random.percent(10) {
            container.hook = Some(*random.pick(&[millis(100), millis(1500), millis(4000)]));
        }
    }
    KubeletSetup {
        version: run.version,
        policy: run.policy,
        seed: random.below(1 << 20) as u64,
        grace: Duration::from_secs(*random.pick(&[2, 5, 10, 30])),
        containers,
    }
}

/// Faults before and after the kubelet begins, each after a pause.
#[derive(Default)]
struct Faults {
    before: Vec<Command>,
    after: Vec<Command>,
    /// Whether time passes before the faults are over.
    more: bool,
}

fn faults(random: &mut Rng, kind: FaultKind, names: &[String], mains: &[String]) -> Faults {
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

/// Between two faults.
fn pause(random: &mut Rng) -> Duration {
    const PAUSES: [u64; 12] = [0, 50, 400, 1000, 1000, 2000, 3000, 5000, 7000, 11_000, 20_000, 31_000];
    millis(*random.pick(&PAUSES))
}

/// A program that may fail at first, and behaves in the end.
fn program(random: &mut Rng, role: Role, run: KubeletRun, own: Option<RestartPolicy>) -> Program {
    let mut runs = Vec::new();
    let fails_often =
        matches!(run.kind, FaultKind::Fatal | FaultKind::Crash | FaultKind::Unready | FaultKind::Keys);
    let chance = if fails_often { 60 } else { 25 };
    // I2, and a main under Never: the first failure is the last run.
    let once = own.unwrap_or(run.policy) == RestartPolicy::Never && role != Role::Sidecar;
    if random.percent(chance) && !once {
        for _ in 0..1 + random.below(3) {
            runs.push(bad_run(random, role, run.kind));
        }
    }
    let mut last = good_run(random, role, own.unwrap_or(run.policy));
    // With `restart=on-failure` podshim would try it for ever.
    if once && run.kind != FaultKind::Keys && random.percent(chance / 2) {
        last.ends = Some(RunEnd { code: *random.pick(&[1, 3, 137]), after: length(random) });
    }
    runs.push(last);
    Program::new(runs)
}

fn bad_run(random: &mut Rng, role: Role, kind: FaultKind) -> Run {
    let mut run = good_run(random, role, RestartPolicy::Always);
    if role == Role::Sidecar && (kind == FaultKind::Unready || random.percent(30)) {
        run.ready_after = random.percent(30).then(|| Duration::from_secs(45));
        return run;
    }
    // A 0 that is shown tells a kubelet that the container is done.
    let may_end_well = role == Role::Sidecar && kind != FaultKind::Keys;
    let code = if may_end_well { *random.pick(&[0, 1, 143]) } else { *random.pick(&[1, 3, 137]) };
    run.ends = Some(RunEnd { code, after: length(random) });
    run
}

fn good_run(random: &mut Rng, role: Role, policy: RestartPolicy) -> Run {
    let ends = role == Role::Init || (role == Role::Main && policy != RestartPolicy::Always);
    let stop = RunEnd {
        code: *random.pick(&[0, 0, 143, 143, 1]),
        after: *random.pick(&[millis(0), millis(0), millis(400), millis(3000)]),
    };
    Run {
        ends: ends.then(|| RunEnd { code: 0, after: length(random) }),
        on_stop: if random.percent(15) { OnStop::Ignores } else { OnStop::Exits(stop) },
        ready_after: Some(Duration::ZERO),
        exec_after: if random.percent(80) { Duration::ZERO } else { millis(300) },
    }
}

/// How long a program that ends runs.
fn length(random: &mut Rng) -> Duration {
    const LENGTHS: [u64; 10] = [0, 20, 400, 1000, 3000, 7000, 20_000, 20_000, 45_000, 90_000];
    millis(*random.pick(&LENGTHS))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fairness::is_fair;

    fn runs() -> impl Iterator<Item = KubeletRun> {
        let policies = [RestartPolicy::Always, RestartPolicy::OnFailure, RestartPolicy::Never];
        let kubelets = [KubeletVersion::Unaware, KubeletVersion::Aware];
        kubelets.into_iter().flat_map(move |version| {
            policies.into_iter().flat_map(move |policy| {
                FaultKind::all()
                    .flat_map(move |kind| (0..20).map(move |seed| KubeletRun { version, policy, kind, seed }))
            })
        })
    }

    /// A failing run is kept as its text, and each run asks for something that can come true.
    #[test]
    fn each_run_is_its_text_and_is_fair() {
        for run in runs() {
            let scenario = run.scenario();
            let text = scenario.to_string();
            assert_eq!(Scenario::parse(text.lines()).map(|read| read.to_string()), Ok(text.clone()));
            assert!(is_fair(&scenario.0), "{run:?}\n{text}");
        }
    }

    #[test]
    fn every_trouble_is_tried() {
        let text: String = runs().map(|run| run.scenario().to_string()).collect();
        for word in [
            "liveness",
            "startup",
            "image",
            "pull",
            "forget",
            "broken",
            "crash",
            "oom",
            "restart",
            "delete",
            "evict",
            "restart-all",
            "debug",
            "crictl",
            "debug look",
        ] {
            assert!(text.contains(&format!("\nfault {word}")), "no {word}");
        }
        for word in [
            "\nfail ",
            "\nslow ",
            "\nkubelets-own ",
            " inject/init",
            "/init",
            "/sidecar/startup",
            "/hook=",
            "never-ready",
            "fatal.",
        ] {
            assert!(text.contains(word), "no {word:?}");
        }
    }
}
