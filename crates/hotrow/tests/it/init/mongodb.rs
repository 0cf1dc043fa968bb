//! MongoDB: what a sample of the documents shows.

use mongodb::bson::doc;

use super::{Written, assert_has};
use hotrow_testkit::mongo::MongoDatabase;

#[test]
fn a_sample_becomes_collections_and_is_marked_as_such() {
    let mongo = MongoDatabase::on_standin();
    mongo.insert(
        "orders",
        (1..4).map(|id| {
            doc! { "_id": id, "number": format!("n{id}"), "total": 4.5, "api_token": "t" }
        }),
    );
    mongo.insert("Pairs", [doc! { "_id": { "a": 7, "b": "x" }, "note": "n" }]);
    mongo.insert("mixed", [doc! { "_id": 1 }, doc! { "_id": "1" }]);
    mongo.run(doc! { "createIndexes": "orders", "indexes": [
    { "key": { "number": 1 }, "name": "number", "unique": true } ] });
    let written = Written::of(mongo.url(), &[]);
    assert_has(
        &written.text,
        &[
            "# orders: collection, about 3 rows; key _id (int32)\n",
            "# Seen in a sample of 3 documents, others may differ: _id (int32), number (string),",
            "[collections.orders]\nkey = \"_id\"\nkey_type = \"integer\"\n",
            "exclude = [\"api_token\"]\n",
            "table = \"Pairs\"\nkey = [\"_id.a\", \"_id.b\"]\nkey_type = [\"integer\", \"text\"]\n",
        ],
    );
    assert_has(written.refusal("mixed"), &["are of several types"]);
    std::fs::write(written.file(), written.with_offers(&[".by."])).expect("written");
    let served = written.serve();
    assert_eq!(served.get("/orders/by/number/n3").json()["_id"], 3);
    assert_eq!(served.get("/orders/2").json()["total"], 4.5);
    assert_eq!(served.get("/pairs/7,x").json()["note"], "n");
}
