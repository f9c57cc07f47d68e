//! A call's answer, whole and in pieces, with what servers send beside it, and what is no answer.

use super::*;
use proptest::prelude::*;

const LONGEST: usize = 4096;

fn framed(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
    frame::encode(kind, flags, frame::STREAM, payload)
}

fn settings() -> Vec<u8> {
    frame::encode(frame::SETTINGS, 0, 0, &[0, 3, 0, 0, 0, 100])
}

fn prefixed(content: &[u8]) -> Vec<u8> {
    [&[0][..], &(content.len() as u32).to_be_bytes(), content].concat()
}

/// An answer as grpc-go gives it, but in frames of a few bytes, one of them padded, with others between them.
fn answer(content: &[u8]) -> Vec<u8> {
    let mut bytes = [
        settings(),
        frame::encode(frame::SETTINGS, frame::ACK, 0, &[]),
        frame::encode(frame::PING, 0, 0, &[7; 8]),
        frame::encode(frame::WINDOW_UPDATE, 0, 0, &[0, 0, 0, 5]),
        framed(frame::HEADERS, frame::END_HEADERS, &[0x88]),
    ]
    .concat();
    let message = prefixed(content);
    let (first, rest) = message.split_at(3);
    bytes.extend(framed(frame::DATA, 8, &[&[2][..], first, &[0, 0]].concat()));
    rest.chunks(50).for_each(|part| bytes.extend(framed(frame::DATA, 0, part)));
    bytes.extend(framed(frame::HEADERS, frame::END_HEADERS | frame::END_STREAM, &[0x88]));
    bytes
}

fn call() -> Call {
    Call::new("/a.B/C", "localhost", &[8, 1], LONGEST)
}

/// What comes of these bytes, when they arrive in pieces of that length.
fn received(bytes: &[u8], piece: usize) -> Result<Option<Vec<u8>>, CallError> {
    let mut call = call();
    for piece in bytes.chunks(piece) {
        if let Some(message) = call.receive(piece)?.message {
            return Ok(Some(message));
        }
    }
    Ok(None)
}

#[test]
fn a_request_is_a_preface_and_four_frames() {
    let request = call().request();
    let frames = request.strip_prefix(PREFACE).expect("a preface");
    let mut decoder = Frames::default();
    decoder.add(frames);
    let frames: Vec<_> = std::iter::from_fn(|| decoder.next_frame().expect("frames")).collect();
    let kinds: Vec<_> = frames.iter().map(|frame| (frame.kind, frame.flags)).collect();
    let headers = (frame::HEADERS, frame::END_HEADERS);
    assert_eq!(
        kinds,
        [(frame::SETTINGS, 0), (frame::WINDOW_UPDATE, 0), headers, (frame::DATA, frame::END_STREAM)]
    );
    assert_eq!(
        frames[2].payload,
        [
            b"\x83\x86\x04\x06/a.B/C\x01\x09localhost".as_slice(),
            b"\x0f\x10\x10application/grpc\x0f\x2b\x07podshim\0\x02te\x08trailers"
        ]
        .concat()
    );
    assert_eq!(frames[3].payload, prefixed(&[8, 1]));
}

#[test]
fn an_answer_is_whole_when_the_stream_ends() {
    let content: Vec<u8> = (0..200).collect();
    let whole = answer(&content);
    for piece in [1, 7, 64, whole.len()] {
        assert_eq!(received(&whole, piece), Ok(Some(content.clone())), "pieces of {piece}");
    }
    assert_eq!(received(&whole[..whole.len() - 1], 64), Ok(None));
    let at_once = [settings(), framed(frame::DATA, frame::END_STREAM, &prefixed(b"x"))].concat();
    assert_eq!(received(&at_once, 64), Ok(Some(b"x".to_vec())));
}

