//! What the sender of a request may see of a collection, and the answer where that is nothing.
//!
//! Every record is judged when it becomes an answer, whatever brought it: memory, a flight shared
//! with other tenants' requests, a read past the cache, or a stale entry. It is judged before the
//! conditions of the request, so that the entity tag of another tenant's record means nothing.
//!
//! A record that the sender does not see and a record that does not exist get the same answer, made
//! by the same code. It shows nothing of the entry behind it: neither its age nor where it came
//! from, and its position is the feed's.

use std::rc::Rc;

use hotrow_cache::{Lookup, ReadMode, Record};
use hotrow_config::Tenancy;
use hotrow_telemetry::lookups::LookupKind;
use hotrow_telemetry::outcome::CacheOutcome;
use hotrow_types::key::{CollectionId, Key};
use hotrow_types::tenant::Tenants;
use hotrow_types::version::Position;

use crate::admission::rate::Fields as RateLimitFields;
use crate::answer::{Answer, Outcome};
use crate::context::RequestContext;
use crate::handle::{Handler, Step};
use crate::http_error::HttpError;
use crate::read::lead;
use crate::respond::Provenance;
use crate::scan_detector::ScanSubject;

/// Records of a collection that a sender may see.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Sight<'a> {
    /// All.
    All,
    /// Those of these tenants.
    OfTenants {
        /// Tenants of the sender.
        own: &'a Tenants,
        /// See [`Tenancy::hides_existence`].
        hides_existence: bool,
    },
}

/// A [`Sight`] that a future can hold.
#[derive(Clone, Debug)]
pub(crate) enum SightBuf {
    All,
    OfTenants { own: Tenants, hides_existence: bool },
}

impl<'a> Sight<'a> {
    /// Returns what a sender with these tenants sees.
    pub(crate) fn new(tenancy: Option<Tenancy>, own: &'a Tenants) -> Self {
        match tenancy {
            None => Self::All,
            Some(Tenancy { hides_existence }) => Self::OfTenants { own, hides_existence },
        }
    }

    /// Returns whether the sender sees the record. Where there are tenants, no sender sees one
    /// that does not exist.
    #[inline]
    pub(crate) fn sees(self, record: &Record) -> bool {
        match self {
            Self::All => true,
            // No tenant has an empty name, so that a record of no tenant takes the same steps.
            Self::OfTenants { own, .. } => own.contains(record.tenant().unwrap_or_default()),
        }
    }

    /// Returns whether a record from memory must be read from the database before it is answered.
    #[inline]
    pub(crate) fn must_read_again(self, record: &Record) -> bool {
        self.hides_existence() && !self.sees(record)
    }

    /// Returns whether no answer may show by its time which records are in memory.
    #[inline]
    pub(crate) fn hides_existence(self) -> bool {
        matches!(self, Self::OfTenants { hides_existence: true, .. })
    }

    /// Returns the bytes of the record in an answer.
    pub(crate) fn bytes(self, record: &Record) -> u64 {
        if self.sees(record) { record.body().len() as u64 } else { 0 }
    }

    /// Returns it as a future can hold it.
    pub(crate) fn to_buf(self) -> SightBuf {
        match self {
            Self::All => SightBuf::All,
            Self::OfTenants { own, hides_existence } => {
                SightBuf::OfTenants { own: own.clone(), hides_existence }
            }
        }
    }
}

impl SightBuf {
    pub(crate) fn as_sight(&self) -> Sight<'_> {
        match self {
            Self::All => Sight::All,
            Self::OfTenants { own, hides_existence } => {
                Sight::OfTenants { own, hides_existence: *hides_existence }
            }
        }
    }

    /// Returns whether there may be records that the sender does not see.
    pub(crate) fn is_limited(&self) -> bool {
        matches!(self, Self::OfTenants { .. })
    }
}

/// 404 for a record that does not exist or that the sender does not see.
#[derive(Debug)]
pub struct AbsentAnswer {
    pub(crate) collection: CollectionId,
    pub(crate) position: Option<Position>,
    /// Header fields of the rate limits, if they are configured.
    pub(crate) rate_limit: Option<Box<RateLimitFields>>,
}

/// Returns the session token of an absent record: the point that the feed has passed. The answer of
/// a read that is ahead of the feed keeps its own token, or a later answer with the feed's could be
/// older.
pub(crate) fn absent_position(
    applied: Option<Position>,
    own: Option<Position>,
) -> Option<Position> {
    match (applied, own) {
        (Some(applied), Some(own)) if applied.reaches(&own) => Some(applied),
        (_, own) => own,
    }
}

impl Handler {
    /// Reads a key past memory: see [`Sight::must_read_again`]. In all other respects the request
    /// counts as one whose key is not in memory.
    #[cold]
    pub(crate) fn item_again(
        self: &Rc<Self>,
        key: Key,
        (mode, subject): (ReadMode, ScanSubject<'_>),
        request: &RequestContext<'_>,
    ) -> Step {
        let id = key.collection();
        let now = request.times.now;
        let mut deadline = now;
        let mut size = None;
        let admit = || {
            deadline = self.admit_reads(id, mode, 1, request)?;
            size = Some(self.shared.budgets.answer_of_rows(id, 1)?);
            Ok(deadline)
        };
        let lookup = match self.shared.cache.lookup_if(&key, ReadMode::Revalidate, now, admit) {
            Ok(lookup) => lookup,
            Err(problem @ HttpError::BadHeader(_)) => return Step::problem(&problem),
            Err(problem) => {
                self.lookups.count(id.0, LookupKind::Refused);
                return self.refused(&key, mode, request, &problem);
            }
        };
        self.looked_up(subject, id, mode, &lookup);
        let (waiter, outcome) = match lookup {
            Lookup::Coalesced(waiter) => (waiter, CacheOutcome::Coalesced),
            Lookup::Miss(waiter) => (waiter, CacheOutcome::Miss),
            Lookup::Bypass(waiter) => (waiter, CacheOutcome::Bypass),
            Lookup::Refused(refusal) => {
                return self.refused(&key, mode, request, &(&refusal).into());
            }
            // Not in this mode.
            Lookup::Hit(record, quality) | Lookup::Negative(record, quality) => {
                let age = self.shared.cache.age(&record, now);
                let provenance = Provenance::of_hit(quality, age);
                return Step::Now(self.answer(record, provenance, request, None));
            }
        };
        lead(&self.shared.fetcher, id);
        self.item_later(key, mode, (waiter, deadline, size), outcome, request)
    }

    /// Answers as if the record did not exist. `outcome` is for the metrics alone.
    #[cold]
    pub(crate) fn absent(&self, record: &Record, outcome: CacheOutcome) -> Outcome {
        let source = self.shared.cache.source_of(record.collection());
        let answer = AbsentAnswer {
            collection: record.collection(),
            position: absent_position(self.shared.cache.applied(source), record.position()),
            rate_limit: None,
        };
        (Answer::Absent(answer), outcome)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_position_is_the_feeds_unless_the_read_is_ahead_of_it() {
        let p = |incarnation, at| Some(Position { incarnation, at });
        for (applied, own, expected) in [
            (p(1, 9), p(1, 3), p(1, 9)),
            (p(1, 9), p(1, 9), p(1, 9)),
            (p(1, 9), p(1, 12), p(1, 12)),
            (p(1, 9), p(2, 3), p(2, 3)),
            (None, p(1, 3), p(1, 3)),
            (p(1, 9), None, None),
            (None, None, None),
        ] {
            assert_eq!(absent_position(applied, own), expected, "{applied:?} {own:?}");
        }
    }
}
