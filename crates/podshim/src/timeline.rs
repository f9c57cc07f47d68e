//! A pod's life as bars: when each container did what, and what happened at which moment.
//!
//! Owns what is drawn, from the events of a shim and the present state of the pod; the files of this folder own how it
//! looks.

pub mod html;
pub mod svg;
pub mod text;

use std::collections::BTreeMap;

use control_api::container::Role;
use control_api::event::{Cause, Kind};
use pod_spec::Signal;

use crate::events::{EventReport, Sentences};
use crate::pods::{PodReport, called};

/// A pod's life.
#[derive(Clone, Debug)]
pub struct Timeline {
    /// The pod's name, with its namespace if it has one.
    pub title: String,
    /// The time of the first event, in milliseconds of the shim's clock as all times here.
    pub begin_ms: u64,
    /// Now, or the time of the last event if all containers have ended.
    pub end_ms: u64,
    /// What to add to a time to get milliseconds since 1970.
    pub wall_offset_ms: i64,
    /// The containers, in the order of the plan.
    pub lanes: Vec<Lane>,
    /// What happened to the whole pod.
    pub marks: Vec<Mark>,
    /// The stop's budget: when it begins and when it is spent.
    pub budget: Option<(u64, u64)>,
    /// All events.
    pub rows: Vec<Row>,
    /// How many events at the beginning are not kept any more.
    pub lost: u64,
}

/// An event as it is listed below the picture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// When.
    pub at_ms: u64,
    /// The same in milliseconds since 1970.
    pub wall_ms: i64,
    /// The container's name, or `(pod)`.
    pub who: String,
    /// What happened.
    pub sentence: String,
}

/// A container.
#[derive(Clone, Debug, Default)]
pub struct Lane {
    /// Its name.
    pub name: String,
    /// Its role in the pod; `None` if the pod no longer has it.
    pub role: Option<Role>,
    /// What it did, in order.
    pub spans: Vec<Span>,
    /// What happened to it.
    pub marks: Vec<Mark>,
}

/// What a container did for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// When that began.
    pub from_ms: u64,
    /// When that ended.
    pub to_ms: u64,
    /// What it did.
    pub phase: Phase,
}

/// What a container can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// It exists.
    Created,
    /// Its caller has started it, and podshim holds it until others are ready.
    Held,
    /// Its program is being started.
    Starting,
    /// It runs and its gate is closed.
    Running,
    /// It runs, and its gate is open or it has no gate.
    Ready,
    /// It has got its stop signal.
    Stopping,
    /// podshim will restart it.
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
    /// What happened.
    pub text: String,
}

/// How a mark is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum MarkKind {
    /// A gate has opened, or a standby has taken over.
    Gate,
    /// A signal was sent, or waits for its turn.
    Signal,
    /// A program has ended with 0.
    Done,
    /// A program has ended with the code of the stop signal that it got.
    BySignal,
    /// Something has failed, or was killed.
    Failure,
    /// A hook was begun or has ended.
    Hook,
    /// The pod's stop has begun or ended, or its budget has run out.
    Budget,
}

impl Phase {
    /// All phases, in the order of the legends.
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

    /// The phase as legends show it.
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
    /// The exit code of a program that its last stop signal ends.
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
    /// A gate opens once and stays open: the containers that waited for it run.
    Opened,
}

impl Gate {
    /// The phase of a container whose program runs.
    fn running(self) -> Phase {
        match self {
            Self::None | Self::Closed => Phase::Running,
            Self::Opened => Phase::Ready,
        }
    }
}

