//! What a Create or Exec request says of the streams.

/// Whether the process has a terminal or plain streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum StreamMode {
    /// stdin, stdout and stderr are streams of their own.
    #[default]
    Streams,
    /// A pty: stdin and stdout belong to the [`Console`](crate::console::Console), stderr is unused.
    Terminal,
}

/// The user and group that own the process's ends (options `IoUid` and `IoGid` of containerd).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StreamOwner {
    /// User id, if it is to be changed.
    pub user: Option<u32>,
    /// Group id, if it is to be changed.
    pub group: Option<u32>,
}

/// The strings of a Create or Exec request (CONTRACT §7); empty means none.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StdioPaths {
    /// Standard input: a fifo.
    pub stdin: String,
    /// Standard output: a fifo path, `fifo://`, `file://`, `binary://` or `binary-v2://`.
    pub stdout: String,
    /// Standard error: a fifo path, `fifo://` or `file://`. If stdout is a file or a program, stderr goes there too.
    pub stderr: String,
    /// Terminal or streams.
    pub mode: StreamMode,
}
