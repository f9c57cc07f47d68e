//! Figures as a table for people and as JSON for programs.

use std::fmt::Write;

use serde_json::{Value, json};

use crate::contender::{ALL, Contender};
use crate::figures::{Figures, Row};
use crate::measure::Question;

/// The table of one question.
pub fn render(title: &str, figures: &Figures) -> String {
    let mut text = format!(
        "{title:<60}{:>19}{:>10}{:>10}{:>10}  {:>8}  {:>8}\n",
        "", "minimum", "median", "maximum", "of Go's", "of floor"
    );
    for row in &figures.rows {
        let mut what = labelled(row);
        for contender in ALL {
            let Some(spread) = row.spread(contender) else { continue };
            let values = [spread.minimum, spread.median, spread.maximum].map(number);
            let [of_go, of_floor] = [Contender::GoShim, Contender::Runtime].map(|other| {
                let ratio = row.ratio(contender, other).filter(|_| contender < other);
                ratio.map(|ratio| format!("{ratio:.2}")).unwrap_or_default()
            });
            let line = format!(
                "  {what:<58}{:>19}{:>10}{:>10}{:>10}  {of_go:>8}  {of_floor:>8}",
                contender.label(),
                values[0],
                values[1],
                values[2],
            );
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{}", line.trim_end());
            what.clear();
        }
    }
    text.push('\n');
    text
}

/// A row's name and unit.
pub fn labelled(row: &Row) -> String {
    match row.unit.label() {
        "" => row.what.clone(),
        unit => format!("{}, {unit}", row.what),
    }
}

/// A number with a sensible count of digits.
pub fn number(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 || value.fract() == 0.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// All figures of a run: `{setting, questions: [{name, rows: [{what, unit, contenders: {name: {minimum, ...}}}]}]}`.
pub fn json(setting: &str, all: &[(Question, Figures)]) -> Value {
    let questions: Vec<Value> = all
        .iter()
        .map(|(question, figures)| {
            json!({"name": question.name(), "rows": figures.rows.iter().map(row).collect::<Vec<_>>()})
        })
        .collect();
    json!({"setting": setting, "questions": questions})
}

fn row(row: &Row) -> Value {
    let contenders: serde_json::Map<String, Value> = ALL
        .into_iter()
        .filter_map(|contender| {
            let spread = row.spread(contender)?;
            let value = json!({
                "minimum": spread.minimum,
                "median": spread.median,
                "maximum": spread.maximum,
                "values": row.values.get(&contender)?,
                "ratio_to_go_shim": row.ratio(contender, Contender::GoShim),
                "ratio_to_runtime": row.ratio(contender, Contender::Runtime),
            });
            Some((contender.label().to_owned(), value))
        })
        .collect();
    json!({"what": row.what, "unit": row.unit.label(), "contenders": contenders})
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::Unit;

    #[test]
    fn a_table_names_a_row_once_and_compares_with_what_there_is() {
        let mut figures = Figures::default();
        figures.add("start", Unit::Milliseconds, Contender::Podshim, 50.0);
        figures.add("start", Unit::Milliseconds, Contender::GoShim, 100.0);
        figures.add("start", Unit::Milliseconds, Contender::Runtime, 20.0);
        let table = render("run", &figures);
        let lines: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines[1], ["start,", "ms", "podshim", "50", "50", "50", "0.50", "2.50"]);
        assert_eq!(lines[2], ["containerd's", "shim", "100", "100", "100", "5.00"]);
        assert_eq!(lines[3], ["runtime", "alone", "20", "20", "20"]);
    }
}
