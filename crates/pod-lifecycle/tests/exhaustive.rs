//! Every interleaving of small pods: callers, operations, exits and timers in any order.
//!
//! Each test prints how many states it saw. DESIGN §2's promises are checked in all of them. From each state a caller
//! that ends everything, or that only kills pause, must succeed.

use testkit::{Exploration, Explorer};

fn explore(name: &str, exploration: Exploration) {
    match Explorer::new(exploration).run() {
        Ok(report) => {
            println!("{name}: {} states, {} steps, {} ends", report.states, report.steps, report.ends);
        }
        Err(error) => panic!("{name}: {error}"),
    }
}

fn pod(annotations: &[(&str, &str)]) -> Exploration {
    Exploration::of(annotations).expect("a valid plan")
}

trait Callers: Sized {
    fn by(self, lines: &[&str]) -> Self;
}

impl Callers for Exploration {
    fn by(self, lines: &[&str]) -> Self {
        self.caller(lines).expect("requests")
    }
}

/// T1, T3, K7, R2: all containers are stopped at the same moment, and the sidecar may crash.
#[test]
fn sidecar_and_main_stopped_together() {
    explore(
        "sidecar and main",
        pod(&[("plan", "s=sidecar, a=main")])
            .by(&["create s", "start s", "kill s TERM", "kill s KILL"])
            .by(&["create a", "start a", "kill a TERM", "kill a KILL"])
            .ending("s", &[1])
            .ending("a", &[0]),
    );
}

/// I1, I3: an init that fails once before a main.
#[test]
fn init_retried_before_main() {
    explore(
        "init, sidecar and main",
        pod(&[("plan", "i=init, s=sidecar, a=main"), ("restart-policy", "OnFailure")])
            .by(&["create i", "start i"])
            .by(&["create s", "start s"])
            .by(&["create a", "start a", "kill a TERM"])
            .ending("i", &[0, 1])
            .ending("a", &[0]),
    );
}

/// I2, J9, T4: an init that fails for good, with operations that fail too.
#[test]
fn init_fails_the_pod() {
    explore(
        "failing init",
        pod(&[("plan", "s=sidecar, i=init, a=main"), ("restart-policy", "Never")])
            .by(&["create s", "start s"])
            .by(&["create i", "start i"])
            .by(&["create a", "start a", "delete a"])
            .ending("i", &[1])
            .failures(1),
    );
}

/// I7: a parallel group that is retried.
#[test]
fn group_of_inits() {
    explore(
        "group of inits",
        pod(&[("plan", "i+j=init, a=main"), ("restart-policy", "OnFailure")])
            .by(&["create i", "start i", "create j", "start j", "create a", "start a"])
            .ending("i", &[0, 1])
            .ending("j", &[0]),
    );
}

/// U4: a gate that fails while a stop begins.
#[test]
fn gate_fails_during_stop() {
    explore(
        "failing gate",
        pod(&[("plan", "s=sidecar, a=main"), ("ready.s", "tcp::80;fail=1")])
            .by(&["create s", "start s", "kill s TERM"])
            .by(&["create a", "start a", "kill a TERM"])
            .failures(2),
    );
}

/// T1, T5, T6: two sidecars, one of them stubborn, and a budget that is enforced.
#[test]
fn stubborn_sidecar_and_budget() {
    explore(
        "stubborn sidecar",
        pod(&[("plan", "s=sidecar, r=sidecar, a=main"), ("grace", "5s")])
            .by(&["create s", "start s", "create r", "start r", "create a", "start a"])
            .by(&["kill a TERM", "kill r TERM", "kill s TERM"])
            .stubborn("r")
            .ending("a", &[0]),
    );
}

/// K13, K16: pause is killed, or dies, at any moment.
#[test]
fn pause_goes_at_any_moment() {
    explore(
        "pause goes",
        pod(&[("plan", "s=sidecar, a=main")])
            .by(&["create s", "start s", "create a", "start a"])
            .by(&["kill pause KILL"])
            .ending("pause", &[0])
            .ending("s", &[1])
            .failures(1),
    );
}

/// T14, S6: a main is stopped with its sidecar and recreated at once.
#[test]
fn another_round() {
    explore(
        "another round",
        pod(&[("plan", "s=sidecar, a=main")])
            .by(&["create s", "start s", "kill s TERM", "create s as s-2", "start s-2"])
            .by(&["create a", "start a", "kill a TERM", "create a as a-2", "start a-2"]),
    );
}

/// J1, J6, J7: completion with two mains, one of which is never held.
#[test]
fn completion() {
    explore(
        "completion",
        pod(&[("plan", "s=sidecar, a=main, b=main"), ("restart-policy", "Never")])
            .by(&["create s", "start s"])
            .by(&["create a", "start a"])
            .by(&["create b", "start b"])
            .ending("a", &[0])
            .ending("b", &[1])
            .ending("s", &[1]),
    );
}

/// K11, U8, trap 12: kills without a stop, execs in any phase, deletes that come too early or twice.
#[test]
fn execs_kills_and_deletes() {
    explore(
        "execs, kills and deletes",
        pod(&[("plan", "s=sidecar, a=main")])
            .by(&["create s", "start s", "kill s KILL", "delete s"])
            .by(&["create a", "exec a/e", "start a/e", "start a", "kill a KILL", "delete a"])
            .by(&["delete a/e", "wait a"])
            .ending("a/e", &[0]),
    );
}

