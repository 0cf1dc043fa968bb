//! A near cache as client libraries of Redis have it: it keeps each reply until an invalidation of
//! its key arrives on the same connection. Pure.
//!
//! A copy may be used only while its connection is known to be alive, because a connection that is
//! cut without a word brings no invalidations ([`Liveness`]).

use std::collections::{HashMap, VecDeque};

use ::redis::{PushKind, Value};

use crate::history::Ns;
use crate::observation::Claim;
use crate::redis::Push;

/// Age from which on the last proof that the connection is alive is too old.
const ALIVE_NS: Ns = 300_000_000;
/// Time after a late proof in which no copy is used: the process, or the server's, was stopped, and
/// the server looks ten times a second whether its feed is behind.
const REST_NS: Ns = 500_000_000;

/// Counts of one near cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NearCacheCounts {
    /// Reads that the copies answered.
    pub copies_read: u64,
    /// Replies that were kept.
    pub kept: u64,
    /// Keys that invalidations named.
    pub invalidations: u64,
    /// Invalidations of everything.
    pub invalidate_alls: u64,
    /// Connections that ended, and all copies with them.
    pub connections_lost: u64,
}

impl NearCacheCounts {
    /// Adds those of another near cache.
    pub(crate) fn add(&mut self, other: &Self) {
        self.copies_read += other.copies_read;
        self.kept += other.kept;
        self.invalidations += other.invalidations;
        self.invalidate_alls += other.invalidate_alls;
        self.connections_lost += other.connections_lost;
    }
}

/// Copies of records, by key of the protocol.
#[derive(Debug, Default)]
pub(crate) struct NearCache {
    copies: HashMap<String, (u32, Claim)>,
    /// Keys in the order in which they were kept, some of them more than once or gone.
    order: VecDeque<String>,
    pub(crate) counts: NearCacheCounts,
}

impl NearCache {
    /// Keeps what a reply says of a key, if it says something.
    pub(crate) fn keep(&mut self, text: &str, key: u32, seen: &Claim) {
        if !matches!(seen, Claim::Version(_) | Claim::Absent) {
            return;
        }
        self.counts.kept += 1;
        if self.copies.insert(text.to_owned(), (key, seen.clone())).is_none() {
            self.order.push_back(text.to_owned());
        }
        // Keys that are gone leave the order when it is twice as long as needed.
        if self.order.len() > 2 * self.copies.len() + 16 {
            let Self { copies, order, .. } = self;
            let mut seen = std::collections::HashSet::new();
            order.retain(|text| copies.contains_key(text) && seen.insert(text.clone()));
        }
    }

    /// Returns the copy of a key.
    pub(crate) fn get(&self, text: &str) -> Option<&Claim> {
        self.copies.get(text).map(|(_, seen)| seen)
    }

    /// Returns all copies.
    pub(crate) fn all(&self) -> impl Iterator<Item = (u32, &Claim)> {
        self.copies.values().map(|(key, seen)| (*key, seen))
    }

    /// Returns the key that was kept first, and takes it to the end of the order.
    pub(crate) fn oldest(&mut self) -> Option<u32> {
        let text = self.take_oldest()?;
        let key = self.copies.get(&text).map(|(key, _)| *key);
        self.order.push_back(text);
        key
    }

    /// Discards the copy that was kept first.
    pub(crate) fn discard_oldest(&mut self) {
        if let Some(text) = self.take_oldest() {
            self.copies.remove(&text);
        }
    }

    /// Takes the key that was kept first out of the order.
    fn take_oldest(&mut self) -> Option<String> {
        while let Some(text) = self.order.pop_front() {
            if self.copies.contains_key(&text) {
                return Some(text);
            }
        }
        None
    }

    /// Forgets everything, because the connection has ended.
    pub(crate) fn disconnected(&mut self) {
        self.counts.connections_lost += 1;
        self.forget_all();
    }

    /// Forgets the copy of a key.
    pub(crate) fn forget(&mut self, text: &str) {
        self.counts.invalidations += 1;
        self.copies.remove(text);
    }

    /// Forgets every copy, because any record may have changed.
    pub(crate) fn forget_all(&mut self) {
        self.copies.clear();
        self.order.clear();
    }

    /// Returns the number of copies.
    pub(crate) fn len(&self) -> usize {
        self.copies.len()
    }

