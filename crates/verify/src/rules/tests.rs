//! Legal histories pass; each planted violation is found and named.

use proptest::prelude::*;

use super::*;
use crate::history::Fate;
use crate::observation::{Form, Position};

const MS: Ns = 1_000_000;
const BOUND: Ns = 50 * MS;
const TERMS: Terms = Terms { max_staleness_ns: BOUND };
const FIRST: u64 = 1000;
const TOKEN: Position = Position { log: 1, at: 1 };

/// One step of a simulated key. Times are in tenths of a millisecond.
#[derive(Clone, Debug)]
enum Step {
    /// A commit that takes some time and is visible from a moment within it.
    Write { present: bool, takes: u64, visible: u64, pause: u64 },
    /// A commit whose answer is lost; it happens or not.
    Lost { present: bool, happens: bool, takes: u64 },
    /// A transaction that is rolled back.
    RolledBack,
    /// A read, which shows the state of a moment while it lasts, or an older one that its instance still may show.
    Read { instance: u16, takes: u64, moment: u64, lag: u64, kind: Kind, pause: u64 },
    /// A purge.
    Purge { instance: u16 },
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Plain,
    NoCache,
    Session,
    Stale,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let tenth = || 1_u64..30;
    let kind = prop_oneof![
        4 => Just(Kind::Plain), 1 => Just(Kind::NoCache), 1 => Just(Kind::Session), 1 => Just(Kind::Stale)
    ];
    let step = prop_oneof![
        4 => (any::<bool>(), tenth(), 0..=100_u64, 0..200_u64)
            .prop_map(|(present, takes, visible, pause)| Step::Write { present, takes, visible, pause }),
        1 => (any::<bool>(), any::<bool>(), tenth())
            .prop_map(|(present, happens, takes)| Step::Lost { present, happens, takes }),
        1 => Just(Step::RolledBack),
        10 => (0..3_u16, tenth(), 0..=100_u64, 0..500_u64, kind, 0..40_u64).prop_map(
            |(instance, takes, moment, lag, kind, pause)| Step::Read { instance, takes, moment, lag, kind, pause }
        ),
        1 => (0..3_u16).prop_map(|instance| Step::Purge { instance }),
    ];
    prop::collection::vec(step, 1..60)
}

/// A simulated service and its database.
struct World {
    now: Ns,
    judge: KeyJudge,
    /// Versions with the moment from which they are visible, and whether there is a row.
    visible: Vec<(Ns, u64, bool)>,
    /// Per instance, the moment whose state it may still show at the oldest.
    views: [Ns; 3],
    /// The version that the newest answer showed, and the view that it came from.
    token: Option<(u64, Ns)>,
    /// What the judge said.
    violations: Vec<Violation>,
    forgets: bool,
}

impl World {
    fn new(forgets: bool) -> Self {
        // Long after the beginning of time, so that nothing is before it.
        let now = 10_000 * MS;
        let judge = KeyJudge::new(History::beginning_at(FIRST, true, now));
        let (visible, violations) = (vec![(now, FIRST, true)], Vec::new());
        Self { now: now + MS, judge, visible, views: [now; 3], token: None, violations, forgets }
    }

    fn play(&mut self, step: &Step) {
        match *step {
            Step::Write { present, takes, visible, pause } => {
                let (begun, returned) = self.take(takes);
                self.write(present, begun, Fate::Committed { returned_ns: returned });
                self.show(begun + (returned - begun) * visible / 100, present);
                self.now += pause * MS / 10;
            }
            Step::Lost { present, happens, takes } => {
                let (begun, returned) = self.take(takes);
                self.write(present, begun, Fate::Unknown);
                if happens {
                    self.show(returned, present);
                }
            }
            Step::RolledBack => {
                let version = self.judge.history.stage(true, 1);
                self.judge.history.settle(version, Fate::Undone, None);
            }
            Step::Read { instance, takes, moment, lag, kind, pause } => {
                let (sent, received) = self.take(takes);
                let moment = sent + (received - sent) * moment / 100;
                self.read(instance, sent, received, moment, lag * MS / 10, kind);
                self.now += pause * MS / 10;
            }
            Step::Purge { instance } => {
                let (sent_ns, received_ns) = self.take(5);
                let view = &mut self.views[usize::from(instance)];
                *view = (*view).max(received_ns);
                self.judge.purge(Purge { origin: Origin::Instance(instance), sent_ns, received_ns });
            }
        }
        if self.forgets {
            self.judge.forget_before(self.now, &TERMS);
        }
    }

