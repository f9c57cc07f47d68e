//! What fails the pod, or stops it as a failure (I2, I8, R9).
//!
//! Owns which failure has which of the two consequences. Never waits for members that do not come back:
//! `rules::replacement` does. Changes: container, member, failure.

use pod_spec::Role;

use crate::container::phase::Program;
use crate::interface::exit::Exit;
use crate::interface::id::ContainerId;
use crate::interface::stop_cause::StopCause;
use crate::member::evidence::EndedBy;
use crate::questions::order::{comes_after, is_followed};
use crate::questions::restarts::{LastRun, is_not_repeated};
use crate::rules::stop::begin_stop;
use crate::state::State;
use crate::steps::finish::note_end;

/// I2, I8: the pod has failed; sidecars are stopped in reverse order, no other container starts.
pub(crate) fn fail_pod(pod: &mut State, index: usize, reason: String) {
    fail_and_note(pod, index, reason);
    let is_init = pod.member(index).role() == Role::Init;
    begin_stop(pod, if is_init { StopCause::InitFailed } else { StopCause::SidecarFailed });
}

/// I8: whether nothing that waits for a sidecar whose start has failed can start, if its caller does not try it again.
fn is_missing(pod: &State, index: usize) -> bool {
    let state = pod.member(index);
    pod.recreates_nothing()
        && state.role() == Role::Sidecar
        && !state.is_native()
        && !state.gate.is_open()
        && state.pair.is_active()
}

/// I8: a caller creates what comes after a sidecar that could not be started: so it does not try that one again.
pub(crate) fn fail_for_missing(pod: &mut State, created: usize) {
    let missing = (0..pod.members().len()).find(|index| {
        is_missing(pod, *index)
            && pod.member(*index).start_failure().is_some()
            && comes_after(pod, created, *index)
    });
    if let Some(index) = missing
        && !pod.is_stopping()
        && pod.failure().is_none()
    {
        let why = pod.member(index).start_failure().unwrap_or_default().to_owned();
        fail_pod(pod, index, format!("could not be started: {why}"));
    }
}

/// From now on no container starts, and held ones end with that reason.
fn fail_and_note(pod: &mut State, index: usize, reason: String) {
    pod.note(format!("pod failed: {} {reason}", pod.member(index)));
    pod.fail(index, reason);
}

/// R9: the end of one container stops the pod. Its own code is shown before the stop begins (J4). Under Never the
/// pod has failed with it: what its caller creates now would wait for a container that the caller does not
/// recreate.
pub(crate) fn stop_if_fatal(pod: &mut State, index: usize, code: u32) {
    let state = pod.member(index);
    if !state.is_fatal(code) || pod.is_stopping() {
        return;
    }
    let line = format!("{state} has ended with {code}, which is fatal for the pod");
    pod.note(line);
    begin_stop(pod, StopCause::Fatal);
    if pod.recreates_nothing() {
        fail_and_note(pod, index, format!("has ended with {code}, which is fatal"));
    }
}

/// Under Never: a member whose Create or Start failed for its caller has ended with 128. CRI shows that code, and
/// no caller tries again (containerd's StartContainer; a kubelet's "StartError").
pub(crate) fn start_refused(pod: &mut State, id: Option<&ContainerId>, index: usize, at: Exit, why: &str) {
    pod.member_mut(index).start_failed(why);
    if let Some(container) = id.and_then(|id| pod.container_mut(id)) {
        container.start_refused(at);
    }
    if pod.recreates_nothing() {
        note_end(pod, index, at, at, EndedBy::Other, Program::NeverRan);
    }
    stop_if_fatal(pod, index, at.code);
    cannot_start(pod, index, why);
}

/// I2, I8: an init that cannot start fails a pod in which failed inits are not retried; under Never so does a
/// sidecar that others wait for, once something that comes after it exists: until then its kubelet may know it as a native sidecar
/// and try it again.
pub(crate) fn cannot_start(pod: &mut State, index: usize, why: &str) {
    let state = pod.member(index);
    let fatal = match state.role() {
        Role::Init => is_not_repeated(pod, index, LastRun::NotStarted),
        Role::Sidecar => is_missing(pod, index) && is_followed(pod, index),
        Role::Main => false,
    };
    if fatal && !pod.is_stopping() && pod.failure().is_none() {
        fail_pod(pod, index, format!("could not be started: {why}"));
    }
}
