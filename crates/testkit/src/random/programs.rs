//! Random programs: how long they run, how they end, how they react to a stop signal. Owns nothing else.

use crate::command::Command;
use crate::program::{OnStop, Program, Run, RunEnd};
use fuzz_input::Rng;

/// A program for each container, some execs and hooks. Without one a container runs for ever, and a hook ends at once.
pub(super) fn commands(random: &mut Rng, names: &[String]) -> Vec<Command> {
    let mut commands = Vec::new();
    for name in names {
        for (chance, part) in
            [(85, ""), (20, "/on-terminate"), (20, "/pre-stop"), (20, "/migrate"), (10, "/e1")]
        {
            if random.percent(chance) {
                commands.push(Command::Program(format!("{name}{part}"), program(random)));
            }
        }
    }
    commands
}

fn program(random: &mut Rng) -> Program {
    Program::new((0..1 + random.below(3)).map(|_| run(random)).collect())
}

fn run(random: &mut Rng) -> Run {
    Run {
        ends: random.percent(50).then(|| end(random)),
        on_stop: if random.percent(25) { OnStop::Ignores } else { OnStop::Exits(end(random)) },
        ready_after: random.percent(75).then(|| random.duration()),
        exec_after: if random.percent(70) { std::time::Duration::ZERO } else { random.duration() },
    }
}

fn end(random: &mut Rng) -> RunEnd {
    RunEnd { code: *random.pick(&[0, 0, 0, 1, 3, 137, 143]), after: random.duration() }
}
