//! The final exit of a container.

use pod_spec::Role;

use crate::container::phase::{Part, Phase, Program};
use crate::interface::action::{Action, Notice, Reply};
use crate::interface::exit::Exit;
use crate::interface::id::{ContainerId, Target};
use crate::member::evidence::{Ended, EndedBy, Standing};
use crate::questions::evidence::ended_by;
use crate::questions::exit_codes::shown_exit;
use crate::rules::sandbox::sandbox_ended;
use crate::state::State;

/// The exit is final. Callers see it in this order: event, waiters, end of stdio.
pub(crate) fn finish(pod: &mut State, id: &ContainerId, real: Exit) {
    let Some(container) = pod.containers.get(id) else { return };
    let (shown, by) = (shown_exit(pod, container, real), ended_by(pod, container));
    let Some(container) = pod.containers.get_mut(id) else { return };
    container.phase = Phase::Stopped { exit: shown };
    container.probe = None;
    container.ending.kill_at = None;
    container.lone_stop = None;
    let (pid, part, start_error) = (container.pid, container.part, container.start_error);
    let ran = container.program;
    let waiters = std::mem::take(&mut container.waiters);
    // A container that could not be started has ended already, whatever signal kills its runtime's init.
    if let (Part::Member(index), None) = (part, start_error) {
        note_end(pod, index, real, shown, by, ran);
    }
    pod.emit_change(Action::Publish(Notice::Exited { target: Target::init(id.clone()), pid, exit: shown }));
    for waiter in waiters {
        pod.reply(waiter, Ok(Reply::Exit(shown)));
    }
    pod.emit_change(Action::Finish { container: id.clone(), shown, real });
    if part == Part::Sandbox {
        sandbox_ended(pod);
    }
}

/// Records the end of a member's newest task. If that task never ran, a main of a job keeps its earlier end (J11).
pub(crate) fn note_end(pod: &mut State, index: usize, real: Exit, shown: Exit, by: EndedBy, ran: Program) {
    let is_main = pod.members[index].member.role == Role::Main;
    if is_main && ran == Program::NeverRan && pod.members[index].ended.is_some() {
        return;
    }
    let standing = match by {
        EndedBy::CallerAlone => Standing::Open,
        EndedBy::Other => Standing::Counts,
    };
    pod.members[index].ended = Some(Ended {
        real,
        code: if is_main { shown.code } else { real.code },
        evident_until: pod.now + pod.lone_stop_window(),
        replace_by: pod.now + pod.replace_wait(),
        standing,
        ran,
        round: pod.round,
    });
}
