//! Create: which containers a pod accepts, what each is to the pod, and the end of a create (S1, S8, S14, K13, K16, T11, F11).
//!
//! Owns how the plan is learned (11.4). A restored container cannot be held: it goes on in the middle of its work, without
//! the start that a gate holds back. So podshim restores no member of a plan (S1). Never starts a program.
//! Changes: container, callers stop, member, sandbox, rounds, tables, failure.

use crate::container::phase::{Part, Program};
use crate::container::{Container, EndedCreate};
use crate::handlers::delete::delete_container;
use crate::interface::action::{Action, Notice, Reply};
use crate::interface::exit::{Exit, KILLED, START_FAILED};
use crate::interface::id::{ContainerId, RequestId};
use crate::interface::operation::Operation;
use crate::interface::outcome::{Failure, Outcome, Refusal, RefusalKind};
use crate::interface::spec::{Caller, ContainerSpec, KubeletType, Origin, TaskKind};
use crate::member::evidence::EndedBy;
use crate::rules::failure::{fail_for_missing, start_refused};
use crate::rules::round::{begin_again_if_recreated, take_back_callers_stop, take_back_completion};
use crate::state::State;
use crate::steps::finish::note_end;
use crate::steps::forget::forget;
use crate::steps::oom_score::limit_oom_scores;
use crate::steps::unrun::{end_latecomer, end_unstarted};

/// A caller creates a container.
pub(crate) fn create_container(
    pod: &mut State,
    request: RequestId,
    id: ContainerId,
    mut spec: ContainerSpec,
) {
    if pod.container(&id).is_some() {
        let text = format!("container {id} already exists");
        return pod.reply(request, Err(Refusal::new(RefusalKind::AlreadyExists, text)));
    }
    learn_plan(pod, &mut spec);
    let part = part_of(pod, &spec);
    if let Err(refusal) = admits(pod, &spec, part) {
        return pod.reply(request, Err(refusal));
    }
    if spec.kind == TaskKind::Sandbox {
        pod.sandbox.create(id.clone());
    }
    let mut completed = None;
    if let Part::Member(index) = part {
        replace_unstarted(pod, index);
        begin_again_if_recreated(pod, index);
        let (policy, now, wait) = (pod.policy(), pod.now(), pod.replace_wait());
        let creation = pod.member_mut(index).created(id.clone(), &spec, policy);
        pod.rounds.create(creation, now, wait);
        pod.callers_stop.created_again(index);
        completed = pod.member(index).completed();
        pod.clear_failure_of(index);
        fail_for_missing(pod, index);
        if spec.kubelet.is_some() {
            take_back_callers_stop(pod);
        }
        take_back_completion(pod, index);
    }
    // I4: a completed init does not run again in its sandbox.
    let operation = match (completed, spec.origin) {
        (Some(_), _) => Operation::CreateCompleted,
        (None, Origin::Program) => Operation::Create,
        (None, Origin::Checkpoint) => Operation::PrepareRestore,
    };
    let op = pod.run(&id, operation);
    pod.add_container(Container::create(id, spec, part, (op, request), completed));
}

/// Whether the pod accepts a new container of that part now.
fn admits(pod: &State, spec: &ContainerSpec, part: Part) -> Result<(), Refusal> {
    // K16: its namespaces are gone; a create would fail, or join the namespaces of another process.
    if pod.has_plan() && pod.sandbox.is_gone() {
        return Err(Refusal::precondition(format!(
            "cannot create container {:?}: the pod's sandbox has ended",
            spec.name
        )));
    }
    // T11; and K13: a container that was created now would belong to no stop, and would keep the sandbox alive.
    if part != Part::Sandbox && pod.stop().is_some_and(|stop| stop.is_for_good()) {
        return Err(Refusal::precondition(format!(
            "cannot create container {:?}: the pod is stopping",
            spec.name
        )));
    }
    admits_restored(pod, spec, part)?;
    let Part::Member(index) = part else { return Ok(()) };
    let is_replaced =
        |older: &&Container| older.is_final() || spec.caller == Caller::Cri && older.is_unstarted();
    if let Some(older) = pod.current(index).filter(|older| !is_replaced(older)) {
        return Err(Refusal::new(
            RefusalKind::AlreadyExists,
            format!(
                "container name {:?} is in use by container {}, which has not ended",
                spec.name,
                older.id()
            ),
        ));
    }
    Ok(())
}

