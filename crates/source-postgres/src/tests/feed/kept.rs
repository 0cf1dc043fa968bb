//! A slot that outlives its sessions: what is not confirmed is delivered again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use hotrow_supervisor::Supervisor;
use parking_lot::Mutex;

use super::*;
use crate::config::{Config, KeptSlot};
use crate::tests::harness::refusal;
use crate::{Hooks, Postgres, PostgresSource, open};
use hotrow_source::feed_loop;
use hotrow_source::place::Place;
use hotrow_source::testkit::{DEADLINE, Running};
use hotrow_types::version::Position;

/// Keeper of a place that confirms what the test says.
struct Keeper {
    resumed: Mutex<Vec<(u64, u64)>>,
    watching: Mutex<Vec<Option<u64>>>,
    is_settled: AtomicBool,
    confirmable: AtomicU64,
    is_entitled: AtomicBool,
    waits_for: Mutex<Option<String>>,
}

impl Place for Keeper {
    fn resumed(&self, position: Position, watched: u64) {
        self.confirmable.fetch_max(position.at, Ordering::SeqCst);
        self.resumed.lock().push((position.at, watched));
    }

    fn settled(&self) {
        self.is_settled.store(true, Ordering::SeqCst);
    }

    fn watching(&self, watched: Option<u64>) {
        self.watching.lock().push(watched);
    }

    fn confirmable(&self) -> u64 {
        self.confirmable.load(Ordering::SeqCst)
    }

    fn is_entitled(&self) -> bool {
        self.is_entitled.load(Ordering::SeqCst)
    }

    fn waits_for(&self, what: Option<&str>) {
        *self.waits_for.lock() = what.map(str::to_owned);
    }
}

/// A feed with a kept slot.
struct Kept {
    feed: Running<PostgresSource>,
    keeper: Arc<Keeper>,
}

