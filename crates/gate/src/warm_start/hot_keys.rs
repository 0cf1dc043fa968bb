//! The file of hot keys: which keys to read after a start, the hottest first.
//!
//! Text, so that an operator can look at it. The first line is a JSON object with the form's
//! version, the time, and the collections by name; then one key a line, the number of its
//! collection in that list and its id; the last line has the number of keys and the XXH3 hash of
//! all bytes before it. No record is in it, only keys. These may be personal: the file's mode is
//! 0600.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

const FORM: u32 = 1;
/// Longest last line: two numbers.
const LAST_LINE_BYTES_MAX: usize = 64;

/// First line of the file.
#[derive(Debug, Deserialize, Serialize)]
struct Head {
    hotrow_hot_keys: u32,
    written_at_unix_s: u64,
    collections: Vec<String>,
}

/// Reason for which a file is not used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HotKeysError {
    /// The file cannot be read.
    #[error("cannot be read: {0}")]
    Read(#[from] io::Error),
    /// It is larger than configured.
    #[error("is larger than warm.file_bytes, {0} bytes")]
    TooLarge(u64),
    /// It is not a file of hot keys, or of another version.
    #[error("is not a file of hot keys that this version of Hotrow reads")]
    OtherForm,
    /// It was not written to its end, or was changed.
    #[error("is damaged: its last line does not fit the rest")]
    Damaged,
    /// It is too old.
    #[error("is {0:?} old, which is more than warm.max_age")]
    TooOld(Duration),
}

/// A file that was read: its keys in order.
#[derive(Debug)]
pub(crate) struct HotKeys {
    text: String,
    head_bytes: usize,
    end: usize,
    /// Names of the collections that the numbers in the lines mean.
    pub(crate) collections: Vec<String>,
    /// Number of keys.
    pub(crate) count: u64,
}

impl HotKeys {
    /// Reads and checks a file. `None`: there is none.
    ///
    /// # Errors
    /// If the file cannot be used.
    pub(crate) fn read(
        path: &Path,
        bytes_max: u64,
        age_max: Duration,
        unix_s: u64,
    ) -> Result<Option<Self>, HotKeysError> {
        let file = match File::open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let mut bytes = Vec::new();
        file.take(bytes_max.saturating_add(1)).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > bytes_max {
            return Err(HotKeysError::TooLarge(bytes_max));
        }
        let text = String::from_utf8(bytes).map_err(|_| HotKeysError::OtherForm)?;
        Self::parse(text, age_max, unix_s).map(Some)
    }

    fn parse(text: String, age_max: Duration, unix_s: u64) -> Result<Self, HotKeysError> {
        let (first, _) = text.split_once('\n').ok_or(HotKeysError::OtherForm)?;
        let head: Head = serde_json::from_str(first).map_err(|_| HotKeysError::OtherForm)?;
        if head.hotrow_hot_keys != FORM {
            return Err(HotKeysError::OtherForm);
        }
        let end = text.trim_end_matches('\n').rfind('\n').ok_or(HotKeysError::Damaged)? + 1;
        let count = count_of(&text[end..], &text.as_bytes()[..end]).ok_or(HotKeysError::Damaged)?;
        // A clock that was set back makes a file seem to be of the future: it is used.
        let age = Duration::from_secs(unix_s.saturating_sub(head.written_at_unix_s));
        if age > age_max {
            return Err(HotKeysError::TooOld(age));
        }
        let head_bytes = first.len() + 1;
        Ok(Self { head_bytes, end, collections: head.collections, count, text })
    }

    /// Returns each key: the number of its collection in [`HotKeys::collections`], and its id.
    pub(crate) fn keys(&self) -> impl Iterator<Item = (usize, &str)> {
        let lines = self.text.get(self.head_bytes..self.end).unwrap_or_default().lines();
        lines.filter_map(|line| {
            let (collection, id) = line.split_once(' ')?;
            Some((collection.parse().ok()?, id))
        })
    }
}

/// Returns the number of keys, if the last line fits the bytes before it.
fn count_of(last_line: &str, before: &[u8]) -> Option<u64> {
    let (count, hash) = last_line.strip_prefix("end ")?.strip_suffix('\n')?.split_once(' ')?;
    let is_whole = u64::from_str_radix(hash, 16).ok()? == xxh3_64(before);
    if is_whole { count.parse().ok() } else { None }
}

/// A new file of hot keys. It replaces the old one when it is complete, and leaves nothing when it
/// is dropped before.
pub(crate) struct HotKeysWriter {
    out: BufWriter<File>,
    hash: Xxh3,
    path: PathBuf,
    /// Name until the file is complete.
    temporary: PathBuf,
    bytes: u64,
    bytes_max: u64,
    count: u64,
}

