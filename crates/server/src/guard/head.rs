//! Parses a request's head just far enough to find the end of its message, and refuses what two
//! parsers could read in two ways. hyper parses an accepted head again, in full.

use super::refusal::{Malformed, Rejection};
use super::target;
use crate::authority::Authority;
use crate::config::Limits;

/// Longest method and version around a target; any excess counts as target.
const AROUND_TARGET_BYTES: usize = 64;

/// Returns whether a message that begins with `bytes` is a HEAD request, as far as it has arrived:
/// its answer has no body, with any status (RFC 9110 section 9.3.2).
pub(super) fn is_head_request(bytes: &[u8]) -> bool {
    // Empty lines before a request are ignored, see [`HeadScan::scan`].
    let first = bytes.iter().position(|byte| !matches!(byte, b'\r' | b'\n')).unwrap_or(bytes.len());
    bytes[first..].starts_with(b"HEAD ")
}

/// A complete head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    /// Bytes from the start of the message to the end of the empty line.
    pub(super) bytes: usize,
    /// The body that follows.
    pub(super) body: Body,
}

/// The body that a head announces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Body {
    /// None.
    Empty,
    /// This many bytes, at least one.
    Length(u64),
    /// Chunks.
    Chunked,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    Http10,
    Http11,
}

/// State of parsing one head, which may arrive in any number of pieces. Only whole lines are
/// examined.
#[derive(Debug, Default)]
pub(super) struct HeadScan {
    line_start: usize,
    searched: usize,
    version: Option<Version>,
    fields: usize,
    hosts: usize,
    length: Option<u64>,
    codings: usize,
}

impl HeadScan {
    /// Examines the head's bytes so far, all of them each time. `None`: the head is incomplete.
    pub(super) fn scan(
        &mut self,
        bytes: &[u8],
        limits: &Limits,
    ) -> Result<Option<Head>, Rejection> {
        while let Some(at) = next_control(bytes, self.searched) {
            self.check_size(at + 1, at + 1 - self.line_start, limits)?;
            let next = match (bytes[at], bytes.get(at + 1)) {
                (b'\n', _) => at + 1,
                (b'\r', Some(b'\n')) => at + 2,
                (b'\r', None) => {
                    self.searched = at;
                    return Ok(None);
                }
                (b'\r' | 0, _) => return Err(Rejection::Malformed(Malformed::ControlByte)),
                // hyper inspects the other bytes; a tab is valid.
                _ => {
                    self.searched = at + 1;
                    continue;
                }
            };
            let line = &bytes[self.line_start..at];
            self.line_start = next;
            self.searched = next;
            match (line.is_empty(), self.version) {
                (true, Some(version)) => return self.finish(next, version, limits).map(Some),
                (false, Some(_)) => self.field(line, limits)?,
                (false, None) => self.version = Some(request_line(line, limits)?),
                // Empty lines before a request are ignored (RFC 9112 section 2.2).
                (true, None) => {}
            }
        }
        self.searched = bytes.len();
        self.check_size(bytes.len(), bytes.len() - self.line_start, limits)?;
        Ok(None)
    }

    fn check_size(
        &self,
        head_bytes: usize,
        line_bytes: usize,
        limits: &Limits,
    ) -> Result<(), Rejection> {
        if self.version.is_none() && line_bytes > limits.target_bytes + AROUND_TARGET_BYTES {
            return Err(Rejection::TargetBytes);
        }
        if head_bytes > limits.header_bytes { Err(Rejection::HeadBytes) } else { Ok(()) }
    }

    fn field(&mut self, line: &[u8], limits: &Limits) -> Result<(), Rejection> {
        if matches!(line[0], b' ' | b'\t') {
            return Err(Rejection::Malformed(Malformed::Folding));
        }
        let Some(colon @ 1..) = find(b':', line) else {
            return Err(Rejection::Malformed(Malformed::Field));
        };
        let (name, value) = (&line[..colon], &line[colon + 1..]);
        if matches!(name[colon - 1], b' ' | b'\t') {
            return Err(Rejection::Malformed(Malformed::SpaceBeforeColon));
        }
        self.fields += 1;
        if self.fields > limits.headers {
            return Err(Rejection::HeadFields);
        }
        match name.len() {
            4 if name.eq_ignore_ascii_case(b"host") => self.host(value)?,
            14 if name.eq_ignore_ascii_case(b"content-length") => self.content_length(value)?,
            17 if name.eq_ignore_ascii_case(b"transfer-encoding") => {
                self.transfer_encoding(value)?
            }
            _ => {}
        }
        Ok(())
    }

    /// Refuses an invalid authority (RFC 9112 section 3.2): two in one, or a part of a URL, may
    /// name another host to a proxy.
    fn host(&mut self, value: &[u8]) -> Result<(), Rejection> {
        self.hosts += 1;
        Authority::parse(trim(value)).map(|_| ()).ok_or(Rejection::Malformed(Malformed::Host))
    }

    fn content_length(&mut self, value: &[u8]) -> Result<(), Rejection> {
        let length = decimal(trim(value)).ok_or(Rejection::Malformed(Malformed::Length))?;
        match self.length.replace(length) {
            Some(before) if before != length => Err(Rejection::Malformed(Malformed::LengthsDiffer)),
            _ => Ok(()),
        }
    }

