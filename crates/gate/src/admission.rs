//! Adapters between requests and answers and the decisions of `hotrow_admission`.

use std::sync::Arc;
use std::time::Duration;

use hotrow_access::caller::Peer;
use hotrow_answer::context::ReadRequest;
use hotrow_answer::http_error::HttpError;
use hotrow_answer::shed::LoadShedder;
use hotrow_http1::fields::Fields;
use hotrow_measure::clock::Nanos;
use hotrow_types::key::CollectionId;

pub use self::inflight::InflightGuard;
use self::inflight::InflightLimits;
use self::rate::RateLimits;

pub mod breaker;
pub mod concurrency;
pub(crate) mod deadline;
pub mod inflight;
pub mod priority;
pub mod rate;

/// Protection against too many requests. What protects the database is in
/// [`crate::read::Fetcher`].
pub struct Admission {
    /// Rate limits of clients.
    pub rate: RateLimits,
    /// Refusals under load, by collection: each has those of its source.
    pub load_shedders: Box<[Arc<LoadShedder>]>,
    /// `true`: `Hotrow-Priority` counts.
    pub priority_header: bool,
    /// Bounds on waiting requests.
    pub inflight: Arc<InflightLimits>,
    /// `limits.request_timeout`.
    pub request_timeout: Duration,
    /// `true`: `Hotrow-Deadline-Ms` counts.
    pub deadline_header: bool,
}

impl Admission {
    /// Returns the refusals under load of a collection's requests.
    #[inline]
    pub fn load_shedder(&self, CollectionId(id): CollectionId) -> &LoadShedder {
        &self.load_shedders[usize::from(id)]
    }

    /// Returns the client of a connection, which a trusted proxy may name.
    pub fn client(&self, peer: Peer, headers: Fields<'_>) -> Peer {
        self.rate.clients().client(peer, headers)
    }

    /// Returns the deadline of a request.
    ///
    /// # Errors
    /// 400 for a malformed `Hotrow-Deadline-Ms`.
    pub fn deadline(&self, request: &ReadRequest<'_>) -> Result<Nanos, HttpError> {
        if self.deadline_header {
            deadline::of(request.headers, self.request_timeout, request.times)
        } else {
            Ok(request.times.complete.after(self.request_timeout))
        }
    }

    /// Returns the deadline of a request that bypasses memory, and its place among those that wait.
    ///
    /// # Errors
    /// See [`Admission::deadline`] and [`InflightLimits::enter`].
    pub fn admit_privileged(
        &self,
        request: &ReadRequest<'_>,
    ) -> Result<(Nanos, InflightGuard), HttpError> {
        Ok((self.deadline(request)?, self.inflight.enter(true)?))
    }
}
