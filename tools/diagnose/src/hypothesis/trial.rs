//! Values of a test: its context, the changes, the trials and the verdict.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::measurement::{Noise, TrialMeasurement};
use crate::rules::finding::{Finding, LimitClass};

/// The tested load, the observations during it, and what can be changed.
#[derive(Clone, Debug, PartialEq)]
pub struct Context {
    /// Connections.
    pub connections: usize,
    /// Most connections that can be opened from here.
    pub connections_max: usize,
    /// Threads of the generator.
    pub threads: usize,
    /// Most generator threads that can run concurrently: the CPUs that it may use.
    pub threads_max: usize,
    /// Target rate in requests per second; none in a closed loop.
    pub target_rps: Option<f64>,
    /// Maximum rate that may be requested, in requests per second.
    pub target_max_rps: Option<f64>,
    /// Expected responses per second.
    pub answered_rps: f64,
    /// True if the target rate was kept; false in a closed loop.
    pub kept: bool,
    /// True if connections are kept open.
    pub keepalive: bool,
    /// True if every request is a GET.
    pub get: bool,
    /// True if the target is on this machine.
    pub local: bool,
    /// CPUs of this machine.
    pub cpus: usize,
    /// Mean number of idle CPUs; none where unknown.
    pub idle_cores: Option<f64>,
    /// CPU share of the generator's busiest thread, 0 to 1.
    pub generator_busy: f64,
    /// The generator's CPU time per request, in µs.
    pub generator_us_per_request: f64,
    /// True if a cgroup throttles the generator.
    pub generator_throttled: bool,
    /// Share of the connections with an unread request, 0 to 1; none where unknown.
    pub unread_share: Option<f64>,
    /// Median response time; nearly all responses came within a few times it.
    pub answer_typical: Duration,
    /// Folder of the cgroup that throttled the target most; none without throttling.
    pub most_throttled: Option<Arc<Path>>,
    /// True if the target's CPU quota may be changed.
    pub quota: bool,
}

/// The change of a trial.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Change {
    /// This many connections.
    Connections(usize),
    /// This many generator threads.
    GeneratorThreads(usize),
    /// Additional CPU time of the generator per request, as a share of the current one.
    BurnGenerator(f64),
    /// This many CPUs taken from all processes, in short slices.
    BurnCpus(f64),
    /// The target's CPU quota, multiplied by this.
    Quota(f64),
    /// Responses without bodies.
    Head,
    /// Keep-alive connections.
    Keepalive,
    /// The target rate, multiplied by this.
    Rate(f64),
    /// At most this many requests per second, also in a closed loop.
    RateCap(f64),
}

/// The workload model of a trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrialLoad {
    /// As fast as responses arrive, so that a limit is reached at any requested rate.
    Closed,
    /// The original workload.
    AsLoaded,
}

/// The next step of a test.
#[derive(Clone, Debug, PartialEq)]
pub enum TestStep {
    /// Apply a load and report its outcome.
    Load {
        /// The change; none for the unchanged load.
        change: Option<Change>,
        /// The workload model.
        pace: TrialLoad,
    },
    /// The test is complete.
    Done(Box<HypothesisVerdict>),
}

/// The outcome of a load.
#[derive(Clone, Debug, PartialEq)]
pub enum TrialOutcome {
    /// It was measured.
    Measured(TrialMeasurement),
    /// The change is impossible, with the reason.
    Impossible(String),
    /// No further loads are possible, with the reason.
    Over(String),
}

/// The conclusion of trials about a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Conclusion {
    /// The prediction held.
    Confirmed,
    /// The prediction failed.
    Refuted,
    /// Neither could be shown.
    Inconclusive,
}

/// One trial.
#[derive(Clone, Debug, PartialEq)]
pub struct Trial {
    /// The tested hypothesis.
    pub class: LimitClass,
    /// The change as text.
    pub change: String,
    /// The prediction in words and numbers.
    pub predicted: String,
    /// The observation.
    pub observed: String,
    /// The conclusion about the hypothesis.
    pub conclusion: Conclusion,
    /// The change.
    pub change_made: Change,
    /// Median of the rounds' ratios of changed to unchanged rate; none without a reference rate.
    pub times: Option<f64>,
}

/// The limit, as far as tests could show.
#[derive(Clone, Debug, PartialEq)]
pub struct HypothesisVerdict {
    /// The finding. If all hypotheses were refuted, the first of them, and no limit is named.
    pub finding: Finding,
    /// The conclusion.
    pub conclusion: Conclusion,
    /// The reason, in a sentence.
    pub why: String,
    /// All trials, in order.
    pub trials: Vec<Trial>,
    /// Spread of equal loads; none without two of them.
    pub noise: Option<Noise>,
    /// Connections of the unchanged load.
    pub connections: usize,
}

impl HypothesisVerdict {
    /// Returns the rate ratio of more connections; `None` where no trial settled it.
    pub fn more_connections_brought(&self) -> Option<f64> {
        let settled =
            self.trials.iter().filter(|trials| trials.conclusion != Conclusion::Inconclusive);
        let adds =
            |change: Change| matches!(change, Change::Connections(n) if n > self.connections);
        settled.filter(|trials| adds(trials.change_made)).find_map(|trials| trials.times)
    }
}

impl Conclusion {
    /// Returns the conclusion as text.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::Confirmed => "confirmed",
            Self::Refuted => "refuted",
            Self::Inconclusive => "inconclusive",
        }
    }
}
