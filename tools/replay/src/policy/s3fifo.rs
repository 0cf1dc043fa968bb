//! S3-FIFO, plain or with an adaptive small queue. For comparison of hit ratios; not optimized for
//! speed.
//!
//! Source: Yang et al., "FIFO queues are all you need for cache eviction", SOSP 2023. The
//! adaptation follows ARC (Megiddo and Modha, FAST 2003): a hit on a key dropped by the small queue
//! lengthens that queue, a hit on one dropped by the main queue shortens it.

use std::collections::{HashMap, VecDeque};

use foldhash::fast::FixedState;

use super::Policy;

/// Parameters of the variants.
#[derive(Clone, Copy, Debug)]
pub struct S3Settings {
    /// Share of the capacity for the small queue; the initial share if it adapts.
    pub small: f64,
    /// Hits that an entry needs in the small queue to move to the main one.
    pub promote_at: u8,
    /// Lowest and highest share of the small queue; `None`: the share is fixed.
    pub adapt: Option<(f64, f64)>,
    /// Remembered keys over capacity: of the single list, or of both lists together if the small
    /// queue adapts.
    pub ghost: f64,
}

#[derive(Clone, Copy, PartialEq)]
enum Queue {
    Small,
    Main,
}

/// Keys without values, first in first out.
struct Ghost {
    order: VecDeque<(u32, u64)>,
    newest: HashMap<u32, u64, FixedState>,
    capacity: usize,
    stamp: u64,
}

impl Ghost {
    fn new(capacity: usize) -> Self {
        Self { order: VecDeque::new(), newest: HashMap::default(), capacity, stamp: 0 }
    }

    fn push(&mut self, key: u32) {
        self.stamp += 1;
        self.newest.insert(key, self.stamp);
        self.order.push_back((key, self.stamp));
        // Removed keys stay in the order, so the order is bounded as the list is.
        while self.newest.len() > self.capacity || self.order.len() > 2 * self.capacity.max(1) {
            let Some((old, stamp)) = self.order.pop_front() else { break };
            if self.newest.get(&old) == Some(&stamp) {
                self.newest.remove(&old);
            }
        }
    }

    fn take(&mut self, key: u32) -> bool {
        self.newest.remove(&key).is_some()
    }
}

/// The cache.
pub struct S3Fifo {
    hits_of: HashMap<u32, u8, FixedState>,
    small: VecDeque<u32>,
    main: VecDeque<u32>,
    dropped_by_small: Ghost,
    dropped_by_main: Ghost,
    capacity: usize,
    small_target: f64,
    settings: S3Settings,
}

impl S3Fifo {
    /// Creates a cache of `capacity` entries.
    #[must_use]
    pub fn new(capacity: usize, settings: S3Settings) -> Self {
        let ghosts = capacity as f64 * settings.ghost;
        let (by_small, by_main) =
            if settings.adapt.is_some() { (ghosts / 2.0, ghosts / 2.0) } else { (ghosts, 0.0) };
        Self {
            hits_of: HashMap::with_hasher(FixedState::with_seed(1)),
            small: VecDeque::new(),
            main: VecDeque::new(),
            dropped_by_small: Ghost::new(by_small as usize),
            dropped_by_main: Ghost::new(by_main as usize),
            capacity,
            small_target: capacity as f64 * settings.small,
            settings,
        }
    }

    /// Returns the queue for a new key, and adapts the small queue.
    fn admit(&mut self, key: u32) -> Queue {
        let sizes = (
            self.dropped_by_small.newest.len().max(1) as f64,
            self.dropped_by_main.newest.len().max(1) as f64,
        );
        let step = if self.dropped_by_small.take(key) {
            (sizes.1 / sizes.0).max(1.0)
        } else if self.dropped_by_main.take(key) {
            -(sizes.0 / sizes.1).max(1.0)
        } else {
            return Queue::Small;
        };
        if let Some((least, most)) = self.settings.adapt {
            let capacity = self.capacity as f64;
            self.small_target =
                (self.small_target + step).clamp((capacity * least).max(1.0), capacity * most);
        }
        Queue::Main
    }

    fn evict_one(&mut self) {
        let before = self.hits_of.len();
        while self.hits_of.len() == before {
            if self.small.len() as f64 >= self.small_target || self.main.is_empty() {
                self.evict_from_small();
            } else {
                self.evict_from_main();
            }
        }
    }

    fn evict_from_small(&mut self) {
        let Some(key) = self.small.pop_front() else { return self.evict_from_main() };
        match self.hits_of.get_mut(&key) {
            Some(hits) if *hits >= self.settings.promote_at => {
                *hits = 0;
                self.main.push_back(key);
            }
            _ => {
                self.hits_of.remove(&key);
                self.dropped_by_small.push(key);
            }
        }
    }

    fn evict_from_main(&mut self) {
        let Some(key) = self.main.pop_front() else { return };
        match self.hits_of.get_mut(&key) {
            Some(hits) if *hits > 0 => {
                *hits -= 1;
                self.main.push_back(key);
            }
            _ => {
                self.hits_of.remove(&key);
                self.dropped_by_main.push(key);
            }
        }
    }
}

impl Policy for S3Fifo {
    fn get_or_insert(&mut self, key: u32) -> bool {
        if let Some(hits) = self.hits_of.get_mut(&key) {
            *hits = (*hits + 1).min(3);
            return true;
        }
        let queue = self.admit(key);
        if self.hits_of.len() >= self.capacity {
            self.evict_one();
        }
        self.hits_of.insert(key, 0);
        match queue {
            Queue::Small => self.small.push_back(key),
            Queue::Main => self.main.push_back(key),
        }
        false
    }

    fn entries(&self) -> usize {
        self.hits_of.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: S3Settings = S3Settings { small: 0.1, promote_at: 1, adapt: None, ghost: 0.9 };

    #[test]
    fn one_scan_does_not_push_out_what_is_asked_for_often() {
        for settings in [PLAIN, S3Settings { adapt: Some((0.01, 0.9)), ghost: 1.0, ..PLAIN }] {
            let mut cache = S3Fifo::new(100, settings);
            let often: Vec<u32> = (0..50).collect();
            for _ in 0..5 {
                cache.replay(&often);
            }
            cache.replay(&(1_000..3_000).collect::<Vec<_>>());
            assert!(cache.replay(&often) >= 49, "{settings:?}");
            assert!(cache.entries() <= 100);
        }
    }
}
