//! The binary `podshim`: finds the command, runs it, and turns its outcome into an exit code.

use std::ffi::OsString;
use std::process::ExitCode;

use podshim::arguments::{CommandError, Outcome};
use podshim::commands::{COMMANDS, reference};
use podshim::output::print;
use podshim::terminal::ColourChoice;

fn main() -> ExitCode {
    match run(std::env::args_os().skip(1).collect()) {
        Ok(Outcome::Success) => ExitCode::SUCCESS,
        Ok(Outcome::Findings) => ExitCode::from(1),
        Err(error) => {
            eprintln!("podshim: {error}");
            ExitCode::from(error.exit_code())
        }
    }
}

fn run(mut arguments: Vec<OsString>) -> Result<Outcome, CommandError> {
    colours(&mut arguments)?.choose();
    if arguments.is_empty() {
        return Err(CommandError::Usage { message: format!("no command given: {}", names()), command: "" });
    }
    let first = arguments.remove(0);
    match first.to_str() {
        Some("-h" | "--help" | "help") => {
            print(&help())?;
            Ok(Outcome::Success)
        }
        Some("-V" | "--version") => {
            print(concat!("podshim ", env!("CARGO_PKG_VERSION"), "\n"))?;
            Ok(Outcome::Success)
        }
        Some("completion") => reference::completion(&arguments),
        Some("man") => reference::man(&arguments),
        word => match COMMANDS.iter().find(|command| Some(command.name) == word) {
            Some(command) => (command.run)(arguments),
            None => Err(unknown(&first.to_string_lossy())),
        },
    }
}

/// Takes `--color WHEN` out of the arguments, wherever it stands: it is an option of every command.
fn colours(arguments: &mut Vec<OsString>) -> Result<ColourChoice, CommandError> {
    let mut choice = ColourChoice::default();
    let is_ours = |argument: &OsString| {
        argument.to_str().is_some_and(|word| word == "--color" || word.starts_with("--color="))
    };
    while let Some(at) = arguments.iter().take_while(|word| *word != "--").position(is_ours) {
        let word = arguments.remove(at).into_string().unwrap_or_default();
        let when = match word.split_once('=') {
            Some((_, when)) => when.to_owned(),
            None if at < arguments.len() => arguments.remove(at).to_string_lossy().into_owned(),
            None => String::new(),
        };
        choice = ColourChoice::parse(&when).ok_or_else(|| CommandError::Usage {
            message: format!("--color {when:?}: one of auto, always, never"),
            command: "",
        })?;
    }
    Ok(choice)
}

fn unknown(word: &str) -> CommandError {
    let hint = match pod_spec::nearest_word(word, COMMANDS.iter().map(|command| command.name)) {
        Some(nearest) => format!(" (did you mean {nearest:?}?)"),
        None => format!(": {}", names()),
    };
    CommandError::Usage { message: format!("unknown command {word:?}{hint}"), command: "" }
}

fn names() -> String {
    let names: Vec<_> = COMMANDS.iter().map(|command| command.name).collect();
    format!("one of {}", names.join(", "))
}

/// The smallest useful example; the README has it, too.
const RECIPE: &str = "\
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
";

fn help() -> String {
    let mut text = "usage: podshim COMMAND ...\n\nCommands, each with a -h of its own:\n".to_owned();
    for command in COMMANDS {
        text += &format!("  {:<10} {}\n", command.name, command.summary);
    }
    text += &format!("\n{RECIPE}");
    text + "\nExit codes: 0 all is well, 1 something was found or failed, 2 wrong arguments.\n\
            --color auto|always|never: colours; auto is on a terminal, unless NO_COLOR is set.\n\
            COLUMNS: how wide what is shown may be; without it the terminal's width, 80 to 200.\n"
}
