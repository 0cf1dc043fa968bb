//! Reload of the configuration, as the server sees it: how a new one is put in force, who asks for
//! a reload, and what operators see of it. The file is read elsewhere.

use std::sync::Arc;
use std::time::Duration;

use hotrow_cache::config::{CollectionPolicy, Settings};
use hotrow_config::Config;
use hotrow_measure::clock::Nanos;
use hotrow_supervisor::shutdown::Shutdown;
use hotrow_types::key::CollectionId;
use http::header::InvalidHeaderValue;
use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};

use crate::in_force::{InForce, NotEverywhere};

/// Longest wait for the workers to take over new settings. A worker whose thread restarts after a
/// panic needs up to five seconds.
pub const EVERYWHERE_WAIT_MAX: Duration = Duration::from_secs(10);
/// Most reloads that wait for their turn.
const WAITING_MAX: usize = 8;

/// A configuration to put in force. Collections, workers and addresses are those of the one in
/// force.
#[derive(Clone, Debug)]
pub struct Change {
    /// Settings of the HTTP side.
    pub config: Config,
    /// Settings of the cache.
    pub cache: Settings,
    /// Settings of the cache for each collection.
    pub policies: Vec<CollectionPolicy>,
    /// Capacity of the cache in bytes.
    pub capacity_bytes: u64,
    /// Whether anything about credentials and grants differs.
    pub access_changed: bool,
}

/// What became of a [`Change`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Applied {
    /// Rate limits that the admin side had changed, each with whether its change goes on.
    pub rate_rules: Vec<(String, bool)>,
    /// Whether every worker answers by it.
    pub everywhere: Result<(), NotEverywhere>,
}

impl InForce {
    /// Puts `change` in force, and waits until no answer comes from earlier settings.
    ///
    /// # Errors
    /// If a `cache_control` is not a valid header value; nothing has changed then.
    pub fn apply(
        &self,
        change: Change,
        shutdown: &Shutdown,
    ) -> Result<Applied, InvalidHeaderValue> {
        let Change { config, cache: settings, policies, capacity_bytes, access_changed } = change;
        let before = self.newest();
        let cache = before.shared.cache.with_settings(&settings, &policies);
        let shared = before.shared.after(&config, Arc::clone(&cache), access_changed)?;
        let rate_rules = before.shared.admission.rate.changed_by_admin(&shared.admission.rate);
        // Nothing fails from here on.
        let fetcher = &shared.fetcher;
        fetcher.cache.set(Arc::clone(&cache));
        if before.config.breaker != config.breaker {
            let breakers = fetcher.sources.iter().map(|reads| &reads.breaker);
            breakers.for_each(|breaker| breaker.restart(config.breaker.clone()));
        }
        shared.admission.inflight.set(&config.limits);
        let ended: Vec<CollectionId> = shared
            .collections
            .ids()
            .filter(|id| shared.collections.get(*id).is_removed)
            .filter(|id| !before.shared.collections.get(*id).is_removed)
            .collect();
        let shortened = shortened(&before.shared.cache, &cache);
        let generation = self.replace(config, shared);
        let everywhere = self.everywhere(generation, EVERYWHERE_WAIT_MAX, shutdown);
        for id in ended.into_iter().chain(shortened) {
            cache.flush(id, None);
            cache.release_standbys_after(id, Nanos::now());
        }
        while cache.step_to_capacity(capacity_bytes) {
            if shutdown.is_ending() {
                break;
            }
        }
        Ok(Applied { rate_rules, everywhere })
    }
}

type Cache = hotrow_cache::Cache<hotrow_source::ReadFailure>;

/// Returns the collections whose entries would live longer than the contract of `after` says:
/// without a feed, the lifetime is the bound on an answer's age.
fn shortened(before: &Cache, after: &Cache) -> Vec<CollectionId> {
    let is_shorter = |(before, after): (&CollectionPolicy, &CollectionPolicy)| {
        after.ttl < before.ttl || after.negative_ttl < before.negative_ttl
    };
    let pairs = before.policies().iter().zip(after.policies());
    let numbered = pairs.map(is_shorter).zip((0..).map(CollectionId));
    let shorter = numbered.filter(|(is_shorter, _)| *is_shorter).map(|(_, id)| id);
    shorter.filter(|id| !after.is_followed(after.source_of(*id))).collect()
}

/// What asks for a reload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trigger {
    /// SIGHUP.
    Signal,
    /// A change of the file.
    File,
    /// `POST /reload`.
    Admin,
}

impl Trigger {
    /// Returns its name in `/status` and in the log.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::Signal => "signal",
            Self::File => "file",
            Self::Admin => "admin",
        }
    }
}

/// Line of the log when a reload is requested of a process that has no file.
pub const NO_FILE: &str = "a reload was requested, and there is no configuration file to read \
    again: this process was started without one";

/// Result of a reload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReloadResult {
    /// The file says what is in force.
    Unchanged,
    /// All that can change while running is in force.
    Applied,
    /// The file differs only in what cannot change while running.
    RestartNeeded,
    /// The file has a problem. Nothing was changed.
    Rejected,
}

impl ReloadResult {
    /// All results.
    pub const ALL: [Self; 4] =
        [Self::Unchanged, Self::Applied, Self::RestartNeeded, Self::Rejected];

    /// Returns its name in metrics and documents.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::Unchanged => "unchanged",
            Self::Applied => "applied",
            Self::RestartNeeded => "restart_needed",
            Self::Rejected => "rejected",
        }
    }
}

/// A difference that cannot change while running.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Left {
    /// Path of the key, or of the table.
    pub path: String,
    /// Why it is left.
    pub reason: &'static str,
}

