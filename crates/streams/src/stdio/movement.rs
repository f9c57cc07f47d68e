//! The movement of one stream, from the preparation of its ends to its end, and the task in which it moves (`mover`).

use std::fs::File;
use std::io;
use std::rc::{Rc, Weak};

use threads::busy;
use threads::hand::tenant;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};
use tracing::{debug, warn};

use super::error::StreamName;
use super::lines::LineWatch;
use super::mover::{LineEnds, Mover};

/// The movement of one stream, from its preparation to its end.
#[derive(Debug)]
pub(super) enum Movement {
    /// The shim's end of the process's pipe; the fifo is not open yet.
    Unconnected(File),
    /// Both ends are open, and the data stays where it is.
    Prepared(Rc<Mover>),
    /// The task is running, or has seen the end of the stream.
    Started(Task),
    /// Both ends are closed.
    Over,
}

impl Movement {
    /// Takes the read end `source` and the write end `sink`; both must be pipes or fifos.
    pub(super) fn prepare(source: File, sink: File, lines: LineEnds) -> io::Result<Self> {
        Ok(Self::Prepared(Rc::new(Mover::new(source, sink, lines)?)))
    }

    /// Gives an unconnected movement its fifo: `ends` returns source and sink, one of which is the pipe's end.
    pub(super) fn connect(
        &mut self,
        lines: LineEnds,
        ends: impl FnOnce(File) -> (File, File),
    ) -> io::Result<()> {
        match std::mem::replace(self, Self::Over) {
            Self::Unconnected(pipe) => {
                let (source, sink) = ends(pipe);
                *self = Self::prepare(source, sink, lines)?;
            }
            other => *self = other,
        }
        Ok(())
    }

    /// Its end of the process's pipe, until it has been started.
    pub(super) fn unstarted_source(&self) -> Option<&File> {
        match self {
            Self::Unconnected(pipe) => Some(pipe),
            Self::Prepared(mover) => Some(mover.source()),
            Self::Started(_) | Self::Over => None,
        }
    }

    /// What is written to the pipe from now on begins on a new line. Before the start nothing is in the pipe.
    pub(super) fn begin_line(&self) {
        if let Self::Started(task) = self
            && let Some(mover) = task.mover.upgrade()
        {
            mover.begin_line();
        }
    }

    /// For a movement into the pipe that this one moves on.
    pub(super) fn started_mover(&self) -> Weak<Mover> {
        match self {
            Self::Started(task) => task.mover.clone(),
            Self::Unconnected(_) | Self::Prepared(_) | Self::Over => Weak::new(),
        }
    }

    /// Starts moving on the current `LocalSet`, once.
    pub(super) fn start(&mut self, stream: StreamName) {
        *self = match std::mem::replace(self, Self::Over) {
            Self::Prepared(mover) => Self::Started(Task::spawn(mover, stream)),
            other => other,
        };
    }

    /// Shows `watch` the lines that come from now on, instead of an earlier watch.
    pub(super) fn watch(&self, watch: &LineWatch) -> io::Result<()> {
        match self {
            Self::Prepared(mover) => mover.watch(watch),
            Self::Started(task) => task.mover.upgrade().map_or(Ok(()), |mover| mover.watch(watch)),
            // No data comes through yet, or any more.
            Self::Unconnected(_) | Self::Over => Ok(()),
        }
    }

    pub(super) fn has_started(&self) -> bool {
        !matches!(self, Self::Unconnected(_) | Self::Prepared(_))
    }

    /// Whether the end of the stream has been moved, or the movement was cut.
    pub(super) fn is_over(&self) -> bool {
        match self {
            Self::Unconnected(_) | Self::Prepared(_) => false,
            Self::Started(task) => task.handle.is_finished(),
            Self::Over => true,
        }
    }

    /// Closes both ends of a movement that never started: it has no task that would see the end of the stream.
    pub(super) fn give_up_unstarted(&mut self) {
        if let Self::Unconnected(_) | Self::Prepared(_) = self {
            *self = Self::Over;
        }
    }

    /// Waits for the end of the stream until `deadline`, then cuts it. Both ends are closed afterwards.
    pub(super) async fn end_by(&mut self, deadline: Instant) {
        if let Self::Started(task) = self {
            task.end_by(deadline).await;
        }
        *self = Self::Over;
    }
}

/// The task of a [`Mover`]; dropping this ends it.
#[derive(Debug)]
pub(super) struct Task {
    handle: JoinHandle<()>,
    // Weak: the mover must close its ends when the task has seen the end of the stream.
    mover: Weak<Mover>,
}

impl Task {
    fn spawn(mover: Rc<Mover>, stream: StreamName) -> Self {
        let weak = Rc::downgrade(&mover);
        let handle = tenant::spawn(async move {
            if let Err(error) = busy::named("a container's output", mover.run()).await {
                warn!(%stream, %error, "cannot move the stream any further: it is cut here, and later data is lost");
            }
        });
        Self { handle, mover: weak }
    }

    /// The stream is its own hand's, which reports what is wrong with it.
    pub(super) fn standing_in(mover: Rc<Mover>) -> Self {
        let (weak, tenant) = (Rc::downgrade(&mover), mover.tenant());
        let handle = tenant::spawn_for(tenant, async move {
            let ended = mover.run().await;
            debug!(?ended, "the end of a stream of another thread");
        });
        Self { handle, mover: weak }
    }

    async fn end_by(&mut self, deadline: Instant) {
        if timeout_at(deadline, &mut self.handle).await.is_ok() {
            return;
        }
        if let Some(mover) = self.mover.upgrade() {
            mover.cut();
        }
        self.handle.abort();
        // The ends are closed when the aborted task has been dropped, not before.
        let _ = (&mut self.handle).await;
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        self.handle.abort();
    }
}
