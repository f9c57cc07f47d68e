//! The modules of a crate, and which file imports which.
//!
//! Owns how a path is found and what it leads to. A path in the middle of the code counts like one in a `use`, and so does one in
//! a macro's argument. Judges nothing.

use std::collections::BTreeMap;
use std::fs;
use std::mem;
use std::path::{Path, PathBuf};

use proc_macro2::{Delimiter, Ident, TokenStream, TokenTree};
use quote::ToTokens;
use syn::{Expr, ExprLit, Item, ItemMod, Lit, Meta};

/// For each file the files that it imports, and where.
pub type Imports = BTreeMap<String, BTreeMap<String, String>>;

/// What each file of a crate imports; the names of the files begin at `from`.
///
/// # Panics
/// A source is missing or is no Rust.
#[must_use]
pub fn imports(root: &Path, from: &Path) -> Imports {
    let mut files = modules(root);
    let handed_on = handed_on(&files["crate"].items);
    let name = |file: &Path| file.strip_prefix(from).expect("a file of it").display().to_string();
    let mut items: BTreeMap<_, _> =
        files.iter_mut().map(|(own, module)| (own.clone(), mem::take(&mut module.items))).collect();
    let mut found = Imports::new();
    for (own, Module { file, .. }) in &files {
        let below = files.keys().filter_map(|path| path.strip_prefix(own.as_str())?.strip_prefix("::"));
        let children: Vec<_> = below.filter(|path| !path.contains("::")).collect();
        for (line, path) in paths(items.remove(own).unwrap_or_default(), own, &children) {
            let first = path.split("::").nth(1).unwrap_or_default();
            let is_module = files.contains_key(&format!("crate::{first}"));
            let mut path = handed_on.get(first).filter(|_| !is_module).cloned().unwrap_or(path);
            while !files.contains_key(&path) {
                path = path.rsplit_once("::").map_or("crate", |(parent, _)| parent).to_owned();
            }
            let to = &files[&path].file;
            if to != file {
                let place = format!("{}:{line} imports {}", name(file), name(to));
                found.entry(name(file)).or_default().entry(name(to)).or_insert(place);
            }
        }
    }
    found
}

fn read(file: &Path) -> Vec<Item> {
    let text = fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    syn::parse_file(&text).unwrap_or_else(|error| panic!("{}: {error}", file.display())).items
}

/// A module that has a file.
struct Module {
    file: PathBuf,
    items: Vec<Item>,
}

/// The modules of a crate that have a file, from its root down, by their paths.
fn modules(root: &Path) -> BTreeMap<String, Module> {
    let mut found = BTreeMap::new();
    let mut unread = vec![("crate".to_owned(), root.to_owned(), folder_of(root))];
    while let Some((own, file, folder)) = unread.pop() {
        let items = read(&file);
        for module in items.iter().filter_map(declared) {
            let name = module.ident.to_string();
            let choices = match own_path(module) {
                Some(at) => vec![folder_of(&file).join(at)],
                None => vec![folder.join(format!("{name}.rs")), folder.join(&name).join("mod.rs")],
            };
            let child = choices.iter().find(|choice| choice.is_file()).cloned();
            let child = child.unwrap_or_else(|| panic!("{}: no file of {choices:?}", file.display()));
            let below = if child.ends_with("mod.rs") { folder_of(&child) } else { child.with_extension("") };
            unread.push((format!("{own}::{name}"), child, below));
        }
        found.insert(own, Module { file, items });
    }
    found
}

fn folder_of(file: &Path) -> PathBuf {
    file.parent().expect("a folder").to_owned()
}

/// A `mod name;`.
fn declared(item: &Item) -> Option<&ItemMod> {
    match item {
        Item::Mod(module) if module.content.is_none() => Some(module),
        _ => None,
    }
}

/// Its `#[path]`.
fn own_path(module: &ItemMod) -> Option<String> {
    module.attrs.iter().find_map(|attribute| match &attribute.meta {
        Meta::NameValue(meta) if meta.path.is_ident("path") => match &meta.value {
            Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => Some(text.value()),
            _ => None,
        },
        _ => None,
    })
}

/// The names that a root has from its files, and where each comes from: all of the crate may use them.
fn handed_on(root: &[Item]) -> BTreeMap<String, String> {
    let uses = root.iter().filter_map(|item| match item {
        Item::Use(item) => Some(item),
        _ => None,
    });
    let mut found = BTreeMap::new();
    for item in uses {
        let mut leaves = Vec::new();
        use_leaves(String::new(), &item.tree, &mut leaves);
        for (path, name) in leaves {
            let path = path.strip_prefix("crate::").unwrap_or(&path).to_owned();
            found.insert(name, format!("crate::{path}"));
        }
    }
    found
}

/// The ends of a `use`: the path of each, and the name that it has here.
fn use_leaves(before: String, tree: &syn::UseTree, found: &mut Vec<(String, String)>) {
    match tree {
        syn::UseTree::Path(path) => use_leaves(format!("{before}{}::", path.ident), &path.tree, found),
        syn::UseTree::Name(name) => found.push((format!("{before}{}", name.ident), name.ident.to_string())),
        syn::UseTree::Rename(name) => {
            found.push((format!("{before}{}", name.ident), name.rename.to_string()))
        }
        syn::UseTree::Glob(_) => {}
        syn::UseTree::Group(group) => {
            group.items.iter().for_each(|tree| use_leaves(before.clone(), tree, found));
        }
    }
}

