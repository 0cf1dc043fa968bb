//! A wall clock of a process that is set while the process runs, without privileges: libfaketime stands between the process
//! and the C library. The clocks that nobody can set are left alone, as they are when an administrator sets the time.

use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, SystemTime};

use tempfile::TempDir;

use crate::checker::NAME;
use crate::harness::{SOON, Server, await_until};

/// How far the first step goes.
const STEP: Duration = Duration::from_hours(1);
/// Where Debian has the library, by architecture.
const LIBRARIES: &str = "/usr/lib";

/// The clock of one process.
pub(crate) struct Clock {
    /// The folder of the file that tells the library by how many seconds the clock is wrong.
    folder: Option<TempDir>,
    /// Steps so far.
    steps: u32,
}

impl Clock {
    /// The machine's own.
    pub(crate) fn real() -> Self {
        Self { folder: None, steps: 0 }
    }

    /// One that can be set; right so far.
    pub(crate) fn to_be_set() -> Self {
        let clock = Self { folder: Some(TempDir::new().expect("a temporary folder")), steps: 0 };
        clock.write(0);
        clock
    }

    /// What a process needs in its environment to have this clock.
    pub(crate) fn environment(&self) -> Vec<(&'static str, String)> {
        let Some(file) = self.file() else { return Vec::new() };
        let yes = || "1".to_owned();
        vec![
            ("LD_PRELOAD", library().display().to_string()),
            ("FAKETIME_TIMESTAMP_FILE", file.display().to_string()),
            // In seconds; the file is not read again for each look at the clock.
            ("FAKETIME_CACHE_DURATION", yes()),
            ("FAKETIME_DONT_FAKE_MONOTONIC", yes()),
            // The name of the same in other versions.
            ("DONT_FAKE_MONOTONIC", yes()),
        ]
    }

    /// Sets it some hours ahead, further each time, and waits until the server tells that time.
    #[track_caller]
    pub(crate) fn set_forward(&mut self, server: &Server) {
        self.steps += 1;
        let ahead = STEP * self.steps;
        self.write(ahead.as_secs().cast_signed());
        // A `Date` once told is not taken back when the clock is, so nothing but a later one shows that it was set.
        let due = SystemTime::now() + ahead - STEP / 2;
        await_until("Date to follow the clock", SOON, || date(server).is_some_and(|date| date > due));
    }

    /// Sets it as far back as it was ahead.
    pub(crate) fn set_back(&self) {
        self.write(-(STEP * self.steps).as_secs().cast_signed());
    }

    fn write(&self, wrong_by_s: i64) {
        let file = self.file().expect("a clock that can be set");
        // Renamed into its place: the library must never find half of it.
        let draft = file.with_extension("draft");
        std::fs::write(&draft, format!("{wrong_by_s:+}\n")).expect("write beside the file");
        std::fs::rename(&draft, &file).expect("put it in its place");
    }

    fn file(&self) -> Option<PathBuf> {
        Some(self.folder.as_ref()?.path().join("clock"))
    }
}

/// The time that an answer tells.
fn date(server: &Server) -> Option<SystemTime> {
    let answer = server.get(&format!("/{NAME}/1"));
    let output = Command::new("date").args(["--utc", "+%s", "--date", answer.header("date")?]).output().expect("date");
    let since_1970_s = String::from_utf8_lossy(&output.stdout).trim().parse().ok()?;
    Some(SystemTime::UNIX_EPOCH + Duration::from_secs(since_1970_s))
}

fn library() -> PathBuf {
    let folders = std::fs::read_dir(LIBRARIES).into_iter().flatten().filter_map(Result::ok);
    let libraries = folders.map(|folder| folder.path().join("faketime/libfaketimeMT.so.1"));
    let found = libraries.into_iter().find(|library| library.is_file());
    found.unwrap_or_else(|| panic!("no libfaketime in {LIBRARIES}/*/faketime; install faketime (./test --long does)"))
}
