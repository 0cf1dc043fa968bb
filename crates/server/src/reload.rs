//! Reload of the configuration, as the server sees it: who asks for one, and what operators see of
//! it. The file is read elsewhere; [`hotrow_service::apply`] puts a new one in force.

use std::sync::Arc;

use hotrow_measure::clock::Nanos;
use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};

/// Most reloads that wait for their turn.
const WAITING_MAX: usize = 8;

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
    pub fn state(&self) -> ReloadState {
        self.state.lock().clone()
    }

    /// Returns whether the last reload was rejected.
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
