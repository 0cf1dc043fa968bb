//! Cost of a read, printed. Run with `cargo test --release -p hotrow-source postgres::tests::bench
//! -- --ignored --nocapture --test-threads 1`.

use std::time::{Duration, Instant};

use hotrow_types::key::{CollectionId, Key};

use super::harness::{Reader, config};
use super::server::Server;
use hotrow_source::Source as _;

const ROWS: u64 = 100_000;
const OVER: Duration = Duration::from_secs(3);

/// Returns the CPU time in seconds of these processes.
fn cpu_s(pids: &[u32]) -> f64 {
    let ticks = pids
        .iter()
        .filter_map(|pid| std::fs::read_to_string(format!("/proc/{pid}/stat")).ok())
        .map(|stat| {
            let (_, rest) = stat.rsplit_once(')').unwrap();
            rest.split_whitespace().skip(11).take(2).map(|f| f.parse::<u64>().unwrap()).sum::<u64>()
        });
    // Ticks of a hundredth of a second.
    ticks.sum::<u64>() as f64 / 100.0
}

fn table(server: &Server) {
    server.batch(&format!(
        "CREATE TABLE products (id bigint PRIMARY KEY, name text NOT NULL, price numeric(10, 2), \
         stock int, made timestamptz, text text);
         INSERT INTO products SELECT i, 'product ' || i, i / 100.0, i % 50, now(), \
         repeat(md5(i::text), 6) FROM generate_series(1, {ROWS}) i;
         ALTER TABLE products SET (autovacuum_enabled = off)"
    ));
    server.batch("VACUUM ANALYZE products");
}

fn report(name: &str, server: &Server, keys: usize, took: Duration, before: (f64, f64)) {
    let database = cpu_s(&server.processes()) - before.0;
    let own = cpu_s(&[std::process::id()]) - before.1;
    let each = |s: f64| s * 1e6 / keys as f64;
    println!(
        "{name:40} {:8.0} keys/s  database {:6.2} us, own {:6.2} us of CPU per key",
        keys as f64 / took.as_secs_f64(),
        each(database),
        each(own)
    );
}

#[test]
#[ignore = "a measurement"]
fn bench_reads() {
    let server = Server::start(&[("shared_buffers", "128MB")]);
    table(&server);
    let mut config = config(&server.url(), &["products(id)"]);
    config.server.reads_in_flight = 8;
    let reader = Reader::open(config);
    let schema = &reader.source.schemas()[0];
    let keys: Vec<Key> =
        (0..ROWS).map(|i| schema.parse_url(&(i * 7919 % ROWS + 1).to_string()).unwrap()).collect();
    for (tasks, size) in [(1, 1), (8, 1), (2, 8), (4, 12), (2, 25), (8, 64), (2, 512)] {
        let before = (cpu_s(&server.processes()), cpu_s(&[std::process::id()]));
        let begun = Instant::now();
        let done: usize = reader.block_on(async {
            let mut all = Vec::new();
            for task in 0..tasks {
                let source = reader.source.clone();
                let keys = keys.clone();
                all.push(tokio::spawn(async move {
                    let mut done = 0;
                    while begun.elapsed() < OVER {
                        let from = (task * 12_345 + done) % (keys.len() - size);
                        source
                            .read(CollectionId(0), keys[from..from + size].to_vec())
                            .await
                            .unwrap();
                        done += size;
                    }
                    done
                }));
            }
            let mut sum = 0;
            for task in all {
                sum += task.await.unwrap();
            }
            sum
        });
        report(
            &format!("{tasks} at once, {size} keys in a query"),
            &server,
            done,
            begun.elapsed(),
            before,
        );
    }
    plain(&reader, &server);
}

/// Measures a service that requests each record separately with the same library: a lower bound for
/// comparison.
fn plain(reader: &Reader, server: &Server) {
    let target = crate::target::Target::parse(&server.url()).unwrap();
    let settings = crate::connect::Settings {
        statement_timeout: OVER * 2,
        connect_timeout: Duration::from_secs(5),
    };
    reader.block_on(async {
        let mut sessions = Vec::new();
        for _ in 0..8 {
            sessions.push(crate::connect::primary(&target, settings, None).await.unwrap());
        }
        let before = (cpu_s(&server.processes()), cpu_s(&[std::process::id()]));
        let begun = Instant::now();
        let mut all = Vec::new();
        for (task, session) in sessions.into_iter().enumerate() {
            all.push(tokio::spawn(async move {
                let statement =
                    session.client.prepare("SELECT * FROM products WHERE id = $1").await.unwrap();
                let mut done = 0;
                while begun.elapsed() < OVER {
                    let id = ((task * 12_345 + done) as u64 * 7919 % ROWS + 1) as i64;
                    assert_eq!(session.client.query(&statement, &[&id]).await.unwrap().len(), 1);
                    done += 1;
                }
                done
            }));
        }
        let mut done = 0;
        for task in all {
            done += task.await.unwrap();
        }
        report("plain: 8 at once, 1 key in a query", server, done, begun.elapsed(), before);
    });
}
