//! The clients: they ask, wait, lead when told to, and hold every answer against the contract.

use std::sync::Arc;

use super::check::{Asked, Way, check, row_version};
use super::world::{PATIENCE, Pending, Reader, World};
use crate::flight::{Failure, Waited, Waiter};
use crate::key::{CollectionId, Key};
use crate::testkit::{Broken, poll_with};
use crate::{Lookup, Presence, Quality, Record, Refusal, Wish};

impl World {
    pub(super) fn look(&mut self, keys: &[Key], wish: Wish) -> Result<(), String> {
        let Some(collection) = keys.first().map(Key::collection) else { return Ok(()) };
        let applied = self.cache.applied().map_or(0, |position| position.at);
        let asked: Vec<Asked> = keys.iter().map(|key| self.asked(key, wish, applied)).collect();
        let deadline = self.now.after(PATIENCE);
        let answers = match keys {
            [key] => vec![self.cache.lookup_until(key, wish, self.now, deadline)],
            _ => self.cache.lookup_batch_until(keys, wish, self.now, deadline),
        };
        self.counts.new_reads += u64::from(wish == Wish::New);
        let mut lead = false;
        for (asked, answer) in asked.into_iter().zip(answers) {
            match answer {
                Lookup::Hit(record, quality) | Lookup::Negative(record, quality) => {
                    self.give(&asked, Way::Entry(quality), &record)?;
                    lead |= quality == Quality::Expired && self.refresh(&asked.key);
                }
                Lookup::Wait(waiter) => {
                    self.counts.joined += 1;
                    self.wait(waiter, asked);
                }
                Lookup::Fill(waiter) | Lookup::Bypass(waiter) => {
                    lead = true;
                    self.wait(waiter, asked);
                }
                Lookup::Refused(refusal) => self.refused(&asked, &refusal)?,
            }
        }
        if lead {
            self.lead(collection);
        }
        Ok(())
    }

    fn asked(&self, key: &Key, wish: Wish, applied: u64) -> Asked {
        let floor = self.answered.get(key).copied().unwrap_or(0);
        let fences = self.fences.get(key).copied().unwrap_or_default();
        Asked { key: key.clone(), wish, at: self.now, floor, applied, fences }
    }

    fn wait(&mut self, waiter: Waiter<Broken>, asked: Asked) {
        self.pending.push(Pending { waiter, bell: Arc::default(), rings_seen: None, asked });
    }

    fn refresh(&mut self, key: &Key) -> bool {
        let lead = self.cache.refresh(key);
        self.counts.refreshes += u64::from(lead);
        lead
    }

    pub(super) fn lead(&mut self, collection: CollectionId) {
        if let Some(turn) = self.cache.turn(collection) {
            self.readers.push(Reader { turn, query: None });
        }
    }

    /// An answer goes to its client.
    fn give(&mut self, asked: &Asked, way: Way, record: &Record) -> Result<(), String> {
        let seen = match record.presence() {
            Presence::Found => row_version(record)?,
            Presence::Missing => self.missing[&(asked.key.clone(), record.read_at())],
        };
        check(asked, way, record, seen, &self.db)?;
        let count = match way {
            Way::Entry(Quality::Fresh) => &mut self.counts.fresh,
            Way::Entry(Quality::Stale) => &mut self.counts.stale,
            Way::Entry(Quality::Expired) => &mut self.counts.expired,
            Way::Read => &mut self.counts.read,
            Way::StandIn => &mut self.counts.stand_ins,
        };
        *count += 1;
        self.counts.behind_the_feed += u64::from(record.is_behind());
        self.counts.negative += u64::from(record.presence() == Presence::Missing);
        let newest = self.answered.entry(asked.key.clone()).or_default();
        *newest = seen.max(*newest);
        Ok(())
    }

    fn refused(&mut self, asked: &Asked, refusal: &Refusal<Broken>) -> Result<(), String> {
        let config = self.cache.config().clone();
        let right = match refusal {
            Refusal::QueueFull => true,
            Refusal::TooLate => config.queue.adaptive,
            Refusal::Behind => {
                self.counts.behind += 1;
                config.when_stale == crate::config::WhenStale::Refuse && !self.cache.is_current(asked.at)
            }
            Refusal::Failed(_) => {
                self.counts.failed_recently += 1;
                let failed_at = self.failed_at.get(&asked.key);
                failed_at.is_some_and(|&at| asked.at < at.after(config.error_ttl))
            }
        };
        if !right {
            return Err(format!("refused without cause: {refusal:?} for {asked:?}"));
        }
        self.stand_in(asked)
    }

    /// What a server does for a request that got no answer.
    fn stand_in(&mut self, asked: &Asked) -> Result<(), String> {
        match self.cache.stand_in(&asked.key, self.now) {
            Some(record) if asked.wish == Wish::Any => self.give(asked, Way::StandIn, &record),
            _ => Ok(()),
        }
    }

    /// Polls one of those that are new or were woken.
    pub(super) fn poll_one(&mut self, a: u16) -> Result<(), String> {
        let awake = |p: &Pending| p.rings_seen.is_none_or(|seen| p.bell.rings() > seen);
        let woken: Vec<usize> = (0..self.pending.len()).filter(|&i| awake(&self.pending[i])).collect();
        let Some(&i) = woken.get(usize::from(a) % woken.len().max(1)) else { return Ok(()) };
        let pending = &mut self.pending[i];
        pending.rings_seen = Some(pending.bell.rings());
        match poll_with(&mut pending.waiter, &pending.bell) {
            None => Ok(()),
            Some(Waited::Lead) => {
                self.counts.leads += 1;
                // It will wait on, and be polled for that.
                pending.rings_seen = None;
                let collection = pending.asked.key.collection();
                self.lead(collection);
                Ok(())
            }
            Some(Waited::Done(result)) => {
                let Pending { asked, .. } = self.pending.swap_remove(i);
                match result {
                    Ok(record) => self.give(&asked, Way::Read, &record),
                    Err(failure) => {
                        self.counts.failures += 1;
                        self.counts.abandoned += u64::from(failure == Failure::Abandoned);
                        self.stand_in(&asked)
                    }
                }
            }
        }
    }
}
