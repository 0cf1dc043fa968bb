//! A server with tables, and helpers to query the service over it.

use crate::mysql::server::Server as Database;
use hotrow_testkit::harness::{Answer, Client, Config, SOON, Server, await_some, await_until};

const PRODUCTS: &str = "
    CREATE TABLE products(id INT PRIMARY KEY, name TEXT NOT NULL, price INT NOT NULL);
    INSERT INTO products
    WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < 200)
    SELECT n, CONCAT('p', n), 100 * n FROM n;";

/// Creates `products(id, name, price)` with ids 1 to 200: `{"id":1,"name":"p1","price":100}`.
pub(crate) fn with_products(server: Database) -> Database {
    server.batch(PRODUCTS);
    server
}

/// Returns the configuration that serves these tables.
pub(crate) fn config(database: &Database, collections: &[&str]) -> Config {
    collections.iter().fold(Config::over(&database.url()), |config, name| {
        config
            .collection(name)
            .set(&format!("collections.{name}.allow_no_cache"), "true")
            .set(&format!("collections.{name}.allow_min_position"), "true")
    })
}

/// Serves these tables.
#[track_caller]
pub(crate) fn serve(database: &Database, collections: &[&str]) -> Server {
    Server::start(&config(database, collections))
}

/// Reads until the answer is a hit, and returns it.
#[track_caller]
pub(crate) fn cached(client: &mut Client, path: &str) -> Answer {
    await_some(&format!("{path} to be cached"), SOON, || {
        let answer = client.get(path);
        (answer.cache() == "hit").then_some(answer)
    })
}

/// Waits until the answer is 200 with this body.
#[track_caller]
pub(crate) fn await_body(client: &mut Client, path: &str, body: &str) {
    let mut last = String::new();
    await_until(&format!("{path} to be {body}"), SOON, || {
        let answer = client.get(path);
        let found = answer.status == 200 && answer.text() == body;
        let now = format!("{} {}", answer.status, answer.text());
        if now != last {
            println!("{path}: {now}");
            last = now;
        }
        found
    });
}

/// Waits until the answer has this status.
#[track_caller]
pub(crate) fn await_status(client: &mut Client, path: &str, status: u16) {
    await_until(&format!("{path} to answer {status}"), SOON, || client.get(path).status == status);
}

/// Waits until `/readyz` has this status.
#[track_caller]
pub(crate) fn await_readyz(server: &Server, status: u16) {
    await_status(&mut server.admin_client(), "/readyz", status);
}

/// Returns the number of starts of the feed.
pub(crate) fn starts(server: &Server) -> f64 {
    server.metrics().sum("hotrow_feed_starts_total", &[])
}

/// Waits until the feed follows the database again, after more than `before` starts.
#[track_caller]
pub(crate) fn await_started(server: &Server, before: f64) {
    await_until("the feed to start again", SOON, || starts(server) > before);
    await_readyz(server, 200);
}

/// Returns the number of losses.
pub(crate) fn losses(server: &Server) -> f64 {
    server.metrics().sum("hotrow_feed_losses_total", &[])
}