    fn take(&mut self, tenths: u64) -> (Ns, Ns) {
        let begun = self.now;
        self.now += tenths * MS / 10;
        (begun, self.now - 1)
    }

    fn write(&mut self, present: bool, begun: Ns, fate: Fate) {
        let version = self.judge.history.stage(present, 1);
        self.judge.history.begin(version, begun);
        self.judge.history.settle(version, fate, None);
    }

    fn show(&mut self, from: Ns, present: bool) {
        let version = self.judge.history.last().version;
        self.visible.push((from, version, present));
    }

    /// What was visible then.
    fn at(&self, moment: Ns) -> (u64, bool) {
        let (_, version, present) =
            self.visible.iter().rev().find(|(from, ..)| *from <= moment).expect("since the beginning");
        (*version, *present)
    }

    fn read(&mut self, instance: u16, sent: Ns, received: Ns, moment: Ns, lag: Ns, kind: Kind) {
        let lag = if matches!(kind, Kind::NoCache) { 0 } else { lag.min(BOUND) };
        let oldest = match kind {
            Kind::Session => self.token.map_or(0, |(_, view)| view),
            _ => 0,
        };
        let view = &mut self.views[usize::from(instance)];
        // A read that is marked stale need not move the instance's view on.
        let wanted = if matches!(kind, Kind::Stale) { *view } else { (moment - lag).max(*view).max(oldest) };
        *view = wanted;
        let view = wanted;
        let (version, present) = self.at(view);
        let wish = match (kind, self.token) {
            (Kind::NoCache, _) => Wish::NoCache,
            (Kind::Session, Some((floor, _))) => Wish::Session { position: TOKEN, floor },
            _ => Wish::Any,
        };
        let outcome = if matches!(kind, Kind::Stale) { Outcome::Stale } else { Outcome::Miss };
        let seen = if present { Seen::Version(version) } else { Seen::Absent };
        if present {
            self.token = Some((version, view));
        }
        let observation = Observation { wish, outcome, ..observation(instance, sent, received, seen) };
        self.judge(&observation);
    }

    fn judge(&mut self, observation: &Observation) {
        self.violations.extend(self.judge.judge(observation, &TERMS).violation);
    }

    /// Three versions with rows, each committed after more than the bound; gives the newest.
    fn settle(&mut self) -> u64 {
        for _ in 0..3 {
            self.play(&Step::Write { present: true, takes: 5, visible: 50, pause: 0 });
            self.now += BOUND * 2;
        }
        self.judge.history.last().version
    }

    /// Lets an instance answer this, now.
    fn answer(&mut self, instance: u16, seen: Seen, change: impl FnOnce(&mut Observation)) -> Option<Rule> {
        let (sent, received) = self.take(5);
        let mut observation = observation(instance, sent, received, seen);
        change(&mut observation);
        self.violations.clear();
        self.judge(&observation);
        self.violations.first().map(|violation| violation.rule)
    }
}

