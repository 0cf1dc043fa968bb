//! Parts of the service that several threads share, put together. A function takes the part that
//! it needs; only handlers of requests and the admin side have all of them.

use std::borrow::Cow;
use std::sync::{Arc, OnceLock};

use crate::consistency_check::ConsistencyCheck;
use hotrow_admission::concurrency::limit;
use hotrow_answer::budgets::{self, Budgets};
use hotrow_answer::collections::{Collection, Collections};
use hotrow_answer::cors::Cors;
use hotrow_answer::http_error::HttpError;
use hotrow_answer::scan_detector::BaselineHitRatio;
use hotrow_answer::shed::LoadShedder;
use hotrow_cache::Cache;
use hotrow_changes::follow::Follows;
use hotrow_changes::purge::Purger;
use hotrow_changes::sink::CacheSink;
use hotrow_changes::tracking::Tracking;
use hotrow_gate::access::Access;
use hotrow_gate::admission::Admission;
use hotrow_gate::admission::breaker::SourceBreaker;
use hotrow_gate::admission::concurrency::ConcurrencyLimiter;
use hotrow_gate::admission::inflight::InflightLimits;
use hotrow_gate::admission::rate::{self, RateLimits};
use hotrow_gate::breaker_probe::thread_name;
use hotrow_gate::cache_in_force::CacheInForce;
use hotrow_gate::feed_counts::FeedCounts;
use hotrow_gate::read::{Fetcher, SourceReads};
use hotrow_gate::refresh::Refresh;
use hotrow_gate::standby::StandbyReads;
use hotrow_gate::warm_start::WarmProgress;
use hotrow_measure::clock::Nanos;
use hotrow_representation::compression::Compressor;
use hotrow_source::looks::Looks;
use hotrow_source::sources::Sources;
use hotrow_source::{ReadFailure, Source};
use hotrow_telemetry::access_log::AccessLog;
use hotrow_telemetry::lookups::Calendar;
use hotrow_telemetry::miss_ratio_curve::MissRatioCurve;
use hotrow_telemetry::query_log::QueryLog;
use hotrow_telemetry::traces::Tracer;
use hotrow_types::source::SourceId;
use http::header::InvalidHeaderValue;

use hotrow_config::{self as config, Config, Limits};
use hotrow_openapi::ApiDescription;

/// First segments of the paths of the admin address.
pub const ADMIN_PATHS: [&str; 10] = [
    "healthz",
    "history",
    "hot-keys",
    "limits",
    "metrics",
    "openapi.json",
    "purge",
    "readyz",
    "reload",
    "status",
];

/// All shared parts. A clone shares them too.
#[derive(Clone)]
pub struct Shared {
    /// The served collections.
    pub collections: Arc<Collections>,
    /// The cache.
    pub cache: Arc<Cache<ReadFailure>>,
    /// Reads of the databases.
    pub fetcher: Arc<Fetcher>,
    /// The databases.
    pub(crate) sources: Sources,
    /// Followers of changes; `None`: no collection may be followed.
    pub follows: Option<Arc<Follows>>,
    /// Clients that keep copies; `None`: there is no Redis protocol.
    pub tracking: Option<Arc<Tracking>>,
    /// Purges of caches in front; `None`: there are none.
    pub purger: Option<Arc<Purger>>,
    /// Changed hot records that wait to be read again.
    pub refresh: Arc<Refresh>,
    /// Credentials and grants; `None`: every request is allowed.
    pub access: Option<Arc<Access>>,
    /// Variants to make.
    pub compressor: Arc<Compressor>,
    /// Description of the API.
    pub description: Arc<ApiDescription>,
    /// Origins of foreign pages; `None`: none may read answers.
    pub(crate) cors: Option<Arc<Cors>>,
    /// Protection against too many requests.
    pub admission: Arc<Admission>,
    /// Memory of answers, bodies and rows.
    pub budgets: Arc<Budgets>,
    /// Hit ratio of ordinary clients.
    pub(crate) baseline_hit_ratio: Arc<BaselineHitRatio>,
    /// Check of answers against the database.
    pub consistency_check: Arc<ConsistencyCheck>,
    /// Limits in force.
    pub limits: Arc<Limits>,
    /// Progress of the warm start, if one is configured.
    pub warm_start: Option<Arc<WarmProgress>>,
    /// Whether answers have `Server-Timing`.
    pub(crate) has_server_timing: bool,
    /// Whether the Redis protocol gives answers that HTTP would mark as stale.
    pub redis_allows_stale: bool,
    /// Parameters of a query that no path knows are ignored.
    pub(crate) ignores_unknown_parameters: bool,
    /// Ports of the data and the admin address, once they are taken.
    pub ports: Arc<OnceLock<(u16, u16)>>,
    /// Access log, if one is configured.
    pub access_log: Option<Arc<AccessLog>>,
    /// Hit ratio at other capacities.
    pub miss_ratio_curve: Arc<MissRatioCurve>,
    /// Maps clock readings to days.
    pub calendar: Calendar,
}

