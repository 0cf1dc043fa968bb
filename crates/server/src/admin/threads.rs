//! Background threads in `/healthz` and `/metrics`, and the number of lost log lines.

use std::sync::atomic::Ordering;

use hotrow_measure::clock::Nanos;
use http::{Response, StatusCode};

use super::{View, plain};
use crate::body::Body;
use crate::metrics::{Exposition, Labels};

impl View {
    /// Answers `/healthz`. Fails when a thread keeps failing, because restarting the process may
    /// then help.
    pub(super) fn health(&self, now: Nanos) -> Response<Body> {
        const KIND: &str = "text/plain; charset=utf-8";
        match self.process.supervisor.failing(now) {
            None => plain(StatusCode::OK, KIND, "alive\n"),
            Some(thread) => {
                let text = format!(
                    "thread {} failed {} times in a row; restart the process\n",
                    thread.name, thread.failures_in_a_row
                );
                plain(StatusCode::SERVICE_UNAVAILABLE, KIND, text)
            }
        }
    }

    pub(super) fn expose_threads(&self, out: &mut Exposition) {
        let panics = self.process.supervisor.panics();
        let labels: Vec<_> = panics.iter().map(|(name, _)| [("thread", name.as_str())]).collect();
        let series: Vec<(Labels<'_>, u64)> =
            labels.iter().zip(&panics).map(|(labels, (_, count))| (&labels[..], *count)).collect();
        out.counter(
            "hotrow_thread_panics_total",
            "Panics caught in background threads, which were restarted.",
            &series,
        );
        let dropped = self.process.log_dropped_total.load(Ordering::Relaxed);
        out.counter(
            "hotrow_log_dropped_total",
            "Log lines that could not be written.",
            &[(&[], dropped)],
        );
    }
}
