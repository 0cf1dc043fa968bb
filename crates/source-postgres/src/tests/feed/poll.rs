//! Cost of the catalogue check for the server.

use std::time::{Duration, Instant};

use super::super::recorder::DEADLINE;
use super::*;
use crate::config::Config;
use crate::survey::fingerprint::{Fingerprint, Scanner};

/// Duration of a measurement.
const OVER: Duration = Duration::from_secs(10);

/// Starts a server with tables `t0`, `t1`, …; returns their collections too.
fn with_tables(count: usize) -> (Server, Vec<String>) {
    let server = Server::start(&[]);
    let table = |i| {
        format!(
            "CREATE TABLE t{i} (id bigint PRIMARY KEY, name text NOT NULL, price numeric(10, 2), \
             stock int, made timestamptz,
             text text, a text, b int, c jsonb, d uuid, e text[], f bool);"
        )
    };
    server.batch(&(0..count).map(table).collect::<String>());
    (server, (0..count).map(|i| format!("t{i}(id)")).collect())
}

/// Returns the CPU time of the sessions of the feed and the readers.
fn sessions_cpu(server: &Server) -> Duration {
    let pids = server.query(
        "SELECT string_agg(pid::text, ',') FROM pg_stat_activity \
         WHERE application_name LIKE 'hotrow%' AND backend_type = 'client backend'",
    );
    let nanos = |pid: &str| -> u64 {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/schedstat")).unwrap();
        stat.split_whitespace().next().unwrap().parse().unwrap()
    };
    Duration::from_nanos(pids.split(',').map(nanos).sum())
}

/// Returns the statements in the server's log, except those of the probe, of the log's flush and of
/// this test.
fn statements(log: &str) -> Vec<&str> {
    let other = ["pg_current_wal_insert_lsn()", "pg_logical_emit_message"];
    let is_statement =
        |line: &&str| line.contains("LOG:  execute") || line.contains("LOG:  statement");
    log.lines()
        .filter(is_statement)
        .filter(|line| !other.iter().any(|what| line.contains(what)))
        .collect()
}

#[test]
fn a_check_of_many_tables_is_one_statement() {
    let (server, collections) = with_tables(20);
    let collections: Vec<&str> = collections.iter().map(String::as_str).collect();
    let feed = Feed::start(&server, &collections);
    server.set(&[("log_statement", "all")]);
    let is_look = |line: &&&str| line.contains("WITH RECURSIVE wanted");
    let wait = |what: &str, done: &dyn Fn(&[&str]) -> bool| {
        let until = Instant::now() + DEADLINE;
        while !done(&statements(&server.log())) {
            assert!(Instant::now() < until, "waited in vain for {what}: {}", server.log());
            std::thread::sleep(Duration::from_millis(10));
        }
    };
    // After the start, and after a change, everything is surveyed; then only the fingerprint is
    // read.
    for sql in [None, Some("ALTER TABLE t7 ADD g int")] {
        let from = feed.sink.len();
        if let Some(sql) = sql {
            server.batch(sql);
            feed.sink.wait("the new shape", |events| {
                let is_it =
                    |e: &Event| matches!(e, Event::Flush(c, FlushCause::Schema, None) if c.0 == 7);
                events[from..].iter().any(is_it).then_some(())
            });
        }
        wait("fingerprints only", &|all| {
            all.len() > 10 && all.iter().rev().take(10).all(|line| is_look(&line))
        });
    }
    let before = statements(&server.log()).len();
    wait("more fingerprints", &|all| all.len() >= before + 20);
    let log = server.log();
    let all = statements(&log);
    assert!(all[before..].iter().all(|line| is_look(&line)), "{:#?}", &all[before..]);
}

/// Returns the fingerprints before and after each statement.
fn fingerprints(
    url: &str,
    server: &Server,
    config: &Config,
    statements: &[&str],
) -> Vec<(Fingerprint, Fingerprint)> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (client, connection) =
            tokio_postgres::connect(url, tokio_postgres::NoTls).await.unwrap();
        let driver = tokio::spawn(connection);
        client.batch_execute("SET search_path = first, public").await.unwrap();
        let scanner = Scanner::prepare(&client, config).await.unwrap();
        let mut all = Vec::new();
        for sql in statements {
            let before = scanner.scan(&client).await.unwrap();
            assert_eq!(before, scanner.scan(&client).await.unwrap());
            server.batch(sql);
            all.push((before, scanner.scan(&client).await.unwrap()));
        }
        driver.abort();
        all
    })
}

