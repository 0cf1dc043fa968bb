//! A missing safeguard is found within a stated number of seeds.

use hotrow_cache::Safeguard;

use super::scenario;
use crate::engine::FeedKind;
use crate::run::{Rules, Scenario, run};
use crate::{ENGINES, Engine};

/// Seeds within which the absence of a safeguard is found. The seeds that found it when this was
/// written are at most 14, and 169 and 31 on MongoDB.
const SEEDS_UNTIL_FOUND: u64 = 30;
/// The same on MongoDB: its reads wait for what was delivered, so its fence is a second line, and
/// its feed continues after most interruptions.
const SEEDS_UNTIL_FOUND_MONGODB: u64 = 500;

/// The same for reads of a standby while the feed is behind: the feed and the standby have to be
/// held at once, because a standby that is ahead of the feed is refused anyway.
const SEEDS_UNTIL_FOUND_BYPASS: u64 = 1_000;
/// The same for the other rules of standbys: most need several rare events at once.
const SEEDS_UNTIL_FOUND_STANDBYS: u64 = 300;

/// The same with far readers: few reads fit into a run.
const SEEDS_UNTIL_FOUND_FAR: u64 = 200;

/// Returns the first seed that shows the absence of a safeguard.
fn first_found(engine: Engine, safeguard: Safeguard, rules: Rules) -> Option<u64> {
    let seeds = match (engine.name, safeguard) {
        ("mongodb", _) => SEEDS_UNTIL_FOUND_MONGODB,
        _ if engine.is_far => SEEDS_UNTIL_FOUND_FAR,
        (_, Safeguard::StandbyBypass) => SEEDS_UNTIL_FOUND_BYPASS,
        ("postgres-standbys", _) => SEEDS_UNTIL_FOUND_STANDBYS,
        _ => SEEDS_UNTIL_FOUND,
    };
    let is_found = |seed: &u64| {
        let without = Some(safeguard);
        run(&Scenario { without, rules, ..scenario(engine, *seed) }).violation.is_some()
    };
    let found = (1..=seeds).find(is_found);
    println!("{} without {safeguard:?} by {rules:?}: seed {found:?}", engine.name);
    found
}

/// Returns whether the engine relies on the safeguard.
fn relies_on(engine: &Engine, safeguard: Safeguard) -> bool {
    match safeguard {
        Safeguard::Join => engine.is_far,
        Safeguard::Lease => engine.feed == FeedKind::Changes,
        Safeguard::Fence => engine.runs_ahead(),
        Safeguard::Epoch => engine.feed != FeedKind::Off,
        // A probe's echo that is taken for its time is a thousandth of the bound of far readers.
        Safeguard::Probe => engine.feed != FeedKind::Off && !engine.is_far,
        Safeguard::StandbyFloor
        | Safeguard::StandbyShown
        | Safeguard::StandbyDelivered
        | Safeguard::StandbyAhead
        | Safeguard::StandbyBypass
        | Safeguard::StandbyOrder
        | Safeguard::StandbySnapshot
        | Safeguard::StandbyTimeline => engine.standbys > 0,
        // Simulated clients keep no copies and follow nothing; those that do are in `push`.
        Safeguard::CopyInterest
        | Safeguard::CopyOrder
        | Safeguard::CopyFence
        | Safeguard::CopySpelling
        | Safeguard::CopyBeginning
        | Safeguard::FollowProof
        | Safeguard::FollowLastId
        | Safeguard::FollowRest
        | Safeguard::FollowBeginning
        | Safeguard::FollowReplay => false,
    }
}

#[test]
fn a_missing_safeguard_is_found() {
    let safeguards = [
        Safeguard::Lease,
        Safeguard::Fence,
        Safeguard::Join,
        Safeguard::Epoch,
        Safeguard::Probe,
        Safeguard::StandbyFloor,
        Safeguard::StandbyShown,
        Safeguard::StandbyDelivered,
        Safeguard::StandbyAhead,
        Safeguard::StandbyBypass,
        Safeguard::StandbyOrder,
        Safeguard::StandbySnapshot,
        Safeguard::StandbyTimeline,
    ];
    let mut missed = Vec::new();
    for (safeguard, engine) in safeguards.into_iter().flat_map(|s| ENGINES.map(|e| (s, e))) {
        if !relies_on(&engine, safeguard) {
            continue;
        }
        let found = first_found(engine, safeguard, Rules::All);
        missed.extend(found.is_none().then_some((engine.name, safeguard)));
    }
    assert_eq!(missed, [], "not found within the seeds");
}

/// The same by the rules that compare answers with the database alone. Race A shows there only
/// where no fence catches it as well.
#[test]
fn a_client_would_notice_a_missing_safeguard() {
    for (safeguard, name) in [
        (Safeguard::Lease, "sqlite"),
        (Safeguard::Fence, "postgres"),
        (Safeguard::Fence, "mariadb"),
        (Safeguard::Fence, "mysql"),
        (Safeguard::Fence, "mongodb"),
        (Safeguard::Join, "postgres-far"),
        (Safeguard::Join, "mariadb-far"),
        (Safeguard::Join, "mysql-far"),
        (Safeguard::Epoch, "sqlite"),
        (Safeguard::Epoch, "postgres"),
    ] {
        let engine = Engine::named(name).unwrap();
        let found = first_found(engine, safeguard, Rules::Contract);
        assert!(found.is_some(), "{name} without {safeguard:?} passed");
    }
}

#[test]
fn a_violation_repeats_with_fewer_steps() {
    let engine = Engine::named("sqlite").unwrap();
    let mut scenarios = (1..=SEEDS_UNTIL_FOUND)
        .map(|seed| Scenario { without: Some(Safeguard::Epoch), ..scenario(engine, seed) });
    let found = scenarios.find(|scenario| run(scenario).violation.is_some()).unwrap();
    let full = run(&found).counts.steps;
    let shrunk = crate::shrink(&found);
    assert!(shrunk.steps <= full, "{shrunk:?}");
    assert!(run(&shrunk).violation.is_some());
}
