//! Model of databases, instances and followers, with random schedules. Each seed repeats a run.
//!
//! A follower keeps for each record the newest commit that it has read, reads a record when it gets
//! its event, and everything at a beginning and at a reset. What must hold: once it has an id, it
//! has read the effect of every commit up to there; and what it reads for an event shows the event.

mod follower;
mod tracking;
mod tracking_runs;
mod world;

use self::world::World;
pub(crate) use crate::change_log::FollowPlant as Plant;

/// Order of a log, and what its changes contain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Engine {
    /// Each row has a point, and is visible when it is delivered (SQLite).
    Log,
    /// Transactions with the place of their commit, visible in any order (PostgreSQL).
    Transactions,
    /// Transactions without a place, visible in any order (MySQL).
    Gtids,
}

pub(crate) const ENGINES: [Engine; 3] = [Engine::Log, Engine::Transactions, Engine::Gtids];
const STEPS: usize = 1_000;
const SEEDS: u64 = 500;

/// Runs one schedule.
fn run(engine: Engine, plant: Plant, seed: u64) -> Result<world::Counts, String> {
    let mut world = World::new(engine, plant, seed);
    for step in 0..STEPS {
        world.step().map_err(|error| format!("{engine:?}, seed {seed}, step {step}: {error}"))?;
    }
    world.settle().map_err(|error| format!("{engine:?}, seed {seed}, at the end: {error}"))?;
    Ok(world.counts)
}

#[test]
fn no_commit_up_to_an_id_is_missed() {
    for engine in ENGINES {
        let mut sum = world::Counts::default();
        for seed in 0..SEEDS {
            sum.add(&run(engine, Plant::None, seed).unwrap_or_else(|error| panic!("{error}")));
        }
        println!("{engine:?}: {sum:?}");
        assert!(sum.changes > 10_000 && sum.checks > 10_000, "{engine:?}: {sum:?}");
        assert!(sum.flushes > 100 && sum.resets > 500 && sum.resumed > 1_000, "{sum:?}");
        assert!(sum.overruns > 50 && sum.ahead > 100 && sum.overflows > 50, "{sum:?}");
    }
}

#[test]
fn every_planted_mistake_is_found() {
    for plant in [
        Plant::PushedHidden,
        Plant::IdOnFirstEvent,
        Plant::ResumeSkipsRest,
        Plant::NoResetAtBeginning,
        Plant::RegisteredLate,
    ] {
        let found = (0..SEEDS).find_map(|seed| run(Engine::Transactions, plant, seed).err());
        let found = found.unwrap_or_else(|| panic!("{plant:?} was not found"));
        println!("{plant:?}: {found}");
    }
}
