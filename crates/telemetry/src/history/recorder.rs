//! Samples from readings: a pure core, in which time is an argument.

use std::collections::VecDeque;

use hotrow_measure::clock::Nanos;
use hotrow_measure::histogram::Histogram;

use super::series::{Series, SeriesKind};

/// Most samples that are kept: ten minutes at one a second.
pub(crate) const SAMPLES_MAX: usize = 600;
/// Age from which a sample is dropped, in nanoseconds. Samples are rarer after a gap.
const AGE_MAX_NS: u64 = 600_000_000_000;
/// Most collections with a series of their own; those of the others are added up.
pub(crate) const COLLECTIONS_MAX: usize = 64;
/// Longest name that a series of a collection keeps, in bytes.
const NAME_BYTES_MAX: usize = 64;
/// Rows of the heat map: half octaves from [`HEAT_LOW_NS`], and all below and above.
pub(crate) const HEAT_ROWS: usize = 50;
/// Upper bound of the first row.
const HEAT_LOW_NS: u64 = 512;

/// Number of series.
pub(crate) const SERIES: usize = Series::ALL.len();

/// What the process reports at one moment.
#[derive(Clone, Debug)]
pub struct Reading {
    /// Counts and gauges, by [`Series`]; NaN where nothing is known.
    pub(crate) values: [f64; SERIES],
    /// Latency of requests answered from memory, since the start.
    pub hits: Histogram,
    /// Latency of requests that needed the database, since the start.
    pub misses: Histogram,
    /// Waits for a query, since the start.
    pub waits: Histogram,
    /// Lookups by collection.
    pub collections: Vec<CollectionReading>,
}

/// Lookups of one collection since the start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CollectionReading {
    /// Its name.
    pub name: String,
    /// Answered from memory.
    pub memory: u64,
    /// Answered from the database.
    pub database: u64,
}

impl Reading {
    /// Creates a reading of nothing.
    pub fn empty() -> Self {
        Self {
            values: [f64::NAN; SERIES],
            hits: Histogram::default(),
            misses: Histogram::default(),
            waits: Histogram::default(),
            collections: Vec::new(),
        }
    }

    /// Sets the value of a series.
    pub fn set(&mut self, series: Series, value: f64) {
        self.values[series as usize] = value;
    }
}

/// Values of the time between two readings.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Sample {
    /// Time of the second reading.
    pub(crate) at: Nanos,
    /// Time between the two. Longer than usual after a suspend or a stop: a gap.
    pub(crate) interval_ns: u64,
    /// By [`Series`]; NaN where nothing is known.
    pub(crate) values: [f32; SERIES],
    /// Requests by latency; [`heat_bound_ns`] has the bounds.
    pub(crate) heat: [u32; HEAT_ROWS],
}

/// Lookups a second of one collection.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Lookups {
    /// Answered from memory; NaN before the series began.
    pub(crate) memory: f32,
    /// Answered from the database; NaN before the series began.
    pub(crate) database: f32,
}

const UNKNOWN: Lookups = Lookups { memory: f32::NAN, database: f32::NAN };

impl Lookups {
    fn is_idle(&self) -> bool {
        // Not `== 0`: NaN counts as idle.
        !(self.memory > 0.0 || self.database > 0.0)
    }
}

/// Series of one collection, with a value for each sample.
#[derive(Debug)]
pub(crate) struct CollectionSeries {
    pub(crate) name: String,
    pub(crate) lookups: VecDeque<Lookups>,
}

/// The kept samples. All memory is taken at the start or when a collection's series begins.
#[derive(Debug)]
pub(crate) struct Recorder {
    last: Option<(Nanos, Reading)>,
    samples: VecDeque<Sample>,
    /// Number of the sample after the last, from the start of the process.
    next: u64,
    collections: Vec<CollectionSeries>,
    /// Collections without a series of their own, added up.
    others: VecDeque<Lookups>,
}

