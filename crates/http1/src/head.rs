//! Head of a request: one pass over its bytes, which refuses what two parsers could read in two
//! ways and notes the places of all parts.

mod owned;

pub use self::owned::HeadBuf;
use super::authority::Authority;
use super::body::BodyLength;
use super::error::{Malformed, ParseError};
use super::fields::{FieldAt, Fields};
use super::search::{TOKEN, next_control};
use super::{Limits, target};

/// Longest method and version around a target; any excess counts as target.
const AROUND_TARGET_BYTES: usize = 64;
/// Longest host that is remembered as valid.
const KNOWN_HOST_BYTES_MAX: usize = 256;

/// Version of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// HTTP/1.0.
    Http10,
    /// HTTP/1.1.
    Http11,
}

/// A complete head, borrowed from the bytes that it was parsed from.
#[derive(Clone, Copy, Debug)]
pub struct Head<'a> {
    bytes: &'a [u8],
    parser: &'a HeadParser,
    /// The version.
    pub version: Version,
    /// The body that follows.
    pub body: BodyLength,
}

/// State of parsing one head, which may arrive in any number of pieces; afterwards, the places of
/// its parts. Only whole lines are examined.
#[derive(Clone, Debug, Default)]
pub struct HeadParser {
    line: usize,
    searched: usize,
    version: Option<Version>,
    /// Start of the request line, and ends of its method and target.
    request_line: (u32, u32, u32),
    fields: Vec<FieldAt>,
    hosts: usize,
    /// The last valid host, also of the heads before: nearly all requests name the same one.
    known_host: Vec<u8>,
    length: Option<u64>,
    codings: usize,
    /// `Connection: close`, and `keep-alive`.
    close: bool,
    keep_alive: bool,
    expects_continue: bool,
}

impl HeadParser {
    /// Prepares for another head. Keeps the memory of the fields, and the last valid host.
    pub fn reset(&mut self) {
        let mut fields = std::mem::take(&mut self.fields);
        fields.clear();
        let known_host = std::mem::take(&mut self.known_host);
        *self = Self { fields, known_host, ..Self::default() };
    }

    /// Examines the head's bytes so far, all of them each time, from the first byte of the message.
    /// Returns the size of the head with its empty line; `None`: it is incomplete.
    ///
    /// # Errors
    /// The message is refused, and so is everything after it.
    pub fn parse(&mut self, bytes: &[u8], limits: &Limits) -> Result<Option<usize>, ParseError> {
        while let Some(at) = next_control(bytes, self.searched) {
            self.check_size(at + 1, at + 1 - self.line, limits)?;
            let next = match (bytes[at], bytes.get(at + 1)) {
                (b'\n', _) => at + 1,
                (b'\r', Some(b'\n')) => at + 2,
                (b'\r', None) => {
                    self.searched = at;
                    return Ok(None);
                }
                (b'\t', _) => {
                    self.searched = at + 1;
                    continue;
                }
                _ => return Err(ParseError::Malformed(Malformed::ControlByte)),
            };
            let start = self.line;
            self.line = next;
            self.searched = next;
            match (at == start, self.version) {
                (true, Some(_)) if next > limits.head_bytes => return Err(ParseError::HeadBytes),
                (true, Some(version)) => {
                    self.check(version)?;
                    return Ok(Some(next));
                }
                (false, Some(_)) => self.field(bytes, start, at, limits)?,
                (false, None) => self.request_line(bytes, start, at, limits)?,
                // Empty lines before a request are ignored (RFC 9112 section 2.2).
                (true, None) => {}
            }
        }
        self.searched = bytes.len();
        self.check_size(bytes.len(), bytes.len() - self.line, limits)?;
        Ok(None)
    }

    /// Returns the head, after [`HeadParser::parse`] has returned its size. `bytes` are the same.
    ///
    /// # Errors
    /// The body that it announces is too large.
    pub fn head<'a>(&'a self, bytes: &'a [u8], limits: &Limits) -> Result<Head<'a>, ParseError> {
        let body = match (self.length, self.codings) {
            (_, 1..) => BodyLength::Chunked,
            (Some(length), 0) if length > limits.body_bytes as u64 => {
                return Err(ParseError::BodyBytes);
            }
            (Some(length @ 1..), 0) => BodyLength::Bytes(length),
            (Some(0) | None, 0) => BodyLength::Empty,
        };
        let version = self.version.unwrap_or(Version::Http10);
        Ok(Head { bytes, parser: self, version, body })
    }

