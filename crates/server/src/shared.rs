//! State shared by all workers: the cache, the source, the collections and the limits.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use hotrow_cache::Cache;
use hotrow_measure::clock::Nanos;
use hotrow_source::{ReadFailure, Source};
use hotrow_types::key::{CollectionId, KeySchema};
use http::HeaderValue;
use tokio::sync::Notify;

use crate::admission::breaker::SourceBreaker;
use crate::admission::concurrency::ConcurrencyLimiter;
use crate::admission::deadline;
use crate::admission::rate::RateLimits;
use crate::admission::shed::LoadShedder;
use crate::budgets::{self, Budgets};
use crate::config::{Concurrency, Config, Limits};
use crate::consistency_check::ConsistencyCheck;
use crate::context::RequestContext;
use crate::http_error::HttpError;
use crate::lookups::Calendar;
use crate::refresh::Refresh;
use crate::route::Router;
use crate::scan_detector::BaselineHitRatio;

/// A collection, ready to serve.
#[derive(Debug)]
pub struct Collection {
    /// First path segment.
    pub name: String,
    /// Schema of its keys.
    pub schema: KeySchema,
    /// `Cache-Control` of answers.
    pub cache_control: HeaderValue,
    /// See the configuration.
    pub allow_no_cache: bool,
    /// See the configuration.
    pub allow_min_position: bool,
    /// See the configuration.
    pub priority: hotrow_admission::shed::Priority,
    /// See the configuration.
    pub allow_high_priority: bool,
}

/// Shared by all workers and the admin side.
pub struct Shared {
    /// The cache.
    pub cache: Arc<Cache<ReadFailure>>,
    /// The database.
    pub source: Arc<dyn Source>,
    /// Maps names to collections.
    pub router: Router,
    /// In the order of their numbers.
    pub collections: Vec<Collection>,
    /// Limits in force.
    pub limits: Limits,
    /// Concurrency limit of the source, as configured.
    pub concurrency: Concurrency,
    /// Limiter that each query passes on its way to the source.
    pub(crate) limiter: ConcurrencyLimiter,
    /// Maps clock readings to days.
    pub calendar: Calendar,
    /// Notified whenever the feed progresses.
    pub feed_moved: Notify,
    /// Changed hot records that wait to be read again.
    pub(crate) refresh: Refresh,
    /// Check of answers against the database.
    pub(crate) consistency_check: ConsistencyCheck,
    /// Circuit breaker of the database.
    pub(crate) breaker: SourceBreaker,
    /// Refusals under load.
    pub(crate) load_shedder: LoadShedder,
    /// Hit ratio of ordinary clients.
    pub(crate) baseline_hit_ratio: BaselineHitRatio,
    /// Requests waiting for the database or the feed.
    pub waiting: Gauge,
    /// Those of them with `no-cache` or `Hotrow-Min-Position`.
    pub privileged: Gauge,
    /// Memory of answers, bodies and rows.
    pub(crate) budgets: Budgets,
    /// Rate limits of clients.
    pub(crate) rate: RateLimits,
}

