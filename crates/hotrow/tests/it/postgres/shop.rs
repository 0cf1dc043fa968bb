//! A server with tables, a proxy before it, and helpers for requests to the service.

use std::time::Duration;

use crate::postgres::proxy::Proxy;
use crate::postgres::server::{ROLE, Server as Postgres};
use hotrow_testkit::harness::{Answer, Client, Config, SOON, Server, await_some, await_until};

pub(crate) struct Shop {
    /// Dropped before the server.
    pub(crate) proxy: Proxy,
    pub(crate) server: Postgres,
}

/// SQL that makes a position for a writer, as in docs/postgres.md.
const POSITION: &str = "SELECT lpad(to_hex(system_identifier
        # ('x' || substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8))::bit(32)::bigint
        # (extract(epoch FROM pg_postmaster_start_time()) * 1000000)::bigint), 16, '0')
    || '-' || (pg_current_wal_insert_lsn() - '0/0'::pg_lsn) FROM pg_control_system()";

const PRODUCTS: &str =
    "CREATE TABLE products(id integer PRIMARY KEY, name text NOT NULL, price integer NOT NULL);
    INSERT INTO products SELECT n, 'p' || n, 100 * n FROM generate_series(1, 200) n";

impl Shop {
    /// Starts a server and runs this SQL.
    pub(crate) fn new(sql: &str) -> Self {
        Self::with(&[], sql)
    }

    /// Like [`Self::new`], with additional settings.
    pub(crate) fn with(settings: &[(&str, &str)], sql: &str) -> Self {
        let server = Postgres::start(settings);
        server.make_owner_role();
        server.batch(sql);
        server.assert_role_is_ordinary();
        Self::over(server)
    }

    /// Creates the role that serves the server's tables.
    pub(crate) fn over(server: Postgres) -> Self {
        Self { proxy: Proxy::start(server.port()), server }
    }

    /// Creates `products(id, name, price)` with ids 1 to 200: `{"id":1,"name":"p1","price":100}`.
    pub(crate) fn with_products() -> Self {
        Self::new(PRODUCTS)
    }

    /// Like [`Self::with_products`], with additional settings.
    pub(crate) fn with_products_and(settings: &[(&str, &str)]) -> Self {
        Self::with(settings, PRODUCTS)
    }

    /// Returns the configuration that serves these tables through the proxy.
    pub(crate) fn config(&self, collections: &[&str]) -> Config {
        let config = Config::over(&self.proxy.url_for(ROLE));
        collections.iter().fold(config, |config, name| {
            config
                .collection(name)
                .set(&format!("collections.{name}.allow_no_cache"), "true")
                .set(&format!("collections.{name}.allow_min_position"), "true")
        })
    }

    #[track_caller]
    pub(crate) fn serve(&self, collections: &[&str]) -> Server {
        Server::start(&self.config(collections))
    }

    /// Returns the log's end as a position, as a writer makes it after its COMMIT.
    #[track_caller]
    pub(crate) fn position(&self) -> String {
        self.server.query(POSITION)
    }
}

impl Shop {
    /// Waits until the feed has delivered everything committed so far.
    #[track_caller]
    pub(crate) fn await_delivery(&self, server: &Server) {
        let position = self.position();
        let (_, end) = position.split_once('-').expect("two parts");
        let end: f64 = end.parse().expect("a number");
        await_until("the feed to catch up", SOON, || {
            server.metrics().sum("hotrow_feed_position", &[]) >= end
        });
    }
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

/// Returns how many times the feed has started.
pub(crate) fn starts(server: &Server) -> f64 {
    server.metrics().sum("hotrow_feed_starts_total", &[])
}

/// Waits until the feed runs again, having started more than `before` times.
#[track_caller]
pub(crate) fn await_started(server: &Server, before: f64) {
    await_until("the feed to start again", SOON, || starts(server) > before);
    await_readyz(server, 200);
}

/// Returns the number of losses, of one cause or all.
pub(crate) fn losses(server: &Server, cause: Option<&str>) -> f64 {
    let labels: Vec<(&str, &str)> = cause.map(|cause| ("cause", cause)).into_iter().collect();
    server.metrics().sum("hotrow_feed_losses_total", &labels)
}

/// Returns the staleness in the metrics.
pub(crate) fn staleness(server: &Server) -> Duration {
    Duration::from_secs_f64(server.metrics().sum("hotrow_feed_staleness_seconds", &[]).max(0.0))
}
