//! What the original experiments published, on a machine with 4 cores and 8 hardware threads, compiled without optimisation. Absolute
//! figures of another machine say little; the ratio to the sequential model says more.

/// A published figure.
#[derive(Clone, Copy, Debug)]
pub(super) struct Original {
    /// The model here that it is compared with.
    pub(super) model: &'static str,
    /// What it was.
    pub(super) words: &'static str,
    /// Requests per second; none for the run that died.
    pub(super) tps: Option<f64>,
}

/// The middle of the published 4,104 to 4,235 requests/s.
pub(super) const SEQUENTIAL_TPS: f64 = 4_170.0;

/// All that were published.
pub(super) const ORIGINALS: [Original; 4] = [
    Original { model: "sequential", words: "4,104–4,235/s", tps: Some(SEQUENTIAL_TPS) },
    Original { model: super::THREAD_PER_REQUEST, words: "died at 32,747 threads", tps: None },
    Original { model: "batches-100", words: "3,881/s", tps: Some(3_881.0) },
    // Eight threads on eight hardware threads.
    Original { model: "pool-1x", words: "29,575/s (8 threads)", tps: Some(29_575.0) },
];
