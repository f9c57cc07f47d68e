//! Who reads: how wide a terminal is, whether it is to have colours, whether it is still there. Owns the rule for
//! each; what is written is `output`'s and the commands'.

use std::io::{IsTerminal, stdout};
use std::sync::OnceLock;
use std::thread;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::termios::tcgetwinsize;

/// What fits in less is not worth reading.
const LEAST: usize = 80;
/// A reader loses the line beyond this.
const MOST: usize = 200;
/// Of what must have a width where there is no terminal.
const USUAL: usize = 100;

/// When there are colours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ColourChoice {
    /// On a terminal, unless <https://no-color.org> says no.
    #[default]
    Auto,
    /// In a file or a pipe as well.
    Always,
    /// Nowhere.
    Never,
}

static COLOURS: OnceLock<ColourChoice> = OnceLock::new();

impl ColourChoice {
    /// `auto`, `always`, `never`.
    pub fn parse(word: &str) -> Option<Self> {
        match word {
            "auto" => Some(Self::Auto),
            "always" => Some(Self::Always),
            "never" => Some(Self::Never),
            _ => None,
        }
    }

    /// Makes this the choice of the whole process; the first one counts.
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

/// The columns that standard output has, 80 to 200 of them: what COLUMNS says, else the terminal's. `None`: it is no
/// terminal, and nothing needs to be cut.
pub fn columns() -> Option<usize> {
    let said =
        std::env::var("COLUMNS").ok().and_then(|text| text.parse().ok()).filter(|columns| *columns > 0);
    let own =
        || tcgetwinsize(stdout()).ok().map(|size| usize::from(size.ws_col)).filter(|columns| *columns > 0);
    said.or_else(own).map(|columns| columns.clamp(LEAST, MOST))
}

/// The same for what has to have some width.
pub fn columns_of_picture() -> usize {
    columns().unwrap_or(USUAL)
}

/// Ends the process, successfully, when its output has lost its reader. For one that may wait for long before it
/// writes again: `podshim watch POD | head -1` would hang until something happens.
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
