//! The checker checked: hand-made histories, on which each rule fires when it should and not when it should not.

use super::*;
use crate::explain::explain;
use crate::history::State;
use crate::observation::Token;

const MS: Ns = 1_000_000;
const LOG: u64 = 0xab;
const TERMS: Terms = Terms { max_staleness_ns: 1000 * MS, log: Some(LOG), tokens_are_exact: true };

/// Key 0: a row; at 100 ms changed (log 1), at 200 ms deleted (2), at 300 ms inserted again (3), at 400 ms deleted (4).
/// Each COMMIT takes 1 ms.
fn histories() -> Histories {
    let mut history = History::starting(true);
    for (i, present) in [true, false, true, false].into_iter().enumerate() {
        let begun_ns = (i as Ns + 1) * 100 * MS;
        history.push(State {
            present,
            begun_ns,
            returned_ns: begun_ns + MS,
            from: i as u64 + 1,
            at: i as u64 + 1,
            writer: 0,
        });
    }
    vec![history]
}

/// A read from `sent` to `received` in milliseconds.
fn read(sent: Ns, received: Ns, seen: Seen) -> Observation {
    Observation {
        key: 0,
        reader: 1,
        instance: 0,
        sent_ns: sent * MS,
        received_ns: received * MS,
        wish: Wish::Any,
        seen,
        outcome: Outcome::Miss,
        age_s: 0,
        token: None,
        batch: false,
        conditional: false,
    }
}

fn version(sent: Ns, received: Ns, version: u64) -> Observation {
    read(sent, received, Seen::Version(version))
}

fn absent(sent: Ns, received: Ns) -> Observation {
    read(sent, received, Seen::Absent)
}

fn at(at: u64, mut observation: Observation) -> Observation {
    observation.token = Some(Token { log: LOG, at });
    observation
}

fn wishing(wish: Wish, mut observation: Observation) -> Observation {
    observation.wish = wish;
    observation
}

fn hit(age_s: u32, mut observation: Observation) -> Observation {
    (observation.outcome, observation.age_s) = (Outcome::Hit, age_s);
    observation
}

fn broken_with(observations: &[Observation], purges: &[Purge]) -> Vec<(Rule, usize)> {
    let report = check(&histories(), observations, purges, &TERMS);
    report.violations.iter().map(|v| (v.rule, v.observation)).collect()
}

fn broken(observations: &[Observation]) -> Vec<(Rule, usize)> {
    broken_with(observations, &[])
}

#[test]
fn what_was_committed_may_be_seen_while_its_commit_is_under_way() {
    assert_eq!(broken(&[version(0, 1, 0), version(90, 100, 1), absent(201, 202)]), []);
    assert_eq!(broken(&[version(101, 102, 0)]), [], "and late, within the bound");
}

#[test]
fn what_was_never_committed_is_found() {
    assert_eq!(broken(&[version(0, 50, 1)]), [(Rule::Committed, 0)], "not yet");
    assert_eq!(broken(&[version(0, 450, 2)]), [(Rule::Committed, 0)], "a row that was an absence");
    assert_eq!(broken(&[version(0, 450, 9)]), [(Rule::Committed, 0)], "no such version");
    assert_eq!(broken(&[absent(0, 150)]), [(Rule::Committed, 0)], "there was a row all the time");
    assert_eq!(broken(&[read(0, 1, Seen::Invented("x".into()))]), [(Rule::Committed, 0)]);
    assert_eq!(broken(&[read(0, 1, Seen::Refused(500))]), [(Rule::Committed, 0)]);
    assert_eq!(broken(&[read(0, 1, Seen::Refused(503)), read(0, 1, Seen::Refused(504))]), []);
}

#[test]
fn answers_do_not_go_backwards() {
    assert_eq!(broken(&[version(102, 103, 1), version(104, 105, 0)]), [(Rule::Monotonic, 1)]);
    assert_eq!(broken(&[version(102, 103, 1), version(103, 105, 0)]), [], "sent before the other was received");
    let mut other = version(104, 105, 0);
    other.instance = 1;
    assert_eq!(broken(&[version(102, 103, 1), other]), [], "another instance");
    assert_eq!(broken(&[absent(202, 203), version(204, 205, 1)]), [(Rule::Monotonic, 1)], "a deleted row is back");
    assert_eq!(broken(&[version(302, 303, 3), absent(304, 305)]), [(Rule::Monotonic, 1)], "and the absence before it");
    assert_eq!(broken(&[version(302, 303, 3), absent(304, 401)]), [], "which may be the next absence");
    let mut stale = version(104, 105, 0);
    stale.outcome = Outcome::Stale;
    assert_eq!(broken(&[version(102, 103, 1), stale]), [(Rule::Monotonic, 1)], "a mark does not excuse it");
}

