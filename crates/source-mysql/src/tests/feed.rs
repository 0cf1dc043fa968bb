//! Feed tests against a real server.

use hotrow_source::{FlushCause, LossCause};
use hotrow_types::key::KeyPart;
use hotrow_types::version::ChangeId;

use super::harness::refusal;
use super::recorder::{Event, Feed, config};
use super::server::{Flavor, Server, Stop};

mod delivers;
mod foreign_keys;
mod keys;
mod locks;
mod losses;
mod of_mysql;
mod privileges;
mod race;
mod schema;
mod statements;
mod xa;

/// A data folder restored to an older state has another log, although the server's name is the
/// same.
#[test]
fn a_restored_copy_of_the_data_has_other_positions() {
    let mut server = Server::start(&[]);
    server.batch("CREATE TABLE p (id INT PRIMARY KEY, n INT); INSERT INTO p VALUES (1, 0)");
    server.stop(Stop::Fast);
    server.back_up();
    server.restart();
    let feed = Feed::start(&server, &["p(id)"]);
    server.batch("UPDATE p SET n = 1");
    let before = feed.settle();
    assert_eq!(before.incarnation, server.incarnation());
    let from = feed.sink.len();
    server.await_next_second();
    server.stop(Stop::Fast);
    server.restore();
    server.restart();
    feed.sink.wait("a start", |events| {
        events[from..].iter().any(|e| matches!(e, Event::Started(_))).then_some(())
    });
    let after = feed.settle();
    assert_ne!(after.incarnation, before.incarnation);
    assert_eq!(after.incarnation, server.incarnation());
    // An instance that starts now has the same incarnation as one that ran all the time.
    assert_eq!(Feed::start(&server, &["p(id)"]).settle().incarnation, after.incarnation);
}

#[test]
fn every_missing_requirement_is_reported_at_once_with_its_fix() {
    let flavor = Flavor::of_run();
    let (setting, value, fix) = flavor.choose(
        ("log-bin-compress", "ON", "SET GLOBAL log_bin_compress = OFF;"),
        ("binlog-row-value-options", "PARTIAL_JSON", "SET GLOBAL binlog_row_value_options = '';"),
    );
    let server = Server::start(&[("binlog-format", "MIXED"), (setting, value), ("server-id", "9")]);
    server.batch("CREATE TABLE a (id INT PRIMARY KEY); CREATE TABLE b (id INT)");
    let mut config = config(server.url(), &["a(id)", "b(id)"]);
    config.server_id = Some(9);
    let text = refusal(config);
    for expected in [
        "to fix (4)",
        "`b`",
        "`binlog_format` is MIXED; the feed needs ROW\n     -> SET GLOBAL binlog_format = ROW;",
        fix,
        "`source.server_id` is 9, which is the server's own",
    ] {
        assert!(text.contains(expected), "{expected}: {text}");
    }
}

#[test]
fn servers_that_do_not_log_the_database_are_refused() {
    let server = Server::start(&[("skip-log-bin", "")]);
    server.batch("CREATE TABLE a (id INT PRIMARY KEY)");
    assert!(refusal(config(server.url(), &["a(id)"])).contains("`log_bin` is OFF"));
    for (setting, value) in [("binlog-ignore-db", "test"), ("binlog-do-db", "other")] {
        let server = Server::start(&[(setting, value)]);
        server.batch("CREATE TABLE a (id INT PRIMARY KEY)");
        let text = refusal(config(server.url(), &["a(id)"]));
        assert!(text.contains(&format!("(`{}`)", setting.replace('-', "_"))), "{text}");
    }
}
