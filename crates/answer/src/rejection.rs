//! Rejection of a connection's further input, and its answer to the client.

use std::fmt::Write as _;
use std::time::{Duration, UNIX_EPOCH};

use hotrow_http1::error::{Malformed, ParseError};
use httpdate::HttpDate;

use hotrow_config::Limits;

use crate::error_type::ErrorType;

/// Reason for which a connection's input is not read further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rejection {
    /// The bytes are not a valid HTTP/1 message.
    Malformed(Malformed),
    /// The head is larger than `header_bytes`.
    HeadBytes,
    /// The head has more fields than `headers`.
    HeadFields,
    /// The request target is longer than `target_bytes`.
    TargetBytes,
    /// The body's declared length, or the sum of its chunks' sizes, is over `body_bytes`.
    BodyBytes,
    /// The head did not arrive within `header_timeout`.
    HeadTime,
    /// The body did not arrive within `body_timeout`.
    BodyTime,
    /// More connections than `connections` are open.
    Connections,
    /// The client has more connections than `connections_per_client`.
    ClientConnections,
}

impl From<ParseError> for Rejection {
    fn from(error: ParseError) -> Self {
        match error {
            ParseError::Malformed(what) => Self::Malformed(what),
            ParseError::HeadBytes => Self::HeadBytes,
            ParseError::HeadFields => Self::HeadFields,
            ParseError::TargetBytes => Self::TargetBytes,
            ParseError::BodyBytes => Self::BodyBytes,
        }
    }
}

impl Rejection {
    /// Returns the status of the answer.
    #[must_use]
    pub fn status(self) -> u16 {
        self.error_type().status().as_u16()
    }

    fn error_type(self) -> ErrorType {
        match self {
            Self::Malformed(Malformed::Version) => ErrorType::VersionNotSupported,
            Self::Malformed(_) => ErrorType::BadRequest,
            Self::HeadTime | Self::BodyTime => ErrorType::RequestTimeout,
            Self::BodyBytes => ErrorType::ContentTooLarge,
            Self::TargetBytes => ErrorType::UriTooLong,
            Self::HeadBytes | Self::HeadFields => ErrorType::HeaderTooLarge,
            Self::ClientConnections => ErrorType::TooManyRequests,
            Self::Connections => ErrorType::Overloaded,
        }
    }

    /// Returns the detail for the client: the fault, the rule and the limit's value.
    fn detail(self, limits: &Limits) -> String {
        let over = |what: &str, limit: usize, unit: &str| {
            format!("{what} is over this server's limit of {limit} {unit}.")
        };
        match self {
            Self::Malformed(what) => what.detail().to_owned(),
            Self::HeadBytes => over("The request's head", limits.header_bytes, "bytes"),
            Self::HeadFields => over("The number of headers", limits.headers, "fields"),
            Self::TargetBytes => over("The request target", limits.target_bytes, "bytes"),
            Self::BodyBytes => over("The request's body", limits.body_bytes, "bytes"),
            Self::HeadTime => {
                format!("The request's head did not arrive within {:?}.", limits.header_timeout)
            }
            Self::BodyTime => {
                format!("The request's body did not arrive within {:?}.", limits.body_timeout)
            }
            Self::Connections => "Too many connections are open; try again shortly.".to_owned(),
            Self::ClientConnections => {
                over("The number of your connections", limits.connections_per_client, "at once")
            }
        }
    }

    /// Returns the body of the answer: problem+json (RFC 9457).
    pub fn problem(self, limits: &Limits) -> String {
        // Neither title nor detail needs escaping in JSON; a test checks that.
        let of = self.error_type();
        format!(
            "{{\"type\":\"{}\",\"title\":\"{}\",\"status\":{},\"detail\":\"{}\"}}",
            of.link(),
            of.title(),
            self.status(),
            self.detail(limits)
        )
    }

    /// Returns the whole answer: problem+json (RFC 9457) with `Connection: close`. `unix_s` is the
    /// wall clock, for `Date`. The answer to a HEAD request has the same head and no body.
    #[must_use]
    pub fn answer(self, limits: &Limits, unix_s: u64, to_head: bool) -> Vec<u8> {
        let status = self.status();
        let reason = self.error_type().status().canonical_reason().unwrap_or_default();
        let body = self.problem(limits);
        let retry = if matches!(status, 429 | 503) { "retry-after: 1\r\n" } else { "" };
        let mut answer = format!(
            "HTTP/1.1 {status} {reason}\r\ncontent-type: application/problem+json\r\n{retry}"
        );
        // Writing to a String cannot fail.
        let _ = write!(
            answer,
            "content-length: {}\r\nconnection: close\r\ndate: {}\r\n\r\n",
            body.len(),
            http_date(unix_s)
        );
        if !to_head {
            answer.push_str(&body);
        }
        answer.into_bytes()
    }
}

/// Returns an IMF-fixdate (RFC 9110 section 5.6.7). It ends with the year 9999.
pub fn http_date(unix_s: u64) -> HttpDate {
    const LAST_UNIX_S: u64 = 253_402_300_799;
    (UNIX_EPOCH + Duration::from_secs(unix_s.min(LAST_UNIX_S))).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_standard() {
        assert_eq!(http_date(784_111_777).to_string(), "Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(http_date(u64::MAX).to_string(), "Fri, 31 Dec 9999 23:59:59 GMT");
    }

    #[test]
    fn every_answer_is_valid_problem_json() {
        use Malformed as M;
        let malformed = [
            M::RequestLine,
            M::Target,
            M::Version,
            M::Field,
            M::Folding,
            M::SpaceBeforeColon,
            M::ControlByte,
            M::Host,
            M::Length,
            M::LengthsDiffer,
            M::LengthAndCoding,
            M::Coding,
            M::Chunk,
        ];
        use Rejection as R;
        let others = [
            R::HeadBytes,
            R::HeadFields,
            R::TargetBytes,
            R::BodyBytes,
            R::HeadTime,
            R::BodyTime,
            R::Connections,
            R::ClientConnections,
        ];
        let limits = Limits::small();
        for refusal in malformed.map(R::Malformed).into_iter().chain(others) {
            let answer = String::from_utf8(refusal.answer(&limits, 0, false)).unwrap();
            let (head, body) = answer.split_once("\r\n\r\n").unwrap();
            assert!(head.starts_with(&format!("HTTP/1.1 {} ", refusal.status())));
            assert!(head.contains(&format!("content-length: {}\r\nconnection: close", body.len())));
            let json: serde_json::Value = serde_json::from_str(body).unwrap();
            assert_eq!(json["status"], refusal.status());
            assert!(json["detail"].as_str().unwrap().ends_with('.'));
            let to_head = String::from_utf8(refusal.answer(&limits, 0, true)).unwrap();
            assert_eq!(to_head, format!("{head}\r\n\r\n"), "the same head, and nothing behind it");
        }
    }
}
