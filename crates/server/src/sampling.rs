//! The server checks itself: of the answers that memory gives it takes a few each second, reads the same key from the database
//! by a read of its own, and looks again when the contract's bound has passed.
//!
//! The rule is certain. The entry was there before the read was sent, so a row that differs is newer: a change came between, and
//! was visible when the read ended. `max_staleness` later that entry must not be served any more. If the very same one still
//! would be, the service has broken its promise: it is counted and logged, and the entry is dropped.

use std::hash::BuildHasher;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use hotrow_admit::breaker::State;
use hotrow_cache::key::Key;
use hotrow_cache::{Presence, Quality, Record};
use hotrow_measure::clock::Nanos;
use hotrow_source::Row;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::timeout;

use crate::admit::breaker;
use crate::shared::Shared;

/// Waited for beyond `max_staleness`: changes of a table's shape are found by polling, by default each second.
const GRACE: Duration = Duration::from_secs(2);

/// Where workers leave an answer when one is wanted.
#[derive(Debug, Default)]
pub(crate) struct Sampling {
    /// Read by every hit, written a few times a second: else the line stays in every core's cache.
    wanted: AtomicBool,
    sample: Mutex<Option<(Key, Record)>>,
    bell: Notify,
    ended: AtomicBool,
    checked: AtomicU64,
    inconsistent: AtomicU64,
}

/// What a check came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Finding {
    /// The entry was right, or went when it had to.
    Consistent,
    /// It is still served although the database has said something else for longer than the bound.
    Inconsistent,
    /// The database did not say.
    Unknown,
}

impl Sampling {
    /// Memory is about to answer with this record, which is fresh.
    #[inline]
    pub(crate) fn offer(&self, key: &Key, record: &Record) {
        if self.wanted.load(Ordering::Relaxed) {
            self.take(key, record);
        }
    }

    #[cold]
    fn take(&self, key: &Key, record: &Record) {
        // The first worker that comes.
        if self.wanted.swap(false, Ordering::AcqRel) {
            *self.sample.lock() = Some((key.clone(), record.clone()));
            self.bell.notify_one();
        }
    }

    /// Ends the thread.
    pub(crate) fn end(&self) {
        self.ended.store(true, Ordering::Release);
        self.bell.notify_one();
    }

    /// Answers that were checked.
    pub(crate) fn checked_total(&self) -> u64 {
        self.checked.load(Ordering::Relaxed)
    }

    /// Those that were found inconsistent.
    pub(crate) fn inconsistent_total(&self) -> u64 {
        self.inconsistent.load(Ordering::Relaxed)
    }

    /// Waits so long. `false`: the thread shall end.
    async fn pause(&self, time: Duration) -> bool {
        let until = Nanos::now().after(time);
        loop {
            let left = until.since(Nanos::now());
            if self.ended.load(Ordering::Acquire) {
                return false;
            }
            if left.is_zero() {
                return true;
            }
            // A ring that nobody waited for is heard here once.
            _ = timeout(left, self.bell.notified()).await;
        }
    }

    /// The next answer that memory gives; none when the thread shall end.
    async fn next(&self) -> Option<(Key, Record)> {
        self.wanted.store(true, Ordering::Release);
        loop {
            self.bell.notified().await;
            if self.ended.load(Ordering::Acquire) {
                return None;
            }
            if let Some(sample) = self.sample.lock().take() {
                return Some(sample);
            }
        }
    }
}

/// Starts the thread that checks up to so many answers a second, one at a time, until [`Sampling::end`].
pub(crate) fn start(shared: Arc<Shared>, per_s: u32) -> std::io::Result<JoinHandle<()>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let every = Duration::from_secs(1) / per_s.max(1);
    std::thread::Builder::new().name("check".to_owned()).spawn(move || runtime.block_on(serve(&shared, every)))
}

