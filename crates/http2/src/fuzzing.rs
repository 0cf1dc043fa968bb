//! Entry point of the fuzz target: the bytes of a client. Not in ordinary builds.

use crate::connection::{Connection, Event, Scratch};
use crate::error::{ConnectionError, ErrorCode};
use crate::{Limits, PREFACE, STREAMS_MAX, frame};

const LIMITS: Limits = Limits { head_bytes: 512 };
/// Bytes that a server of one of these runs may hold and write per byte that it receives.
const OUTPUT_FACTOR: usize = 4;

/// Follows the frames of a connection behind its preface. The first byte decides how the others are
/// cut into pieces.
///
/// # Panics
/// If pieces are understood differently from the whole, or a bound is exceeded.
pub fn frames(input: &[u8]) {
    let Some((cut, stream)) = input.split_first() else { return };
    let whole = follow([stream]);
    let pieces = follow(stream.chunks(usize::from(*cut).max(1)));
    assert_eq!(whole, pieces, "the same bytes in pieces of {cut}");
    let bytes = whole.output.len();
    assert!(bytes <= 200 + OUTPUT_FACTOR * input.len(), "{bytes} bytes of output");
}

/// What has happened on a connection.
#[derive(Debug, PartialEq, Eq)]
struct Followed {
    events: Vec<(Event, Vec<u8>)>,
    output: Vec<u8>,
    error: Option<ConnectionError>,
}

fn follow<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Followed {
    let (mut out, mut held, mut scratch) = (Vec::new(), Vec::new(), Scratch::default());
    let mut connection = Connection::new(0, LIMITS, &mut out);
    let mut followed = Followed { events: Vec::new(), output: Vec::new(), error: None };
    held.extend_from_slice(PREFACE);
    frame::put_settings(&mut held, &[]);
    for piece in [&[][..]].into_iter().chain(pieces) {
        held.extend_from_slice(piece);
        loop {
            match connection.receive(&held, 0, LIMITS, &mut scratch, &mut out) {
                Ok(None) => break,
                Ok(Some(received)) => {
                    let bytes = act(&mut connection, received.event, &held, &scratch, &mut out);
                    followed.events.push((received.event, bytes));
                    held.drain(..received.bytes);
                }
                Err(error) => {
                    followed.output = out;
                    followed.error = Some(error);
                    return followed;
                }
            }
        }
    }
    followed.output = out;
    followed
}

/// Does what a server may do. Every third stream is answered at once.
fn act(
    connection: &mut Connection,
    event: Event,
    bytes: &[u8],
    scratch: &Scratch,
    out: &mut Vec<u8>,
) -> Vec<u8> {
    match event {
        Event::Request(start) if start.stream % 3 == 0 => {
            if start.has_content {
                connection.reset_at_once(start.stream, ErrorCode::NoError, out);
            }
            scratch.head.text().to_vec()
        }
        Event::Request(start) => {
            let announced = scratch.head.content_length();
            let slot = connection.open(start.stream, announced, start.has_content);
            assert!(connection.open_streams() <= STREAMS_MAX);
            let sendable = connection.sendable(slot);
            connection.sent(slot, sendable.min(100));
            if !start.has_content {
                connection.close(slot);
            }
            scratch.head.text().to_vec()
        }
        Event::Content { slot, from, to, is_last } => {
            connection.read(slot, to - from, out);
            if is_last {
                connection.close(slot);
            }
            bytes[from..to].to_vec()
        }
        Event::ContentEnd(slot) => {
            connection.close(slot);
            Vec::new()
        }
        Event::None | Event::Closed(_) | Event::Room | Event::ClientLeaves => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use hotrow_testkit::mutate;

    #[test]
    fn frames_survive_mutations() {
        let pieces: [&[u8]; 12] = [
            b"\0\0\x08\x06\0\0\0\0\0pingping",
            b"\0\0\x06\x04\0\0\0\0\0\0\x04\x7f\xff\xff\xff",
            b"\0\0\x06\x04\0\0\0\0\0\0\x01\0\0\0\0",
            b"\0\0\x04\x08\0\0\0\0\x01\x7f\xff\xff\xff",
            b"\0\0\x04\x03\0\0\0\0\x01\0\0\0\x08",
            b"\0\0\x03\x00\x01\0\0\0\x01abc",
            b"\0\0\x04\x01\x04\0\0\0\x05\x82\x86\x84\x81",
            b"\0\0\x03\x01\0\0\0\0\x07\x83\x86\x84",
            b"\0\0\x01\x09\x04\0\0\0\x07\x82",
            b"\x40\x01a\x7f\xa1\x1e",
            b"\x3f\xe1\x1f",
            b"\xbe",
        ];
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/http2_frames");
        mutate::run(folder, 200_000, &pieces, super::frames);
    }
}
