//! A finding as text for people. Owns the wording around its message.

use manifests::finding::{Finding, Severity};

use crate::output::{ColorMode, Colour};

/// Lines for people: `file:line: error: message`, then value and fix.
pub fn show(finding: &Finding, paint: ColorMode) -> String {
    let severity = match finding.severity {
        Severity::Error => paint.text(Colour::Red, "error"),
        Severity::Warning => paint.text(Colour::Yellow, "warning"),
        Severity::Note => "note".to_owned(),
    };
    let mut text = format!("{}:{}: {severity}: ", finding.file, finding.line);
    // The parser's messages already name the key.
    if let Some(key) = finding.key.as_ref().filter(|key| !finding.message.starts_with(key.as_str())) {
        text += &format!("{key}: ");
    }
    text += &finding.message;
    text.push('\n');
    if let Some(value) = &finding.value {
        text += &format!("    found: {}\n", one_line(value));
    }
    if let Some(fix) = &finding.fix {
        text += &format!("    fix:   {fix}\n");
    }
    text
}

/// The text as one line without control characters, at most 200 characters long: its author may have used any.
fn one_line(text: &str) -> String {
    text.chars()
        .take(200)
        .flat_map(|c| if c.is_control() { c.escape_default().collect() } else { vec![c] })
        .collect()
}
