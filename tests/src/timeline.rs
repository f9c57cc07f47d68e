//! The record of a pod's life: parses the shared log that its containers append to, and checks orders in it.
//! The times are the order of events. The order of lines is not: a program that creates the log may wait for the file
//! system's journal, and a line of one that began later is then the first.

use std::fmt;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::durations::{at_most, near};
use crate::wait;

/// An event that a container recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// Its program was exec'd.
    Starting,
    /// Its start delay is over.
    Started,
    /// It got its stop signal; the code is the signal's number.
    Term,
    /// It got another signal; the code is the signal's number.
    Signal,
    /// It exits; the code is the exit code. Missing if it was killed.
    Exiting,
}

impl Event {
    fn parse(word: &str) -> Option<Self> {
        Some(match word {
            "Starting" => Event::Starting,
            "Started" => Event::Started,
            "Term" => Event::Term,
            "Signal" => Event::Signal,
            "Exiting" => Event::Exiting,
            _ => return None,
        })
    }
}

/// One line of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// When, since the Unix epoch, to the microsecond.
    pub at: Duration,
    /// The container's name.
    pub container: String,
    /// What.
    pub event: Event,
    /// Exit code or signal number.
    pub code: i32,
}

/// A pod's log. Every check that fails says what it found and shows the whole log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Timeline {
    entries: Vec<Entry>,
}

impl Timeline {
    /// Reads a log.
    ///
    /// # Errors
    /// If a line is not `<epoch seconds>.<microseconds> <name> <event> <code>`.
    pub fn parse(log: &str) -> Result<Self> {
        let mut entries = log
            .lines()
            .map(|line| parse_line(line).with_context(|| format!("not a timeline entry: {line:?}")))
            .collect::<Result<Vec<_>>>()?;
        entries.sort_by_key(|entry| entry.at);
        Ok(Self { entries })
    }

    /// Reads a log file; the timeline is empty as long as there is none.
    ///
    /// # Errors
    /// As [`parse`](Self::parse), or if the file cannot be read.
    pub fn read(file: &Path) -> Result<Self> {
        match std::fs::read_to_string(file) {
            Ok(log) => Self::parse(&log),
            // No container has started yet.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(error.into()),
        }
    }

    /// Reads a pod's log until a container has recorded an event `count` times.
    ///
    /// # Errors
    /// If it has not within that time, or the log has a line of another form.
    pub(crate) async fn wait_for(
        file: &Path,
        name: &str,
        event: Event,
        count: usize,
        within: Duration,
    ) -> Result<Self> {
        wait::until(&format!("{name} {event:?} ({count})"), within, async || {
            let timeline = Self::read(file)?;
            Ok((timeline.count(name, event) >= count).then_some(timeline))
        })
        .await
    }

    /// All entries, oldest first.
    #[must_use]
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// How often `event` of `container` is recorded.
    #[must_use]
    pub fn count(&self, container: &str, event: Event) -> usize {
        self.of(container, event).count()
    }

    /// The entries of one kind of event of one container, oldest first.
    pub fn of<'a>(&'a self, container: &'a str, event: Event) -> impl Iterator<Item = &'a Entry> {
        self.entries.iter().filter(move |entry| entry.container == container && entry.event == event)
    }

    /// When `event` of `container` first happened, since the Unix epoch.
    ///
    /// # Errors
    /// If it did not happen.
    pub fn time_of(&self, container: &str, event: Event) -> Result<Duration> {
        Ok(self.entries[self.first(container, event)?].at)
    }

    /// Checks that the first `left` was before the first `right`; both must have happened.
    ///
    /// # Errors
    /// If it was not so.
    pub fn before(&self, left: (&str, Event), right: (&str, Event)) -> Result<()> {
        if self.first(left.0, left.1)? >= self.first(right.0, right.1)? {
            bail!("{} {:?} is not before {} {:?} in\n{self}", left.0, left.1, right.0, right.1);
        }
        Ok(())
    }

    /// Checks a whole chain with [`before`](Self::before).
    ///
    /// # Errors
    /// For the first two neighbours that are not in order.
    pub fn in_order(&self, chain: &[(&str, Event)]) -> Result<()> {
        chain.windows(2).try_for_each(|pair| self.before(pair[0], pair[1]))
    }

