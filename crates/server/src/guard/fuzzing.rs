//! Output of a framer for a connection's bytes in any pieces.

use super::framing::{Framer, MessageState};
use crate::config::Limits;

/// Returns the messages in `pieces`; the last may be incomplete. Ends where the framer refuses.
pub(crate) fn follow<'a>(
    pieces: impl IntoIterator<Item = &'a [u8]>,
    limits: &Limits,
) -> Vec<Vec<u8>> {
    let mut framer = Framer::default();
    let mut held = Vec::new();
    let mut messages = vec![Vec::new()];
    for piece in pieces {
        held.extend_from_slice(piece);
        while !held.is_empty() {
            let passed = framer.advance(&held, limits);
            assert!(passed.bytes <= held.len(), "more passed than there was");
            if let Some(open) = messages.last_mut() {
                open.extend(held.drain(..passed.bytes));
            }
            match passed.state {
                MessageState::More => break,
                MessageState::End => messages.push(Vec::new()),
                MessageState::Refused(_) => return messages,
            }
        }
    }
    messages
}
