//! Which database the sessions of this process lead to, for a feed that does not come from them.
//!
//! A server that follows the change hub reads rows itself. A row and the changes of the hub belong
//! together only if both come from one run of one database.

use std::sync::atomic::{AtomicU64, Ordering};

use hotrow_measure::clock::Nanos;
use parking_lot::Mutex;
use tokio::sync::watch;

/// A run of a database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// Its identity; the same text in every process.
    pub name: String,
    /// Incarnation of the positions that readers of this process report.
    pub incarnation: u64,
}

/// Place where the session that watches the catalogue reports the database, and where the feed
/// reports which one it needs.
#[derive(Debug)]
pub struct Origins {
    current: Mutex<Option<Origin>>,
    expected: watch::Sender<Option<String>>,
    shapes_confirmed_at: AtomicU64,
}

impl Default for Origins {
    fn default() -> Self {
        let expected = watch::Sender::new(None);
        Self { current: Mutex::new(None), expected, shapes_confirmed_at: AtomicU64::new(0) }
    }
}

impl Origins {
    /// Records the database that a session leads to.
    pub fn found(&self, origin: Origin) {
        *self.current.lock() = Some(origin);
    }

    /// Records that the session has ended.
    pub fn gone(&self) {
        *self.current.lock() = None;
    }

    /// Returns the database that the session leads to; `None` while there is none.
    pub fn current(&self) -> Option<Origin> {
        self.current.lock().clone()
    }

    /// Requires the database of the feed.
    pub fn expect(&self, name: &str) {
        self.expected.send_if_modified(|expected| {
            let is_new = expected.as_deref() != Some(name);
            if is_new {
                *expected = Some(name.to_owned());
            }
            is_new
        });
    }

    /// Returns why a database must not be read: the feed is of another.
    pub fn refusal(&self, name: &str) -> Option<String> {
        let expected = self.expected.borrow();
        let expected = expected.as_deref().filter(|expected| *expected != name)?;
        Some(format!("the change hub follows {expected}, and `url` leads to {name}"))
    }

    /// Waits until the feed requires another database than this one; returns why.
    pub async fn refused(&self, name: &str) -> String {
        let mut expected = self.expected.subscribe();
        loop {
            if let Some(why) = self.refusal(name) {
                return why;
            }
            // The sender lives as long as `self`.
            if expected.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// Records a look at the catalogue that was sent at this time and confirmed all shapes.
    pub fn confirm_shapes(&self, look_sent_at: Nanos) {
        self.shapes_confirmed_at.fetch_max(look_sent_at.0, Ordering::AcqRel);
    }

    /// Returns the time of the newest such look.
    pub fn shapes_confirmed_at(&self) -> Nanos {
        Nanos(self.shapes_confirmed_at.load(Ordering::Acquire))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn another_database_than_the_feeds_is_refused() {
        let origins = Origins::default();
        assert_eq!(origins.refusal("a"), None, "nothing is required yet");
        origins.expect("a");
        assert_eq!(origins.refusal("a"), None);
        let refused = origins.refused("a");
        origins.expect("b");
        let why = refused.await;
        assert!(why.contains("follows b") && why.contains("leads to a"), "{why}");
        assert_eq!(origins.refused("a").await, why);
    }
}
