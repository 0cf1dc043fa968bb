//! A whole service on a source of one row, in this process.

use std::future::ready;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread::JoinHandle;
use std::time::Duration;

use hotrow_access::grant::{Role, Roles, Scope};
use hotrow_access::key::{NewKey, StoredKey};
use hotrow_access::verify::TokenPolicy;
use hotrow_admission::concurrency::limit::Kind;
use hotrow_cache::Cache;
use hotrow_cache::config::{CollectionPolicy, Config as CacheConfig, InvalidationMode};
use hotrow_changes::sink::CacheSink;
use hotrow_config::access::{Access, Granted};
use hotrow_config::{Collection, Concurrency, Config, ReadyWhen};
use hotrow_front::worker::WorkerError;
use hotrow_measure::clock::Nanos;
use hotrow_server::service::Service;
use hotrow_service::in_force::InForce;
use hotrow_service::shared::Shared;
use hotrow_source::sources::Sources;
use hotrow_source::{BoxFuture, ReadSet, Row, RowBudget, Source, SourceError};
use hotrow_supervisor::shutdown::Shutdown;
use hotrow_telemetry::access_log::AccessLog;
use hotrow_telemetry::lookups::Calendar;
use hotrow_types::key::{CollectionId, Key, KeySchema, KeyType};
use hotrow_types::source::SourceId;
use hotrow_types::tenant::Tenants;
use hotrow_types::version::Version;

use super::limits;

/// A running service; it ends when dropped.
pub(crate) struct Running {
    pub(crate) address: SocketAddr,
    pub(crate) admin: SocketAddr,
    /// Address of the Redis protocol.
    pub(crate) redis: Option<SocketAddr>,
    pub(crate) in_force: Arc<InForce>,
    /// What the feed would report to.
    pub(crate) sink: Arc<CacheSink>,
    pub(crate) shutdown: Shutdown,
    thread: Option<JoinHandle<Result<(), WorkerError>>>,
}

impl Running {
    pub(crate) fn start(config: &Config) -> Self {
        Self::serve(config, Service::bind(config).unwrap())
    }

    /// Runs a service with listeners of the test's own.
    pub(crate) fn serve(config: &Config, service: Service) -> Self {
        let schema = |id| KeySchema::new(CollectionId(id), vec![KeyType::Integer]);
        let source = OneRow(vec![schema(0), schema(1)]);
        Self::run(config, service, cache(), Arc::new(source))
    }

    /// Starts a service over a source and a cache of the test's own.
    pub(crate) fn start_over(
        config: &Config,
        cache: Arc<Cache<hotrow_source::ReadFailure>>,
        source: Arc<dyn Source>,
    ) -> Self {
        Self::run(config, Service::bind(config).unwrap(), cache, source)
    }

    fn run(
        config: &Config,
        service: Service,
        cache: Arc<Cache<hotrow_source::ReadFailure>>,
        source: Arc<dyn Source>,
    ) -> Self {
        let (address, admin, redis) = (service.data(), service.admin(), service.redis());
        let calendar = Calendar::new(Nanos::now(), 0);
        let log = config.observability.access_log.as_ref();
        let log = log.map(|log| AccessLog::open(log, config.workers).unwrap());
        let shared = Shared::new(config, cache, Sources::only(source), calendar)
            .unwrap()
            .with_access_log(log);
        let sink = Arc::new(shared.sink(SourceId::FIRST));
        let in_force = InForce::new(config.clone(), shared);
        let served = Arc::clone(&in_force);
        let shutdown = Shutdown::new();
        let (ending, config) = (shutdown.clone(), config.clone());
        let (started, is_started) = channel();
        let thread = std::thread::spawn(move || {
            let started = move |_| started.send(()).unwrap();
            service.run(&config, (&served, None), &ending, started)
        });
        is_started.recv_timeout(super::DEADLINE).unwrap();
        Self { address, admin, redis, in_force, sink, shutdown, thread: Some(thread) }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.shutdown.now();
        let ended = self.thread.take().unwrap().join();
        assert!(matches!(ended, Ok(Ok(()))) || std::thread::panicking());
    }
}

/// Returns the requirements on tokens.
pub(crate) fn policy() -> TokenPolicy {
    TokenPolicy {
        issuer: Some("issuer".to_owned()),
        audiences: vec!["hotrow".to_owned()],
        leeway_s: 30,
        role_claim: vec!["roles".to_owned()],
        tenant_claim: vec!["tenant".to_owned()],
    }
}

