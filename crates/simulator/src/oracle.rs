//! Oracle: the consistency contract (docs/consistency.md), judged with full knowledge of the
//! database. It shares no decision with the cache: it compares versions of rows with times.

use hotrow_cache::config::WhenStale;
use hotrow_cache::{Freshness, Presence, ReadMode, Record};
use hotrow_measure::clock::Nanos;
use hotrow_source::catalog_watermark::shape_age_max;
use hotrow_types::version::Position;

use crate::database::RowVersion;
use crate::engine::FeedKind;
use crate::run::Rules;
use crate::world::World;

/// A request, and the state when it arrived.
#[derive(Clone, Debug)]
pub(crate) struct Arrival {
    pub(crate) session: usize,
    pub(crate) key: usize,
    pub(crate) mode: ReadMode,
    pub(crate) at: Nanos,
    pub(crate) deadline: Nanos,
    /// Newest version that this instance had answered or informed its clients of.
    pub(crate) floor: usize,
    /// Version that a read saw then.
    pub(crate) visible: usize,
    /// Last change or purge of the key that the instance had handled.
    pub(crate) changed: Nanos,
    /// Last flush of the collection.
    pub(crate) flushed: Nanos,
    /// Last loss or start of the feed.
    pub(crate) lost: Nanos,
    /// Point of the log that the feed had passed.
    pub(crate) applied: Option<Position>,
    /// Minimal position.
    pub(crate) wanted: Option<Position>,
    pub(crate) log_end: u64,
    pub(crate) incarnation: u64,
    /// Of a strict request: newest version in a strict answer of any instance.
    pub(crate) strict_floor: Option<usize>,
}

/// Origin of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    Entry(Freshness),
    Read,
    StaleIfError,
}

/// A rule that an answer breaks, with the details.
pub(crate) type Broken = (&'static str, String);

/// Names of the rules, by the point of the contract.
pub(crate) mod rule {
    pub(crate) const OTHER_RECORD: &str = "the record of another key";
    pub(crate) const NEVER_VISIBLE: &str = "a version that no read ever saw";
    pub(crate) const MONOTONIC: &str = "older than an answer or an event before (point 1)";
    pub(crate) const FRESH: &str = "not fresh (point 2)";
    pub(crate) const AGE: &str = "older than its age says (point 2)";
    pub(crate) const POSITION: &str = "does not reflect the minimal position (point 3)";
    pub(crate) const OTHER_DATABASE: &str = "a position of another database is answered (point 3)";
    pub(crate) const BEYOND: &str = "a position beyond the log's end is answered (point 3)";
    pub(crate) const TOKEN: &str = "a token before what was read (point 3)";
    pub(crate) const STRICT: &str = "misses a commit that had returned (point 6)";
    pub(crate) const BACKWARDS: &str = "older than a strict answer before (point 6)";
    pub(crate) const SNAPSHOT: &str = "no state of the database at its point (point 7)";
    pub(crate) const SNAPSHOT_EARLY: &str = "a snapshot before the required point (point 7)";
    pub(crate) const REVALIDATED: &str = "no-cache: a read from before the request (point 1)";
    pub(crate) const CHANGED: &str = "older than a change that was handled, or a purge";
    pub(crate) const FLUSHED: &str = "older than a flush";
    pub(crate) const LOSS: &str = "from before a loss, not marked (point 5)";
    pub(crate) const APPLIED: &str = "older than what the feed had passed (point 3)";
    pub(crate) const TTL: &str = "past its TTL";
    pub(crate) const EARLY: &str = "expired too early";
    pub(crate) const POLICY: &str = "stale although the policy forbids it";
}

impl World {
    /// Judges an answer that is given now. Returns its version.
    ///
    /// # Errors
    /// The rule that it breaks.
    pub(crate) fn judge(
        &self,
        i: usize,
        arrival: &Arrival,
        origin: Origin,
        record: &Record,
    ) -> Result<usize, Broken> {
        let version = self.version_of_answer(i, arrival, record)?;
        let answer = Answer { world: self, arrival, origin, record, version };
        answer.check_order()?;
        answer.check_lifetime()?;
        if self.settings.engine.feed != FeedKind::Off {
            answer.check_epochs()?;
            answer.check_freshness()?;
            answer.check_age(i)?;
        }
        answer.check_positions()?;
        answer.check_strict()?;
        Ok(version)
    }

    /// Finds which version of the row an answer is.
    pub(crate) fn version_of_answer(
        &self,
        i: usize,
        arrival: &Arrival,
        record: &Record,
    ) -> Result<usize, Broken> {
        let row = self.keys.row(arrival.key);
        if record.presence() == Presence::Missing {
            let read = (arrival.key, record.read_at());
            let known = self.instances[i].absent.get(&read).copied();
            return known.ok_or_else(|| (rule::NEVER_VISIBLE, format!("{arrival:?}, missing")));
        }
        let number = |at: usize| {
            let bytes = record.body().get(at..at + 8)?;
            Some(u64::from_le_bytes(bytes.try_into().ok()?) as usize)
        };
        match (number(0), number(8)) {
            (Some(version), Some(of)) if of == row => Ok(version),
            found => Err((rule::OTHER_RECORD, format!("{arrival:?}: {found:?}"))),
        }
    }
}

/// An answer under judgement.
struct Answer<'a> {
    world: &'a World,
    arrival: &'a Arrival,
    origin: Origin,
    record: &'a Record,
    version: usize,
}

