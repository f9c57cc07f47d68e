//! `podshim watch`: prints what happens to a pod as it happens, one line for each event, and sends it to a collector as spans.

mod otlp;

use std::io::{self, Write, stdout};
use std::net::SocketAddr;
use std::time::Duration;

use clap::Args;
use control_api::client::{Client, ClientError};

use self::otlp::Exporter;
use super::inspect::failed;
use crate::arguments::{NodeArguments, PodArgument, ResultArguments, loopback_address};
use crate::events::{EventReport, Sentences, time_of_day};
use crate::outcome::{CommandError, Outcome};
use crate::output::{ColorMode, Colour, Format, print};
use crate::pods::display_name;
use crate::shims::ANSWER_LIMIT;
use crate::terminal::end_with_reader;
use crate::timeline;

/// What `-h` says before the arguments.
const ABOUT: &str = "\
Prints what has happened to a pod (the last 256 events) and then what happens, a line each, until the pod and its
shim have ended, you interrupt it, or the reader of its output is gone. With --json each line is an object. With --otlp a
collector of OpenTelemetry on this node gets it too: one trace for the pod, with a span for each hold, start, run, gate, hook
and stop, as it ends.";
const EXIT_CODES: &str = "\
Exit codes: 0 the pod has ended; 1 there is no such pod, its shim does not answer, or the collector did not take all spans;
2 wrong arguments.";

/// Arguments of `podshim watch`.
#[derive(Args)]
#[command(before_help = ABOUT, after_help = EXIT_CODES)]
pub struct Arguments {
    /// Also send spans to this collector (OTLP over HTTP, such as 127.0.0.1:4318), on a loopback address only
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = loopback_address)]
    otlp: Option<SocketAddr>,
    #[command(flatten)]
    result: ResultArguments,
    #[command(flatten)]
    node: NodeArguments,
    #[command(flatten)]
    pod: PodArgument,
}

/// How long a call waits for an event: a shim that hangs is noticed soon after.
const WAIT: Duration = Duration::from_secs(10);

/// Runs the command.
///
/// # Errors
/// No such pod, a shim that stops answering.
pub fn run(arguments: &Arguments) -> Result<Outcome, CommandError> {
    let called = &arguments.pod.pod;
    let entry = arguments.pod.find(&arguments.node)?;
    let client = Client::connect(&entry.socket, ANSWER_LIMIT).map_err(|source| failed(called, source))?;
    let paint = ColorMode::of(&stdout());
    let (mut after, mut sentences) = (0, Sentences::default());
    let mut exporter = arguments.otlp.map(|collector| Exporter::new(collector, &entry));
    end_with_reader();
    loop {
        let answer = match client.events(after, WAIT) {
            Ok(answer) => answer,
            // The shim has ended with its pod.
            Err(error)
                if after > 0 && (error.may_be_its_end() || matches!(error, ClientError::Dead { .. })) =>
            {
                let sent = exporter.map_or(Ok(()), Exporter::finish);
                sent.map_err(|error| CommandError::Input(format!("the last spans are lost: {error}")))?;
                return Ok(Outcome::Success);
            }
            Err(source) => return Err(failed(called, source)),
        };
        if answer.lost > 0 && arguments.result.format() == Format::Text {
            print(&format!("({} events are not kept any more)\n", answer.lost))?;
        }
        for event in answer.events {
            after = event.sequence;
            let event = EventReport::of(event);
            if let Some(exporter) = &mut exporter {
                exporter.add(&event);
            }
            let line = match arguments.result.format() {
                Format::Text => match sentences.next(&event) {
                    Some(sentence) => line(&event, &entry.id, sentence, paint),
                    None => continue,
                },
                Format::Json => serde_json::to_string(&event).map_err(io::Error::other)? + "\n",
            };
            if write(&line)? == OutputReader::Gone {
                return Ok(Outcome::Success);
            }
        }
        if let Some(exporter) = &mut exporter {
            exporter.send();
        }
    }
}

fn line(event: &EventReport, pod_id: &str, sentence: String, paint: ColorMode) -> String {
    let name =
        event.container.as_deref().map_or_else(|| "(pod)".to_owned(), |name| display_name(name, pod_id));
    let sentence = match timeline::colour_of(event) {
        Some(colour) => paint.text(colour, &sentence),
        None => sentence,
    };
    format!("{}  {name:<16} {sentence}\n", paint.text(Colour::Dim, &time_of_day(event.wall_ms)))
}

/// Whether the output still has a reader.
#[derive(PartialEq, Eq)]
enum OutputReader {
    Reads,
    /// It has closed its end.
    Gone,
}

/// Writes and flushes, also into a pipe: its reader waits for each line.
fn write(text: &str) -> io::Result<OutputReader> {
    let mut out = stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => Ok(OutputReader::Reads),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(OutputReader::Gone),
        Err(error) => Err(error),
    }
}
