//! `hack/simulate`: random scenarios by the million, each checked at every step; failing ones are shrunk.
//!
//! Owns the threads and what is printed. `runs` owns which runs there are; the library owns the runs themselves.

use std::collections::BTreeMap;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use testkit::{Failure, Scenario, Simulator};

mod options;
mod runs;
mod table;

use options::{Ends, Options, Prints, Task};
use runs::{Run, Runs};
use table::Table;

/// Between two lines of progress.
const PROGRESS: Duration = Duration::from_secs(5);
/// Each kind of failure is shrunk, which takes thousands of runs.
const MOST_KINDS: usize = 8;

fn main() -> ExitCode {
    let options = match options::options(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(problem) => {
            eprintln!("{problem} (see hack/simulate -h)");
            return ExitCode::from(64);
        }
    };
    let result = match &options.task {
        Task::Replay(path) => replay(path),
        Task::Run(runs) => simulate(&options, runs),
    };
    match result {
        Ok(code) => code,
        Err(problem) => {
            eprintln!("{problem}");
            ExitCode::from(2)
        }
    }
}

/// What a thread reports.
enum WorkerReport {
    Progress { runs: u64, table: Table, digest: u64 },
    Failed(u64, Failure),
}

/// The first run that failed in one way, and how many runs did.
struct Finding {
    index: u64,
    failure: Failure,
    times: u64,
}

