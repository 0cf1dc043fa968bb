//! Roles, API keys and client certificates in force, shared by the workers. They are replaced as a
//! whole when their file changes. A worker keeps the ones that it uses: a request is judged by one
//! version of them from its credential to its grants.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hotrow_access::certificate::CertificateTable;
use hotrow_access::grant::{Grants, Roles};
use hotrow_access::key::KeyTable;
use hotrow_config::access::{Access as Config, Granted, GrantsFile, Names};
use hotrow_net::file_watch::{self, Stamps, Watched};
use hotrow_types::key::CollectionId;
use parking_lot::Mutex;

/// Largest file of grants: 10,000 keys have about 2 MB.
const GRANTS_BYTES_MAX: usize = 4 << 20;

/// Credentials without tokens, and what their holders may read. Immutable.
#[derive(Debug, Default)]
pub(crate) struct Principals {
    pub(crate) grants: Grants,
    pub(crate) keys: KeyTable,
    pub(crate) certificates: CertificateTable,
    /// Roles of a request without a credential.
    pub(crate) anonymous: Roles,
    /// Names of all of them.
    pub(crate) names: Arc<Names>,
}

/// A version of them. Generation 0 is before the first.
#[derive(Clone, Debug, Default)]
pub(crate) struct Version {
    pub(crate) principals: Arc<Principals>,
    pub(crate) generation: u64,
}

/// The version in force, and the file that it comes from.
#[derive(Debug)]
pub struct PrincipalsInForce {
    current: Mutex<Version>,
    /// Of `current`.
    generation: AtomicU64,
    collections: usize,
    file: Option<Mutex<TakenFile>>,
    counts: Arc<FileCounts>,
}

/// Changed files since the start of the process.
#[derive(Debug, Default)]
pub(crate) struct FileCounts {
    reloaded: AtomicU64,
    refused: AtomicU64,
}

#[derive(Debug)]
struct TakenFile {
    file: GrantsFile,
    stamps: Stamps,
}

impl Principals {
    /// Resolves the configuration, which has been checked.
    fn new(granted: &Granted, collections: usize) -> Self {
        Self {
            // Without roles, or with two equal ids or subjects, nothing is granted; the
            // configuration has refused these.
            grants: Grants::new(&granted.roles, collections).unwrap_or_default(),
            keys: KeyTable::new(granted.keys.clone()).unwrap_or_default(),
            certificates: CertificateTable::new(granted.certificates.clone()).unwrap_or_default(),
            anonymous: granted.anonymous,
            names: Arc::new(granted.names.clone()),
        }
    }
}

impl PrincipalsInForce {
    pub(crate) fn new(config: &Config, collections: usize, counts: Arc<FileCounts>) -> Self {
        let principals = Arc::new(Principals::new(&config.granted, collections));
        // The file may have changed since it was read: its first look reads it again.
        let taken = |file: &GrantsFile| TakenFile { file: file.clone(), stamps: Stamps::default() };
        Self {
            current: Mutex::new(Version { principals, generation: 1 }),
            generation: AtomicU64::new(1),
            collections,
            file: config.grants_file.as_ref().map(|file| Mutex::new(taken(file))),
            counts,
        }
    }

    /// Makes a worker's version the newest one. Without a change this reads one number.
    #[inline]
    pub(crate) fn update(&self, version: &mut Version) {
        if self.generation.load(Ordering::Acquire) != version.generation {
            *version = self.current.lock().clone();
        }
    }

    /// Returns whether they come from a file that is watched.
    pub(crate) fn is_watched(&self) -> bool {
        self.file.is_some()
    }

    /// Returns the collections of which a role reads only some columns.
    pub fn collections_with_limits(&self) -> Vec<CollectionId> {
        let principals = Arc::clone(&self.current.lock().principals);
        // At most 1,000 collections.
        let ids = (0..self.collections).map(|id| CollectionId(id as u16));
        ids.filter(|id| principals.grants.limits_columns(*id)).collect()
    }

    /// Returns the counts of changed files, for the next configuration.
    pub(crate) fn counts(&self) -> Arc<FileCounts> {
        Arc::clone(&self.counts)
    }

    /// Returns how often a changed file was taken over, and how often it was refused.
    pub(crate) fn reloads(&self) -> (u64, u64) {
        (self.counts.reloaded.load(Ordering::Relaxed), self.counts.refused.load(Ordering::Relaxed))
    }