/// Report of one reload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Its result.
    pub result: ReloadResult,
    /// Paths of the keys that changed.
    pub applied: Vec<String>,
    /// What was left.
    pub left: Vec<Left>,
    /// Problems of a rejected file, one a line, as `hotrow check` prints them.
    pub problems: Vec<String>,
    /// Rate limits that the admin side had changed, each with whether its change goes on.
    pub rate_rules: Vec<(String, bool)>,
    /// Why the change was not awaited to its end, if it was not.
    pub pending: Option<String>,
}

impl Report {
    /// Creates a report without details.
    #[must_use]
    pub fn new(result: ReloadResult) -> Self {
        Self {
            result,
            applied: Vec::new(),
            left: Vec::new(),
            problems: Vec::new(),
            rate_rules: Vec::new(),
            pending: None,
        }
    }
}

/// A request for a reload.
#[derive(Debug)]
pub struct ReloadRequest {
    /// What asks for it.
    pub trigger: Trigger,
    /// Receives the report.
    pub reply: oneshot::Sender<Arc<Report>>,
}

/// Reloads of the process: the way to ask for one, and what is known of them.
#[derive(Debug)]
pub struct Reloads {
    requests: mpsc::Sender<ReloadRequest>,
    state: Mutex<ReloadState>,
}

/// What is known of the configuration in force and of the reloads.
#[derive(Clone, Debug)]
pub struct ReloadState {
    /// File that it comes from.
    pub file: String,
    /// SHA-256 of the text of the last file that was not rejected, in hexadecimal digits.
    pub hash: String,
    /// Time since which nothing has changed.
    pub since: Nanos,
    /// The last reload, with its trigger and its time.
    pub last: Option<(Trigger, Nanos, Arc<Report>)>,
    /// Time of the last reload that was not rejected, or of the start.
    pub succeeded_at: Nanos,
    /// Reloads by result, in the order of [`ReloadResult::ALL`].
    pub totals: [u64; ReloadResult::ALL.len()],
}

/// Reason for which no reload was requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{WAITING_MAX} reloads wait already")]
pub struct TooManyReloads;

impl Reloads {
    /// Returns what `/readyz` says of reloads.
    pub(crate) fn label(&self) -> &'static str {
        if self.has_failed() { "failed" } else { "ok" }
    }

    /// Begins with the configuration of the start. Also returns the requests.
    #[must_use]
    pub fn new(
        file: String,
        hash: String,
        now: Nanos,
    ) -> (Arc<Self>, mpsc::Receiver<ReloadRequest>) {
        let (requests, receiver) = mpsc::channel(WAITING_MAX);
        let state = ReloadState {
            file,
            hash,
            since: now,
            last: None,
            succeeded_at: now,
            totals: [0; ReloadResult::ALL.len()],
        };
        (Arc::new(Self { requests, state: Mutex::new(state) }), receiver)
    }

    /// Requests a reload. The receiver gets its report; an error means that the process ends.
    ///
    /// # Errors
    /// Too many wait.
    pub fn request(
        &self,
        trigger: Trigger,
    ) -> Result<oneshot::Receiver<Arc<Report>>, TooManyReloads> {
        let (reply, report) = oneshot::channel();
        self.requests.try_send(ReloadRequest { trigger, reply }).map_err(|_| TooManyReloads)?;
        Ok(report)
    }

    /// Returns what is known.
    #[must_use]
    pub fn state(&self) -> ReloadState {
        self.state.lock().clone()
    }

    /// Returns whether the last reload was rejected.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        let state = self.state.lock();
        state.last.as_ref().is_some_and(|(.., last)| last.result == ReloadResult::Rejected)
    }

    /// Notes the end of a reload. `hash`: of its file, unless that was rejected.
    pub fn ended(&self, trigger: Trigger, report: Arc<Report>, hash: Option<String>, now: Nanos) {
        let mut state = self.state.lock();
        let at = ReloadResult::ALL.iter().position(|result| *result == report.result);
        if let Some(total) = at.and_then(|at| state.totals.get_mut(at)) {
            *total += 1;
        }
        if report.result != ReloadResult::Rejected {
            state.succeeded_at = now;
        }
        if let Some(hash) = hash {
            state.hash = hash;
        }
        if report.result == ReloadResult::Applied {
            state.since = now;
        }
        state.last = Some((trigger, now, report));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reloads_are_counted_and_the_last_is_known() {
        let (reloads, mut requests) = Reloads::new("f".to_owned(), "aa".to_owned(), Nanos(1));
        let waiting: Vec<_> =
            (0..WAITING_MAX).map(|_| reloads.request(Trigger::Signal).unwrap()).collect();
        assert!(reloads.request(Trigger::Admin).is_err(), "{} wait", waiting.len());
        assert_eq!(requests.try_recv().unwrap().trigger, Trigger::Signal);
        let rejected = Arc::new(Report::new(ReloadResult::Rejected));
        reloads.ended(Trigger::Signal, rejected, None, Nanos(2));
        assert!(reloads.has_failed());
        let state = reloads.state();
        assert_eq!((state.totals, &*state.hash, state.since), ([0, 0, 0, 1], "aa", Nanos(1)));
        let applied = Arc::new(Report::new(ReloadResult::Applied));
        reloads.ended(Trigger::Admin, applied, Some("bb".to_owned()), Nanos(3));
        let state = reloads.state();
        assert_eq!((state.totals, &*state.hash, state.since), ([0, 1, 0, 1], "bb", Nanos(3)));
        assert!(!reloads.has_failed() && state.succeeded_at == Nanos(3));
    }
}
