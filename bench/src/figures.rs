//! The measured values: for each row of a table, those of each contender. Knows nothing of how they are shown.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::contender::Contender;

/// What a value counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    Milliseconds,
    Seconds,
    Kilobytes,
    Megabytes,
    Count,
    /// More is better, unlike with the others.
    PerSecond,
    /// More is better.
    MegabytesPerSecond,
}

impl Unit {
    /// The unit's name in tables.
    pub fn label(self) -> &'static str {
        match self {
            Unit::Milliseconds => "ms",
            Unit::Seconds => "s",
            Unit::Kilobytes => "kB",
            Unit::Megabytes => "MB",
            Unit::Count => "",
            Unit::PerSecond => "/s",
            Unit::MegabytesPerSecond => "MB/s",
        }
    }

    /// Whether a greater value is the better one.
    pub fn more_is_better(self) -> bool {
        matches!(self, Unit::PerSecond | Unit::MegabytesPerSecond)
    }
}

/// One row: what was measured, and the values of each contender, one for each round.
#[derive(Clone, Debug)]
pub struct Row {
    pub what: String,
    pub unit: Unit,
    pub values: BTreeMap<Contender, Vec<f64>>,
}

/// The rows of one question, in the order in which they were first added.
#[derive(Clone, Debug, Default)]
pub struct Figures {
    pub rows: Vec<Row>,
}

impl Figures {
    /// Adds a value to the row of that name.
    pub fn add(&mut self, what: &str, unit: Unit, contender: Contender, value: f64) {
        let known = self.rows.iter().position(|row| row.what == what);
        let index = known.unwrap_or_else(|| {
            self.rows.push(Row { what: what.to_owned(), unit, values: BTreeMap::new() });
            self.rows.len() - 1
        });
        self.rows[index].values.entry(contender).or_default().push(value);
    }

    /// Adds a time, in milliseconds.
    pub fn add_time(&mut self, what: &str, contender: Contender, time: Duration) {
        self.add(what, Unit::Milliseconds, contender, time.as_secs_f64() * 1000.0);
    }
}

/// The summary of one contender's values that a row of a table shows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    pub minimum: f64,
    pub median: f64,
    pub maximum: f64,
}

impl Spread {
    /// The spread of these values; `None` if there are none.
    pub fn of(values: &[f64]) -> Option<Self> {
        let mut values = values.to_vec();
        values.sort_by(f64::total_cmp);
        let (low, high) = (values.get(values.len().checked_sub(1)? / 2)?, values.get(values.len() / 2)?);
        Some(Self { minimum: *values.first()?, median: f64::midpoint(*low, *high), maximum: *values.last()? })
    }
}

impl Row {
    /// The spread of a contender's values.
    pub fn spread(&self, contender: Contender) -> Option<Spread> {
        Spread::of(self.values.get(&contender)?)
    }

    /// A contender's median divided by another's; `None` if the other has none, or zero.
    pub fn ratio(&self, contender: Contender, to: Contender) -> Option<f64> {
        let (own, other) = (self.spread(contender)?.median, self.spread(to)?.median);
        (other > 0.0).then(|| own / other)
    }
}

/// The value below which that share of the values lies: `share` from 0 to 1. Zero if there are no values.
pub fn quantile(mut values: Vec<f64>, share: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "an index of a short list")]
    let index = (share * values.len() as f64) as usize;
    values.get(index.min(values.len().saturating_sub(1))).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_an_even_number_is_between_the_middle_two() {
        let spread = Spread::of(&[4.0, 1.0, 9.0, 2.0]);
        assert_eq!(spread, Some(Spread { minimum: 1.0, median: 3.0, maximum: 9.0 }));
        assert_eq!(Spread::of(&[]), None);
    }

    #[test]
    fn a_row_is_one_row_however_often_it_is_added_to() {
        let mut figures = Figures::default();
        for (contender, value) in
            [(Contender::Podshim, 1.0), (Contender::GoShim, 4.0), (Contender::Podshim, 3.0)]
        {
            figures.add("a", Unit::Count, contender, value);
        }
        assert_eq!(figures.rows.len(), 1);
        assert_eq!(figures.rows[0].ratio(Contender::Podshim, Contender::GoShim), Some(0.5));
        assert_eq!(figures.rows[0].ratio(Contender::Podshim, Contender::Runtime), None);
    }

    #[test]
    fn nearly_all_values_are_below_the_99th_percentile() {
        assert_eq!(quantile((0..1000).map(f64::from).collect(), 0.99), 990.0);
        assert_eq!(quantile(Vec::new(), 0.99), 0.0);
    }
}