#[test]
fn an_absence_is_the_earliest_that_fits_unless_its_token_tells() {
    // Received when both absences were there: may have been the first, so the row between may follow.
    assert_eq!(broken(&[absent(202, 401), version(402, 403, 3)]), []);
    assert_eq!(broken(&[at(4, absent(202, 401)), version(402, 403, 3)]), [(Rule::Monotonic, 1)]);
    assert_eq!(broken(&[at(2, absent(202, 401)), version(402, 403, 3)]), []);
    // The first fits no more after the row was seen, so it was the second.
    assert_eq!(broken(&[version(302, 303, 3), absent(399, 401), version(402, 403, 3)]), [(Rule::Monotonic, 2)]);
}

#[test]
fn changes_are_seen_in_time() {
    assert_eq!(broken(&[version(1101, 1102, 0)]), [], "exactly the bound");
    assert_eq!(broken(&[version(1102, 1103, 0)]), [(Rule::Fresh, 0)]);
    assert_eq!(broken(&[version(1102, 1103, 1)]), []);
    let mut stale = version(1102, 1103, 0);
    (stale.outcome, stale.age_s) = (Outcome::Stale, 1);
    assert_eq!(broken(&[stale.clone()]), [], "marked");
    stale.age_s = 0;
    assert_eq!(broken(&[stale]), [(Rule::Age, 0)], "marked, with a false age");
    assert_eq!(broken(&[absent(1302, 1303)]), [], "the second absence is there");
    assert_eq!(broken(&[at(2, absent(1302, 1303))]), [(Rule::Fresh, 0)], "by its token it is the first");
}

#[test]
fn age_is_honest() {
    assert_eq!(broken(&[hit(0, version(601, 602, 0))]), []);
    assert_eq!(broken(&[hit(0, version(602, 603, 0))]), [(Rule::Age, 0)]);
    assert_eq!(broken(&[hit(1, version(602, 603, 0))]), []);
    assert_eq!(broken(&[version(602, 603, 0)]), [], "a miss may have waited for its read");
}

#[test]
fn no_cache_reads_the_database() {
    assert_eq!(broken(&[wishing(Wish::New, version(102, 103, 0))]), [(Rule::NoCache, 0)]);
    assert_eq!(broken(&[wishing(Wish::New, version(101, 103, 0))]), []);
    assert_eq!(broken(&[wishing(Wish::New, version(102, 103, 1))]), []);
}

#[test]
fn tokens_tell_the_state() {
    assert_eq!(broken(&[at(1, version(102, 103, 1)), at(0, version(90, 91, 0))]), []);
    assert_eq!(broken(&[at(0, version(102, 103, 1))]), [(Rule::Token, 0)], "the token hides what the answer saw");
    assert_eq!(broken(&[at(1, version(102, 103, 0))]), [(Rule::Token, 0)], "the answer does not hold what it claims");
    assert_eq!(broken(&[at(3, absent(402, 403))]), [(Rule::Token, 0)]);
    let mut batch = at(1, version(102, 103, 0));
    batch.batch = true;
    assert_eq!(broken(&[batch.clone()]), [], "the largest token of several");
    batch.token = Some(Token { log: LOG, at: 0 });
    batch.seen = Seen::Version(1);
    assert_eq!(broken(&[batch]), [(Rule::Token, 0)]);
    let mut foreign = at(0, version(102, 103, 1));
    foreign.token = Some(Token { log: 1, at: 0 });
    assert_eq!(broken(&[foreign]), [], "of another log nothing is known");
}

#[test]
fn positions_are_reached() {
    assert_eq!(broken(&[wishing(Wish::AtLeast(1), version(100, 101, 0))]), [(Rule::MinPosition, 0)]);
    assert_eq!(broken(&[wishing(Wish::AtLeast(1), version(100, 101, 1))]), []);
    assert_eq!(broken(&[wishing(Wish::AtLeast(0), version(100, 101, 0))]), []);
    let session = |version| Wish::Session { token: 0, version };
    assert_eq!(broken(&[wishing(session(Some(1)), version(100, 101, 0))]), [(Rule::Session, 0)]);
    assert_eq!(broken(&[wishing(session(None), version(100, 101, 0))]), []);
    assert_eq!(broken(&[wishing(session(Some(1)), version(100, 101, 1))]), []);
}

