//! The role documented in docs/postgres.md: its privileges, one of them missing at a time, and more
//! than it needs.

use crate::postgres::server::Server as Postgres;
use crate::postgres::shop::Shop;
use crate::shop::{await_body, await_started, await_status, cached, losses, refusal, starts};
use hotrow_testkit::harness::{Config, Server};

/// The page whose first block of SQL creates the role.
const PAGE: &str = include_str!("../../../../../docs/postgres.md");

/// Returns the documented statements, except the one that the server's start has made needless.
fn documented() -> String {
    let block = PAGE.split("```").nth(1).expect("the page begins with its SQL");
    let statements = block.lines().filter(|line| !line.starts_with("ALTER SYSTEM"));
    statements.collect::<Vec<_>>().join("\n")
}

/// Starts a server with the documented tables and exactly the documented role.
fn shop() -> Shop {
    let server = Postgres::start(&[]);
    server.batch(
        "CREATE TABLE products(id integer PRIMARY KEY, name text NOT NULL, price integer NOT NULL);
         INSERT INTO products SELECT n, 'p' || n, 100 * n FROM generate_series(1, 200) n;
         CREATE TABLE prices(product_id integer, currency text, price integer, \
         PRIMARY KEY (product_id, currency));
         INSERT INTO prices VALUES (1, 'EUR', 100)",
    );
    server.batch(&documented());
    server.assert_role_is_ordinary();
    Shop::over(server)
}

/// Returns a configuration that serves as this role.
fn config(shop: &Shop, user: &str) -> Config {
    Config::over(&format!("postgres://{user}@127.0.0.1:{}/postgres", shop.server.port()))
        .collection("products")
        .collection("prices")
        .set("collections.prices.key", "[\"product_id\", \"currency\"]")
}

/// A privilege to revoke, the statement that restores it, and fragments of the refusal, which
/// include that statement.
struct Missing {
    revoke: &'static str,
    restore: &'static str,
    fragments: &'static [&'static str],
}

const MISSING: &[Missing] = &[
    Missing {
        revoke: "ALTER ROLE hotrow NOLOGIN",
        restore: "ALTER ROLE hotrow LOGIN",
        fragments: &["ALTER ROLE \"hotrow\" LOGIN;"],
    },
    Missing {
        revoke: "ALTER ROLE hotrow NOREPLICATION",
        restore: "ALTER ROLE hotrow REPLICATION",
        fragments: &["ALTER ROLE \"hotrow\" REPLICATION;"],
    },
    Missing {
        revoke: "REVOKE CONNECT ON DATABASE postgres FROM PUBLIC",
        restore: "GRANT CONNECT ON DATABASE postgres TO PUBLIC",
        fragments: &["GRANT CONNECT ON DATABASE \"postgres\" TO \"hotrow\";"],
    },
    Missing {
        revoke: "REVOKE USAGE ON SCHEMA public FROM PUBLIC",
        restore: "GRANT USAGE ON SCHEMA public TO PUBLIC",
        fragments: &[
            "collection `products`",
            "collection `prices`",
            "GRANT USAGE ON SCHEMA \"public\" TO \"hotrow\";",
        ],
    },
    Missing {
        revoke: "REVOKE SELECT ON products FROM hotrow",
        restore: "GRANT SELECT ON products TO hotrow",
        fragments: &[
            "collection `products`",
            "GRANT SELECT ON \"public\".\"products\" \
             TO \"hotrow\";",
        ],
    },
    Missing {
        revoke: "REVOKE SELECT ON prices FROM hotrow; \
                 GRANT SELECT (product_id, currency) ON prices TO hotrow",
        restore: "GRANT SELECT ON prices TO hotrow",
        fragments: &[
            "may not read `price` of `prices`",
            "GRANT SELECT ON \"public\".\"prices\" TO \"hotrow\";",
        ],
    },
    Missing {
        revoke: "ALTER TABLE products ENABLE ROW LEVEL SECURITY",
        restore: "ALTER TABLE products DISABLE ROW LEVEL SECURITY",
        fragments: &["row-level security", "ALTER ROLE \"hotrow\" BYPASSRLS;"],
    },
    Missing {
        revoke: "ALTER PUBLICATION hotrow DROP TABLE prices",
        restore: "ALTER PUBLICATION hotrow ADD TABLE prices",
        fragments: &[
            "collection `prices`",
            "ALTER PUBLICATION \"hotrow\" ADD TABLE \"public\".\"prices\";",
        ],
    },
    Missing {
        revoke: "DROP PUBLICATION hotrow",
        restore: "CREATE PUBLICATION hotrow FOR TABLE products, \
                  prices WITH (publish_via_partition_root = true)",
        fragments: &["CREATE PUBLICATION \"hotrow\" FOR \
                      TABLE \"public\".\"prices\", \"public\".\"products\""],
    },
    Missing {
        revoke: "REVOKE EXECUTE ON FUNCTION pg_control_system() FROM PUBLIC",
        restore: "GRANT EXECUTE ON FUNCTION pg_control_system() TO PUBLIC",
        fragments: &["GRANT EXECUTE ON FUNCTION pg_control_system()"],
    },
    Missing {
        revoke: "REVOKE EXECUTE ON FUNCTION pg_postmaster_start_time() FROM PUBLIC",
        restore: "GRANT EXECUTE ON FUNCTION pg_postmaster_start_time() TO PUBLIC",
        fragments: &["GRANT EXECUTE ON FUNCTION", "pg_postmaster_start_time()"],
    },
];

