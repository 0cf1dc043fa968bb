//! Keys that verify tokens, shared by the workers. A worker keeps the set that it uses; one number,
//! the generation, shows it that there is a newer one.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hotrow_access::jwks::KeySet;
use hotrow_access::key_refresh::{KeyRefresh, RefreshConfig};
use hotrow_config::access::{TokenKeys, Tokens};
use hotrow_measure::clock::Nanos;
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::key_source::KeySource;

/// Keys of tokens in force.
#[derive(Debug)]
pub struct TokenAccess {
    keys: Mutex<KeysInForce>,
    /// Of `keys`.
    generation: AtomicU64,
    /// Last time at which the keys were found to be the issuer's.
    confirmed_at: AtomicU64,
    /// `None`: the keys are fixed.
    refreshed: Option<Refreshed>,
}

#[derive(Debug)]
struct Refreshed {
    config: RefreshConfig,
    source: KeySource,
    state: Mutex<KeyRefresh>,
    /// Reads that gave keys, and reads that did not.
    succeeded: AtomicU64,
    failed: AtomicU64,
    /// Wakes the thread that reads the keys.
    wanted: Notify,
}

/// State of keys that are read again and again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KeysView {
    /// Keys in force.
    pub(crate) keys: usize,
    /// Time since they were last confirmed; `None`: there were never any.
    pub(crate) age: Option<Duration>,
    /// Reads that gave keys.
    pub(crate) succeeded: u64,
    /// Reads that did not.
    pub(crate) failed: u64,
}

/// A set of keys. Generation 0 is the empty set before the first.
#[derive(Clone, Debug, Default)]
pub(crate) struct KeysInForce {
    pub(crate) set: Arc<KeySet>,
    pub(crate) generation: u64,
}

impl TokenAccess {
    pub(crate) fn new(tokens: &Tokens, now: Nanos) -> Self {
        let (set, refresh) = match &tokens.keys {
            TokenKeys::Secret(set) => (Some(Arc::clone(set)), None),
            TokenKeys::File { refresh, .. } | TokenKeys::Url { refresh, .. } => {
                (None, Some(*refresh))
            }
        };
        let refreshed =
            refresh.zip(KeySource::of(&tokens.keys)).map(|(config, source)| Refreshed {
                config,
                source,
                state: Mutex::new(KeyRefresh::new(config)),
                succeeded: AtomicU64::new(0),
                failed: AtomicU64::new(0),
                wanted: Notify::new(),
            });
        let access = Self {
            keys: Mutex::default(),
            generation: AtomicU64::new(0),
            confirmed_at: AtomicU64::new(0),
            refreshed,
        };
        if let Some(set) = set {
            access.replace(set, now);
        }
        access
    }

    /// Returns whether the keys come from the same file or URL, and are read as often.
    pub(super) fn has_source(&self, keys: &TokenKeys) -> bool {
        let Some(refreshed) = &self.refreshed else { return false };
        let (TokenKeys::File { refresh, .. } | TokenKeys::Url { refresh, .. }) = keys else {
            return false;
        };
        *refresh == refreshed.config && KeySource::of(keys).as_ref() == Some(&refreshed.source)
    }

    /// Makes a worker's keys the newest ones. Without a change this reads one number.
    #[inline]
    pub(crate) fn update(&self, keys: &mut KeysInForce) {
        if self.generation.load(Ordering::Acquire) != keys.generation {
            *keys = self.keys.lock().clone();
        }
    }

    /// Returns whether there are keys, and not too old ones.
    #[inline]
    pub(super) fn is_usable(&self, now: Nanos) -> bool {
        let confirmed_at = Nanos(self.confirmed_at.load(Ordering::Relaxed));
        let is_young = match &self.refreshed {
            None => true,
            Some(refreshed) => refreshed.config.allows(confirmed_at, now),
        };
        is_young && self.generation.load(Ordering::Relaxed) > 0
    }

    /// Puts new keys in force. Tokens that were verified with the old ones are verified again.
    pub(crate) fn replace(&self, set: Arc<KeySet>, now: Nanos) {
        let mut keys = self.keys.lock();
        let generation = keys.generation + 1;
        *keys = KeysInForce { set, generation };
        self.generation.store(generation, Ordering::Release);
        self.confirmed_at.store(now.0, Ordering::Relaxed);
    }

    /// Records that the keys in force are still the issuer's.
    pub(super) fn confirm(&self, now: Nanos) {
        self.confirmed_at.store(now.0, Ordering::Relaxed);
    }

    /// Records a token with an unknown key: the keys may have been replaced.
    pub(super) fn unknown_key(&self, now: Nanos) {
        if let Some(refreshed) = &self.refreshed
            && refreshed.state.lock().unknown_key(now)
        {
            refreshed.wanted.notify_one();
        }
    }

    /// Waits until the keys have to be read. Never returns where they are fixed.
    pub(crate) async fn due(&self) {
        let Some(refreshed) = &self.refreshed else { return std::future::pending().await };
        loop {
            let pause = refreshed.state.lock().pause(Nanos::now());
            if pause.is_zero() {
                return;
            }
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = refreshed.wanted.notified() => {}
            }
        }
    }

    /// Records the outcome of a read. `jitter` is random, from 0 to 1.
    pub(super) fn was_read(&self, is_good: bool, now: Nanos, jitter: f64) {
        if let Some(refreshed) = &self.refreshed {
            let mut state = refreshed.state.lock();
            let total = if is_good {
                state.succeeded(now);
                &refreshed.succeeded
            } else {
                state.failed(now, jitter);
                &refreshed.failed
            };
            total.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns the state of the keys; `None`: they are fixed.
    pub(crate) fn view(&self, now: Nanos) -> Option<KeysView> {
        let refreshed = self.refreshed.as_ref()?;
        let keys = self.keys.lock();
        let confirmed_at = Nanos(self.confirmed_at.load(Ordering::Relaxed));
        Some(KeysView {
            keys: keys.set.len(),
            age: (keys.generation > 0).then(|| now.since(confirmed_at)),
            succeeded: refreshed.succeeded.load(Ordering::Relaxed),
            failed: refreshed.failed.load(Ordering::Relaxed),
        })
    }
}