impl Recorder {
    pub(crate) fn new() -> Self {
        Self {
            last: None,
            samples: VecDeque::with_capacity(SAMPLES_MAX),
            next: 0,
            collections: Vec::new(),
            others: VecDeque::with_capacity(SAMPLES_MAX),
        }
    }

    /// Returns the kept samples, the oldest first.
    pub(crate) fn samples(&self) -> &VecDeque<Sample> {
        &self.samples
    }

    /// Returns the number of the sample after the last.
    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    /// Returns the series of collections, in the order in which they began.
    pub(crate) fn collections(&self) -> &[CollectionSeries] {
        &self.collections
    }

    /// Returns the series of the collections that have none of their own.
    pub(crate) fn others(&self) -> &VecDeque<Lookups> {
        &self.others
    }

    /// Adds a reading at `now`. From the second one on, each makes a sample.
    pub(crate) fn add(&mut self, now: Nanos, reading: Reading) {
        if let Some((before, earlier)) = self.last.take() {
            let interval_ns = now.0.saturating_sub(before.0);
            if interval_ns == 0 {
                // Nothing can be said of no time.
                self.last = Some((before, earlier));
                return;
            }
            self.drop_old(now);
            self.samples.push_back(sample(now, interval_ns, &reading, &earlier));
            self.next += 1;
            self.add_collections(interval_ns as f64 / 1e9, &reading, &earlier);
        }
        self.last = Some((now, reading));
    }

    fn drop_old(&mut self, now: Nanos) {
        let is_old = |sample: &Sample| now.0.saturating_sub(sample.at.0) > AGE_MAX_NS;
        while self.samples.len() >= SAMPLES_MAX || self.samples.front().is_some_and(is_old) {
            self.samples.pop_front();
            self.others.pop_front();
            self.collections.iter_mut().for_each(|own| _ = own.lookups.pop_front());
        }
    }

    /// Adds a value to each collection's series. A collection gets one when it is requested, and
    /// keeps it while it was requested within the kept samples or no other needs the place.
    fn add_collections(&mut self, seconds: f64, reading: &Reading, earlier: &Reading) {
        let mut others = Lookups { memory: 0.0, database: 0.0 };
        self.collections.iter_mut().for_each(|own| own.lookups.push_back(UNKNOWN));
        for (index, now) in reading.collections.iter().enumerate() {
            let at_same_index = earlier.collections.get(index).filter(|own| own.name == now.name);
            let by_name = || earlier.collections.iter().find(|own| own.name == now.name);
            let before = at_same_index.or_else(by_name);
            let per_s = |now: u64, before: Option<u64>| {
                (now.saturating_sub(before.unwrap_or(0)) as f64 / seconds) as f32
            };
            let lookups = Lookups {
                memory: per_s(now.memory, before.map(|before| before.memory)),
                database: per_s(now.database, before.map(|before| before.database)),
            };
            match self.series_of(&now.name, &lookups) {
                Some(series) => {
                    if let Some(last) = series.lookups.back_mut() {
                        *last = lookups;
                    }
                }
                None => {
                    others.memory += lookups.memory;
                    others.database += lookups.database;
                }
            }
        }
        self.others.push_back(others);
    }

    fn series_of(&mut self, name: &str, lookups: &Lookups) -> Option<&mut CollectionSeries> {
        let position = self.collections.iter().position(|own| own.name == name);
        let position = match position {
            Some(position) => position,
            None if lookups.is_idle() || name.len() > NAME_BYTES_MAX => return None,
            None => self.place_for(name)?,
        };
        self.collections.get_mut(position)
    }

    /// Begins a series, in a free place or in that of a collection that was not requested.
    fn place_for(&mut self, name: &str) -> Option<usize> {
        let position = if self.collections.len() < COLLECTIONS_MAX {
            self.collections.push(CollectionSeries {
                name: String::new(),
                lookups: VecDeque::with_capacity(SAMPLES_MAX),
            });
            self.collections.len() - 1
        } else {
            let is_idle = |own: &CollectionSeries| own.lookups.iter().all(Lookups::is_idle);
            self.collections.iter().position(is_idle)?
        };
        let series = &mut self.collections[position];
        series.name = name.to_owned();
        series.lookups.clear();
        series.lookups.resize(self.samples.len(), UNKNOWN);
        Some(position)
    }

