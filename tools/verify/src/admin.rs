//! Client of an instance's admin API: purges during the run, and what the instance reports of its
//! feeds and its reads.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::http::{Client, Request, RequestError, Response, Target};
use crate::ledger::Ledger;
use crate::observation::{Origin, Purge};
use crate::random::Random;
use crate::record_schema::RecordSchema;
use crate::shared_state::SharedState;

/// Interval between two purges.
const PURGE_EVERY: Duration = Duration::from_millis(50);
/// One of this many purges covers the whole collection.
const PURGE_ALL_ONE_IN: u64 = 40;
/// Time limit of a response of the admin API.
const ADMIN_TIMEOUT: Duration = Duration::from_secs(5);
/// Metric of feed losses (docs/metrics.md).
const GAPS_METRIC: &str = "hotrow_feed_gaps_total";
/// Metric of queries that standbys answered.
const STANDBY_READS_METRIC: &str = "hotrow_standby_reads_total";

/// What an instance reports of its feeds and its reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Observed {
    /// Losses of its feeds since its start.
    pub(crate) losses: u64,
    /// Queries that standbys answered since its start.
    pub(crate) standby_reads: u64,
    /// Where its changes come from, such as `wal` or `hub`.
    pub(crate) feed: String,
}

impl Observed {
    /// Returns what came since `before`.
    pub(crate) fn since(self, before: &Self) -> Self {
        Self {
            losses: self.losses.saturating_sub(before.losses),
            standby_reads: self.standby_reads.saturating_sub(before.standby_reads),
            ..self
        }
    }
}

/// An instance's admin API.
#[derive(Debug)]
pub(crate) struct Admin {
    origin: Origin,
    client: Client,
    token: Option<String>,
}

impl Admin {
    pub(crate) fn new(origin: Origin, target: &Target, token: Option<String>) -> Self {
        Self { origin, client: Client::new(Arc::new(target.clone()), ADMIN_TIMEOUT), token }
    }

    fn ask(&mut self, method: &'static str, path: String) -> Result<Response, RequestError> {
        // Required for changes (docs/http.md); ignored by other requests.
        let token = self.token.as_ref().map(|token| ("Authorization", format!("Bearer {token}")));
        let headers = token.into_iter().chain([("Hotrow-Admin", "1".to_owned())]).collect();
        let request = Request { method, path, headers, body: None };
        self.client.ask(&request, |_| {})
    }

    /// Returns what the instance reports now.
    ///
    /// # Errors
    /// The reason it is not available.
    pub(crate) fn observe(&mut self) -> Result<Observed, String> {
        // Requested at the beginning and at the end of a run.
        self.client.connect_anew();
        let metrics = self.document("/metrics")?;
        let status = self.document("/status")?;
        Ok(Observed {
            losses: sum(&metrics, GAPS_METRIC),
            standby_reads: sum(&metrics, STANDBY_READS_METRIC),
            feed: feed(&status).ok_or("/status does not name its feeds")?,
        })
    }

    fn document(&mut self, path: &str) -> Result<String, String> {
        let response = self
            .ask("GET", path.to_owned())
            .map_err(|lost| format!("no response ({})", lost.name()))?;
        if response.status() != 200 {
            return Err(format!("{path} returned {}", response.status()));
        }
        Ok(String::from_utf8_lossy(&response.body).into_owned())
    }
}

/// Returns where the changes of each source come from, with commas between them.
fn feed(status: &str) -> Option<String> {
    let status: Value = serde_json::from_str(status).ok()?;
    let sources = status.get("sources")?.as_object()?;
    let watches = sources.values().map(|source| source.pointer("/feed/watch")?.as_str());
    Some(watches.collect::<Option<Vec<_>>>()?.join(", "))
}

/// Returns the sum of a counter over its labels.
fn sum(metrics: &str, name: &str) -> u64 {
    let value = |line: &str| {
        let rest = line.strip_prefix(name)?;
        let labelled = rest.starts_with(['{', ' ']);
        labelled.then(|| rest.rsplit(' ').next()?.parse::<f64>().ok()).flatten()
    };
    metrics.lines().filter_map(value).sum::<f64>() as u64
}

/// Purges at intervals until the stop flag is set.
pub(crate) struct Purger {
    pub(crate) admins: Vec<Admin>,
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) shared: Arc<SharedState>,
    pub(crate) schema: RecordSchema,
    pub(crate) random: Random,
    pub(crate) purges: Arc<AtomicU64>,
}

impl Purger {
    pub(crate) fn run(mut self) {
        let shared = self.shared.clone();
        let mut due = Instant::now();
        while !shared.writers_stopped() {
            due += PURGE_EVERY;
            SharedState::sleep_until(due, || shared.writers_stopped());
            let all = self.random.below(PURGE_ALL_ONE_IN) == 0;
            let key = (!all).then(|| self.shared.recent(&mut self.random)).flatten();
            let mut path = format!("/purge/{}", self.schema.collection);
            if let Some(key) = key {
                path.push_str(&format!("/{}", self.schema.key_type.text(key)));
            }
            let at = self.random.below(self.admins.len() as u64) as usize;
            let Some(admin) = self.admins.get_mut(at) else { return };
            let sent_ns = hotrow_measure::clock::Nanos::now().0;
            // Without a response the purge may or may not have happened; nothing follows.
            let Ok(response) = admin.ask("POST", path) else { continue };
            if (200..300).contains(&response.status()) {
                let received_ns = response.received_ns;
                self.ledger.purge(Purge { key, origin: admin.origin, sent_ns, received_ns });
                self.purges.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_source_names_its_feed() {
        let status = r#"{"sources":{"a":{"feed":{"watch":"hub"}},"b":{"feed":{"watch":"wal"}}}}"#;
        assert_eq!(feed(status).as_deref(), Some("hub, wal"));
        for other in ["", "{}", r#"{"sources":{"a":{}}}"#, r#"{"sources":[]}"#] {
            assert_eq!(feed(other), None, "{other}");
        }
    }

    #[test]
    fn a_counter_is_summed_over_its_labels() {
        let text = "# TYPE a counter\na{x=\"1 2\"} 3\na{x=\"y\"} 4\na_more 9\nab 8\n";
        assert_eq!(sum(text, "a"), 7);
        assert_eq!(sum("a 5\n", "a"), 5);
        assert_eq!(sum("", "a"), 0);
    }
}
