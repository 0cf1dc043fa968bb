//! Server of the hub: a [`Follower`], and a cache with leases and a fence as `hotrow_cache` has
//! them.

use std::collections::HashMap;

use hotrow_hub::follower::{Follower, Step};
use hotrow_hub::message::{Event, Mark, Nonce, Visible, Watermark};
use hotrow_hub::rules::{Rule, Rules};
use hotrow_types::version::Snapshot;

use super::hub_stream::Stream;
use super::hub_wire::{COLLECTION, origin};
use crate::database::Database;
use crate::random::Random;

#[derive(Debug)]
pub(super) struct Server {
    rules: Rules,
    instance: u64,
    follower: Follower,
    /// Sequence of the next message; 0: the last one of the stream.
    next: u64,
    /// Timeline that the readers lead to.
    pub(super) timeline: u64,
    cache: Cache,
    /// Times of own questions.
    asked_at: HashMap<u128, u64>,
    watermark: Option<u64>,
}

#[derive(Debug, Default)]
struct Cache {
    epoch: u64,
    /// Version and epoch of an entry.
    entries: HashMap<usize, (usize, u64)>,
    fence: Vec<Fenced>,
    reads: Vec<Read>,
    reads_begun: u64,
}

#[derive(Debug)]
struct Fenced {
    mark: Mark,
    key: Option<usize>,
    /// Reads begun when it was known to be visible.
    visible_at: Option<u64>,
}

#[derive(Debug)]
struct Read {
    number: u64,
    key: usize,
    version: usize,
    snapshot: Snapshot,
    epoch: u64,
    has_lease: bool,
    /// A far reader answers no earlier.
    ends_at: u64,
}

impl Server {
    pub(super) fn new(instance: u64, rules: Rules) -> Self {
        let mut follower = Follower::new(vec![COLLECTION], rules);
        _ = follower.set_origin(Some(origin(1)));
        Self {
            rules,
            instance,
            follower,
            next: 0,
            timeline: 1,
            cache: Cache::default(),
            asked_at: HashMap::new(),
            watermark: None,
        }
    }

    /// Returns the time before which every commit is reflected in the entries.
    pub(super) fn watermark(&self) -> Option<u64> {
        self.watermark
    }

    /// Returns keys and versions that are served as fresh.
    pub(super) fn served(&self) -> impl Iterator<Item = (usize, usize)> {
        let of_now = |(_, (_, epoch)): &(&usize, &(usize, u64))| *epoch == self.cache.epoch;
        self.cache.entries.iter().filter(of_now).map(|(key, (version, _))| (*key, *version))
    }

    pub(super) fn ask(&mut self, now: u64, random: &mut Random) -> Nonce {
        let question = u128::from(random.number()) << 64 | u128::from(random.number());
        self.asked_at.insert(question, now);
        Nonce { instance: self.instance, question }
    }

    fn lose(&mut self) {
        self.cache.epoch += 1;
        self.watermark = None;
    }

    pub(super) fn subscribe_anew(&mut self, stream: &Stream) {
        if self.follower.reset() {
            self.lose();
        }
        self.next = stream.end();
    }

    /// Leads the readers to another server.
    pub(super) fn move_reader(&mut self, has_zombie: bool, newest: &Database) {
        let is_on_newest = self.timeline == newest.incarnation;
        if !has_zombie && is_on_newest {
            return;
        }
        self.timeline = if is_on_newest { newest.incarnation - 1 } else { newest.incarnation };
        // A row from a connection of another server is not used.
        self.cache.reads.clear();
        if self.follower.set_origin(Some(origin(self.timeline))) {
            self.lose();
        }
    }

