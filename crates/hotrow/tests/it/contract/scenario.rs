//! Scenarios of a single key: no other reads or writes, so that the first wrong answer shows a
//! fault.

use std::time::Duration;

use crate::contract::ask::ReadRequest;
use crate::contract::board::Instance;
use crate::contract::networked::Networked;
use crate::contract::reader::{ReadProfile, Reader};
use crate::contract::rows::Sizes;
use crate::contract::run::{Plan, Trial};
use crate::contract::writer::WriteProfile;
use hotrow_testkit::harness::{Config, SOON, await_until};
use hotrow_verify::observation::Claim;
use hotrow_verify::rules::Rule;

/// Staleness bound: short, so that a scenario soon shows a stale entry.
pub(crate) const BOUND: Duration = Duration::from_millis(400);
/// Margin past the bound at which an answer must reflect a change.
pub(crate) const BEYOND: Duration = Duration::from_millis(100);

/// Attempts of a scenario without its safeguard until a violation is found.
#[cfg(feature = "failpoints")]
const TRIES: usize = 5;

/// The key under test.
pub(crate) const KEY: u32 = 1;
/// Another key, for warm-up.
pub(crate) const OTHER: u32 = 2;

/// A run in which all keys are reserved.
pub(crate) struct Scenario<E: Networked> {
    pub(crate) run: Trial<E>,
    pub(crate) instance: Instance,
    pub(crate) reader: Reader,
}

/// Result of a scenario.
#[derive(Debug)]
pub(crate) enum ScenarioOutcome {
    /// All rules held.
    Clean,
    /// The first broken rule and its explanation.
    Broken(Rule, String),
}

impl<E: Networked> Scenario<E> {
    /// Starts the service and reads every key once, so that it is cached and the reader is
    /// connected.
    pub(crate) fn start(environment: &[(&str, &str)]) -> Self {
        Self::over(stage(), environment)
    }

    /// Like [`Self::start`], over a database that is there.
    pub(crate) fn over(mut run: Trial<E>, environment: &[(&str, &str)]) -> Self {
        let config = config(&run);
        let instance = run.serve(&config, environment);
        run.start_writers();
        let mut reader = run.reader(ReadProfile::plain());
        for key in run.reserved_keys() {
            assert_eq!(reader.get(instance, key).seen, first(key));
        }
        Self { run, instance, reader }
    }

    /// Commits a change of the key and waits until the feed has delivered it.
    #[track_caller]
    pub(crate) fn change_and_deliver(&mut self, key: u32) {
        let before = self.delivered();
        self.run.change(key);
        self.await_delivery(before);
    }

    /// Waits until the feed has delivered more than `before` changes.
    #[track_caller]
    pub(crate) fn await_delivery(&self, before: f64) {
        await_until("the change to be delivered", SOON, || self.delivered() > before);
    }

    /// Returns the number of changes that the feed has delivered.
    pub(crate) fn delivered(&self) -> f64 {
        self.run.server(self.instance).metrics().sum("hotrow_invalidations_total", &[])
    }

    /// Sends a read of the key, which the database executes while its answer is held.
    #[track_caller]
    pub(crate) fn begin_held_read(&mut self, reader: &mut Reader, key: u32) -> u64 {
        self.run.database.hold_next_read();
        let sent_ns = reader.send(self.instance, &[read(key)]);
        await_until("the row to be read", SOON, || self.run.database.holds_a_read());
        sent_ns
    }

    /// Releases the held answer and records it.
    pub(crate) fn end_held_read(&mut self, reader: &mut Reader, key: u32, sent_ns: u64) {
        self.run.database.clear_faults();
        reader.receive(self.instance, &[read(key)], sent_ns);
    }

    /// Reads the key and returns the result.
    pub(crate) fn get(&mut self, key: u32) -> Claim {
        self.reader.get(self.instance, key).seen.clone()
    }

    /// Repeats `step` for this time, at least once.
    #[track_caller]
    pub(crate) fn repeat_for(&mut self, time: Duration, mut step: impl FnMut(&mut Self)) {
        let due = self.run.board.now() + time.as_nanos() as u64;
        await_until("time to pass", SOON, || {
            step(self);
            self.run.board.now() > due
        });
    }

    /// Lets the bound pass, reads both keys a few times, and judges all observations.
    pub(crate) fn end(mut self, more: Vec<Reader>) -> ScenarioOutcome {
        self.run.pass(BOUND + BEYOND);
        for _ in 0..5 {
            self.get(KEY);
            self.get(OTHER);
        }
        self.judge(more)
    }

    /// Judges all observations.
    pub(crate) fn judge(mut self, more: Vec<Reader>) -> ScenarioOutcome {
        self.run.stop_writers();
        let readers = more.into_iter().chain([self.reader]);
        let run = &mut self.run;
        readers.for_each(|reader| run.observations.extend(reader.into_seen()));
        match run.check(&run.terms()).violations.first() {
            None => ScenarioOutcome::Clean,
            Some(first) => ScenarioOutcome::Broken(first.rule, run.explain(first)),
        }
    }
}

/// Creates the database of a scenario.
pub(crate) fn stage<E: Networked>() -> Trial<E> {
    let keys = 6;
    let write_profile = WriteProfile { deletes: 0, ..WriteProfile::default() };
    Trial::networked(Plan {
        keys,
        reserved: keys,
        writers: 0,
        sizes: Sizes { from: 50, to: 90 },
        write_profile,
        max_staleness: BOUND,
        ..Plan::default()
    })
}

/// Returns its configuration: reads may be held for a whole scenario.
pub(crate) fn config<E: Networked>(run: &Trial<E>) -> Config {
    E::scenario_config(run.config())
        .set("source.read_timeout", "\"20s\"")
        .set("limits.request_timeout", "\"20s\"")
}

/// A plain read.
pub(crate) fn read(key: u32) -> ReadRequest {
    ReadRequest::plain(key)
}

/// Returns the state of a key before its first change.
pub(crate) fn first(key: u32) -> Claim {
    if Plan::has_first_row(key) { Claim::Version(0) } else { Claim::Absent }
}

#[track_caller]
pub(crate) fn assert_clean(ended: ScenarioOutcome) {
    if let ScenarioOutcome::Broken(rule, explanation) = ended {
        panic!("{rule:?} broken although the safeguard is in place\n{explanation}");
    }
}

/// Asserts that a scenario without its safeguard breaks this rule. On a machine so busy that probes
/// take longer than the bound, the service reads the database instead; then the scenario is
/// repeated.
#[cfg(feature = "failpoints")]
#[track_caller]
pub(crate) fn assert_broken(scenario: impl Fn() -> ScenarioOutcome, rule: Rule) {
    for _ in 0..TRIES {
        if let ScenarioOutcome::Broken(broken, explanation) = scenario() {
            assert_eq!(broken, rule, "{explanation}");
            println!("found:\n{explanation}");
            return;
        }
    }
    panic!("nothing found in {TRIES} tries, so either the failpoint or the scenario is too weak");
}
