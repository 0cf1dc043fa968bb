//! Legal histories pass; each planted violation is found and named. [`examples`] has a hand-made
//! history for each rule.

use proptest::prelude::*;

use super::*;
use crate::history::WriteOutcome;
use crate::observation::{Form, Position};

mod examples;
mod snapshots;

const MS: Ns = 1_000_000;
const BOUND: Ns = 50 * MS;
const TERMS: ContractTerms = ContractTerms { max_staleness_ns: BOUND, tokens: None };
const FIRST: u64 = 1000;
const TOKEN: Position = Position { log: 1, at: 1 };

/// A step of a simulated key. Times are in tenths of a millisecond.
#[derive(Clone, Debug)]
enum SimulationStep {
    /// A commit that takes some time and becomes visible within it.
    Write { present: bool, takes: u64, visible: u64, pause: u64 },
    /// A commit whose response is lost; it happens or not.
    RequestError { present: bool, happens: bool, takes: u64 },
    /// A rolled back transaction.
    RolledBack,
    /// A read, which shows a state during it, or an older one that its instance may still show.
    Read { instance: u16, takes: u64, moment: u64, lag: u64, kind: ReadKind, pause: u64 },
    /// A purge.
    Purge { instance: u16 },
}

#[derive(Clone, Copy, Debug)]
enum ReadKind {
    Plain,
    NoCache,
    Session,
    Stale,
}

fn steps() -> impl Strategy<Value = Vec<SimulationStep>> {
    let tenth = || 1_u64..30;
    let kind = prop_oneof![
        4 => Just(ReadKind::Plain),
        1 => Just(ReadKind::NoCache),
        1 => Just(ReadKind::Session),
        1 => Just(ReadKind::Stale),
    ];
    let step = prop_oneof![
        4 => (any::<bool>(), tenth(), 0..=100_u64, 0..200_u64)
            .prop_map(|(present, takes, visible, pause)| {
                SimulationStep::Write { present, takes, visible, pause }
            }),
        1 => (any::<bool>(), any::<bool>(), tenth())
            .prop_map(|(present, happens, takes)| {
                SimulationStep::RequestError { present, happens, takes }
            }),
        1 => Just(SimulationStep::RolledBack),
        10 => (0..3_u16, tenth(), 0..=100_u64, 0..500_u64, kind, 0..40_u64).prop_map(
            |(instance, takes, moment, lag, kind, pause)| {
                SimulationStep::Read { instance, takes, moment, lag, kind, pause }
            },
        ),
        1 => (0..3_u16).prop_map(|instance| SimulationStep::Purge { instance }),
    ];
    prop::collection::vec(step, 1..60)
}

/// A simulated service and its database.
struct Simulation {
    now: Ns,
    checker: KeyChecker,
    /// Versions with the time from which they are visible, and whether there is a row.
    visible: Vec<(Ns, u64, bool)>,
    /// Per instance, the time of the oldest state that it may still show.
    views: [Ns; 3],
    /// The version shown by the newest response, and its view.
    token: Option<(u64, Ns)>,
    /// Violations found by the checker.
    violations: Vec<Violation>,
    forgets: bool,
}

impl Simulation {
    fn new(forgets: bool) -> Self {
        // Long after time zero, so that nothing is before it.
        let now = 10_000 * MS;
        let checker = KeyChecker::new(History::beginning_at(FIRST, true, now));
        let (visible, violations) = (vec![(now, FIRST, true)], Vec::new());
        Self { now: now + MS, checker, visible, views: [now; 3], token: None, violations, forgets }
    }

    fn play(&mut self, step: &SimulationStep) {
        match *step {
            SimulationStep::Write { present, takes, visible, pause } => {
                let (commit_sent, returned) = self.take(takes);
                self.write(present, commit_sent, WriteOutcome::Committed { returned_ns: returned });
                self.show(commit_sent + (returned - commit_sent) * visible / 100, present);
                self.now += pause * MS / 10;
            }
            SimulationStep::RequestError { present, happens, takes } => {
                let (commit_sent, returned) = self.take(takes);
                self.write(present, commit_sent, WriteOutcome::Unknown);
                if happens {
                    self.show(returned, present);
                }
            }
            SimulationStep::RolledBack => {
                let version = self.checker.history.stage(true, 1);
                self.checker.history.settle(version, WriteOutcome::RolledBack, None);
            }
            SimulationStep::Read { instance, takes, moment, lag, kind, pause } => {
                let (sent, received) = self.take(takes);
                let moment = sent + (received - sent) * moment / 100;
                self.read(instance, sent, received, moment, lag * MS / 10, kind);
                self.now += pause * MS / 10;
            }
            SimulationStep::Purge { instance } => {
                let (sent_ns, received_ns) = self.take(5);
                let view = &mut self.views[usize::from(instance)];
                *view = (*view).max(received_ns);
                self.checker.purge(Purge {
                    key: None,
                    origin: Origin::Instance(instance),
                    sent_ns,
                    received_ns,
                });
            }
        }
        if self.forgets {
            self.checker.prune_before(self.now, &TERMS);
        }
    }

