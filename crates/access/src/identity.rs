//! Holder of a credential, as limits per identity know it.
//!
//! The same holder has the same identity on every connection and with every token: what it is
//! allowed does not grow with the number of its addresses or tokens.

use ring::digest::{Context, SHA256};

use crate::key::KeyId;

/// Bytes of an identity. Half of a SHA-256: two holders with the same cannot be found.
const BYTES: usize = 16;

/// Holder of a credential.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Identity([u8; BYTES]);

impl Identity {
    /// Returns the holder of an API key. Does not hash: ids differ already.
    #[must_use]
    pub fn of_key(KeyId(id): KeyId) -> Self {
        let mut bytes = [0; BYTES];
        bytes[..id.len()].copy_from_slice(&id);
        Self(bytes)
    }

    /// Returns the holder of a client certificate.
    #[must_use]
    pub fn of_certificate(subject: &str) -> Self {
        Self::hashed(b"certificate", &[subject.as_bytes()])
    }

    /// Returns the subject of an issuer's tokens.
    #[must_use]
    pub fn of_subject(issuer: &str, subject: &str) -> Self {
        Self::hashed(b"subject", &[issuer.as_bytes(), subject.as_bytes()])
    }

    /// Returns the holder of a token that names no subject: the token itself.
    #[must_use]
    pub fn of_token(token: &[u8]) -> Self {
        Self::hashed(b"token", &[token])
    }

    /// Returns the bytes by which identities differ.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    fn hashed(kind: &[u8], parts: &[&[u8]]) -> Self {
        let mut context = Context::new(&SHA256);
        context.update(kind);
        for part in parts {
            // With its length, so that no two lists of parts have the same bytes.
            context.update(&(part.len() as u64).to_le_bytes());
            context.update(part);
        }
        let mut bytes = [0; BYTES];
        bytes.copy_from_slice(&context.finish().as_ref()[..BYTES]);
        Self(bytes)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn each_holder_has_an_identity_of_its_own() {
        let key = |byte| Identity::of_key(KeyId([byte; 8]));
        let all = [
            key(0),
            key(1),
            Identity::of_certificate("CN=a"),
            Identity::of_certificate("CN=b"),
            Identity::of_subject("i", "a"),
            Identity::of_subject("ia", ""),
            Identity::of_subject("", "ia"),
            Identity::of_subject("other", "a"),
            Identity::of_token(b"CN=a"),
        ];
        assert_eq!(all.iter().collect::<HashSet<_>>().len(), all.len());
        assert_eq!(Identity::of_subject("i", "a"), Identity::of_subject("i", "a"));
        assert_eq!(key(7).as_bytes(), [[7; 8], [0; 8]].concat());
    }
}
