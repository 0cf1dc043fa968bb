//! Summary of the measurements of each row. Pure: results in, figures out.

use hotrow_measure::statistics::{self, Comparison, Estimate};

use hotrow_results::{Load, Measurement, Results, Row, Tier, TierKind};

/// Seed of every bootstrap, so that equal results give equal reports.
pub(super) const SEED: u64 = 0x407;

/// Summary of an experiment.
#[derive(Debug)]
pub(super) struct Summary<'a> {
    pub(super) results: &'a Results,
    pub(super) rows: Vec<RowSummary<'a>>,
}

/// Summary of a row.
#[derive(Debug)]
pub(super) struct RowSummary<'a> {
    pub(super) row: &'a Row,
    pub(super) state: RowState<'a>,
}

/// Measurements of a row.
#[derive(Debug)]
pub(super) enum RowState<'a> {
    /// All measurements are valid.
    Measured(Vec<Run<'a>>),
    /// At least one is invalid, with the reasons by round. The row then has no figure, because the
    /// cause may have affected the other rounds too.
    Failed(Vec<(u32, &'a str)>),
    /// There is no measurement.
    Missing,
}

/// A valid measurement.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run<'a> {
    pub(super) of: &'a Measurement,
    pub(super) load: &'a Load,
}

impl<'a> Summary<'a> {
    pub(super) fn of(results: &'a Results) -> Self {
        let rows = results
            .rows
            .iter()
            .map(|row| RowSummary { row, state: RowState::of(row, results) })
            .collect();
        Self { results, rows }
    }

    pub(super) fn row(&self, id: &str) -> Option<&RowSummary<'a>> {
        self.rows.iter().find(|row| row.row.id == id)
    }

    /// Returns the number of rounds with at least one measurement.
    pub(super) fn rounds_begun(&self) -> u32 {
        self.results.measurements.iter().map(|m| m.round.saturating_add(1)).max().unwrap_or(0)
    }
}

impl<'a> RowState<'a> {
    fn of(row: &Row, results: &'a Results) -> Self {
        let mut last: Vec<&'a Measurement> = Vec::new();
        for measurement in results.measurements.iter().filter(|m| m.row == row.id) {
            // A round that was measured again, after an interruption or a failure, counts with its
            // last measurement.
            match last.iter_mut().find(|m| m.round == measurement.round) {
                Some(earlier) => *earlier = measurement,
                None => last.push(measurement),
            }
        }
        last.sort_by_key(|m| m.round);
        let failed: Vec<(u32, &str)> =
            last.iter().filter_map(|m| Some((m.round, why(row, m)?))).collect();
        let runs: Vec<Run<'_>> =
            last.iter().filter_map(|of| Some(Run { of, load: of.load.as_ref()? })).collect();
        match (failed.is_empty(), runs.is_empty()) {
            (false, _) => Self::Failed(failed),
            (true, true) => Self::Missing,
            (true, false) => Self::Measured(runs),
        }
    }
}

/// Returns the reason a measurement is invalid; lost or wrong answers make it invalid too, unless a
/// fault causes them.
fn why<'a>(row: &Row, measurement: &'a Measurement) -> Option<&'a str> {
    match (&measurement.failed, &measurement.load) {
        (Some(why), _) => Some(why),
        (None, None) => Some("it has no result"),
        (None, Some(load)) if load.errors > 0 && !row.fault => {
            Some("some answers were lost, broken or unexpected")
        }
        (None, Some(load)) if load.timeouts > 0 && !row.fault => Some("some requests timed out"),
        (None, Some(load)) if load.ok == 0 => Some("no request was answered"),
        (None, Some(_)) => None,
    }
}

impl<'a> RowSummary<'a> {
    /// Returns the valid measurements; none of a failed row.
    pub(super) fn runs(&self) -> &[Run<'a>] {
        match &self.state {
            RowState::Measured(runs) => runs,
            RowState::Failed(_) | RowState::Missing => &[],
        }
    }

