//! Relays of a change hub and servers that follow it, over any engine.

use std::time::Duration;

use rustix::process::Signal;

use super::{await_readyz, cached, losses, path, row, starts};
use hotrow_testkit::harness::{Config, SOON, Server, await_until};
use hotrow_testkit::nats::Nats;

/// Bound on staleness of the tests.
pub(crate) const BOUND: Duration = Duration::from_millis(800);

/// Returns a configuration of relay and servers behind NATS.
pub(crate) fn behind(config: Config, nats: &Nats) -> Config {
    config
        .set("source.feed", &format!("{:?}", nats.url()))
        .set("cache.max_staleness", &format!("\"{}ms\"", BOUND.as_millis()))
        .set("admin.ready_when", "\"fresh\"")
        .set("log.level", "\"info\"")
}

/// Starts a relay and waits until it publishes, or stands by.
#[track_caller]
pub(crate) fn relay(config: &Config) -> Server {
    let relay = Server::start_relay(config);
    relay.await_ready();
    relay
}

/// Starts a relay that keeps its lease while the machine has no time for it: for tests with one
/// relay that expect no loss.
#[track_caller]
pub(crate) fn only_relay(config: &Config) -> Server {
    relay(&config.clone().set("hub.lease", "\"30s\""))
}

/// Stops a relay, which gives its lease back.
#[track_caller]
pub(crate) fn stop_relay(relay: Server) {
    relay.signal(Signal::TERM);
    assert_eq!(relay.ended(SOON).code(), 0);
}

/// Starts a server that has a row of each of these ids.
#[track_caller]
pub(crate) fn server_with(config: &Config, ids: &[u32]) -> Server {
    let server = Server::start(config);
    let mut client = server.client();
    for id in ids {
        cached(&mut client, &path(*id));
    }
    server
}

/// Returns `leader` or `standby`.
pub(crate) fn role(relay: &Server) -> String {
    relay.status()["role"].as_str().expect("a text").to_owned()
}

/// Returns whether it says that a chain is open.
pub(crate) fn is_publishing(relay: &Server) -> bool {
    relay.status()["publishing"] == true
}

/// Waits until a relay leads and publishes.
#[track_caller]
pub(crate) fn await_leader(relay: &Server) {
    await_until("the take-over", SOON, || role(relay) == "leader");
    relay.await_ready();
}

/// Asserts that a server still has the entry, and nothing was lost since `started` starts.
#[track_caller]
pub(crate) fn assert_continued(server: &Server, started: f64, id: u32, price: u32) {
    await_readyz(server, 200);
    let answer = server.get(&path(id));
    assert_eq!((answer.cache(), answer.text()), ("hit", row(id, price)), "{}", server.log());
    assert_eq!((losses(server, None), starts(server)), (0.0, started), "{}", server.log());
}
