//! An answer before it is written.

use http::Response;

use crate::admission::rate::Fields as RateLimitFields;
use crate::body::Body;
use crate::metrics::CacheOutcome;
use crate::record_answer::RecordAnswer;
use crate::sight::AbsentAnswer;

/// An answer and its outcome for the metrics.
pub(crate) type Outcome = (Answer, CacheOutcome);

/// An answer before it is written.
#[derive(Debug)]
pub enum Answer {
    /// A record of usual size, or none: most answers.
    Record(RecordAnswer),
    /// No record, in a collection whose records belong to tenants.
    Absent(AbsentAnswer),
    /// Any other.
    Http(Box<Response<Body>>),
}

impl From<Response<Body>> for Answer {
    fn from(response: Response<Body>) -> Self {
        Self::Http(Box::new(response))
    }
}

impl Answer {
    /// Returns the status.
    pub(crate) fn status(&self) -> u16 {
        match self {
            Self::Record(answer) => answer.status(),
            Self::Absent(_) => 404,
            Self::Http(response) => response.status().as_u16(),
        }
    }

    /// Adds the header fields of the rate limits.
    pub(crate) fn add_rate_limit(&mut self, fields: RateLimitFields) {
        match self {
            Self::Record(answer) => answer.rate_limit = Some(Box::new(fields)),
            Self::Absent(answer) => answer.rate_limit = Some(Box::new(fields)),
            Self::Http(response) => fields.add(response.headers_mut()),
        }
    }
}
