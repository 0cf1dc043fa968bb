//! Compression of one body, within a bound on the result.

use std::io::{self, Write};

use flate2::GzBuilder;
use hotrow_cache::ContentCoding;

/// Level of gzip: that of most servers.
const GZIP_LEVEL: u32 = 6;
/// Level of zstd: its default.
const ZSTD_LEVEL: i32 = 3;
/// A variant saves at least this share of its body, as a divisor.
const SAVED_SHARE: usize = 10;

/// Returns the body in this coding; `None` if it would save less than a tenth.
pub(super) fn encode(body: &[u8], coding: ContentCoding) -> Option<Vec<u8>> {
    let bytes_max = body.len() - body.len().div_ceil(SAVED_SHARE).min(body.len());
    match coding {
        ContentCoding::Gzip => gzip(body, bytes_max).ok(),
        ContentCoding::Zstd => zstd(body, bytes_max).ok(),
    }
}

fn gzip(body: &[u8], bytes_max: usize) -> io::Result<Vec<u8>> {
    let out = Bounded { bytes: Vec::new(), bytes_max };
    // Without a time and a name: equal bodies become equal bytes.
    let mut encoder = GzBuilder::new().write(out, flate2::Compression::new(GZIP_LEVEL));
    encoder.write_all(body)?;
    Ok(encoder.finish()?.bytes)
}

fn zstd(body: &[u8], bytes_max: usize) -> io::Result<Vec<u8>> {
    let mut out = vec![0; bytes_max];
    // The length is in the frame, so that a reader can allocate at once.
    let written = zstd::bulk::compress_to_buffer(body, &mut out, ZSTD_LEVEL)?;
    out.truncate(written);
    out.shrink_to_fit();
    Ok(out)
}

/// Bytes up to a bound; more are an error, which ends the compression.
struct Bounded {
    bytes: Vec<u8>,
    bytes_max: usize,
}

impl Write for Bounded {
    fn write(&mut self, more: &[u8]) -> io::Result<usize> {
        if more.len() > self.bytes_max - self.bytes.len() {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.bytes.extend_from_slice(more);
        Ok(more.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use proptest::prelude::*;

    use super::*;

    fn decode(coding: ContentCoding, bytes: &[u8]) -> Vec<u8> {
        match coding {
            ContentCoding::Gzip => {
                let mut out = Vec::new();
                flate2::read::GzDecoder::new(bytes).read_to_end(&mut out).unwrap();
                out
            }
            ContentCoding::Zstd => zstd::stream::decode_all(bytes).unwrap(),
        }
    }

    /// Bytes without a pattern.
    fn noise(bytes: usize) -> Vec<u8> {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 32) as u8
        };
        (0..bytes).map(|_| next()).collect()
    }

    #[test]
    fn what_does_not_get_smaller_is_not_compressed() {
        for coding in ContentCoding::ALL {
            for bytes in [0, 1, 10, 1_000, 1 << 20] {
                assert_eq!(encode(&noise(bytes), coding), None, "{coding:?} {bytes}");
            }
        }
    }

    #[test]
    fn the_largest_record_is_compressed() {
        let body = "{\"name\":\"product\"},".repeat((16 << 20) / 19);
        for coding in ContentCoding::ALL {
            let encoded = encode(body.as_bytes(), coding).unwrap();
            assert!(encoded.len() < body.len() / 50, "{coding:?}: {}", encoded.len());
            assert!(encoded.capacity() < body.len() / 2);
            assert_eq!(decode(coding, &encoded), body.as_bytes());
        }
    }

    proptest! {
        #[test]
        fn a_variant_decodes_to_the_body(words in prop::collection::vec("[a-c]{1,6}", 0..400)) {
            let body = words.concat();
            for coding in ContentCoding::ALL {
                if let Some(encoded) = encode(body.as_bytes(), coding) {
                    prop_assert!(encoded.len() <= body.len() * 9 / 10);
                    prop_assert_eq!(decode(coding, &encoded), body.as_bytes());
                    prop_assert_eq!(encode(body.as_bytes(), coding), Some(encoded));
                }
            }
        }
    }
}
