//! A frame as plain values: a row per instance, totals, and their order. Pure.

use super::instance::Numbers;

/// What is known of one instance.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Report {
    /// No answer has come yet.
    Awaited,
    /// The last answer.
    Numbers(Box<Numbers>),
    /// It does not answer; for how many seconds, and why.
    Unreachable { for_s: u64, why: String },
}

/// A row.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Row {
    /// The URL as given.
    pub(super) name: String,
    pub(super) report: Report,
}

impl Row {
    /// Returns the numbers, if the instance reports.
    pub(super) fn numbers(&self) -> Option<&Numbers> {
        match &self.report {
            Report::Numbers(numbers) => Some(numbers),
            Report::Awaited | Report::Unreachable { .. } => None,
        }
    }
}

/// Column by which rows are ordered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum SortKey {
    /// As the URLs were given
    #[default]
    Given,
    /// Requests a second, the most first
    Requests,
    /// Hit ratio, the lowest first
    Hits,
    /// 99th percentile of the latency, the longest first
    P99,
    /// Staleness, the highest first
    Stale,
    /// Refusals and errors a second, the most first
    Refused,
}

impl SortKey {
    const ALL: [Self; 6] =
        [Self::Given, Self::Requests, Self::Hits, Self::P99, Self::Stale, Self::Refused];

    /// Returns the next key in the order of the columns.
    pub(super) fn next(self) -> Self {
        Self::ALL[(self as usize + 1) % Self::ALL.len()]
    }

    /// Returns the name as shown.
    pub(super) fn label(self) -> &'static str {
        match self {
            Self::Given => "as given",
            Self::Requests => "requests",
            Self::Hits => "hit ratio",
            Self::P99 => "p99",
            Self::Stale => "staleness",
            Self::Refused => "refused",
        }
    }

    /// Returns the value that rises with the interest in a row.
    fn weight(self, numbers: &Numbers) -> f64 {
        match self {
            Self::Given => Some(0.0),
            Self::Requests => numbers.requests,
            Self::Hits => numbers.hit_ratio().map(|ratio| -ratio),
            Self::P99 => numbers.p99_us,
            Self::Stale => numbers.staleness_ms,
            Self::Refused => sum([numbers.refused, numbers.errors].into_iter()),
        }
        .unwrap_or(f64::NEG_INFINITY)
    }
}

/// Orders the rows. Instances that do not report are first: they need attention most.
pub(super) fn sort(rows: &mut [Row], key: SortKey, is_reversed: bool) {
    if key != SortKey::Given {
        let weight = |row: &Row| row.numbers().map_or(f64::INFINITY, |n| key.weight(n));
        rows.sort_by(|a, b| weight(b).total_cmp(&weight(a)));
    }
    if is_reversed {
        rows.reverse();
    }
}

/// Values of all instances that report.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Totals {
    pub(super) instances: usize,
    pub(super) reporting: usize,
    pub(super) ready: usize,
    /// Sums; of percentiles, which cannot be added up, and of the staleness the largest.
    pub(super) numbers: Numbers,
}

impl Totals {
    pub(super) fn of(rows: &[Row]) -> Self {
        let numbers: Vec<&Numbers> = rows.iter().filter_map(Row::numbers).collect();
        let add = |read: fn(&Numbers) -> Option<f64>| sum(numbers.iter().map(|n| read(n)));
        let max = |read: fn(&Numbers) -> Option<f64>| {
            numbers.iter().filter_map(|n| read(n)).max_by(f64::total_cmp)
        };
        let totals = Numbers {
            requests: add(|n| n.requests),
            lookups_memory: add(|n| n.lookups_memory),
            lookups_database: add(|n| n.lookups_database),
            p99_us: max(|n| n.p99_us),
            staleness_ms: max(|n| n.staleness_ms),
            queries: add(|n| n.queries),
            refused: add(|n| n.refused),
            errors: add(|n| n.errors),
            connections: add(|n| n.connections),
            cpu_cores: add(|n| n.cpu_cores),
            memory_bytes: add(|n| n.memory_bytes),
            cache_bytes: numbers.iter().map(|n| n.cache_bytes).sum(),
            capacity_bytes: numbers.iter().map(|n| n.capacity_bytes).sum(),
            ..Numbers::default()
        };
        Self {
            instances: rows.len(),
            reporting: numbers.len(),
            ready: numbers.iter().filter(|n| n.unmet.is_empty()).count(),
            numbers: totals,
        }
    }
}

/// Adds up what is known; `None` if nothing is.
fn sum(values: impl Iterator<Item = Option<f64>>) -> Option<f64> {
    values.flatten().fold(None, |total, value| Some(total.unwrap_or(0.0) + value))
}

#[cfg(test)]
pub(super) mod tests;
