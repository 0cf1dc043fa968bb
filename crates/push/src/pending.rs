//! Changes that the feed has delivered and that are not proven visible, in the order of the log.

use std::collections::VecDeque;

use hotrow_types::key::{CollectionId, Key};
use hotrow_types::version::{ChangeId, Position, Version};

/// Memory of one change besides the bytes of its key.
pub(crate) const CHANGE_OVERHEAD_BYTES: usize = 32;
/// Most commits that are remembered one by one while changes are dropped. Of more, the last one is,
/// and a transaction that was open before it must end.
const CEILINGS_MAX: usize = 4_096;
/// Most logs whose last change is remembered then; beyond it everything waits for the next start of
/// the feed. Only MySQL has several logs.
const LOGS_MAX: usize = 64;

/// Extent of a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// One record.
    Record(Key),
    /// Any record of a collection.
    Collection(CollectionId),
}

impl Target {
    fn bytes(&self) -> usize {
        CHANGE_OVERHEAD_BYTES
            + match self {
                Self::Record(key) => key.as_bytes().len(),
                Self::Collection(_) => 0,
            }
    }
}

/// Changes that are released together: those of one commit, if the log gives its place, and else
/// those between two reports of progress.
#[derive(Debug)]
struct Group {
    /// Changes that no version is known to contain.
    unseen: Vec<ChangeId>,
    /// The last change.
    last: ChangeId,
    /// Place of the commit in the log, if the change has it.
    place: Option<u64>,
    /// Point of the log before which everything was delivered when its first change was.
    floor: u64,
    targets: Vec<Target>,
}

/// A released group.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Released {
    /// Point up to which a follower has got all commits once it has this one, and at which an
    /// answer reflects the changes.
    pub(crate) id: u64,
    pub(crate) targets: Vec<Target>,
}

/// What an advance of the feed results in.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Advanced {
    pub(crate) released: Vec<Released>,
    /// Point up to which all commits are released.
    pub(crate) through: u64,
}

#[derive(Debug)]
pub(crate) struct Pending {
    groups: VecDeque<Group>,
    bytes: usize,
    bytes_max: usize,
    /// Position of the last report of progress.
    applied: u64,
}

impl Pending {
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self { groups: VecDeque::new(), bytes: 0, bytes_max, applied: 0 }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Begins anew behind this point of the log.
    pub(crate) fn begin(&mut self, at: u64) {
        self.groups.clear();
        self.bytes = 0;
        self.applied = at;
    }

    /// Adds a change. Returns `false` if it exceeds the bound; nothing is kept then.
    pub(crate) fn add(&mut self, mark: ChangeId, target: Target) -> bool {
        self.bytes += target.bytes();
        if self.bytes > self.bytes_max {
            return false;
        }
        if let Some(group) = self.groups.back_mut().filter(|group| group.takes(&mark, self.applied))
        {
            // Of a log in order of visibility a change is visible when it is delivered.
            if group.last != mark && !is_in_order(&mark) {
                group.unseen.push(mark);
            }
            group.last = mark;
            group.targets.push(target);
            return true;
        }
        let unseen = if is_in_order(&mark) { Vec::new() } else { vec![mark] };
        let (place, floor) = (place_of(&mark), self.applied);
        self.groups.push_back(Group { unseen, last: mark, place, floor, targets: vec![target] });
        true
    }

    /// Returns the changes so far as ceilings, and forgets them.
    pub(crate) fn take_ceilings(&mut self) -> Ceilings {
        let mut ceilings = Ceilings::default();
        let unseen = self.groups.drain(..).flat_map(|group| group.unseen);
        unseen.for_each(|mark| ceilings.add(mark));
        self.bytes = 0;
        ceilings
    }

