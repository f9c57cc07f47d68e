//! A stop of one sidecar alone: how podshim tells it from the start of a stop of the pod, and answers it fast (T16).
//!
//! A kubelet that stops a pod sends the StopContainer of all containers at once, except that a container with a preStop
//! hook gets its own later (F9). So if a kubelet created all living mains, none of them has such a hook, and no other
//! stop comes within the window, then the kubelet stops this sidecar alone (a liveness probe, another image), and waits
//! for its end before it does anything else for the pod.
//!
//! Owns that judgement and its revocation. `evidence` decides what counts as a stop of the pod; `kill` sends signals.

use std::time::Duration;

use pod_spec::{Role, Signal};

use crate::action::Reach;
use crate::container::{Container, Intent, Phase, Program};
use crate::event::{ContainerId, KubeletHook};
use crate::history::Milestone;
use crate::pod::Pod;
use crate::time::PodTime;

/// A timer that fires this late shows that the machine is slow: other stops may be late too, so the window is doubled.
const LATE: Duration = Duration::from_millis(500);

/// What podshim knows of a sidecar's stop signal that came before its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LoneStop {
    /// Other stops may follow until `decide_at`.
    Undecided { decide_at: PodTime, window: Window },
    /// It is no stop of the pod: the sidecar has got its signal.
    Alone,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Window {
    Usual,
    Doubled,
}

impl Pod {
    /// K7, K8, K15: keeps a sidecar's stop signal until its turn, which may be now; the first signal counts.
    pub(crate) fn hold_signal(&mut self, id: &ContainerId, signal: Signal, reach: Reach) {
        let decide_at = self.now + self.lone_stop_window();
        let Some(container) = self.containers.get_mut(id) else { return };
        let due = container.stop.term_at.is_none() || container.stop.intent == Intent::Restart;
        if due && container.stop.held_signal.is_none() {
            container.stop.held_signal = Some((signal, reach));
            container.lone_stop = Some(LoneStop::Undecided { decide_at, window: Window::Usual });
            self.record(id, Milestone::SignalHeld { signal });
        }
        self.changed();
    }

    /// T16: judges stop signals whose window is over.
    pub(crate) fn lone_stop_timer(&mut self, id: &ContainerId) {
        let now = self.now;
        let Some(container) = self.containers.get(id) else { return };
        let Some(LoneStop::Undecided { decide_at, window }) = container.lone_stop else { return };
        if self.lone_stop_deadline(container).is_none_or(|at| now < at) {
            return;
        }
        let alone = self.is_stopped_alone(container);
        let late = now.since(decide_at) >= LATE && window == Window::Usual;
        let doubled = now + self.lone_stop_window();
        let Some(container) = self.containers.get_mut(id) else { return };
        container.lone_stop = match (alone, late) {
            (true, true) => Some(LoneStop::Undecided { decide_at: doubled, window: Window::Doubled }),
            (true, false) => Some(LoneStop::Alone),
            // The signal is kept until the sidecar's turn, or its caller's SIGKILL (T3, T7).
            (false, _) => None,
        };
        if container.lone_stop == Some(LoneStop::Alone) {
            self.stop_alone(id);
        }
        self.changed();
    }

    /// When podshim judges a container's stop.
    pub(crate) fn lone_stop_deadline(&self, container: &Container) -> Option<PodTime> {
        let Some(LoneStop::Undecided { decide_at, .. }) = container.lone_stop else { return None };
        let waits = matches!(container.phase, Phase::Starting { .. } | Phase::Running { .. });
        (waits && self.stop.is_none() && container.stop.held_signal.is_some()).then_some(decide_at)
    }

    /// The sidecar gets its signal, after its pre-stop hook (H2). Its gate stays as it is.
    fn stop_alone(&mut self, id: &ContainerId) {
        let Some(container) = self.containers.get_mut(id) else { return };
        container.stop.intent = Intent::End;
        // U4's stop of an unready sidecar becomes its last stop; its signal is not repeated.
        if container.stop.term_at.is_some() {
            container.stop.held_signal = None;
            return;
        }
        let grace = self.grace_without_caller(id);
        self.stop_after_hooks(id, None, grace);
    }

    /// Whether a sidecar's stop can only be a stop of that container alone.
    fn is_stopped_alone(&self, sidecar: &Container) -> bool {
        let mains: Vec<_> = self
            .planned()
            .filter(|(state, other)| state.member.role == Role::Main && other.lives_for_callers())
            .map(|(_, other)| other.spec.kubelet)
            .collect();
        let at_once = |kubelet: &Option<KubeletHook>| *kubelet == Some(KubeletHook::None);
        let own = sidecar.member().and_then(|index| self.members[index].asked);
        let another = self.members.iter().enumerate().any(|(index, state)| {
            let judged = self.current(index).is_some_and(|other| other.lone_stop == Some(LoneStop::Alone));
            Some(index) != sidecar.member()
                && !judged
                && state
                    .asked
                    .zip(own)
                    .is_some_and(|(other, own)| other.may_belong_with(own, self.lone_stop_window()))
        });
        !mains.is_empty() && mains.iter().all(at_once) && !another
    }

    /// A stop of the pod has begun: what podshim took for a lone stop was its beginning. As long as the exit is not
    /// shown R2 applies: the sidecar is restarted while another container needs it.
    pub(crate) fn revoke_lone_stops(&mut self) {
        for container in self.containers.values_mut() {
            let judged = container.lone_stop.take() == Some(LoneStop::Alone);
            if !judged || container.is_final() || container.program == Program::NeverRan {
                continue;
            }
            // If its hook is still running, the signal has not been sent: it waits for the turn (T3).
            container.stop.intent =
                if container.stop.term_at.is_some() { Intent::Restart } else { Intent::Live };
        }
    }

    pub(crate) fn lone_stop_window(&self) -> Duration {
        self.plan.as_ref().map(|plan| plan.defaults.lone_stop_window).unwrap_or_default()
    }
}
