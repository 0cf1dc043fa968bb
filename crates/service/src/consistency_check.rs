//! Online consistency check: a few times a second, an answer from memory is compared with a
//! separate database read of the same key, and examined again when the contract's bound has passed.
//!
//! The rule is certain. The entry existed before the read was sent, so a row that differs is newer:
//! a change intervened, and was visible when the read ended. After another `max_staleness` that
//! entry must not be served. If the very same one still would be, the service has broken its
//! promise: it is counted and logged, and the entry is dropped.

use std::convert::Infallible;
use std::hash::BuildHasher;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use hotrow_cache::{Freshness, Presence, Record};
use hotrow_gate::read::Fetcher;
use hotrow_measure::clock::Nanos;
use hotrow_source::Row;
use hotrow_supervisor::shutdown::Shutdown;
use hotrow_supervisor::{self as supervisor, Supervisor};
use hotrow_types::key::Key;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::sleep;

use hotrow_changes::tracking::Tracking;

/// Waited in addition to `max_staleness`: changes of a table's shape are found by polling, by
/// default once a second.
const GRACE: Duration = Duration::from_secs(2);

/// Hand-over of an answer from the workers when one is wanted.
#[derive(Debug, Default)]
pub struct ConsistencyCheck {
    /// Read by every hit, written a few times a second: otherwise the line stays in every core's
    /// cache.
    wanted: AtomicBool,
    sample: Mutex<Option<(Key, Record)>>,
    bell: Notify,
    checked: AtomicU64,
    inconsistent: AtomicU64,
}

/// Result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CheckResult {
    /// The entry was right, or was removed in time.
    Consistent,
    /// It is still served although the database has differed for longer than the bound.
    Inconsistent,
    /// The database did not answer.
    Unknown,
}

impl ConsistencyCheck {
    /// Offers a fresh record that is about to be answered from memory.
    #[inline]
    pub(crate) fn offer(&self, key: &Key, record: &Record) {
        if self.wanted.load(Ordering::Relaxed) {
            self.take(key, record);
        }
    }

    #[cold]
    fn take(&self, key: &Key, record: &Record) {
        // The first worker wins.
        if self.wanted.swap(false, Ordering::AcqRel) {
            *self.sample.lock() = Some((key.clone(), record.clone()));
            self.bell.notify_one();
        }
    }

    /// Returns the number of checked answers.
    pub fn checked_total(&self) -> u64 {
        self.checked.load(Ordering::Relaxed)
    }

    /// Returns the number of inconsistent answers.
    pub fn inconsistent_total(&self) -> u64 {
        self.inconsistent.load(Ordering::Relaxed)
    }

    /// Returns the next answer from memory.
    async fn next(&self) -> (Key, Record) {
        self.wanted.store(true, Ordering::Release);
        loop {
            self.bell.notified().await;
            if let Some(sample) = self.sample.lock().take() {
                return sample;
            }
        }
    }
}

/// The checking thread's parts.
pub struct Checker {
    /// Delivers the answers to check, and counts the results.
    pub handover: Arc<ConsistencyCheck>,
    /// Reads the database.
    pub fetcher: Arc<Fetcher>,
    /// Clients that keep copies.
    pub tracking: Option<Arc<Tracking>>,
}

/// Starts the thread that checks up to `per_s` answers a second, one at a time, until
/// everything must end.
pub fn start(
    checker: Checker,
    per_s: u32,
    shutdown: &Shutdown,
    supervisor: &Supervisor,
) -> io::Result<JoinHandle<Option<()>>> {
    let every = Duration::from_secs(1) / per_s.max(1);
    let ending = shutdown.clone();
    let shutdown = shutdown.clone();
    let is_stopping = move || ending.is_ending();
    supervisor.spawn(
        "check",
        is_stopping,
        || (),
        move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(async {
                tokio::select! {
                    () = shutdown.ending() => {}
                    never = checker.serve(every) => match never {},
                }
            });
            Ok(())
        },
    )
}

impl Checker {
    async fn serve(&self, every: Duration) -> Infallible {
        let consistency_check = &self.handover;
        loop {
            sleep(every).await;
            supervisor::turn();
            let (key, record) = consistency_check.next().await;
            match self.check(&key, &record).await {
                CheckResult::Consistent => {
                    _ = consistency_check.checked.fetch_add(1, Ordering::Relaxed)
                }
                CheckResult::Inconsistent => {
                    consistency_check.checked.fetch_add(1, Ordering::Relaxed);
                    consistency_check.inconsistent.fetch_add(1, Ordering::Relaxed);
                }
                CheckResult::Unknown => {}
            }
        }
    }

