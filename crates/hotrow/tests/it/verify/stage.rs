//! A database with faults, its service, and a checker of both.

use std::time::{Duration, Instant};

use crate::verify::checker::Checker;
use crate::verify::clock::Clock;
use hotrow_testkit::harness::{Config, SOON, Server, await_until};

/// A database of one engine with all its faults.
pub(crate) trait Stage {
    /// Starts the database.
    fn start() -> Self;
    /// Returns the configuration of its service.
    fn config(&self) -> Config;
    /// Returns the URL for the checker's writes, which bypasses the proxies.
    fn database(&self) -> String;
    /// Prepares the service, once the checker's table exists.
    fn table_created(&mut self) {}
}

/// A stage with one or two instances.
pub(crate) struct Deployment<S> {
    // First fields, so that they end before their database.
    pub(crate) one: Server,
    pub(crate) other: Option<Server>,
    pub(crate) stage: S,
    /// Wall clock of the first instance.
    pub(crate) clock: Clock,
}

impl<S: Stage> Deployment<S> {
    /// Starts one instance with environment variables.
    pub(crate) fn alone(environment: &[(&str, &str)]) -> Self {
        let mut stage = S::start();
        let config = stage.config();
        create(&config, &mut stage);
        let one = Server::start_with(&config, environment);
        one.await_ready();
        Self { one, other: None, stage, clock: Clock::real() }
    }

    /// Starts two instances with short timeouts; the first has an adjustable clock.
    pub(crate) fn of_two() -> Self {
        Self::of_two_by(Clock::adjustable())
    }

    /// Starts two instances with short timeouts.
    pub(crate) fn of_two_by(clock: Clock) -> Self {
        let mut stage = S::start();
        let config = with_short_timeouts(stage.config());
        create(&config, &mut stage);
        let environment = clock.environment();
        let environment: Vec<(&str, &str)> =
            environment.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let one = Server::start_with(&config, &environment);
        one.await_ready();
        let other = Some(Server::start(&config));
        Self { one, other, stage, clock }
    }

    /// Returns all instances.
    pub(crate) fn instances(&self) -> Vec<&Server> {
        [&self.one].into_iter().chain(&self.other).collect()
    }

    /// Starts a checker of all instances.
    pub(crate) fn check(&self, more: &[&str]) -> Checker {
        let database = self.stage.database();
        let arguments = [&["--database", database.as_str()], more].concat();
        Checker::against(&self.stage.config(), &self.instances(), &arguments)
    }

    /// Starts a checker and waits until it reads, so that its report covers all that follows.
    pub(crate) fn check_at_work(&self, more: &[&str]) -> Checker {
        let hits = || self.one.metrics().sum("hotrow_lookups_total", &[("outcome", "hit")]);
        let mut checker = self.check(more);
        await_until("the checker to read", 2 * SOON, || hits() > 100.0 || !checker.runs());
        checker
    }

    /// Returns the feed losses counted by the first instance.
    pub(crate) fn losses(&self) -> f64 {
        self.one.metrics().sum("hotrow_feed_gaps_total", &[])
    }
}

fn create<S: Stage>(config: &Config, stage: &mut S) {
    let created = Checker::start(config, &["--database", &stage.database(), "--create"])
        .ended(Duration::ZERO);
    assert_eq!(created.status, Some(0), "{created:?}");
    stage.table_created();
}

fn with_short_timeouts(config: Config) -> Config {
    config.set("source.read_timeout", "\"700ms\"").set("limits.request_timeout", "\"2s\"")
}

/// Waits for this time.
pub(crate) fn wait_for(time: Duration) {
    let end = Instant::now() + time;
    await_until("time to pass", time + SOON, || Instant::now() >= end);
}

/// Waits for this time, or until the checker ends.
pub(crate) fn pass_while(checker: &mut Checker, time: Duration) {
    let end = Instant::now() + time;
    await_until("time to pass", time + SOON, || Instant::now() >= end || !checker.runs());
}
