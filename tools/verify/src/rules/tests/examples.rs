//! Hand-made histories on which each rule reports exactly the violations that it should.

use super::{MS, observation};
use crate::history::{History, KeyState, LogInterval, Ns, WriteOutcome};
use crate::observation::{Claim, Form, Observation, Origin, Outcome, Position, Purge, Requirement};
use crate::rules::{CheckResult, ContractTerms, KeyChecker, Rule, TokenTerms};

const LOG: u64 = 0xab;
const TOKENS: TokenTerms = TokenTerms { log: LOG, exact: true, may_end: false };
const TERMS: ContractTerms = terms(TOKENS);

const fn terms(tokens: TokenTerms) -> ContractTerms {
    ContractTerms { max_staleness_ns: 1000 * MS, tokens: Some(tokens) }
}

/// A row; changed at 100 ms (position 1), deleted at 200 ms (2), inserted again at 300 ms (3),
/// deleted at 400 ms (4). Each COMMIT takes 1 ms.
fn history() -> History {
    history_in(|number| LogInterval { from: number, at: number })
}

/// The same with other places in the log.
fn history_in(log: impl Fn(u64) -> LogInterval) -> History {
    let mut history = History::starting(true);
    for present in [true, false, true, false] {
        let version = history.next_version();
        let commit_sent_ns = version * 100 * MS;
        history.push(KeyState {
            version,
            present,
            transaction: version,
            commit_sent_ns: Some(commit_sent_ns),
            outcome: WriteOutcome::Committed { returned_ns: commit_sent_ns + MS },
            log: Some(log(version)),
        });
    }
    history
}

/// A read from `sent` to `received`, in milliseconds.
fn read(sent: Ns, received: Ns, seen: Claim) -> Observation {
    observation(0, sent * MS, received * MS, seen)
}

fn version(sent: Ns, received: Ns, version: u64) -> Observation {
    read(sent, received, Claim::Version(version))
}

fn absent(sent: Ns, received: Ns) -> Observation {
    read(sent, received, Claim::Absent)
}

fn at(at: u64, observation: Observation) -> Observation {
    Observation { position: Some(Position { log: LOG, at }), ..observation }
}

fn with(requirement: Requirement, observation: Observation) -> Observation {
    Observation { requirement, ..observation }
}

fn hit(age_s: u32, observation: Observation) -> Observation {
    Observation { outcome: Outcome::Hit, age_s: Some(age_s), ..observation }
}

fn stale(age_s: Option<u32>, observation: Observation) -> Observation {
    Observation { outcome: Outcome::Stale, age_s, ..observation }
}

fn own_write(at: u64) -> Requirement {
    Requirement::OwnWrite { position: Position { log: LOG, at }, floor: 0 }
}

fn session(at: u64, floor: u64) -> Requirement {
    Requirement::Session { position: Position { log: LOG, at }, floor }
}

/// Checks reads of one key in turn.
fn check(
    mut checker: KeyChecker,
    reads: &[Observation],
    terms: &ContractTerms,
) -> Vec<CheckResult> {
    reads.iter().map(|read| checker.check(read, terms)).collect()
}

/// Returns all violated rules, each with the number of the read.
fn violated(results: &[CheckResult]) -> Vec<(Rule, usize)> {
    let of_read = |(i, result): (usize, &CheckResult)| {
        result.violations.iter().map(|violation| (violation.rule, i)).collect::<Vec<_>>()
    };
    results.iter().enumerate().flat_map(of_read).collect()
}

fn violations(reads: &[Observation]) -> Vec<(Rule, usize)> {
    violated(&check(KeyChecker::new(history()), reads, &TERMS))
}

#[test]
fn a_state_may_be_seen_while_its_commit_is_in_progress() {
    assert_eq!(violations(&[version(0, 1, 0), version(90, 100, 1), absent(201, 202)]), []);
    assert_eq!(violations(&[version(101, 102, 0)]), [], "and late, within the bound");
}

