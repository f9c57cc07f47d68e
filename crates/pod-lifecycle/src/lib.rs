//! The pod as a deterministic state machine.
//!
//! Owns every decision about a pod: which container starts, is held, is restarted or gets a signal, and when; and what
//! callers see. Events go in, actions come out, time is an argument. Never does anything itself: no IO, no clock, no
//! randomness, no threads; the same events at the same times give the same actions.
//!
//! The contract with the driver:
//!
//! ```text
//! pod.handle(now, event);                       // total: every event is legal in every state
//! while let Some(action) = pod.next_action() {  // drain fully before the next handle()
//!     driver.execute(action);
//! }
//! pod.next_deadline();                          // call handle(deadline, Event::Tick) then, at the latest
//! ```
//!
//! * `now` never goes backwards.
//! * Each [`Action::Run`] is answered by exactly one [`Event::Done`] with its id.
//! * After [`Action::GiveUp`] that answer comes at once, and what the operation still makes is never announced.
//! * An operation that failed to create a process has left no process, and after a failed Start the program does not
//!   run.
//! * [`Event::Exited`] of a process comes after the `Done` that announced the process, and exactly once.
//! * Each [`Event::Request`] gets exactly one [`Action::Reply`]. A `Wait` may take as long as the container, and gets
//!   no reply after [`Event::Abandoned`].
//!
//! The files stand on floors; each imports only what is below it: `interface`, `outbox`, `container`, `member`, `stop`, `callers_stop`,
//! `sandbox`, `rounds`, `pod_restarts`, `state`, `questions`, `steps`, `rules`, `handlers`, `pod`. The head of each says what
//! it owns; docs/rules.md names the file that decides each rule.

#![forbid(unsafe_code)]

mod callers_stop;
mod container;
mod handlers;
mod interface;
mod member;
mod outbox;
mod pod;
mod pod_restarts;
mod questions;
mod rounds;
mod rules;
mod sandbox;
mod state;
mod steps;
mod stop;

pub use interface::action::{Action, Deleted, LineTarget, Notice, Reply};
pub use interface::event::{AfterCheckpoint, Event, Request};
pub use interface::exit::Exit;
pub use interface::id::{ContainerId, ExecId, OpId, RequestId, Target};
pub use interface::inspection::{
    BudgetLeft, GateProgress, InspectedContainer, InspectedPart, InspectedState, InspectedStop, Inspection,
    Missing, MissingEnd, PodOutcome,
};
pub use interface::milestone::{Milestone, SignalCause};
pub use interface::operation::{Check, Hook, Operation, Reach};
pub use interface::outcome::{Failure, Outcome, Refusal, RefusalKind};
pub use interface::spec::{
    Caller, ContainerSpec, KubeletHook, KubeletType, Origin, PidNamespace, StartBarrier, TaskKind,
};
pub use interface::stop_cause::{SandboxEnd, StopCause};
pub use interface::stop_order::StopOrder;
pub use interface::time::{PodTime, WallTime};
pub use interface::view::{Status, View};
pub use pod::{Pod, UNSETTLED};
pub use stop::MIN_KILL_DELAY;
