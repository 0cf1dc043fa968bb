//! Race B: a server sends a change once it is in the log, before other sessions see it. Forced:
//! commits stay invisible for as long as a test needs.

use std::time::Duration;

use crate::contract::engine::Engine;
use crate::contract::hidden::Hidden;
use crate::contract::networked::Networked;
use crate::contract::reader::ReadProfile;
use crate::contract::scenario::{
    BOUND, KEY, OTHER, Scenario, ScenarioOutcome, assert_clean, first, read, stage,
};
use hotrow_testkit::harness::{SOON, await_until};
use hotrow_verify::observation::{Claim, Outcome};

/// A change is delivered, and its key is read while it is invisible: no old row may stay.
pub(crate) fn fence<E: Networked>(environment: &[(&str, &str)]) -> ScenarioOutcome {
    let mut scenario = Scenario::<E>::start(environment);
    let before = scenario.delivered();
    let hidden = Hidden::begin(&scenario.run, KEY);
    scenario.await_delivery(before);
    // Probes run in the meantime; they must not end the fence while the commit is hidden.
    let mut waiting = Vec::new();
    if E::READS_WAIT_FOR_CHANGES {
        let mut reader = scenario.run.reader(ReadProfile::plain());
        let sent_ns = reader.send(scenario.instance, &[read(KEY)]);
        scenario.run.pass(BOUND * 3);
        hidden.end(&scenario.run);
        reader.receive(scenario.instance, &[read(KEY)], sent_ns);
        waiting.push(reader);
    } else {
        scenario.repeat_for(BOUND * 3, |scenario| {
            assert_eq!(scenario.get(KEY), first(KEY), "the change is not visible yet");
        });
        hidden.end(&scenario.run);
    }
    scenario.end(waiting)
}

/// Test of the reproducer.
pub(crate) fn a_hidden_commit_is_in_the_log_and_invisible<E: Networked>() {
    let mut run = stage::<E>();
    run.start_writers();
    let version = |database: &E| <E as Engine>::rows(database)[&KEY];
    let before = run.database.log_end();
    let hidden = Hidden::begin(&run, KEY);
    assert!(run.database.log_end() > before);
    assert_eq!(version(&run.database), 0);
    if E::HIDES_ONE_SESSION {
        run.change(OTHER);
        assert_eq!(version(&run.database), 0, "other sessions commit without a wait");
    }
    hidden.end(&run);
    assert_eq!(version(&run.database), 1);
}

pub(crate) fn a_row_read_before_its_change_is_visible_is_not_cached<E: Networked>() {
    assert_clean(fence::<E>(&[]));
}

pub(crate) fn a_key_without_a_hidden_change_stays_cached<E: Networked>() {
    let mut scenario = Scenario::<E>::start(&[]);
    let hidden = Hidden::begin(&scenario.run, KEY);
    // Past the bound, so that the entry stays valid by the feed's progress and not by chance.
    scenario.run.pass(BOUND * 3);
    if E::HIDES_ONE_SESSION {
        scenario.change_and_deliver(OTHER);
    }
    let seen = scenario.get(OTHER);
    assert_eq!(seen != first(OTHER), E::HIDES_ONE_SESSION, "{seen:?}");
    await_until("a hit", SOON, || {
        let again = scenario.reader.get(scenario.instance, OTHER);
        again.outcome == Outcome::Hit && again.seen == seen
    });
    hidden.end(&scenario.run);
    await_until("the new row", Duration::from_secs(5), || scenario.get(KEY) == Claim::Version(1));
    assert_clean(scenario.end(Vec::new()));
}
