//! A database that can be disturbed, the service over it, and a checker against both.

use std::time::{Duration, Instant};

use crate::checker::Checker;
use crate::clock::Clock;
use crate::harness::{Config, SOON, Server, await_until};

/// A database of one engine with everything that disturbs it.
pub(crate) trait Stage {
    /// Starts it.
    fn start() -> Self;
    /// The configuration of the service over it.
    fn config(&self) -> Config;
    /// Where the checker writes: past whatever disturbs the service's own way.
    fn database(&self) -> String;
}

/// A stage with one or two instances over it.
pub(crate) struct World<S> {
    // They end before their database does.
    pub(crate) one: Server,
    pub(crate) other: Option<Server>,
    pub(crate) stage: S,
    /// The wall clock of the first instance.
    pub(crate) clock: Clock,
}

impl<S: Stage> World<S> {
    /// One instance with variables in its environment.
    pub(crate) fn alone(environment: &[(&str, &str)]) -> Self {
        let stage = S::start();
        let config = stage.config();
        create(&config, &stage);
        let one = Server::start_with(&config, environment);
        one.await_ready();
        Self { one, other: None, stage, clock: Clock::real() }
    }

    /// Two instances; what stalls is given up soon, and the first has a clock that can be set.
    pub(crate) fn of_two() -> Self {
        let stage = S::start();
        let config = impatient(stage.config());
        create(&config, &stage);
        let clock = Clock::to_be_set();
        let environment = clock.environment();
        let environment: Vec<(&str, &str)> = environment.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let one = Server::start_with(&config, &environment);
        one.await_ready();
        let other = Some(Server::start(&config));
        Self { one, other, stage, clock }
    }

    /// All instances.
    pub(crate) fn instances(&self) -> Vec<&Server> {
        [&self.one].into_iter().chain(&self.other).collect()
    }

    /// A checker against all instances.
    pub(crate) fn check(&self, more: &[&str]) -> Checker {
        let database = self.stage.database();
        let arguments = [&["--database", database.as_str()], more].concat();
        Checker::against(&self.stage.config(), &self.instances(), &arguments)
    }

    /// A checker that has begun to read: from here on what is done falls into what it reports.
    pub(crate) fn check_at_work(&self, more: &[&str]) -> Checker {
        let hits = || self.one.metrics().sum("hotrow_lookups_total", &[("result", "hit")]);
        let mut checker = self.check(more);
        await_until("the checker to read", 2 * SOON, || hits() > 100.0 || !checker.runs());
        checker
    }

    /// Losses of the feed that the first instance has counted.
    pub(crate) fn losses(&self) -> f64 {
        self.one.metrics().sum("hotrow_feed_losses_total", &[])
    }
}

fn create<S: Stage>(config: &Config, stage: &S) {
    let created = Checker::start(config, &["--database", &stage.database(), "--create"]).ended(Duration::ZERO);
    assert_eq!(created.status, Some(0), "{created:?}");
}

fn impatient(config: Config) -> Config {
    config.set("source.read_timeout", "\"700ms\"").set("limits.request_timeout", "\"2s\"")
}

/// Lets time pass.
pub(crate) fn pass(time: Duration) {
    let end = Instant::now() + time;
    await_until("time to pass", time + SOON, || Instant::now() >= end);
}

/// Lets time pass, unless the checker has ended before.
pub(crate) fn pass_while(checker: &mut Checker, time: Duration) {
    let end = Instant::now() + time;
    await_until("time to pass", time + SOON, || Instant::now() >= end || !checker.runs());
}
