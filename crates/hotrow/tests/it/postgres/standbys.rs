//! Standbys that answer reads, under faults: conflicts with the replay, and a fail-over under load.

use std::io::Write as _;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::postgres::server::{ROLE, Server as Database};
use crate::postgres::shop::Shop;
use crate::shop::{await_readyz, cached, path, price_sql, row, with_options};
use hotrow_testkit::harness::{Config, SOON, Server, await_some, await_until};
use serde_json::Value;

/// Bound on staleness.
const BOUND: Duration = Duration::from_millis(800);
/// Conflicts that would open the circuit breaker if they counted.
const CONFLICTS_MIN: f64 = 30.0;
/// Records of a batch.
const MANY: u32 = 400;

/// Makes versions that no snapshot may need, and removes them, in a loop.
struct Vacuum {
    psql: Child,
}

impl Vacuum {
    fn begin(primary: &Database) -> Self {
        let mut psql = Command::new("psql")
            .args(["-X", "-q", "-d", &primary.url()])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("psql");
        let mut input = psql.stdin.take().expect("piped");
        // Until psql has ended.
        std::thread::spawn(move || {
            while input.write_all(b"UPDATE noise SET n = n + 1; VACUUM noise;\n").is_ok() {}
        });
        Self { psql }
    }
}

impl Drop for Vacuum {
    fn drop(&mut self) {
        // It may have ended already.
        _ = self.psql.kill();
        _ = self.psql.wait();
    }
}

fn refusals(server: &Server, reason: &str) -> f64 {
    server.metrics().sum("hotrow_standby_refusals_total", &[("reason", reason)])
}

/// Replay removes versions that a query of the standby may need, and cancels the query.
#[test]
fn a_query_that_the_replay_cancels_is_read_from_the_primary() {
    let primary = Shop::new(
        "CREATE TABLE products(id integer PRIMARY KEY, price integer NOT NULL);
         INSERT INTO products SELECT n, n FROM generate_series(1, 200000) n; ANALYZE products;
         CREATE TABLE noise(n integer); INSERT INTO noise SELECT generate_series(1, 200)",
    );
    primary.server.batch(&format!("GRANT pg_read_all_stats TO {ROLE}"));
    // Its queries read the whole table: they last for longer than the replay waits.
    let standby = primary.server.standby(&[
        ("max_standby_streaming_delay", "0"),
        ("enable_indexscan", "off"),
        ("enable_indexonlyscan", "off"),
        ("enable_bitmapscan", "off"),
        ("max_parallel_workers_per_gather", "0"),
    ]);
    let url = standby.url_for(ROLE, "postgres");
    let config = primary
        .config_of(&["products"])
        .set("source.read_urls", &format!("[{url:?}]"))
        .set("source.read_timeout", "\"8s\"")
        .set("cache.capacity", "\"1MiB\"");
    let server = Server::start(&config);
    let mut client = server.client();
    // Each batch has records of its own, and is a query.
    let mut batches = 0;
    let mut read = || {
        let first = batches * MANY % (200_000 - MANY);
        batches += 1;
        let ids: Vec<String> = (first + 1..=first + MANY).map(|id| id.to_string()).collect();
        let answer = client.get(&format!("/products?ids={}", ids.join(",")));
        assert_eq!(answer.status, 200, "{answer:?}");
        assert_eq!(answer.text().matches("\"price\"").count() as u32, MANY);
    };
    let reads = || server.metrics().sum("hotrow_standby_reads_total", &[]);
    await_until("the standby to answer", SOON, || {
        read();
        reads() > 3.0
    });
    let vacuum = Vacuum::begin(&primary.server);
    await_until("conflicts", 3 * SOON, || {
        read();
        refusals(&server, "conflict") >= CONFLICTS_MIN
    });
    drop(vacuum);
    let status = server.status();
    let source = &status["sources"]["default"];
    assert_eq!(source["breaker"], "closed", "{status}");
    assert_eq!(source["breaker_refused_keys"], 0, "{status}");
    assert_eq!(source["standbys"][0]["trouble"], Value::Null, "it is asked again at once");
    let before = reads();
    await_until("the standby to answer again", SOON, || {
        read();
        reads() > before
    });
}

