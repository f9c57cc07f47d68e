//! The list of this thread's children, dead or alive.
//!
//! Only reads it. A child that is not in it is found all the same, one by one.

use std::fs::File;
use std::io::Read;
use std::str;

use nix::unistd::Pid;

/// A part of the list that is read at a time.
const PART: usize = 4096;
/// Parts that are read at the most: some 9,000 children.
const MOST_PARTS: usize = 16;

/// Whether the next child shall be shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    Show,
    Stop,
}

/// Shows one after the other. None where the kernel has no such list (`CONFIG_PROC_CHILDREN`).
pub(super) fn of_this_thread(show: impl FnMut(Pid) -> Next) {
    if let Ok(list) = File::open("/proc/thread-self/children") {
        each_number(list, show);
    }
}

fn each_number(mut list: impl Read, mut show: impl FnMut(Pid) -> Next) {
    let mut buffer = [0; PART];
    let mut begun = 0;
    for _ in 0..MOST_PARTS {
        let Ok(length @ 1..) = list.read(&mut buffer[begun..]) else { return };
        let end = begun + length;
        // A number may go on in the next part.
        let whole = buffer[..end].iter().rposition(|byte| *byte == b' ').map_or(0, |blank| blank + 1);
        let numbers = str::from_utf8(&buffer[..whole]).unwrap_or_default().split_ascii_whitespace();
        for pid in numbers.filter_map(|number| number.parse().ok()) {
            if show(Pid::from_raw(pid)) == Next::Stop {
                return;
            }
        }
        buffer.copy_within(whole..end, 0);
        begun = end - whole;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As the kernel, which ends each number with a blank.
    #[test]
    fn numbers_are_whole_wherever_a_part_ends() {
        let text: String = (100_000..102_000).map(|number| format!("{number} ")).collect();
        let mut shown = Vec::new();
        each_number(text.as_bytes(), |pid| {
            shown.push(pid.as_raw());
            Next::Show
        });
        assert_eq!(shown, (100_000..102_000).collect::<Vec<_>>());
        shown.clear();
        each_number(text.as_bytes(), |pid| {
            shown.push(pid.as_raw());
            if shown.len() == 3 { Next::Stop } else { Next::Show }
        });
        assert_eq!(shown, [100_000, 100_001, 100_002]);
    }
}
