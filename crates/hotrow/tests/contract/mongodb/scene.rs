//! One key under a microscope: nothing else is written or read, so that a fault shows with the first answer.

use std::time::Duration;

use super::standin::{Failure, Standin, Trouble};
use super::{Mongo, MongoRun};
use crate::board::Instance;
use crate::engine::Engine as _;
use crate::explain::explain;
use crate::harness::{SOON, await_until};
use crate::observation::Seen;
use crate::reader::{Reader, Taste};
use crate::rows::Sizes;
use crate::rules::{Rule, check};
use crate::run::{Plan, Trial};
use crate::writer::Habit;

/// Short, so that a scene shows soon what stayed behind.
pub(super) const BOUND: Duration = Duration::from_millis(400);
/// Past the bound by so much, an answer must know.
pub(super) const BEYOND: Duration = Duration::from_millis(100);

/// Times that a scene without its fix is played before it must have shown something.
#[cfg(feature = "sabotage")]
const TRIES: usize = 5;

/// The key that is looked at.
pub(super) const KEY: u32 = 1;
/// Another one, for warming up.
pub(super) const OTHER: u32 = 2;

/// A run of which every key is the test's own.
pub(super) struct Scene {
    pub(super) run: MongoRun,
    pub(super) instance: Instance,
    pub(super) reader: Reader,
}

/// What a scene came to.
#[derive(Debug)]
pub(super) enum Ended {
    /// All rules held.
    Clean,
    /// The first broken rule, and the story of it.
    Broken(Rule, String),
}

impl Scene {
    /// Every key is read once, so that it is in the cache and the readers' connection is there.
    pub(super) fn start(environment: &[(&str, &str)]) -> Self {
        let mut run = stage();
        let config = config(&run);
        let instance = run.serve(&config, environment);
        run.start_writers();
        let mut reader = run.reader(Taste::plain());
        for key in run.own_keys() {
            assert_eq!(reader.get(instance, key).seen, first(key));
        }
        Self { run, instance, reader }
    }

    /// The switches.
    pub(super) fn standin(&self) -> &Standin {
        self.run.database.standin()
    }

    /// Commits a change of the key, and waits until the feed has delivered it.
    #[track_caller]
    pub(super) fn change_and_deliver(&mut self, key: u32) {
        let before = self.delivered();
        self.run.change(key);
        self.await_delivery(before);
    }

    /// Waits until the feed has delivered more than `before`.
    #[track_caller]
    pub(super) fn await_delivery(&self, before: f64) {
        await_until("the change to be delivered", SOON, || self.delivered() > before);
    }

    /// Changes that the feed has delivered.
    pub(super) fn delivered(&self) -> f64 {
        self.run.server(self.instance).metrics().sum("hotrow_invalidations_total", &[])
    }

    /// Sends a read of the key that is carried out and whose answer is held on its way.
    #[track_caller]
    pub(super) fn begin_held_read(&mut self, reader: &mut Reader, key: u32) -> u64 {
        // This one alone: writers read too.
        self.standin().trouble_times("find", Trouble::Hold, Some(1));
        let sent_ns = reader.send(self.instance, &[read(key)]);
        await_until("the document to be read", SOON, || self.standin().held("find") > 0);
        sent_ns
    }

    /// Lets the held answer through and notes it.
    pub(super) fn end_held_read(&mut self, reader: &mut Reader, key: u32, sent_ns: u64) {
        self.standin().calm("find");
        reader.receive(self.instance, &[read(key)], sent_ns);
    }

    /// Takes the feed's stream away until [`Self::give_stream`].
    pub(super) fn take_stream(&self) {
        take_stream(self.standin());
    }

    pub(super) fn give_stream(&self) {
        give_stream(self.standin());
    }

    /// Reads the key and gives what was seen.
    pub(super) fn get(&mut self, key: u32) -> Seen {
        self.reader.get(self.instance, key).seen.clone()
    }

    /// Lets the bound pass, reads the key some times, and judges everything.
    pub(super) fn end(mut self, key: u32, more: Vec<Reader>) -> Ended {
        self.run.pass(BOUND + BEYOND);
        for _ in 0..5 {
            self.reader.get(self.instance, key);
        }
        self.judge(more)
    }

    /// Judges everything.
    pub(super) fn judge(mut self, more: Vec<Reader>) -> Ended {
        self.run.stop_writers();
        let readers = more.into_iter().chain([self.reader]);
        let run = &mut self.run;
        readers.for_each(|reader| run.observations.extend(reader.into_seen()));
        let report = check(&run.histories, &run.observations, &run.purges, &run.terms());
        match report.violations.first() {
            None => Ended::Clean,
            Some(first) => Ended::Broken(first.rule, explain(first, &run.histories, &run.observations, &run.purges)),
        }
    }
}

/// Streams end, and new ones are refused as by a server that shuts down.
pub(super) fn take_stream(standin: &Standin) {
    let failure = Failure::new(91, "ShutdownInProgress", "not now").labelled("ResumableChangeStreamError");
    standin.trouble("watch", Trouble::Fail(failure.clone()));
    standin.trouble("getMore", Trouble::Fail(failure));
}

pub(super) fn give_stream(standin: &Standin) {
    standin.calm("watch");
    standin.calm("getMore");
}

/// The database of a scene.
pub(super) fn stage() -> MongoRun {
    let keys = 6;
    let habit = Habit { deletes: 0, ..Habit::default() };
    let (sizes, max_staleness) = (Sizes { from: 50, to: 90 }, BOUND);
    let plan = Plan { keys, own: keys, writers: 0, sizes, habit, max_staleness, ..Plan::default() };
    Trial::over(Mongo::create(&plan), plan)
}

/// Its configuration: reads may be held for as long as a scene takes; nothing is read unless a reader asks.
pub(super) fn config(run: &MongoRun) -> crate::harness::Config {
    run.config()
        .set("source.read_timeout", "\"20s\"")
        .set("limits.request_timeout", "\"20s\"")
        .set("cache.refresh_hot", "false")
}

/// A plain read.
pub(super) fn read(key: u32) -> crate::ask::Ask {
    crate::ask::Ask::One { key, wish: crate::observation::Wish::Any, known: None }
}

/// What a key shows before it was ever changed.
pub(super) fn first(key: u32) -> Seen {
    if Plan::has_first_row(key) { Seen::Version(0) } else { Seen::Absent }
}

#[track_caller]
pub(super) fn assert_clean(ended: Ended) {
    if let Ended::Broken(rule, story) = ended {
        panic!("{rule:?} broken although the fix is in place\n{story}");
    }
}

/// With its fix taken out, a scene must break this rule. On a machine so busy that probes take longer than the bound, the
/// service reads the database instead and nothing shows; then it is tried again.
#[cfg(feature = "sabotage")]
#[track_caller]
pub(super) fn assert_broken(scene: impl Fn() -> Ended, rule: Rule) {
    for _ in 0..TRIES {
        if let Ended::Broken(broken, story) = scene() {
            assert_eq!(broken, rule, "{story}");
            println!("found:\n{story}");
            return;
        }
    }
    panic!("nothing found in {TRIES} tries, so either the switch or the scene is too weak");
}