    fn transfer_encoding(&mut self, value: &[u8]) -> Result<(), Rejection> {
        self.codings += 1;
        let sound = self.codings == 1 && trim(value).eq_ignore_ascii_case(b"chunked");
        if sound { Ok(()) } else { Err(Rejection::Malformed(Malformed::Coding)) }
    }

    /// Checks the head as a whole. `head_bytes` is its size with the empty line.
    fn finish(
        &self,
        head_bytes: usize,
        version: Version,
        limits: &Limits,
    ) -> Result<Head, Rejection> {
        if head_bytes > limits.header_bytes {
            return Err(Rejection::HeadBytes);
        }
        if self.hosts > 1 || (self.hosts == 0 && version == Version::Http11) {
            return Err(Rejection::Malformed(Malformed::Host));
        }
        let body = match (self.length, self.codings) {
            (Some(_), 1..) => return Err(Rejection::Malformed(Malformed::LengthAndCoding)),
            (None, 1..) if version == Version::Http10 => {
                return Err(Rejection::Malformed(Malformed::Coding));
            }
            (None, 1..) => Body::Chunked,
            (Some(length), 0) if length > limits.body_bytes as u64 => {
                return Err(Rejection::BodyBytes);
            }
            (Some(length @ 1..), 0) => Body::Length(length),
            (Some(0) | None, 0) => Body::Empty,
        };
        Ok(Head { bytes: head_bytes, body })
    }
}

fn request_line(line: &[u8], limits: &Limits) -> Result<Version, Rejection> {
    const VERSION_BYTES: usize = " HTTP/1.1".len();
    let bad = Rejection::Malformed(Malformed::RequestLine);
    let method = find(b' ', line).ok_or(bad)?;
    let target_end = line.len().checked_sub(VERSION_BYTES).ok_or(bad)?;
    // Method and target are not empty: the target ends at least one byte behind the first space.
    if method == 0 || target_end <= method + 1 {
        return Err(bad);
    }
    let version = match &line[target_end..] {
        b" HTTP/1.1" => Version::Http11,
        b" HTTP/1.0" => Version::Http10,
        [b' ', b'H', b'T', b'T', b'P', b'/', b'0'..=b'9', b'.', b'0'..=b'9'] => {
            return Err(Rejection::Malformed(Malformed::Version));
        }
        _ => return Err(bad),
    };
    let target = &line[method + 1..target_end];
    if target.len() > limits.target_bytes {
        return Err(Rejection::TargetBytes);
    }
    let sound = target::is_sound(&line[..method], target);
    if sound { Ok(version) } else { Err(Rejection::Malformed(Malformed::Target)) }
}

const ONES: u64 = u64::from_le_bytes([0x01; 8]);
const HIGHS: u64 = u64::from_le_bytes([0x80; 8]);

/// Returns the first byte below 0x20 at or after `from`. Eight bytes at a time: a head consists of
/// lines of 20 to 40 bytes, on which preparing a vector search costs more than the search, and one
/// pass finds line ends, bare CR and NUL alike.
#[inline]
fn next_control(bytes: &[u8], from: usize) -> Option<usize> {
    first(bytes, from, |word| word.wrapping_sub(ONES * 0x20) & !word & HIGHS, |byte| byte < 0x20)
}

/// Returns the first `wanted`.
#[inline]
fn find(wanted: u8, bytes: &[u8]) -> Option<usize> {
    let pattern = ONES * u64::from(wanted);
    let mark = |word: u64| (word ^ pattern).wrapping_sub(ONES) & !(word ^ pattern) & HIGHS;
    first(bytes, 0, mark, |byte| byte == wanted)
}

/// Finds a byte by `mark`, which sets the high bit of matching bytes. A borrow may also mark bytes
/// above a correct one, so only the lowest mark counts (Warren, "Hacker's Delight", 2nd edition,
/// section 6-1).
#[inline]
fn first(
    bytes: &[u8],
    from: usize,
    mark: impl Fn(u64) -> u64,
    is: impl Fn(u8) -> bool,
) -> Option<usize> {
    let mut at = from;
    while let Some(eight) = bytes[at..].first_chunk::<8>() {
        let marks = mark(u64::from_le_bytes(*eight));
        if marks != 0 {
            return Some(at + (marks.trailing_zeros() / 8) as usize);
        }
        at += 8;
    }
    bytes[at..].iter().position(|byte| is(*byte)).map(|i| at + i)
}

/// Removes the white space that may surround a field's value (RFC 9110 section 5.6.3).
fn trim(mut value: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] | [rest @ .., b' ' | b'\t'] = value {
        value = rest;
    }
    value
}

/// Parses digits only: no sign, no list, nothing above a `u64`.
fn decimal(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0u64, |n, d| match d {
        b'0'..=b'9' => n.checked_mul(10)?.checked_add(u64::from(d - b'0')),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_word_search_equals_the_byte_search(
            bytes in prop::collection::vec(
                prop_oneof![0x18..0x24u8, 0x38..0x3cu8, any::<u8>()],
                0..40,
            ),
            from in any::<prop::sample::Index>(),
        ) {
            let from = from.index(bytes.len() + 1);
            let control = bytes[from..].iter().position(|b| *b < 0x20).map(|i| from + i);
            prop_assert_eq!(next_control(&bytes, from), control);
            prop_assert_eq!(find(b':', &bytes), bytes.iter().position(|b| *b == b':'));
        }
    }
}
