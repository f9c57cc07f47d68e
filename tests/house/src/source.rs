//! One Rust source: the text at its head, the comments in its code, and its items without those of its tests.
//!
//! Owns what belongs to which. Knows no file but the one that it is given.

use syn::{Attribute, Item};

/// The text at a file's head, as one line.
#[must_use]
pub fn head(text: &str) -> String {
    text.lines().map_while(|line| line.strip_prefix("//!")).map(str::trim).collect::<Vec<_>>().join(" ")
}

/// A file's text before its tests.
#[must_use]
pub fn without_tests(text: &str) -> &str {
    text.split("#[cfg(test)]").next().unwrap_or_default()
}

/// The comments in a file's code: neither its head nor its tests. A compiler drops them, so they are read as text.
#[must_use]
pub fn comments(text: &str) -> String {
    let lines = without_tests(text).lines().filter(|line| !line.starts_with("//!"));
    lines.filter_map(|line| Some(line.split_once("//")?.1)).collect::<Vec<_>>().join("\n")
}

/// The items of a file without those that only tests have.
///
/// # Panics
/// The text is no Rust.
#[must_use]
pub fn items(text: &str) -> Vec<Item> {
    let file = syn::parse_file(text).unwrap_or_else(|error| panic!("{error}:\n{text}"));
    file.items.into_iter().filter(|item| !is_for_tests(attributes(item))).collect()
}

/// The name at the end of a type's path.
#[must_use]
pub fn name_of(of: &syn::Type) -> String {
    match of {
        syn::Type::Path(path) => {
            path.path.segments.last().map(|last| last.ident.to_string()).unwrap_or_default()
        }
        syn::Type::Reference(reference) => name_of(&reference.elem),
        _ => String::new(),
    }
}

fn is_for_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let is_test = |list: &syn::MetaList| list.tokens.to_string() == "test";
        attribute.path().is_ident("cfg") && attribute.meta.require_list().is_ok_and(is_test)
    })
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(it) => &it.attrs,
        Item::Enum(it) => &it.attrs,
        Item::Fn(it) => &it.attrs,
        Item::Impl(it) => &it.attrs,
        Item::Mod(it) => &it.attrs,
        Item::Static(it) => &it.attrs,
        Item::Struct(it) => &it.attrs,
        Item::Type(it) => &it.attrs,
        Item::Use(it) => &it.attrs,
        _ => &[],
    }
}