    fn check_size(
        &self,
        head_bytes: usize,
        line_bytes: usize,
        limits: &Limits,
    ) -> Result<(), ParseError> {
        if self.version.is_none() && line_bytes > limits.target_bytes + AROUND_TARGET_BYTES {
            return Err(ParseError::TargetBytes);
        }
        if head_bytes > limits.head_bytes { Err(ParseError::HeadBytes) } else { Ok(()) }
    }

    fn request_line(
        &mut self,
        bytes: &[u8],
        start: usize,
        end: usize,
        limits: &Limits,
    ) -> Result<(), ParseError> {
        const VERSION_BYTES: usize = " HTTP/1.1".len();
        let bad = ParseError::Malformed(Malformed::RequestLine);
        let line = &bytes[start..end];
        let method_bytes = line.iter().position(|byte| !TOKEN[usize::from(*byte)]).ok_or(bad)?;
        let target_end = line.len().checked_sub(VERSION_BYTES).ok_or(bad)?;
        // Method and target are not empty: the target ends at least one byte behind the first
        // space.
        if method_bytes == 0 || line[method_bytes] != b' ' || target_end <= method_bytes + 1 {
            return Err(bad);
        }
        self.version = Some(match &line[target_end..] {
            b" HTTP/1.1" => Version::Http11,
            b" HTTP/1.0" => Version::Http10,
            [b' ', b'H', b'T', b'T', b'P', b'/', b'0'..=b'9', b'.', b'0'..=b'9'] => {
                return Err(ParseError::Malformed(Malformed::Version));
            }
            _ => return Err(bad),
        });
        let target = &line[method_bytes + 1..target_end];
        if target.len() > limits.target_bytes {
            return Err(ParseError::TargetBytes);
        }
        self.request_line =
            (start as u32, (start + method_bytes) as u32, (start + target_end) as u32);
        let sound = target::is_sound(&line[..method_bytes], target);
        if sound { Ok(()) } else { Err(ParseError::Malformed(Malformed::Target)) }
    }

    fn field(
        &mut self,
        bytes: &[u8],
        start: usize,
        end: usize,
        limits: &Limits,
    ) -> Result<(), ParseError> {
        let line = &bytes[start..end];
        if matches!(line[0], b' ' | b'\t') {
            return Err(ParseError::Malformed(Malformed::Folding));
        }
        let name_bytes =
            line.iter().position(|byte| !TOKEN[usize::from(*byte)]).unwrap_or(line.len());
        match line.get(name_bytes) {
            Some(b':') if name_bytes > 0 => {}
            Some(b' ' | b'\t') if name_bytes > 0 && is_space_before_colon(&line[name_bytes..]) => {
                return Err(ParseError::Malformed(Malformed::SpaceBeforeColon));
            }
            _ => return Err(ParseError::Malformed(Malformed::Field)),
        }
        if self.fields.len() >= limits.fields {
            return Err(ParseError::HeadFields);
        }
        let name = &line[..name_bytes];
        let value = trim(&line[name_bytes + 1..]);
        let leading = line[name_bytes + 1..].iter().take_while(|byte| is_space(**byte)).count();
        self.fields.push(FieldAt {
            name: start as u32,
            name_bytes: name_bytes as u32,
            value: (start + name_bytes + 1 + leading) as u32,
            value_bytes: value.len() as u32,
        });
        match name_bytes {
            4 if name.eq_ignore_ascii_case(b"host") => self.host(value),
            6 if name.eq_ignore_ascii_case(b"expect") => {
                self.expects_continue |= value.eq_ignore_ascii_case(b"100-continue");
                Ok(())
            }
            10 if name.eq_ignore_ascii_case(b"connection") => {
                self.connection(value);
                Ok(())
            }
            14 if name.eq_ignore_ascii_case(b"content-length") => self.content_length(value),
            17 if name.eq_ignore_ascii_case(b"transfer-encoding") => self.transfer_encoding(value),
            _ => Ok(()),
        }
    }