impl Answer<'_> {
    fn require(&self, holds: bool, rule: &'static str) -> Result<(), Broken> {
        if holds { Ok(()) } else { Err((rule, self.describe())) }
    }

    fn require_version(&self, least: usize, rule: &'static str) -> Result<(), Broken> {
        if self.version >= least {
            return Ok(());
        }
        let row = self.row();
        let missed = self.world.database.version(row, least);
        Err((rule, format!("{}; at least {least} {missed:?}", self.describe())))
    }

    #[cold]
    fn describe(&self) -> String {
        let Self { arrival, origin, record, version, .. } = self;
        let (read_at, position) = (record.read_at(), record.position());
        format!(
            "version {version} read at {read_at:?}, {position:?}, by {origin:?} for {arrival:?}"
        )
    }

    fn row(&self) -> usize {
        self.world.keys.row(self.arrival.key)
    }

    /// Returns whether the answer is marked as possibly stale.
    fn is_marked(&self) -> bool {
        matches!(self.origin, Origin::Entry(Freshness::Stale) | Origin::StaleIfError)
    }

    /// Point 1, and `no-cache`.
    fn check_order(&self) -> Result<(), Broken> {
        self.require_version(self.arrival.floor, rule::MONOTONIC)?;
        if self.arrival.mode == ReadMode::Revalidate {
            let is_new = self.origin == Origin::Read && self.record.read_at() > self.arrival.at;
            self.require(is_new, rule::REVALIDATED)?;
            self.require_version(self.arrival.visible, rule::REVALIDATED)?;
        }
        Ok(())
    }

    /// TTL, and the two times for which an entry may outlive it.
    fn check_lifetime(&self) -> Result<(), Broken> {
        let settings = &self.world.settings;
        let ttl = match self.record.presence() {
            Presence::Found => settings.policy.ttl,
            Presence::Missing => settings.policy.negative_ttl,
        };
        let more = match self.origin {
            Origin::Read => return Ok(()),
            Origin::Entry(Freshness::Fresh | Freshness::Stale) => std::time::Duration::ZERO,
            Origin::Entry(Freshness::Expired) => settings.cache.stale_while_revalidate,
            Origin::StaleIfError => settings.cache.stale_if_error,
        };
        let expires_at = self.record.read_at().after(ttl).after(more);
        let at = if self.origin == Origin::StaleIfError { self.world.now } else { self.arrival.at };
        self.require(at < expires_at, rule::TTL)?;
        if self.origin == Origin::Entry(Freshness::Expired) {
            let jitter = 1.0 - settings.cache.ttl_jitter - 0.01;
            let is_due = at >= self.record.read_at().after(ttl.mul_f64(jitter));
            self.require(is_due, rule::EARLY)?;
        }
        let is_allowed = match self.origin {
            Origin::Entry(Freshness::Stale) => settings.cache.when_stale == WhenStale::Stale,
            Origin::StaleIfError => settings.cache.when_stale != WhenStale::Refuse,
            Origin::Read | Origin::Entry(_) => true,
        };
        self.require(is_allowed, rule::POLICY)
    }

    /// What was invalidated, purged, flushed or lost does not come back (point 5 and the policies).
    /// These rules know what the feed has reported; the others know the database alone.
    fn check_epochs(&self) -> Result<(), Broken> {
        if self.world.rules == Rules::Contract {
            return Ok(());
        }
        let (arrival, read_at) = (self.arrival, self.record.read_at());
        // No change is reported under a second spelling of a key; such reads are not kept.
        let is_alias = self.world.keys.is_alias(arrival.key);
        self.require(is_alias || read_at > arrival.changed, rule::CHANGED)?;
        self.require(read_at > arrival.flushed, rule::FLUSHED)?;
        self.require(self.is_marked() || read_at > arrival.lost, rule::LOSS)?;
        let Some(applied) = arrival.applied else { return Ok(()) };
        if self.is_marked() || self.record.is_behind() || is_alias {
            return Ok(());
        }
        let least = self.world.database.newest(self.row(), |version| {
            let is_passed =
                |place: (u64, u64)| place.0 == applied.incarnation && place.1 <= applied.at;
            version.is_shown && version.place.is_some_and(is_passed)
        });
        self.require_version(least, rule::APPLIED)
    }

    /// Point 2.
    fn check_freshness(&self) -> Result<(), Broken> {
        if self.is_marked() {
            return Ok(());
        }
        let (settings, at) = (&self.world.settings, self.arrival.at);
        let bound = settings.cache.max_staleness;
        let unshown = shape_age_max(settings.schema_poll, bound);
        let due = |version: &RowVersion| version.is_due(at, bound, unshown);
        self.require_version(self.world.database.newest(self.row(), due), rule::FRESH)
    }

    /// `Age`: an entry reflects every commit that returned before its age began.
    fn check_age(&self, i: usize) -> Result<(), Broken> {
        if !matches!(self.origin, Origin::Entry(_)) {
            return Ok(());
        }
        let age = self.world.instances[i].cache.age(self.record, self.arrival.at);
        let since = self.arrival.at.before(age);
        let least = self
            .world
            .database
            .newest(self.row(), |version| version.is_shown && version.returned_at < since);
        self.require_version(least, rule::AGE)
    }

    /// Point 3.
    fn check_positions(&self) -> Result<(), Broken> {
        let (database, arrival) = (&self.world.database, self.arrival);
        if let (Some(position), Some((incarnation, number))) =
            (self.record.position(), database.version(self.row(), self.version).place)
        {
            let is_behind = position.incarnation == incarnation && position.at < number;
            self.require(!is_behind, rule::TOKEN)?;
        }
        let Some(wanted) = arrival.wanted else { return Ok(()) };
        let is_current = wanted.incarnation == arrival.incarnation;
        // For as long as the feed may not have noticed it, the old database may answer.
        let is_known =
            arrival.at > database.replaced_at.after(self.world.settings.cache.max_staleness);
        self.require(is_current || !is_known, rule::OTHER_DATABASE)?;
        if !is_current {
            return Ok(());
        }
        if wanted.at > arrival.log_end {
            let is_reached =
                database.incarnation != wanted.incarnation || wanted.at <= database.end();
            return self.require(is_reached, rule::BEYOND);
        }
        let least = database.newest(self.row(), |version| {
            version.is_shown
                && version.visible_at <= arrival.at
                && version.place.is_some_and(|(incarnation, number)| {
                    incarnation == wanted.incarnation && number <= wanted.at
                })
        });
        self.require_version(least, rule::POSITION)
    }

    /// Point 6.
    fn check_strict(&self) -> Result<(), Broken> {
        let Some(floor) = self.arrival.strict_floor else { return Ok(()) };
        let had_returned =
            |version: &RowVersion| version.is_shown && version.returned_at < self.arrival.at;
        self.require_version(self.world.database.newest(self.row(), had_returned), rule::STRICT)?;
        self.require_version(floor, rule::BACKWARDS)
    }
}
