//! Scenarios beside lookups, over the same database, clock and random choices: each has a part of
//! the service that keeps something up to date, and checks what it keeps.
//!
//! In every fourth run readers are far away, and the feed is not.

mod aliases;
mod embedded;
mod follower;
mod followers;
mod hub;
mod hub_relay;
mod hub_server;
mod hub_stream;
mod hub_wire;
mod one_cache;
mod purges;
mod tally;
mod tracking;

use std::time::Duration;

use hotrow_hub::rules::Rule;
use hotrow_push::tracking::TrackingPlant;
use hotrow_push::{FollowPlant, PurgePlant};

pub use self::aliases::AliasMistake;
use self::aliases::Aliases;
use self::embedded::Embedded;
pub use self::embedded::EmbeddedMistake;
use self::one_cache::OneCache;
pub(crate) use self::tally::Tally;
use crate::settings::FAR_ROUND_TRIP;

/// Mistake in one scenario.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mistake {
    /// In lookups by alias.
    Alias(AliasMistake),
    /// In records with rows of another table.
    Embedded(EmbeddedMistake),
    /// In the log that followers read.
    Follow(FollowPlant),
    /// In the table of clients with copies.
    Tracking(TrackingPlant),
    /// In purges of caches in front.
    Purge(PurgePlant),
    /// A rule of the hub that is disabled.
    Hub(Rule),
}

/// A scenario.
pub struct World {
    /// Its name on the command line.
    pub name: &'static str,
    /// Seeds of the short run.
    pub seeds: u64,
    run: fn(u64, Option<Mistake>, &mut Tally) -> Result<(), String>,
    /// Least counts of the short run: one that never reaches the interesting states proves nothing.
    least: &'static [(u64, &'static [&'static str])],
}

/// The world of one run.
trait Steps: Sized {
    /// Steps before all faults end.
    const STEPS: u64;

    fn new(seed: u64, mistake: Option<Mistake>) -> Self;
    fn step(&mut self, number: u64) -> Result<(), String>;
    /// Ends all that is under way, and checks what has to hold then.
    fn settle(&mut self) -> Result<(), String>;
    /// Returns what happened.
    fn tally(&mut self) -> &mut Tally;
}

fn run<W: Steps>(seed: u64, mistake: Option<Mistake>, tally: &mut Tally) -> Result<(), String> {
    let mut world = W::new(seed, mistake);
    let mut step = |number| world.step(number).map_err(|error| format!("step {number}: {error}"));
    let outcome = (0..W::STEPS).try_for_each(&mut step).and_then(|()| world.settle());
    tally.merge(std::mem::take(world.tally()));
    outcome
}

/// Returns the round trip of the readers: in every fourth run they are far away.
fn round_trip(seed: u64) -> Duration {
    if seed % 4 == 3 { FAR_ROUND_TRIP } else { Duration::ZERO }
}

/// Returns the same where a step takes a millisecond.
fn round_trip_steps(seed: u64) -> u64 {
    round_trip(seed).as_millis() as u64
}

impl World {
    /// Returns the scenario of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<&'static Self> {
        WORLDS.iter().find(|world| world.name == name)
    }

    /// Runs a seed, with a mistake or without.
    ///
    /// # Errors
    /// What was found.
    pub fn run(&self, seed: u64, mistake: Option<Mistake>) -> Result<(), String> {
        (self.run)(seed, mistake, &mut Tally::default())
    }

    /// Runs the first seeds.
    ///
    /// # Errors
    /// The first violation, or the count that is too small.
    pub fn run_all(&self, seeds: u64) -> Result<String, String> {
        let mut tally = Tally::default();
        for seed in 0..seeds {
            let outcome = (self.run)(seed, None, &mut tally);
            outcome.map_err(|error| format!("{}, seed {seed}: {error}", self.name))?;
        }
        for (least, names) in self.least {
            let is_rare = |name: &&&str| tally.get(name) < least * seeds / self.seeds;
            if let Some(name) = names.iter().find(is_rare) {
                return Err(format!("{name}: less than {least} of {tally:?}"));
            }
        }
        Ok(format!("{}: {seeds} seeds, {tally:?}", self.name))
    }
}

/// All scenarios.
pub const WORLDS: &[World] = &[
    World {
        name: "aliases",
        seeds: 2_700,
        run: run::<OneCache<Aliases>>,
        least: &[
            (50, &["commits", "moved", "hidden", "found", "absent", "refuted", "given up"]),
            (50, &["by key", "from memory", "uncacheable"]),
        ],
    },
    World {
        name: "embedded",
        seeds: 2_700,
        run: run::<OneCache<Embedded>>,
        least: &[
            (50, &["commits", "inserted", "moved", "deleted", "truncated", "hidden", "flushes"]),
            (50, &["absent", "found", "from memory"]),
        ],
    },
    World {
        name: "followers",
        seeds: 2_000,
        run: run::<followers::World>,
        least: &[
            (30_000, &["changes", "checks"]),
            (3_000, &["resumed"]),
            (1_500, &["resets"]),
            (300, &["flushes", "ahead"]),
            (150, &["overruns", "overflows"]),
        ],
    },
    World {
        name: "tracking",
        seeds: 400,
        run: run::<tracking::World>,
        least: &[
            (10_000, &["checked", "invalidations"]),
            (1_000, &["invalidations of everything"]),
        ],
    },
    World {
        name: "purges",
        seeds: 1_350,
        run: run::<purges::World>,
        least: &[
            (50_000, &["stored"]),
            (40_000, &["purged"]),
            (4_000, &["failed"]),
            (1_500, &["checked"]),
            (1_000, &["losses"]),
            (500, &["collapsed"]),
        ],
    },
    World {
        name: "hub",
        seeds: 4_000,
        run: run::<hub::World>,
        least: &[(400, &["losses", "joins", "beginnings"]), (20, &["continued"])],
    },
];
