//! Thread of the feed: runs session after session until shutdown.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::thread::Scope;
use std::time::{Duration, Instant};

use hotrow_measure::clock::Nanos;
use hotrow_types::key::KeySchema;

use super::config::Tuning;
use super::config::{Config, Watch};
use super::connect::{Link, PriorState, link};
use super::file::beside;
use super::log::OnRefusal;
use super::prune::{self, Pruner};
use super::queue::Queue;
use super::session::{Ended, Polled, Session, SessionContext};
use super::shared::Shared;
use super::wake::{Wake, Woken};
use hotrow_source::{LossCause, Sink};
use hotrow_supervisor::shutdown::Shutdown;
use hotrow_supervisor::{self as supervisor, Supervisor};

/// Time without an answer from a locked database after which a warning is logged.
const LOCKED_IS_LONG: Duration = Duration::from_secs(1);

/// Feed of the database's changes.
#[derive(Debug)]
pub struct SqliteFeed {
    pub(crate) config: Arc<Config>,
    pub(crate) tuning: Tuning,
    pub(crate) shared: Arc<Shared>,
    pub(crate) schemas: Arc<[KeySchema]>,
    pub(crate) queue: Arc<Queue>,
    pub(crate) next: Next,
    pub(crate) supervisor: Supervisor,
}

/// Start of the next run.
#[derive(Debug)]
pub(crate) enum Next {
    /// With the link that was opened and inspected at the start.
    Opened(Box<Link>),
    /// By reopening the database: the last run was aborted, and its link is unknown.
    Reopened,
}

impl SqliteFeed {
    /// Runs until everything must end; it blocks and needs a thread of its own. A second thread
    /// prunes the change log. It may run again after a panic, once the sink has received a loss: it
    /// then reopens the database.
    ///
    /// # Errors
    /// Returns no error at present; the result type is that of every engine's feed.
    // By value: the feed is the last owner of the sink.
    #[allow(clippy::needless_pass_by_value)]
    pub fn run(&mut self, sink: Arc<dyn Sink>, shutdown: &Shutdown) -> std::io::Result<()> {
        let first = match std::mem::replace(&mut self.next, Next::Reopened) {
            Next::Opened(link) => Some(*link),
            Next::Reopened => {
                self.shared.published.down("the change feed starts again");
                self.shared.set_delivered(None);
                None
            }
        };
        let pruner = Pruner::new(Arc::clone(&self.shared), self.tuning.clone());
        std::thread::scope(|scope| {
            let watched = self.config.watch == Watch::Triggers;
            let _pruning = watched.then(|| Pruning::start(scope, pruner, &self.supervisor));
            self.follow(first, &*sink, shutdown);
        });
        Ok(())
    }

    fn follow(&self, first: Option<Link>, sink: &dyn Sink, shutdown: &Shutdown) {
        let config = &*self.config;
        let tuning = &self.tuning;
        let shared = &*self.shared;
        let schemas = &*self.schemas;
        let context = SessionContext { config, tuning, shared, schemas, sink };
        let mut prior = PriorState { on_refusal: OnRefusal::Continue, ..PriorState::none() };
        let mut next = first;
        while !shutdown.is_ending() {
            let link = next.take().or_else(|| {
                self.wait_for_readers(shutdown);
                self.reopen(prior, shutdown)
            });
            let Some(link) = link else { return };
            let ended = match Session::start(context, &link) {
                Ok(mut session) => match self.watch(&mut session, &link, shutdown) {
                    Some(ended) => {
                        prior = session.prior_state(&ended);
                        ended
                    }
                    None => return,
                },
                Err(ended) => ended,
            };
            self.report_loss(&ended, sink);
        }
    }

    /// Polls until the session ends; returns `None` at shutdown.
    fn watch(&self, session: &mut Session<'_>, link: &Link, shutdown: &Shutdown) -> Option<Ended> {
        let target =
            if link.in_wal_mode { beside(&link.at.real, "-wal") } else { link.at.real.clone() };
        let mut wake = Wake::new(target);
        let mut locked = LockWarning::default();
        let mut touched = Instant::now();
        while !shutdown.is_ending() {
            supervisor::turn();
            match session.poll() {
                Err(ended) => return Some(ended),
                Ok(polled) => locked.observe(polled),
            }
            let is_awaited = session.looks().is_some_and(|looks| looks.is_used(Nanos::now()));
            let is_quiet =
                wake.is_watching() && touched.elapsed() > self.tuning.quiet_after && !is_awaited;
            let every = match link.in_wal_mode {
                true if is_quiet => self.tuning.poll_every_quiet,
                true => self.tuning.poll_every,
                false => self.tuning.poll_every_rollback,
            };
            if wake.wait(every) == Woken::Touched {
                touched = Instant::now();
                self.burst(session);
            }
        }
        None
    }

