//! Failures of the database: at the start refused with all problems in one message, later detected,
//! reported, and recovered from.

use std::time::Duration;

use hotrow_testkit::harness::{Config, SOON, Server, await_mostly, await_until};

use crate::mysql::server::{Server as Database, Stop};
use crate::mysql::shop::{config, with_products};
use crate::shop::{
    assert_contains, await_body, await_readyz, await_started, cached, losses, refusal, starts,
};

#[test]
fn the_service_recovers_from_restarts_and_crashes() {
    let mut database = with_products(Database::start(&[("innodb-flush-log-at-trx-commit", "2")]));
    let server =
        Server::start(&config(&database, &["products"]).set("source.connect_timeout", "\"2s\""));
    let mut client = server.client();
    for (price, how) in [(1, Stop::Fast), (2, Stop::Kill)] {
        cached(&mut client, "/products/1");
        let before = (starts(&server), losses(&server, None));
        database.stop(how);
        await_readyz(&server, 503);
        database.restart();
        await_started(&server, before.0);
        assert!(losses(&server, None) > before.1);
        database.batch(&format!("UPDATE products SET price = {price} WHERE id = 1"));
        await_body(
            &mut client,
            "/products/1",
            &format!("{{\"id\":1,\"name\":\"p1\",\"price\":{price}}}"),
        );
    }
}

#[test]
fn a_paused_server_makes_answers_stale_until_it_resumes() {
    let database = with_products(Database::start(&[]));
    let server = Server::start(
        &config(&database, &["products"])
            .set("cache.when_stale", "\"stale\"")
            .set("admin.ready_when", "\"fresh\""),
    );
    let mut client = server.client();
    cached(&mut client, "/products/1");
    database.pause();
    await_until("answers to be marked stale", SOON, || {
        client.get("/products/1").cache() == "stale"
    });
    await_readyz(&server, 503);
    database.resume();
    await_readyz(&server, 200);
    database.batch("UPDATE products SET price = 5 WHERE id = 1");
    await_body(&mut client, "/products/1", r#"{"id":1,"name":"p1","price":5}"#);
}

#[test]
fn changes_after_a_log_reset_are_seen() {
    let database = with_products(Database::start(&[]));
    let server = Server::start(&config(&database, &["products"]));
    let mut client = server.client();
    database.batch("FLUSH BINARY LOGS; UPDATE products SET price = 3 WHERE id = 1");
    await_body(&mut client, "/products/1", r#"{"id":1,"name":"p1","price":3}"#);
    let before = starts(&server);
    database.batch("RESET MASTER");
    await_started(&server, before);
    database.batch("UPDATE products SET price = 4 WHERE id = 1");
    await_body(&mut client, "/products/1", r#"{"id":1,"name":"p1","price":4}"#);
}

#[test]
fn an_idle_server_stays_fresh() {
    let database = with_products(Database::any());
    let server =
        Server::start(&config(&database, &["products"]).set("cache.max_staleness", "\"400ms\""));
    let mut client = server.client();
    cached(&mut client, "/products/1");
    await_mostly("an idle server", Duration::from_secs(2), || {
        client.get("/products/1").cache() == "hit"
    });
    assert_eq!(losses(&server, None), 0.0);
}

#[test]
fn an_unsuitable_server_is_refused_with_the_fixes() {
    let database = with_products(Database::start(&[("binlog-format", "STATEMENT")]));
    database.batch("CREATE TABLE keyless(id INT)");
    let message = refusal(&config(&database, &["products", "keyless"]));
    let expected = [
        "to fix (2)",
        "`binlog_format` is STATEMENT; the feed needs ROW",
        "SET GLOBAL binlog_format = ROW;",
        "keyless",
    ];
    assert_contains(&message, &expected);
}

#[test]
fn a_password_is_not_shown() {
    let database = with_products(Database::any());
    let url = database.url_for("root", "s3cret-word");
    let message = refusal(&Config::over(&url).collection("products"));
    assert!(message.contains("root") && !message.contains("s3cret-word"), "{message}");
}
