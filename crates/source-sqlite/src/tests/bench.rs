//! Benchmarks of reads, writes and lag; they print their results. Run with
//! `cargo test --release -p hotrow-source bench -- --ignored --nocapture --test-threads 1`.

use super::harness::*;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::config::Watch;
use crate::uninstall_triggers;
use hotrow_source::Source;
use hotrow_types::key::{CollectionId, Key};

const ROWS: u64 = 100_000;

fn products() -> Db {
    let db = Db::new(
        "CREATE TABLE products(id INTEGER PRIMARY KEY, name TEXT NOT NULL, price REAL, \
         stock INT, text TEXT);",
    );
    db.run(&format!(
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {ROWS})
         INSERT INTO products SELECT i, 'product ' || i, i / 100.0, i % 50, hex(randomblob(110)) \
         FROM n; PRAGMA wal_checkpoint(TRUNCATE)"
    ));
    db
}

/// Returns keys spread over the table, in an order that defeats read-ahead and caches.
fn keys(engine: &Engine, n: u64) -> Vec<Key> {
    let schema = &engine.source.schemas()[0];
    (0..n).map(|i| schema.parse_url(&(i * 7919 % ROWS + 1).to_string()).unwrap()).collect()
}

#[test]
#[ignore = "a measurement"]
fn bench_reads() {
    let db = products();
    for watch in [Watch::Triggers, Watch::None] {
        let config = crate::config::Config { watch, ..db.config(vec![spec("products(id)")]) };
        let engine = Engine::start(config, Default::default());
        let keys = keys(&engine, 50_000);
        let rate = |name: &str, began: Instant, n: usize| {
            let took = began.elapsed();
            println!(
                "{watch:?} {name}: {:.0}/s, {:.2} us each",
                n as f64 / took.as_secs_f64(),
                took.as_secs_f64() * 1e6 / n as f64
            );
        };
        block_on(async {
            let began = Instant::now();
            for key in &keys {
                engine.source.read(CollectionId(0), vec![key.clone()]).await.unwrap();
            }
            rate("single reads, one after the other", began, keys.len());
            let began = Instant::now();
            for window in keys.chunks(64) {
                let reads: Vec<_> = window
                    .iter()
                    .map(|k| engine.source.read(CollectionId(0), vec![k.clone()]))
                    .collect();
                for read in reads {
                    read.await.unwrap();
                }
            }
            rate("single reads, 64 at once", began, keys.len());
            for size in [16, 64, 256, 1024] {
                let began = Instant::now();
                for window in keys.chunks(size) {
                    engine.source.read(CollectionId(0), window.to_vec()).await.unwrap();
                }
                rate(&format!("keys, {size} in a query"), began, keys.len());
            }
        });
    }
}

#[test]
#[ignore = "a measurement"]
fn bench_writes() {
    let db = products();
    db.run(
        "CREATE TABLE plain AS SELECT * FROM products WHERE 0; \
         CREATE TABLE codes(id INTEGER PRIMARY KEY, code TEXT UNIQUE)",
    );
    let measure = |name: &str| {
        for (kind, each, n) in [
            (
                "update, 1 per transaction",
                "UPDATE products SET stock = stock + 1 WHERE id = ?1",
                20_000,
            ),
            (
                "update, all in one transaction",
                "UPDATE products SET stock = stock + 1 WHERE id = ?1",
                100_000,
            ),
            (
                "insert with another unique column, all in one",
                "INSERT INTO codes(code) VALUES ('c' || ?1 || random())",
                100_000,
            ),
        ] {
            let one = n > 20_000;
            let mut statement = db.writer.prepare(each).unwrap();
            let began = Instant::now();
            db.run(if one { "BEGIN" } else { "" });
            for i in 0..n {
                statement.execute([i % ROWS as i64 + 1]).unwrap();
            }
            db.run(if one { "COMMIT" } else { "" });
            println!("{name}: {kind}: {:.2} us", began.elapsed().as_secs_f64() * 1e6 / n as f64);
        }
        let began = Instant::now();
        db.run("BEGIN; DELETE FROM products; ROLLBACK");
        println!(
            "{name}: DELETE of {ROWS} rows without WHERE: {:.1} ms",
            began.elapsed().as_secs_f64() * 1e3
        );
    };
    measure("no triggers");
    drop(db.start(&["products(id)", "codes(id)"]));
    measure("triggers, Hotrow stopped");
    let engine = db.start(&["products(id)", "codes(id)"]);
    measure("triggers, Hotrow running");
    drop(engine);
    uninstall_triggers(&db.path).unwrap();
    measure("no triggers again");
}

#[test]
#[ignore = "a measurement"]
fn bench_lag() {
    let db = products();
    let engine = db.start(&["products(id)"]);
    let update = "UPDATE products SET stock = stock + 1 WHERE id = ?1";
    let mut statement = db.writer.prepare(update).unwrap();
    let mut lags: Vec<Duration> = (0..2_000)
        .map(|i| {
            let from = engine.sink.len();
            statement.execute([i + 1]).unwrap();
            let committed = Instant::now();
            engine.sink.wait("the change", |events| {
                events[from.saturating_sub(1)..]
                    .iter()
                    .any(|e| matches!(e, Event::Changes(_)))
                    .then_some(())
            });
            let lag = committed.elapsed();
            std::thread::sleep(Duration::from_micros(700));
            lag
        })
        .collect();
    lags.sort();
    let at = |share: f64| lags[(lags.len() as f64 * share) as usize];
    println!(
        "COMMIT returned to change delivered: p50 {:?}, p99 {:?}, max {:?}",
        at(0.5),
        at(0.99),
        lags[lags.len() - 1]
    );
    let idle = cpu(Duration::from_secs(2));
    println!("idle feed: {:.2} % of a core", idle * 100.0);
    drop(Arc::clone(&engine.source));
}

/// Returns the share of one core that this process uses.
fn cpu(over: Duration) -> f64 {
    let used = || {
        let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
        let fields: Vec<u64> = stat
            .rsplit_once(')')
            .unwrap()
            .1
            .split_whitespace()
            .skip(11)
            .take(2)
            .map(|f| f.parse().unwrap())
            .collect();
        fields[0] + fields[1]
    };
    let before = used();
    std::thread::sleep(over);
    // Ticks of a hundredth of a second.
    (used() - before) as f64 / 100.0 / over.as_secs_f64()
}
