//! `hack/simulate`: random scenarios by the million, each checked in every step, and what fails made small.
//!
//! Owns the command line, the threads and what is printed; the runs themselves are the library's.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use pod_spec::RestartPolicy;
use testkit::{Failure, KubeletRun, KubeletVersion, Scenario, Simulator, Trouble};

mod table;

/// Between two lines of progress.
const PROGRESS: Duration = Duration::from_secs(5);
/// Each is shrunk, which takes thousands of runs.
const MOST_KINDS: usize = 8;

/// What to run.
struct Options {
    runs: u64,
    seed: u64,
    jobs: usize,
    /// Where failing scenarios are written.
    out: PathBuf,
    replay: Option<PathBuf>,
    /// Under a kubelet, or by scripted callers.
    kubelet: Option<Kubelet>,
}

/// Which runs under a kubelet; what is not said is all.
#[derive(Clone, Copy, Default)]
struct Kubelet {
    policy: Option<RestartPolicy>,
    trouble: Option<Trouble>,
}

/// One run, and what makes it again.
struct Play {
    /// Beside the seed.
    arguments: String,
    seed: u64,
    under_kubelet: Option<KubeletRun>,
}

impl Play {
    fn scenario(&self) -> Scenario {
        self.under_kubelet.map_or_else(|| testkit::random_scenario(self.seed), KubeletRun::scenario)
    }
}

impl Options {
    /// All runs, and which the one of an index is.
    fn count(&self) -> u64 {
        match self.kubelet {
            Some(kubelet) => self.runs * kubelet.policies().len() as u64,
            None => self.runs,
        }
    }

    fn play(&self, index: u64) -> Play {
        let seed = self.seed.wrapping_add(index % self.runs.max(1));
        let Some(kubelet) = self.kubelet else {
            return Play { arguments: String::new(), seed, under_kubelet: None };
        };
        let policy = kubelet.policies()[(index / self.runs.max(1)) as usize];
        let troubles: Vec<_> = Trouble::all().collect();
        // So that a seed says what befalls its pod.
        let trouble = kubelet.trouble.unwrap_or(troubles[(seed % troubles.len() as u64) as usize]);
        let run = KubeletRun { version: KubeletVersion::Unaware, policy, trouble, seed };
        let word = format!("{policy:?}").to_lowercase();
        Play { arguments: format!("{word}-{trouble}-"), seed, under_kubelet: Some(run) }
    }
}

impl Kubelet {
    fn policies(self) -> Vec<RestartPolicy> {
        let all = vec![RestartPolicy::Always, RestartPolicy::OnFailure, RestartPolicy::Never];
        self.policy.map_or(all, |policy| vec![policy])
    }
}

fn main() -> ExitCode {
    let options = match options(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(problem) => {
            eprintln!("{problem} (see hack/simulate -h)");
            return ExitCode::from(64);
        }
    };
    let result = match &options.replay {
        Some(path) => replay(path),
        None => simulate(&options),
    };
    match result {
        Ok(code) => code,
        Err(problem) => {
            eprintln!("{problem}");
            ExitCode::from(2)
        }
    }
}

fn options(mut words: impl Iterator<Item = String>) -> Result<Options, String> {
    let jobs = std::thread::available_parallelism().map_or(1, usize::from);
    let mut options = Options {
        runs: 1_000_000,
        seed: 0,
        jobs,
        out: PathBuf::from("target/simulate"),
        replay: None,
        kubelet: None,
    };
    while let Some(word) = words.next() {
        if word == "--kubelet" {
            options.kubelet.get_or_insert_default();
            continue;
        }
        let value = words.next().ok_or_else(|| format!("{word} needs a value"))?;
        let number = || value.parse::<u64>().map_err(|_| format!("{word}: {value:?} is no number"));
        match word.as_str() {
            "--runs" => options.runs = number()?,
            "--seed" => options.seed = number()?,
            "--jobs" => options.jobs = usize::try_from(number()?.max(1)).unwrap_or(1),
            "--out" => options.out = value.into(),
            "--replay" => options.replay = Some(value.into()),
            "--policy" => {
                options.kubelet.get_or_insert_default().policy = Some(testkit::parse_policy(&value)?);
            }
            "--fault" => options.kubelet.get_or_insert_default().trouble = Some(Trouble::parse(&value)?),
            _ => return Err(format!("unknown argument {word}")),
        }
    }
    Ok(options)
}

/// What a thread has to say.
enum News {
    Progress(u64),
    Failed(u64, Failure),
    Table(table::Table),
}

