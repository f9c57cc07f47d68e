//! What goes to the terminal: colour or none, JSON, and a pipe that has been closed.

use std::io::{self, IsTerminal, Write};

use serde::Serialize;

/// Whether text is coloured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Paint {
    /// With escape sequences.
    Colours,
    /// As it is.
    Plain,
}

/// The colours there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Colour {
    /// What is wrong.
    Red,
    /// What is well.
    Green,
    /// What needs a look.
    Yellow,
    /// Headings.
    Bold,
    /// What matters less.
    Dim,
}

/// How a command's result is shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// For people.
    #[default]
    Text,
    /// For programs (docs/podshim-json.md).
    Json,
}

impl Paint {
    /// Colours on a terminal, unless <https://no-color.org> says no.
    pub fn of(stream: &impl IsTerminal) -> Self {
        let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        if stream.is_terminal() && !refused { Self::Colours } else { Self::Plain }
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

/// Writes to standard output; whoever closed the other end has seen enough.
///
/// # Errors
/// Anything else that the system says.
pub fn print(text: &str) -> io::Result<()> {
    match io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        result => result,
    }
}

/// Writes a value as JSON.
///
/// # Errors
/// What the system says.
pub fn print_json(value: &impl Serialize) -> io::Result<()> {
    let text = serde_json::to_string_pretty(value).map_err(io::Error::other)?;
    print(&(text + "\n"))
}

/// A table whose columns are as wide as what they hold.
#[derive(Debug)]
pub struct Table {
    rows: Vec<Vec<(String, Option<Colour>)>>,
}

impl Table {
    /// A table with these headings.
    pub fn new(headings: &[&str]) -> Self {
        let headings = headings.iter().map(|heading| ((*heading).to_owned(), Some(Colour::Bold))).collect();
        Self { rows: vec![headings] }
    }

    /// Adds a row; each cell may have a colour.
    pub fn row(&mut self, cells: Vec<(String, Option<Colour>)>) {
        self.rows.push(cells);
    }

    /// The table as text, without blanks at the ends of lines.
    pub fn show(&self, paint: Paint) -> String {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or_default();
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            cells.map(|(text, _)| text.chars().count()).max().unwrap_or_default()
        };
        let widths: Vec<_> = (0..columns).map(width).collect();
        let mut shown = String::new();
        for row in &self.rows {
            let last = row.iter().rposition(|(text, _)| !text.is_empty()).map_or(0, |last| last + 1);
            for (column, (text, colour)) in row.iter().take(last).enumerate() {
                shown += &colour.map_or_else(|| text.clone(), |colour| paint.text(colour, text));
                if column + 1 < last {
                    shown += &" ".repeat(widths[column] - text.chars().count() + 2);
                }
            }
            shown.push('\n');
        }
        shown
    }
}
