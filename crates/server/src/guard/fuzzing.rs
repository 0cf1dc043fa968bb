//! What a framer makes of a connection's bytes, however they are cut.

use super::framing::{Framer, Then};
use crate::config::Limits;

/// The messages in `pieces`, the last of them perhaps incomplete. Ends where the framer refuses to go on.
pub(crate) fn follow<'a>(pieces: impl IntoIterator<Item = &'a [u8]>, limits: &Limits) -> Vec<Vec<u8>> {
    let (mut framer, mut held) = (Framer::default(), Vec::new());
    let mut messages = vec![Vec::new()];
    for piece in pieces {
        held.extend_from_slice(piece);
        while !held.is_empty() {
            let passed = framer.advance(&held, limits);
            assert!(passed.bytes <= held.len(), "more passed than there was");
            if let Some(open) = messages.last_mut() {
                open.extend(held.drain(..passed.bytes));
            }
            match passed.then {
                Then::More => break,
                Then::End => messages.push(Vec::new()),
                Then::Refused(_) => return messages,
            }
        }
    }
    messages
}
