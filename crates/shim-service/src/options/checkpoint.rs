//! The options of a Checkpoint request.
//!
//! Owns the decoding of `containerd.runc.v1.CheckpointOptions` and of the message that containerd 1.x has for runtimes of
//! another name (CONTRACT §8). The cgroups mode is not read: containerd's own shim does not pass it on either.

use std::path::PathBuf;

use oci_runtime::runtime::{AfterCheckpoint, CheckpointOptions};
use protobuf::well_known_types::any::Any;

use super::error::OptionsError;
use super::fields::{Field, Value, fields, non_empty};

/// Decodes the options. Without any all defaults hold, which leave the container running.
///
/// # Errors
/// [`OptionsError`] for a message that is neither of the two, or is broken.
pub(crate) fn checkpoint_options(any: Option<&Any>) -> Result<CheckpointOptions, OptionsError> {
    let Some(any) = any else { return Ok(CheckpointOptions::default()) };
    match any.type_url.rsplit('/').next().unwrap_or_default() {
        "" if any.value.is_empty() => Ok(CheckpointOptions::default()),
        "containerd.runc.v1.CheckpointOptions" => Ok(decode(&fields(any)?, 9)),
        // The same fields, except that the work path has number 8 instead of 9 and there is no parent path.
        "containerd.linux.runc.CheckpointOptions" => Ok(decode(&fields(any)?, 8)),
        _ => Err(OptionsError::UnknownCheckpointType { type_url: any.type_url.clone() }),
    }
}

/// The field of each flag, in the order in which the OCI runtime gets them: the fields of a message have no order.
const FLAGS: [(u32, &str); 4] =
    [(2, "--tcp-established"), (3, "--ext-unix-sk"), (4, "--shell-job"), (5, "--file-locks")];

fn decode(fields: &[Field], work_path: u32) -> CheckpointOptions {
    let is_set = |number: u32| {
        fields.iter().any(|field| field.number == number && matches!(field.value, Value::Number(1..)))
    };
    let mut options = CheckpointOptions {
        after: if is_set(1) { AfterCheckpoint::End } else { AfterCheckpoint::LeaveRunning },
        flags: FLAGS.iter().filter(|(number, _)| is_set(*number)).map(|(_, flag)| *flag).collect(),
        ..CheckpointOptions::default()
    };
    for field in fields {
        match (field.number, &field.value) {
            (6, Value::Text(namespace)) => options.empty_namespaces.push(namespace.clone()),
            (10, Value::Text(path)) => options.parent_path = non_empty(path).map(PathBuf::from),
            (number, Value::Text(path)) if number == work_path => {
                options.work_path = non_empty(path).map(PathBuf::from);
            }
            _ => {}
        }
    }
    options
}

#[cfg(test)]
mod tests {
    use protobuf::CodedOutputStream;

    use super::*;

    fn any(type_url: &str, write: impl FnOnce(&mut CodedOutputStream<'_>)) -> Any {
        let mut value = Vec::new();
        let mut stream = CodedOutputStream::vec(&mut value);
        write(&mut stream);
        stream.flush().unwrap();
        drop(stream);
        Any { type_url: type_url.to_owned(), value, ..Any::default() }
    }

    #[test]
    fn every_field_has_its_flag() {
        let message = any("containerd.runc.v1.CheckpointOptions", |stream| {
            for number in 1..=5 {
                stream.write_bool(number, true).unwrap();
            }
            for namespace in ["network", "ipc"] {
                stream.write_string(6, namespace).unwrap();
            }
            stream.write_string(8, "/images").unwrap();
            stream.write_string(9, "/work").unwrap();
            stream.write_string(10, "/parent").unwrap();
        });
        let expected = CheckpointOptions {
            after: AfterCheckpoint::End,
            work_path: Some("/work".into()),
            parent_path: Some("/parent".into()),
            empty_namespaces: vec!["network".to_owned(), "ipc".to_owned()],
            flags: vec!["--tcp-established", "--ext-unix-sk", "--shell-job", "--file-locks"],
            criu_path: None,
        };
        assert_eq!(checkpoint_options(Some(&message)).unwrap(), expected);
    }

    /// The other message of 1.x has the work path where this one has the image path.
    #[test]
    fn the_legacy_message_has_its_own_numbers() {
        let message = any("containerd.linux.runc.CheckpointOptions", |stream| {
            stream.write_string(8, "/work").unwrap();
            stream.write_string(9, "/images").unwrap();
        });
        let options = checkpoint_options(Some(&message)).unwrap();
        assert_eq!((options.work_path, options.after), (Some("/work".into()), AfterCheckpoint::LeaveRunning));
    }

    #[test]
    fn no_option_leaves_it_running_and_a_strange_message_is_refused() {
        assert_eq!(checkpoint_options(None).unwrap(), CheckpointOptions::default());
        let error = checkpoint_options(Some(&any("acme.Options", |_| {}))).unwrap_err().to_string();
        assert!(error.contains("acme.Options"), "{error}");
    }
}
