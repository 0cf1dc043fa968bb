//! Error answers: `application/problem+json` (RFC 9457). Internal causes are not shown.
//!
//! A failed read passes through three types: `SourceError` (what the engine reports; the log gets
//! its text), `LookupError` (why the lookup has no record) and [`HttpError`].
//!
//! Reference `http`: # HTTP
//!
//! Statuses of errors and what to do: [errors](reference/errors.md).

use bytes::Bytes;
use hotrow_cache::LookupError;
use hotrow_source::ReadFailure;
use hotrow_types::key::KeyError;
use http::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderValue, Response, StatusCode};

use crate::body::Body;
use crate::credential::Denial;
use crate::error_type::ErrorType;
use crate::rate_fields::TooMany;
use crate::shed::{self, ConnectionDisposition};

/// Seconds after which a refused client may try again.
const RETRY_AFTER_S: HeaderValue = HeaderValue::from_static("1");

const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");

/// Reason for which a request gets no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HttpError {
    /// The path does not exist.
    NoSuchPath,
    /// The path does not exist, and another one is probably meant.
    WrongPath(String),
    /// The path is one of the other address of this process.
    OtherAddress {
        /// `admin` or `data`.
        name: &'static str,
        /// Its port.
        port: u16,
    },
    /// The collection does not exist.
    NoSuchCollection,
    /// The changes of the collection cannot be followed.
    NotFollowed,
    /// The client follows as many collections as it may.
    TooManyFollowers,
    /// The id cannot be a key of the collection.
    BadId(KeyError),
    /// The batch is malformed.
    BadBatch(String),
    /// The selection of fields is malformed or not permitted.
    BadFields(String),
    /// The query has a parameter that the path does not know.
    UnknownParameter(String),
    /// A header's value is malformed or not permitted.
    BadHeader(&'static str),
    /// The body is malformed or did not arrive in full.
    BadBody(&'static str),
    /// The request's `If-Match` does not hold.
    PreconditionFailed(&'static str),
    /// The request is not permitted. The text is sent in full and contains only what the client
    /// itself sent.
    Forbidden(String),
    /// The request has no credential, or one that is refused.
    Unauthorized(Denial),
    /// The credential is good, and its roles lack a grant.
    NotGranted(&'static str),
    /// The client sent too many refused credentials and has to wait for a number of seconds.
    TooManyFailures {
        /// At least 1.
        retry_after_s: u64,
    },
    /// Only these methods are allowed.
    Method(&'static str),
    /// The body is larger than `limits.body_bytes`.
    BodyTooLarge(usize),
    /// There is no room for the body beside those of other requests.
    NoBodyRoom,
    /// The answer exceeds the limit on one answer.
    AnswerTooLarge {
        /// Known lower bound of its bytes.
        bytes: u64,
        /// Most bytes of an answer.
        limit_bytes: u64,
        /// Number of requested ids.
        ids: usize,
    },
    /// Too much work is queued.
    Overloaded(&'static str),
    /// The database cannot be read, or answers are older than allowed.
    Unavailable(&'static str),
    /// The database, or a position, was not available in time.
    Timeout(&'static str),
    /// This record has no JSON form.
    Unreadable,
    /// A rate limit refuses the request.
    TooManyRequests(Box<TooMany>),
    /// The database has failed too often and is paused for a number of seconds.
    CircuitOpen {
        /// At least 1.
        retry_after_s: u32,
    },
    /// The process is overloaded, and this request is among the first to be refused.
    Shed(ConnectionDisposition),
}

impl HttpError {
    /// Returns the status of the answer.
    pub fn status(&self) -> StatusCode {
        self.error_type().status()
    }

    /// Returns what kind of error it is.
    pub fn error_type(&self) -> ErrorType {
        match self {
            Self::NoSuchPath | Self::WrongPath(_) | Self::OtherAddress { .. } => {
                ErrorType::NoSuchPath
            }
            Self::NoSuchCollection => ErrorType::NoSuchCollection,
            Self::NotFollowed => ErrorType::NotFollowed,
            Self::BadId(_) => ErrorType::BadId,
            Self::BadBatch(_) => ErrorType::BadBatch,
            Self::BadFields(_) => ErrorType::BadFields,
            Self::BadHeader(_) => ErrorType::BadHeader,
            Self::BadBody(_) => ErrorType::BadBody,
            Self::UnknownParameter(_) => ErrorType::UnknownParameter,
            Self::PreconditionFailed(_) => ErrorType::PreconditionFailed,
            Self::Forbidden(_) | Self::NotGranted(_) => ErrorType::Forbidden,
            Self::Unauthorized(_) => ErrorType::Unauthorized,
            Self::Method(_) => ErrorType::MethodNotAllowed,
            Self::BodyTooLarge(_) => ErrorType::ContentTooLarge,
            Self::AnswerTooLarge { .. } => ErrorType::AnswerTooLarge,
            Self::NoBodyRoom | Self::Overloaded(_) | Self::Shed(_) => ErrorType::Overloaded,
            Self::Unavailable(_) | Self::CircuitOpen { .. } => ErrorType::NotAvailable,
            Self::Timeout(_) => ErrorType::TimedOut,
            Self::Unreadable => ErrorType::Unreadable,
            Self::TooManyRequests(_) | Self::TooManyFailures { .. } | Self::TooManyFollowers => {
                ErrorType::TooManyRequests
            }
        }
    }

    /// Returns what the client reads about this case.
    pub fn detail(&self) -> String {
        match self {
            Self::NoSuchPath => {
                "a path is /{collection}/{id} or /{collection}?ids=1,2,3; write a / within an id \
                 as %2F"
                    .into()
            }
            Self::OtherAddress { name, port } => {
                format!("this path is one of the {name} address, port {port}")
            }
            Self::NoSuchCollection => {
                "this server serves no collection of that name; GET / lists those it serves".into()
            }
            Self::NotFollowed => {
                "the changes of this collection cannot be followed (collections.NAME.changes)"
                    .into()
            }
            Self::TooManyFollowers => {
                "this client follows as many times as it may (follow.followers_per_client); end \
                 another connection first"
                    .into()
            }
            Self::BadId(error) => error.to_string(),
            Self::BadBatch(detail)
            | Self::BadFields(detail)
            | Self::WrongPath(detail)
            | Self::UnknownParameter(detail)
            | Self::Forbidden(detail) => detail.clone(),
            Self::BadHeader(detail)
            | Self::BadBody(detail)
            | Self::PreconditionFailed(detail)
            | Self::NotGranted(detail)
            | Self::Overloaded(detail)
            | Self::Unavailable(detail)
            | Self::Timeout(detail) => (*detail).into(),
            Self::Method(allowed) => format!("allowed here: {allowed}"),
            Self::AnswerTooLarge { bytes, limit_bytes, ids: 1 } => format!(
                "the record has {bytes} bytes as JSON; an answer may have at most {limit_bytes} \
                 (limits.answer_bytes)"
            ),
            Self::AnswerTooLarge { bytes, limit_bytes, ids } => format!(
                "the answer to these {ids} ids has at least {bytes} bytes, and an answer may have \
                 at most {limit_bytes} (limits.answer_bytes); ask for fewer ids"
            ),
            Self::NoBodyRoom => {
                "bodies of other requests hold as many bytes as this server allows \
                 (limits.bodies_bytes_total); try again later"
                    .into()
            }
            Self::BodyTooLarge(max) => format!("a body may have at most {max} bytes"),
            Self::Unreadable => {
                "the record cannot be read from the database, or has no JSON form; the log has the \
                 cause"
                    .into()
            }
            Self::TooManyRequests(why) => why.detail.clone(),
            Self::Unauthorized(denial) => denial.to_string(),
            Self::TooManyFailures { .. } => {
                "this client sent too many credentials that were refused; see Retry-After".into()
            }
            Self::CircuitOpen { .. } => {
                "the database failed too often recently, and reads are paused; see \
                 Retry-After"
                    .into()
            }
            // Its answer is prebuilt and never built here.
            Self::Shed(_) => shed::DETAIL.into(),
        }
    }

    /// Returns the whole answer.
    pub fn response(&self) -> Response<Body> {
        if let Self::Shed(disposition) = self {
            return shed::response(*disposition);
        }
        let status = self.status();
        let mut response = problem(status, self.error_type(), &self.detail());
        match self {
            Self::Method(allowed) => {
                response.headers_mut().insert(ALLOW, HeaderValue::from_static(allowed));
            }
            Self::Overloaded(_)
            | Self::Unavailable(_)
            | Self::NoBodyRoom
            | Self::TooManyFollowers => {
                response.headers_mut().insert(RETRY_AFTER, RETRY_AFTER_S);
            }
            Self::TooManyRequests(why) => why.add(response.headers_mut()),
            Self::CircuitOpen { retry_after_s } => {
                response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(*retry_after_s));
            }
            Self::Unauthorized(denial) => {
                response.headers_mut().insert(WWW_AUTHENTICATE, denial.challenge());
                response.headers_mut().insert(CACHE_CONTROL, NO_STORE);
            }
            Self::NotGranted(_) => {
                response.headers_mut().insert(CACHE_CONTROL, NO_STORE);
            }
            Self::TooManyFailures { retry_after_s } => {
                response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(*retry_after_s));
            }
            _ => {}
        }
        response
    }
}

impl From<&LookupError<ReadFailure>> for HttpError {
    fn from(error: &LookupError<ReadFailure>) -> Self {
        match error {
            LookupError::QueueFull => Self::Overloaded("too many ids are waiting for the database"),
            LookupError::TooLate => {
                Self::Overloaded("the database cannot answer before the deadline of this request")
            }
            LookupError::Behind => Self::Unavailable(
                "changes cannot be followed now, and stale answers are not allowed",
            ),
            LookupError::Overdue => Self::Overloaded(
                "the database is behind, and this read was dropped in favour of newer ones",
            ),
            LookupError::Abandoned => Self::Unavailable("the read was cancelled"),
            LookupError::Source(ReadFailure::Unavailable) => {
                Self::Unavailable("the database is not available")
            }
            LookupError::Source(ReadFailure::Timeout) => {
                Self::Timeout("the database did not answer in time")
            }
            LookupError::Source(ReadFailure::Broken) => {
                Self::Unavailable("this collection cannot be read now")
            }
            LookupError::Source(ReadFailure::Unreadable) => Self::Unreadable,
            LookupError::Source(ReadFailure::NoRoom) => Self::Overloaded(
                "rows in transit hold as many bytes as this server allows \
                 (limits.rows_bytes_total); try again later",
            ),
            LookupError::Source(ReadFailure::CircuitOpen { retry_after_s }) => {
                Self::CircuitOpen { retry_after_s: *retry_after_s }
            }
        }
    }
}

/// Returns a problem document.
pub fn problem(status: StatusCode, of: ErrorType, detail: &str) -> Response<Body> {
    let document = serde_json::json!({
        "type": of.link(), "title": of.title(), "status": status.as_u16(), "detail": detail,
    });
    let mut response = Response::new(Body::Bytes(Bytes::from(document.to_string())));
    *response.status_mut() = status;
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
    response
}