#[test]
fn each_missing_grant_is_refused_with_the_statement_that_restores_it() {
    let shop = shop();
    let config = config(&shop, "hotrow");
    for Missing { revoke, restore, fragments } in MISSING {
        shop.server.batch(revoke);
        let text = refusal(&config);
        for part in *fragments {
            assert!(text.contains(part), "{revoke}: {part:?} is not in:\n{text}");
        }
        shop.server.batch(restore);
    }
    // Each was restored, and nothing else was missing.
    assert_eq!(Server::start(&config).get("/products/1").status, 200);
}

#[test]
fn a_missing_role_is_refused_with_create_role() {
    let shop = shop();
    let text = refusal(&config(&shop, "stranger"));
    assert!(text.contains("CREATE ROLE \"stranger\" LOGIN REPLICATION"), "{text}");
    assert!(!text.contains("pg_hba.conf"), "{text}");
    let url = format!("postgres://hotrow@127.0.0.1:{}/nowhere", shop.server.port());
    let text = refusal(&Config::over(&url).collection("products"));
    assert!(text.contains("CREATE DATABASE \"nowhere\";"), "{text}");
}

/// Privileges that may be granted to the role while it is in use.
const MORE: &[&str] = &[
    "GRANT INSERT ON products TO hotrow",
    "GRANT UPDATE, DELETE, TRUNCATE, REFERENCES, TRIGGER ON products TO hotrow",
    "GRANT SELECT ON products TO hotrow WITH GRANT OPTION",
    "GRANT SELECT (id) ON products TO PUBLIC",
    "GRANT CREATE, TEMPORARY ON DATABASE postgres TO hotrow",
    "GRANT CREATE ON SCHEMA public TO hotrow",
    "GRANT pg_monitor TO hotrow",
    "GRANT pg_read_all_data, pg_write_all_data TO hotrow",
    "ALTER ROLE hotrow BYPASSRLS CREATEDB CREATEROLE",
    "ALTER TABLE products OWNER TO hotrow",
    "ALTER PUBLICATION hotrow OWNER TO hotrow",
    "ALTER ROLE hotrow SUPERUSER",
    "ALTER ROLE hotrow NOSUPERUSER",
];

#[test]
fn a_grant_added_at_run_time_breaks_nothing() {
    let shop = shop();
    let server = Server::start(&config(&shop, "hotrow"));
    let mut client = server.client();
    cached(&mut client, "/products/1");
    let mut started = starts(&server);
    for (n, sql) in MORE.iter().enumerate() {
        shop.server.batch(sql);
        let price = 1000 + n;
        shop.server.batch(&format!("UPDATE products SET price = {price} WHERE id = 1"));
        await_body(
            &mut client,
            "/products/1",
            &format!(r#"{{"id":1,"name":"p1","price":{price}}}"#),
        );
        if sql.starts_with("ALTER PUBLICATION") {
            // The publication has changed, by all that the catalogue shows.
            await_started(&server, started);
            started = starts(&server);
        }
        cached(&mut client, "/products/1");
        cached(&mut client, "/prices/1,EUR");
    }
    assert_eq!(starts(&server), started, "{}", server.log());
    assert!(!server.log().contains("panicked"), "{}", server.log());
}

#[test]
fn a_revoked_and_restored_grant_does_not_affect_the_others() {
    let shop = shop();
    // A bound that holds on a busy machine: no entry is read again because it is stale.
    let server = Server::start(&config(&shop, "hotrow").set("cache.max_staleness", "\"20s\""));
    let mut client = server.client();
    cached(&mut client, "/products/1");
    let neighbour = cached(&mut client, "/prices/1,EUR").text();
    for (revoke, restore) in [
        ("REVOKE SELECT ON products FROM hotrow", "GRANT SELECT ON products TO hotrow"),
        (
            "ALTER PUBLICATION hotrow DROP TABLE products",
            "ALTER PUBLICATION hotrow ADD TABLE products",
        ),
    ] {
        let fills = || server.metrics().sum("hotrow_fills_total", &[("collection", "prices")]);
        let before = fills();
        shop.server.batch(revoke);
        await_status(&mut client, "/products/1", 503);
        shop.server
            .batch(&format!("{restore}; UPDATE products SET price = price + 1 WHERE id = 1"));
        let price = shop.server.query("SELECT price FROM products WHERE id = 1");
        await_body(
            &mut client,
            "/products/1",
            &format!(r#"{{"id":1,"name":"p1","price":{price}}}"#),
        );
        cached(&mut client, "/products/1");
        assert_eq!(client.get("/prices/1,EUR").text(), neighbour);
        assert_eq!(fills(), before, "{revoke}: the neighbour's entry was read again");
        assert_eq!(losses(&server, None), 0.0, "{revoke}: {}", server.log());
    }
}
