//! Test database with collections, and helpers to query the service over it.

use std::time::Duration;

use mongodb::bson::{Document, doc};

use crate::mongodb::place::Place;
use hotrow_testkit::harness::{Answer, Client, Config, SOON, Server, await_some, await_until};

/// Database for the service.
pub(crate) struct Shop {
    pub(crate) place: Place,
}

impl Shop {
    /// Creates `products(_id, name, price)` with ids 1 to 200, on a real deployment if there is
    /// one, otherwise on a stand-in.
    pub(crate) fn with_products() -> Self {
        Self::filled(Place::any())
    }

    /// Creates the products on a stand-in, for tests of faults.
    pub(crate) fn on_standin() -> Self {
        Self::filled(Place::on_standin())
    }

    /// Creates the products in this database.
    pub(crate) fn filled(place: Place) -> Self {
        place.insert("products", (1..=200).map(product));
        Self { place }
    }

    /// Creates no collection; on a real deployment if there is one.
    pub(crate) fn empty() -> Self {
        Self { place: Place::any() }
    }

    /// Returns the configuration that serves these collections.
    pub(crate) fn config(&self, collections: &[&str]) -> Config {
        let config = Config::over(self.place.url());
        collections.iter().fold(config, |config, name| {
            config
                .set(&format!("collections.{name}.key"), "\"_id\"")
                .set(&format!("collections.{name}.allow_no_cache"), "true")
                .set(&format!("collections.{name}.allow_min_position"), "true")
        })
    }

    #[track_caller]
    pub(crate) fn serve(&self, collections: &[&str]) -> Server {
        Server::start(&self.config(collections))
    }

    #[track_caller]
    pub(crate) fn set_price(&self, id: i32, price: i32) {
        self.place.update("products", id, doc! { "$set": { "price": price } });
    }

    /// Returns a position token as a writer makes it: the log of an earlier answer with the
    /// operation time of the writer's own write.
    #[track_caller]
    pub(crate) fn position(&self, answer: &Answer) -> String {
        let (log, _) = answer
            .header("hotrow-position")
            .and_then(|own| own.split_once('-'))
            .expect("a position");
        format!("{log}-{}", self.place.operation_time())
    }
}

fn product(n: i32) -> Document {
    doc! { "_id": n, "name": format!("p{n}"), "price": 100 * n }
}

/// Returns the body that the service answers for a product.
pub(crate) fn body(id: i32, price: i32) -> String {
    format!("{{\"_id\":{id},\"name\":\"p{id}\",\"price\":{price}}}")
}

/// Reads until the answer is a hit, and returns it.
#[track_caller]
pub(crate) fn cached(client: &mut Client, path: &str) -> Answer {
    await_some(&format!("{path} to be cached"), SOON, || {
        let answer = client.get(path);
        (answer.cache() == "hit").then_some(answer)
    })
}

#[track_caller]
pub(crate) fn await_body(client: &mut Client, path: &str, body: &str) {
    let mut last = None;
    let wait = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        await_until(&format!("{path} to be {body}"), SOON, || {
            let answer = client.get(path);
            let found = answer.status == 200 && answer.text() == body;
            last = Some(answer);
            found
        });
    }));
    assert!(wait.is_ok(), "{path} is not {body}, but {last:?}");
}

#[track_caller]
pub(crate) fn await_status(client: &mut Client, path: &str, status: u16) {
    await_until(&format!("{path} to answer {status}"), SOON, || client.get(path).status == status);
}

#[track_caller]
pub(crate) fn await_readyz(server: &Server, status: u16) {
    await_status(&mut server.admin_client(), "/readyz", status);
}

pub(crate) fn starts(server: &Server) -> f64 {
    server.metrics().sum("hotrow_feed_starts_total", &[])
}

/// Waits until the feed has started more than `before` times and the service is ready.
#[track_caller]
pub(crate) fn await_started(server: &Server, before: f64) {
    await_until("the feed to start again", SOON, || starts(server) > before);
    await_readyz(server, 200);
}

/// Returns the number of losses, of any cause or of one.
pub(crate) fn losses(server: &Server, cause: Option<&str>) -> f64 {
    let labels: Vec<(&str, &str)> = cause.map(|cause| ("cause", cause)).into_iter().collect();
    server.metrics().sum("hotrow_feed_losses_total", &labels)
}

pub(crate) fn staleness(server: &Server) -> Duration {
    Duration::from_secs_f64(server.metrics().sum("hotrow_feed_staleness_seconds", &[]).max(0.0))
}
