//! All followed changes: from the feed, through the proof that they are visible, to the windows.

use std::ops::Add;

use hotrow_types::key::{CollectionId, Key};
use hotrow_types::version::{ChangeId, Position, Version};

use crate::pending::{Ceilings, Pending, Released, Target};
#[cfg(any(test, feature = "failpoints"))]
use crate::plants::FollowPlant;
use crate::resume::ResumeId;
use crate::window::{Cursor, Event, Extent, Opening, Progress, Window};

/// Bounds.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Most bytes of released changes per collection.
    pub window_bytes: usize,
    /// Most bytes of changes that wait for the proof. With more, everything waits for it, and
    /// followers are reset.
    pub pending_bytes: usize,
    /// First generation of the windows: random, so that ids of two processes differ in it.
    pub generation: u32,
}

/// What the log uses at present, and has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Bytes of the windows.
    pub window_bytes: usize,
    /// Bytes of changes that are not proven visible.
    pub pending_bytes: usize,
    /// Changes released so far.
    pub released_total: u64,
    /// Commits dropped from windows for newer ones.
    pub evicted_total: u64,
    /// Times that more waited for the proof than fits.
    pub overflows_total: u64,
}

/// Of several logs.
impl Add for Usage {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            window_bytes: self.window_bytes + other.window_bytes,
            pending_bytes: self.pending_bytes + other.pending_bytes,
            released_total: self.released_total + other.released_total,
            evicted_total: self.evicted_total + other.evicted_total,
            overflows_total: self.overflows_total + other.overflows_total,
        }
    }
}

/// See the crate's documentation.
#[derive(Debug)]
pub struct ChangeLog {
    state: State,
    pending: Pending,
    /// By collection; `None`: it is not followed.
    windows: Vec<Option<Window>>,
    /// Point up to which all commits are released.
    through: Position,
    released_total: u64,
    overflows_total: u64,
    #[cfg(any(test, feature = "failpoints"))]
    plant: FollowPlant,
}

#[derive(Debug)]
enum State {
    /// No feed: changes may be missed.
    Lost,
    Following,
    /// Changes were dropped unreleased, and some of them are not proven visible.
    Overflowed(Ceilings),
}

impl ChangeLog {
    /// Creates a log of the collections for which `followed` has `true`.
    #[must_use]
    pub fn new(config: &Config, followed: &[bool]) -> Self {
        let window =
            |followed: &bool| followed.then(|| Window::new(config.window_bytes, config.generation));
        Self {
            state: State::Lost,
            pending: Pending::new(config.pending_bytes),
            windows: followed.iter().map(window).collect(),
            through: Position { incarnation: 0, at: 0 },
            released_total: 0,
            overflows_total: 0,
            #[cfg(any(test, feature = "failpoints"))]
            plant: FollowPlant::None,
        }
    }

    fn window(&self, CollectionId(id): CollectionId) -> Option<&Window> {
        self.windows.get(usize::from(id))?.as_ref()
    }

    fn window_mut(&mut self, CollectionId(id): CollectionId) -> Option<&mut Window> {
        self.windows.get_mut(usize::from(id))?.as_mut()
    }

    /// Returns whether a collection is followed.
    pub fn is_followed(&self, collection: CollectionId) -> bool {
        self.window(collection).is_some()
    }

    /// Returns whether changes wait for the proof that they are visible.
    pub fn wants_proof(&self) -> bool {
        !self.pending.is_empty() || matches!(self.state, State::Overflowed(_))
    }

    /// Takes a delivered change. Returns whether followers must look.
    pub fn change(&mut self, key: &Key, mark: ChangeId) -> bool {
        self.is_followed(key.collection()) && self.add(mark, Target::Record(key.clone()))
    }

    /// Takes a change of any record of a collection. `None`: it was visible before, and is no part
    /// of a commit. Returns whether followers must look.
    pub fn flush(&mut self, collection: CollectionId, mark: Option<ChangeId>) -> bool {
        let through = self.through;
        let is_following = matches!(self.state, State::Following);
        let Some(window) = self.window_mut(collection) else { return false };
        match mark {
            Some(mark) => self.add(mark, Target::Collection(collection)),
            None => {
                let begins = is_following && !window.has_gap && !window.is_waiting;
                if begins {
                    window.begin(through, through.at);
                }
                begins
            }
        }
    }

    fn add(&mut self, mark: ChangeId, target: Target) -> bool {
        match &mut self.state {
            State::Lost => false,
            State::Overflowed(ceilings) => {
                ceilings.add(mark);
                false
            }
            State::Following => {
                if self.pending.add(mark, target) {
                    return false;
                }
                let mut ceilings = self.pending.take_ceilings();
                ceilings.add(mark);
                self.state = State::Overflowed(ceilings);
                self.overflows_total += 1;
                self.windows.iter_mut().flatten().for_each(Window::lose);
                true
            }
        }
    }

    /// Changes of one collection may be missed from now on.
    pub fn open_gap(&mut self, collection: CollectionId) {
        if let Some(window) = self.window_mut(collection) {
            window.has_gap = true;
            window.lose();
        }
    }