    /// Applies a push. Returns `false` if it is none that this client knows.
    pub(crate) fn apply(&mut self, push: &Push) -> bool {
        if push.kind != PushKind::Invalidate {
            return false;
        }
        match push.data.as_slice() {
            [Value::Nil] => {
                self.counts.invalidate_alls += 1;
                self.forget_all();
                true
            }
            [Value::Array(keys)] => keys.iter().all(|key| {
                let Value::BulkString(key) = key else { return false };
                // A key of other bytes is none of ours.
                self.forget(std::str::from_utf8(key).unwrap_or_default());
                true
            }),
            _ => false,
        }
    }
}

/// Whether a connection is known to be alive.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Liveness {
    /// Time at which the last command was sent that was answered.
    proven_at: Ns,
    rests_until: Ns,
}

impl Liveness {
    /// Notes the answer to a command.
    pub(crate) fn answered(&mut self, sent: Ns, received: Ns) {
        if received.saturating_sub(self.proven_at) > ALIVE_NS {
            self.rests_until = received + REST_NS;
        }
        self.proven_at = sent;
    }

    /// Returns whether a proof is needed before a copy is used.
    pub(crate) fn needs_proof(&self, now: Ns) -> bool {
        now.saturating_sub(self.proven_at) > ALIVE_NS
    }

    /// Returns whether copies may be used.
    pub(crate) fn may_use(&self, now: Ns) -> bool {
        !self.needs_proof(now) && now >= self.rests_until
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn invalidate(what: Value) -> Push {
        Push { kind: PushKind::Invalidate, data: vec![what] }
    }

    #[test]
    fn copies_last_until_they_are_invalidated() {
        let mut near = NearCache::default();
        near.keep("c:1", 1, &Claim::Version(5));
        near.keep("c:2", 2, &Claim::Absent);
        near.keep("c:3", 3, &Claim::Refused(503));
        assert_eq!(near.get("c:1"), Some(&Claim::Version(5)));
        assert_eq!((near.get("c:3"), near.all().count()), (None, 2));
        let keys = ["c:1", "c:9"].map(|key| Value::BulkString(key.as_bytes().to_vec()));
        assert!(near.apply(&invalidate(Value::Array(keys.to_vec()))));
        assert_eq!((near.get("c:1"), near.get("c:2")), (None, Some(&Claim::Absent)));
        assert!(near.apply(&invalidate(Value::Nil)));
        assert_eq!(near.all().count(), 0);
        near.keep("c:1", 1, &Claim::Version(6));
        near.disconnected();
        let counts = near.counts;
        assert_eq!((near.all().count(), counts.invalidations, counts.kept), (0, 2, 3));
        assert_eq!((counts.invalidate_alls, counts.connections_lost), (1, 1));
        assert!(
            !near.apply(&Push { kind: PushKind::Message, data: vec![Value::Nil] })
                && !near.apply(&invalidate(Value::Int(1)))
        );
    }

    #[test]
    fn the_oldest_copies_take_turns() {
        let mut near = NearCache::default();
        (1..=3).for_each(|key| near.keep(&format!("c:{key}"), key, &Claim::Absent));
        assert_eq!([near.oldest(), near.oldest(), near.oldest()], [Some(1), Some(2), Some(3)]);
        near.apply(&invalidate(Value::Array(vec![Value::BulkString(b"c:1".to_vec())])));
        assert_eq!([near.oldest(), near.oldest()], [Some(2), Some(3)]);
        for _ in 0..100 {
            near.keep("c:1", 1, &Claim::Absent);
            near.apply(&invalidate(Value::Array(vec![Value::BulkString(b"c:1".to_vec())])));
        }
        assert!(near.order.len() < 50, "{}", near.order.len());
    }

    #[test]
    fn a_late_answer_rests_the_copies() {
        let mut liveness = Liveness::default();
        let second = 1_000_000_000;
        assert!(liveness.needs_proof(second));
        liveness.answered(second, second + 1000);
        assert!(!liveness.may_use(second + 2000), "the first proof is late");
        let later = second + REST_NS;
        (0..10).for_each(|n| liveness.answered(second + n * 60_000_000, second + n * 60_000_000));
        assert!(liveness.may_use(later + 2000) && liveness.needs_proof(later + 2 * ALIVE_NS));
        liveness.answered(later, later + ALIVE_NS + second);
        assert!(!liveness.may_use(later + ALIVE_NS + second));
    }
}
