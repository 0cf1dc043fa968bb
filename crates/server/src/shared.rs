//! What all workers share: the cache, the source, the collections and the limits.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use hotrow_cache::Cache;
use hotrow_cache::key::{CollectionId, KeySchema};
use hotrow_measure::clock::Nanos;
use hotrow_source::Source;
use http::{HeaderMap, HeaderValue};
use tokio::sync::Notify;

use crate::admit::breaker::SourceBreaker;
use crate::admit::concurrency::Gate;
use crate::admit::deadline::{self, Moments};
use crate::admit::rate::RateLimits;
use crate::admit::shed::Shedding;
use crate::config::{Concurrency, Config, Limits};
use crate::habits::Usual;
use crate::lookups::Calendar;
use crate::problem::Problem;
use crate::refresh::Refresh;
use crate::route::Router;
use crate::sampling::Sampling;
use crate::trouble::Trouble;

/// One collection, ready to serve.
#[derive(Debug)]
pub struct Collection {
    /// First path segment.
    pub name: String,
    /// Maker of keys.
    pub schema: KeySchema,
    /// `Cache-Control` of answers.
    pub cache_control: HeaderValue,
    /// See the configuration.
    pub allow_no_cache: bool,
    /// See the configuration.
    pub allow_min_position: bool,
    /// See the configuration.
    pub priority: hotrow_admit::shed::Priority,
    /// See the configuration.
    pub allow_high_priority: bool,
}

/// Shared by all workers and the admin side.
pub struct Shared {
    /// Records and decisions.
    pub cache: Arc<Cache<Trouble>>,
    /// Where records come from.
    pub source: Arc<dyn Source>,
    /// Names to numbers.
    pub router: Router,
    /// In the order of their numbers.
    pub collections: Vec<Collection>,
    /// Limits in force.
    pub limits: Limits,
    /// How many queries the source gets at once, as configured.
    pub concurrency: Concurrency,
    /// What each query passes on its way to the source.
    pub(crate) gate: Gate,
    /// Tells the day of a clock reading.
    pub calendar: Calendar,
    /// Told whenever the feed has come further.
    pub feed_moved: Notify,
    /// Hot records that changed and wait to be read again.
    pub(crate) refresh: Refresh,
    /// Answers that are checked against the database.
    pub(crate) sampling: Sampling,
    /// Whether the database is asked at all.
    pub(crate) breaker: SourceBreaker,
    /// What is refused when the process is past its means.
    pub(crate) shedding: Shedding,
    /// What clients usually find in memory.
    pub(crate) usual: Usual,
    /// Requests that wait for the database or the feed.
    pub waiting: Gauge,
    /// Those of them with `no-cache` or `Hotrow-Min-Position`.
    pub privileged: Gauge,
    /// How often clients may ask.
    pub(crate) rate: RateLimits,
}

impl Shared {
    /// Puts the parts together. `schemas` are in the order of the configuration's collections.
    ///
    /// # Errors
    /// When a configured `cache_control` is no header value.
    pub fn new(
        config: &Config,
        cache: Arc<Cache<Trouble>>,
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
        let rate = RateLimits::new(&config.rate, &collections, calendar.wall_lead_ns(), Nanos::now());
        let (waiting, privileged) = (Gauge::new(limits.requests_in_flight), Gauge::new(limits.privileged_waiters));
        let concurrency = config.concurrency;
        let limit = hotrow_admit::concurrency::limit::Config {
            kind: concurrency.kind,
            max: cache.config().reads_in_flight,
            tolerance: concurrency.tolerance,
            probe_interval: concurrency.probe_interval,
        };
        Ok(Arc::new(Self {
            concurrency,
            gate: Gate::new(limit, config.collections.len()),
            cache,
            source,
            router,
            collections,
            limits,
            calendar,
            feed_moved: Notify::new(),
            refresh: Refresh::new(config.collections.len()),
            sampling: Sampling::default(),
            breaker: SourceBreaker::new(config.breaker.clone()),
            shedding: Shedding::new(config.shed.clone()),
            usual: Usual::default(),
            waiting,
            privileged,
            rate,
        }))
    }

    /// Until when an answer to a request of these moments is of use.
    ///
    /// # Errors
    /// 400 for a malformed `Hotrow-Deadline-Ms`.
    pub(crate) fn deadline(&self, asked: &HeaderMap, at: Moments) -> Result<Nanos, Problem> {
        let timeout = self.limits.request_timeout;
        let honoured = self.concurrency.deadline_header;
        if honoured { deadline::of(asked, timeout, at) } else { Ok(at.complete.after(timeout)) }
    }

    /// The collection of that number.
    #[must_use]
    pub fn collection(&self, CollectionId(id): CollectionId) -> &Collection {
        &self.collections[usize::from(id)]
    }
}

/// A bounded count of those who wait. Touched only by requests that have to wait anyway, never by a hit; and on cache lines of its own,
/// so that they do not take a line from the hits that they stand beside.
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

    /// How many wait now.
    #[must_use]
    pub fn get(&self) -> usize {
        self.now.load(Ordering::Relaxed)
    }

    /// How many were refused since the start.
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

/// A place among those who wait; given back when dropped.
pub struct Place {
    shared: Arc<Shared>,
    privileged: bool,
}

impl Place {
    /// Takes a place, a privileged one too where the request reads the database at will.
    ///
    /// # Errors
    /// [`Problem::Overloaded`] when all are taken.
    pub fn take(shared: &Arc<Shared>, privileged: bool) -> Result<Self, Problem> {
        if !shared.waiting.enter() {
            return Err(Problem::Overloaded("too many requests wait for the database"));
        }
        let mut place = Self { shared: shared.clone(), privileged: false };
        if privileged {
            place.privileged = shared.privileged.enter();
            if !place.privileged {
                return Err(Problem::Overloaded("too many requests with no-cache or Hotrow-Min-Position wait"));
            }
        }
        Ok(place)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.shared.waiting.now.fetch_sub(1, Ordering::Relaxed);
        if self.privileged {
            self.shared.privileged.now.fetch_sub(1, Ordering::Relaxed);
        }
    }
}
