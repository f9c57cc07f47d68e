//! The chart of a pod's life as data: a lane for each container, with its phases as bars and what happened as marks.
//!
//! `podshim timeline` and `hack/demo` draw the same chart: `text` and `svg` own its signs, this file their meaning.

use crate::output::Colour;

/// A pod's life. Times are in milliseconds of any one clock.
#[derive(Clone, Debug, Default)]
pub struct Chart {
    /// Where the chart begins.
    pub begin_ms: u64,
    /// Where it ends.
    pub end_ms: u64,
    /// How much of the pod's life is before it: its axis counts from the beginning of the life.
    pub before_ms: u64,
    /// The containers, in the order of the plan.
    pub lanes: Vec<Lane>,
    /// What happened to the whole pod.
    pub marks: Vec<Mark>,
    /// The stops whose time podshim counts.
    pub budgets: Vec<Budget>,
}

/// A stop with its budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// When the stop began.
    pub from_ms: u64,
    /// When it was over, or its time was, or the chart is.
    pub to_ms: u64,
    /// How much time it had.
    pub time_ms: u64,
}

/// A container.
#[derive(Clone, Debug, Default)]
pub struct Lane {
    /// Its name.
    pub name: String,
    /// Its role in the pod; empty if the pod no longer has it.
    pub role: String,
    /// Its phases, in order.
    pub spans: Vec<Span>,
    /// What happened to it.
    pub marks: Vec<Mark>,
}

/// A phase and its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// When it began.
    pub from_ms: u64,
    /// When it ended.
    pub to_ms: u64,
    /// The phase.
    pub phase: Phase,
}

/// The phases of a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// It exists.
    Created,
    /// Its caller has started it, and podshim holds it until others are ready.
    Held,
    /// Its program is being started.
    Starting,
    /// It runs and its gate is closed.
    GateClosed,
    /// It runs, and its gate is open or it has no gate.
    Running,
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
    /// A program has ended, and no process saw with which code.
    Unseen,
    /// Something has failed, or was killed.
    Failure,
    /// A hook was begun or has ended.
    Hook,
    /// The pod's stop has begun or ended, or its budget has run out. It belongs to no lane.
    Budget,
}

impl Phase {
    /// All, in the order of the legend.
    pub const ALL: [Self; 8] = [
        Self::Created,
        Self::Held,
        Self::Starting,
        Self::GateClosed,
        Self::Running,
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
            Self::GateClosed => "gate closed",
            Self::Running => "running",
            Self::Stopping => "stopping",
            Self::BackingOff => "backing off",
            Self::Paused => "paused",
        }
    }
}

impl MarkKind {
    /// All that occur in lanes, in the order of the legend.
    pub const ALL: [Self; 7] =
        [Self::Gate, Self::Signal, Self::Done, Self::BySignal, Self::Unseen, Self::Failure, Self::Hook];

    /// How the end of a program is drawn. `stop_code` is the code of a program that its last stop signal ends.
    pub fn of_exit(code: Option<u32>, stop_code: Option<u32>) -> Self {
        match code {
            Some(0) => Self::Done,
            Some(_) if code == stop_code => Self::BySignal,
            Some(_) => Self::Failure,
            None => Self::Unseen,
        }
    }

    /// Whether it is the end of a program.
    pub fn is_end(self) -> bool {
        matches!(self, Self::Done | Self::BySignal | Self::Unseen | Self::Failure)
    }

    /// On a terminal, in whatever command shows it.
    pub fn colour(self) -> Colour {
        match self {
            Self::Done | Self::BySignal => Colour::Green,
            Self::Signal => Colour::Yellow,
            Self::Failure => Colour::Red,
            Self::Gate | Self::Unseen | Self::Hook => Colour::Bold,
            Self::Budget => Colour::Dim,
        }
    }

    /// The mark as legends show it.
    pub fn words(self) -> &'static str {
        match self {
            Self::Gate => "gate open",
            Self::Signal => "signal",
            Self::Done => "ended with 0",
            Self::BySignal => "ended by its stop signal",
            Self::Unseen => "ended, code not known",
            Self::Failure => "failed or killed",
            Self::Hook => "hook",
            Self::Budget => "the stop",
        }
    }
}

impl Chart {
    /// The length of the chart; never zero, as it is a divisor.
    pub fn length_ms(&self) -> u64 {
        self.end_ms.saturating_sub(self.begin_ms).max(1)
    }

    /// The moments at which the axis has a number: round numbers since the life's beginning, at most `most` of them.
    pub fn ticks(&self, most: u64) -> Vec<u64> {
        let steps = [1, 2, 5].into_iter().cycle().zip((0..).flat_map(|power| [power; 3]));
        let mut steps = steps.map(|(digit, power)| digit * 10_u64.saturating_pow(power));
        let step = steps.find(|step| self.length_ms() / step < most.max(1)).unwrap_or(u64::MAX);
        let (first, last) = (self.before_ms.div_ceil(step), (self.before_ms + self.length_ms()) / step);
        (first..=last).map(|number| number * step).collect()
    }

    /// The time of a tick.
    pub fn at(&self, tick: u64) -> u64 {
        self.begin_ms + tick.saturating_sub(self.before_ms)
    }

