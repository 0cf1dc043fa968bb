//! The scenarios beside lookups, and every planted mistake.

use super::{STEPS, scenario};
use crate::planted::{PLANTED, STRICT_PLANTED, UNGUARDED};
use crate::run::{Scenario, run};
use crate::{Engine, World};

fn no_schedule_breaks(name: &str) {
    let world = World::named(name).unwrap();
    println!("{}", world.run_all(world.seeds).unwrap_or_else(|error| panic!("{error}")));
}

fn every_mistake_is_found(scenario: &str) {
    let of_scenario = PLANTED.iter().filter(|planted| planted.scenario == scenario);
    let missed: Vec<String> = of_scenario
        .filter_map(|planted| match planted.find() {
            Ok(seed) => {
                println!("{:?}: seed {seed}", planted.mistake);
                None
            }
            Err(error) => Some(error),
        })
        .collect();
    assert_eq!(missed, [""; 0]);
}

macro_rules! scenarios {
    ($($name:ident: $holds:ident, $finds:ident;)*) => {
        $(
            #[test]
            fn $holds() {
                no_schedule_breaks(stringify!($name));
            }

            #[test]
            fn $finds() {
                every_mistake_is_found(stringify!($name));
            }
        )*
    };
}

scenarios!(
    aliases: no_schedule_breaks_the_contract_of_aliases, mistakes_in_aliases_are_found;
    embedded: no_schedule_breaks_embedded_records, mistakes_in_embedded_records_are_found;
    followers: no_commit_up_to_an_id_is_missed, mistakes_in_following_are_found;
    tracking: every_copy_is_what_the_database_says, mistakes_in_tracking_are_found;
    purges: no_record_stays_in_front_as_it_was, mistakes_in_purges_are_found;
    hub: no_fault_breaks_a_promise_of_the_hub, every_rule_of_the_hub_is_needed;
);

#[test]
fn a_missing_safeguard_is_found() {
    let mut missed = Vec::new();
    for unguarded in UNGUARDED {
        for name in unguarded.engines {
            let engine = Engine::named(name).unwrap();
            let without = Some(unguarded.safeguard);
            let is_found = |seed: &u64| {
                let scenario =
                    Scenario { without, rules: unguarded.rules, ..scenario(engine, *seed) };
                run(&scenario).violation.is_some()
            };
            let found = (1..=unguarded.seeds).find(is_found);
            let what = format!("{name} without {:?} by {:?}", unguarded.safeguard, unguarded.rules);
            println!("{what}: seed {found:?}");
            missed.extend(found.is_none().then_some(what));
        }
    }
    assert_eq!(missed, [""; 0], "not found within the seeds");
}

#[test]
fn mistakes_in_strict_reads_and_snapshots_are_found() {
    let mut missed = Vec::new();
    for planted in STRICT_PLANTED {
        for name in planted.engines {
            let engine = Engine::named(name).unwrap();
            let is_found =
                |seed: &u64| run(&planted.scenario(engine, *seed, STEPS)).violation.is_some();
            let found = (1..=planted.seeds).find(is_found);
            let what = format!("{name} with {:?} without {:?}", planted.mistake, planted.without);
            println!("{what}: seed {found:?}");
            missed.extend(found.is_none().then_some(what));
        }
    }
    assert_eq!(missed, [""; 0], "not found within the seeds");
}

#[test]
fn a_violation_repeats_with_fewer_steps() {
    let engine = Engine::named("sqlite").unwrap();
    let without = Some(hotrow_cache::Safeguard::Epoch);
    let mut scenarios = (1..=30).map(|seed| Scenario { without, ..scenario(engine, seed) });
    let found = scenarios.find(|scenario| run(scenario).violation.is_some()).unwrap();
    let full = run(&found).counts.steps;
    let shrunk = crate::shrink(&found);
    assert!(shrunk.steps <= full, "{shrunk:?}");
    assert!(run(&shrunk).violation.is_some());
}