    /// Returns an estimate of a figure over the rounds.
    pub(super) fn estimate(&self, figure: impl Fn(&Run<'_>) -> Option<f64>) -> Option<Estimate> {
        let values: Vec<f64> = self.runs().iter().filter_map(figure).collect();
        statistics::estimate(&values, SEED)
    }

    /// Returns the median of a figure over the rounds that have it.
    pub(super) fn median(&self, figure: impl Fn(&Run<'_>) -> Option<f64>) -> Option<f64> {
        self.estimate(figure).map(|e| e.median)
    }

    /// Returns the requests per second.
    pub(super) fn rps(&self) -> Option<Estimate> {
        self.estimate(|run| Some(run.load.rps))
    }

    /// Compares this row with another by a figure, paired by round.
    pub(super) fn over(
        &self,
        other: &RowSummary<'_>,
        figure: impl Fn(&Run<'_>) -> Option<f64>,
    ) -> Option<Comparison> {
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

    /// Returns the run with the median rate, to represent the row.
    pub(super) fn middle(&self) -> Option<&Run<'a>> {
        let mut runs: Vec<&Run<'a>> = self.runs().iter().collect();
        runs.sort_by(|a, b| a.load.rps.total_cmp(&b.load.rps));
        runs.get(runs.len().saturating_sub(1) / 2).copied()
    }

    /// Returns whether the generator was the bottleneck in any round.
    pub(super) fn generator_limited(&self) -> bool {
        self.runs().iter().any(|run| run.load.generator_limited)
    }
}

impl Run<'_> {
    /// Returns a tier's CPU time per request in µs; `None` if nothing of it was sampled.
    pub(super) fn cpu_us_per_request(&self, kind: TierKind) -> Option<f64> {
        let mut of_part = self.of.tiers.iter().filter(|tier| tier.kind == kind).peekable();
        of_part.peek()?;
        let cpu_s: f64 = of_part.map(|tier| tier.cpu_s).sum();
        (self.load.ok > 0).then(|| cpu_s * 1e6 / self.load.ok as f64)
    }

    /// Returns the CPU time per request without the generator, in µs.
    pub(super) fn served_cpu_us_per_request(&self) -> Option<f64> {
        let parts = [TierKind::Service, TierKind::Proxy, TierKind::Database]
            .map(|kind| self.cpu_us_per_request(kind));
        parts.iter().any(Option::is_some).then(|| parts.iter().flatten().sum())
    }

    /// Returns a further figure.
    pub(super) fn figure(&self, name: &str, unit: &str) -> Option<f64> {
        let found = self.of.figures.iter().find(|(of, _, in_unit)| of == name && in_unit == unit);
        found.map(|(_, value, _)| *value)
    }

    /// Returns a further figure and its unit, the first of that name.
    pub(super) fn figure_named(&self, name: &str) -> Option<(f64, &str)> {
        let found = self.of.figures.iter().find(|(of, value, _)| of == name && value.is_finite());
        found.map(|(_, value, unit)| (*value, unit.as_str()))
    }

    /// Returns the cores that a process group used. Its CPU time was counted until the last
    /// response, which is longer than the window; the generator's within the window.
    pub(super) fn tier_cores(&self, tier: &Tier) -> f64 {
        let window_s = self.load.window_s;
        let interval_s = match self.of.machine {
            Some(machine) if tier.kind != TierKind::Generator => machine.interval_s.max(window_s),
            _ => window_s,
        };
        tier.cpu_s / interval_s
    }

    /// Returns the cores in use by all tiers, at most those of the machine: ticks of the kernel's
    /// clock round.
    pub(super) fn cores(&self, cpus: u32) -> Option<f64> {
        let used: f64 = self.of.tiers.iter().map(|tier| self.tier_cores(tier)).sum();
        let used = if cpus > 0 { used.min(f64::from(cpus)) } else { used };
        (self.load.window_s > 0.0 && !self.of.tiers.is_empty()).then_some(used)
    }
}