async fn serve(shared: &Shared, every: Duration) {
    let sampling = &shared.sampling;
    while sampling.pause(every).await {
        let Some((key, record)) = sampling.next().await else { return };
        match check(shared, &key, &record).await {
            Finding::Consistent => _ = sampling.checked.fetch_add(1, Ordering::Relaxed),
            Finding::Inconsistent => {
                sampling.checked.fetch_add(1, Ordering::Relaxed);
                sampling.inconsistent.fetch_add(1, Ordering::Relaxed);
            }
            Finding::Unknown => {}
        }
    }
}

/// Whether a read may be spent on checking: not the place of a probe, and nothing while requests are refused.
fn may_read(shared: &Shared, now: Nanos) -> bool {
    shared.breaker.state(now) == State::Closed && shared.shedding.load().is_none()
}

async fn check(shared: &Shared, key: &Key, record: &Record) -> Finding {
    let began = Nanos::now();
    if !may_read(shared, began) {
        return Finding::Unknown;
    }
    // Counts among `reads_in_flight`, in its turn.
    let pass = shared.gate.enter().await;
    let now = Nanos::now();
    if !may_read(shared, now) {
        return Finding::Unknown;
    }
    let Ok(permit) = breaker::ask(shared, now) else { return Finding::Unknown };
    let query = pass.send(key.collection(), 1, now.since(began), now);
    let read = shared.source.read(key.collection(), vec![key.clone()]).await;
    permit.tell(&read, Nanos::now());
    // The limit learns from the reads of requests alone.
    drop(query);
    // Without an answer nothing follows, and why is logged where requests have the same trouble.
    let row = read.ok().and_then(|set| set.rows.into_iter().next());
    let said = match row {
        Some(Row::Found(body)) => Some(body),
        Some(Row::Missing) => None,
        Some(Row::Passing(_) | Row::Unreadable(_)) | None => return Finding::Unknown,
    };
    let served = (record.presence() == Presence::Found).then(|| record.body());
    if served == said.as_deref() {
        return Finding::Consistent;
    }
    // What differs was visible by now.
    if !shared.sampling.pause(shared.cache.config().max_staleness + GRACE).await {
        return Finding::Unknown;
    }
    let still = shared.cache.peek(key, Nanos::now());
    // The same bytes at the same place: the record is held here, so nothing else can be there.
    let is_same =
        |(now, quality): (Record, Quality)| quality == Quality::Fresh && std::ptr::eq(now.body(), record.body());
    if !still.is_some_and(is_same) {
        return Finding::Consistent;
    }
    shared.cache.purge(key);
    report(shared, key, served, said.as_deref());
    Finding::Inconsistent
}

/// Tells the log which key, and the hashes of both sides; never what they say.
fn report(shared: &Shared, key: &Key, served: Option<&[u8]>, said: Option<&[u8]>) {
    crate::throttle::INCONSISTENT.warn(|suppressed| {
        let hash = foldhash::fast::FixedState::default();
        let hash = |body: Option<&[u8]>| body.map_or("none".to_owned(), |body| format!("{:016x}", hash.hash_one(body)));
        tracing::error!(
            collection = shared.collection(key.collection()).name,
            key = ?key,
            served = hash(served),
            database = hash(said),
            suppressed,
            "an answer was inconsistent: the database had said something else for longer than max_staleness; the entry is \
             dropped. Please report this, with the log of before"
        );
    });
}

#[cfg(test)]
mod tests {
    use hotrow_admit::breaker::Config;
    use hotrow_admit::shed::{Level, Load};
    use hotrow_source::ReadError;

    use super::*;
    use crate::fuzzing::new_shared;

    #[test]
    fn a_check_takes_no_probes_place_and_none_while_requests_are_refused() {
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
        let start = Nanos(1_000_000_000);
        assert!(may_read(&shared, start));
        shared.shedding.set(Load { delay: Level::Busy, room: Level::Calm }, Default::default());
        assert!(!may_read(&shared, start));
        shared.shedding.set(Load::default(), Default::default());
        let failed: Result<(), _> = Err(ReadError::Timeout { detail: String::new() });
        breaker::ask(&shared, start).expect("closed").tell(&failed, start);
        assert!(!may_read(&shared, start), "open");
        assert!(!may_read(&shared, start.after(second)), "half open: probes are reads of requests");
    }
}
