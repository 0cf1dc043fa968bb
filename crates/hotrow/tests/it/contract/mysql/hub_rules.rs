//! Rules of the change hub over MariaDB, and those by which a relay finds its place in the binary
//! log by what the stream says (`resume_rules` of the engine).

use crate::backend::maria::Maria;
use crate::contract::hub::Hubbed;
use crate::contract::hub_rules::{
    self as rules, TakeOver, assert_continued, assert_loss, start_everywhere,
};
use crate::contract::run::Trial;
use crate::contract::scenario::{KEY, OTHER, assert_clean, stage};
use hotrow_testkit::harness::{SOON, await_until};

type Run = Trial<Hubbed<Maria>>;

/// A commit of the same length each time that the log is begun anew.
const COMMIT: &str = "INSERT INTO places VALUES (1)";

/// A change between two relays.
fn missed(failpoints: &str) -> TakeOver {
    let mut scenario = start_everywhere::<Maria>(stage(), failpoints);
    scenario.change_and_deliver(OTHER);
    // The last of them names this commit.
    scenario.run.database.await_messages(0, 3);
    rules::between(scenario, |run| {
        await_end_of_streams(run);
        run.change(KEY);
    })
}

fn await_end_of_streams(run: &Run) {
    let list = "SELECT id FROM information_schema.PROCESSLIST WHERE command = 'Binlog Dump'";
    let maria = &run.database.primary;
    await_until("the streams to end", SOON, || {
        maria.kill_streams();
        maria.server.query(list).is_empty()
    });
}

/// The log is purged of a change that no relay has seen.
fn purged(failpoints: &str) -> TakeOver {
    let scenario = start_everywhere::<Maria>(stage(), failpoints);
    rules::between(scenario, |run| {
        await_end_of_streams(run);
        run.change(KEY);
        let maria = &run.database.primary;
        let file = maria.begin_log_file();
        let sql = format!("PURGE BINARY LOGS TO '{file}'");
        // Not before the server has noted that it does not need the older file.
        await_until("the log to be purged", SOON, || {
            maria.server.batch(&sql);
            maria.server.query("SHOW BINARY LOGS").lines().count() == 1
        });
    })
}

/// Commit at the place of the relays in a log that was begun anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Anew {
    /// As before.
    Same,
    /// Another GTID.
    OtherNumber,
    /// Longer, with the same GTID.
    Longer,
}

/// The log is begun anew between two relays, and has a change before their place.
fn begun_anew(failpoints: &str, anew: Anew) -> TakeOver {
    const FILLER: u64 = 500;
    let filler = |bytes: u64| format!("INSERT INTO filler VALUES (REPEAT('x', {bytes}))");
    let run = stage::<Hubbed<Maria>>();
    run.database
        .primary
        .server
        .batch("CREATE TABLE places(n INT); CREATE TABLE filler(t TEXT); RESET MASTER");
    let mut scenario = start_everywhere::<Maria>(run, failpoints);
    scenario.change_and_deliver(OTHER);
    let server = &scenario.run.database.primary.server;
    let changed = server.log_end();
    server.batch(&filler(FILLER));
    let place = server.log_end();
    server.batch(COMMIT);
    // The last of them names the commit.
    scenario.run.database.await_messages(0, 3);
    rules::between(scenario, |run| {
        await_end_of_streams(run);
        let server = &run.database.primary.server;
        let second = || server.query("SELECT UNIX_TIMESTAMP()");
        let now = second();
        await_until("the next second", SOON, || second() != now);
        server.batch("RESET MASTER");
        run.change(KEY);
        let server = &run.database.primary.server;
        server.batch(&filler(FILLER + changed - server.log_end()));
        assert_eq!(server.log_end(), place, "what comes before has the same length");
        match anew {
            Anew::Same => server.batch(COMMIT),
            Anew::OtherNumber => server.batch(&format!("SET gtid_domain_id = 7; {COMMIT}")),
            Anew::Longer => server.batch(&format!("{COMMIT}, (2)")),
        }
    })
}

checks! {
    a_change_between_two_relays_is_no_loss:
        assert_continued(missed(""));
    #[ignore = "long: without a planted fault"]
    changes_come_before_their_watermark:
        assert_clean(rules::changes::<Maria>(""));
    #[ignore = "long: without a planted fault"]
    an_instance_that_joins_marks_what_is_hidden:
        assert_clean(rules::join::<Maria>(""));
    #[ignore = "long: without a planted fault"]
    no_instance_joins_before_earlier_changes_are_visible:
        assert_clean(rules::join_after_take_over::<Maria>(""));
    #[ignore = "long: without a planted fault"]
    a_stream_that_lost_its_end_is_noticed:
        assert_clean(rules::rewound::<Maria>(""));
    #[ignore = "long: without a planted fault"]
    messages_of_a_relay_that_was_paused_are_refused:
        assert_continued(rules::paused::<Maria>(""));
    #[ignore = "long: without a planted fault"]
    a_purged_log_is_a_loss:
        assert_loss(purged(""));
}

