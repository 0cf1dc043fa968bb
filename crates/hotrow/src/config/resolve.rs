//! Every key of the file with its default and its range, and the rules between keys.
//!
//! Reference `configuration`: `[cache]`
//!
//! - `enabled`: `false`: keep and share nothing, to compare.
//! - `capacity`: Keys, bodies, bookkeeping; 1.3 times as much is resident.
//! - `ttl`: Lifetime of an entry that nothing invalidates.
//! - `ttl_jitter`: Share of the TTL by which entries may expire earlier.
//! - `negative_ttl`: Lifetime of "no such record".
//! - `negative_share`: Share of the capacity for such entries.
//! - `prefetch_on_change`: [Reread a changed record](design.md#hot-records) at once if it had two
//!   hits. At most half of `limits.waiting_keys`.
//! - `isolate_scans`: [Scan isolation](design.md#scans).
//! - `miss_ratio_curve`: Predict [the hit ratio at other
//!   capacities](production.md#how-much-memory-is-worth-it).
//! - `error_ttl`: Time for which a failed read answers for its key.
//! - `entry_size_hint`: Estimated mean, for the number of shards; bounds nothing. At most
//!   `capacity`.
//! - `max_staleness`: How far an answer may be behind. The log is probed four times as often.
//! - `when_stale`: [Past `max_staleness`](consistency.md#when-the-feed-is-behind).
//! - `stale_while_revalidate`: Past the TTL, serve while refreshing.
//! - `stale_if_error`: Past the TTL, serve when reading fails. Neither serves invalidated entries.
//!
//! Reference `configuration`: `[log]`
//!
//! To standard error, through a queue of 1 MiB; lines that do not fit are dropped and counted.
//!
//! - `level`: Least important level written.
//! - `format`: JSON: one object per line.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use hotrow_cache::config::{InvalidationMode, SourceSettings, WhenStale};
use hotrow_config::access::Access;
use hotrow_config::observability::Observability;
use hotrow_config::rate::RateLimits;
use hotrow_config::transport::{ClientCertificates, Transport};
use hotrow_config::{Limits, ReadyWhen};
use hotrow_source::spec::Follow;
use hotrow_types::key::CollectionId;
use toml::de::DeTable;

use super::collection_context::{AccessTraits, CollectionSettings, Ttl};
use super::listen::{Listen, listen, redis_settings};
use super::rate::rate;
use super::reader::{Context, Section};
use super::source::{Source, source};
use super::units::{KIB, MIB, QUERY_KEYS_MAX, TIMEOUT, TTL, YEAR, ms, s};
use super::{Log, LogFormat, LogLevel, Overrides, Resolved, SourceConfig, collections, limits};

const DAY: Duration = Duration::from_hours(24);
/// Most consistency checks per second; each is one query.
const CHECKS_PER_S_MAX: usize = 100;