/// What clients saw of the products that the writer changes.
#[derive(Default)]
struct Seen {
    /// Prices, with the time at which their COMMIT had returned.
    commits: Mutex<Vec<(Instant, u32)>>,
    answers: Mutex<Vec<Answer>>,
    is_over: AtomicBool,
}

/// Ends the threads, also after a failure.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

struct Answer {
    sent_at: Instant,
    received_at: Instant,
    /// `None`: refused.
    price: Option<u32>,
    cache: String,
}

/// A primary whose commits wait for both standbys, so that none that has returned is lost.
struct Cluster {
    primary: Shop,
    standbys: [Database; 2],
}

impl Cluster {
    fn start() -> Self {
        let primary = Shop::with_products();
        primary.server.batch(&format!("GRANT pg_read_all_stats TO {ROLE}"));
        let standbys = [primary.server.standby(&[]), primary.server.standby(&[])];
        primary.server.set(&[("synchronous_standby_names", "FIRST 2 (*)")]);
        Self { primary, standbys }
    }

    /// Returns the URL that leads to the primary, whichever server it is.
    fn url(&self, user: &str) -> String {
        let (first, second) = (self.primary.server.port(), self.standbys[0].port());
        format!(
            "postgres://{user}@127.0.0.1:{first},127.0.0.1:{second}/postgres\
             ?target_session_attrs=read-write"
        )
    }

    fn config(&self) -> Config {
        let url_of = |standby: &Database| format!("{:?}", standby.url_for(ROLE, "postgres"));
        let read_urls = self.standbys.each_ref().map(url_of).join(", ");
        with_options(Config::over(&self.url(ROLE)), &["products"])
            .set("source.read_urls", &format!("[{read_urls}]"))
            .set("source.connect_timeout", "\"1s\"")
            .set("admin.ready_when", "\"fresh\"")
            .set("cache.max_staleness", &format!("\"{}ms\"", BOUND.as_millis()))
    }

    /// Kills the primary and promotes the first standby, which the second follows. Returns the time
    /// at which the promotion began.
    fn fail_over(&mut self) -> Instant {
        let user = superuser(&self.primary.server);
        self.primary.server.kill9();
        let began_at = Instant::now();
        self.standbys[0].promote();
        self.standbys[1].batch(&format!(
            "ALTER SYSTEM SET primary_conninfo = 'host=127.0.0.1 port={} user={user}'; \
             SELECT pg_reload_conf()",
            self.standbys[0].port()
        ));
        began_at
    }
}

fn superuser(server: &Database) -> String {
    let url = server.url();
    let user = url.strip_prefix("postgres://").and_then(|rest| rest.split_once('@'));
    user.expect("a user").0.to_owned()
}

/// Changes products until the end; each change is repeated until its COMMIT has returned.
fn write(url: &str, seen: &Seen) {
    for price in 100_000.. {
        let sql = format!("UPDATE products SET price = {price} WHERE id <= 5");
        let commit = || {
            let mut psql = Command::new("psql");
            psql.args(["-X", "-q", "-d", url, "-c", &sql]);
            psql.env("PGCONNECT_TIMEOUT", "2").output().expect("psql").status.success()
        };
        while !commit() {
            if seen.is_over.load(Ordering::Relaxed) {
                return;
            }
        }
        seen.commits.lock().expect("no panics").push((Instant::now(), price));
        if seen.is_over.load(Ordering::Relaxed) {
            return;
        }
    }
}

fn read(server: &Server, seen: &Seen) {
    let mut client = server.client();
    for id in (1..=5).cycle() {
        if seen.is_over.load(Ordering::Relaxed) {
            return;
        }
        let sent_at = Instant::now();
        let answer = client.get(&path(id));
        assert!(matches!(answer.status, 200 | 503 | 504), "{answer:?}");
        let price = (answer.status == 200).then(|| {
            let value: Value = serde_json::from_str(&answer.text()).expect("JSON");
            value["price"].as_u64().expect("a number") as u32
        });
        let cache = answer.cache().to_owned();
        let answer = Answer { sent_at, received_at: Instant::now(), price, cache };
        seen.answers.lock().expect("no panics").push(answer);
    }
}

