//! Allocations of the hit path, counted. Alone in its binary, because the allocator is that of the
//! whole process.
#![allow(unsafe_code, reason = "an allocator is unsafe; it forwards to the system's")]
#![allow(clippy::unwrap_used, reason = "tests fail by panicking, in helpers too")]

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::future::ready;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;

use common::{Client, limits};
use hotrow_admission::concurrency::{limit::Kind, queue};
use hotrow_cache::Cache;
use hotrow_cache::config::{CollectionPolicy, Config as CacheConfig, InvalidationMode, WhenStale};
use hotrow_measure::clock::Nanos;
use hotrow_server::config::{Collection, Concurrency, Config};
use hotrow_server::lookups::Calendar;
use hotrow_server::service::Service;
use hotrow_server::shared::Shared;
use hotrow_server::sink::FeedCounts;
use hotrow_source::{BoxFuture, ReadSet, Row, RowBudget, Source, SourceError};
use hotrow_supervisor::shutdown::Shutdown;
use hotrow_types::key::{CollectionId, Key, KeySchema, KeyType};
use hotrow_types::version::Version;

/// Hits of one count.
const HITS: u64 = 512;
/// Most allocations of everything else in that time: the worker's timers, background threads.
const OTHERS_MAX: u64 = HITS / 8;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// `true` on the thread of the client.
    static IS_CLIENT: Cell<bool> = const { Cell::new(false) };
}

struct Counting;

// SAFETY: forwards everything to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if !IS_CLIENT.get() {
            ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        }
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Has one row, and no other.
struct OneRow(Vec<KeySchema>);

impl Source for OneRow {
    fn read_within(
        &self,
        _: CollectionId,
        keys: Vec<Key>,
        _: Arc<RowBudget>,
    ) -> BoxFuture<'_, Result<ReadSet, SourceError>> {
        let one = self.0[0].parse_url("1");
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

fn config() -> Config {
    Config {
        data: "127.0.0.1:0".parse().unwrap(),
        admin: "127.0.0.1:0".parse().unwrap(),
        admin_token: None,
        admin_hosts: Vec::new(),
        source_name: "default".to_owned(),
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
        collections: vec![Collection {
            name: "products".to_owned(),
            cache_control: "no-cache".to_owned(),
            allow_no_cache: true,
            allow_min_position: true,
            priority: hotrow_admission::shed::Priority::Normal,
            allow_high_priority: false,
        }],
        rate: hotrow_server::config::rate::RateLimits::default(),
        access: None,
        transport: hotrow_server::config::transport::Transport::default(),
    }
}

fn cache() -> Arc<Cache<hotrow_source::ReadFailure>> {
    let day = Duration::from_hours(24);
    let config = CacheConfig {
        enabled: true,
        capacity_bytes: 1 << 20,
        negative_share: 0.1,
        entry_bytes_estimate: 100,
        invalidation_mode: InvalidationMode::TtlOnly,
        prefetch_on_change: false,
        isolate_scans: true,
        max_staleness: Duration::from_secs(1),
        when_stale: WhenStale::Bypass,
        ttl_jitter: 0.0,
        error_ttl: Duration::ZERO,
        stale_while_revalidate: Duration::ZERO,
        stale_if_error: Duration::ZERO,
        reads_in_flight: 1,
        query_keys: 10,
        query_bytes: 1024,
        waiting_keys: 20,
        queue: queue::Config {
            adaptive: false,
            target: Duration::ZERO,
            interval: Duration::ZERO,
            query_target: Duration::ZERO,
        },
        seed: 1,
    };
    Cache::new(config, vec![CollectionPolicy { ttl: day, negative_ttl: day }])
}

/// Returns the allocations of the server while it answers [`HITS`] times, in the given number of
/// requests at once.
fn allocations(client: &mut Client, request: &str, status: u16, at_once: u64) -> u64 {
    let requests = request.repeat(at_once as usize);
    let mut ask = |times: u64| {
        for _ in 0..times / at_once {
            client.send(&requests);
            (0..at_once).for_each(|_| assert_eq!(client.next_status(), status));
        }
    };
    // Fills the cache, and the buffers of the worker.
    ask(4 * at_once);
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    ask(HITS);
    ALLOCATIONS.load(Ordering::Relaxed) - before
}

#[test]
fn hits_do_not_allocate() {
    IS_CLIENT.set(true);
    let config = config();
    let service = Service::bind(&config).unwrap();
    let address = service.data();
    let source = OneRow(vec![KeySchema::new(CollectionId(0), vec![KeyType::Integer])]);
    let calendar = Calendar::new(Nanos::now(), 0);
    let shared = Shared::new(&config, cache(), Arc::new(source), calendar).unwrap();
    let shutdown = Shutdown::new();
    let ending = shutdown.clone();
    let (started, is_started) = channel();
    let server = std::thread::spawn(move || {
        let feed = Arc::new(FeedCounts::default());
        service.run(&config, &shared, feed, &ending, move || started.send(()).unwrap())
    });
    is_started.recv_timeout(common::DEADLINE).unwrap();
    let mut client = Client::connect(address);
    for (what, target, field, status) in [
        ("a record", "1", "", 200),
        ("a missing record", "2", "", 404),
        ("a known record", "1", "If-None-Match: *\r\n", 304),
    ] {
        let request = format!("GET /products/{target} HTTP/1.1\r\nHost: a\r\n{field}\r\n");
        for at_once in [1, 16] {
            let count = allocations(&mut client, &request, status, at_once);
            assert!(count <= OTHERS_MAX, "{what}, {at_once} at once: {count} in {HITS} hits");
        }
    }
    shutdown.now();
    server.join().unwrap().unwrap();
}
