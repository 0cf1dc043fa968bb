//! Runs of the model of clients with copies, and the mistakes that it must find.

use super::tracking::World;
use crate::tracking::TrackingPlant;

const PLANTS: [TrackingPlant; 7] = [
    TrackingPlant::RegisteredLate,
    TrackingPlant::PushedBeforeReply,
    TrackingPlant::HiddenReplyKept,
    TrackingPlant::SecondSpellingForgotten,
    TrackingPlant::NothingAtBeginning,
    TrackingPlant::ForgottenInSilence,
    TrackingPlant::OverrunIgnored,
];
const STEPS: usize = 1_500;
const SEEDS: u64 = 300;

/// Runs one schedule.
fn run(plant: TrackingPlant, seed: u64) -> Result<World, String> {
    let mut world = World::new(plant, seed);
    for step in 0..STEPS {
        world.step().map_err(|error| format!("seed {seed}, step {step}: {error}"))?;
    }
    world.settle().map_err(|error| format!("seed {seed}, at the end: {error}"))?;
    Ok(world)
}

#[test]
fn every_copy_is_what_the_database_says() {
    let (mut checks, mut pushes, mut alls) = (0, 0, 0);
    for seed in 0..SEEDS {
        let world = run(TrackingPlant::None, seed).unwrap_or_else(|error| panic!("{error}"));
        checks += world.checks;
        pushes += world.pushes;
        alls += world.alls;
    }
    println!("{checks} copies compared, {pushes} invalidations, {alls} of everything");
    assert!(checks > 10_000 && pushes > 10_000 && alls > 1_000);
}

#[test]
fn every_mistake_planted_into_tracking_is_found() {
    for plant in PLANTS {
        let found = (0..SEEDS).find_map(|seed| run(plant, seed).err());
        let found = found.unwrap_or_else(|| panic!("{plant:?} was not found"));
        println!("{plant:?}: {found}");
    }
}