    /// Refuses an invalid authority (RFC 9112 section 3.2): two in one, or a part of a URL, may
    /// name another host to a proxy.
    fn host(&mut self, value: &[u8]) -> Result<(), ParseError> {
        self.hosts += 1;
        if value == self.known_host {
            // An empty one is valid too.
            return Ok(());
        }
        Authority::parse(value).ok_or(ParseError::Malformed(Malformed::Host))?;
        if value.len() <= KNOWN_HOST_BYTES_MAX {
            self.known_host.clear();
            self.known_host.extend_from_slice(value);
        }
        Ok(())
    }

    /// Notes the options that matter (RFC 9110 section 7.6.1).
    fn connection(&mut self, value: &[u8]) {
        for option in value.split(|byte| *byte == b',').map(trim) {
            self.close |= option.eq_ignore_ascii_case(b"close");
            self.keep_alive |= option.eq_ignore_ascii_case(b"keep-alive");
        }
    }

    fn content_length(&mut self, value: &[u8]) -> Result<(), ParseError> {
        let length = decimal(value).ok_or(ParseError::Malformed(Malformed::Length))?;
        match self.length.replace(length) {
            Some(before) if before != length => {
                Err(ParseError::Malformed(Malformed::LengthsDiffer))
            }
            _ => Ok(()),
        }
    }

    fn transfer_encoding(&mut self, value: &[u8]) -> Result<(), ParseError> {
        self.codings += 1;
        let sound = self.codings == 1 && value.eq_ignore_ascii_case(b"chunked");
        if sound { Ok(()) } else { Err(ParseError::Malformed(Malformed::Coding)) }
    }

    /// Checks the head as a whole.
    fn check(&self, version: Version) -> Result<(), ParseError> {
        if self.hosts > 1 || (self.hosts == 0 && version == Version::Http11) {
            return Err(ParseError::Malformed(Malformed::Host));
        }
        if self.codings > 0 && self.length.is_some() {
            return Err(ParseError::Malformed(Malformed::LengthAndCoding));
        }
        if self.codings > 0 && version == Version::Http10 {
            return Err(ParseError::Malformed(Malformed::Coding));
        }
        Ok(())
    }
}

impl<'a> Head<'a> {
    /// Returns the method: a token, compared with regard to case.
    pub fn method(&self) -> &'a [u8] {
        let (start, end, _) = self.parser.request_line;
        &self.bytes[start as usize..end as usize]
    }

    /// Returns the request target as it was sent.
    pub fn target(&self) -> &'a str {
        let (_, before, end) = self.parser.request_line;
        // `target::is_sound` has checked that it is UTF-8.
        std::str::from_utf8(&self.bytes[before as usize + 1..end as usize]).unwrap_or("")
    }

    /// Returns path and query of the target, both as they were sent. The path of `*` is `*`; a
    /// target of CONNECT has none.
    pub fn path_and_query(&self) -> (&'a str, Option<&'a str>) {
        target::path_and_query(self.target())
    }

    /// Returns the header fields.
    pub fn fields(&self) -> Fields<'a> {
        Fields::new(self.bytes, &self.parser.fields)
    }

    /// Returns whether the client lets the connection stay open (RFC 9112 section 9.3).
    pub fn keeps_alive(&self) -> bool {
        !self.parser.close && (self.version == Version::Http11 || self.parser.keep_alive)
    }

    /// Returns whether the client waits for `100 Continue` before it sends the body (RFC 9110
    /// section 10.1.1).
    pub fn expects_continue(&self) -> bool {
        self.parser.expects_continue && self.version == Version::Http11
    }
}

/// Returns whether a message that begins with `bytes` is a HEAD request, as far as it has arrived:
/// its answer has no body, with any status (RFC 9110 section 9.3.2).
pub fn is_head_request(bytes: &[u8]) -> bool {
    // Empty lines before a request are ignored, see [`HeadParser::parse`].
    let first = bytes.iter().position(|byte| !matches!(byte, b'\r' | b'\n')).unwrap_or(bytes.len());
    bytes[first..].starts_with(b"HEAD ")
}

fn is_space_before_colon(rest: &[u8]) -> bool {
    rest.iter().find(|byte| !is_space(**byte)) == Some(&b':')
}

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t')
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
mod tests;
