//! The bytes of replies, as far as RESP3 servers send them to this client.

/// Most levels of arrays in arrays.
const DEPTH_MAX: usize = 8;
/// Longest line, such as a number or the text of an error, in bytes.
const LINE_BYTES_MAX: usize = 64 << 10;

/// A reply, or a push.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// A text of any bytes.
    Bulk(Vec<u8>),
    /// A line such as `OK`.
    Status(String),
    /// An error.
    Error(String),
    /// A number.
    Integer(i64),
    /// Nothing.
    Null,
    /// An array or a set; or a map, as keys and values in turn.
    Array(Vec<Reply>),
    /// A message that answers no command.
    Push(Vec<Reply>),
}

/// The beginning of received bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Parsed {
    /// A reply that has so many bytes.
    Complete {
        /// The reply.
        reply: Reply,
        /// Its bytes.
        used: usize,
    },
    /// More must arrive.
    Incomplete,
    /// No reply begins so.
    Malformed,
}

/// Parses the first reply.
pub(crate) fn parse(bytes: &[u8]) -> Parsed {
    let mut cursor = Cursor { bytes, at: 0 };
    match cursor.reply(DEPTH_MAX) {
        Ok(reply) => Parsed::Complete { reply, used: cursor.at },
        Err(Short::Incomplete) => Parsed::Incomplete,
        Err(Short::Malformed) => Parsed::Malformed,
    }
}

/// Reason there is no reply.
enum Short {
    Incomplete,
    Malformed,
}

struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Cursor<'_> {
    fn reply(&mut self, depth: usize) -> Result<Reply, Short> {
        let line = self.line()?;
        let mut rest = line.chars();
        let kind = rest.next().ok_or(Short::Malformed)?;
        let rest = rest.as_str();
        let number = || rest.parse::<i64>().map_err(|_| Short::Malformed);
        Ok(match kind {
            '+' => Reply::Status(rest.to_owned()),
            '-' => Reply::Error(rest.to_owned()),
            ':' => Reply::Integer(number()?),
            '_' => Reply::Null,
            '$' | '*' if rest == "-1" => Reply::Null,
            '$' => Reply::Bulk(self.text(count(number()?)?)?),
            '*' | '~' => Reply::Array(self.several(count(number()?)?, depth)?),
            '%' => Reply::Array(self.several(2 * count(number()?)?, depth)?),
            '>' => Reply::Push(self.several(count(number()?)?, depth)?),
            _ => return Err(Short::Malformed),
        })
    }

    fn several(&mut self, count: usize, depth: usize) -> Result<Vec<Reply>, Short> {
        let depth = depth.checked_sub(1).ok_or(Short::Malformed)?;
        // Without a reservation: the count is a claim.
        (0..count).map(|_| self.reply(depth)).collect()
    }

    fn line(&mut self) -> Result<String, Short> {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let Some(length) = rest.windows(2).position(|two| two == b"\r\n") else {
            let is_too_long = rest.len() > LINE_BYTES_MAX;
            return Err(if is_too_long { Short::Malformed } else { Short::Incomplete });
        };
        self.at += length + 2;
        let line = rest.get(..length).unwrap_or_default();
        String::from_utf8(line.to_vec()).map_err(|_| Short::Malformed)
    }

    fn text(&mut self, length: usize) -> Result<Vec<u8>, Short> {
        let end = self.at.checked_add(length).ok_or(Short::Malformed)?;
        let text = self.bytes.get(self.at..end).ok_or(Short::Incomplete)?;
        match self.bytes.get(end..end + 2) {
            Some(b"\r\n") => {}
            Some(_) => return Err(Short::Malformed),
            None => return Err(Short::Incomplete),
        }
        self.at = end + 2;
        Ok(text.to_vec())
    }
}

/// Returns a count; none of this client's replies has as many as 2³⁰.
fn count(number: i64) -> Result<usize, Short> {
    usize::try_from(number).ok().filter(|count| *count < 1 << 30).ok_or(Short::Malformed)
}

#[cfg(test)]
mod tests {
    use super::*;

    const STREAM: &[u8] = b">2\r\n$10\r\ninvalidate\r\n*1\r\n$3\r\na:7\r\n";

    #[test]
    fn replies_are_parsed_in_order_with_pushes_between() {
        let mut bytes = STREAM.to_vec();
        bytes.extend_from_slice(b"*3\r\n$2\r\n{}\r\n_\r\n$-1\r\n-ERR no\r\n:5\r\n+OK\r\n");
        bytes.extend_from_slice(b"%1\r\n$1\r\na\r\n~1\r\n:1\r\n");
        let mut rest = &bytes[..];
        let mut replies = Vec::new();
        while let Parsed::Complete { reply, used } = parse(rest) {
            replies.push(reply);
            rest = &rest[used..];
        }
        let bulk = |text: &str| Reply::Bulk(text.as_bytes().to_vec());
        assert_eq!(
            replies,
            [
                Reply::Push(vec![bulk("invalidate"), Reply::Array(vec![bulk("a:7")])]),
                Reply::Array(vec![bulk("{}"), Reply::Null, Reply::Null]),
                Reply::Error("ERR no".to_owned()),
                Reply::Integer(5),
                Reply::Status("OK".to_owned()),
                Reply::Array(vec![bulk("a"), Reply::Array(vec![Reply::Integer(1)])]),
            ]
        );
        assert!(rest.is_empty());
    }

    #[test]
    fn a_part_is_incomplete_and_other_bytes_are_malformed() {
        for end in 0..STREAM.len() {
            assert_eq!(parse(&STREAM[..end]), Parsed::Incomplete, "{end}");
        }
        for bytes in ["x\r\n", "\r\n", "$x\r\n", "$-2\r\n", "$1\r\nabc", ":\r\n", "*9999999999\r\n"]
        {
            assert_eq!(parse(bytes.as_bytes()), Parsed::Malformed, "{bytes:?}");
        }
        assert_eq!(parse("*1\r\n".repeat(100).as_bytes()), Parsed::Malformed);
    }
}
