//! Database of the model: transactions get a number, then reach the log, then become visible.

use std::collections::HashMap;

use hotrow_types::version::Snapshot;

use super::{KEYS, Random};

/// Time of a commit that no client knows of.
const UNKNOWN: u64 = u64::MAX;

#[derive(Clone, Debug)]
pub(super) struct Database {
    pub(super) timeline: u32,
    next_xid: u64,
    /// Transactions that are not visible: number, key, whether the log has it.
    running: Vec<(u64, u64, bool)>,
    /// Ends of commits in the log: position, number, key.
    pub(super) log: Vec<(u64, u64, u64)>,
    /// Per key the versions, with the time at which their commit returned.
    versions: HashMap<u64, Vec<u64>>,
    /// Position that the relay's slot has confirmed.
    pub(super) confirmed: u64,
    /// Point before which the log was removed.
    pub(super) purged: u64,
    /// Version of the publication.
    pub(super) publication: u64,
    /// Transactions that no feed delivers: the publication lacked the table.
    pub(super) unpublished: Vec<u64>,
}

impl Database {
    pub(super) fn new() -> Self {
        Self {
            timeline: 1,
            next_xid: 100,
            running: Vec::new(),
            log: Vec::new(),
            versions: HashMap::new(),
            confirmed: 0,
            purged: 0,
            publication: 0,
            unpublished: Vec::new(),
        }
    }

    /// Begins a transaction, or writes one to the log. A key has one writer at a time.
    pub(super) fn write(&mut self, random: &mut Random) {
        let key = random.0.bits() % KEYS;
        let end = self.end() + 10;
        match self.running.iter_mut().find(|(_, locked, _)| *locked == key) {
            Some((xid, _, is_logged)) if !*is_logged => {
                *is_logged = true;
                self.log.push((end, *xid, key));
            }
            Some(_) => {}
            None => {
                self.running.push((self.next_xid, key, false));
                self.next_xid += 1;
            }
        }
    }

    /// Removes the table from the publication, changes a key, and adds the table again.
    pub(super) fn write_unpublished(&mut self, random: &mut Random, now: u64) {
        let key = random.0.bits() % KEYS;
        if self.running.iter().any(|(_, locked, _)| *locked == key) {
            return;
        }
        self.publication += 1;
        self.unpublished.push(self.next_xid);
        self.log.push((self.end() + 10, self.next_xid, key));
        self.next_xid += 1;
        self.versions.entry(key).or_default().push(now);
    }

    /// Removes the log, as far as no slot keeps it.
    pub(super) fn purge(&mut self) {
        self.purged = self.end();
    }

    /// Makes a transaction of the log visible: its commit returns.
    pub(super) fn show(&mut self, random: &mut Random, now: u64) {
        if self.running.is_empty() {
            return;
        }
        let index = random.below(self.running.len());
        if let (_, key, true) = self.running[index] {
            self.running.swap_remove(index);
            self.versions.entry(key).or_default().push(now);
        }
    }

    /// Makes all of the log visible and ends other transactions.
    pub(super) fn show_all(&mut self, now: u64) {
        for (_, key, is_logged) in std::mem::take(&mut self.running) {
            if is_logged {
                self.versions.entry(key).or_default().push(now);
            }
        }
    }

    /// Returns the server that takes over. Clients do not know of it yet, nor of the commits that
    /// were under way.
    pub(super) fn promoted(&self) -> Self {
        let mut next = self.clone();
        next.show_all(UNKNOWN);
        next.timeline += 1;
        next
    }

    /// Clients use this server from now on.
    pub(super) fn open(&mut self, now: u64) {
        for at in self.versions.values_mut().flatten().filter(|at| **at == UNKNOWN) {
            *at = now;
        }
    }

    pub(super) fn end(&self) -> u64 {
        self.log.last().map_or(0, |(end, ..)| *end)
    }

    pub(super) fn snapshot(&self) -> Snapshot {
        let mut running: Vec<u64> = self.running.iter().map(|(xid, ..)| *xid).collect();
        running.sort_unstable();
        let xmin = running.first().copied().unwrap_or(self.next_xid);
        Snapshot { xmin, xmax: self.next_xid, running }
    }

    /// Returns the number of a key's version that readers see.
    pub(super) fn version(&self, key: u64) -> usize {
        self.versions.get(&key).map_or(0, Vec::len)
    }

    /// Returns the number of a key's version whose commit returned before this time.
    pub(super) fn committed_before(&self, key: u64, time: u64) -> usize {
        self.versions.get(&key).map_or(0, |all| all.iter().filter(|at| **at < time).count())
    }
}
