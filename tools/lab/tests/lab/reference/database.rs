//! `/db` with real databases.

use std::collections::BTreeSet;

use rusqlite::Connection;
use tempfile::TempDir;

use crate::server::{self, Stop};
use hotrow_testkit::harness::{Client, Ended, SOON, Server, await_until};

const ACCESS_METHODS: [&str; 3] = ["raw", "builder", "orm"];
/// Rows requested by each method; that all have one id of 100,000 by chance is practically
/// impossible.
const REQUESTS: usize = 20;

/// Tried settings: asynchronous, blocking, and without kept connections.
const SETTINGS: [&[&str]; 4] = [
    &["--workers", "2"],
    &["--blocking", "--workers", "1", "--connections", "1"],
    &["--workers", "2", "--no-database-keepalive"],
    &["--blocking", "--workers", "1", "--no-database-keepalive"],
];

/// Creates the table; a repetition gives the same table.
#[track_caller]
fn make(url: &str) {
    let ended = Ended::run(&["lab", "reference", "--database", url, "--make-database"], SOON * 4);
    assert!(ended.code() == 0 && ended.output.contains("100000 rows"), "{ended:?}");
}

/// Requests rows by every method; returns ids and numbers.
#[track_caller]
fn ask(client: &mut Client) -> Vec<(i64, i64)> {
    let mut rows = Vec::new();
    for way in ACCESS_METHODS {
        let mut ids = BTreeSet::new();
        for _ in 0..REQUESTS {
            let answer = client.get(&format!("/db?via={way}"));
            assert_eq!(
                (answer.status, answer.header("cache-control")),
                (200, Some("no-store")),
                "{way}: {answer:?}"
            );
            let row = answer.json();
            let (id, number) = (
                row["id"].as_i64().expect("an id"),
                row["random_number"].as_i64().expect("a number"),
            );
            assert!((1..=100_000).contains(&id) && (1..=10_000).contains(&number), "{row}");
            ids.insert(id);
            rows.push((id, number));
        }
        assert!(ids.len() > REQUESTS / 2, "{way}: not at random: {ids:?}");
    }
    rows
}

#[test]
fn rows_come_from_sqlite_by_every_method() {
    let folder = TempDir::new().expect("a folder");
    let file = folder.path().join("rows.db");
    let url = format!("sqlite:{}", file.display());
    let refused = Ended::run(&["lab", "reference", "--database", &url], SOON);
    assert!(refused.code() == 1 && refused.log.contains("--make-database"), "{refused:?}");
    make(&url);
    make(&url);
    let connection = Connection::open(&file).expect("the file");
    for more in SETTINGS {
        let arguments = [&["--database", &url][..], more].concat();
        let server = Server::start_reference(&arguments, &[]);
        for (id, number) in ask(&mut server.client()) {
            let sql = "SELECT random_number FROM reference_rows WHERE id = ?1";
            let expected: i64 = connection.query_row(sql, [id], |row| row.get(0)).expect("the row");
            assert_eq!(number, expected, "row {id}, {more:?}");
        }
    }
    connection.execute("DELETE FROM reference_rows WHERE id = 7", []).expect("a row less");
    let refused = Ended::run(&["lab", "reference", "--database", &url], SOON);
    assert!(refused.code() == 1 && refused.log.contains("99999"), "{refused:?}");
}

#[test]
fn rows_come_from_postgresql_by_every_method() {
    let mut postgres = server::Server::start(&[]);
    let url = postgres.url();
    let refused = Ended::run(&["lab", "reference", "--database", &url], SOON);
    assert!(refused.code() == 1 && refused.log.contains("--make-database"), "{refused:?}");
    make(&url);
    make(&url);
    for more in SETTINGS {
        let arguments = [&["--database", &url][..], more].concat();
        let server = Server::start_reference(&arguments, &[]);
        let rows = ask(&mut server.client());
        let conditions: Vec<String> = rows
            .iter()
            .map(|(id, number)| format!("id = {id} AND random_number = {number}"))
            .collect();
        let distinct = rows.iter().collect::<BTreeSet<_>>().len();
        let found = postgres.query(&format!(
            "SELECT count(*) FROM reference_rows WHERE {}",
            conditions.join(" OR ")
        ));
        assert_eq!(found, distinct.to_string(), "{more:?}: {rows:?}");
    }

    // Without kept connections each request has another backend process.
    let arguments = ["--database", &url, "--workers", "1", "--connections", "1"];
    let backends = |more: &[&str]| {
        let server = Server::start_reference(&[&arguments[..], more].concat(), &[]);
        let mut client = server.client();
        let requests = (0..REQUESTS).map(|_| {
            assert_eq!(client.get("/db?via=raw").status, 200);
            // This query has the words that it looks for, and the process of the one before it
            // may not have ended.
            postgres.query(
                "SELECT pid FROM pg_stat_activity \
                 WHERE query LIKE '%FROM reference_rows WHERE id%' \
                 AND query NOT LIKE '%pg_stat_activity%' ORDER BY backend_start DESC LIMIT 1",
            )
        });
        requests.collect::<BTreeSet<String>>().len()
    };
    assert_eq!(backends(&[]), 1);
    assert_eq!(backends(&["--no-database-keepalive"]), REQUESTS);

    // A stopped server is reported, and found again after its return.
    let server = Server::start_reference(&["--database", &url, "--workers", "1"], &[]);
    let mut client = server.client();
    assert_eq!(client.get("/db?via=raw").status, 200);
    postgres.stop(Stop::Fast);
    for way in ACCESS_METHODS {
        await_until("it to be missed", SOON, || {
            client.get(&format!("/db?via={way}")).status == 503
        });
        let (_, detail) = client.get(&format!("/db?via={way}")).plain_problem(503);
        assert!(!detail.contains("127.0.0.1"), "internal errors are not shown: {detail}");
    }
    postgres.restart();
    for way in ACCESS_METHODS {
        await_until("it to be found", SOON, || client.get(&format!("/db?via={way}")).status == 200);
    }
}
