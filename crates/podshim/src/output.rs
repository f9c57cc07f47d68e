//! Output of the commands: colours, JSON, tables, and a pipe whose reader has gone.

use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use clap::ValueEnum;
use serde::Serialize;

use crate::terminal::ColourChoice;

/// Whether text gets colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColorMode {
    /// With escape sequences.
    Colours,
    /// Without them.
    Plain,
}

/// The colours, by what they mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Colour {
    /// What is wrong.
    Red,
    /// What is right.
    Green,
    /// What needs a look.
    Yellow,
    /// Headings.
    Bold,
    /// What matters less.
    Dim,
}

/// How a command's result is shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people.
    #[default]
    Text,
    /// For programs (docs/podshim-json.md).
    Json,
}

impl ColorMode {
    /// The result of `--color`, NO_COLOR and the kind of stream.
    pub fn of(stream: &impl IsTerminal) -> Self {
        if ColourChoice::is_for(stream) { Self::Colours } else { Self::Plain }
    }

    /// The text in that colour.
    pub fn text(self, colour: Colour, text: &str) -> String {
        let code = match colour {
            Colour::Red => 31,
            Colour::Green => 32,
            Colour::Yellow => 33,
            Colour::Bold => 1,
            Colour::Dim => 2,
        };
        match self {
            Self::Colours => format!("\x1b[{code}m{text}\x1b[0m"),
            Self::Plain => text.to_owned(),
        }
    }
}

/// Writes to standard output. A closed pipe is no error: its reader has seen enough.
///
/// # Errors
/// Any other error of the system.
pub fn print(text: &str) -> io::Result<()> {
    match io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        result => result,
    }
}

/// Writes a value as JSON.
///
/// # Errors
/// The system's error.
pub fn print_json(value: &impl Serialize) -> io::Result<()> {
    let text = serde_json::to_string_pretty(value).map_err(io::Error::other)?;
    print(&(text + "\n"))
}

/// A table whose columns are as wide as their content, as far as there is room.
#[derive(Debug)]
pub struct Table {
    rows: Vec<Vec<(String, Option<Colour>)>>,
    cuts: Vec<Cut>,
}

/// Where a column's text is cut if the table is too wide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// At its end.
    End,
    /// In the middle: names that begin alike differ at their ends, as those of a Deployment's pods.
    Middle,
    /// Nowhere.
    Never,
}

impl Table {
    /// A table with these headings.
    pub fn new(headings: &[&str]) -> Self {
        let headings = headings.iter().map(|heading| ((*heading).to_owned(), Some(Colour::Bold))).collect();
        Self { rows: vec![headings], cuts: Vec::new() }
    }

    /// Says where the columns are cut, from the first on; all others are cut at their ends.
    pub fn cutting(self, cuts: &[Cut]) -> Self {
        Self { cuts: cuts.to_vec(), ..self }
    }

    /// How wide it is if nothing is cut.
    pub fn width(&self) -> usize {
        let widths = self.widths(None);
        widths.iter().sum::<usize>() + GAP * widths.len().saturating_sub(1)
    }

    fn cut_of(&self, column: usize) -> Cut {
        self.cuts.get(column).copied().unwrap_or(Cut::End)
    }

    /// Adds a row; each cell may have a colour.
    pub fn row(&mut self, cells: Vec<(String, Option<Colour>)>) {
        self.rows.push(cells);
    }

    /// The table as text, without blanks at the ends of lines. With `columns` the widest columns shrink until the table
    /// fits, each as far as its heading and `SHORTEST` allow; text that is cut ends with `…`.
    pub fn show(&self, paint: ColorMode, columns: Option<usize>) -> String {
        let widths = self.widths(columns);
        let mut shown = String::new();
        for row in &self.rows {
            let last = row.iter().rposition(|(text, _)| !text.is_empty()).map_or(0, |last| last + 1);
            for (column, (text, colour)) in row.iter().take(last).enumerate() {
                let text = cut(text, widths[column], self.cut_of(column));
                shown += &colour.map_or_else(|| text.clone(), |colour| paint.text(colour, &text));
                if column + 1 < last {
                    shown += &" ".repeat(widths[column] - text.chars().count() + GAP);
                }
            }
            shown.push('\n');
        }
        shown
    }

