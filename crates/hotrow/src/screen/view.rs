//! What the display shows at one moment, as plain values: [`super::feed`] makes them, [`super::parts`] puts them into words.

use hotrow_load::record::Known;

/// One picture.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct View {
    /// What is loaded.
    pub(crate) title: String,
    /// With what, in words.
    pub(crate) setting: String,
    /// How far the load under way is.
    pub(crate) passed: Passed,
    pub(crate) rate: Rate,
    pub(crate) times: Vec<Time>,
    /// Requests and connections that failed until now, by kind; kinds that did not happen are left out.
    pub(crate) failures: Vec<(String, u64)>,
    pub(crate) generator: Generator,
    pub(crate) connections: Connections,
    /// None until the machine was looked at twice.
    pub(crate) machine: Option<Machine>,
    /// None until then too.
    pub(crate) suspicion: Option<Suspicion>,
    /// None where there is no search, but one load.
    pub(crate) search: Option<Search>,
}

/// How much of something is over.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Passed {
    /// 0 to 1; none when it cannot be told.
    pub(crate) share: Option<f64>,
    pub(crate) words: String,
}

/// Answers as expected per second.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Rate {
    /// In the last second; none before the first.
    pub(crate) last_rps: Option<f64>,
    /// What the generator tries to send; none in a closed loop.
    pub(crate) target_rps: Option<f64>,
    /// Second by second, the latest at the end.
    pub(crate) history_rps: Vec<f64>,
}

/// A quantile of the latency, from the intended time on.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Time {
    pub(crate) name: &'static str,
    pub(crate) second: Option<Known>,
    pub(crate) overall: Option<Known>,
}

/// How the load generator itself is.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Generator {
    /// Its busiest thread's share of a CPU, 0 to 1.
    pub(crate) busiest: Option<f64>,
    /// 99th percentile of what requests were sent late by in the last second, in ns.
    pub(crate) lag_p99_ns: Option<u64>,
}

/// The generator's connections.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Connections {
    /// That it was told to use.
    pub(crate) count: usize,
    /// Requests that were under way on average in the last second (Little's law: rate × mean service time).
    pub(crate) busy: Option<f64>,
    /// Opened anew because the server had closed them.
    pub(crate) reopened: u64,
}

/// The machine in the last second.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Machine {
    pub(crate) cores: Vec<Core>,
    /// The service's, what stands in front of it, the generator.
    pub(crate) processes: Vec<Process>,
    /// CPUs that all the others used, the kernel included.
    pub(crate) others_cores: f64,
}

/// Shares of a CPU's time, 0 to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Core {
    pub(crate) busy: f64,
    pub(crate) steal: f64,
}

/// CPUs that a process used.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Process {
    pub(crate) name: String,
    pub(crate) cores: f64,
}

/// What the rules say of the last second.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Suspicion {
    pub(crate) words: String,
    /// 0 to 1; none when no limit was found.
    pub(crate) confidence: Option<f64>,
    pub(crate) evidence: Vec<String>,
}

/// A search, or tests, of which the load is a step.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Search {
    /// Which of the two, in a word.
    pub(crate) name: &'static str,
    /// What the step under way is for.
    pub(crate) step: String,
    /// What is known until now.
    pub(crate) so_far: String,
    /// Of the time that it may take.
    pub(crate) budget: Passed,
    /// Steps that are done, the latest at the end.
    pub(crate) steps: Vec<StepRow>,
}

/// A step that is done.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct StepRow {
    /// The rate, or the number of connections.
    pub(crate) asked: String,
    pub(crate) purpose: &'static str,
    pub(crate) verdict: &'static str,
    /// Whether the verdict is good, bad, or neither.
    pub(crate) tone: Tone,
    pub(crate) answered_rps: f64,
    pub(crate) p99: Option<Known>,
    /// What the step was at the limit of, in words; of a test, what was changed.
    pub(crate) suspicion: String,
}

/// How something is to be taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Tone {
    #[default]
    Neutral,
    Good,
    Bad,
}
