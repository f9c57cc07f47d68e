//! The command line containerd uses: Go style flags, then at most one action (CONTRACT §1.1).
//!
//! containerd-shim reads the flags. Owns what an invocation is for, and which flags each action requires; acts on
//! nothing.

use containerd_shim::Flags;
use thiserror::Error;
use tracing::Level;

/// What this invocation is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Print the address of the pod's shim, starting it if there is none.
    Start,
    /// Clean up after a container whose shim can no longer be asked.
    Delete,
    /// No action: run as the pod's server.
    Serve,
    /// [`WRITE_HISTORY`]: write the record of a pod that comes on stdin.
    WriteHistory,
    /// `-info`: describe the runtime.
    Info,
    /// `-v`: print the version.
    Version,
    /// `-h`: print the usage.
    Help,
}

/// Why a command line was refused.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum ArgumentError {
    /// A flag that containerd does not have, or one without its value.
    #[error("command line: {reason}; see -h")]
    Flags {
        /// What containerd-shim says of it.
        reason: String,
    },
    /// An action that does not exist.
    #[error("unknown action {action:?}; containerd runs this program with start or delete")]
    UnknownAction {
        /// The action.
        action: String,
    },
    /// A flag that the action requires.
    #[error(
        "-{name} is required: containerd runs this program, people run `ctr run --runtime io.containerd.podshim.v2`"
    )]
    Required {
        /// The flag.
        name: &'static str,
    },
    /// An id that cannot name a directory.
    #[error("-{name} {value:?} is not an identifier: it must not be empty, `.` or `..` and contain no `/`")]
    NotIdentifier {
        /// The flag.
        name: &'static str,
        /// Its value.
        value: String,
    },
}

/// The flag with which an ending shim runs itself.
pub const WRITE_HISTORY: &str = "-write-history";

/// The usage text of `-h`.
pub const USAGE: &str = "\
Usage: containerd-shim-podshim-v2 [flags] [start|delete]

The containerd runtime shim that gives pods their order. containerd runs it; to use it, run
  ctr run --runtime io.containerd.podshim.v2 IMAGE ID
or name io.containerd.podshim.v2 as a runtime_type in containerd's configuration.

Actions:
  start    print the address of the pod's shim, starting it if there is none
  delete   clean up after a container whose shim is gone
  (none)   be the pod's shim; started by `start`

Flags:
  -namespace NAME       containerd's namespace
  -id ID                the container's id
  -address PATH         containerd's socket
  -bundle DIR           the container's bundle (default: the working directory)
  -publish-binary PATH  accepted and not used: events go to containerd's ttrpc socket
  -socket PATH          accepted and not used: `start` chooses the socket
  -debug                log more
  -info                 print the runtime's description (a RuntimeInfo message)
  -write-history       run by an ending shim: writes the record on stdin for `podshim history`
  -v, -version          print the version
  -h, -help             print this text
";

/// Parses a command line without the program's name.
///
/// # Errors
///
/// [`ArgumentError`] names the invalid flag or word, or the flag that the action lacks.
pub fn parse(words: &[String]) -> Result<(Action, Flags), ArgumentError> {
    // containerd-shim knows containerd's flags alone.
    match words.first().map(String::as_str) {
        Some("-h" | "--h" | "-help" | "--help") => return Ok((Action::Help, Flags::default())),
        Some(WRITE_HISTORY) => return Ok((Action::WriteHistory, Flags::default())),
        _ => {}
    }
    let flags = containerd_shim::parse(words).map_err(|error| match error {
        containerd_shim::Error::InvalidArgument(reason) => ArgumentError::Flags { reason },
        // It makes no other. Their texts would only make the binary larger.
        _ => ArgumentError::Flags { reason: String::new() },
    })?;
    // A question about the program itself takes precedence over any action.
    let action = match flags.action.as_str() {
        _ if flags.version => Action::Version,
        _ if flags.info => Action::Info,
        "" => Action::Serve,
        "start" => Action::Start,
        "delete" => Action::Delete,
        action => return Err(ArgumentError::UnknownAction { action: action.to_owned() }),
    };
    if !matches!(action, Action::Version | Action::Info) {
        require(action, &flags)?;
    }
    Ok((action, flags))
}

