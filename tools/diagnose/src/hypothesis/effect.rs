//! The effect of a change, compared with the noise.

use hotrow_measure::statistics::median;

use super::measurement::{Noise, TrialMeasurement};
use super::trial::{Change, TrialLoad};

/// Fewest rounds for a conclusion.
pub const ROUNDS_MIN: usize = 2;
/// Share of failed requests that counts as failures; and dropped connections per second at a
/// listener.
const FAILED_SHARE_MIN: f64 = 0.001;
/// See [`FAILED_SHARE_MIN`].
const OVERFLOWS_PER_S_MIN: f64 = 0.5;
/// Increase of the failed share from which rates are not compared.
const FAILED_MORE: f64 = 0.01;
/// Minimum responses per second assumed for a ratio per response.
const ANSWERS_RPS_MIN: f64 = 1.0;
/// Failures down to this part have ended.
const FAILURES_ENDED_BELOW: f64 = 0.1;
/// Failures at or above this part persist.
const FAILURES_PERSIST_FROM: f64 = 0.5;
/// Rates at or above this ratio count as unchanged.
const UNCHANGED_RATIO_MIN: f64 = 0.85;
/// Factor from the noise to the possible error of the median of n ratios, divided by n. For n
/// values with spread S, the standard deviation of a value is about S/1.1, S/1.7, S/2.1, S/2.3 (n =
/// 2 to 5; the mean range of normal values); that of a ratio of two values is 1.4 times it, and
/// that of the median of n about 1.25/√n of that.
const MEDIAN_NOISE_FACTOR: f64 = 1.8;

/// Rate ratio that counts as a rise, even if the generator reached its limit.
const ROSE_FROM: f64 = 1.25;
/// Maximum share of rounds that may contradict their median.
const OUTLIER_ROUNDS_SHARE_MAX: f64 = 0.25;

/// Mean failures of loads of one kind.
#[derive(Clone, Copy, Debug)]
struct FailureRates {
    failed_share: f64,
    overflows_per_s: f64,
    overflows_per_answer: f64,
}

/// The prediction of a hypothesis. Each has a gap between confirming and refuting values, or is
/// compared with the noise.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Prediction {
    /// At least this many times the rate; less than the second value refutes.
    Rises(f64, f64),
    /// At most this many times the rate; more than the second value refutes.
    Stays(f64, f64),
    /// At most this many times the rate, below 1; more refutes.
    Falls(f64),
    /// At least this many times the rate, below 1; less than the second value refutes.
    Holds(f64, f64),
    /// The generator is no longer the limit, or the rate rises by this factor.
    Relieves(f64),
    /// Failures and dropped connections end.
    FailuresEnd,
    /// As many responses, with unread requests on less than this share of the connections.
    FewUnread(f64),
}

/// The rate ratios that confirm and refute.
#[derive(Clone, Copy, Debug)]
struct Thresholds {
    confirmed_by: f64,
    refutes: f64,
    /// True if higher ratios confirm, rather than lower ones.
    above: bool,
}

/// The result of a prediction.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum PredictionResult {
    True,
    False,
    Unclear(String),
    Impossible(String),
}

/// The measurements of a change.
#[derive(Clone, Debug)]
pub(super) struct Effect {
    pub(super) change: Change,
    pub(super) pace: TrialLoad,
    /// The unchanged and the changed load of each round.
    pub(super) pairs: Vec<(TrialMeasurement, TrialMeasurement)>,
    pub(super) impossible: Option<String>,
}

impl Effect {
    /// Returns the median of the rounds' ratios of changed to unchanged rate; `None` without a
    /// reference rate.
    pub(super) fn ratio(&self) -> Option<f64> {
        let ratios = self.pairs.iter().filter(|(unchanged, _)| unchanged.rate_rps > 0.0);
        median(
            &ratios
                .map(|(unchanged, changed)| changed.rate_rps / unchanged.rate_rps)
                .collect::<Vec<_>>(),
        )
    }

    /// Returns the spread of the unchanged loads; `None` with fewer than two.
    pub(super) fn noise(&self) -> Option<Noise> {
        let rates = || self.pairs.iter().map(|(unchanged, _)| unchanged.rate_rps);
        let (low_rps, high_rps) =
            (rates().fold(f64::INFINITY, f64::min), rates().fold(0.0, f64::max));
        (self.pairs.len() >= 2).then_some(Noise { low_rps, high_rps })
    }

