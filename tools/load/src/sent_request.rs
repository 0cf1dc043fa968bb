//! A request in flight.

use crate::plan::Slot;

/// A request that was sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SentRequest {
    pub(crate) slot: Slot,
    pub(crate) sent_ns: u64,
    /// Arrival of the first byte of its response; 0 before.
    pub(crate) first_byte_ns: u64,
    /// True if it may be sent again (RFC 9110 section 9.2.2).
    pub(crate) idempotent: bool,
    /// True if its response may have a body.
    pub(crate) has_body: bool,
}