#[ignore = "long: without a planted fault"]
#[test]
fn a_log_begun_anew_is_a_loss() {
    for anew in [Anew::Same, Anew::OtherNumber, Anew::Longer] {
        assert_loss(begun_anew("", anew));
    }
}

#[cfg(feature = "failpoints")]
mod disabled {
    use super::{Anew, begun_anew, missed, purged};
    use crate::backend::maria::Maria;
    use crate::contract::hub_rules::{self as rules, assert_loss};
    use crate::contract::scenario::assert_broken;
    use hotrow_verify::rules::Rule;

    checks! {
        /// The rule of the chain finds it too: then it is a loss where there need be none.
        a_place_that_is_the_servers_is_found:
            assert_broken(|| missed("resume:PlaceOfStream,hub:ResumeWithin").outcome, Rule::Fresh);
        #[ignore = "long: one of many planted faults"]
        a_place_that_is_the_servers_is_found_by_the_chain:
            assert_loss(missed("resume:PlaceOfStream"));
        #[ignore = "long: one of many planted faults"]
        a_watermark_before_its_changes_is_found:
            assert_broken(|| rules::changes::<Maria>("hub:WatermarkInOrder"), Rule::Fresh);
        #[ignore = "long: one of many planted faults"]
        a_dropped_change_in_an_unbroken_chain_is_found:
            assert_broken(|| rules::changes::<Maria>("hub:EveryChange"), Rule::Fresh);
        #[ignore = "long: one of many planted faults"]
        a_join_without_hidden_changes_is_found:
            assert_broken(|| rules::join::<Maria>("hub:Hidden"), Rule::Fresh);
        #[ignore = "long: one of many planted faults"]
        a_join_before_earlier_changes_are_visible_is_found:
            assert_broken(|| rules::join_after_take_over::<Maria>("hub:SettleFirst"), Rule::Fresh);
        #[ignore = "long: one of many planted faults"]
        an_end_that_was_lost_and_written_again_is_found:
            assert_broken(|| rules::rewound::<Maria>("hub:Identity,hub:Successor"), Rule::Fresh);
        #[ignore = "long: one of many planted faults"]
        a_relay_that_was_paused_and_writes_blindly_is_found:
            assert_loss(rules::paused::<Maria>("hub:CompareAndSet"));
    }

    #[ignore = "long: one of many planted faults"]
    #[test]
    fn a_purge_that_is_not_noticed_is_found() {
        // The rule of the chain finds it too.
        assert_loss(purged("resume:PlaceInLog"));
        assert_broken(|| purged("resume:PlaceInLog,hub:ResumeWithin").outcome, Rule::Fresh);
    }

    checks! {
        #[ignore = "long: one of many planted faults"]
        a_log_begun_anew_with_the_same_commits_is_found:
            assert_broken(|| begun_anew("resume:FileCreated", Anew::Same).outcome, Rule::Fresh);
    }

    #[ignore = "long: one of many planted faults"]
    #[test]
    fn a_log_with_another_commit_at_the_place_is_found() {
        // One of the two rules is enough.
        assert_loss(begun_anew("resume:SameCommit", Anew::OtherNumber));
        assert_loss(begun_anew("resume:FileCreated", Anew::OtherNumber));
        let both = "resume:FileCreated,resume:SameCommit";
        assert_broken(|| begun_anew(both, Anew::OtherNumber).outcome, Rule::Fresh);
    }

    #[ignore = "long: one of many planted faults"]
    #[test]
    fn a_log_with_a_longer_commit_at_the_place_is_found() {
        assert_loss(begun_anew("resume:FileCreated", Anew::Longer));
        let both = "resume:FileCreated,resume:CommitEnd";
        // The chain is not continued from behind its end either.
        assert_loss(begun_anew(both, Anew::Longer));
        let all = format!("{both},hub:ResumeWithin");
        assert_broken(|| begun_anew(&all, Anew::Longer).outcome, Rule::Fresh);
    }

    checks! {
        /// The log cannot be read from there: a loss where there need be none.
        #[ignore = "long: one of many planted faults"]
        a_place_inside_a_commit_is_found:
            assert_loss(missed("resume:WholeCommit"));
    }
}
