//! Roles that read some columns: served by the real binary, and refused at its start where the
//! table has no such column.

use serde_json::Value;

use hotrow_testkit::harness::{Client, Config, Database, Ended, SOON, Server, await_until};

/// A configuration with the role `partner`, and the API key that has it.
fn config(database: &Database, names: &str) -> (Config, String) {
    let made = Ended::run(&["key", "new", "--name", "shop", "--role", "partner", "--json"], SOON);
    let made: Value = serde_json::from_str(&made.output).expect("a key");
    let config = Config::new(database.path())
        .collection("products")
        .set("access.roles.partner.collections", "\"*\"")
        .set("access.roles.partner.columns.products.names", names)
        .set("access.keys.shop.id", &made["id"].to_string())
        .set("access.keys.shop.sha256", &made["sha256"].to_string())
        .set("access.keys.shop.roles", "\"partner\"");
    (config, made["key"].as_str().expect("a text").to_owned())
}

#[test]
fn a_role_reads_its_columns_and_follows_their_changes() {
    let database = Database::with_products(3);
    let (config, key) = config(&database, "[\"price\", \"id\"]");
    let server = Server::start(&config);
    let mut client = server.client();
    let credential = format!("Bearer {key}");
    let get = |client: &mut Client, path: &str| {
        let answer = client.get_with(path, &[("Authorization", &credential)]);
        let tag = answer.header("etag").map(str::to_owned);
        (answer.text(), tag)
    };
    let (text, tag) = get(&mut client, "/products/1");
    assert_eq!(text, r#"{"id":1,"price":100}"#);
    let batch = r#"{"items":{"1":{"id":1,"price":100}},"missing":["9"]}"#;
    assert_eq!(get(&mut client, "/products?ids=1,9").0, batch);
    database.execute("UPDATE products SET name = 'other' WHERE id = 1");
    database.execute("UPDATE products SET price = 7 WHERE id = 2");
    // One feed: when the second change is seen, so is the first.
    await_until("the change", SOON, || {
        get(&mut client, "/products/2").0 == r#"{"id":2,"price":7}"#
    });
    assert_eq!(get(&mut client, "/products/1"), (text, tag), "the view is the same");
}

#[test]
fn columns_that_the_table_does_not_have_are_refused_at_the_start() {
    let database = Database::with_products(1);
    let (config, _) = config(&database, "[\"id\", \"Price\", \"colour\"]");
    let ended = Ended::run_config(&config, SOON);
    assert_eq!(ended.code(), 1, "{ended:?}");
    for words in [
        "columns that are not served (2)",
        "access.roles.partner.columns.products.names: no column `Price`",
        "no column `colour`",
        "-> name columns of its records: `id`, `name`, `price`",
    ] {
        assert!(ended.log.contains(words), "{words:?} is missing in: {}", ended.log);
    }
    assert_eq!(ended.output, "", "nothing was served");
}
