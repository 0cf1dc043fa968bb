//! Races between a change of a child and a read of its parent, forced over the engines whose log
//! has a commit before it is visible.

use std::thread;

use super::{LogsOldRows, logging_old_rows, product, serve, with_logged_prices, with_prices_in};
use crate::alias::Users;
use crate::backend::Backend;
use crate::backend::maria::Maria;
use crate::backend::postgres::Postgres;
use crate::shop::{await_body, cached};
use hotrow_testkit::harness::{SOON, Server, await_until};

/// Returns the number of changed records and of flushes that the feed has delivered.
fn delivered(server: &Server) -> f64 {
    let changes = server.status()["sources"]["default"]["feed"]["changes"].as_f64();
    changes.expect("a number") + flushes(server)
}

/// Returns the number of changes of every parent.
pub(super) fn flushes(server: &Server) -> f64 {
    server.metrics().sum_or_zero("hotrow_feed_flushes_total", &[])
}

const UPDATE: &str = "UPDATE prices SET amount = 7 WHERE id = 21";

/// Race B: the feed delivers a child's change before any read sees it. `session` begins the
/// writer's.
fn hidden_change<U: Users + Backend + Sync>(database: &U, session: &str) {
    hidden_change_behind(&serve(database), database, session);
}

/// The same over this server.
pub(super) fn hidden_change_behind<U>(server: &Server, database: &U, session: &str)
where
    U: Users + Backend + Sync,
{
    let mut client = server.client();
    cached(&mut client, "/products/2");
    let before = delivered(server);
    let commit = || database.execute(&format!("{session}; {UPDATE}"));
    database.while_hidden(commit, || {
        await_until("the change in the feed", SOON, || delivered(server) > before);
        for answer in (0..5).map(|_| client.get("/products/2")) {
            assert_eq!(answer.text(), product(2, &[("eu", 200)]), "it is not visible");
            assert_ne!(answer.cache(), "hit", "it may become visible at any time");
        }
    });
    await_body(&mut client, "/products/2", &product(2, &[("eu", 7)]));
}

/// Race A: a child appears while the read that does not see it is under way.
fn late_answer<U: Users + LogsOldRows + Backend + Sync>() {
    let database = with_logged_prices::<U>();
    let server = serve(&database);
    // The statement is prepared now.
    cached(&mut server.client(), "/products/1");
    database.hold_reads();
    thread::scope(|scope| {
        let first = scope.spawn(|| server.get("/products/3").text());
        await_until("the answer", SOON, || database.holds_a_read());
        let before = delivered(&server);
        database.execute("INSERT INTO prices VALUES (32, 3, 'eu', 9)");
        await_until("the change in the feed", SOON, || delivered(&server) > before);
        database.clear_faults();
        assert_eq!(first.join().expect("an answer"), product(3, &[]), "it began before");
    });
    await_body(&mut server.client(), "/products/3", &product(3, &[("eu", 9)]));
}

const LOGGED: &str = "SET synchronous_commit = on";
const MINIMAL: &str = "SET SESSION binlog_row_image = MINIMAL";

checks! {
    a_change_over_postgresql_that_is_not_visible_yet_is_not_kept:
        hidden_change(&logging_old_rows(with_prices_in(Postgres::open())), LOGGED);
    a_change_of_all_parents_over_postgresql_that_is_not_visible_yet_has_its_mark:
        hidden_change(&with_prices_in(Postgres::open()), LOGGED);
    a_change_over_mariadb_that_is_not_visible_yet_is_not_kept:
        hidden_change(&with_prices_in(Maria::open()), "SET SESSION binlog_row_image = FULL");
    a_change_of_all_parents_over_mariadb_that_is_not_visible_yet_has_its_mark:
        hidden_change(&with_prices_in(Maria::open()), MINIMAL);
    an_answer_of_postgresql_that_lacks_a_child_which_appears_during_it_is_not_kept:
        late_answer::<Postgres>();
    an_answer_of_mariadb_that_lacks_a_child_which_appears_during_it_is_not_kept:
        late_answer::<Maria>();
}
