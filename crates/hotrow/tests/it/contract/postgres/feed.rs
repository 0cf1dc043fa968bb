//! Tests of PostgreSQL alone: positions past a hidden change, a feed that begins after one, and
//! stalled readers.

use std::time::Duration;

use crate::backend::postgres::Postgres;
use crate::contract::board::Instance;
use crate::contract::hidden::Hidden;
use crate::contract::reader::ReadProfile;
use crate::contract::scenario::{BOUND, KEY, OTHER, Scenario, assert_clean, config, first, stage};
use hotrow_testkit::harness::{Client, SOON, Server, await_until};
use hotrow_testkit::proxy::{BOTH, Class};
use hotrow_verify::observation::{Claim, Outcome};

#[test]
fn a_position_past_a_hidden_change_waits_for_the_new_row() {
    let scenario = Scenario::<Postgres>::start(&[]);
    let hidden = Hidden::begin(&scenario.run, KEY);
    let position = scenario.run.database.position();
    let mut client = Client::connect(scenario.instance.data);
    let path = format!("/items/{KEY}");
    let waiting =
        std::thread::spawn(move || client.get_with(&path, &[("Hotrow-Min-Position", &position)]));
    scenario.run.pass(BOUND * 2);
    assert!(!waiting.is_finished(), "the request must wait: no answer and no time-out yet");
    let version = hidden.version;
    hidden.end(&scenario.run);
    let answer = waiting.join().expect("an answer");
    assert_eq!(
        (answer.status, answer.json()["version"].as_u64()),
        (200, Some(version)),
        "{answer:?}"
    );
    assert_clean(scenario.end(Vec::new()));
}

#[test]
fn a_position_past_a_hidden_change_times_out() {
    let mut run = stage::<Postgres>();
    let config = config(&run).set("limits.request_timeout", "\"700ms\"");
    let instance = run.serve(&config, &[]);
    run.start_writers();
    let hidden = Hidden::begin(&run, KEY);
    let position = run.database.position();
    let answer = run
        .server(instance)
        .client()
        .get_with(&format!("/items/{KEY}"), &[("Hotrow-Min-Position", &position)]);
    // 503 if the time ends before the next attempt begins.
    assert!([503, 504].contains(&answer.status), "{answer:?}");
    hidden.end(&run);
    run.finish(None, true);
}

/// A new feed begins after the hidden commit's record, so it never delivers that commit. Until the
/// commit is visible, no read result may be taken for current.
#[test]
fn a_change_hidden_before_the_feed_began_is_not_missed() {
    let mut run = stage::<Postgres>();
    run.start_writers();
    let hidden = Hidden::begin(&run, KEY);
    let server = Server::start_with(&config(&run), &[]);
    let instance = Instance { id: 0, data: server.data, admin: server.admin, redis: None };
    run.servers.push(server);
    run.board.add_instance(instance);
    let mut reader = run.reader(ReadProfile::plain());
    let mut admin = Client::connect(instance.admin);
    let due = run.board.now() + (BOUND * 5).as_nanos() as u64;
    await_until("some time to pass", SOON, || {
        let answer = reader.get(instance, KEY);
        assert!(
            matches!(answer.seen, Claim::Refused(_)) || answer.seen == first(KEY),
            "{answer:?}"
        );
        assert_eq!(admin.get("/readyz").status, 503, "the feed is not current yet");
        run.board.now() > due
    });
    hidden.end(&run);
    run.await_readyz(instance, 200);
    run.finish(Some(reader), true);
}

/// Reads stall for longer than a query may take: requests that need the database get 504; hits
/// continue.
#[test]
fn stalled_readers_do_not_harm_hits() {
    let mut run = stage::<Postgres>();
    // Far more than the delays of a busy machine.
    let config =
        config(&run).set("source.read_timeout", "\"500ms\"").set("cache.max_staleness", "\"3s\"");
    let instance = run.serve(&config, &[]);
    run.start_writers();
    let mut reader = run.reader(ReadProfile::plain());
    assert_eq!(reader.get(instance, KEY).seen, first(KEY));
    run.database.proxy.hold(&[Class::Readers], &BOTH);
    assert_eq!(reader.get(instance, KEY).outcome, Outcome::Hit);
    let refused = reader.get(instance, OTHER).seen.clone();
    assert_eq!(refused, Claim::Refused(504), "the read timed out");
    run.pass(Duration::from_millis(3500));
    // On a busy machine a probe may be late for a moment; without the feed no hit would follow.
    await_until("a hit, because the feed continues", SOON, || {
        reader.get(instance, KEY).outcome == Outcome::Hit
    });
    run.database.proxy.release(&[Class::Readers], &BOTH);
    await_until("reads to work again", SOON, || reader.get(instance, OTHER).seen == first(OTHER));
    run.finish(Some(reader), true);
}
