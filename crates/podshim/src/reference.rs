//! Man pages and shell completions, made of the table of the commands: the same that parses their arguments, so that no
//! page can miss an option; and the reference of annotations, the node's file and the shim, made of the same pages as docs/.

pub mod annotations;
mod markdown;
mod pod_completion;

use std::path::{Path, PathBuf};

use clap::Command;
use clap_complete::Shell;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, italic, roman};
use node_state::paths::{DRAINING_FILE, NODE_FILE};

/// What the shim is, for those who have its name from a list of processes.
const SHIM: &str = include_str!("reference/shim.md");
const SOURCE: &str = concat!("podshim ", env!("CARGO_PKG_VERSION"));
const FILES: [(&str, &str); 2] = [
    (NODE_FILE, "what this node allows the pods of podshim, and its defaults"),
    (DRAINING_FILE, "while it is there, the node takes no new pods"),
];

/// All texts for shells and man, with their places below a directory `share`.
pub fn files(table: &Command) -> Vec<(PathBuf, String)> {
    let pages = man_pages(table).into_iter().map(|(name, page)| {
        let section = name.rsplit('.').next().unwrap_or("1");
        (Path::new(&format!("man/man{section}")).join(&name), page)
    });
    let scripts = [
        (Shell::Bash, "bash-completion/completions/podshim"),
        (Shell::Zsh, "zsh/site-functions/_podshim"),
        (Shell::Fish, "fish/vendor_completions.d/podshim.fish"),
    ];
    scripts.map(|(shell, place)| (place.into(), completion(shell, table))).into_iter().chain(pages).collect()
}

/// The completion script for a shell.
pub fn completion(shell: Shell, table: &Command) -> String {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut table.clone(), "podshim", &mut script);
    pod_completion::added(shell, table, String::from_utf8_lossy(&script).into_owned())
}

/// The page of podshim as a whole and one for each command: file name and text.
pub fn man_pages(table: &Command) -> Vec<(String, String)> {
    let mut table = table.clone();
    table.build();
    let listed = table.get_subcommands().filter(|command| !command.is_hide_set());
    let commands = listed.map(|command| (format!("podshim-{}.1", command.get_name()), page(command)));
    let others = reference_pages().map(|(name, page)| (name.to_owned(), page));
    [("podshim.1".to_owned(), page(&table))].into_iter().chain(commands).chain(others).collect()
}

/// The pages of files and of the shim.
fn reference_pages() -> [(&'static str, String); 3] {
    let (annotations, node_file) =
        annotations::PAGE.split_once(annotations::NODE_FILE_HEADING).unwrap_or((annotations::PAGE, ""));
    let page = |name: &str, section: &str, about: &str, text: &str, see: &str| {
        let mut roff = Roff::new();
        roff.control("TH", [name.to_uppercase().as_str(), section, "", SOURCE, ""]);
        roff.control("SH", ["NAME"]).text([roman(format!("{name} - {about}"))]);
        roff.control("SH", ["DESCRIPTION"]);
        markdown::add(&mut roff, text);
        roff.control("SH", ["SEE ALSO"]).text([roman(see)]);
        roff.to_roff()
    };
    let see = "podshim(1), podshim-explain(1), podshim-annotations(5), podshim-config(5)";
    [
        (
            "podshim-annotations.5",
            page("podshim-annotations", "5", "the annotations of a pod", annotations, see),
        ),
        ("podshim-config.5", page("podshim-config", "5", "the node's file of podshim", node_file, see)),
        (
            "containerd-shim-podshim-v2.8",
            page("containerd-shim-podshim-v2", "8", "the shim of containerd", SHIM, see),
        ),
    ]
}

/// Writing to memory cannot fail.
fn page(command: &Command) -> String {
    let name = command.get_display_name().unwrap_or(command.get_name()).to_owned();
    let about = command.get_before_help().or(command.get_about()).cloned().unwrap_or_default();
    let named = Man::new(command.clone()).title(name.to_uppercase()).source(SOURCE);
    let described = Man::new(command.clone().about(about));
    let mut page = Vec::new();
    let _ = named.render_title(&mut page);
    let _ = named.render_name_section(&mut page);
    let _ = named.render_synopsis_section(&mut page);
    let _ = described.render_description_section(&mut page);
    let _ = described.render_options_section(&mut page);
    let mut roff = Roff::new();
    if command.has_subcommands() {
        let _ = described.render_subcommands_section(&mut page);
        roff.control("SH", ["FILES"]);
        for (file, what) in FILES {
            roff.control("TP", []).text([italic(file)]).text([roman(what)]);
        }
    }
    let after = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    if let Some((_, codes)) = after.split_once("Exit codes: ") {
        roff.control("SH", ["EXIT STATUS"]).text([roman(codes)]);
    }
    if !command.has_subcommands() {
        roff.control("SH", ["SEE ALSO"]).text([bold("podshim"), roman("(1)")]);
    }
    let _ = roff.to_writer(&mut page);
    String::from_utf8_lossy(&page).into_owned()
}
