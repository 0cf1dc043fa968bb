use std::path::Path;
use std::time::Duration;

use hdrhistogram::serialization::Deserializer;
use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry};

use super::*;

/// A second with `n` responses from 1 ms on, and `timed_out` requests without one for 700 ms.
fn record(n: u64, timed_out: u64) -> LoadStats {
    let mut record = LoadStats::default();
    for i in 0..n {
        record.latency.answered.record(1_000_000 + i * 10_000);
        record.service.answered.record(500_000 + i * 10_000);
    }
    record.latency.record_unbounded(700_000_000, timed_out);
    record
}

fn written(path: &Path, seconds: &[(LoadStats, u64)], end: RunEnd) -> LoadStats {
    let began = Nanos::now();
    let mut log = HdrLog::new(OutputFile::create(path).unwrap(), (SystemTime::now(), began));
    let mut sum = LoadStats::default();
    for (index, (record, length_ms)) in seconds.iter().enumerate() {
        let second = Second::of(index as u64, began, Duration::from_millis(*length_ms), record);
        log.second(&second, record);
        sum.merge(record);
    }
    log.end(end).finish().unwrap();
    sum
}

/// The format's own reader finds the intervals, and their sum is the total.
#[test]
fn the_log_reads_back_and_adds_up() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.hlog");
    let seconds = [(record(500, 0), 1000), (record(0, 0), 1000), (record(90, 10), 250)];
    let sum = written(&path, &seconds, RunEnd::Interrupted);
    let text = std::fs::read(&path).unwrap();
    let mut latency = hdr(&Histogram::default());
    let mut service = hdr(&Histogram::default());
    let mut starts = Vec::new();
    let (mut times, mut unbounded) = (0, 0);
    for entry in IntervalLogIterator::new(&text) {
        match entry.expect("a line of the format") {
            LogEntry::StartTime(at) | LogEntry::BaseTime(at) => {
                times += 1;
                assert!(
                    SystemTime::now()
                        .duration_since(SystemTime::UNIX_EPOCH + at)
                        .unwrap()
                        .as_secs()
                        < 60
                );
            }
            LogEntry::Interval(interval) => {
                let bytes = STANDARD.decode(interval.encoded_histogram()).unwrap();
                let histogram: Hdr =
                    Deserializer::new().deserialize(&mut bytes.as_slice()).unwrap();
                assert!(
                    (interval.max() - histogram.max() as f64 / 1e6).abs()
                        <= histogram.max() as f64 / 1e8
                );
                match interval.tag().as_deref() {
                    None => {
                        starts.push((
                            interval.start_timestamp().as_millis(),
                            interval.duration().as_millis(),
                        ));
                        latency.add(&histogram).unwrap();
                    }
                    Some("service") => service.add(&histogram).unwrap(),
                    Some(tag) => {
                        assert_eq!((tag, interval.start_timestamp().as_secs()), ("unbounded", 2));
                        unbounded += histogram.len();
                    }
                }
            }
        }
    }
    assert_eq!((times, starts), (2, vec![(0, 1000), (1000, 1000), (2000, 250)]));
    assert_eq!((latency.len(), service.len(), unbounded), (600, 590, 10));
    assert_eq!((latency.len(), service.len()), (sum.latency.count(), sum.service.count()));
    // No assert_eq: it would print every bucket.
    let whole = |of: fn(&LoadStats) -> &Timing| {
        let mut whole = hdr(&Histogram::default());
        seconds.iter().for_each(|(record, _)| whole.add(hdr(&of(record).lower_bounds())).unwrap());
        whole
    };
    assert!(
        latency == whole(|r| &r.latency) && service == whole(|r| &r.service),
        "each interval comes back as it was"
    );
    let text = String::from_utf8(text).unwrap();
    assert!(
        text.contains("#[10 requests had no expected answer")
            && text.ends_with("#[End: interrupted]\n"),
        "{text}"
    );
}

/// Percentiles differ by at most both layouts' rounding, and never decrease.
#[test]
fn percentiles_never_decrease() {
    let record = record(3000, 30);
    let ours = record.latency.lower_bounds();
    let theirs = hdr(&ours);
    for quantile in [0.001, 0.1, 0.5, 0.9, 0.99, 0.999, 1.0] {
        let theirs = theirs.value_at_quantile(quantile);
        let ours = ours.value_at_quantile(quantile).unwrap();
        assert!(
            theirs >= ours && theirs as f64 <= ours as f64 * 1.002,
            "{quantile}: {theirs} {ours}"
        );
    }
    let mut longest = Histogram::default();
    longest.record(u64::MAX);
    longest.record(0);
    assert_eq!(hdr(&longest).len(), 2);
}

#[test]
fn percentiles_are_the_text_that_plotters_read() {
    let text = percentiles(&record(3000, 30).latency);
    let mut lines = text.lines();
    assert_eq!(lines.next().unwrap().split_whitespace().next(), Some("Value"));
    assert_eq!(lines.next(), Some(""));
    let (numbers, comments): (Vec<&str>, Vec<&str>) =
        lines.partition(|line| !line.starts_with('#'));
    assert_eq!(comments.len(), 3, "{text}");
    let rows: Vec<Vec<f64>> = numbers
        .iter()
        .map(|line| line.split_whitespace().map(|word| word.parse().unwrap()).collect())
        .collect();
    assert!(
        rows.len() > 20
            && rows
                .windows(2)
                .all(|w| w[0][0] <= w[1][0] && w[0][1] <= w[1][1] && w[0][2] <= w[1][2])
    );
    let last = rows.last().unwrap();
    assert_eq!((last.len(), last[1], last[2]), (3, 1.0, 3030.0));
    assert!((last[0] - 700.0).abs() < 1.0, "{last:?}");
}
