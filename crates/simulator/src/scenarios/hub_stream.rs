//! Stream of the hub: it stores messages by sequence, and may lose its end.

use hotrow_hub::message::{Body, Message};

#[derive(Debug, Default)]
pub(super) struct Stream {
    messages: Vec<Message>,
    pub(super) beginnings: u64,
    /// Acknowledged messages were lost.
    pub(super) has_lost: bool,
}

impl Stream {
    /// Returns the sequence of the last message; 0 without one.
    pub(super) fn end(&self) -> u64 {
        self.messages.len() as u64
    }

    pub(super) fn last(&self) -> Option<&Message> {
        self.messages.last()
    }

    /// Returns the message of a sequence, from 1.
    pub(super) fn get(&self, sequence: u64) -> Option<&Message> {
        self.messages.get(usize::try_from(sequence.checked_sub(1)?).ok()?)
    }

    /// Stores a message, if the stream ends at `expected`. Returns its sequence.
    pub(super) fn publish(&mut self, message: Message, expected: Option<u64>) -> Option<u64> {
        if expected.is_some_and(|expected| expected != self.end()) {
            return None;
        }
        self.beginnings += u64::from(matches!(message.body, Body::Beginning(_)));
        self.messages.push(message);
        Some(self.end())
    }

    /// Loses the last messages, as a server of the stream does that lost its power. The sequences
    /// are given again.
    pub(super) fn lose_end(&mut self, count: usize) {
        self.has_lost |= count > 0 && !self.messages.is_empty();
        self.messages.truncate(self.messages.len().saturating_sub(count));
    }
}
