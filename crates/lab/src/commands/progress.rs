//! Progress of a run on standard error: one changing line on a terminal, or a line per measurement.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use hotrow_lab::results::Measurement;
use hotrow_lab::run::Progress;

/// Returns to the beginning of the line and clears it.
const CLEAR: &str = "\r\x1b[2K";

pub(crate) struct ProgressDisplay {
    /// One line changes in place.
    line: bool,
    /// Each measurement gets a line.
    verbose: bool,
    /// Nothing is shown.
    quiet: bool,
    began: Instant,
    /// Measurements of the earlier part of a resumed run.
    before: Option<usize>,
    remaining: String,
}

impl ProgressDisplay {
    pub(crate) fn new(quiet: bool, verbose: bool) -> Self {
        let line = !quiet && !verbose && std::io::stderr().is_terminal();
        Self { line, verbose, quiet, began: Instant::now(), before: None, remaining: String::new() }
    }

    pub(crate) fn show_progress(&mut self, progress: &Progress<'_>) {
        match progress {
            Progress::Starting { deployment, round } => {
                self.show(&format!("round {}: starting {deployment}", round + 1))
            }
            Progress::Measuring { row, round } => {
                self.show(&format!("round {}: measuring {row}", round + 1))
            }
            Progress::Measured { measurement, done, planned } => {
                let before = *self.before.get_or_insert(done - 1);
                self.remaining = remaining(self.began.elapsed(), done - before, planned - done);
                if self.verbose {
                    put(&format!(
                        "{done} of {planned}  {}{}\n",
                        measured(measurement),
                        self.remaining
                    ));
                } else if let Some(why) = measurement.failed.as_ref().filter(|_| !self.quiet) {
                    // Failures are shown at once, so that the user can interrupt and correct the
                    // cause.
                    self.clear();
                    put(&format!(
                        "hotrow-lab: {} failed in round {}: {why}\n",
                        measurement.row,
                        measurement.round + 1
                    ));
                }
            }
        }
    }

    fn show(&self, words: &str) {
        if self.line {
            put(&format!("{CLEAR}{words}{}", self.remaining));
        }
    }

    /// Leaves an empty line.
    pub(crate) fn clear(&self) {
        if self.line {
            put(CLEAR);
        }
    }
}

fn measured(measurement: &Measurement) -> String {
    let row = format!("{} (round {})", measurement.row, measurement.round + 1);
    match (&measurement.failed, &measurement.load) {
        (Some(why), _) => format!("{row}  FAILED: {why}"),
        (None, Some(load)) => format!("{row}  {:.1} requests/s", load.rps),
        (None, None) => row,
    }
}

/// Estimates the remaining time from the time taken so far.
fn remaining(elapsed: Duration, done: usize, to_do: usize) -> String {
    if done == 0 || to_do == 0 {
        return String::new();
    }
    let left_s = (elapsed.as_secs_f64() / done as f64 * to_do as f64).round() as u64;
    match left_s {
        0..60 => format!("  ({left_s} s left)"),
        60..3600 => format!("  ({} min left)", left_s.div_ceil(60)),
        _ => format!("  ({} h {} min left)", left_s / 3600, left_s / 60 % 60),
    }
}

/// Writes to standard error, which may be closed.
fn put(text: &str) {
    let mut out = std::io::stderr();
    let _ = out.write_all(text.as_bytes());
    let _ = out.flush();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_remaining_time_follows_from_the_time_taken() {
        let remaining =
            |elapsed_s, done, to_do| remaining(Duration::from_secs(elapsed_s), done, to_do);
        assert_eq!(remaining(10, 2, 3), "  (15 s left)");
        assert_eq!(remaining(100, 10, 30), "  (5 min left)");
        assert_eq!(remaining(100, 1, 100), "  (2 h 46 min left)");
        assert_eq!(remaining(10, 0, 3) + &remaining(10, 3, 0), "");
    }
}