    /// Checks a prediction. `generator_may_be_full`: the generator's own limit is irrelevant.
    pub(super) fn result(
        &self,
        prediction: Prediction,
        generator_may_be_full: bool,
    ) -> PredictionResult {
        // Measurements made before an impossibility still count.
        if self.pairs.len() < ROUNDS_MIN {
            let few = || PredictionResult::Unclear("there were too few trials".to_owned());
            return self.impossible.clone().map_or_else(few, PredictionResult::Impossible);
        }
        let noise = self.noise().map_or(0.0, |noise| noise.share());
        let (ratio, off) = (self.ratio(), noise * MEDIAN_NOISE_FACTOR / self.pairs.len() as f64);
        let Some(edges) = prediction.edges() else {
            return match prediction {
                Prediction::FewUnread(most) => self.few_unread(most),
                _ => self.failures_end(),
            };
        };
        let result = self.rate_came(ratio, off, edges);
        let freed = self.mostly(|(unchanged, changed)| {
            unchanged.generator_limited && !changed.generator_limited
        });
        if result == PredictionResult::False
            && freed
            && matches!(prediction, Prediction::Relieves(_))
        {
            return PredictionResult::True;
        }
        if !matches!(result, PredictionResult::True | PredictionResult::False) {
            return result;
        }
        // Also when it was so before: the target's own rate is unknown.
        let filled = self.mostly(|(_, changed)| changed.generator_limited);
        let slowed =
            result == PredictionResult::False && matches!(prediction, Prediction::Holds(..));
        if filled && !generator_may_be_full && (slowed || self.hidden_by_generator()) {
            return PredictionResult::Unclear(
                "with this change the generator was the limit".to_owned(),
            );
        }
        self.fails_more().map_or(result, PredictionResult::Unclear)
    }

    /// Returns a reason when a change makes requests fail: the remaining rate is then not
    /// comparable.
    fn fails_more(&self) -> Option<String> {
        let [unchanged, changed] =
            [self.failure_rates(|pair| pair.0), self.failure_rates(|pair| pair.1)]
                .map(|rates| rates.failed_share);
        (changed - unchanged > FAILED_MORE)
            .then(|| format!("with this change {:.0} % failed", changed * 100.0))
    }

    /// A rate that did not rise under a higher load shows nothing when the generator was at its
    /// limit.
    fn hidden_by_generator(&self) -> bool {
        let more = matches!(self.change, Change::Connections(_) | Change::Head | Change::Rate(_));
        more && self.ratio().is_none_or(|ratio| ratio < ROSE_FROM)
    }

    /// Evaluates the rate; `off` is the possible error of the ratio.
    fn rate_came(
        &self,
        ratio: Option<f64>,
        off: f64,
        Thresholds { confirmed_by, refutes, above }: Thresholds,
    ) -> PredictionResult {
        let Some(ratio) = ratio else {
            return PredictionResult::Unclear("nothing was answered".to_owned());
        };
        let (result, wrong) = if above {
            (ratio >= confirmed_by, ratio < refutes)
        } else {
            (ratio <= confirmed_by, ratio > refutes)
        };
        if !result && !wrong {
            return PredictionResult::Unclear(format!(
                "{ratio:.2} times the rate is too little for the one and too much for the other"
            ));
        }
        let edge = if result { confirmed_by } else { refutes };
        if (ratio - edge).abs() < off || !self.agree(edge, ratio >= edge) {
            return PredictionResult::Unclear(self.too_noisy());
        }
        if result { PredictionResult::True } else { PredictionResult::False }
    }

    /// Returns whether all rounds but a few lie on the same side of a threshold.
    fn agree(&self, edge: f64, above: bool) -> bool {
        let other = |(unchanged, changed): &&(TrialMeasurement, TrialMeasurement)| {
            (changed.rate_rps >= edge * unchanged.rate_rps) != above
        };
        self.pairs.iter().filter(other).count() as f64
            <= OUTLIER_ROUNDS_SHARE_MAX * self.pairs.len() as f64
    }