/// Returns a role `reader` of `products` alone, and an API key with that role.
pub(crate) fn access() -> (Access, String) {
    let reader = Role {
        name: "reader".to_owned(),
        claim_values: vec!["reader".to_owned()],
        collections: Scope::Listed(vec![CollectionId(0)]),
        columns: Vec::new(),
        no_cache: false,
        min_position: false,
        strict: true,
        rate_classes: Default::default(),
    };
    let key = NewKey::new([1; 8], &[2; 32]);
    let (roles, tenants) = (Roles::single(0), Tenants::NONE);
    let stored = StoredKey { id: key.id, hash: key.hash, roles, tenants };
    let granted = Granted { roles: vec![reader], keys: vec![stored], ..Granted::default() };
    let access =
        Access { granted, grants_file: None, tokens: None, failures: "1000/s".parse().unwrap() };
    (access, key.reveal().to_owned())
}

/// Has one row, and no other.
pub(crate) struct OneRow(Vec<KeySchema>);

impl OneRow {
    pub(crate) fn new(schemas: Vec<KeySchema>) -> Self {
        Self(schemas)
    }
}

impl Source for OneRow {
    fn read_within(
        &self,
        id: CollectionId,
        keys: Vec<Key>,
        _: Arc<RowBudget>,
    ) -> BoxFuture<'_, Result<ReadSet, SourceError>> {
        let one = self.0[usize::from(id.0)].parse_url("1");
        let row = |key: &Key| match one.as_ref() == Ok(key) {
            true => Row::Found(br#"{"id":1}"#.to_vec()),
            false => Row::Missing,
        };
        let rows = keys.iter().map(row).collect();
        Box::pin(ready(Ok(ReadSet { version: Version::Unknown, position: None, rows })))
    }

    fn schemas(&self) -> &[KeySchema] {
        &self.0
    }

    fn queries_total(&self) -> u64 {
        0
    }

    fn health(&self) -> Result<(), String> {
        Ok(())
    }

    fn watch(&self) -> &'static str {
        "none"
    }
}

/// Returns the configuration of one collection, `products`, and a second one, `prices`.
pub(crate) fn config() -> Config {
    Config {
        data: "127.0.0.1:0".parse().unwrap(),
        admin: "127.0.0.1:0".parse().unwrap(),
        admin_token: None,
        admin_hosts: Vec::new(),
        hot_keys: true,
        ready_when: ReadyWhen::Fresh,
        ready_sources: hotrow_config::ReadySources::Any,
        sources: vec![hotrow_config::Source {
            name: "default".to_owned(),
            slow_query: Duration::ZERO,
            strict_looks_per_s: 1_000,
        }],
        workers: 1,
        limits: limits(),
        concurrency: Concurrency {
            kind: Kind::Fixed,
            tolerance: 2.0,
            probe_interval: Duration::from_secs(1),
            deadline_header: true,
        },
        breaker: None,
        shed: None,
        collections: ["products", "prices"]
            .map(|name| Collection {
                name: name.to_owned(),
                source: SourceId::FIRST,
                cache_control: "private, no-cache".to_owned(),
                allow_no_cache: true,
                allow_min_position: true,
                strict: true,
                allow_fields: false,
                priority: hotrow_admission::shed::Priority::Normal,
                allow_high_priority: false,
                tenancy: None,
                compression: None,
                is_removed: false,
                alias: None,
                surrogates: None,
            })
            .into(),
        follow: hotrow_config::follow::Follow::default(),
        purge: hotrow_config::purge::Purge::default(),
        rate: hotrow_config::rate::RateLimits::default(),
        describes_on_data: false,
        ignores_unknown_parameters: false,
        cors: None,
        access: None,
        transport: hotrow_config::transport::Transport::default(),
        admin_transport: hotrow_config::transport::Transport::default(),
        warm_start: None,
        observability: Default::default(),
        miss_ratio_curve: false,
    }
}

fn cache() -> Arc<Cache<hotrow_source::ReadFailure>> {
    let day = Duration::from_hours(24);
    let policy =
        CollectionPolicy { ttl: day, negative_ttl: day, has_tenants: false, has_views: false };
    Cache::new(cache_config(), vec![policy; 2])
}

/// Returns the settings of a small cache without a feed.
pub(crate) fn cache_config() -> CacheConfig {
    CacheConfig { invalidation_mode: InvalidationMode::TtlOnly, ..CacheConfig::small(1 << 20) }
}
