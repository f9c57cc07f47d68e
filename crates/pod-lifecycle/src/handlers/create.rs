//! Create.

use crate::container::Container;
use crate::container::phase::{Part, Phase};
use crate::handlers::delete::delete_container;
use crate::interface::action::{Action, Notice, Reply};
use crate::interface::exit::{Exit, START_FAILED};
use crate::interface::id::{ContainerId, RequestId};
use crate::interface::operation::Operation;
use crate::interface::outcome::Outcome;
use crate::interface::outcome::{Failure, Refusal, RefusalKind};
use crate::interface::spec::{ContainerSpec, Origin, TaskKind};
use crate::member::Creation;
use crate::member::MemberState;
use crate::rules::failure::{forgive_failure_of, start_refused};
use crate::rules::round::give_up_callers_stop;
use crate::state::State;
use crate::steps::forget::forget;
use crate::steps::oom_score::limit_oom_scores;
use crate::steps::unrun::end_latecomer;
use pod_spec::Others;

pub(crate) fn create_container(pod: &mut State, request: RequestId, id: ContainerId, spec: ContainerSpec) {
    if pod.containers.contains_key(&id) {
        let text = format!("container {id} already exists");
        return pod.reply(request, Err(Refusal::new(RefusalKind::AlreadyExists, text)));
    }
    learn_plan(pod, &spec);
    let part = part_of(pod, &spec);
    if let Err(refusal) = admits(pod, &spec, part) {
        return pod.reply(request, Err(refusal));
    }
    if spec.kind == TaskKind::Sandbox {
        pod.sandbox = Some(id.clone());
    }
    let mut spent = None;
    if let Part::Member(index) = part {
        pod.create_quiet_until = pod.now + pod.replace_wait();
        let policy = pod.policy();
        let state = &mut pod.members[index];
        let creation = state.created(id.clone(), &spec, policy);
        spent = state.completed;
        forgive_failure_of(pod, index);
        if creation == Creation::Again {
            let until = pod.create_quiet_until;
            pod.another_round_until.get_or_insert(until);
        }
        if spec.kubelet.is_some() {
            give_up_callers_stop(pod);
        }
    }
    let operation = match (spent, spec.origin) {
        (Some(_), _) => Operation::CreateSpent,
        (None, Origin::Program) => Operation::Create,
        (None, Origin::Checkpoint) => Operation::PrepareRestore,
    };
    let op = pod.run(&id, operation);
    let container =
        Container::new(id.clone(), spec, part, Phase::Creating { op, request, spent, deletes: Vec::new() });
    pod.containers.insert(id, container);
}

/// Whether the pod accepts a new container of that part now.
pub(crate) fn admits(pod: &State, spec: &ContainerSpec, part: Part) -> Result<(), Refusal> {
    // K16: its namespaces are gone; a create would fail, or join the namespaces of another process.
    if pod.plan.is_some() && pod.sandbox_gone {
        return Err(Refusal::precondition(format!(
            "cannot create container {:?}: the pod's sandbox has ended",
            spec.name
        )));
    }
    // T11; and K13: a container that was created now would belong to no stop, and would keep the sandbox alive.
    if part != Part::Sandbox && pod.stop.as_ref().is_some_and(|stop| stop.is_for_good()) {
        return Err(Refusal::precondition(format!(
            "cannot create container {:?}: the pod is stopping",
            spec.name
        )));
    }
    admits_restored(pod, spec, part)?;
    let Part::Member(index) = part else { return Ok(()) };
    if let Some(older) = pod.current(index).filter(|older| !older.is_final()) {
        return Err(Refusal::new(
            RefusalKind::AlreadyExists,
            format!(
                "container name {:?} is in use by container {}, which has not ended",
                spec.name, older.id
            ),
        ));
    }
    Ok(())
}