    /// Polls without a pause for a moment, because the file is touched before the commit is
    /// visible.
    fn burst(&self, session: &mut Session<'_>) {
        let began = Instant::now();
        while !session.has_changed() && began.elapsed() < self.tuning.burst {
            // The writer may need this core to finish its commit.
            std::thread::yield_now();
        }
    }

    fn report_loss(&self, ended: &Ended, sink: &dyn Sink) {
        tracing::warn!(
            cause = ?ended.cause,
            detail = %ended.detail,
            "the change feed lost its position; everything is read anew"
        );
        if matches!(ended.cause, LossCause::OtherDatabase | LossCause::Unavailable) {
            // The readers first: a read that begins after the loss must not see the lost database.
            self.shared.published.down(&ended.detail);
        }
        self.shared.set_delivered(None);
        sink.loss(ended.cause, &ended.detail);
    }

    /// Waits until all readers have closed their connections.
    ///
    /// SQLite shares the index of the write-ahead log among the connections of a process to one
    /// file. If that log was replaced while an old connection is open, a new connection would read
    /// the new log by the old index. Queries are bounded by their time-out, and so is this wait.
    fn wait_for_readers(&self, shutdown: &Shutdown) {
        let began = Instant::now();
        let mut has_warned = false;
        while self.shared.published.plan().is_err() && self.shared.has_connections() {
            self.queue.nudge();
            if !has_warned && began.elapsed() > LOCKED_IS_LONG {
                tracing::warn!(
                    "a query still runs on the connection that was lost; \
                     the database is opened again after it"
                );
                has_warned = true;
            }
            if !shutdown.pause(self.tuning.poll_every) {
                return;
            }
        }
    }

    /// Reopens the database, however long it takes; returns `None` at shutdown.
    fn reopen(&self, prior: PriorState, shutdown: &Shutdown) -> Option<Link> {
        let random = RandomState::new();
        // The process that replaced the file may still be about to remove the files beside it.
        if prior.log.file_changed && !shutdown.pause(self.tuning.replace_settle) {
            return None;
        }
        let mut last_error = String::new();
        for attempt in 0_u32.. {
            match link(&self.config, &self.tuning, prior) {
                Ok(link) => {
                    tracing::info!(
                        path = %self.config.path.display(),
                        "the change feed starts again"
                    );
                    return Some(link);
                }
                Err(e) => {
                    let error = e.to_string();
                    if error != last_error {
                        tracing::error!(%error, "the database cannot be opened; trying again");
                        self.shared.published.explain(&error);
                        last_error = error;
                    }
                }
            }
            if !shutdown.pause(self.tuning.reopen_pause(attempt, random.hash_one(attempt))) {
                return None;
            }
        }
        None
    }
}

/// Guard that ends the pruning thread when the feed ends, also by a panic.
struct Pruning(Shutdown);

impl Pruning {
    fn start<'s>(scope: &'s Scope<'s, '_>, pruner: Pruner, supervisor: &Supervisor) -> Self {
        const NAME: &str = "sqlite-prune";
        let shutdown = Shutdown::new();
        let ending = shutdown.clone();
        let supervisor = supervisor.clone();
        let supervised = move || {
            let mut body = || {
                prune::run(&pruner, &ending);
                Ok(())
            };
            supervisor.run(NAME, &|| ending.is_ending(), &mut || (), &mut body);
        };
        let spawned = std::thread::Builder::new().name(NAME.into()).spawn_scoped(scope, supervised);
        if let Err(e) = spawned {
            tracing::error!(error = %e, "this instance does not prune the change log: no thread");
        }
        Self(shutdown)
    }
}

impl Drop for Pruning {
    fn drop(&mut self) {
        self.0.now();
    }
}

/// Warning, logged once, that the database stays locked.
#[derive(Default)]
struct LockWarning {
    since: Option<Instant>,
    is_logged: bool,
}

impl LockWarning {
    fn observe(&mut self, polled: Polled) {
        if polled != Polled::Busy {
            *self = Self::default();
            return;
        }
        let since = *self.since.get_or_insert_with(Instant::now);
        if !self.is_logged && since.elapsed() > LOCKED_IS_LONG {
            tracing::warn!(
                "the database stays locked; its changes are unknown until the lock is released"
            );
            self.is_logged = true;
        }
    }
}
