//! Tokens that were verified before: a bounded table of one worker.
//!
//! A token is known by the SHA-256 of all its bytes: no client can find another text with that
//! hash, and the table holds nothing with which a request could be sent. An entry is of one
//! *generation* of keys and rules; when those change, all older entries end at once. Expiry is not
//! the table's matter: its user checks [`VerifiedToken::validity`] at every request.

use ring::digest::{SHA256, digest};

use crate::verify::VerifiedToken;

/// Slots of a set.
const WAYS: usize = 4;

/// SHA-256 of a token.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct TokenHash([u8; 32]);

impl TokenHash {
    /// Hashes a token. Does not allocate.
    #[must_use]
    pub fn of(token: &[u8]) -> Self {
        let mut hash = [0; 32];
        hash.copy_from_slice(digest(&SHA256, token).as_ref());
        Self(hash)
    }
}

/// A verified token in its slot.
#[derive(Clone)]
struct Slot {
    hash: TokenHash,
    generation: u64,
    token: VerifiedToken,
    /// Larger: used later.
    used: u64,
}

/// The table.
pub struct TokenCache {
    sets: Box<[[Option<Slot>; WAYS]]>,
    /// Uses so far.
    uses: u64,
}

impl TokenCache {
    /// Creates a table for about `tokens_max` tokens. All its memory is allocated here.
    #[must_use]
    pub fn new(tokens_max: usize) -> Self {
        let sets = tokens_max.div_ceil(WAYS).max(1);
        let empty = || [const { None }; WAYS];
        Self { sets: std::iter::repeat_with(empty).take(sets).collect(), uses: 0 }
    }

    /// Returns the token if it was verified in this generation.
    #[inline]
    pub fn get(&mut self, hash: &TokenHash, generation: u64) -> Option<VerifiedToken> {
        self.uses += 1;
        let used = self.uses;
        let slots = self.set(hash).iter_mut().flatten();
        let mut current = slots.filter(|slot| slot.generation == generation);
        let slot = current.find(|slot| slot.hash == *hash)?;
        slot.used = used;
        Some(slot.token.clone())
    }

    /// Keeps a token. If its set is full, it replaces one of an older generation, or else the one
    /// that was not used for longest.
    pub fn insert(&mut self, hash: TokenHash, generation: u64, token: VerifiedToken) {
        self.uses += 1;
        let new = Slot { hash, generation, token, used: self.uses };
        let rank = |slot: &Option<Slot>| match slot {
            Some(slot) if slot.hash == hash => (0, 0),
            None => (1, 0),
            Some(slot) if slot.generation != generation => (2, slot.used),
            Some(slot) => (3, slot.used),
        };
        if let Some(slot) = self.set(&hash).iter_mut().min_by_key(|slot| rank(slot)) {
            *slot = Some(new);
        }
    }

    fn set(&mut self, TokenHash(hash): &TokenHash) -> &mut [Option<Slot>; WAYS] {
        let start = u64::from_le_bytes(std::array::from_fn(|i| hash[i]));
        // Below the number of sets.
        let index = (start % self.sets.len() as u64) as usize;
        &mut self.sets[index]
    }
}

impl std::fmt::Debug for TokenCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TokenCache").field("sets", &self.sets.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use hotrow_types::tenant::Tenants;

    use crate::grant::Roles;
    use crate::identity::Identity;
    use crate::verify::{UnixSeconds, Validity};

    use super::*;

    fn token(role: usize) -> VerifiedToken {
        let validity = Validity { not_before: UnixSeconds(1), expires: UnixSeconds(2) };
        let (roles, tenants) = (Roles::single(role), Tenants::NONE);
        VerifiedToken { roles, identity: Identity::of_token(b"a"), tenants, validity }
    }

    fn hash(n: u64) -> TokenHash {
        TokenHash::of(&n.to_le_bytes())
    }

    #[test]
    fn a_token_is_known_in_its_generation_only() {
        let mut cache = TokenCache::new(8);
        assert_eq!(cache.get(&hash(1), 1), None);
        cache.insert(hash(1), 1, token(3));
        assert_eq!(cache.get(&hash(1), 1), Some(token(3)));
        assert_eq!(cache.get(&hash(2), 1), None);
        assert_eq!(cache.get(&hash(1), 2), None, "keys or rules have changed");
        cache.insert(hash(1), 2, token(4));
        assert_eq!(cache.get(&hash(1), 2), Some(token(4)));
        assert_eq!(cache.get(&hash(1), 1), None, "the new one has replaced it");
    }

    #[test]
    fn the_table_is_bounded_and_keeps_what_is_used() {
        let mut cache = TokenCache::new(WAYS);
        for n in 0..1_000 {
            cache.insert(hash(n), 1, token(0));
            assert_eq!(cache.get(&hash(0), 1), Some(token(0)), "used all the time, after {n}");
        }
        let kept = (0..1_000).filter(|n| cache.get(&hash(*n), 1).is_some()).count();
        assert_eq!(kept, WAYS);
        // Entries of an older generation go first.
        cache.insert(hash(5_000), 2, token(0));
        cache.insert(hash(5_001), 2, token(0));
        cache.insert(hash(5_002), 2, token(0));
        cache.insert(hash(5_003), 2, token(0));
        assert!((5_000..5_004).all(|n| cache.get(&hash(n), 2).is_some()));
    }
}
