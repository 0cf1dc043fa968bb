//! Progress of a run on standard error: its estimated duration, then a bar with the remaining time
//! on a terminal, or else a line per measurement.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use hotrow_lab::run::Progress;
use hotrow_lab::run::extent::RunExtent;
use hotrow_results::Measurement;

/// Returns to the beginning of the line and clears it.
const CLEAR: &str = "\r\x1b[2K";

/// Length of the bar, in characters.
const BAR_CHARS: usize = 20;
/// Assumed width of a terminal that does not report its own.
const COLUMNS_DEFAULT: usize = 80;

pub(crate) struct ProgressDisplay {
    /// One line changes in place.
    line: bool,
    /// Each measurement gets a line.
    lines: bool,
    /// Nothing is shown.
    quiet: bool,
    began: Instant,
    /// Measurements of the earlier part of a resumed run.
    before: usize,
    /// Measurements so far, and all.
    done: usize,
    planned: usize,
    left: Duration,
}

impl ProgressDisplay {
    pub(crate) fn new(quiet: bool, verbose: bool) -> Self {
        let line = !quiet && !verbose && std::io::stderr().is_terminal();
        Self {
            line,
            lines: !quiet && !line,
            quiet,
            began: Instant::now(),
            before: 0,
            done: 0,
            planned: 0,
            left: Duration::ZERO,
        }
    }

    pub(crate) fn show_progress(&mut self, progress: &Progress<'_>) {
        match progress {
            Progress::Begun(extent) => {
                self.began = Instant::now();
                self.left = extent.estimate;
                self.planned = extent.measurements;
                if !self.quiet {
                    put(&format!("{}\n", begun(extent)));
                }
            }
            Progress::Starting { deployment, round } => {
                self.show(&format!("round {}: starting {deployment}", round + 1))
            }
            Progress::Measuring { row, round } => {
                self.show(&format!("round {}: measuring {row}", round + 1))
            }
            Progress::Measured { measurement, done, planned } => {
                self.measured(measurement, *done, *planned)
            }
        }
    }

    fn measured(&mut self, measurement: &Measurement, done: usize, planned: usize) {
        if self.done == 0 {
            self.before = done - 1;
        }
        (self.done, self.planned) = (done, planned);
        self.left = left(self.began.elapsed(), done - self.before, planned - done);
        if self.lines {
            let left = if planned > done {
                format!("  ({})", time_left(self.left))
            } else {
                String::new()
            };
            put(&format!("{done} of {planned}  {}{left}\n", measured(measurement)));
        } else if let Some(why) = measurement.failed.as_ref().filter(|_| !self.quiet) {
            // Failures are shown at once, so that the user can interrupt and correct the cause.
            self.clear();
            put(&format!(
                "hotrow-lab: {} failed in round {}: {why}\n",
                measurement.row,
                measurement.round + 1
            ));
        }
    }

    fn show(&self, words: &str) {
        if self.line {
            // The clock runs while a measurement does.
            let line = bar_line(self.done, self.planned, self.left, words, columns());
            put(&format!("{CLEAR}{line}"));
        }
    }

    /// Leaves an empty line.
    pub(crate) fn clear(&self) {
        if self.line {
            put(CLEAR);
        }
    }
}

/// Returns the width of the terminal, in characters.
fn columns() -> usize {
    let size = rustix::termios::tcgetwinsize(std::io::stderr()).ok();
    size.map(|size| usize::from(size.ws_col)).filter(|n| *n > 0).unwrap_or(COLUMNS_DEFAULT)
}

/// Describes a run before it starts.
fn begun(extent: &RunExtent) -> String {
    let measurements = match extent.measurements {
        1 => "1 measurement".to_owned(),
        n => format!("{n} measurements"),
    };
    format!("{measurements}, {}: about {}", extent.words, time(extent.estimate))
}

/// Returns the changing line, with a bar and the remaining time, cut to the width of the terminal.
fn bar_line(done: usize, planned: usize, left: Duration, words: &str, columns: usize) -> String {
    let full = (done * BAR_CHARS).checked_div(planned).unwrap_or(0).min(BAR_CHARS);
    let bar = format!("[{}{}]", "#".repeat(full), ".".repeat(BAR_CHARS - full));
    let line = format!("{bar} {done} of {planned}  {}  {words}", time_left(left));
    // A line that reaches the last column would wrap, and could not be cleared.
    line.chars().take(columns.saturating_sub(1)).collect()
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
fn left(elapsed: Duration, done: usize, to_do: usize) -> Duration {
    let seconds = elapsed.as_secs_f64() / done.max(1) as f64 * to_do as f64;
    Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
}

fn time_left(left: Duration) -> String {
    format!("{} left", time(left))
}

/// Formats a time in words, rounded.
fn time(time: Duration) -> String {
    let seconds = time.as_secs_f64().round() as u64;
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min", seconds.div_ceil(60)),
        _ => format!("{} h {} min", seconds / 3600, seconds / 60 % 60),
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
            |elapsed_s, done, to_do| time_left(left(Duration::from_secs(elapsed_s), done, to_do));
        assert_eq!(remaining(10, 2, 3), "15 s left");
        assert_eq!(remaining(100, 10, 30), "5 min left");
        assert_eq!(remaining(100, 1, 100), "2 h 46 min left");
        assert_eq!(remaining(10, 0, 3), "30 s left");
    }

    #[test]
    fn a_run_is_described_before_it_starts() {
        let extent = RunExtent {
            measurements: 60,
            words: "5 rounds of 3 s".to_owned(),
            estimate: Duration::from_secs(228),
        };
        assert_eq!(begun(&extent), "60 measurements, 5 rounds of 3 s: about 4 min");
    }

    #[test]
    fn the_bar_grows_and_fits_the_terminal() {
        let line = |done, columns| {
            bar_line(done, 60, Duration::from_secs(90), "round 2: measuring a/b/6", columns)
        };
        assert_eq!(
            line(15, 200),
            "[#####...............] 15 of 60  2 min left  round 2: measuring a/b/6"
        );
        assert!(line(0, 200).starts_with("[....................] 0 of 60"));
        assert!(line(60, 200).starts_with("[####################] 60 of 60"));
        assert_eq!(line(15, 40).chars().count(), 39);
        assert!(bar_line(0, 0, Duration::ZERO, "", 80).starts_with("[...."));
    }
}