    /// The part of the chart between two times.
    pub fn window(mut self, from_ms: u64, to_ms: u64) -> Self {
        let (from, to) = (from_ms.clamp(self.begin_ms, self.end_ms), to_ms.clamp(self.begin_ms, self.end_ms));
        let is_in = |mark: &Mark| (from..=to).contains(&mark.at_ms);
        for lane in &mut self.lanes {
            lane.spans.retain_mut(|span| {
                (span.from_ms, span.to_ms) = (span.from_ms.max(from), span.to_ms.min(to));
                span.from_ms < span.to_ms
            });
            lane.marks.retain(is_in);
        }
        self.marks.retain(is_in);
        self.budgets.retain_mut(|budget| {
            (budget.from_ms, budget.to_ms) = (budget.from_ms.max(from), budget.to_ms.min(to));
            budget.from_ms < budget.to_ms
        });
        Self {
            before_ms: self.before_ms + (from - self.begin_ms),
            begin_ms: from,
            end_ms: to.max(from),
            ..self
        }
    }

    /// The phases that occur, in the order of the legend.
    pub fn phases(&self) -> impl Iterator<Item = Phase> {
        let occurs =
            |phase: &Phase| self.lanes.iter().flat_map(|lane| &lane.spans).any(|span| span.phase == *phase);
        Phase::ALL.into_iter().filter(occurs)
    }

    /// The kinds of marks that occur in lanes, in the order of the legend.
    pub fn mark_kinds(&self) -> impl Iterator<Item = MarkKind> {
        let occurs =
            |kind: &MarkKind| self.lanes.iter().flat_map(|lane| &lane.marks).any(|mark| mark.kind == *kind);
        MarkKind::ALL.into_iter().filter(occurs)
    }
}

/// Builds a lane from phases that begin and moments that are marked, in the order of time.
#[derive(Clone, Debug)]
pub struct LaneBuilder {
    lane: Lane,
    current: Option<(u64, Phase)>,
}

impl LaneBuilder {
    /// An empty lane.
    pub fn new(name: impl Into<String>, role: impl Into<String>) -> Self {
        let lane = Lane { name: name.into(), role: role.into(), ..Lane::default() };
        Self { lane, current: None }
    }

    /// The phase that has begun last and has not ended.
    pub fn current(&self) -> Option<Phase> {
        self.current.map(|(_, phase)| phase)
    }

    /// Ends the current phase and begins the next one; `None`: it has ended.
    pub fn enter(&mut self, at_ms: u64, next: Option<Phase>) {
        if let Some((from_ms, phase)) = self.current
            && from_ms < at_ms
        {
            self.lane.spans.push(Span { from_ms, to_ms: at_ms, phase });
        }
        self.current = next.map(|phase| (at_ms, phase));
    }

    /// Adds a mark.
    pub fn mark(&mut self, mark: Mark) {
        self.lane.marks.push(mark);
    }

    /// The lane, with its current phase drawn to the end.
    pub fn finish(mut self, end_ms: u64) -> Lane {
        self.enter(end_ms, None);
        self.lane
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phases_follow_each_other_and_one_without_time_is_left_out() {
        let mut lane = LaneBuilder::new("app", "main");
        for (at, phase) in
            [(1, Some(Phase::Created)), (1, Some(Phase::Held)), (4, None), (6, Some(Phase::Running))]
        {
            lane.enter(at, phase);
        }
        let span = |from_ms, to_ms, phase| Span { from_ms, to_ms, phase };
        assert_eq!(lane.finish(9).spans, [span(1, 4, Phase::Held), span(6, 9, Phase::Running)]);
    }

    /// N9: a stop of a long life is more than one tick, and the axis counts from the life's beginning.
    #[test]
    fn found_n9_a_window_is_a_part_of_the_life() {
        let mut lane = LaneBuilder::new("app", "main");
        lane.enter(100, Some(Phase::Running));
        lane.enter(86_400_100, Some(Phase::Stopping));
        let mark = |at_ms| Mark { at_ms, kind: MarkKind::Signal, text: String::new() };
        lane.mark(mark(50));
        lane.mark(mark(86_400_100));
        let budget = Budget { from_ms: 86_400_100, to_ms: 86_402_100, time_ms: 30_000 };
        let lanes = vec![lane.finish(86_402_100)];
        let life =
            Chart { begin_ms: 100, end_ms: 86_402_100, lanes, budgets: vec![budget], ..Chart::default() };
        let window = life.clone().window(86_398_100, u64::MAX);
        assert_eq!((window.begin_ms, window.end_ms, window.length_ms()), (86_398_100, 86_402_100, 4000));
        assert_eq!(window.ticks(8), [86_398_000, 86_399_000, 86_400_000, 86_401_000, 86_402_000]);
        assert_eq!(window.at(86_400_000), 86_400_100);
        let stopping = Span { from_ms: 86_400_100, to_ms: 86_402_100, phase: Phase::Stopping };
        let running = Span { from_ms: 86_398_100, to_ms: 86_400_100, phase: Phase::Running };
        assert_eq!(window.lanes[0].spans, [running, stopping]);
        assert_eq!((window.lanes[0].marks.len(), window.budgets.len()), (1, 1));
        let early = life.window(0, 1100);
        assert_eq!((early.begin_ms, early.end_ms, early.budgets.len()), (100, 1100, 0));
    }

    #[test]
    fn a_legend_has_what_occurs_in_its_own_order() {
        let mut lane = LaneBuilder::new("app", "main");
        lane.enter(0, Some(Phase::Running));
        lane.enter(2, Some(Phase::Held));
        lane.mark(Mark { at_ms: 1, kind: MarkKind::Hook, text: String::new() });
        let chart = Chart { lanes: vec![lane.finish(3)], end_ms: 3, ..Chart::default() };
        assert_eq!(chart.phases().collect::<Vec<_>>(), [Phase::Held, Phase::Running]);
        assert_eq!(chart.mark_kinds().collect::<Vec<_>>(), [MarkKind::Hook]);
    }
}
