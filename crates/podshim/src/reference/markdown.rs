//! Pages of docs/ as man pages: as much of Markdown as they have. Owns the form; the pages own what is said.

use clap_mangen::roff::{Inline, Roff, bold, roman};

/// Adds a page's text, without its first heading.
pub(super) fn add(roff: &mut Roff, text: &str) {
    let mut code = Vec::new();
    let mut paragraph: Vec<&str> = Vec::new();
    let mut table_head = true;
    for line in text.lines().chain([""]) {
        if let Some(line) = line.strip_prefix("    ").filter(|_| paragraph.is_empty()) {
            code.push(line);
            continue;
        }
        if !code.is_empty() {
            roff.control("PP", []).control("RS", ["4"]).control("nf", []);
            for line in code.drain(..) {
                roff.text([roman(line)]);
            }
            roff.control("fi", []).control("RE", []);
        }
        let begins = line.is_empty() || line.starts_with(['#', '|', '*']);
        if begins && !paragraph.is_empty() {
            add_paragraph(roff, &std::mem::take(&mut paragraph).join(" "));
        }
        table_head &= !line.starts_with("|---");
        match line {
            "" => table_head = true,
            line if line.starts_with("# ") => {}
            line if line.starts_with('#') => {
                roff.control("SH", [plain(line.trim_start_matches('#').trim()).to_uppercase().as_str()]);
            }
            line if line.starts_with('|') => {
                if !table_head && !line.starts_with("|---") {
                    add_row(roff, line);
                }
            }
            line => paragraph.push(line.trim()),
        }
    }
}

fn add_paragraph(roff: &mut Roff, text: &str) {
    match text.strip_prefix("* ") {
        Some(item) => roff.control("IP", ["\\(bu", "2"]).text(inline(item)),
        None => roff.control("PP", []).text(inline(text)),
    };
}

/// A row of a table: what its first cells say, and below it the last.
fn add_row(roff: &mut Roff, line: &str) {
    let escaped = line.trim().trim_matches('|').replace("\\|", "\u{1}");
    let cells: Vec<_> = escaped.split('|').map(|cell| cell.trim().replace('\u{1}', "|")).collect();
    let Some((last, first)) = cells.split_last() else { return };
    let head = first.iter().filter(|cell| !cell.is_empty()).cloned().collect::<Vec<_>>().join("  ");
    roff.control("TP", []).text(inline(&head)).text(inline(last));
}

/// A text with what is code in bold, and of links the words.
fn inline(text: &str) -> Vec<Inline> {
    let parts = text.split('`').enumerate();
    parts.map(|(number, part)| if number % 2 == 1 { bold(part) } else { roman(words(part)) }).collect()
}

/// A text without marks.
pub(super) fn plain(text: &str) -> String {
    words(&text.replace('`', ""))
}

/// A text in which links are only their words.
fn words(text: &str) -> String {
    let mut words = String::new();
    let mut rest = text;
    while let Some((before, link)) = rest.split_once('[') {
        words += before;
        match link.split_once("](").and_then(|(name, target)| Some((name, target.split_once(')')?.1))) {
            Some((name, after)) => {
                words += name;
                rest = after;
            }
            None => {
                words.push('[');
                rest = link;
            }
        }
    }
    (words + rest).replace("**", "")
}
