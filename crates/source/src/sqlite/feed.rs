//! The feed: from session to session, for as long as the process lives.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::Scope;
use std::time::{Duration, Instant};

use hotrow_cache::key::KeySchema;

use super::config::{Config, Watch};
use super::connect::{Before, Link, link};
use super::file::beside;
use super::log::Refusals;
use super::prune::{self, Pruner};
use super::reader::Queue;
use super::session::{Around, Ended, Polled, Session};
use super::shared::Shared;
use super::tuning::Tuning;
use super::wake::{Wake, Woken};
use crate::{LossCause, Sink};

/// How long a wait may keep the feed from seeing that it shall end.
const SHUTDOWN_CHECK_EVERY: Duration = Duration::from_millis(20);
/// After so long without an answer from a locked database the log tells.
const LOCKED_IS_LONG: Duration = Duration::from_secs(1);

/// Follows the database and delivers what changes.
#[derive(Debug)]
pub struct SqliteFeed {
    pub(crate) config: Arc<Config>,
    pub(crate) tuning: Tuning,
    pub(crate) shared: Arc<Shared>,
    pub(crate) schemas: Arc<[KeySchema]>,
    pub(crate) queue: Arc<Queue>,
    /// Opened and inspected at the start.
    pub(crate) first: Option<Link>,
}

impl SqliteFeed {
    /// Runs until `shutdown` is set. Blocks: it wants a thread of its own. A second thread prunes the change log.
    // Both are handed over for good: the feed is the last to let go of them.
    #[allow(clippy::needless_pass_by_value)]
    pub fn run(mut self, sink: Arc<dyn Sink>, shutdown: Arc<AtomicBool>) {
        let first = self.first.take();
        let pruner = Pruner::new(Arc::clone(&self.shared), self.tuning.clone());
        std::thread::scope(|scope| {
            let watched = self.config.watch == Watch::Triggers;
            let _pruning = watched.then(|| Pruning::start(scope, pruner, Arc::default()));
            self.follow(first, &*sink, &shutdown);
        });
    }

    fn follow(&self, first: Option<Link>, sink: &dyn Sink, shutdown: &AtomicBool) {
        let (config, tuning, shared, schemas) = (&*self.config, &self.tuning, &*self.shared, &*self.schemas);
        let around = Around { config, tuning, shared, schemas, sink };
        let mut before = Before { refusals: Refusals::Keep, ..Before::nothing() };
        let mut next = first;
        while !shutdown.load(Ordering::Relaxed) {
            let link = next.take().or_else(|| {
                self.wait_for_readers(shutdown);
                self.reopen(before, shutdown)
            });
            let Some(link) = link else { return };
            let ended = match Session::start(around, &link) {
                Ok(mut session) => match self.watch(&mut session, &link, shutdown) {
                    Some(ended) => {
                        before = session.before(&ended);
                        ended
                    }
                    None => return,
                },
                Err(ended) => ended,
            };
            self.lose(&ended, sink);
        }
    }

