//! The final state of a pod once all faults are over, by its policy alone.
//!
//! Owns the promise and the words for what is in its way. It looks at what CRI lists, at which programs run, and, only
//! for the words, at why the shim holds a container.

use std::collections::BTreeSet;

use pod_lifecycle::{ContainerId, Pod, PodTime};
use pod_spec::{Plan, RestartPolicy, Role, ZeroGrace};

use super::cri::START_ERROR;
use super::status::{Listed, State};
use super::sync::is_started_again;
use super::{Kubelet, KubeletVersion, SpecPart, WorkerState};

/// The code of a container whose program podshim does not run (J9).
const NEVER_RAN: u32 = 125;
/// The code of what SIGKILL has ended.
const KILLED: u32 = 137;

impl Kubelet {
    /// Whether the pod has ended, including its sandbox.
    pub(crate) fn is_over(&self) -> bool {
        matches!(self.worker, WorkerState::Over)
    }

    /// When it last began to create a container, unless it never stops doing so.
    pub(crate) fn last_start(&self) -> Option<PodTime> {
        self.broken.is_empty().then_some(self.last_start)
    }

    /// What keeps the pod from its promise.
    pub(crate) fn unkept(&self, plan: Option<&Plan>, pod: &Pod) -> Option<String> {
        let policy = self.setup.policy;
        if let Some(collateral) = self.collateral(plan).or_else(|| self.not_run_again(plan)) {
            return Some(collateral);
        }
        let own_init_failed = self.init_of_own_policy_has_failed();
        match (self.is_over(), self.has_been_ordered_to_end(), policy) {
            (true, true, _) => self.outlasted(),
            // I2: with `restart.c=never` an init's failure fails the pod under any policy.
            (true, false, _) if own_init_failed => None,
            (false, false, _) if own_init_failed => {
                Some(self.in_the_way(plan, pod, "the pod whose init has failed does not end"))
            }
            (true, false, RestartPolicy::Always) if self.mains_are_done(plan) => None,
            (true, false, RestartPolicy::Always) => Some("Always: the pod has ended".to_owned()),
            (true, false, _) => self.mains_unkept(plan),
            (false, true, _) => Some(self.in_the_way(plan, pod, "the pod that was to end has not")),
            (false, false, RestartPolicy::Never) => {
                Some(self.in_the_way(plan, pod, "Never: the pod does not end"))
            }
            (false, false, RestartPolicy::OnFailure) if self.broken.is_empty() => {
                Some(self.in_the_way(plan, pod, "OnFailure: the pod does not end"))
            }
            (false, false, RestartPolicy::OnFailure) => self.rest_unkept(plan, pod),
            (false, false, RestartPolicy::Always) => self.not_serving(plan, pod),
        }
    }

    /// T5: an ordered end took too long.
    fn outlasted(&self) -> Option<String> {
        let by = self.must_have_ended_by()?;
        let late = self.cri.listed().all().find(|listed| match listed.state {
            State::Exited { at, .. } => at > by,
            State::Created | State::Running => true,
        })?;
        Some(format!("{} outlasts the pod's grace", late.id))
    }

    /// T18: an init that its kubelet has removed together with all other containers runs again, if the kubelet makes it before what
    /// comes after it.
    fn not_run_again(&self, plan: Option<&Plan>) -> Option<String> {
        let init = self.still_owed().filter(|_| !self.has_been_ordered_to_end() && self.broken.is_empty())?;
        let place =
            |container: usize| plan?.member(&self.setup.containers[container].name).map(|(place, _)| place);
        let is_before =
            |before: usize| self.role(plan, before) == Some(Role::Init) && place(before) < place(init);
        let comes_first = self.setup.version == KubeletVersion::Aware || (0..init).all(is_before);
        // I2: another init has failed, and nothing starts any more.
        let ended_unrun = self
            .cri
            .listed()
            .newest(init)
            .is_some_and(|newest| matches!(newest.state, State::Exited { code: NEVER_RAN, .. }));
        if ended_unrun || self.is_over() && self.init_has_failed(plan) {
            return None;
        }
        (comes_first && !has_fatal(plan) && self.role(plan, init) == Some(Role::Init)).then(|| {
            format!("init {} has not run again, though all were restarted", self.setup.containers[init].name)
        })
    }

