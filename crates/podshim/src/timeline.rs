//! A pod's life from its events: what each container did when, as a chart, and all events as sentences.
//!
//! Owns what is drawn, from the events of a shim and the present state of the pod; the files of this folder own how it
//! looks.

pub mod chart;
pub mod html;
pub mod svg;
pub mod text;

use std::collections::BTreeMap;

use control_api::StopReason;
use control_api::container::Role;
use control_api::event::{Cause, Kind};
use pod_spec::Signal;

use self::chart::{Budget, Chart, Lane, LaneBuilder, Mark, MarkKind, Phase};
use crate::events::{EventReport, Sentences};
use crate::output::Colour;
use crate::pods::{PodReport, display_name};
use crate::words::DisplayWord;

/// A pod's life.
#[derive(Clone, Debug)]
pub struct Timeline {
    /// The pod's name, with its namespace if it has one.
    pub title: String,
    /// The chart, in milliseconds of the shim's clock as all times here. It ends now, or with the last event if all
    /// containers have ended.
    pub chart: Chart,
    /// What to add to a time to get milliseconds since 1970.
    pub wall_offset_ms: i64,
    /// All events.
    pub rows: Vec<Row>,
    /// How many events at the beginning are not kept any more.
    pub lost: u64,
}

/// An event as it is listed below the chart.
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

/// A container as its events have it so far.
struct ContainerLane {
    builder: LaneBuilder,
    /// The exit code of a program that its last stop signal ends.
    stop_code: Option<u32>,
    before_pause: Option<Phase>,
    gate: Gate,
}

/// Whether another container waits for a container's gate.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Gate {
    None,
    Closed,
    /// It stays open for the round (U3): the containers that waited for it run.
    Opened,
}

impl Gate {
    /// The phase of a container whose program runs.
    fn running(self) -> Phase {
        match self {
            Self::None | Self::Closed => Phase::GateClosed,
            Self::Opened => Phase::Running,
        }
    }
}

impl Timeline {
    /// The timeline of a pod from its present state and its shim's events. `now_ms` is the time since 1970.
    pub fn of(pod: &PodReport, events: Vec<EventReport>, lost: u64, now_ms: i64) -> Self {
        let wall_offset_ms = events
            .last()
            .map_or(now_ms, |last| last.wall_ms - i64::try_from(last.monotonic_ms).unwrap_or_default());
        let mut lanes: Vec<ContainerLane> = Vec::new();
        let mut indices: BTreeMap<String, usize> = BTreeMap::new();
        for container in pod.containers.iter().filter(|container| container.role != Role::SANDBOX) {
            indices.insert(container.name.clone(), lanes.len());
            let gate = if container.gate.is_some() { Gate::Closed } else { Gate::None };
            let builder = LaneBuilder::new(display_name(&container.name, &pod.id), container.role.word());
            lanes.push(ContainerLane::new(builder, gate));
        }
        let sandbox: Vec<&str> = pod
            .containers
            .iter()
            .filter(|container| container.role == Role::SANDBOX)
            .map(|container| container.name.as_str())
            .collect();
        let (mut marks, mut stops) = (Vec::new(), Stops::default());
        for event in &events {
            let Some(name) = event.container.as_deref().filter(|name| !sandbox.contains(name)) else {
                stops.apply(event);
                if event.kind == Kind::STOP_ENDED {
                    lanes.iter_mut().for_each(|lane| lane.begin_round(stops.reason));
                }
                marks.extend(mark(event));
                continue;
            };
            let index = *indices.entry(name.to_owned()).or_insert_with(|| {
                lanes.push(ContainerLane::new(LaneBuilder::new(display_name(name, &pod.id), ""), Gate::None));
                lanes.len() - 1
            });
            lanes[index].apply(event);
        }
        let begin_ms = events.first().map_or(0, |first| first.monotonic_ms);
        let last_ms = events.last().map_or(begin_ms, |last| last.monotonic_ms);
        let goes_on = lanes.iter().any(|lane| lane.builder.current().is_some());
        let now = u64::try_from(now_ms - wall_offset_ms).unwrap_or(last_ms);
        let end_ms = if goes_on { now.max(last_ms) } else { last_ms };
        let lanes = lanes.into_iter().map(|lane| lane.finish(end_ms)).collect();
        let title = pod.title();
        let rows = rows(&events, &pod.id);
        let chart = Chart { begin_ms, end_ms, before_ms: 0, lanes, marks, budgets: stops.finish(end_ms) };
        Self { title, chart, wall_offset_ms, rows, lost }
    }

    /// The part of it that a window shows.
    pub fn window(mut self, window: Window) -> Self {
        let (begin, end) = (self.chart.begin_ms, self.chart.end_ms);
        let (from, to) = match window {
            Window::Whole => return self,
            Window::Between(from, to) => {
                (begin.saturating_add(from), to.map_or(end, |to| begin.saturating_add(to)))
            }
            Window::Last(time) => (end.saturating_sub(time), end),
        };
        self.chart = self.chart.window(from, to);
        let shown = self.chart.begin_ms..=self.chart.end_ms;
        self.rows.retain(|row| shown.contains(&row.at_ms));
        self
    }

    /// A time since the beginning of the life.
    pub fn since_begin(&self, at_ms: u64) -> u64 {
        (at_ms + self.chart.before_ms).saturating_sub(self.chart.begin_ms)
    }
}

/// Which part of a life is drawn. Times are in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Window {
    /// All of it.
    Whole,
    /// Between two times since its beginning; without the second one up to its end.
    Between(u64, Option<u64>),
    /// The last part of it.
    Last(u64),
}

