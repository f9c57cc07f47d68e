//! The pod value: the single entry point `handle`, and the rules applied after every event.
//!
//! The one place where everything meets. Handlers of single events change the tables and never look ahead. `settle` then
//! applies the level-triggered rules (which container may start, whose turn has come, what is due, what is complete)
//! until nothing changes. So a rule holds in whatever order the events came. Decides nothing itself.

use pod_spec::{GateAction, Signal};

use crate::container::{Container, Operated};
use crate::handlers::checkpoint::{checkpoint_container, checkpoint_ended, restore_ended};
use crate::handlers::create::{create_container, create_ended};
use crate::handlers::delete::{delete_container, removal_ended};
use crate::handlers::exec::{
    add_exec, delete_exec, exec_exited, exec_removed, exec_started, kill_exec, start_exec,
};
use crate::handlers::exit::{init_exited, leftovers_killed, out_of_memory};
use crate::handlers::freezer::{freezer_changed, pause_container, resume_container};
use crate::handlers::gate_check::gate_check_ended;
use crate::handlers::hook::hook_ended;
use crate::handlers::kill::{is_meant_to_end, kill_container};
use crate::handlers::kubelets_own::learn_kubelets_own;
use crate::handlers::recreate::recreation_ended;
use crate::handlers::restart_pod::restart_pod;
use crate::handlers::start::{start_container, start_ended};
use crate::handlers::stop_pod::stop_pod;
use crate::handlers::switch::switch_pair;
use crate::handlers::wait::{add_waiter, forget_waiter};
use crate::interface::action::Action;
use crate::interface::event::{Event, Request};
use crate::interface::exit::Exit;
use crate::interface::id::{ContainerId, OpId, RequestId, Target};
use crate::interface::inspection::{InspectedPart, Inspection, Missing};
use crate::interface::outcome::{Outcome, Refusal};
use crate::interface::stop_order::StopOrder;
use crate::interface::time::PodTime;
use crate::interface::view::View;
use crate::questions::completion::mains_succeeded;
use crate::questions::deadlines;
use crate::questions::holds::hold_reason;
use crate::questions::inspect::{inspect_pod, missing, part_and_restarts, view_of};
use crate::questions::pod_restart::refuses_restart;
use crate::questions::stop_order::stop_order;
use crate::rules::callers_stop::detect_callers_stop;
use crate::rules::completion::detect_completion;
use crate::rules::given_up::give_up_operations;
use crate::rules::hooks::run_on_terminate_hooks;
use crate::rules::kubelets_own::let_kubelets_own_go;
use crate::rules::lone_stop::judge_callers_stop;
use crate::rules::pod_restart::renew_waiting;
use crate::rules::replacement::count_ends;
use crate::rules::restart::end_restarts;
use crate::rules::round::{begin_again_if_emptied, end_stop_if_over};
use crate::rules::sandbox::detect_sandbox_end;
use crate::rules::standby::end_takeovers;
use crate::rules::startup::release_held;
use crate::rules::timers::{apply_container_timers, next_container_timer};
use crate::rules::turns::{apply_budget, take_turns};
use crate::state::State;

/// More passes than the rules of any pod need after one event.
const MOST_ROUNDS: usize = 10_000;

/// What [`Action::Warn`] says when the rules contradict each other.
pub const UNSETTLED: &str = "the rules of the pod do not settle: this is a fault of podshim";

/// A rule, and the time that it waits for: the pod needs the clock again then, at the latest.
struct Rule {
    apply: fn(&mut State),
    due: fn(&State) -> Option<PodTime>,
}

/// A rule that waits for events alone.
const fn at_once(apply: fn(&mut State)) -> Rule {
    Rule { apply, due: |_| None }
}

const fn at_a_time(apply: fn(&mut State), due: fn(&State) -> Option<PodTime>) -> Rule {
    Rule { apply, due }
}

/// The rules, in the order in which `settle` applies them.
const RULES: [Rule; 17] = [
    at_once(detect_sandbox_end),
    at_once(detect_callers_stop),
    at_a_time(judge_callers_stop, deadlines::callers_stop),
    at_a_time(count_ends, deadlines::ends),
    // H1, T11: the end of the last main is T0 for what follows.
    at_a_time(detect_completion, deadlines::completion),
    at_a_time(apply_budget, deadlines::budget),
    at_once(run_on_terminate_hooks),
    at_once(take_turns),
    at_once(renew_waiting),
    at_once(end_restarts),
    at_a_time(give_up_operations, deadlines::operations),
    at_once(end_takeovers),
    at_a_time(apply_container_timers, next_container_timer),
    at_once(let_kubelets_own_go),
    at_once(release_held),
    at_a_time(end_stop_if_over, deadlines::end_of_restart),
    at_once(begin_again_if_emptied),
];