/// Every action is for one container of one namespace of one containerd; the ids become directory names.
fn require(action: Action, flags: &Flags) -> Result<(), ArgumentError> {
    for (name, value) in [("namespace", &flags.namespace), ("id", &flags.id), ("address", &flags.address)] {
        if value.is_empty() {
            return Err(ArgumentError::Required { name });
        }
    }
    // The server's id is the grouping id: the text of an annotation, which names no directory.
    let identifiers = match action {
        Action::Serve => &[("namespace", &flags.namespace)][..],
        _ => &[("namespace", &flags.namespace), ("id", &flags.id)],
    };
    for (name, value) in identifiers {
        if matches!(value.as_str(), "." | "..") || value.contains('/') {
            return Err(ArgumentError::NotIdentifier { name, value: (*value).clone() });
        }
    }
    Ok(())
}

/// How much the shim logs.
pub fn log_level(debug: bool) -> Level {
    if debug { Level::DEBUG } else { Level::INFO }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<(Action, Flags), ArgumentError> {
        super::parse(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    fn action(line: &str) -> Action {
        parse(line).unwrap_or_else(|error| panic!("{line}: {error}")).0
    }

    /// CONTRACT §1.1: the command lines of containerd 1.6 to 2.3.
    #[test]
    fn containerds_own_lines() {
        let (action_of_start, start) = parse(
            "-namespace k8s.io -address /run/containerd/containerd.sock -publish-binary /usr/bin/containerd \
             -id c1 -debug start",
        )
        .unwrap();
        assert_eq!(action_of_start, Action::Start);
        assert_eq!((start.namespace.as_str(), start.id.as_str()), ("k8s.io", "c1"));
        assert_eq!((start.address.as_str(), start.bundle.as_str()), ("/run/containerd/containerd.sock", ""));
        assert!(start.debug);
        let (action_of_delete, delete) =
            parse("-namespace ns -address /s -publish-binary /c -id c1 -bundle /run/b delete").unwrap();
        assert_eq!((action_of_delete, delete.bundle.as_str()), (Action::Delete, "/run/b"));
        assert_eq!(action("-namespace ns -id g -address /s"), Action::Serve);
        assert_eq!(action("-info"), Action::Info);
    }

    #[test]
    fn go_forms() {
        let (_, flags) = parse("--namespace=ns -id=c1 --address /s -debug=false start").unwrap();
        assert_eq!((flags.namespace.as_str(), flags.id.as_str(), flags.debug), ("ns", "c1", false));
        // A value may start with a dash: Go takes the next word in any case.
        assert_eq!(parse("-namespace ns -id -x -address /s start").unwrap().1.id, "-x");
        for line in ["-v", "-version", "--version", "-v start", "-v -info"] {
            assert_eq!(action(line), Action::Version, "{line}");
        }
        for line in ["-h", "--help", "-help delete"] {
            assert_eq!(action(line), Action::Help, "{line}");
        }
        assert_eq!(action(WRITE_HISTORY), Action::WriteHistory);
    }

    #[test]
    fn errors_name_what_is_wrong() {
        for (line, message) in [
            ("-colour start", "command line: flag provided but not defined: -colour; see -h"),
            ("-id", "command line: flag needs an argument: -id; see -h"),
            // containerd-shim names neither the flag nor the value.
            ("-debug=maybe", "command line: parse error; see -h"),
            ("stop", "unknown action \"stop\"; containerd runs this program with start or delete"),
            ("start", "-namespace is required: "),
            ("-namespace n -address a delete", "-id is required: "),
            ("-namespace n -id i start", "-address is required: "),
            ("-namespace .. -id i -address a start", "-namespace \"..\" is not an identifier: "),
            ("-namespace n -id a/b -address a start", "-id \"a/b\" is not an identifier: "),
        ] {
            let error = parse(line).unwrap_err().to_string();
            assert!(error.starts_with(message), "{line:?} gave {error:?}");
        }
    }
}
