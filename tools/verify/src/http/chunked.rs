//! Chunked bodies (RFC 9112, section 7.1), decoded when complete, because responses are small.

/// Content of a buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Decoded {
    /// The whole body, and the bytes of the buffer that it occupied.
    Complete { body: Vec<u8>, used: usize },
    /// The beginning of a body.
    Partial,
}

/// Decodes from the beginning; `None` if the bytes are not chunked.
pub(super) fn decode(bytes: &[u8]) -> Option<Decoded> {
    let (mut body, mut at) = (Vec::new(), 0);
    loop {
        let Some(line) = line_at(bytes, at) else { return Some(Decoded::Partial) };
        let size = std::str::from_utf8(line).ok()?.split(';').next()?.trim();
        // Sixteen digits would overflow; such sizes are not accepted anyway.
        let size = usize::from_str_radix(size, 16).ok().filter(|_| !size.starts_with('+'))?;
        at += line.len() + 2;
        if size == 0 {
            return Some(
                trailer_end(bytes, at)
                    .map_or(Decoded::Partial, |used| Decoded::Complete { body, used }),
            );
        }
        let end = at.checked_add(size)?;
        let (Some(chunk), Some(after)) = (bytes.get(at..end), bytes.get(end..end.checked_add(2)?))
        else {
            return Some(Decoded::Partial);
        };
        if after != b"\r\n" {
            return None;
        }
        body.extend_from_slice(chunk);
        at = end + 2;
    }
}

/// Returns the line that begins at `at`, without its end.
fn line_at(bytes: &[u8], at: usize) -> Option<&[u8]> {
    let rest = bytes.get(at..)?;
    rest.windows(2).position(|pair| pair == b"\r\n").map(|length| &rest[..length])
}

/// Returns the end of the trailer section that begins at `at`.
fn trailer_end(bytes: &[u8], mut at: usize) -> Option<usize> {
    loop {
        let line = line_at(bytes, at)?;
        at += line.len() + 2;
        if line.is_empty() {
            return Some(at);
        }
    }
}
