//! What the sender of a request may see of a collection, and the answer where that is nothing.
//!
//! Every record is judged when it becomes an answer, whatever brought it: memory, a flight shared
//! with other tenants' requests, a read past the cache, or a stale entry. It is judged before the
//! conditions of the request, so that the entity tag of another tenant's record means nothing.
//!
//! A record that the sender does not see and a record that does not exist get the same answer, made
//! by the same code. It shows nothing of the entry behind it: neither its age nor where it came
//! from, and its position is the feed's.

use hotrow_cache::Record;
use hotrow_config::Tenancy;
use hotrow_types::tenant::Tenants;
use hotrow_types::version::Position;

/// Records of a collection that a sender may see.
#[derive(Clone, Copy, Debug)]
pub enum TenantFilter<'a> {
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

/// A [`TenantFilter`] that a future can hold.
#[derive(Clone, Debug)]
pub enum TenantFilterBuf {
    /// See [`TenantFilter::All`].
    All,
    /// See [`TenantFilter::OfTenants`].
    OfTenants {
        /// Tenants of the sender.
        own: Tenants,
        /// See [`Tenancy::hides_existence`].
        hides_existence: bool,
    },
}

impl<'a> TenantFilter<'a> {
    /// Returns what a sender with these tenants sees.
    pub fn new(tenancy: Option<Tenancy>, own: &'a Tenants) -> Self {
        match tenancy {
            None => Self::All,
            Some(Tenancy { hides_existence }) => Self::OfTenants { own, hides_existence },
        }
    }

    /// Returns whether the sender sees the record. Where there are tenants, no sender sees one
    /// that does not exist.
    #[inline]
    pub fn sees(self, record: &Record) -> bool {
        match self {
            Self::All => true,
            // No tenant has an empty name, so that a record of no tenant takes the same steps.
            Self::OfTenants { own, .. } => own.contains(record.tenant().unwrap_or_default()),
        }
    }

    /// Returns whether a record from memory must be read from the database before it is answered.
    #[inline]
    pub fn must_read_again(self, record: &Record) -> bool {
        self.hides_existence() && !self.sees(record)
    }

    /// Returns whether no answer may show by its time which records are in memory.
    #[inline]
    pub fn hides_existence(self) -> bool {
        matches!(self, Self::OfTenants { hides_existence: true, .. })
    }

    /// Returns the bytes of the record in an answer.
    #[inline]
    pub fn bytes(self, record: &Record) -> u64 {
        if self.sees(record) { record.body().len() as u64 } else { 0 }
    }

    /// Returns it as a future can hold it.
    pub fn to_buf(self) -> TenantFilterBuf {
        match self {
            Self::All => TenantFilterBuf::All,
            Self::OfTenants { own, hides_existence } => {
                TenantFilterBuf::OfTenants { own: own.clone(), hides_existence }
            }
        }
    }
}

impl TenantFilterBuf {
    /// Returns it as a request uses it.
    pub fn as_sight(&self) -> TenantFilter<'_> {
        match self {
            Self::All => TenantFilter::All,
            Self::OfTenants { own, hides_existence } => {
                TenantFilter::OfTenants { own, hides_existence: *hides_existence }
            }
        }
    }

    /// Returns whether there may be records that the sender does not see.
    #[inline]
    pub fn is_limited(&self) -> bool {
        matches!(self, Self::OfTenants { .. })
    }
}

/// Returns the session token of an absent record: the point that the feed has passed. The answer of
/// a read that is ahead of the feed keeps its own token, or a later answer with the feed's could be
/// older.
pub fn absent_position(applied: Option<Position>, own: Option<Position>) -> Option<Position> {
    match (applied, own) {
        (Some(applied), Some(own)) if applied.reaches(&own) => Some(applied),
        (_, own) => own,
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