    /// Takes out what is proven visible. Everything before `position` is delivered; reads sent from
    /// now on see at least `visible`.
    pub(crate) fn advance(&mut self, position: u64, visible: Option<&Version>) -> Advanced {
        if let Some(version) = visible {
            for group in &mut self.groups {
                group.unseen.retain(|mark| !version.contains(mark));
            }
        }
        self.applied = self.applied.max(position);
        let mut released = Vec::new();
        while self.groups.front().is_some_and(|group| group.is_complete(position)) {
            let Some(group) = self.groups.pop_front() else { break };
            self.bytes -= group.targets.iter().map(Target::bytes).sum::<usize>();
            // Without a place: what follows was delivered behind that floor, so that everything up
            // to it is out. Beyond it may be commits that are not visible.
            let next = self.groups.front().map(|next| next.floor);
            let id = group.place.or(next).unwrap_or(position);
            released.push(Released { id, targets: group.targets });
        }
        let through = self.groups.front().map_or(position, Group::all_before);
        Advanced { released, through }
    }
}

impl Group {
    /// Returns whether a change that is delivered now belongs to it.
    fn takes(&self, mark: &ChangeId, applied: u64) -> bool {
        let is_between = self.place.is_none() && place_of(mark).is_none() && self.floor == applied;
        self.last == *mark || is_between
    }

    fn is_complete(&self, position: u64) -> bool {
        let is_delivered = match self.place {
            Some(place) => place <= position,
            None => self.floor < position,
        };
        self.unseen.is_empty() && is_delivered
    }

    /// Returns a point of the log up to which all commits are before it.
    fn all_before(&self) -> u64 {
        self.place.map_or(self.floor, |place| place.saturating_sub(1))
    }
}

/// Changes that were dropped: each of them up to a bound, and then the last of each log.
#[derive(Debug, Default)]
pub(crate) struct Ceilings {
    each: Vec<ChangeId>,
    last: Vec<ChangeId>,
    /// More logs than are remembered.
    is_closed: bool,
}

impl Ceilings {
    pub(crate) fn add(&mut self, mark: ChangeId) {
        if is_in_order(&mark) || self.each.last() == Some(&mark) {
            return;
        }
        if self.each.len() < CEILINGS_MAX {
            self.each.push(mark);
            return;
        }
        for known in &mut self.last {
            if let Some(later) = known.later(&mark) {
                *known = later;
                return;
            }
        }
        if self.last.len() < LOGS_MAX {
            self.last.push(mark);
        } else {
            self.is_closed = true;
        }
    }

    /// Returns whether all of them are contained in `visible`, or were before.
    pub(crate) fn are_seen(&mut self, visible: Option<&Version>) -> bool {
        if let Some(version) = visible {
            self.each.retain(|mark| !version.contains(mark));
            self.last.retain(|mark| !version.contains_through(mark));
        }
        self.each.is_empty() && self.last.is_empty() && !self.is_closed
    }
}

/// Returns whether the change is visible once it is delivered.
fn is_in_order(mark: &ChangeId) -> bool {
    matches!(mark, ChangeId::Log(_))
}