#[test]
fn the_fingerprint_covers_all_that_a_survey_depends_on() {
    let server = Server::start(&[]);
    server.batch(
        "CREATE SCHEMA first; CREATE SCHEMA other; CREATE ROLE reader LOGIN; CREATE ROLE team; \
         CREATE ROLE boss;
         GRANT USAGE ON SCHEMA first, other TO reader;
         CREATE TYPE mood AS ENUM ('calm'); CREATE TYPE pair AS (m mood, n int); \
         CREATE DOMAIN pairs AS pair[];
         CREATE TYPE spans AS RANGE (subtype = pair, multirange_type_name = spanses);
         CREATE TABLE a (id int PRIMARY KEY, x text, p pairs); CREATE UNIQUE INDEX ax ON a (x);
         CREATE TABLE other.b (id int PRIMARY KEY); \
         CREATE TABLE plain (id int PRIMARY KEY, s spanses);
         CREATE TABLE m (id int PRIMARY KEY) PARTITION BY RANGE (id);
         CREATE TABLE m1 PARTITION OF m FOR VALUES FROM (0) TO (100) PARTITION BY RANGE (id);
         CREATE TABLE m11 PARTITION OF m1 FOR VALUES FROM (0) TO (50);
         CREATE PUBLICATION hotrow FOR TABLE a, other.b, m",
    );
    let config = config(server.url(), &["a(id)", "other.b(id)", "m(id)", "plain(id)", "late(id)"]);
    let url = server.url_for("reader", "postgres");
    let telling = [
        "ALTER TABLE a ADD y int",
        "ALTER TABLE a RENAME y TO z",
        "ALTER TABLE a ALTER z TYPE bigint",
        "ALTER TABLE a DROP z",
        "ALTER TABLE a ALTER x SET NOT NULL",
        "ALTER TABLE a REPLICA IDENTITY FULL",
        "ALTER TABLE a REPLICA IDENTITY USING INDEX ax",
        "ALTER INDEX ax RENAME TO ax2",
        "ALTER TABLE plain DROP CONSTRAINT plain_pkey",
        "CREATE UNIQUE INDEX ON plain (id)",
        "CREATE TABLE child () INHERITS (plain)",
        "ALTER TABLE plain SET UNLOGGED",
        // Privileges, direct and inherited.
        "GRANT SELECT (id) ON a TO reader",
        "GRANT SELECT ON a TO PUBLIC",
        "GRANT team TO reader",
        "GRANT boss TO team",
        "ALTER ROLE reader NOINHERIT",
        "GRANT USAGE ON SCHEMA other TO team",
        "ALTER TABLE a OWNER TO team",
        "ALTER TABLE a ENABLE ROW LEVEL SECURITY",
        "ALTER ROLE reader BYPASSRLS",
        "ALTER ROLE reader SUPERUSER",
        // Names.
        "CREATE TABLE late (id int)",
        "CREATE VIEW first.a AS SELECT 1 AS id",
        "DROP VIEW first.a",
        "ALTER SCHEMA other RENAME TO another",
        "ALTER SCHEMA another RENAME TO other",
        "DROP TABLE late",
        // Partitions.
        "TRUNCATE m11",
        "ALTER TABLE m11 REPLICA IDENTITY FULL",
        "CREATE TABLE m12 PARTITION OF m1 DEFAULT",
        "ALTER TABLE m1 DETACH PARTITION m12",
        "ALTER TABLE m11 RENAME TO m11b",
        // Types.
        "ALTER TYPE mood ADD VALUE 'wild'",
        "ALTER TYPE mood RENAME VALUE 'calm' TO 'quiet'",
        "ALTER TYPE pair RENAME ATTRIBUTE n TO o",
        "ALTER TYPE spans RENAME TO spans2",
        // The publication.
        "ALTER PUBLICATION hotrow SET (publish = 'insert')",
        "ALTER PUBLICATION hotrow SET TABLE a (id), other.b, m",
        "ALTER PUBLICATION hotrow SET TABLE a WHERE (id > 5), other.b, m",
        "BEGIN; ALTER PUBLICATION hotrow DROP TABLE m; ALTER PUBLICATION hotrow ADD TABLE m; \
         COMMIT",
        "ALTER PUBLICATION hotrow SET TABLE other.b",
        "ALTER PUBLICATION hotrow ADD TABLES IN SCHEMA public",
        "DROP PUBLICATION hotrow; CREATE PUBLICATION hotrow FOR ALL TABLES",
        "DROP PUBLICATION hotrow",
    ];
    for ((before, after), sql) in fingerprints(&url, &server, &config, &telling).iter().zip(telling)
    {
        assert_ne!(before, after, "{sql}");
    }
    let telling_nothing = [
        "INSERT INTO a (id, x) VALUES (1, '')",
        "VACUUM ANALYZE a",
        "CREATE TABLE unknown (id int PRIMARY KEY); CREATE SCHEMA unheard; \
         CREATE TABLE unheard.of (id int)",
        "CREATE PUBLICATION another FOR TABLE a",
    ];
    for ((before, after), sql) in
        fingerprints(&url, &server, &config, &telling_nothing).iter().zip(telling_nothing)
    {
        assert_eq!(before, after, "{sql}");
    }
}

/// Run with `cargo test -p hotrow-source poll::bench -- --ignored --nocapture --test-threads 1`.
#[test]
#[ignore = "a measurement"]
fn bench_poll() {
    for count in [1, 20, 100] {
        let (server, collections) = with_tables(count);
        let collections: Vec<&str> = collections.iter().map(String::as_str).collect();
        let mut config = config(server.url(), &collections);
        config.server.schema_poll = Duration::from_millis(500);
        // Almost no probes: they are not measured here.
        config.server.max_staleness = Duration::from_secs(3600);
        let feed = Feed::launch(config, |_| {});
        feed.sink.wait("the start", |events| {
            events.iter().any(|e| matches!(e, Event::Started(_))).then_some(())
        });
        // The surveys after the start are not the steady state.
        std::thread::sleep(OVER / 4);
        let cpu = sessions_cpu(&server);
        let begun = Instant::now();
        std::thread::sleep(OVER);
        let polls = begun.elapsed().as_secs_f64() / 0.5;
        let each = (sessions_cpu(&server) - cpu).as_secs_f64() / polls;
        println!(
            "{count:4} collections: {:8.3} ms of CPU per check, {:6.1} s per hour at one a second",
            each * 1e3,
            each * 3600.0
        );
    }
}
