use proptest::prelude::*;

use super::*;

const MS: u64 = 1_000_000;

fn config() -> Config {
    Config {
        failures: 5,
        window: Duration::from_secs(10),
        failure_rate: 0.5,
        calls_min: 20,
        open_for: Duration::from_secs(1),
        open_for_max: Duration::from_secs(8),
        probes: 3,
    }
}

/// Makes one call that ends at once.
fn call(breaker: &mut Breaker, outcome: Outcome, now: Nanos) -> Option<Transition> {
    let (asked, first) = breaker.ask(now);
    first.or(breaker.record(asked.expect("let through"), outcome, now, 0))
}

/// Fails until the breaker opens, which must be by consecutive failures.
fn opened(breaker: &mut Breaker, now: Nanos) {
    for _ in 0..4 {
        assert_eq!(call(breaker, Outcome::Failure, now), None);
    }
    let open_for = Duration::from_secs(1);
    let cause = Cause::FailuresInARow(5, open_for);
    let expected = Transition { from: State::Closed, to: State::Open, cause };
    assert_eq!(call(breaker, Outcome::Failure, now), Some(expected));
}

#[test]
fn failures_in_a_row_open_it_and_a_success_between_does_not() {
    let mut breaker = Breaker::new(config());
    for _ in 0..4 {
        assert_eq!(call(&mut breaker, Outcome::Failure, Nanos(MS)), None);
    }
    assert_eq!(call(&mut breaker, Outcome::Success, Nanos(MS)), None);
    assert_eq!(call(&mut breaker, Outcome::Neutral, Nanos(MS)), None);
    opened(&mut breaker, Nanos(MS));
    let (refused, _) = breaker.ask(Nanos(501 * MS));
    assert_eq!(refused.expect_err("open"), Refused { retry_after: Duration::from_millis(500) });
    assert_eq!(
        (breaker.state(Nanos(501 * MS)), breaker.refuses_until()),
        (State::Open, Nanos(1001 * MS))
    );
}

#[test]
fn a_share_of_failures_opens_it_after_enough_calls() {
    let mut breaker = Breaker::new(config());
    let mut calls = 0;
    let transition = loop {
        // Two of three fail: never five in a row.
        let outcome = if calls % 3 == 2 { Outcome::Success } else { Outcome::Failure };
        calls += 1;
        if let Some(transition) = call(&mut breaker, outcome, Nanos(MS)) {
            break transition;
        }
    };
    assert_eq!(calls, 20);
    let open_for = Duration::from_secs(1);
    assert_eq!(transition.cause, Cause::FailureRate { failures: 14, calls: 20, open_for });
}

#[test]
fn successful_probes_close_it_and_no_other_calls_pass() {
    let mut breaker = Breaker::new(config());
    opened(&mut breaker, Nanos(MS));
    let due = Nanos(1001 * MS);
    assert_eq!(breaker.state(due), State::HalfOpen, "the next call is let through");
    let (first, transition) = breaker.ask(due);
    assert_eq!(
        transition,
        Some(Transition { from: State::Open, to: State::HalfOpen, cause: Cause::TimeOver })
    );
    let mut probes = vec![first.expect("a probe")];
    probes.extend((1..3).map(|_| breaker.ask(due).0.expect("a probe")));
    assert_eq!(
        breaker.ask(due).0.expect_err("all are under way"),
        Refused { retry_after: Duration::ZERO }
    );
    assert_eq!(breaker.refuses_until(), Nanos::MAX);
    // One is cancelled: another may take its place.
    let cancelled = probes.pop().expect("three");
    assert_eq!(breaker.record(cancelled, Outcome::Neutral, due, 0), None);
    probes.push(breaker.ask(due).0.expect("a probe"));
    let recorded: Vec<_> =
        probes.into_iter().map(|p| breaker.record(p, Outcome::Success, due, 0)).collect();
    let closed =
        Transition { from: State::HalfOpen, to: State::Closed, cause: Cause::ProbesSucceeded(3) };
    assert_eq!(recorded, [None, None, Some(closed)]);
    assert_eq!((breaker.state(due), breaker.refuses_until()), (State::Closed, Nanos::ZERO));
}

#[test]
fn each_failed_probe_doubles_the_pause_up_to_its_bound_and_closing_forgets_it() {
    let mut breaker = Breaker::new(config());
    let mut now = Nanos(MS);
    opened(&mut breaker, now);
    for pause_s in [2, 4, 8, 8, 8] {
        now = breaker.refuses_until();
        let (probe, _) = breaker.ask(now);
        let recorded = breaker.record(probe.expect("a probe"), Outcome::Failure, now, 0);
        let cause = Cause::ProbeFailed(Duration::from_secs(pause_s));
        assert_eq!(recorded, Some(Transition { from: State::HalfOpen, to: State::Open, cause }));
    }
    now = breaker.refuses_until();
    assert_eq!(call(&mut breaker, Outcome::Success, now).map(|t| t.to), Some(State::HalfOpen));
    (0..2).for_each(|_| _ = call(&mut breaker, Outcome::Success, now));
    assert_eq!(breaker.state(now), State::Closed);
    opened(&mut breaker, now);
}

