//! One frame of the display as plain values: [`super::display_state`] creates them,
//! [`super::widgets`] formats them.

use hotrow_load::stats::CensoredNs;

/// One frame.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct View {
    pub(crate) title: String,
    pub(crate) setting: String,
    pub(crate) passed: Progress,
    pub(crate) rate: Rate,
    pub(crate) times: Vec<Time>,
    /// Failed requests and connections so far, by kind, without kinds of zero.
    pub(crate) failures: Vec<(String, u64)>,
    pub(crate) generator: Generator,
    pub(crate) connections: Connections,
    /// The machine; `None` until it was sampled twice.
    pub(crate) machine: Option<Machine>,
    /// The suspected limit; `None` until then too.
    pub(crate) suspicion: Option<SuspectedLimit>,
    /// The search; `None` for a single load.
    pub(crate) search: Option<Search>,
}

/// Progress towards an end.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Progress {
    /// 0 to 1; none when unknown.
    pub(crate) share: Option<f64>,
    pub(crate) words: String,
}

/// Expected responses per second.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Rate {
    /// In the last second; none before the first.
    pub(crate) last_rps: Option<f64>,
    /// The target rate; none in a closed loop.
    pub(crate) target_rps: Option<f64>,
    /// By second, the latest at the end.
    pub(crate) history_rps: Vec<f64>,
}

/// A quantile of the latency.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Time {
    pub(crate) name: &'static str,
    pub(crate) second: Option<CensoredNs>,
    pub(crate) overall: Option<CensoredNs>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Generator {
    /// CPU share of its busiest thread, 0 to 1.
    pub(crate) busiest: Option<f64>,
    /// 99th percentile of the schedule lag in the last second, in ns.
    pub(crate) lag_p99_ns: Option<u64>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Connections {
    /// Configured number.
    pub(crate) count: usize,
    /// Mean number of requests in flight in the last second (Little's law: rate × mean service
    /// time).
    pub(crate) busy: Option<f64>,
    /// Reopened because the server had closed them.
    pub(crate) reopened: u64,
}

/// The machine in the last second.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Machine {
    pub(crate) cores: Vec<Core>,
    /// The service, proxies, the generator.
    pub(crate) processes: Vec<Process>,
    /// CPUs used by all other processes, the kernel included.
    pub(crate) others_cores: f64,
}

/// Shares of a CPU's time, 0 to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Core {
    pub(crate) busy: f64,
    pub(crate) steal: f64,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Process {
    pub(crate) name: String,
    pub(crate) cores: f64,
}

/// The result of the rules for the last second.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct SuspectedLimit {
    pub(crate) words: String,
    /// 0 to 1; none without a finding.
    pub(crate) confidence: Option<f64>,
    pub(crate) evidence: Vec<String>,
}

/// A search, or tests, of which the load is a step.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Search {
    /// "search" or "tests".
    pub(crate) name: &'static str,
    pub(crate) step: String,
    /// The knowledge so far.
    pub(crate) so_far: String,
    /// Progress of its maximum time.
    pub(crate) budget: Progress,
    /// Completed steps, the latest at the end.
    pub(crate) steps: Vec<StepRow>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct StepRow {
    /// The target rate, or the number of connections.
    pub(crate) target: String,
    pub(crate) purpose: &'static str,
    pub(crate) verdict: &'static str,
    /// Tone of the verdict: good, bad, or neither.
    pub(crate) tone: Tone,
    pub(crate) answered_rps: f64,
    pub(crate) p99: Option<CensoredNs>,
    /// The step's finding, as text; for a test, the change.
    pub(crate) suspicion: String,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Tone {
    #[default]
    Neutral,
    Good,
    Bad,
}
