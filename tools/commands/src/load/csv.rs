//! The seconds of a run as CSV (RFC 4180): one line per second, with units in the column names.

use hotrow_load::outcome::{RunEnd, Second};
use hotrow_load::stats::CensoredNs;

use hotrow_cli::output::OutputFile;

/// The header. Only the last line has a value in `end`: how the run ended.
const COLUMNS: &str = "second,length_s,scheduled,unsent,sent,ok,errors,timeouts,connect_errors,\
    throughput_rps,latency_p50_us,latency_p90_us,latency_p99_us,latency_max_us,\
    schedule_lag_p99_us,end\r\n";

#[derive(Debug)]
pub(super) struct Csv {
    file: OutputFile,
    /// The last second, held back until it is known whether it is the final one.
    last: Option<Second>,
}

impl Csv {
    pub(super) fn new(mut file: OutputFile) -> Self {
        file.write(COLUMNS);
        Self { file, last: None }
    }

    pub(super) fn second(&mut self, second: &Second) {
        if let Some(before) = self.last.replace(second.clone()) {
            self.file.write(&line(&before, ""));
        }
    }

    pub(super) fn end(mut self, end: RunEnd) -> OutputFile {
        if let Some(last) = self.last.take() {
            self.file.write(&line(&last, name(end)));
        }
        self.file
    }
}

/// Returns the machine-readable name of a run's end.
pub(super) fn name(end: RunEnd) -> &'static str {
    match end {
        RunEnd::Complete => "complete",
        RunEnd::Interrupted => "interrupted",
        RunEnd::TargetUnreachable => "target_unreachable",
        RunEnd::StoppedAnswering { .. } => "stopped_answering",
    }
}

fn line(second: &Second, end: &str) -> String {
    let length_s = second.length.as_secs_f64();
    let throughput_rps = if length_s > 0.0 { second.ok as f64 / length_s } else { 0.0 };
    let Second {
        index,
        scheduled,
        unsent,
        sent,
        ok,
        errors,
        timeouts,
        connect_errors,
        latency,
        ..
    } = second;
    let [p50, p90, p99, max] = [latency.p50, latency.p90, latency.p99, latency.max].map(micros);
    let lag = micros(second.schedule_lag_p99_ns.map(CensoredNs::Exact));
    format!(
        "{index},{length_s:.6},{scheduled},{unsent},{sent},{ok},{errors},{timeouts},\
         {connect_errors},\
         {throughput_rps:.3},{p50},{p90},{p99},{max},{lag},{end}\r\n"
    )
}

/// Formats µs: empty without samples; `>x` for a lower bound among requests without the
/// expected answer.
fn micros(known: Option<CensoredNs>) -> String {
    match known {
        None => String::new(),
        Some(CensoredNs::Exact(ns)) => format!("{:.3}", ns as f64 / 1e3),
        Some(CensoredNs::AtLeast(ns)) => format!(">{:.3}", ns as f64 / 1e3),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use hotrow_load::stats::LoadStats;
    use hotrow_measure::clock::Nanos;

    use super::*;

    #[test]
    fn each_second_is_a_line_and_the_last_has_the_end() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.csv");
        let mut csv = Csv::new(OutputFile::create(&path).unwrap());
        let mut record = LoadStats::default();
        (record.counts.scheduled, record.counts.sent, record.counts.ok, record.counts.timeouts) =
            (6, 6, 4, 1);
        record.latency.answered.record(40_000);
        csv.second(&Second::of(0, Nanos(5), Duration::from_secs(1), &record));
        record.latency.record_unbounded(2_000_000, 3);
        csv.second(&Second::of(1, Nanos(5), Duration::from_millis(500), &record));
        csv.end(RunEnd::Interrupted).finish().unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        let lines: Vec<&str> = text.split_terminator("\r\n").collect();
        assert_eq!(lines.len(), 3, "{text}");
        assert_eq!(lines[0].split(',').count(), 16);
        assert_eq!(lines[1], "0,1.000000,6,0,6,4,0,1,0,4.000,40.000,40.000,40.000,40.000,,");
        assert_eq!(
            lines[2],
            "1,0.500000,6,0,6,4,0,1,0,8.000,>2000.000,>2000.000,>2000.000,>2000.000,,interrupted"
        );
    }
}
