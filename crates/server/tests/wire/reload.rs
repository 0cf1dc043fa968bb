//! Settings that change while requests wait and connections are open: the order is forced by reads
//! that wait for the test.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::common::http2::Http2Connection;
use crate::common::service::{Running, access, cache_config, config};
use crate::common::{Client, limits, wait_until};
use hotrow_admission::rate::limit::{Kind, Setting};
use hotrow_cache::Cache;
use hotrow_cache::config::{CollectionPolicy, Config as CacheConfig};
use hotrow_config::access::Access;
use hotrow_config::rate::{BatchCost, Per, RateLimits, RateRule};
use hotrow_config::transport::Transport;
use hotrow_config::{Config, Limits};
use hotrow_service::apply::{Applied, Change};
use hotrow_source::{BoxFuture, ReadSet, Row, RowBudget, Source, SourceError};
use hotrow_types::key::{CollectionId, Key, KeySchema, KeyType};
use hotrow_types::version::Version;
use tokio::sync::watch;

/// Answers every read with a row, once the gate is open for its number.
struct Gated {
    schemas: Vec<KeySchema>,
    open_below: watch::Receiver<usize>,
    begun: Arc<AtomicUsize>,
}

impl Source for Gated {
    fn read_within(
        &self,
        _: CollectionId,
        keys: Vec<Key>,
        _: Arc<RowBudget>,
    ) -> BoxFuture<'_, Result<ReadSet, SourceError>> {
        let rows = keys.iter().map(|_| Row::Found(b"{}".to_vec())).collect();
        let mut open_below = self.open_below.clone();
        Box::pin(async move {
            let number = self.begun.fetch_add(1, Ordering::Relaxed);
            open_below.wait_for(|below| number < *below).await.unwrap();
            Ok(ReadSet { version: Version::Unknown, position: None, rows })
        })
    }

    fn schemas(&self) -> &[KeySchema] {
        &self.schemas
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

/// A service whose reads wait.
struct Bench {
    server: Running,
    gate: watch::Sender<usize>,
    begun: Arc<AtomicUsize>,
    config: Config,
}

fn policies() -> Vec<CollectionPolicy> {
    let day = Duration::from_hours(24);
    let policy =
        CollectionPolicy { ttl: day, negative_ttl: day, has_tenants: false, has_views: false };
    vec![policy; 2]
}

impl Bench {
    fn start(config: Config) -> Self {
        let (gate, open_below) = watch::channel(0);
        let begun = Arc::<AtomicUsize>::default();
        let schema = |id| KeySchema::new(CollectionId(id), vec![KeyType::Integer]);
        let schemas = vec![schema(0), schema(1)];
        let source = Gated { schemas, open_below, begun: Arc::clone(&begun) };
        let own = CacheConfig { reads_in_flight: 8, ..cache_config() };
        let cache = Cache::new(own, policies());
        let server = Running::start_over(&config, cache, Arc::new(source));
        Self { server, gate, begun, config }
    }

    fn client(&self) -> Client {
        Client::connect(self.server.address)
    }

    /// Waits until `count` reads have begun.
    fn await_reads(&self, count: usize) {
        wait_until(|| self.begun.load(Ordering::Relaxed) == count);
    }

    /// Lets the first `count` reads end.
    fn open_for(&self, count: usize) {
        self.gate.send_replace(count);
    }

    fn open(&self) {
        self.open_for(usize::MAX);
    }

    /// Puts other settings in force, and waits until they are everywhere.
    fn apply(&self, change: impl FnOnce(&mut Config)) -> Applied {
        let mut config = self.config.clone();
        change(&mut config);
        let change = Change {
            config,
            cache: cache_config().settings(),
            policies: policies(),
            capacity_bytes: 1 << 20,
            access_changed: true,
        };
        let applied = self.server.in_force.apply(change, &self.server.shutdown).unwrap();
        assert_eq!(applied.everywhere, Ok(()));
        applied
    }
}

/// Returns a configuration in which one API key may read `products`, and that key as a field.
fn guarded() -> (Config, String) {
    let (access, key) = access();
    (Config { access: Some(access), workers: 2, ..config() }, format!("X-API-Key: {key}\r\n"))
}

/// Returns the same access without any key.
fn revoked() -> Option<Access> {
    let mut access = access().0;
    access.granted.keys.clear();
    Some(access)
}

fn get(id: u32, fields: &str) -> String {
    format!("GET /products/{id} HTTP/1.1\r\nHost: a\r\n{fields}\r\n")
}

fn post(ids: &str) -> String {
    let body = format!("{{\"ids\":[{ids}]}}");
    let length = body.len();
    format!(
        "POST /products HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n\
         Content-Length: {length}\r\n\r\n{body}"
    )
}

#[test]
fn a_request_that_waits_is_judged_by_the_credentials_in_force() {
    let (config, key) = guarded();
    let bench = Bench::start(config);
    let (mut kept, mut lost) = (bench.client(), bench.client());
    kept.send(get(1, &key));
    bench.await_reads(1);
    // Something else changes: the request goes on, and is answered once.
    bench.apply(|config| config.describes_on_data = true);
    bench.open_for(1);
    assert_eq!(kept.answer().status, 200);
    lost.send(get(2, &key));
    bench.await_reads(2);
    bench.apply(|config| config.access = revoked());
    bench.open();
    assert_eq!(lost.answer().status, 401, "the row was read for a key that is no longer valid");
    assert_eq!(kept.send(get(1, &key)).answer().status, 401);
}

#[test]
fn no_connection_is_behind_once_a_change_is_reported() {
    let (config, key) = guarded();
    let transport = Transport { http2: true, ..Transport::default() };
    let bench = Bench::start(Config { transport, ..config });
    bench.open();
    let mut clients: Vec<_> = (0..20).map(|_| bench.client()).collect();
    let mut session = Http2Connection::connect(bench.server.address);
    let mut statuses = || {
        let mut statuses: Vec<_> =
            clients.iter_mut().map(|client| client.send(get(1, &key)).answer().status).collect();
        statuses.push(session.ask("GET", "/products/1", &key, "").status);
        statuses
    };
    assert_eq!(statuses(), [200; 21]);
    for _ in 0..20 {
        bench.apply(|config| config.access = revoked());
        assert_eq!(statuses(), [401; 21], "an open session of HTTP/2 too");
        bench.apply(|_| {});
        assert_eq!(statuses(), [200; 21]);
    }
}

#[test]
fn a_batch_that_waits_meets_the_limits_in_force() {
    let bench = Bench::start(Config { limits: Limits { max_batch: 5, ..limits() }, ..config() });
    let mut clients: Vec<_> = (0..3).map(|_| bench.client()).collect();
    let get = "GET /products?ids=6,7,8 HTTP/1.1\r\nHost: a\r\n\r\n".to_owned();
    // One after the other: keys that are queued together are read together.
    for (at, request) in [post("1,2,3"), post("4,5"), get].into_iter().enumerate() {
        clients[at].send(request);
        bench.await_reads(at + 1);
    }
    bench.apply(|config| config.limits.max_batch = 2);
    bench.open();
    let statuses: Vec<_> = clients.iter_mut().map(|client| client.answer().status).collect();
    assert_eq!(statuses, [400, 200, 400]);
}

/// The ids of a batch are known only when its body has arrived, under whatever settings.
#[test]
fn a_body_may_arrive_across_a_change() {
    let bench = Bench::start(Config { limits: Limits { max_batch: 5, ..limits() }, ..config() });
    bench.open();
    let mut client = bench.client();
    let text = post("1,2,3");
    let (head, body) = text.split_at(text.len() - 4);
    client.send(head);
    // Another request is answered: the first one has begun.
    assert_eq!(bench.client().send(get(9, "")).answer().status, 200);
    bench.apply(|config| config.describes_on_data = true);
    assert_eq!(client.send(body).answer().status, 200);
}

#[test]
fn a_collection_that_left_is_not_found_and_not_described() {
    let bench = Bench::start(Config { describes_on_data: true, ..config() });
    let mut waiting = bench.client();
    waiting.send(get(1, ""));
    bench.await_reads(1);
    bench.apply(|config| config.collections[0].is_removed = true);
    bench.open();
    assert_eq!(waiting.answer().status, 404);
    let mut client = bench.client();
    assert_eq!(client.send(get(1, "")).answer().status, 404);
    let described = "GET /openapi.json HTTP/1.1\r\nHost: a\r\n\r\n";
    let page = client.send(described).answer().body;
    assert!(page.contains("/prices/") && !page.contains("/products/"), "{page}");
    assert_eq!(client.send("GET /prices/1 HTTP/1.1\r\nHost: a\r\n\r\n").answer().status, 200);
    bench.apply(|_| {});
    assert_eq!(client.send(get(1, "")).answer().status, 200);
}

#[test]
fn an_open_connection_meets_the_limits_in_force() {
    let bench = Bench::start(config());
    bench.open();
    let mut client = bench.client();
    let long = format!("GET /products/1?{} HTTP/1.1\r\nHost: a\r\n\r\n", "&".repeat(300));
    assert_eq!(client.send(&long).answer().status, 200);
    bench.apply(|config| config.limits.target_bytes = 200);
    assert_eq!(client.send(get(1, "")).answer().status, 200);
    assert_eq!(client.send(&long).answer().status, 414);
}

#[test]
fn an_unchanged_rate_limit_keeps_its_count() {
    let rule = |burst| RateRule {
        name: "all".to_owned(),
        per: Per::Global,
        setting: Setting {
            kind: Kind::TokenBucket,
            rate: "1/h".parse().unwrap(),
            burst,
            warm_up: Duration::ZERO,
        },
        batch_cost: BatchCost::Ids,
        collections: None,
        classes: None,
    };
    let rate = |burst| RateLimits { rules: vec![rule(burst)], ..RateLimits::default() };
    let bench = Bench::start(Config { rate: rate(2), ..config() });
    bench.open();
    let mut client = bench.client();
    let mut ask = || client.send(get(1, "")).answer().status;
    assert_eq!([ask(), ask(), ask()], [200, 200, 429]);
    let applied = bench.apply(|config| config.describes_on_data = true);
    assert_eq!((ask(), applied.rate_rules), (429, Vec::new()));
    bench.apply(|config| config.rate = rate(3));
    assert_eq!([ask(), ask(), ask(), ask()], [200, 200, 200, 429]);
    let mut admin = Client::connect(bench.server.admin);
    let body = "{\"burst\":9}";
    let change = format!(
        "POST /limits/rate/all HTTP/1.1\r\nHost: localhost\r\nHotrow-Admin: 1\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let answer = admin.send(change).answer();
    assert!(answer.status == 200 && answer.body.contains("\"until\""), "{answer:?}");
    let kept = bench.apply(|config| config.rate = rate(3)).rate_rules;
    assert_eq!(kept, [("all".to_owned(), true)]);
    let replaced = bench.apply(|config| config.rate = rate(4)).rate_rules;
    assert_eq!(replaced, [("all".to_owned(), false)]);
}

/// Returns the answer to a request during which the settings change `changes` times.
fn status_after(changes: usize) -> u16 {
    let bench = Bench::start(config());
    let mut client = bench.client();
    // With no-cache each evaluation waits for a read of its own.
    client.send(get(1, "Cache-Control: no-cache\r\n"));
    for change in 1..=changes {
        bench.await_reads(change);
        bench.apply(|config| config.describes_on_data = change % 2 == 0);
        bench.open_for(change);
    }
    bench.open();
    client.answer().status
}

#[test]
fn a_request_survives_several_changes_and_not_endless_ones() {
    assert_eq!([status_after(1), status_after(3), status_after(4)], [200, 200, 503]);
}