    fn take(&mut self, tenths: u64) -> (Ns, Ns) {
        let commit_sent = self.now;
        self.now += tenths * MS / 10;
        (commit_sent, self.now - 1)
    }

    fn write(&mut self, present: bool, commit_sent: Ns, outcome: WriteOutcome) {
        let version = self.checker.history.stage(present, 1);
        self.checker.history.begin(version, commit_sent);
        self.checker.history.settle(version, outcome, None);
    }

    fn show(&mut self, from: Ns, present: bool) {
        let version = self.checker.history.last().version;
        self.visible.push((from, version, present));
    }

    /// Returns the visible state at a time.
    fn at(&self, moment: Ns) -> (u64, bool) {
        let (_, version, present) = self
            .visible
            .iter()
            .rev()
            .find(|(from, ..)| *from <= moment)
            .expect("since the beginning");
        (*version, *present)
    }

    fn read(&mut self, instance: u16, sent: Ns, received: Ns, moment: Ns, lag: Ns, kind: ReadKind) {
        let lag = if matches!(kind, ReadKind::NoCache) { 0 } else { lag.min(BOUND) };
        let oldest = match kind {
            ReadKind::Session => self.token.map_or(0, |(_, view)| view),
            _ => 0,
        };
        let view = &mut self.views[usize::from(instance)];
        // A read marked stale need not advance the instance's view.
        let wanted = if matches!(kind, ReadKind::Stale) {
            *view
        } else {
            (moment - lag).max(*view).max(oldest)
        };
        *view = wanted;
        let view = wanted;
        let (version, present) = self.at(view);
        let requirement = match (kind, self.token) {
            (ReadKind::NoCache, _) => Requirement::NoCache,
            (ReadKind::Session, Some((floor, _))) => {
                Requirement::Session { position: TOKEN, floor }
            }
            _ => Requirement::Any,
        };
        let outcome = if matches!(kind, ReadKind::Stale) { Outcome::Stale } else { Outcome::Miss };
        let seen = if present { Claim::Version(version) } else { Claim::Absent };
        if present {
            self.token = Some((version, view));
        }
        let observation =
            Observation { requirement, outcome, ..observation(instance, sent, received, seen) };
        self.check(&observation);
    }

    fn check(&mut self, observation: &Observation) {
        self.violations.extend(self.checker.check(observation, &TERMS).violations);
    }

    /// Commits three versions with rows, each after more than the bound; returns the newest.
    fn settle(&mut self) -> u64 {
        for _ in 0..3 {
            self.play(&SimulationStep::Write { present: true, takes: 5, visible: 50, pause: 0 });
            self.now += BOUND * 2;
        }
        self.checker.history.last().version
    }

    /// Makes an instance respond now.
    fn response(
        &mut self,
        instance: u16,
        seen: Claim,
        change: impl FnOnce(&mut Observation),
    ) -> Option<Rule> {
        let (sent, received) = self.take(5);
        let mut observation = observation(instance, sent, received, seen);
        change(&mut observation);
        self.violations.clear();
        self.check(&observation);
        self.violations.first().map(|violation| violation.rule)
    }
}

fn observation(instance: u16, sent_ns: Ns, received_ns: Ns, seen: Claim) -> Observation {
    Observation {
        key: 1,
        reader: 0,
        origin: Origin::Instance(instance),
        sent_ns,
        received_ns,
        form: Form::Get,
        requirement: Requirement::Any,
        seen,
        outcome: Outcome::Miss,
        age_s: None,
        position: None,
    }
}