fn simulate(options: &Options, runs: &Runs) -> Result<ExitCode, String> {
    // A panic is a finding, reported like the others.
    std::panic::set_hook(Box::new(|_| {}));
    let (next, is_enough) = (&AtomicU64::new(0), &AtomicBool::new(false));
    let (sender, reports) = mpsc::channel();
    let clock = Clock::start();
    let (mut done, mut printed, mut table, mut digest) = (0, Duration::ZERO, Table::default(), 0_u64);
    let mut found: BTreeMap<String, Finding> = BTreeMap::new();
    std::thread::scope(|scope| {
        for _ in 0..options.jobs {
            let sender = sender.clone();
            scope.spawn(move || run(runs, options.prints, next, is_enough, &sender));
        }
        drop(sender);
        for report in reports {
            match report {
                WorkerReport::Progress { runs, table: part, digest: more } => {
                    done += runs;
                    table.add(&part);
                    digest = digest.wrapping_add(more);
                }
                // With several threads this is not always the lowest seed; but each seed reproduces its failure by
                // itself.
                WorkerReport::Failed(index, failure) => {
                    let kind = failure.kind();
                    if !found.contains_key(&kind) {
                        eprintln!("{}: {}", runs.play(index).name, failure.error);
                    }
                    found.entry(kind).or_insert(Finding { index, failure, times: 0 }).times += 1;
                    is_enough.fetch_or(options.ends == Ends::AtFailure, Ordering::Relaxed);
                }
            }
            let passed = clock.passed();
            if passed >= printed + PROGRESS {
                printed = passed;
                progress(done, runs.count(), passed, found.len());
            }
        }
    });
    progress(done, runs.count(), clock.passed(), found.len());
    if options.prints == Prints::Digest {
        println!("{digest:016x}");
    }
    if options.ends == Ends::AtFailure {
        return Ok(if found.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE });
    }
    let mut findings: Vec<_> = found.values().collect();
    findings.sort_by_key(|finding| std::cmp::Reverse(finding.times));
    for finding in findings.iter().take(MOST_KINDS) {
        report(options, runs.play(finding.index), finding)?;
    }
    if findings.len() > MOST_KINDS {
        eprintln!("{} more kinds of failures are not shown", findings.len() - MOST_KINDS);
    }
    eprint!("{table}");
    Ok(if findings.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn run(
    runs: &Runs,
    prints: Prints,
    next: &AtomicU64,
    is_enough: &AtomicBool,
    sender: &mpsc::Sender<WorkerReport>,
) {
    const BATCH: u64 = 200;
    loop {
        let first = next.fetch_add(BATCH, Ordering::Relaxed);
        if first >= runs.count() || is_enough.load(Ordering::Relaxed) {
            return;
        }
        let last = (first + BATCH).min(runs.count());
        let (mut table, mut digest) = (Table::default(), 0_u64);
        for index in first..last {
            let play = runs.play(index);
            if prints == Prints::Digest {
                digest = digest.wrapping_add(digest_of(index, &play.scenario));
            }
            let failure = testkit::check(&play.scenario);
            if let Some(cell) = play.cell {
                table.count(cell, failure.as_ref());
            }
            if let Some(failure) = failure {
                // The receiver lives as long as the threads do.
                let _ = sender.send(WorkerReport::Failed(index, failure));
            }
        }
        let _ = sender.send(WorkerReport::Progress { runs: last - first, table, digest });
    }
}

/// A number for what a run shows: two builds that show the same have the same.
fn digest_of(index: u64, scenario: &Scenario) -> u64 {
    let mut simulator = Simulator::default();
    let result = simulator.run(scenario).map_err(|error| error.to_string());
    let mut hasher = DefaultHasher::new();
    (index, result, simulator.take_trace()).hash(&mut hasher);
    hasher.finish()
}

fn progress(done: u64, all: u64, passed: Duration, kinds: usize) {
    let rate = done as f64 / passed.as_secs_f64().max(0.001);
    eprintln!(
        "{done} of {all} runs in {:.0} s, {rate:.0} a second; {kinds} kinds of failures",
        passed.as_secs_f64()
    );
}

/// Writes the smallest scenario that fails like this one, in the form of a scenario file.
fn report(options: &Options, play: Run, finding: &Finding) -> Result<(), String> {
    let Run { name, scenario, .. } = play;
    eprintln!("{name}, one of {} such runs: {}", finding.times, finding.failure.error);
    let (scenario, failure) = testkit::shrink(scenario, finding.failure.clone());
    let path = options.out.join(format!("{name}.txt"));
    let text = format!("# {name}\n{}", as_file(&scenario, &failure.trace, Some(&failure.error)));
    fs::create_dir_all(&options.out)
        .and_then(|()| fs::write(&path, &text))
        .map_err(|error| format!("cannot write {}: {error}", path.display()))?;
    println!("{text}");
    eprintln!("written to {}; again: hack/simulate --replay {}", path.display(), path.display());
    Ok(())
}

/// The form of the files in crates/pod-lifecycle/tests/scenarios.
fn as_file(scenario: &Scenario, trace: &[String], error: Option<&str>) -> String {
    let broken = error.map(|error| format!("broken: {error}\n")).unwrap_or_default();
    let trace: String = trace.iter().map(|line| format!("{line}\n")).collect();
    format!("{scenario}----\n{trace}{broken}")
}

/// Runs a file's scenario and shows its trace.
fn replay(path: &Path) -> Result<ExitCode, String> {
    let text =
        fs::read_to_string(path).map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    let mut simulator = Simulator::default();
    let mut failed = false;
    for block in text.split("\n\n") {
        let commands = block.lines().take_while(|line| *line != "----");
        let scenario = Scenario::parse(commands).map_err(|error| format!("{}: {error}", path.display()))?;
        let error = simulator.run(&scenario).err().map(|error| error.to_string());
        failed |= error.is_some();
        println!("{}", as_file(&scenario, &simulator.take_trace(), error.as_deref()));
    }
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// The real time that passes while a person waits for the result.
struct Clock(std::time::Instant);

impl Clock {
    #[expect(
        clippy::disallowed_methods,
        reason = "the rate of runs is of real time; the runs themselves have none"
    )]
    fn start() -> Self {
        Self(std::time::Instant::now())
    }

    fn passed(&self) -> Duration {
        self.0.elapsed()
    }
}
