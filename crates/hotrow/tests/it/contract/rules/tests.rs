//! Tests of the checker: hand-made histories on which each rule reports exactly the violations that
//! it should.

use super::*;
use crate::contract::explain::explain;
use crate::contract::history::State;
use crate::contract::observation::Token;

const MS: Ns = 1_000_000;
const LOG: u64 = 0xab;
const TERMS: Terms = Terms {
    max_staleness_ns: 1000 * MS,
    log: Some(LOG),
    tokens_are_exact: true,
    tokens_may_end: false,
};

/// Key 0: a row; changed at 100 ms (log 1), deleted at 200 ms (2), inserted again at 300 ms (3),
/// deleted at 400 ms (4). Each COMMIT takes 1 ms.
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

/// A read from `sent` to `received`, in milliseconds.
fn read(sent: Ns, received: Ns, seen: Seen) -> Observation {
    Observation {
        key: 0,
        reader: 1,
        instance: 0,
        sent_ns: sent * MS,
        received_ns: received * MS,
        mode: ReadMode::Normal,
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

fn with_mode(mode: ReadMode, mut observation: Observation) -> Observation {
    observation.mode = mode;
    observation
}

fn hit(age_s: u32, mut observation: Observation) -> Observation {
    observation.outcome = Outcome::Hit;
    observation.age_s = age_s;
    observation
}

fn violations_with(observations: &[Observation], purges: &[Purge]) -> Vec<(Rule, usize)> {
    let report = check(&histories(), observations, purges, &TERMS);
    report.violations.iter().map(|v| (v.rule, v.observation)).collect()
}

fn violations(observations: &[Observation]) -> Vec<(Rule, usize)> {
    violations_with(observations, &[])
}

#[test]
fn a_state_may_be_seen_while_its_commit_is_in_progress() {
    assert_eq!(violations(&[version(0, 1, 0), version(90, 100, 1), absent(201, 202)]), []);
    assert_eq!(violations(&[version(101, 102, 0)]), [], "and late, within the bound");
}

#[test]
fn a_state_that_was_never_committed_is_a_violation() {
    assert_eq!(violations(&[version(0, 50, 1)]), [(Rule::Committed, 0)], "not yet");
    assert_eq!(
        violations(&[version(0, 450, 2)]),
        [(Rule::Committed, 0)],
        "a row that was an absence"
    );
    assert_eq!(violations(&[version(0, 450, 9)]), [(Rule::Committed, 0)], "no such version");
    assert_eq!(
        violations(&[absent(0, 150)]),
        [(Rule::Committed, 0)],
        "there was a row all the time"
    );
    assert_eq!(violations(&[read(0, 1, Seen::Invented("x".into()))]), [(Rule::Committed, 0)]);
    assert_eq!(violations(&[read(0, 1, Seen::Refused(500))]), [(Rule::Committed, 0)]);
    assert_eq!(violations(&[read(0, 1, Seen::Refused(503)), read(0, 1, Seen::Refused(504))]), []);
}

#[test]
fn answers_do_not_go_backwards() {
    assert_eq!(violations(&[version(102, 103, 1), version(104, 105, 0)]), [(Rule::Monotonic, 1)]);
    assert_eq!(
        violations(&[version(102, 103, 1), version(103, 105, 0)]),
        [],
        "sent before the other was received"
    );
    let mut other = version(104, 105, 0);
    other.instance = 1;
    assert_eq!(violations(&[version(102, 103, 1), other]), [], "another instance");
    assert_eq!(
        violations(&[absent(202, 203), version(204, 205, 1)]),
        [(Rule::Monotonic, 1)],
        "a deleted row is answered again"
    );
    assert_eq!(
        violations(&[version(302, 303, 3), absent(304, 305)]),
        [(Rule::Monotonic, 1)],
        "the absence before the row"
    );
    assert_eq!(
        violations(&[version(302, 303, 3), absent(304, 401)]),
        [],
        "it may be the next absence"
    );
    let mut stale = version(104, 105, 0);
    stale.outcome = Outcome::Stale;
    assert_eq!(
        violations(&[version(102, 103, 1), stale]),
        [(Rule::Monotonic, 1)],
        "`stale` does not permit it"
    );
}

#[test]
fn an_absence_is_the_earliest_that_fits_unless_its_token_determines_it() {
    // Both absences had begun when the answer was received. It may show the first one, so the row
    // between them may follow.
    assert_eq!(violations(&[absent(202, 401), version(402, 403, 3)]), []);
    assert_eq!(
        violations(&[at(4, absent(202, 401)), version(402, 403, 3)]),
        [(Rule::Monotonic, 1)]
    );
    assert_eq!(violations(&[at(2, absent(202, 401)), version(402, 403, 3)]), []);
    // After the row was seen, only the second absence is possible.
    assert_eq!(
        violations(&[version(302, 303, 3), absent(399, 401), version(402, 403, 3)]),
        [(Rule::Monotonic, 2)]
    );
}

#[test]
fn changes_are_seen_in_time() {
    assert_eq!(violations(&[version(1101, 1102, 0)]), [], "exactly the bound");
    assert_eq!(violations(&[version(1102, 1103, 0)]), [(Rule::Fresh, 0)]);
    assert_eq!(violations(&[version(1102, 1103, 1)]), []);
    let mut stale = version(1102, 1103, 0);
    stale.outcome = Outcome::Stale;
    stale.age_s = 1;
    assert_eq!(violations(&[stale.clone()]), [], "marked stale");
    stale.age_s = 0;
    assert_eq!(violations(&[stale]), [(Rule::Age, 0)], "marked stale, with a wrong age");
    assert_eq!(violations(&[absent(1302, 1303)]), [], "the second absence is current");
    assert_eq!(
        violations(&[at(2, absent(1302, 1303))]),
        [(Rule::Fresh, 0)],
        "by its token it is the first"
    );
}

#[test]
fn age_is_an_upper_bound() {
    assert_eq!(violations(&[hit(0, version(601, 602, 0))]), []);
    assert_eq!(violations(&[hit(0, version(602, 603, 0))]), [(Rule::Age, 0)]);
    assert_eq!(violations(&[hit(1, version(602, 603, 0))]), []);
    assert_eq!(violations(&[version(602, 603, 0)]), [], "a miss may have waited for its read");
}

#[test]
fn no_cache_reads_the_database() {
    assert_eq!(
        violations(&[with_mode(ReadMode::Revalidate, version(102, 103, 0))]),
        [(Rule::NoCache, 0)]
    );
    assert_eq!(violations(&[with_mode(ReadMode::Revalidate, version(101, 103, 0))]), []);
    assert_eq!(violations(&[with_mode(ReadMode::Revalidate, version(102, 103, 1))]), []);
}

#[test]
fn tokens_determine_the_state() {
    assert_eq!(violations(&[at(1, version(102, 103, 1)), at(0, version(90, 91, 0))]), []);
    assert_eq!(
        violations(&[at(0, version(102, 103, 1))]),
        [(Rule::Token, 0)],
        "the answer is newer than its token"
    );
    assert_eq!(
        violations(&[at(1, version(102, 103, 0))]),
        [(Rule::Token, 0)],
        "the answer is older than its token"
    );
    assert_eq!(violations(&[at(3, absent(402, 403))]), [(Rule::Token, 0)]);
    let mut batch = at(1, version(102, 103, 0));
    batch.batch = true;
    assert_eq!(violations(&[batch.clone()]), [], "the largest token of several");
    batch.token = Some(Token { log: LOG, at: 0 });
    batch.seen = Seen::Version(1);
    assert_eq!(violations(&[batch]), [(Rule::Token, 0)]);
    let mut foreign = at(0, version(102, 103, 1));
    foreign.token = Some(Token { log: 1, at: 0 });
    assert_eq!(violations(&[foreign]), [], "tokens of another log are not judged");
}

#[test]
fn positions_are_reached() {
    assert_eq!(
        violations(&[with_mode(ReadMode::AtLeast(1), version(100, 101, 0))]),
        [(Rule::MinPosition, 0)]
    );
    assert_eq!(violations(&[with_mode(ReadMode::AtLeast(1), version(100, 101, 1))]), []);
    assert_eq!(violations(&[with_mode(ReadMode::AtLeast(0), version(100, 101, 0))]), []);
    let session = |version| ReadMode::Session { token: 0, version };
    assert_eq!(
        violations(&[with_mode(session(Some(1)), version(100, 101, 0))]),
        [(Rule::Session, 0)]
    );
    assert_eq!(violations(&[with_mode(session(None), version(100, 101, 0))]), []);
    assert_eq!(violations(&[with_mode(session(Some(1)), version(100, 101, 1))]), []);
}

#[test]
fn a_read_after_a_purge_is_no_older_than_the_purge() {
    let purge = |instance, key| Purge { instance, key, sent_ns: 110 * MS, received_ns: 111 * MS };
    assert_eq!(violations_with(&[version(112, 113, 0)], &[purge(0, None)]), [(Rule::Purged, 0)]);
    assert_eq!(violations_with(&[version(112, 113, 0)], &[purge(0, Some(0))]), [(Rule::Purged, 0)]);
    assert_eq!(violations_with(&[version(112, 113, 1)], &[purge(0, None)]), []);
    assert_eq!(
        violations_with(&[version(112, 113, 0)], &[purge(0, Some(7)), purge(1, None)]),
        [],
        "another key, another instance"
    );
    assert_eq!(
        violations_with(&[version(110, 113, 0)], &[purge(0, None)]),
        [],
        "sent before the purge was answered"
    );
}

#[test]
fn rules_and_nearness_are_counted() {
    let observations = [
        with_mode(ReadMode::Revalidate, version(0, 1, 0)),
        version(92, 93, 0),
        version(111, 112, 1),
        version(89, 89, 0),
    ];
    let report = check(&histories(), &observations, &[], &TERMS);
    assert_eq!(report.violations, []);
    assert_eq!((report.applied[&Rule::Committed], report.applied[&Rule::NoCache]), (4, 1));
    assert_eq!(reads_near_changes(&histories(), &observations, 10 * MS), 2);
    let late = check(&histories(), &[version(131, 132, 0)], &[], &TERMS);
    assert_eq!(late.worst_lag_ns, 30 * MS);
}

#[test]
fn a_violation_is_explained_in_order_of_time() {
    let observations = [version(102, 103, 1), hit(0, at(1, version(104, 105, 0)))];
    let report = check(&histories(), &observations, &[], &TERMS);
    let violation = report.violations.iter().find(|v| v.rule == Rule::Monotonic).unwrap();
    let explanation = explain(violation, &histories(), &observations, &[]);
    for part in [
        "rule Monotonic broken for key 0: the oldest version allowed is 1",
        "-4.000 writer 0 commits version 1 (row), log end 1; COMMIT took 1.000",
        "-2.000 reader 1 sends a read to instance 0; after 1.000 it gets version 1, miss, age 0   \
         <== earlier",
        "0.000 reader 1 sends a read to instance 0; after 1.000 it gets version 0, hit, \
         position 1, age 0   <== this",
    ] {
        assert!(explanation.contains(part), "{part:?} is missing in\n{explanation}");
    }
}

/// As [`histories`], with commits between the log points 1 to 10, 11 to 20 and so on.
fn inexact_histories() -> Histories {
    let mut inexact = History::starting(true);
    for (_, state) in histories()[0].iter().skip(1) {
        inexact.push(State { from: state.at * 10 - 9, at: state.at * 10, ..*state });
    }
    vec![inexact]
}

#[test]
fn an_answer_is_no_newer_than_an_inexact_token() {
    let terms = Terms { tokens_are_exact: false, ..TERMS };
    let rules = |observation: Observation| {
        let report = check(&inexact_histories(), &[observation], &[], &terms);
        report.violations.iter().map(|v| v.rule).collect::<Vec<_>>()
    };
    // Version 3 lies between 21 and 30: a token of 20 cannot reflect it; one of 21 may; one of 29
    // need not.
    assert_eq!(rules(at(20, version(320, 330, 3))), [Rule::Token]);
    assert_eq!(rules(at(21, version(320, 330, 3))), []);
    assert_eq!(rules(at(29, absent(320, 330))), []);
    // The deletion before it lies between 11 and 20.
    assert_eq!(rules(at(11, absent(220, 230))), []);
    assert_eq!(rules(at(10, absent(220, 230))), [Rule::Token]);
    // A position requires a commit only when the commit certainly lies before it.
    assert_eq!(rules(with_mode(ReadMode::AtLeast(29), absent(320, 330))), []);
    assert_eq!(rules(with_mode(ReadMode::AtLeast(30), absent(320, 330))), [Rule::MinPosition]);
}
