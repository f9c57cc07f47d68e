//! docs/annotations.md as data: its tables' rows and the lines of the node's file. The page is the one source of what a key does.

use super::markdown::plain;

/// The page.
pub const PAGE: &str = include_str!("../../../../docs/annotations.md");
/// The heading of the part about the node's file.
pub const NODE_FILE_HEADING: &str = "## The node's own word";

/// What the page says of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// `podshim.io/ready.c`, or a key of the node's file.
    pub key: String,
    /// Where it stands.
    pub place: &'static str,
    /// Its values and what each does.
    pub rows: Vec<(String, String)>,
}

impl Entry {
    /// Its first sentence.
    pub fn summary(&self) -> &str {
        let text = self.rows.first().map_or("", |(_, what)| what.as_str());
        text.split(". ").next().unwrap_or(text)
    }

    /// All of it, for people.
    pub fn show(&self) -> String {
        let rows = self.rows.iter().map(|(values, what)| format!("  {values}\n{}", wrapped(what)));
        format!("{} ({})\n{}", self.key, self.place, rows.collect::<String>())
    }
}

/// All keys in the page's order.
pub fn entries() -> Vec<Entry> {
    let mut entries: Vec<Entry> = Vec::new();
    let (keys, node_file) = PAGE.split_once(NODE_FILE_HEADING).unwrap_or((PAGE, ""));
    let mut place = None;
    for line in keys.lines() {
        let cells = cells(line);
        let [key, values, what] = &cells[..] else {
            place = place.filter(|_| line.starts_with('|'));
            continue;
        };
        match key.as_str() {
            "of the pod" => place = Some("an annotation of the pod"),
            "of container c" => place = Some("an annotation of the pod, for its container c"),
            "---" => {}
            key => {
                let Some(place) = place else { continue };
                let row = (values.clone(), what.clone());
                match entries.last_mut() {
                    Some(last) if key.is_empty() => last.rows.push(row),
                    _ => entries.push(Entry { key: format!("podshim.io/{key}"), place, rows: vec![row] }),
                }
            }
        }
    }
    entries.extend(node_file.lines().filter_map(of_node_file));
    entries
}

/// A line such as `max-grace = "10m"  # what it does`.
fn of_node_file(line: &str) -> Option<Entry> {
    let line = line.strip_prefix("    ").filter(|line| !line.starts_with([' ', '#']))?;
    let (key, rest) = line.split_once(" = ")?;
    let (value, what) = rest.split_once(" # ").unwrap_or((rest, ""));
    let rows = vec![(format!("{key} = {}", value.trim()), what.to_owned())];
    Some(Entry { key: key.to_owned(), place: "a key of /etc/podshim/config.toml", rows })
}

/// The cells of a table's row, without marks; none for another line.
fn cells(line: &str) -> Vec<String> {
    let Some(row) = line.strip_prefix('|') else { return Vec::new() };
    let escaped = row.replace("\\|", "\u{1}");
    let cells = escaped.trim_end().trim_end_matches('|').split('|');
    cells.map(|cell| plain(cell.trim()).replace('\u{1}', "|")).collect()
}

/// A text in lines of some ninety columns, indented.
fn wrapped(text: &str) -> String {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.is_empty() || line.len() + word.len() < 90 => *line += &format!(" {word}"),
            _ => lines.push(format!(" {word}")),
        }
    }
    lines.iter().filter(|line| !line.is_empty()).map(|line| format!("     {line}\n")).collect()
}