    /// Checks that `right` started its program only after `left` had started.
    ///
    /// # Errors
    /// If it was not so, or one of them never did.
    pub fn starts_before(&self, left: &str, right: &str) -> Result<()> {
        self.before((left, Event::Started), (right, Event::Starting))
    }

    /// Checks that `left` exited before `right` did.
    ///
    /// # Errors
    /// If it was not so, or one of them never did.
    pub fn exits_before(&self, left: &str, right: &str) -> Result<()> {
        self.before((left, Event::Exiting), (right, Event::Exiting))
    }

    /// Checks that `left` had exited before `right` started its program: an init before what follows it.
    ///
    /// # Errors
    /// If it was not so, or one of them never did.
    pub fn completes_before(&self, left: &str, right: &str) -> Result<()> {
        self.before((left, Event::Exiting), (right, Event::Starting))
    }

    /// Checks that the two ran at the same time: each started before the other exited, if it did.
    ///
    /// # Errors
    /// If it was not so, or one of them never started.
    pub fn run_together(&self, left: &str, right: &str) -> Result<()> {
        for (one, other) in [(left, right), (right, left)] {
            self.first(one, Event::Started)?;
            if self.count(other, Event::Exiting) > 0 {
                self.before((one, Event::Started), (other, Event::Exiting))?;
            }
        }
        Ok(())
    }

    /// Checks that `container`'s program never ran.
    ///
    /// # Errors
    /// If it did.
    pub fn doesnt_start(&self, container: &str) -> Result<()> {
        match self.count(container, Event::Starting) {
            0 => Ok(()),
            runs => bail!("{container} started {runs} times, but must not, in\n{self}"),
        }
    }

    /// Checks that `container` ran at least twice.
    ///
    /// # Errors
    /// If it did not.
    pub fn has_restarted(&self, container: &str) -> Result<()> {
        match self.count(container, Event::Starting) {
            runs @ (0 | 1) => bail!("{container} started {runs} times and was to restart, in\n{self}"),
            _ => Ok(()),
        }
    }

    /// Checks that `container` ran exactly once.
    ///
    /// # Errors
    /// If it did not.
    pub fn has_not_restarted(&self, container: &str) -> Result<()> {
        match self.count(container, Event::Starting) {
            1 => Ok(()),
            runs => bail!("{container} started {runs} times, not once, in\n{self}"),
        }
    }

    /// Checks that `right` followed `left` after `expected`, give or take `tolerance`.
    ///
    /// # Errors
    /// If it came earlier or later, or one of them did not happen.
    pub fn distance(
        &self,
        left: (&str, Event),
        right: (&str, Event),
        expected: Duration,
        tolerance: Duration,
    ) -> Result<()> {
        self.before(left, right)?;
        let distance = self.time_of(right.0, right.1)?.saturating_sub(self.time_of(left.0, left.1)?);
        if !near(distance, expected, tolerance) {
            bail!(
                "{} {:?} came {distance:?} after {} {:?}, not {expected:?} (±{tolerance:?}), in\n{self}",
                right.0,
                right.1,
                left.0,
                left.1
            );
        }
        Ok(())
    }

    /// Checks that two events happened within `limit` of each other, whichever was first.
    ///
    /// # Errors
    /// If they did not, or one of them did not happen.
    pub fn within(&self, limit: Duration, left: (&str, Event), right: (&str, Event)) -> Result<()> {
        let distance = self.time_of(right.0, right.1)?.abs_diff(self.time_of(left.0, left.1)?);
        if !at_most(distance, limit) {
            bail!(
                "{} {:?} and {} {:?} are {distance:?} apart, more than {limit:?}, in\n{self}",
                left.0,
                left.1,
                right.0,
                right.1
            );
        }
        Ok(())
    }

    fn first(&self, container: &str, event: Event) -> Result<usize> {
        self.entries
            .iter()
            .position(|entry| entry.container == container && entry.event == event)
            .with_context(|| format!("{container} has no {event:?} in\n{self}"))
    }
}

impl fmt::Display for Timeline {
    /// One line per entry, with the time since the first.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let epoch = self.entries.first().map_or(Duration::ZERO, |entry| entry.at);
        if self.entries.is_empty() {
            writeln!(formatter, "  (an empty timeline)")?;
        }
        for entry in &self.entries {
            let at = entry.at.saturating_sub(epoch).as_secs_f64();
            writeln!(formatter, "  {at:8.3}  {:<12} {:?} {}", entry.container, entry.event, entry.code)?;
        }
        Ok(())
    }
}

