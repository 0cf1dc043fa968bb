//! An answer before it is written.

use hotrow_measure::clock::Nanos;
use hotrow_telemetry::outcome::CacheOutcome;
use hotrow_telemetry::server_timing::ReadAt;
use http::Response;

use crate::body::{Body, EndlessBody};
use crate::http_error::HttpError;
use crate::rate_fields::Fields as RateLimitFields;
use crate::record_answer::{AbsentAnswer, RecordAnswer};
use crate::render::BatchParts;
use crate::respond::MISSING;

/// An answer and its outcome for the metrics.
pub type Outcome = (Answer, CacheOutcome);

/// An answer before it is written.
#[derive(Debug)]
pub enum Answer {
    /// A record of usual size, or none: most answers.
    Record(RecordAnswer),
    /// No record, in a collection whose records belong to tenants.
    Absent(AbsentAnswer),
    /// The records of a batch, for a client that does not speak HTTP.
    Items(Box<BatchParts>),
    /// A refusal, which each protocol writes in its own form.
    Refused(Refusal),
    /// An answer that only HTTP has.
    Http(Box<Response<Body>>),
}

/// Why a request gets no record.
#[derive(Debug)]
pub struct Refusal {
    /// The reason.
    pub error: HttpError,
    /// Header fields of the rate limits, if they are configured.
    rate_limit: Option<Box<RateLimitFields>>,
}

impl Refusal {
    /// Returns it as an answer over HTTP.
    pub fn response(&self) -> Response<Body> {
        let mut response = self.error.response();
        self.rate_limit.iter().for_each(|fields| fields.add(response.headers_mut()));
        response
    }
}

impl From<Response<Body>> for Answer {
    fn from(response: Response<Body>) -> Self {
        Self::Http(Box::new(response))
    }
}

impl Answer {
    /// Returns the outcome of a request that is refused.
    pub fn refused(error: HttpError) -> Outcome {
        (Self::Refused(Refusal { error, rate_limit: None }), CacheOutcome::None)
    }

    /// Returns the status.
    pub fn status(&self) -> u16 {
        match self {
            Self::Record(answer) => answer.status(),
            Self::Absent(_) => 404,
            Self::Items(_) => 200,
            Self::Refused(refusal) => refusal.error.status().as_u16(),
            Self::Http(response) => response.status().as_u16(),
        }
    }

    /// Returns the time at which its record was read, or the last of its records.
    pub fn read_at(&self) -> Option<Nanos> {
        match self {
            Self::Record(answer) => Some(answer.form.record().read_at()),
            Self::Absent(_) | Self::Items(_) | Self::Refused(_) => None,
            Self::Http(response) => response.extensions().get().map(|ReadAt(at)| *at),
        }
    }

    /// Returns the bytes of its body, for a request that is not HEAD.
    pub fn body_bytes(&self) -> u64 {
        match self {
            Self::Record(answer) => match answer.status() {
                304 => 0,
                404 => MISSING.len() as u64,
                _ => answer.body_bytes(),
            },
            Self::Absent(_) => MISSING.len() as u64,
            Self::Items(parts) => parts.body_bytes(),
            Self::Refused(refusal) => refusal.response().body().len() as u64,
            Self::Http(response) => response.body().len() as u64,
        }
    }

    /// Returns the body of an answer that has no end yet.
    pub fn endless_body(&mut self) -> Option<&mut dyn EndlessBody> {
        match self {
            Self::Http(response) => match response.body_mut() {
                Body::Endless(body) => Some(&mut **body),
                _ => None,
            },
            _ => None,
        }
    }

    /// Adds the header fields of the rate limits.
    pub fn add_rate_limit(&mut self, fields: RateLimitFields) {
        match self {
            Self::Record(answer) => answer.rate_limit = Some(Box::new(fields)),
            Self::Absent(answer) => answer.rate_limit = Some(Box::new(fields)),
            // It has no place for them.
            Self::Items(_) => {}
            Self::Refused(refusal) => refusal.rate_limit = Some(Box::new(fields)),
            Self::Http(response) => fields.add(response.headers_mut()),
        }
    }
}
