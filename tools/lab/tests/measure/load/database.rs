//! `--db-url`: the database behind a service, asked during the load.

use std::cell::RefCell;

use hotrow_testkit::postgres;
use tokio::runtime::Runtime;

use super::verdicts::{alone, repeat_until, run};
use super::*;

/// Requests wait for one row, one after another.
const TRANSACTION: &str = "BEGIN; UPDATE one SET n = n + 1; SELECT pg_sleep(0.01); COMMIT";

thread_local! {
    static SESSION: RefCell<Option<(Runtime, tokio_postgres::Client)>> =
        const { RefCell::new(None) };
}

/// Runs a statement in this thread's session.
fn query(url: &str, sql: &str) {
    SESSION.with_borrow_mut(|session| {
        let (runtime, client) = session.get_or_insert_with(|| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let runtime = runtime.expect("a runtime");
            let client = runtime.block_on(async {
                let connected = tokio_postgres::connect(url, tokio_postgres::NoTls).await;
                let (client, driver) = connected.expect("a session");
                tokio::spawn(driver);
                client
            });
            (runtime, client)
        });
        // The server may be stopped at the end of the test.
        let _ = runtime.block_on(client.batch_execute(sql));
    });
}

/// Starts a database, and a service whose requests wait for a row of it.
fn locked_service() -> (postgres::Server, String) {
    let server = postgres::Server::start(&[]);
    server.batch("CREATE TABLE one (n integer); INSERT INTO one VALUES (0)");
    let database = server.url();
    let (address, _) = working_server(OK, move || query(&database, TRANSACTION));
    (server, format!("http://{address}/"))
}

fn lines_of(finding: &Value) -> Vec<&str> {
    let lines = finding["evidence"].as_array().expect("a list");
    lines.iter().filter_map(Value::as_str).collect()
}

fn findings(report: &Value) -> &[Value] {
    report["diagnosis"]["findings"].as_array().map_or(&[], Vec::as_slice)
}

#[test]
fn a_row_lock_is_named_with_the_session_that_holds_it() {
    let _alone = alone();
    let (server, url) = locked_service();
    let load = || run(&["-c", "8", "-d", "2s", "--db-url", &server.url(), &url]);
    repeat_until(load, |report, _| {
        findings(report).iter().any(|finding| {
            let lines = lines_of(finding);
            let has = |words: &[&str]| {
                lines.iter().any(|line| words.iter().all(|word| line.contains(word)))
            };
            finding["class"] == "External"
                && has(&["PostgreSQL: of ", "wait for Lock ("])
                && has(&["session", "UPDATE one SET n = n + ?"])
                && finding["counterfactual"].as_str().is_some_and(|advice| {
                    advice.contains("a shorter transaction") && advice.contains("UPDATE one")
                })
        })
    });
}

#[test]
fn a_missing_grant_is_reported() {
    let (server, url) = locked_service();
    server.batch("CREATE ROLE watcher LOGIN");
    let database = server.url_for("watcher", "postgres");
    let mut command = command(&["-c", "4", "-d", "1s", "--json", &url]);
    let (_, out, err) =
        outcome(command.env("HOTROW_DB_URL", database).output().expect("it starts"));
    let report = json(&out);
    let first = findings(&report).first().unwrap_or_else(|| panic!("no finding: {err}"));
    let lines = lines_of(first);
    assert!(
        lines.iter().any(|line| line.contains("GRANT pg_read_all_stats TO \"watcher\"")),
        "{lines:#?}"
    );
}

#[test]
fn a_wrong_url_ends_the_command_without_its_password() {
    let (address, seen) = server(OK);
    let url = format!("http://{address}/");
    let refused = ["postgres://me:s3cret@127.0.0.1:1/db", "sqlite:///s3cret", "nonsense:s3cret"];
    for database in refused {
        let (status, out, err) = load(&["-d", "1s", "--db-url", database, &url]);
        assert!(status.is_some_and(|status| status != 0) && out.is_empty(), "{status:?} {out}");
        assert!(err.contains("--db-url") && !err.contains("s3cret"), "{err}");
    }
    assert_eq!(seen.load(SeqCst), 0, "no load before the database has answered");
}
