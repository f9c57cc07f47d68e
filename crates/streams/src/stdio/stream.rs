//! One stream: the fifo or file that containerd named, the process's end, and what moves between them.

use std::fs::File;
use std::io;
use std::sync::Arc;

use super::endpoint::{Address, Fifo, ReaderWait, StreamTarget};
use super::error::{StdioError, StreamName};
use super::kept_readable::KeptReadable;
use super::line_end::{OpenLine, end_line_of_file};
use super::movement::Movement;
use super::mover::LineEnds;
use super::paths::{StreamMode, StreamOwner};
use super::pipe::{give_to, nonblocking_pipe};
use super::relief::{Excess, Relief, Relieved};

#[derive(Debug)]
pub(super) struct Input {
    // Until it is connected.
    pub(super) fifo: Option<Fifo>,
    // None for files, which the process gets itself, and for terminals.
    pub(super) pipe: Option<Pipe>,
    // A file for the process, or a connected fifo for the console.
    pub(super) reader: Option<File>,
    // The write end of a connected fifo, until CloseIO.
    pub(super) writer: Option<File>,
}

#[derive(Debug)]
pub(super) struct Output {
    pub(super) stream: StreamName,
    // Until it is connected.
    pub(super) fifo: Option<Fifo>,
    // None before it is connected, and after the final exit.
    pub(super) writer: Option<File>,
    // Only kept open: the fifo then always has a reader.
    pub(super) keep_alive: Option<File>,
    // The same after the final exit, until the fifo has been read.
    pub(super) kept_readable: Option<KeptReadable>,
    // Whether the reader has got the beginning of a line only. Of a file, the file says that.
    pub(super) line: Arc<OpenLine>,
    // None for files and a logger's pipe, which the process gets itself, and for terminals.
    pub(super) pipe: Option<Pipe>,
    // The stderr of incarnations that were made when the pipe was already in use.
    pub(super) held_back: Vec<Movement>,
}

/// The pipe between the process and a fifo.
#[derive(Debug)]
pub(super) struct Pipe {
    // None after the final exit.
    pub(super) process_end: Option<File>,
    pub(super) movement: Movement,
    relieved: Relieved,
}

impl Pipe {
    /// From a fifo to the process.
    fn to_process(owner: StreamOwner) -> io::Result<Self> {
        let (reader, writer) = nonblocking_pipe()?;
        give_to(&reader, owner)?;
        Ok(Self::unconnected(reader, writer))
    }

    /// From the process to a fifo.
    fn from_process(owner: StreamOwner) -> io::Result<Self> {
        let (reader, writer) = nonblocking_pipe()?;
        give_to(&writer, owner)?;
        Ok(Self::unconnected(writer, reader))
    }

    fn unconnected(process_end: File, ours: File) -> Self {
        let movement = Movement::Unconnected(ours);
        Self { process_end: Some(process_end), movement, relieved: Relieved::default() }
    }

    /// For the call of the runtime that gets this pipe as its stderr.
    pub(super) fn relief(&self, excess: &Excess) -> io::Result<Option<Relief>> {
        let source = self.movement.unstarted_source();
        source.map(|source| Relief::of(source, &self.relieved, excess)).transpose()
    }
}

impl Input {
    pub(super) fn open(address: Address, mode: StreamMode, owner: StreamOwner) -> Result<Self, StdioError> {
        let (fifo, reader) = match address.open_input()? {
            StreamTarget::Fifo(fifo) => (Some(fifo), None),
            StreamTarget::File(file) => (None, Some(file)),
        };
        let pipe = match mode {
            StreamMode::Streams if fifo.is_some() => Pipe::to_process(owner).map(Some),
            StreamMode::Streams | StreamMode::Terminal => Ok(None),
        };
        let pipe = pipe.map_err(|source| StdioError::ProcessEnd { stream: StreamName::Stdin, source })?;
        Ok(Self { fifo, pipe, reader, writer: None })
    }

