//! A late feed, or a missing database: the configured policy, no wrong answer, and recovery without
//! a restart.

use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use hotrow_testkit::harness::{Config, Database, SOON, Server, await_until};

fn config(database: &Database, when_stale: &str) -> Config {
    Config::new(database.path())
        .set("cache.max_staleness", "\"100ms\"")
        .set("cache.error_ttl", "\"0s\"")
        .set("cache.when_stale", &format!("\"{when_stale}\""))
        .set("admin.ready_when", "\"fresh\"")
        .collection("products")
}

/// Moves the database away during operation, with the files beside it; open handles stay valid.
///
/// The write-ahead log is emptied first: a log with content prevents the same database from being
/// accepted after its return.
fn move_away(database: &Database) {
    let wal = format!("{}-wal", database.path().display());
    await_until("an empty write-ahead log", SOON, || {
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)");
        std::fs::metadata(&wal).unwrap().len() == 0
    });
    rename_all(database.path(), &database.folder().join("away.db"));
}

fn move_back(database: &Database) {
    rename_all(&database.folder().join("away.db"), database.path());
}

/// Renames the file itself last, so that it never exists without the files beside it.
fn rename_all(from: &Path, to: &Path) {
    for ending in ["-wal", "-shm", ""] {
        let beside = |path: &Path| format!("{}{ending}", path.display());
        if std::fs::exists(beside(from)).unwrap() {
            std::fs::rename(beside(from), beside(to)).unwrap();
        }
    }
}

fn await_unready(server: &Server) {
    let mut admin = server.admin_client();
    await_until("not ready", SOON, || {
        let answer = admin.get("/readyz");
        // The reason must be the missing database, not only lateness.
        let about = |key: &str| answer.json()[key].clone();
        answer.status == 503 && about("feed") == "behind" && about("source") == "unreachable"
    });
    let answer = admin.get("/readyz");
    assert_eq!(
        (&answer.json()["ready"], answer.header("retry-after")),
        (&serde_json::json!(false), Some("1"))
    );
    assert_eq!(admin.get("/healthz").status, 200, "still alive");
}

#[test]
fn bypass_reads_the_database_and_reports_when_it_cannot() {
    let database = Database::with_products(3);
    let server = Server::start(&config(&database, "bypass"));
    let mut client = server.client();
    assert_eq!(client.get("/products/1").status, 200);
    move_away(&database);
    await_unready(&server);
    for path in ["/products/1", "/products/2", "/products/999", "/products?ids=1,2"] {
        let refused = client.get(path);
        let (title, detail) = refused.problem(503);
        assert_eq!(
            (title.as_str(), refused.header("retry-after")),
            ("Not available", Some("1")),
            "{path}"
        );
        let inside = database.path().to_str().unwrap();
        assert!(!detail.contains(inside) && !refused.text().contains("shop"), "{detail}");
    }
    let metrics = server.metrics();
    assert_eq!(metrics.sum("hotrow_feed_current", &[]), 0.0);
    assert_eq!(metrics.sum("hotrow_source_reachable", &[]), 0.0);
    assert!(metrics.sum("hotrow_feed_gaps_total", &[("cause", "unavailable")]) >= 1.0);
    server.await_log("lost its position");
    move_back(&database);
    server.await_ready();
    database.execute("UPDATE products SET price = 7 WHERE id = 1");
    await_until("fresh answers again", SOON, || client.get("/products/1").json()["price"] == 7);
    assert_eq!(client.get("/products/2").status, 200);
    assert!(server.metrics().sum("hotrow_feed_reconnects_total", &[]) >= 1.0);
}

#[test]
fn stale_serves_cached_records_and_marks_them() {
    let database = Database::with_products(3);
    let server = Server::start(&config(&database, "stale"));
    let mut client = server.client();
    let fine = client.get("/products/1");
    assert_eq!(client.get("/products/999").status, 404);
    database.execute("DELETE FROM products WHERE id = 3");
    let end = database.log_end();
    await_until("the deletion", SOON, || {
        server.metrics().sum("hotrow_feed_position", &[]) as u64 >= end
    });
    assert_eq!(client.get("/products/3").status, 404, "cached too");
    move_away(&database);
    await_unready(&server);
    for (path, status) in [("/products/1", 200), ("/products/999", 404), ("/products/3", 404)] {
        let answer = client.get(path);
        assert_eq!((answer.status, answer.cache()), (status, "stale"), "{path}");
    }
    assert_eq!(client.get("/products/1").body, fine.body);
    assert_eq!(client.get("/products?ids=1,999").cache(), "stale");
    assert_eq!(client.get("/products/2").status, 503, "never read, so not cached");
    await_until("Age to show the age", SOON, || {
        client.get("/products/1").header("age") != Some("0")
    });
    let etag = fine.header("etag").unwrap();
    let unchanged = client.get_with("/products/1", &[("If-None-Match", etag)]);
    assert_eq!((unchanged.status, unchanged.cache()), (304, "stale"));
    move_back(&database);
    server.await_ready();
    await_until("no more stale answers", SOON, || client.get("/products/1").cache() == "hit");
}

