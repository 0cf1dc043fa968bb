//! A server with tables, and the configuration of a service over it.

use crate::backend::Backend as _;
use crate::backend::maria::Maria;
use crate::mysql::server::Server as Database;
use crate::shop::{self, price_sql, with_options};
use hotrow_testkit::harness::{Answer, Config, Server};

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
    with_options(Config::over(&database.url()), collections)
}

/// Serves these tables.
#[track_caller]
pub(crate) fn serve(database: &Database, collections: &[&str]) -> Server {
    Server::start(&config(database, collections))
}

impl shop::Shop for Maria {
    const CONNECTION_THREAD: &'static str = "mysql";

    fn open() -> Self {
        let database = Self::start();
        database.server.batch(PRODUCTS);
        database
    }

    fn config_of_products(&self) -> Config {
        with_options(self.config(), &["products"])
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
        format!("{:016x}-{}", self.server.incarnation(), self.server.log_end())
    }
}
