//! The final exit of a container, and what its member keeps of it.
//!
//! Owns the order in which callers see an exit (CONTRACT §6). Never decides which code they see: `questions::exit_codes`
//! does. Changes: container, member, sandbox.

use pod_spec::Role;

use crate::container::phase::{Part, Program};
use crate::interface::action::{Action, Notice, Reply};
use crate::interface::exit::Exit;
use crate::interface::id::{ContainerId, Target};
use crate::member::evidence::{EndTimes, Ended, EndedBy};
use crate::questions::evidence::ended_by;
use crate::questions::exit_codes::shown_exit;
use crate::state::State;

/// The exit is final. Callers see it in this order: event, waiters, end of stdio.
pub(crate) fn finish(pod: &mut State, id: &ContainerId, real: Exit) {
    let Some(container) = pod.container(id) else { return };
    let (shown, by) = (shown_exit(pod, container, real), ended_by(pod, container));
    let Some(container) = pod.container_mut(id) else { return };
    let waiters = container.finish(shown);
    let (pid, part, ran) = (container.pid(), container.part(), container.program());
    // A container that could not be started has ended already, whatever signal kills its runtime's init.
    if let (Part::Member(index), None) = (part, container.start_error()) {
        note_end(pod, index, real, shown, by, ran);
    }
    pod.emit_change(Action::Publish(Notice::Exited { target: Target::init(id.clone()), pid, exit: shown }));
    for waiter in waiters {
        pod.reply(waiter, Ok(Reply::Exit(shown)));
    }
    pod.emit_change(Action::Finish { container: id.clone(), shown, real });
    if part == Part::Sandbox {
        pod.sandbox.exited();
    }
}

/// Records the end of a member's newest task. If that task never ran, a main of a job keeps its earlier end (J11).
pub(crate) fn note_end(pod: &mut State, index: usize, real: Exit, shown: Exit, by: EndedBy, ran: Program) {
    let is_main = pod.member(index).role() == Role::Main;
    if is_main && ran == Program::NeverRan && pod.member(index).ended().is_some() {
        return;
    }
    let code = if is_main { shown.code } else { real.code };
    let times = EndTimes {
        evident_until: pod.now() + pod.lone_stop_window(),
        replace_by: pod.now() + pod.replace_wait(),
    };
    let ended = Ended::new(real, code, by, ran, pod.rounds.number(), times);
    pod.member_mut(index).end(ended);
}
