//! Passwords at the start; what else is checked there is tested in `hotrow-source-postgres`.

use crate::postgres::shop::Shop;
use crate::shop::{assert_contains, await_body, cached, refusal};
use hotrow_testkit::harness::{Config, Server};

#[test]
fn passwords_are_checked_with_scram_and_never_shown() {
    let shop = Shop::with_products();
    shop.server.batch(
        "CREATE ROLE reader LOGIN REPLICATION PASSWORD 'tops%cret'; \
         GRANT SELECT ON products TO reader; \
         CREATE PUBLICATION hotrow FOR TABLE products",
    );
    shop.server.set_hba(
        "host all postgres 127.0.0.1/32 trust\nhost all reader 127.0.0.1/32 scram-sha-256\n",
    );
    let config = |password: &str| {
        Config::over(&format!(
            "postgres://reader:{password}@127.0.0.1:{}/postgres",
            shop.server.port()
        ))
        .collection("products")
    };
    let text = refusal(&config("wr0ng"));
    assert_contains(&text, &["password", "reader"]);
    assert!(!text.contains("wr0ng"), "{text}");
    let server = Server::start(&config("tops%25cret"));
    let mut client = server.client();
    cached(&mut client, "/products/1");
    shop.server.batch("UPDATE products SET price = 1 WHERE id = 1");
    await_body(&mut client, "/products/1", r#"{"id":1,"name":"p1","price":1}"#);
    assert!(!server.log().contains("cret"), "{}", server.log());
}
