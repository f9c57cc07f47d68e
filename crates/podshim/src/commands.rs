//! The commands, one in each file: name, help text and entry point.

pub mod check;
pub mod doctor;
pub mod drain;
pub mod history;
pub mod inspect;
pub mod install;
pub mod metrics;
pub mod plan;
pub mod ps;
pub mod reference;
pub mod stop;
pub mod switch;
pub mod timeline;
pub mod translate;
pub mod watch;

use std::ffi::OsString;

use crate::arguments::{CommandError, Outcome};

/// A command.
pub struct Command {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it does, in half a line.
    pub summary: &'static str,
    /// The text of `-h`: `usage:` lines, text, and a line for each option. Completions and man pages are made from it.
    pub help: &'static str,
    /// Runs the command with the arguments after its name.
    pub run: fn(Vec<OsString>) -> Result<Outcome, CommandError>,
}

/// All commands, in the order of the help.
pub const COMMANDS: &[Command] = &[
    Command {
        name: "check",
        summary: "find what is wrong in manifests and configuration",
        help: check::HELP,
        run: check::run,
    },
    Command {
        name: "doctor",
        summary: "find out whether this node is ready",
        help: doctor::HELP,
        run: doctor::run,
    },
    Command {
        name: "drain",
        summary: "end all pods of this node, each in its order",
        help: drain::HELP,
        run: drain::run,
    },
    Command {
        name: "history",
        summary: "list the pods that were on this node",
        help: history::HELP,
        run: history::run,
    },
    Command {
        name: "inspect",
        summary: "show all there is to know of a pod",
        help: inspect::HELP,
        run: inspect::run,
    },
    Command {
        name: "install",
        summary: "make this node run pods with podshim",
        help: install::INSTALL_HELP,
        run: install::install,
    },
    Command {
        name: "metrics",
        summary: "the node's pods as Prometheus reads them",
        help: metrics::HELP,
        run: metrics::run,
    },
    Command {
        name: "plan",
        summary: "explain what a pod's plan makes of it",
        help: plan::HELP,
        run: plan::run,
    },
    Command {
        name: "ps",
        summary: "list the pods of this node with roles and states",
        help: ps::HELP,
        run: ps::run,
    },
    Command { name: "stop", summary: "stop a pod in order", help: stop::HELP, run: stop::run },
    Command {
        name: "switch",
        summary: "let a sidecar's standby take over",
        help: switch::HELP,
        run: switch::run,
    },
    Command { name: "timeline", summary: "draw a pod's life", help: timeline::HELP, run: timeline::run },
    Command {
        name: "translate",
        summary: "native sidecars for a kubelet that knows none",
        help: translate::HELP,
        run: translate::run,
    },
    Command {
        name: "uninstall",
        summary: "undo what install did",
        help: install::UNINSTALL_HELP,
        run: install::uninstall,
    },
    Command {
        name: "watch",
        summary: "tell what happens to a pod, as it happens",
        help: watch::HELP,
        run: watch::run,
    },
];
