//! Followers of changes (docs/changes.md) of the real program, over each engine with SQL, while its
//! database changes.
//!
//! Reading order: this (tables, Race B, losses), then [`checked`] (a writer and a follower that
//! checks every commit) and [`copies`] (clients of the Redis protocol that keep what they read).

mod checked;
mod copies;

use crate::alias::Users;
use crate::backend::Backend;
use crate::backend::maria::Maria;
use crate::backend::postgres::Postgres;
use hotrow_testkit::harness::{Config, Database, EventStream, SOON, Server, await_until};

/// Records of the table.
const ITEMS: u32 = 20;
const ALL: &str = "/_changes/items";

/// Creates the table `items(id, v)` with [`ITEMS`] rows of version 0.
pub(crate) fn with_items<U: Users>() -> U {
    let database = U::open();
    database.execute("CREATE TABLE items(id integer PRIMARY KEY, v integer NOT NULL)");
    let rows: Vec<String> = (1..=ITEMS).map(|id| format!("({id}, 0)")).collect();
    database.execute(&format!("INSERT INTO items VALUES {}", rows.join(", ")));
    database
}

fn followed(config: Config) -> Config {
    config.with(&[
        ("collections.items.changes", "true"),
        ("collections.items.allow_min_position", "true"),
        ("follow.heartbeat", "\"100ms\""),
    ])
}

/// Returns the version of a record, read with this position as the least one.
fn version_at(server: &Server, key: &str, position: &str) -> u64 {
    let headers = [("Hotrow-Min-Position", position)];
    let answer = server.client().get_with(&format!("/items/{key}"), &headers);
    assert_eq!(answer.status, 200, "{answer:?}");
    let record: serde_json::Value = serde_json::from_str(&answer.text()).expect("JSON");
    record["v"].as_u64().expect("a version")
}

/// Begins to follow once the feed has begun.
fn follow(server: &Server) -> EventStream {
    let mut stream = EventStream::open(server.data, ALL, "");
    let begin = stream.next_news();
    assert_eq!(begin.name, "begin", "{begin:?}");
    stream
}

pub(crate) fn a_commit_is_one_group_of_events<U: Users>() {
    let database = with_items::<U>();
    let server = Server::start(&followed(database.service()));
    let mut all = follow(&server);
    let mut one = EventStream::open(server.data, "/_changes/items?ids=3,99", "");
    one.next_news();
    database.execute("UPDATE items SET v = 1 WHERE id IN (2, 3, 4)");
    database.execute("DELETE FROM items WHERE id = 4");
    database.execute("INSERT INTO items VALUES (99, 1)");
    let mut seen: Vec<String> = Vec::new();
    let mut last_id = None;
    while seen.last().is_none_or(|key| key != "99") {
        let event = all.next_news();
        seen.push(event.change().0.to_owned());
        last_id = event.id.or(last_id);
    }
    let first: &mut [String] = &mut seen[..3];
    first.sort();
    assert_eq!(first, ["2", "3", "4"]);
    assert_eq!(seen[3..], ["4", "99"]);
    assert_eq!([one.next_news().change().0, one.next_news().change().0], ["3", "99"]);
    // What the last id covers is not sent again.
    let id = last_id.expect("the last event of a commit has an id");
    let mut again = EventStream::open(server.data, ALL, &format!("Last-Event-ID: {id}\r\n"));
    database.execute("UPDATE items SET v = 2 WHERE id = 7");
    assert_eq!(again.next_news().change().0, "7");
}

/// An engine whose commits can be hidden.
pub(crate) trait Hides: Users + Backend {
    /// Begin of a statement that is hidden.
    const HIDDEN: &str;
}

impl Hides for Postgres {
    const HIDDEN: &str = "SET synchronous_commit = on;";
}

impl Hides for Maria {
    const HIDDEN: &str = "";
}

fn a_change_is_not_pushed_before_it_is_visible<H: Hides>() {
    let database = with_items::<H>();
    let server = Server::start(&followed(database.service()));
    let mut stream = follow(&server);
    let sql = format!("{} UPDATE items SET v = 1 WHERE id = 5", H::HIDDEN);
    database.while_hidden(
        || database.execute(&sql),
        || {
            await_until("the change to be delivered", SOON, || {
                server.metrics().sum("hotrow_followed_changes_hidden_bytes", &[]) > 0.0
            });
            // Probes and heartbeats go on.
            for _ in 0..10 {
                let event = stream.next_event().expect("an event");
                assert_eq!(event.name, "heartbeat", "it is not visible yet: {event:?}");
            }
            let read = server.get("/items/5").text();
            assert!(read.contains("\"v\":0"), "readers do not see it: {read}");
        },
    );
    let event = stream.next_news();
    assert_eq!(event.change().0, "5");
    let position = event.data["position"].as_str().expect("a position");
    assert_eq!(version_at(&server, "5", position), 1);
}

fn followers_are_reset_when_the_feed_is_cut<H: Hides>() {
    let database = with_items::<H>();
    let server = Server::start(&followed(database.service()));
    let mut stream = follow(&server);
    database.cut();
    let lost = stream.next_news();
    assert_eq!((lost.name.as_str(), lost.at()), ("reset", None));
    let begun = loop {
        let event = stream.next_news();
        assert_eq!(event.name, "reset");
        if event.at().is_some() {
            break event;
        }
    };
    assert!(begun.id.is_some());
    database.execute("UPDATE items SET v = 1 WHERE id = 6");
    let event = stream.next_news();
    assert_eq!(event.change().0, "6");
    assert!(event.at() > begun.at());
}

mod sqlite {
    use super::*;

    tests! {
        Database:
        super::a_commit_is_one_group_of_events,
        checked::every_commit_is_seen_in_order_and_can_be_read,
    }
}

mod postgres {
    use super::*;

    tests! {
        Postgres:
        super::a_commit_is_one_group_of_events,
        super::a_change_is_not_pushed_before_it_is_visible,
        super::followers_are_reset_when_the_feed_is_cut,
        copies::no_copy_lacks_a_change_that_was_hidden,
        copies::copies_end_when_the_feed_is_cut,
        checked::every_commit_is_seen_in_order_and_can_be_read,
    }
}

mod mariadb {
    use super::*;

    tests! {
        Maria:
        super::a_commit_is_one_group_of_events,
        super::a_change_is_not_pushed_before_it_is_visible,
        super::followers_are_reset_when_the_feed_is_cut,
        copies::no_copy_lacks_a_change_that_was_hidden,
        copies::copies_end_when_the_feed_is_cut,
        checked::every_commit_is_seen_in_order_and_can_be_read,
    }
}
