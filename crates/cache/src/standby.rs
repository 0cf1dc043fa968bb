//! Reads of standbys: when one may answer for a key, and when the primary may answer after one.
//!
//! A standby replays the log of the primary, some time after it or some time before a commit is
//! visible there. Both are points of one log, so the rules compare points:
//!
//! - S1: a standby answers only if it had replayed, before it read the row, every delivered change
//!   of the key, every change that the fence has forgotten, and everything that an earlier answer
//!   to the key may have shown.
//! - S2: a standby's answer is given only when the feed has delivered all that it may show.
//! - S3: after it, an answer of the primary is given only if it sees every delivered change up to
//!   there; else the key is read again.
//! - S4: only the primary answers while the feed is lost or behind, during a gap of the collection,
//!   to `no-cache`, with the cache off, and for keys with several spellings.
//! - S5: where changes became known without a mark (a start of the feed, the end of a gap, a flush
//!   or purge without one), standbys wait until a probe of the log's end that was sent after that
//!   has been passed. Then they must have replayed the log up to there.
//!
//! What an answer may show is remembered by hash of its key, in a fixed number of slots: a shared
//! slot costs a read of the primary, never a wrong answer.

use std::sync::atomic::Ordering;

use hotrow_measure::clock::Nanos;

use crate::cache::{Cache, Collection};
use crate::fetch_queue::FetchQueue;
use crate::safeguards::{Safeguard, Safeguards};
use crate::standbys::Standbys;
use hotrow_types::key::{CollectionId, Key};
use hotrow_types::source::SourceId;
use hotrow_types::version::{Position, Version};

/// What a standby's answer may show, as the standby said after it had read the rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StandbyBound {
    /// A feed that has delivered anything past this point has delivered everything shown.
    pub past: u64,
    /// Nothing past this point was shown.
    pub end: u64,
}

/// What decides whether an answer may be older than an earlier one.
#[derive(Debug)]
pub(crate) struct AnswerOrder<'a> {
    pub(crate) key: &'a Key,
    pub(crate) hash: u64,
    pub(crate) version: &'a Version,
    pub(crate) position: Option<Position>,
    /// Position of the feed.
    pub(crate) applied: Option<Position>,
    /// The feed was lost since the query was sent.
    pub(crate) is_lost: bool,
}

/// Verdict on an answer that is about to be given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    Fits,
    /// An earlier answer may have been newer: the key is read again.
    TooOld,
}

impl<E: Clone> FetchQueue<E> {
    /// Judges an answer against earlier ones (S1 and S3), and remembers it if it fits.
    pub(crate) fn order(&mut self, answer: &AnswerOrder<'_>, safeguards: &Safeguards) -> Order {
        let &AnswerOrder { key, hash, version, position, applied, is_lost } = answer;
        let Some(standbys) = &mut self.standbys else { return Order::Fits };
        let is_held = standbys.is_held();
        let slot = standbys.slot(hash);
        let is_older = match version {
            Version::Replayed { from, .. } => {
                is_held || from.at < slot.any && safeguards.has(Safeguard::StandbyShown)
            }
            _ if slot.standby == 0 || !safeguards.has(Safeguard::StandbyAhead) => false,
            _ => self.fence.hides_before(key, version, slot.standby),
        };
        if is_older || is_lost {
            return Order::TooOld;
        }
        if position.map(|position| position.incarnation) != applied.map(|at| at.incarnation) {
            // The answer is of another log than the feed's, which is about to be lost.
            standbys.hold();
            return Order::Fits;
        }
        let at = position.map_or(0, |position| position.at);
        slot.any = slot.any.max(at);
        if matches!(version, Version::Replayed { .. }) {
            slot.standby = slot.standby.max(at);
        }
        Order::Fits
    }

