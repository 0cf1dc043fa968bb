//! Figures of the published experiments, from a machine with 4 cores and 8 hardware threads,
//! compiled without optimisation. Absolute figures of another machine say little; ratios to the
//! sequential model say more.

/// A published figure.
#[derive(Clone, Copy, Debug)]
pub(super) struct PublishedFigure {
    /// The model here to which it compares.
    pub(super) model: &'static str,
    /// Its text form.
    pub(super) text: &'static str,
    /// Requests per second; `None` for the run that died.
    pub(super) tps: Option<f64>,
}

/// Middle of the published 4,104 to 4,235 requests/s.
pub(super) const SEQUENTIAL_TPS: f64 = 4_170.0;

/// All published figures.
pub(super) const PUBLISHED: [PublishedFigure; 4] = [
    PublishedFigure { model: "sequential", text: "4,104–4,235/s", tps: Some(SEQUENTIAL_TPS) },
    PublishedFigure { model: super::THREAD_PER_REQUEST, text: "died at 32,747 threads", tps: None },
    PublishedFigure { model: "batches-100", text: "3,881/s", tps: Some(3_881.0) },
    // Eight threads on eight hardware threads.
    PublishedFigure { model: "pool-1x", text: "29,575/s (8 threads)", tps: Some(29_575.0) },
];
