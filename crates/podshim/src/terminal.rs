//! The reader of the output: how wide its terminal is, whether it gets colours, whether it still reads. Owns the rule
//! for each; `output` and the commands own what is written.

use std::io::{IsTerminal, stdout};
use std::sync::OnceLock;
use std::thread;

use clap::ValueEnum;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::termios::tcgetwinsize;

/// The least width to write for: a narrower table is not worth reading.
const LEAST: usize = 80;
/// The greatest width to write for: in longer lines a reader loses track.
const MOST: usize = 200;
/// The width of a picture where there is no terminal.
const USUAL: usize = 100;

/// When there are colours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum ColourChoice {
    /// On a terminal, unless <https://no-color.org> says no.
    #[default]
    Auto,
    /// Also in a file or a pipe.
    Always,
    /// Not even on a terminal.
    Never,
}

static COLOURS: OnceLock<ColourChoice> = OnceLock::new();

impl ColourChoice {
    /// Makes this the choice of the whole process; only the first call counts.
    pub fn choose(self) {
        let _ = COLOURS.set(self);
    }

    /// Whether a stream gets colours.
    pub fn is_for(stream: &impl IsTerminal) -> bool {
        match COLOURS.get().copied().unwrap_or_default() {
            Self::Always => true,
            Self::Never => false,
            Self::Auto => {
                let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
                stream.is_terminal() && !refused
            }
        }
    }
}

/// The columns of standard output, 80 to 200: from COLUMNS, else from the terminal. `None`: it is not a terminal, and
/// nothing needs to be cut.
pub fn columns() -> Option<usize> {
    let from_variable =
        std::env::var("COLUMNS").ok().and_then(|text| text.parse().ok()).filter(|columns| *columns > 0);
    let of_terminal =
        || tcgetwinsize(stdout()).ok().map(|size| usize::from(size.ws_col)).filter(|columns| *columns > 0);
    from_variable.or_else(of_terminal).map(|columns| columns.clamp(LEAST, MOST))
}

/// The same for a picture, which needs some width.
pub fn columns_of_picture() -> usize {
    columns().unwrap_or(USUAL)
}

/// Ends the process, with exit code 0, when its output has lost its reader. For a command that may wait long before it
/// writes again: `podshim watch POD | head -1` would hang until the next event.
pub fn end_with_reader() {
    thread::spawn(|| {
        let out = stdout();
        // The kernel reports an error or a hang-up without being asked for one.
        let mut fds = [PollFd::new(&out, PollFlags::empty())];
        while let Ok(_) | Err(rustix::io::Errno::INTR) = poll(&mut fds, None) {
            if fds[0].revents().intersects(PollFlags::ERR | PollFlags::HUP | PollFlags::NVAL) {
                std::process::exit(0);
            }
        }
    });
}
