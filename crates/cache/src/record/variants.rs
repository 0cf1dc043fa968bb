//! Compressed forms of a record's body, its *variants*, in the record's own allocation: behind the
//! body, with their lengths at the end. A record without variants has none of this and does not
//! grow; one with another variant is another record (I7), so that a variant cannot outlive the
//! body that it was made of.

use triomphe::ThinArc;

use super::coding::{ContentCoding, body_end, length};
use super::uses::{ASKED, REFUSED, STARTED, UNASKED};
use super::{Header, Record};

impl Record {
    /// Notes that it did not enter the memory, because it may be older than a change.
    pub(crate) fn note_unproven(&self) {
        self.0.header.header.uses.note_unproven();
    }

    /// Returns whether no change delivered so far may be newer than it: it entered the memory, or
    /// would have if there had been reason to keep it. Only then may caches in front keep it until
    /// they are purged.
    #[inline]
    pub fn is_proven(&self) -> bool {
        !self.0.header.header.uses.is_unproven()
    }

    /// Returns the body in this coding, if it has been made.
    pub fn variant(&self, coding: ContentCoding) -> Option<&[u8]> {
        if !self.0.header.header.kind.has_variants() {
            return None;
        }
        let slice = &self.0.slice;
        let before = ContentCoding::ALL.iter().take(coding as usize);
        let start = body_end(slice) + before.map(|coding| length(slice, *coding)).sum::<usize>();
        let variant = slice.get(start..start + length(slice, coding))?;
        (!variant.is_empty()).then_some(variant)
    }

    /// Notes that a request would take this variant, which the record does not have. Returns
    /// whether to make it: once, at the second such request.
    pub fn ask_for_variant(&self, coding: ContentCoding) -> bool {
        let uses = &self.0.header.header.uses;
        match uses.state(coding) {
            UNASKED => uses.set(coding, ASKED),
            ASKED => {
                uses.set(coding, STARTED);
                return true;
            }
            _ => {}
        }
        false
    }

    /// Lets the next request ask for the variant again, because it was not made.
    pub fn postpone_variant(&self, coding: ContentCoding) {
        self.0.header.header.uses.set(coding, ASKED);
    }

    /// Lets no request ask for the variant again.
    pub fn refuse_variant(&self, coding: ContentCoding) {
        self.0.header.header.uses.set(coding, REFUSED);
    }

    /// Returns the same version of the record with one more variant. `None` if it has it already,
    /// or if the variant is empty or longer than the body.
    pub(crate) fn with_variant(&self, coding: ContentCoding, bytes: &[u8]) -> Option<Self> {
        let is_useful = (1..=self.body().len()).contains(&bytes.len());
        if !is_useful || self.variant(coding).is_some() {
            return None;
        }
        let slice = &self.0.slice;
        let of =
            |other: ContentCoding| if other == coding { Some(bytes) } else { self.variant(other) };
        let variants = ContentCoding::ALL.map(|coding| of(coding).unwrap_or_default());
        // Not longer than the body, which `BODY_BYTES_MAX` of the source bounds.
        let lengths = variants.map(|variant| (variant.len() as u32).to_ne_bytes());
        let with = [&slice[..self.body_end()], &variants.concat(), &lengths.concat()].concat();
        let old = &self.0.header.header;
        let header = Header {
            read_at: old.read_at,
            epoch: old.epoch,
            lifetime: old.lifetime,
            key_bytes: old.key_bytes,
            kind: old.kind.with_variants(),
            uses: old.uses.copy(),
        };
        Some(Self(ThinArc::from_header_and_slice(header, &with)))
    }

    /// Returns whether both are the same allocation.
    pub(crate) fn is(&self, other: &Self) -> bool {
        std::ptr::eq(self.body().as_ptr(), other.body().as_ptr())
    }
}

#[cfg(test)]
mod tests {
    use super::super::coding::TRAILER;
    use super::*;
    use crate::testkit::{key, record_of};

    const BODY: &[u8] = b"{\"name\":\"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\"}";

    #[test]
    fn a_variant_leaves_everything_else_as_it_was() {
        let plain = record_of(&key(7), Some(BODY));
        plain.note_use();
        assert_eq!(plain.variant(ContentCoding::Gzip), None);
        let one = plain.with_variant(ContentCoding::Zstd, b"zstd").unwrap();
        let both = one.with_variant(ContentCoding::Gzip, b"gz").unwrap();
        for record in [&one, &both] {
            assert_eq!(record.body(), BODY);
            assert_eq!(record.body_hash(), plain.body_hash());
            assert_eq!(record.position(), plain.position());
            assert_eq!(record.read_at(), plain.read_at());
            assert_eq!(record.expires_at(), plain.expires_at());
            assert_eq!(record.key_bytes(), plain.key_bytes());
            assert_eq!(record.variant(ContentCoding::Zstd), Some(&b"zstd"[..]));
            assert!(!record.is_hot());
        }
        assert_eq!(one.variant(ContentCoding::Gzip), None);
        assert_eq!(both.variant(ContentCoding::Gzip), Some(&b"gz"[..]));
        assert_eq!(one.weight_bytes(), plain.weight_bytes() + 4 + TRAILER as u64);
        assert_eq!(both.weight_bytes(), one.weight_bytes() + 2);
        both.note_use();
        assert!(both.is_hot(), "hits before count too");
    }

    #[test]
    fn useless_variants_are_not_kept() {
        let record = record_of(&key(7), Some(BODY));
        assert!(record.with_variant(ContentCoding::Gzip, b"").is_none());
        assert!(record.with_variant(ContentCoding::Gzip, &[BODY, b"x"].concat()).is_none());
        let with = record.with_variant(ContentCoding::Gzip, b"gz").unwrap();
        assert!(with.with_variant(ContentCoding::Gzip, b"xx").is_none(), "one is there");
    }

    #[test]
    fn the_second_request_for_a_coding_starts_its_variant_once() {
        let record = record_of(&key(7), Some(BODY));
        let ask = |coding| record.ask_for_variant(coding);
        assert!(!ask(ContentCoding::Gzip));
        assert!(!ask(ContentCoding::Zstd));
        assert!(ask(ContentCoding::Gzip));
        assert!(!ask(ContentCoding::Gzip));
        assert!(ask(ContentCoding::Zstd));
        record.postpone_variant(ContentCoding::Gzip);
        assert!(ask(ContentCoding::Gzip) && !ask(ContentCoding::Gzip));
        record.refuse_variant(ContentCoding::Gzip);
        assert!(!ask(ContentCoding::Gzip));
        assert!(!record.is_hot(), "requests for variants are no hits");
        record.note_use();
        record.note_use();
        record.note_use();
        assert!(record.is_hot());
        assert!(!ask(ContentCoding::Gzip) && !ask(ContentCoding::Zstd), "hits keep the states");
    }
}
