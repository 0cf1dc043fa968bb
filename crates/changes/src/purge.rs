//! Purges of caches in front of the service: CDNs, Varnish, nginx, receivers of webhooks.
//!
//! Reading order: here (what the parts share), `changes` (from the log of followed changes to the
//! queues), `target` (the task that sends what waits for one target), `request` (its form),
//! `counts`, `view`.
//!
//! A purge must not leave before the change is visible: the cache in front would fetch the old row,
//! and nothing would purge it again. So purges come from the same log as the events of followers
//! ([`hotrow_push`]), which waits for the proof. Each target has its own queue and task, so that
//! one that is down delays neither the others nor the feed.

mod changes;
mod counts;
mod request;
mod target;
mod view;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use hotrow_answer::collections::Collections;
use hotrow_measure::clock::Nanos;
use hotrow_push::{Added, Purge, PurgeLimits, PurgeQueue};
use hotrow_supervisor::shutdown::Shutdown;
use hotrow_supervisor::{Supervisor, keep_task};
use hotrow_telemetry::throttle::Throttle;
use hotrow_types::key::CollectionId;
use hotrow_types::version::Position;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::task::JoinSet;

use self::counts::TargetCounts;
pub use self::request::{SecretError, check_secrets};
use crate::follow::Follows;
use hotrow_config::purge::{Purge as Settings, Target as TargetSettings};

/// Reason for which everything of a collection is purged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cause {
    /// The process has started: what changed before is unknown.
    Start,
    /// Changes may have been missed.
    Loss,
    /// They are followed again.
    Resumed,
    /// Any record of the collection may have changed.
    Flush,
    /// More changes came than the window keeps.
    Overrun,
    /// Too much waited for a target.
    Overflow,
    /// An operator asked for it.
    Request,
}

impl Cause {
    const ALL: [Self; 7] = [
        Self::Start,
        Self::Loss,
        Self::Resumed,
        Self::Flush,
        Self::Overrun,
        Self::Overflow,
        Self::Request,
    ];

    /// Returns its name in metrics and in the log.
    fn label(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Loss => "loss",
            Self::Resumed => "resumed",
            Self::Flush => "flush",
            Self::Overrun => "overrun",
            Self::Overflow => "overflow",
            Self::Request => "request",
        }
    }
}

/// Purges of the process.
#[derive(Debug)]
pub struct Purger {
    collections: Arc<Collections>,
    /// Collections that are purged.
    purged: Box<[CollectionId]>,
    targets: Box<[Target]>,
    /// Purges of whole collections, by [`Cause`].
    causes: [AtomicU64; Cause::ALL.len()],
}

/// A target and what waits for it.
#[derive(Debug)]
struct Target {
    settings: TargetSettings,
    queue: Mutex<PurgeQueue>,
    /// Notified when something was added.
    added: Notify,
    counts: TargetCounts,
    failure_log: Throttle,
    /// Reason for which the last attempt failed; none if it did not.
    last_error: Mutex<Option<String>>,
}

/// Returns the time by which queues are ordered.
fn clock() -> Duration {
    Duration::from_nanos(Nanos::now().0)
}

impl Purger {
    /// Creates the purges that are configured; `None`: none are.
    pub fn new(settings: &Settings, collections: &Arc<Collections>) -> Option<Arc<Self>> {
        if settings.purged().is_empty() {
            return None;
        }
        let limits = PurgeLimits {
            repeat_after: settings.repeat_after,
            records: settings.queue_records,
            bytes: settings.queue_bytes,
        };
        let target = |settings: &TargetSettings| Target {
            settings: settings.clone(),
            queue: Mutex::new(PurgeQueue::new(limits)),
            added: Notify::new(),
            counts: TargetCounts::default(),
            failure_log: Throttle::new(),
            last_error: Mutex::default(),
        };
        Some(Arc::new(Self {
            collections: Arc::clone(collections),
            purged: settings.purged().into(),
            targets: settings.targets.iter().map(target).collect(),
            causes: Default::default(),
        }))
    }

    /// Queues the purge of what an operator has dropped from memory.
    pub fn purge_by_request(&self, purge: &Purge) {
        if !self.purged.contains(&purge.collection()) {
            return;
        }
        match purge {
            Purge::Record(_) => self.add(purge, None),
            Purge::Collection(collection) => self.add_all(*collection, Cause::Request, None),
        }
    }

    /// Queues the purge of everything of a collection.
    fn add_all(&self, collection: CollectionId, cause: Cause, position: Option<Position>) {
        self.note_all(collection, cause);
        self.add(&Purge::Collection(collection), position);
    }

    fn note_all(&self, collection: CollectionId, cause: Cause) {
        self.causes[cause as usize].fetch_add(1, Ordering::Relaxed);
        let (collection, cause) = (&*self.collections.get(collection).name, cause.label());
        tracing::info!(collection, cause, "everything of the collection is purged in front");
    }

    fn add(&self, purge: &Purge, position: Option<Position>) {
        let now = clock();
        for target in &self.targets {
            let added = target.queue.lock().add(purge.clone(), position, now);
            target.added.notify_one();
            if let Added::Collapsed(collection) = added {
                self.note_all(collection, Cause::Overflow);
            }
        }
    }
}

/// Starts the thread that reads changes and sends purges, if there are any.
pub fn start(
    (purger, follows): (Option<&Arc<Purger>>, Option<&Arc<Follows>>),
    shutdown: &Shutdown,
    supervisor: &Supervisor,
) -> io::Result<Option<JoinHandle<Option<()>>>> {
    let (Some(purger), Some(follows)) = (purger, follows) else { return Ok(None) };
    let (purger, follows) = (Arc::clone(purger), Arc::clone(follows));
    let (ending, shutdown) = (shutdown.clone(), shutdown.clone());
    let thread = supervisor.spawn(
        "purges",
        move || ending.is_ending(),
        || {},
        move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(async {
                let mut senders = JoinSet::new();
                for index in 0..purger.targets.len() {
                    let (purger, shutdown) = (Arc::clone(&purger), shutdown.clone());
                    senders.spawn(keep_task(move || {
                        target::send_all(Arc::clone(&purger), index, shutdown.clone())
                    }));
                }
                tokio::select! {
                    () = shutdown.ending() => {}
                    () = changes::read_all(&purger, &follows) => {}
                }
                // They end by themselves, within a bounded time.
                while senders.join_next().await.is_some() {}
            });
            // A resolution of a name that hangs must not delay the end.
            runtime.shutdown_background();
            Ok(())
        },
    )?;
    Ok(Some(thread))
}
