//! One hand writes every crate: imports, heads, what an error means, functions that a person reads at once.

use std::fs;
use std::path::{Path, PathBuf};

use house::source::items;
use house::{root, rust_files, source_files};
use quote::ToTokens;
use syn::visit::{Visit, visit_file, visit_impl_item_fn, visit_item_fn, visit_use_tree};
use syn::{Attribute, File, ImplItemFn, ItemFn, ReturnType, Signature, UseTree, Visibility};

/// Lines of a function, as its first and its last line have it. A table of cases may be longer: it is in the list.
const MOST_LINES: usize = 60;
/// The product's functions that are longer. None may come; one that gets shorter leaves.
const LONGER: [&str; 5] = [
    "crates/manifests/src/translate/native.rs: change",
    "crates/own-processes/src/steps.rs: act",
    "crates/pod-lifecycle/src/handlers/kill.rs: kill_member",
    "crates/podshim/src/events.rs: sentence",
    "crates/shim-service/src/notice.rs: publish",
];

/// Crates that only tests link.
const OF_TESTS: [&str; 3] = ["fuzz-input", "test-support", "testkit"];

/// The sources of the product's crates, without their tests.
fn product() -> Vec<PathBuf> {
    let crates = root().join("crates");
    let is_product = |file: &String| {
        let folder = file.split('/').next().unwrap_or_default();
        let of_tests = file.ends_with("tests.rs") || file.contains("/tests/") || OF_TESTS.contains(&folder);
        file.contains("/src/") && !of_tests
    };
    rust_files(&crates).into_iter().filter(is_product).map(|file| crates.join(file)).collect()
}

fn read(file: &Path) -> String {
    fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

fn below_root(file: &Path) -> String {
    file.strip_prefix(root()).unwrap_or(file).display().to_string()
}

fn none(found: &[String], why: &str) {
    assert!(found.is_empty(), "{why}:\n{}", found.join("\n"));
}

/// `use std::{fs::File, io::Read}` has to be read as a tree; a line for each module has not.
#[test]
fn an_import_has_one_level_of_braces() {
    struct Trees(usize, bool);
    impl<'ast> Visit<'ast> for Trees {
        fn visit_use_tree(&mut self, tree: &'ast UseTree) {
            let in_braces = self.0 > 0;
            self.1 |= in_braces && matches!(tree, UseTree::Path(_));
            let depth = usize::from(matches!(tree, UseTree::Group(_)));
            self.0 += depth;
            visit_use_tree(self, tree);
            self.0 -= depth;
        }
    }
    let mut found = Vec::new();
    for file in source_files() {
        let mut trees = Trees(0, false);
        visit_file(&mut trees, &syn::parse_file(&read(&file)).expect("Rust"));
        if trees.1 {
            found.push(below_root(&file));
        }
    }
    none(&found, "a path within braces of a use: give each module a line of its own");
}

#[test]
fn a_file_says_first_what_it_owns() {
    let files = product().into_iter().filter(|file| !read(file).starts_with("//!"));
    none(&files.map(|file| below_root(&file)).collect::<Vec<_>>(), "no head");
}

/// The functions of a file, with their documentation.
#[derive(Default)]
struct Functions {
    /// Name, and its lines.
    lines: Vec<(String, usize)>,
    /// Public ones that return a Result and do not say when it is an error.
    silent: Vec<String>,
    /// Those whose error is a text.
    texts: Vec<String>,
}

impl Functions {
    fn of(text: &str) -> Self {
        let mut found = Self::default();
        let file = File { shebang: None, attrs: Vec::new(), items: items(text) };
        visit_file(&mut found, &file);
        found
    }

    fn see(
        &mut self,
        vis: Option<&Visibility>,
        attributes: &[Attribute],
        signature: &Signature,
        last: usize,
    ) {
        let first = signature.fn_token.span.start().line;
        self.lines.push((signature.ident.to_string(), last + 1 - first));
        let ReturnType::Type(_, result) = &signature.output else { return };
        let result = result.to_token_stream().to_string();
        if result.ends_with(", String >") && result.contains("Result <") {
            self.texts.push(signature.ident.to_string());
        }
        if !matches!(vis, Some(Visibility::Public(_))) || !result.contains("Result <") {
            return;
        }
        let says = attributes.iter().any(|one| one.to_token_stream().to_string().contains("# Errors"));
        if !says {
            self.silent.push(signature.ident.to_string());
        }
    }
}

impl<'ast> Visit<'ast> for Functions {
    fn visit_item_fn(&mut self, item: &'ast ItemFn) {
        let last = item.block.brace_token.span.close().end().line;
        self.see(Some(&item.vis), &item.attrs, &item.sig, last);
        visit_item_fn(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast ImplItemFn) {
        let last = item.block.brace_token.span.close().end().line;
        self.see(Some(&item.vis), &item.attrs, &item.sig, last);
        visit_impl_item_fn(self, item);
    }
}

#[test]
fn a_public_function_says_when_it_fails() {
    let (mut silent, mut texts) = (Vec::new(), Vec::new());
    for file in product() {
        let found = Functions::of(&read(&file));
        let at = |names: Vec<String>| {
            names.into_iter().map(|name| format!("{}: {name}", below_root(&file))).collect::<Vec<_>>()
        };
        silent.extend(at(found.silent));
        texts.extend(at(found.texts));
    }
    none(&silent, "a public function returns a Result without a section # Errors");
    none(&texts, "a function's error is a String: give it a type");
}

#[test]
fn a_function_is_read_at_once() {
    let mut longer = Vec::new();
    for file in product() {
        let found = Functions::of(&read(&file)).lines.into_iter().filter(|(_, lines)| *lines > MOST_LINES);
        longer.extend(found.map(|(name, _)| format!("{}: {name}", below_root(&file))));
    }
    longer.sort();
    assert_eq!(longer, LONGER, "functions of more than {MOST_LINES} lines");
}
