//! The standard streams of one container or exec: containerd's fifos and files, opened once and kept for every
//! incarnation of the process.
//!
//! Owns the shim's ends, on the hand: it waits where a container holds a lock (`streams` is the head's side). It reads the data only for a gate that waits for a line (`lines`): a process gets an anonymous
//! pipe, and the kernel moves the data between that pipe and containerd's fifo (`mover`), or a logging program reads
//! the pipe (`logger`). A regular file goes to the process itself.
//!
//! Why a pipe, as in containerd's runc shim, and not the fifo itself:
//! * a background process that holds the stream must not block containerd, which waits for EOF before it deletes
//!   (CONTRACT §7): with a pipe in between, the shim can end the stream ([`Stdio::drain`]);
//! * what the OCI runtime writes to stderr when it fails to create is not output of the container: moving starts after
//!   its success ([`Stdio::accept`]);
//! * the reader of a fifo that was opened and closed again has seen EOF: the next try with the same fifo would wait for
//!   a reader that has gone ([`UnusedFifos`]). If the fifo is opened late, its reader may have gone meanwhile. So the
//!   caller decides when to open it ([`Stdio::connect`]);
//! * a security module may deny a container the label of a fifo in /run; an anonymous pipe has no label of its own.
//!
//! Further rules:
//! * a restart of containerd causes neither SIGPIPE nor loss: a read end of the shim's own keeps the fifo readable, so
//!   unread bytes stay in the fifo and then in the pipe, until the writer blocks;
//! * incarnations share the pipe, so between them containerd sees no EOF (rule R6); each begins on a new line, and so do hooks and
//!   podshim's own lines (`line_end`);
//! * a program that makes its stream non-blocking must not pass that on to the next incarnation: each one gets an open
//!   file description of its own.

mod attempt;
mod carry;
mod endpoint;
mod error;
mod flow;
mod half_line;
mod kept_readable;
mod line_end;
mod lines;
mod logger;
mod movement;
mod mover;
mod paths;
mod pipe;
mod relief;
mod stand_in;
mod stream;
mod streams;
mod uri;
mod watch;

pub use attempt::{Attempt, ChildEnd, ChildStdio, HeldBack, UnusedFifos};
pub use error::{StdioError, StreamName};
pub(crate) use line_end::OpenLine;
pub(crate) use lines::Lines;
pub use lines::{LINE_LONGEST, LinePace, LineWatch, Piece};
pub(crate) use logger::Logger;
pub use logger::{LoggerError, LoggerIdentity};
pub use paths::{StdioPaths, StreamMode, StreamOwner};
pub use relief::Excess;
pub(crate) use stand_in::StandIn;
pub use streams::{ConsoleStreams, READER_LIMIT, Stdio};
