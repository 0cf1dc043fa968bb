//! The change hub with a slot that outlives its relays: a take-over loses nothing.

use rustix::process::Signal;

use crate::postgres::hub::Hub;
use crate::postgres::server::Stop;
use crate::postgres::shop::Shop;
use crate::shop::hub::{assert_continued, await_leader, role, server_with};
use crate::shop::{await_body, await_started, cached, losses, path, price_sql, row, starts};
use hotrow_testkit::harness::{SOON, Server, await_until};
use hotrow_testkit::nats::Nats;

const SLOT: &str = "SELECT slot_name, temporary, active FROM pg_replication_slots";

/// Returns a hub whose relays share a slot.
fn new_hub() -> Hub {
    with_slot(Shop::with_products())
}

fn with_slot(shop: Shop) -> Hub {
    let mut hub = Hub::over(shop, Nats::start(""));
    hub.config = hub.config.set("hub.slot", "\"relays\"");
    hub
}

/// Starts a relay and waits until it has the slot's session.
#[track_caller]
fn leading_relay(hub: &Hub) -> Server {
    let relay = hub.relay();
    await_leader(&relay);
    await_until("the slot's session", SOON, || hub.shop.server.query(SLOT) == "relays|f|t");
    relay
}

#[test]
fn a_relay_that_is_killed_is_continued_without_a_loss() {
    let hub = new_hub();
    let first = leading_relay(&hub);
    let second = hub.relay();
    assert_eq!((role(&first), role(&second)), ("leader".into(), "standby".into()));
    let server = server_with(&hub.config, &[1, 2]);
    let started = starts(&server);
    first.signal(Signal::KILL);
    // No relay sees this change when it is made.
    hub.shop.server.batch(&price_sql(1, 7));
    await_leader(&second);
    assert_continued(&server, started, 2, 200);
    await_body(&mut server.client(), &path(1), &row(1, 7));
    hub.shop.server.batch(&price_sql(2, 8));
    await_body(&mut server.client(), &path(2), &row(2, 8));
    let status = second.status();
    assert_eq!((&status["chains_begun"], &status["chains_continued"]), (&1.into(), &1.into()));
    assert_eq!(status["slot"], "relays", "{status}");
    // A server that joins after the take-over.
    let other = server_with(&hub.config, &[1]);
    hub.shop.server.batch(&price_sql(1, 9));
    await_body(&mut other.client(), &path(1), &row(1, 9));
    assert_eq!((losses(&server, None), losses(&other, None)), (0.0, 0.0));
}

#[test]
fn a_relay_that_is_paused_and_wakes_is_ignored() {
    let hub = new_hub();
    let relays = [leading_relay(&hub), hub.relay()];
    let server = server_with(&hub.config, &[1, 2]);
    let started = starts(&server);
    // It has the slot's session, which the second ends.
    relays[0].stop();
    hub.shop.server.batch(&price_sql(1, 1));
    await_leader(&relays[1]);
    await_body(&mut server.client(), &path(1), &row(1, 1));
    assert_continued(&server, started, 2, 200);
    relays[0].signal(Signal::CONT);
    await_until("the old leader to stand by", SOON, || role(&relays[0]) == "standby");
    hub.shop.server.batch(&price_sql(1, 2));
    await_body(&mut server.client(), &path(1), &row(1, 2));
    assert_continued(&server, started, 2, 200);
    assert_eq!(role(&relays[1]), "leader");
    assert_eq!(hub.shop.server.query(SLOT), "relays|f|t");
}

#[test]
fn a_relay_that_is_stopped_gives_its_lease_back() {
    let mut hub = new_hub();
    // So long that it could not be waited for.
    hub.config = hub.config.set("hub.lease", "\"60s\"");
    let first = hub.relay();
    let second = hub.relay();
    let server = server_with(&hub.config, &[1]);
    let started = starts(&server);
    first.signal(Signal::TERM);
    await_leader(&second);
    assert_continued(&server, started, 1, 100);
    assert_eq!(first.ended(SOON).code(), 0);
}

