//! Tables that are locked by a waiting statement, so that the catalogue of MariaDB cannot be read.
//! MySQL's can.

use std::time::Duration;

use hotrow_measure::clock::Nanos;

use super::super::harness::wait;
use super::super::recorder::DEADLINE;
use super::super::server::Running;
use super::*;
use crate::connect;

/// Changes a row in a prepared transaction and begins to drop the table. The drop waits for that
/// transaction.
fn lock_table(server: &Server, table: &str) -> Running {
    server.batch(&format!("XA START 'p1'; UPDATE {table} SET n = 1; XA END 'p1'; XA PREPARE 'p1'"));
    let dropping = server.begin(&format!("DROP TABLE {table}"));
    let catalog_query = format!(
        "SET max_statement_time = 0.2; SELECT ENGINE FROM information_schema.TABLES \
         WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = '{table}'"
    );
    wait("the drop to lock the table", || server.try_query(&catalog_query).is_err());
    dropping
}

fn server() -> Server {
    let server = Server::start_as(Flavor::MariaDb, &[]);
    server.batch(
        "CREATE TABLE a (id INT PRIMARY KEY, n INT); CREATE TABLE b (id INT PRIMARY KEY, n INT);
         INSERT INTO a VALUES (1, 0); INSERT INTO b VALUES (1, 0)",
    );
    server
}

/// Returns the number of statements that ended at their time limit.
fn timeouts(server: &Server) -> u64 {
    let text = server.query("SHOW GLOBAL STATUS LIKE 'Max_statement_time_exceeded'");
    text.split('\t').nth(1).unwrap().parse().unwrap()
}

#[test]
fn a_start_waits_for_a_table_lock_beyond_the_read_timeout() {
    let server = server();
    let dropping = lock_table(&server, "b");
    let mut config = config(server.url(), &["a(id)", "b(id)"]);
    config.server.read_timeout = Duration::from_millis(200);
    let before = timeouts(&server);
    let start = std::thread::spawn(move || Feed::launch(config, |_| {}));
    wait("catalogue checks that timed out", || timeouts(&server) >= before + 2);
    assert!(!start.is_finished(), "it gave up");
    dropping.kill();
    server.batch("XA ROLLBACK 'p1'");
    // The server may or may not go on with the statement of a disconnected client, so the table
    // exists or was dropped.
    match start.join() {
        Ok(feed) => _ = feed.settle(),
        Err(refused) => {
            let text = refused.downcast_ref::<String>().unwrap();
            assert!(text.contains("there is no table `b`"), "{text}");
        }
    }
}

#[test]
fn lock_holders_are_named_as_far_as_privileges_allow() {
    let server = server();
    let dropping = lock_table(&server, "b");
    let feed = Feed::launch(config(server.url(), &["a(id)"]), |_| {});
    let plan = feed.source.shared.published.plan().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let describe = async |url: String| {
        let target = crate::target::Target::parse(&url).unwrap();
        let limits = connect::Settings { statement_timeout: DEADLINE, connect_timeout: DEADLINE };
        let mut session = connect::primary(&target, limits, Some(&plan.identity)).await.unwrap();
        crate::blockers::describe(&mut session.conn).await
    };
    let narrow = runtime.block_on(describe(server.url()));
    assert!(narrow.contains("'p1'") && narrow.contains("SHOW FULL PROCESSLIST"), "{narrow}");
    assert!(!narrow.contains("DROP TABLE b"), "{narrow}");
    let wide = runtime.block_on(describe(server.superuser_url()));
    assert!(wide.contains("DROP TABLE b"), "{wide}");
    server.batch("XA ROLLBACK 'p1'");
    dropping.outcome().unwrap();
}

/// The table definitions cannot be confirmed, so nothing is fresh although the log is followed.
#[test]
fn a_blocked_catalogue_check_makes_the_feed_stale() {
    let server = server();
    let feed = Feed::launch(config(server.url(), &["a(id)", "b(id)"]), |tuning| {
        tuning.silence_max = DEADLINE
    });
    feed.settle();
    let dropping = lock_table(&server, "b");
    let held_at = Nanos::now();
    // The log goes on and is followed.
    for n in 2..30 {
        let from = feed.sink.len();
        server.batch(&format!("INSERT INTO a VALUES ({n}, 0)"));
        feed.sink.wait("the change", |events| {
            events[from..]
                .iter()
                .any(|e| matches!(e, Event::Change(c) if c.key == feed.int(0, n)))
                .then_some(())
        });
    }
    let newest = feed.sink.newest_advance().unwrap();
    assert!(newest <= held_at, "fresh by {:?} more than the last check", newest.since(held_at));
    server.batch("XA ROLLBACK 'p1'");
    dropping.outcome().unwrap();
    feed.settle();
    let from = feed.sink.len();
    server.batch("ALTER TABLE a ADD x INT");
    feed.sink.wait("the flush", |events| {
        events[from..]
            .iter()
            .any(|e| matches!(e, Event::Flush(c, FlushCause::Schema, _) if c.0 == 0))
            .then_some(())
    });
}
