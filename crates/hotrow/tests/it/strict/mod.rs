//! Strict reads (contract, point 6): `Hotrow-Min-Position: now`, over each engine.

mod tokens;

use std::time::Duration;

use crate::alias::{self, Users, by};
use crate::backend::Backend;
use crate::backend::maria::Maria;
use crate::backend::postgres::Postgres;
use crate::follow::Hides;
use crate::shop::cached;
use hotrow_testkit::harness::{Answer, Client, Config, Database, SOON, Server, await_until};

const NOW: [(&str, &str); 1] = [("Hotrow-Min-Position", "now")];

fn strictly(client: &mut Client, path: &str) -> Answer {
    client.get_with(path, &NOW)
}

fn serve(config: Config) -> Server {
    Server::start(&alias::aliased(config).set("limits.position_wait", "\"20s\""))
}

/// Each request is sent when the writer's statement has returned, and each kind of request on
/// another instance than the one before.
pub(crate) fn an_answer_reflects_each_commit_that_has_returned<U: Users>() {
    let database = U::with_users();
    let servers = [serve(database.service()), serve(database.service())];
    let mut clients = servers.each_ref().map(Server::client);
    for client in &mut clients {
        for path in ["/users/1", &by("ann@x.org")] {
            cached(client, path);
        }
    }
    let queries = || servers.iter().map(Server::queries).sum::<u64>();
    let before = queries();
    let mut hits = 0;
    for round in 0..200 {
        database.execute(&format!("UPDATE users SET note = 'n{round}' WHERE id = 1"));
        let note = format!("n{round}");
        let turn = |n: usize| (round + n) % 2;
        let record = strictly(&mut clients[turn(0)], "/users/1");
        assert_eq!(record.json()["note"], *note, "{record:?}");
        let named = strictly(&mut clients[turn(1)], &by("ann@x.org"));
        assert_eq!(named.json()["note"], *note, "{named:?}");
        let batch = strictly(&mut clients[turn(1)], "/users?ids=1,2");
        assert_eq!(batch.json()["items"]["1"]["note"], *note, "{batch:?}");
        let whole = strictly(&mut clients[turn(0)], "/users?ids=1,2&snapshot=true");
        assert_eq!(whole.json()["items"]["1"]["note"], *note, "{whole:?}");
        let again = strictly(&mut clients[turn(1)], "/users/1");
        assert_eq!(again.json()["note"], *note, "{again:?}");
        hits += usize::from(again.cache() == "hit");
    }
    assert!(hits > 180, "after a read memory answers, {hits} times of 200");
    let reads = queries() - before;
    // The row by each instance, and the value by one.
    assert!(reads <= 3 * 200 + 100, "{reads} reads of 200 changes");
    database.execute("UPDATE users SET email = 'new' WHERE id = 1");
    assert_eq!(strictly(&mut clients[0], &by("ann@x.org")).status, 404);
    assert_eq!(strictly(&mut clients[1], &by("new")).status, 200);
    database.execute("DELETE FROM users WHERE id = 1");
    assert_eq!(strictly(&mut clients[1], "/users/1").status, 404);
    assert_eq!(strictly(&mut clients[0], &by("new")).status, 404);
}

pub(crate) fn it_is_refused_where_it_is_switched_off<U: Users>() {
    let database = U::with_users();
    let server = serve(database.service().set("collections.users.strict", "false"));
    let mut client = server.client();
    for path in ["/users/1", "/users?ids=1", &by("ann@x.org")] {
        let (_, detail) = strictly(&mut client, path).problem(400);
        assert!(detail.contains("strict = false"), "{detail}");
    }
}

/// A commit whose writer waits is in the log and not visible: a strict answer need not reflect it,
/// and waits for nothing.
pub(crate) fn a_commit_that_has_not_returned_is_not_waited_for<H: Hides>() {
    let database = H::open().and_users();
    let server = serve(database.service());
    let mut client = server.client();
    cached(&mut client, "/users/1");
    let changes = || server.metrics().sum("hotrow_invalidations_total", &[]);
    let before = changes();
    let sql = format!("{} UPDATE users SET note = 'hidden' WHERE id = 1", H::HIDDEN);
    let commit = || database.execute(&sql);
    database.while_hidden(commit, || {
        await_until("the change to be delivered", SOON, || changes() > before);
        for _ in 0..3 {
            let answer = strictly(&mut client, "/users/1");
            assert_eq!((answer.status, answer.json()["note"].as_str()), (200, None), "{answer:?}");
        }
    });
    assert_eq!(strictly(&mut client, "/users/1").json()["note"], "hidden");
}