/// A pod, as long as its sandbox lives. S7: the next sandbox gets a shim, and so a value, of its own.
#[derive(Clone, Debug)]
pub struct Pod {
    state: State,
}

impl Default for Pod {
    fn default() -> Self {
        Self::new()
    }
}

impl Pod {
    /// A pod without containers.
    pub fn new() -> Self {
        Self { state: State::default() }
    }

    /// Takes one event. Total: a request that cannot be served is answered with a refusal.
    pub fn handle(&mut self, now: PodTime, event: Event) {
        let pod = &mut self.state;
        pod.advance(now);
        match event {
            Event::Request { id, request } => serve(pod, id, request),
            Event::Abandoned { id } => forget_waiter(pod, id),
            Event::Done { op, outcome, at } => done(pod, op, outcome, Exit { code: 0, at }),
            Event::Exited { target: Target { container, exec: None }, exit } => {
                init_exited(pod, container, exit);
            }
            Event::Exited { target: Target { container, exec: Some(exec) }, exit } => {
                exec_exited(pod, container, exec, exit);
            }
            Event::OutOfMemory { container } => out_of_memory(pod, container),
            Event::StopPod { grace } => stop_pod(pod, grace),
            Event::Tick => {}
        }
        settle(pod);
    }

    /// The next action; call until `None` after each [`Pod::handle`].
    #[must_use]
    pub fn next_action(&mut self) -> Option<Action> {
        self.state.take_action()
    }

    /// When to call `handle` again at the latest; `None` when nothing is pending. Each `handle` may change it.
    pub fn next_deadline(&self) -> Option<PodTime> {
        RULES.iter().filter_map(|rule| (rule.due)(&self.state)).min()
    }

    /// What callers see of a container or exec.
    ///
    /// # Errors
    /// NotFound for a container or exec that does not exist.
    pub fn view(&self, target: &Target) -> Result<View, Refusal> {
        view_of(&self.state, target)
    }

    /// The containers that exist or are being created.
    pub fn containers(&self) -> impl Iterator<Item = &ContainerId> {
        self.state.containers().map(Container::id)
    }

    /// Whether the shim has nothing left to serve.
    pub fn is_empty(&self) -> bool {
        self.state.containers().next().is_none()
    }

    /// Whether every container that is left is being deleted, or will be deleted once its create has ended.
    pub fn is_leaving(&self) -> bool {
        self.state.containers().all(|container| container.phase().is_leaving())
    }

    /// Whether nothing is left to do: every container's exit is shown, and no delete is under way.
    pub fn is_final(&self) -> bool {
        self.state.containers().all(|container| container.phase().is_stopped())
    }

    /// Whether the pod's plan, or that it has none, is settled, so that later containers cannot change it.
    pub fn plan_is_settled(&self) -> bool {
        self.state.plan_is_settled()
    }

    /// Whether a stop of the pod is under way (T12). A stop for good stays so.
    pub fn is_stopping(&self) -> bool {
        self.state.is_stopping()
    }

    /// R14: whether that stop is the first half of a restart.
    pub fn is_restarting(&self) -> bool {
        self.state.is_restarting()
    }