#[test]
fn sessions_with_the_database_may_end() {
    let hub = new_hub();
    let _relay = hub.relay();
    let server = server_with(&hub.config, &[1, 2]);
    let started = starts(&server);
    for price in 1..4 {
        // Those of the relay only: a server that loses its own session has a loss.
        hub.shop.server.batch("SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots");
        hub.shop.server.batch(&price_sql(1, price));
        await_body(&mut server.client(), &path(1), &row(1, price));
    }
    assert_continued(&server, started, 2, 200);
}

#[test]
fn a_restart_of_nats_loses_nothing() {
    let mut hub = new_hub();
    let _relay = hub.relay();
    let server = server_with(&hub.config, &[1, 2]);
    let started = starts(&server);
    hub.nats.kill();
    hub.shop.server.batch(&price_sql(1, 1));
    hub.nats.restart();
    await_body(&mut server.client(), &path(1), &row(1, 1));
    assert_continued(&server, started, 2, 200);
}

#[test]
fn a_slot_that_is_dropped_is_a_loud_loss() {
    let hub = new_hub();
    let relay = hub.relay();
    let server = server_with(&hub.config, &[1]);
    let started = starts(&server);
    relay.signal(Signal::KILL);
    await_until("the slot to be free", SOON, || hub.shop.server.query(SLOT) == "relays|f|f");
    hub.shop.server.batch("SELECT pg_drop_replication_slot('relays')");
    hub.shop.server.batch(&price_sql(1, 1));
    let relay = hub.relay();
    await_started(&server, started);
    assert!(losses(&server, Some("hub")) >= 1.0, "{}", server.log());
    relay.await_log("does not continue the one before it");
    await_body(&mut server.client(), &path(1), &row(1, 1));
}

#[test]
fn a_table_that_was_not_published_for_a_time_is_a_loud_loss() {
    let hub = new_hub();
    let relay = hub.relay();
    let server = server_with(&hub.config, &[1]);
    let started = starts(&server);
    relay.signal(Signal::KILL);
    hub.shop.server.batch("ALTER PUBLICATION hotrow DROP TABLE products");
    hub.shop.server.batch(&price_sql(1, 1));
    hub.shop.server.batch("ALTER PUBLICATION hotrow ADD TABLE products");
    let _relay = hub.relay();
    await_started(&server, started);
    assert!(losses(&server, Some("hub")) >= 1.0, "{}", server.log());
    await_body(&mut server.client(), &path(1), &row(1, 1));
}

#[test]
fn a_restart_of_the_database_is_a_loss_all_the_same() {
    let mut hub = new_hub();
    let _relay = hub.relay();
    let server = server_with(&hub.config, &[1]);
    let started = starts(&server);
    hub.shop.server.stop(Stop::Fast);
    hub.shop.server.restart();
    await_started(&server, started);
    hub.shop.server.batch(&price_sql(1, 1));
    await_body(&mut server.client(), &path(1), &row(1, 1));
    assert_eq!(cached(&mut server.client(), &path(1)).text(), row(1, 1));
}

#[test]
fn the_role_of_another_relay_waits_and_says_so() {
    let hub = new_hub();
    hub.shop.server.batch("CREATE ROLE other LOGIN REPLICATION; GRANT SELECT ON products TO other");
    let first = leading_relay(&hub);
    let url = hub.shop.server.url_for("other", "postgres");
    let second = Server::start_relay(&hub.config.set("source.url", &format!("{url:?}")));
    second.await_ready();
    first.stop();
    // While the slot is created it waits for that.
    await_until("the wait for the other's session", SOON, || {
        let status = second.status();
        let waits_for = status["waits_for"].as_str().unwrap_or_default();
        waits_for.contains("`relays`") && waits_for.contains("may not end")
    });
    second.await_log("GRANT pg_signal_backend");
    assert_eq!(second.admin_client().get("/readyz").status, 503);
    // The server ends the session when its process is gone.
    first.signal(Signal::KILL);
    await_leader(&second);
    assert!(second.status()["waits_for"].is_null());
}
