//! Programs of a random pod under a kubelet: they may fail at first, and behave in the end, so that the pod can do what its policy
//! promises. Owns nothing else.

use std::time::Duration;

use pod_spec::{RestartPolicy, Role};

use super::faults::FaultKind;
use super::run::KubeletRun;
use crate::program::{OnStop, Program, Run, RunEnd};
use crate::text::millis;
use fuzz_input::Rng;

/// A program that may fail at first, and behaves in the end.
pub(super) fn program(random: &mut Rng, role: Role, run: KubeletRun, own: Option<RestartPolicy>) -> Program {
    let mut runs = Vec::new();
    let fails_often =
        matches!(run.kind, FaultKind::Fatal | FaultKind::Crash | FaultKind::Unready | FaultKind::Keys);
    let chance = if fails_often { 60 } else { 25 };
    // I2, and a main under Never: the first failure is the last run.
    let once = own.unwrap_or(run.policy) == RestartPolicy::Never && role != Role::Sidecar;
    if random.percent(chance) && !once {
        for _ in 0..1 + random.below(3) {
            runs.push(bad_run(random, role, run.kind));
        }
    }
    let mut last = good_run(random, role, own.unwrap_or(run.policy));
    // With `restart=on-failure` podshim would try it for ever.
    if once && run.kind != FaultKind::Keys && random.percent(chance / 2) {
        last.ends = Some(RunEnd { code: *random.pick(&[1, 3, 137]), after: length(random) });
    }
    runs.push(last);
    Program::new(runs)
}

fn bad_run(random: &mut Rng, role: Role, kind: FaultKind) -> Run {
    let mut run = good_run(random, role, RestartPolicy::Always);
    if role == Role::Sidecar && (kind == FaultKind::Unready || random.percent(30)) {
        run.ready_after = random.percent(30).then(|| Duration::from_secs(45));
        return run;
    }
    // A 0 that is shown tells a kubelet that the container is done.
    let may_end_well = role == Role::Sidecar && kind != FaultKind::Keys;
    let code = if may_end_well { *random.pick(&[0, 1, 143]) } else { *random.pick(&[1, 3, 137]) };
    run.ends = Some(RunEnd { code, after: length(random) });
    run
}

fn good_run(random: &mut Rng, role: Role, policy: RestartPolicy) -> Run {
    let ends = role == Role::Init || (role == Role::Main && policy != RestartPolicy::Always);
    let stop = RunEnd {
        code: *random.pick(&[0, 0, 143, 143, 1]),
        after: *random.pick(&[millis(0), millis(0), millis(400), millis(3000)]),
    };
    Run {
        ends: ends.then(|| RunEnd { code: 0, after: length(random) }),
        on_stop: if random.percent(15) { OnStop::Ignores } else { OnStop::Exits(stop) },
        ready_after: Some(Duration::ZERO),
        exec_after: if random.percent(80) { Duration::ZERO } else { millis(300) },
    }
}

/// How long a program that ends runs.
fn length(random: &mut Rng) -> Duration {
    const LENGTHS: [u64; 10] = [0, 20, 400, 1000, 3000, 7000, 20_000, 20_000, 45_000, 90_000];
    millis(*random.pick(&LENGTHS))
}
