//! Purges (docs/purging.md): a client of Varnish or nginx in front of the real program sees the
//! changes of its database.
//!
//! Reading order: this (a site, and the tests that run over both), [`fronts`] (the programs in
//! front), [`keys`] (header fields of answers), [`webhook`] (the receiver of examples/purge), `hub`
//! (behind a change hub).

mod fronts;
#[cfg(feature = "hub")]
mod hub;
mod keys;
mod webhook;

use std::marker::PhantomData;

use hotrow_testkit::harness::{
    Answer, Client, Config, Database, EventStream, SOON, Server, await_until,
};
use hotrow_testkit::proxy::{Class, Proxy};

use self::fronts::{Front, Nginx, Varnish};
use crate::alias::Users;
use crate::backend::postgres::Postgres;
use crate::follow::{Hides, with_items};

const CACHE_CONTROL: &str = "\"max-age=0, s-maxage=3600\"";

/// Returns a configuration with surrogate keys and short times.
fn purged(config: Config) -> Config {
    config.with(&[
        ("cache.max_staleness", "\"1s\""),
        ("collections.items.surrogate_keys", "true"),
        ("collections.items.cache_control", CACHE_CONTROL),
        ("purge.repeat_after", "\"1200ms\""),
    ])
}

/// A database with `items`, Hotrow, and a cache in front of it whose purges pass a link.
struct Site<F, U> {
    front: F,
    server: Server,
    /// From Hotrow to the cache, for purges.
    link: Proxy,
    database: U,
    _kinds: PhantomData<(F, U)>,
}

impl<F: Front, U: Users> Site<F, U> {
    fn start(configure: impl Fn(Config) -> Config) -> Self {
        let database = with_items::<U>();
        // It leads to the cache as soon as that has started.
        let link = Proxy::plain(1, Class::Readers);
        let config = F::target(purged(database.service()), link.port());
        let server = Server::start(&configure(config));
        let front = F::start(server.data);
        link.set_target(front.address().port());
        let site = Self { front, server, link, database, _kinds: PhantomData };
        site.await_quiet();
        site
    }

    fn get(&self, id: u32) -> Answer {
        Client::connect(self.front.address()).get(&format!("/items/{id}"))
    }

    /// Returns the version that the cache answers; `None`: there is no such record.
    fn version(&self, id: u32) -> Option<u64> {
        let answer = self.get(id);
        match answer.status {
            200 => Some(answer.json()["v"].as_u64().expect("a version")),
            404 => None,
            _ => panic!("{answer:?}"),
        }
    }

    fn set(&self, id: u32, version: u64) {
        self.database.execute(&format!("UPDATE items SET v = {version} WHERE id = {id}"));
    }

    /// Waits until the cache answers this version.
    #[track_caller]
    fn await_version(&self, id: u32, version: Option<u64>) {
        await_until("the version", SOON, || self.version(id) == version);
    }

    /// Returns the number of requests that came from the cache.
    fn requests(&self) -> u64 {
        let metrics = self.server.metrics();
        metrics.sum_or_zero("hotrow_http_requests_total", &[]) as u64
    }

    /// Returns whether the cache answers without Hotrow.
    fn is_kept(&self, id: u32) -> bool {
        let before = self.requests();
        self.get(id);
        self.requests() == before
    }

    /// Waits until the cache keeps a record, in this version.
    #[track_caller]
    fn await_kept(&self, id: u32, version: Option<u64>) {
        await_until("the cache to keep it", SOON, || self.is_kept(id));
        assert_eq!(self.version(id), version);
    }

    /// Waits until nothing is to be purged, not even for the second time.
    #[track_caller]
    fn await_quiet(&self) {
        await_until("all purges", SOON, || {
            self.server.metrics().sum("hotrow_purge_queue_entries", &[]) == 0.0
        });
    }

    fn purges(&self) -> f64 {
        self.server.metrics().sum("hotrow_purges_total", &[])
    }

    fn purged_all(&self, cause: &str) -> f64 {
        self.server.metrics().sum("hotrow_purge_collections_total", &[("cause", cause)])
    }
}

fn a_change_is_seen_in_front<F: Front, U: Users>() {
    let site = Site::<F, U>::start(|config| config);
    site.await_kept(5, Some(0));
    site.await_kept(6, Some(0));
    site.await_kept(99, None);
    for version in 1..=3 {
        site.set(5, version);
        site.await_version(5, Some(version));
        site.await_kept(5, Some(version));
    }
    assert!(site.is_kept(6) && site.is_kept(99), "others are not purged");
    site.database.execute("INSERT INTO items VALUES (99, 7)");
    site.await_version(99, Some(7));
    site.database.execute("DELETE FROM items WHERE id = 5");
    site.await_version(5, None);
    site.await_quiet();
    site.await_kept(5, None);
    let by_request =
        site.server.admin_client().request("POST", "/purge/items", &[("Hotrow-Admin", "1")], b"");
    assert_eq!(by_request.status, 200);
    await_until("a purge by request", SOON, || !site.is_kept(6));
}