    /// Takes the file over. Returns whether its text has changed.
    fn take_over(&self, taken: &mut TakenFile) -> Result<bool, String> {
        let GrantsFile { path, text, parse } = &mut taken.file;
        let new = match file_watch::read(path, GRANTS_BYTES_MAX) {
            Ok(Some(bytes)) => bytes,
            Ok(None) => return Err(format!("is larger than {GRANTS_BYTES_MAX} bytes")),
            Err(error) => return Err(format!("cannot be read: {error}")),
        };
        if new == *text {
            return Ok(false);
        }
        let principals = Arc::new(Principals::new(&parse(&new)?, self.collections));
        *text = new;
        let mut current = self.current.lock();
        let generation = current.generation + 1;
        *current = Version { principals, generation };
        self.generation.store(generation, Ordering::Release);
        Ok(true)
    }
}

impl Watched for PrincipalsInForce {
    fn stamps(&self) -> Stamps {
        let path = self.file.as_ref().map(|taken| taken.lock().file.path.clone());
        Stamps::of(path.as_deref())
    }

    fn taken(&self) -> Stamps {
        self.file.as_ref().map(|taken| taken.lock().stamps.clone()).unwrap_or_default()
    }

    fn reload(&self, now: Stamps) {
        let Some(taken) = &self.file else { return };
        let mut taken = taken.lock();
        taken.stamps = now;
        let path = taken.file.path.display().to_string();
        match self.take_over(&mut taken) {
            Ok(false) => {}
            Ok(true) => {
                self.counts.reloaded.fetch_add(1, Ordering::Relaxed);
                tracing::info!(path, "the changed access.grants_file is in force");
            }
            Err(error) => {
                self.counts.refused.fetch_add(1, Ordering::Relaxed);
                tracing::error!(
                    path,
                    error,
                    "the changed access.grants_file is refused; the grants before it stay in force"
                );
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use hotrow_access::grant::{RateClasses, Role, Scope};

    use super::*;
    use hotrow_net::file_watch::Watch;

    /// Parses a number: that many roles, which may read all.
    fn parse(text: &[u8]) -> Result<Granted, String> {
        let roles = std::str::from_utf8(text).ok().and_then(|text| text.parse().ok());
        let role = Role {
            name: "reader".to_owned(),
            claim_values: Vec::new(),
            collections: Scope::All,
            columns: Vec::new(),
            no_cache: false,
            min_position: false,
            strict: true,
            rate_classes: RateClasses::default(),
        };
        Ok(Granted { roles: vec![role; roles.ok_or("no number")?], ..Granted::default() })
    }

    fn config(path: &Path) -> Config {
        let text = b"1".to_vec();
        let file = GrantsFile { path: path.to_owned(), text, parse: Arc::new(parse) };
        Config {
            granted: parse(b"1").unwrap(),
            grants_file: Some(file),
            tokens: None,
            failures: "1/s".parse().unwrap(),
        }
    }

    #[test]
    fn only_a_file_that_can_be_used_changes_the_grants() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("grants.toml");
        std::fs::write(&path, "1").unwrap();
        let in_force = PrincipalsInForce::new(&config(&path), 1, Arc::default());
        let mut watch = Watch::new(in_force.taken());
        let mut version = Version::default();
        let mut look = |text: Option<&str>| {
            match text {
                Some(text) => {
                    let new = path.with_extension("new");
                    std::fs::write(&new, text).unwrap();
                    std::fs::rename(&new, &path).unwrap();
                }
                None => std::fs::remove_file(&path).unwrap(),
            }
            (0..2).for_each(|_| watch.look(&in_force));
            in_force.update(&mut version);
            let second = Roles::single(1);
            let may_read = version.principals.grants.on(CollectionId(0)).may_read(second);
            (version.generation, may_read, in_force.reloads())
        };
        assert_eq!(look(Some("1")), (1, false, (0, 0)), "the text that was read at the start");
        assert_eq!(look(Some("2")), (2, true, (1, 0)));
        assert_eq!(look(Some("two")), (2, true, (1, 1)));
        assert_eq!(look(None), (2, true, (1, 2)));
        assert_eq!(look(Some("1")), (3, false, (2, 2)));
    }
}
