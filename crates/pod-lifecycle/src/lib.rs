//! The pod as a deterministic state machine.
//!
//! Owns every decision about a pod: which container starts, is held, is restarted or gets a signal, and when; and what
//! callers see. Events go in, actions come out, time is an argument. It never does anything itself: no IO, no clock, no
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
//! * An operation that failed to create a process has left no process, and after a failed Start the program does not
//!   run.
//! * [`Event::Exited`] of a process comes after the `Done` that announced the process, and exactly once.
//! * Each [`Event::Request`] gets exactly one [`Action::Reply`]. A `Wait` may take as long as the container, and gets
//!   no reply after [`Event::Abandoned`].

#![forbid(unsafe_code)]

mod action;
mod backoff;
mod budget;
mod checkpoint;
mod container;
mod event;
mod evidence;
mod exec;
mod exit_codes;
mod history;
mod hold;
mod hooks;
mod inspection;
mod kill;
mod lone_stop;
mod member;
mod oom_score;
mod pod;
mod replacement;
mod requests;
mod restart;
mod sandbox;
mod shutdown;
mod standby;
mod startup;
mod stop_order;
mod time;
mod zero_grace;

pub use action::{
    Action, Check, Deleted, Hook, Notice, OpId, Operation, Reach, Refusal, RefusalKind, Reply, Tell,
};
pub use container::{Status, View};
pub use event::{
    AfterCheckpoint, Caller, ContainerId, ContainerSpec, Event, ExecId, Exit, Failure, KubeletHook,
    KubeletType, Origin, Outcome, PidNamespace, Request, RequestId, Target, TaskKind,
};
pub use history::{Milestone, SignalCause};
pub use inspection::{
    BudgetLeft, GateProgress, InspectedContainer, InspectedPart, InspectedState, InspectedStop, Inspection,
    MissingMain, PodOutcome, StopReason,
};
pub use pod::{Pod, UNSETTLED};
pub use shutdown::FLOOR;
pub use stop_order::StopOrder;
pub use time::{PodTime, WallTime};
