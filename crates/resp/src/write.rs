//! Replies. Each function appends one to a buffer, or the beginning of one: the parts of an
//! aggregate follow it.

use crate::Version;

/// Appends a status.
pub fn status(out: &mut Vec<u8>, text: &str) {
    line(out, b'+', text);
}

/// Appends an error: a word in capitals, and a text.
pub fn error(out: &mut Vec<u8>, text: &str) {
    line(out, b'-', text);
}

/// Line breaks within the text become spaces: they would end it.
fn line(out: &mut Vec<u8>, kind: u8, text: &str) {
    out.push(kind);
    let printed = |byte| if matches!(byte, b'\r' | b'\n') { b' ' } else { byte };
    out.extend(text.bytes().map(printed));
    out.extend_from_slice(b"\r\n");
}

/// Appends an integer.
pub fn integer(out: &mut Vec<u8>, value: i64) {
    head(out, b':', value);
}

/// Appends a string of any bytes.
#[inline]
pub fn bulk(out: &mut Vec<u8>, bytes: &[u8]) {
    bulk_head(out, bytes.len());
    out.extend_from_slice(bytes);
    out.extend_from_slice(BULK_END);
}

/// Appends the beginning of a string, whose bytes and [`BULK_END`] follow.
#[inline]
pub fn bulk_head(out: &mut Vec<u8>, length: usize) {
    head(out, b'$', length);
}

/// End of a string.
pub const BULK_END: &[u8] = b"\r\n";

/// Returns the reply that says that there is no value.
pub fn null_reply(version: Version) -> &'static [u8] {
    match version {
        Version::Resp2 => b"$-1\r\n",
        Version::Resp3 => b"_\r\n",
    }
}

/// Appends the reply that says that there is no value.
pub fn null(out: &mut Vec<u8>, version: Version) {
    out.extend_from_slice(null_reply(version));
}

/// Appends the beginning of an array, whose elements follow.
pub fn array(out: &mut Vec<u8>, length: usize) {
    head(out, b'*', length);
}

/// Appends the beginning of a message that answers no command, whose elements follow. Only for
/// clients of RESP3.
pub fn push(out: &mut Vec<u8>, length: usize) {
    head(out, b'>', length);
}

/// Appends the beginning of a set, whose elements follow: an array in RESP2.
pub fn set(out: &mut Vec<u8>, version: Version, length: usize) {
    match version {
        Version::Resp2 => array(out, length),
        Version::Resp3 => head(out, b'~', length),
    }
}

/// Appends the beginning of a map, whose keys and values follow in turn: an array in RESP2.
pub fn map(out: &mut Vec<u8>, version: Version, pairs: usize) {
    match version {
        Version::Resp2 => array(out, 2 * pairs),
        Version::Resp3 => head(out, b'%', pairs),
    }
}

/// Appends a text for people: a string in RESP2.
pub fn text(out: &mut Vec<u8>, version: Version, text: &str) {
    match version {
        Version::Resp2 => bulk(out, text.as_bytes()),
        Version::Resp3 => {
            const FORMAT: &[u8] = b"txt:";
            head(out, b'=', FORMAT.len() + text.len());
            out.extend_from_slice(FORMAT);
            out.extend_from_slice(text.as_bytes());
            out.extend_from_slice(BULK_END);
        }
    }
}

#[inline]
fn head(out: &mut Vec<u8>, kind: u8, number: impl itoa::Integer) {
    out.push(kind);
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
    out.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(write: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        write(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn replies_have_the_form_of_their_version() {
        use Version::{Resp2, Resp3};
        assert_eq!(written(|out| status(out, "OK")), "+OK\r\n");
        assert_eq!(written(|out| error(out, "ERR a\r\nb")), "-ERR a  b\r\n");
        assert_eq!(written(|out| integer(out, -12)), ":-12\r\n");
        assert_eq!(written(|out| bulk(out, b"a\r\nb")), "$4\r\na\r\nb\r\n");
        assert_eq!(written(|out| bulk(out, b"")), "$0\r\n\r\n");
        assert_eq!(written(|out| null(out, Resp2)), "$-1\r\n");
        assert_eq!(written(|out| null(out, Resp3)), "_\r\n");
        assert_eq!(written(|out| array(out, 3)), "*3\r\n");
        assert_eq!(written(|out| push(out, 2)), ">2\r\n");
        assert_eq!(written(|out| set(out, Resp2, 3)), "*3\r\n");
        assert_eq!(written(|out| set(out, Resp3, 3)), "~3\r\n");
        assert_eq!(written(|out| map(out, Resp2, 3)), "*6\r\n");
        assert_eq!(written(|out| map(out, Resp3, 3)), "%3\r\n");
        assert_eq!(written(|out| text(out, Resp2, "a")), "$1\r\na\r\n");
        assert_eq!(written(|out| text(out, Resp3, "a")), "=5\r\ntxt:a\r\n");
    }
}
