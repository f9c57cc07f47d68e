//! Figures as an SVG: for each row a bar for each contender, as a share of the row's longest. No timeline: what `podshim timeline`
//! and the demo draw is `podshim::timeline`'s.

use std::fmt::Write;

use crate::contender::{ALL, Contender};
use crate::figures::{Figures, Row};
use crate::measure::Question;
use crate::table::{labelled, number};

const WIDTH: f64 = 860.0;
const LABELS: f64 = 380.0;
const BARS: f64 = 380.0;
const BAR: f64 = 12.0;

/// An SVG of all questions, which looks the same on a white and on a dark page.
pub fn svg(setting: &str, all: &[(Question, Figures)]) -> String {
    let mut body = String::new();
    let mut y = 28.0;
    legend(&mut body, y);
    for (question, figures) in all {
        y += 36.0;
        text(&mut body, 12.0, y, "title", question.title());
        for row in &figures.rows {
            y += 10.0;
            bars(&mut body, row, &mut y);
        }
    }
    y += 28.0;
    text(&mut body, 12.0, y, "small", setting);
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" \
         viewBox=\"0 0 {WIDTH} {height}\" role=\"img\">\n<style>text {{ font: 12px sans-serif; fill: #24292f }} \
         .title {{ font-weight: bold; font-size: 14px }} .small {{ font-size: 11px; fill: #57606a }}</style>\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n{body}</svg>\n",
        height = y + 16.0
    )
}

fn color(contender: Contender) -> &'static str {
    match contender {
        Contender::Podshim => "#1a7f5a",
        Contender::GoShim => "#b8c0cc",
        Contender::Runtime => "#6e7781",
    }
}

fn legend(body: &mut String, y: f64) {
    let mut x = 12.0;
    for contender in ALL {
        rectangle(body, x, y - 10.0, BAR, color(contender));
        text(body, x + BAR + 5.0, y, "", contender.label());
        x += 150.0;
    }
    text(body, x, y, "small", "medians; bars are shares of the longest of their row");
}

fn bars(body: &mut String, row: &Row, y: &mut f64) {
    let medians: Vec<(Contender, f64)> =
        ALL.into_iter().filter_map(|contender| Some((contender, row.spread(contender)?.median))).collect();
    let longest = medians.iter().map(|(_, median)| *median).fold(0.0, f64::max);
    let better = if row.unit.more_is_better() { " (more is better)" } else { "" };
    text(body, 24.0, *y + BAR - 1.0, "", &format!("{}{better}", labelled(row)));
    for (contender, median) in medians {
        // In a row of zeros the longest is zero.
        let share = if longest > 0.0 { (median / longest).max(0.0) } else { 0.0 };
        rectangle(body, LABELS, *y, (share * BARS).max(1.0), color(contender));
        text(body, LABELS + share * BARS + 6.0, *y + BAR - 2.0, "small", &number(median));
        *y += BAR + 2.0;
    }
}

fn rectangle(body: &mut String, x: f64, y: f64, width: f64, fill: &str) {
    // Writing to a string cannot fail, here and below.
    let _ = writeln!(
        body,
        "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{BAR}\" fill=\"{fill}\"/>"
    );
}

fn text(body: &mut String, x: f64, y: f64, class: &str, words: &str) {
    let words = words.replace('&', "&amp;").replace('<', "&lt;");
    let _ = writeln!(body, "<text x=\"{x:.1}\" y=\"{y:.1}\" class=\"{class}\">{words}</text>");
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;
    use crate::figures::Unit;

    /// The rows of docs/performance.md's table of times that have one time for each contender.
    fn documented() -> Figures {
        let page = include_str!("../../docs/performance.md");
        let table =
            page.split("\n| | podshim | containerd's shim | ratio | on 1.7 | on 2.1 | runc alone |\n").nth(1);
        let rows = table.expect("the table").lines().skip(1).take_while(|line| line.starts_with('|'));
        let mut figures = Figures::default();
        for row in rows {
            let cells: Vec<_> = row.trim_matches('|').split('|').map(str::trim).collect();
            let Some(what) = cells[0].strip_suffix(", ms") else { continue };
            let values = [(Contender::Podshim, 1), (Contender::GoShim, 2), (Contender::Runtime, 6)];
            for (contender, column) in values {
                if let Ok(value) = cells[column].parse() {
                    figures.add(&what.replace('`', ""), Unit::Milliseconds, contender, value);
                }
            }
        }
        figures
    }

    /// The picture on the page shows the table above it.
    #[test]
    fn found_n20_the_documented_chart_has_the_figures_of_its_table() {
        let figures = documented();
        assert!(figures.rows.len() > 6, "{} rows", figures.rows.len());
        let picture = svg("docs/performance.md has how and where", &[(Question::Run, figures)]);
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/bench.svg");
        if std::env::var_os("PODSHIM_REWRITE_GOLDEN").is_some() {
            fs::write(&file, &picture).expect("docs/bench.svg");
        }
        let kept = fs::read_to_string(file).expect("docs/bench.svg");
        assert!(kept == picture, "docs/bench.svg is stale: PODSHIM_REWRITE_GOLDEN=1 writes it");
    }

    #[test]
    fn the_longest_bar_of_a_row_is_as_long_as_bars_get() {
        let mut figures = Figures::default();
        figures.add("a & b", Unit::Milliseconds, Contender::Podshim, 25.0);
        figures.add("a & b", Unit::Milliseconds, Contender::GoShim, 100.0);
        let picture = svg("here", &[(Question::Run, figures)]);
        assert!(picture.contains("width=\"380.0\""), "{picture}");
        assert!(picture.contains("width=\"95.0\""), "{picture}");
        assert!(picture.contains("a &amp; b, ms"), "{picture}");
    }
}
