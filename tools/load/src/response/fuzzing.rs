//! The body of the fuzz target and of its short form in the tests. Not in ordinary builds.

use super::{Malformed, Parser, Response, StreamEnd};

/// Parses the bytes of a connection. The first byte sets the size of the pieces, the second (its
/// lowest bit) whether the requests were HEAD.
///
/// # Panics
/// Panics when the pieces parse differently from the whole, or the parser contradicts itself.
pub fn answers(input: &[u8]) {
    let [cut, has_body, stream @ ..] = input else { return };
    let has_body = has_body & 1 == 0;
    let whole = follow([stream], has_body);
    for piece in [usize::from(*cut).max(1), 1] {
        assert_eq!(
            whole,
            follow(stream.chunks(piece), has_body),
            "the same bytes in pieces of {piece}"
        );
    }
}

/// Returns the responses in the bytes of a connection, and the meaning of its end.
pub(super) fn follow<'a>(
    pieces: impl IntoIterator<Item = &'a [u8]>,
    has_body: bool,
) -> (Vec<Response>, Result<StreamEnd, Malformed>) {
    let (mut parser, mut found) = (Parser::default(), Vec::new());
    for mut piece in pieces {
        while !piece.is_empty() {
            match parser.feed(piece, has_body) {
                Ok(fed) => {
                    assert!(
                        fed.answer.is_some() || fed.used == piece.len(),
                        "bytes are left over: {fed:?}"
                    );
                    assert!((1..=piece.len()).contains(&fed.used), "{fed:?}");
                    found.extend(fed.answer);
                    piece = &piece[fed.used..];
                }
                Err(malformed) => return (found, Err(malformed)),
            }
        }
    }
    assert!(found.iter().all(|answer| (200..1000).contains(&answer.status)), "{found:?}");
    (found, Ok(parser.end()))
}
