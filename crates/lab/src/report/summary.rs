//! From measurements to what each row came to. Pure: results in, figures out.

use hotrow_measure::statistics::{self, Comparison, Estimate};

use crate::results::{Load, Measurement, Part, Results, Row};

/// Seed of every bootstrap: the same results give the same report.
pub(super) const SEED: u64 = 0x407;

/// An experiment, row by row.
#[derive(Debug)]
pub(super) struct Summary<'a> {
    pub(super) results: &'a Results,
    pub(super) rows: Vec<RowSummary<'a>>,
}

/// What a row came to.
#[derive(Debug)]
pub(super) struct RowSummary<'a> {
    pub(super) row: &'a Row,
    pub(super) state: State<'a>,
}

/// Whether a row has figures.
#[derive(Debug)]
pub(super) enum State<'a> {
    /// Every measurement of it counts.
    Measured(Vec<Run<'a>>),
    /// At least one does not; why, round by round. A row that failed once has no figure: what made it fail may have touched the
    /// other rounds too.
    Failed(Vec<(u32, &'a str)>),
    /// There is no measurement.
    Missing,
}

/// A measurement that counts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run<'a> {
    pub(super) of: &'a Measurement,
    pub(super) load: &'a Load,
}

impl<'a> Summary<'a> {
    pub(super) fn of(results: &'a Results) -> Self {
        let rows = results.rows.iter().map(|row| RowSummary { row, state: State::of(row, results) }).collect();
        Self { results, rows }
    }

    pub(super) fn row(&self, id: &str) -> Option<&RowSummary<'a>> {
        self.rows.iter().find(|row| row.row.id == id)
    }

    /// Rounds that at least one row has.
    pub(super) fn rounds_begun(&self) -> u32 {
        self.results.measurements.iter().map(|m| m.round.saturating_add(1)).max().unwrap_or(0)
    }
}

impl<'a> State<'a> {
    fn of(row: &Row, results: &'a Results) -> Self {
        let mut last: Vec<&'a Measurement> = Vec::new();
        for measurement in results.measurements.iter().filter(|m| m.row == row.id) {
            // A round that was measured again, after an interruption or a failure, counts as it was the last time.
            match last.iter_mut().find(|m| m.round == measurement.round) {
                Some(earlier) => *earlier = measurement,
                None => last.push(measurement),
            }
        }
        last.sort_by_key(|m| m.round);
        let failed: Vec<(u32, &str)> = last.iter().filter_map(|m| Some((m.round, why(m)?))).collect();
        let runs: Vec<Run<'_>> = last.iter().filter_map(|of| Some(Run { of, load: of.load.as_ref()? })).collect();
        match (failed.is_empty(), runs.is_empty()) {
            (false, _) => Self::Failed(failed),
            (true, true) => Self::Missing,
            (true, false) => Self::Measured(runs),
        }
    }
}

/// Why a measurement does not count. One that claims to count but has lost or wrong answers does not either.
fn why(measurement: &Measurement) -> Option<&str> {
    match (&measurement.failed, &measurement.load) {
        (Some(why), _) => Some(why),
        (None, None) => Some("it has no result"),
        (None, Some(load)) if load.errors > 0 => Some("some answers were lost, broken or unexpected"),
        (None, Some(load)) if load.timeouts > 0 => Some("some requests were given up"),
        (None, Some(load)) if load.ok == 0 => Some("no request was answered"),
        (None, Some(_)) => None,
    }
}

impl<'a> RowSummary<'a> {
    /// Measurements that count; none of a row that failed.
    pub(super) fn runs(&self) -> &[Run<'a>] {
        match &self.state {
            State::Measured(runs) => runs,
            State::Failed(_) | State::Missing => &[],
        }
    }

    /// An estimate of a figure over the rounds.
    pub(super) fn estimate(&self, figure: impl Fn(&Run<'_>) -> Option<f64>) -> Option<Estimate> {
        let values: Vec<f64> = self.runs().iter().filter_map(figure).collect();
        statistics::estimate(&values, SEED)
    }

    /// Median of a figure over the rounds that have it.
    pub(super) fn median(&self, figure: impl Fn(&Run<'_>) -> Option<f64>) -> Option<f64> {
        self.estimate(figure).map(|e| e.median)
    }

    /// Requests per second.
    pub(super) fn rps(&self) -> Option<Estimate> {
        self.estimate(|run| Some(run.load.rps))
    }

    /// This row over another, by a figure, paired by round.
    pub(super) fn over(&self, other: &RowSummary<'_>, figure: impl Fn(&Run<'_>) -> Option<f64>) -> Option<Comparison> {
        let pairs: Vec<(f64, f64)> = self
            .runs()
            .iter()
            .filter_map(|run| {
                let that = other.runs().iter().find(|that| that.of.round == run.of.round)?;
                Some((figure(run)?, figure(that)?))
            })
            .collect();
        statistics::compare_paired(&pairs, SEED)
    }

    /// The run in the middle, by its rate: where one run must stand for all.
    pub(super) fn middle(&self) -> Option<&Run<'a>> {
        let mut runs: Vec<&Run<'a>> = self.runs().iter().collect();
        runs.sort_by(|a, b| a.load.rps.total_cmp(&b.load.rps));
        runs.get(runs.len().saturating_sub(1) / 2).copied()
    }

    /// Whether the generator was the limit in any round.
    pub(super) fn generator_limited(&self) -> bool {
        self.runs().iter().any(|run| run.load.generator_limited)
    }
}

impl Run<'_> {
    /// CPU time of a tier per request, in µs; none when nothing of that tier was sampled.
    pub(super) fn cpu_us_per_request(&self, part: Part) -> Option<f64> {
        let mut of_part = self.of.tiers.iter().filter(|tier| tier.part == part).peekable();
        of_part.peek()?;
        let cpu_s: f64 = of_part.map(|tier| tier.cpu_s).sum();
        (self.load.ok > 0).then(|| cpu_s * 1e6 / self.load.ok as f64)
    }

    /// CPU time per request of all that is not the generator, in µs.
    pub(super) fn served_cpu_us_per_request(&self) -> Option<f64> {
        let parts = [Part::Service, Part::Proxy, Part::Database].map(|part| self.cpu_us_per_request(part));
        parts.iter().any(Option::is_some).then(|| parts.iter().flatten().sum())
    }

    /// A further figure.
    pub(super) fn figure(&self, name: &str, unit: &str) -> Option<f64> {
        let found = self.of.figures.iter().find(|(of, _, in_unit)| of == name && in_unit == unit);
        found.map(|(_, value, _)| *value)
    }

    /// A further figure and its unit, the first of that name.
    pub(super) fn figure_named(&self, name: &str) -> Option<(f64, &str)> {
        let found = self.of.figures.iter().find(|(of, value, _)| of == name && value.is_finite());
        found.map(|(_, value, unit)| (*value, unit.as_str()))
    }

    /// Cores in use, of what `keep` chooses.
    pub(super) fn cores(&self, keep: impl Fn(Part) -> bool) -> Option<f64> {
        let cpu_s: f64 = self.of.tiers.iter().filter(|tier| keep(tier.part)).map(|tier| tier.cpu_s).sum();
        (self.load.window_s > 0.0 && !self.of.tiers.is_empty()).then(|| cpu_s / self.load.window_s)
    }
}
