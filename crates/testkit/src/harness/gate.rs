//! Reads that end when a test opens a gate, in builds with the feature `failpoints`.

use std::fs::File;
use std::time::Duration;

use tempfile::NamedTempFile;

/// Gate that blocks every read of one record until it is opened. Closed at first.
pub struct Gate {
    file: NamedTempFile,
    lock: File,
    record: String,
}

impl Gate {
    /// Creates a gate for the reads of `record`, written as `collection/id`. A server uses it
    /// through [`Config::gate`](super::Config::gate).
    pub fn new(record: &str) -> Self {
        let file = NamedTempFile::with_prefix("hotrow-gate-").expect("a file");
        let lock = file.reopen().expect("it can be opened again");
        lock.lock().expect("no other lock on it");
        Self { file, lock, record: record.to_owned() }
    }

    /// Lets the blocked reads and all later ones continue.
    pub fn open(&self) {
        self.lock.unlock().expect("it is locked");
    }

    /// Returns the failpoint that makes a server's reads wait for the gate.
    pub fn failpoint(&self) -> String {
        format!("read-gate:{}={}", self.record, self.file.path().display())
    }
}

/// Returns the failpoint that lengthens queries to this collection by a time for each key.
pub fn read_delay(collection: &str, per_key: Duration) -> String {
    format!("read-delay:{collection}={}ms", per_key.as_millis())
}
