//! Torn reads, each forced: a transaction commits between two takes, or is in the log before it is
//! visible.

use std::thread;

use super::{BODY, PARTS, await_memory, change, number_of, serve, snapshots, ways, with_parts};
use crate::alias::Users;
use crate::follow::Hides;
use hotrow_testkit::harness::{SOON, Server, await_until};

/// The records of memory are taken, the last one is read, and between them all change.
#[cfg(feature = "failpoints")]
pub(super) fn a_change_between_two_takes_is_not_torn<U: Users>() {
    use hotrow_testkit::harness::Gate;

    let database = with_parts(U::shared());
    for is_snapshot in [false, true] {
        let gate = Gate::new("parts/5");
        let server = Server::start(&snapshots(database.service()).gate(&gate));
        let warm = "/parts?ids=1,2,3,4&snapshot=true";
        await_memory(&server, || server.get(warm));
        let before = number_of(&server.get(warm));
        let path = PARTS.trim_end_matches("&snapshot=true");
        let path = if is_snapshot { PARTS } else { path };
        thread::scope(|scope| {
            let waiting = scope.spawn(|| server.get(path));
            await_until("the read", SOON, || {
                server.metrics().sum("hotrow_requests_waiting", &[]) > 0.0
            });
            database.execute(&change(before + 1));
            gate.open();
            let answer = waiting.join().expect("an answer");
            match is_snapshot {
                true => assert_eq!(number_of(&answer), before + 1),
                false => {
                    let items = &answer.json()["items"];
                    assert_ne!(items["1"]["n"], items["5"]["n"], "a plain batch is torn");
                }
            }
        });
    }
}

/// The feed delivers a transaction before any read sees it. Records that it changed are in no
/// snapshot until it is visible; others are.
pub(super) fn a_hidden_commit_is_in_a_snapshot_whole_or_delays_it<H: Hides>() {
    let database = with_parts(H::open());
    let server = serve(&database);
    let mut client = server.client();
    assert_eq!(number_of(&await_memory(&server, || server.get(PARTS))), 0);
    assert_eq!(number_of(&client.post("/_snapshot", BODY)), 0);
    database.execute("INSERT INTO parts VALUES (50, 0)");
    let sql = format!("{} {}", H::HIDDEN, change(1));
    thread::scope(|scope| {
        let mut waiting = None;
        database.while_hidden(
            || database.execute(&sql),
            || {
                let changes = || {
                    let feed = &server.status()["sources"]["default"]["feed"];
                    feed["changes"].as_f64().expect("a number")
                };
                await_until("the change in the feed", SOON, || changes() >= 9.0);
                let other = client.get("/parts?ids=50&snapshot=true");
                assert_eq!(other.status, 200, "another record: {other:?}");
                // The first is of memory, the second was read again after the change.
                let late = [("Hotrow-Deadline-Ms", "300")];
                let refused = client.get_with(PARTS, &late);
                assert_eq!(refused.status, 504, "{refused:?}");
                waiting = Some(scope.spawn(|| server.client().post("/_snapshot", BODY)));
                await_until("a transaction", SOON, || {
                    server.metrics().sum("hotrow_requests_waiting", &[]) > 0.0
                });
            },
        );
        let answer = waiting.expect("a request").join().expect("an answer");
        assert_eq!(number_of(&answer), 1);
    });
    assert!(ways(&server, "transaction") > 0.0, "memory could not answer");
}
