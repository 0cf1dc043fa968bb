//! API keys: `hrk_`, a public id of 16 hexadecimal digits, `_`, and a secret of 256 random bits in
//! base64url.
//!
//! Only the SHA-256 of the whole text is stored. A fast hash suffices because the secret is random:
//! no list of likely secrets exists that a slow hash could protect. The id finds the stored hash;
//! it may appear in logs.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::digest::{SHA256, digest};
use subtle::ConstantTimeEq;

use hotrow_types::tenant::Tenants;

use crate::grant::Roles;

/// Beginning of every API key. Scanners of repositories can search for it.
pub const PREFIX: &str = "hrk_";
/// Bytes of the random part of an id.
pub const ID_BYTES: usize = 8;
/// Bytes of a secret.
pub const SECRET_BYTES: usize = 32;
/// Characters of an id.
pub const ID_CHARS: usize = 2 * ID_BYTES;
/// Characters of a key: prefix, id, separator and secret.
pub const KEY_CHARS: usize = PREFIX.len() + ID_CHARS + 1 + SECRET_CHARS;
/// Most keys of one service.
pub const KEYS_MAX: usize = 10_000;

/// Characters of 32 bytes in base64url.
const SECRET_CHARS: usize = 43;

/// Public id of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyId(pub(crate) [u8; ID_BYTES]);

/// SHA-256 of a key.
#[derive(Clone, Copy)]
pub struct KeyHash([u8; 32]);

/// Text that is not a key id or a hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyTextError {
    /// Not an id.
    #[error("must be the 16 lowercase hexadecimal digits that `hotrow key new` prints as id")]
    Id,
    /// Not a hash.
    #[error("must be the 64 lowercase hexadecimal digits that `hotrow key new` prints as sha256")]
    Hash,
    /// The key itself, where its hash belongs.
    #[error(
        "must be the SHA-256 of the key, not the key itself; this key is now written down, so \
         replace it with a new one from `hotrow key new`"
    )]
    KeyInsteadOfHash,
}

/// A new key, to be shown once.
pub struct NewKey {
    /// Public id.
    pub id: KeyId,
    /// Hash to store.
    pub hash: KeyHash,
    text: String,
}

/// A stored key.
#[derive(Clone, Debug)]
pub struct StoredKey {
    /// Public id.
    pub id: KeyId,
    /// Hash of the key.
    pub hash: KeyHash,
    /// Roles of its holder.
    pub roles: Roles,
    /// Tenants of its holder.
    pub tenants: Tenants,
}

/// All keys of a service.
#[derive(Clone, Debug, Default)]
pub struct KeyTable {
    /// In the order of their ids.
    keys: Box<[StoredKey]>,
}

/// An id that two keys have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("two keys have the id {0}")]
pub struct DuplicateId(pub KeyId);

impl NewKey {
    /// Makes a key of random bytes, which must come from the operating system's generator.
    #[must_use]
    pub fn new(id: [u8; ID_BYTES], secret: &[u8; SECRET_BYTES]) -> Self {
        let id = KeyId(id);
        let text = format!("{PREFIX}{id}_{}", URL_SAFE_NO_PAD.encode(secret));
        Self { id, hash: KeyHash::of(text.as_bytes()), text }
    }

    /// Returns the key itself: the secret.
    pub fn reveal(&self) -> &str {
        &self.text
    }
}

impl fmt::Debug for NewKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NewKey").field("id", &self.id).finish_non_exhaustive()
    }
}

impl KeyId {
    /// Parses an id.
    ///
    /// # Errors
    /// [`KeyTextError::Id`]
    pub fn parse(text: &[u8]) -> Result<Self, KeyTextError> {
        hexadecimal(text).map(Self).ok_or(KeyTextError::Id)
    }
}

impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl KeyHash {
    /// Hashes a key.
    #[must_use]
    pub fn of(key: &[u8]) -> Self {
        let mut hash = [0; 32];
        hash.copy_from_slice(digest(&SHA256, key).as_ref());
        Self(hash)
    }

    /// Parses the stored form.
    ///
    /// # Errors
    /// [`KeyTextError::Hash`], [`KeyTextError::KeyInsteadOfHash`]
    pub fn parse(text: &str) -> Result<Self, KeyTextError> {
        if text.starts_with(PREFIX) {
            return Err(KeyTextError::KeyInsteadOfHash);
        }
        hexadecimal(text.as_bytes()).map(Self).ok_or(KeyTextError::Hash)
    }
}

impl fmt::Display for KeyHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for KeyHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeyHash")
    }
}

impl KeyTable {
    /// Orders the keys.
    ///
    /// # Errors
    /// [`DuplicateId`]
    pub fn new(mut keys: Vec<StoredKey>) -> Result<Self, DuplicateId> {
        keys.sort_by_key(|key| key.id);
        match keys.windows(2).find(|pair| pair[0].id == pair[1].id) {
            Some(pair) => Err(DuplicateId(pair[0].id)),
            None => Ok(Self { keys: keys.into_boxed_slice() }),
        }
    }

    /// Returns the number of keys.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Returns the stored key that this text is. An unknown id costs the same hash and the same
    /// comparison as a known one; neither depends on where the secrets differ. Does not allocate.
    pub fn find(&self, text: &[u8]) -> Option<&StoredKey> {
        const NO_HASH: KeyHash = KeyHash([0; 32]);
        let id = id_of(text)?;
        let given = KeyHash::of(text);
        let found = self.keys.binary_search_by_key(&id, |key| key.id).ok();
        let stored = found.and_then(|at| self.keys.get(at));
        let hash = stored.map_or(&NO_HASH, |key| &key.hash);
        let is_equal = bool::from(hash.0.ct_eq(&given.0));
        stored.filter(|_| is_equal)
    }
}

