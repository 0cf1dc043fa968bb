//! Counts of all instances at one moment, and their increase between two.

use super::answers;
use super::instance::Backend;
use super::metrics::Metrics;
use crate::experiment::Service;

/// Counts of all instances at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Snapshot {
    /// Requests that each instance has served: zero of one that does not run, `None` if the service
    /// has no count.
    pub(super) counts: Vec<Option<u64>>,
    /// Metrics of each instance; none of one that does not run.
    metrics: Vec<Metrics>,
}

impl Snapshot {
    /// Asks the instances that run.
    ///
    /// # Errors
    /// One of them does not answer.
    pub(super) fn take(
        service: &Service,
        backends: &[Backend],
        running: &[bool],
    ) -> Result<Self, String> {
        let mut snapshot = Self::default();
        for (backend, running) in backends.iter().zip(running) {
            if *running {
                snapshot.counts.push(answers::count(service, backend)?);
                snapshot.metrics.push(answers::metrics(service, backend)?);
            } else {
                snapshot.counts.push(service.count.is_some().then_some(0));
                snapshot.metrics.push(Metrics::default());
            }
        }
        Ok(snapshot)
    }

    /// Returns the snapshot with zero for an instance that has just ended or started.
    pub(super) fn without(&self, instance: usize) -> Self {
        let mut snapshot = self.clone();
        if let Some(count) = snapshot.counts.get_mut(instance) {
            *count = count.map(|_| 0);
        }
        if let Some(metrics) = snapshot.metrics.get_mut(instance) {
            *metrics = Metrics::default();
        }
        snapshot
    }

    /// Returns the sum of series over all instances; `None` if none has them.
    pub(super) fn sum(&self, series: &[String]) -> Option<f64> {
        let sums: Vec<f64> =
            self.metrics.iter().filter_map(|metrics| metrics.sum(series)).collect();
        (!sums.is_empty()).then(|| sums.iter().sum())
    }
}

/// The counts at the begin and at the end of a part of a measurement.
#[derive(Clone, Copy)]
pub(super) struct Interval<'a> {
    pub(super) begin: &'a Snapshot,
    pub(super) end: &'a Snapshot,
}

impl Interval<'_> {
    /// Returns the requests that each instance served; `None` if the service has no count.
    pub(super) fn served(&self) -> Option<Vec<u64>> {
        let counts = self.begin.counts.iter().zip(&self.end.counts);
        counts.map(|(begin, end)| Some((*end)?.saturating_sub((*begin)?))).collect()
    }

    /// Returns the increase of series; one that is missing counts as zero.
    pub(super) fn increase(&self, series: &[String]) -> f64 {
        let sum = |snapshot: &Snapshot| snapshot.sum(series).unwrap_or(0.0);
        sum(self.end) - sum(self.begin)
    }
}

/// Returns the requests that each instance served in all of these intervals together.
pub(super) fn served(intervals: &[Interval<'_>]) -> Option<Vec<u64>> {
    let mut all: Vec<u64> = Vec::new();
    for interval in intervals {
        let served = interval.served()?;
        all.resize(served.len(), 0);
        all.iter_mut().zip(served).for_each(|(sum, n)| *sum += n);
    }
    Some(all)
}

#[cfg(test)]
impl Snapshot {
    /// Returns a snapshot of these counts and pages of metrics.
    pub(super) fn of(counts: &[Option<u64>], pages: &[&str]) -> Self {
        let metrics = pages.iter().map(|page| Metrics::parse(page)).collect();
        Self { counts: counts.to_vec(), metrics }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_counted_over_a_kill_and_a_start() {
        let begin = Snapshot::of(&[Some(100), Some(20)], &["reads 5", "reads 7"]);
        let before_kill = Snapshot::of(&[Some(150), Some(70)], &["reads 6", "reads 9"]);
        let after_kill = before_kill.without(1);
        let before_start = Snapshot::of(&[Some(250), Some(0)], &["reads 16", ""]);
        let after_start = before_start.without(1);
        let end = Snapshot::of(&[Some(300), Some(40)], &["reads 17", "reads 3"]);
        let intervals = [
            Interval { begin: &begin, end: &before_kill },
            Interval { begin: &after_kill, end: &before_start },
            Interval { begin: &after_start, end: &end },
        ];
        let phases: Vec<_> = intervals.iter().map(|interval| interval.served().unwrap()).collect();
        assert_eq!(phases, [vec![50, 50], vec![100, 0], vec![50, 40]]);
        assert_eq!(served(&intervals), Some(vec![200, 90]));
        let reads = ["reads".to_owned()];
        let increases = intervals.map(|interval| interval.increase(&reads));
        assert_eq!(increases, [3.0, 10.0, 4.0]);
        let unknown = Snapshot::of(&[None, None], &["", ""]);
        assert_eq!(Interval { begin: &unknown, end: &end }.served(), None);
        assert_eq!(unknown.sum(&reads), None);
    }
}