    /// T12a: the stop of one container of several ends no other.
    fn collateral(&self, plan: Option<&Plan>) -> Option<String> {
        let alone = self.ledger.killed.len() == 1 && self.ending.is_none();
        if !alone || self.ends_others(plan) {
            return None;
        }
        let others = self.cri.listed().all().filter(|listed| !self.ledger.killed.contains(&listed.id));
        others.into_iter().find_map(|listed| {
            let name = &self.setup.containers[listed.container].name;
            let ended_unrun = match listed.state {
                State::Exited { code, .. } => {
                    !matches!(code, START_ERROR | NEVER_RAN) && !self.ledger.ran.contains(&listed.id)
                }
                State::Created | State::Running => false,
            };
            match self.role(plan, listed.container) {
                Some(Role::Main) if ended_unrun => {
                    Some(format!("main {name} has ended without having run, for another one's kill"))
                }
                _ => None,
            }
        })
    }

    /// J1, J6: whether the mains of a pod that has ended have kept the promise.
    fn mains_unkept(&self, plan: Option<&Plan>) -> Option<String> {
        let policy = self.setup.policy;
        (0..self.setup.containers.len()).filter(|container| self.role(plan, *container) == Some(Role::Main)).find_map(
            |container| {
                let newest = self.cri.listed().newest(container)?;
                let State::Exited { code, .. } = newest.state else { return None };
                // J11: a main that was recreated after the end of the pod shows what it ended with before.
                let earlier = |ids: &BTreeSet<ContainerId>| {
                    (1..=self.attempts[container]).any(|attempt| ids.contains(&self.id_of(container, attempt)))
                };
                let has_run = earlier(&self.ledger.ran);
                let excused = code == START_ERROR
                    || code == NEVER_RAN
                    || self.ledger.killed.contains(&newest.id)
                    || (code == KILLED && self.pod_was_stopped(plan))
                    || self.ends_others(plan);
                match policy {
                    // J11: its kubelet has made it again until it succeeded.
                    RestartPolicy::Never if self.is_retried(container) && !excused && !self.init_has_failed(plan) => {
                        let ended = self.has_completed(container);
                        (!ended).then(|| format!("Never: main {} is given up, and is retried", newest.id))
                    }
                    _ if self.setup.containers[container].own_policy.is_some() => None,
                    RestartPolicy::OnFailure if !self.has_completed(container) => {
                        Some(format!("OnFailure: main {} is shown as completed, and is not", newest.id))
                    }
                    RestartPolicy::Never if !has_run && !excused => Some(format!(
                        "Never: main {} has ended with {code} without having run, and the kubelet did not kill it",
                        newest.id
                    )),
                    _ => None,
                }
            },
        )
    }

    /// T12a: whether callers have stopped a main and a sidecar, which is a stop of the pod. Its time ends a main whose start hangs
    /// (T10, T19).
    fn pod_was_stopped(&self, plan: Option<&Plan>) -> bool {
        let was_stopped = |role| {
            (0..self.setup.containers.len()).filter(|it| self.role(plan, *it) == Some(role)).any(
                |container| {
                    let mut ids =
                        (1..=self.attempts[container]).map(|attempt| self.id_of(container, attempt));
                    ids.any(|id| self.ledger.killed.contains(&id))
                },
            )
        };
        was_stopped(Role::Main) && was_stopped(Role::Sidecar)
    }