/// Returns whether the text claims to be an API key.
pub fn is_api_key(text: &[u8]) -> bool {
    text.starts_with(PREFIX.as_bytes())
}

/// Returns the id of a text that has the form of a key.
fn id_of(text: &[u8]) -> Option<KeyId> {
    if text.len() != KEY_CHARS {
        return None;
    }
    let rest = text.strip_prefix(PREFIX.as_bytes())?;
    let (id, secret) = rest.split_at_checked(ID_CHARS)?;
    let secret = secret.strip_prefix(b"_")?;
    let is_base64url = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    if !secret.iter().all(is_base64url) {
        return None;
    }
    KeyId::parse(id).ok()
}

/// Parses exactly `2 * N` lowercase hexadecimal digits.
fn hexadecimal<const N: usize>(text: &[u8]) -> Option<[u8; N]> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    if text.len() != 2 * N {
        return None;
    }
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(text.chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn new(n: u8) -> NewKey {
        NewKey::new([n; ID_BYTES], &[n.wrapping_add(1); SECRET_BYTES])
    }

    fn stored(n: u8) -> StoredKey {
        let (id, hash) = (new(n).id, new(n).hash);
        StoredKey { id, hash, roles: Roles::single(n.into()), tenants: Tenants::NONE }
    }

    #[test]
    fn only_whole_keys_are_found() {
        let table = KeyTable::new(vec![stored(9), stored(3), stored(5)]).expect("three ids");
        assert_eq!((table.len(), table.is_empty()), (3, false));
        for n in [3, 5, 9] {
            let key = new(n);
            assert_eq!(key.reveal().len(), KEY_CHARS);
            let found = table.find(key.reveal().as_bytes()).expect("stored");
            assert_eq!((found.id, found.roles), (key.id, Roles::single(n.into())));
            for at in 0..KEY_CHARS {
                for bit in 0..8 {
                    let mut other = key.reveal().as_bytes().to_vec();
                    other[at] ^= 1 << bit;
                    assert!(table.find(&other).is_none(), "bit {bit} of character {at}");
                }
            }
            for length in 0..KEY_CHARS {
                assert!(table.find(&key.reveal().as_bytes()[..length]).is_none());
            }
            assert!(table.find(format!("{}A", key.reveal()).as_bytes()).is_none());
            assert!(table.find(format!(" {}", key.reveal()).as_bytes()).is_none());
        }
        assert!(table.find(new(4).reveal().as_bytes()).is_none(), "an unknown id");
        // The secret of one key with the id of another.
        let mixed = format!("{}{}", &new(3).reveal()[..21], &new(5).reveal()[21..]);
        assert!(table.find(mixed.as_bytes()).is_none());
        assert!(KeyTable::default().find(new(3).reveal().as_bytes()).is_none());
    }

    #[test]
    fn an_unknown_id_never_equals_the_placeholder() {
        // A stored hash of zeros cannot be reached by any text either.
        let zero = StoredKey { hash: KeyHash([0; 32]), ..stored(1) };
        let table = KeyTable::new(vec![zero]).expect("one id");
        assert!(table.find(new(1).reveal().as_bytes()).is_none());
        assert!(table.find(new(2).reveal().as_bytes()).is_none());
    }

    #[test]
    fn ids_are_unique() {
        let error = KeyTable::new(vec![stored(1), stored(2), stored(1)]).map(|_| ());
        assert_eq!(error, Err(DuplicateId(new(1).id)));
    }

    #[test]
    fn stored_forms_are_parsed_strictly() {
        let key = new(200);
        let (id, hash) = (key.id.to_string(), key.hash.to_string());
        assert_eq!(KeyId::parse(id.as_bytes()), Ok(key.id));
        assert_eq!(KeyHash::parse(&hash).map(|hash| hash.0), Ok(key.hash.0));
        for wrong in ["", &id[1..], &id.to_uppercase(), &format!("{id}0"), "g000000000000000"] {
            assert_eq!(KeyId::parse(wrong.as_bytes()), Err(KeyTextError::Id), "{wrong}");
        }
        for wrong in ["", &hash[1..], &hash.to_uppercase(), &format!("{hash}0")] {
            assert_eq!(KeyHash::parse(wrong).map(|_| ()), Err(KeyTextError::Hash), "{wrong}");
        }
        let pasted = KeyHash::parse(key.reveal()).map(|_| ());
        assert_eq!(pasted, Err(KeyTextError::KeyInsteadOfHash));
    }

    #[test]
    fn a_known_key_has_a_known_hash() {
        // SHA-256 of the 64 characters, as `printf %s KEY | sha256sum` prints it.
        let key = NewKey::new([0; ID_BYTES], &[0; SECRET_BYTES]);
        let text = "hrk_0000000000000000_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";
        assert_eq!(key.reveal(), text);
        assert_eq!(
            key.hash.to_string(),
            "e0b82756a9effce493514d43cc17bb29a5b812581ee568aeff644d2d26cf84ba"
        );
    }

    #[test]
    fn nothing_shows_the_secret() {
        let key = new(7);
        let secret = &key.reveal()[21..];
        for shown in [format!("{key:?}"), format!("{:?}", stored(7)), key.id.to_string()] {
            assert!(!shown.contains(secret) && !shown.contains(&key.hash.to_string()), "{shown}");
        }
    }
}