    /// Processes the next message, if one has come. It may be skipped, or one of before comes
    /// again. Returns what happened, as it is counted.
    pub(super) fn receive(
        &mut self,
        stream: &Stream,
        (is_skipped, is_repeated): (bool, bool),
    ) -> Option<&'static str> {
        self.next = self.next.max(1);
        if is_skipped && self.next < stream.end() {
            self.next += 1;
        }
        if is_repeated {
            self.next = self.next.saturating_sub(3).max(1);
        }
        let message = stream.get(self.next)?;
        self.next += 1;
        match self.follower.receive(message) {
            Step::Ignored | Step::CannotJoin(_) => None,
            Step::Continued => Some("continued"),
            Step::Lost(_) => {
                self.lose();
                Some("losses")
            }
            Step::Apply { events, .. } => {
                events.iter().for_each(|event| self.cache.apply(event));
                None
            }
            Step::Advance(watermark) => {
                self.advance(watermark);
                None
            }
            Step::Join(watermark) => {
                self.cache.epoch += 1;
                self.cache.fence.clear();
                if self.rules.has(Rule::Hidden) {
                    let hidden = watermark.hidden.as_deref().unwrap_or_default();
                    hidden.iter().for_each(|mark| self.cache.deliver(*mark, None));
                }
                // Entries are read from now on; what they reflect is known with an answer.
                self.watermark = Some(0);
                self.advance(watermark);
                Some("joins")
            }
        }
    }

    fn advance(&mut self, watermark: &Watermark) {
        let asked_at = watermark.answers.iter().filter_map(|question| self.asked_at.get(question));
        self.watermark = self.watermark.max(asked_at.max().copied());
        if let Some(visible) = &watermark.visible {
            self.cache.seen(visible);
        }
    }

    pub(super) fn begin_read(&mut self, key: usize, database: &Database, ends_at: u64) {
        let cache = &mut self.cache;
        if cache.reads.iter().any(|read| read.key == key && read.has_lease) {
            return;
        }
        cache.reads_begun += 1;
        cache.reads.push(Read {
            number: cache.reads_begun,
            key,
            version: database.visible(key),
            snapshot: database.running(),
            epoch: cache.epoch,
            has_lease: true,
            ends_at,
        });
    }

    pub(super) fn end_read(&mut self, random: &mut Random, now: u64) {
        let reads = &self.cache.reads;
        let ended: Vec<usize> = (0..reads.len()).filter(|i| reads[*i].ends_at <= now).collect();
        if ended.is_empty() {
            return;
        }
        let index = ended[random.below(ended.len())];
        let read = self.cache.reads.swap_remove(index);
        // Without a chain nothing is kept past the next join.
        if read.has_lease && read.epoch == self.cache.epoch && !self.cache.hides(&read) {
            self.cache.entries.insert(read.key, (read.version, read.epoch));
        }
        self.cache.forget();
    }
}

impl Cache {
    fn apply(&mut self, event: &Event) {
        match event {
            Event::Change { key, mark, .. } => {
                let Ok(key) = key.as_ref().try_into() else { return };
                let key = u64::from_be_bytes(key) as usize;
                for read in self.reads.iter_mut().filter(|read| read.key == key) {
                    read.has_lease = false;
                }
                self.entries.remove(&key);
                self.deliver(*mark, Some(key));
            }
            Event::Flush { .. } | Event::OpenGap { .. } | Event::CloseGap { .. } => {}
        }
    }

    fn deliver(&mut self, mark: Mark, key: Option<usize>) {
        self.fence.push(Fenced { mark, key, visible_at: None });
    }

    fn hides(&self, read: &Read) -> bool {
        let concerns = |fenced: &&Fenced| fenced.key.is_none_or(|key| key == read.key);
        let visible = Visible::Snapshot(read.snapshot.clone());
        self.fence.iter().filter(concerns).any(|fenced| !fenced.mark.is_in(&visible))
    }

    fn seen(&mut self, visible: &Visible) {
        for fenced in self.fence.iter_mut().filter(|fenced| fenced.visible_at.is_none()) {
            fenced.visible_at = fenced.mark.is_in(visible).then_some(self.reads_begun);
        }
        self.forget();
    }

    fn forget(&mut self) {
        let oldest = self.reads.iter().map(|read| read.number).min().unwrap_or(u64::MAX);
        self.fence.retain(|fenced| fenced.visible_at.is_none_or(|at| at >= oldest));
    }
}
