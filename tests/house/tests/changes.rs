//! Each file of the core's handlers, rules and steps says at its head which parts of the state it changes by their verbs:
//! `Changes:` and their names. What it changes by a step or by another rule its `use` lines show.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;

use house::source::{head, items, name_of};
use house::{root, rust_files};
use syn::visit::{Visit, visit_expr_method_call};
use syn::{Expr, ExprMethodCall, ExprPath, ImplItem, Item, ReturnType};

/// A part of the state, and the type whose verbs change it.
const PARTS: [(&str, &str); 16] = [
    ("container", "Container"),
    ("hold", "Hold"),
    ("probe", "GateProbe"),
    ("ending", "Ending"),
    ("hooks", "Hooks"),
    ("freezer", "Freezer"),
    ("restarts", "Restarts"),
    ("restarts", "PodRestarts"),
    ("callers stop", "CallersStop"),
    ("takeover", "Takeover"),
    ("overdue", "Overdue"),
    ("member", "MemberState"),
    ("gate", "MemberGate"),
    ("pair", "PairPlace"),
    ("sandbox", "Sandbox"),
    ("rounds", "Rounds"),
];

/// What the state itself changes, and by which of its verbs. The stop changes by its own verbs in between.
const OF_STATE: [(&str, &[&str]); 3] = [
    ("tables", &["declare_plan", "add_unnamed_main", "add_container", "remove_container"]),
    ("failure", &["fail", "clear_failure_of"]),
    ("stop", &["begin_stop", "stop_mut", "end_stop"]),
];

/// Verbs that maps of the standard library have too.
const OF_STD: [&str; 1] = ["remove"];

fn source() -> PathBuf {
    root().join("crates/pod-lifecycle/src")
}

fn read(file: &str) -> String {
    fs::read_to_string(source().join(file)).expect("a source")
}

/// The methods of the core: for each name the types that have it, and whether it changes them.
#[derive(Default)]
struct Methods(BTreeMap<String, BTreeMap<String, bool>>);

impl Methods {
    fn of_core() -> Self {
        let mut all = Self::default();
        for file in rust_files(&source()) {
            all.add(items(&read(&file)));
        }
        all
    }

    fn add(&mut self, items: Vec<Item>) {
        for item in items {
            let Item::Impl(block) = item else { continue };
            let of = name_of(&block.self_ty);
            for method in block.items {
                let ImplItem::Fn(method) = method else { continue };
                let Some(receiver) = method.sig.receiver() else { continue };
                // A value that is moved and comes back is another one.
                let returns_itself =
                    matches!(&method.sig.output, ReturnType::Type(_, to) if name_of(to) == "Self");
                let changes =
                    receiver.mutability.is_some() || (receiver.reference.is_none() && returns_itself);
                let types = self.0.entry(method.sig.ident.to_string()).or_default();
                *types.entry(of.clone()).or_default() |= changes;
            }
        }
    }

    /// Whose verb that is: where several types have such a method, what it is called on decides.
    fn changed_by(&self, verb: &str, called_on: &str) -> Option<&'static str> {
        let types = self.0.get(verb)?;
        let part_of = |of: &String| PARTS.iter().find(|(_, name)| name == of).map(|(part, _)| *part);
        let is_clear = types.len() == 1 && !OF_STD.contains(&verb);
        let changed = types.iter().filter(|(_, changes)| **changes).filter_map(|(of, _)| part_of(of));
        changed.into_iter().find(|part| is_clear || part.replace(' ', "_") == called_on)
    }
}

/// The parts that a file's code changes.
struct Changes<'a> {
    methods: &'a Methods,
    found: BTreeSet<&'static str>,
}

impl<'ast> Visit<'ast> for Changes<'_> {
    fn visit_expr_method_call(&mut self, call: &'ast ExprMethodCall) {
        let verb = call.method.to_string();
        self.found.extend(self.methods.changed_by(&verb, &name_at_end(&call.receiver)));
        self.found.extend(OF_STATE.iter().find(|(_, verbs)| verbs.contains(&&*verb)).map(|(part, _)| *part));
        visit_expr_method_call(self, call);
    }

    /// `Container::hold_mut`, where a function is asked for.
    fn visit_expr_path(&mut self, path: &'ast ExprPath) {
        let names: Vec<_> = path.path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        if let [of, verb] = &names[..] {
            let part = PARTS.iter().find(|(_, name)| name == of).map(|(part, _)| *part);
            let changes =
                self.methods.0.get(verb).and_then(|types| types.get(of)).copied().unwrap_or_default();
            self.found.extend(part.filter(|_| changes));
        }
    }
}

