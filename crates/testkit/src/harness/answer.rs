//! One HTTP answer, parsed strictly: deviations that a tolerant client accepts are errors here.

use std::fmt;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Version in the status line, for instance `HTTP/1.1`.
    pub version: String,
    pub status: u16,
    /// Headers in the order of arrival; names in lower case.
    pub headers: Vec<(String, String)>,
    /// Body without its framing.
    pub body: Vec<u8>,
}

/// Reason why bytes are no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Malformed(pub String);

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Framing of an answer's body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// A number of bytes.
    Length(usize),
    Chunked,
    /// Everything until the connection closes.
    UntilClosed,
}

impl Answer {
    /// Parses a head, up to and without its empty line; the body is empty.
    pub fn parse_head(head: &[u8]) -> Result<Self, Malformed> {
        let bad = |what: &str| Malformed(format!("{what}: {:?}", String::from_utf8_lossy(head)));
        let text = std::str::from_utf8(head).map_err(|_| bad("head is not UTF-8"))?;
        let mut lines = text.split("\r\n");
        let status_line = lines.next().unwrap_or_default();
        let mut words = status_line.splitn(3, ' ');
        let version = words.next().unwrap_or_default().to_owned();
        if !matches!(version.as_str(), "HTTP/1.1" | "HTTP/1.0") {
            return Err(bad("no HTTP version"));
        }
        let digits = words.next().unwrap_or_default();
        let status = digits.parse().ok().filter(|s| (100..600).contains(s) && digits.len() == 3);
        let status = status.ok_or_else(|| bad("no status"))?;
        words.next().ok_or_else(|| bad("no reason, not even an empty one"))?;
        let mut headers = Vec::new();
        for line in lines {
            let (name, value) =
                line.split_once(':').ok_or_else(|| bad("a header without a colon"))?;
            let token = !name.is_empty()
                && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_".contains(&b));
            let plain = value.bytes().all(|b| b.is_ascii_graphic() || b == b' ');
            if !token || !plain {
                return Err(bad("a malformed header"));
            }
            headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
        Ok(Self { version, status, headers, body: Vec::new() })
    }

    /// Returns the framing of the body. `to_head`: the request was a HEAD.
    pub fn framing(&self, to_head: bool) -> Result<Framing, Malformed> {
        let lengths = self.all("content-length");
        let codings = self.all("transfer-encoding");
        if lengths.len() > 1 || codings.len() > 1 || (!lengths.is_empty() && !codings.is_empty()) {
            return Err(Malformed(format!("contradictory framing: {:?}", self.headers)));
        }
        if to_head || self.status < 200 || matches!(self.status, 204 | 304) {
            return Ok(Framing::Length(0));
        }
        match (lengths.first(), codings.first()) {
            (Some(length), _) => length
                .parse()
                .map(Framing::Length)
                .map_err(|_| Malformed(format!("Content-Length: {length}"))),
            (None, Some(&"chunked")) => Ok(Framing::Chunked),
            (None, Some(coding)) => Err(Malformed(format!("Transfer-Encoding: {coding}"))),
            (None, None) => Ok(Framing::UntilClosed),
        }
    }

    /// Returns the header of that name (lower case).
    #[track_caller]
    pub fn header(&self, name: &str) -> Option<&str> {
        let all = self.all(name);
        assert!(all.len() < 2, "{name} is there {} times: {:?}", all.len(), self.headers);
        all.first().copied()
    }

    /// Returns all headers of that name.
    pub fn all(&self, name: &str) -> Vec<&str> {
        self.headers.iter().filter(|(n, _)| n == name).map(|(_, value)| value.as_str()).collect()
    }

    /// Returns `Hotrow-Cache`, or `-`.
    #[track_caller]
    pub fn cache(&self) -> &str {
        self.header("hotrow-cache").unwrap_or("-")
    }

    /// Returns `Hotrow-Position`.
    #[track_caller]
    pub fn position(&self) -> Position {
        let text = self
            .header("hotrow-position")
            .unwrap_or_else(|| panic!("no Hotrow-Position: {self:?}"));
        Position::parse(text)
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// Returns the body as JSON.
    #[track_caller]
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|e| panic!("{e}: {self:?}"))
    }

    /// Returns the body as JSON; null if it is not JSON.
    pub fn json_or_null(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    /// Asserts that this is a problem document of RFC 9457 with this status, and returns its title
    /// and detail.
    #[track_caller]
    pub fn problem(&self, status: u16) -> (String, String) {
        let document = self.json();
        let link = document["type"].as_str().and_then(|link| link.split_once('#'));
        assert_eq!(link.map(|(page, _)| page), Some("/docs/reference/errors.md"), "{self:?}");
        self.plain_problem(status)
    }

    /// Does as [`Self::problem`], for a server whose errors have no page.
    #[track_caller]
    pub fn plain_problem(&self, status: u16) -> (String, String) {
        assert_eq!(self.status, status, "{self:?}");
        assert_eq!(self.header("content-type"), Some("application/problem+json"), "{self:?}");
        let document = self.json();
        assert_eq!(document["status"], status, "{self:?}");
        let text = |member: &str| {
            document[member].as_str().unwrap_or_else(|| panic!("no {member}: {self:?}")).to_owned()
        };
        (text("title"), text("detail"))
    }
}

/// A session token, parsed by its published grammar.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Position {
    /// 16 hexadecimal digits.
    pub incarnation: String,
    /// Position in the log.
    pub at: u64,
}

impl Position {
    /// Parses the text form.
    #[track_caller]
    pub fn parse(text: &str) -> Self {
        let (incarnation, at) =
            text.split_once('-').unwrap_or_else(|| panic!("no position: {text:?}"));
        let hex = incarnation.len() == 16
            && incarnation.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        assert!(hex, "no position: {text:?}");
        let number: u64 = at.parse().unwrap_or_else(|e| panic!("no position: {text:?}: {e}"));
        assert_eq!(number.to_string(), at, "no position: {text:?}");
        Self { incarnation: incarnation.to_owned(), at: number }
    }

    /// Returns another position in the same log.
    pub fn with(&self, at: u64) -> Self {
        Self { at, ..self.clone() }
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.incarnation, self.at)
    }
}
