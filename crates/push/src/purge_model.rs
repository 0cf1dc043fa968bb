//! Model of a database, a service, a cache in front of it and the purges, with random schedules.
//! Each seed repeats a run.
//!
//! The cache stores what it fetched when the fetch ends, whatever was purged during it. What must
//! hold: once everything is visible, delivered and purged, it holds no record as it was before its
//! last change.

mod world;

use self::world::World;

/// Mistake that the model must find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Plant {
    /// None.
    None,
    /// A change is purged when it is delivered, and not when it is visible (Race B), and answers
    /// from before it may be kept.
    PurgedHidden,
    /// A change is purged once only.
    NotRepeated,
    /// What does not fit into the queue is dropped.
    DroppedAtOverflow,
    /// A change during a purge of its record counts as purged.
    ChangeInFlightForgotten,
    /// A loss of the feed is not purged.
    LossNotPurged,
}

const STEPS: usize = 2_000;
const SEEDS: u64 = 1_000;

/// Runs one schedule.
fn run(plant: Plant, seed: u64) -> Result<world::Counts, String> {
    let mut world = World::new(plant, seed);
    for step in 0..STEPS {
        world.step();
        if step % 500 == 499 {
            world.settle().map_err(|error| format!("seed {seed}, step {step}: {error}"))?;
        }
    }
    Ok(world.counts)
}

#[test]
fn no_record_stays_in_front_as_it_was_before_its_last_change() {
    let mut sum = world::Counts::default();
    for seed in 0..SEEDS {
        sum.add(&run(Plant::None, seed).unwrap_or_else(|error| panic!("{error}")));
    }
    println!("{sum:?}");
    assert!(sum.stored > 50_000 && sum.purged > 40_000 && sum.checked > 1_500, "{sum:?}");
    assert!(sum.failed > 4_000 && sum.collapsed > 500 && sum.losses > 1_000, "{sum:?}");
}

#[test]
fn every_planted_mistake_is_found() {
    for plant in [
        Plant::PurgedHidden,
        Plant::NotRepeated,
        Plant::DroppedAtOverflow,
        Plant::ChangeInFlightForgotten,
        Plant::LossNotPurged,
    ] {
        let found = (0..SEEDS).find_map(|seed| run(plant, seed).err());
        let found = found.unwrap_or_else(|| panic!("{plant:?} was not found"));
        println!("{plant:?}: {found}");
    }
}
