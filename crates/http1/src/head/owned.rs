//! A head beyond the bytes that it was parsed from.

use super::super::body::BodyLength;
use super::{Head, HeadParser, Version};

/// A head that owns its bytes.
#[derive(Clone, Debug)]
pub struct HeadBuf {
    bytes: Box<[u8]>,
    parser: HeadParser,
    version: Version,
    body: BodyLength,
}

impl Head<'_> {
    /// Returns the head as it can be kept. Allocates.
    pub fn to_buf(&self) -> HeadBuf {
        let end = self.parser.line.min(self.bytes.len());
        HeadBuf {
            bytes: self.bytes[..end].into(),
            parser: self.parser.clone(),
            version: self.version,
            body: self.body,
        }
    }
}

impl HeadBuf {
    /// Returns the head.
    pub fn as_head(&self) -> Head<'_> {
        Head { bytes: &self.bytes, parser: &self.parser, version: self.version, body: self.body }
    }
}

#[cfg(test)]
mod tests {
    use crate::Limits;
    use crate::head::HeadParser;

    #[test]
    fn a_kept_head_says_the_same_without_the_bytes_behind_it() {
        let limits = Limits { head_bytes: 1000, fields: 9, target_bytes: 99, body_bytes: 99 };
        let text = b"GET /a/1?x HTTP/1.1\r\nHost: a\r\nVia: b\r\n\r\nGET /next HTTP/1.1\r\n";
        let mut parser = HeadParser::default();
        let size = parser.parse(text, &limits).unwrap().unwrap();
        let head = parser.head(text, &limits).unwrap();
        let kept = head.to_buf();
        assert_eq!(kept.bytes.len(), size);
        let again = kept.as_head();
        assert_eq!((again.method(), again.target()), (&b"GET"[..], "/a/1?x"));
        assert_eq!(again.fields().get("via"), Some(&b"b"[..]));
        assert_eq!((again.version, again.body), (head.version, head.body));
    }
}
