//! Clock, calendar, counters, histograms, sketches and statistics for the rest of Hotrow. This
//! crate speaks no protocol and knows no database.
//!
//! Reading order: [`clock`] (the one clock of the process), [`calendar`] (dates), [`counter`]
//! (single-writer counters), [`figures`] (numbers as text), [`histogram`] (latencies), [`sketch`]
//! (distinct counts), [`top_keys`] (most frequent keys), [`random`] (seeded numbers),
//! [`statistics`] (medians, intervals, comparisons).

pub mod calendar;
pub mod clock;
pub mod counter;
pub mod figures;
pub mod histogram;
pub mod random;
pub mod sketch;
pub mod statistics;
pub mod top_keys;