    async fn check(&self, key: &Key, record: &Record) -> CheckResult {
        let began = Nanos::now();
        let reads = self.fetcher.of(key.collection());
        let is_followed = self.fetcher.cache.get().is_followed(reads.id);
        if !is_followed || !reads.may_read_in_background(began) {
            return CheckResult::Unknown;
        }
        // Counts among `reads_in_flight`, and waits in the same order.
        let limiter_permit = reads.limiter.enter().await;
        let now = Nanos::now();
        if !reads.may_read_in_background(now) {
            return CheckResult::Unknown;
        }
        let Ok(breaker_permit) = reads.breaker.ask(now) else { return CheckResult::Unknown };
        let query = limiter_permit.send(key.collection(), 1, now.since(began), now);
        // Its row counts against the budget of all queries.
        let rows = self.fetcher.budgets.query(|| true);
        let keys = vec![key.clone()];
        let read = reads.source.read_within(key.collection(), keys, rows.clone()).await;
        reads.breaker.note_failed_key(Some(key.clone()), &read);
        breaker_permit.record(&read, Nanos::now());
        // The limiter learns from requests only.
        drop(query);
        // Without an answer the check ends; requests with the same error log the cause.
        let row = read.ok().and_then(|set| set.rows.into_iter().next());
        let from_database = match row {
            Some(Row::Found(body)) => Some(body),
            Some(Row::Missing) => None,
            Some(Row::Uncacheable(_) | Row::NotRead | Row::NoRoom | Row::Unreadable(_)) | None => {
                return CheckResult::Unknown;
            }
        };
        let served = (record.presence() == Presence::Found).then(|| record.body());
        if self.fetcher.cache.get().equals_row(record, from_database.as_deref()) {
            return CheckResult::Consistent;
        }
        // A row that differs was visible by now.
        sleep(self.fetcher.cache.get().config().max_staleness + GRACE).await;
        let current = self.fetcher.cache.get().peek(key, Nanos::now());
        // The same read; its record may have got a variant since.
        let is_same = |(now, quality): (Record, Freshness)| {
            let is_same_read = now.read_at() == record.read_at() && now.body() == record.body();
            quality == Freshness::Fresh && is_same_read
        };
        if !current.is_some_and(is_same) {
            return CheckResult::Consistent;
        }
        let cache = self.fetcher.cache.get();
        cache.purge(key);
        let source = cache.source_of(key.collection());
        self.tracking.iter().for_each(|tracking| tracking.purged(source, key));
        cache.release_standbys_after(key.collection(), Nanos::now());
        self.report(key, served, from_database.as_deref());
        CheckResult::Inconsistent
    }

    /// Logs the key and the hashes of both sides, never their content.
    fn report(&self, key: &Key, served: Option<&[u8]>, from_database: Option<&[u8]>) {
        hotrow_telemetry::throttle::INCONSISTENT.warn(|suppressed| {
            let hash = foldhash::fast::FixedState::default();
            let hash = |body: Option<&[u8]>| match body {
                Some(body) => format!("{:016x}", hash.hash_one(body)),
                None => "none".to_owned(),
            };
            tracing::error!(
                collection = self.fetcher.collections.get(key.collection()).name,
                key = ?key,
                served = hash(served),
                database = hash(from_database),
                suppressed,
                unseen = self.fetcher.of(key.collection()).source.unseen_changes(),
                "an answer was inconsistent: the database had differed for longer than \
                 max_staleness; the entry is dropped. If a change was made of a kind that this \
                 engine's feed does not show (`unseen`), this is the documented consequence; \
                 otherwise please report it, with the preceding log"
            );
        });
    }
}

#[cfg(test)]
mod tests {
    use hotrow_admission::breaker::Config;
    use hotrow_admission::shed::{Level, Load};
    use hotrow_source::SourceError;

    use super::*;
    use crate::fuzzing::new_shared;

    #[test]
    fn checks_take_no_probe_and_pause_under_load() {
        let second = Duration::from_secs(1);
        let shared = new_shared(Some(Config {
            failures: 1,
            window: second,
            failure_rate: 1.0,
            calls_min: 100,
            open_for: second,
            open_for_max: second,
            probes: 1,
        }));
        let checker =
            Checker { handover: shared.consistency_check, fetcher: shared.fetcher, tracking: None };
        let reads = &checker.fetcher.sources[0];
        let may_read = |now| reads.may_read_in_background(now);
        let start = Nanos(1_000_000_000);
        assert!(may_read(start));
        reads
            .load_shedder
            .set(Load { delay: Level::Elevated, room: Level::Normal }, Default::default());
        assert!(!may_read(start));
        reads.load_shedder.set(Load::default(), Default::default());
        let failed: Result<(), _> = Err(SourceError::Timeout { detail: String::new() });
        reads.breaker.ask(start).expect("closed").record(&failed, start);
        assert!(!may_read(start), "open");
        assert!(!may_read(start.after(second)), "half open: probes are reads of requests");
    }
}