#[test]
fn settings_and_pings_are_acknowledged() {
    let mut call = call();
    let ping = frame::encode(frame::PING, 0, 0, b"12345678");
    let bytes = [settings(), ping, frame::encode(frame::PING, frame::ACK, 0, &[0; 8])].concat();
    let reply = call.receive(&bytes).unwrap().reply;
    let acknowledged = [
        frame::encode(frame::SETTINGS, frame::ACK, 0, &[]),
        frame::encode(frame::PING, frame::ACK, 0, b"12345678"),
    ];
    assert_eq!(reply, acknowledged.concat());
}

#[test]
fn a_call_that_fails_has_no_message() {
    let ended = framed(frame::HEADERS, frame::END_HEADERS | frame::END_STREAM, &[0x88]);
    for refusal in [ended, frame::encode(frame::GOAWAY, 0, 0, &[0; 8]), framed(frame::RST_STREAM, 0, &[0; 4])]
    {
        assert_eq!(received(&[settings(), refusal].concat(), 64), Err(CallError::Refused));
    }
    for (data, flags, wrong) in [
        (&b"\x01\0\0\0\x01a"[..], 0, CallError::Malformed("not one whole message")),
        (b"\0\0\0\0\x02a", 0, CallError::Malformed("not one whole message")),
        (b"\x05ab", 8, CallError::Malformed("padding")),
    ] {
        let data = framed(frame::DATA, flags | frame::END_STREAM, data);
        assert_eq!(received(&[settings(), data].concat(), 64), Err(wrong));
    }
}

#[test]
fn other_servers_do_not_speak_grpc() {
    for other in
        [&b"HTTP/1.1 400 Bad Request\r\n"[..], b"SSH-2.0-OpenSSH_9.2\r\n", &framed(frame::DATA, 0, b"x")]
    {
        assert_eq!(received(other, 5), Err(CallError::NotGrpc), "{}", other.escape_ascii());
    }
    let too_long = [settings(), vec![0, 0x40, 1, 0, 0, 0, 0, 0, 1]].concat();
    assert_eq!(received(&too_long, 64), Err(CallError::Malformed("a frame that is too long")));
}

#[test]
fn an_endless_answer_ends() {
    let chatter = frame::encode(frame::PING, frame::ACK, 0, &[0; 8]).repeat(10_000);
    assert_eq!(received(&[settings(), chatter].concat(), 1000), Err(CallError::TooLong));
    let endless = framed(frame::DATA, 0, &[0; LONGEST]).repeat(2);
    assert_eq!(received(&[settings(), endless].concat(), 1000), Err(CallError::TooLong));
}

#[test]
fn what_may_come_is_bounded_to_the_byte() {
    let end = framed(frame::HEADERS, frame::END_HEADERS | frame::END_STREAM, &[0x88]);
    for (length, expected) in [(LONGEST, true), (LONGEST + 1, false)] {
        let content = vec![1; length - prefixed(&[]).len()];
        let data = framed(frame::DATA, 0, &prefixed(&content));
        let expected = if expected { Ok(Some(content)) } else { Err(CallError::TooLong) };
        assert_eq!(received(&[settings(), data, end.clone()].concat(), 64), expected);
    }
    let longest_frame = framed(frame::HEADERS, frame::END_HEADERS, &[0; 16_384]);
    assert_eq!(received(&[settings(), longest_frame].concat(), 64), Ok(None));
    // Frames of no kind that means anything, and the beginning of another one.
    let most = [settings(), framed(9, 0, &[0; 91]).repeat(1000)].concat();
    let most = &most[..LONGEST + (64 << 10)];
    assert_eq!(received(most, most.len()), Ok(None));
    assert_eq!(received(&[most, &[0]].concat(), most.len() + 1), Err(CallError::TooLong));
}

proptest! {
    /// Bytes of any kind, and answers with one byte changed, do no more harm than an error.
    #[test]
    fn anything_may_arrive(bytes in prop::collection::vec(any::<u8>(), 0..300), at in 0..400_usize, to in any::<u8>()) {
        let _ = received(&bytes, 13);
        let _ = received(&[settings(), bytes].concat(), 13);
        let mut changed = answer(&[1; 200]);
        let length = changed.len();
        changed[at % length] = to;
        let _ = received(&changed, 13);
    }
}
