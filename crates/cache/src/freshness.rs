//! How far the cache may be behind the database, and what an entry is worth at a given moment.

use std::time::Duration;

use hotrow_measure::clock::Nanos;

use crate::config::{Config, WhenStale};
use crate::record::{Era, Record};
use crate::sync::{AtomicU64, Mutex, Ordering};
use crate::version::Position;

/// How far the feed has come.
#[derive(Debug)]
pub(crate) struct Progress {
    /// When the newest log-end probe was sent that the feed has since passed.
    watermark: AtomicU64,
    /// 1 from a loss of the feed until the next one has passed a probe: nobody watches meanwhile.
    lost: AtomicU64,
    applied: Mutex<Option<Position>>,
}

impl Progress {
    pub(crate) fn new() -> Self {
        Self { watermark: AtomicU64::new(0), lost: AtomicU64::new(0), applied: Mutex::new(None) }
    }

    /// Time for which a change may have gone unseen.
    pub(crate) fn staleness(&self, now: Nanos) -> Duration {
        now.since(self.watermark())
    }

    /// The same, as far as entries can be trusted: without end while there is no feed.
    pub(crate) fn doubt(&self, now: Nanos) -> Duration {
        if self.lost.load(Ordering::Acquire) == 0 { self.staleness(now) } else { Duration::MAX }
    }

    /// Every change committed before this has been taken in.
    pub(crate) fn watermark(&self) -> Nanos {
        Nanos(self.watermark.load(Ordering::Acquire))
    }

    pub(crate) fn advance(&self, probe_sent_at: Nanos, position: Option<Position>) {
        // Position first: who sees the watermark may rely on everything before it.
        *self.applied.lock() = position;
        self.watermark.store(probe_sent_at.0, Ordering::Release);
        self.lost.store(0, Ordering::Release);
    }

    pub(crate) fn applied(&self) -> Option<Position> {
        *self.applied.lock()
    }

    /// The feed lost its place, or starts at `position`.
    pub(crate) fn lose(&self, position: Option<Position>) {
        self.lost.store(1, Ordering::Release);
        *self.applied.lock() = position;
    }
}

/// How good an answer from the store is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quality {
    /// Within the contract's bound.
    Fresh,
    /// Past its TTL and within `stale_while_revalidate`: served, and the caller asks for a refresh.
    Expired,
    /// Past the contract's bound and served by policy: marked.
    Stale,
}

/// What an entry is worth now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Serve(Quality),
    /// Not to be served; it stays until a newer answer replaces it.
    Read,
    /// Flushed: it will never be served again.
    Gone,
    Refuse,
}

/// Judges an entry. Pure: everything it depends on is an argument.
pub(crate) fn judge(record: &Record, era: Era, staleness: Duration, now: Nanos, config: &Config) -> Verdict {
    let behind = staleness > config.max_staleness;
    if behind && config.when_stale == WhenStale::Refuse {
        return Verdict::Refuse;
    }
    if record.era().flush != era.flush {
        return Verdict::Gone;
    }
    let expired = record.expired_for(now);
    if behind && config.when_stale == WhenStale::Stale {
        // Only point 2 of the contract is waived: an entry of before a loss is as good as any here, for whatever
        // replaced or invalidated it has taken it out of the store.
        return if expired.is_none() { Verdict::Serve(Quality::Stale) } else { Verdict::Read };
    }
    if record.era().loss != era.loss {
        return Verdict::Read;
    }
    if behind && now.since(record.read_at()) > config.max_staleness {
        return Verdict::Read;
    }
    match expired {
        None => Verdict::Serve(Quality::Fresh),
        Some(past) if past < config.stale_while_revalidate && !behind => Verdict::Serve(Quality::Expired),
        Some(_) => Verdict::Read,
    }
}

/// Whether an entry may stand in for a read that failed: never one that was invalidated or flushed (those are not in
/// the store, or of another flush era), and only within `stale_if_error` past its TTL.
pub(crate) fn stands_in(record: &Record, era: Era, now: Nanos, config: &Config) -> bool {
    let window = config.stale_if_error;
    !window.is_zero()
        && record.era().flush == era.flush
        && record.expired_for(now).unwrap_or_default() < window
        && config.when_stale != WhenStale::Refuse
}

#[cfg(test)]
#[cfg(not(feature = "shuttle"))]
mod tests;
