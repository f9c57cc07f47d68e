//! The command line containerd uses: Go style flags, then at most one action (CONTRACT §1.1).
//!
//! Owns the grammar, and which flags each action requires; acts on nothing.

use std::path::PathBuf;

use thiserror::Error;

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

/// How much the shim logs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Verbosity {
    /// Informational messages and worse.
    #[default]
    Info,
    /// `-debug`: everything.
    Debug,
}

/// A parsed command line. Flags that were not given are empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arguments {
    /// What to do.
    pub action: Action,
    /// `-namespace`: containerd's namespace.
    pub namespace: String,
    /// `-id`: the container's id; the grouping id for the server.
    pub id: String,
    /// `-address`: containerd's own socket.
    pub address: String,
    /// `-bundle`: the container's bundle, if it is not the working directory.
    pub bundle: Option<PathBuf>,
    /// `-debug`.
    pub verbosity: Verbosity,
}

/// Why a command line was refused.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum ArgumentError {
    /// A flag that containerd does not have.
    #[error("unknown flag -{name}; see -h")]
    UnknownFlag {
        /// The flag without its dashes.
        name: String,
    },
    /// A flag that needs a value and is the last word.
    #[error("flag -{name} needs a value")]
    MissingValue {
        /// The flag.
        name: String,
    },
    /// A switch with a value that is not a boolean.
    #[error("flag -{name}: {value:?} is neither true nor false")]
    NotBoolean {
        /// The flag.
        name: String,
        /// Its value.
        value: String,
    },
    /// An action that does not exist.
    #[error("unknown action {action:?}; containerd runs this program with start or delete")]
    UnknownAction {
        /// The action.
        action: String,
    },
    /// More than one action.
    #[error("one action is expected, found {extra:?} after it")]
    ExtraArgument {
        /// The first excess word.
        extra: String,
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
  -debug                log more
  -info                 print the runtime's description (a RuntimeInfo message)
  -write-history       run by an ending shim: writes the record on stdin for `podshim history`
  -v, -version          print the version
  -h, -help             print this text
";

impl Arguments {
    /// Parses a command line without the program's name.
    ///
    /// # Errors
    ///
    /// [`ArgumentError`] names the invalid flag or word, or the flag that the action lacks.
    pub fn parse(words: impl IntoIterator<Item = String>) -> Result<Self, ArgumentError> {
        let mut parsed = Self {
            action: Action::Serve,
            namespace: String::new(),
            id: String::new(),
            address: String::new(),
            bundle: None,
            verbosity: Verbosity::Info,
        };
        let mut words = words.into_iter();
        let mut positional = Vec::new();
        // A question about the program itself takes precedence over any action.
        let mut about_itself = None;
        while let Some(word) = words.next() {
            // As in Go, the first word that is not a flag ends the flags.
            let Some(flag) = word.strip_prefix('-').filter(|flag| !flag.is_empty()) else {
                positional.push(word);
                break;
            };
            let flag = flag.strip_prefix('-').unwrap_or(flag);
            if flag.is_empty() {
                break;
            }
            let (name, attached) = match flag.split_once('=') {
                Some((name, value)) => (name, Some(value.to_owned())),
                None => (flag, None),
            };
            let mut value = |attached: Option<String>| {
                attached
                    .or_else(|| words.next())
                    .ok_or_else(|| ArgumentError::MissingValue { name: name.to_owned() })
            };
            match name {
                "namespace" => parsed.namespace = value(attached)?,
                "id" => parsed.id = value(attached)?,
                "address" => parsed.address = value(attached)?,
                "bundle" => {
                    parsed.bundle = Some(value(attached)?).filter(|b| !b.is_empty()).map(PathBuf::from)
                }
                // Obsolete since 1.3; every containerd still passes it.
                "publish-binary" => drop(value(attached)?),
                "debug" => {
                    parsed.verbosity = switch(name, attached)?.map_or(Verbosity::Info, |()| Verbosity::Debug)
                }
                "info" => about_itself = switch(name, attached)?.map(|()| Action::Info).or(about_itself),
                "write-history" => {
                    about_itself = switch(name, attached)?.map(|()| Action::WriteHistory).or(about_itself);
                }
                "v" | "version" => {
                    about_itself = switch(name, attached)?.map(|()| Action::Version).or(about_itself);
                }
                "h" | "help" => {
                    about_itself = switch(name, attached)?.map(|()| Action::Help).or(about_itself);
                }
                name => return Err(ArgumentError::UnknownFlag { name: name.to_owned() }),
            }
        }
        positional.extend(words);
        if let Some(action) = about_itself {
            parsed.action = action;
            return Ok(parsed);
        }
        parsed.action = match positional.first().map(String::as_str) {
            None => Action::Serve,
            Some("start") => Action::Start,
            Some("delete") => Action::Delete,
            Some(action) => return Err(ArgumentError::UnknownAction { action: action.to_owned() }),
        };
        if let Some(extra) = positional.get(1) {
            return Err(ArgumentError::ExtraArgument { extra: extra.clone() });
        }
        parsed.require()?;
        Ok(parsed)
    }

    /// Every action is for one container of one namespace of one containerd; the ids become directory names.
    fn require(&self) -> Result<(), ArgumentError> {
        for (name, value) in [("namespace", &self.namespace), ("id", &self.id), ("address", &self.address)] {
            if value.is_empty() {
                return Err(ArgumentError::Required { name });
            }
        }
        // The server's id is the grouping id: the text of an annotation, which names no directory.
        let identifiers = match self.action {
            Action::Serve => &[("namespace", &self.namespace)][..],
            _ => &[("namespace", &self.namespace), ("id", &self.id)],
        };
        for (name, value) in identifiers {
            if matches!(value.as_str(), "." | "..") || value.contains('/') {
                return Err(ArgumentError::NotIdentifier { name, value: (*value).clone() });
            }
        }
        Ok(())
    }
}

/// A Go boolean flag: `-debug`, `-debug=true`, never `-debug true`. `None` if it is switched off.
fn switch(name: &str, attached: Option<String>) -> Result<Option<()>, ArgumentError> {
    match attached.as_deref() {
        None | Some("true" | "1" | "t" | "T" | "TRUE" | "True") => Ok(Some(())),
        Some("false" | "0" | "f" | "F" | "FALSE" | "False") => Ok(None),
        Some(value) => Err(ArgumentError::NotBoolean { name: name.to_owned(), value: value.to_owned() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Arguments, ArgumentError> {
        Arguments::parse(line.split_whitespace().map(str::to_owned))
    }

    /// CONTRACT §1.1: the command lines of containerd 1.6 to 2.3.
    #[test]
    fn containerds_own_lines() {
        let start = parse(
            "-namespace k8s.io -address /run/containerd/containerd.sock -publish-binary /usr/bin/containerd \
             -id c1 -debug start",
        )
        .unwrap();
        assert_eq!(
            start,
            Arguments {
                action: Action::Start,
                namespace: "k8s.io".into(),
                id: "c1".into(),
                address: "/run/containerd/containerd.sock".into(),
                bundle: None,
                verbosity: Verbosity::Debug,
            }
        );
        let delete =
            parse("-namespace ns -address /s -publish-binary /c -id c1 -bundle /run/b delete").unwrap();
        assert_eq!((delete.action, delete.bundle), (Action::Delete, Some("/run/b".into())));
        assert_eq!(parse("-namespace ns -id g -address /s").unwrap().action, Action::Serve);
        assert_eq!(parse("-info").unwrap().action, Action::Info);
    }

    #[test]
    fn go_forms() {
        let line = parse("--namespace=ns -id=c1 --address /s -debug=false start").unwrap();
        assert_eq!(
            (line.namespace.as_str(), line.id.as_str(), line.verbosity),
            ("ns", "c1", Verbosity::Info)
        );
        // A value may start with a dash: Go takes the next word in any case.
        assert_eq!(parse("-namespace ns -id -x -address /s start").unwrap().id, "-x");
        for line in ["-v", "-version", "--version", "-v start"] {
            assert_eq!(parse(line).unwrap().action, Action::Version, "{line}");
        }
        for line in ["-h", "--help", "-help delete"] {
            assert_eq!(parse(line).unwrap().action, Action::Help, "{line}");
        }
    }

    #[test]
    fn errors_name_what_is_wrong() {
        for (line, message) in [
            ("-colour start", "unknown flag -colour; see -h"),
            ("-id", "flag -id needs a value"),
            ("-debug=maybe", "flag -debug: \"maybe\" is neither true nor false"),
            ("stop", "unknown action \"stop\"; containerd runs this program with start or delete"),
            ("-namespace n -id i -address a start now", "one action is expected, found \"now\" after it"),
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