impl HotKeysWriter {
    /// Begins a file of at most `bytes_max` bytes. Its mode is 0600.
    ///
    /// # Errors
    /// If the file cannot be created.
    pub(crate) fn create(
        path: &Path,
        bytes_max: u64,
        collections: Vec<String>,
        unix_s: u64,
    ) -> io::Result<Self> {
        let mut temporary = path.as_os_str().to_owned();
        // Two processes may be configured with one file.
        temporary.push(format!(".{}", std::process::id()));
        let temporary = PathBuf::from(temporary);
        // Of an earlier process with this number, which was killed while writing.
        _ = fs::remove_file(&temporary);
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary)?;
        let mut writer = Self {
            out: BufWriter::new(file),
            hash: Xxh3::new(),
            path: path.to_owned(),
            temporary,
            bytes: 0,
            bytes_max: bytes_max.saturating_sub(LAST_LINE_BYTES_MAX as u64),
            count: 0,
        };
        let head = Head { hotrow_hot_keys: FORM, written_at_unix_s: unix_s, collections };
        let mut line = serde_json::to_string(&head)?;
        line.push('\n');
        writer.write(line.as_bytes())?;
        Ok(writer)
    }

    /// Appends a key. `false`: it does not fit, and the file is full.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub(crate) fn push(&mut self, collection: usize, id: &str) -> io::Result<bool> {
        let line = format!("{collection} {id}\n");
        if self.bytes + line.len() as u64 > self.bytes_max {
            return Ok(false);
        }
        self.write(line.as_bytes())?;
        self.count += 1;
        Ok(true)
    }

    /// Completes the file and puts it in place of the old one. Returns the number of its keys.
    ///
    /// # Errors
    /// If the file cannot be written; the old one is left as it was.
    pub(crate) fn finish(mut self) -> io::Result<u64> {
        let last = format!("end {} {:016x}\n", self.count, self.hash.digest());
        self.out.write_all(last.as_bytes())?;
        self.out.flush()?;
        self.out.get_ref().sync_all()?;
        fs::rename(&self.temporary, &self.path)?;
        if let Some(folder) = self.path.parent() {
            File::open(folder)?.sync_all()?;
        }
        Ok(self.count)
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.hash.update(bytes);
        self.bytes += bytes.len() as u64;
        self.out.write_all(bytes)
    }
}

impl Drop for HotKeysWriter {
    fn drop(&mut self) {
        // After `finish` there is none.
        _ = fs::remove_file(&self.temporary);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    const WEEK: Duration = Duration::from_secs(7 * 86_400);

    fn write(path: &Path, bytes_max: u64, keys: &[(usize, &str)]) -> u64 {
        let names = vec!["orders".to_owned(), "products".to_owned()];
        let mut writer = HotKeysWriter::create(path, bytes_max, names, 1_000_000).unwrap();
        for (collection, id) in keys {
            if !writer.push(*collection, id).unwrap() {
                break;
            }
        }
        writer.finish().unwrap()
    }

    fn read(path: &Path, unix_s: u64) -> Result<Option<HotKeys>, String> {
        HotKeys::read(path, 4096, WEEK, unix_s).map_err(|error| error.to_string())
    }

    #[test]
    fn keys_come_back_in_order_and_nobody_else_may_read_them() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("hot-keys");
        assert!(read(&path, 0).unwrap().is_none(), "no file yet");
        assert_eq!(write(&path, 4096, &[(1, "7"), (0, "a%20b,3"), (1, "")]), 3);
        let keys = read(&path, 1_000_000).unwrap().unwrap();
        assert_eq!(keys.collections, ["orders", "products"]);
        assert_eq!(keys.keys().collect::<Vec<_>>(), [(1, "7"), (0, "a%20b,3"), (1, "")]);
        assert_eq!(keys.count, 3);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "no temporary file");
        assert_eq!(write(&path, 4096, &[]), 0);
        assert_eq!(read(&path, 0).unwrap().unwrap().keys().count(), 0, "a clock set back");
    }

    #[test]
    fn a_file_is_at_most_as_large_as_configured() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("hot-keys");
        let keys: Vec<_> = (0..1_000).map(|_| (0, "0123456789")).collect();
        let written = write(&path, 4096, &keys);
        assert!((250..400).contains(&written), "{written}");
        assert!(fs::metadata(&path).unwrap().len() <= 4096);
        assert!(read(&path, 0).is_ok());
    }

    #[test]
    fn what_is_old_or_damaged_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("hot-keys");
        write(&path, 4096, &[(0, "1"), (0, "2")]);
        let old = read(&path, 1_000_000 + 8 * 86_400).unwrap_err();
        assert!(old.contains("more than warm.max_age"), "{old}");
        let good = fs::read_to_string(&path).unwrap();
        for length in 0..good.len() {
            fs::write(&path, &good[..length]).unwrap();
            assert!(read(&path, 1_000_000).is_err(), "cut at {length}");
        }
        for (old, new) in [("0 1\n", "0 3\n"), ("end 2", "end 3x"), ("keys\":1", "keys\":2")] {
            fs::write(&path, good.replace(old, new)).unwrap();
            assert!(read(&path, 1_000_000).is_err(), "{old:?} became {new:?}");
        }
        for other in ["", "\n", "{}\n", "\u{0}\n\n", &"x".repeat(5_000)] {
            fs::write(&path, other).unwrap();
            assert!(read(&path, 1_000_000).is_err());
        }
        fs::write(&path, [0xff, 0xfe]).unwrap();
        assert!(read(&path, 1_000_000).is_err());
        assert!(read(folder.path(), 1_000_000).is_err(), "a folder");
    }

    #[test]
    fn a_file_that_is_not_completed_leaves_the_old_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("hot-keys");
        write(&path, 4096, &[(0, "1")]);
        let mut half = HotKeysWriter::create(&path, 4096, Vec::new(), 0).unwrap();
        half.push(0, "2").unwrap();
        drop(half);
        assert_eq!(read(&path, 0).unwrap().unwrap().keys().collect::<Vec<_>>(), [(0, "1")]);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        // A full disk.
        let full = HotKeysWriter::create(Path::new("/dev/full/hot-keys"), 4096, Vec::new(), 0);
        assert!(full.is_err());
    }
}
