//! Hits of a record, and the making of its variants, in one byte.

use std::sync::atomic::{AtomicU8, Ordering};

use super::coding::ContentCoding;

/// Hits since its read from which a record is read again as soon as it changes: at the pace of its
/// changes, requests outnumber reads.
pub(crate) const HOT_HITS_MIN: u8 = 2;

/// Number of hits, in the low two bits, and the state of each variant's making, in two bits each.
///
/// Readers change it without a lock. Two at once may count as one, and a variant may be asked for
/// once more than needed.
#[derive(Debug)]
pub(super) struct Uses(AtomicU8);

const HITS: u8 = 0b11;
/// Behind the states of the variants.
const UNPROVEN: u8 = 1 << 7;
/// No request asked for the variant.
pub(super) const UNASKED: u8 = 0;
/// One request did.
pub(super) const ASKED: u8 = 1;
/// It is being made.
pub(super) const STARTED: u8 = 2;
/// It is not worth its bytes, or does not fit.
pub(super) const REFUSED: u8 = 3;

impl Uses {
    pub(super) fn none() -> Self {
        Self(AtomicU8::new(0))
    }

    /// Returns a copy with what was counted so far.
    pub(super) fn copy(&self) -> Self {
        Self(AtomicU8::new(self.0.load(Ordering::Relaxed)))
    }

    /// Counts a hit. A hot record is not written to any more.
    #[inline]
    pub(super) fn note_hit(&self) {
        let before = self.0.load(Ordering::Relaxed);
        if before & HITS < HOT_HITS_MIN {
            self.0.store(before + 1, Ordering::Relaxed);
        }
    }

    pub(super) fn note_unproven(&self) {
        self.0.fetch_or(UNPROVEN, Ordering::Relaxed);
    }

    #[inline]
    pub(super) fn is_unproven(&self) -> bool {
        self.0.load(Ordering::Relaxed) & UNPROVEN != 0
    }

    pub(super) fn hits(&self) -> u8 {
        self.0.load(Ordering::Relaxed) & HITS
    }

    pub(super) fn state(&self, coding: ContentCoding) -> u8 {
        self.0.load(Ordering::Relaxed) >> shift(coding) & 0b11
    }

    pub(super) fn set(&self, coding: ContentCoding, state: u8) {
        let others: u8 = !(0b11 << shift(coding));
        let set = |uses: u8| Some(uses & others | state << shift(coding));
        // It never fails.
        _ = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, set);
    }
}

fn shift(coding: ContentCoding) -> u8 {
    2 + 2 * coding as u8
}
