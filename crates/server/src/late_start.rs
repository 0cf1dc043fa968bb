//! Feeds whose start takes long. What holds an engine up may be silent: a lock that it waits for, a
//! stream that proves nothing. The log names the source, whatever the reason is.

use std::time::Duration;

use hotrow_measure::clock::Nanos;

use crate::readiness::FeedState;

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
    /// Takes the states of all feeds at `now`, and returns the sources to report: each once per
    /// start.
    pub(crate) fn late(
        &mut self,
        states: impl IntoIterator<Item = FeedState>,
        now: Nanos,
    ) -> Vec<usize> {
        let mut late = Vec::new();
        for (source, state) in states.into_iter().enumerate() {
            if source == self.starts.len() {
                self.starts.push(Start::NotUnderWay);
            }
            let start = &mut self.starts[source];
            *start = match (state == FeedState::Starting, *start) {
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
        use FeedState::{Behind, CaughtUp, None, Starting};
        let mut starts = LateStarts::default();
        let mut late = |seconds: u64, states: [FeedState; 3]| {
            starts.late(states, Nanos(seconds * 1_000_000_000))
        };
        assert!(late(1, [Starting, Starting, None]).is_empty());
        assert!(late(30, [Starting, CaughtUp, None]).is_empty());
        assert_eq!(late(31, [Starting, Behind, None]), [0]);
        assert!(late(99, [Starting, Starting, None]).is_empty());
        assert_eq!(late(129, [CaughtUp, Starting, None]), [1]);
        assert!(late(130, [Starting, Starting, None]).is_empty());
        assert_eq!(late(160, [Starting, Starting, None]), [0], "another start");
    }
}