    /// Returns the least point that a standby must have replayed to answer for the key (S1); `None`
    /// if only the primary may.
    pub(crate) fn standby_floor(&mut self, key: &Key, hash: u64, cache: &Cache<E>) -> Option<u64> {
        let marks = self.fence.replayed_at_least(key);
        let standbys = self.standbys.as_mut()?;
        let least = match cache.safeguards.has(Safeguard::StandbyFloor) {
            true => marks?.max(standbys.floor),
            false => self.fence.unforgotten_at_least(key)?,
        };
        let shown = standbys.slot(hash).any;
        Some(if cache.safeguards.has(Safeguard::StandbyShown) { least.max(shown) } else { least })
    }
}

impl<E> Collection<E> {
    fn release_standbys_after(&self, now: Nanos) {
        let is_held = match &mut self.fetch_queue.lock().standbys {
            Some(standbys) => standbys.release_after(now),
            None => false,
        };
        if is_held {
            self.source.standbys_are_held.store(true, Ordering::Release);
        }
    }

    /// Lets standbys answer for this collection from the next start of the feed on.
    fn expect_standbys(&self) {
        self.fetch_queue.lock().standbys.get_or_insert_with(|| Box::new(Standbys::new()));
    }
}

impl<E: Clone> Cache<E> {
    /// Declares that reads of the source may be sent to standbys
    /// ([`crate::BatchLoader::standby_floor`]). Call it before the feed starts.
    pub fn expect_standbys(&self, source: SourceId) {
        self.collections_of(source).for_each(|(_, collection)| collection.expect_standbys());
    }

    /// Lets standbys that wait answer again once the feed has passed a probe sent after `now`: call
    /// it after [`Cache::mark_gap`] with a position, [`Cache::close_gap`], [`Cache::purge`], and
    /// [`Cache::flush`] without a mark.
    pub fn release_standbys_after(&self, collection: CollectionId, now: Nanos) {
        let (collection, _) = self.collection(collection);
        collection.release_standbys_after(now);
    }

    /// Does so for all collections of a source.
    pub fn release_all_standbys_after(&self, source: SourceId, now: Nanos) {
        self.collections_of(source)
            .for_each(|(_, collection)| collection.release_standbys_after(now));
    }

    /// The feed of a source has passed a probe. Takes locks only while standbys wait somewhere.
    pub(crate) fn standbys_passed(
        &self,
        source: SourceId,
        probe_sent_at: Nanos,
        position: Option<Position>,
    ) {
        let Some(position) = position else { return };
        let state = &self.sources[source.index()];
        if !state.standbys_are_held.swap(false, Ordering::AcqRel) {
            return;
        }
        let mut is_held = false;
        for (_, collection) in self.collections_of(source) {
            if let Some(standbys) = &mut collection.fetch_queue.lock().standbys {
                is_held |= standbys.passed(probe_sent_at, position.at);
            }
        }
        if is_held {
            state.standbys_are_held.store(true, Ordering::Release);
        }
    }

    /// Returns whether standbys may be used for the collection now, as far as no key decides (S4
    /// and S5). Called under the queue's lock.
    pub(crate) fn may_use_standbys(
        &self,
        collection: &Collection<E>,
        fetches: &FetchQueue<E>,
        now: Nanos,
    ) -> bool {
        let is_released = fetches.standbys.as_ref().is_some_and(|standbys| !standbys.is_held());
        let is_behind = !self.is_collection_current(collection, now)
            && self.safeguards.has(Safeguard::StandbyBypass);
        is_released
            && !is_behind
            && self.config.enabled
            && !collection.has_gap()
            && !collection.has_aliases.load(Ordering::Relaxed)
    }

    /// Returns a point past everything that a standby's answer may show, if the feed has delivered
    /// all of it (S2). `floor` is what the standby was asked for.
    pub fn delivered_through(
        &self,
        source: SourceId,
        floor: Position,
        bound: StandbyBound,
    ) -> Option<Position> {
        let applied =
            self.applied(source).filter(|applied| applied.incarnation == floor.incarnation)?;
        let is_delivered = applied.at > bound.past || applied.at >= bound.end;
        let is_delivered = is_delivered || !self.safeguards.has(Safeguard::StandbyDelivered);
        is_delivered.then(|| Position { at: applied.at.min(bound.end), ..applied })
    }
}

#[cfg(test)]
#[cfg(not(feature = "shuttle"))]
mod tests;
