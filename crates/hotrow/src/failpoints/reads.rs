//! Reads whose duration a test controls: until a gate opens, or for a fixed time on every machine.
//!
//! They exist for SQLite only, whose reads have threads of their own that may block.

use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use hotrow_source_sqlite::{Hook, Hooks};
use hotrow_types::key::{CollectionId, Key, KeyPart};

use crate::config::{SourceConfig, parse_duration};

/// Effect on the queries of one collection before they reach the database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReadFailpoint {
    /// A query that contains this id waits for a shared lock on the file. The kernel releases the
    /// lock with the process that holds it, so a failed test leaves no lock.
    Gate {
        /// The collection's name.
        collection: String,
        /// Id as in a URL, the parts of a composite key separated by commas.
        id: String,
        /// File that the test locks.
        file: PathBuf,
    },
    /// A query takes longer.
    Delay {
        /// The collection's name.
        collection: String,
        /// Extra time for each of its keys.
        per_key: Duration,
    },
}

/// Checks that each failpoint names a collection of one of the sources.
///
/// # Errors
/// Fails if a failpoint names an unknown collection.
pub(crate) fn check(reads: &[ReadFailpoint], sources: &[SourceConfig]) -> Result<(), String> {
    let is_unknown = |read: &&ReadFailpoint| !sources.iter().any(|source| read.is_of(source));
    match reads.iter().find(is_unknown) {
        None => Ok(()),
        Some(read) => Err(format!("the failpoint {read:?} names no collection")),
    }
}

/// Builds the hooks of these failpoints for the reads of a database, as far as they name its
/// collections.
///
/// # Errors
/// Fails if the engine has no read threads.
pub(crate) fn hooks(reads: &[ReadFailpoint], source: &SourceConfig) -> Result<Hooks, String> {
    let reads: Vec<_> = reads.iter().filter(|read| read.is_of(source)).cloned().collect();
    let Some(read) = reads.first() else {
        return Ok(Hooks::default());
    };
    let SourceConfig::Sqlite(config) = source else {
        return Err(format!("the failpoint {read:?} exists for SQLite only"));
    };
    // Ordered by id.
    let names: Vec<&str> = config.collections.iter().map(|spec| spec.name.as_str()).collect();
    Ok(Hooks { before_read: Some(before_read(&reads, &names)?), after_read: None })
}

fn before_read(reads: &[ReadFailpoint], collections: &[&str]) -> Result<Hook, String> {
    let mut steps: Vec<(CollectionId, ReadFailpoint)> = Vec::new();
    for read in reads {
        let index = collections.iter().position(|name| *name == read.collection());
        let index = index.and_then(|index| u16::try_from(index).ok());
        let index = index.ok_or_else(|| format!("the failpoint {read:?} names no collection"))?;
        tracing::warn!(failpoint = ?read, "reads are slowed down; this is a test build");
        steps.push((CollectionId(index), read.clone()));
    }
    Ok(Arc::new(move |collection, keys| {
        let steps = steps.iter().filter(|(of, _)| *of == collection);
        steps.for_each(|(_, read)| read.before_read(keys));
    }))
}

impl ReadFailpoint {
    /// Parses one item of the list; `None` if it is malformed or another kind of failpoint.
    pub(super) fn parse(word: &str) -> Option<Self> {
        let (kind, rest) = word.split_once(':')?;
        let (subject, value) = rest.split_once('=')?;
        match kind {
            "read-gate" => {
                let (collection, id) = subject.split_once('/')?;
                Some(Self::Gate {
                    collection: collection.into(),
                    id: id.into(),
                    file: value.into(),
                })
            }
            "read-delay" => {
                let per_key = parse_duration(value)?;
                Some(Self::Delay { collection: subject.into(), per_key })
            }
            _ => None,
        }
    }

    fn is_of(&self, source: &SourceConfig) -> bool {
        source.collections().iter().any(|spec| spec.name == self.collection())
    }

    fn collection(&self) -> &str {
        match self {
            Self::Gate { collection, .. } | Self::Delay { collection, .. } => collection,
        }
    }

    fn before_read(&self, keys: &[Key]) {
        match self {
            Self::Gate { id, file, .. } => {
                if keys.iter().any(|key| id_of(key) == *id) {
                    // Dropping the handle releases the lock.
                    let passed = File::open(file).and_then(|handle| handle.lock_shared());
                    if let Err(error) = passed {
                        let file = file.display();
                        tracing::error!(%error, %file, "a read gate cannot be locked");
                    }
                }
            }
            Self::Delay { per_key, .. } => {
                let keys = u32::try_from(keys.len()).unwrap_or(u32::MAX);
                std::thread::sleep(per_key.saturating_mul(keys));
            }
        }
    }
}

fn id_of(key: &Key) -> String {
    let parts: Vec<String> = key
        .parts()
        .map(|part| match part {
            KeyPart::Integer(number) => number.to_string(),
            KeyPart::Text(text) => text.to_owned(),
            KeyPart::Bytes(bytes) => bytes.iter().map(|byte| format!("{byte:02x}")).collect(),
        })
        .collect();
    parts.join(",")
}

#[cfg(test)]
mod tests {
    use hotrow_types::key::{KeySchema, KeyType};

    use super::*;

    fn key(collection: u16, id: i64) -> Key {
        let schema = KeySchema::new(CollectionId(collection), vec![KeyType::Integer]);
        schema.key(&[KeyPart::Integer(id)]).unwrap()
    }

    #[test]
    fn malformed_words_and_unknown_collections_are_refused() {
        let delay = ReadFailpoint::parse("read-delay:slow=5ms").unwrap();
        let per_key = Duration::from_millis(5);
        assert_eq!(delay, ReadFailpoint::Delay { collection: "slow".into(), per_key });
        let gate = ReadFailpoint::parse("read-gate:slow/7,3=/tmp/a=b").unwrap();
        let collection = "slow".into();
        let id = "7,3".into();
        assert_eq!(gate, ReadFailpoint::Gate { collection, id, file: "/tmp/a=b".into() });
        for bad in ["read-gate:slow=/f", "read-gate:slow/1", "read-delay:slow=5", "read:slow=5ms"] {
            assert_eq!(ReadFailpoint::parse(bad), None, "{bad}");
        }
        assert!(before_read(&[delay], &["other"]).is_err_and(|why| why.contains("slow")));
    }

    #[test]
    fn a_gate_holds_its_own_record_until_the_lock_is_released() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let word = format!("read-gate:b/1={}", file.path().display());
        let hook = before_read(&[ReadFailpoint::parse(&word).unwrap()], &["a", "b"]).unwrap();
        let (gate, (passed, passes)) = (file.reopen().unwrap(), std::sync::mpsc::channel());
        gate.lock().unwrap();
        // Other records, and the same id in another collection, do not wait for it.
        hook(CollectionId(1), &[key(1, 2)]);
        hook(CollectionId(0), &[key(0, 1)]);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                hook(CollectionId(1), &[key(1, 2), key(1, 1)]);
                passed.send(()).unwrap();
            });
            assert!(passes.try_recv().is_err(), "the lock is held");
            gate.unlock().unwrap();
            passes.recv().unwrap();
        });
    }
}