/// R4, R9, T14: a sidecar whose last failure is fatal, a main that is restarted, and their callers.
#[test]
fn restarts_with_a_limit_and_a_fatal_end() {
    explore(
        "limit and fatal",
        pod(&[
            ("plan", "s=sidecar, a=main"),
            ("restart.s", "on-failure;limit=1"),
            ("fatal.s", "failure"),
            ("restart.a", "on-failure"),
        ])
        .by(&["create s", "start s", "kill s TERM"])
        .by(&["create a", "start a", "kill a TERM"])
        .ending("s", &[0, 1, 2])
        .ending("a", &[1])
        .failures(1),
    );
}

/// R14, I4, I5: a hidden init runs again.
#[test]
fn an_init_runs_again_with_its_pod() {
    explore(
        "pod restart with an init",
        pod(&[("plan", "i=init, a=main"), ("restart-policy", "Never"), ("fatal.a", "restart;limit=1")])
            .by(&["create i", "start i"])
            .by(&["create a", "start a", "kill a TERM", "kill a KILL"])
            .ending("i", &[0, 0])
            .ending("a", &[1, 0]),
    );
}

/// V1 to V6: a switch, its failures and a stop at any moment of it.
#[test]
fn a_standby_takes_over() {
    explore(
        "standby",
        pod(&[("plan", "s|n=sidecar, a=main"), ("migrate.n", "exec:migrate")])
            .by(&["create s", "start s", "create n", "start n", "switch n"])
            .by(&["create a", "start a", "kill a TERM"])
            .failures(1),
    );
}

/// R15, S6, U3: a sidecar that its caller restarts.
#[test]
fn a_visible_sidecar_is_created_again() {
    explore(
        "visible",
        pod(&[("plan", "s=sidecar, a=main"), ("restart-policy", "Never"), ("restart.s", "visible")])
            .by(&["create s", "start s", "create s as s-2", "start s-2"])
            .by(&["create a", "start a", "kill a TERM"])
            .ending("s", &[1])
            .ending("a", &[0]),
    );
}

/// 11.3: a main that waits for another's end, a sidecar that waits for a main's start, and stops at any moment.
#[test]
fn after_in_place_of_the_list() {
    explore(
        "after",
        pod(&[
            ("plan", "s=sidecar, a=main, b=main"),
            ("restart-policy", "Never"),
            ("after.s", "a=started"),
            ("after.b", "a=done"),
        ])
        .by(&["create s", "start s", "kill s TERM"])
        .by(&["create a", "start a"])
        .by(&["create b", "start b", "kill b TERM"])
        .ending("a", &[0, 1])
        .ending("s", &[1]),
    );
}

/// S1: a pod without a plan.
#[test]
fn no_plan() {
    explore(
        "no plan",
        pod(&[])
            .by(&["create a", "start a", "kill a TERM", "delete a"])
            .by(&["kill a KILL", "delete a", "wait a"])
            .ending("a", &[3])
            .failures(1),
    );
}

/// T12, K7, I6: a pod of four, of which one init and one sidecar are stopped one by one in any order.
#[test]
fn pod_of_four() {
    explore(
        "pod of four",
        pod(&[("plan", "s=sidecar, i=init, r=sidecar, a=main"), ("restart-policy", "OnFailure")])
            .by(&["create s", "start s", "create i", "start i", "create r", "start r", "create a", "start a"])
            .by(&["kill i TERM", "kill s TERM"])
            .ending("i", &[0]),
    );
}

/// H1 to H4: hooks of a sidecar and its main that end, hang, fail or end their container.
#[test]
fn hooks_end_at_any_moment() {
    explore(
        "hooks",
        pod(&[
            ("plan", "s=sidecar, a=main"),
            ("grace", "5s"),
            ("on-terminate.s", "exec:drain"),
            ("pre-stop.a", "exec:flush"),
        ])
        .by(&["create s", "start s", "create a", "start a", "kill a TERM"])
        .by(&["kill s TERM", "kill s KILL"])
        .ending("s", &[1]),
    );
}

/// H2, U4: a gate fails, the pre-stop hook runs, and the pod's stop comes in between.
#[test]
fn pre_stop_of_an_unready_sidecar() {
    explore(
        "pre-stop of an unready sidecar",
        pod(&[("plan", "s=sidecar, a=main"), ("ready.s", "tcp::80;fail=1"), ("pre-stop.s", "exec:flush")])
            .by(&["create s", "start s", "kill s TERM"])
            .by(&["create a", "start a", "kill a TERM"])
            .failures(2),
    );
}

/// K11: with `zero-grace=order` one container after another is killed, while others end, crash or are in backoff.
#[test]
fn kills_in_order() {
    explore(
        "zero-grace=order",
        pod(&[("plan", "s=sidecar, a=main"), ("zero-grace", "order")])
            .by(&["create s", "start s", "create a", "start a"])
            .by(&["kill s KILL", "kill a KILL"])
            .stubborn("a")
            .ending("s", &[1]),
    );
}
