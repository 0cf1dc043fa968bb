//! The head of a response: the fields that determine where the response ends.

use memchr::memchr;

use super::malformed::{HEAD_BYTES_MAX, Malformed};

/// The parsed head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// The status code, 100 to 999.
    pub status: u16,
    /// True if the connection may be reused, by version, `Connection` and framing.
    pub keep: bool,
    /// The framing of the body.
    pub framing: Framing,
}

/// The framing of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// A length in bytes.
    Fixed(u64),
    /// Chunks.
    Chunked,
    /// None: the end of the connection ends the body.
    None,
}

/// Parses a head at the beginning of `bytes`; also returns its length, empty line included. `None`
/// when incomplete.
///
/// # Errors
/// Returns the defect of a line.
#[inline]
pub fn parse(bytes: &[u8]) -> Result<Option<(Head, usize)>, Malformed> {
    let Some(end) = memchr(b'\n', bytes) else { return Ok(None) };
    let (minor, status) = status_line(trim_cr(&bytes[..end]))?;
    let mut fields = Fields { close: false, keep_alive: false, length: None, chunked: false };
    let mut at = end + 1;
    while let Some(n) = memchr(b'\n', &bytes[at..]) {
        let line = trim_cr(&bytes[at..at + n]);
        at += n + 1;
        if at > HEAD_BYTES_MAX {
            return Err(Malformed::HeadTooLong);
        }
        if line.is_empty() {
            return Ok(Some((fields.head(minor, status), at)));
        }
        if is_fold(bytes, at) {
            let Some((field, end)) = unfold(line, bytes, at) else { return Ok(None) };
            fields.line(&field)?;
            at = end;
        } else {
            fields.line(line)?;
        }
    }
    Ok(None)
}

/// Returns whether a folded line begins here, which continues the field before it.
fn is_fold(bytes: &[u8], at: usize) -> bool {
    matches!(bytes.get(at), Some(b' ' | b'\t'))
}

/// Joins a field with the folded lines at `at`, each fold replaced by a blank (RFC 9112, section
/// 5.2). Also returns the end of the last line. `None` when incomplete.
fn unfold(first: &[u8], bytes: &[u8], mut at: usize) -> Option<(Vec<u8>, usize)> {
    let mut field = first.to_vec();
    while is_fold(bytes, at) {
        let n = memchr(b'\n', &bytes[at..])?;
        field.push(b' ');
        field.extend_from_slice(bytes[at..at + n].trim_ascii());
        at += n + 1;
    }
    Some((field, at))
}

/// Returns the end of a head in `bytes`: after its first empty line. Searches from `from` on.
pub fn end(bytes: &[u8], from: usize) -> Option<usize> {
    let mut at = from;
    loop {
        at += memchr(b'\n', bytes.get(at..)?)? + 1;
        match bytes.get(at..)? {
            [b'\n', ..] => return Some(at + 1),
            [b'\r', b'\n', ..] => return Some(at + 2),
            _ => {}
        }
    }
}

/// Rejects bytes that cannot become a status line, so that a server without HTTP is detected at its
/// first bytes.
///
/// # Errors
/// [`Malformed::StatusLine`].
pub fn check_beginning(bytes: &[u8]) -> Result<(), Malformed> {
    const BEGINNING: &[u8] = b"HTTP/1.";
    let n = bytes.len().min(BEGINNING.len());
    if bytes[..n] == BEGINNING[..n] { Ok(()) } else { Err(Malformed::StatusLine) }
}

/// Parses minor version and status code of `HTTP/1.x NNN reason`.
fn status_line(line: &[u8]) -> Result<(u8, u16), Malformed> {
    let [
        b'H',
        b'T',
        b'T',
        b'P',
        b'/',
        b'1',
        b'.',
        minor @ b'0'..=b'9',
        b' ',
        a @ b'1'..=b'9',
        b,
        c,
        rest @ ..,
    ] = line
    else {
        return Err(Malformed::StatusLine);
    };
    let ended = matches!(rest, [] | [b' ', ..]);
    if !ended || !b.is_ascii_digit() || !c.is_ascii_digit() {
        return Err(Malformed::StatusLine);
    }
    let digit = |d: &u8| u16::from(d - b'0');
    Ok((minor - b'0', digit(a) * 100 + digit(b) * 10 + digit(c)))
}

/// The relevant fields seen so far.
struct Fields {
    close: bool,
    keep_alive: bool,
    length: Option<u64>,
    chunked: bool,
}

impl Fields {
    #[inline]
    fn line(&mut self, line: &[u8]) -> Result<(), Malformed> {
        let colon = memchr(b':', line).filter(|at| *at > 0).ok_or(Malformed::HeaderLine)?;
        // Only three names matter, and their lengths distinguish them from nearly all others.
        match colon {
            14 if line[..14].eq_ignore_ascii_case(b"content-length") => {
                self.content_length(&line[15..])
            }
            10 if line[..10].eq_ignore_ascii_case(b"connection") => {
                self.connection(&line[11..]);
                Ok(())
            }
            17 if line[..17].eq_ignore_ascii_case(b"transfer-encoding") => {
                self.transfer_encoding(&line[18..])
            }
            // A fold without a field before it, and a blank before the colon, are forbidden: RFC
            // 9112, sections 2.2 and 5.1.
            _ if matches!(line[0], b' ' | b'\t') || matches!(line[colon - 1], b' ' | b'\t') => {
                Err(Malformed::HeaderLine)
            }
            _ => Ok(()),
        }
    }

    /// Accepts one number, or the same one several times (RFC 9110 section 8.6).
    fn content_length(&mut self, value: &[u8]) -> Result<(), Malformed> {
        for part in value.split(|b| *b == b',') {
            let length = decimal(part.trim_ascii()).ok_or(Malformed::ContentLength)?;
            if self.length.is_some_and(|before| before != length) {
                return Err(Malformed::ContentLength);
            }
            self.length = Some(length);
        }
        Ok(())
    }

    fn connection(&mut self, value: &[u8]) {
        for option in value.split(|b| *b == b',') {
            self.close |= option.trim_ascii().eq_ignore_ascii_case(b"close");
            self.keep_alive |= option.trim_ascii().eq_ignore_ascii_case(b"keep-alive");
        }
    }

    /// Only `chunked` is supported: requests ask for no other coding.
    fn transfer_encoding(&mut self, value: &[u8]) -> Result<(), Malformed> {
        if self.chunked || !value.trim_ascii().eq_ignore_ascii_case(b"chunked") {
            return Err(Malformed::TransferEncoding);
        }
        self.chunked = true;
        Ok(())
    }

    fn head(&self, minor: u8, status: u16) -> Head {
        // Chunks win over a length, but such a message is suspicious: the connection is not reused
        // (RFC 9112, 6.3).
        let framing = match (self.chunked, self.length) {
            (true, _) => Framing::Chunked,
            (false, Some(length)) => Framing::Fixed(length),
            (false, None) => Framing::None,
        };
        let both = self.chunked && self.length.is_some();
        let keep = !self.close && !both && (minor >= 1 || self.keep_alive);
        Head { status, keep, framing }
    }
}

fn decimal(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0_u64, |value, digit| {
        if !digit.is_ascii_digit() {
            return None;
        }
        value.checked_mul(10)?.checked_add(u64::from(digit - b'0'))
    })
}

#[inline]
fn trim_cr(line: &[u8]) -> &[u8] {
    line.strip_suffix(b"\r").unwrap_or(line)
}
