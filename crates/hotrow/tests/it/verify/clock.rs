//! An adjustable wall clock of a running process, without privileges: libfaketime between the
//! process and the C library. Clocks that cannot be set stay unchanged, as when an administrator
//! sets the time.

use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, SystemTime};

use tempfile::TempDir;

use crate::verify::checker::NAME;
use hotrow_testkit::harness::{SOON, Server, await_until};

/// Length of the first step.
const STEP: Duration = Duration::from_hours(1);
/// Path of the library in Debian, by architecture.
const LIBRARIES: &str = "/usr/lib";

/// The clock of one process.
pub(crate) struct Clock {
    /// Folder of the file with the offset of the clock, in seconds.
    folder: Option<TempDir>,
    /// Number of steps so far.
    steps: u32,
}

impl Clock {
    /// Returns the machine's own clock.
    pub(crate) fn real() -> Self {
        Self { folder: None, steps: 0 }
    }

    /// Returns an adjustable clock, initially correct.
    pub(crate) fn adjustable() -> Self {
        let clock = Self { folder: Some(TempDir::new().expect("a temporary folder")), steps: 0 };
        clock.write(0);
        clock
    }

    /// Returns the environment that gives a process this clock.
    pub(crate) fn environment(&self) -> Vec<(&'static str, String)> {
        let Some(file) = self.file() else { return Vec::new() };
        let yes = || "1".to_owned();
        vec![
            ("LD_PRELOAD", library().display().to_string()),
            ("FAKETIME_TIMESTAMP_FILE", file.display().to_string()),
            // In seconds: the file is read at most this often.
            ("FAKETIME_CACHE_DURATION", yes()),
            ("FAKETIME_DONT_FAKE_MONOTONIC", yes()),
            // Name of the same variable in other versions.
            ("DONT_FAKE_MONOTONIC", yes()),
        ]
    }

    /// Sets the clock some hours ahead, further each time, and waits until the server reports that
    /// time.
    #[track_caller]
    pub(crate) fn set_forward(&mut self, server: &Server) {
        self.steps += 1;
        let ahead = STEP * self.steps;
        self.write(ahead.as_secs().cast_signed());
        // A `Date` never goes back with the clock, so only a later one shows the change.
        let due = SystemTime::now() + ahead - STEP / 2;
        await_until("Date to follow the clock", SOON, || {
            date(server).is_some_and(|date| date > due)
        });
    }

    /// Sets the clock back to the correct time.
    pub(crate) fn set_back(&self) {
        self.write(-(STEP * self.steps).as_secs().cast_signed());
    }

    fn write(&self, wrong_by_s: i64) {
        let file = self.file().expect("an adjustable clock");
        // Renamed into place, so that the library never reads a partial file.
        let draft = file.with_extension("draft");
        std::fs::write(&draft, format!("{wrong_by_s:+}\n")).expect("write beside the file");
        std::fs::rename(&draft, &file).expect("rename into place");
    }

    fn file(&self) -> Option<PathBuf> {
        Some(self.folder.as_ref()?.path().join("clock"))
    }
}

/// Returns the time in a response.
fn date(server: &Server) -> Option<SystemTime> {
    let answer = server.get(&format!("/{NAME}/1"));
    let output = Command::new("date")
        .args(["--utc", "+%s", "--date", answer.header("date")?])
        .output()
        .expect("date");
    let since_1970_s = String::from_utf8_lossy(&output.stdout).trim().parse().ok()?;
    Some(SystemTime::UNIX_EPOCH + Duration::from_secs(since_1970_s))
}

fn library() -> PathBuf {
    let folders = std::fs::read_dir(LIBRARIES).into_iter().flatten().filter_map(Result::ok);
    let libraries = folders.map(|folder| folder.path().join("faketime/libfaketimeMT.so.1"));
    let found = libraries.into_iter().find(|library| library.is_file());
    found.unwrap_or_else(|| {
        panic!("no libfaketime in {LIBRARIES}/*/faketime; install faketime (./test --long does)")
    })
}