    /// I2: whether an init has failed, or a caller has stopped it, so that its kubelet ends the pod.
    fn init_has_failed(&self, plan: Option<&Plan>) -> bool {
        (0..self.setup.containers.len()).filter(|it| self.role(plan, *it) == Some(Role::Init)).any(|init| {
            let newest = self.cri.listed().newest(init).map(|newest| newest.state);
            let mut ids = (1..=self.attempts[init]).map(|attempt| self.id_of(init, attempt));
            // Its last attempt could not be created, or not started.
            let attempt = self.attempts[init];
            let is_refused = attempt > 0 && !self.cri.has_started(&self.id_of(init, attempt));
            is_refused
                || matches!(newest, Some(State::Exited { code, .. }) if code != 0)
                || ids.any(|id| self.ledger.killed.contains(&id))
        })
    }

    /// KEP-5307: whether an init that is not restarted, in a pod whose containers are, has failed.
    fn init_of_own_policy_has_failed(&self) -> bool {
        self.setup.policy != RestartPolicy::Never
            && self.setup.containers.iter().enumerate().any(|(container, spec)| {
                let has_failed = match self.cri.listed().newest(container).map(|newest| newest.state) {
                    // It was removed after its pod had ended.
                    None => self.is_over() && self.attempts[container] > 0,
                    Some(State::Exited { code, .. }) => code != 0,
                    Some(State::Created | State::Running) => false,
                };
                spec.part == SpecPart::Init && spec.own_policy == Some(RestartPolicy::Never) && has_failed
            })
    }

    /// KEP-5307: whether each main has ended and is not restarted by its own policy, in a pod whose other containers are.
    fn mains_are_done(&self, plan: Option<&Plan>) -> bool {
        let mut mains =
            (0..self.setup.containers.len()).filter(|it| self.role(plan, *it) == Some(Role::Main));
        // One that was removed after its pod had ended is done.
        mains.all(|main| match self.cri.listed().newest(main) {
            None => self.setup.containers[main].own_policy.is_some(),
            Some(_) => self.is_done(main),
        })
    }

    /// KEP-5307: whether a main has ended and is not restarted by its own policy.
    fn is_done(&self, main: usize) -> bool {
        self.setup.containers[main].own_policy.is_some_and(|own| {
            let newest = self.cri.listed().newest(main);
            newest.is_some_and(|newest| {
                matches!(newest.state, State::Exited { .. }) && !is_started_again(newest, own)
            })
        })
    }

    /// KEP-5307.
    fn is_retried(&self, container: usize) -> bool {
        self.setup.containers[container].own_policy == Some(RestartPolicy::OnFailure)
    }

    /// OnFailure: whether any task of a main has exited with 0. A 0 after the kubelet's own stop signal counts only if
    /// the kubelet did not recreate the main (T15).
    fn has_completed(&self, container: usize) -> bool {
        let newest = self.cri.listed().newest(container).map(|newest| &newest.id);
        (1..=self.attempts[container]).any(|attempt| {
            let id = self.id_of(container, attempt);
            let was_stopped = self.cri.listed().get(&id).is_some_and(|listed| listed.was_signalled)
                && !self.ledger.given_up.contains(&id);
            let counts = Some(&id) == newest || !was_stopped;
            counts && self.ledger.ended_well.contains(&id)
        })
    }

    /// OnFailure with a main whose command does not exist: the others are done, and their sidecars live.
    fn rest_unkept(&self, plan: Option<&Plan>, pod: &Pod) -> Option<String> {
        if has_fatal(plan) {
            return None;
        }
        let fault = (0..self.setup.containers.len()).find(|container| {
            let newest = self.cri.listed().newest(*container);
            match self.role(plan, *container) {
                _ if self.broken.contains(container) => false,
                None if self.is_no_work_of_the_pod(*container) => false,
                Some(Role::Sidecar) => !newest.is_some_and(|newest| self.serves(newest)),
                Some(Role::Init) if newest.is_none() => false,
                _ => !newest.is_some_and(|newest| matches!(newest.state, State::Exited { code: 0, .. })),
            }
        });
        fault.map(|_| self.in_the_way(plan, pod, "OnFailure, with a main that cannot be started"))
    }

