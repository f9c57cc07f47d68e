//! Bad input by the thousand: known inputs, mixed and damaged at random, for everything that reads what a pod's author
//! or its programs wrote. The same seed gives the same inputs.
//!
//! Owns the damage, and the known inputs in `fuzz/`. The caller checks what must hold for an input; no reader may panic
//! on any. No coverage guides it: the known inputs must reach every corner. The targets of `fuzz/` run the same readers
//! with coverage, and what they reach is kept among these inputs. Only for tests; an environment variable sets how many
//! inputs there are (`hack/fuzz`). It knows no other crate, so that a change in one compiles little before its tests.

#![forbid(unsafe_code)]

mod rng;

use std::fs;
use std::path::Path;

pub use rng::Rng;

/// How many inputs are tried unless [`RUNS`] sets it: a second or so.
const DEFAULT_RUNS: u64 = 20_000;
/// The environment variable that sets how many inputs are tried (`hack/fuzz`).
pub const RUNS: &str = "PODSHIM_FUZZ_RUNS";
/// Most damages of one input.
const MOST_DAMAGES: usize = 8;
/// An input grows to at most this many bytes, unless a known one is longer.
const LONGEST: usize = 4096;

/// Passes inputs to `check` that are made of the [`known`] ones of a target.
///
/// # Panics
/// When `check` panics; its input is printed then.
pub fn fuzz(target: &str, check: impl Fn(&[u8])) {
    let known = inputs(target);
    fuzz_known(&known.iter().map(|(_, input)| input.as_slice()).collect::<Vec<_>>(), check);
}

/// The inputs of a target that were written by hand (`fuzz/known`), with their names.
///
/// # Panics
/// If the target has none.
pub fn known(target: &str) -> Vec<(String, Vec<u8>)> {
    read(&["known"], target)
}

/// The known inputs and those that coverage has found (`fuzz/corpus`).
fn inputs(target: &str) -> Vec<(String, Vec<u8>)> {
    read(&["known", "corpus"], target)
}

fn read(places: &[&str], target: &str) -> Vec<(String, Vec<u8>)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz");
    let directories = places.iter().filter_map(|place| fs::read_dir(root.join(place).join(target)).ok());
    let files = directories.flatten().flatten().map(|entry| entry.path());
    let name = |path: &Path| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let mut inputs: Vec<_> =
        files.filter_map(|path| fs::read(&path).ok().map(|input| (name(&path), input))).collect();
    // The same order in each run, whatever the file system's order.
    inputs.sort();
    assert!(!inputs.is_empty(), "no known inputs of {target}: nothing would be reached");
    inputs
}

fn fuzz_known(known: &[&[u8]], check: impl Fn(&[u8])) {
    let runs = std::env::var(RUNS).ok().and_then(|runs| runs.parse().ok()).unwrap_or(DEFAULT_RUNS);
    for input in known {
        report_if_it_panics(input, &check);
    }
    for seed in 0..runs {
        report_if_it_panics(&damaged(&mut Rng::new(seed), known), &check);
    }
}

fn report_if_it_panics(input: &[u8], check: impl Fn(&[u8])) {
    struct InputReport<'a>(&'a [u8]);
    impl Drop for InputReport<'_> {
        fn drop(&mut self) {
            if std::thread::panicking() {
                eprintln!("the input was b\"{}\"", self.0.escape_ascii());
            }
        }
    }
    let report = InputReport(input);
    check(report.0);
}

fn damaged(random: &mut Rng, known: &[&[u8]]) -> Vec<u8> {
    let mut input = random.pick::<&[u8]>(known).to_vec();
    for _ in 0..=random.below(MOST_DAMAGES) {
        damage(random, &mut input, known);
    }
    input
}

fn damage(random: &mut Rng, input: &mut Vec<u8>, known: &[&[u8]]) {
    const NUMBERS: [&str; 8] =
        ["0", "-1", "255", "65536", "4294967296", "18446744073709551616", "1e999", "0.1"];
    const BYTES: &[u8] = b"\0\n\r\t \"'\\{}[](),;:=+*.-/|%@#x0\x7f\x80\xc3\xff";
    let (start, end) = range(random, input.len());
    match random.below(8) {
        0 => drop(input.drain(start..end)),
        1 => input.insert(start, *random.pick(BYTES)),
        2 if start < input.len() => input[start] ^= 1 << random.below(8),
        3 => input.truncate(start),
        // A piece of the input itself, many times: depth and length.
        4 if input.len() < LONGEST => {
            let piece = input[start..end].repeat(1 + random.below(40));
            input.splice(start..start, piece.into_iter().take(LONGEST));
        }
        // A piece of another input.
        5 => {
            let other = *random.pick::<&[u8]>(known);
            let (from, to) = range(random, other.len());
            input.splice(start..end, other[from..to].iter().copied());
        }
        6 => drop(input.splice(start..end, random.pick(&NUMBERS).bytes())),
        _ => drop(
            input.splice(start..end, (0..random.below(6)).map(|_| *random.pick(BYTES)).collect::<Vec<_>>()),
        ),
    }
}

fn range(random: &mut Rng, length: usize) -> (usize, usize) {
    let (one, other) = (random.below(length + 1), random.below(length + 1));
    (one.min(other), one.max(other))
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// The damage does find a fault: a reader that fails at one wrong byte in the right place.
    #[test]
    fn a_fault_in_the_middle_of_an_input_is_reached() {
        let (found, seen) = (Cell::new(false), Cell::new(0));
        fuzz_known(&[b"key: value", b"other=1"], |input| {
            seen.set(seen.get() + 1);
            found.set(found.get() || (input.starts_with(b"key") && input.contains(&b'"')));
        });
        assert!(found.get() && seen.get() > 1000, "{}", seen.get());
    }

    #[test]
    fn the_same_seed_damages_the_same() {
        let known: [&[u8]; 2] = [b"{\"a\": [1, 2]}", b"plain"];
        for seed in 0..100 {
            assert_eq!(damaged(&mut Rng::new(seed), &known), damaged(&mut Rng::new(seed), &known));
        }
    }
}
