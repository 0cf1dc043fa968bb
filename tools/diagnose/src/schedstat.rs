//! Run-queue waits of threads: `/proc/PID/task/TID/schedstat`.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Scheduler counters of one thread since it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Schedstat {
    /// Time on a CPU.
    pub running: Duration,
    /// Time on the run queue.
    pub waiting: Duration,
    /// Number of times it was scheduled.
    pub slices: u64,
}

/// Reasons for missing counters.
#[derive(Debug, thiserror::Error)]
pub enum SchedstatError {
    /// The file cannot be read; kernels without CONFIG_SCHED_INFO lack it.
    #[error("{path} cannot be read: {error}")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// It does not contain three numbers.
    #[error("{path} should hold three numbers, but is {text:?}")]
    Unexpected {
        /// The file.
        path: PathBuf,
        /// Its content.
        text: String,
    },
}

/// Reads the counters of a thread of this process. `proc` is `/proc`, or a copy of it in a test.
///
/// # Errors
/// Fails when the file cannot be read or parsed.
pub fn of_thread(proc: &Path, tid: i32) -> Result<Schedstat, SchedstatError> {
    let path = proc.join(format!("self/task/{tid}/schedstat"));
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) => return Err(SchedstatError::Unreadable { path, error }),
    };
    parse(&text).ok_or(SchedstatError::Unexpected { path, text })
}

/// Parses nanoseconds running, nanoseconds waiting, and the number of slices.
fn parse(text: &str) -> Option<Schedstat> {
    let mut numbers = text.split_ascii_whitespace().map(|word| word.parse::<u64>().ok());
    let (running, waiting, slices) = (numbers.next()??, numbers.next()??, numbers.next()??);
    Some(Schedstat {
        running: Duration::from_nanos(running),
        waiting: Duration::from_nanos(waiting),
        slices,
    })
}

impl Schedstat {
    /// Returns the increase since `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            running: self.running.saturating_sub(earlier.running),
            waiting: self.waiting.saturating_sub(earlier.waiting),
            slices: self.slices.saturating_sub(earlier.slices),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A copy of `/proc` with one file.
    fn fixture(text: &str) -> tempfile::TempDir {
        let proc = tempfile::tempdir().unwrap();
        let task = proc.path().join("self/task/7");
        std::fs::create_dir_all(&task).unwrap();
        std::fs::write(task.join("schedstat"), text).unwrap();
        proc
    }

    #[test]
    fn three_numbers_are_read() {
        let stat = of_thread(fixture("12345678 42 9\n").path(), 7).unwrap();
        let expected = Schedstat {
            running: Duration::from_nanos(12_345_678),
            waiting: Duration::from_nanos(42),
            slices: 9,
        };
        assert_eq!(stat, expected);
        assert_eq!(expected.since(&Schedstat { slices: 4, ..Schedstat::default() }).slices, 5);
        assert_eq!(Schedstat::default().since(&expected), Schedstat::default());
    }

    #[test]
    fn anything_else_is_an_error() {
        for text in ["", "1 2", "1 2 x", "-1 2 3"] {
            let error = of_thread(fixture(text).path(), 7);
            assert!(matches!(error, Err(SchedstatError::Unexpected { .. })), "{text:?}: {error:?}");
        }
        let error = of_thread(fixture("1 2 3").path(), 8).unwrap_err();
        assert!(error.to_string().contains("self/task/8/schedstat cannot be read"), "{error}");
    }

    #[test]
    fn schedstat_is_read_or_reported_missing() {
        let main = std::process::id() as i32;
        match of_thread(Path::new("/proc"), main) {
            Ok(stat) => assert!(stat.running > Duration::ZERO),
            Err(error) => assert!(matches!(error, SchedstatError::Unreadable { .. }), "{error}"),
        }
    }
}
