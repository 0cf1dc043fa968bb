//! Strict reads and snapshots: legal ones pass, torn and late ones are found.

use proptest::prelude::*;

use super::{MS, TERMS, observation};
use crate::history::{History, Ns, WriteOutcome};
use crate::observation::{Claim, Observation, Origin, Requirement};
use crate::rules::{Beside, KeyChecker, Rule, Snapshot, SnapshotPart, Violation};

/// Keys of a history.
const KEYS: usize = 4;
/// Time before the first transaction.
const BEGIN: Ns = 1000 * MS;

/// One transaction in a history of several keys.
#[derive(Clone, Copy, Debug)]
struct Step {
    /// Whether it changes each key.
    keys: [bool; KEYS],
    /// Whether it deletes their rows.
    deletes: bool,
    /// Whether the reply to COMMIT is lost although it happened.
    is_lost: bool,
    /// Time of COMMIT, of its visibility after that, and until the next one, in tenths of a
    /// millisecond.
    takes: u64,
    visible: u64,
    pause: u64,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = (any::<[bool; KEYS]>(), any::<bool>(), 0..10_u8, 2..30_u64, 0..100_u64, 0..40_u64);
    let step = step.prop_map(|(keys, deletes, lost, takes, visible, pause)| Step {
        keys,
        deletes,
        is_lost: lost == 0,
        takes,
        visible: takes * visible / 100,
        pause,
    });
    prop::collection::vec(step, 1..40)
}

/// Histories of the keys, and when each transaction became visible.
struct Run {
    histories: Vec<History>,
    visible: Vec<Ns>,
    now: Ns,
}

fn run(steps: &[Step]) -> Run {
    let mut histories = vec![History::beginning_at(1, true, BEGIN); KEYS];
    let (mut visible, mut now) = (vec![BEGIN], BEGIN + MS);
    for (number, step) in (1..).zip(steps) {
        let returned_ns = now + step.takes * MS / 10;
        let outcome = match step.is_lost {
            true => WriteOutcome::Unknown,
            false => WriteOutcome::Committed { returned_ns },
        };
        for (history, _) in histories.iter_mut().zip(step.keys).filter(|(_, changes)| *changes) {
            let version = history.stage(!step.deletes, number);
            history.begin(version, now);
            history.settle(version, outcome, None);
        }
        visible.push(now + step.visible * MS / 10);
        now = returned_ns + 1 + step.pause * MS / 10;
    }
    Run { histories, visible, now }
}

impl Run {
    /// Returns what a key shows after this many transactions.
    fn seen(&self, key: usize, transactions: usize) -> Claim {
        let mut states = self.histories[key].iter().rev();
        let state = states.find(|state| state.transaction <= transactions as u64);
        let state = state.expect("the first");
        if state.present { Claim::Version(state.version) } else { Claim::Absent }
    }

    fn check(&self, seen: &[Claim], received_ns: Ns) -> Option<Violation> {
        let part = |(key, seen): (usize, &Claim)| SnapshotPart {
            observation: Observation {
                key: key as u32,
                ..observation(0, BEGIN, received_ns, seen.clone())
            },
            history: self.histories[key].clone(),
        };
        Snapshot::new(seen.iter().enumerate().map(part).collect())?.check()
    }
}