    /// Always: every main and sidecar runs, and completed inits stay as they are.
    fn not_serving(&self, plan: Option<&Plan>, pod: &Pod) -> Option<String> {
        let fault = (0..self.setup.containers.len()).find(|container| {
            let newest = self.cri.listed().newest(*container);
            match self.role(plan, *container) {
                _ if self.broken.contains(container) => false,
                None if self.is_no_work_of_the_pod(*container) => false,
                // Its container may have been removed.
                Some(Role::Init) if self.setup.version == KubeletVersion::Aware => {
                    newest.is_some_and(|newest| !matches!(newest.state, State::Exited { code: 0, .. }))
                }
                // Its caller may be waiting for its exit, as far as podshim knows, until what comes after it lives (I5).
                Some(Role::Init) if !self.broken.is_empty() => !newest.is_some_and(|newest| {
                    matches!(newest.state, State::Running | State::Exited { code: 0, .. })
                }),
                Some(Role::Init) => !newest.is_some_and(|newest| newest.state == State::Running),
                Some(Role::Main) if self.is_done(*container) => false,
                _ => !newest.is_some_and(|newest| self.serves(newest)),
            }
        });
        fault.map(|_| self.in_the_way(plan, pod, "Always: the pod does not serve"))
    }

    /// Of an injector's init only the containers that wait for it say whether it is done, and a debugger owes nothing.
    fn is_no_work_of_the_pod(&self, container: usize) -> bool {
        matches!(self.setup.containers[container].part, SpecPart::Init | SpecPart::Ephemeral)
    }

    fn serves(&self, newest: &Listed) -> bool {
        newest.state == State::Running && self.ledger.runs(&newest.id)
    }

    fn role(&self, plan: Option<&Plan>, container: usize) -> Option<Role> {
        plan?.member(&self.setup.containers[container].name).map(|(_, member)| member.role)
    }

    /// The first fact that a reader needs who looks for the cause.
    fn in_the_way(&self, plan: Option<&Plan>, pod: &Pod, what: &str) -> String {
        let all = || {
            (0..self.setup.containers.len()).map(|container| {
                let role = self.role(plan, container).map_or("container".to_owned(), |role| role.to_string());
                (container, format!("{role} {}", self.setup.containers[container].name))
            })
        };
        let newest = |container: usize| self.cri.listed().newest(container);
        let running = |container: usize| newest(container).filter(|newest| newest.state == State::Running);
        let held = all().find_map(|(container, name)| {
            let reason = pod.hold_reason(&running(container)?.id)?;
            Some(format!("{name} is held for {reason}"))
        });
        let idle = all().find_map(|(container, name)| {
            let newest = running(container).filter(|newest| !self.ledger.runs(&newest.id))?;
            let hidden =
                self.role(plan, container) == Some(Role::Init) && self.ledger.ended_well.contains(&newest.id);
            (!hidden).then(|| format!("{name} has no program that runs"))
        });
        let runs = all().find_map(|(container, name)| running(container).map(|_| format!("{name} runs")));
        let dead = all().find_map(|(container, name)| match newest(container)?.state {
            State::Exited { code, .. } if code != 0 => Some(format!("{name} has ended badly")),
            _ => None,
        });
        let reason = held.or(idle).or(runs).or(dead).unwrap_or_else(|| "nothing runs".to_owned());
        format!("{what}: {reason}")
    }
}

impl Kubelet {
    /// R9, K11: whether the end of some containers, or a caller's SIGKILL, ends others.
    fn ends_others(&self, plan: Option<&Plan>) -> bool {
        let orders = plan.is_some_and(|plan| plan.settings.zero_grace == ZeroGrace::Order);
        has_fatal(plan) || orders && self.ledger.crictl_killed
    }
}

/// R9: some containers end others.
fn has_fatal(plan: Option<&Plan>) -> bool {
    plan.is_some_and(|plan| plan.members.iter().any(|member| member.fatal.is_some()))
}