    /// They are delivered again. The window begins with the next report of progress, which lies
    /// behind all that was missed.
    pub fn close_gap(&mut self, collection: CollectionId) {
        let is_following = matches!(self.state, State::Following);
        if let Some(window) = self.window_mut(collection) {
            let had_gap = std::mem::take(&mut window.has_gap);
            window.is_waiting |= is_following && had_gap;
        }
    }

    /// Changes of all collections may be missed from now on.
    pub fn lose(&mut self) {
        self.state = State::Lost;
        self.pending.begin(0);
        self.windows.iter_mut().flatten().for_each(Window::lose);
    }

    /// A feed starts. Without a position nothing can be followed.
    pub fn begin(&mut self, position: Option<Position>) {
        let Some(position) = position else { return self.lose() };
        self.state = State::Following;
        self.pending.begin(position.at);
        self.through = position;
        let live = self.windows.iter_mut().flatten().filter(|window| !window.has_gap);
        live.for_each(|window| window.begin(position, position.at));
    }

    /// Everything before `position` is delivered; reads sent from now on see at least `visible`.
    /// Returns whether followers must look.
    pub fn advance(&mut self, position: Option<Position>, visible: Option<&Version>) -> bool {
        let Some(position) = position else { return false };
        match &mut self.state {
            State::Lost => false,
            State::Overflowed(ceilings) => {
                let are_seen = ceilings.are_seen(visible);
                if are_seen {
                    self.begin(Some(position));
                }
                are_seen
            }
            State::Following => {
                #[cfg(any(test, feature = "failpoints"))]
                let forged = self.forged();
                #[cfg(any(test, feature = "failpoints"))]
                let visible = forged.as_ref().or(visible);
                let advanced = self.pending.advance(position.at, visible);
                let mut has_news = !advanced.released.is_empty();
                advanced.released.into_iter().for_each(|released| self.release(released));
                self.through.at = self.through.at.max(advanced.through);
                let through = self.through;
                for window in self.windows.iter_mut().flatten() {
                    window.reached(through.at);
                    if window.is_waiting {
                        window.begin(through, position.at);
                        has_news = true;
                    }
                }
                has_news
            }
        }
    }

    /// Puts the changes of a released group into the windows of their collections.
    fn release(&mut self, released: Released) {
        let Released { id, mut targets } = released;
        self.released_total += targets.len() as u64;
        let collection_of = |target: &Target| match target {
            Target::Record(key) => key.collection(),
            Target::Collection(collection) => *collection,
        };
        while let Some(collection) = targets.first().map(collection_of) {
            let mut keys = Vec::new();
            let mut is_all = false;
            targets.retain_mut(|target| {
                if collection_of(target) != collection {
                    return true;
                }
                match target {
                    Target::Record(key) => keys.push(key.clone()),
                    Target::Collection(_) => is_all = true,
                }
                false
            });
            let extent = if is_all { Extent::All } else { Extent::Keys(keys.into()) };
            if let Some(window) = self.window_mut(collection) {
                window.release(id, id, extent);
            }
        }
    }

    /// Registers a follower of a collection, which has everything up to `last`, and sets it to
    /// where its replay begins. `None`: the collection is not followed.
    pub fn open(
        &self,
        collection: CollectionId,
        last: Option<ResumeId>,
    ) -> Option<(Cursor, Opening)> {
        Some(self.window(collection)?.open(last))
    }

    /// Passes on to `take` what waits for a follower, of the records that it `wants`, until about
    /// `changes_max` changes were looked at.
    pub fn read(
        &self,
        collection: CollectionId,
        cursor: &mut Cursor,
        wants: &dyn Fn(&Key) -> bool,
        changes_max: usize,
        take: &mut dyn FnMut(Event<'_>),
    ) -> Progress {
        match self.window(collection) {
            Some(window) => window.read(cursor, wants, changes_max, take),
            None => Progress::Overrun,
        }
    }

    /// Returns the point up to which a follower has everything, if it has read all that was
    /// released, and the feed is not lost.
    pub fn resume_point(&self, collection: CollectionId, cursor: &Cursor) -> Option<ResumeId> {
        self.window(collection)?.resume_point(cursor)
    }

    /// Returns what is used.
    pub fn usage(&self) -> Usage {
        let windows = || self.windows.iter().flatten();
        Usage {
            window_bytes: windows().map(Window::bytes).sum(),
            pending_bytes: self.pending.bytes(),
            released_total: self.released_total,
            evicted_total: windows().map(Window::evicted_total).sum(),
            overflows_total: self.overflows_total,
        }
    }
}

/// Mistakes that the tests must find.
#[cfg(any(test, feature = "failpoints"))]
impl ChangeLog {
    /// Plants a mistake.
    pub fn plant(&mut self, plant: FollowPlant) {
        self.plant = plant;
        self.windows.iter_mut().flatten().for_each(|window| window.plant = plant);
    }

    /// Returns a version that contains everything.
    fn forged(&self) -> Option<Version> {
        use std::sync::Arc;

        use hotrow_types::version::Snapshot;
        let (xmin, xmax) = (u64::MAX, u64::MAX);
        let snapshot = Arc::new(Snapshot { xmin, xmax, running: Vec::new() });
        (self.plant == FollowPlant::PushedHidden)
            .then_some(Version::Snapshot { incarnation: 1, snapshot })
    }
}
