//! Walk through the records of the store by rank, in steps that hold a shard's lock for a bounded
//! time.

use super::Store;
use super::slab::RANKS;
use crate::record::{Presence, Record};

/// Slots looked at under one lock: about 10 µs, which a writer of the shard may wait.
const SLOTS_PER_STEP: usize = 1024;

/// Place in a walk. Ranks go from the highest to the lowest: hot entries with the most uses first.
/// An entry whose rank changes during the walk is met once, twice or not at all.
#[derive(Debug, Default)]
pub struct Walk {
    /// Ranks that are done.
    ranks: u32,
    shard: usize,
    slot: usize,
}

impl Store {
    /// Appends found records of the current rank, at most [`SLOTS_PER_STEP`]. `false`: the walk is
    /// at its end.
    pub(crate) fn step(&self, walk: &mut Walk, records: &mut Vec<Record>) -> bool {
        let Some(shard) = self.shards.get(walk.shard) else { return false };
        let end = walk.slot + SLOTS_PER_STEP;
        let shard = shard.read();
        let rank = (RANKS - 1).saturating_sub(walk.ranks);
        let of_rank = shard.slab().ranked(walk.slot, end).filter(|(found, _)| *found == rank);
        let found = of_rank.map(|(_, record)| record);
        records.extend(found.filter(|record| record.presence() == Presence::Found).cloned());
        walk.slot = end;
        if end >= shard.slab().slot_count() {
            walk.slot = 0;
            walk.shard += 1;
        }
        if walk.shard == self.shards.len() && walk.ranks + 1 < RANKS {
            walk.shard = 0;
            walk.ranks += 1;
        }
        walk.shard < self.shards.len()
    }
}
