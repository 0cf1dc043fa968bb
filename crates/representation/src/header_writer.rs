//! Writer of the header values that differ from record to record. One per worker: values of many
//! answers share one allocation, so that the hit path does not allocate.

use std::cell::RefCell;

use bytes::{BufMut, Bytes, BytesMut};
use hotrow_cache::ContentCoding;
use hotrow_http1::write::hexadecimal_digits;
use hotrow_types::version::Position;
use http::HeaderValue;

use crate::record_form::tag_suffix;

/// Size of the arena; another one is allocated when it is used up.
const ARENA_BYTES: usize = 16 << 10;
/// Length of an entity tag of a body without a coding: 16 digits in quotation marks.
const ETAG_BYTES: usize = 18;
/// Longest suffix of the tag of a variant.
const SUFFIX_BYTES_MAX: usize = 5;

/// Writer of a worker's header values. One thread uses it.
#[derive(Debug)]
pub struct HeaderWriter {
    arena: RefCell<BytesMut>,
    /// Most entries were read while the feed stood still, so neighbours share their position.
    last: RefCell<Option<(Position, HeaderValue)>>,
}

impl Default for HeaderWriter {
    fn default() -> Self {
        Self { arena: RefCell::new(BytesMut::with_capacity(ARENA_BYTES)), last: RefCell::new(None) }
    }
}

impl HeaderWriter {
    /// Returns the entity tag of a body with this hash, in a coding.
    #[inline]
    pub fn etag(&self, hash: u64, coding: Option<ContentCoding>) -> HeaderValue {
        self.write(ETAG_BYTES + SUFFIX_BYTES_MAX, |out| {
            out.put_slice(&etag(hash)[..ETAG_BYTES - 1]);
            out.put_slice(tag_suffix(coding).as_bytes());
            out.put_u8(b'"');
        })
    }

    /// Returns a position as a header value.
    #[inline]
    pub fn position(&self, position: Position) -> HeaderValue {
        let mut last = self.last.borrow_mut();
        match &*last {
            Some((last, value)) if *last == position => value.clone(),
            _ => {
                let value = self.write(Position::TEXT_BYTES_MAX, |out| put_position(out, position));
                *last = Some((position, value.clone()));
                value
            }
        }
    }

    fn write(&self, bytes_max: usize, write: impl FnOnce(&mut BytesMut)) -> HeaderValue {
        let mut arena = self.arena.borrow_mut();
        if arena.capacity() - arena.len() < bytes_max {
            *arena = BytesMut::with_capacity(ARENA_BYTES);
        }
        write(&mut arena);
        let value: Bytes = arena.split().freeze();
        // Only digits, letters, quotes and hyphens are written.
        HeaderValue::from_maybe_shared(value).unwrap_or(HeaderValue::from_static(""))
    }
}

/// Returns the entity tag of a body with this hash.
#[inline]
#[must_use]
pub fn etag(hash: u64) -> [u8; ETAG_BYTES] {
    let mut tag = [b'"'; ETAG_BYTES];
    tag[1..ETAG_BYTES - 1].copy_from_slice(&hexadecimal_digits(hash));
    tag
}

fn put_position(out: &mut BytesMut, position: Position) {
    out.put_slice(&hexadecimal_digits(position.incarnation));
    out.put_u8(b'-');
    out.put_slice(itoa::Buffer::new().format(position.at).as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_equal_the_ordinary_formatting() {
        let writer = HeaderWriter::default();
        let position = Position { incarnation: 0x1234_5678_9abc_def0, at: u64::MAX };
        assert_eq!(writer.position(position).to_str().unwrap(), position.to_string());
        assert_eq!(writer.etag(0xff00, None), "\"000000000000ff00\"");
        let zstd = writer.etag(0xff00, Some(ContentCoding::Zstd));
        assert_eq!(zstd, "\"000000000000ff00-zstd\"");
        for _ in 0..2000 {
            assert_eq!(writer.position(position).len(), Position::TEXT_BYTES_MAX);
        }
    }
}
