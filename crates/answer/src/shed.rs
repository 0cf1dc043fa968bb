//! Load shedding: refusals at the least possible cost.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use bytes::Bytes;
use hotrow_admission::shed::{Kind, Level, Load, Priority, Source, sheds};
use hotrow_measure::counter::Counter;
use http::header::{CONNECTION, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderValue, Response, StatusCode};

use crate::body::Body;

/// Load of the process, and of one database, as requests for its records see it.
#[derive(Debug, Default)]
pub struct LoadShedder {
    load: LoadByte,
    levels: [AtomicU8; Source::ALL.len()],
    changes: AtomicU64,
    /// Least wait for the database since it was last taken, in nanoseconds.
    wait_ns: WaitNs,
}

/// On a cache line of its own: read by every request and written when the load changes, so that the
/// line stays in every core's cache and reading it costs an ordinary load.
#[derive(Debug, Default)]
#[repr(align(128))]
struct LoadByte(AtomicU8);

/// On a cache line of its own: written by every read.
#[derive(Debug)]
#[repr(align(128))]
struct WaitNs(AtomicU64);

impl Default for WaitNs {
    fn default() -> Self {
        Self(AtomicU64::new(u64::MAX))
    }
}

/// Permission of the client to keep its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionDisposition {
    /// Yes.
    KeepAlive,
    /// No: descriptors are scarce.
    Close,
}

impl LoadShedder {
    /// Returns the load; `None` at the normal level, the usual case.
    #[inline]
    pub fn load(&self) -> Option<Load> {
        match self.load.0.load(Ordering::Relaxed) {
            0 => None,
            byte => Some(Load::unpack(byte)),
        }
    }

    /// Returns the disposition of a refused request, and counts it; `None` when it is admitted.
    #[cold]
    pub fn refuses(
        &self,
        load: Load,
        kind: Kind,
        priority: Priority,
        counts: &ShedCounts,
    ) -> Option<ConnectionDisposition> {
        if !sheds(load, kind, priority) {
            return None;
        }
        counts.count(load.level(), kind, priority);
        let files = self.levels()[Source::OpenFiles as usize];
        Some(if files > Level::Normal {
            ConnectionDisposition::Close
        } else {
            ConnectionDisposition::KeepAlive
        })
    }

    /// Records the wait of a cold key for its query.
    pub fn waited(&self, wait: std::time::Duration) {
        self.wait_ns
            .0
            .fetch_min(u64::try_from(wait.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// Returns the least such wait since the last call; `None` when there was none.
    pub fn take_wait(&self) -> Option<std::time::Duration> {
        let wait = self.wait_ns.0.swap(u64::MAX, Ordering::Relaxed);
        (wait < u64::MAX).then(|| std::time::Duration::from_nanos(wait))
    }

    /// Returns the level of each source, in the order of [`Source::ALL`].
    pub fn levels(&self) -> [Level; Source::ALL.len()] {
        // They were valid levels when they were stored.
        self.levels.each_ref().map(|level| Load::unpack(level.load(Ordering::Relaxed)).delay)
    }

    /// Returns the worst of these levels.
    pub fn level(&self) -> Level {
        self.levels().into_iter().max().unwrap_or_default()
    }

    /// Returns how often the level of the process changed.
    pub fn changes_total(&self) -> u64 {
        self.changes.load(Ordering::Relaxed)
    }

    /// Sets the load.
    pub fn set(&self, load: Load, levels: [Level; Source::ALL.len()]) {
        self.levels
            .iter()
            .zip(levels)
            .for_each(|(at, level)| at.store(level as u8, Ordering::Relaxed));
        let before = self.load.0.load(Ordering::Relaxed);
        if before != load.pack() {
            self.load.0.store(load.pack(), Ordering::Relaxed);
            self.changes.fetch_add(
                u64::from(Load::unpack(before).level() != load.level()),
                Ordering::Relaxed,
            );
        }
    }
}

/// Refusals of one worker: by level (elevated, critical), kind and priority. Only its thread
/// writes.
#[derive(Debug, Default)]
pub struct ShedCounts([[[Counter; Priority::ALL.len()]; Kind::ALL.len()]; 2]);

impl ShedCounts {
    fn count(&self, level: Level, kind: Kind, priority: Priority) {
        self.0[usize::from(level == Level::Critical)][kind as usize][priority as usize].increment();
    }

    /// Returns the refusals at this level (not normal), of this kind and priority.
    pub fn get(&self, level: Level, kind: Kind, priority: Priority) -> u64 {
        self.0[usize::from(level == Level::Critical)][kind as usize][priority as usize].get()
    }
}

/// Detail shown to the client.
pub(crate) const DETAIL: &str =
    "the service is overloaded and refuses low-priority and costly requests first; see Retry-After";

/// The whole document, built once.
const DOCUMENT: &[u8] =
    b"{\"type\":\"/docs/reference/errors.md#overloaded\",\"title\":\"Overloaded\",\"status\":503,\
    \"detail\":\"the service is overloaded and refuses low-priority and costly requests first; \
    see Retry-After\"}";

/// Returns the answer. Only the header map is allocated.
pub(crate) fn response(disposition: ConnectionDisposition) -> Response<Body> {
    let mut response = Response::new(Body::Bytes(Bytes::from_static(DOCUMENT)));
    *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
    headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
    if disposition == ConnectionDisposition::Close {
        headers.insert(CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::error_type::ErrorType;

    #[test]
    fn the_prebuilt_answer_equals_a_built_one() {
        let document: serde_json::Value = serde_json::from_slice(DOCUMENT).unwrap();
        assert_eq!(document["detail"], DETAIL);
        assert_eq!(document["type"], ErrorType::Overloaded.link());
        assert_eq!(document["status"], 503);
        let close = |disposition| response(disposition).headers().contains_key(CONNECTION);
        assert_eq!(
            (close(ConnectionDisposition::KeepAlive), close(ConnectionDisposition::Close)),
            (false, true)
        );
    }

    #[test]
    fn the_load_is_normal_until_set_and_changes_are_counted_once() {
        let shedding = LoadShedder::default();
        assert_eq!(shedding.load(), None);
        let load = Load { delay: Level::Normal, room: Level::Critical };
        let levels = [Level::Normal, Level::Normal, Level::Normal, Level::Critical];
        (0..3).for_each(|_| shedding.set(load, levels));
        assert_eq!(
            (shedding.load(), shedding.levels(), shedding.changes_total()),
            (Some(load), levels, 1)
        );
        let counts = ShedCounts::default();
        assert_eq!(shedding.refuses(load, Kind::Hit, Priority::Normal, &counts), None);
        assert_eq!(
            shedding.refuses(load, Kind::Miss, Priority::Normal, &counts),
            Some(ConnectionDisposition::Close)
        );
        assert_eq!(counts.get(Level::Critical, Kind::Miss, Priority::Normal), 1);
        assert_eq!(counts.get(Level::Critical, Kind::Hit, Priority::Normal), 0);
        shedding.set(Load::default(), Default::default());
        assert_eq!((shedding.load(), shedding.changes_total()), (None, 2));
    }

    #[test]
    fn the_least_wait_is_taken_once() {
        let shedding = LoadShedder::default();
        assert_eq!(shedding.take_wait(), None);
        [30, 10, 20].into_iter().for_each(|ms| shedding.waited(Duration::from_millis(ms)));
        assert_eq!(
            (shedding.take_wait(), shedding.take_wait()),
            (Some(Duration::from_millis(10)), None)
        );
    }
}
