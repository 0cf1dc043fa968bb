//! Reads a request's head just far enough to know where its message ends, and refuses what two parsers could read in two
//! ways. What it lets pass, hyper parses again and in full.

use memchr::{memchr, memchr_iter};

use super::refusal::{Malformed, Refusal};
use crate::config::Limits;

/// Longest method and version around a target; what is longer counts as target.
const AROUND_TARGET_BYTES: usize = 64;

/// A head that has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    /// From the message's first byte to the end of the empty line.
    pub(super) bytes: usize,
    /// What comes after it.
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

/// The state of reading one head, which may come in any number of pieces. Whole lines are looked at once.
#[derive(Debug, Default)]
pub(super) struct HeadScan {
    line_start: usize,
    searched: usize,
    crlf_lines: usize,
    version: Option<Version>,
    fields: usize,
    hosts: usize,
    length: Option<u64>,
    codings: usize,
}

impl HeadScan {
    /// Looks at the head's bytes so far, all of them each time. `None`: the head is not complete.
    pub(super) fn scan(&mut self, bytes: &[u8], limits: &Limits) -> Result<Option<Head>, Refusal> {
        while let Some(at) = memchr(b'\n', &bytes[self.searched..]) {
            let end = self.searched + at;
            let mut line = &bytes[self.line_start..end];
            let line_bytes = line.len();
            self.line_start = end + 1;
            self.searched = end + 1;
            if let [rest @ .., b'\r'] = line {
                line = rest;
                self.crlf_lines += 1;
            }
            self.check_size(self.line_start, line_bytes, limits)?;
            match (line.is_empty(), self.version) {
                (true, Some(version)) => return self.finish(&bytes[..=end], version, limits).map(Some),
                (false, Some(_)) => self.field(line, limits)?,
                (false, None) => self.version = Some(request_line(line, limits)?),
                // Empty lines before a request are to be ignored (RFC 9112 section 2.2).
                (true, None) => {}
            }
        }
        self.searched = bytes.len();
        self.check_size(bytes.len(), bytes.len() - self.line_start, limits)?;
        Ok(None)
    }

    fn check_size(&self, head_bytes: usize, line_bytes: usize, limits: &Limits) -> Result<(), Refusal> {
        if self.version.is_none() && line_bytes > limits.target_bytes + AROUND_TARGET_BYTES {
            return Err(Refusal::TargetBytes);
        }
        if head_bytes > limits.header_bytes { Err(Refusal::HeadBytes) } else { Ok(()) }
    }

    fn field(&mut self, line: &[u8], limits: &Limits) -> Result<(), Refusal> {
        if matches!(line[0], b' ' | b'\t') {
            return Err(Refusal::Malformed(Malformed::Folding));
        }
        let Some(colon @ 1..) = memchr(b':', line) else { return Err(Refusal::Malformed(Malformed::Field)) };
        let (name, value) = (&line[..colon], &line[colon + 1..]);
        if matches!(name[colon - 1], b' ' | b'\t') {
            return Err(Refusal::Malformed(Malformed::SpaceBeforeColon));
        }
        self.fields += 1;
        if self.fields > limits.headers {
            return Err(Refusal::HeadFields);
        }
        match name.len() {
            4 if name.eq_ignore_ascii_case(b"host") => self.hosts += 1,
            14 if name.eq_ignore_ascii_case(b"content-length") => self.content_length(value)?,
            17 if name.eq_ignore_ascii_case(b"transfer-encoding") => self.transfer_encoding(value)?,
            _ => {}
        }
        Ok(())
    }

    fn content_length(&mut self, value: &[u8]) -> Result<(), Refusal> {
        let length = decimal(trim(value)).ok_or(Refusal::Malformed(Malformed::Length))?;
        match self.length.replace(length) {
            Some(before) if before != length => Err(Refusal::Malformed(Malformed::LengthsDiffer)),
            _ => Ok(()),
        }
    }

    fn transfer_encoding(&mut self, value: &[u8]) -> Result<(), Refusal> {
        self.codings += 1;
        let sound = self.codings == 1 && trim(value).eq_ignore_ascii_case(b"chunked");
        if sound { Ok(()) } else { Err(Refusal::Malformed(Malformed::Coding)) }
    }

    /// Judges the head as a whole; `head` ends with the empty line.
    fn finish(&self, head: &[u8], version: Version, limits: &Limits) -> Result<Head, Refusal> {
        if memchr_iter(b'\r', head).count() != self.crlf_lines || memchr(0, head).is_some() {
            return Err(Refusal::Malformed(Malformed::ControlByte));
        }
        if self.hosts > 1 || (self.hosts == 0 && version == Version::Http11) {
            return Err(Refusal::Malformed(Malformed::Host));
        }
        let body = match (self.length, self.codings) {
            (Some(_), 1..) => return Err(Refusal::Malformed(Malformed::LengthAndCoding)),
            (None, 1..) if version == Version::Http10 => return Err(Refusal::Malformed(Malformed::Coding)),
            (None, 1..) => Body::Chunked,
            (Some(length), 0) if length > limits.body_bytes as u64 => return Err(Refusal::BodyBytes),
            (Some(length @ 1..), 0) => Body::Length(length),
            (Some(0) | None, 0) => Body::Empty,
        };
        Ok(Head { bytes: head.len(), body })
    }
}

fn request_line(line: &[u8], limits: &Limits) -> Result<Version, Refusal> {
    const VERSION_BYTES: usize = " HTTP/1.1".len();
    let bad = Refusal::Malformed(Malformed::RequestLine);
    let method = memchr(b' ', line).ok_or(bad)?;
    let target_end = line.len().checked_sub(VERSION_BYTES).ok_or(bad)?;
    // The method is not empty, and neither is the target: its end lies at least one byte behind the first space.
    if method == 0 || target_end <= method + 1 {
        return Err(bad);
    }
    let version = match &line[target_end..] {
        b" HTTP/1.1" => Version::Http11,
        b" HTTP/1.0" => Version::Http10,
        [b' ', b'H', b'T', b'T', b'P', b'/', b'0'..=b'9', b'.', b'0'..=b'9'] => {
            return Err(Refusal::Malformed(Malformed::Version));
        }
        _ => return Err(bad),
    };
    if target_end - method - 1 > limits.target_bytes { Err(Refusal::TargetBytes) } else { Ok(version) }
}

/// Without the white space that may surround a field's value (RFC 9110 section 5.6.3).
fn trim(mut value: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] | [rest @ .., b' ' | b'\t'] = value {
        value = rest;
    }
    value
}

/// Digits only: no sign, no list, no more than a `u64` holds.
fn decimal(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0u64, |n, d| match d {
        b'0'..=b'9' => n.checked_mul(10)?.checked_add(u64::from(d - b'0')),
        _ => None,
    })
}
