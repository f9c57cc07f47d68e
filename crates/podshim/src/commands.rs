//! The commands, one in each file: arguments, help text and entry point. This is the one table that the parser, `-h`, the
//! man pages and the completions are made from.

pub mod bypass;
pub mod check;
pub mod doctor;
pub mod drain;
pub mod explain;
pub mod history;
mod in_use;
pub mod inspect;
pub mod install;
pub mod metrics;
pub mod plan;
pub mod pod_names;
pub mod ps;
pub mod reference;
pub mod restart;
pub mod stop;
pub mod switch;
pub mod timeline;
pub mod translate;
pub mod watch;
pub mod web;
pub mod why;

use std::sync::LazyLock;

use clap::{Arg, ArgAction, CommandFactory, Parser, Subcommand, ValueHint};

use crate::outcome::{CommandError, Outcome};
use crate::reference::files;
use crate::terminal::ColourChoice;

/// The version of this build, and its commit if the build names one.
fn version() -> &'static str {
    static VERSION: LazyLock<String> = LazyLock::new(control_api::release);
    &VERSION
}

/// The arguments of podshim.
#[derive(Parser)]
#[command(name = "podshim", version = version(), help_template = OVERVIEW, after_help = AFTER_OVERVIEW)]
#[command(about = "for people who write pods or look after a node")]
#[command(disable_help_flag = true, disable_help_subcommand = true)]
pub struct Arguments {
    /// Colours: auto (on a terminal, unless NO_COLOR is set), always, never
    #[arg(long, global = true, value_name = "WHEN", value_enum, default_value_t, display_order = 900)]
    #[arg(hide_possible_values = true)]
    pub color: ColourChoice,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// All commands, in the order of the help. Their doc comments are their summaries.
#[derive(Subcommand)]
pub enum Command {
    /// let containerd's own shim run new pods, and back
    Bypass(bypass::Arguments),
    /// find what is wrong in manifests and configuration
    Check(check::Arguments),
    /// check whether this node is ready for pods with a plan
    Doctor(doctor::Arguments),
    /// end all pods of this node, each in its order
    Drain(drain::Arguments),
    /// what an annotation or a key of the node's file does
    Explain(explain::Arguments),
    /// list the pods that have ended on this node
    History(history::Arguments),
    /// show all there is to know of a pod
    Inspect(inspect::Arguments),
    /// make this node run pods with podshim
    Install(install::InstallArguments),
    /// the node's pods as Prometheus reads them
    Metrics(metrics::Arguments),
    /// explain what a pod's plan does: order, waits, longest stop
    Plan(plan::Arguments),
    /// list the pods of this node with roles and states
    Ps(ps::Arguments),
    /// restart all containers of a pod in place, in order
    Restart(restart::Arguments),
    /// stop a pod in order
    Stop(stop::Arguments),
    /// let a sidecar's standby take over
    Switch(switch::Arguments),
    /// draw a pod's life
    Timeline(timeline::Arguments),
    /// rewrite native sidecars for a kubelet that does not know them
    Translate(translate::Arguments),
    /// undo what install did
    Uninstall(install::UninstallArguments),
    /// print what happens to a pod, as it happens
    Watch(watch::Arguments),
    /// a page with the node's pods, as they live
    Web(web::Arguments),
    /// what a pod waits for, since when, and what to do
    Why(why::Arguments),
    /// whether containerd has podshim's runtime
    #[command(hide = true)]
    HasRuntime(install::HasRuntimeArguments),
    /// call systemctl on the node
    #[command(hide = true, name = node_setup::install::host::ON_HOST)]
    OnHost(install::OnHostArguments),
    /// print the names of pods, for completions
    #[command(hide = true)]
    PodNames(pod_names::Arguments),
    /// write the completions of a shell
    #[command(hide = true)]
    Completion(reference::CompletionArguments),
    /// write the man pages
    #[command(hide = true)]
    Man(reference::ManArguments),
}

impl Command {
    /// Runs the command.
    ///
    /// # Errors
    /// What keeps it from its work.
    pub fn run(&self) -> Result<Outcome, CommandError> {
        match self {
            Self::Bypass(arguments) => bypass::run(arguments),
            Self::Check(arguments) => check::run(arguments),
            Self::Doctor(arguments) => doctor::run(arguments),
            Self::Drain(arguments) => drain::run(arguments),
            Self::Explain(arguments) => explain::run(arguments),
            Self::PodNames(arguments) => pod_names::run(arguments),
            Self::History(arguments) => history::run(arguments),
            Self::HasRuntime(arguments) => install::has_runtime(arguments),
            Self::OnHost(arguments) => install::on_host(arguments),
            Self::Inspect(arguments) => inspect::run(arguments),
            Self::Install(arguments) => install::install(arguments, files(&table())),
            Self::Metrics(arguments) => metrics::run(arguments),
            Self::Plan(arguments) => plan::run(arguments),
            Self::Ps(arguments) => ps::run(arguments),
            Self::Restart(arguments) => restart::run(arguments),
            Self::Stop(arguments) => stop::run(arguments),
            Self::Switch(arguments) => switch::run(arguments),
            Self::Timeline(arguments) => timeline::run(arguments),
            Self::Translate(arguments) => translate::run(arguments),
            Self::Uninstall(arguments) => install::uninstall(arguments, files(&table())),
            Self::Watch(arguments) => watch::run(arguments),
            Self::Web(arguments) => web::run(arguments),
            Self::Why(arguments) => why::run(arguments),
            Self::Completion(arguments) => reference::completion(arguments, &table()),
            Self::Man(arguments) => reference::man(arguments, &table()),
        }
    }
}

/// All commands with all their arguments.
pub fn table() -> clap::Command {
    // `-h` and `--help` are the same: one text for each command.
    let help =
        Arg::new("help").short('h').long("help").action(ArgAction::HelpShort).global(true).display_order(901);
    let table = Arguments::command().arg(help.help("This help"));
    table.mut_subcommands(|command| {
        // Of an option that is given twice the last one counts, so that a script can add to the words of its user.
        let command = command.help_template(HELP).disable_version_flag(true).args_override_self(true);
        // A value without a hint is a word: no shell should complete it as a file.
        command.mut_args(|argument| {
            let is_word =
                argument.get_action().takes_values() && argument.get_value_hint() == ValueHint::Unknown;
            if is_word { argument.value_hint(ValueHint::Other) } else { argument }
        })
    })
}

const OVERVIEW: &str = "\
usage: podshim COMMAND ...

Commands, each with a -h of its own:
{subcommands}

Options:
{options}{after-help}
";

const HELP: &str = "\
usage: {usage}

{before-help}{all-args}{after-help}
";

/// The smallest useful example; the README has it, too.
const AFTER_OVERVIEW: &str = "\
Two annotations hold an app until its proxy takes connections, and stop the proxy after the app:

  apiVersion: v1
  kind: Pod
  metadata:
    name: shop
    annotations:
      podshim.io/plan: \"proxy=sidecar, app=main\"
      podshim.io/ready.proxy: \"tcp::8080\"
  spec:
    runtimeClassName: podshim
    containers:
      - {name: app, image: \"example/app:1\"}
      - {name: proxy, image: \"example/proxy:1\"}

A job needs a third, podshim.io/restart-policy, with what its restartPolicy says.

Exit codes: 0 all is well, 1 something was found or failed, 2 wrong arguments.
COLUMNS sets how wide the output may be; without it the terminal's width counts, 80 to 200.";
