//! Latencies in HdrHistogram formats: the interval log (V2, compressed), and the percentile text.
//!
//! Our buckets become values of a histogram with three significant digits: each sample at the upper
//! end of its bucket (at most the largest sample), so that no percentile decreases. The format has
//! no lower bounds: requests without the expected answer are included behind all answers of their
//! second (see `Timing::lower_bounds`), once more with `Tag=unbounded`, and a comment states their
//! number.

use std::fmt::Write;
use std::time::SystemTime;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hdrhistogram::serialization::{Serializer, V2DeflateSerializer};
use hotrow_load::outcome::{RunEnd, Second};
use hotrow_load::stats::{LoadStats, Timing};
use hotrow_measure::clock::Nanos;
use hotrow_measure::histogram::Histogram;

use super::csv;
use hotrow_cli::output::OutputFile;

/// Significant decimal digits, the common choice for this format.
const DIGITS: u8 = 3;
/// Largest value, in ns: a week of waiting for the send, a week for the response, and a day. Larger
/// values saturate.
const VALUE_NS_MAX: u64 = 15 * 24 * 3600 * 1_000_000_000;
/// The column of maxima is in ms, as in Java's writer.
const MAX_VALUE_DIVISOR: f64 = 1e6;
/// Lines of percentiles per halving of the distance to 100 %; Java's default.
const TICKS_PER_HALF_DISTANCE: u32 = 5;

type Hdr = hdrhistogram::Histogram<u64>;

/// An interval log being written: per second the latency without a tag, which tools read by
/// default, the service time with `Tag=service`, and, where there are any, the latencies that are
/// only lower bounds with `Tag=unbounded`.
#[derive(Debug)]
pub(super) struct HdrLog {
    file: OutputFile,
    /// The wall clock at one moment. It is read once, so that clock steps have no effect.
    wall: (SystemTime, Nanos),
    begun: bool,
    unbounded: u64,
}

impl HdrLog {
    /// `wall` is one moment on both clocks.
    pub(super) fn new(mut file: OutputFile, wall: (SystemTime, Nanos)) -> Self {
        file.write(concat!(
            "#[Logged with hotrow load ",
            env!("CARGO_PKG_VERSION"),
            "; values in ns]\n#[Histogram log format version 1.2]\n"
        ));
        Self { file, wall, begun: false, unbounded: 0 }
    }

    pub(super) fn second(&mut self, second: &Second, record: &LoadStats) {
        let mut text = String::new();
        if !self.begun {
            self.begun = true;
            text = self.times(second);
        }
        self.unbounded += record.latency.unbounded_count();
        let mut all = vec![
            ("", record.latency.lower_bounds()),
            ("Tag=service,", record.service.lower_bounds()),
        ];
        let unbounded = record.latency.unbounded.as_deref();
        all.extend(unbounded.map(|unbounded| ("Tag=unbounded,", unbounded.clone())));
        for (tag, durations) in all {
            let histogram = hdr(&durations);
            let max = histogram.max() as f64 / MAX_VALUE_DIVISOR;
            let start_s = second.index;
            let length_s = second.length.as_secs_f64();
            let mut bytes = Vec::new();
            // It fails only when a vector cannot be written, or counts exceed a u64.
            match V2DeflateSerializer::new().serialize(&histogram, &mut bytes) {
                // Writing to a string cannot fail.
                Ok(_) => {
                    let encoded = STANDARD.encode(bytes);
                    let _ = writeln!(text, "{tag}{start_s}.000,{length_s:.3},{max:.3},{encoded}");
                }
                Err(e) => {
                    let _ = writeln!(text, "#[second {start_s} could not be encoded: {e}]");
                }
            }
        }
        self.file.write(&text);
    }

    /// Records how the run ended.
    pub(super) fn end(mut self, end: RunEnd) -> OutputFile {
        if self.unbounded > 0 {
            self.file.write(&format!(
                "#[{} requests had no expected answer: lower bounds, also with Tag=unbounded]\n",
                self.unbounded
            ));
        }
        self.file.write(&format!("#[End: {}]\n", csv::name(end)));
        self.file
    }

    /// Returns the start time and the column names. Interval times are seconds since then.
    fn times(&self, first: &Second) -> String {
        let (wall, at) = self.wall;
        let began = wall + first.began.since(at);
        let epoch_s =
            began.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs_f64();
        format!(
            "#[StartTime: {epoch_s:.3} (seconds since epoch)]\n\
             #[BaseTime: {epoch_s:.3} (seconds since epoch)]\n\
             \"StartTimestamp\",\"Interval_Length\",\"Interval_Max\",\
             \"Interval_Compressed_Histogram\"\n"
        )
    }
}

/// Formats the percentiles of all latencies as HdrHistogram does, in ms, for its plotter.
pub(super) fn percentiles(timing: &Timing) -> String {
    let histogram = hdr(&timing.lower_bounds());
    let ms = |ns: f64| ns / 1e6;
    let mut out = format!(
        "{:>12} {:>14} {:>10} {:>14}\n\n",
        "Value", "Percentile", "TotalCount", "1/(1-Percentile)"
    );
    let mut seen = 0;
    for step in histogram.iter_quantiles(TICKS_PER_HALF_DISTANCE) {
        seen += step.count_since_last_iteration();
        let value = ms(step.value_iterated_to() as f64);
        let quantile = step.quantile_iterated_to();
        // Writing to a string cannot fail.
        let _ = match quantile < 1.0 {
            true => writeln!(
                out,
                "{value:>12.3} {quantile:>2.12} {seen:>10} {:>14.2}",
                1.0 / (1.0 - quantile)
            ),
            false => writeln!(out, "{value:>12.3} {quantile:>2.12} {seen:>10}"),
        };
    }
    let mean = ms(histogram.mean());
    let deviation = ms(histogram.stdev());
    let max = ms(histogram.max() as f64);
    let _ = write!(
        out,
        "#[Mean    = {mean:>12.3}, StdDeviation   = {deviation:>12.3}]\n\
         #[Max     = {max:>12.3}, Total count    = {:>12}]\n\
         #[Buckets = {:>12}, SubBuckets     = {:>12}]\n",
        histogram.len(),
        histogram.buckets(),
        2048
    );
    out
}

/// Converts to the other layout.
#[expect(clippy::expect_used, reason = "constants")]
fn hdr(durations: &Histogram) -> Hdr {
    let mut hdr = Hdr::new_with_bounds(1, VALUE_NS_MAX, DIGITS)
        .expect("bounds that the library allows: see the test");
    for bucket in durations.iter() {
        hdr.saturating_record_n(bucket.high.min(durations.max()), bucket.count);
    }
    hdr
}

#[cfg(test)]
mod tests;
