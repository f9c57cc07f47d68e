//! Two callers in one pod: a kubelet that makes, stops and recreates containers, and crictl beside it; programs that decide
//! themselves how they end, and operations that are slow or hang.
//!
//! Owns which episodes there are, and how close together: the gaps lie around the windows of the rules. Each container is a
//! kubelet's, so that the rules about lone stops apply.

use std::collections::BTreeMap;
use std::time::Duration;

use fuzz_input::Rng;
use pod_lifecycle::{ContainerId, KubeletHook, KubeletType, Reach, Target};
use pod_spec::{RestartPolicy, Signal};

use super::callers::{add_kubelets_own, hanging};
use super::{plan, programs};
use crate::command::{Command, Scenario};
use crate::new_container::NewContainer;
use crate::operation_kind::OperationKind;
use crate::text::millis;

/// Between two acts: at once, inside of a window, at its last moment, just after it, and much later.
const GAPS: [u64; 14] = [0, 0, 1, 100, 500, 1000, 1499, 1500, 1999, 2000, 2000, 2001, 5000, 12_000];
/// How long crictl waits before SIGKILL; `crictl stop` without a time sends that alone.
const TIMES: [u64; 6] = [0, 0, 1000, 2000, 5000, 30_000];

/// The scenario of a seed and a policy; its last command ends everything.
pub fn scenario(policy: RestartPolicy, seed: u64) -> Scenario {
    let random = &mut Rng::new(seed ^ 0x07c0_c411_e500 ^ (policy as u64) << 56);
    let pod = plan::pod_of(random, policy);
    let mut commands = vec![pod.head.clone()];
    commands.extend(programs::commands(random, &pod.names));
    let mut callers = Callers { commands, made: BTreeMap::new(), names: pod.names, image: BTreeMap::new() };
    callers.start(random);
    for _ in 0..1 + random.below(7) {
        callers.episode(random);
        callers.wait(random);
    }
    add_kubelets_own(seed, &callers.names, &mut callers.commands);
    callers.commands.push(Command::End);
    Scenario(callers.commands)
}

struct Callers {
    commands: Vec<Command>,
    /// How many containers of a name were made.
    made: BTreeMap<String, u32>,
    names: Vec<String>,
    /// What a kubelet knows of a container.
    image: BTreeMap<String, NewContainer>,
}

impl Callers {
    fn wait(&mut self, random: &mut Rng) {
        let gap = millis(*random.pick(&GAPS));
        if !gap.is_zero() {
            self.commands.push(Command::Advance(gap));
        }
    }

    /// The kubelet makes all containers, in the order of the plan or another one.
    fn start(&mut self, random: &mut Rng) {
        let hooks = random.percent(20);
        for name in self.names.clone() {
            let mut new = NewContainer::named(&name);
            new.kubelet =
                Some(if hooks && random.percent(40) { KubeletHook::PreStop } else { KubeletHook::None });
            new.kubelet_grace = random.percent(50).then(|| millis(*random.pick(&[2000, 5000, 30_000])));
            if random.percent(4) {
                new.kubelet_type = Some(*random.pick(&[KubeletType::Init, KubeletType::Ephemeral]));
            }
            self.image.insert(name, new);
        }
        let mut order = self.names.clone();
        if random.percent(40) {
            random.shuffle(&mut order);
        }
        if random.percent(15) {
            order.pop();
        }
        for name in order {
            self.make(&name);
            if random.percent(30) {
                self.wait(random);
            }
        }
        self.wait(random);
    }

    fn make(&mut self, name: &str) {
        let Some(new) = self.image.get(name) else { return };
        let count = self.made.entry(name.to_owned()).or_default();
        *count += 1;
        let id: ContainerId = format!("{name}-{count}").as_str().into();
        let new = NewContainer { id: id.clone(), ..new.clone() };
        self.commands.extend([Command::Create(new), Command::Start(Target::init(id))]);
    }

