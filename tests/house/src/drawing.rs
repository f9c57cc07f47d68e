//! The house as docs/design.md draws it: each crate is a room, and each of its imports leads down to a room below.
//!
//! Owns the drawing. A room's floor is one above the highest room that it imports. What only tests import is not drawn.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use toml_edit::{Document, Item};

/// The crates of podshim's that a crate imports, for each by its name.
pub type Imports = BTreeMap<String, BTreeSet<String>>;

/// What each `Cargo.toml` of the folder says.
pub fn imports(crates: &Path) -> Imports {
    let folders = fs::read_dir(crates).expect("the crates").map(|entry| entry.expect("an entry"));
    let folders = folders.filter(|entry| entry.path().join("Cargo.toml").exists());
    let names: BTreeSet<String> = folders.map(|entry| entry.file_name().display().to_string()).collect();
    let used = |name: &String| {
        let text = fs::read_to_string(crates.join(name).join("Cargo.toml")).expect("a manifest");
        let manifest = Document::parse(text.as_str()).expect("TOML");
        let table = manifest.get("dependencies").and_then(|item| item.as_table_like());
        let all = table.into_iter().flat_map(|table| table.iter());
        // What is optional is of a feature that only tests ask for.
        let is_optional = |item: &Item| item.get("optional").is_some();
        let keys = all.filter(|(_, item)| !is_optional(item)).map(|(key, _)| key.to_owned());
        keys.filter(|key| names.contains(key)).collect()
    };
    names.iter().map(|name| (name.clone(), used(name))).collect()
}

fn floor(imports: &Imports, room: &str) -> usize {
    imports[room].iter().map(|below| floor(imports, below) + 1).max().unwrap_or(0)
}

/// Rooms from the roof down, and beside them a lane for each room that is imported, in the same order.
struct House<'a> {
    imports: &'a Imports,
    rooms: Vec<&'a str>,
    lanes: Vec<&'a str>,
}

/// The drawing, line by line.
pub fn drawing(imports: &Imports) -> String {
    let mut rooms: Vec<&str> = imports.keys().map(String::as_str).collect();
    rooms.sort_by_key(|room| (usize::MAX - floor(imports, room), *room));
    let is_imported = |room: &&str| imports.values().any(|used| used.contains(*room));
    let lanes = rooms.iter().copied().filter(is_imported).collect();
    let house = House { imports, rooms, lanes };
    let width = house.rooms.iter().map(|room| room.len()).max().unwrap_or(0);
    let wall = "─".repeat(width + 2);
    let mut lines = vec![format!("        ┌{wall}┐")];
    let mut last_floor = None;
    for (place, room) in house.rooms.iter().enumerate() {
        let floor = floor(imports, room);
        let label = if last_floor == Some(floor) { String::new() } else { format!("floor {floor}") };
        if last_floor.is_some_and(|last| last != floor) {
            lines.push(format!("        ├{wall}┤{}", house.between(place)));
        }
        last_floor = Some(floor);
        lines.push(format!("{label:8}│ {room:width$} │{}", house.beside(place)));
    }
    lines.push(format!("        └{wall}┘"));
    lines.iter().map(|line| format!("    {}\n", line.trim_end())).collect()
}

impl House<'_> {
    /// Whether a lane comes from a room above this one, and leads to it or further down.
    fn passes(&self, lane: &str, room: usize) -> bool {
        let (above, below) = self.rooms.split_at(room);
        below.contains(&lane) && above.iter().any(|above| self.imports[*above].contains(lane))
    }

    fn between(&self, room: usize) -> String {
        self.lanes.iter().map(|lane| if self.passes(lane, room) { "   │" } else { "    " }).collect()
    }

    /// The lanes in the line of a room: the one that leads to it ends, and those that it needs have a dot.
    fn beside(&self, room: usize) -> String {
        let used = &self.imports[self.rooms[room]];
        let own = self.lanes.iter().position(|lane| *lane == self.rooms[room]);
        let last = self.lanes.iter().rposition(|lane| used.contains(*lane));
        let end = own.max(last);
        let mut line = String::new();
        for (place, lane) in self.lanes.iter().enumerate() {
            let (here, before) = (Some(place), place.checked_sub(1));
            line += match own {
                Some(_) if place == 0 => "◄──",
                Some(_) if before == own && here <= last => " ──",
                _ if here <= end => "───",
                _ => "   ",
            };
            let passes = self.passes(lane, room);
            line += if here == own {
                "┘"
            } else if used.contains(*lane) {
                "●"
            } else if passes {
                if here < last { "┼" } else { "│" }
            } else if here < end {
                "─"
            } else {
                " "
            };
        }
        line
    }
}