#[test]
fn calls_from_before_the_opening_do_not_count_as_probes() {
    let mut breaker = Breaker::new(config());
    let slow = breaker.ask(Nanos(MS)).0.expect("closed");
    let good = breaker.ask(Nanos(MS)).0.expect("closed");
    opened(&mut breaker, Nanos(MS));
    let due = breaker.refuses_until();
    let probe = breaker.ask(due).0.expect("a probe");
    assert_eq!(breaker.record(slow, Outcome::Failure, due, 0), None);
    assert_eq!(breaker.record(good, Outcome::Success, due, 0), None);
    assert_eq!(breaker.record(probe, Outcome::Success, due, 0), None, "the first success of three");
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Wait(u64),
    Ask,
    Record(usize, Outcome, u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let outcome = prop_oneof![
        2 => Just(Outcome::Success),
        5 => Just(Outcome::Failure),
        1 => Just(Outcome::Neutral),
    ];
    let step = prop_oneof![
        1 => (0_u64..3000).prop_map(Step::Wait),
        6 => Just(Step::Ask),
        5 => (any::<usize>(), outcome, any::<u64>()).prop_map(|(i, o, r)| Step::Record(i, o, r)),
    ];
    prop::collection::vec(step, 0..400)
}

/// Model of the breaker's behaviour, run beside it.
struct Witness {
    breaker: Breaker,
    now: Nanos,
    state: State,
    /// Calls in flight with the count of transitions when they passed.
    calls: Vec<(Ticket, u64)>,
    transitions: u64,
    opened_at: Nanos,
    /// Calls and failures recorded since it closed.
    recorded: (u32, u32),
}

impl Witness {
    fn new() -> Self {
        let breaker = Breaker::new(config());
        let calls = Vec::new();
        let now = Nanos(MS);
        Self {
            breaker,
            now,
            state: State::Closed,
            calls,
            transitions: 0,
            opened_at: now,
            recorded: (0, 0),
        }
    }

    fn take(&mut self, transition: Option<Transition>) {
        let Some(Transition { from, to, cause }) = transition else { return };
        assert_eq!(from, self.state, "transitions form a chain");
        assert_ne!(from, to);
        match (cause, to) {
            (Cause::FailuresInARow(n, _), State::Open) => assert!(n >= 5 && self.recorded.1 >= 5),
            (Cause::FailureRate { failures, calls, .. }, State::Open) => {
                assert!(
                    calls >= 20
                        && calls <= self.recorded.0
                        && failures * 2 >= calls
                        && failures <= self.recorded.1
                );
            }
            (Cause::ProbeFailed(pause), State::Open) => {
                assert!(pause >= Duration::from_millis(500) && pause <= Duration::from_secs(8));
            }
            (Cause::TimeOver, State::HalfOpen) | (Cause::ProbesSucceeded(3), State::Closed) => {}
            wrong => panic!("{wrong:?}"),
        }
        self.state = to;
        self.transitions += 1;
        self.recorded = (0, 0);
        self.opened_at = self.now;
    }

    fn ask(&mut self) {
        let (asked, transition) = self.breaker.ask(self.now);
        self.take(transition);
        let granted = asked.is_ok();
        asked.into_iter().for_each(|ticket| self.calls.push((ticket, self.transitions)));
        match self.state {
            State::Closed => assert!(granted),
            State::Open => {
                assert!(!granted && self.now.since(self.opened_at) < Duration::from_secs(8))
            }
            State::HalfOpen => {
                let probes = self.calls.iter().filter(|(_, at)| *at == self.transitions).count();
                assert!(probes <= 3, "{probes} probes under way");
                assert!(granted || self.breaker.refuses_until() == Nanos::MAX);
            }
        }
        assert_eq!(
            self.state,
            self.breaker.state(self.now),
            "after a call is requested, nothing is overdue"
        );
    }

    fn record(&mut self, index: usize, outcome: Outcome, random: u64) {
        if self.calls.is_empty() {
            return;
        }
        let (ticket, at) = self.calls.swap_remove(index % self.calls.len());
        if at == self.transitions && outcome != Outcome::Neutral {
            self.recorded.0 += 1;
            self.recorded.1 += u32::from(outcome == Outcome::Failure);
        }
        let transition = self.breaker.record(ticket, outcome, self.now, random);
        self.take(transition);
    }
}

proptest! {
    #[test]
    fn the_rules_hold_in_any_sequence_and_a_healthy_database_closes_the_breaker(steps in steps()) {
        let mut witness = Witness::new();
        for step in steps {
            match step {
                Step::Wait(ms) => witness.now = witness.now.after(Duration::from_millis(ms)),
                Step::Ask => witness.ask(),
                Step::Record(index, outcome, random) => witness.record(index, outcome, random),
            }
        }
        // From now on the database works, and every call in flight is cancelled.
        while !witness.calls.is_empty() {
            witness.record(0, Outcome::Neutral, 0);
        }
        witness.now = witness.now.after(config().open_for_max);
        for _ in 0..3 {
            witness.ask();
            prop_assert!(!witness.calls.is_empty(), "let through");
            witness.record(0, Outcome::Success, 0);
        }
        prop_assert_eq!(witness.breaker.state(witness.now), State::Closed);
    }

    #[test]
    fn the_pause_is_between_half_and_all_of_its_setting(random: u64, openings in 0_u32..100) {
        let mut breaker = Breaker::new(config());
        breaker.openings = openings;
        let most = Duration::from_secs(1 << openings.min(3));
        let pause = breaker.pause(random);
        prop_assert!(pause <= most && pause >= most / 2, "{:?}", pause);
    }
}