#[test]
fn a_copy_may_be_outdated_for_twice_the_bound_and_some_more() {
    let copy = |sent, seen| Observation { form: Form::Copy, ..read(sent, sent, seen) };
    let last = 401 + 2 * 1000 + 600;
    let reads = [
        absent(450, 451),
        // Not monotonic with the response before.
        copy(500, Claim::Version(3)),
        copy(last, Claim::Version(3)),
        copy(last + 1, Claim::Version(3)),
        copy(last + 1, Claim::Absent),
        copy(last + 1, Claim::Version(9)),
    ];
    assert_eq!(violations(&reads), [(Rule::Copied, 3), (Rule::Committed, 5)]);
    // What a copy shows binds no later response.
    assert_eq!(violations(&[copy(450, Claim::Absent), version(460, 461, 3)]), []);
}

#[test]
fn after_an_event_no_commit_up_to_its_position_is_missing() {
    let followed = |at, is_sent, read| {
        with(Requirement::Followed { position: Position { log: LOG, at }, is_sent }, read)
    };
    let copy = |moment, seen| Observation {
        form: Form::FollowedCopy,
        ..read(moment, moment, Claim::Version(seen))
    };
    let reads = [
        followed(3, false, copy(450, 3)),
        followed(4, false, copy(450, 3)),
        // The event came before the commit was sent: it is of another log.
        followed(4, false, copy(399, 3)),
        followed(3, false, version(450, 451, 3)),
        followed(4, false, version(450, 451, 3)),
        followed(4, true, version(450, 451, 3)),
        followed(4, false, stale(None, version(450, 451, 3))),
        followed(4, false, absent(450, 451)),
        // Not monotonic with the responses before.
        followed(2, false, copy(460, 3)),
        followed(9, false, Observation { form: Form::FollowedCopy, ..absent(460, 460) }),
    ];
    assert_eq!(violations(&reads), [1, 4, 5].map(|read| (Rule::Followed, read)));
}

#[test]
fn a_state_that_was_never_committed_is_a_violation() {
    let broken = [(Rule::Committed, 0)];
    assert_eq!(violations(&[version(0, 50, 1)]), broken, "not yet");
    assert_eq!(violations(&[version(0, 450, 2)]), broken, "a row that was an absence");
    assert_eq!(violations(&[version(0, 450, 9)]), broken, "no such version");
    assert_eq!(violations(&[absent(0, 150)]), broken, "there was a row all the time");
    assert_eq!(violations(&[read(0, 1, Claim::Invalid("x".into()))]), broken);
}

#[test]
fn only_documented_refusals_make_no_claim() {
    let refused = |status| read(0, 1, Claim::Refused(status));
    assert_eq!(violations(&[refused(503), refused(504), refused(429)]), []);
    assert_eq!(
        violations(&[refused(500), refused(502)]),
        [(Rule::Committed, 0), (Rule::Committed, 1)]
    );
    let balanced = Observation { origin: Origin::Balancer(0), ..refused(502) };
    assert_eq!(violations(&[balanced]), []);
}

#[test]
fn a_position_may_be_refused_only_where_tokens_may_end() {
    let rules = |requirement, terms: &ContractTerms| {
        let refused = with(requirement, read(0, 1, Claim::PositionRefused));
        violated(&check(KeyChecker::new(history()), &[refused], terms))
    };
    let ending = terms(TokenTerms { may_end: true, ..TOKENS });
    let unknown = ContractTerms { tokens: None, ..TERMS };
    for requirement in [own_write(1), session(1, 1)] {
        assert_eq!(rules(requirement, &TERMS), [(Rule::Committed, 0)]);
        assert_eq!(rules(requirement, &ending), []);
        assert_eq!(rules(requirement, &unknown), []);
    }
    assert_eq!(rules(Requirement::Any, &ending), [(Rule::Committed, 0)], "no position was sent");
}

#[test]
fn responses_do_not_go_backwards() {
    let broken = [(Rule::Monotonic, 1)];
    assert_eq!(violations(&[version(102, 103, 1), version(104, 105, 0)]), broken);
    assert_eq!(
        violations(&[version(102, 103, 1), version(103, 105, 0)]),
        [],
        "sent before the other was received"
    );
    let other = Observation { origin: Origin::Instance(1), ..version(104, 105, 0) };
    assert_eq!(violations(&[version(102, 103, 1), other]), [], "another instance");
    assert_eq!(
        violations(&[absent(202, 203), version(204, 205, 1)]),
        broken,
        "a deleted row is returned again"
    );
    assert_eq!(
        violations(&[version(302, 303, 3), absent(304, 305)]),
        broken,
        "the absence before the row"
    );
    assert_eq!(
        violations(&[version(302, 303, 3), absent(304, 401)]),
        [],
        "it may be the next absence"
    );
    assert_eq!(
        violations(&[version(102, 103, 1), stale(Some(0), version(104, 105, 0))]),
        broken,
        "`stale` does not permit it"
    );
}

