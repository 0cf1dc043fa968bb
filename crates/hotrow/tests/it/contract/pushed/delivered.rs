//! Whether a follower got every commit: between the point at which it began and the next loss, each
//! commit has an event of its key before the stream says that everything up to it was sent. Pure.

use std::collections::HashMap;

use hotrow_verify::history::{History, KeyState, LogInterval};

/// What a follower got, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Entry {
    /// All changes behind this point follow: `begin`, or `reset` with a position.
    Began(u64),
    /// The follower has returned, with what was sent up to this point.
    Returned(u64),
    /// Changes may have been missed.
    Lost,
    Change {
        key: u32,
        at: u64,
    },
    Flush {
        at: u64,
    },
    /// Everything up to this point was sent.
    Covered(u64),
}

/// Commits that a follower should have got.
#[derive(Debug, Default)]
pub(super) struct Delivered {
    /// Commits with their event.
    pub(super) commits: u64,
    /// Keys of commits without one, and their states.
    pub(super) missing: Vec<(u32, KeyState)>,
}

/// Events between a beginning and a loss, each with its number.
#[derive(Default)]
struct Segment {
    begin: u64,
    changes: HashMap<u32, Vec<(usize, u64)>>,
    flushes: Vec<(usize, u64)>,
    /// In order.
    covered: Vec<(usize, u64)>,
}

/// Compares what a follower got with the commits of the keys that it follows.
pub(super) fn delivered(
    entries: &[Entry],
    histories: &[History],
    follows: impl Fn(u32) -> bool,
) -> Delivered {
    let mut delivered = Delivered::default();
    for segment in segments(entries) {
        for (key, history) in histories.iter().enumerate() {
            let key = key as u32;
            if !follows(key) {
                continue;
            }
            for state in history.iter().skip(1) {
                match segment.has(key, state.log) {
                    Some(true) => delivered.commits += 1,
                    Some(false) => delivered.missing.push((key, *state)),
                    None => {}
                }
            }
        }
    }
    delivered
}

fn segments(entries: &[Entry]) -> Vec<Segment> {
    let mut segments = Vec::new();
    let mut segment: Option<Segment> = None;
    for (number, entry) in entries.iter().enumerate() {
        match (*entry, &mut segment) {
            (Entry::Began(begin), _) => {
                segments.extend(segment.replace(Segment { begin, ..Segment::default() }));
            }
            // What was sent up to there stays known.
            (Entry::Returned(_), Some(_)) => {}
            (Entry::Returned(begin), none) => {
                *none = Some(Segment { begin, ..Segment::default() });
            }
            (Entry::Lost, _) => segments.extend(segment.take()),
            (Entry::Change { key, at }, Some(segment)) => {
                segment.changes.entry(key).or_default().push((number, at));
            }
            (Entry::Flush { at }, Some(segment)) => segment.flushes.push((number, at)),
            (Entry::Covered(at), Some(segment)) => segment.covered.push((number, at)),
            (Entry::Change { .. } | Entry::Flush { .. } | Entry::Covered(_), None) => {
                panic!("{entry:?} before a beginning");
            }
        }
    }
    segments.extend(segment);
    segments
}

impl Segment {
    /// Returns whether the commit has its event; `None` if it need not have one.
    fn has(&self, key: u32, log: Option<LogInterval>) -> Option<bool> {
        let LogInterval { from, at } = log?;
        if from <= self.begin {
            return None;
        }
        let first = self.covered.partition_point(|(_, covered)| *covered < at);
        let (last, _) = *self.covered.get(first)?;
        let is_of_it = |(number, position): &(usize, u64)| *number <= last && from <= *position;
        let of_key = self.changes.get(&key).into_iter().flatten();
        Some(of_key.chain(&self.flushes).any(is_of_it))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hotrow_verify::history::WriteOutcome;

    /// Histories of two keys, changed at these places in turn.
    fn histories(places: &[(usize, u64)]) -> Vec<History> {
        let mut histories = vec![History::starting(true), History::starting(true)];
        for (key, at) in places {
            let history = &mut histories[*key];
            history.push(KeyState {
                version: history.next_version(),
                present: true,
                transaction: 0,
                commit_sent_ns: Some(*at),
                outcome: WriteOutcome::Committed { returned_ns: at + 1 },
                log: Some(LogInterval { from: at - 2, at: *at }),
            });
        }
        histories
    }

    /// Returns the number of commits with an event, and the places of those without.
    fn judge(places: &[(usize, u64)], entries: &[Entry]) -> (u64, Vec<u64>) {
        let delivered = delivered(entries, &histories(places), |_| true);
        let at = |(_, state): &(u32, KeyState)| state.log.map_or(0, |log| log.at);
        (delivered.commits, delivered.missing.iter().map(at).collect())
    }

    #[test]
    fn each_commit_has_an_event_before_it_is_covered() {
        use Entry::{Began, Change, Covered, Flush, Lost, Returned};
        let places = [(0, 5), (0, 15), (1, 25), (0, 35)];
        let change = |key, at| Change { key, at };
        let all = [change(0, 14), change(1, 25), Covered(26), change(0, 34), Covered(36)];
        let from = |begin, entries: &[Entry]| [&[Began(begin)], entries].concat();
        assert_eq!(judge(&places, &from(10, &all)), (3, vec![]));
        assert_eq!(judge(&places, &from(14, &all)), (2, vec![]), "begun within the first");
        assert_eq!(judge(&places, &from(10, &all[..3])), (2, vec![]), "not covered yet");
        assert_eq!(judge(&places, &from(10, &all[1..])), (2, vec![15]));
        let late = [Covered(15), change(0, 15), change(1, 25), Covered(26)];
        assert_eq!(judge(&places, &from(10, &late)), (1, vec![15]), "after it was covered");
        let other = [change(1, 15), change(0, 25), Covered(26)];
        assert_eq!(judge(&places, &from(10, &other)), (1, vec![25]), "of the other key");
        let flush = [Flush { at: 30 }, Covered(30)];
        assert_eq!(judge(&places, &from(10, &flush)), (2, vec![]));
        let lost = [change(0, 15), Covered(15), Lost, Began(30), change(0, 35), Covered(36)];
        assert_eq!(judge(&places, &from(10, &lost)), (2, vec![]), "one is in the gap");
        let back = [change(0, 15), Covered(16), Returned(16), change(1, 25), Covered(26)];
        assert_eq!(judge(&places, &from(10, &back)), (2, vec![]));
        let skipped = [change(0, 15), Covered(16), Returned(16), Covered(26)];
        assert_eq!(judge(&places, &from(10, &skipped)), (1, vec![25]));
        let after_a_loss = [Lost, Returned(20), change(1, 25), Covered(26)];
        assert_eq!(judge(&places, &from(10, &after_a_loss)), (1, vec![]));
    }
}
