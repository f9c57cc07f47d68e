//! A pod's life as bars: what each container was doing when, and what happened at which moment.
//!
//! Owns what is drawn, from the events of a shim and how the pod is now; the files of this folder own how it looks.

pub mod html;
pub mod svg;
pub mod text;

use std::collections::BTreeMap;

use pod_spec::Signal;

use crate::history::{EventKind, EventReport, Story};
use crate::pods::{PodReport, called};

/// A pod's life.
#[derive(Clone, Debug)]
pub struct Timeline {
    /// What people call the pod.
    pub title: String,
    /// The first moment, in milliseconds of the shim's clock, as all times here.
    pub begin_ms: u64,
    /// The last one: now, or when nothing was left.
    pub end_ms: u64,
    /// What to add for the time since 1970.
    pub wall_offset_ms: i64,
    /// The containers, in the order of the plan.
    pub lanes: Vec<Lane>,
    /// What happened to the whole pod.
    pub marks: Vec<Mark>,
    /// The stop's budget: from its begin until it is spent.
    pub budget: Option<(u64, u64)>,
    /// All that happened.
    pub rows: Vec<Row>,
    /// How many events of the beginning are not kept any more.
    pub lost: u64,
}

/// One thing that happened, as it stands below the picture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// When.
    pub at_ms: u64,
    /// The same since 1970.
    pub wall_ms: i64,
    /// To which container, or `(pod)`.
    pub who: String,
    /// What.
    pub sentence: String,
}

/// A container.
#[derive(Clone, Debug, Default)]
pub struct Lane {
    /// Its name.
    pub name: String,
    /// What it is to the pod; `None` once it is gone.
    pub role: Option<&'static str>,
    /// What it was doing, in order.
    pub spans: Vec<Span>,
    /// What happened to it.
    pub marks: Vec<Mark>,
}

/// What a container was doing for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Its begin.
    pub from_ms: u64,
    /// Its end.
    pub to_ms: u64,
    /// What it was doing.
    pub phase: Phase,
}

/// What a container can be doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// It exists.
    Created,
    /// Its caller has started it, and it waits for others.
    Held,
    /// Its program is being started.
    Starting,
    /// It runs and its gate is closed.
    Running,
    /// It runs and no container waits for it.
    Ready,
    /// It has its stop signal.
    Stopping,
    /// It will be started again.
    BackingOff,
    /// It is frozen.
    Paused,
}

/// What happened at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark {
    /// When.
    pub at_ms: u64,
    /// How it is drawn.
    pub kind: MarkKind,
    /// What it was.
    pub text: String,
}

/// How a mark is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum MarkKind {
    /// A gate has opened.
    Gate,
    /// A signal was sent.
    Signal,
    /// A program has ended with 0.
    Done,
    /// A program has ended by the stop signal that it got.
    BySignal,
    /// Something has failed, or was killed.
    Failure,
    /// A hook was begun or has ended.
    Hook,
    /// Of the stop's budget.
    Budget,
}

impl Phase {
    /// All of them, as legends show them.
    pub const ALL: [Self; 8] = [
        Self::Created,
        Self::Held,
        Self::Starting,
        Self::Running,
        Self::Ready,
        Self::Stopping,
        Self::BackingOff,
        Self::Paused,
    ];

    /// In words.
    pub fn words(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Held => "held",
            Self::Starting => "starting",
            Self::Running => "gate closed",
            Self::Ready => "running",
            Self::Stopping => "stopping",
            Self::BackingOff => "backing off",
            Self::Paused => "paused",
        }
    }
}

/// A lane that is being drawn.
struct Drawn {
    lane: Lane,
    /// The code of a program that its last stop signal ends.
    signalled: Option<u32>,
    doing: Option<(u64, Phase)>,
    before_pause: Option<Phase>,
    gate: Gate,
}

/// Whether another container waits for a container's gate.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Gate {
    None,
    Closed,
    /// Once is for ever: those who waited run.
    Opened,
}

