//! A run's folder: the experiment, the request for the run, and the results, rewritten after each
//! measurement.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::experiment::{FILE_BYTES_MAX, Overrides};
use hotrow_results::{self as results, Results};

/// The experiment's file, unchanged.
const EXPERIMENT_FILE: &str = "experiment.toml";
/// The request for the run.
const REQUEST_FILE: &str = "run.json";
/// Largest results file that is read back, in bytes.
const RESULTS_BYTES_MAX: u64 = 1 << 30;

/// Request for a run, for resuming it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunRequest {
    /// The experiment's name.
    pub name: String,
    /// Folder for relative file names.
    pub folder: PathBuf,
    /// Settings of the command line.
    pub overrides: Overrides,
    /// Seed of the order and the ids.
    pub seed: u64,
}

/// A run's folder.
#[derive(Clone, Debug)]
pub struct Store {
    folder: PathBuf,
}

/// Reason a folder cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// It contains a run already.
    #[error(
        "{0} contains a run already; use another folder with --out, or resume it: --resume {0}"
    )]
    Taken(PathBuf),
    /// It contains no run.
    #[error("{0} contains no run to resume: {1}")]
    NoRun(PathBuf, String),
    /// It cannot be created.
    #[error("the folder {0} cannot be created: {1}")]
    Folder(PathBuf, io::Error),
    /// A file cannot be written; its former content stays.
    #[error("{path} cannot be written: {error}; earlier measurements are kept in it")]
    Unwritable {
        /// The file.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
}

/// A stored run.
#[derive(Debug)]
pub struct StoredRun {
    /// Its folder.
    pub store: Store,
    /// The experiment's file.
    pub text: String,
    /// The request for the run.
    pub request: RunRequest,
    /// Results so far, if any.
    pub results: Option<Results>,
}

impl Store {
    /// Creates a folder for a new run.
    ///
    /// # Errors
    /// It contains a run already, or cannot be written.
    pub fn create(folder: &Path, text: &str, request: &RunRequest) -> Result<Self, StoreError> {
        fs::create_dir_all(folder).map_err(|e| StoreError::Folder(folder.to_owned(), e))?;
        // nginx and services run in other folders, so paths must be absolute.
        let folder = folder.canonicalize().map_err(|e| StoreError::Folder(folder.to_owned(), e))?;
        let store = Self { folder };
        if store.file(EXPERIMENT_FILE).exists() || store.file(results::FILE).exists() {
            return Err(StoreError::Taken(store.folder));
        }
        let request = serde_json::to_vec_pretty(request)
            .map_err(|e| store.unwritable(REQUEST_FILE, e.into()))?;
        store.write_atomically(REQUEST_FILE, &request)?;
        store.write_atomically(EXPERIMENT_FILE, text.as_bytes())?;
        Ok(store)
    }

    /// Opens an existing run.
    ///
    /// # Errors
    /// There is none, or its files cannot be read.
    pub fn open(folder: &Path) -> Result<StoredRun, StoreError> {
        let none = |why: String| StoreError::NoRun(folder.to_owned(), why);
        let store = Self { folder: folder.canonicalize().map_err(|e| none(e.to_string()))? };
        let text = read(&store.file(EXPERIMENT_FILE), FILE_BYTES_MAX).map_err(none)?;
        let request = read(&store.file(REQUEST_FILE), FILE_BYTES_MAX).map_err(none)?;
        let request =
            serde_json::from_str(&request).map_err(|e| none(format!("{REQUEST_FILE}: {e}")))?;
        let results = match store.file(results::FILE).exists() {
            false => None,
            true => Some(store.results().map_err(none)?),
        };
        Ok(StoredRun { store, text, request, results })
    }

    /// Returns its absolute path.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Replaces the stored results.
    ///
    /// # Errors
    /// They cannot be written; the former ones stay.
    pub fn save(&self, results: &Results) -> Result<(), StoreError> {
        let bytes =
            serde_json::to_vec(results).map_err(|e| self.unwritable(results::FILE, e.into()))?;
        self.write_atomically(results::FILE, &bytes)
    }

    fn results(&self) -> Result<Results, String> {
        let text = read(&self.file(results::FILE), RESULTS_BYTES_MAX)?;
        let results: Results =
            serde_json::from_str(&text).map_err(|e| format!("{}: {e}", results::FILE))?;
        if results.schema != results::SCHEMA {
            return Err(format!(
                "its results are of the schema {:?}, this program's are {:?}",
                results.schema,
                results::SCHEMA
            ));
        }
        Ok(results)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    fn unwritable(&self, name: &str, error: io::Error) -> StoreError {
        StoreError::Unwritable { path: self.file(name), error }
    }

    /// Writes a temporary file and renames it, so that a full disk or a crash never leaves a
    /// partial file.
    fn write_atomically(&self, name: &str, bytes: &[u8]) -> Result<(), StoreError> {
        let (temporary, file) = (self.file(&format!("{name}.part")), self.file(name));
        let written = File::create(&temporary).and_then(|mut out| {
            out.write_all(bytes)?;
            out.sync_all()
        });
        let saved = written
            .and_then(|()| fs::rename(&temporary, &file))
            .and_then(|()| File::open(&self.folder)?.sync_all());
        saved.map_err(|error| {
            // The temporary file only takes space; a failure to remove it has no remedy.
            let _ = fs::remove_file(&temporary);
            self.unwritable(name, error)
        })
    }
}

fn read(path: &Path, bytes_max: u64) -> Result<String, String> {
    let wrong = |why: String| format!("{} cannot be read: {why}", path.display());
    let mut text = String::new();
    let file = File::open(path).map_err(|e| wrong(e.to_string()))?;
    file.take(bytes_max + 1).read_to_string(&mut text).map_err(|e| wrong(e.to_string()))?;
    if text.len() as u64 > bytes_max {
        return Err(wrong(format!("it is larger than {bytes_max} bytes")));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request() -> RunRequest {
        RunRequest {
            name: "x".to_owned(),
            folder: PathBuf::from("/"),
            overrides: Overrides::default(),
            seed: 7,
        }
    }

    #[test]
    fn a_stored_run_can_be_opened() {
        let parent = tempfile::tempdir().unwrap();
        let folder = parent.path().join("a/b");
        Store::create(&folder, "title = 1", &request()).unwrap();
        let found = Store::open(&folder).unwrap();
        assert_eq!(
            (found.text.as_str(), &found.request, found.results.is_none()),
            ("title = 1", &request(), true)
        );
        assert!(matches!(Store::create(&folder, "", &request()), Err(StoreError::Taken(_))));
        assert!(matches!(Store::open(parent.path()), Err(StoreError::NoRun(..))));
        fs::write(folder.join(results::FILE), "{}").unwrap();
        assert!(matches!(Store::open(&folder), Err(StoreError::NoRun(..))));
    }

    #[test]
    fn a_failed_write_keeps_the_former_content() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::create(folder.path(), "", &request()).unwrap();
        store.write_atomically("f", b"before").unwrap();
        // A folder at the path of the temporary file.
        fs::create_dir(folder.path().join("f.part")).unwrap();
        let refused = store.write_atomically("f", b"after");
        assert!(
            matches!(&refused, Err(StoreError::Unwritable { path, .. }) if path.ends_with("f")),
            "{refused:?}"
        );
        assert_eq!(fs::read(folder.path().join("f")).unwrap(), b"before");
    }
}
