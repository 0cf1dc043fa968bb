//! Changes of documents as followers and many readers see them; the engine's own tests have every
//! kind of write.

use hotrow_testkit::harness::{EventStream, SOON, Server, await_until};
use mongodb::bson::doc;

use crate::mongodb::mongo::collection_of;
use crate::mongodb::shop::{Shop, body};
use crate::shop::{await_body, cached, losses};

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
