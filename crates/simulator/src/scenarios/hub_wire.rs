//! What the parts of the hub have in common: names, and messages as they travel.

use hotrow_hub::codec::{decode, encode};
use hotrow_hub::message::Message;
use hotrow_hub::tag::Tag;

pub(super) const COLLECTION: Tag = Tag(7);

/// What keeps the place of a relay in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kept {
    /// Nothing: every take-over is a loss.
    Nowhere,
    /// A slot of the database.
    Slot,
    /// The stream: its last message names a landmark, and the log may have lost it.
    Stream,
}

/// Returns a message as it travels.
#[allow(clippy::expect_used, reason = "a message that was written is read")]
pub(super) fn travel(message: &Message) -> Message {
    decode(&encode(message)).expect("a message that was written is read")
}

pub(super) fn origin(timeline: u64) -> String {
    format!("timeline {timeline}")
}
