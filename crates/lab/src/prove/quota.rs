//! The target's share of CPU, made smaller for a trial and put back.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::{fs, io};

use hotrow_diagnose::probe::group::Groups;
use hotrow_diagnose::root::Root;

/// The smallest quota that the kernel takes, in µs.
const QUOTA_US_MIN: u64 = 1_000;

/// What must be put back: a file, and what it held. Clones share it, so that whoever hears of the end can put it back too.
#[derive(Clone, Debug, Default)]
pub struct Undo(Arc<Mutex<Option<(PathBuf, String)>>>);

/// A smaller quota, until it is dropped.
pub(super) struct Smaller(Undo);

impl Undo {
    /// Puts back what was changed, if anything is.
    pub fn carry_out(&self) {
        let held = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some((file, text)) = held {
            // It could be written a moment ago. Where the group is gone meanwhile, so is its quota.
            let _ = fs::write(file, text);
        }
    }
}

impl Smaller {
    /// Writes the quota times `part`.
    ///
    /// # Errors
    /// When the file cannot be read or written, or holds no quota that can be made smaller.
    pub(super) fn make(file: &Path, part: f64, undo: &Undo) -> io::Result<Self> {
        let before = fs::read_to_string(file)?;
        let smaller =
            smaller(&before, part).ok_or_else(|| io::Error::other(format!("{:?} is no quota", before.trim())))?;
        // Noted first: whatever happens in between, what is put back is what was there.
        *undo.0.lock().unwrap_or_else(PoisonError::into_inner) = Some((file.to_owned(), before));
        let smaller_quota = Self(undo.clone());
        fs::write(file, smaller)?;
        Ok(smaller_quota)
    }
}

impl Drop for Smaller {
    fn drop(&mut self) {
        self.0.carry_out();
    }
}

/// The file that holds the target's quota, where it has one, may be written, and does not hold this process too.
pub(super) fn file(pid: u32) -> Option<PathBuf> {
    let of = |process: &str| Some(Groups::of(&Root::machine(), process).ok()?.limits().cpu?.file);
    let file = of(&pid.to_string())?;
    let shared = of("self").as_ref() == Some(&file);
    let writable = fs::OpenOptions::new().write(true).open(&file).is_ok();
    (!shared && writable).then_some(file)
}

/// `50000 100000` (v2) or `50000` (v1), with the first number times `part`.
fn smaller(text: &str, part: f64) -> Option<String> {
    let mut words = text.split_ascii_whitespace();
    let quota: u64 = words.next()?.parse().ok()?;
    let quota = (quota as f64 * part) as u64;
    let rest: Vec<&str> = words.collect();
    (quota >= QUOTA_US_MIN)
        .then(|| [quota.to_string().as_str()].iter().chain(&rest).copied().collect::<Vec<_>>().join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quota_is_made_smaller_and_put_back() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("cpu.max");
        for (before, during) in [("50000 100000\n", "40000 100000"), ("50000\n", "40000")] {
            fs::write(&file, before).unwrap();
            let undo = Undo::default();
            let made = Smaller::make(&file, 0.8, &undo).unwrap();
            assert_eq!(fs::read_to_string(&file).unwrap(), during);
            drop(made);
            assert_eq!(fs::read_to_string(&file).unwrap(), before);
            // Put back already by whoever heard of the end: nothing is written twice.
            let made = Smaller::make(&file, 0.8, &undo).unwrap();
            undo.carry_out();
            fs::write(&file, "70000").unwrap();
            drop(made);
            assert_eq!(fs::read_to_string(&file).unwrap(), "70000");
        }
        for none in ["max 100000", "-1", "", "1000"] {
            fs::write(&file, none).unwrap();
            assert!(Smaller::make(&file, 0.8, &Undo::default()).is_err(), "{none}");
            assert_eq!(fs::read_to_string(&file).unwrap(), none);
        }
    }
}
