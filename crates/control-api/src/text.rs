//! Makes the texts of a pod printable for operators.
//!
//! A pod's author writes commands, paths and patterns, and its programs write what a probe repeats. An escape sequence in them
//! could colour, move or hide what an operator reads, a line feed could fake a row. Owns which characters are escaped, and
//! that no text of an answer is left out: code that prints an answer need not escape anything.

use crate::{EventsResponse, InspectResponse};

/// The text with everything escaped that is not a letter, a sign or a blank: control characters, line ends, marks that turn the
/// direction of the text.
#[must_use]
pub fn printable(text: &str) -> String {
    let mut printable = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '"' | '\'' | '\\' => printable.push(letter),
            _ => printable.extend(letter.escape_debug()),
        }
    }
    printable
}

fn clean<'a>(texts: impl IntoIterator<Item = &'a mut String>) {
    for text in texts {
        // Most texts are plain: do not copy those.
        if !text.bytes().all(|byte| (b' '..=b'~').contains(&byte)) {
            *text = printable(text);
        }
    }
}

/// Makes all texts of an answer to Inspect printable.
pub fn of_inspection(answer: &mut InspectResponse) {
    clean([
        &mut answer.id,
        &mut answer.namespace,
        &mut answer.pod_name,
        &mut answer.pod_namespace,
        &mut answer.pod_uid,
        &mut answer.release,
        &mut answer.longest_away_on,
        &mut answer.fault,
        &mut answer.restart_refusal,
    ]);
    clean(&mut answer.restart_request);
    clean(answer.kubelets_own.as_mut().into_iter().flat_map(|own| &mut own.names));
    for container in &mut answer.containers {
        clean([&mut container.id, &mut container.name, &mut container.gate, &mut container.held_for]);
        clean(&mut container.after);
    }
}

/// Makes all texts of an answer to Events printable.
pub fn of_events(answer: &mut EventsResponse) {
    for event in &mut answer.events {
        clean([&mut event.id, &mut event.name, &mut event.text, &mut event.failure]);
    }
}

#[cfg(test)]
mod tests {
    use protobuf::Message;

    use super::*;

    #[test]
    fn letters_stay_and_everything_else_is_escaped() {
        assert_eq!(printable("log:^\"a\\d\" \u{e9}\u{4e2d}"), "log:^\"a\\d\" \u{e9}\u{4e2d}");
        assert_eq!(printable("\x1b[2J\n\r\t\0\x7f\u{9b}"), r"\u{1b}[2J\n\r\t\0\u{7f}\u{9b}");
        // Marks that turn the direction, and a line end that is not a control character.
        assert_eq!(printable("\u{202e}\u{2066}\u{2028}"), r"\u{202e}\u{2066}\u{2028}");
    }

    /// Issue 18: no text of a message is left out, nor one of a field that is added later: the test counts the string fields in
    /// the proto file, and looks for an escape sequence in the encoded bytes.
    #[test]
    fn no_field_is_forgotten() {
        let text = || "\x1b[31m\nproxy  running".to_owned();
        let mut inspection = InspectResponse {
            id: text(),
            namespace: text(),
            pod_name: text(),
            pod_namespace: text(),
            pod_uid: text(),
            release: text(),
            longest_away_on: text(),
            fault: text(),
            restart_refusal: text(),
            restart_request: Some(text()),
            kubelets_own: Some(crate::Names { names: vec![text()], ..Default::default() }).into(),
            containers: vec![crate::Container {
                id: text(),
                name: text(),
                gate: text(),
                held_for: text(),
                after: vec![text()],
                ..Default::default()
            }],
            ..Default::default()
        };
        let mut events = EventsResponse {
            events: vec![crate::Event {
                id: text(),
                name: text(),
                text: text(),
                failure: text(),
                ..Default::default()
            }],
            ..Default::default()
        };
        let strings = include_str!("../../../proto/podshim/v1/pod.proto");
        let answers = ["message InspectResponse", "message Names", "message Container", "message Event "];
        let of = |message: &str| {
            let body =
                strings.split(message).nth(1).and_then(|rest| rest.split("\n}").next()).expect(message);
            let is_text = |line: &&str| {
                let line = line.trim();
                let kind = ["optional ", "repeated "]
                    .iter()
                    .find_map(|word| line.strip_prefix(word))
                    .unwrap_or(line);
                kind.starts_with("string ")
            };
            body.lines().filter(is_text).count()
        };
        let wanted: usize = answers.into_iter().map(of).sum();
        let escapes = |bytes: Vec<u8>| bytes.windows(2).filter(|pair| pair == b"\x1b[").count();
        let count = || {
            let [a, b] =
                [inspection.write_to_bytes(), events.write_to_bytes()].map(|bytes| bytes.expect("bytes"));
            escapes(a) + escapes(b)
        };
        assert_eq!(count(), wanted, "a field of pod.proto is not set here");
        of_inspection(&mut inspection);
        of_events(&mut events);
        for bytes in [inspection.write_to_bytes(), events.write_to_bytes()] {
            let text = String::from_utf8_lossy(&bytes.expect("bytes")).into_owned();
            assert!(!text.contains("\x1b") && !text.contains("\nproxy"), "{text:?}");
        }
    }
}