    fn newest(&self, name: &str) -> ContainerId {
        format!("{name}-{}", self.made.get(name).copied().unwrap_or(1)).as_str().into()
    }

    fn any(&self, random: &mut Rng) -> String {
        random.pick(&self.names).clone()
    }

    /// StopContainer of a caller; with a time of zero SIGKILL alone (F3, F5).
    fn stop(&mut self, name: &str, time: Duration) {
        let id = self.newest(name);
        self.commands.push(if time.is_zero() {
            Command::Kill(Target::init(id), Signal::KILL, Reach::Process)
        } else {
            Command::StopContainer(id, time)
        });
    }

    fn episode(&mut self, random: &mut Rng) {
        let grace = millis(*random.pick(&[2000, 5000, 30_000]));
        match random.below(12) {
            // The kubelet replaces one: another image, or a probe.
            0 | 1 => {
                let name = self.any(random);
                self.stop(&name, grace);
                self.wait(random);
                self.make(&name);
            }
            // It replaces two in one sync.
            2 => {
                let (one, other) = (self.any(random), self.any(random));
                self.stop(&one, grace);
                self.wait(random);
                self.stop(&other, grace);
                self.wait(random);
                self.make(&one);
                self.make(&other);
            }
            // crictl stop, or rm -f.
            3 | 4 => {
                let name = self.any(random);
                self.stop(&name, millis(*random.pick(&TIMES)));
            }
            // Several, one after another.
            5 => {
                for _ in 0..2 + random.below(3) {
                    let name = self.any(random);
                    self.stop(&name, millis(*random.pick(&TIMES)));
                    self.wait(random);
                }
            }
            // The kubelet creates again what has ended by now; what has not, the shim refuses.
            6 | 7 => {
                for _ in 0..1 + random.below(3) {
                    let name = self.any(random);
                    self.make(&name);
                    self.wait(random);
                }
            }
            // A stop of all, which may be taken back by a create.
            8 => {
                let mut order = self.names.clone();
                random.shuffle(&mut order);
                for name in order {
                    self.stop(&name, grace);
                }
                self.wait(random);
                if random.percent(60) {
                    let name = self.any(random);
                    self.make(&name);
                }
            }
            // RestartAllContainers, or a pod whose containers are all created again in its sandbox.
            9 => {
                for name in self.names.clone() {
                    self.stop(&name, millis(2000));
                }
                self.commands.push(Command::Advance(millis(4000)));
                for name in self.names.clone() {
                    self.make(&name);
                }
            }
            10 => {
                let name = self.any(random);
                let exit = Command::Exit(Target::init(self.newest(&name)), *random.pick(&[0, 0, 1, 137]));
                self.commands.push(exit);
            }
            _ => self.trouble(random),
        }
    }

    /// An operation that is slow or hangs, a stop of the whole, or a request of an operator.
    fn trouble(&mut self, random: &mut Rng) {
        let name = self.any(random);
        match random.below(5) {
            0 | 1 => {
                const KINDS: [OperationKind; 6] = [
                    OperationKind::Recreate,
                    OperationKind::Start,
                    OperationKind::Create,
                    OperationKind::StartExec,
                    OperationKind::KillRemaining,
                    OperationKind::RunHook,
                ];
                let kind = *random.pick(&KINDS);
                let time = match random.below(3) {
                    0 => hanging(random, kind),
                    1 => millis(300),
                    _ => millis(2500),
                };
                self.commands.push(Command::Slow(name, kind, time));
            }
            2 => {
                let mut order: Vec<_> = self.names.iter().map(|name| self.newest(name)).collect();
                random.shuffle(&mut order);
                self.commands.push(Command::StopSandbox(order));
            }
            3 => self.commands.push(Command::StopPod(random.percent(50).then(|| random.duration()))),
            _ => self.commands.push(Command::Restart),
        }
    }
}
