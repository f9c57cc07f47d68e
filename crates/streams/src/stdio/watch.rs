//! What the addresses say of the output: whether it can be watched, and whether a program reads it; and the watch on both outputs.

use std::io;

use super::endpoint::{Address, Addresses, OutputAddresses};
use super::error::StdioError;
use super::lines::LineWatch;
use super::logger::Logger;
use super::paths::{StdioPaths, StreamMode};
use super::streams::Stdio;

impl StdioPaths {
    /// The logging program that the addresses name, if they name one.
    pub(crate) fn logger(&self) -> Result<Option<Logger>, StdioError> {
        Ok(match Addresses::parse(self)?.output {
            OutputAddresses::Logger(command) => Some(Logger::new(command)),
            OutputAddresses::Apart { .. } => None,
        })
    }

    /// Whether a second set of streams may be opened with these paths beside a first one: it starts no logging program twice, and
    /// no two readers share an input.
    pub fn can_be_opened_twice(&self) -> bool {
        self.stdin.is_empty() && self.logger().is_ok_and(|logger| logger.is_none())
    }

    /// Whether output will pass through the shim, where its lines can be read. A terminal's output does, through its
    /// console. A file belongs to the process, a logging program reads the process's pipe, and without a stream there
    /// is no output.
    pub fn pass_output(&self) -> bool {
        match Addresses::parse(self).map(|addresses| addresses.output) {
            _ if self.mode == StreamMode::Terminal => true,
            Ok(OutputAddresses::Apart { stdout, stderr }) => {
                [stdout, stderr].iter().flatten().any(|address| matches!(address, Address::Fifo { .. }))
            }
            Ok(OutputAddresses::Logger(_)) => false,
            // Opening them reports what is wrong.
            Err(_) => true,
        }
    }
}

impl Stdio {
    /// Shows the lines of stdout and stderr that are written from now on to a watch of each, until it wants no more.
    /// They replace earlier watches. The [`Console`](crate::console::Console) shows the lines of a terminal.
    ///
    /// # Errors
    /// No descriptors are left.
    pub fn watch_lines(&self, watch: impl Fn() -> LineWatch) -> io::Result<()> {
        [&self.stdout, &self.stderr]
            .into_iter()
            .flatten()
            .filter_map(|output| output.pipe.as_ref())
            .try_for_each(|pipe| pipe.movement.watch(&watch()))
    }
}
