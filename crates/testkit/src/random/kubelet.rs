//! Random pods under a kubelet, with one kind of fault for each run. Owns how plan, containers, programs and faults come together;
//! `kubelet` knows what the result must be.

use std::time::Duration;

use pod_spec::{CodeSet, RestartMode, RestartPolicy, Role};

use super::faults::{FaultKind, HANGING, faults, slow};
use super::injected::{self, INJECTED};
use super::kubelets_programs::program;
use super::plan;
use super::run::KubeletRun;
use crate::command::{Command, Detail, PodCaller, Scenario};
use crate::kubelet::fault::Fault;
use crate::kubelet::{KubeletSetup, KubeletVersion, PodContainer, SpecPart};
use crate::text::millis;
use fuzz_input::Rng;

/// Longer than a pod needs that waits for replaced containers (5 min) after back-offs of 5 min each.
const SETTLE: Duration = Duration::from_secs(3600);

impl KubeletRun {
    /// The scenario of this run.
    pub fn scenario(self) -> Scenario {
        // Each kind and policy has pods of its own.
        let stream =
            (self.kind.place() as u64) << 48 | (self.policy as u64) << 56 | (self.version as u64) << 60;
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
        let injected = injected::init(self);
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
            commands.push(Command::Program(name.to_owned(), injected::program(self)));
        }
        let mut after = faults.after;
        let facts = injected::facts(&mut setup, &mut after, self);
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

/// Between two faults.
fn pause(random: &mut Rng) -> Duration {
    const PAUSES: [u64; 12] = [0, 50, 400, 1000, 1000, 2000, 3000, 5000, 7000, 11_000, 20_000, 31_000];
    millis(*random.pick(&PAUSES))
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
