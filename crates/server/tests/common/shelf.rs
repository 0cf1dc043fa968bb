//! Rows, a feed and the visibility of changes in the test's hand, for clients that keep copies.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hotrow_cache::config::{CollectionPolicy, Config as CacheConfig, InvalidationMode};
use hotrow_cache::{Cache, Safeguard};
use hotrow_config::Config;
use hotrow_source::{BoxFuture, ReadSet, Row, RowBudget, Source, SourceError};
use hotrow_types::key::{CollectionId, Key, KeyPart, KeySchema, KeyType};
use hotrow_types::version::{Snapshot, Version};
use parking_lot::Mutex;
use tokio::sync::watch;

use super::DEADLINE;
use super::events::position;
use super::redis::{RedisClient, Reply, array};
use super::service::{Running, cache_config};

/// First transaction that no read sees.
const NEXT_XID: u64 = 1_000_000;

/// The rows of a database. The second collection has keys that are UUIDs, each with a row.
pub(crate) struct Shelf {
    schemas: Vec<KeySchema>,
    prices: Mutex<HashMap<i64, i64>>,
    /// Transactions that no read sees.
    hidden: Mutex<Vec<u64>>,
    reads: AtomicU64,
    /// Reads wait while it is shut.
    gate: watch::Sender<bool>,
}

impl Source for Shelf {
    fn read_within(
        &self,
        _: CollectionId,
        keys: Vec<Key>,
        _: Arc<RowBudget>,
    ) -> BoxFuture<'_, Result<ReadSet, SourceError>> {
        self.reads.fetch_add(1, Ordering::SeqCst);
        let row = |key: &Key| match key.parts().next() {
            Some(KeyPart::Integer(id)) => match self.prices.lock().get(&id) {
                Some(price) => Row::Found(record(id, *price).into_bytes()),
                None => Row::Missing,
            },
            _ => Row::Found(b"{}".to_vec()),
        };
        // The snapshot is that of the beginning.
        let rows = keys.iter().map(row).collect();
        let running = self.hidden.lock().clone();
        let xmin = running.first().copied().unwrap_or(NEXT_XID);
        let snapshot = Arc::new(Snapshot { xmin, xmax: NEXT_XID, running });
        let version = Version::Snapshot { incarnation: 0xab, snapshot };
        Box::pin(async move {
            self.gate.subscribe().wait_for(|is_open| *is_open).await.unwrap();
            // Without one, a read that lacks a change could not be distinguished.
            Ok(ReadSet { version, position: Some(position(50)), rows })
        })
    }

    fn schemas(&self) -> &[KeySchema] {
        &self.schemas
    }

    fn queries_total(&self) -> u64 {
        self.reads.load(Ordering::SeqCst)
    }

    fn health(&self) -> Result<(), String> {
        Ok(())
    }

    fn watch(&self) -> &'static str {
        "test"
    }
}

impl Shelf {
    /// Changes a row that all reads see, unless `hidden` is not empty: then they see the old row.
    pub(crate) fn set(&self, id: i64, price: i64) {
        self.prices.lock().insert(id, price);
    }

    /// Hides transactions from all reads.
    pub(crate) fn hide(&self, hidden: &[u64]) {
        *self.hidden.lock() = hidden.to_vec();
    }

    pub(crate) fn shut(&self, is_shut: bool) {
        self.gate.send_replace(!is_shut);
    }

    pub(crate) fn reads(&self) -> u64 {
        self.reads.load(Ordering::SeqCst)
    }
}

