//! A table of products over any engine, what tests observe of its service, and the tests that run
//! over several engines: [`reads`], [`redis`], [`failures`],
//! [`threads`]; `hub` has what tests of the change hub share.

use std::time::Duration;

use crate::backend::Backend;
use hotrow_testkit::harness::{
    Answer, Client, Config, Ended, SOON, Server, await_some, await_until,
};

/// Time limit for a start that must fail.
const REFUSED_WITHIN: Duration = Duration::from_secs(60);

/// Makes all tests of these modules for one engine.
macro_rules! shop_tests {
    ($shop:ty) => {
        #[cfg(feature = "failpoints")]
        use $crate::shop::threads;
        use $crate::shop::{failures, reads, redis, traces};

        tests! {
            $shop:
            reads::fifty_readers_of_one_cold_key_are_one_query,
            reads::a_writer_reads_its_own_write_by_its_position,
            reads::with_the_feed_held_a_position_is_read_from_the_database,
            traces::a_query_names_its_database,
            redis::redis_cli_sees_records_and_their_changes,
            failures::past_the_bound_the_policy_acts,
            failures::a_late_stream_does_not_advance_freshness,
            failures::a_killed_server_under_load,
            failures::a_server_that_never_answers_is_named_in_the_log,
            #[cfg(feature = "failpoints")]
            threads::a_feed_that_panics_is_a_loss_and_follows_again,
            #[cfg(feature = "failpoints")]
            threads::the_thread_that_drives_the_connections_comes_back,
        }
    };
}
pub(crate) use shop_tests;

pub(crate) mod failures;
#[cfg(feature = "hub")]
pub(crate) mod hub;
pub(crate) mod reads;
pub(crate) mod redis;
#[cfg(feature = "failpoints")]
pub(crate) mod threads;
pub(crate) mod traces;

/// A server with `products`: ids 1 to 200, product `n` named `pn` with the price 100 times `n`.
pub(crate) trait Shop: Backend {
    /// Name of the thread that drives the readers' connections.
    const CONNECTION_THREAD: &'static str;

    /// Starts a private server with the products. It has no other member that could take over.
    fn open() -> Self;

    /// Returns the configuration of a service with every client option enabled.
    fn config_of_products(&self) -> Config;

    /// Returns the body of the answer for a product.
    fn body(id: u32, price: u32) -> String;

    /// Changes a product.
    fn set_price(&self, id: u32, price: u32);

    /// Changes all products; repeats it while the server recovers.
    fn set_all_prices(&self, price: u32);

    /// Returns the log's end as a position, as a writer makes it; `answer` is an earlier answer of
    /// the service.
    fn position_after(&self, answer: &Answer) -> String;
}

/// Returns the path of a product.
pub(crate) fn path(id: u32) -> String {
    format!("/products/{id}")
}

/// Returns the JSON of a product in a table with SQL.
pub(crate) fn row(id: u32, price: u32) -> String {
    format!(r#"{{"id":{id},"name":"p{id}","price":{price}}}"#)
}

/// Returns the SQL that changes a product.
pub(crate) fn price_sql(id: u32, price: u32) -> String {
    format!("UPDATE products SET price = {price} WHERE id = {id}")
}

/// Enables every client option of these collections.
pub(crate) fn with_options(config: Config, collections: &[&str]) -> Config {
    collections.iter().fold(config, |config, name| {
        config
            .collection(name)
            .set(&format!("collections.{name}.allow_no_cache"), "true")
            .set(&format!("collections.{name}.allow_min_position"), "true")
    })
}

/// Starts over a database that must be refused; returns the messages.
#[track_caller]
pub(crate) fn refusal(config: &Config) -> String {
    let (status, text) = failed_start(config);
    assert_eq!(status, 1, "{text}");
    text
}

/// Starts with a configuration that must fail; returns its exit status and messages.
#[track_caller]
pub(crate) fn failed_start(config: &Config) -> (i32, String) {
    let ended = Ended::run_config(config, REFUSED_WITHIN);
    assert_ne!(ended.code(), 0, "{ended:?}");
    (ended.code(), format!("{}{}", ended.output, ended.log))
}

/// Asserts that the text contains all of these.
#[track_caller]
pub(crate) fn assert_contains(text: &str, all: &[&str]) {
    for part in all {
        assert!(text.contains(part), "{part:?} is not in:\n{text}");
    }
}

/// Changes record 3 again and again through `change`, which returns its body, and asks strictly:
/// at once, and once more from memory, for which the server looks at the database itself.
pub(crate) fn strictly_from_memory(
    client: &mut Client,
    server: &Server,
    change: impl Fn(u32) -> String,
) {
    let now = [("Hotrow-Min-Position", "now")];
    for price in 20..40 {
        let body = change(price);
        assert_eq!(client.get_with(&path(3), &now).text(), body);
    }
    let before = server.queries();
    await_until("strict answers from memory", SOON, || {
        client.get_with(&path(3), &now).cache() == "hit"
    });
    assert!(server.queries() <= before + 3, "memory answers");
    assert!(server.metrics().sum("hotrow_strict_look_seconds_count", &[]) > 0.0);
}

/// Reads until the answer is a hit, and returns it.
#[track_caller]
pub(crate) fn cached(client: &mut Client, path: &str) -> Answer {
    await_some(&format!("{path} to be cached"), SOON, || {
        let answer = client.get(path);
        (answer.cache() == "hit").then_some(answer)
    })
}

/// Waits until the answer is 200 with this body.
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

/// Waits until the answer has this status.
#[track_caller]
pub(crate) fn await_status(client: &mut Client, path: &str, status: u16) {
    await_until(&format!("{path} to answer {status}"), SOON, || client.get(path).status == status);
}

/// Waits until `/readyz` has this status.
#[track_caller]
pub(crate) fn await_readyz(server: &Server, status: u16) {
    await_status(&mut server.admin_client(), "/readyz", status);
}

/// Returns how many times the feed has started.
pub(crate) fn starts(server: &Server) -> f64 {
    server.metrics().sum("hotrow_feed_starts_total", &[])
}

/// Waits until the feed runs again, having started more than `before` times.
#[track_caller]
pub(crate) fn await_started(server: &Server, before: f64) {
    await_until("the feed to start again", SOON, || starts(server) > before);
    await_readyz(server, 200);
}

/// Returns the number of losses, of one cause or all.
pub(crate) fn losses(server: &Server, cause: Option<&str>) -> f64 {
    let labels: Vec<(&str, &str)> = cause.map(|cause| ("cause", cause)).into_iter().collect();
    server.metrics().sum("hotrow_feed_gaps_total", &labels)
}

/// Returns the staleness in the metrics.
pub(crate) fn staleness(server: &Server) -> Duration {
    Duration::from_secs_f64(server.metrics().sum("hotrow_feed_staleness_seconds", &[]).max(0.0))
}
