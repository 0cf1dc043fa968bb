//! Clients: they send requests, wait, lead when asked to, and check every answer against the
//! contract.

use std::sync::Arc;

use super::check::{AnswerPath, Asked, check, row_version};
use super::world::{PATIENCE, Pending, Reader, World};
use crate::flight::{Waited, Waiter};
use crate::testkit::{ONLY, TestError, poll_with};
use crate::{Freshness, Lookup, LookupError, Presence, ReadMode, Record};
use hotrow_types::key::{CollectionId, Key};

impl World {
    pub(super) fn look(&mut self, keys: &[Key], mode: ReadMode) -> Result<(), String> {
        let Some(collection) = keys.first().map(Key::collection) else { return Ok(()) };
        let applied = self.cache.applied(ONLY).map_or(0, |position| position.at);
        let asked: Vec<Asked> = keys.iter().map(|key| self.asked(key, mode, applied)).collect();
        let deadline = self.now.after(PATIENCE);
        let answers = match keys {
            [key] => vec![self.cache.lookup_until(key, mode, self.now, deadline)],
            _ => self.cache.lookup_batch_until(keys, mode, self.now, deadline),
        };
        self.counts.new_reads += u64::from(mode == ReadMode::Revalidate);
        let mut lead = false;
        for (asked, answer) in asked.into_iter().zip(answers) {
            match answer {
                Lookup::Hit(record, freshness) | Lookup::Negative(record, freshness) => {
                    self.give(&asked, AnswerPath::Entry(freshness), &record)?;
                    lead |= freshness == Freshness::Expired && self.refresh(&asked.key);
                }
                Lookup::Coalesced(waiter) => {
                    self.counts.joined += 1;
                    self.wait(waiter, asked);
                }
                Lookup::Miss(waiter) | Lookup::Bypass(waiter) => {
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

    fn asked(&self, key: &Key, mode: ReadMode, applied: u64) -> Asked {
        let floor = self.answered.get(key).copied().unwrap_or(0);
        let fences = self.fences.get(key).copied().unwrap_or_default();
        Asked { key: key.clone(), mode, at: self.now, floor, applied, fences }
    }

    fn wait(&mut self, waiter: Waiter<TestError>, asked: Asked) {
        self.pending.push(Pending { waiter, bell: Arc::default(), rings_seen: None, asked });
    }

    fn refresh(&mut self, key: &Key) -> bool {
        let lead = self.cache.refresh(key);
        self.counts.refreshes += u64::from(lead);
        lead
    }

    pub(super) fn lead(&mut self, collection: CollectionId) {
        if let Some(loader) = self.cache.batch_loader(collection) {
            self.readers.push(Reader { loader, query: None });
        }
    }

    /// Delivers an answer to its client.
    fn give(&mut self, asked: &Asked, path: AnswerPath, record: &Record) -> Result<(), String> {
        let seen = match record.presence() {
            Presence::Found => row_version(record)?,
            Presence::Missing => self.missing[&(asked.key.clone(), record.read_at())],
        };
        check(asked, path, record, seen, &self.db)?;
        let count = match path {
            AnswerPath::Entry(Freshness::Fresh) => &mut self.counts.fresh,
            AnswerPath::Entry(Freshness::Stale) => &mut self.counts.stale,
            AnswerPath::Entry(Freshness::Expired) => &mut self.counts.expired,
            AnswerPath::Read => &mut self.counts.read,
            AnswerPath::StaleIfError => &mut self.counts.stale_if_errors,
        };
        *count += 1;
        self.counts.behind_the_feed += u64::from(record.is_behind());
        self.counts.negative += u64::from(record.presence() == Presence::Missing);
        let newest = self.answered.entry(asked.key.clone()).or_default();
        *newest = seen.max(*newest);
        Ok(())
    }

    fn refused(&mut self, asked: &Asked, refusal: &LookupError<TestError>) -> Result<(), String> {
        let config = self.cache.config().clone();
        let right = match refusal {
            LookupError::QueueFull => true,
            LookupError::TooLate => config.queue.adaptive,
            LookupError::Behind => {
                self.counts.behind += 1;
                config.when_stale == crate::config::WhenStale::Refuse
                    && !self.cache.is_current(ONLY, asked.at)
            }
            LookupError::Source(_) | LookupError::Abandoned => {
                self.counts.failed_recently += 1;
                let failed_at = self.failed_at.get(&asked.key);
                failed_at.is_some_and(|&at| asked.at < at.after(config.error_ttl))
            }
            // Only waiters learn of it.
            LookupError::Overdue => false,
        };
        if !right {
            return Err(format!("refused without cause: {refusal:?} for {asked:?}"));
        }
        self.stale_if_error(asked)
    }

    /// Acts as a server does for a request without an answer.
    fn stale_if_error(&mut self, asked: &Asked) -> Result<(), String> {
        match self.cache.stale_if_error(&asked.key, self.now) {
            Some(record) if asked.mode == ReadMode::Normal => {
                self.give(asked, AnswerPath::StaleIfError, &record)
            }
            _ => Ok(()),
        }
    }

    /// Polls one waiter that is new or was woken.
    pub(super) fn poll_one(&mut self, a: u16) -> Result<(), String> {
        let awake = |p: &Pending| p.rings_seen.is_none_or(|seen| p.bell.rings() > seen);
        let woken: Vec<usize> =
            (0..self.pending.len()).filter(|&i| awake(&self.pending[i])).collect();
        let Some(&i) = woken.get(usize::from(a) % woken.len().max(1)) else { return Ok(()) };
        let pending = &mut self.pending[i];
        pending.rings_seen = Some(pending.bell.rings());
        match poll_with(&mut pending.waiter, &pending.bell) {
            None => Ok(()),
            Some(Waited::Lead) => {
                self.counts.leads += 1;
                // It waits again and will be polled for that.
                pending.rings_seen = None;
                let collection = pending.asked.key.collection();
                self.lead(collection);
                Ok(())
            }
            Some(Waited::Done(result)) => {
                let Pending { asked, .. } = self.pending.swap_remove(i);
                match result {
                    Ok(record) => self.give(&asked, AnswerPath::Read, &record),
                    Err(failure) => {
                        self.counts.failures += 1;
                        self.counts.abandoned += u64::from(failure == LookupError::Abandoned);
                        self.stale_if_error(&asked)
                    }
                }
            }
        }
    }
}
