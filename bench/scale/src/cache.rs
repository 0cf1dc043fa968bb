//! Caches of keys: S3-FIFO, of which the cache of the program is a relative, and LRU, for which the
//! hit ratio is known in closed form.

use std::collections::VecDeque;

/// Share of the capacity for keys that have been asked for once.
const SMALL_SHARE: f64 = 0.1;
const USES_MAX: u8 = 3;
/// Uses in the small queue from which a key is moved to the main one.
const PROMOTED_AT: u8 = 2;

/// A cache of keys, which are numbers.
pub trait Policy {
    /// Asks for a key. Returns whether it was in the cache; it is afterwards.
    fn ask(&mut self, key: usize) -> bool;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Nowhere,
    Ghost,
    Small,
    Main,
}

/// S3-FIFO (Yang and others: "FIFO queues are all you need for cache eviction", 2023).
#[derive(Debug)]
pub struct S3Fifo {
    places: Vec<(Place, u8)>,
    small: VecDeque<usize>,
    main: VecDeque<usize>,
    ghosts: VecDeque<usize>,
    capacity: usize,
}

impl S3Fifo {
    /// Creates a cache that holds the keys from 0 on.
    pub fn full(keys: usize, capacity: usize) -> Self {
        let held = capacity.min(keys);
        let small = if held < keys { (held as f64 * SMALL_SHARE) as usize } else { 0 };
        let place = |key| match key {
            key if key < held - small => (Place::Main, 0),
            key if key < held => (Place::Small, 0),
            _ => (Place::Nowhere, 0),
        };
        Self {
            places: (0..keys).map(place).collect(),
            // The least popular ones leave first.
            main: (0..held - small).rev().collect(),
            small: (held - small..held).rev().collect(),
            ghosts: VecDeque::new(),
            capacity,
        }
    }

    fn evict(&mut self) {
        let small_max = (self.capacity as f64 * SMALL_SHARE) as usize;
        while self.small.len() + self.main.len() > self.capacity {
            if self.small.len() > small_max || self.main.is_empty() {
                self.evict_small();
            } else {
                self.evict_main();
            }
        }
    }

    fn evict_small(&mut self) {
        let Some(key) = self.small.pop_front() else { return };
        if self.places[key].1 >= PROMOTED_AT {
            self.places[key] = (Place::Main, 0);
            self.main.push_back(key);
            return;
        }
        self.places[key] = (Place::Ghost, 0);
        self.ghosts.push_back(key);
        if self.ghosts.len() > self.capacity
            && let Some(oldest) = self.ghosts.pop_front()
            && self.places[oldest].0 == Place::Ghost
        {
            self.places[oldest].0 = Place::Nowhere;
        }
    }

    fn evict_main(&mut self) {
        while let Some(key) = self.main.pop_front() {
            match self.places[key].1 {
                0 => {
                    self.places[key].0 = Place::Nowhere;
                    return;
                }
                uses => {
                    self.places[key].1 = uses - 1;
                    self.main.push_back(key);
                }
            }
        }
    }
}

impl Policy for S3Fifo {
    fn ask(&mut self, key: usize) -> bool {
        let (place, uses) = self.places[key];
        match place {
            Place::Small | Place::Main => {
                self.places[key].1 = (uses + 1).min(USES_MAX);
                return true;
            }
            Place::Ghost => {
                self.places[key] = (Place::Main, 0);
                self.main.push_back(key);
            }
            Place::Nowhere => {
                self.places[key] = (Place::Small, 0);
                self.small.push_back(key);
            }
        }
        self.evict();
        false
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::random::{Random, Zipf};

    /// Least recently used, by the time of the last use: exact, and slow to evict only once per
    /// miss.
    struct Lru {
        used_at: Vec<Option<u64>>,
        by_time: std::collections::BTreeMap<u64, usize>,
        capacity: usize,
        now: u64,
    }

    impl Policy for Lru {
        fn ask(&mut self, key: usize) -> bool {
            self.now += 1;
            let before = self.used_at[key].replace(self.now);
            before.iter().for_each(|at| _ = self.by_time.remove(at));
            self.by_time.insert(self.now, key);
            if self.by_time.len() > self.capacity
                && let Some((_, oldest)) = self.by_time.pop_first()
            {
                self.used_at[oldest] = None;
            }
            before.is_some()
        }
    }

    fn ratio(cache: &mut dyn Policy, zipf: &Zipf) -> f64 {
        let mut random = Random::new(7);
        (0..400_000).for_each(|_| _ = cache.ask(zipf.rank(&mut random)));
        let hits = (0..400_000).filter(|_| cache.ask(zipf.rank(&mut random))).count();
        hits as f64 / 400_000.0
    }

    /// Hit ratio of LRU in the approximation of Che, Tung and Wang (2002): a key stays for a
    /// characteristic time `t`, at which the expected number of different keys is the capacity.
    fn che(zipf: &Zipf, capacity: usize) -> f64 {
        let (mut low, mut high) = (0.0, 1e9);
        for _ in 0..100 {
            let t = (low + high) / 2.0;
            if zipf.distinct(t) < capacity as f64 { low = t } else { high = t }
        }
        let hit = |rank| zipf.share(rank) * (1.0 - (-low * zipf.share(rank)).exp());
        (0..zipf.ranks()).map(hit).sum()
    }

    #[test]
    fn the_hit_ratio_of_lru_is_the_one_in_closed_form_and_s3_fifo_is_above_it() {
        let zipf = Zipf::new(20_000, 0.9);
        for capacity in [200, 2_000, 10_000] {
            let mut lru =
                Lru { used_at: vec![None; 20_000], by_time: Default::default(), capacity, now: 0 };
            let (direct, closed) = (ratio(&mut lru, &zipf), che(&zipf, capacity));
            assert!((direct - closed).abs() < 0.01, "{capacity}: {direct} and {closed}");
            let s3 = ratio(&mut S3Fifo::full(20_000, capacity), &zipf);
            let best: f64 = (0..capacity).map(|rank| zipf.share(rank)).sum();
            assert!(s3 > direct && s3 <= best + 0.005, "{capacity}: {s3}, {direct}, best {best}");
        }
    }

    #[test]
    fn everything_that_fits_is_hit() {
        let zipf = Zipf::new(1_000, 0.9);
        let mut random = Random::new(1);
        let mut cache = S3Fifo::full(1_000, 1_000);
        assert!((0..10_000).all(|_| cache.ask(zipf.rank(&mut random))));
    }
}
