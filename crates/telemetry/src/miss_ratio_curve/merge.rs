//! Events of several rings and of the log, in the order of their time. Each source has its own in
//! that order, so they are merged where they are: to sort them would need as much memory again.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use hotrow_cache::miniature::sampling::Sample;
use hotrow_measure::clock::Nanos;

/// Events of one or more sources, one after the other.
#[derive(Debug, Default)]
pub(super) struct Collected {
    pub(super) samples: Vec<Sample>,
    /// End of each source's events in `samples`.
    ends: Vec<usize>,
}

impl Collected {
    /// Forgets all events and keeps the memory.
    pub(super) fn clear(&mut self) {
        self.samples.clear();
        self.ends.clear();
    }

    /// Makes room for `samples` events and no more.
    pub(super) fn reserve(&mut self, samples: usize) {
        self.samples.reserve_exact(samples.saturating_sub(self.samples.len()));
    }

    /// Adds what `take` appends: the events of one source.
    pub(super) fn add(&mut self, take: impl FnOnce(&mut Vec<Sample>)) {
        let begin = self.samples.len();
        take(&mut self.samples);
        // Threads that share a source may append in another order than that of their clocks.
        let added = &mut self.samples[begin..];
        if !added.is_sorted_by_key(|sample| sample.at) {
            added.sort_by_key(|sample| sample.at);
        }
        self.ends.push(self.samples.len());
    }

    /// Returns the events in the order of their time; at the same time, those of the source that
    /// was added first.
    pub(super) fn in_order(&self) -> impl Iterator<Item = &Sample> {
        let begins = std::iter::once(&0).chain(&self.ends);
        let mut next: BinaryHeap<Reverse<(Nanos, usize, usize)>> = begins
            .zip(&self.ends)
            .filter_map(|(begin, end)| self.at(*begin, *end))
            .map(Reverse)
            .collect();
        std::iter::from_fn(move || {
            let Reverse((_, index, end)) = next.pop()?;
            next.extend(self.at(index + 1, end).map(Reverse));
            self.samples.get(index)
        })
    }

    /// Returns the time of an event, and its place; `None` at the end of its source.
    fn at(&self, index: usize, end: usize) -> Option<(Nanos, usize, usize)> {
        let sample = self.samples.get(index).filter(|_| index < end)?;
        Some((sample.at, index, end))
    }
}

#[cfg(test)]
mod tests {
    use hotrow_cache::miniature::sampling::Event;
    use hotrow_types::key::CollectionId;

    use super::*;

    fn sample(at: u64, key_hash: u64) -> Sample {
        let event = Event::Removed { is_change: true };
        Sample { at: Nanos(at), key_hash, collection: CollectionId(0), event }
    }

    #[test]
    fn the_order_is_that_of_a_stable_sort() {
        let mut collected = Collected::default();
        // Times with ties, within a source and between sources; one source is empty, one unsorted.
        let sources: [&[u64]; 5] = [&[1, 1, 4, 9], &[], &[0, 1, 4, 4], &[7, 3, 9, 1], &[9]];
        let mut all = Vec::new();
        for times in sources {
            let number = all.len() as u64 + 1;
            let samples = times.iter().zip(number..).map(|(at, number)| sample(*at, number));
            let samples: Vec<Sample> = samples.collect();
            all.extend(samples.clone());
            collected.add(|into| into.extend(samples));
        }
        all.sort_by_key(|sample| sample.at);
        assert_eq!(collected.in_order().copied().collect::<Vec<_>>(), all);
        collected.clear();
        assert_eq!(collected.in_order().count(), 0);
    }

    #[test]
    fn room_is_made_once() {
        let mut collected = Collected::default();
        collected.reserve(100);
        let room = collected.samples.capacity();
        collected.add(|into| into.extend((0..100).map(|at| sample(at, at))));
        collected.clear();
        collected.reserve(100);
        assert_eq!((collected.samples.capacity(), room), (100, 100));
    }
}
