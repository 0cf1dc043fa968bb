//! Test database with collections, on a deployment or on a stand-in.

use mongodb::bson::{Document, doc};

use crate::backend::Backend as _;
pub(crate) use crate::backend::mongo::Mongo as Shop;
use crate::mongodb::mongo::{MongoDatabase, collection_of};
use crate::shop::{self, with_options};
use hotrow_testkit::harness::{Answer, Config, SOON, Server, await_until};

impl Shop {
    /// Creates `products(_id, name, price)` with ids 1 to 200, on a real deployment if there is
    /// one, otherwise on a stand-in.
    pub(crate) fn with_products() -> Self {
        Self::filled(Self::over(MongoDatabase::any(), 1))
    }

    /// Creates the products on a stand-in, for tests of faults.
    pub(crate) fn on_standin() -> Self {
        Self::filled(Self::over(MongoDatabase::on_standin(), 1))
    }

    /// Creates the products in this database.
    pub(crate) fn filled(self) -> Self {
        self.mongo.insert("products", (1..=200).map(product));
        self
    }

    /// Creates no collection; on a real deployment if there is one.
    pub(crate) fn empty() -> Self {
        Self::over(MongoDatabase::any(), 1)
    }

    /// Returns the configuration that serves these collections.
    pub(crate) fn config_of(&self, collections: &[&str]) -> Config {
        collections.iter().fold(with_options(self.config(), collections), |config, name| {
            config.set(&format!("collections.{name}.key"), "\"_id\"")
        })
    }

    #[track_caller]
    pub(crate) fn serve(&self, collections: &[&str]) -> Server {
        Server::start(&self.config_of(collections))
    }

    #[track_caller]
    pub(crate) fn set_price(&self, id: i32, price: i32) {
        self.mongo.update("products", id, doc! { "$set": { "price": price } });
    }

    /// Returns a position token as a writer makes it: the log of an earlier answer with the
    /// operation time of the writer's own write.
    #[track_caller]
    pub(crate) fn position(&self, answer: &Answer) -> String {
        let (log, _) = answer
            .header("hotrow-position")
            .and_then(|own| own.split_once('-'))
            .expect("a position");
        format!("{log}-{}", self.mongo.operation_time())
    }
}

fn product(n: i32) -> Document {
    doc! { "_id": n, "name": format!("p{n}"), "price": 100 * n }
}

/// Returns the body that the service answers for a product.
pub(crate) fn body(id: i32, price: i32) -> String {
    format!("{{\"_id\":{id},\"name\":\"p{id}\",\"price\":{price}}}")
}

impl shop::Shop for Shop {
    const CONNECTION_THREAD: &'static str = "mongodb";

    fn open() -> Self {
        Self::private(1).filled()
    }

    fn config_of_products(&self) -> Config {
        self.config_of(&["products"])
    }

    fn body(id: u32, price: u32) -> String {
        body(id.cast_signed(), price.cast_signed())
    }

    fn set_price(&self, id: u32, price: u32) {
        Self::set_price(self, id.cast_signed(), price.cast_signed());
    }

    /// A driver does not repeat an update of many documents by itself, and its connections die with
    /// the server.
    fn set_all_prices(&self, price: u32) {
        await_until("the prices to be set", SOON, || {
            let set = doc! { "$set": { "price": price.cast_signed() } };
            let done = self.mongo.try_ask(async |database| {
                collection_of(database, "products").update_many(doc! {}, set).await
            });
            done.is_ok()
        });
    }

    fn position_after(&self, answer: &Answer) -> String {
        self.position(answer)
    }
}