    fn widths(&self, columns: Option<usize>) -> Vec<usize> {
        let count = self.rows.iter().map(Vec::len).max().unwrap_or_default();
        let cell = |row: &Vec<(String, Option<Colour>)>, column: usize| {
            row.get(column).map_or(0, |(text, _)| text.chars().count())
        };
        let mut widths: Vec<usize> = (0..count)
            .map(|column| self.rows.iter().map(|row| cell(row, column)).max().unwrap_or_default())
            .collect();
        let room =
            columns.map_or(usize::MAX, |columns| columns.saturating_sub(GAP * count.saturating_sub(1)));
        let least = |column: usize| SHORTEST.max(cell(&self.rows[0], column));
        while widths.iter().sum::<usize>() > room {
            let can_give = (0..count)
                .filter(|column| widths[*column] > least(*column) && self.cut_of(*column) != Cut::Never);
            let Some(widest) = can_give.max_by_key(|column| widths[*column]) else { break };
            widths[widest] -= 1;
        }
        widths
    }
}

/// A duration as the numbers of `--json` have it, in milliseconds.
pub fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Blanks between two columns.
const GAP: usize = 2;
/// The least width of a column that must shrink.
const SHORTEST: usize = 8;

fn cut(text: &str, width: usize, place: Cut) -> String {
    let length = text.chars().count();
    if length <= width || place == Cut::Never {
        return text.to_owned();
    }
    let end = if place == Cut::Middle { width / 2 } else { 0 };
    let begin = width.saturating_sub(1 + end);
    text.chars().take(begin).chain(['…']).chain(text.chars().skip(length - end)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let mut table = Table::new(&["NAME", "WHY", "N"]);
        let why = "waits for something with a long name that goes on and on";
        for name in ["a-container-of-some-length", "b"] {
            table.row(vec![(name.to_owned(), None), (why.to_owned(), None), ("1".to_owned(), None)]);
        }
        table
    }

    #[test]
    fn a_table_without_a_width_is_whole() {
        assert!(table().show(ColorMode::Plain, None).lines().all(|line| line.chars().count() <= 87));
        assert!(table().show(ColorMode::Plain, None).contains("goes on and on"));
    }

    #[test]
    fn the_widest_column_gives_first() {
        let shown = table().show(ColorMode::Plain, Some(80));
        assert_eq!(
            shown.lines().nth(1),
            Some("a-container-of-some-length  waits for something with a long name that goes o…  1")
        );
        let narrow = table().show(ColorMode::Plain, Some(30));
        assert_eq!(narrow.lines().nth(1), Some("a-container-…  waits for s…  1"));
        assert_eq!(narrow.lines().nth(2), Some("b              waits for s…  1"));
    }

    /// N10: what tells rows apart is not cut, or not at its end.
    #[test]
    fn found_n10_the_end_of_a_name_stays() {
        let mut table = Table::new(&["TIME", "NAME"]).cutting(&[Cut::Never, Cut::Middle]);
        for name in ["checkout-7d9f8c6b5-x2x8p", "checkout-7d9f8c6b5-k99lw"] {
            table.row(vec![("02:30:00".to_owned(), None), (name.to_owned(), None)]);
        }
        assert_eq!(table.width(), 34);
        let shown = table.show(ColorMode::Plain, Some(25));
        assert_eq!(shown, "TIME      NAME\n02:30:00  checkou…5-x2x8p\n02:30:00  checkou…5-k99lw\n");
    }

    /// A table that cannot shrink further is wider than the terminal.
    #[test]
    fn headings_are_never_cut() {
        let shown = table().show(ColorMode::Plain, Some(10));
        assert_eq!(shown.lines().nth(1), Some("a-conta…  waits f…  1"));
    }
}
