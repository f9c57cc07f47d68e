//! Shows how a file will change, before anything is changed.

use node_setup::install::files::{Content, FileChange};

use crate::output::{ColorMode, Colour};

/// New files of so many lines are podshim's own texts: only their names are shown.
const LONG: usize = 20;
/// Unchanged lines to show around a difference.
const CONTEXT: usize = 3;

/// Lines for people: the path, and for texts the lines that are removed and added.
pub fn show(change: &FileChange, paint: ColorMode) -> String {
    let what = match (&change.before, &change.after) {
        (_, Content::Absent) => "removed".to_owned(),
        (Content::Absent, Content::Link(target)) => format!("new link to {}", target.display()),
        (_, Content::Link(target)) => format!("link to {}", target.display()),
        (Content::Absent, Content::Program(bytes)) => format!("new program, {} bytes", bytes.len()),
        (_, Content::Program(bytes)) => format!("replaced program, {} bytes", bytes.len()),
        (Content::Absent, Content::Text(text)) => match text.lines().count() {
            lines @ LONG.. => format!("new, {lines} lines"),
            _ => "new".to_owned(),
        },
        (_, Content::Text(_)) => "changed".to_owned(),
        (_, Content::Copy { of, .. }) => format!("a copy of {}", of.display()),
    };
    let mut shown = paint.text(Colour::Bold, &format!("{}: {what}", change.shown().display())) + "\n";
    let (before, after) = match (&change.before, &change.after) {
        (Content::Text(before), Content::Text(after)) => (before.as_str(), after.as_str()),
        (Content::Absent, Content::Text(after)) if after.lines().count() < LONG => ("", after.as_str()),
        _ => return shown,
    };
    let (before, after): (Vec<_>, Vec<_>) =
        (before.split_inclusive('\n').collect(), after.split_inclusive('\n').collect());
    let same = before.iter().zip(&after).take_while(|(a, b)| a == b).count();
    let rest = before.len().min(after.len()) - same;
    let same_end = before.iter().rev().zip(after.iter().rev()).take(rest).take_while(|(a, b)| a == b).count();
    let mut line = |sign: char, text: &str, colour: Option<Colour>| {
        let text = format!("  {sign} {}", text.trim_end_matches(['\n', '\r']));
        let text = text.trim_end();
        shown += &colour.map_or(text.to_owned(), |colour| paint.text(colour, text));
        shown.push('\n');
    };
    before[same.saturating_sub(CONTEXT)..same].iter().for_each(|text| line(' ', text, None));
    before[same..before.len() - same_end].iter().for_each(|text| line('-', text, Some(Colour::Red)));
    after[same..after.len() - same_end].iter().for_each(|text| line('+', text, Some(Colour::Green)));
    let end = &after[after.len() - same_end..];
    end.iter().take(CONTEXT).for_each(|text| line(' ', text, None));
    shown
}