fn simulate(options: &Options) -> Result<ExitCode, String> {
    // A panic is a finding, told like the others.
    std::panic::set_hook(Box::new(|_| {}));
    let next = &AtomicU64::new(0);
    let (sender, news) = mpsc::channel();
    let clock = Clock::start();
    let (mut done, mut found, mut told) = (0, BTreeMap::new(), Duration::ZERO);
    let mut table = table::Table::default();
    std::thread::scope(|scope| {
        for _ in 0..options.jobs {
            let sender = sender.clone();
            scope.spawn(move || run(options, next, &sender));
        }
        drop(sender);
        for news in news {
            match news {
                News::Progress(runs) => done += runs,
                News::Table(part) => table.add(&part),
                // Not the lowest of all seeds, if there are several threads; but each reproduces by itself.
                News::Failed(index, failure) => {
                    let kind = failure.kind();
                    if !found.contains_key(&kind) {
                        let Play { arguments, seed, .. } = options.play(index);
                        eprintln!("{arguments}seed {seed}: {}", failure.error);
                    }
                    let (_, _, times) = found.entry(kind).or_insert((index, failure, 0_u64));
                    *times += 1;
                }
            }
            let passed = clock.passed();
            if passed >= told + PROGRESS {
                told = passed;
                progress(done, options.count(), passed, found.len());
            }
        }
    });
    progress(done, options.count(), clock.passed(), found.len());
    let mut kinds: Vec<_> = found.values().collect();
    kinds.sort_by_key(|(_, _, times)| std::cmp::Reverse(*times));
    for (index, failure, times) in kinds.into_iter().take(MOST_KINDS) {
        report(options, *index, failure, *times)?;
    }
    if options.kubelet.is_some() {
        eprint!("{table}");
    }
    if found.len() > MOST_KINDS {
        eprintln!("{} more kinds of failures are not shown", found.len() - MOST_KINDS);
    }
    Ok(if found.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn run(options: &Options, next: &AtomicU64, sender: &mpsc::Sender<News>) {
    const BATCH: u64 = 200;
    loop {
        let first = next.fetch_add(BATCH, Ordering::Relaxed);
        if first >= options.count() {
            return;
        }
        let last = (first + BATCH).min(options.count());
        let mut table = table::Table::default();
        for index in first..last {
            let play = options.play(index);
            let failure = testkit::check(&play.scenario());
            if let Some(run) = play.under_kubelet {
                table.count(run, failure.as_ref());
            }
            if let Some(failure) = failure {
                // The receiver lives as long as the threads do.
                let _ = sender.send(News::Failed(index, failure));
            }
        }
        let _ = sender.send(News::Table(table));
        let _ = sender.send(News::Progress(last - first));
    }
}

fn progress(done: u64, all: u64, passed: Duration, kinds: usize) {
    let rate = done as f64 / passed.as_secs_f64().max(0.001);
    eprintln!(
        "{done} of {all} runs in {:.0} s, {rate:.0} a second; {kinds} kinds of failures",
        passed.as_secs_f64()
    );
}

/// Writes the least scenario that fails like this one, in the form of a scenario file.
fn report(options: &Options, index: u64, failure: &Failure, times: u64) -> Result<(), String> {
    let play = options.play(index);
    let Play { arguments, seed, .. } = &play;
    eprintln!("{arguments}seed {seed}, one of {times} such runs: {}", failure.error);
    let (scenario, failure) = testkit::shrink(play.scenario(), failure.clone());
    let path = options.out.join(format!("{arguments}seed-{seed}.txt"));
    let text =
        format!("# {arguments}seed {seed}\n{}", as_file(&scenario, &failure.trace, Some(&failure.error)));
    fs::create_dir_all(&options.out)
        .and_then(|()| fs::write(&path, &text))
        .map_err(|error| format!("cannot write {}: {error}", path.display()))?;
    println!("{text}");
    eprintln!("written to {}; again: hack/simulate --replay {}", path.display(), path.display());
    Ok(())
}

/// The file's form is that of crates/pod-lifecycle/tests/scenarios.
fn as_file(scenario: &Scenario, trace: &[String], error: Option<&str>) -> String {
    let broken = error.map(|error| format!("broken: {error}\n")).unwrap_or_default();
    let trace: String = trace.iter().map(|line| format!("{line}\n")).collect();
    format!("{scenario}----\n{trace}{broken}")
}

/// Plays a file's scenario and shows what comes of it.
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

/// The time that passes for whoever waits for the result.
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