    /// Why [`Request::Restart`] would be refused now (R14).
    pub fn refuses_restart(&self) -> Option<&'static str> {
        refuses_restart(&self.state)
    }

    /// J3: whether each main has ended with 0. A main that could not be created or started has not.
    pub fn mains_succeeded(&self) -> bool {
        mains_succeeded(&self.state)
    }

    /// The name of a container, as its plan spells it.
    pub fn name_of(&self, id: &ContainerId) -> Option<&str> {
        self.state.container(id).map(|container| container.spec().name.as_str())
    }

    /// Why a container is held, in words for people; `None` if it is not held.
    pub fn hold_reason(&self, id: &ContainerId) -> Option<String> {
        hold_reason(&self.state, id)
    }

    /// What opens a container's gate while it is closed (U2, U3): for a driver that must listen from the first moment
    /// of a process.
    pub fn closed_gate(&self, id: &ContainerId) -> Option<&GateAction> {
        self.state.member(self.state.container(id)?.member()?).closed_gate()
    }

    /// The pod as it is; `now` is needed for the times that are left.
    pub fn inspect(&self, now: PodTime) -> Inspection {
        inspect_pod(&self.state, now)
    }

    /// What no caller has created of the plan (U10), as long as that matters.
    pub fn missing(&self) -> Option<Missing> {
        missing(&self.state)
    }

    /// What the driver keeps of a container that is gone: what it was to the pod, and how often podshim restarted it: since its
    /// last good run (R4), and at all.
    pub fn part_and_restarts(&self, id: &ContainerId) -> Option<(InspectedPart, [u32; 2])> {
        part_and_restarts(&self.state, id)
    }

    /// Whether a caller's signal is meant to end a container, and is no reload and the like (K7).
    pub fn is_meant_to_end(&self, id: &ContainerId, signal: Signal) -> bool {
        self.state.container(id).is_some_and(|container| is_meant_to_end(&self.state, container, signal))
    }

    /// A container's place in a stop by systemd: the sandbox outlives all, and R6 forbids to say more (N5). `None` in a
    /// pod without a plan, for which podshim keeps no order.
    pub fn stop_order(&self, id: &ContainerId) -> Option<StopOrder> {
        stop_order(&self.state, id)
    }
}

/// A caller's request, to the handler that answers it.
fn serve(pod: &mut State, id: RequestId, request: Request) {
    match request {
        Request::Create { container, spec } => create_container(pod, id, container, *spec),
        Request::Exec { container, exec } => add_exec(pod, id, container, exec),
        Request::Start(Target { container, exec: None }) => start_container(pod, id, container),
        Request::Start(Target { container, exec: Some(exec) }) => start_exec(pod, id, container, exec),
        Request::Kill { target: Target { container, exec: None }, signal, reach } => {
            kill_container(pod, id, container, signal, reach);
        }
        Request::Kill { target, signal, .. } => kill_exec(pod, id, target, signal),
        Request::Wait(target) => add_waiter(pod, id, target),
        Request::Delete(Target { container, exec: None }) => delete_container(pod, id, container),
        Request::Delete(Target { container, exec: Some(exec) }) => delete_exec(pod, id, container, exec),
        Request::Switch(name) => switch_pair(pod, id, &name),
        Request::KubeletsOwn(names) => learn_kubelets_own(pod, id, names),
        Request::Restart => restart_pod(pod, id),
        Request::Pause(container) => pause_container(pod, id, container),
        Request::Resume(container) => resume_container(pod, id, container),
        Request::Checkpoint { container, after } => checkpoint_container(pod, id, container, after),
    }
}

/// The end of an operation, to the handler of what waits for it. An id that no container waits for belongs to an
/// operation that was overtaken (a gate's probe after its gate was closed): nothing to do.
fn done(pod: &mut State, op: OpId, outcome: Outcome, ended: Exit) {
    let waiting =
        pod.containers().find_map(|container| Some((container.id().clone(), container.operated(op)?)));
    let Some((id, operated)) = waiting else { return };
    match operated {
        Operated::Create => create_ended(pod, id, outcome, ended),
        Operated::Restore => restore_ended(pod, id, outcome),
        Operated::Start => start_ended(pod, id, outcome, ended),
        Operated::Recreate => recreation_ended(pod, id, outcome, ended),
        Operated::Remove => removal_ended(pod, id, outcome, ended),
        Operated::KillRemaining => leftovers_killed(pod, id, outcome),
        Operated::Freezer => freezer_changed(pod, id, outcome),
        Operated::Checkpoint => checkpoint_ended(pod, &id, outcome),
        Operated::Hook => hook_ended(pod, &id, op, outcome),
        Operated::GateCheck => gate_check_ended(pod, id, outcome),
        Operated::StartExec(exec) => exec_started(pod, id, exec, outcome),
        Operated::RemoveExec(exec) => exec_removed(pod, id, exec, outcome),
    }
}

/// Applies the rules until nothing changes.
fn settle(pod: &mut State) {
    for _ in 0..MOST_ROUNDS {
        let before = pod.changes();
        for rule in &RULES {
            (rule.apply)(pod);
        }
        if pod.changes() == before {
            return;
        }
    }
    // Rules that never settle are a fault of podshim: it must not take the node's memory.
    pod.emit_change(Action::Warn(UNSETTLED.to_owned()));
}