/// S14: ends a container that no caller has started, whose name another one takes.
fn replace_unstarted(pod: &mut State, index: usize) {
    let Some(older) = pod.current(index).filter(|older| older.is_unstarted()) else { return };
    let id = older.id().clone();
    if let Some(older) = pod.container_mut(&id) {
        older.give_up_name();
    }
    pod.emit_change(Action::Warn(format!(
        "container {id} was never started, and another one takes its name: it is ended"
    )));
    end_unstarted(pod, &id, KILLED);
}

/// Whether the pod accepts a container that is to be restored.
fn admits_restored(pod: &State, spec: &ContainerSpec, part: Part) -> Result<(), Refusal> {
    let planned = match part {
        Part::Member(_) => true,
        Part::Sandbox => pod.has_plan(),
        Part::Passthrough => false,
    };
    if spec.origin == Origin::Checkpoint && planned {
        return Err(Refusal::precondition(format!(
            "cannot restore container {:?} from a checkpoint: it is in the pod's podshim.io/plan, and a restored \
             program cannot be held for its turn",
            spec.name
        )));
    }
    Ok(())
}

/// Takes the pod's plan from the first container that may declare it. The sandbox decides, also if it declares
/// none; without a sandbox (ctr) the first container with a plan decides (11.4).
fn learn_plan(pod: &mut State, spec: &mut ContainerSpec) {
    let Some(plan) = spec.plan.take() else { return };
    if !pod.plan_is_settled() {
        return pod.declare_plan(plan);
    }
    if !pod.is_the_plan(&plan) {
        pod.emit_change(Action::Warn(format!(
            "container {:?} declares another plan than its pod; the pod's counts",
            spec.name
        )));
    }
}

/// What a new container is to the pod (S1, S8).
fn part_of(pod: &mut State, spec: &ContainerSpec) -> Part {
    if spec.kind == TaskKind::Sandbox {
        return Part::Sandbox;
    }
    // S8: `*=main` never makes a main of what is the kubelet's own.
    let is_marked = matches!(spec.kubelet_type, Some(KubeletType::Init | KubeletType::Ephemeral));
    let is_kubelets_own = is_marked || pod.is_kubelets_own(&spec.name);
    let named = pod.members().iter().position(|state| state.member().name == spec.name);
    if let Some(index) = named.filter(|index| !is_kubelets_own || !pod.is_unnamed(*index)) {
        return Part::Member(index);
    }
    let unnamed = if is_kubelets_own { None } else { pod.add_unnamed_main(&spec.name) };
    unnamed.map_or(Part::Passthrough, Part::Member)
}

/// A create has ended.
pub(crate) fn create_ended(pod: &mut State, id: ContainerId, outcome: Outcome, ended: Exit) {
    let stand_in_pid = pod.stand_in_pid();
    let Some(container) = pod.container_mut(&id) else { return };
    let Some(EndedCreate { request, completed, deletes }) = container.end_create() else { return };
    match (outcome, completed) {
        (Outcome::Failed(failure), _) => {
            return create_failed(pod, request, &id, failure, ended, deletes);
        }
        (Outcome::Process { pid }, None) => container.created(pid),
        (_, Some(exit)) => container.completed_again(exit, stand_in_pid.unwrap_or(0)),
        (Outcome::Ok, None) if container.spec().origin == Origin::Checkpoint => container.prepared(),
        (Outcome::Ok, None) => {
            return pod.impossible(format!("container {id} created without a process"));
        }
    }
    let pid = container.pid();
    limit_oom_scores(pod, &id);
    pod.emit_change(Action::Publish(Notice::Created { container: id.clone(), pid }));
    pod.reply(request, Ok(Reply::Pid(pid)));
    end_latecomer(pod, &id);
    for delete in deletes {
        delete_container(pod, delete, id.clone());
    }
}

fn create_failed(
    pod: &mut State,
    request: RequestId,
    id: &ContainerId,
    failure: Failure,
    ended: Exit,
    deletes: Vec<RequestId>,
) {
    if pod.sandbox.id() == Some(id) {
        pod.sandbox.create_failed();
    }
    let Some(container) = forget(pod, id) else { return };
    if let Some(index) = container.member() {
        let exit = Exit { code: START_FAILED, ..ended };
        if deletes.is_empty() {
            start_refused(pod, None, index, exit, &failure.message);
        } else {
            // F11: its caller wants it gone, as one that it deletes after the create.
            note_end(pod, index, exit, exit, EndedBy::Caller, Program::NeverRan);
        }
    }
    pod.reply(request, Err(Refusal { kind: failure.kind, message: failure.message }));
    for delete in deletes {
        pod.reply_not_found(delete, id);
    }
}