#[test]
fn refuse_answers_503() {
    let database = Database::with_products(3);
    let server = Server::start(&config(&database, "refuse"));
    let mut client = server.client();
    await_until("an answer", SOON, || client.get("/products/1").status == 200);
    move_away(&database);
    await_unready(&server);
    let queries = server.queries();
    for path in ["/products/1", "/products/2", "/products?ids=1,2"] {
        let refused = client.get(path);
        assert_eq!(refused.problem(503).0, "Not available", "{path}");
        assert_eq!(refused.header("retry-after"), Some("1"));
    }
    assert_eq!(server.queries(), queries, "no query reaches the database");
    move_back(&database);
    server.await_ready();
    await_until("answers again", SOON, || client.get("/products/1").status == 200);
}

#[test]
fn the_first_answer_after_a_stop_is_right() {
    let database = Database::with_products(1);
    let server = Server::start(&config(&database, "bypass"));
    let mut client = server.client();
    for price in 1..=20 {
        await_until("a cached record", SOON, || client.get("/products/1").cache() == "hit");
        server.stop();
        database.execute(&format!("UPDATE products SET price = {price} WHERE id = 1"));
        let committed = Instant::now();
        await_until("the bound to pass", SOON, || committed.elapsed() > Duration::from_millis(101));
        // The requests are waiting when the process continues, and arrive in one read.
        client.send("GET /products/1 HTTP/1.1\r\nHost: h\r\n\r\n".repeat(2));
        server.signal(Signal::CONT);
        assert_eq!(client.answer().json()["price"], price);
        assert_eq!(client.answer().json()["price"], price);
    }
}

#[test]
fn another_file_in_its_place_is_noticed() {
    let database = Database::with_products(3);
    let config = config(&database, "bypass").set("collections.products.allow_min_position", "true");
    let server = Server::start(&config);
    let mut client = server.client();
    let before = client.get("/products/1");
    let other = Database::with_products(2);
    other.execute("UPDATE products SET name = 'other'; PRAGMA wal_checkpoint(TRUNCATE)");
    let place = database.path().to_owned();
    let end = other.path().to_owned();
    drop(other.connection);
    database.execute("PRAGMA wal_checkpoint(TRUNCATE)");
    // As an operator would: the files beside the database move with it.
    move_away(&database);
    std::fs::rename(&end, &place).unwrap();
    await_until("the other database's record", SOON, || {
        let answer = client.get("/products/1");
        answer.status == 200 && answer.json()["name"] == "other"
    });
    server.await_ready();
    assert_eq!(client.get("/products/3").status, 404);
    let now = client.get("/products/1").position();
    assert_ne!(now.incarnation, before.position().incarnation);
    let old = before.position().to_string();
    assert_eq!(client.get_with("/products/1", &[("Hotrow-Min-Position", &old)]).status, 400);
    let losses = server.metrics().sum("hotrow_feed_gaps_total", &[]);
    assert!(losses >= 1.0);
}

#[test]
fn a_writer_that_holds_the_lock_affects_no_reader() {
    let database = Database::with_products(3);
    let server = Server::start(&config(&database, "refuse").set("cache.max_staleness", "\"1h\""));
    let mut client = server.client();
    database.execute("BEGIN EXCLUSIVE; UPDATE products SET price = 1");
    // While the lock is held, the feed catches up five times.
    for _ in 0..5 {
        let since = Instant::now();
        await_until("the feed to be current", SOON, || {
            let answer = client.get("/products/1");
            assert_eq!((answer.status, &answer.json()["price"]), (200, &serde_json::json!(100)));
            server.metrics().sum("hotrow_feed_staleness_seconds", &[])
                < since.elapsed().as_secs_f64()
        });
    }
    assert_eq!(client.get("/products/2").json()["price"], 200, "an uncached one too");
    assert_eq!(server.admin_client().get("/readyz").status, 200);
    database.execute("COMMIT");
    await_until("the commit", SOON, || client.get("/products/1").json()["price"] == 1);
}

