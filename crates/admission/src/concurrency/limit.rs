//! Concurrency limit of a database, derived from query latency.
//!
//! Each query's latency is compared with the latency of a query of its size *alone* ([`Cost`],
//! learnt per collection from queries without any other in flight). Windows of such ratios move the
//! limit:
//!
//! - `gradient`: the limit times `tolerance / ratio`, at most 1 and at least ½, plus a headroom
//!   that grows with its root. The law and the headroom are those of Envoy's adaptive concurrency
//!   (gradient controller, `minRTT` and `sampleRTT`) and of Netflix's concurrency-limits
//!   (`GradientLimit`, `Gradient2Limit`); the tolerance, and the rule that an unused limit does not
//!   move, are `Gradient2Limit`'s. With c servers behind the queue it settles at `tolerance · c +
//!   headroom`.
//! - `aimd`: one more per good window, three quarters after a bad one (Chiu and Jain, 1989;
//!   Netflix's `AIMDLimit`).
//!
//! Latency alone is known while there are quiet moments. Without them it is measured now and then
//! as Envoy measures `minRTT`: for a few queries the limit is 1. That never takes more than one
//! part in twenty of the time. A database that became slower for its own reasons gets its limit
//! back; one slowed down by our load does not.
//!
//! Differences from these sources: our ratio is a window's median, so that single slow queries move
//! nothing. The hard bound is the operator's, so the limit starts there and stays there while the
//! database is healthy. Sizes are accounted for, because merged queries take longer by nature.

use std::time::Duration;

use hotrow_measure::clock::Nanos;

use super::cost::Cost;

/// Samples in a full window,
const WINDOW_SAMPLES: usize = 10;
/// and its least duration;
const WINDOW: Duration = Duration::from_millis(100);
/// or, with slow queries, this many samples
const SLOW_WINDOW_SAMPLES: usize = 3;
/// and this duration.
const SLOW_WINDOW: Duration = Duration::from_secs(2);
/// Most ratios kept of a window: the latest.
const RATIOS_MAX: usize = 64;
/// Share of failed or timed-out queries from which a window is bad.
const BAD_SHARE: f64 = 0.1;
/// Ratio of a window below which the database is faster than what was learnt.
const FASTER: f64 = 0.5;
/// Factor by which such a window corrects what was learnt.
const CORRECTION: f64 = 0.7;
/// Part of the way to the new limit taken per window.
const SMOOTHING: f64 = 0.5;
/// Factor applied by AIMD after a bad window.
const BACKOFF: f64 = 0.75;
/// Queries alone that one probe waits for.
const PROBE_SAMPLES: usize = 5;
/// Least time between two probes, as a multiple of the last one's duration.
const PROBE_PAUSE: u32 = 20;

/// Method of finding the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The gradient of latency.
    Gradient,
    /// Additive increase, multiplicative decrease.
    Aimd,
    /// Always the bound.
    Fixed,
}

impl Kind {
    /// Returns the name used in the configuration.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::Gradient => "gradient",
            Self::Aimd => "aimd",
            Self::Fixed => "fixed",
        }
    }
}

/// Settings of a limit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Config {
    /// Method of finding it.
    pub kind: Kind,
    /// The hard bound, at least 1.
    pub max: usize,
    /// Ratio of latency to latency alone up to which the database is healthy; above 1.
    pub tolerance: f64,
    /// Age from which latency alone is measured again.
    pub probe_interval: Duration,
}

/// Result of a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It returned answers.
    Answered,
    /// It failed; its latency says nothing.
    Failed,
    /// The database did not answer in time.
    TimedOut,
}

/// One query that ended.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// Collection of the rows; below the number given to [`Limiter::new`].
    pub collection: usize,
    /// Keys in it.
    pub keys: usize,
    /// From sending to answer.
    pub latency: Duration,
    /// Its result.
    pub outcome: Outcome,
    /// Queries in flight when it was sent, itself included.
    pub in_flight: usize,
    /// `true`: no other query was in flight from its beginning to its end.
    pub alone: bool,
}

/// Concurrency limit of one source.
#[derive(Debug)]
pub struct Limiter {
    config: Config,
    /// Between 1 and `config.max`; its integer part is in force.
    limit: f64,
    /// Latency alone, by collection.
    alone: Vec<Cost>,
    window: Window,
    probe: Probe,
    probes_total: u64,
}

#[derive(Debug, Default)]
struct Window {
    begun_at: Option<Nanos>,
    samples: usize,
    bad: usize,
    in_flight_max: usize,
    ratios: Vec<f64>,
}

#[derive(Clone, Copy, Debug)]
enum Probe {
    /// No probe before `not_before`.
    Waiting { not_before: Nanos },
    /// The limit is 1 until `left` more queries were alone.
    Running { since: Nanos, left: usize },
}

impl Limiter {
    /// Creates a limiter at the bound, with nothing learnt.
    #[must_use]
    pub fn new(config: Config, collections: usize) -> Self {
        Self {
            config,
            limit: config.max.max(1) as f64,
            alone: vec![Cost::default(); collections],
            window: Window::default(),
            probe: Probe::Waiting { not_before: Nanos::ZERO },
            probes_total: 0,
        }
    }

    /// Returns how many queries may be in flight.
    pub fn limit(&self) -> usize {
        match self.probe {
            Probe::Running { .. } => 1,
            Probe::Waiting { .. } => (self.limit as usize).clamp(1, self.config.max.max(1)),
        }
    }

