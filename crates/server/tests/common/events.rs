//! A feed in the test's hand, for followers of its changes.

use std::sync::Arc;
use std::time::Duration;

use hotrow_cache::Cache;
use hotrow_cache::config::{CollectionPolicy, Config as CacheConfig, InvalidationMode};
use hotrow_config::Config;
use hotrow_config::follow::Follow;
use hotrow_measure::clock::Nanos;
use hotrow_source::{Change, LossCause, Sink};
use hotrow_types::key::{CollectionId, Key, KeyPart, KeySchema, KeyType};
use hotrow_types::version::{ChangeId, Position, Snapshot, Version};

use super::service::{OneRow, Running, cache_config, config};
use super::{Client, DEADLINE};

const INCARNATION: u64 = 0xab;

/// Returns a configuration whose first collection may be followed.
pub(crate) fn followed() -> Config {
    let follow = Follow {
        collections: vec![CollectionId(0)],
        heartbeat: Duration::from_millis(100),
        window_bytes: 64 << 10,
        ..Follow::default()
    };
    Config { follow, ..config() }
}

/// Starts a service with a feed that is behind after this time without a report.
pub(crate) fn start_followed(config: &Config, max_staleness: Duration) -> Running {
    let day = Duration::from_hours(24);
    let policy =
        CollectionPolicy { ttl: day, negative_ttl: day, has_tenants: false, has_views: false };
    let settings =
        CacheConfig { invalidation_mode: InvalidationMode::Feed, max_staleness, ..cache_config() };
    let schema = |id| KeySchema::new(CollectionId(id), vec![KeyType::Integer]);
    let source = Arc::new(OneRow::new(vec![schema(0), schema(1)]));
    Running::start_over(config, Cache::new(settings, vec![policy; 2]), source)
}

/// Starts the same with a feed that stays current.
pub(crate) fn start(config: &Config) -> Running {
    start_followed(config, DEADLINE * 60)
}

/// What a feed of PostgreSQL would report.
impl Running {
    pub(crate) fn begin(&self, at: u64) {
        self.sink.started(Some(position(at)));
        self.advance(at, None);
    }

    /// Delivers the changes of a transaction, whose commit begins at `commit`.
    pub(crate) fn deliver(&self, xid: u64, commit: u64, ids: &[i64]) {
        let mark = ChangeId::Transaction { xid, commit };
        let changes: Vec<_> = ids.iter().map(|id| Change { key: key(*id), mark }).collect();
        self.sink.changes(&changes);
    }

    /// Reports progress, and the transactions that are not visible.
    pub(crate) fn advance(&self, at: u64, hidden: Option<&[u64]>) {
        let visible = hidden.map(|hidden| {
            let running = hidden.to_vec();
            let xmin = running.first().copied().unwrap_or(1_000_000);
            let snapshot = Arc::new(Snapshot { xmin, xmax: 1_000_000, running });
            Version::Snapshot { incarnation: INCARNATION, snapshot }
        });
        self.sink.advance(Nanos::now(), Some(position(at)), visible.as_ref());
    }

    /// Delivers a transaction that is visible at once. Its position is one behind `commit`.
    pub(crate) fn commit(&self, xid: u64, commit: u64, ids: &[i64]) {
        self.deliver(xid, commit, ids);
        self.advance(commit + 5, Some(&[]));
    }

    pub(crate) fn lose(&self) {
        self.sink.loss(LossCause::Unavailable, "the test");
    }

    /// Returns the value of a metric.
    pub(crate) fn metric(&self, series: &str) -> u64 {
        let request = "GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n";
        let mut received = Client::connect(self.admin).send(request).rest();
        let text = received.answers.pop().unwrap().body;
        let line = text.lines().find_map(|line| line.strip_prefix(series));
        line.unwrap_or_else(|| panic!("no {series} in {text}")).trim().parse().unwrap()
    }
}

pub(crate) fn position(at: u64) -> Position {
    Position { incarnation: INCARNATION, at }
}

fn key(id: i64) -> Key {
    let schema = KeySchema::new(CollectionId(0), vec![KeyType::Integer]);
    schema.key(&[KeyPart::Integer(id)]).unwrap()
}
