//! Large answers.

use mongodb::bson::doc;

use crate::mongodb::shop::Shop;
use hotrow_testkit::harness::Server;

#[test]
fn many_keys_in_one_answer() {
    let shop = Shop::with_products();
    shop.mongo.insert("large", (1..=60).map(|n| doc! { "_id": n, "text": "x".repeat(500_000) }));
    let server = Server::start(&shop.config_of(&["products", "large"]).with(&[
        ("limits.max_batch", "200"),
        ("limits.request_timeout", "\"60s\""),
        ("source.read_timeout", "\"50s\""),
    ]));
    let ids: Vec<String> = (1..=60).map(|id| id.to_string()).collect();
    // More than one message can hold, so the database answers in parts.
    let answer = server.get(&format!("/large?ids={}", ids.join(",")));
    assert_eq!(answer.status, 200, "{:.300}", answer.text());
    let text = answer.text();
    assert_eq!(text.matches("\"_id\":").count(), 60);
}