proptest! {
    #[test]
    fn a_legal_history_passes(steps in steps()) {
        for forgets in [false, true] {
            let mut simulation = Simulation::new(forgets);
            steps.iter().for_each(|step| simulation.play(step));
            prop_assert_eq!(&simulation.violations, &[]);
        }
    }

    #[test]
    fn planted_violations_are_found_after_any_legal_history(
        steps in steps(),
        forgets in any::<bool>(),
    ) {
        let mut simulation = Simulation::new(forgets);
        steps.iter().for_each(|step| simulation.play(step));
        let newest = simulation.settle();
        let new = 7;
        let old = Claim::Version(newest - 1);
        prop_assert_eq!(simulation.response(new, old.clone(), |_| {}), Some(Rule::Fresh));
        let mark_stale = |o: &mut Observation| o.outcome = Outcome::Stale;
        prop_assert_eq!(simulation.response(new, old.clone(), mark_stale), None);
        prop_assert_eq!(simulation.response(new, Claim::Version(newest), |_| {}), None);
        let found = simulation.response(new, old.clone(), mark_stale);
        prop_assert_eq!(found, Some(Rule::Monotonic));
        let stale = |requirement| {
            move |o: &mut Observation| {
                o.outcome = Outcome::Stale;
                o.requirement = requirement;
            }
        };
        let found = simulation.response(new + 1, old.clone(), stale(Requirement::NoCache));
        prop_assert_eq!(found, Some(Rule::NoCache));
        let session = Requirement::Session { position: TOKEN, floor: newest };
        let found = simulation.response(new + 5, old.clone(), stale(Requirement::Strict));
        prop_assert_eq!(found, Some(Rule::Strict));
        let found = simulation.response(new + 2, old.clone(), stale(session));
        prop_assert_eq!(found, Some(Rule::Session));
        let own = Requirement::OwnWrite { position: TOKEN, floor: newest };
        let found = simulation.response(new + 3, old.clone(), stale(own));
        prop_assert_eq!(found, Some(Rule::OwnWrite));
        let found = simulation.response(new, Claim::Version(newest + 1), |_| {});
        prop_assert_eq!(found, Some(Rule::Committed));
        let found = simulation.response(new, Claim::Invalid("x".into()), |_| {});
        prop_assert_eq!(found, Some(Rule::Committed));
        prop_assert_eq!(simulation.response(new, Claim::Absent, |_| {}), Some(Rule::Monotonic));
        let (sent_ns, received_ns) = simulation.take(5);
        let origin = Origin::Instance(new + 4);
        simulation.checker.purge(Purge { key: None, origin, sent_ns, received_ns });
        let found = simulation.response(new + 4, old, stale(Requirement::Any));
        prop_assert_eq!(found, Some(Rule::Purged));
    }
}

#[test]
fn rolled_back_and_future_states_are_found() {
    let mut simulation = Simulation::new(false);
    let undone = simulation.checker.history.stage(true, 1);
    simulation.checker.history.settle(undone, WriteOutcome::RolledBack, None);
    assert_eq!(simulation.response(0, Claim::Version(undone), |_| {}), Some(Rule::Committed));
    // A dirty read: the response precedes COMMIT.
    let open = simulation.checker.history.stage(true, 2);
    assert_eq!(simulation.response(0, Claim::Version(open), |_| {}), Some(Rule::Committed));
    simulation.checker.history.begin(open, simulation.now);
    assert_eq!(simulation.response(0, Claim::Version(open), |_| {}), None);
    // A row that was never deleted.
    let mut simulation = Simulation::new(false);
    simulation.checker = KeyChecker {
        history: History::beginning_at(FIRST, true, simulation.now),
        ..KeyChecker::new(simulation.checker.history)
    };
    simulation.now += 2 * BOUND;
    assert_eq!(simulation.response(0, Claim::Absent, |_| {}), Some(Rule::Fresh));
}

#[test]
fn an_unknown_write_is_optional_until_it_was_seen() {
    let mut simulation = Simulation::new(false);
    simulation.play(&SimulationStep::RequestError { present: true, happens: true, takes: 5 });
    simulation.now += 100 * BOUND;
    assert_eq!(
        simulation.response(0, Claim::Version(FIRST), |_| {}),
        None,
        "it may not have happened"
    );
    assert_eq!(
        simulation.response(0, Claim::Version(FIRST + 1), |_| {}),
        None,
        "it may have happened just now"
    );
    assert_eq!(
        simulation.response(0, Claim::Version(FIRST), |_| {}),
        Some(Rule::Monotonic),
        "it did happen"
    );
    assert_eq!(
        simulation.response(1, Claim::Version(FIRST), |_| {}),
        None,
        "another instance may not know yet"
    );
    simulation.checker.history.settle(
        FIRST + 1,
        WriteOutcome::Committed { returned_ns: simulation.now },
        None,
    );
    simulation.now += 2 * BOUND;
    assert_eq!(
        simulation.response(1, Claim::Version(FIRST), |_| {}),
        Some(Rule::Fresh),
        "it was read back"
    );
}

