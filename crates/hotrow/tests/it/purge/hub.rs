//! Purges of an instance that follows a change hub: as without one, and later by the way of a
//! question to the relay, because its answer is the proof that a change is visible.

use std::cell::OnceCell;

use hotrow_testkit::harness::{Config, SOON, Server, await_until};
use hotrow_testkit::nats::Nats;

use super::{Site, Varnish, a_change_is_seen_in_front};
use crate::alias::Users;
use crate::backend::Backend as _;
use crate::backend::maria::Maria;
use crate::backend::postgres::Postgres;
use crate::follow::Hides as _;
use crate::shop::hub::{behind, relay};

/// A database behind a hub, whose relay starts when the tables are there.
struct Hubbed<U> {
    relay: OnceCell<Server>,
    nats: Nats,
    database: U,
}

impl<U: Users> Users for Hubbed<U> {
    const TEXT: &str = U::TEXT;

    fn open() -> Self {
        Self { relay: OnceCell::new(), nats: Nats::start(""), database: U::open() }
    }

    fn service(&self) -> Config {
        let config = behind(self.database.service(), &self.nats);
        self.relay.get_or_init(|| relay(&config.clone().collection("items")));
        config
    }

    fn execute(&self, sql: &str) {
        self.database.execute(sql);
    }
}

impl<U: Users> Hubbed<U> {
    /// Returns the number of messages that the relay has written.
    fn messages(&self) -> u64 {
        let relay = self.relay.get().expect("started");
        relay.status()["messages"].as_u64().expect("a number")
    }
}

#[test]
fn a_change_of_postgresql_is_seen_in_front() {
    a_change_is_seen_in_front::<Varnish, Hubbed<Postgres>>();
}

#[test]
fn a_change_of_mariadb_is_seen_in_front() {
    a_change_is_seen_in_front::<Varnish, Hubbed<Maria>>();
}

#[test]
fn what_was_missed_without_a_relay_is_seen_in_front() {
    let mut site = Site::<Varnish, Hubbed<Postgres>>::start(|config| config);
    site.await_kept(5, Some(0));
    // Its place in the log ends with it: the next one begins a chain anew.
    drop(site.database.relay.take());
    site.set(5, 1);
    // The new beginning may follow the loss so closely that one purge is for both.
    let purged = |site: &Site<_, _>| site.purged_all("loss") + site.purged_all("resumed");
    let before = purged(&site);
    site.database.service();
    await_until("the loss or the new beginning", SOON, || purged(&site) > before);
    site.await_version(5, Some(1));
    site.await_kept(5, Some(1));
    site.set(5, 2);
    site.await_version(5, Some(2));
}

#[test]
fn a_hidden_change_is_not_purged() {
    let site = Site::<Varnish, Hubbed<Postgres>>::start(|config| config);
    site.await_kept(5, Some(0));
    let purges = site.purges();
    let server = &site.database.database.server;
    let sql = format!("{} UPDATE items SET v = 1 WHERE id = 5", Postgres::HIDDEN);
    site.database.database.while_hidden(
        || server.batch(&sql),
        || {
            await_until("the change to be delivered", SOON, || {
                site.server.metrics().sum("hotrow_followed_changes_hidden_bytes", &[]) > 0.0
            });
            // The relay goes on to answer.
            let messages = site.database.messages();
            await_until("more messages", SOON, || site.database.messages() > messages + 10);
            assert_eq!(site.purges(), purges, "it is not visible yet");
            assert_eq!(site.version(5), Some(0));
        },
    );
    site.await_version(5, Some(1));
    site.await_kept(5, Some(1));
    site.await_quiet();
    assert_eq!(site.version(5), Some(1));
}
