//! Tests of a single key: no other reads or writes, so that the first wrong answer shows a fault.

use std::time::Duration;

use super::standin::{Failure, Standin, Trouble};
use super::{Mongo, MongoRun};
use crate::contract::board::Instance;
use crate::contract::engine::Engine as _;
use crate::contract::explain::explain;
use crate::contract::observation::Seen;
use crate::contract::reader::{ReadProfile, Reader};
use crate::contract::rows::Sizes;
use crate::contract::rules::{Rule, check};
use crate::contract::run::{Plan, Trial};
use crate::contract::writer::WriteProfile;
use hotrow_testkit::harness::{SOON, await_until};

/// Staleness bound: short, so that a scenario soon shows a stale entry.
pub(super) const BOUND: Duration = Duration::from_millis(400);
/// Margin past the bound at which an answer must reflect a change.
pub(super) const BEYOND: Duration = Duration::from_millis(100);

/// Attempts of a scenario without its safeguard until a violation is found.
#[cfg(feature = "failpoints")]
const TRIES: usize = 5;

/// The key under test.
pub(super) const KEY: u32 = 1;
/// Another key, for warm-up.
pub(super) const OTHER: u32 = 2;

/// A run in which all keys are reserved.
pub(super) struct Scenario {
    pub(super) run: MongoRun,
    pub(super) instance: Instance,
    pub(super) reader: Reader,
}

/// Result of a scenario.
#[derive(Debug)]
pub(super) enum ScenarioOutcome {
    /// All rules held.
    Clean,
    /// The first broken rule and its explanation.
    Broken(Rule, String),
}

impl Scenario {
    /// Starts the service and reads every key once, so that it is cached and the reader is
    /// connected.
    pub(super) fn start(environment: &[(&str, &str)]) -> Self {
        let mut run = stage();
        let config = config(&run);
        let instance = run.serve(&config, environment);
        run.start_writers();
        let mut reader = run.reader(ReadProfile::plain());
        for key in run.reserved_keys() {
            assert_eq!(reader.get(instance, key).seen, first(key));
        }
        Self { run, instance, reader }
    }

    /// Returns the stand-in, which has the switches.
    pub(super) fn standin(&self) -> &Standin {
        self.run.database.standin()
    }

    /// Commits a change of the key and waits until the feed has delivered it.
    #[track_caller]
    pub(super) fn change_and_deliver(&mut self, key: u32) {
        let before = self.delivered();
        self.run.change(key);
        self.await_delivery(before);
    }

    /// Waits until the feed has delivered more than `before` changes.
    #[track_caller]
    pub(super) fn await_delivery(&self, before: f64) {
        await_until("the change to be delivered", SOON, || self.delivered() > before);
    }

    /// Returns the number of changes that the feed has delivered.
    pub(super) fn delivered(&self) -> f64 {
        self.run.server(self.instance).metrics().sum("hotrow_invalidations_total", &[])
    }

    /// Sends a read of the key, which is executed while its answer is held back.
    #[track_caller]
    pub(super) fn begin_held_read(&mut self, reader: &mut Reader, key: u32) -> u64 {
        // Only this one, because writers read too.
        self.standin().trouble_times("find", Trouble::Hold, Some(1));
        let sent_ns = reader.send(self.instance, &[read(key)]);
        await_until("the document to be read", SOON, || self.standin().held("find") > 0);
        sent_ns
    }

    /// Releases the held answer and records it.
    pub(super) fn end_held_read(&mut self, reader: &mut Reader, key: u32, sent_ns: u64) {
        self.standin().calm("find");
        reader.receive(self.instance, &[read(key)], sent_ns);
    }

    /// Cuts the feed's stream until [`Self::give_stream`].
    pub(super) fn take_stream(&self) {
        take_stream(self.standin());
    }

    pub(super) fn give_stream(&self) {
        give_stream(self.standin());
    }

    /// Reads the key and returns the result.
    pub(super) fn get(&mut self, key: u32) -> Seen {
        self.reader.get(self.instance, key).seen.clone()
    }

    /// Lets the bound pass, reads the key a few times, and judges all observations.
    pub(super) fn end(mut self, key: u32, more: Vec<Reader>) -> ScenarioOutcome {
        self.run.pass(BOUND + BEYOND);
        for _ in 0..5 {
            self.reader.get(self.instance, key);
        }
        self.judge(more)
    }

    /// Judges all observations.
    pub(super) fn judge(mut self, more: Vec<Reader>) -> ScenarioOutcome {
        self.run.stop_writers();
        let readers = more.into_iter().chain([self.reader]);
        let run = &mut self.run;
        readers.for_each(|reader| run.observations.extend(reader.into_seen()));
        let report = check(&run.histories, &run.observations, &run.purges, &run.terms());
        match report.violations.first() {
            None => ScenarioOutcome::Clean,
            Some(first) => ScenarioOutcome::Broken(
                first.rule,
                explain(first, &run.histories, &run.observations, &run.purges),
            ),
        }
    }
}

/// Ends streams and refuses new ones, like a server in shutdown.
pub(super) fn take_stream(standin: &Standin) {
    let failure =
        Failure::new(91, "ShutdownInProgress", "not now").labelled("ResumableChangeStreamError");
    standin.trouble("watch", Trouble::Fail(failure.clone()));
    standin.trouble("getMore", Trouble::Fail(failure));
}

pub(super) fn give_stream(standin: &Standin) {
    standin.calm("watch");
    standin.calm("getMore");
}

/// Creates the database of a scenario.
pub(super) fn stage() -> MongoRun {
    let keys = 6;
    let write_profile = WriteProfile { deletes: 0, ..WriteProfile::default() };
    let plan = Plan {
        keys,
        reserved: keys,
        writers: 0,
        sizes: Sizes { from: 50, to: 90 },
        write_profile,
        max_staleness: BOUND,
        ..Plan::default()
    };
    Trial::over(Mongo::create(&plan), plan)
}

/// Returns its configuration: reads may be held for a whole scenario, and only readers cause reads.
pub(super) fn config(run: &MongoRun) -> hotrow_testkit::harness::Config {
    run.config()
        .set("source.read_timeout", "\"20s\"")
        .set("limits.request_timeout", "\"20s\"")
        .set("cache.prefetch_on_change", "false")
}

/// A plain read.
pub(super) fn read(key: u32) -> crate::contract::ask::ReadRequest {
    crate::contract::ask::ReadRequest::One {
        key,
        mode: crate::contract::observation::ReadMode::Normal,
        known: None,
    }
}

/// Returns the state of a key before its first change.
pub(super) fn first(key: u32) -> Seen {
    if Plan::has_first_row(key) { Seen::Version(0) } else { Seen::Absent }
}

#[track_caller]
pub(super) fn assert_clean(ended: ScenarioOutcome) {
    if let ScenarioOutcome::Broken(rule, explanation) = ended {
        panic!("{rule:?} broken although the safeguard is in place\n{explanation}");
    }
}

/// Asserts that a scenario without its safeguard breaks this rule. On a machine so busy that probes
/// take longer than the bound, the service reads the database instead; then the scenario is
/// repeated.
#[cfg(feature = "failpoints")]
#[track_caller]
pub(super) fn assert_broken(scenario: impl Fn() -> ScenarioOutcome, rule: Rule) {
    for _ in 0..TRIES {
        if let ScenarioOutcome::Broken(broken, explanation) = scenario() {
            assert_eq!(broken, rule, "{explanation}");
            println!("found:\n{explanation}");
            return;
        }
    }
    panic!("nothing found in {TRIES} tries, so either the failpoint or the scenario is too weak");
}