impl Gate {
    /// What a container does whose program runs.
    fn running(self) -> Phase {
        match self {
            Self::None | Self::Closed => Phase::Running,
            Self::Opened => Phase::Ready,
        }
    }
}

impl Timeline {
    /// Of a pod as it is now, and what its shim tells of it. `now_ms` is the time since 1970.
    pub fn of(pod: &PodReport, events: Vec<EventReport>, lost: u64, now_ms: i64) -> Self {
        let wall_offset_ms = events
            .last()
            .map_or(now_ms, |last| last.wall_ms - i64::try_from(last.monotonic_ms).unwrap_or_default());
        let mut lanes: Vec<Drawn> = Vec::new();
        let mut indices: BTreeMap<String, usize> = BTreeMap::new();
        for container in pod.containers.iter().filter(|container| container.role != "sandbox") {
            indices.insert(container.name.clone(), lanes.len());
            let gate = if container.gate.is_some() { Gate::Closed } else { Gate::None };
            let mut drawn = Drawn::new(&called(&container.name, &pod.id), gate);
            drawn.lane.role = Some(container.role);
            lanes.push(drawn);
        }
        let sandbox: Vec<&str> = pod
            .containers
            .iter()
            .filter(|container| container.role == "sandbox")
            .map(|container| container.name.as_str())
            .collect();
        let (mut marks, mut budget) = (Vec::new(), None);
        for event in &events {
            let Some(name) = event.container.as_deref().filter(|name| !sandbox.contains(name)) else {
                if event.kind == EventKind::StopBegan {
                    budget = event.duration_ms.map(|time| (event.monotonic_ms, event.monotonic_ms + time));
                }
                marks.extend(mark(event));
                continue;
            };
            let index = *indices.entry(name.to_owned()).or_insert_with(|| {
                lanes.push(Drawn::new(&called(name, &pod.id), Gate::None));
                lanes.len() - 1
            });
            lanes[index].happens(event);
        }
        let begin_ms = events.first().map_or(0, |first| first.monotonic_ms);
        let last_ms = events.last().map_or(begin_ms, |last| last.monotonic_ms);
        let goes_on = lanes.iter().any(|drawn| drawn.doing.is_some());
        let now = u64::try_from(now_ms - wall_offset_ms).unwrap_or(last_ms);
        let end_ms = if goes_on { now.max(last_ms) } else { last_ms };
        let lanes = lanes.into_iter().map(|drawn| drawn.done(end_ms)).collect();
        let title = pod.title();
        let rows = rows(&events, &pod.id);
        Self { title, begin_ms, end_ms, wall_offset_ms, lanes, marks, budget, rows, lost }
    }

    /// How long it took, never zero: it is divided by.
    pub fn length_ms(&self) -> u64 {
        (self.end_ms - self.begin_ms).max(1)
    }

    /// The moments at which the axis has a number: round ones, at most `most` of them.
    pub fn ticks(&self, most: u64) -> Vec<u64> {
        let steps = [1, 2, 5].into_iter().cycle().zip((0..).flat_map(|power| [power; 3]));
        let mut steps = steps.map(|(digit, power)| digit * 10_u64.saturating_pow(power));
        let step = steps.find(|step| self.length_ms() / step < most.max(1)).unwrap_or(u64::MAX);
        (0..=self.length_ms() / step).map(|number| number * step).collect()
    }
}

impl Drawn {
    fn new(name: &str, gate: Gate) -> Self {
        let lane = Lane { name: name.to_owned(), ..Lane::default() };
        Self { lane, signalled: None, doing: None, before_pause: None, gate }
    }

