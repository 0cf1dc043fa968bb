//! Standbys: what one has to prove with each read, and how they are counted.
//!
//! A standby replays the log of the primary, and answers reads. One read is three statements of one
//! session, each in a snapshot of its own: what it has replayed, the rows, and its state. In any
//! other order, or in one snapshot, the first would say more than the rows show.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::row::Row;

/// Answer of a standby that proved it.
#[derive(Debug)]
pub struct StandbyRead {
    /// One row per requested key, in the same order.
    pub rows: Vec<Row>,
    /// What the rows saw.
    pub seen: SeenRange,
}

/// What the rows of a standby saw, as points of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeenRange {
    /// Everything up to here.
    pub from: u64,
    /// A feed that has delivered anything past this point has delivered everything that they saw.
    pub past: u64,
    /// Nothing past this point.
    pub end: u64,
}

/// State of a standby, asked for after the rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateAfter {
    /// Whether it replays the log of another server. Otherwise it was promoted.
    pub is_in_recovery: bool,
    /// Timeline of the log that it receives; `None`: it receives none.
    pub timeline: Option<u32>,
    /// Point up to which it had replayed the log.
    pub replayed: u64,
    /// Point up to which it had received the log.
    pub received: u64,
}

/// Judges a read of a standby. `replayed` was asked for before the rows, `after` after them.
/// `header_bytes_max` is the most that may lie between the end of a record and the start of the
/// next one.
///
/// The state is asked for last, because only then does it cover the rows: a standby that replays
/// the feed's timeline now has replayed nothing else, for it cannot leave a timeline that it has
/// followed past the fork.
///
/// # Errors
/// The reason for which the rows must not be used.
pub fn judge(
    floor: u64,
    replayed: u64,
    after: &StateAfter,
    timeline: u32,
    header_bytes_max: u64,
) -> Result<SeenRange, StandbyRefusal> {
    if replayed < floor {
        return Err(StandbyRefusal::Behind);
    }
    if !after.is_in_recovery {
        return Err(StandbyRefusal::Promoted);
    }
    match after.timeline {
        None => Err(StandbyRefusal::NotStreaming),
        Some(other) if other != timeline => Err(StandbyRefusal::OtherTimeline),
        // The commit that is being replayed may be visible before its end is reported. It is the
        // next record: it has been received, and a feed that is past the headers before it has
        // delivered it.
        Some(_) => Ok(SeenRange {
            from: replayed,
            past: after.replayed.saturating_add(header_bytes_max),
            end: after.replayed.max(after.received),
        }),
    }
}

/// Reason for which a standby did not answer a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StandbyRefusal {
    /// No standby can be reached, or each failed shortly before.
    Unreachable,
    /// All connections are in use.
    Busy,
    /// It has not replayed what the read needs.
    Behind,
    /// It receives no log.
    NotStreaming,
    /// It receives the log of another timeline than the feed's.
    OtherTimeline,
    /// It is a primary.
    Promoted,
    /// The query was cancelled because it was in the way of the replay.
    Conflict,
    /// It did not answer in time.
    Timeout,
    /// Any other error of the query, for example because the table has another shape there.
    Failed,
    /// The feed did not deliver in time what the rows may show.
    FeedBehind,
    /// The data of a key cannot be read ([`crate::SourceError::Data`]); it says nothing about the
    /// standby.
    Data,
}

impl StandbyRefusal {
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; 11] = [
        Self::Unreachable,
        Self::Busy,
        Self::Behind,
        Self::NotStreaming,
        Self::OtherTimeline,
        Self::Promoted,
        Self::Conflict,
        Self::Timeout,
        Self::Failed,
        Self::FeedBehind,
        Self::Data,
    ];

    /// Returns its name in metrics.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::Unreachable => "unreachable",
            Self::Busy => "busy",
            Self::Behind => "behind",
            Self::NotStreaming => "not_streaming",
            Self::OtherTimeline => "other_timeline",
            Self::Promoted => "promoted",
            Self::Conflict => "conflict",
            Self::Timeout => "timeout",
            Self::Failed => "failed",
            Self::FeedBehind => "feed_behind",
            Self::Data => "data",
        }
    }
}

/// Counters of reads that standbys did not answer, by reason.
#[derive(Debug, Default)]
pub struct RefusalCounts([AtomicU64; StandbyRefusal::ALL.len()]);

impl RefusalCounts {
    /// Counts one.
    pub fn count(&self, refusal: StandbyRefusal) {
        self.0[refusal as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Returns all, with the label of each.
    pub fn totals(&self) -> [(&'static str, u64); StandbyRefusal::ALL.len()] {
        StandbyRefusal::ALL
            .map(|refusal| (refusal.label(), self.0[refusal as usize].load(Ordering::Relaxed)))
    }
}

/// One standby as metrics and `/status` show it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StandbyView {
    /// Host and port.
    pub name: String,
    /// Queries that it answered.
    pub reads_total: u64,
    /// Bytes of log by which it was behind what the last read asked of it or behind the feed;
    /// `None` before the first answer.
    pub lag_bytes: Option<u64>,
    /// Reason for which it is not asked now.
    pub trouble: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATE: StateAfter =
        StateAfter { is_in_recovery: true, timeline: Some(3), replayed: 120, received: 150 };

    #[test]
    fn a_standby_that_has_replayed_enough_of_the_right_log_answers() {
        let seen = judge(100, 100, &STATE, 3, 40).unwrap();
        assert_eq!(seen, SeenRange { from: 100, past: 160, end: 150 });
    }

    #[test]
    fn every_other_state_is_refused() {
        let with = |change: fn(&mut StateAfter)| {
            let mut state = STATE;
            change(&mut state);
            judge(100, 100, &state, 3, 40).unwrap_err()
        };
        assert_eq!(judge(101, 100, &STATE, 3, 40), Err(StandbyRefusal::Behind));
        assert_eq!(with(|state| state.is_in_recovery = false), StandbyRefusal::Promoted);
        assert_eq!(with(|state| state.timeline = None), StandbyRefusal::NotStreaming);
        assert_eq!(with(|state| state.timeline = Some(2)), StandbyRefusal::OtherTimeline);
        assert_eq!(with(|state| state.timeline = Some(4)), StandbyRefusal::OtherTimeline);
    }

    #[test]
    fn refusals_are_counted_by_reason() {
        let counts = RefusalCounts::default();
        counts.count(StandbyRefusal::Conflict);
        let counted: Vec<_> = counts.totals().into_iter().filter(|(_, n)| *n > 0).collect();
        assert_eq!(counted, [("conflict", 1)]);
        assert!(StandbyRefusal::ALL.iter().enumerate().all(|(i, refusal)| *refusal as usize == i));
    }
}