    /// Returns how often latency alone was measured one query at a time.
    pub fn probes_total(&self) -> u64 {
        self.probes_total
    }

    /// Returns the method of finding the limit.
    pub fn kind(&self) -> Kind {
        self.config.kind
    }

    /// Records a query that ended at `now`. The limit may change.
    pub fn record(&mut self, sample: &Sample, now: Nanos) {
        if self.config.kind == Kind::Fixed || self.config.max <= 1 {
            return;
        }
        if sample.alone && sample.outcome == Outcome::Answered {
            self.learn_alone(sample, now);
        }
        if let Probe::Running { since, .. } = self.probe {
            // A database that fails during the probe does not keep the limit at 1.
            if sample.outcome != Outcome::Answered {
                self.end_probe(since, now);
            }
            return;
        }
        let ratio = self.ratio(sample);
        self.window.add(sample, ratio, now);
        if self.window.is_over(now) {
            let window = std::mem::take(&mut self.window);
            self.judge(&window);
            self.probe_if_due(&window, now);
        }
    }

    /// Returns latency over latency alone; `None` when the latter is unknown.
    fn ratio(&self, sample: &Sample) -> Option<f64> {
        if sample.outcome != Outcome::Answered {
            return None;
        }
        let cost = self.alone.get(sample.collection)?;
        let ratio = sample.latency.as_secs_f64() / cost.estimate(sample.keys)?.as_secs_f64();
        // For queries larger than any that was alone the estimate is an upper bound, so a lower
        // latency says nothing. Neither does a clock that showed no time.
        let ratio = if cost.knows(sample.keys) { ratio } else { ratio.max(1.0) };
        ratio.is_finite().then_some(ratio)
    }

    fn judge(&mut self, window: &Window) {
        let ratio = window.median();
        if ratio.is_some_and(|ratio| ratio < FASTER) {
            self.alone.iter_mut().for_each(|cost| cost.correct(CORRECTION));
        }
        // An unused limit does not cause the latency.
        if 2 * window.in_flight_max < self.limit() {
            return;
        }
        let failing = window.bad as f64 >= BAD_SHARE * window.samples as f64;
        let ratio = ratio.unwrap_or(1.0);
        let aim = match self.config.kind {
            Kind::Fixed => return,
            Kind::Gradient => {
                let gradient =
                    if failing { 0.5 } else { (self.config.tolerance / ratio).clamp(0.5, 1.0) };
                let headroom = (self.limit.sqrt() / 2.0).max(0.5);
                self.limit + SMOOTHING * (self.limit * gradient + headroom - self.limit)
            }
            Kind::Aimd if failing || ratio > self.config.tolerance => self.limit * BACKOFF,
            Kind::Aimd => self.limit + 1.0,
        };
        self.limit = aim.clamp(1.0, self.config.max as f64);
    }

    fn learn_alone(&mut self, sample: &Sample, now: Nanos) {
        if let Some(cost) = self.alone.get_mut(sample.collection) {
            cost.learn(sample.keys, sample.latency);
        }
        match &mut self.probe {
            Probe::Waiting { not_before } => {
                *not_before = (*not_before).max(now.after(self.config.probe_interval))
            }
            Probe::Running { left: 0 | 1, since } => {
                let since = *since;
                self.end_probe(since, now);
            }
            Probe::Running { left, .. } => *left -= 1,
        }
    }

    /// Starts to measure latency alone after a long time without a quiet moment, or when queries
    /// are larger than any that was alone.
    fn probe_if_due(&mut self, window: &Window, now: Nanos) {
        let Probe::Waiting { not_before } = self.probe else { return };
        if now >= not_before && window.in_flight_max > 1 && window.bad == 0 {
            self.probes_total += 1;
            self.probe = Probe::Running { since: now, left: PROBE_SAMPLES };
        }
    }

    fn end_probe(&mut self, since: Nanos, now: Nanos) {
        let pause = (now.since(since) * PROBE_PAUSE).max(self.config.probe_interval);
        self.probe = Probe::Waiting { not_before: now.after(pause) };
        self.window = Window::default();
    }
}

impl Window {
    fn add(&mut self, sample: &Sample, ratio: Option<f64>, now: Nanos) {
        self.begun_at.get_or_insert(now);
        self.in_flight_max = self.in_flight_max.max(sample.in_flight);
        self.bad += usize::from(sample.outcome != Outcome::Answered);
        if let Some(ratio) = ratio {
            if self.ratios.len() < RATIOS_MAX {
                self.ratios.push(ratio);
            } else {
                self.ratios[self.samples % RATIOS_MAX] = ratio;
            }
        }
        self.samples += 1;
    }

    fn is_over(&self, now: Nanos) -> bool {
        let length = self.begun_at.map_or(Duration::ZERO, |begun_at| now.since(begun_at));
        self.samples >= WINDOW_SAMPLES && length >= WINDOW
            || self.samples >= SLOW_WINDOW_SAMPLES && length >= SLOW_WINDOW
    }

    fn median(&self) -> Option<f64> {
        let mut sorted = self.ratios.clone();
        sorted.sort_unstable_by(f64::total_cmp);
        sorted.get(sorted.len() / 2).copied()
    }
}

#[cfg(test)]
mod tests;