/// Returns a record as the source has it.
pub(crate) fn record(id: i64, price: i64) -> String {
    format!(r#"{{"id":{id},"price":{price}}}"#)
}

/// Starts a service whose records 1 to 9 have the price 0. The feed has begun at point 100.
pub(crate) fn start(
    config: &Config,
    ttl: Duration,
    max_staleness: Duration,
) -> (Running, Arc<Shelf>) {
    start_without(config, ttl, max_staleness, None)
}

/// Starts the same without one safeguard.
fn start_without(
    config: &Config,
    ttl: Duration,
    max_staleness: Duration,
    disabled: Option<Safeguard>,
) -> (Running, Arc<Shelf>) {
    let policy = CollectionPolicy { ttl, negative_ttl: ttl, has_tenants: false, has_views: false };
    let settings =
        CacheConfig { invalidation_mode: InvalidationMode::Feed, max_staleness, ..cache_config() };
    let schema = |id, kind| KeySchema::new(CollectionId(id), vec![kind]);
    let shelf = Arc::new(Shelf {
        schemas: vec![schema(0, KeyType::Integer), schema(1, KeyType::Uuid)],
        prices: Mutex::new((1..=9).map(|id| (id, 0)).collect()),
        hidden: Mutex::default(),
        reads: AtomicU64::new(0),
        gate: watch::Sender::new(true),
    });
    let cache = Cache::new(settings, vec![policy; 2]);
    #[cfg(feature = "failpoints")]
    disabled.iter().for_each(|safeguard| cache.disable(*safeguard));
    #[cfg(not(feature = "failpoints"))]
    assert_eq!(disabled, None, "without failpoints nothing can be disabled");
    let server = Running::start_over(config, cache, Arc::clone(&shelf) as Arc<dyn Source>);
    server.begin(100);
    (server, shelf)
}

/// Starts the same with copies that stay good.
pub(crate) fn start_lasting(config: &Config) -> (Running, Arc<Shelf>) {
    start(config, Duration::from_hours(24), DEADLINE * 60)
}

/// Starts the same without one safeguard of those for which there are failpoints.
pub(crate) fn start_lasting_without(
    config: &Config,
    disabled: Option<Safeguard>,
) -> (Running, Arc<Shelf>) {
    start_without(config, Duration::from_hours(24), DEADLINE * 60, disabled)
}

/// Returns a connection of RESP3 that tracks.
pub(crate) fn tracking(server: &Running, options: &str) -> RedisClient {
    let mut client = RedisClient::connect(server.redis);
    client.ask("HELLO 3");
    let command = format!("CLIENT TRACKING ON {options}");
    assert_eq!(client.ask(command.trim_end()), Reply::ok());
    client
}

/// Returns the message that these copies are outdated.
pub(crate) fn invalidated(keys: &[&str]) -> Reply {
    let keys = keys.iter().map(|key| Reply::text(key)).collect();
    Reply::Push(vec![Reply::text("invalidate"), Reply::Array(keys)])
}

/// Returns the message that all copies may be.
pub(crate) fn all_invalidated() -> Reply {
    Reply::Push(vec![Reply::text("invalidate"), Reply::Null])
}

/// A client whose invalidation shows that those before it have been put on their way.
pub(crate) struct Witness {
    client: RedisClient,
    xid: u64,
}

impl Witness {
    pub(crate) fn new(server: &Running) -> Self {
        Self { client: tracking(server, ""), xid: 500_000 }
    }

    /// Waits until the worker has handled all changes that were proven visible.
    #[track_caller]
    pub(crate) fn wait(&mut self, server: &Running) {
        loop {
            self.xid += 1;
            self.client.send(array("GET products:9"));
            self.await_matching(|message| matches!(message, Reply::Text(_)));
            let mark = 10 * self.xid;
            server.deliver(self.xid, mark, &[9]);
            server.advance(mark + 5, Some(&[]));
            // A loss from before the wait may be handled only now, and forgets what was asked for.
            let message = self.await_matching(|message| {
                *message == invalidated(&["products:9"]) || *message == all_invalidated()
            });
            if message != all_invalidated() {
                return;
            }
        }
    }

    /// Returns the first message that matches. What came before it is of changes before the wait.
    #[track_caller]
    fn await_matching(&mut self, matches: impl Fn(&Reply) -> bool) -> Reply {
        loop {
            let message = self.client.reply();
            if matches(&message) {
                return message;
            }
            assert!(matches!(message, Reply::Push(_)), "{message:?}");
        }
    }
}

/// Asserts that nothing has come but what was received.
#[track_caller]
pub(crate) fn assert_quiet(client: &mut RedisClient) {
    assert_eq!(client.ask("PING"), Reply::Status("PONG".to_owned()));
}
