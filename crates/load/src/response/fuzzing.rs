//! What the fuzz target and its short form in the tests drive. Not in ordinary builds.

use super::{Answer, Ended, Malformed, Parser};

/// Takes the bytes of a connection, of which the first says into what pieces the others are cut and the second (by its
/// lowest bit) whether the requests were HEAD, and follows the answers in them.
///
/// # Panics
/// When pieces are understood differently from the whole, or the parser contradicts itself.
pub fn answers(input: &[u8]) {
    let [cut, has_body, stream @ ..] = input else { return };
    let has_body = has_body & 1 == 0;
    let whole = follow([stream], has_body);
    for piece in [usize::from(*cut).max(1), 1] {
        assert_eq!(whole, follow(stream.chunks(piece), has_body), "the same bytes in pieces of {piece}");
    }
}

/// The answers in the bytes of one connection, and what its end means.
pub(super) fn follow<'a>(
    pieces: impl IntoIterator<Item = &'a [u8]>,
    has_body: bool,
) -> (Vec<Answer>, Result<Ended, Malformed>) {
    let (mut parser, mut found) = (Parser::default(), Vec::new());
    for mut piece in pieces {
        while !piece.is_empty() {
            match parser.feed(piece, has_body) {
                Ok(fed) => {
                    assert!(fed.answer.is_some() || fed.used == piece.len(), "bytes are left over: {fed:?}");
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