fn parse_line(line: &str) -> Option<Entry> {
    let mut words = line.split(' ');
    let (seconds, microseconds) = words.next()?.split_once('.')?;
    if microseconds.len() != 6 {
        return None;
    }
    let at = Duration::from_secs(seconds.parse().ok()?) + Duration::from_micros(microseconds.parse().ok()?);
    let entry = Entry {
        at,
        container: words.next()?.to_owned(),
        event: Event::parse(words.next()?)?,
        code: words.next()?.parse().ok()?,
    };
    words.next().is_none().then_some(entry)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "\
100.000000 init Starting 0
100.000000 init Started 0
100.250000 init Exiting 0
100.251000 proxy Starting 0
100.251000 proxy Started 0
100.251000 app Starting 0
100.300000 app Started 0
101.300000 app Term 15
101.300000 proxy Starting 0
103.300000 app Exiting 7
";

    fn timeline() -> Timeline {
        Timeline::parse(LOG).expect("a valid log")
    }

    #[test]
    fn a_line_of_another_form_is_an_error_that_shows_it() {
        for line in [
            "",
            "100 a Starting 0",
            "100.1 a Starting 0",
            "100.000000 a Stopping 0",
            "100.000000 a Term 15 x",
        ] {
            let error = Timeline::parse(&format!("{LOG}{line}\n")).expect_err(line);
            assert!(error.to_string().contains(&format!("{line:?}")), "{error}");
        }
    }

    #[test]
    fn order_is_that_of_the_times_whichever_line_was_written_first() {
        let timeline =
            Timeline::parse("1.000002 app Starting 0\n1.000001 proxy Starting 0\n").expect("a valid log");
        timeline.before(("proxy", Event::Starting), ("app", Event::Starting)).expect("proxy was first");
    }

    #[test]
    fn order_is_the_order_of_lines_when_times_are_equal() {
        let timeline = timeline();
        assert!(timeline.starts_before("proxy", "app").is_ok());
        assert!(timeline.starts_before("app", "proxy").is_err());
    }

    #[test]
    fn a_failed_check_names_both_events_and_shows_the_log() {
        let message = timeline().completes_before("app", "proxy").expect_err("app exits last").to_string();
        assert!(message.contains("app Exiting is not before proxy Starting"), "{message}");
        assert!(message.contains("0.251  proxy"), "{message}");
    }

    #[test]
    fn a_check_of_an_event_that_did_not_happen_fails() {
        let message = timeline().exits_before("app", "proxy").expect_err("proxy never exits").to_string();
        assert!(message.contains("proxy has no Exiting"), "{message}");
        assert!(timeline().run_together("app", "absent").is_err());
        assert!(
            timeline().within(Duration::from_secs(9), ("app", Event::Term), ("absent", Event::Term)).is_err()
        );
    }

    #[test]
    fn overlap_needs_both_to_start_before_either_exits() {
        assert!(timeline().run_together("proxy", "app").is_ok());
        assert!(timeline().run_together("init", "app").is_err());
    }

    #[test]
    fn restarts_are_counted_by_starting() {
        let timeline = timeline();
        assert!(timeline.has_restarted("proxy").is_ok() && timeline.has_not_restarted("proxy").is_err());
        assert!(timeline.has_not_restarted("app").is_ok() && timeline.has_restarted("app").is_err());
        assert!(timeline.doesnt_start("absent").is_ok() && timeline.doesnt_start("app").is_err());
    }

    #[test]
    fn distances_are_checked_both_ways() {
        let check = |expected, tolerance| {
            timeline().distance(
                ("app", Event::Term),
                ("app", Event::Exiting),
                Duration::from_millis(expected),
                Duration::from_millis(tolerance),
            )
        };
        assert!(check(2000, 0).is_ok() && check(2100, 100).is_ok() && check(1900, 100).is_ok());
        // On a slow machine more lateness is accepted.
        assert!(check(2100, 99).is_err() && check(1900, 99 / u64::from(crate::durations::pace())).is_err());
    }
}