impl Shared {
    /// Creates the parts. `sources` are those of the configuration, in the same order.
    ///
    /// # Errors
    /// If a configured `cache_control` is not a valid header value.
    pub fn new(
        config: &Config,
        cache: Arc<Cache<ReadFailure>>,
        sources: Sources,
        calendar: Calendar,
    ) -> Result<Self, InvalidHeaderValue> {
        let seed = cache.config().seed;
        let collections = Collections::new(&config.collections, sources.schemas(), seed)?;
        let collections = Arc::new(collections.with_description(config.describes_on_data));
        let budgets = Arc::new(new_budgets(config, &cache, collections.count()));
        let lead_ns = calendar.wall_lead_ns();
        let now = Nanos::now();
        let access =
            access(config).map(|access| Arc::new(Access::new(&access, collections.count(), now)));
        let rate_limits = RateLimits::new(&config.rate, collections.all(), lead_ns, now);
        let tracer = config.observability.trace.as_ref().map(|trace| {
            let databases = sources.iter().map(|source| source.database());
            Tracer::new(trace, config.transport.tls.is_some(), collections.names(), databases)
        });
        let reads: Box<[SourceReads]> = (0..)
            .map(SourceId)
            .zip(&config.sources)
            .zip(sources.iter())
            .map(|(named, source)| source_reads(config, named, source, (&cache, &collections)))
            .collect();
        let shedders = load_shedders(&reads, &collections);
        let slow_query = config.sources.iter().map(|source| source.slow_query);
        let inflight = InflightLimits::new(&config.limits);
        // Its lower half.
        let generation = rate::seed()[0] as u32;
        let purged = config.purge.purged();
        let follows = Follows::new(&config.follow, purged, &collections, generation);
        #[cfg(feature = "failpoints")]
        follows.iter().for_each(|follows| follows.plant(&cache));
        Ok(Self {
            description: Arc::new(ApiDescription::new(
                config,
                Arc::clone(&collections),
                sources.clone(),
                access.clone(),
            )),
            fetcher: Arc::new(Fetcher {
                cache: CacheInForce::new(Arc::clone(&cache)),
                collections: Arc::clone(&collections),
                sources: reads,
                budgets: Arc::clone(&budgets),
                query_log: QueryLog::new(slow_query, collections.names()),
                tracer,
            }),
            sources,
            access,
            cors: config.cors.as_ref().map(|cors| Arc::new(Cors::new(cors))),
            purger: Purger::new(&config.purge, &collections),
            follows,
            tracking: Tracking::new(config, &cache),
            refresh: Arc::new(Refresh::new(collections.count())),
            admission: Arc::new(admission(config, rate_limits, shedders, inflight)),
            budgets,
            compressor: Arc::default(),
            baseline_hit_ratio: Arc::default(),
            consistency_check: Arc::default(),
            limits: Arc::new(config.limits.clone()),
            warm_start: config.warm_start.as_ref().map(|warm| Arc::new(WarmProgress::new(warm))),
            has_server_timing: config.observability.has_server_timing,
            redis_allows_stale: redis_allows_stale(config),
            ignores_unknown_parameters: config.ignores_unknown_parameters,
            ports: Arc::default(),
            access_log: None,
            miss_ratio_curve: Arc::new(MissRatioCurve::new(
                config.workers,
                config.miss_ratio_curve,
                cache.config().enabled,
            )),
            calendar,
            collections,
            cache,
        })
    }

    /// Returns the counters of a source's feed.
    pub fn feed_counts(&self, source: SourceId) -> &FeedCounts {
        &self.fetcher.sources[source.index()].feed
    }

    /// Returns why a path of the data address does not exist, if it is one of the admin address.
    #[cold]
    pub(crate) fn explained(&self, problem: HttpError, path: &str) -> HttpError {
        let name = path.split('/').nth(1).unwrap_or_default();
        let is_unknown = matches!(problem, HttpError::NoSuchCollection | HttpError::NoSuchPath);
        match self.ports.get() {
            Some((_, port)) if is_unknown && ADMIN_PATHS.contains(&name) => {
                HttpError::OtherAddress { name: "admin", port: *port }
            }
            _ => problem,
        }
    }

    /// Returns a sink for the feed of a source.
    pub fn sink(&self, source: SourceId) -> CacheSink {
        let reads = (&self.fetcher, &self.refresh);
        CacheSink::new(&self.cache, reads, (self.follows.clone(), self.tracking.clone()), source)
    }

    /// Returns the name of a source's thread: that of its work, where there is one source.
    pub fn thread_name(&self, work: &str, source: SourceId) -> String {
        thread_name(work, &self.fetcher.sources, source)
    }

    /// Adds the access log.
    #[must_use]
    pub fn with_access_log(self, access_log: Option<Arc<AccessLog>>) -> Self {
        Self { access_log, ..self }
    }