#[test]
fn a_purge_is_a_fresh_start() {
    let purge = |instance, key| Purge { instance, key, sent_ns: 110 * MS, received_ns: 111 * MS };
    assert_eq!(broken_with(&[version(112, 113, 0)], &[purge(0, None)]), [(Rule::Purged, 0)]);
    assert_eq!(broken_with(&[version(112, 113, 0)], &[purge(0, Some(0))]), [(Rule::Purged, 0)]);
    assert_eq!(broken_with(&[version(112, 113, 1)], &[purge(0, None)]), []);
    assert_eq!(broken_with(&[version(112, 113, 0)], &[purge(0, Some(7)), purge(1, None)]), [], "not this one");
    assert_eq!(broken_with(&[version(110, 113, 0)], &[purge(0, None)]), [], "sent before it was answered");
}

#[test]
fn rules_and_nearness_are_counted() {
    let observations =
        [wishing(Wish::New, version(0, 1, 0)), version(92, 93, 0), version(111, 112, 1), version(89, 89, 0)];
    let report = check(&histories(), &observations, &[], &TERMS);
    assert_eq!(report.violations, []);
    assert_eq!((report.applied[&Rule::Committed], report.applied[&Rule::NoCache]), (4, 1));
    assert_eq!(reads_near_changes(&histories(), &observations, 10 * MS), 2);
    let late = check(&histories(), &[version(131, 132, 0)], &[], &TERMS);
    assert_eq!(late.worst_lag_ns, 30 * MS);
}

#[test]
fn a_violation_tells_its_story() {
    let observations = [version(102, 103, 1), hit(0, at(1, version(104, 105, 0)))];
    let report = check(&histories(), &observations, &[], &TERMS);
    let violation = report.violations.iter().find(|v| v.rule == Rule::Monotonic).unwrap();
    let story = explain(violation, &histories(), &observations, &[]);
    for part in [
        "rule Monotonic broken for key 0: the oldest version allowed is 1",
        "-4.000 writer 0 commits version 1 (row), log end 1; COMMIT took 1.000",
        "-2.000 reader 1 sends a read to instance 0; after 1.000 it gets version 1, miss, age 0   <== although",
        "0.000 reader 1 sends a read to instance 0; after 1.000 it gets version 0, hit, position 1, age 0   <== this",
    ] {
        assert!(story.contains(part), "{part:?} is missing in\n{story}");
    }
}

/// As [`histories`], but each commit lies somewhere between the point before its own and its own, times ten.
fn vague_histories() -> Histories {
    let mut vague = History::starting(true);
    for (_, state) in histories()[0].iter().skip(1) {
        vague.push(State { from: state.at * 10 - 9, at: state.at * 10, ..*state });
    }
    vec![vague]
}

#[test]
fn where_tokens_are_not_exact_an_answer_is_no_newer_than_its_token() {
    let terms = Terms { tokens_are_exact: false, ..TERMS };
    let rules = |observation: Observation| {
        let report = check(&vague_histories(), &[observation], &[], &terms);
        report.violations.iter().map(|v| v.rule).collect::<Vec<_>>()
    };
    // Version 3 lies between 21 and 30: a token of 20 cannot have seen it, one of 21 may have, one of 29 may not have yet.
    assert_eq!(rules(at(20, version(320, 330, 3))), [Rule::Token]);
    assert_eq!(rules(at(21, version(320, 330, 3))), []);
    assert_eq!(rules(at(29, absent(320, 330))), []);
    // The deletion before it lies between 11 and 20.
    assert_eq!(rules(at(11, absent(220, 230))), []);
    assert_eq!(rules(at(10, absent(220, 230))), [Rule::Token]);
    // Nothing is asked of a position until the commit lies before it for certain.
    assert_eq!(rules(wishing(Wish::AtLeast(29), absent(320, 330))), []);
    assert_eq!(rules(wishing(Wish::AtLeast(30), absent(320, 330))), [Rule::MinPosition]);
}
