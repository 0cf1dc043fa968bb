//! Codings of a body, and the lengths of its variants behind them.

/// Coding of a variant (RFC 9110 section 8.4.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContentCoding {
    /// RFC 1952.
    Gzip,
    /// RFC 8878.
    Zstd,
}

impl ContentCoding {
    /// All codings, in the order of their variants in a record.
    pub const ALL: [Self; 2] = [Self::Gzip, Self::Zstd];

    /// Returns its name in header fields and entity tags.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::Gzip => "gzip",
            Self::Zstd => "zstd",
        }
    }
}

/// Bytes of one length in the trailer.
const LENGTH: usize = 4;
/// Bytes behind the variants: the length of each, 0 for none.
pub(super) const TRAILER: usize = LENGTH * ContentCoding::ALL.len();

/// Returns the place of the trailer in a record with variants.
fn trailer_at(slice: &[u8]) -> usize {
    slice.len().saturating_sub(TRAILER)
}

/// Returns the length of a variant, from the trailer.
pub(super) fn length(slice: &[u8], coding: ContentCoding) -> usize {
    let at = trailer_at(slice) + LENGTH * coding as usize;
    // `with_variant` put them there.
    let bytes = slice.get(at..).and_then(<[u8]>::first_chunk::<LENGTH>);
    bytes.map_or(0, |bytes| u32::from_ne_bytes(*bytes) as usize)
}

/// Returns the end of the body of a record with variants.
#[cold]
pub(super) fn body_end(slice: &[u8]) -> usize {
    let variants: usize = ContentCoding::ALL.iter().map(|coding| length(slice, *coding)).sum();
    trailer_at(slice).saturating_sub(variants)
}