fn observation(instance: u16, sent_ns: Ns, received_ns: Ns, seen: Seen) -> Observation {
    Observation {
        key: 1,
        reader: 0,
        origin: Origin::Instance(instance),
        sent_ns,
        received_ns,
        form: Form::Get,
        wish: Wish::Any,
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
            let mut world = World::new(forgets);
            steps.iter().for_each(|step| world.play(step));
            prop_assert_eq!(&world.violations, &[]);
        }
    }

    #[test]
    fn planted_violations_are_found_after_any_legal_history(steps in steps(), forgets in any::<bool>()) {
        let mut world = World::new(forgets);
        steps.iter().for_each(|step| world.play(step));
        let newest = world.settle();
        let new = 7;
        let old = Seen::Version(newest - 1);
        prop_assert_eq!(world.answer(new, old.clone(), |_| {}), Some(Rule::Fresh));
        prop_assert_eq!(world.answer(new, old.clone(), |o| o.outcome = Outcome::Stale), None);
        prop_assert_eq!(world.answer(new, Seen::Version(newest), |_| {}), None);
        prop_assert_eq!(world.answer(new, old.clone(), |o| o.outcome = Outcome::Stale), Some(Rule::Monotonic));
        let stale = |wish| move |o: &mut Observation| (o.outcome, o.wish) = (Outcome::Stale, wish);
        prop_assert_eq!(world.answer(new + 1, old.clone(), stale(Wish::NoCache)), Some(Rule::NoCache));
        let session = Wish::Session { position: TOKEN, floor: newest };
        prop_assert_eq!(world.answer(new + 2, old.clone(), stale(session)), Some(Rule::Session));
        let own = Wish::OwnWrite { position: TOKEN, floor: newest };
        prop_assert_eq!(world.answer(new + 3, old.clone(), stale(own)), Some(Rule::OwnWrite));
        prop_assert_eq!(world.answer(new, Seen::Version(newest + 1), |_| {}), Some(Rule::Committed));
        prop_assert_eq!(world.answer(new, Seen::Invented("x".into()), |_| {}), Some(Rule::Committed));
        prop_assert_eq!(world.answer(new, Seen::Absent, |_| {}), Some(Rule::Monotonic));
        let (sent_ns, received_ns) = world.take(5);
        world.judge.purge(Purge { origin: Origin::Instance(new + 4), sent_ns, received_ns });
        prop_assert_eq!(world.answer(new + 4, old, stale(Wish::Any)), Some(Rule::Purged));
    }
}

#[test]
fn what_was_rolled_back_or_is_still_to_come_is_found() {
    let mut world = World::new(false);
    let undone = world.judge.history.stage(true, 1);
    world.judge.history.settle(undone, Fate::Undone, None);
    assert_eq!(world.answer(0, Seen::Version(undone), |_| {}), Some(Rule::Committed));
    // A dirty read: the answer comes before COMMIT is sent.
    let open = world.judge.history.stage(true, 2);
    assert_eq!(world.answer(0, Seen::Version(open), |_| {}), Some(Rule::Committed));
    world.judge.history.begin(open, world.now);
    assert_eq!(world.answer(0, Seen::Version(open), |_| {}), None);
    // A row that was never deleted.
    let mut world = World::new(false);
    world.judge =
        KeyJudge { history: History::beginning_at(FIRST, true, world.now), ..KeyJudge::new(world.judge.history) };
    world.now += 2 * BOUND;
    assert_eq!(world.answer(0, Seen::Absent, |_| {}), Some(Rule::Fresh));
}

#[test]
fn an_unknown_write_may_be_seen_and_need_not_be_until_it_was() {
    let mut world = World::new(false);
    world.play(&Step::Lost { present: true, happens: true, takes: 5 });
    world.now += 100 * BOUND;
    assert_eq!(world.answer(0, Seen::Version(FIRST), |_| {}), None, "it may not have happened");
    assert_eq!(world.answer(0, Seen::Version(FIRST + 1), |_| {}), None, "it may have happened just now");
    assert_eq!(world.answer(0, Seen::Version(FIRST), |_| {}), Some(Rule::Monotonic), "it did happen");
    assert_eq!(world.answer(1, Seen::Version(FIRST), |_| {}), None, "another instance may not know yet");
    world.judge.history.settle(FIRST + 1, Fate::Committed { returned_ns: world.now }, None);
    world.now += 2 * BOUND;
    assert_eq!(world.answer(1, Seen::Version(FIRST), |_| {}), Some(Rule::Fresh), "it was read back");
}