    fn failures_end(&self) -> PredictionResult {
        let [before, after] = [
            |pair: &(TrialMeasurement, TrialMeasurement)| pair.0,
            |pair: &(TrialMeasurement, TrialMeasurement)| pair.1,
        ]
        .map(|of| self.failure_rates(of));
        let failed = before.failed_share >= FAILED_SHARE_MIN;
        let overflows = before.overflows_per_s >= OVERFLOWS_PER_S_MIN;
        if !failed && !overflows {
            return PredictionResult::Unclear("the same load did not fail again".to_owned());
        }
        if let Some(why) = self.fails_more() {
            return PredictionResult::Unclear(why);
        }
        let part = |there: bool, before: f64, after: f64| if there { after / before } else { 0.0 };
        let same = part(overflows, before.overflows_per_s, after.overflows_per_s);
        let left = part(failed, before.failed_share, after.failed_share)
            // Normalized per response: a hundred times the responses with half as many drops are
            // fewer failures; equal drops belong to another program.
            .max(part(overflows, before.overflows_per_answer, after.overflows_per_answer))
            .max(if same >= FAILURES_PERSIST_FROM { same } else { 0.0 });
        if left <= FAILURES_ENDED_BELOW {
            PredictionResult::True
        } else if left >= FAILURES_PERSIST_FROM {
            PredictionResult::False
        } else {
            PredictionResult::Unclear(format!("{:.0} % of the failures are left", left * 100.0))
        }
    }

    fn failure_rates(
        &self,
        of: impl Fn(&(TrialMeasurement, TrialMeasurement)) -> TrialMeasurement,
    ) -> FailureRates {
        let loads: Vec<TrialMeasurement> = self.pairs.iter().map(of).collect();
        let mean = |part: fn(&TrialMeasurement) -> f64| {
            loads.iter().map(part).sum::<f64>() / loads.len().max(1) as f64
        };
        let overflows_per_s = mean(|load| load.overflows_per_s);
        FailureRates {
            failed_share: mean(|load| load.failed_share),
            overflows_per_s,
            overflows_per_answer: overflows_per_s / mean(|load| load.rate_rps).max(ANSWERS_RPS_MIN),
        }
    }

    fn few_unread(&self, most: f64) -> PredictionResult {
        let shares: Option<Vec<f64>> =
            self.pairs.iter().map(|(_, changed)| changed.unread_share).collect();
        let Some(unread) = shares.as_deref().and_then(median) else {
            return PredictionResult::Impossible(
                "requests that lie unread cannot be seen here".to_owned(),
            );
        };
        let before: Option<Vec<f64>> =
            self.pairs.iter().map(|(unchanged, _)| unchanged.unread_share).collect();
        let before = before.as_deref().and_then(median);
        match self.ratio() {
            // A change that moves nothing confirms nothing.
            Some(_) if before.is_none_or(|before| before < most) => PredictionResult::Unclear(
                "hardly any request was unread before the change, too".to_owned(),
            ),
            Some(ratio) if ratio >= UNCHANGED_RATIO_MIN && unread < most => PredictionResult::True,
            // A single look may find fewer unread requests than there are, for example before the
            // generator has sent the next.
            Some(ratio) if ratio >= UNCHANGED_RATIO_MIN => PredictionResult::Unclear(
                "so few connections are still more than are worked on at once".to_owned(),
            ),
            // Two connections share one worker while another has none.
            Some(ratio) if ratio + unread >= UNCHANGED_RATIO_MIN => PredictionResult::Unclear(
                "so few connections were not spread evenly over the workers".to_owned(),
            ),
            Some(_) => PredictionResult::False,
            None => PredictionResult::Unclear("nothing was answered".to_owned()),
        }
    }

    fn mostly(&self, what: impl Fn(&(TrialMeasurement, TrialMeasurement)) -> bool) -> bool {
        self.pairs.iter().filter(|pair| what(pair)).count() * 2 > self.pairs.len()
    }

    fn too_noisy(&self) -> String {
        self.noise().map_or_else(String::new, |noise| {
            format!(
                "the machine is too noisy: the same load gave {:.0} to {:.0} requests/s",
                noise.low_rps, noise.high_rps
            )
        })
    }

