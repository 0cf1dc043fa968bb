//! Every kind of change of a document is seen by a client that has its record in the cache.

use std::time::Duration;

use hotrow_testkit::harness::{EventStream, SOON, Server, await_mostly, await_until};
use mongodb::bson::{Bson, doc};

use crate::mongodb::mongo::{MongoDatabase, collection_of};
use crate::mongodb::shop::{Shop, body};
use crate::mongodb::standin::Kind;
use crate::shop::{await_body, await_status, cached, losses, staleness};

#[test]
fn updates_replacements_deletes_and_inserts() {
    let shop = Shop::with_products();
    let server = shop.serve(&["products"]);
    let mut client = server.client();
    assert_eq!(cached(&mut client, "/products/1").text(), body(1, 100));
    shop.set_price(1, 7);
    await_body(&mut client, "/products/1", &body(1, 7));
    cached(&mut client, "/products/1");
    shop.mongo.replace("products", 1, doc! { "other": true });
    await_body(&mut client, "/products/1", r#"{"_id":1,"other":true}"#);
    cached(&mut client, "/products/1");
    shop.mongo.delete("products", 1);
    await_status(&mut client, "/products/1", 404);
    cached(&mut client, "/products/1");
    shop.mongo.insert("products", [doc! { "_id": 1, "name": "again" }]);
    await_body(&mut client, "/products/1", r#"{"_id":1,"name":"again"}"#);
    // A missing record that an upsert creates.
    cached(&mut client, "/products/5000");
    shop.mongo.replace("products", 5000, doc! { "new": 1 });
    await_body(&mut client, "/products/5000", r#"{"_id":5000,"new":1}"#);
    assert_eq!(losses(&server, None), 0.0);
}

#[test]
fn followers_get_the_keys_of_changed_documents() {
    const ALL: &str = "/_changes/products";
    let shop = Shop::with_products();
    let server = Server::start(&shop.config_of(&["products"]).with(&[
        ("collections.products.changes", "true"),
        ("collections.products.allow_min_position", "true"),
        ("follow.heartbeat", "\"100ms\""),
    ]));
    let mut stream = EventStream::open(server.data, ALL, "");
    assert_eq!(stream.next_news().name, "begin");
    shop.set_price(1, 7);
    shop.mongo.delete("products", 2);
    shop.mongo.insert("products", [doc! { "_id": 5000, "n": 1 }]);
    let mut first_id = None;
    for (key, status) in [("1", 200), ("2", 404), ("5000", 200)] {
        let event = stream.next_news();
        assert_eq!(event.change().0, key);
        let position = event.data["position"].as_str().expect("a position");
        let headers = [("Hotrow-Min-Position", position)];
        let answer = server.client().get_with(&format!("/products/{key}"), &headers);
        assert_eq!(answer.status, status, "{answer:?}");
        first_id = first_id.or(event.id);
    }
    let id = first_id.expect("the event of a commit has an id");
    let mut again = EventStream::open(server.data, ALL, &format!("Last-Event-ID: {id}\r\n"));
    assert_eq!(again.next_news().change().0, "2");
}

#[test]
fn one_number_is_one_key_whatever_its_type() {
    let shop = Shop::with_products();
    shop.mongo
        .insert("products", [doc! { "_id": 1000_i64, "n": 1 }, doc! { "_id": 1001.0, "n": 1 }]);
    let server = shop.serve(&["products"]);
    let mut client = server.client();
    for id in [1000, 1001] {
        cached(&mut client, &format!("/products/{id}"));
        shop.mongo.update("products", id, doc! { "$set": { "n": 2 } });
        await_until("the change", SOON, || client.get(&format!("/products/{id}")).json()["n"] == 2);
        cached(&mut client, &format!("/products/{id}"));
        shop.mongo.delete("products", i64::from(id));
        await_status(&mut client, &format!("/products/{id}"), 404);
        cached(&mut client, &format!("/products/{id}"));
        shop.mongo.insert("products", [doc! { "_id": f64::from(id), "n": 3 }]);
        await_until("the document", SOON, || client.get(&format!("/products/{id}")).status == 200);
    }
    // Documents that no URL names have no effect.
    shop.mongo.insert(
        "products",
        [doc! { "_id": "text" }, doc! { "_id": 1.5 }, doc! { "_id": { "a": 1 } }],
    );
    shop.set_price(2, 1);
    await_body(&mut client, "/products/2", &body(2, 1));
    assert_eq!(losses(&server, None), 0.0);
}

#[test]
fn drops_and_renames() {
    let shop = Shop::with_products();
    let server = shop.serve(&["products"]);
    let mut client = server.client();
    let database = shop.mongo.name().to_owned();
    let rename = |from: &str, to: &str| {
        let [from, to] = [from, to].map(|name| format!("{database}.{name}"));
        let names = doc! { "renameCollection": from, "to": to, "dropTarget": true };
        shop.mongo.ask(async |_| shop.mongo.client().database("admin").run_command(names).await);
    };
    cached(&mut client, "/products/1");
    shop.mongo.ask(async |database| collection_of(database, "products").drop().await);
    await_status(&mut client, "/products/1", 404);
    cached(&mut client, "/products/1");
    shop.mongo.insert("fresh", [doc! { "_id": 1, "n": 1 }]);
    rename("fresh", "products");
    await_body(&mut client, "/products/1", r#"{"_id":1,"n":1}"#);
    cached(&mut client, "/products/1");
    // Another collection takes the name.
    shop.mongo.insert("fresh", [doc! { "_id": 1, "n": 2 }]);
    rename("fresh", "products");
    await_body(&mut client, "/products/1", r#"{"_id":1,"n":2}"#);
    cached(&mut client, "/products/1");
    rename("products", "away");
    await_status(&mut client, "/products/1", 404);
    cached(&mut client, "/products/1");
    // Changes under the other name have no effect.
    shop.mongo.insert("products", [doc! { "_id": 1, "n": 3 }]);
    await_body(&mut client, "/products/1", r#"{"_id":1,"n":3}"#);
    assert!(server.metrics().sum("hotrow_feed_flushes_total", &[("cause", "bulk")]) >= 4.0);
}

#[test]
fn a_recreated_database_is_followed() {
    let shop = Shop::with_products();
    let server = shop.serve(&["products"]);
    let mut client = server.client();
    for round in 1..=3 {
        cached(&mut client, "/products/1");
        shop.mongo.ask(async |database| database.drop().await);
        await_status(&mut client, "/products/1", 404);
        cached(&mut client, "/products/1");
        shop.mongo.insert("products", [doc! { "_id": 1, "n": round }]);
        await_body(&mut client, "/products/1", &format!("{{\"_id\":1,\"n\":{round}}}"));
    }
    assert_eq!(
        losses(&server, None),
        0.0,
        "the end of a stream is reported, so nothing was missed"
    );
}

#[test]
fn a_transaction_of_thousands() {
    const MANY: i32 = 5_000;
    let shop = Shop::with_products();
    shop.mongo.insert("many", (1..=MANY).map(|n| doc! { "_id": n, "n": 0 }));
    let server = shop.serve(&["many", "products"]);
    let mut client = server.client();
    let paths = [1, 999, 1_000, 1_001, MANY].map(|id| format!("/many/{id}"));
    paths.iter().for_each(|path| _ = cached(&mut client, path));
    shop.mongo.ask(async |database| {
        let mut session = database.client().start_session().await?;
        session.start_transaction().await?;
        let many = collection_of(database, "many");
        for n in 1..=MANY / 1_000 {
            let filter = doc! { "_id": { "$gt": (n - 1) * 1_000, "$lte": n * 1_000 } };
            many.update_many(filter, doc! { "$set": { "n": 1 } }).session(&mut session).await?;
        }
        let products = collection_of(database, "products");
        products
            .update_one(doc! { "_id": 1 }, doc! { "$set": { "price": 1 } })
            .session(&mut session)
            .await?;
        session.commit_transaction().await
    });
    for (path, id) in paths.iter().zip([1, 999, 1_000, 1_001, MANY]) {
        await_body(&mut client, path, &format!("{{\"_id\":{id},\"n\":1}}"));
    }
    await_body(&mut client, "/products/1", &body(1, 1));
    assert_eq!(losses(&server, None), 0.0);
    // An aborted transaction has no effect.
    let delivered = || server.metrics().sum("hotrow_feed_changes_total", &[]);
    await_until("all to be counted", SOON, || delivered() > f64::from(MANY));
    cached(&mut client, "/products/7");
    let changes = delivered();
    shop.mongo.ask(async |database| {
        let mut session = database.client().start_session().await?;
        session.start_transaction().await?;
        let products = collection_of(database, "products");
        products.delete_one(doc! { "_id": 7 }).session(&mut session).await?;
        session.abort_transaction().await
    });
    shop.set_price(8, 3);
    await_body(&mut client, "/products/8", &body(8, 3));
    assert_eq!(client.get("/products/7").cache(), "hit");
    assert!(delivered() - changes < 100.0);
}

#[test]
fn an_idle_database_stays_fresh_and_so_does_a_busy_one() {
    const BOUND: Duration = Duration::from_secs(1);
    let shop = Shop::with_products();
    let server = Server::start(&shop.config_of(&["products"]).set("cache.max_staleness", "\"1s\""));
    let mut client = server.client();
    cached(&mut client, "/products/1");
    // Writes to other collections must not count as staleness, and silence must not either.
    for noise in ["", "unserved"] {
        await_mostly(noise, BOUND * 3, || {
            if !noise.is_empty() {
                shop.mongo.insert(noise, (0..50).map(|n| doc! { "n": n }));
            }
            staleness(&server) < BOUND
        });
    }
    await_until("a hit", SOON, || client.get("/products/1").cache() == "hit");
    assert_eq!(losses(&server, None), 0.0);
}

#[test]
fn documents_as_keys() {
    let shop = Shop::empty();
    let key = |a: i32, b: &str| doc! { "a": a, "b": b };
    shop.mongo.insert(
        "pairs",
        [
            doc! { "_id": key(7, "x,y"), "n": 1 },
            doc! { "_id": { "b": "other order", "a": 7 }, "n": 1 },
        ],
    );
    let config = shop
        .config_of(&["pairs"])
        .set("collections.pairs.key", "[\"_id.a\", \"_id.b\"]")
        .set("collections.pairs.key_type", "[\"integer\", \"text\"]");
    let server = Server::start(&config);
    let mut client = server.client();
    let path = "/pairs/7,x%2Cy";
    let text = |n: i32| format!("{{\"_id\":{{\"a\":7,\"b\":\"x,y\"}},\"n\":{n}}}");
    assert_eq!(cached(&mut client, path).text(), text(1));
    shop.mongo.update("pairs", Bson::Document(key(7, "x,y")), doc! { "$set": { "n": 2 } });
    await_body(&mut client, path, &text(2));
    cached(&mut client, path);
    shop.mongo.delete("pairs", Bson::Document(key(7, "x,y")));
    await_status(&mut client, path, 404);
    // To MongoDB, fields in another order are another document.
    assert_eq!(client.get("/pairs/7,other%20order").status, 404);
}

/// Sharded cluster: the service connects to a mongos. Properties that need several shards are not
/// tested here.
#[test]
fn a_mongos_is_followed_like_a_replica_set() {
    let shop = Shop::over(MongoDatabase::on_kind(Kind::Mongos, 1), 1).filled();
    let server = shop.serve(&["products"]);
    let mut client = server.client();
    for price in 1..=5 {
        let before = cached(&mut client, "/products/1");
        shop.set_price(1, price);
        let position = shop.position(&before);
        let answer = client.get_with("/products/1", &[("Hotrow-Min-Position", &position)]);
        assert_eq!((answer.status, answer.text()), (200, body(1, price)));
    }
    shop.mongo.delete("products", 1);
    await_status(&mut client, "/products/1", 404);
    cached(&mut client, "/products/2");
    shop.mongo.ask(async |database| database.drop().await);
    await_status(&mut client, "/products/2", 404);
    shop.mongo.insert("products", [mongodb::bson::doc! { "_id": 2, "name": "p2", "price": 9 }]);
    await_body(&mut client, "/products/2", &body(2, 9));
    assert_eq!(losses(&server, None), 0.0);
}
