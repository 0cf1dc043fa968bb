//! Builder of a configuration file.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;
use std::time::Duration;

use tempfile::NamedTempFile;

/// Keys and TOML values by section.
#[derive(Clone, Debug, Default)]
pub struct Config {
    sections: BTreeMap<String, BTreeMap<String, String>>,
    failpoints: Vec<String>,
}

impl Config {
    /// Creates a configuration: free ports, one worker, a database with triggers, few log lines, no
    /// collection.
    pub fn new(database: &Path) -> Self {
        Self::over(&format!("sqlite:{}", database.display()))
            .set("source.watch", "\"triggers\"")
            // A machine that pauses for a second delays the feed; tests of lateness set a lower
            // value.
            .set("cache.max_staleness", "\"1m\"")
    }

    /// Creates a configuration with free ports and one worker, without a collection.
    pub fn over(url: &str) -> Self {
        Self::default()
            .set("listen.data", "\"127.0.0.1:0\"")
            .set("listen.admin", "\"127.0.0.1:0\"")
            .set("listen.workers", "1")
            // Tests count queries.
            .set("limits.checks_per_s", "0")
            // The load of the test machine must not shed requests.
            .set("limits.shed.queue_delay_target", "\"10s\"")
            .set("source.url", &format!("\"{url}\""))
            // Nor time them out: four times the defaults.
            .set("source.read_timeout", "\"8s\"")
            .set("limits.request_timeout", "\"20s\"")
    }

    /// Sets a key, named with its section, to a TOML value.
    #[must_use]
    pub fn set(mut self, path: &str, value: &str) -> Self {
        let (section, key) = path.rsplit_once('.').expect("section.key");
        self.sections
            .entry(section.to_owned())
            .or_default()
            .insert(key.to_owned(), value.to_owned());
        self
    }

    #[must_use]
    pub fn with(self, settings: &[(&str, &str)]) -> Self {
        settings.iter().fold(self, |config, (path, value)| config.set(path, value))
    }

    #[must_use]
    pub fn collection(mut self, name: &str) -> Self {
        self.sections.entry(format!("collections.{name}")).or_default();
        self
    }

    /// Adds a failpoint, for a build with that feature.
    #[must_use]
    pub fn failpoint(mut self, word: String) -> Self {
        self.failpoints.push(word);
        self
    }

    /// Makes reads of the gate's record wait until it is opened.
    #[must_use]
    pub fn gate(self, gate: &Gate) -> Self {
        self.failpoint(gate.failpoint())
    }

    /// Returns the value of `HOTROW_FAILPOINTS`; `None` without failpoints.
    pub fn failpoints(&self) -> Option<String> {
        (!self.failpoints.is_empty()).then(|| self.failpoints.join(","))
    }

    pub fn text(&self) -> String {
        let mut text = String::new();
        for (section, keys) in &self.sections {
            text.push_str(&format!("[{section}]\n"));
            for (key, value) in keys {
                text.push_str(&format!("{key} = {value}\n"));
            }
        }
        text
    }
}

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