    fn happens(&mut self, event: &EventReport) {
        let at = event.monotonic_ms;
        let doing = self.doing.map(|(_, phase)| phase);
        match event.kind {
            EventKind::Created => self.does(at, Some(Phase::Created)),
            EventKind::Held => self.does(at, Some(Phase::Held)),
            EventKind::Starting => self.does(at, Some(Phase::Starting)),
            EventKind::Running => self.does(at, Some(self.gate.running())),
            EventKind::GateOpened => {
                self.gate = Gate::Opened;
                self.does(at, Some(Phase::Ready));
            }
            EventKind::GateFailed if self.gate == Gate::None => self.gate = Gate::Closed,
            EventKind::RestartDue => self.does(at, Some(Phase::BackingOff)),
            EventKind::Exited | EventKind::Stopped | EventKind::Deleted => self.does(at, None),
            EventKind::Paused => {
                self.before_pause = doing;
                self.does(at, Some(Phase::Paused));
            }
            EventKind::Resumed => {
                let before = self.before_pause.take();
                self.does(at, before);
            }
            EventKind::Signalled if doing.is_some() && is_stop(event) => {
                self.signalled = event.signal.as_deref().and_then(code_of);
                self.does(at, Some(Phase::Stopping));
            }
            _ => {}
        }
        let by_signal =
            event.kind == EventKind::Exited && self.signalled.is_some() && event.code == self.signalled;
        let mark =
            mark(event).map(|mark| if by_signal { Mark { kind: MarkKind::BySignal, ..mark } } else { mark });
        if matches!(event.kind, EventKind::Starting | EventKind::Exited) {
            self.signalled = None;
        }
        self.lane.marks.extend(mark);
    }

    fn does(&mut self, at: u64, next: Option<Phase>) {
        if let Some((from_ms, phase)) = self.doing
            && from_ms < at
        {
            self.lane.spans.push(Span { from_ms, to_ms: at, phase });
        }
        self.doing = next.map(|phase| (at, phase));
    }

    fn done(mut self, end_ms: u64) -> Lane {
        self.does(end_ms, None);
        if self.gate == Gate::None {
            // Nothing is to be waited for where there is no gate.
            let running = self.lane.spans.iter_mut().filter(|span| span.phase == Phase::Running);
            running.for_each(|span| span.phase = Phase::Ready);
        }
        self.lane
    }
}

/// The code of a program that a stop signal ends. SIGKILL asks for nothing.
fn code_of(signal: &str) -> Option<u32> {
    let signal = Signal::parse(signal).ok().filter(|signal| *signal != Signal::KILL)?;
    Some(128 + u32::from(signal.number()))
}

fn rows(events: &[EventReport], pod_id: &str) -> Vec<Row> {
    let mut story = Story::default();
    let sentences = events.iter().filter_map(|event| {
        let who = event.container.as_deref().map_or_else(|| "(pod)".to_owned(), |name| called(name, pod_id));
        let sentence = story.tell(event)?;
        Some(Row { at_ms: event.monotonic_ms, wall_ms: event.wall_ms, who, sentence })
    });
    sentences.collect()
}

/// Whether a signal is the begin of the end: podshim sends no other, a caller may.
fn is_stop(event: &EventReport) -> bool {
    event.cause != Some("caller") || matches!(event.signal.as_deref(), Some("SIGTERM" | "SIGKILL"))
}

fn mark(event: &EventReport) -> Option<Mark> {
    let kind = match event.kind {
        EventKind::GateOpened | EventKind::Switched => MarkKind::Gate,
        EventKind::Signalled | EventKind::SignalHeld => MarkKind::Signal,
        EventKind::Exited if event.code == Some(0) => MarkKind::Done,
        EventKind::Exited
        | EventKind::GateFailed
        | EventKind::StartFailed
        | EventKind::SwitchFailed
        | EventKind::OutOfMemory => MarkKind::Failure,
        EventKind::HookEnded if event.failure.is_some() => MarkKind::Failure,
        EventKind::HookStarted | EventKind::HookEnded => MarkKind::Hook,
        EventKind::StopBegan | EventKind::LastCall | EventKind::BudgetSpent | EventKind::StopEnded => {
            MarkKind::Budget
        }
        _ => return None,
    };
    Some(Mark { at_ms: event.monotonic_ms, kind, text: event.sentence() })
}

#[cfg(test)]
pub(crate) mod tests;