impl Seen {
    /// Asserts that no answer that is not marked stale lacks a commit that had returned more than
    /// the bound before its request.
    fn assert_none_is_stale(&self) {
        let commits = self.commits.lock().expect("no panics");
        let answers = self.answers.lock().expect("no panics");
        for answer in answers.iter().filter(|answer| answer.cache != "stale") {
            let Some(price) = answer.price else { continue };
            let known = |(at, _): &&(Instant, u32)| *at + BOUND <= answer.sent_at;
            let least = commits.iter().rev().find(known).map_or(0, |(_, price)| *price);
            // Before the first change the price is a hundred times the id.
            assert!(price >= least, "{price} is older than {least}: {}", answer.cache);
        }
    }

    /// Returns the time from `began_at` to the first answer that shows a commit from after it.
    fn fresh_after(&self, began_at: Instant, is_hit: bool) -> Option<Duration> {
        let commits = self.commits.lock().expect("no panics");
        // The commit before it may have been under way.
        let first = commits.iter().filter(|(at, _)| *at > began_at).nth(1)?.1;
        let answers = self.answers.lock().expect("no panics");
        let is_fresh = |answer: &&Answer| {
            answer.sent_at > began_at
                && answer.price.is_some_and(|price| price >= first)
                && (!is_hit || answer.cache == "hit")
        };
        Some(answers.iter().find(is_fresh)?.received_at - began_at)
    }
}

/// Fails over under load. Returns the times from the promotion to the first answer with a commit of
/// the new primary, and to the first hit with one.
fn fail_over_under_load() -> (Duration, Duration) {
    let mut cluster = Cluster::start();
    let server = Server::start(&cluster.config());
    cached(&mut server.client(), &path(1));
    let old = cluster.primary.position();
    let (seen, url) = (Seen::default(), cluster.url(&superuser(&cluster.primary.server)));
    let reads = || server.metrics().sum("hotrow_standby_reads_total", &[]);
    let times = std::thread::scope(|scope| {
        let _end = End(&seen.is_over);
        scope.spawn(|| write(&url, &seen));
        scope.spawn(|| read(&server, &seen));
        scope.spawn(|| read(&server, &seen));
        await_until("some commits", SOON, || seen.commits.lock().expect("no panics").len() > 20);
        let began_at = cluster.fail_over();
        let fresh = await_some("a fresh answer", SOON, || seen.fresh_after(began_at, false));
        let hit = await_some("a fresh hit", SOON, || seen.fresh_after(began_at, true));
        // A standby of the new timeline answers too.
        let before = reads();
        await_until("reads of the other standby", SOON, || {
            server.get(&path(6 + (reads() as u32) % 150));
            server.admin_client().request("POST", "/purge/products", &[("Hotrow-Admin", "1")], b"");
            reads() > before
        });
        (fresh, hit)
    });
    seen.assert_none_is_stale();
    await_readyz(&server, 200);
    let mut client = server.client();
    let answer = client.get_with(&path(9), &[("Hotrow-Min-Position", &old)]);
    assert_eq!(answer.status, 400, "a position of the timeline before: {answer:?}");
    let token = client.get(&path(9)).header("hotrow-position").expect("a position").to_owned();
    let answer = client.get_with(&path(9), &[("Hotrow-Min-Position", &token)]);
    assert_eq!((answer.status, answer.text()), (200, row(9, 900)), "of the new timeline");
    cluster.standbys[0].batch(&price_sql(9, 1));
    let later = [("Cache-Control", "no-cache")];
    assert_eq!(client.get_with(&path(9), &later).text(), row(9, 1));
    times
}

#[test]
fn a_fail_over_under_load_gives_no_stale_answer() {
    let (fresh, hit) = fail_over_under_load();
    println!(
        "fresh {} ms after the promotion, hits after {} ms",
        fresh.as_millis(),
        hit.as_millis()
    );
}

/// Prints the figures of docs/replicas.md.
#[ignore = "long: ten fail-overs"]
#[test]
fn how_long_a_fail_over_takes() {
    let mut times: Vec<_> = (0..10).map(|_| fail_over_under_load()).collect();
    times.sort_unstable();
    for (fresh, hit) in &times {
        println!("fresh after {} ms, hits after {} ms", fresh.as_millis(), hit.as_millis());
    }
    println!("median: {} ms", times[times.len() / 2].0.as_millis());
}
