//! The server's log: lines in containerd's own format, written to the fifo that containerd copies to its log.
//!
//! Owns the fifo and the format. A log without a reader, or with a slow one, must neither block the pod's one thread
//! nor end it (trap 19): a line that does not fit is dropped and counted.

use std::fmt::{self, Write as _};
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use node_state::calendar::civil_date;
use shim_service::names::{Names, names};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::{Context, SubscriberExt};

/// Up to this length (PIPE_BUF) a write to a fifo is atomic; a longer line is cut.
const LINE_LIMIT: usize = 4096;

/// Logs to the fifo at `path` from now on; without a fifo there, nothing is logged. Returns its descriptor, which stays open: a thread
/// with descriptors of its own has to keep this one to log.
pub fn init(path: &Path, level: Level) -> Option<RawFd> {
    let filter = LevelFilter::from_level(level);
    let log = FifoLog::open(path);
    let descriptor = log.fifo.as_ref().map(AsRawFd::as_raw_fd);
    let subscriber = tracing_subscriber::registry().with(log.with_filter(filter));
    // Fails if a subscriber is set already, as in some tests: that one stays.
    tracing::subscriber::set_global_default(subscriber).ok().and(descriptor)
}

/// The layer that writes events to the fifo.
#[derive(Debug)]
struct FifoLog {
    fifo: Option<File>,
    dropped: AtomicU64,
}

impl FifoLog {
    /// Opens the fifo for reading too: so it always has a reader, a restart of containerd causes no EPIPE, and lines
    /// written meanwhile wait for containerd.
    fn open(path: &Path) -> Self {
        let fifo = OpenOptions::new().read(true).write(true).custom_flags(libc::O_NONBLOCK).open(path).ok();
        Self { fifo, dropped: AtomicU64::new(0) }
    }

    fn write(&self, line: &str) {
        let Some(mut fifo) = self.fifo.as_ref() else { return };
        let dropped = self.dropped.swap(0, Ordering::Relaxed);
        if dropped > 0 {
            let notice = format_line(
                now(),
                Level::WARN,
                "log lines were dropped: the log was full",
                &format!(" dropped={dropped}"),
            );
            if fifo.write_all(notice.as_bytes()).is_err() {
                self.dropped.fetch_add(dropped + 1, Ordering::Relaxed);
                return;
            }
        }
        if fifo.write_all(line.as_bytes()).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl<S: Subscriber> Layer<S> for FifoLog {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut text = EventText::default();
        event.record(&mut text);
        let level = *event.metadata().level();
        let (message, fields) = {
            let names = names();
            // At debug, the events and actions of the pod are shown unchanged.
            let message =
                if level < Level::DEBUG { names.with_names(&text.message) } else { text.message.clone() };
            (message, text.finish(&names))
        };
        self.write(&format_line(now(), level, &message, &fields));
    }
}

/// An event's message and its other fields, each as ` key=value`.
#[derive(Default)]
struct EventText {
    message: String,
    container: String,
    fields: String,
}

impl EventText {
    fn add(&mut self, field: &Field, value: &str) {
        match field.name() {
            "message" => value.clone_into(&mut self.message),
            "container" => value.clone_into(&mut self.container),
            name => push_field(&mut self.fields, name, value),
        }
    }

