//! Mistakes that the simulated world must find, each in its scenario and within a number of seeds.
//! A mistake that is not found fails the run: a world that finds nothing proves nothing.

use hotrow_cache::Safeguard;
use hotrow_hub::rules::Rule;
use hotrow_push::tracking::TrackingPlant;
use hotrow_push::{FollowPlant, PurgePlant};

use crate::engine::Engine;
use crate::run::{Mix, Rules, Scenario, StrictMistake};
use crate::scenarios::{AliasMistake, EmbeddedMistake, Mistake};

/// A mistake in a scenario.
#[derive(Clone, Copy, Debug)]
pub struct Planted {
    /// The mistake.
    pub mistake: Mistake,
    /// The scenario.
    pub scenario: &'static str,
    /// Seed that found it last. The search begins there, and goes on with the others.
    pub found: u64,
    /// Seeds within which it must be found.
    pub seeds: u64,
}

/// A safeguard of the cache that lookups lack.
#[derive(Clone, Copy, Debug)]
pub struct Unguarded {
    /// The safeguard.
    pub safeguard: Safeguard,
    /// Engines that rely on it.
    pub engines: &'static [&'static str],
    /// By which rules it is found. By those of the contract alone a client would notice it; Race A
    /// shows there only where no fence catches it as well.
    pub rules: Rules,
    /// Seeds within which it must be found, from 1.
    pub seeds: u64,
}

const fn all(safeguard: Safeguard, engines: &'static [&'static str], seeds: u64) -> Unguarded {
    Unguarded { safeguard, engines, rules: Rules::All, seeds }
}

const fn contract(safeguard: Safeguard, engines: &'static [&'static str], seeds: u64) -> Unguarded {
    Unguarded { safeguard, engines, rules: Rules::Contract, seeds }
}

/// Engines with readers next to them, but MongoDB. There reads wait for what was delivered, so that
/// the fence is a second line, and the feed continues after most interruptions.
const NEAR: &[&str] = &["sqlite", "sqlite-unversioned", "postgres", "mariadb", "mysql"];
/// Those of them whose feed can deliver a commit before readers see it (Race B).
const AHEAD: &[&str] = &["postgres", "mariadb", "mysql"];
/// Few reads of far readers fit into a run.
const FAR: &[&str] = &["postgres-far", "mariadb-far", "mysql-far"];
const MONGODB: &[&str] = &["mongodb"];
/// Most mistakes with standbys need several rare events at once.
const STANDBYS: &[&str] = &["postgres-standbys"];
const FLUSHED: &[&str] = &["sqlite-without-triggers"];

/// Mistakes in lookups.
pub const UNGUARDED: &[Unguarded] = &[
    all(Safeguard::Lease, NEAR, 30),
    all(Safeguard::Lease, FAR, 200),
    all(Safeguard::Lease, STANDBYS, 300),
    all(Safeguard::Lease, MONGODB, 500),
    all(Safeguard::Fence, AHEAD, 30),
    all(Safeguard::Fence, FAR, 200),
    all(Safeguard::Fence, STANDBYS, 300),
    all(Safeguard::Fence, MONGODB, 500),
    all(Safeguard::Join, FAR, 200),
    all(Safeguard::Epoch, NEAR, 30),
    all(Safeguard::Epoch, FLUSHED, 30),
    all(Safeguard::Epoch, FAR, 200),
    all(Safeguard::Epoch, STANDBYS, 300),
    all(Safeguard::Epoch, MONGODB, 500),
    // A probe's echo that is taken for its time is a thousandth of the bound of far readers.
    all(Safeguard::Probe, NEAR, 30),
    all(Safeguard::Probe, FLUSHED, 30),
    all(Safeguard::Probe, STANDBYS, 300),
    all(Safeguard::Probe, MONGODB, 500),
    all(Safeguard::StandbyFloor, STANDBYS, 300),
    all(Safeguard::StandbyShown, STANDBYS, 300),
    all(Safeguard::StandbyDelivered, STANDBYS, 300),
    all(Safeguard::StandbyAhead, STANDBYS, 300),
    // The feed and the standby have to be held at once: one ahead of the feed is refused anyway.
    all(Safeguard::StandbyBypass, STANDBYS, 1_000),
    all(Safeguard::StandbyOrder, STANDBYS, 300),
    all(Safeguard::StandbySnapshot, STANDBYS, 300),
    all(Safeguard::StandbyTimeline, STANDBYS, 300),
    contract(Safeguard::Lease, &["sqlite"], 30),
    contract(Safeguard::Fence, AHEAD, 30),
    contract(Safeguard::Fence, MONGODB, 500),
    contract(Safeguard::Join, FAR, 200),
    contract(Safeguard::Epoch, &["sqlite", "postgres"], 30),
];

/// A mistake in strict reads and snapshots.
#[derive(Clone, Copy, Debug)]
pub struct StrictPlanted {
    /// Safeguard of the cache that is disabled.
    pub without: Option<Safeguard>,
    /// Mistake of the steps around it.
    pub mistake: Option<StrictMistake>,
    /// Engines on which it must be found by the contract alone.
    pub engines: &'static [&'static str],
    /// Seeds within which it must be found, from 1.
    pub seeds: u64,
}

const fn strict(
    mistake: StrictMistake,
    engines: &'static [&'static str],
    seeds: u64,
) -> StrictPlanted {
    StrictPlanted { without: None, mistake: Some(mistake), engines, seeds }
}

const fn snapshot(safeguard: Safeguard, engines: &'static [&'static str]) -> StrictPlanted {
    StrictPlanted { without: Some(safeguard), mistake: None, engines, seeds: 200 }
}

