//! Released changes of one collection: what its followers read, bounded in bytes.

use std::collections::VecDeque;

use hotrow_types::key::Key;
use hotrow_types::version::Position;

use crate::pending::CHANGE_OVERHEAD_BYTES;
#[cfg(any(test, feature = "failpoints"))]
use crate::plants::FollowPlant;
use crate::resume::ResumeId;

/// Memory of one released commit besides its keys.
const UNIT_OVERHEAD_BYTES: usize = 64;

/// Changed records of a commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Extent {
    Keys(Box<[Key]>),
    /// Any of the collection.
    All,
}

/// What a window keeps of a commit.
#[derive(Debug)]
struct Unit {
    id: u64,
    position: u64,
    extent: Extent,
    bytes: usize,
}

/// Points from which a window can replay.
#[derive(Clone, Copy, Debug)]
struct Floor {
    /// For ids of this window, since it began.
    own: u64,
    /// For all others: the least id of which is known that the window has everything behind it.
    /// One that equals it is from before the beginning, unless `is_evicted`.
    other: u64,
    is_evicted: bool,
}

impl Floor {
    /// Returns whether the window has everything behind `last`.
    fn covers(&self, last: ResumeId, generation: u32) -> bool {
        let at = last.position.at;
        at > self.other
            || self.is_evicted && at == self.other
            || last.generation == Some(generation) && at >= self.own
    }
}

#[derive(Debug)]
pub(crate) struct Window {
    units: VecDeque<Unit>,
    /// Number of the first unit.
    first: u64,
    bytes: usize,
    bytes_max: usize,
    incarnation: u64,
    generation: u32,
    /// `None`: changes may be missed at present.
    floor: Option<Floor>,
    /// Point up to which all commits are released.
    through: u64,
    /// Changes of this collection alone may be missed.
    pub(crate) has_gap: bool,
    /// It begins with the next report of progress.
    pub(crate) is_waiting: bool,
    /// Units dropped for newer ones.
    evicted_total: u64,
    #[cfg(any(test, feature = "failpoints"))]
    pub(crate) plant: FollowPlant,
}

/// Place of a follower in the window of its collection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cursor {
    generation: u32,
    /// Number of the next unit.
    unit: u64,
    /// Changes of it that were read.
    read: usize,
    /// The follower has everything up to this point.
    after: u64,
    #[cfg(any(test, feature = "failpoints"))]
    pub(crate) is_late: bool,
}

/// What a follower gets first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opening {
    /// It follows from this point on.
    Begin(ResumeId),
    /// It gets what it has missed.
    Resumed,
    /// What it has missed is unknown. It follows from this point on; `None`: a point comes with
    /// another reset.
    Reset(Option<ResumeId>),
}

/// What a follower gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// A record was inserted, updated or deleted.
    Change {
        /// Its key.
        key: &'a Key,
        /// An answer at this position reflects it.
        position: Position,
        /// Only with the last event of a commit.
        id: Option<ResumeId>,
    },
    /// Any record of the collection may have changed.
    Flush {
        /// An answer at this position reflects it.
        position: Position,
        /// See [`ResumeId`].
        id: Option<ResumeId>,
    },
    /// Changes may have been missed: what the follower holds may be stale.
    Reset {
        /// From where all changes follow; `None`: a point comes with another reset.
        at: Option<ResumeId>,
    },
}

/// How far a follower is after it has read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// It has got everything.
    Current,
    /// More waits for it.
    More,
    /// It was too slow: what it needs next is no longer in the window.
    Overrun,
}