/// Returns the least point of the log at which an answer reflects the commit of a change, and all
/// changes of which have that point; `None`: the change does not have it.
fn place_of(mark: &ChangeId) -> Option<u64> {
    match mark {
        ChangeId::Commit(Position { at, .. }) => Some(*at),
        // Positions are ends of records, so one past the start of the commit's includes it.
        ChangeId::Transaction { commit, .. } => commit.checked_add(1),
        // Each row has a point of its own, and a commit several.
        ChangeId::Log(_) | ChangeId::Gtid(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use hotrow_types::key::{KeyPart, KeySchema, KeyType};
    use hotrow_types::version::Snapshot;

    use super::*;

    fn target(id: i64) -> Target {
        let schema = KeySchema::new(CollectionId(0), vec![KeyType::Integer]);
        Target::Record(schema.key(&[KeyPart::Integer(id)]).unwrap())
    }

    fn transaction(xid: u64, commit: u64) -> ChangeId {
        ChangeId::Transaction { xid, commit }
    }

    fn snapshot(xmax: u64, running: &[u64]) -> Version {
        let xmin = running.first().copied().unwrap_or(xmax);
        let snapshot = Snapshot { xmin, xmax, running: running.to_vec() };
        Version::Snapshot { incarnation: 1, snapshot: Arc::new(snapshot) }
    }

    fn ids(advanced: &Advanced) -> Vec<u64> {
        advanced.released.iter().map(|released| released.id).collect()
    }

    #[test]
    fn a_commit_waits_for_those_before_it() {
        let mut pending = Pending::new(1_000);
        pending.begin(10);
        assert!(pending.add(transaction(7, 20), target(1)));
        assert!(pending.add(transaction(7, 20), target(2)));
        assert!(pending.add(transaction(5, 30), target(3)));
        let advanced = pending.advance(40, Some(&snapshot(8, &[7])));
        assert_eq!((ids(&advanced), advanced.through), (vec![], 20), "7 hides 5");
        let advanced = pending.advance(40, Some(&snapshot(8, &[])));
        assert_eq!((ids(&advanced), advanced.through), (vec![21, 31], 40));
        assert_eq!(advanced.released[0].targets, [target(1), target(2)]);
        assert_eq!((pending.is_empty(), pending.bytes()), (true, 0));
    }

    #[test]
    fn without_places_the_reports_of_progress_divide_commits() {
        let log = |at| ChangeId::Log(Position { incarnation: 1, at });
        let mut pending = Pending::new(1_000);
        pending.begin(10);
        for at in 11..14 {
            assert!(pending.add(log(at), target(1)));
        }
        let advanced = pending.advance(13, None);
        assert_eq!((ids(&advanced), advanced.through), (vec![13], 13));
        let gtid = |number| {
            let source = hotrow_types::version::SourceId::new(5, "").unwrap();
            ChangeId::Gtid(hotrow_types::version::Gtid { source, number })
        };
        let seen = |numbers: &str| {
            let text = format!("00000000-0000-0000-0000-000000000005:{numbers}");
            Version::Gtids(Arc::new(hotrow_types::version::GtidSet::parse(&text).unwrap()))
        };
        assert!(pending.add(gtid(1), target(1)));
        assert_eq!(ids(&pending.advance(20, None)), [] as [u64; 0]);
        assert!(pending.add(gtid(2), target(2)));
        let advanced = pending.advance(30, Some(&seen("1")));
        // Not 30: that is behind the second, which is hidden.
        assert_eq!((ids(&advanced), advanced.through), (vec![20], 20));
        let advanced = pending.advance(30, Some(&seen("1-2")));
        assert_eq!((ids(&advanced), advanced.through), (vec![30], 30));
    }

    #[test]
    fn ceilings_wait_for_everything_that_was_dropped() {
        let mut pending = Pending::new(100);
        assert!(pending.add(transaction(7, 20), target(1)));
        assert!(pending.add(transaction(5, 30), target(2)));
        assert!(!pending.add(transaction(9, 40), target(3)), "beyond the bound");
        let mut ceilings = pending.take_ceilings();
        ceilings.add(transaction(9, 40));
        assert!(!ceilings.are_seen(None));
        assert!(!ceilings.are_seen(Some(&snapshot(10, &[7]))));
        assert!(ceilings.are_seen(Some(&snapshot(10, &[6]))), "6 is open, and was not dropped");
        assert!(ceilings.are_seen(None), "they were seen");
        for xid in 10..11 + CEILINGS_MAX as u64 {
            ceilings.add(transaction(xid, 10 * xid));
        }
        assert!(!ceilings.are_seen(Some(&snapshot(9_999, &[6]))), "6 may be beyond the bound");
        assert!(ceilings.are_seen(Some(&snapshot(9_999, &[]))));
    }
}