#[test]
fn the_bound_is_exact_and_age_is_held_to_half_a_second() {
    let lag_at = |sent_after: Ns, age_s| {
        let mut world = World::new(false);
        world.play(&Step::Write { present: true, takes: 10, visible: 50, pause: 0 });
        let returned = world.judge.history.last().returned_ns().expect("committed");
        world.now = returned + sent_after;
        world.answer(0, Seen::Version(FIRST), |o| (o.age_s, o.outcome) = (age_s, Outcome::Hit))
    };
    assert_eq!(lag_at(BOUND, None), None);
    assert_eq!(lag_at(BOUND + 1, None), Some(Rule::Fresh));
    let stale = |sent_after: Ns, age_s| {
        let mut world = World::new(false);
        world.play(&Step::Write { present: true, takes: 10, visible: 50, pause: 0 });
        let returned = world.judge.history.last().returned_ns().expect("committed");
        world.now = returned + sent_after;
        world.answer(0, Seen::Version(FIRST), |o| (o.age_s, o.outcome) = (Some(age_s), Outcome::Stale))
    };
    assert_eq!(stale(1499 * MS, 1), None);
    assert_eq!(stale(1501 * MS, 1), Some(Rule::Age));
    assert_eq!(stale(1501 * MS, 2), None);
}

#[test]
fn a_balancer_owes_no_order() {
    let mut world = World::new(false);
    world.play(&Step::Write { present: true, takes: 10, visible: 50, pause: 0 });
    let balanced = |o: &mut Observation| o.origin = Origin::Balancer(0);
    assert_eq!(world.answer(0, Seen::Version(FIRST + 1), balanced), None);
    assert_eq!(world.answer(0, Seen::Version(FIRST), balanced), None);
    world.now += 2 * BOUND;
    assert_eq!(world.answer(0, Seen::Version(FIRST), balanced), Some(Rule::Fresh));
}

#[test]
fn memory_stays_bounded_however_long_the_run() {
    let mut world = World::new(true);
    for i in 0..20_000 {
        world.play(&Step::Write { present: i % 5 > 0, takes: 5, visible: 50, pause: 5 });
        let kind = if i % 50 == 0 { Kind::NoCache } else { Kind::Plain };
        world.play(&Step::Read { instance: i % 3, takes: 5, moment: 50, lag: 100, kind, pause: 5 });
        world.play(&Step::Purge { instance: i % 3 });
    }
    assert_eq!(world.violations, []);
    let per_second = 1000 / 2;
    let reach_s = (BOUND / SECOND + 3) as usize + 1;
    assert!(world.judge.history.iter().count() < per_second * reach_s, "{}", world.judge.history.iter().count());
    let remembered: usize = world.judge.answered.values().map(VecDeque::len).sum();
    assert!(remembered < 20 && world.judge.purges().count() < 20);
}

#[test]
fn an_answer_that_is_handed_in_late_still_counts_for_later_ones() {
    let mut world = World::new(false);
    for _ in 0..3 {
        world.play(&Step::Write { present: true, takes: 1, visible: 50, pause: 0 });
    }
    let (early, late) = (world.now, world.now + MS);
    let seen = |version| Seen::Version(FIRST + version);
    let mut judge = |sent, received, version| {
        world.judge.judge(&observation(0, sent, received, seen(version)), &TERMS).violation.map(|v| v.rule)
    };
    assert_eq!(judge(late, late + 1, 1), None);
    assert_eq!(judge(early, early + 1, 3), None, "received before, handed in after");
    assert_eq!(judge(late + 2, late + 3, 2), Some(Rule::Monotonic));
    assert_eq!(judge(early, late + 5, 2), None, "sent before the other was received");
}