    /// Returns the parts under the settings of `config`, which names the same collections in the
    /// same order. What belongs to the process or to the database is shared with these parts: the
    /// entries, the reads in flight, the load, the progress of the feed. `cache` is this cache,
    /// with its new settings. `access_changed`: whether anything of `[access]` differs.
    ///
    /// # Errors
    /// If a configured `cache_control` is not a valid header value.
    pub(crate) fn after(
        &self,
        config: &Config,
        cache: Arc<Cache<ReadFailure>>,
        access_changed: bool,
    ) -> Result<Self, InvalidHeaderValue> {
        let sources = self.sources.clone();
        let seed = cache.config().seed;
        let collections = Collections::new(&config.collections, sources.schemas(), seed)?;
        let collections = Arc::new(collections.with_description(config.describes_on_data));
        let now = Nanos::now();
        let rate = RateLimits::after(
            Some(&self.admission.rate),
            &config.rate,
            collections.all(),
            self.calendar.wall_lead_ns(),
            now,
        );
        let own_access = self.access.as_deref();
        let renewed = |access: Cow<'_, config::access::Access>| {
            Arc::new(Access::after(own_access, &access, collections.count(), now))
        };
        let access = match access_changed {
            true => access(config).map(renewed),
            false => self.access.clone(),
        };
        let own = &self.admission;
        let (shedder, inflight) = (own.load_shedders.clone(), Arc::clone(&own.inflight));
        Ok(Self {
            description: Arc::new(ApiDescription::new(
                config,
                Arc::clone(&collections),
                sources,
                access.clone(),
            )),
            access,
            has_server_timing: config.observability.has_server_timing,
            ignores_unknown_parameters: config.ignores_unknown_parameters,
            redis_allows_stale: redis_allows_stale(config),
            cors: config.cors.as_ref().map(|cors| Arc::new(Cors::new(cors))),
            admission: Arc::new(admission(config, rate, shedder, inflight)),
            limits: Arc::new(config.limits.clone()),
            collections,
            cache,
            ..self.clone()
        })
    }
}

/// Returns the reads of one source.
fn source_reads(
    config: &Config,
    (id, settings): (SourceId, &config::Source),
    source: &Arc<dyn Source>,
    (cache, collections): (&Arc<Cache<ReadFailure>>, &Arc<Collections>),
) -> SourceReads {
    let limiter_config = limit::Config {
        kind: config.concurrency.kind,
        max: cache.source_settings(id).reads_in_flight,
        tolerance: config.concurrency.tolerance,
        probe_interval: config.concurrency.probe_interval,
    };
    if !source.standbys().is_empty() {
        cache.expect_standbys(id);
    }
    SourceReads {
        id,
        name: settings.name.clone(),
        source: Arc::clone(source),
        limiter: ConcurrencyLimiter::new(limiter_config, collections.count()),
        breaker: SourceBreaker::new(
            config.breaker.clone(),
            Arc::clone(cache),
            Arc::clone(collections),
            (id, settings.name.clone()),
        ),
        standbys: StandbyReads::default(),
        progress: Arc::default(),
        looks: Looks::new(settings.strict_looks_per_s),
        feed: FeedCounts::default(),
        load_shedder: Arc::default(),
    }
}

/// Returns the refusals under load that concern each collection.
fn load_shedders(reads: &[SourceReads], collections: &Collections) -> Box<[Arc<LoadShedder>]> {
    let of = |own: &Collection| Arc::clone(&reads[own.source.index()].load_shedder);
    collections.all().iter().map(of).collect()
}

fn redis_allows_stale(config: &Config) -> bool {
    config.transport.redis.is_some_and(|redis| redis.allow_stale)
}

fn admission(
    config: &Config,
    rate: RateLimits,
    load_shedders: Box<[Arc<LoadShedder>]>,
    inflight: Arc<InflightLimits>,
) -> Admission {
    Admission {
        rate,
        load_shedders,
        priority_header: config.shed.as_ref().is_some_and(|shed| shed.priority_header),
        inflight,
        request_timeout: config.limits.request_timeout,
        deadline_header: config.concurrency.deadline_header,
    }
}

/// Returns the configured access. Where records belong to tenants and it is missing, it refuses
/// every request: nothing must be answered without a look at its sender.
fn access(config: &Config) -> Option<Cow<'_, config::access::Access>> {
    let has_tenants = config.collections.iter().any(|collection| collection.tenancy.is_some());
    let closed = || has_tenants.then(|| Cow::Owned(config::access::Access::closed()));
    config.access.as_ref().map(Cow::Borrowed).or_else(closed)
}

fn new_budgets(config: &Config, cache: &Cache<ReadFailure>, collections: usize) -> Budgets {
    let own = cache.config();
    let cache_bytes = if own.enabled { own.capacity_bytes } else { 0 };
    let memory = budgets::memory_limits(config, cache_bytes);
    let row_bytes = own.entry_bytes_estimate;
    let sources = (0..cache.source_count()).map(|id| SourceId(id as u16));
    let queries = sources.map(|id| cache.source_settings(id).reads_in_flight).sum();
    Budgets::new(&config.limits.bytes, &memory, queries, row_bytes, collections)
}
