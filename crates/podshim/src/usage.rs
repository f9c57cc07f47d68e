//! Wrong arguments, as podshim reports them: one line with the value, the nearest valid word and where to read more.

use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Command, Error};
use pod_spec::nearest_word;

use crate::outcome::CommandError;

/// The error of a call with these arguments.
pub fn error_of(error: &Error, table: &Command, arguments: &[OsString]) -> CommandError {
    let called = arguments.iter().find_map(|word| table.find_subcommand(word));
    let names = || table.get_subcommands().filter(|command| !command.is_hide_set()).map(Command::get_name);
    let argument = text_of(error, ContextKind::InvalidArg);
    let value = text_of(error, ContextKind::InvalidValue);
    let one_of = |words: Vec<&str>| format!("one of {}", words.join(", "));
    let message = match error.kind() {
        ErrorKind::UnknownArgument if argument.starts_with("--") => {
            let options = called.unwrap_or(table).get_arguments().chain(table.get_arguments());
            let nearest = nearest_word(&argument[2..], options.filter_map(clap::Arg::get_long));
            let hint = nearest.map(|nearest| format!(" (did you mean --{nearest}?)")).unwrap_or_default();
            format!("unknown option {argument}{hint}")
        }
        ErrorKind::UnknownArgument => format!("unexpected argument {argument:?}"),
        ErrorKind::InvalidSubcommand => {
            let word = text_of(error, ContextKind::InvalidSubcommand);
            match nearest_word(&word, names()) {
                Some(nearest) => format!("unknown command {word:?} (did you mean {nearest:?}?)"),
                None => format!("unknown command {word:?}: {}", one_of(names().collect())),
            }
        }
        ErrorKind::MissingSubcommand | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            format!("no command given: {}", one_of(names().collect()))
        }
        ErrorKind::MissingRequiredArgument => {
            format!("no {} given", argument.replace(['<', '>', '.'], "").replace(", ", " and no "))
        }
        ErrorKind::ArgumentConflict => {
            format!("{argument} does not go with {}", text_of(error, ContextKind::PriorArg))
        }
        ErrorKind::InvalidValue if value.is_empty() => format!("{argument} needs a value"),
        ErrorKind::InvalidValue => {
            let valid = text_of(error, ContextKind::ValidValue);
            format!("{} {value:?}: one of {valid}", option(&argument))
        }
        ErrorKind::ValueValidation => match std::error::Error::source(error) {
            Some(source) => format!("{} {value}: {source}", option(&argument)),
            None => format!("{} {value:?} is not valid", option(&argument)),
        },
        // Such as an argument that is not UTF-8, or an option that is given twice.
        kind => format!("{kind}: {argument}"),
    };
    CommandError::usage(called.map(Command::get_name).unwrap_or_default(), message)
}

/// The option without the word for its value.
fn option(argument: &str) -> &str {
    argument.split(' ').next().unwrap_or(argument)
}

fn text_of(error: &Error, kind: ContextKind) -> String {
    match error.get(kind) {
        Some(ContextValue::String(text)) => text.clone(),
        Some(ContextValue::Strings(texts)) => texts.join(", "),
        _ => String::new(),
    }
}
