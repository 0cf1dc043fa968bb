//! Encoder of answers. It has no table: a status or a name is an index of the static table, a value
//! is written as it is. So an answer costs no more than its copy, and heads that stand ready can be
//! joined.

use super::integer;

/// Index of a name in the static table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StaticName(u8);

/// Names of fields that most answers have.
pub mod name {
    use super::StaticName;

    /// `age`.
    pub const AGE: StaticName = StaticName(21);
    /// `cache-control`.
    pub const CACHE_CONTROL: StaticName = StaticName(24);
    /// `content-encoding`.
    pub const CONTENT_ENCODING: StaticName = StaticName(26);
    /// `content-length`.
    pub const CONTENT_LENGTH: StaticName = StaticName(28);
    /// `content-type`.
    pub const CONTENT_TYPE: StaticName = StaticName(31);
    /// `date`.
    pub const DATE: StaticName = StaticName(33);
    /// `etag`.
    pub const ETAG: StaticName = StaticName(34);
    /// `vary`.
    pub const VARY: StaticName = StaticName(59);
}

/// Index of `:status`.
const STATUS: StaticName = StaticName(8);

/// Appends a change of the table's size to zero. It must be the first of a head behind settings
/// that make the table smaller (RFC 7541 section 4.2).
pub fn shrink(out: &mut Vec<u8>) {
    out.push(0x20);
}

/// Appends a status.
#[inline]
pub fn status(out: &mut Vec<u8>, status: u16) {
    let index = match status {
        200 => 8,
        204 => 9,
        206 => 10,
        304 => 11,
        400 => 12,
        404 => 13,
        500 => 14,
        _ => {
            let digit = |place: u16| b'0' + (status / place % 10) as u8;
            return field(out, STATUS, &[digit(100), digit(10), digit(1)]);
        }
    };
    out.push(0x80 | index);
}

/// Appends a field whose name is in the static table.
#[inline]
pub fn field(out: &mut Vec<u8>, StaticName(index): StaticName, value: &[u8]) {
    // Literal without indexing (RFC 7541 section 6.2.2).
    integer::encode(out, 0, 4, usize::from(index));
    string(out, value);
}

/// Appends a field with its name, in lower case.
#[inline]
pub fn named_field(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    out.push(0);
    string(out, name);
    string(out, value);
}

#[inline]
fn string(out: &mut Vec<u8>, text: &[u8]) {
    integer::encode(out, 0, 7, text.len());
    out.extend_from_slice(text);
}

/// Appends the status of a head of HTTP/1.1 that this process has written, and its fields.
pub fn head(out: &mut Vec<u8>, code: u16, text: &[u8]) {
    status(out, code);
    let behind = text.iter().position(|byte| *byte == b'\n').map_or(text.len(), |at| at + 1);
    fields(out, &text[behind..]);
}

/// Appends fields that were written as lines of HTTP/1.1, except for those that belong to the
/// connection.
pub fn fields(out: &mut Vec<u8>, lines: &[u8]) {
    for line in lines.split(|byte| *byte == b'\n') {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let Some(colon) = line.iter().position(|byte| *byte == b':') else { continue };
        let value = line[colon + 1..].trim_ascii();
        match &line[..colon] {
            b"connection" | b"keep-alive" | b"transfer-encoding" | b"upgrade" => {}
            name => match index(name) {
                Some(index) => field(out, index, value),
                None => any_field(out, name, value),
            },
        }
    }
}

/// Appends a field whose name may have upper case.
fn any_field(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    out.push(0);
    integer::encode(out, 0, 7, name.len());
    out.extend(name.iter().map(u8::to_ascii_lowercase));
    string(out, value);
}

/// Returns the index of a name that answers have.
fn index(name: &[u8]) -> Option<StaticName> {
    Some(StaticName(match name {
        b"access-control-allow-origin" => 20,
        b"age" => 21,
        b"allow" => 22,
        b"cache-control" => 24,
        b"content-encoding" => 26,
        b"content-length" => 28,
        b"content-type" => 31,
        b"date" => 33,
        b"etag" => 34,
        b"location" => 46,
        b"retry-after" => 53,
        b"vary" => 59,
        b"www-authenticate" => 61,
        _ => return None,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hpack::decoder::Decoder;
    use crate::hpack::static_table::ENTRIES;

    fn decoded(block: &[u8]) -> Vec<String> {
        let mut fields = Vec::new();
        let add = |name: &[u8], value: &[u8]| {
            fields.push(String::from_utf8([name, b"=", value].concat()).unwrap());
        };
        Decoder::default().decode(block, &mut Vec::new(), add).unwrap();
        fields
    }

    #[test]
    fn a_head_of_http_1_1_becomes_fields() {
        let text = b"HTTP/1.1 429 Too Many Requests\r\nContent-Type: a/b\r\nretry-after: 1\r\n\
                     connection: close\r\nhotrow-cache: hit\r\n";
        let mut out = Vec::new();
        shrink(&mut out);
        head(&mut out, 429, text);
        let expected = [":status=429", "content-type=a/b", "retry-after=1", "hotrow-cache=hit"];
        assert_eq!(decoded(&out), expected);
    }

    #[test]
    fn statuses_are_those_that_were_written() {
        for code in 100..600 {
            let mut out = Vec::new();
            status(&mut out, code);
            assert_eq!(decoded(&out), [format!(":status={code}")]);
        }
        let mut out = Vec::new();
        status(&mut out, 200);
        assert_eq!(out, [0x88]);
    }

    #[test]
    fn names_have_the_indices_of_the_table() {
        for (place, (name, _)) in ENTRIES.iter().enumerate() {
            if let Some(StaticName(index)) = index(name) {
                assert_eq!(usize::from(index), place + 1);
            }
        }
        for (StaticName(index), name) in [
            (name::AGE, "age"),
            (name::CACHE_CONTROL, "cache-control"),
            (name::CONTENT_ENCODING, "content-encoding"),
            (name::CONTENT_LENGTH, "content-length"),
            (name::CONTENT_TYPE, "content-type"),
            (name::DATE, "date"),
            (name::ETAG, "etag"),
            (name::VARY, "vary"),
        ] {
            assert_eq!(ENTRIES[usize::from(index) - 1].0, name.as_bytes());
        }
    }

    #[test]
    fn long_values_are_written_whole() {
        let value = vec![b'x'; 300];
        let mut out = Vec::new();
        field(&mut out, name::VARY, &value);
        named_field(&mut out, b"hotrow-cache", &value);
        let value = "x".repeat(300);
        assert_eq!(decoded(&out), [format!("vary={value}"), format!("hotrow-cache={value}")]);
    }
}
