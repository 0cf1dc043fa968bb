//! What a run is about, on standard error: one line that changes on a terminal, or a line per measurement.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use hotrow_lab::results::Measurement;
use hotrow_lab::run::Progress;

/// Goes back to the beginning of the line and clears it.
const CLEAR: &str = "\r\x1b[2K";

/// Tells how a run goes.
pub(super) struct Watch {
    /// One line that changes.
    line: bool,
    /// A line per measurement.
    verbose: bool,
    /// Nothing at all.
    quiet: bool,
    began: Instant,
    /// Measurements that an earlier run had made, when this one goes on.
    before: Option<usize>,
    left: String,
}

impl Watch {
    pub(super) fn new(quiet: bool, verbose: bool) -> Self {
        let line = !quiet && !verbose && std::io::stderr().is_terminal();
        Self { line, verbose, quiet, began: Instant::now(), before: None, left: String::new() }
    }

    pub(super) fn told(&mut self, progress: &Progress<'_>) {
        match progress {
            Progress::Starting { setup, round } => self.show(&format!("round {}: starting {setup}", round + 1)),
            Progress::Measuring { row, round } => self.show(&format!("round {}: measuring {row}", round + 1)),
            Progress::Measured { measurement, done, planned } => {
                let before = *self.before.get_or_insert(done - 1);
                self.left = left(self.began.elapsed(), done - before, planned - done);
                if self.verbose {
                    put(&format!("{done} of {planned}  {}{}\n", measured(measurement), self.left));
                } else if let Some(why) = measurement.failed.as_ref().filter(|_| !self.quiet) {
                    // What fails is told at once: the user may want to mend it rather than to wait.
                    self.clear();
                    put(&format!("hotrow lab: {} failed in round {}: {why}\n", measurement.row, measurement.round + 1));
                }
            }
        }
    }

    fn show(&self, words: &str) {
        if self.line {
            put(&format!("{CLEAR}{words}{}", self.left));
        }
    }

    /// Leaves an empty line behind.
    pub(super) fn clear(&self) {
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

/// The time that is left when the rest goes on as it went until now.
fn left(elapsed: Duration, done: usize, to_do: usize) -> String {
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

/// Nobody may be listening.
fn put(text: &str) {
    let mut out = std::io::stderr();
    let _ = out.write_all(text.as_bytes());
    let _ = out.flush();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_left_follows_from_the_time_taken() {
        let left = |elapsed_s, done, to_do| left(Duration::from_secs(elapsed_s), done, to_do);
        assert_eq!(left(10, 2, 3), "  (15 s left)");
        assert_eq!(left(100, 10, 30), "  (5 min left)");
        assert_eq!(left(100, 1, 100), "  (2 h 46 min left)");
        assert_eq!(left(10, 0, 3) + &left(10, 3, 0), "");
    }
}