fn what_was_missed_is_seen_in_front<F: Front, H: Hides>() {
    let site = Site::<F, H>::start(|config| config);
    site.await_kept(5, Some(0));
    site.database.refuse_feed();
    await_until("the loss", SOON, || site.purged_all("loss") > 0.0);
    site.set(5, 1);
    site.await_version(5, Some(1));
    site.set(5, 2);
    site.await_version(5, Some(2));
    assert!(!site.is_kept(5), "nothing would purge it");
    site.database.clear_faults();
    await_until("the new beginning", SOON, || site.purged_all("resumed") > 1.0);
    site.await_kept(5, Some(2));
    site.set(5, 3);
    site.await_version(5, Some(3));
}

fn a_cache_that_was_down_for_purges_is_purged_later<F: Front>() {
    let site = Site::<F, Database>::start(|config| config.set("purge.queue_records", "10"));
    for id in 1..=20 {
        site.await_kept(id, Some(0));
    }
    site.link.refuse(&[Class::Readers], true);
    site.link.cut(&[Class::Readers]);
    site.set(3, 1);
    let failures = || site.server.status()["purges"]["targets"][0]["failures"].clone();
    await_until("a failure", SOON, || failures().as_u64().is_some_and(|n| n > 1));
    assert_eq!(site.version(3), Some(0), "it cannot be purged");
    // More than fits: all of the collection.
    site.database.execute("UPDATE items SET v = 1");
    await_until("an overflow", SOON, || site.purged_all("overflow") > 0.0);
    site.server.await_log("a purge was not accepted");
    site.link.clear_faults();
    (1..=20).for_each(|id| site.await_version(id, Some(1)));
    assert_eq!(site.purged_all("overflow"), 1.0);
    site.server.await_log("purges are accepted again");
    site.await_quiet();
    (1..=20).for_each(|id| site.await_kept(id, Some(1)));
}

fn a_hidden_change_is_not_purged<F: Front, H: Hides>() {
    let site = Site::<F, H>::start(|config| {
        config.set("collections.items.changes", "true").set("follow.heartbeat", "\"100ms\"")
    });
    site.await_kept(5, Some(0));
    let mut stream = EventStream::open(site.server.data, "/_changes/items", "");
    assert_eq!(stream.next_news().name, "begin");
    let purges = site.purges();
    let sql = format!("{} UPDATE items SET v = 1 WHERE id = 5", H::HIDDEN);
    let commit = || site.database.execute(&sql);
    site.database.while_hidden(commit, || {
        await_until("the change to be delivered", SOON, || {
            site.server.metrics().sum("hotrow_followed_changes_hidden_bytes", &[]) > 0.0
        });
        // Probes go on.
        for _ in 0..10 {
            assert_eq!(stream.next_event().expect("an event").name, "heartbeat");
        }
        assert_eq!(site.purges(), purges, "it is not visible yet");
        assert_eq!(site.version(5), Some(0));
    });
    site.await_version(5, Some(1));
    site.await_kept(5, Some(1));
    site.await_quiet();
    assert_eq!(site.version(5), Some(1));
}

mod varnish {
    use super::*;

    checks! {
        a_change_is_seen_in_front:
            super::a_change_is_seen_in_front::<Varnish, Database>();
        a_change_of_postgresql_is_seen_in_front:
            super::a_change_is_seen_in_front::<Varnish, Postgres>();
        what_was_missed_is_seen_in_front:
            super::what_was_missed_is_seen_in_front::<Varnish, Postgres>();
        a_cache_that_was_down_for_purges_is_purged_later:
            super::a_cache_that_was_down_for_purges_is_purged_later::<Varnish>();
        a_hidden_change_is_not_purged:
            super::a_hidden_change_is_not_purged::<Varnish, Postgres>();
    }
}

mod nginx {
    use super::*;

    checks! {
        a_change_is_seen_in_front:
            super::a_change_is_seen_in_front::<Nginx, Database>();
        what_was_missed_is_seen_in_front:
            super::what_was_missed_is_seen_in_front::<Nginx, Postgres>();
        a_cache_that_was_down_for_purges_is_purged_later:
            super::a_cache_that_was_down_for_purges_is_purged_later::<Nginx>();
    }
}