impl Shared {
    /// Creates the state. `schemas` are in the order of the configuration's collections.
    ///
    /// # Errors
    /// If a configured `cache_control` is not a valid header value.
    pub fn new(
        config: &Config,
        cache: Arc<Cache<ReadFailure>>,
        source: Arc<dyn Source>,
        calendar: Calendar,
    ) -> Result<Arc<Self>, http::header::InvalidHeaderValue> {
        let mut collections = Vec::with_capacity(config.collections.len());
        for (collection, schema) in config.collections.iter().zip(source.schemas()) {
            collections.push(Collection {
                name: collection.name.clone(),
                schema: schema.clone(),
                cache_control: HeaderValue::from_str(&collection.cache_control)?,
                allow_no_cache: collection.allow_no_cache,
                allow_min_position: collection.allow_min_position,
                priority: collection.priority,
                allow_high_priority: collection.allow_high_priority,
            });
        }
        let router = Router::new(collections.iter().map(|c| c.name.as_str()), cache.config().seed);
        let limits = config.limits.clone();
        let rate =
            RateLimits::new(&config.rate, &collections, calendar.wall_lead_ns(), Nanos::now());
        let waiting = Gauge::new(limits.requests_in_flight);
        let privileged = Gauge::new(limits.privileged_waiters);
        let own = cache.config();
        let memory =
            budgets::memory_limits(config, if own.enabled { own.capacity_bytes } else { 0 });
        let row_bytes = own.entry_bytes_estimate;
        let reads = own.reads_in_flight;
        let budgets = Budgets::new(&limits.bytes, &memory, reads, row_bytes, collections.len());
        let concurrency = config.concurrency;
        let limit = hotrow_admission::concurrency::limit::Config {
            kind: concurrency.kind,
            max: cache.config().reads_in_flight,
            tolerance: concurrency.tolerance,
            probe_interval: concurrency.probe_interval,
        };
        Ok(Arc::new(Self {
            concurrency,
            limiter: ConcurrencyLimiter::new(limit, config.collections.len()),
            cache,
            source,
            router,
            collections,
            limits,
            calendar,
            feed_moved: Notify::new(),
            refresh: Refresh::new(config.collections.len()),
            consistency_check: ConsistencyCheck::default(),
            breaker: SourceBreaker::new(config.breaker.clone()),
            load_shedder: LoadShedder::new(config.shed.clone()),
            baseline_hit_ratio: BaselineHitRatio::default(),
            waiting,
            privileged,
            budgets,
            rate,
        }))
    }

    /// Returns the deadline of a request with these times.
    ///
    /// # Errors
    /// 400 for a malformed `Hotrow-Deadline-Ms`.
    pub(crate) fn deadline(&self, request: &RequestContext<'_>) -> Result<Nanos, HttpError> {
        let timeout = self.limits.request_timeout;
        if self.concurrency.deadline_header {
            deadline::of(request.headers, timeout, request.times)
        } else {
            Ok(request.times.complete.after(timeout))
        }
    }

    /// Returns the collection of that number.
    #[must_use]
    pub fn collection(&self, CollectionId(id): CollectionId) -> &Collection {
        &self.collections[usize::from(id)]
    }
}

/// Bounded count of waiting requests. Written only by requests that wait anyway, never by a hit; on
/// cache lines of its own, so that it does not take a line from neighbours that hits read.
#[derive(Debug)]
#[repr(align(128))]
pub struct Gauge {
    now: AtomicUsize,
    max: usize,
    refused: AtomicU64,
}

impl Gauge {
    fn new(max: usize) -> Self {
        Self { now: AtomicUsize::new(0), max, refused: AtomicU64::new(0) }
    }

    /// Returns how many wait now.
    #[must_use]
    pub fn get(&self) -> usize {
        self.now.load(Ordering::Relaxed)
    }

    /// Returns how many were refused since the start.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    fn enter(&self) -> bool {
        let before = self.now.fetch_add(1, Ordering::Relaxed);
        if before >= self.max {
            self.now.fetch_sub(1, Ordering::Relaxed);
            self.refused.fetch_add(1, Ordering::Relaxed);
        }
        before < self.max
    }
}

/// A waiting request's place in the count; returned when dropped.
pub struct InflightGuard {
    shared: Arc<Shared>,
    privileged: bool,
}

impl InflightGuard {
    /// Takes a place, and a privileged one too if the request bypasses memory.
    ///
    /// # Errors
    /// [`HttpError::Overloaded`] when all are taken.
    pub fn take(shared: &Arc<Shared>, privileged: bool) -> Result<Self, HttpError> {
        if !shared.waiting.enter() {
            return Err(HttpError::Overloaded("too many requests are waiting for the database"));
        }
        let mut place = Self { shared: shared.clone(), privileged: false };
        if privileged {
            place.privileged = shared.privileged.enter();
            if !place.privileged {
                return Err(HttpError::Overloaded(
                    "too many requests with no-cache or Hotrow-Min-Position are waiting",
                ));
            }
        }
        Ok(place)
    }
}

impl Drop for InflightGuard {
    fn drop(&mut self) {
        self.shared.waiting.now.fetch_sub(1, Ordering::Relaxed);
        if self.privileged {
            self.shared.privileged.now.fetch_sub(1, Ordering::Relaxed);
        }
    }
}
