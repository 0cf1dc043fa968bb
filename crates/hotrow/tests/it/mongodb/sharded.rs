//! Sharded cluster: the service connects to a mongos. Properties that need several shards are not
//! tested here.

use crate::mongodb::place::Place;
use crate::mongodb::shop::{Shop, body};
use crate::mongodb::standin::Kind;
use crate::shop::{await_body, await_status, cached, losses};

#[test]
fn a_mongos_is_followed_like_a_replica_set() {
    let shop = Shop::over(Place::on_kind(Kind::Mongos, 1), 1).filled();
    let server = shop.serve(&["products"]);
    let mut client = server.client();
    for price in 1..=5 {
        let before = cached(&mut client, "/products/1");
        shop.set_price(1, price);
        let position = shop.position(&before);
        let answer = client.get_with("/products/1", &[("Hotrow-Min-Position", &position)]);
        assert_eq!((answer.status, answer.text()), (200, body(1, price)));
    }
    shop.place.delete("products", 1);
    await_status(&mut client, "/products/1", 404);
    cached(&mut client, "/products/2");
    shop.place.ask(async |database| database.drop().await);
    await_status(&mut client, "/products/2", 404);
    shop.place.insert("products", [mongodb::bson::doc! { "_id": 2, "name": "p2", "price": 9 }]);
    await_body(&mut client, "/products/2", &body(2, 9));
    assert_eq!(losses(&server, None), 0.0);
}
