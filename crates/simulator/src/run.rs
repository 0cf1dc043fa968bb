//! Runs: one engine, one seed, so many steps.

#[cfg(feature = "failpoints")]
use hotrow_cache::Safeguard;
use hotrow_cache::stats::Removal;
use hotrow_types::key::CollectionId;

use crate::counts::Counts;
use crate::database::COLLECTIONS;
use crate::engine::Engine;
use crate::world::World;

/// Determinants of a run.
#[derive(Clone, Copy, Debug)]
pub struct Scenario {
    /// The engine.
    pub engine: Engine,
    /// Seed of every choice.
    pub seed: u64,
    /// Steps before the end of all faults.
    pub steps: u64,
    /// Safeguard of the cache that is disabled.
    #[cfg(feature = "failpoints")]
    pub without: Option<Safeguard>,
    /// What answers are judged by.
    pub rules: Rules,
    /// What clients request.
    pub mix: Mix,
    /// Mistake in strict reads or snapshots.
    pub planted: Option<StrictMistake>,
}

/// Requests of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mix {
    /// Neither strict reads nor snapshots.
    Ordinary,
    /// Half of them are strict reads and snapshots.
    Strict,
}

/// A rule of strict reads or snapshots that the service breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StrictMistake {
    /// A look serves requests that came after it was sent.
    LookJoinedLate,
    /// The look is one at a server that lags behind the feed's.
    LookAtOtherServer,
    /// A strict request joins a read that was sent before it came.
    OldFlightJoined,
    /// The feed passes a transaction before all its changes are applied.
    AppliedEarly,
    /// A strict snapshot takes records that standbys may have shown too early.
    StandbyInSnapshot,
}

impl Scenario {
    /// Returns the scenario with all safeguards and all rules.
    #[must_use]
    pub fn new(engine: Engine, seed: u64, steps: u64) -> Self {
        Self {
            engine,
            seed,
            steps,
            rules: Rules::All,
            mix: Mix::Ordinary,
            planted: None,
            #[cfg(feature = "failpoints")]
            without: None,
        }
    }
}

/// Rules of the oracle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rules {
    /// All of them: also that nothing older than a change, flush or loss that the feed reported is
    /// answered. They find a fault earlier than a client would notice it.
    All,
    /// Only those that compare an answer with the database, as a client could.
    Contract,
}

/// Result of a run.
#[derive(Clone, Debug)]
pub struct Report {
    /// What happened.
    pub counts: Counts,
    /// Hash of all events and answers: equal for equal scenarios.
    pub trace: u64,
    /// The first violation of the contract.
    pub violation: Option<Violation>,
}

/// A violation of the contract.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The rule.
    pub rule: &'static str,
    /// Step, time and what was found.
    pub detail: String,
}

/// Runs a scenario until its end or the first violation.
pub fn run(scenario: &Scenario) -> Report {
    let mut world = World::new(scenario);
    while world.counts.steps < scenario.steps && world.step() {}
    if world.violation.is_none() {
        world.settle();
    }
    for instance in &world.instances {
        let calls = instance.sink.with(|calls| calls.clone());
        world.counts.losses += calls.losses;
        world.counts.starts += calls.starts;
        world.counts.gaps += calls.gaps;
        for collection in (0..COLLECTIONS).map(CollectionId) {
            let stats = instance.cache.stats(collection);
            world.counts.fills_discarded += stats.fills_discarded_total;
            world.counts.fill_retries += stats.fill_retries_total;
            world.counts.evictions += stats.removed[Removal::Capacity as usize];
        }
    }
    Report {
        trace: world.trace(),
        violation: world.violation.take(),
        counts: std::mem::take(&mut world.counts),
    }
}

/// Returns the scenario with the fewest steps that still ends in a violation: replays it with fewer
/// and fewer of them.
pub fn shrink(scenario: &Scenario) -> Scenario {
    let mut shrunk = *scenario;
    shrunk.steps = run(&shrunk).counts.steps.min(shrunk.steps);
    let mut less = shrunk.steps / 2;
    while less > 0 {
        let fewer = Scenario { steps: shrunk.steps.saturating_sub(less), ..shrunk };
        if run(&fewer).violation.is_some() {
            shrunk = fewer;
        } else {
            less /= 2;
        }
    }
    shrunk
}