impl Timeline {
    /// The timeline of a pod from its present state and its shim's events. `now_ms` is the time since 1970.
    pub fn of(pod: &PodReport, events: Vec<EventReport>, lost: u64, now_ms: i64) -> Self {
        let wall_offset_ms = events
            .last()
            .map_or(now_ms, |last| last.wall_ms - i64::try_from(last.monotonic_ms).unwrap_or_default());
        let mut lanes: Vec<Drawn> = Vec::new();
        let mut indices: BTreeMap<String, usize> = BTreeMap::new();
        for container in pod.containers.iter().filter(|container| container.role != Role::SANDBOX) {
            indices.insert(container.name.clone(), lanes.len());
            let gate = if container.gate.is_some() { Gate::Closed } else { Gate::None };
            let mut drawn = Drawn::new(&called(&container.name, &pod.id), gate);
            drawn.lane.role = Some(container.role);
            lanes.push(drawn);
        }
        let sandbox: Vec<&str> = pod
            .containers
            .iter()
            .filter(|container| container.role == Role::SANDBOX)
            .map(|container| container.name.as_str())
            .collect();
        let (mut marks, mut budget) = (Vec::new(), None);
        for event in &events {
            let Some(name) = event.container.as_deref().filter(|name| !sandbox.contains(name)) else {
                if event.kind == Kind::STOP_BEGAN {
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

    /// The length of the timeline; never zero, as it is a divisor.
    pub fn length_ms(&self) -> u64 {
        (self.end_ms - self.begin_ms).max(1)
    }

    /// The moments at which the axis has a number: round numbers, at most `most` of them.
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
            Kind::CREATED => self.does(at, Some(Phase::Created)),
            Kind::HELD => self.does(at, Some(Phase::Held)),
            Kind::STARTING => self.does(at, Some(Phase::Starting)),
            Kind::RUNNING => self.does(at, Some(self.gate.running())),
            Kind::GATE_OPENED => {
                self.gate = Gate::Opened;
                self.does(at, Some(Phase::Ready));
            }
            Kind::GATE_FAILED if self.gate == Gate::None => self.gate = Gate::Closed,
            Kind::RESTART_DUE => self.does(at, Some(Phase::BackingOff)),
            Kind::EXITED | Kind::STOPPED | Kind::DELETED => self.does(at, None),
            Kind::PAUSED => {
                self.before_pause = doing;
                self.does(at, Some(Phase::Paused));
            }
            Kind::RESUMED => {
                let before = self.before_pause.take();
                self.does(at, before);
            }
            Kind::SIGNALLED if doing.is_some() && is_stop(event) => {
                self.signalled = event.signal.as_deref().and_then(code_of);
                self.does(at, Some(Phase::Stopping));
            }
            _ => {}
        }
        let by_signal =
            event.kind == Kind::EXITED && self.signalled.is_some() && event.code == self.signalled;
        let mark =
            mark(event).map(|mark| if by_signal { Mark { kind: MarkKind::BySignal, ..mark } } else { mark });
        if matches!(event.kind, Kind::STARTING | Kind::EXITED) {
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
            // A container without a gate is never drawn as one whose gate is closed.
            let running = self.lane.spans.iter_mut().filter(|span| span.phase == Phase::Running);
            running.for_each(|span| span.phase = Phase::Ready);
        }
        self.lane
    }
}

/// The exit code of a program that a stop signal ends. `None` for SIGKILL: it is no request to stop.
fn code_of(signal: &str) -> Option<u32> {
    let signal = Signal::parse(signal).ok().filter(|signal| *signal != Signal::KILL)?;
    Some(128 + u32::from(signal.number()))
}

fn rows(events: &[EventReport], pod_id: &str) -> Vec<Row> {
    let mut sentences = Sentences::default();
    let rows = events.iter().filter_map(|event| {
        let who = event.container.as_deref().map_or_else(|| "(pod)".to_owned(), |name| called(name, pod_id));
        let sentence = sentences.next(event)?;
        Some(Row { at_ms: event.monotonic_ms, wall_ms: event.wall_ms, who, sentence })
    });
    rows.collect()
}

/// Whether a signal is meant to end the program: podshim sends no others, a caller may.
fn is_stop(event: &EventReport) -> bool {
    event.cause != Some(Cause::BY_CALLER) || matches!(event.signal.as_deref(), Some("SIGTERM" | "SIGKILL"))
}

fn mark(event: &EventReport) -> Option<Mark> {
    let kind = match event.kind {
        Kind::GATE_OPENED | Kind::SWITCHED => MarkKind::Gate,
        Kind::SIGNALLED | Kind::SIGNAL_HELD => MarkKind::Signal,
        Kind::EXITED if event.code == Some(0) => MarkKind::Done,
        Kind::EXITED | Kind::GATE_FAILED | Kind::START_FAILED | Kind::SWITCH_FAILED | Kind::OUT_OF_MEMORY => {
            MarkKind::Failure
        }
        Kind::HOOK_ENDED if event.failure.is_some() => MarkKind::Failure,
        Kind::HOOK_STARTED | Kind::HOOK_ENDED => MarkKind::Hook,
        Kind::STOP_BEGAN | Kind::LAST_CALL | Kind::BUDGET_SPENT | Kind::STOP_ENDED => MarkKind::Budget,
        _ => return None,
    };
    Some(Mark { at_ms: event.monotonic_ms, kind, text: event.sentence() })
}

#[cfg(test)]
pub(crate) mod tests;