#[test]
fn an_absence_is_the_earliest_that_fits_unless_its_token_determines_it() {
    // Both absences had begun when the response was received. It may show the first one, so the
    // row between them may follow.
    let row = || version(402, 403, 3);
    assert_eq!(violations(&[absent(202, 401), row()]), []);
    assert_eq!(violations(&[at(4, absent(202, 401)), row()]), [(Rule::Monotonic, 1)]);
    assert_eq!(violations(&[at(2, absent(202, 401)), row()]), []);
    // After the row was seen, only the second absence is possible.
    assert_eq!(
        violations(&[version(302, 303, 3), absent(399, 401), row()]),
        [(Rule::Monotonic, 2)]
    );
    assert_eq!(
        violations(&[at(4, absent(202, 399))]),
        [(Rule::Committed, 0)],
        "the absence of its token has not begun"
    );
}

#[test]
fn changes_are_seen_in_time() {
    assert_eq!(violations(&[version(1101, 1102, 0)]), [], "exactly the bound");
    assert_eq!(violations(&[version(1102, 1103, 0)]), [(Rule::Fresh, 0)]);
    assert_eq!(violations(&[version(1102, 1103, 1)]), []);
    assert_eq!(violations(&[stale(Some(1), version(1102, 1103, 0))]), [], "marked stale");
    assert_eq!(
        violations(&[stale(Some(0), version(1102, 1103, 0))]),
        [(Rule::Age, 0)],
        "marked stale, with a wrong age"
    );
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
    let no_cache = |observation| violations(&[with(Requirement::NoCache, observation)]);
    assert_eq!(no_cache(version(102, 103, 0)), [(Rule::NoCache, 0)]);
    assert_eq!(no_cache(version(101, 103, 0)), []);
    assert_eq!(no_cache(version(102, 103, 1)), []);
}

#[test]
fn tokens_determine_the_state() {
    let broken = [(Rule::Token, 0)];
    assert_eq!(violations(&[at(1, version(102, 103, 1)), at(0, version(90, 91, 0))]), []);
    assert_eq!(violations(&[at(0, version(102, 103, 1))]), broken, "newer than its token");
    assert_eq!(violations(&[at(1, version(102, 103, 0))]), broken, "older than its token");
    assert_eq!(violations(&[at(3, absent(402, 403))]), broken);
    let in_batch = |observation| Observation { form: Form::BatchGet, ..observation };
    assert_eq!(
        violations(&[in_batch(at(1, version(102, 103, 0)))]),
        [],
        "the largest token of several"
    );
    assert_eq!(violations(&[in_batch(at(0, version(102, 103, 1)))]), broken);
    let foreign = Some(Position { log: 1, at: 0 });
    assert_eq!(
        violations(&[Observation { position: foreign, ..version(102, 103, 1) }]),
        [],
        "tokens of another log are not checked"
    );
}

#[test]
fn positions_are_reached() {
    let requiring = |requirement, seen| violations(&[with(requirement, version(100, 101, seen))]);
    assert_eq!(requiring(own_write(1), 0), [(Rule::OwnWrite, 0)]);
    assert_eq!(requiring(own_write(1), 1), []);
    assert_eq!(requiring(own_write(0), 0), []);
    assert_eq!(requiring(session(0, 1), 0), [(Rule::Session, 0)], "older than what was shown");
    assert_eq!(requiring(session(1, 0), 0), [(Rule::Session, 0)], "older than its token");
    assert_eq!(requiring(session(0, 0), 0), []);
    assert_eq!(requiring(session(0, 1), 1), []);
}

