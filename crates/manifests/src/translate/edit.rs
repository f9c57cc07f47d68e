//! Edits of lines of text, and where blocks end in block YAML. Knows no keys: indentation decides.

/// Replaces lines with others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edit {
    /// The first line to remove, counted from 0.
    pub from: usize,
    /// The line after the last one to remove; the same as `from` if no line is removed.
    pub to: usize,
    /// The new lines.
    pub lines: Vec<String>,
}

/// The text with all edits, which must not overlap.
pub fn apply(lines: &[&str], edits: &[Edit]) -> String {
    let mut edits: Vec<&Edit> = edits.iter().collect();
    edits.sort_by_key(|edit| (edit.from, edit.to));
    let mut text = String::new();
    let mut next = 0;
    for edit in edits {
        for line in lines.get(next..edit.from).unwrap_or_default() {
            text += &format!("{line}\n");
        }
        for line in &edit.lines {
            text += &format!("{line}\n");
        }
        next = next.max(edit.to);
    }
    for line in lines.get(next..).unwrap_or_default() {
        text += &format!("{line}\n");
    }
    text
}

/// The number of leading spaces.
pub fn indent(line: &str) -> usize {
    line.chars().take_while(|c| *c == ' ').count()
}

pub fn is_blank(line: &str) -> bool {
    line.trim().is_empty()
}

pub fn is_comment(line: &str) -> bool {
    line.trim_start().starts_with('#')
}

/// The line after a block that begins in line `first` at `column`: all lines of a block are deeper. Empty lines at
/// its end, and comments there that are not deeper, belong to the next block.
pub fn end_of_block(lines: &[&str], first: usize, column: usize) -> usize {
    let below = first + 1..lines.len();
    let is_next = |line: &&str| {
        !is_blank(line) && !is_comment(line) && (indent(line) <= column || line.starts_with("---"))
    };
    let mut end = below.clone().find(|index| is_next(&lines[*index])).unwrap_or(lines.len());
    while end > first + 1 && {
        let last = lines[end - 1];
        is_blank(last) || (is_comment(last) && indent(last) <= column)
    } {
        end -= 1;
    }
    end
}

/// The first line of the comments right above a line that begins at `column`. A deeper comment does not count: it may
/// be the last line of a script.
pub fn begin_of_comments(lines: &[&str], line: usize, column: usize) -> usize {
    let mut begin = line;
    while begin > 0 && is_comment(lines[begin - 1]) && indent(lines[begin - 1]) <= column {
        begin -= 1;
    }
    begin
}

/// The line after the last line of a document.
pub fn end_of_document(lines: &[&str], first: usize) -> usize {
    let marks = |line: &&str| line.starts_with("---") || line.starts_with("...");
    (first + 1..lines.len()).find(|index| marks(&lines[*index])).unwrap_or(lines.len())
}

/// Lines moved from one column to another; a line that would pass the margin stops there.
pub fn shifted(lines: &[String], from: usize, to: usize) -> Vec<String> {
    let shift = |line: &String| {
        if is_blank(line) {
            return String::new();
        }
        let column = (indent(line) + to).saturating_sub(from);
        format!("{}{}", " ".repeat(column), line.trim_start_matches(' '))
    };
    lines.iter().map(shift).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_ends_where_something_stands_as_far_left() {
        let text = "a:\n  - b: |\n      # no comment\n\n  # of c\n  - c: 1\n# of d\nd: 1";
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(end_of_block(&lines, 1, 2), 3);
        assert_eq!(begin_of_comments(&lines, 5, 2), 4);
        assert_eq!(end_of_block(&lines, 5, 2), 6);
        assert_eq!(begin_of_comments(&lines, 3, 2), 3, "the end of a script");
        assert_eq!(end_of_block(&lines, 0, 0), 6);
    }
}