/// The paths in a module's items that lead to files of its crate, each with its line. A module inside the file is one of its own,
/// with its own `super`.
fn paths(items: Vec<Item>, own: &str, children: &[&str]) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for item in items {
        match item {
            Item::Mod(ItemMod { ident, content: Some((_, inside)), .. }) => {
                found.extend(paths(inside, &format!("{own}::{ident}"), &[]));
            }
            item => {
                let mut written = Vec::new();
                walk(item.to_token_stream(), children, &mut written);
                found.extend(written.into_iter().map(|(line, path)| (line, resolved(own, &path))));
            }
        }
    }
    found
}

/// The paths of a piece of code, as they are written.
fn walk(code: TokenStream, children: &[&str], found: &mut Vec<(usize, String)>) {
    let tokens: Vec<_> = code.into_iter().collect();
    let mut at = 0;
    while let Some(token) = tokens.get(at) {
        at += 1;
        match token {
            TokenTree::Group(group) => walk(group.stream(), children, found),
            TokenTree::Ident(name) if at < 3 || !is_colons(&tokens, at - 3) => {
                let text = name.to_string();
                let is_root = ["crate", "super", "self"].contains(&text.as_str());
                let child = children.contains(&text.as_str());
                if (is_root || child) && is_colons(&tokens, at) {
                    let begin = if child { format!("self::{text}") } else { text };
                    at = follow(&tokens, at, begin, name, found);
                }
            }
            _ => {}
        }
    }
}

/// Whether `::` stands at that place.
fn is_colons(tokens: &[TokenTree], at: usize) -> bool {
    let is_colon =
        |at: usize| matches!(tokens.get(at), Some(TokenTree::Punct(mark)) if mark.as_char() == ':');
    is_colon(at) && is_colon(at + 1)
}

/// Reads a path on from its `::`, with all branches of a `use`, and returns the place behind it.
fn follow(
    tokens: &[TokenTree],
    mut at: usize,
    begin: String,
    first: &Ident,
    found: &mut Vec<(usize, String)>,
) -> usize {
    let mut path = begin;
    while is_colons(tokens, at) {
        match tokens.get(at + 2) {
            Some(TokenTree::Ident(name)) => path += &format!("::{name}"),
            Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Brace => {
                branches(group.stream(), &path, found);
                return at + 3;
            }
            // `::*` or `::<T>`.
            _ => {
                path += "::*";
                break;
            }
        }
        at += 3;
    }
    found.push((first.span().start().line, path));
    at
}

/// The branches of a `use` in braces.
fn branches(inside: TokenStream, before: &str, found: &mut Vec<(usize, String)>) {
    let tokens: Vec<_> = inside.into_iter().collect();
    let mut at = 0;
    while let Some(token) = tokens.get(at) {
        at += 1;
        let TokenTree::Ident(name) = token else { continue };
        if name == "as" {
            // The new name behind it.
            at += 1;
        } else if name == "self" {
            found.push((name.span().start().line, before.to_owned()));
        } else {
            at = follow(&tokens, at, format!("{before}::{name}"), name, found);
        }
    }
}

/// A path as the module `own` means it.
fn resolved(own: &str, path: &str) -> String {
    let parent = own.rsplit_once("::").map_or("crate", |(parent, _)| parent);
    match path.split_once("::") {
        Some(("super", rest)) => resolved(parent, &format!("self::{rest}")),
        Some(("self", rest)) if rest.starts_with("super::") => resolved(own, rest),
        Some(("self", rest)) => format!("{own}::{rest}"),
        _ => path.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(source: &str, children: &[&str]) -> Vec<(usize, String)> {
        paths(syn::parse_file(source).expect("Rust").items, "crate::own::here", children)
    }

    #[test]
    fn a_path_is_read_whole() {
        let source = "use crate::{\n    a::{self, B as C},\n    c::{d, e::{f, g}},\n};\n\
                      fn f() { super::d::e(); mycrate::x(); } // crate::no\n\
                      fn g() { assert!(\"crate::no\", \"{}\", crate::h::I.j, $crate::k::l); x::super_::y(); Vec::<crate::m::N>::new(); }\n\
                      mod tests { use super::Z; use super::super::w; use super::*; }";
        let all = found(source, &[]);
        let all: Vec<_> = all.iter().map(|(line, path)| (*line, path.as_str())).collect();
        assert_eq!(
            all,
            [
                (2, "crate::a"),
                (2, "crate::a::B"),
                (3, "crate::c::d"),
                (3, "crate::c::e::f"),
                (3, "crate::c::e::g"),
                (5, "crate::own::d::e"),
                (6, "crate::h::I"),
                (6, "crate::k::l"),
                (6, "crate::m::N"),
                (7, "crate::own::here::Z"),
                (7, "crate::own::w"),
                (7, "crate::own::here::*"),
            ]
        );
        let of_child = found("use b::{c, D};\nfn f() { a::b::c() }", &["b"]);
        assert_eq!(
            of_child,
            [(1, "crate::own::here::b::c".to_owned()), (1, "crate::own::here::b::D".to_owned())]
        );
    }

    #[test]
    fn a_name_that_the_root_hands_on_leads_to_its_file() {
        let root =
            syn::parse_file("pub use a::{B, c::D as E};\nuse crate::f::G;\nmod a;").expect("Rust").items;
        let expected = [("B", "crate::a::B"), ("E", "crate::a::c::D"), ("G", "crate::f::G")];
        assert_eq!(handed_on(&root), expected.map(|(name, path)| (name.to_owned(), path.to_owned())).into());
        assert_eq!(declared(&root[2]).map(|module| module.ident.to_string()), Some("a".to_owned()));
    }
}
