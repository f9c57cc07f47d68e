//! What becomes an Event of Kubernetes: its reason, its note, its name.
//!
//! Owns the reasons' words, which people and alerts rely on, that a note is bounded and printable, and that the same report has the same
//! name in whichever run of the agent it is written. Never decides when there is something to report: that is `story`.

use std::fmt::Display;

use control_api::text::printable;

/// The bound of the API is 1024 bytes.
const LONGEST_NOTE: usize = 1000;
/// The bound of the API on an object's name.
const LONGEST_NAME: usize = 253;

/// A pod in Kubernetes.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct PodName {
    /// Its uid: a pod that is recreated under its name is another one.
    pub uid: String,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

/// The reason of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// A container has been held for a while.
    Held,
    /// A gate's probe has failed as often as it may.
    GateFailed,
    /// A container was held for as long as `gate-timeout` allows.
    GateTimedOut,
    /// podshim has started a program again in its container.
    Restarted,
    /// It does so again and again.
    CrashLoop,
    /// A standby has taken over.
    Switched,
    /// A stop of the pod.
    StopBegan,
    /// A stop's time was over before its end.
    BudgetSpent,
    /// podshim has killed a container.
    ForcedKill,
    /// All containers of the pod start again in place.
    PodRestarted,
    /// Such a restart was asked for from the cluster, and begins.
    RestartAsked,
    /// It was asked for, and podshim does not do it.
    RestartRefused,
    /// The pod stops because an init has failed.
    InitFailed,
    /// The pod stops because of a `fatal.c`.
    Fatal,
    /// The plan names what no caller has created.
    PlanFault,
    /// The pod's object and its plan disagree.
    PlanMismatch,
}

/// The type of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// It belongs to the pod's life.
    Normal,
    /// A person should read it.
    Warning,
}

/// How long a report that is not written yet is worth writing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Worth {
    /// It has happened: it is written within [`STALE_MS`].
    ForAWhile,
    /// As long as it is so, or until it is withdrawn.
    WhileSo,
}

/// After this long what has happened is not written any more: a server that was away gets no backlog.
pub const STALE_MS: i64 = 600_000;

/// What a report is about: of two that are not written yet the newer one counts.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Topic {
    /// The pod's uid.
    pub uid: String,
    /// The reason.
    pub reason: Reason,
    /// Its container, or what else tells it from others of the reason.
    pub of: String,
}

/// Several occurrences that are one event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Series {
    /// How many; two at least.
    pub count: u32,
    /// When the last one was, in milliseconds since 1970.
    pub last_ms: i64,
}

/// An event to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// What it is about.
    pub topic: Topic,
    /// Its pod.
    pub pod: PodName,
    /// The name of the event's object.
    pub name: String,
    /// The event's type.
    pub severity: Severity,
    /// Its text.
    pub note: String,
    /// When it happened first, in milliseconds since 1970.
    pub at_ms: i64,
    /// If it has happened again.
    pub series: Option<Series>,
    /// Until when it is written.
    pub worth: Worth,
}

impl Reason {
    /// The word in the event.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Held => "Held",
            Self::GateFailed => "GateFailed",
            Self::GateTimedOut => "GateTimedOut",
            Self::Restarted => "Restarted",
            Self::CrashLoop => "CrashLoop",
            Self::Switched => "Switched",
            Self::StopBegan => "StopBegan",
            Self::BudgetSpent => "BudgetSpent",
            Self::ForcedKill => "ForcedKill",
            Self::PodRestarted => "PodRestarted",
            Self::RestartAsked => "RestartAsked",
            Self::RestartRefused => "RestartRefused",
            Self::InitFailed => "InitFailed",
            Self::Fatal => "Fatal",
            Self::PlanFault => "PlanFault",
            Self::PlanMismatch => "PlanMismatch",
        }
    }

    /// What podshim did, or a kubelet could not: the API wants a word for it.
    #[must_use]
    pub const fn action(self) -> &'static str {
        match self {
            Self::Held => "Hold",
            Self::GateFailed | Self::GateTimedOut => "Probe",
            Self::Restarted
            | Self::CrashLoop
            | Self::PodRestarted
            | Self::RestartAsked
            | Self::RestartRefused => "Restart",
            Self::Switched => "Switch",
            Self::StopBegan | Self::InitFailed | Self::Fatal => "Stop",
            Self::BudgetSpent | Self::ForcedKill => "Kill",
            Self::PlanFault | Self::PlanMismatch => "Check",
        }
    }

    /// The event's type, if nothing else makes it a warning.
    #[must_use]
    pub const fn severity(self) -> Severity {
        match self {
            Self::Held | Self::Switched | Self::StopBegan | Self::RestartAsked => Severity::Normal,
            Self::GateFailed
            | Self::GateTimedOut
            | Self::Restarted
            | Self::CrashLoop
            | Self::BudgetSpent
            | Self::ForcedKill
            | Self::PodRestarted
            | Self::RestartRefused
            | Self::InitFailed
            | Self::Fatal
            | Self::PlanFault
            | Self::PlanMismatch => Severity::Warning,
        }
    }
}

