//! Requirements on an answer, from the state at the time of its request.

use crate::testkit::counts;
use std::time::Duration;

use hotrow_measure::clock::Nanos;

use super::db::Db;
use super::world::{BOUND, NEGATIVE_TTL, TTL};
use crate::{Freshness, Presence, ReadMode, Record};
use hotrow_types::key::Key;

/// A request, and the state when it arrived.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    pub(super) key: Key,
    pub(super) mode: ReadMode,
    pub(super) at: Nanos,
    /// Newest version of the key that was answered, or that clients were informed of, before.
    pub(super) floor: u64,
    /// Point of the log that the feed had passed.
    pub(super) applied: u64,
    pub(super) fences: Fences,
}

/// Times of the last events of a key: nothing read before them may be served after them.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Fences {
    /// Invalidated or purged.
    pub(super) key: Nanos,
    /// Its collection flushed.
    pub(super) flush: Nanos,
    /// The feed lost or started.
    pub(super) loss: Nanos,
}

/// Path by which an answer came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AnswerPath {
    Entry(Freshness),
    Read,
    StaleIfError,
}

/// Returns the version of the row in the body of an answer: the log's point of its last change.
pub(super) fn row_version(record: &Record) -> Result<u64, String> {
    let text = std::str::from_utf8(record.body()).map_err(|e| e.to_string())?;
    text.parse().map_err(|_| format!("body {text:?}"))
}

/// Checks an answer against the contract. `seen` is the version of the row.
pub(super) fn check(
    asked: &Asked,
    path: AnswerPath,
    record: &Record,
    seen: u64,
    db: &Db,
) -> Result<(), String> {
    let Asked { key, mode, at, floor, applied, fences } = asked;
    let read_at = record.read_at();
    let rule = |holds: bool, what: &str| {
        if holds {
            Ok(())
        } else {
            Err(format!("{what}: got {seen} read at {read_at:?} by {path:?} for {asked:?}"))
        }
    };
    rule(record.key_bytes() == key.as_bytes(), "another key's record")?;
    rule(seen >= *floor, "older than an answer or an event before (point 1)")?;
    rule(read_at > fences.key, "older than an applied change or a purge")?;
    rule(read_at > fences.flush, "older than a flush")?;
    let marked = path == AnswerPath::StaleIfError || path == AnswerPath::Entry(Freshness::Stale);
    if !marked {
        let due = db.row_at(key, at.before(BOUND).before(Duration::from_nanos(1)));
        rule(seen >= due, "not fresh (point 2)")?;
        rule(
            record.is_behind() || seen >= db.row(key, *applied),
            "not fresh, by position (point 3)",
        )?;
        rule(read_at > fences.loss, "from before a gap, not marked (point 5)")?;
    }
    if let Some(position) = record.position() {
        rule(position.at >= seen, "a position before what was read (point 3)")?;
    }
    let ttl = if record.presence() == Presence::Found { TTL } else { NEGATIVE_TTL };
    match path {
        AnswerPath::Entry(Freshness::Fresh | Freshness::Stale) => {
            rule(*mode == ReadMode::Normal, "an entry for a request that wants a new read")?;
            rule(*at < read_at.after(ttl), "past its TTL")
        }
        AnswerPath::Entry(Freshness::Expired) => {
            rule(*at >= read_at.after(ttl.mul_f64(0.79)), "expired too early")
        }
        AnswerPath::Read => {
            rule(*mode == ReadMode::Normal || read_at > *at, "a read that began before its request")
        }
        AnswerPath::StaleIfError => Ok(()),
    }
}

counts!(
    steps,
    commits,
    losses,
    fresh,
    stale,
    expired,
    negative,
    read,
    joined,
    stale_if_errors,
    new_reads,
    behind,
    queue_full,
    overdue,
    displaced,
    failed_recently,
    failures,
    abandoned,
    leads,
    dropped_turns,
    dropped_waiters,
    dead_leases,
    rereads,
    evictions,
    merged_queries,
    purges,
    flushes,
    refreshes,
    hot_refreshes,
    hidden_commits,
    behind_the_feed,
);
