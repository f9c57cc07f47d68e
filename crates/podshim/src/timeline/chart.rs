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
    /// The containers, in the order of the plan.
    pub lanes: Vec<Lane>,
    /// What happened to the whole pod.
    pub marks: Vec<Mark>,
    /// The stop's budget: when it begins and when it is spent.
    pub budget: Option<(u64, u64)>,
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

    /// The moments at which the axis has a number: round numbers, at most `most` of them.
    pub fn ticks(&self, most: u64) -> Vec<u64> {
        let steps = [1, 2, 5].into_iter().cycle().zip((0..).flat_map(|power| [power; 3]));
        let mut steps = steps.map(|(digit, power)| digit * 10_u64.saturating_pow(power));
        let step = steps.find(|step| self.length_ms() / step < most.max(1)).unwrap_or(u64::MAX);
        (0..=self.length_ms() / step).map(|number| number * step).collect()
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
