//! A server with tables, the way to it, and what the tests ask of the service over it.

use std::time::Duration;

use crate::harness::{Answer, Client, Config, SOON, Server, await_some, await_until};
use crate::proxy::Proxy;
use crate::server::Server as Postgres;

/// A server and a proxy before it.
pub(crate) struct Shop {
    /// Cut before the server goes.
    pub(crate) proxy: Proxy,
    pub(crate) server: Postgres,
}

/// As docs/postgres.md tells a writer to make a position.
const POSITION: &str = "SELECT lpad(to_hex(system_identifier
        # ('x' || substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8))::bit(32)::bigint), 16, '0')
    || '-' || (pg_current_wal_insert_lsn() - '0/0'::pg_lsn) FROM pg_control_system()";

const PRODUCTS: &str = "CREATE TABLE products(id integer PRIMARY KEY, name text NOT NULL, price integer NOT NULL);
    INSERT INTO products SELECT n, 'p' || n, 100 * n FROM generate_series(1, 200) n";

impl Shop {
    /// A server on which this SQL was run.
    pub(crate) fn new(sql: &str) -> Self {
        Self::with(&[], sql)
    }

    /// As [`Self::new`], with more settings.
    pub(crate) fn with(settings: &[(&str, &str)], sql: &str) -> Self {
        let server = Postgres::start(settings);
        server.batch(sql);
        Self { proxy: Proxy::start(server.port()), server }
    }

    /// With `products(id, name, price)`, ids 1 to 200: `{"id":1,"name":"p1","price":100}`.
    pub(crate) fn with_products() -> Self {
        Self::new(PRODUCTS)
    }

    /// As [`Self::with_products`], with more settings.
    pub(crate) fn with_products_and(settings: &[(&str, &str)]) -> Self {
        Self::with(settings, PRODUCTS)
    }

    /// The configuration that serves these tables, by way of the proxy.
    pub(crate) fn config(&self, collections: &[&str]) -> Config {
        let config = Config::over(&self.proxy.url());
        collections.iter().fold(config, |config, name| {
            config
                .collection(name)
                .set(&format!("collections.{name}.allow_no_cache"), "true")
                .set(&format!("collections.{name}.allow_min_position"), "true")
        })
    }

    /// Serves these tables.
    #[track_caller]
    pub(crate) fn serve(&self, collections: &[&str]) -> Server {
        Server::start(&self.config(collections))
    }

    /// The log's end, as a writer tells it after its COMMIT.
    #[track_caller]
    pub(crate) fn position(&self) -> String {
        self.server.query(POSITION)
    }
}

impl Shop {
    /// Waits until the feed has taken in all that was committed so far.
    #[track_caller]
    pub(crate) fn await_delivery(&self, server: &Server) {
        let position = self.position();
        let (_, end) = position.split_once('-').expect("two parts");
        let end: f64 = end.parse().expect("a number");
        await_until("the feed to catch up", SOON, || server.metrics().sum("hotrow_feed_position", &[]) >= end);
    }
}

/// Reads until it is a hit, and gives the answer.
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
    let mut last = None;
    let wait = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        await_until(&format!("{path} to be {body}"), SOON, || {
            let answer = client.get(path);
            let found = answer.status == 200 && answer.text() == body;
            last = Some(answer);
            found
        });
    }));
    assert!(wait.is_ok(), "{path} is not {body}, but {last:?}");
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

/// Times that the feed began to follow the database.
pub(crate) fn starts(server: &Server) -> f64 {
    server.metrics().sum("hotrow_feed_starts_total", &[])
}

/// Waits until the feed follows the database again, having started more than `before` times.
#[track_caller]
pub(crate) fn await_started(server: &Server, before: f64) {
    await_until("the feed to start again", SOON, || starts(server) > before);
    await_readyz(server, 200);
}

/// Losses that were counted, of any cause or of one.
pub(crate) fn losses(server: &Server, cause: Option<&str>) -> f64 {
    let labels: Vec<(&str, &str)> = cause.map(|cause| ("cause", cause)).into_iter().collect();
    server.metrics().sum("hotrow_feed_losses_total", &labels)
}

/// Staleness as the metrics tell it.
pub(crate) fn staleness(server: &Server) -> Duration {
    Duration::from_secs_f64(server.metrics().sum("hotrow_feed_staleness_seconds", &[]).max(0.0))
}
