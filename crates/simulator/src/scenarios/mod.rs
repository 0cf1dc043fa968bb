//! Scenarios beside lookups, over the same database, clock and random choices: each has a part of
//! the service that keeps something up to date, and checks what it keeps.
//!
//! In every fourth run readers are far away, at a round trip of 150 ms, and the feed is not.

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

use hotrow_hub::rules::Rule;
use hotrow_push::tracking::TrackingPlant;
use hotrow_push::{FollowPlant, PurgePlant};

pub use self::aliases::AliasMistake;
pub use self::embedded::EmbeddedMistake;
pub(crate) use self::tally::Tally;

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
    least: &'static [(&'static str, u64)],
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
        let is_missing =
            |(name, least): &&(&str, u64)| tally.get(name) < *least * seeds / self.seeds;
        match self.least.iter().find(is_missing) {
            Some((name, least)) => Err(format!("{name}: less than {least} of {tally:?}")),
            None => Ok(format!("{}: {seeds} seeds, {tally:?}", self.name)),
        }
    }
}

/// Adds the counts of a run.
fn note_into(tally: &mut Tally, own: Tally, outcome: Result<(), String>) -> Result<(), String> {
    tally.merge(own);
    outcome
}

/// All scenarios.
pub const WORLDS: &[World] = &[
    World {
        name: "aliases",
        seeds: 2_700,
        run: aliases::run,
        least: &[
            ("commits", 50),
            ("moved", 50),
            ("hidden", 50),
            ("found", 50),
            ("absent", 50),
            ("refuted", 50),
            ("given up", 50),
            ("by key", 50),
            ("from memory", 50),
            ("uncacheable", 50),
        ],
    },
    World {
        name: "embedded",
        seeds: 2_700,
        run: embedded::run,
        least: &[
            ("commits", 50),
            ("inserted", 50),
            ("moved", 50),
            ("deleted", 50),
            ("truncated", 50),
            ("hidden", 50),
            ("flushes", 50),
            ("absent", 50),
            ("found", 50),
            ("from memory", 50),
        ],
    },
    World {
        name: "followers",
        seeds: 2_000,
        run: followers::run,
        least: &[
            ("changes", 30_000),
            ("checks", 30_000),
            ("flushes", 300),
            ("resets", 1_500),
            ("resumed", 3_000),
            ("overruns", 150),
            ("ahead", 300),
            ("overflows", 150),
        ],
    },
    World {
        name: "tracking",
        seeds: 400,
        run: tracking::run,
        least: &[
            ("checked", 10_000),
            ("invalidations", 10_000),
            ("invalidations of everything", 1_000),
        ],
    },
    World {
        name: "purges",
        seeds: 1_350,
        run: purges::run,
        least: &[
            ("stored", 50_000),
            ("purged", 40_000),
            ("checked", 1_500),
            ("failed", 4_000),
            ("collapsed", 500),
            ("losses", 1_000),
        ],
    },
    World {
        name: "hub",
        seeds: 4_000,
        run: hub::run,
        least: &[("losses", 400), ("joins", 400), ("continued", 20), ("beginnings", 400)],
    },
];