/// The last name of what a method is called on: `hold` of `container.hold_mut()?`.
fn name_at_end(receiver: &Expr) -> String {
    match receiver {
        Expr::Field(field) => match &field.member {
            syn::Member::Named(name) => name.to_string(),
            syn::Member::Unnamed(_) => name_at_end(&field.base),
        },
        Expr::MethodCall(call) => call.method.to_string().trim_end_matches("_mut").to_owned(),
        Expr::Path(path) => path.path.segments.last().map(|last| last.ident.to_string()).unwrap_or_default(),
        Expr::Paren(inside) => name_at_end(&inside.expr),
        Expr::Try(inside) => name_at_end(&inside.expr),
        Expr::Reference(inside) => name_at_end(&inside.expr),
        _ => String::new(),
    }
}

/// In the order of the parts.
fn changed(text: &str, methods: &Methods) -> Vec<&'static str> {
    let mut changes = Changes { methods, found: BTreeSet::new() };
    items(text).iter().for_each(|item| changes.visit_item(item));
    let order = PARTS.iter().map(|(part, _)| *part).chain(OF_STATE.iter().map(|(part, _)| *part));
    let mut found: Vec<_> = order.filter(|part| changes.found.contains(part)).collect();
    found.dedup();
    found
}

/// What a file's head says that it changes.
fn named_at_head(text: &str) -> Vec<String> {
    let head = head(text);
    let named =
        head.split_once("Changes: ").map_or("", |(_, rest)| rest.split('.').next().unwrap_or_default());
    named.split(',').map(|part| part.trim().to_owned()).filter(|part| !part.is_empty()).collect()
}

#[test]
fn each_file_says_what_it_changes() {
    let methods = Methods::of_core();
    let of_folder = |folder: &str| {
        rust_files(&source().join(folder))
            .into_iter()
            .map(move |file| format!("{folder}/{file}"))
            .collect::<Vec<_>>()
    };
    let mut files = ["handlers", "rules", "steps"].map(of_folder).concat();
    files.retain(|file| !file.ends_with("/tests.rs"));
    assert!(files.len() > 35, "{} files", files.len());
    let wrong = files.iter().filter_map(|file| {
        let text = read(file);
        let changed = changed(&text, &methods);
        (named_at_head(&text) != changed).then(|| format!("{file}: //! Changes: {}.", changed.join(", ")))
    });
    let wrong: Vec<_> = wrong.collect();
    assert!(wrong.is_empty(), "the heads of these files should say:\n{}", wrong.join("\n"));
}

#[test]
fn each_part_has_verbs() {
    let methods = Methods::of_core();
    for (part, of) in PARTS {
        let verbs = methods.0.values().filter(|types| types.get(of) == Some(&true)).count();
        assert!(verbs > 1, "{part}: {of} has {verbs} verbs");
    }
}

#[test]
fn a_change_is_a_call_of_a_verb_that_changes() {
    let mut methods = Methods::default();
    methods.add(items(
        "impl MemberGate { fn open(&mut self) {} fn is_open(&self) {} } impl Hold { fn open(&mut self) {} }
         impl PairPlace { fn retire(&mut self) {} } impl Container { fn hold_mut(&mut self) {} fn remove(&mut self) {} }",
    ));
    let text = "//! Gates. Changes: gate,\n//! stop. Never more.\nfn f() {\n    state\n        .gate\n        .open();\n    // x.pair.retire();\n    pod.stop_mut();\n    a.gate.is_open();\n    map.remove(a);\n}\n";
    assert_eq!(changed(text, &methods), ["gate", "stop"]);
    assert_eq!(named_at_head(text), ["gate", "stop"]);
    let any_name = "fn f() { anything(x)?.retire(); y.and_then(Container::hold_mut); x.hold_mut()?.open() }";
    assert_eq!(changed(any_name, &methods), ["container", "hold", "pair"]);
}
