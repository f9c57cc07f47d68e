//! What is carried, and what is left where, at each fullness of the pipes.

use std::io::Write;

use super::*;

fn pipes() -> [(File, File); 2] {
    [nonblocking_pipe().unwrap(), nonblocking_pipe().unwrap()]
}

fn read(mut pipe: &File) -> Vec<u8> {
    let mut data = vec![0; 1 << 20];
    let length = pipe.read(&mut data).unwrap_or(0);
    data.truncate(length);
    data
}

#[test]
fn what_does_not_fit_stays_in_its_source_and_comes_once() {
    let [(source, mut from), (to, sink)] = pipes();
    let data: Vec<u8> = (0..60_000u32).flat_map(u32::to_ne_bytes).collect();
    let (mut rest, mut seen) = (&data[..], Vec::new());
    for turn in 0.. {
        if let Ok(written) = from.write(rest) {
            rest = &rest[written..];
        }
        match carry(&source, &sink, 1 + turn * 7_919, Wanted::LastByte) {
            Ok(Moved { bytes, last: Some(_) }) => assert!(bytes > 0),
            Err(nix::Error::EAGAIN) => {
                let some = read(&to);
                seen.extend(some);
            }
            other => panic!("{other:?}"),
        }
        if seen.len() == data.len() {
            break;
        }
    }
    assert_eq!(seen, data);
}

#[test]
fn the_last_byte_is_that_of_what_has_arrived() {
    let [(source, mut from), (to, sink)] = pipes();
    from.write_all(b"abc").unwrap();
    let moved = carry(&source, &sink, 2, Wanted::LastByte).unwrap();
    assert_eq!(moved, Moved { bytes: 2, last: Some(b'b') });
    assert_eq!(carry(&source, &sink, 9, Wanted::Length).unwrap(), Moved { bytes: 1, last: None });
    assert_eq!(carry(&source, &sink, 9, Wanted::Length), Err(nix::Error::EAGAIN));
    drop(from);
    assert_eq!(carry(&source, &sink, 9, Wanted::LastByte).unwrap(), Moved::default());
    assert_eq!(read(&to), b"abc");
}

/// It is empty after a sink that is gone, and after one that is full.
#[test]
fn nothing_of_one_stream_comes_in_another_one() {
    let [(source, mut from), (to, sink)] = pipes();
    from.write_all(b"lost").unwrap();
    drop(to);
    // The shim ignores SIGPIPE, as Rust's programs do.
    assert_eq!(carry(&source, &sink, 9, Wanted::Length), Err(nix::Error::EPIPE));
    let [(other_source, mut other_from), (other_to, other_sink)] = pipes();
    while other_from.write(&[b'x'; 4096]).is_ok() {}
    while carry(&other_source, &other_sink, 1 << 30, Wanted::Length).is_ok() {}
    let [(third_source, mut third_from), (third_to, third_sink)] = pipes();
    third_from.write_all(b"third").unwrap();
    carry(&third_source, &third_sink, 9, Wanted::Length).unwrap();
    assert_eq!(read(&third_to), b"third");
    assert_eq!(read(&other_to).len() % 4096, 0);
}
