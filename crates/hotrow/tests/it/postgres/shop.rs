//! PostgreSQL servers with the tables of the tests.

use crate::backend::Backend as _;
pub(crate) use crate::backend::postgres::Postgres as Shop;
use crate::shop::{self, price_sql, with_options};
use hotrow_testkit::harness::{Answer, Config, SOON, Server, await_until};
use hotrow_testkit::postgres::Server as Postgres;

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

    /// Creates `products(id, name, price)` with ids 1 to 200: `{"id":1,"name":"p1","price":100}`.
    pub(crate) fn with_products() -> Self {
        Self::new(PRODUCTS)
    }

    /// Creates the same in a share of the program's server.
    pub(crate) fn shared_with_products() -> Self {
        let shop = Self::shared();
        shop.server.batch(PRODUCTS);
        shop
    }

    /// Like [`Self::with_products`], with additional settings.
    pub(crate) fn with_products_and(settings: &[(&str, &str)]) -> Self {
        Self::with(settings, PRODUCTS)
    }

    /// Returns the configuration that serves these tables through the proxy.
    pub(crate) fn config_of(&self, collections: &[&str]) -> Config {
        with_options(self.config(), collections)
    }

    #[track_caller]
    pub(crate) fn serve(&self, collections: &[&str]) -> Server {
        Server::start(&self.config_of(collections))
    }

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

impl shop::Shop for Shop {
    const CONNECTION_THREAD: &'static str = "postgres";

    fn open() -> Self {
        Self::with_products()
    }

    fn config_of_products(&self) -> Config {
        self.config_of(&["products"])
    }

    fn body(id: u32, price: u32) -> String {
        shop::row(id, price)
    }

    fn set_price(&self, id: u32, price: u32) {
        self.server.batch(&price_sql(id, price));
    }

    fn set_all_prices(&self, price: u32) {
        self.server.batch(&format!("UPDATE products SET price = {price}"));
    }

    fn position_after(&self, _: &Answer) -> String {
        self.position()
    }
}