/// Reads all sections. Returns `None` only if a problem was recorded; a value with a problem is
/// replaced by its default.
pub(super) fn resolve<'a>(
    ctx: &'a Context<'a>,
    table: &'a DeTable<'a>,
    overrides: &Overrides,
) -> Option<Resolved> {
    let mut root = Section::root(ctx, table);
    let Listen {
        data,
        admin,
        workers,
        mut transport,
        describes_on_data,
        ignores_unknown_parameters,
        has_server_timing,
    } = listen(root.section("listen"), overrides);
    let admin_access = super::admin::admin(root.section("admin"));
    let Limited { limits, rate, shared, breaker, shed } =
        limits(root.section("limits"), &names_of_collections(table));
    let access_section = root.section("access");
    let requires_private = access_section.is_present();
    let named = super::access::Named {
        collections: &names_of_collections(table),
        rate_classes: &rate.classes,
        has_client_ca: takes_client_certificates(&transport),
    };
    let access = super::access::access(access_section, &named);
    let cors = super::cors::cors(root.section("cors"));
    let sources: Vec<(String, Source)> = super::source::named_sections(&mut root)
        .into_iter()
        .map(|(name, section)| (name, source(section, limits.max_batch)))
        .collect();
    let cache_sources: Vec<SourceSettings> =
        sources.iter().map(|(_, source)| source.cache_settings()).collect();
    let cache_section = cache(root.section("cache"), &shared, &cache_sources);
    let source_traits: Vec<_> = sources
        .iter()
        .map(|(name, source)| source.source_traits(name, stale_by(&cache_section.config, source)))
        .collect();
    let follow_section = root.section("follow");
    let purge_section = root.section("purge");
    let collections = collections::collections(
        root.section("collections"),
        &cache_section.ttl,
        &source_traits,
        &AccessTraits {
            is_configured: requires_private,
            is_cached: cache_section.config.enabled,
            // Without a value a problem was recorded.
            lacks_tenants: access.as_ref().is_some_and(|access| !names_tenants(access)),
        },
    );
    let warm_start = super::warm::warm(root.section("warm"));
    let access_log = super::access_log::access_log(root.section("access_log"));
    let trace = super::trace::trace(root.section("trace"));
    let hub_of = |own: &super::source::Source| Some((own.hub.clone()?, own.has_slots()));
    let hubs: Vec<_> = sources.iter().filter_map(|(_, own)| hub_of(own)).collect();
    let hubs: Vec<_> = hubs.iter().map(|(hub, has_slots)| (&**hub, *has_slots)).collect();
    #[cfg_attr(not(feature = "hub"), allow(unused_variables, reason = "there is no hub"))]
    let hub = super::hub::hub(root.section("hub"), &hubs);
    let log = log(root.section("log"));
    let reload = super::reload::reload(root.section("reload"));
    redis_settings(root.section("redis"), &mut transport);
    root.finish();

    let admin_transport = admin_access.transport;
    check_admin_socket(ctx, &transport, &admin_transport);
    let is_endless = |own: &CollectionSettings| {
        !own.has_ttl && sources[own.server.source.index()].1.follow == Follow::Nothing
    };
    if collections.iter().any(is_endless) {
        let what = "must be set with source.feed = \"none\", unless each of its collections has a \
                    ttl: nothing else bounds the age of an answer";
        ctx.refuse("cache.ttl".to_owned(), None, what.to_owned());
    }
    let is_admin_open = !admin.ip().is_loopback()
        && admin_access.token.is_none()
        && !requires_client_certificates(&admin_transport);
    if requires_private && is_admin_open {
        ctx.refuse(
            "admin.token".to_owned(),
            None,
            format!(
                "is required with [access] where the admin address, {admin}, is reachable from \
                 other machines; set a token, require client certificates (admin.tls.client_ca) \
                 or listen on 127.0.0.1"
            ),
        );
    }
    let mut warnings = Vec::new();
    if is_admin_open {
        warnings.push(format!(
            "the admin address {admin} is reachable from other machines and admin.token is not \
             set: any client there can purge the cache; set a token or listen on 127.0.0.1"
        ));
    }
    for (name, _) in sources.iter().filter(|(_, own)| own.follow == Follow::Nothing) {
        let key = if sources.len() > 1 { format!("sources.{name}") } else { "source".to_owned() };
        warnings.push(format!(
            "{key}.feed = \"none\": changes in the database are not followed, so that an answer \
             may be as old as its TTL (cache.ttl, or that of its collection); points 2 to 5 of the \
             consistency contract do not hold"
        ));
    }
    let numbers_of = |has: fn(&CollectionSettings) -> bool| -> Vec<CollectionId> {
        let numbered = (0..).map(CollectionId).zip(&collections);
        numbered.filter(|(_, own)| has(own)).map(|(number, _)| number).collect()
    };
    let followed = numbers_of(|own| own.is_followed);
    let purged = numbers_of(|own| own.has_surrogate_keys);
    let mut of_sources = vec![Vec::new(); sources.len()];
    let mut served_collections = Vec::with_capacity(collections.len());
    let mut cache_policies = Vec::with_capacity(collections.len());
    for own in collections {
        // Each source keeps their order.
        of_sources[own.server.source.index()].push(own.source);
        served_collections.push(own.server);
        cache_policies.push(own.cache);
    }
    let max_staleness = cache_section.config.max_staleness;
    let purge = super::purge::purge(purge_section, purged, &mut served_collections, max_staleness);
    let server = hotrow_config::Config {
        data,
        admin,
        admin_token: admin_access.token,
        admin_hosts: admin_access.hosts,
        hot_keys: admin_access.hot_keys,
        ready_sources: admin_access.ready_sources,
        ready_when: admin_access.ready_when.unwrap_or_else(|| ready_when(&cache_section.config)),
        sources: sources.iter().map(served).collect(),
        workers,
        limits,
        breaker,
        shed,
        concurrency: shared.concurrency,
        collections: served_collections,
        follow: super::follow::follow(follow_section, followed),
        purge,
        rate,
        describes_on_data,
        ignores_unknown_parameters,
        cors,
        access,
        transport,
        admin_transport,
        warm_start,
        observability: Observability { access_log, has_server_timing, trace },
        miss_ratio_curve: cache_section.miss_ratio_curve,
    };
    let sources: Option<Vec<SourceConfig>> = sources
        .into_iter()
        .zip(of_sources)
        .map(|((_, source), own)| source.with(own, max_staleness))
        .collect();
    Some(Resolved {
        server,
        cache: cache_section.config,
        collections: cache_policies,
        cache_sources,
        sources: sources?,
        #[cfg(feature = "hub")]
        hub,
        log,
        reload,
        without_key: Vec::new(),
        warnings,
    })
}

