//! The orders as they are in this process's memory, and the notes.
//!
//! Owns the reading of what the shim has written: its texts stay where they are, and are named by pointers. Never trusts a length
//! beyond the file's.

use super::calls::abi::{LSEEK, MMAP, WRITE};
use super::calls::call;
use super::form::{NOTE, NUMBERS, Number, Step, TEXTS, Text};
use super::kernel::{EINVAL, Failure, Line, MAP_PRIVATE, PROT_READ_WRITE, close, map};

const SEEK_END: usize = 2;

/// The orders, in this process's memory.
pub(super) struct Orders {
    pub(super) numbers: *mut u64,
    /// The texts, one pointer for each, and an empty one at the end of the arguments and of the variables.
    lines: *mut Line,
}

impl Orders {
    pub(super) fn read(file: usize) -> Result<Self, Failure> {
        let failed = |answer| Failure(Step::ReadOrders, answer);
        // SAFETY: the memory is this process's own from now on; the shim, which alone has the file, writes nothing more into it.
        let (bytes, length) = unsafe {
            let length = call(LSEEK, [file, 0, SEEK_END]);
            if length < (8 * NUMBERS) as isize {
                return Err(failed(EINVAL));
            }
            let bytes = call(MMAP, [0, length as usize, PROT_READ_WRITE, MAP_PRIVATE, file, 0]);
            (bytes, length as usize)
        };
        if (-4095..0).contains(&bytes) {
            return Err(failed(bytes));
        }
        close(file);
        let numbers = bytes as *mut u64;
        let orders = Self { numbers, lines: core::ptr::null_mut() };
        let numbers_count = NUMBERS + orders.length(Number::Groups) + 3 * orders.length(Number::Limits);
        let (arguments, variables) = (orders.length(Number::Arguments), orders.length(Number::Variables));
        let before = TEXTS + orders.length(Number::Files);
        // Empty pointers behind either list, and a place for one more variable.
        let lines = map((before + arguments + variables + 3) * size_of::<Line>()).ok_or(failed(EINVAL))?;
        let orders = Self { lines: lines.cast(), ..orders };
        let mut text = (bytes as usize + 8 * numbers_count) as *const u8;
        let end = (bytes as usize + length) as *const u8;
        for place in 0..before + arguments + variables {
            let place = if place < before + arguments { place } else { place + 1 };
            // SAFETY: the place is within the map, and the text within the orders.
            unsafe {
                orders.lines.add(place).write(Line(text));
                while text < end && *text != 0 {
                    text = text.add(1);
                }
                if text >= end {
                    return Err(failed(EINVAL));
                }
                text = text.add(1);
            }
        }
        Ok(orders)
    }

    pub(super) fn at(&self, place: usize) -> u64 {
        // SAFETY: the shim has written as many numbers as it says.
        unsafe { *self.numbers.add(place) }
    }

    pub(super) fn number(&self, number: Number) -> u64 {
        self.at(number as usize)
    }

    pub(super) fn length(&self, list: Number) -> usize {
        self.number(list) as usize
    }

    pub(super) fn line(&self, place: usize) -> Line {
        // SAFETY: within the map.
        unsafe { *self.lines.add(place) }
    }

    pub(super) fn text(&self, text: Text) -> Line {
        self.line(text as usize)
    }

    pub(super) fn file(&self, file: usize) -> Line {
        self.line(TEXTS + file)
    }

    pub(super) fn arguments(&self) -> *const Line {
        // SAFETY: within the map.
        unsafe { self.lines.add(TEXTS + self.length(Number::Files)) }
    }

    pub(super) fn variables(&self) -> *const Line {
        // SAFETY: within the map; the empty pointer of the arguments comes before.
        unsafe { self.arguments().add(self.length(Number::Arguments) + 1) }
    }

    pub(super) fn variable(&self, variable: usize) -> Line {
        // SAFETY: within the list.
        unsafe { *self.variables().add(variable) }
    }

    /// In its place, or in the one place behind the last.
    pub(super) fn set_variable(&self, place: usize, line: Line) {
        // SAFETY: there is a place for one more, and an empty pointer behind it.
        unsafe { self.variables().cast_mut().add(place).write(line) };
    }

    pub(super) fn note(&self, kind: u32, number: isize) {
        let mut note = [0_u8; NOTE];
        note[..4].copy_from_slice(&kind.to_ne_bytes());
        note[4..].copy_from_slice(&(number as i32).to_ne_bytes());
        // SAFETY: the kernel reads the note.
        unsafe { call(WRITE, [self.number(Number::Notes) as usize, note.as_ptr().addr(), note.len()]) };
    }
}
