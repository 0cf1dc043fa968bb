//! Streams whose resume tokens are opaque, as those of other vendors' servers are. The tests of the
//! other modules run over them too, in another process.

use std::process::Command;

use hotrow_types::version::ChangeId;
use mongodb::bson::doc;

use super::harness::{Engine, config, refusal, wait};
use super::mongo::MongoDatabase;
use super::standin::{Fault, Kind};
use hotrow_source::testkit::Event;

#[test]
fn an_empty_answer_proves_only_what_was_known_when_it_was_requested() {
    let mongo = MongoDatabase::on_standin();
    mongo.standin().make_tokens_opaque();
    mongo.insert("things", [doc! { "_id": 1 }]);
    let engine = Engine::on(&mongo, &["things"]);
    // The last event is an advance, and further ones replace it.
    let from = engine.sink.len() - 1;
    let standin = mongo.standin();
    standin.inject("getMore", Fault::Hold);
    wait("a held answer", || standin.held("getMore") > 0);
    mongo.insert("things", [doc! { "_id": 2 }]);
    // The second probe begins after the change; the third, when the second was answered.
    let probes = standin.commands("find");
    wait("three probes", || standin.commands("find") >= probes + 3);
    standin.clear_faults("getMore");
    engine.sink.wait("the change", |events| {
        let since = &events[from..];
        let changed = since.iter().position(|event| matches!(event, Event::Change(_)))?;
        let Event::Change(change) = &since[changed] else { unreachable!() };
        let ChangeId::Commit(at) = change.mark else { panic!("{change:?}") };
        let is_early =
            |event: &Event| matches!(event, Event::Advance(_, Some(to), _) if to.reaches(&at));
        assert!(!since[..changed].iter().any(is_early), "{since:?}");
        Some(())
    });
    engine.settle();
}

#[test]
fn an_operation_that_no_majority_has_proves_nothing() {
    let mongo = MongoDatabase::on_standin();
    mongo.standin().make_tokens_opaque();
    mongo.insert("things", [doc! { "_id": 1 }]);
    let engine = Engine::on(&mongo, &["things"]);
    let standin = mongo.standin();
    standin.hold_visibility();
    mongo.run(doc! { "insert": "others", "documents": [{ "_id": 1 }], "writeConcern": { "w": 1 } });
    let written_at = standin.now();
    let answers = standin.commands("getMore");
    wait("answers to requests after the write", || standin.commands("getMore") > answers + 5);
    let reached = engine.sink.wait("an advance", |events| {
        events.iter().rev().find_map(|event| match event {
            Event::Advance(_, position, _) => *position,
            _ => None,
        })
    });
    assert!(reached.at < written_at, "{reached:?}");
    standin.release_visibility();
    engine.settle();
}

#[test]
fn a_sharded_cluster_with_opaque_tokens_is_refused() {
    let mongo = MongoDatabase::on_kind(Kind::Mongos, 1);
    mongo.standin().make_tokens_opaque();
    mongo.insert("things", [doc! { "_id": 1 }]);
    let text = refusal(config(mongo.url(), &["things"]));
    assert!(text.contains("resume tokens") && text.contains("feed = \"none\""), "{text}");
}

/// Runs tests of this program by a command that ends with its name.
#[track_caller]
fn run(command: &mut Command, tests: &[&str]) {
    let output = command.args(tests).output().expect("the program starts");
    let log = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{log}{}", String::from_utf8_lossy(&output.stderr));
    assert!(!log.contains(" 0 passed"), "{log}");
}

#[test]
fn the_tests_of_the_feed_pass_with_opaque_tokens() {
    let program = std::env::current_exe().expect("the test's own file");
    let tests = ["tests::feed::", "tests::failures::", "tests::races::", "tests::aliases::"];
    // Their faults of reads would apply to probes, which read too.
    let skipped = ["a_slow_read_ends", "a_malformed_answer", "reads_at_once"];
    let skipped = skipped.iter().flat_map(|name| ["--skip", name]);
    let tests: Vec<&str> = tests.into_iter().chain(skipped).collect();
    run(Command::new(program).env("HOTROW_TEST_MONGODB_OPAQUE", "yes"), &tests);
}

#[ignore = "long: installs SecantusDB"]
#[test]
fn the_tests_pass_over_secantusdb() {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/secantusdb");
    let program = std::env::current_exe().expect("the test's own file");
    // That server accepts `hidden` indexes without hiding them.
    let skipped = ["--skip", "a_hidden_index", "--skip", "tests::opaque::"];
    let tests = [&["tests::", "--test-threads", "4"][..], &skipped].concat();
    run(Command::new(script).arg(program), &tests);
}