#[test]
fn the_bound_is_exact_and_age_is_checked_to_half_a_second() {
    let lag_at = |sent_after: Ns, age_s| {
        let mut simulation = Simulation::new(false);
        simulation.play(&SimulationStep::Write { present: true, takes: 10, visible: 50, pause: 0 });
        let returned = simulation.checker.history.last().returned_ns().expect("committed");
        simulation.now = returned + sent_after;
        simulation
            .response(0, Claim::Version(FIRST), |o| (o.age_s, o.outcome) = (age_s, Outcome::Hit))
    };
    assert_eq!(lag_at(BOUND, None), None);
    assert_eq!(lag_at(BOUND + 1, None), Some(Rule::Fresh));
    let stale = |sent_after: Ns, age_s| {
        let mut simulation = Simulation::new(false);
        simulation.play(&SimulationStep::Write { present: true, takes: 10, visible: 50, pause: 0 });
        let returned = simulation.checker.history.last().returned_ns().expect("committed");
        simulation.now = returned + sent_after;
        simulation.response(0, Claim::Version(FIRST), |o| {
            (o.age_s, o.outcome) = (Some(age_s), Outcome::Stale)
        })
    };
    assert_eq!(stale(1499 * MS, 1), None);
    assert_eq!(stale(1501 * MS, 1), Some(Rule::Age));
    assert_eq!(stale(1501 * MS, 2), None);
}

#[test]
fn a_balancer_has_no_monotonic_order() {
    let mut simulation = Simulation::new(false);
    simulation.play(&SimulationStep::Write { present: true, takes: 10, visible: 50, pause: 0 });
    let balanced = |o: &mut Observation| o.origin = Origin::Balancer(0);
    assert_eq!(simulation.response(0, Claim::Version(FIRST + 1), balanced), None);
    assert_eq!(simulation.response(0, Claim::Version(FIRST), balanced), None);
    simulation.now += 2 * BOUND;
    assert_eq!(simulation.response(0, Claim::Version(FIRST), balanced), Some(Rule::Fresh));
}

#[test]
fn memory_is_bounded_in_long_runs() {
    let mut simulation = Simulation::new(true);
    for i in 0..20_000 {
        simulation.play(&SimulationStep::Write {
            present: i % 5 > 0,
            takes: 5,
            visible: 50,
            pause: 5,
        });
        let kind = if i % 50 == 0 { ReadKind::NoCache } else { ReadKind::Plain };
        simulation.play(&SimulationStep::Read {
            instance: i % 3,
            takes: 5,
            moment: 50,
            lag: 100,
            kind,
            pause: 5,
        });
        simulation.play(&SimulationStep::Purge { instance: i % 3 });
    }
    assert_eq!(simulation.violations, []);
    let per_second = 1000 / 2;
    let reach_s = (TERMS.copy_bound_ns() / SECOND + 3) as usize + 2;
    assert!(
        simulation.checker.history.iter().count() < per_second * reach_s,
        "{}",
        simulation.checker.history.iter().count()
    );
    let remembered: usize = simulation.checker.prior_responses.values().map(VecDeque::len).sum();
    assert!(remembered < 20 && simulation.checker.purges().count() < 20);
}

#[test]
fn a_late_submission_counts_for_later_responses() {
    let mut simulation = Simulation::new(false);
    for _ in 0..3 {
        simulation.play(&SimulationStep::Write { present: true, takes: 1, visible: 50, pause: 0 });
    }
    let (early, late) = (simulation.now, simulation.now + MS);
    let seen = |version| Claim::Version(FIRST + version);
    let mut check = |sent, received, version| {
        simulation
            .checker
            .check(&observation(0, sent, received, seen(version)), &TERMS)
            .violations
            .first()
            .map(|violation| violation.rule)
    };
    assert_eq!(check(late, late + 1, 1), None);
    assert_eq!(check(early, early + 1, 3), None, "received before, submitted after");
    assert_eq!(check(late + 2, late + 3, 2), Some(Rule::Monotonic));
    assert_eq!(check(early, late + 5, 2), None, "sent before the other was received");
}