    /// Describes the effect in a few words.
    pub(super) fn effect_text(&self, prediction: Prediction) -> String {
        let ratio = self
            .ratio()
            .map_or_else(|| "no answers".to_owned(), |ratio| format!("{ratio:.2} times the rate"));
        match prediction {
            Prediction::FailuresEnd => {
                let (before, after) =
                    (self.failure_rates(|pair| pair.0), self.failure_rates(|pair| pair.1));
                let percent =
                    |part: fn(&FailureRates) -> f64| (part(&after) * 100.0, part(&before) * 100.0);
                let (failed, failed_before) = percent(|rates| rates.failed_share);
                let (dropped, dropped_before) = percent(|rates| rates.overflows_per_answer);
                let failures = format!("{failed:.1} % failures instead of {failed_before:.1} %");
                let drops = format!(
                    "{dropped:.1} dropped connections per 100 answers instead of \
                     {dropped_before:.1}"
                );
                match (
                    before.failed_share >= FAILED_SHARE_MIN,
                    before.overflows_per_s >= OVERFLOWS_PER_S_MIN,
                ) {
                    (true, true) => format!("brought {failures}, and {drops}"),
                    (false, true) => format!("brought {drops}"),
                    (_, false) => format!("brought {failures}"),
                }
            }
            Prediction::FewUnread(_) => {
                let unread = |of: fn(&(TrialMeasurement, TrialMeasurement)) -> Option<f64>| {
                    let shares: Vec<f64> = self.pairs.iter().filter_map(of).collect();
                    median(&shares).unwrap_or_default() * 100.0
                };
                let (before, after) =
                    (unread(|pair| pair.0.unread_share), unread(|pair| pair.1.unread_share));
                format!(
                    "brought {ratio}, with requests unread on {after:.0} % of the connections \
                     instead of {before:.0} %"
                )
            }
            _ => format!("brought {ratio}"),
        }
    }

    /// Describes the observation with its numbers.
    pub(super) fn observed(&self, result: &PredictionResult) -> String {
        let rate = |of: fn(&(TrialMeasurement, TrialMeasurement)) -> f64| {
            median(&self.pairs.iter().map(of).collect::<Vec<_>>())
        };
        let observation = match (
            self.ratio(),
            rate(|pair| pair.0.rate_rps),
            rate(|pair| pair.1.rate_rps),
        ) {
            (Some(ratio), Some(before), Some(after)) => {
                let n = self.pairs.len();
                format!(
                    "{ratio:.2} times the rate ({after:.0} instead of {before:.0} requests/s; {n} \
                     rounds)"
                )
            }
            _ => "it was not measured".to_owned(),
        };
        let failed = self
            .pairs
            .iter()
            .any(|(one, other)| one.failed_share.max(other.failed_share) >= FAILED_SHARE_MIN);
        let observation = if failed && !self.pairs.is_empty() {
            format!(
                "{observation}; {}",
                self.effect_text(Prediction::FailuresEnd).trim_start_matches("brought ")
            )
        } else {
            observation
        };
        match result {
            PredictionResult::Unclear(why) | PredictionResult::Impossible(why) => {
                format!("{observation}: {why}")
            }
            PredictionResult::True | PredictionResult::False => observation,
        }
    }
}

impl Prediction {
    /// Returns `None` when the prediction is not about the rate.
    fn edges(self) -> Option<Thresholds> {
        let (confirmed_by, refutes, above) = match self {
            Self::Rises(from, below) => (from, below, true),
            Self::Stays(up_to, above) => (up_to, above, false),
            Self::Falls(to) => (to, to, false),
            Self::Holds(at, below) => (at, below, true),
            Self::Relieves(at) => (at, at, true),
            Self::FailuresEnd | Self::FewUnread(_) => return None,
        };
        Some(Thresholds { confirmed_by, refutes, above })
    }

    /// Returns the prediction in words and numbers.
    pub(super) fn words(self) -> String {
        match self {
            Self::Rises(from, below) if from > below => {
                format!("at least {from:.2} times the rate; below {below:.2} it is wrong")
            }
            Self::Rises(from, _) => format!("at least {from:.2} times the rate"),
            Self::Stays(up_to, above) => {
                format!("at most {up_to:.2} times the rate; above {above:.2} it is wrong")
            }
            Self::Falls(to) => format!("at most {to:.2} times the rate"),
            Self::Holds(at, below) => {
                format!(
                    "at least {at:.2} times the rate: it hardly falls; below {below:.2} it is wrong"
                )
            }
            Self::Relieves(from) => {
                format!(
                    "at least {from:.2} times the rate, or a generator that is no longer the limit"
                )
            }
            Self::FailuresEnd => {
                format!("at most {:.0} % of the failures are left", FAILURES_ENDED_BELOW * 100.0)
            }
            Self::FewUnread(most) => format!(
                "at least {UNCHANGED_RATIO_MIN:.2} times the rate, and requests lie unread on less \
                 than {:.0} % of the connections",
                most * 100.0
            ),
        }
    }
}
