//! Problems of a deployment are reported at the start, in one message with their remedies; and the
//! remedies work.

use mongodb::bson::doc;

use crate::mongodb::shop::Shop;
use crate::shop::{assert_contains, await_body, cached, failed_start, refusal};
use hotrow_testkit::harness::{Config, Server};

#[test]
fn all_problems_are_reported_at_once() {
    let shop = Shop::with_products();
    shop.mongo.run(doc! { "create": "seen", "viewOn": "products", "pipeline": [] });
    shop.mongo.run(doc! { "create": "times", "timeseries": { "timeField": "t" } });
    shop.mongo.insert("mixed", [doc! { "_id": 1 }, doc! { "_id": "one" }]);
    shop.mongo.insert("dated", [doc! { "_id": mongodb::bson::DateTime::from_millis(0) }]);
    let text = refusal(&shop.config_of(&["seen", "times", "mixed", "dated", "products"]));
    assert_contains(&text, &["seen", "view", "times", "mixed", "key_type", "dated"]);
    assert!(!text.contains("collection `products`"), "nothing is wrong with that one:\n{text}");
    // The remedy: one type is named, and documents with another type cannot be requested.
    let config =
        shop.config_of(&["mixed", "products"]).set("collections.mixed.key_type", "\"text\"");
    let server = Server::start(&config);
    assert_eq!(server.get("/mixed/one").text(), r#"{"_id":"one"}"#);
    assert_eq!(server.get("/mixed/1").status, 404);
}

#[test]
fn wrong_connection_strings_are_refused_without_the_password() {
    let shop = Shop::on_standin();
    let hosts = format!("127.0.0.1:{}", shop.mongo.standin().port(0));
    let over = |url: &str| {
        let config = Config::over(url)
            .set("collections.products.key", "\"_id\"")
            .set("source.connect_timeout", "\"2s\"");
        // A mistake in the configuration has another status than a refused database.
        failed_start(&config).1
    };
    // A database must be named; reads go to the primary.
    assert_contains(
        &over(&format!("mongodb://u:topsecret@{hosts}/?authSource=admin")),
        &["database"],
    );
    let text = over(&format!("mongodb://u:topsecret@{hosts}/shop?readPreference=secondary"));
    assert_contains(&text, &["readPreference"]);
    let nowhere = over("mongodb://u:topsecret@127.0.0.1:1/shop");
    assert_contains(&nowhere, &["127.0.0.1:1"]);
    let refused = over(&format!("mongodb://u:topsecret@{hosts}/shop?authSource=admin"));
    for text in [text, nowhere, refused] {
        assert!(!text.contains("topsecret"), "{text}");
    }
}

#[test]
fn a_missing_collection_and_an_empty_one() {
    let shop = Shop::empty();
    let config = shop.config_of(&["products"]);
    assert_contains(&refusal(&config), &["products", "db.createCollection"]);
    shop.mongo.run(doc! { "create": "products" });
    let server = Server::start(&config);
    let mut client = server.client();
    // ObjectIds, because nothing determines another type.
    let id = mongodb::bson::oid::ObjectId::new();
    let path = format!("/products/{id}");
    assert_eq!(cached(&mut client, &path).status, 404);
    shop.mongo.insert("products", [doc! { "_id": id, "n": 1 }]);
    await_body(&mut client, &path, &format!("{{\"_id\":\"{id}\",\"n\":1}}"));
    assert_eq!(client.get("/products/7").status, 400);
}