/// Starts a server on a database in rollback mode, where an exclusive lock blocks readers, with
/// record 1 cached.
fn locked_out(settings: &[(&str, &str)]) -> (Database, Server) {
    let database = Database::with_products(3);
    database.execute("PRAGMA journal_mode = DELETE");
    let config = Config::new(database.path())
        .set("source.watch", "\"none\"")
        .set("source.read_timeout", "\"1m\"")
        .set("limits.request_timeout", "\"1m\"")
        .collection("products")
        .with(settings);
    let server = Server::start(&config);
    await_until("a record in memory", SOON, || server.get("/products/1").cache() == "hit");
    (database, server)
}

#[test]
fn an_exclusive_lock_that_commits_nothing_delays_no_hit() {
    for when_stale in ["bypass", "stale", "refuse"] {
        let when_stale = format!("\"{when_stale}\"");
        let (database, server) = locked_out(&[("cache.when_stale", &when_stale)]);
        let mut client = server.client();
        database.execute("BEGIN EXCLUSIVE; UPDATE products SET price = 1");
        // While the lock is held, the feed confirms five times that nothing was committed.
        for _ in 0..5 {
            let since = Instant::now();
            await_until("the feed to be current", SOON, || {
                let answer = client.get("/products/1");
                assert_eq!((answer.status, answer.cache()), (200, "hit"), "{when_stale}");
                server.metrics().sum("hotrow_feed_staleness_seconds", &[])
                    < since.elapsed().as_secs_f64()
            });
        }
        database.execute("COMMIT");
        await_until("the commit", SOON, || client.get("/products/1").json()["price"] == 1);
    }
}

#[test]
fn a_lock_that_stays_after_a_commit_is_handled_by_the_policy() {
    for (when_stale, status) in [("bypass", 504), ("stale", 200), ("refuse", 503)] {
        let quoted = format!("\"{when_stale}\"");
        let settings = [
            ("cache.when_stale", quoted.as_str()),
            ("cache.max_staleness", "\"100ms\""),
            ("cache.error_ttl", "\"0s\""),
            ("limits.request_timeout", "\"100ms\""),
            ("limits.breaker.failures", "10000"),
        ];
        let (database, server) = locked_out(&settings);
        let mut client = server.client();
        database.execute("PRAGMA locking_mode = EXCLUSIVE; UPDATE products SET price = 1");
        let locked = Instant::now();
        // The bound applies to the entry too: on a slow machine the policy may just have refreshed
        // it.
        await_until("the bound to pass", SOON, || {
            let staleness_s = server.metrics().sum("hotrow_feed_staleness_seconds", &[]);
            staleness_s > 0.1 && locked.elapsed() > Duration::from_millis(101)
        });
        let queries = server.queries();
        let mut left = 5;
        await_until(&format!("five answers of {when_stale}"), SOON, || {
            let answer = client.get("/products/1");
            // No policy serves the old record as current.
            assert!(answer.status != 200 || answer.cache() == "stale", "{answer:?}");
            // A request that waits for a busy machine until its time is over is refused.
            assert!([status, 503].contains(&answer.status), "{when_stale}: {answer:?}");
            left -= u32::from(answer.status == status);
            left == 0
        });
        assert!(
            when_stale == "bypass" || server.queries() == queries,
            "{when_stale} reads nothing"
        );
        database.execute("PRAGMA locking_mode = NORMAL; SELECT count(*) FROM products");
        await_until("the commit", SOON, || {
            let answer = client.get("/products/1");
            answer.status == 200 && answer.json()["price"] == 1
        });
    }
}

#[test]
fn a_damaged_file_is_never_served() {
    let database = Database::with_products(3);
    let server = Server::start(&config(&database, "bypass"));
    let mut client = server.client();
    assert_eq!(client.get("/products/1").status, 200);
    database.execute("PRAGMA wal_checkpoint(TRUNCATE)");
    let sound = std::fs::read(database.path()).unwrap();
    // Overwrites the same file, as a failing disk or a careless copy does.
    let overwrite = |bytes: &[u8]| {
        use std::os::unix::fs::FileExt;
        let file = std::fs::OpenOptions::new().write(true).open(database.path()).unwrap();
        file.write_all_at(bytes, 0).unwrap();
        // Closing it would release the locks of this process's connection to the same file.
        std::mem::forget(file);
    };
    overwrite(&vec![0xee; sound.len()]);
    await_unready(&server);
    for id in 1..=3 {
        assert_eq!(client.get(&format!("/products/{id}")).status, 503, "{id}");
    }
    overwrite(&sound);
    server.await_ready();
    assert_eq!(client.get("/products/1").json()["price"], 100);
}