/// A feed that passes no look leaves the database, which is read.
pub(crate) fn a_feed_that_is_held_costs_a_read<B: Backend + Users>() {
    let database = B::open().and_users();
    let server = Server::start(
        &alias::aliased(database.service())
            .set("limits.position_wait", "\"50ms\"")
            .set("cache.max_staleness", "\"1m\""),
    );
    let mut client = server.client();
    cached(&mut client, "/users/1");
    database.hold_feed();
    database.execute("UPDATE users SET note = 'held' WHERE id = 1");
    assert_eq!(strictly(&mut client, "/users/1").json()["note"], "held");
    database.clear_faults();
}

/// Without a feed, and where every write makes all stale, a read is sent after the request arrived.
#[test]
fn without_looks_the_database_is_read() {
    let database = Database::with_users();
    let service = || Config::over(&format!("sqlite:{}", database.path().display()));
    for config in [
        service().set("source.feed", "\"none\"").set("cache.ttl", "\"1h\""),
        service().set("source.watch", "\"none\""),
    ] {
        let server = Server::start(&config.set("collections.users.table", "\"users\""));
        let mut client = server.client();
        client.get("/users/1");
        for round in 0..20 {
            database.execute(&format!("UPDATE users SET note = 'n{round}' WHERE id = 1"));
            assert_eq!(strictly(&mut client, "/users/1").json()["note"], *format!("n{round}"));
        }
    }
}

#[test]
fn each_of_several_databases_is_looked_at() {
    let databases = [Database::with_users(), Database::with_users()];
    let config = databases[0].service().with(&[
        ("collections.users.table", "\"users\""),
        ("sources.other.url", &format!("\"sqlite:{}\"", databases[1].path().display())),
        ("sources.other.watch", "\"triggers\""),
        ("collections.others.table", "\"users\""),
        ("collections.others.source", "\"other\""),
    ]);
    let server = Server::start(&config);
    let mut client = server.client();
    for (database, path) in databases.iter().zip(["/users/1", "/others/1"]) {
        cached(&mut client, path);
        for round in 0..20 {
            database.execute(&format!("UPDATE users SET note = 'n{round}' WHERE id = 1"));
            assert_eq!(strictly(&mut client, path).json()["note"], *format!("n{round}"));
        }
        await_until("memory", SOON, || strictly(&mut client, path).cache() == "hit");
    }
}

/// Commits that return before they are on disk are visible, and the stream does not have them yet.
#[test]
fn asynchronous_commits_are_flushed_for_a_request_that_waits() {
    let database = Postgres::start().and_users();
    database.server.batch("ALTER SYSTEM SET wal_writer_delay = '10s'; SELECT pg_reload_conf()");
    let server = serve(database.service());
    let mut client = server.client();
    cached(&mut client, "/users/1");
    for round in 0..20 {
        database.server.batch(&format!(
            "SET synchronous_commit = off; UPDATE users SET note = 'n{round}' WHERE id = 1"
        ));
        let answer = strictly(&mut client, "/users/1");
        assert_eq!(answer.json()["note"], *format!("n{round}"), "{answer:?}");
    }
    let waits = server.metrics().sum("hotrow_strict_wait_seconds_count", &[]);
    let waited_s = server.metrics().sum("hotrow_strict_wait_seconds_sum", &[]);
    assert!(waits == 20.0 && waited_s < 20.0 * Duration::from_secs(1).as_secs_f64(), "{waited_s}");
}

macro_rules! strict_tests {
    ($engine:ident, $users:ty) => {
        mod $engine {
            use crate::strict::{self, *};

            tests! {
                $users:
                strict::an_answer_reflects_each_commit_that_has_returned,
                strict::it_is_refused_where_it_is_switched_off,
            }
        }
    };
    ($engine:ident, $users:ty, networked) => {
        mod $engine {
            use crate::strict::{self, *};

            tests! {
                $users:
                strict::an_answer_reflects_each_commit_that_has_returned,
                strict::it_is_refused_where_it_is_switched_off,
                strict::a_commit_that_has_not_returned_is_not_waited_for,
                strict::a_feed_that_is_held_costs_a_read,
            }
        }
    };
}

strict_tests!(over_sqlite, Database);
strict_tests!(over_postgresql, Postgres, networked);
strict_tests!(over_mariadb, Maria, networked);