/// Reads the source alone, for its catalogue.
pub(super) fn source_alone<'a>(
    ctx: &'a Context<'a>,
    table: &'a DeTable<'a>,
) -> Option<SourceConfig> {
    let mut root = Section::root(ctx, table);
    let mut sections = super::source::named_sections(&mut root);
    let (_, section) = sections.pop()?;
    if !sections.is_empty() {
        ctx.refuse(
            "collections".to_owned(),
            None,
            "must be tables where there are several sources: \"auto\" is for one".to_owned(),
        );
    }
    // Neither a batch nor a feed comes of it.
    let (max_batch, max_staleness) = (1, s(1));
    source(section, max_batch).with(Vec::new(), max_staleness)
}

/// Returns what the HTTP side knows of a source.
fn served((name, source): &(String, Source)) -> hotrow_config::Source {
    hotrow_config::Source {
        name: name.clone(),
        slow_query: source.slow_query,
        strict_looks_per_s: source.strict_looks_per_s,
    }
}

/// Checks that no other listener has the path of the admin API's socket.
fn check_admin_socket(ctx: &Context<'_>, data: &Transport, admin: &Transport) {
    let Some(path) = admin.unix.as_ref().map(|unix| &unix.path) else { return };
    let data_path = data.unix.as_ref().map(|unix| &unix.path);
    for (other, key) in
        [(data_path, "listen.unix"), (data.handover.as_ref(), "listen.handover_socket")]
    {
        if other == Some(path) {
            ctx.refuse(
                "admin.unix".to_owned(),
                None,
                format!("{} must not be the path of {key} too", path.display()),
            );
        }
    }
}

/// Returns whether no client without a certificate is answered.
fn requires_client_certificates(transport: &Transport) -> bool {
    let clients = transport.tls.as_ref().map(|tls| &tls.clients);
    matches!(clients, Some(ClientCertificates::Required(_)))
}

fn takes_client_certificates(transport: &Transport) -> bool {
    let clients = transport.tls.as_ref().map(|tls| &tls.clients);
    clients.is_some_and(|clients| *clients != ClientCertificates::Ignored)
}

/// Returns whether a credential can name a tenant. A file of grants can, at any time.
fn names_tenants(access: &Access) -> bool {
    access.grants_file.is_some()
        || access.granted.keys.iter().any(|key| !key.tenants.is_empty())
        || access.tokens.as_ref().is_some_and(|tokens| !tokens.policy.tenant_claim.is_empty())
}

/// Returns the setting by which an entry may be served that the feed would have removed.
fn stale_by(cache: &hotrow_cache::config::Config, source: &Source) -> Option<&'static str> {
    if source.follow == Follow::Nothing {
        Some("source.feed = \"none\"")
    } else if cache.when_stale == WhenStale::Stale {
        Some("cache.when_stale = \"stale\"")
    } else if !cache.stale_if_error.is_zero() {
        Some("cache.stale_if_error")
    } else {
        None
    }
}