    pub(super) fn connect(&mut self) -> Result<(), StdioError> {
        let Some(fifo) = self.fifo.take() else { return Ok(()) };
        let (reader, writer) = fifo.open_to_read()?;
        match &mut self.pipe {
            Some(pipe) => pipe
                .movement
                .connect(LineEnds::default(), |pipe| (reader, pipe))
                .map_err(|source| StdioError::ProcessEnd { stream: StreamName::Stdin, source })?,
            None => self.reader = Some(reader),
        }
        self.writer = Some(writer);
        Ok(())
    }

    /// What the process reads.
    pub(super) fn process_end(&self) -> Option<&File> {
        match &self.pipe {
            Some(pipe) => pipe.process_end.as_ref(),
            None => self.reader.as_ref(),
        }
    }
}

impl Output {
    pub(super) fn open(
        stream: StreamName,
        address: Option<Address>,
        mode: StreamMode,
        owner: StreamOwner,
    ) -> Result<Option<Self>, StdioError> {
        let Some(address) = address else { return Ok(None) };
        let process_end = |source| StdioError::ProcessEnd { stream, source };
        let mut output = Self::new(stream);
        match (address.open_output()?, mode) {
            (StreamTarget::Fifo(fifo), StreamMode::Streams) => {
                output.fifo = Some(fifo);
                output.pipe = Some(Pipe::from_process(owner).map_err(process_end)?);
            }
            (StreamTarget::Fifo(fifo), StreamMode::Terminal) => output.fifo = Some(fifo),
            (StreamTarget::File(file), mode) => {
                if mode == StreamMode::Streams {
                    give_to(&file, owner).map_err(process_end)?;
                }
                output.writer = Some(file);
            }
        }
        Ok(Some(output))
    }

    pub(super) async fn connect(&mut self, wait: ReaderWait) -> Result<(), StdioError> {
        let Some(fifo) = self.fifo.take() else { return Ok(()) };
        let (writer, keep_alive) = fifo.open_to_write(wait).await?;
        if let Some(pipe) = &mut self.pipe {
            let lines = LineEnds {
                open: Some(self.line.clone()),
                relieved: pipe.relieved.clone(),
                ..LineEnds::default()
            };
            let sink = writer.try_clone();
            sink.and_then(|sink| pipe.movement.connect(lines, |pipe| (pipe, sink)))
                .map_err(|source| StdioError::ProcessEnd { stream: self.stream, source })?;
        }
        (self.writer, self.keep_alive) = (Some(writer), Some(keep_alive));
        Ok(())
    }

    /// A pipe that a logging program reads.
    pub(super) fn to_logger(
        stream: StreamName,
        writer: File,
        owner: StreamOwner,
    ) -> Result<Self, StdioError> {
        give_to(&writer, owner).map_err(|source| StdioError::ProcessEnd { stream, source })?;
        Ok(Self { writer: Some(writer), ..Self::new(stream) })
    }

    fn new(stream: StreamName) -> Self {
        Self {
            stream,
            fifo: None,
            writer: None,
            keep_alive: None,
            kept_readable: None,
            line: Arc::default(),
            pipe: None,
            held_back: Vec::new(),
        }
    }

    /// Another writer begins: what it writes is not to be the rest of a line (R6). Of a logging program's pipe podshim does not
    /// know where it ends; of a terminal, its console does.
    pub(super) fn begin_line(&self) {
        match (&self.pipe, &self.writer) {
            (Some(pipe), _) => pipe.movement.begin_line(),
            (None, Some(file)) => end_line_of_file(file),
            (None, None) => {}
        }
    }

    /// What the process writes to; `None` after the final exit.
    pub(super) fn process_end(&self) -> Option<&File> {
        match &self.pipe {
            Some(pipe) => pipe.process_end.as_ref(),
            None => self.writer.as_ref(),
        }
    }
}