    /// Polls until the session ends; none at shutdown.
    fn watch(&self, session: &mut Session<'_>, link: &Link, shutdown: &AtomicBool) -> Option<Ended> {
        let target = if link.in_wal_mode { beside(&link.at.real, "-wal") } else { link.at.real.clone() };
        let mut wake = Wake::new(target);
        let mut locked = Locked::default();
        let mut touched = Instant::now();
        while !shutdown.load(Ordering::Relaxed) {
            match session.poll() {
                Err(ended) => return Some(ended),
                Ok(polled) => locked.saw(polled),
            }
            let is_quiet = wake.is_watching() && touched.elapsed() > self.tuning.quiet_after;
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

    /// The file is touched before the commit can be seen: asks until it can, for a moment.
    fn burst(&self, session: &mut Session<'_>) {
        let began = Instant::now();
        while !session.has_changed() && began.elapsed() < self.tuning.burst {
            // The writer may need this core to finish its commit.
            std::thread::yield_now();
        }
    }

    fn lose(&self, ended: &Ended, sink: &dyn Sink) {
        tracing::warn!(cause = ?ended.cause, detail = %ended.detail, "the change feed lost its place; everything is read anew");
        if matches!(ended.cause, LossCause::OtherDatabase | LossCause::Unavailable) {
            // First the readers: a read that begins after the loss must not see what is gone.
            self.shared.down(&ended.detail);
        }
        self.shared.set_delivered(None);
        sink.loss(ended.cause, &ended.detail);
    }

    /// SQLite shares the index of the write-ahead log among the connections of a process to one file. When that log was
    /// replaced, a new connection would read the new log by the old index while an old connection is open. Queries are
    /// bounded by their time-out, so this wait is too.
    fn wait_for_readers(&self, shutdown: &AtomicBool) {
        let (began, mut told) = (Instant::now(), false);
        while self.shared.plan().is_err() && self.shared.has_connections() {
            self.queue.nudge();
            if !told && began.elapsed() > LOCKED_IS_LONG {
                tracing::warn!(
                    "a query still runs on the connection that was lost; the database is opened again after it"
                );
                told = true;
            }
            if !pause(self.tuning.poll_every, shutdown) {
                return;
            }
        }
    }

    /// Opens the database again, however long it takes; none at shutdown.
    fn reopen(&self, before: Before, shutdown: &AtomicBool) -> Option<Link> {
        let random = RandomState::new();
        // Whoever replaces a file may still be about to remove what lies beside it.
        if before.past.file_changed && !pause(self.tuning.replace_settle, shutdown) {
            return None;
        }
        let mut told = String::new();
        for attempt in 0_u32.. {
            match link(&self.config, &self.tuning, before) {
                Ok(link) => {
                    tracing::info!(path = %self.config.path.display(), "the change feed starts again");
                    return Some(link);
                }
                Err(e) => {
                    let now = e.to_string();
                    if now != told {
                        tracing::error!(error = %now, "the database cannot be opened; trying again");
                        self.shared.explain(&now);
                        told = now;
                    }
                }
            }
            if !pause(self.tuning.reopen_pause(attempt, random.hash_one(attempt)), shutdown) {
                return None;
            }
        }
        None
    }
}

/// Ends the pruning thread when the feed ends, even by a panic.
struct Pruning {
    stop: Arc<AtomicBool>,
    thread: Option<std::thread::Thread>,
}

impl Pruning {
    fn start<'s>(scope: &'s Scope<'s, '_>, pruner: Pruner, stop: Arc<AtomicBool>) -> Self {
        let seen = Arc::clone(&stop);
        let spawned = std::thread::Builder::new()
            .name("sqlite-prune".into())
            .spawn_scoped(scope, move || prune::run(&pruner, &seen))
            .inspect_err(|e| tracing::error!(error = %e, "this instance does not prune the change log: no thread"));
        Self { stop, thread: spawned.ok().map(|handle| handle.thread().clone()) }
    }
}

impl Drop for Pruning {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = &self.thread {
            thread.unpark();
        }
    }
}

/// Sleeps; false when the process shall end.
fn pause(time: Duration, shutdown: &AtomicBool) -> bool {
    let until = Instant::now() + time;
    loop {
        if shutdown.load(Ordering::Relaxed) {
            return false;
        }
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return true;
        }
        std::thread::sleep(left.min(SHUTDOWN_CHECK_EVERY));
    }
}

/// Tells once when the database stays locked.
#[derive(Default)]
struct Locked {
    since: Option<Instant>,
    told: bool,
}

impl Locked {
    fn saw(&mut self, polled: Polled) {
        if polled != Polled::Busy {
            *self = Self::default();
            return;
        }
        let since = *self.since.get_or_insert_with(Instant::now);
        if !self.told && since.elapsed() > LOCKED_IS_LONG {
            tracing::warn!("the database stays locked; nothing is known of its changes meanwhile");
            self.told = true;
        }
    }
}
