//! A configuration file in the making.

use std::collections::BTreeMap;
use std::path::Path;

/// Keys and TOML values by section.
#[derive(Clone, Debug, Default)]
pub struct Config {
    sections: BTreeMap<String, BTreeMap<String, String>>,
}

impl Config {
    /// Free ports, one worker, the database watched with triggers, few logs; no collection.
    pub fn new(database: &Path) -> Self {
        Self::over(&format!("sqlite:{}", database.display()))
            .set("source.watch", "\"triggers\"")
            // A machine that stands still for a second makes the feed late, which is shown where it is set to less.
            .set("cache.max_staleness", "\"1m\"")
    }

    /// Free ports, one worker; no collection.
    pub fn over(url: &str) -> Self {
        Self::default()
            .set("listen.data", "\"127.0.0.1:0\"")
            .set("listen.admin", "\"127.0.0.1:0\"")
            .set("listen.workers", "1")
            // Tests count queries.
            .set("limits.checks_per_s", "0")
            // How busy the machine is that runs them is no matter of theirs.
            .set("limits.shed.queue_delay_target", "\"10s\"")
            .set("source.url", &format!("\"{url}\""))
    }

    /// Sets a key, named with its section, to a TOML value.
    #[must_use]
    pub fn set(mut self, path: &str, value: &str) -> Self {
        let (section, key) = path.rsplit_once('.').expect("section.key");
        self.sections.entry(section.to_owned()).or_default().insert(key.to_owned(), value.to_owned());
        self
    }

    /// Sets several keys.
    #[must_use]
    pub fn with(self, settings: &[(&str, &str)]) -> Self {
        settings.iter().fold(self, |config, (path, value)| config.set(path, value))
    }

    /// Adds a collection, with defaults so far.
    #[must_use]
    pub fn collection(mut self, name: &str) -> Self {
        self.sections.entry(format!("collections.{name}")).or_default();
        self
    }

    /// The file.
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
