//! A run's folder: the experiment as it was given, how it was asked for, and the results, written anew after each measurement.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::experiment::{FILE_BYTES_MAX, Overrides};
use crate::results::{self, Results};

/// The experiment's file, as it was given.
const EXPERIMENT: &str = "experiment.toml";
/// How it was asked for.
const ASKED: &str = "run.json";
/// Largest file of results that is read back, in bytes.
const RESULTS_BYTES_MAX: u64 = 1 << 30;

/// What else a run needs to go on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Asked {
    /// The experiment's name.
    pub name: String,
    /// Where names of files in it begin.
    pub folder: PathBuf,
    /// What the command line set over the file.
    pub overrides: Overrides,
    /// Repeats the order and the ids.
    pub seed: u64,
}

/// A run's folder.
#[derive(Clone, Debug)]
pub struct Store {
    folder: PathBuf,
}

/// Why a folder cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// It holds a run already.
    #[error("{0} holds a run already; name another folder with --out, or go on with it: --resume {0}")]
    Taken(PathBuf),
    /// It holds none.
    #[error("{0} holds no run that can go on: {1}")]
    NoRun(PathBuf, String),
    /// It cannot be made.
    #[error("the folder {0} cannot be made: {1}")]
    Folder(PathBuf, io::Error),
    /// Something cannot be written. What was there before stays.
    #[error("{path} cannot be written: {error}; what was measured before is kept in it")]
    Unwritable {
        /// The file.
        path: PathBuf,
        /// What the system said.
        error: io::Error,
    },
}

/// A run that was found.
#[derive(Debug)]
pub struct Found {
    /// Its folder.
    pub store: Store,
    /// The experiment's file.
    pub text: String,
    /// How it was asked for.
    pub asked: Asked,
    /// What was measured, as far as it came to that.
    pub results: Option<Results>,
}

impl Store {
    /// Makes a folder for a new run.
    ///
    /// # Errors
    /// When it holds one already, or cannot be written.
    pub fn create(folder: &Path, text: &str, asked: &Asked) -> Result<Self, StoreError> {
        fs::create_dir_all(folder).map_err(|e| StoreError::Folder(folder.to_owned(), e))?;
        // nginx and services run elsewhere: their paths must hold from there too.
        let folder = folder.canonicalize().map_err(|e| StoreError::Folder(folder.to_owned(), e))?;
        let store = Self { folder };
        if store.file(EXPERIMENT).exists() || store.file(results::FILE).exists() {
            return Err(StoreError::Taken(store.folder));
        }
        let asked = serde_json::to_vec_pretty(asked).map_err(|e| store.unwritable(ASKED, e.into()))?;
        store.put(ASKED, &asked)?;
        store.put(EXPERIMENT, text.as_bytes())?;
        Ok(store)
    }

    /// Finds a run that was begun.
    ///
    /// # Errors
    /// When there is none, or its files cannot be read.
    pub fn open(folder: &Path) -> Result<Found, StoreError> {
        let none = |why: String| StoreError::NoRun(folder.to_owned(), why);
        let store = Self { folder: folder.canonicalize().map_err(|e| none(e.to_string()))? };
        let text = read(&store.file(EXPERIMENT), FILE_BYTES_MAX).map_err(none)?;
        let asked = read(&store.file(ASKED), FILE_BYTES_MAX).map_err(none)?;
        let asked = serde_json::from_str(&asked).map_err(|e| none(format!("{ASKED}: {e}")))?;
        let results = match store.file(results::FILE).exists() {
            false => None,
            true => Some(store.results().map_err(none)?),
        };
        Ok(Found { store, text, asked, results })
    }

    /// Where it is; absolute.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Keeps the results in place of those before.
    ///
    /// # Errors
    /// When they cannot be written; those before stay as they are.
    pub fn keep(&self, results: &Results) -> Result<(), StoreError> {
        let bytes = serde_json::to_vec(results).map_err(|e| self.unwritable(results::FILE, e.into()))?;
        self.put(results::FILE, &bytes)
    }

    fn results(&self) -> Result<Results, String> {
        let text = read(&self.file(results::FILE), RESULTS_BYTES_MAX)?;
        let results: Results = serde_json::from_str(&text).map_err(|e| format!("{}: {e}", results::FILE))?;
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

    /// Writes beside the file and renames: a full disk or a lost machine leaves the old one or the new one, never half of it.
    fn put(&self, name: &str, bytes: &[u8]) -> Result<(), StoreError> {
        let (beside, file) = (self.file(&format!("{name}.part")), self.file(name));
        let written = File::create(&beside).and_then(|mut out| {
            out.write_all(bytes)?;
            out.sync_all()
        });
        let kept =
            written.and_then(|()| fs::rename(&beside, &file)).and_then(|()| File::open(&self.folder)?.sync_all());
        kept.map_err(|error| {
            // It takes room that is wanted; if it cannot go either, there is nothing more to do.
            let _ = fs::remove_file(&beside);
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

    fn asked() -> Asked {
        Asked { name: "x".to_owned(), folder: PathBuf::from("/"), overrides: Overrides::default(), seed: 7 }
    }

    #[test]
    fn a_run_is_found_again() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("a/b");
        Store::create(&place, "title = 1", &asked()).unwrap();
        let found = Store::open(&place).unwrap();
        assert_eq!((found.text.as_str(), &found.asked, found.results.is_none()), ("title = 1", &asked(), true));
        assert!(matches!(Store::create(&place, "", &asked()), Err(StoreError::Taken(_))));
        assert!(matches!(Store::open(folder.path()), Err(StoreError::NoRun(..))));
        fs::write(place.join(results::FILE), "{}").unwrap();
        assert!(matches!(Store::open(&place), Err(StoreError::NoRun(..))));
    }

    #[test]
    fn what_cannot_be_written_leaves_what_was_there() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::create(folder.path(), "", &asked()).unwrap();
        store.put("f", b"before").unwrap();
        // A folder in the way of the file that is written first.
        fs::create_dir(folder.path().join("f.part")).unwrap();
        let refused = store.put("f", b"after");
        assert!(matches!(&refused, Err(StoreError::Unwritable { path, .. }) if path.ends_with("f")), "{refused:?}");
        assert_eq!(fs::read(folder.path().join("f")).unwrap(), b"before");
    }
}