#[track_caller]
fn until(what: &str, holds: impl Fn() -> bool) {
    let end = Instant::now() + DEADLINE;
    while !holds() {
        assert!(Instant::now() < end, "never: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn kept_config(url: String) -> Config {
    let slot = Some(KeptSlot { name: "kept".to_owned(), has_failover: false });
    Config { slot, ..config(url, &["a(id)"]) }
}

impl Kept {
    fn launch(url: String) -> Self {
        let keeper = Arc::new(Keeper {
            resumed: Mutex::default(),
            watching: Mutex::default(),
            is_settled: AtomicBool::new(false),
            confirmable: AtomicU64::new(0),
            is_entitled: AtomicBool::new(true),
            waits_for: Mutex::default(),
        });
        let Postgres { source, feed } =
            open(kept_config(url), Hooks::default(), &Supervisor::default())
                .unwrap_or_else(|e| panic!("{e}"));
        let place = Arc::clone(&keeper);
        let feed = Running::start(source, move |sink, shutdown| {
            feed_loop::run(shutdown, feed.follow(&*sink, Some(&*place)))
        });
        Self { feed, keeper }
    }

    fn start(server: &Server) -> Self {
        let kept = Self::launch(server.url());
        kept.feed.settle();
        until("settled", || kept.keeper.is_settled.load(Ordering::SeqCst));
        kept
    }

    /// Returns the position of the newest start.
    fn resumed_at(&self) -> u64 {
        self.keeper.resumed.lock().last().expect("it has started").0
    }

    /// Returns the ids that were delivered, and asserts that nothing was lost.
    fn ids(&self) -> Vec<i64> {
        self.feed.settle();
        let id = |event| match event {
            Event::Change(change) => {
                (1..100).find(|id| self.feed.int(0, *id) == change.key).expect("one of them")
            }
            other => panic!("{other:?}"),
        };
        self.feed.sink.since(0).into_iter().map(id).collect()
    }
}

fn confirmed(server: &Server) -> u64 {
    let sql = "SELECT confirmed_flush_lsn - '0/0' FROM pg_replication_slots";
    server.query(sql).parse().expect("a position")
}

fn insert(server: &Server, id: i64) {
    server.batch(&format!("INSERT INTO a VALUES ({id})"));
}

fn server() -> Server {
    let server = Server::start(&[]);
    server.batch("CREATE TABLE a (id int PRIMARY KEY)");
    server
}

#[test]
fn what_is_not_confirmed_is_delivered_again() {
    let server = server();
    let first = Kept::start(&server);
    let at = first.resumed_at();
    insert(&server, 1);
    assert_eq!(first.ids(), [1]);
    drop(first);
    insert(&server, 2);
    let second = Kept::start(&server);
    assert_eq!((second.resumed_at(), second.ids()), (at, vec![1, 2]));
    // The rest of this session is confirmed once it is stored elsewhere.
    assert_eq!(confirmed(&server), at);
    second.keeper.confirmable.store(u64::MAX, Ordering::SeqCst);
    until("the confirmation", || confirmed(&server) > at);
    insert(&server, 3);
    second.feed.settle();
    let end = second.feed.settle().at;
    until("the confirmation", || confirmed(&server) >= end);
    drop(second);
    insert(&server, 4);
    let third = Kept::start(&server);
    assert!(third.resumed_at() >= end);
    assert_eq!(third.ids(), [4]);
    assert_eq!(server.query("SELECT count(*) FROM pg_replication_slots"), "1");
}

#[test]
fn the_end_of_a_session_is_no_loss() {
    let server = server();
    let kept = Kept::start(&server);
    let ended = "SELECT count(pg_terminate_backend(active_pid)) FROM pg_replication_slots";
    for id in 1..4 {
        insert(&server, id);
        server.batch(ended);
    }
    until("all changes", || (1..4).all(|id| kept.ids().contains(&id)));
    assert!(kept.keeper.resumed.lock().len() > 1, "it began again");
}

#[test]
fn a_slot_in_use_is_taken_by_the_entitled_process() {
    let server = server();
    let first = Kept::start(&server);
    first.keeper.is_entitled.store(false, Ordering::SeqCst);
    let second = Kept::start(&server);
    until("the first to wait", || {
        let waits_for = first.keeper.waits_for.lock().clone();
        waits_for.is_some_and(|what| what.contains("`kept`"))
    });
    insert(&server, 1);
    assert_eq!(second.ids(), [1]);
    drop(second);
    until("the first to go on", || first.keeper.waits_for.lock().is_none());
    assert_eq!(first.ids(), [1]);
}

#[test]
fn another_role_waits_until_it_may_end_the_session() {
    let server = server();
    server.batch(
        "CREATE ROLE one LOGIN REPLICATION; CREATE ROLE two LOGIN REPLICATION; \
         GRANT SELECT ON a TO one, two; \
         CREATE PUBLICATION hotrow FOR TABLE a WITH (publish_via_partition_root = true)",
    );
    let first = Kept::launch(server.url_for("one", "postgres"));
    first.feed.settle();
    first.keeper.is_entitled.store(false, Ordering::SeqCst);
    let second = Kept::launch(server.url_for("two", "postgres"));
    until("the second to wait", || {
        let waits_for = second.keeper.waits_for.lock().clone();
        waits_for.is_some_and(|what| what.contains("may not end") && what.contains("42501"))
    });
    assert!(second.keeper.resumed.lock().is_empty());
    // With one grant more a third one need not wait.
    server.batch("CREATE ROLE three LOGIN REPLICATION IN ROLE pg_signal_backend");
    server.batch("GRANT SELECT ON a TO three");
    second.keeper.is_entitled.store(false, Ordering::SeqCst);
    let third = Kept::launch(server.url_for("three", "postgres"));
    third.feed.settle();
    insert(&server, 1);
    assert_eq!(third.ids(), [1]);
}

#[test]
fn a_slot_that_is_gone_or_invalidated_is_created_anew() {
    let server = Server::start(&[
        ("max_slot_wal_keep_size", "1MB"),
        ("min_wal_size", "32MB"),
        ("max_wal_size", "64MB"),
    ]);
    server.batch("CREATE TABLE a (id int PRIMARY KEY)");
    let first = Kept::start(&server);
    let at = first.resumed_at();
    drop(first);
    until("the session to end", || {
        server.query("SELECT count(active_pid) FROM pg_replication_slots") == "0"
    });
    insert(&server, 1);
    server.batch("SELECT pg_drop_replication_slot('kept')");
    let second = Kept::start(&server);
    assert!(second.resumed_at() > at, "the change between the two is not delivered");
    assert_eq!(second.ids(), [0_i64; 0]);
    let at = second.resumed_at();
    drop(second);
    until("the slot to be lost", || {
        server.batch("SELECT pg_switch_wal(); INSERT INTO a SELECT max(id) + 1 FROM a; CHECKPOINT");
        server.query("SELECT wal_status FROM pg_replication_slots") == "lost"
    });
    let third = Kept::start(&server);
    assert!(third.resumed_at() > at);
    assert_eq!(server.query("SELECT wal_status FROM pg_replication_slots"), "reserved");
}

#[test]
fn a_slot_of_something_else_is_refused() {
    let server = server();
    server.batch("SELECT pg_create_physical_replication_slot('kept')");
    let message = refusal(kept_config(server.url()));
    assert!(message.contains("`kept`") && message.contains("hub.slot"), "{message}");
    server.batch("SELECT pg_drop_replication_slot('kept')");
    let mut config = kept_config(server.url());
    config.slot.iter_mut().for_each(|slot| slot.has_failover = true);
    let message = refusal(config);
    assert!(message.contains("PostgreSQL 17 or later"), "{message}");
}

#[test]
fn a_change_of_the_publication_is_a_loss_and_another_digest() {
    let server = server();
    let kept = Kept::start(&server);
    let watched = |kept: &Kept| kept.keeper.resumed.lock().last().expect("a start").1;
    let before = watched(&kept);
    let from = kept.feed.sink.len();
    // Another process would see the same.
    drop(kept);
    let kept = Kept::start(&server);
    assert_eq!(watched(&kept), before);
    server.batch("ALTER PUBLICATION hotrow DROP TABLE a; ALTER PUBLICATION hotrow ADD TABLE a");
    until("a gap", || kept.keeper.watching.lock().contains(&None));
    until("its end", || kept.keeper.watching.lock().last().is_some_and(Option::is_some));
    let after = kept.keeper.watching.lock().last().copied().flatten();
    assert!(after.is_some_and(|after| after != before), "{before} {after:?}");
    server.batch("DROP PUBLICATION hotrow");
    kept.feed.sink.loses(from.min(kept.feed.sink.len()), LossCause::NotWatched);
    server.batch("CREATE PUBLICATION hotrow FOR TABLE a");
    until("another digest", || watched(&kept) != before && Some(watched(&kept)) != after);
}
