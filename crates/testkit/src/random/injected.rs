//! What a pod under a kubelet has beside its plan: an injector's init, and a container of `kubectl debug`. Owns how they are called, and
//! how podshim is to learn that they are the kubelet's own (S8, S15).

use pod_spec::RestartPolicy;

use super::run::KubeletRun;
use crate::command::Command;
use crate::kubelet::fault::Fault;
use crate::kubelet::{KubeletSetup, KubeletVersion, PodContainer, SpecPart};
use crate::program::{Program, Run, RunEnd};
use crate::text::millis;
use fuzz_input::Rng;

/// An injector's init that only its annotation calls the kubelet's own.
pub(super) const INJECTED: &str = "injected";

/// S8: the name of an init of an injector's, which the plan does not name.
pub(super) fn init(run: KubeletRun) -> Option<&'static str> {
    const NAMES: [Option<&str>; 8] = [Some("istio-init"), None, None, None, Some(INJECTED), None, None, None];
    NAMES[(run.seed % NAMES.len() as u64) as usize]
}

/// Its program.
pub(super) fn program(run: KubeletRun) -> Program {
    let ends = |code| Run { ends: Some(RunEnd { code, after: millis(300) }), ..Run::default() };
    let fails = run.policy != RestartPolicy::Never && run.seed.is_multiple_of(3);
    Program::new(if fails { vec![ends(1), ends(0)] } else { vec![ends(0)] })
}

/// What an agent knows of the pod's object.
#[derive(Default)]
pub(super) struct Facts {
    pub(super) programs: Vec<Command>,
    pub(super) of_object: Vec<Command>,
}

/// S15: an init of an injector's that has no well-known name, and a container of `kubectl debug` with a name of its own. An agent names all
/// that the pod's object has of these, soon after the kubelet has begun. By numbers of its own: other seeds keep their pods.
pub(super) fn facts(setup: &mut KubeletSetup, after: &mut [Command], run: KubeletRun) -> Facts {
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