    /// Returns the bytes of all samples, without the allocator's own.
    #[cfg(test)]
    pub(crate) fn memory_bytes(&self) -> usize {
        let lookups: usize = self.collections.iter().map(|own| own.lookups.capacity()).sum();
        let names: usize = self.collections.iter().map(|own| own.name.capacity()).sum();
        // The last reading, and the next while it is made.
        let histograms = 2 * 3 * hotrow_measure::histogram::BUCKETS * 8;
        self.samples.capacity() * size_of::<Sample>()
            + (lookups + self.others.capacity()) * size_of::<Lookups>()
            + names
            + histograms
    }
}

fn sample(now: Nanos, interval_ns: u64, reading: &Reading, earlier: &Reading) -> Sample {
    let seconds = interval_ns as f64 / 1e9;
    let mut values = [f32::NAN; SERIES];
    for series in Series::ALL {
        let (now, before) = (reading.values[series as usize], earlier.values[series as usize]);
        values[series as usize] = match series.kind() {
            SeriesKind::Gauge => now as f32,
            // A count that began again, after a reload, has not shrunk.
            SeriesKind::Rate => ((now - before).max(0.0) / seconds) as f32,
            SeriesKind::Quantile => f32::NAN,
        };
        // `max` turns NaN into 0, and an unknown count is no rate of 0.
        if series.kind() == SeriesKind::Rate && (now.is_nan() || before.is_nan()) {
            values[series as usize] = f32::NAN;
        }
    }
    let hits = reading.hits.since(&earlier.hits);
    let misses = reading.misses.since(&earlier.misses);
    let mut all = hits.clone();
    all.merge(&misses);
    let waits = reading.waits.since(&earlier.waits);
    for (series, histogram, quantile) in [
        (Series::HitP50, &hits, 0.5),
        (Series::HitP99, &hits, 0.99),
        (Series::HitP999, &hits, 0.999),
        (Series::MissP50, &misses, 0.5),
        (Series::MissP99, &misses, 0.99),
        (Series::MissP999, &misses, 0.999),
        (Series::AllP50, &all, 0.5),
        (Series::AllP99, &all, 0.99),
        (Series::AllP999, &all, 0.999),
        (Series::QueueWaitP99, &waits, 0.99),
    ] {
        if let Some(ns) = histogram.value_at_quantile(quantile) {
            values[series as usize] = (ns as f64 / 1e3) as f32;
        }
    }
    Sample { at: now, interval_ns, values, heat: heat(&all) }
}

/// Returns the number of samples in each row of the heat map.
fn heat(histogram: &Histogram) -> [u32; HEAT_ROWS] {
    let mut rows = [0_u32; HEAT_ROWS];
    for bucket in histogram.iter() {
        let count = u32::try_from(bucket.count).unwrap_or(u32::MAX);
        let row = &mut rows[heat_row(bucket.high)];
        *row = row.saturating_add(count);
    }
    rows
}

/// Returns the row of a latency. The bounds are bounds of the histogram's buckets too, so that no
/// bucket lies in two rows.
fn heat_row(ns: u64) -> usize {
    (0..HEAT_ROWS - 1).find(|row| ns < heat_bound_ns(*row)).unwrap_or(HEAT_ROWS - 1)
}

/// Returns the upper bound of a row, exclusive: 512 ns, 768 ns, 1024 ns, … The last row has none.
pub(crate) fn heat_bound_ns(row: usize) -> u64 {
    let octave = HEAT_LOW_NS << (row / 2);
    if row.is_multiple_of(2) { octave } else { octave + octave / 2 }
}

#[cfg(test)]
mod tests;