#[test]
fn a_read_after_a_purge_is_no_older_than_the_purge() {
    let purge = |instance, key| Purge {
        key,
        origin: Origin::Instance(instance),
        sent_ns: 110 * MS,
        received_ns: 111 * MS,
    };
    let after_purge = |instance, read| {
        let mut checker = KeyChecker::new(history());
        checker.purge(purge(instance, None));
        violated(&check(checker, &[read], &TERMS))
    };
    assert_eq!(after_purge(0, version(112, 113, 0)), [(Rule::Purged, 0)]);
    assert_eq!(after_purge(0, version(112, 113, 1)), []);
    assert_eq!(after_purge(1, version(112, 113, 0)), [], "another instance");
    assert_eq!(after_purge(0, version(110, 113, 0)), [], "sent before the purge had completed");
    assert!(purge(0, None).includes(1) && purge(0, Some(1)).includes(1));
    assert!(!purge(0, Some(7)).includes(1), "another key");
}

#[test]
fn one_response_can_violate_several_rules() {
    let reads = [version(102, 103, 1), at(1, hit(0, version(1102, 1103, 0)))];
    assert_eq!(
        violations(&reads),
        [(Rule::Token, 1), (Rule::Monotonic, 1), (Rule::Fresh, 1), (Rule::Age, 1)]
    );
}

#[test]
fn rules_nearness_and_lag_are_reported() {
    let reads = [
        with(Requirement::NoCache, version(0, 1, 0)),
        version(92, 93, 0),
        version(111, 112, 1),
        version(89, 89, 0),
    ];
    let results = check(KeyChecker::new(history()), &reads, &TERMS);
    assert_eq!(violated(&results), []);
    let applied = |rule| results.iter().filter(|result| result.applied.contains(&rule)).count();
    assert_eq!((applied(Rule::Committed), applied(Rule::NoCache)), (4, 1));
    let near =
        |read: &&Observation| history().changed_near(read.sent_ns, read.received_ns, 10 * MS);
    assert_eq!(reads.iter().filter(near).count(), 2);
    let late = check(KeyChecker::new(history()), &[version(131, 132, 0)], &TERMS);
    assert_eq!(late[0].lag_ns, 30 * MS);
}

#[test]
fn a_response_is_no_newer_than_an_inexact_token() {
    let inexact = terms(TokenTerms { exact: false, ..TOKENS });
    let rules = |observation: Observation| {
        // Commits between the positions 1 to 10, 11 to 20 and so on.
        let history = history_in(|number| LogInterval { from: number * 10 - 9, at: number * 10 });
        violated(&check(KeyChecker::new(history), &[observation], &inexact))
    };
    // Version 3 lies between 21 and 30: a token of 20 cannot reflect it; one of 21 may; one of 29
    // need not.
    assert_eq!(rules(at(20, version(320, 330, 3))), [(Rule::Token, 0)]);
    assert_eq!(rules(at(21, version(320, 330, 3))), []);
    assert_eq!(rules(at(29, absent(320, 330))), []);
    // The deletion before it lies between 11 and 20.
    assert_eq!(rules(at(11, absent(220, 230))), []);
    assert_eq!(rules(at(10, absent(220, 230))), [(Rule::Token, 0)]);
    // A position requires a commit only when the commit certainly lies before it.
    assert_eq!(rules(with(own_write(29), absent(320, 330))), []);
    assert_eq!(rules(with(own_write(30), absent(320, 330))), [(Rule::OwnWrite, 0)]);
}

/// Which record has a value is fresh, and after a purge and at a position as new as a record; but
/// answers for it have no order, no age and no `no-cache`.
#[test]
fn values_have_the_rules_of_aliases() {
    let checker = KeyChecker::of_value(history());
    let reads = [
        version(310, 311, 3),
        // Older than the one before, than its age, and than `no-cache` allows.
        absent(320, 321),
        version(330, 331, 1),
        hit(0, version(1150, 1151, 1)),
        with(Requirement::NoCache, version(350, 351, 1)),
        // Too old, for the bound and for a position.
        version(1250, 1251, 1),
        with(own_write(3), version(360, 361, 1)),
    ];
    let found = violated(&check(checker, &reads, &TERMS));
    assert_eq!(found, [(Rule::Fresh, 5), (Rule::OwnWrite, 6)]);
}
