//! Embedded rows over each engine: who sees them, by which other paths, and the
//! description of the API.

use serde_json::{Value, json};

use super::{FIRST, LogsOldRows, embedding, product, with_logged_prices, with_prices};
use crate::alias::Users;
use crate::alias::access::with_key;
use crate::backend::maria::Maria;
use crate::backend::postgres::Postgres;
use crate::e2e::redis::{redis_cli, with_redis};
use crate::shop::{assert_contains, await_body, cached, refusal};
use hotrow_testkit::harness::{Client, Database, EventStream, SOON, Server, await_until};

fn get(client: &mut Client, path: &str, key: &str) -> (u16, String) {
    let answer = client.get_with(path, &[("Authorization", &format!("Bearer {key}"))]);
    (answer.status, answer.text())
}

fn a_role_is_limited_to_members_of_the_record<U: Users>() {
    let database: U = with_prices();
    let config = embedding(database.service()).with(&[
        ("access.roles.names.collections", "\"*\""),
        ("access.roles.names.columns.products.names", r#"["id", "name"]"#),
        ("access.roles.prices.collections", "\"*\""),
        ("access.roles.prices.columns.products.names", r#"["prices"]"#),
    ]);
    let (config, names) = with_key(config, "names", "names");
    let (config, prices) = with_key(config, "prices", "prices");
    let server = Server::start(&with_redis(config.clone()));
    let mut client = server.client();
    for _ in 0..2 {
        assert_eq!(get(&mut client, "/products/2", &names).1, r#"{"id":2,"name":"p2"}"#);
        let own = r#"{"prices":[{"region":"eu","amount":200}]}"#;
        assert_eq!(get(&mut client, "/products/2", &prices).1, own);
    }
    assert_eq!(
        redis_cli(&server, &["--no-auth-warning", "-a", &prices, "GET", "products:3"]),
        r#"{"prices":[]}"#
    );
    // A column of a child is none of the record.
    let misspelt = config.set("access.roles.names.columns.products.names", r#"["amount"]"#);
    assert_contains(&refusal(&misspelt), &["no column `amount`", "`id`, `name`, `prices`"]);
}

fn the_tenant_of_the_parent_governs<U: Users>() {
    let database: U = with_prices();
    let text = U::TEXT;
    database.execute(&format!("ALTER TABLE products ADD COLUMN org {text} DEFAULT 'acme'"));
    database.execute("UPDATE products SET org = 'other' WHERE id = 1");
    let config = embedding(database.service()).with(&[
        ("access.roles.reader.collections", "\"*\""),
        ("collections.products.tenant", "\"org\""),
        ("collections.products.columns", r#"["id", "name"]"#),
    ]);
    let (config, key) = with_key(config, "acme", "reader");
    let server = Server::start(&config.set("access.keys.acme.tenant", "\"acme\""));
    let mut client = server.client();
    for _ in 0..2 {
        assert_eq!(get(&mut client, "/products/1", &key).0, 404);
        assert_eq!(get(&mut client, "/products/2", &key), (200, product(2, &[("eu", 200)])));
    }
    // A child that moves to a record of another tenant is seen by that one.
    database.execute("UPDATE prices SET product_id = 2 WHERE id = 12");
    await_until("the move", SOON, || {
        get(&mut client, "/products/2", &key).1 == product(2, &[("us", 300), ("eu", 200)])
    });
}

fn a_record_by_alias_has_its_children<U: Users + LogsOldRows>() {
    let database: U = with_logged_prices();
    let config = embedding(database.service());
    let server = Server::start(&config.set("collections.products.by.name.columns", "\"name\""));
    let mut client = server.client();
    assert_eq!(cached(&mut client, "/products/by/name/p1").text(), product(1, &FIRST));
    database.execute("DELETE FROM prices WHERE product_id = 1");
    await_body(&mut client, "/products/by/name/p1", &product(1, &[]));
}

fn followers_get_the_parents<U: Users + LogsOldRows>() {
    let database: U = with_logged_prices();
    let config = embedding(database.service()).set("collections.products.changes", "true");
    let server = Server::start(&config);
    let mut stream = EventStream::open(server.data, "/_changes/products", "");
    assert_eq!(stream.next_news().name, "begin");
    database.execute("UPDATE prices SET product_id = 3 WHERE id = 21");
    let mut keys =
        [stream.next_news(), stream.next_news()].map(|event| event.change().0.to_owned());
    keys.sort();
    assert_eq!(keys, ["2", "3"]);
}

fn the_description_has_the_children<U: Users>(not_null: &str) {
    let database: U = with_prices();
    database.execute(not_null);
    let config = embedding(database.service()).set("collections.products.allow_fields", "false");
    let server = Server::start(&config);
    let description = server.admin_client().get("/openapi.json").json();
    let record = &description["components"]["schemas"]["products"];
    let children = &record["properties"]["prices"];
    assert_eq!(
        children,
        &json!({
            "type": "array",
            "maxItems": 3,
            "items": {
                "type": "object",
                "required": ["region", "amount"],
                "properties": {
                    "region": { "type": ["string", "null"] },
                    "amount": { "type": "integer" },
                },
            },
        }),
        "{description}"
    );
    assert!(record["required"].as_array().is_some_and(|all| all.contains(&Value::from("prices"))));
}

#[test]
fn the_description_over_postgresql_has_the_children() {
    the_description_has_the_children::<Postgres>("ALTER TABLE prices ALTER amount SET NOT NULL");
}

#[test]
fn the_description_over_mariadb_has_the_children() {
    the_description_has_the_children::<Maria>("ALTER TABLE prices MODIFY amount int NOT NULL");
}

mod over_sqlite {
    use crate::embed::access::{self, *};

    tests! {
        Database:
        access::a_role_is_limited_to_members_of_the_record,
        access::the_tenant_of_the_parent_governs,
    }
}

mod over_postgresql {
    use crate::embed::access::{self, *};

    tests! {
        Postgres:
        access::a_record_by_alias_has_its_children,
        access::followers_get_the_parents,
    }
}

mod over_mariadb {
    use crate::embed::access::{self, *};

    tests! {
        Maria:
        access::a_role_is_limited_to_members_of_the_record,
        access::the_tenant_of_the_parent_governs,
        access::a_record_by_alias_has_its_children,
        access::followers_get_the_parents,
    }
}
