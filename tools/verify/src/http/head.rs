//! Head of a response.

/// Status and headers of a response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) status: u16,
    /// Names in lower case.
    headers: Vec<(String, String)>,
    pub(super) framing: Framing,
    /// True if the connection can be reused.
    pub(super) keep: bool,
}

/// End of the body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Framing {
    Length(u64),
    Chunked,
    UntilClose,
}

/// Returns the end of the head, after its empty line.
pub(super) fn end(bytes: &[u8]) -> Option<usize> {
    bytes.windows(4).position(|window| window == b"\r\n\r\n").map(|at| at + 4)
}

impl Head {
    /// Creates the head of an HTTP/2 response, whose end the protocol shows; names are in lower
    /// case.
    pub(super) fn of(status: u16, headers: Vec<(String, String)>) -> Self {
        Self { status, headers, framing: Framing::UntilClose, keep: true }
    }

    /// Parses a complete head; `None` if it is not an HTTP/1 response.
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(bytes).ok()?;
        let mut lines = text.split("\r\n");
        let first = lines.next()?;
        let rest = first.strip_prefix("HTTP/1.1 ").or_else(|| first.strip_prefix("HTTP/1.0 "))?;
        let status = rest.get(..3)?.parse().ok().filter(|status| (100..1000).contains(status))?;
        let mut headers = Vec::new();
        for line in lines.filter(|line| !line.is_empty()) {
            let (name, value) = line.split_once(':')?;
            headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
        let mut head = Self { status, headers, framing: Framing::UntilClose, keep: false };
        head.framing = match (head.header("transfer-encoding"), head.header("content-length")) {
            (Some(coding), None) if coding.eq_ignore_ascii_case("chunked") => Framing::Chunked,
            (None, Some(length)) => Framing::Length(length.parse().ok()?),
            (None, None) => Framing::UntilClose,
            _ => return None,
        };
        let bodiless = matches!(status, 204 | 304) || status < 200;
        let close =
            head.header("connection").is_some_and(|value| value.eq_ignore_ascii_case("close"));
        let delimited = bodiless || head.framing != Framing::UntilClose;
        head.keep = first.starts_with("HTTP/1.1") && !close && delimited;
        Some(head)
    }

    /// Returns the value of a header; the name is in lower case.
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_str())
    }
}
