//! Slab of the entries of one shard, with their rings and their hash chains.
//!
//! Everything is linked by 32-bit indices, so that an entry costs one slot of 16 bytes, its links
//! of 8 and a bucket of 4. The links are apart, because a lookup does not need them: a slot lies in
//! one cache line. A *ring* is a circular list with a head, the entry that is looked at next; what
//! is linked goes to the tail, just behind it in the circle. A *chain* holds the entries of one
//! bucket of the hash table. A lookup reads a bucket, a slot and the record.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use super::entry::Entry;

/// End of a chain or list, and head of an empty ring. Bounds the slots of a shard.
pub(super) const NONE: u32 = u32::MAX;
/// Uses that the policy counts: an entry is passed over at most so often without a new use.
pub(super) const USES_MAX: u32 = 2;
/// Most times that an entry is passed over for its small size.
pub(super) const PASSES_MAX: u32 = 7;

/// Number of ranks that [`Slab::ranked`] distinguishes.
pub(super) const RANKS: u32 = 2 * (USES_MAX + 1);

const USES: u32 = 0b11;
const PASSES_SHIFT: u32 = 2;
const PASSES: u32 = PASSES_MAX << PASSES_SHIFT;
const HOT: u32 = 1 << 5;
/// Number of bits of a mark below the tag.
const TAG_SHIFT: u32 = 6;
const BUCKETS_MIN: usize = 16;
/// Largest number of buckets: their numbers are bits of the tag. With more entries, chains grow.
const BUCKETS_MAX: usize = 1 << (32 - TAG_SHIFT);

/// State of an entry in 32 bits: the number of uses, the number of passes, whether the entry is
/// hot, and the tag, the low bits of the key's hash.
///
/// Readers change the uses and passes under the shard's read lock. Two at once may count as one.
#[derive(Debug)]
struct Mark(AtomicU32);

impl Mark {
    fn get(&self) -> u32 {
        self.0.load(Relaxed)
    }

    fn set(&mut self, mark: u32) {
        *self.0.get_mut() = mark;
    }
}

/// One entry, or a free slot.
#[derive(Debug)]
struct Slot<R> {
    /// `None` in a free slot.
    record: Option<R>,
    /// The next slot of the bucket, or the next free slot.
    chain: u32,
    mark: Mark,
}

/// Neighbours of an entry in its ring.
#[derive(Clone, Copy, Debug)]
struct Links {
    next: u32,
    previous: u32,
}

/// A circular list of entries.
#[derive(Debug)]
pub(super) struct Ring {
    pub(super) head: u32,
    pub(super) entries: u32,
    pub(super) weight_bytes: u64,
}

impl Ring {
    pub(super) const EMPTY: Self = Self { head: NONE, entries: 0, weight_bytes: 0 };
}

/// The slots of one shard.
#[derive(Debug)]
pub(super) struct Slab<R> {
    slots: Vec<Slot<R>>,
    /// By slot.
    links: Vec<Links>,
    free: u32,
    entries: usize,
    /// First slot of each bucket. A power of two.
    buckets: Box<[u32]>,
}

fn tag_of(hash: u64) -> u32 {
    (hash as u32) << TAG_SHIFT
}

/// Compares two keys. Those of integers and other short ones without a call.
#[inline]
fn is_same(a: &[u8], b: &[u8]) -> bool {
    const HALF: usize = 8;
    if a.len() != b.len() {
        return false;
    }
    let ends = |key: &[u8]| Some((*key.first_chunk::<HALF>()?, *key.last_chunk::<HALF>()?));
    match (ends(a), ends(b)) {
        (Some(a), Some(b)) if a.0 == b.0 && a.1 == b.1 => {}
        (Some(_), Some(_)) => return false,
        _ => return a == b,
    }
    a.len() <= 2 * HALF || a == b
}

impl<R: Entry> Slab<R> {
    pub(super) fn new() -> Self {
        let buckets = vec![NONE; BUCKETS_MIN].into();
        Self { slots: Vec::new(), links: Vec::new(), free: NONE, entries: 0, buckets }
    }

    fn bucket(&self, mark: u32) -> usize {
        (mark >> TAG_SHIFT) as usize & (self.buckets.len() - 1)
    }

    /// Returns the slot of the key.
    #[inline]
    pub(super) fn find(&self, hash: u64, key: &[u8]) -> Option<u32> {
        let tag = tag_of(hash);
        let mut at = self.buckets[self.bucket(tag)];
        while let Some(slot) = self.slots.get(at as usize) {
            // The tag first: it spares the record's cache line.
            if (slot.mark.get() ^ tag) >> TAG_SHIFT == 0
                && slot.record.as_ref().is_some_and(|record| is_same(record.key_bytes(), key))
            {
                return Some(at);
            }
            at = slot.chain;
        }
        None
    }

