//! Each field of the core's state has one writer, and docs/design.md has the table of them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;

use house::source::items;
use house::{root, rust_files};
use syn::visit::{Visit, visit_expr_assign, visit_expr_binary, visit_expr_reference};
use syn::{BinOp, Expr, ExprAssign, ExprBinary, ExprReference, Fields, Item, Member, Visibility};

const HEADING: &str = "| file | type | fields |";

/// Values that a verb returns, or that a private field has as a whole, and entries of constant lists: no verb of theirs changes a
/// field.
const CARRIERS: [&str; 11] = [
    "Change",
    "EndTimes",
    "EndedCreate",
    "EndedRemoval",
    "EndedStart",
    "RemovedExec",
    "PodFailure",
    "RemovedContainer",
    "Rule",
    "Timer",
    "Waiting",
];

fn source() -> PathBuf {
    root().join("crates/pod-lifecycle/src")
}

/// The items of every file of the core but its interface, without its tests, by its path from src.
fn files() -> BTreeMap<String, Vec<Item>> {
    let names = rust_files(&source()).into_iter().filter(|name| !name.starts_with("interface"));
    let read = |name: String| {
        let text = fs::read_to_string(source().join(&name)).expect("a source");
        (name, items(&text))
    };
    names.map(read).collect()
}

/// The types with named fields in a file, each with its fields; one that other files reach is in italics.
fn types(items: &[Item]) -> Vec<(String, Vec<String>)> {
    let structs = items.iter().filter_map(|item| match item {
        Item::Struct(item) => Some(item),
        _ => None,
    });
    let mut found = Vec::new();
    for item in structs {
        let Fields::Named(fields) = &item.fields else { continue };
        let names = fields.named.iter().filter_map(|field| {
            let name = field.ident.as_ref()?;
            let is_private = matches!(field.vis, Visibility::Inherited);
            Some(if is_private { name.to_string() } else { format!("*{name}*") })
        });
        found.push((item.ident.to_string(), names.collect()));
    }
    found
}

#[test]
fn the_table_of_writers_is_that_of_the_code() {
    let page = fs::read_to_string(root().join("docs/design.md")).expect("docs/design.md");
    let rows =
        page.lines().skip_while(|line| *line != HEADING).skip(2).take_while(|line| line.starts_with('|'));
    let mut table: Vec<String> = rows.map(str::to_owned).collect();
    table.sort();
    let mut code = Vec::new();
    for (file, items) in files() {
        let parts = types(&items).into_iter().filter(|(name, fields)| {
            // One field is a part itself, or a number with a name.
            fields.len() > 1
                && !CARRIERS.contains(&name.as_str())
                && fields.iter().any(|field| !field.starts_with('*'))
        });
        code.extend(parts.map(|(name, fields)| format!("| `{file}` | `{name}` | {} |", fields.join(", "))));
    }
    code.sort();
    assert_eq!(table, code);
}

/// The fields into which a file puts another value, or that it lends for changing.
#[derive(Default)]
struct Puts(BTreeSet<String>);

impl Puts {
    fn into(items: &[Item]) -> BTreeSet<String> {
        let mut puts = Self::default();
        items.iter().for_each(|item| puts.visit_item(item));
        puts.0
    }

    fn note(&mut self, place: &Expr) {
        match place {
            Expr::Field(field) => {
                if let Member::Named(name) = &field.member {
                    self.0.insert(name.to_string());
                }
            }
            Expr::Tuple(tuple) => tuple.elems.iter().for_each(|place| self.note(place)),
            _ => {}
        }
    }
}

impl<'ast> Visit<'ast> for Puts {
    fn visit_expr_assign(&mut self, it: &'ast ExprAssign) {
        self.note(&it.left);
        visit_expr_assign(self, it);
    }

    fn visit_expr_binary(&mut self, it: &'ast ExprBinary) {
        if is_assignment(&it.op) {
            self.note(&it.left);
        }
        visit_expr_binary(self, it);
    }

    fn visit_expr_reference(&mut self, it: &'ast ExprReference) {
        if it.mutability.is_some() {
            self.note(&it.expr);
        }
        visit_expr_reference(self, it);
    }
}

fn is_assignment(operation: &BinOp) -> bool {
    use BinOp::{AddAssign, BitAndAssign, BitOrAssign, BitXorAssign, DivAssign, MulAssign, SubAssign};
    matches!(
        operation,
        AddAssign(_)
            | SubAssign(_)
            | MulAssign(_)
            | DivAssign(_)
            | BitAndAssign(_)
            | BitOrAssign(_)
            | BitXorAssign(_)
    )
}

#[test]
fn what_puts_a_value_into_a_field() {
    let puts = |line: &str| Puts::into(&items(&format!("fn f() {{ {line} }}"))).contains("stop");
    for line in [
        "pod.stop = None;",
        "a.stop += 1;",
        "(a.stop, a.other) = (1, 2);",
        "let old = mem::take(&mut pod.stop);",
        "mem::swap(&mut a.stop, b)",
    ] {
        assert!(puts(line), "{line}");
    }
    for line in
        ["if pod.stop == None {}", "pod.stop.ask();", "let x = pod.stop;", "mem::take(&mut pod.stops)"]
    {
        assert!(!puts(line), "{line}");
    }
}

/// A part is changed by its verbs: no other file puts another one into its place.
#[test]
fn no_file_assigns_a_part_of_another() {
    let files = files();
    let puts: BTreeMap<_, _> = files.iter().map(|(file, items)| (file, Puts::into(items))).collect();
    let mut found = Vec::new();
    for (owner, items) in &files {
        let parts = types(items).into_iter().filter(|(name, _)| !CARRIERS.contains(&name.as_str()));
        for field in parts.flat_map(|(_, fields)| fields) {
            let Some(field) = field.strip_prefix('*').and_then(|field| field.strip_suffix('*')) else {
                continue;
            };
            // Files in the folder of a type's file have methods of that type.
            let has_methods = |file: &str, owner: &str| {
                file == owner
                    || owner.strip_suffix(".rs").is_some_and(|stem| file.starts_with(&format!("{stem}/")))
            };
            let is_its_own = |file: &str| {
                files.iter().any(|(other, items)| {
                    let fields = types(items).into_iter().flat_map(|(_, fields)| fields);
                    has_methods(file, other) && fields.into_iter().any(|own| own.trim_matches('*') == field)
                })
            };
            let others = puts.iter().filter(|(file, puts)| {
                !has_methods(file, owner) && !is_its_own(file) && puts.contains(field)
            });
            found.extend(others.map(|(file, _)| format!("{file}: {field}")));
        }
    }
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn fields_are_read_as_they_are_declared() {
    let code = "/// One.\npub(crate) struct One {\n    /// Text: more.\n    a: u8,\n    pub(crate) b: Vec<Other>,\n}\nstruct Unit;\n";
    assert_eq!(types(&items(code)), [("One".to_owned(), vec!["a".to_owned(), "*b*".to_owned()])]);
}
