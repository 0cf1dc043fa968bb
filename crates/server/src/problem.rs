//! What a client is told when there is no answer: `application/problem+json` (RFC 9457). Causes inside stay inside.

use std::time::Duration;

use bytes::Bytes;
use hotrow_cache::key::KeyError;
use http::header::{ALLOW, CONNECTION, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderValue, Response, StatusCode};

use crate::admit::rate::TooMany;
use crate::admit::shed::{self, Parting};
use crate::body::Body;

/// Seconds after which a refused client may try again.
const RETRY_AFTER_S: HeaderValue = HeaderValue::from_static("1");

/// Why a request gets no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Problem {
    /// The path names nothing here.
    NoSuchPath,
    /// There is no such collection.
    NoSuchCollection,
    /// The id cannot be a key of the collection.
    BadId(KeyError),
    /// The batch is malformed.
    BadBatch(String),
    /// A header's value is malformed or not granted.
    BadHeader(&'static str),
    /// The body is malformed or did not arrive in full.
    BadBody(&'static str),
    /// Only these methods are allowed.
    Method(&'static str),
    /// The body is larger than `limits.body_bytes`.
    BodyTooLarge(usize),
    /// Too much work is waiting already.
    Overloaded(&'static str),
    /// The database cannot be read, or answers are older than allowed.
    Unavailable(&'static str),
    /// The database, or a position, did not come in time.
    Timeout(&'static str),
    /// This record has no JSON form.
    Unreadable,
    /// A rate limit refuses.
    TooManyRequests(Box<TooMany>),
    /// The database failed too often lately and is not asked before so many seconds have passed.
    LeftAlone {
        /// At least 1.
        retry_after_s: u32,
    },
    /// The process is past its means, and this request is among those that are refused first.
    Shed(Parting),
}

impl Problem {
    /// The status that the client gets.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        match self {
            Self::NoSuchPath | Self::NoSuchCollection => StatusCode::NOT_FOUND,
            Self::BadId(KeyError::TooLong) => StatusCode::BAD_REQUEST,
            Self::BadId(_) | Self::BadBatch(_) | Self::BadHeader(_) | Self::BadBody(_) => StatusCode::BAD_REQUEST,
            Self::Method(_) => StatusCode::METHOD_NOT_ALLOWED,
            Self::BodyTooLarge(_) => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Overloaded(_) | Self::Unavailable(_) => StatusCode::SERVICE_UNAVAILABLE,
            Self::LeftAlone { .. } | Self::Shed(_) => StatusCode::SERVICE_UNAVAILABLE,
            Self::Timeout(_) => StatusCode::GATEWAY_TIMEOUT,
            Self::Unreadable => StatusCode::INTERNAL_SERVER_ERROR,
            Self::TooManyRequests(_) => StatusCode::TOO_MANY_REQUESTS,
        }
    }

    fn title(&self) -> &'static str {
        match self {
            Self::NoSuchPath => "No such path",
            Self::NoSuchCollection => "No such collection",
            Self::BadId(_) => "Bad id",
            Self::BadBatch(_) => "Bad batch",
            Self::BadHeader(_) => "Bad header",
            Self::BadBody(_) => "Bad body",
            Self::Method(_) => "Method not allowed",
            Self::BodyTooLarge(_) => "Body too large",
            Self::Overloaded(_) => "Overloaded",
            Self::Unavailable(_) => "Not available",
            Self::Timeout(_) => "Timed out",
            Self::Unreadable => "Record not representable",
            Self::TooManyRequests(_) => "Too many requests",
            Self::LeftAlone { .. } => "Not available",
            Self::Shed(_) => "Overloaded",
        }
    }

    fn detail(&self) -> String {
        match self {
            Self::NoSuchPath => {
                "a path is /{collection}/{id} or /{collection}?ids=1,2,3; write a / within an id as %2F".into()
            }
            Self::NoSuchCollection => "this server serves no collection of that name".into(),
            Self::BadId(error) => error.to_string(),
            Self::BadBatch(detail) => detail.clone(),
            Self::BadHeader(detail)
            | Self::BadBody(detail)
            | Self::Overloaded(detail)
            | Self::Unavailable(detail)
            | Self::Timeout(detail) => (*detail).into(),
            Self::Method(allowed) => format!("allowed here: {allowed}"),
            Self::BodyTooLarge(max) => format!("a body may have at most {max} bytes"),
            Self::Unreadable => "the record exists and cannot be turned into JSON".into(),
            Self::TooManyRequests(why) => why.detail.clone(),
            Self::LeftAlone { .. } => "the database failed too often lately and is given time; see Retry-After".into(),
            // Its answer is prebuilt and does not come here.
            Self::Shed(_) => shed::DETAIL.into(),
        }
    }

    /// The whole answer.
    #[must_use]
    pub fn response(&self) -> Response<Body> {
        if let Self::Shed(parting) = self {
            return shed::response(*parting);
        }
        let status = self.status();
        let mut response = problem(status, self.title(), &self.detail());
        match self {
            Self::Method(allowed) => {
                response.headers_mut().insert(ALLOW, HeaderValue::from_static(allowed));
            }
            Self::Overloaded(_) | Self::Unavailable(_) => {
                response.headers_mut().insert(RETRY_AFTER, RETRY_AFTER_S);
            }
            Self::TooManyRequests(why) => why.add(response.headers_mut()),
            Self::LeftAlone { retry_after_s } => {
                response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(*retry_after_s));
            }
            // What is left of the body cannot be told from the next request: hyper closes, and the client should know.
            Self::BadBody(_) | Self::BodyTooLarge(_) => {
                response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
            }
            _ => {}
        }
        response
    }
}

/// Rounded up: who comes back as `Retry-After` says is not too early.
pub(crate) fn whole_seconds(time: Duration) -> u64 {
    time.as_secs().saturating_add(u64::from(time.subsec_nanos() > 0))
}

/// A problem document of the given words. `type` is `about:blank`: the status says it all (RFC 9457, section 4.2.1).
#[must_use]
pub(crate) fn problem(status: StatusCode, title: &str, detail: &str) -> Response<Body> {
    let document = serde_json::json!({
        "type": "about:blank", "title": title, "status": status.as_u16(), "detail": detail,
    });
    let mut response = Response::new(Body::Bytes(Bytes::from(document.to_string())));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
    response
}