/// Whether the pod accepts a container that is to be restored.
pub(crate) fn admits_restored(pod: &State, spec: &ContainerSpec, part: Part) -> Result<(), Refusal> {
    let planned = match part {
        Part::Member(_) => true,
        Part::Sandbox => pod.plan.is_some(),
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
pub(crate) fn learn_plan(pod: &mut State, spec: &ContainerSpec) {
    if pod.plan_is_settled() {
        if spec.plan.is_some() && spec.plan != pod.plan {
            pod.emit_change(Action::Warn(format!(
                "container {:?} declares another plan than its pod; the pod's counts",
                spec.name
            )));
        }
        return;
    }
    if let Some(plan) = &spec.plan {
        pod.members = MemberState::of_plan(plan);
        pod.plan = Some(plan.clone());
    }
}

/// What a new container is to the pod (S1, S8).
pub(crate) fn part_of(pod: &mut State, spec: &ContainerSpec) -> Part {
    use crate::interface::spec::KubeletType::{Ephemeral, Init};
    if spec.kind == TaskKind::Sandbox {
        return Part::Sandbox;
    }
    let Some(plan) = &pod.plan else { return Part::Passthrough };
    // S8: `*=main` never makes a main of a kubelet's own init containers and debug containers.
    let is_kubelets_own = matches!(spec.kubelet_type, Some(Init | Ephemeral));
    let named = pod.members.iter().position(|state| state.member.name == spec.name);
    if let Some(index) = named.filter(|index| !is_kubelets_own || !pod.is_unnamed(*index)) {
        return Part::Member(index);
    }
    match (plan.others, is_kubelets_own) {
        (Others::Passthrough, _) | (Others::Mains, true) => Part::Passthrough,
        (Others::Mains, false) => {
            let new = MemberState::unnamed_main(plan, &spec.name);
            let vacant = (0..pod.members.len()).find(|index| pod.is_vacant(*index));
            match vacant {
                Some(index) => pod.members[index] = new,
                None => pod.members.push(new),
            }
            Part::Member(vacant.unwrap_or(pod.members.len() - 1))
        }
    }
}

pub(crate) fn create_ended(pod: &mut State, id: ContainerId, outcome: Outcome, ended: Exit) {
    let anchor = pod.anchor_pid();
    let Some(container) = pod.containers.get_mut(&id) else { return };
    let Phase::Creating { request, spent, deletes, .. } = &mut container.phase else { return };
    let (request, spent, deletes) = (*request, *spent, std::mem::take(deletes));
    let pid = match (outcome, spent) {
        (Outcome::Failed(failure), _) => {
            create_failed(pod, request, id.clone(), failure, ended);
            for delete in deletes {
                pod.reply_not_found(delete, &id);
            }
            return;
        }
        (Outcome::Process { pid }, None) => {
            container.phase = Phase::Created;
            pid
        }
        (_, Some(exit)) => {
            container.phase = Phase::CompletedAgain { exit };
            anchor.unwrap_or(0)
        }
        (Outcome::Ok, None) if container.spec.origin == Origin::Checkpoint => {
            container.phase = Phase::Prepared;
            0
        }
        (Outcome::Ok, None) => {
            return pod.impossible(format!("container {id} created without a process"));
        }
    };
    container.pid = pid;
    limit_oom_scores(pod, &id);
    pod.emit_change(Action::Publish(Notice::Created { container: id.clone(), pid }));
    pod.reply(request, Ok(Reply::Pid(pid)));
    end_latecomer(pod, &id);
    for delete in deletes {
        delete_container(pod, delete, id.clone());
    }
}

pub(crate) fn create_failed(
    pod: &mut State,
    request: RequestId,
    id: ContainerId,
    failure: Failure,
    ended: Exit,
) {
    let sandbox_gone = pod.sandbox_gone;
    let Some(container) = forget(pod, &id) else { return };
    // A sandbox that was never created has not ended.
    pod.sandbox_gone = sandbox_gone;
    if let Some(index) = container.member() {
        let exit = Exit { code: START_FAILED, ..ended };
        start_refused(pod, None, index, exit, &failure.message);
    }
    pod.reply(request, Err(Refusal { kind: failure.kind, message: failure.message }));
}