/// Mistakes in strict reads and snapshots.
pub const STRICT_PLANTED: &[StrictPlanted] = &[
    strict(StrictMistake::LookJoinedLate, NEAR, 200),
    strict(StrictMistake::LookJoinedLate, MONGODB, 200),
    strict(StrictMistake::LookAtOtherServer, NEAR, 200),
    strict(StrictMistake::LookAtOtherServer, MONGODB, 200),
    strict(StrictMistake::OldFlightJoined, FAR, 2_000),
    strict(StrictMistake::AppliedEarly, NEAR, 500),
    strict(StrictMistake::AppliedEarly, MONGODB, 500),
    strict(StrictMistake::StandbyInSnapshot, STANDBYS, 500),
    snapshot(Safeguard::SnapshotMarks, &["sqlite"]),
    snapshot(Safeguard::SnapshotMarks, AHEAD),
    snapshot(Safeguard::SnapshotMarks, FAR),
    snapshot(Safeguard::SnapshotMarks, MONGODB),
    snapshot(Safeguard::SnapshotFence, AHEAD),
    snapshot(Safeguard::SnapshotFence, FAR),
];

impl StrictPlanted {
    /// Returns the run of a seed, with the mistake.
    #[must_use]
    pub fn scenario(&self, engine: Engine, seed: u64, steps: u64) -> Scenario {
        let Self { without, mistake: planted, .. } = *self;
        let (rules, mix) = (Rules::Contract, Mix::Strict);
        Scenario { without, planted, rules, mix, ..Scenario::new(engine, seed, steps) }
    }
}

const fn alias(mistake: AliasMistake) -> Planted {
    Planted { mistake: Mistake::Alias(mistake), scenario: "aliases", found: 0, seeds: 2_000 }
}

const fn embedded(mistake: EmbeddedMistake) -> Planted {
    Planted { mistake: Mistake::Embedded(mistake), scenario: "embedded", found: 0, seeds: 2_000 }
}

const fn follow(mistake: FollowPlant) -> Planted {
    Planted { mistake: Mistake::Follow(mistake), scenario: "followers", found: 0, seeds: 1_500 }
}

const fn tracking(mistake: TrackingPlant) -> Planted {
    Planted { mistake: Mistake::Tracking(mistake), scenario: "tracking", found: 0, seeds: 300 }
}

const fn purge(mistake: PurgePlant) -> Planted {
    Planted { mistake: Mistake::Purge(mistake), scenario: "purges", found: 0, seeds: 1_000 }
}

const fn hub(rule: Rule, found: u64, seeds: u64) -> Planted {
    Planted { mistake: Mistake::Hub(rule), scenario: "hub", found, seeds }
}

/// Mistakes in the other scenarios.
pub const PLANTED: &[Planted] = &[
    alias(AliasMistake::NewValueIgnored),
    alias(AliasMistake::NoMark),
    alias(AliasMistake::RowInstalled),
    alias(AliasMistake::CaseFolded),
    alias(AliasMistake::Unconfirmed),
    embedded(EmbeddedMistake::OldParentOmitted),
    embedded(EmbeddedMistake::UnknownIsNone),
    embedded(EmbeddedMistake::TruncateOmitted),
    embedded(EmbeddedMistake::MarkUnderChild),
    embedded(EmbeddedMistake::FlushWithoutMark),
    embedded(EmbeddedMistake::TwoStatements),
    embedded(EmbeddedMistake::InvalidationByWindow),
    follow(FollowPlant::PushedHidden),
    follow(FollowPlant::IdOnFirstEvent),
    follow(FollowPlant::ResumeSkipsRest),
    follow(FollowPlant::NoResetAtBeginning),
    follow(FollowPlant::RegisteredLate),
    tracking(TrackingPlant::RegisteredLate),
    tracking(TrackingPlant::PushedBeforeReply),
    tracking(TrackingPlant::HiddenReplyKept),
    tracking(TrackingPlant::SecondSpellingForgotten),
    tracking(TrackingPlant::NothingAtBeginning),
    tracking(TrackingPlant::ForgottenInSilence),
    tracking(TrackingPlant::OverrunIgnored),
    purge(PurgePlant::PurgedHidden),
    purge(PurgePlant::NotRepeated),
    purge(PurgePlant::DroppedAtOverflow),
    purge(PurgePlant::ChangeInFlightForgotten),
    purge(PurgePlant::LossNotPurged),
    hub(Rule::EveryChange, 0, 100),
    hub(Rule::Successor, 29, 4_000),
    hub(Rule::Identity, 11, 20_000),
    hub(Rule::LookAfterNonce, 96, 4_000),
    hub(Rule::WatermarkInOrder, 0, 1_000),
    hub(Rule::Hidden, 110, 1_000),
    hub(Rule::ResumeWithin, 8_720, 30_000),
    hub(Rule::SameWatch, 3_196, 30_000),
    hub(Rule::CompareAndSet, 123, 4_000),
    hub(Rule::ConfirmAfterAck, 3_176, 20_000),
    hub(Rule::SettleFirst, 123, 30_000),
];

impl Planted {
    /// Returns a seed that finds the mistake, and nothing without it.
    ///
    /// # Errors
    /// It is not found, or the same seed finds something without it.
    pub fn find(&self) -> Result<u64, String> {
        let Self { mistake, scenario, found, seeds } = self;
        let world = crate::World::named(scenario).ok_or("no such scenario")?;
        let mut seeds_of = (*found..*seeds).chain(0..*found);
        let seed = seeds_of.find(|seed| world.run(*seed, Some(*mistake)).is_err());
        let seed = seed.ok_or_else(|| format!("{mistake:?} is not found in {seeds} seeds"))?;
        let without = world.run(seed, None);
        without.map_err(|error| format!("seed {seed}, without {mistake:?}: {error}"))?;
        Ok(seed)
    }
}
