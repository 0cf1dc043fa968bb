//! Lookup by alias over PostgreSQL: races that can be forced, columns that fold case, and indexes
//! that are refused.

use std::thread;

use super::{Users as _, aliased, by, serve, settled};
use crate::backend::Backend as _;
use crate::backend::postgres::Postgres;
use crate::shop::{assert_contains, await_status, cached, refusal};
use hotrow_testkit::harness::{SOON, Server, await_until};

fn changes(server: &Server) -> u64 {
    server.status()["sources"]["default"]["feed"]["changes"].as_u64().expect("a number")
}

/// Race B: the feed delivers the new value before any read sees it.
#[test]
fn the_absence_of_a_value_that_is_not_visible_yet_is_not_kept() {
    let database = Postgres::open().and_users();
    let server = serve(&database);
    let mut client = server.client();
    assert_eq!(settled(&mut client, &by("hidden")).0, 404);
    let before = changes(&server);
    let update = "UPDATE users SET email = 'hidden' WHERE id = 1";
    let commit = || database.execute(&format!("SET synchronous_commit = on; {update}"));
    database.while_hidden(commit, || {
        await_until("the change in the feed", SOON, || changes(&server) > before);
        for answer in (0..5).map(|_| client.get(&by("hidden"))) {
            assert_eq!(answer.status, 404, "it is not visible");
            assert_ne!(answer.cache(), "hit", "it may become visible at any time");
        }
    });
    await_status(&mut client, &by("hidden"), 200);
    await_status(&mut client, &by("ann@x.org"), 404);
}

/// Race A: the value appears while the read that does not see it is under way.
#[test]
fn the_absence_of_a_value_that_appears_during_the_read_is_not_kept() {
    let database = Postgres::with_users();
    let server = serve(&database);
    // Its statement is prepared now.
    cached(&mut server.client(), &by("ann@x.org"));
    database.hold_reads();
    thread::scope(|scope| {
        let first = scope.spawn(|| server.get(&by("new")).status);
        await_until("the answer", SOON, || database.holds_a_read());
        let before = changes(&server);
        database.execute("UPDATE users SET email = 'new' WHERE id = 1");
        await_until("the change in the feed", SOON, || changes(&server) > before);
        database.clear_faults();
        assert_eq!(first.join().expect("an answer"), 404, "it began before the change");
    });
    await_status(&mut server.client(), &by("new"), 200);
}

#[test]
fn another_spelling_of_a_value_is_found_and_not_kept() {
    let database = Postgres::shared();
    database.execute(
        "CREATE COLLATION folding (provider = icu, locale = 'und-u-ks-level2', \
         deterministic = false); \
         CREATE TABLE users(id integer PRIMARY KEY, email text COLLATE folding UNIQUE); \
         INSERT INTO users VALUES (1, 'Ann@x')",
    );
    let config = database.service().set("collections.users.by.email.columns", "\"email\"");
    let server = Server::start(&config);
    let mut client = server.client();
    assert_eq!(settled(&mut client, &by("Ann@x")), (200, r#"{"id":1,"email":"Ann@x"}"#.into()));
    for _ in 0..3 {
        let answer = client.get(&by("aNN@X"));
        assert_eq!((answer.status, answer.cache()), (200, "miss"), "{answer:?}");
        assert_eq!(answer.text(), r#"{"id":1,"email":"Ann@x"}"#);
        let answer = client.get(&by("bob@x"));
        assert_eq!((answer.status, answer.cache()), (404, "miss"), "{answer:?}");
    }
    database.execute("INSERT INTO users VALUES (2, 'BOB@x')");
    assert_eq!(client.get(&by("bob@x")).status, 200, "it is read each time");
    database.execute("UPDATE users SET email = 'ANN@x' WHERE id = 1");
    await_until("the new spelling", SOON, || {
        client.get(&by("Ann@x")).text() == r#"{"id":1,"email":"ANN@x"}"#
    });
}

#[test]
fn indexes_that_prove_nothing_are_refused_by_name() {
    let database = Postgres::shared();
    database.execute(
        "CREATE TABLE users(id integer PRIMARY KEY, email text, phone text, code text, a int, \
         b int, made text GENERATED ALWAYS AS ('x' || id) STORED, UNIQUE (a, b)); \
         CREATE UNIQUE INDEX partly ON users(email) WHERE email <> ''; \
         CREATE UNIQUE INDEX lowered ON users(lower(phone)); \
         ALTER TABLE users ADD CONSTRAINT late UNIQUE (code) DEFERRABLE; \
         CREATE UNIQUE INDEX made_up ON users(made)",
    );
    let mut config = database.service();
    for column in ["email", "phone", "code", "made"] {
        let key = format!("collections.users.by.{column}.columns");
        config = config.set(&key, &format!("\"{column}\""));
    }
    let config = config.set("collections.users.by.both.columns", r#"["a", "b"]"#);
    assert_contains(
        &refusal(&config),
        &[
            "alias `users/by/email`: (email) is not unique in `users`",
            "`partly` is partial",
            "alias `users/by/phone`: (phone) is not unique",
            "`lowered` is on an expression",
            "alias `users/by/code`: (code) is not unique",
            "`late` is deferrable",
            "column `made` is generated",
            "alias `users/by/both`: its column `a` may be null",
        ],
    );
}

#[test]
fn a_table_with_the_default_replica_identity_is_enough() {
    let database = Postgres::with_users();
    let server = Server::start(&aliased(database.service()));
    let mut client = server.client();
    assert_eq!(settled(&mut client, &by("two")).0, 404);
    // One transaction that gives a value away and takes it.
    database.execute(
        "BEGIN; UPDATE users SET email = 'x' WHERE id = 1; \
         UPDATE users SET email = 'ann@x.org', note = 'new' WHERE id = 2; \
         UPDATE users SET email = 'two' WHERE id = 1; COMMIT",
    );
    await_until("the exchange", SOON, || client.get(&by("two")).text().contains("\"id\":1"));
    await_until("the other one", SOON, || client.get(&by("ann@x.org")).text().contains("\"id\":2"));
    let flushes = server.metrics().sum_or_zero("hotrow_feed_flushes_total", &[]);
    assert_eq!(flushes, 0.0, "values of old rows are not asked for");
}
