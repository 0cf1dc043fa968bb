//! Freshness: how far the cache may be behind the database, and whether an entry may be served now.

use std::time::Duration;

use hotrow_measure::clock::Nanos;

use crate::config::{Config, WhenStale};
use crate::record::{Epoch, Record};
use crate::sync::{AtomicU64, Mutex, Ordering};
use hotrow_types::version::Position;

/// Progress of the feed.
#[derive(Debug)]
pub(crate) struct Progress {
    /// Time at which the newest log-end probe that the feed has passed was sent.
    watermark: AtomicU64,
    /// 1 from a gap in the feed until the next feed has passed a probe: no feed vouches for the
    /// entries.
    lost: AtomicU64,
    applied: Mutex<Option<Position>>,
}

impl Progress {
    pub(crate) fn new() -> Self {
        Self { watermark: AtomicU64::new(0), lost: AtomicU64::new(0), applied: Mutex::new(None) }
    }

    /// Returns how long a change may have gone unseen.
    pub(crate) fn staleness(&self, now: Nanos) -> Duration {
        now.since(self.watermark())
    }

    /// Returns the staleness for judging entries: infinite while there is no feed.
    pub(crate) fn effective_staleness(&self, now: Nanos) -> Duration {
        if self.lost.load(Ordering::Acquire) == 0 { self.staleness(now) } else { Duration::MAX }
    }

    /// Returns the time before which every committed change has been applied.
    pub(crate) fn watermark(&self) -> Nanos {
        Nanos(self.watermark.load(Ordering::Acquire))
    }

    pub(crate) fn advance(&self, probe_sent_at: Nanos, position: Option<Position>) {
        // The position first: a reader of the watermark may rely on everything before it.
        *self.applied.lock() = position;
        self.watermark.store(probe_sent_at.0, Ordering::Release);
        self.lost.store(0, Ordering::Release);
    }

    pub(crate) fn applied(&self) -> Option<Position> {
        *self.applied.lock()
    }

    /// Marks a gap in the feed, or its restart at `position`.
    pub(crate) fn mark_gap(&self, position: Option<Position>) {
        self.lost.store(1, Ordering::Release);
        *self.applied.lock() = position;
    }
}

/// Freshness of an answer from the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Freshness {
    /// Within the contract's bound.
    Fresh,
    /// Past its TTL and within `stale_while_revalidate`: served, and the caller requests a refresh.
    Expired,
    /// Past the contract's bound; served by policy and marked.
    Stale,
}

/// Ages of a collection's answers at one moment.
#[derive(Clone, Copy, Debug)]
pub struct Ages {
    pub(crate) now: Nanos,
    /// Watermark of the feed, and the epoch of the entries that it vouches for.
    pub(crate) followed: Option<(Nanos, Epoch)>,
    pub(crate) max_staleness: Duration,
}

impl Ages {
    /// Returns the age of a record of the collection.
    #[inline]
    pub fn of(&self, record: &Record) -> Duration {
        let read_at = match record.is_of_standby() {
            // It reflects what the feed had delivered when it was read, within the bound before.
            true => record.read_at().before(self.max_staleness),
            false => record.read_at(),
        };
        // The lesser of two ages is that of the later time.
        self.now.since(match self.followed {
            Some((watermark, epoch)) if epoch == record.epoch() => read_at.max(watermark),
            _ => read_at,
        })
    }
}

/// Verdict on an entry at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Serve(Freshness),
    /// Not to be served; it stays until a newer answer replaces it.
    Read,
    /// Flushed: it can never be served again.
    Flushed,
    Refuse,
}

/// Judges an entry. Pure: all inputs are arguments.
pub(crate) fn judge(
    record: &Record,
    epoch: Epoch,
    staleness: Duration,
    now: Nanos,
    config: &Config,
) -> Verdict {
    let behind = staleness > config.max_staleness;
    if behind && config.when_stale == WhenStale::Refuse {
        return Verdict::Refuse;
    }
    if record.epoch().flush != epoch.flush {
        return Verdict::Flushed;
    }
    let expired = record.expired_for(now);
    if behind && config.when_stale == WhenStale::Stale {
        // Policy `stale` waives only point 2 of the contract. An entry from before a gap is as good
        // as any other here, because a change that replaced or invalidated it has removed it from
        // the store.
        return if expired.is_none() { Verdict::Serve(Freshness::Stale) } else { Verdict::Read };
    }
    if record.epoch().feed != epoch.feed {
        return Verdict::Read;
    }
    // A standby shows what the feed had delivered, which may be older than the read.
    if behind && (record.is_of_standby() || now.since(record.read_at()) > config.max_staleness) {
        return Verdict::Read;
    }
    match expired {
        None => Verdict::Serve(Freshness::Fresh),
        Some(past) if past < config.stale_while_revalidate && !behind => {
            Verdict::Serve(Freshness::Expired)
        }
        Some(_) => Verdict::Read,
    }
}

/// Returns whether an entry may answer for a read that failed. Invalidated and flushed entries
/// never do (they are not in the store, or of an older flush epoch), and others only within
/// `stale_if_error` past their TTL.
pub(crate) fn may_serve_stale(record: &Record, epoch: Epoch, now: Nanos, config: &Config) -> bool {
    let window = config.stale_if_error;
    !window.is_zero()
        && record.epoch().flush == epoch.flush
        && record.expired_for(now).unwrap_or_default() < window
        && config.when_stale != WhenStale::Refuse
}

#[cfg(test)]
#[cfg(not(feature = "shuttle"))]
mod tests;
