//! Counts of what happened in the runs of a scenario, by name.

use std::collections::BTreeMap;

/// Counts by name.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally(BTreeMap<&'static str, u64>);

impl Tally {
    pub(crate) fn note(&mut self, name: &'static str) {
        self.add(name, 1);
    }

    pub(crate) fn note_if(&mut self, happened: bool, name: &'static str) {
        self.add(name, u64::from(happened));
    }

    pub(crate) fn add(&mut self, name: &'static str, count: u64) {
        *self.0.entry(name).or_default() += count;
    }

    pub(crate) fn get(&self, name: &str) -> u64 {
        self.0.get(name).copied().unwrap_or_default()
    }

    pub(crate) fn merge(&mut self, other: Self) {
        other.0.into_iter().for_each(|(name, count)| self.add(name, count));
    }
}
