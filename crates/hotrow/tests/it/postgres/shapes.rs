//! Changes of tables that are in no feed: past the bound no answer has the old shape.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::postgres::server::{ROLE, Server as Postgres};
use crate::shop::cached;
use hotrow_testkit::harness::{Answer, Config, SOON, Server, await_until};

const TABLES: usize = 24;
/// The larger of `max_staleness` and `schema_poll`, by default.
const BOUND: Duration = Duration::from_secs(1);
/// Answers that must comply after each change.
const ANSWERS: usize = 50;

/// A change of `t7`, and a check whether an answer shows it.
type Change = (&'static str, fn(&Answer) -> bool);

const CHANGES: [Change; 6] = [
    ("ALTER TABLE t7 ADD added int DEFAULT 7", |answer| answer.text().contains("\"added\":7")),
    ("ALTER TABLE t7 RENAME n TO m", |answer| answer.text().contains("\"m\":")),
    ("ALTER TABLE t7 DROP added", |answer| !answer.text().contains("added")),
    ("REVOKE SELECT ON t7 FROM hotrow; GRANT SELECT (id) ON t7 TO hotrow", is_refused),
    ("GRANT SELECT ON t7 TO hotrow; ALTER TABLE t7 ENABLE ROW LEVEL SECURITY", is_refused),
    ("ALTER TABLE t7 DISABLE ROW LEVEL SECURITY, DROP CONSTRAINT t7_pkey", is_refused),
];

fn is_refused(answer: &Answer) -> bool {
    answer.status != 200
}

/// Returns whether the contract allows the answer, regardless of its content.
fn is_allowed(answer: &Answer) -> bool {
    matches!(answer.status, 503 | 504) || answer.cache() == "stale"
}

fn postgres() -> Postgres {
    let server = Postgres::start(&[]);
    let table = |i| {
        format!(
            "CREATE TABLE t{i}(id int PRIMARY KEY, n int); INSERT INTO t{i} VALUES (1, 1), (2, 2);"
        )
    };
    server.batch(&(0..TABLES).map(table).collect::<String>());
    let tables: Vec<String> = (0..TABLES).map(|i| format!("t{i}")).collect();
    server.make_reader_role(&tables.iter().map(String::as_str).collect::<Vec<_>>());
    server
}

#[test]
fn no_answer_has_the_old_shape_past_the_bound_while_many_collections_are_read() {
    let postgres = postgres();
    let url = format!("postgres://{ROLE}@127.0.0.1:{}/postgres", postgres.port());
    let config =
        (0..TABLES).fold(Config::over(&url), |config, i| config.collection(&format!("t{i}")));
    let server = Server::start(&config);
    let mut client = server.client();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for reader in 0..2 {
            let server = &server;
            let is_over = &is_over;
            scope.spawn(move || {
                let mut client = server.client();
                for i in (0..TABLES).filter(|i| *i != 7).cycle().skip(reader * 12) {
                    if is_over.load(Ordering::Relaxed) {
                        break;
                    }
                    _ = client.get(&format!("/t{i}/{}", 1 + i % 2));
                }
            });
        }
        let judged = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            cached(&mut client, "/t7/1");
            for (sql, shows_it) in CHANGES {
                postgres.batch(sql);
                let changed_at = Instant::now();
                let mut complied = 0;
                await_until(&format!("answers after {sql}"), SOON, || {
                    let is_past = changed_at.elapsed() > BOUND;
                    let answer = client.get("/t7/1");
                    assert!(
                        !is_past || shows_it(&answer) || is_allowed(&answer),
                        "{sql}: {answer:?}"
                    );
                    complied += usize::from(is_past);
                    complied >= ANSWERS
                });
            }
        }));
        is_over.store(true, Ordering::Relaxed);
        assert!(judged.is_ok(), "see above");
    });
}

#[test]
fn a_table_that_was_away_between_two_checks_is_read_again() {
    let postgres = postgres();
    let url = format!("postgres://{ROLE}@127.0.0.1:{}/postgres", postgres.port());
    // Looked at every two seconds; seen by a check in between, the change is none of this kind.
    let config = Config::over(&url).collection("t7").set("source.schema_poll", "\"8s\"");
    let server = Server::start(&config);
    let mut client = server.client();
    postgres.batch("ALTER TABLE t7 RENAME TO away");
    assert!(is_refused(&client.get("/t7/1")));
    postgres.batch("ALTER TABLE away RENAME TO t7");
    await_until("the table to be read again", SOON, || client.get("/t7/1").status == 200);
}