    /// Returns the first slot whose tag is that of the hash, and nearly always the key's; `NONE`:
    /// the key is not here. Reads no record.
    #[inline]
    pub(super) fn find_tag(&self, hash: u64) -> u32 {
        let tag = tag_of(hash);
        let mut at = self.buckets[self.bucket(tag)];
        while let Some(slot) = self.slots.get(at as usize)
            && (slot.mark.get() ^ tag) >> TAG_SHIFT != 0
        {
            at = slot.chain;
        }
        at
    }

    /// Returns whether the entry in a slot has this key.
    #[inline]
    pub(super) fn has_key(&self, at: u32, key: &[u8]) -> bool {
        self.record(at).is_some_and(|record| is_same(record.key_bytes(), key))
    }

    #[inline]
    pub(super) fn record(&self, at: u32) -> Option<&R> {
        self.slots.get(at as usize)?.record.as_ref()
    }

    /// Counts a use. What is used already is not written to.
    #[inline]
    pub(super) fn note_use(&self, at: u32) {
        let mark = &self.slots[at as usize].mark;
        let before = mark.get();
        if before & USES < USES_MAX {
            mark.0.store(before + 1, Relaxed);
        }
    }

    /// Takes one use away, and restores the passes. `false` if there was no use.
    pub(super) fn take_use(&mut self, at: u32) -> bool {
        let mark = &mut self.slots[at as usize].mark;
        let before = mark.get();
        if before & USES > 0 {
            mark.set((before & !PASSES) - 1);
        }
        before & USES > 0
    }

    /// Returns the slots that `from` and the next ones up to `to` have of entries in use, with the
    /// rank of each: below [`RANKS`], the highest for a hot entry with the most uses.
    pub(super) fn ranked(&self, from: usize, to: usize) -> impl Iterator<Item = (u32, &R)> {
        let slots = self.slots.get(from..to.min(self.slots.len())).unwrap_or_default();
        slots.iter().filter_map(|slot| {
            let mark = slot.mark.get();
            let hot = if mark & HOT == 0 { 0 } else { USES_MAX + 1 };
            slot.record.as_ref().map(|record| (hot + (mark & USES), record))
        })
    }

    /// Returns the number of slots, free ones included.
    pub(super) fn slot_count(&self) -> usize {
        self.slots.len()
    }

    /// Takes one of `granted` passes. `false` if all are taken.
    pub(super) fn take_pass(&mut self, at: u32, granted: u32) -> bool {
        let mark = &mut self.slots[at as usize].mark;
        let before = mark.get();
        let taken = (before & PASSES) >> PASSES_SHIFT;
        let grants = taken < granted.min(PASSES_MAX);
        if grants {
            mark.set(before + (1 << PASSES_SHIFT));
        }
        grants
    }

    pub(super) fn is_hot(&self, at: u32) -> bool {
        self.slots[at as usize].mark.get() & HOT != 0
    }

    pub(super) fn set_hot(&mut self, at: u32) {
        let mark = &mut self.slots[at as usize].mark;
        let before = mark.get();
        mark.set(before | HOT);
    }

    /// Adds an entry without uses, in no ring. `None`: all slots are taken.
    pub(super) fn insert(&mut self, hash: u64, record: R, hot: bool) -> Option<u32> {
        if self.entries >= self.buckets.len() {
            self.grow();
        }
        let mark = tag_of(hash) | if hot { HOT } else { 0 };
        let bucket = self.bucket(mark);
        let at = if self.free == NONE { self.slots.len() as u32 } else { self.free };
        if at == NONE {
            return None;
        }
        let slot = Slot {
            record: Some(record),
            chain: self.buckets[bucket],
            mark: Mark(AtomicU32::new(mark)),
        };
        if let Some(reused) = self.slots.get_mut(at as usize) {
            self.free = reused.chain;
            *reused = slot;
        } else {
            self.slots.push(slot);
            self.links.push(Links { next: at, previous: at });
        }
        self.buckets[bucket] = at;
        self.entries += 1;
        Some(at)
    }

    /// Removes an entry that is in no ring.
    pub(super) fn remove(&mut self, at: u32) -> Option<R> {
        let bucket = self.bucket(self.slots[at as usize].mark.get());
        let after = self.slots[at as usize].chain;
        if self.buckets[bucket] == at {
            self.buckets[bucket] = after;
        } else {
            let mut before = self.buckets[bucket];
            while let Some(slot) = self.slots.get_mut(before as usize) {
                if slot.chain == at {
                    slot.chain = after;
                    break;
                }
                before = slot.chain;
            }
        }
        let slot = &mut self.slots[at as usize];
        slot.chain = self.free;
        self.free = at;
        self.entries -= 1;
        slot.record.take()
    }