proptest! {
    #[test]
    fn a_state_of_the_database_is_a_snapshot(steps in steps(), at in 0..40_usize, forgets: bool) {
        let mut run = run(&steps);
        let at = at.min(steps.len());
        let received_ns = run.visible[at];
        if forgets {
            run.histories.iter_mut().for_each(|history| history.prune_before(received_ns));
        }
        let seen: Vec<Claim> = (0..KEYS).map(|key| run.seen(key, at)).collect();
        prop_assert_eq!(run.check(&seen, run.now), None);
        prop_assert_eq!(run.check(&seen, received_ns), None);
    }

    /// The last transaction changes two rows, and the response shows one of them as it was.
    #[test]
    fn a_torn_transaction_is_found(steps in steps(), deletes: bool, is_lost: bool) {
        // Before it all rows are there, so that their absence has one meaning.
        let all = Step {
            keys: [true; KEYS], deletes: false, is_lost: false, takes: 5, visible: 2, pause: 1,
        };
        let last = Step { deletes, is_lost, ..all };
        let run = run(&[&steps[..], &[all, last]].concat());
        let end = steps.len() + 2;
        let mut seen: Vec<Claim> = (0..KEYS).map(|key| run.seen(key, end)).collect();
        seen[1] = run.seen(1, end - 1);
        let violation = run.check(&seen, run.now);
        // An absence may have been before the row that is shown beside it, if that was absent.
        let is_ambiguous = deletes && steps.iter().any(|step| step.deletes);
        prop_assert!(violation.is_some() || is_ambiguous, "{:?}", seen);
        // A commit that returned between two others is not left out.
        let mut seen: Vec<Claim> = (0..KEYS).map(|key| run.seen(key, end - 1)).collect();
        seen[2] = Claim::Version(1);
        if run.histories[2].get(1).is_some_and(|first| first.version == 1) && end > 2 {
            prop_assert!(run.check(&seen, run.now).is_some());
        }
    }
}

#[test]
fn a_violation_names_both_parts() {
    let both = Step {
        keys: [true, true, false, false],
        deletes: false,
        is_lost: false,
        takes: 5,
        visible: 2,
        pause: 1,
    };
    let run = run(&[both, Step { keys: [true, false, false, false], ..both }]);
    let found = run.check(&[Claim::Version(3), Claim::Version(1)], run.now).expect("a violation");
    assert_eq!((found.rule, found.observation.key, found.floor), (Rule::Snapshot, 1, 2));
    assert_eq!(found.beside, Some(Beside { key: 0, version: 3 }));
    // A refusal, a single part and an unknown one make no claim.
    let refused = [Claim::Refused(504), Claim::Version(1)];
    assert_eq!(run.check(&refused, run.now), None);
    assert_eq!(run.check(&[Claim::Version(1)], run.now), None);
    assert_eq!(run.check(&[Claim::UnknownVersion, Claim::Version(1)], run.now), None);
}

#[test]
fn strict_reads_miss_no_commit_and_never_go_backwards() {
    let step = Step {
        keys: [true; KEYS],
        deletes: false,
        is_lost: false,
        takes: 10,
        visible: 5,
        pause: 0,
    };
    let mut histories = run(&[step, step]).histories;
    let mut checker = KeyChecker::new(histories.remove(0));
    // Two commits: from 1001 to 1002 ms and from there to 1003 ms.
    let mut rules = |instance, sent, version, requirement| {
        let (sent, received) = (sent * MS, (sent + 1) * MS);
        let seen = Claim::Version(version);
        let read = Observation { requirement, ..observation(instance, sent, received, seen) };
        let violations = checker.check(&read, &TERMS).violations;
        violations.iter().map(|violation| violation.rule).collect::<Vec<_>>()
    };
    let strict = Requirement::Strict;
    assert_eq!(rules(0, 1001, 1, strict), [], "the commit has not returned");
    assert_eq!(rules(0, 1003, 1, strict), [Rule::Strict]);
    assert_eq!(rules(0, 1003, 1, Requirement::Any), []);
    assert_eq!(rules(1, 1002, 3, strict), [], "the commit is in progress");
    assert_eq!(rules(2, 1003, 2, strict), [], "sent before that was received");
    assert_eq!(rules(2, 1004, 2, Requirement::Any), []);
    assert_eq!(rules(2, 1004, 2, strict), [Rule::Strict]);
    let balanced = Observation {
        requirement: strict,
        origin: Origin::Balancer(0),
        ..observation(0, 1005 * MS, 1006 * MS, Claim::Version(2))
    };
    assert_eq!(checker.check(&balanced, &TERMS).violations[0].rule, Rule::Strict);
}
