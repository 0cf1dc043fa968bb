//! History for operators: one sample a second, ten minutes of them, and the most requested keys.
//!
//! A background thread reads the counters that the workers keep anyway; the only part on the path
//! of requests is the sampling of keys ([`hot_keys`]). Memory is fixed: samples 0.4 MiB, series of
//! collections up to 0.3 MiB, sketches and rings of keys up to 2.2 MiB (tested in
//! `history/tests.rs`).
//!
//! A process that was stopped or suspended leaves a gap: the next sample covers all of that time,
//! and its rates use the real interval.

pub mod hot_keys;
mod json;
pub mod recorder;
pub mod series;

use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use hotrow_measure::clock::Nanos;
use hotrow_measure::top_keys::TopKeys;
use hotrow_supervisor::shutdown::Shutdown;
use hotrow_supervisor::{self as supervisor, Supervisor};
use hotrow_types::key::CollectionId;
use parking_lot::Mutex;

use self::hot_keys::{HotKeys, KeyRing};
pub use self::json::Frame;
use self::recorder::{Reading, Recorder};

/// Time between two samples.
pub const PERIOD: Duration = Duration::from_secs(1);

/// Samples and hot keys of the process.
#[derive(Debug)]
pub struct History {
    recorder: Mutex<Recorder>,
    /// `None`: switched off.
    hot_keys: Option<Mutex<HotKeysSince>>,
}

#[derive(Debug)]
struct HotKeysSince {
    hot_keys: HotKeys,
    collected_at: Nanos,
}

impl History {
    /// Creates an empty history at `now`. `rings`: those of all workers; `None`: keys are not
    /// sampled.
    pub fn new(rings: Option<Vec<Arc<KeyRing>>>, now: Nanos) -> Self {
        let since = |rings| HotKeysSince { hot_keys: HotKeys::new(rings), collected_at: now };
        Self {
            recorder: Mutex::new(Recorder::new()),
            hot_keys: rings.map(|rings| Mutex::new(since(rings))),
        }
    }

    /// Returns the bytes of samples, sketches and rings of keys, without the allocator's own.
    #[cfg(test)]
    pub(crate) fn memory_bytes(&self) -> usize {
        let hot_keys = self.hot_keys.as_ref().map(|keys| keys.lock().hot_keys.memory_bytes());
        self.recorder.lock().memory_bytes() + hot_keys.unwrap_or(0)
    }

    /// Takes a sample at `now`.
    pub(crate) fn take(&self, now: Nanos, reading: Reading) {
        self.recorder.lock().add(now, reading);
        if let Some(hot_keys) = &self.hot_keys {
            let mut since = hot_keys.lock();
            let seconds = now.since(since.collected_at).as_secs_f64();
            since.collected_at = now;
            since.hot_keys.collect(seconds);
        }
    }

    /// Returns the JSON of the samples from number `since` on.
    pub fn json(&self, since: u64, frame: Frame) -> String {
        json::history(&self.recorder.lock(), since, frame)
    }

    /// Calls `show` with the sketches of hot keys, the seconds for which their counts stand and the
    /// number of samples whose key was too long; `None` if they are switched off.
    pub fn hot_keys<T>(
        &self,
        show: impl FnOnce(&[(CollectionId, TopKeys)], f64, u64) -> T,
    ) -> Option<T> {
        let since = self.hot_keys.as_ref()?.lock();
        let (sketches, seconds) = since.hot_keys.view();
        Some(show(sketches, seconds, since.hot_keys.too_long_total()))
    }
}

/// Starts the thread that takes samples until everything must end.
pub fn start(
    history: Arc<History>,
    mut read: impl FnMut(Nanos) -> Reading + Send + 'static,
    shutdown: &Shutdown,
    supervisor: &Supervisor,
) -> io::Result<JoinHandle<Option<()>>> {
    supervisor.spawn_until_end("history", shutdown, move |shutdown| {
        loop {
            supervisor::turn();
            let now = Nanos::now();
            history.take(now, read(now));
            if !shutdown.pause(PERIOD) {
                return Ok(());
            }
        }
    })
}

#[cfg(test)]
pub(crate) mod tests;