/// Settings of `[limits]` that belong to other subsystems than the server.
struct Shared {
    waiting_keys: usize,
    queue: hotrow_admission::concurrency::queue::Config,
    concurrency: hotrow_config::Concurrency,
}

/// Returns the collection names in the file, for the rules that refer to them. They are validated
/// where the collections are read.
fn names_of_collections<'a>(table: &'a DeTable<'a>) -> Vec<&'a str> {
    let collections = table
        .iter()
        .find(|(key, _)| key.get_ref() == "collections")
        .map(|(_, value)| value.get_ref());
    let Some(toml::de::DeValue::Table(collections)) = collections else { return Vec::new() };
    collections.keys().map(|key| &**key.get_ref()).collect()
}

/// Settings of `[limits]` and its tables.
struct Limited {
    limits: Limits,
    rate: RateLimits,
    shared: Shared,
    breaker: Option<hotrow_admission::breaker::Config>,
    shed: Option<hotrow_config::Shed>,
}

fn limits(mut section: Section<'_>, collections: &[&str]) -> Limited {
    let rate = rate(section.section("rate"), collections);
    let limits = Limits {
        connections: section.count("connections", 10_000, 1..=1_000_000),
        connections_per_client: section.count("connections_per_client", 0, 0..=1_000_000),
        requests_in_flight: section.count("requests_in_flight", 10_000, 1..=1_000_000),
        // The HTTP library's smallest buffer is 8 KiB, so a lower limit could not be enforced.
        header_bytes: section.size_in_memory("header_bytes", 16 * KIB, 8 * KIB..=MIB),
        headers: section.count("headers", 64, 4..=1_000),
        target_bytes: section.size_in_memory("target_bytes", 8 * KIB, 64..=64 * KIB),
        body_bytes: section.size_in_memory("body_bytes", MIB, KIB..=64 * MIB),
        header_timeout: section.duration("header_timeout", s(10), TIMEOUT),
        body_timeout: section.duration("body_timeout", s(10), TIMEOUT),
        idle_timeout: section.duration("idle_timeout", s(75), TIMEOUT),
        idle_reclaim: section.duration("idle_reclaim", s(1), TIMEOUT),
        write_timeout: section.duration("write_timeout", s(30), TIMEOUT),
        request_timeout: section.duration("request_timeout", s(5), TIMEOUT),
        drain_delay: section.duration("drain_delay", s(1), ms(0)..=Duration::from_mins(10)),
        drain_timeout: section.duration("drain_timeout", s(30), TIMEOUT),
        max_batch: section.count("max_batch", 1_000, 1..=QUERY_KEYS_MAX),
        position_wait: section.duration("position_wait", ms(500), ms(0)..=Duration::from_mins(1)),
        privileged_waiters: section.count("privileged_waiters", 256, 0..=100_000),
        // The range fits.
        checks_per_s: section.count("checks_per_s", 1, 0..=CHECKS_PER_S_MAX) as u32,
        send_bytes: section.size("send_bytes", 1 << 30, 0..=1 << 50),
        bytes: limits::byte_limits(&mut section),
        drain_rate_min: section.size("drain_rate_min", 4 * KIB, 0..=1 << 30),
    };
    limits::check_bytes(&section, &limits);
    let waiting_keys = section.count("waiting_keys", 10_000, 1..=10_000_000);
    if limits.target_bytes > limits.header_bytes {
        let target = limits.target_bytes;
        let header = limits.header_bytes;
        section.refuse(
            "target_bytes",
            format!("must not exceed limits.header_bytes: {target} bytes are more than {header}"),
        );
    }
    if waiting_keys < limits.max_batch {
        let max_batch = limits.max_batch;
        section.refuse(
            "waiting_keys",
            format!(
                "must be at least limits.max_batch, or no uncached batch could be read: \
                 {waiting_keys} is less than {max_batch}"
            ),
        );
    }
    let (concurrency, queue) = limits::concurrency(section.section("concurrency"));
    let breaker = limits::breaker(section.section("breaker"));
    let shed = limits::shed(section.section("shed"));
    section.finish();
    Limited { limits, rate, shared: Shared { waiting_keys, queue, concurrency }, breaker, shed }
}