    /// Puts another version of the record in its place.
    pub(super) fn replace(&mut self, at: u32, record: R) -> Option<R> {
        self.slots[at as usize].record.replace(record)
    }

    /// Links an entry to the tail of a ring.
    pub(super) fn link(&mut self, ring: &mut Ring, at: u32, weight_bytes: u64) {
        ring.entries += 1;
        ring.weight_bytes += weight_bytes;
        if ring.head == NONE {
            ring.head = at;
            self.links[at as usize] = Links { next: at, previous: at };
            return;
        }
        let tail = self.links[ring.head as usize].previous;
        self.links[at as usize] = Links { next: ring.head, previous: tail };
        self.links[tail as usize].next = at;
        self.links[ring.head as usize].previous = at;
    }

    /// Takes an entry out of its ring.
    pub(super) fn unlink(&mut self, ring: &mut Ring, at: u32, weight_bytes: u64) {
        ring.entries -= 1;
        ring.weight_bytes -= weight_bytes;
        let Links { next, previous } = self.links[at as usize];
        self.links[previous as usize].next = next;
        self.links[next as usize].previous = previous;
        if ring.head == at {
            ring.head = if next == at { NONE } else { next };
        }
    }

    /// Moves the head of the ring to its tail.
    pub(super) fn rotate(&self, ring: &mut Ring) {
        if let Some(links) = self.links.get(ring.head as usize) {
            ring.head = links.next;
        }
    }

    /// Returns the memory of slots and buckets, in bytes.
    pub(super) fn memory_bytes(&self) -> usize {
        self.slots.len() * (size_of::<Slot<R>>() + size_of::<Links>())
            + self.buckets.len() * size_of::<u32>()
    }

    #[cold]
    fn grow(&mut self) {
        if self.buckets.len() >= BUCKETS_MAX {
            return;
        }
        self.buckets = vec![NONE; 2 * self.buckets.len()].into();
        for at in 0..self.slots.len() {
            if self.slots[at].record.is_none() {
                continue;
            }
            let bucket = self.bucket(self.slots[at].mark.get());
            self.slots[at].chain = self.buckets[bucket];
            self.buckets[bucket] = at as u32;
        }
    }
}

#[cfg(test)]
#[cfg(not(feature = "shuttle"))]
impl<R: Entry> Slab<R> {
    /// Returns the entries of a ring from its head on, after checking the links.
    pub(super) fn walk(&self, ring: &Ring) -> Vec<u32> {
        let mut walked = Vec::new();
        let mut at = ring.head;
        while at != NONE && (walked.is_empty() || at != ring.head) {
            let links = self.links[at as usize];
            assert_eq!(self.links[links.next as usize].previous, at);
            assert!(self.slots[at as usize].record.is_some(), "a free slot in a ring");
            walked.push(at);
            at = links.next;
        }
        walked
    }

    pub(super) fn uses(&self, at: u32) -> u32 {
        self.slots[at as usize].mark.get() & USES
    }

    pub(super) fn passes(&self, at: u32) -> u32 {
        (self.slots[at as usize].mark.get() & PASSES) >> PASSES_SHIFT
    }

    /// Checks that the chains hold every entry once, and that all other slots are free.
    pub(super) fn check(&self) {
        let mut chained = 0;
        for (bucket, first) in self.buckets.iter().enumerate() {
            let mut at = *first;
            while at != NONE {
                let slot = &self.slots[at as usize];
                assert!(slot.record.is_some(), "a free slot in a chain");
                assert_eq!(self.bucket(slot.mark.get()), bucket);
                chained += 1;
                assert!(chained <= self.slots.len(), "a chain without an end");
                at = slot.chain;
            }
        }
        let mut free = 0;
        let mut at = self.free;
        while at != NONE {
            assert!(self.slots[at as usize].record.is_none());
            free += 1;
            at = self.slots[at as usize].chain;
        }
        assert_eq!(chained, self.entries);
        assert_eq!(chained + free, self.slots.len());
        assert_eq!(self.links.len(), self.slots.len());
        assert_eq!((size_of::<Slot<R>>(), size_of::<Links>()), (16, 8));
    }
}

impl<R> Slab<R> {
    /// Returns the records, in no order.
    #[cfg(any(test, feature = "failpoints"))]
    pub(super) fn records(&self) -> impl Iterator<Item = &R> {
        self.slots.iter().filter_map(|slot| slot.record.as_ref())
    }
}
