//! Feeds whose start takes long. What holds an engine up may be silent: a lock that it waits for, a
//! stream that proves nothing. The log names the source, whatever the reason is.

use std::time::Duration;

use hotrow_measure::clock::Nanos;

/// Time without a passed probe after which a feed is reported.
const REPORTED_AFTER: Duration = Duration::from_secs(30);

/// Starts under way, by source.
#[derive(Debug, Default)]
pub(crate) struct LateStarts {
    starts: Vec<Start>,
}

#[derive(Clone, Copy, Debug, Default)]
enum Start {
    #[default]
    NotUnderWay,
    Since(Nanos),
    Reported,
}

impl LateStarts {
    /// Takes whether each source's feed is starting at `now`, and returns the sources to report:
    /// each once per start.
    pub(crate) fn late(
        &mut self,
        are_starting: impl IntoIterator<Item = bool>,
        now: Nanos,
    ) -> Vec<usize> {
        let mut late = Vec::new();
        for (source, is_starting) in are_starting.into_iter().enumerate() {
            if source == self.starts.len() {
                self.starts.push(Start::NotUnderWay);
            }
            let start = &mut self.starts[source];
            *start = match (is_starting, *start) {
                (false, _) => Start::NotUnderWay,
                (true, Start::NotUnderWay) => Start::Since(now),
                (true, Start::Since(since)) if now.since(since) >= REPORTED_AFTER => {
                    late.push(source);
                    Start::Reported
                }
                (true, start) => start,
            };
        }
        late
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_start_is_reported_once_when_it_takes_long() {
        let mut starts = LateStarts::default();
        let mut late = |seconds: u64, are_starting: [bool; 2]| {
            starts.late(are_starting, Nanos(seconds * 1_000_000_000))
        };
        assert!(late(1, [true, true]).is_empty());
        assert!(late(30, [true, false]).is_empty());
        assert_eq!(late(31, [true, false]), [0]);
        assert!(late(99, [true, true]).is_empty());
        assert_eq!(late(129, [false, true]), [1]);
        assert!(late(130, [true, true]).is_empty());
        assert_eq!(late(160, [true, true]), [0], "another start");
    }
}