impl Window {
    pub(crate) fn new(bytes_max: usize, generation: u32) -> Self {
        Self {
            units: VecDeque::new(),
            first: 0,
            bytes: 0,
            bytes_max,
            incarnation: 0,
            generation,
            floor: None,
            through: 0,
            has_gap: false,
            is_waiting: false,
            evicted_total: 0,
            #[cfg(any(test, feature = "failpoints"))]
            plant: FollowPlant::None,
        }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn evicted_total(&self) -> u64 {
        self.evicted_total
    }

    /// Forgets everything: changes may be missed from now on.
    pub(crate) fn lose(&mut self) {
        self.clear();
        self.is_waiting = false;
        self.floor = None;
        self.generation = self.generation.wrapping_add(1);
    }

    /// Begins behind this position. Changes up to `missed_to` may have been missed: a follower that
    /// reads now sees them, and one that read before may not.
    pub(crate) fn begin(&mut self, position: Position, missed_to: u64) {
        self.clear();
        self.is_waiting = false;
        self.incarnation = position.incarnation;
        let other = missed_to.max(position.at);
        self.floor = Some(Floor { own: position.at, other, is_evicted: false });
        self.through = position.at;
        #[cfg(any(test, feature = "failpoints"))]
        if self.plant == FollowPlant::NoResetAtBeginning {
            return;
        }
        self.generation = self.generation.wrapping_add(1);
    }

    fn clear(&mut self) {
        self.first += self.units.len() as u64;
        self.units.clear();
        self.bytes = 0;
    }

    /// Adds a released commit, or drops it if the window has not begun.
    pub(crate) fn release(&mut self, id: u64, position: u64, extent: Extent) {
        if self.floor.is_none() {
            return;
        }
        let bytes_of = |extent: &Extent| match extent {
            Extent::All => UNIT_OVERHEAD_BYTES,
            Extent::Keys(keys) => {
                let of_key = |key: &Key| key.as_bytes().len() + CHANGE_OVERHEAD_BYTES;
                UNIT_OVERHEAD_BYTES + keys.iter().map(of_key).sum::<usize>()
            }
        };
        let mut unit = Unit { id, position, bytes: bytes_of(&extent), extent };
        if unit.bytes > self.bytes_max {
            unit.extent = Extent::All;
            unit.bytes = UNIT_OVERHEAD_BYTES;
        }
        self.bytes += unit.bytes;
        self.units.push_back(unit);
        while self.bytes > self.bytes_max
            && let Some(oldest) = self.units.pop_front()
        {
            self.bytes -= oldest.bytes;
            self.first += 1;
            self.evicted_total += 1;
            let other = self.floor.map_or(0, |floor| floor.other).max(oldest.id);
            let is_evicted = other == oldest.id;
            self.floor = Some(Floor { own: oldest.id, other, is_evicted });
        }
    }

    /// Records that all commits up to this point are released.
    pub(crate) fn reached(&mut self, through: u64) {
        if self.floor.is_some() {
            self.through = self.through.max(through);
        }
    }

    fn id(&self, at: u64) -> ResumeId {
        let position = Position { incarnation: self.incarnation, at };
        ResumeId { position, generation: Some(self.generation) }
    }

    fn end(&self) -> Cursor {
        Cursor {
            generation: self.generation,
            unit: self.first + self.units.len() as u64,
            read: 0,
            after: self.through,
            #[cfg(any(test, feature = "failpoints"))]
            is_late: false,
        }
    }

    /// Registers a follower, which has everything up to `last`, and sets it to where its replay
    /// begins.
    pub(crate) fn open(&self, last: Option<ResumeId>) -> (Cursor, Opening) {
        let end = self.end();
        let Some(floor) = self.floor else { return (end, Opening::Reset(None)) };
        let here = self.id(self.through);
        let Some(last) = last else { return (end, Opening::Begin(here)) };
        let is_of_log = last.position.incarnation == self.incarnation;
        if !is_of_log || !floor.covers(last, self.generation) {
            return (end, Opening::Reset(Some(here)));
        }
        let after = last.position.at;
        let unit = self.first + self.units.partition_point(|unit| unit.id <= after) as u64;
        #[cfg(any(test, feature = "failpoints"))]
        if let Some(planted) = self.open_planted(Cursor { unit, after, ..end }) {
            return (planted, Opening::Resumed);
        }
        (Cursor { unit, after, ..end }, Opening::Resumed)
    }

    /// Passes on events from `cursor`, those that `wants` returns `true` for, until about
    /// `events_max` changes were looked at.
    pub(crate) fn read(
        &self,
        cursor: &mut Cursor,
        wants: &dyn Fn(&Key) -> bool,
        events_max: usize,
        take: &mut dyn FnMut(Event<'_>),
    ) -> Progress {
        if cursor.generation != self.generation {
            // Behind everything that was released: a read that begins now sees it.
            *cursor = self.end();
            take(Event::Reset { at: self.floor.map(|_| self.id(self.through)) });
            return Progress::Current;
        }
        #[cfg(any(test, feature = "failpoints"))]
        self.arrive_late(cursor);
        if cursor.unit < self.first {
            return Progress::Overrun;
        }
        let mut left = events_max.max(1);
        while let Some(unit) =
            usize::try_from(cursor.unit - self.first).ok().and_then(|index| self.units.get(index))
        {
            if left == 0 {
                return Progress::More;
            }
            if unit.id > cursor.after {
                let looked_at = self.pass_on(unit, cursor.read, left, wants, take);
                left -= looked_at.min(left);
                cursor.read += looked_at;
                if matches!(&unit.extent, Extent::Keys(keys) if cursor.read < keys.len()) {
                    return Progress::More;
                }
            }
            cursor.unit += 1;
            cursor.read = 0;
        }
        Progress::Current
    }

    /// Passes on the changes of a unit from the one at `from` on. Returns how many it looked at.
    fn pass_on(
        &self,
        unit: &Unit,
        from: usize,
        left: usize,
        wants: &dyn Fn(&Key) -> bool,
        take: &mut dyn FnMut(Event<'_>),
    ) -> usize {
        let position = Position { incarnation: self.incarnation, at: unit.position };
        let id = self.id(unit.id);
        let Extent::Keys(keys) = &unit.extent else {
            take(Event::Flush { position, id: Some(id) });
            return 1;
        };
        let Some(last) = keys.iter().rposition(wants) else { return keys.len() };
        #[cfg(any(test, feature = "failpoints"))]
        let last = self.last_planted(last, keys.iter().position(wants));
        let to = keys.len().min(from + left);
        for (index, key) in keys.iter().enumerate().take(to).skip(from) {
            if wants(key) {
                take(Event::Change { key, position, id: (index == last).then_some(id) });
            }
        }
        to - from
    }

    /// Returns the point up to which a follower has everything, if it has read all that was
    /// released.
    pub(crate) fn resume_point(&self, cursor: &Cursor) -> Option<ResumeId> {
        let is_current = cursor.generation == self.generation
            && cursor.unit == self.first + self.units.len() as u64;
        let has_begun = self.floor.is_some() && self.through >= cursor.after;
        (is_current && has_begun).then(|| self.id(self.through))
    }
}

/// Mistakes that the tests must find.
#[cfg(any(test, feature = "failpoints"))]
impl Window {
    fn open_planted(&self, cursor: Cursor) -> Option<Cursor> {
        let is_behind = cursor.unit < self.first + self.units.len() as u64;
        match self.plant {
            // Registered when it first reads: what is released in between is not replayed.
            FollowPlant::RegisteredLate => Some(Cursor { is_late: true, ..cursor }),
            // Continues behind the commit that was being read.
            FollowPlant::ResumeSkipsRest if is_behind => {
                Some(Cursor { unit: cursor.unit + 1, ..cursor })
            }
            _ => None,
        }
    }

    fn arrive_late(&self, cursor: &mut Cursor) {
        if std::mem::take(&mut cursor.is_late) {
            cursor.unit = self.first + self.units.len() as u64;
        }
    }

    fn last_planted(&self, last: usize, first: Option<usize>) -> usize {
        match self.plant {
            FollowPlant::IdOnFirstEvent => first.unwrap_or(last),
            _ => last,
        }
    }
}