/// Returns the rule of `/readyz` that fits the policy: an instance that may serve stale answers
/// is useful while the feed is behind.
fn ready_when(cache: &hotrow_cache::config::Config) -> ReadyWhen {
    match cache.when_stale {
        WhenStale::Stale => ReadyWhen::Serving,
        WhenStale::Bypass | WhenStale::Refuse => ReadyWhen::Fresh,
    }
}

struct Cache {
    config: hotrow_cache::config::Config,
    ttl: Ttl,
    miss_ratio_curve: bool,
}

fn cache(mut section: Section<'_>, shared: &Shared, sources: &[SourceSettings]) -> Cache {
    // There is one at least. The settings of one source alone are in the list, not here.
    let SourceSettings { invalidation_mode, reads_in_flight, query_keys, query_bytes } = sources[0];
    let is_unfollowed = |own: &SourceSettings| own.invalidation_mode == InvalidationMode::TtlOnly;
    let config = hotrow_cache::config::Config {
        enabled: section.flag("enabled", true),
        capacity_bytes: section.size("capacity", 256 * MIB, MIB..=1 << 50),
        negative_share: section.share("negative_share", 0.05, 0.0..=0.1),
        entry_bytes_estimate: section.size("entry_size_hint", 128, 64..=16 * MIB),
        invalidation_mode,
        max_staleness: section.duration("max_staleness", s(1), ms(10)..=Duration::from_hours(1)),
        when_stale: section.choice(
            "when_stale",
            [
                ("bypass", WhenStale::Bypass),
                ("stale", WhenStale::Stale),
                ("refuse", WhenStale::Refuse),
            ],
        ),
        ttl_jitter: section.share("ttl_jitter", 0.1, 0.0..=1.0),
        prefetch_on_change: section.flag("prefetch_on_change", true),
        isolate_scans: section.flag("isolate_scans", true),
        error_ttl: section.duration("error_ttl", ms(100), ms(0)..=Duration::from_mins(1)),
        stale_while_revalidate: section.duration("stale_while_revalidate", ms(0), ms(0)..=YEAR),
        stale_if_error: section.duration("stale_if_error", ms(0), ms(0)..=YEAR),
        reads_in_flight,
        query_keys,
        query_bytes,
        waiting_keys: shared.waiting_keys,
        queue: shared.queue,
        seed: random_seed(),
    };
    let miss_ratio_curve = section.flag("miss_ratio_curve", true);
    let ttl = Ttl {
        ttl: section.duration("ttl", DAY, TTL),
        negative_ttl: section.duration("negative_ttl", Duration::from_mins(10), TTL),
        is_set: section.has("ttl"),
    };
    if sources.iter().all(is_unfollowed) {
        for name in ["max_staleness", "when_stale"].into_iter().filter(|name| section.has(name)) {
            section.refuse(
                name,
                "has no meaning with source.feed = \"none\": the age of an entry is unknown",
            );
        }
    }
    if config.entry_bytes_estimate > config.capacity_bytes {
        section.refuse("entry_size_hint", "must not be larger than cache.capacity");
    }
    section.finish();
    Cache { config, ttl, miss_ratio_curve }
}

/// Returns a random seed: the standard library seeds its hashers from the system, so the hash of
/// nothing is random.
fn random_seed() -> u64 {
    RandomState::new().hash_one(())
}

fn log(mut section: Section<'_>) -> Log {
    let level = section.choice(
        "level",
        [
            ("info", LogLevel::Info),
            ("error", LogLevel::Error),
            ("warn", LogLevel::Warn),
            ("debug", LogLevel::Debug),
            ("trace", LogLevel::Trace),
        ],
    );
    let format = section.choice("format", [("text", LogFormat::Text), ("json", LogFormat::Json)]);
    section.finish();
    Log { level, format }
}