/// The stops of a life so far.
#[derive(Debug, Default)]
struct Stops {
    over: Vec<Budget>,
    /// The one under way, if podshim counts its time.
    current: Option<Budget>,
    /// Why the last one began.
    reason: Option<StopReason>,
}

impl Stops {
    fn apply(&mut self, event: &EventReport) {
        let at = event.monotonic_ms;
        match event.kind {
            // Again when its reason or its time changes (T9); another reason has no time of its own.
            Kind::STOP_BEGAN => {
                self.reason = event.reason;
                if let Some(time) = event.duration_ms {
                    let from_ms = self.current.map_or(at, |current| current.from_ms);
                    let time_ms = (at + time).saturating_sub(from_ms);
                    self.current = Some(Budget { from_ms, to_ms: at + time, time_ms });
                }
            }
            Kind::STOP_ENDED => {
                let ended = self.current.take();
                self.over.extend(ended.map(|stop| Budget { to_ms: at.min(stop.to_ms), ..stop }));
            }
            _ => {}
        }
    }

    fn finish(self, end_ms: u64) -> Vec<Budget> {
        let last = self.current.map(|stop| Budget { to_ms: stop.to_ms.min(end_ms), ..stop });
        self.over.into_iter().chain(last).collect()
    }
}

impl ContainerLane {
    fn new(builder: LaneBuilder, gate: Gate) -> Self {
        Self { builder, stop_code: None, before_pause: None, gate }
    }

    fn apply(&mut self, event: &EventReport) {
        let at = event.monotonic_ms;
        let current = self.builder.current();
        match event.kind {
            Kind::CREATED => self.builder.enter(at, Some(Phase::Created)),
            Kind::HELD => self.builder.enter(at, Some(Phase::Held)),
            Kind::STARTING => self.builder.enter(at, Some(Phase::Starting)),
            Kind::RUNNING => self.builder.enter(at, Some(self.gate.running())),
            Kind::GATE_OPENED => {
                self.gate = Gate::Opened;
                self.builder.enter(at, Some(Phase::Running));
            }
            Kind::GATE_FAILED if self.gate == Gate::None => self.gate = Gate::Closed,
            Kind::RESTART_DUE => self.builder.enter(at, Some(Phase::BackingOff)),
            Kind::EXITED | Kind::STOPPED | Kind::DELETED => self.builder.enter(at, None),
            Kind::PAUSED => {
                self.before_pause = current;
                self.builder.enter(at, Some(Phase::Paused));
            }
            Kind::RESUMED => self.builder.enter(at, self.before_pause.take()),
            Kind::SIGNALLED if current.is_some() && is_stop(event) => {
                self.stop_code = event.signal.as_deref().and_then(stop_code);
                self.builder.enter(at, Some(Phase::Stopping));
            }
            _ => {}
        }
        if let Some(mut mark) = mark(event) {
            if event.kind == Kind::EXITED {
                mark.kind = MarkKind::of_exit(event.code, self.stop_code);
            }
            self.builder.mark(mark);
        }
        if matches!(event.kind, Kind::STARTING | Kind::EXITED) {
            self.stop_code = None;
        }
    }

    /// T14, U3: another round begins. What ended in the stop, or is restarted by it (R14), has a closed gate.
    fn begin_round(&mut self, reason: Option<StopReason>) {
        let lives_on = self.builder.current().is_some() && reason != Some(StopReason::RESTART);
        if self.gate == Gate::Opened && !lives_on {
            self.gate = Gate::Closed;
        }
    }

    fn finish(self, end_ms: u64) -> Lane {
        let mut lane = self.builder.finish(end_ms);
        if self.gate == Gate::None {
            // A container without a gate is never drawn as one whose gate is closed.
            let running = lane.spans.iter_mut().filter(|span| span.phase == Phase::GateClosed);
            running.for_each(|span| span.phase = Phase::Running);
        }
        lane
    }
}

/// The exit code of a program that a stop signal ends. `None` for SIGKILL: it is no request to stop.
fn stop_code(signal: &str) -> Option<u32> {
    let signal = Signal::parse(signal).ok().filter(|signal| *signal != Signal::KILL)?;
    Some(128 + u32::from(signal.number()))
}

fn rows(events: &[EventReport], pod_id: &str) -> Vec<Row> {
    let mut sentences = Sentences::default();
    let rows = events.iter().filter_map(|event| {
        let who =
            event.container.as_deref().map_or_else(|| "(pod)".to_owned(), |name| display_name(name, pod_id));
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
        // Which stop signal it got is in other events.
        Kind::EXITED => MarkKind::of_exit(event.code, None),
        Kind::GATE_FAILED
        | Kind::GATE_TIMED_OUT
        | Kind::START_FAILED
        | Kind::SWITCH_FAILED
        | Kind::OUT_OF_MEMORY => MarkKind::Failure,
        Kind::HOOK_ENDED if event.failure.is_some() => MarkKind::Failure,
        Kind::HOOK_STARTED | Kind::HOOK_ENDED => MarkKind::Hook,
        Kind::POD_RESTART | Kind::STOP_BEGAN | Kind::LAST_CALL | Kind::BUDGET_SPENT | Kind::STOP_ENDED => {
            MarkKind::Budget
        }
        _ => return None,
    };
    Some(Mark { at_ms: event.monotonic_ms, kind, text: event.sentence() })
}

/// The colour of an event's line: that of its mark.
pub fn colour_of(event: &EventReport) -> Option<Colour> {
    mark(event).map(|mark| mark.kind.colour())
}

#[cfg(test)]
pub(crate) mod tests;