    /// The fields at the end of a line: the container and the pod by name, then the others.
    fn finish(&self, names: &Names) -> String {
        let mut fields = String::new();
        let Self { container, .. } = self;
        match names.of(container) {
            Some(name) => {
                push_field(&mut fields, "container", name);
                push_field(&mut fields, "id", container);
            }
            None if container.is_empty() => {}
            None => push_field(&mut fields, "container", container),
        }
        // Before the fields that may be too long for a line.
        if !names.pod().is_empty() {
            push_field(&mut fields, "pod", names.pod());
        }
        fields.push_str(&self.fields);
        fields
    }
}

fn push_field(fields: &mut String, name: &str, value: &str) {
    fields.push(' ');
    fields.push_str(name);
    fields.push('=');
    push_value(fields, value);
}

impl Visit for EventText {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.add(field, &format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.add(field, value);
    }
}

/// A value as logrus writes it: in quotes if it contains anything but letters, digits and `-._/@^+`.
fn push_value(text: &mut String, value: &str) {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-._/@^+".contains(c);
    if !value.is_empty() && value.chars().all(plain) {
        text.push_str(value);
    } else {
        // Rust's escapes equal Go's for everything in a log; a newline never splits a line.
        let _ = write!(text, "{value:?}");
    }
}

/// One line: `time="2026-01-02T03:04:05.678901234Z" level=info msg="..." key=value`.
fn format_line(time: SystemTime, level: Level, message: &str, fields: &str) -> String {
    let level = match level {
        Level::ERROR => "error",
        Level::WARN => "warning",
        Level::INFO => "info",
        Level::DEBUG | Level::TRACE => "debug",
    };
    let mut line = format!("time=\"{}\" level={level} msg={message:?}{fields}", rfc3339(time));
    if line.len() >= LINE_LIMIT {
        line.truncate(line.floor_char_boundary(LINE_LIMIT - 1));
    }
    line.push('\n');
    line
}

fn rfc3339(time: SystemTime) -> String {
    let since_epoch = time.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    let (days, seconds) = (since_epoch.as_secs() / 86_400, since_epoch.as_secs() % 86_400);
    let (year, month, day) = civil_date(days);
    format!(
        "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}.{:09}Z",
        seconds / 3600,
        seconds / 60 % 60,
        seconds % 60,
        since_epoch.subsec_nanos(),
    )
}

#[expect(clippy::disallowed_methods, reason = "a log line carries the wall clock time")]
fn now() -> SystemTime {
    SystemTime::now()
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    fn fifo() -> (tempfile::TempDir, std::path::PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
        (dir, path)
    }

    fn read_available(path: &Path) -> String {
        let mut reader = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path).unwrap();
        let mut bytes = Vec::new();
        // Ends with EAGAIN: the log itself keeps a writer open.
        let _ = reader.read_to_end(&mut bytes);
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn times_are_rfc3339() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00"),
            (951_782_399, "2000-02-28T23:59:59"),
            (951_782_400, "2000-02-29T00:00:00"),
            (1_709_251_200, "2024-03-01T00:00:00"),
            (4_107_542_400, "2100-03-01T00:00:00"),
            (1_798_761_599, "2026-12-31T23:59:59"),
        ] {
            assert_eq!(rfc3339(UNIX_EPOCH + Duration::new(seconds, 5)), format!("{text}.000000005Z"));
        }
    }

    #[test]
    fn a_line_is_containerds() {
        let (_dir, path) = fifo();
        let log = FifoLog::open(&path);
        // The subscriber drops its log at its end, and a fifo that no process has open loses its content.
        let _kept = FifoLog::open(&path);
        tracing::subscriber::with_default(tracing_subscriber::registry().with(log), || {
            tracing::warn!(container = "c1", error = %"no \"x\"\nfound", count = 3, "it is over");
        });
        let line = read_available(&path);
        let (time, rest) = line.split_once(' ').unwrap();
        assert!(time.starts_with("time=\"20") && time.ends_with("Z\""), "{time}");
        assert_eq!(
            rest,
            "level=warning msg=\"it is over\" container=c1 error=\"no \\\"x\\\"\\nfound\" count=3\n"
        );
    }

    /// Trap 19: without a reader nothing blocks, and a later reader learns how many lines are missing.
    #[test]
    fn a_full_log_drops_and_counts() {
        let (_dir, path) = fifo();
        let log = FifoLog::open(&path);
        let line = format!("{}\n", "x".repeat(LINE_LIMIT - 1));
        for _ in 0..100 {
            log.write(&line);
        }
        let dropped = log.dropped.load(Ordering::Relaxed);
        assert!(dropped > 0);
        let kept = read_available(&path);
        assert!(kept.lines().all(|line| line.len() == LINE_LIMIT - 1), "a line was torn");
        log.write("after\n");
        let text = read_available(&path);
        assert!(
            text.contains("level=warning msg=\"log lines were dropped: the log was full\" dropped="),
            "{text}"
        );
        assert!(text.ends_with("after\n"), "{text}");
    }

    #[test]
    fn a_line_is_cut_where_a_write_stays_whole() {
        let line = format_line(UNIX_EPOCH, Level::INFO, &"ü".repeat(LINE_LIMIT), "");
        assert!(line.len() <= LINE_LIMIT && line.ends_with("ü\n"), "{}", line.len());
    }

    #[test]
    fn without_a_fifo_nothing_happens() {
        FifoLog::open(Path::new("/no/such/log")).write("line\n");
    }
}