impl Severity {
    /// The word in the event.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Normal => "Normal",
            Self::Warning => "Warning",
        }
    }
}

impl Report {
    /// A report of a pod. `of` tells what it is about from others of its reason; `occurrence` one occurrence from the next, so that an
    /// agent that was restarted meanwhile gives it the same name.
    #[must_use]
    pub fn new(pod: &PodName, reason: Reason, of: &str, occurrence: &dyn Display, note: &str) -> Self {
        Self {
            topic: Topic { uid: pod.uid.clone(), reason, of: of.to_owned() },
            name: object_name(&pod.name, &[&pod.uid, reason.word(), of, &occurrence.to_string()]),
            pod: pod.clone(),
            severity: reason.severity(),
            note: bounded(note),
            at_ms: 0,
            series: None,
            worth: Worth::ForAWhile,
        }
    }

    /// When it happened.
    #[must_use]
    pub fn at(mut self, at_ms: i64) -> Self {
        self.at_ms = at_ms;
        self
    }

    /// It is written as long as it is so.
    #[must_use]
    pub fn while_so(mut self) -> Self {
        self.worth = Worth::WhileSo;
        self
    }

    /// Whether it is too old to be written.
    #[must_use]
    pub fn is_stale(&self, now_ms: i64) -> bool {
        let newest = self.series.map_or(self.at_ms, |series| series.last_ms);
        self.worth == Worth::ForAWhile && now_ms - newest > STALE_MS
    }
}

/// A pod's author and its programs write parts of it.
fn bounded(text: &str) -> String {
    let mut text = printable(text);
    if text.len() > LONGEST_NOTE {
        let end = (0..=LONGEST_NOTE).rev().find(|end| text.is_char_boundary(*end)).unwrap_or_default();
        text.truncate(end);
        text.push('…');
    }
    text
}

/// `pod.0123456789abcdef`: a DNS subdomain, as all names of objects.
fn object_name(pod: &str, parts: &[&str]) -> String {
    // FNV-1a: it may not change between releases.
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for byte in parts.iter().flat_map(|part| part.bytes().chain([0])) {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    let mut beginning: String = pod.chars().take(LONGEST_NAME - 17).collect();
    beginning.truncate(beginning.trim_end_matches(['.', '-']).len());
    format!("{beginning}.{hash:016x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(name: &str) -> PodName {
        PodName { uid: "u-1".to_owned(), namespace: "prod".to_owned(), name: name.to_owned() }
    }

    #[test]
    fn the_same_report_has_the_same_name_and_another_one_has_not() {
        let report = |pod: &PodName, of: &str, occurrence: u32| {
            Report::new(pod, Reason::GateFailed, of, &occurrence, "text").name
        };
        let web = pod("web-0");
        let name = report(&web, "proxy", 7);
        assert_eq!(name, report(&web, "proxy", 7));
        assert_eq!(name.strip_prefix("web-0.").map(str::len), Some(16), "{name}");
        let recreated = PodName { uid: "u-2".to_owned(), ..web.clone() };
        let others = [report(&web, "proxy", 8), report(&web, "prox", 7), report(&recreated, "proxy", 7)];
        assert!(others.iter().all(|other| *other != name), "{others:?}");
    }

    #[test]
    fn a_name_is_within_the_bound_and_a_subdomain() {
        for length in [235, 236, 237, 253] {
            let long = pod(&format!("{}.a", "a-".repeat(126))[..length]);
            let name = Report::new(&long, Reason::Held, "app", &1, "").name;
            let (beginning, _) = name.rsplit_once('.').unwrap();
            assert!(name.len() <= 253 && !beginning.ends_with(['.', '-']), "{name}");
        }
    }

    #[test]
    fn a_note_is_bounded_and_printable() {
        let note = |text: &str| Report::new(&pod("web"), Reason::Held, "app", &1, text).note;
        assert_eq!(note("a\x1b[31m\nb"), r"a\u{1b}[31m\nb");
        for letter in ["x", "ä", "中", "\n"] {
            let long = note(&letter.repeat(5000));
            assert!((900..=1024).contains(&long.len()) && long.ends_with('…'), "{}", long.len());
        }
    }

    #[test]
    fn what_has_happened_gets_stale_and_what_is_so_does_not() {
        let report = Report::new(&pod("web"), Reason::GateFailed, "app", &1, "").at(1000);
        assert!(!report.is_stale(1000 + STALE_MS) && report.is_stale(1001 + STALE_MS));
        let again = Report { series: Some(Series { count: 2, last_ms: 5000 }), ..report.clone() };
        assert!(!again.is_stale(5000 + STALE_MS));
        assert!(!report.while_so().is_stale(i64::MAX));
    }
}
