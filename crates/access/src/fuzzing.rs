//! Entry point of the fuzz target: any bytes as a credential and as a key set. Not in ordinary
//! builds.

use std::sync::OnceLock;

use serde_json::json;

use crate::grant::Grants;
use crate::jwks::KeySet;
use crate::key::{KeyTable, NewKey, StoredKey};
use crate::vectors;
use crate::verify::{TokenPolicy, UnixSeconds, verify};

/// Checks bytes as a token, as an API key and as a key set.
///
/// # Panics
/// If a token passes that is not one of the two signed ones, or a key that is not the stored one.
pub fn credential(input: &[u8]) {
    static KEYS: OnceLock<KeySet> = OnceLock::new();
    let keys = KEYS.get_or_init(public_keys);
    let policy = TokenPolicy {
        issuer: Some("joe".to_owned()),
        audiences: Vec::new(),
        leeway_s: 0,
        role_claim: vec!["roles".to_owned()],
        tenant_claim: vec!["tenant".to_owned()],
    };
    let then = UnixSeconds(1_300_819_379);
    if verify(input, keys, &policy, &Grants::default(), then).is_ok() {
        let signed = [vectors::RS256.as_bytes(), vectors::ES256.as_bytes()];
        assert!(signed.contains(&input), "a token without a valid signature passes");
    }
    let key = NewKey::new([1; 8], &[2; 32]);
    let (roles, tenants) = Default::default();
    let stored = StoredKey { id: key.id, hash: key.hash, roles, tenants };
    if KeyTable::new(vec![stored]).is_ok_and(|table| table.find(input).is_some()) {
        assert_eq!(input, key.reveal().as_bytes(), "a key that was never issued passes");
    }
    // Any set is parsed or refused, and uses no key without a reason for each other one.
    if let Ok(parsed) = KeySet::from_jwks(input) {
        assert!(parsed.keys.len() + parsed.skipped.len() <= crate::jwks::JWKS_KEYS_MAX);
    }
}

fn public_keys() -> KeySet {
    let keys = json!({"keys": [
        {"kty": "RSA", "n": vectors::RSA_N, "e": "AQAB"},
        {"kty": "EC", "crv": "P-256", "x": vectors::P256_X, "y": vectors::P256_Y},
        {"kty": "OKP", "crv": "Ed25519", "x": vectors::ED25519_X},
    ]});
    KeySet::from_jwks(keys.to_string().as_bytes()).map(|parsed| parsed.keys).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use hotrow_testkit::mutate;

    #[test]
    fn credentials_survive_mutations() {
        let pieces: [&[u8]; 6] =
            [b".", b"eyJhbGciOiJub25lIn0", b"{\"keys\":[", b"hrk_", b"\"d\":\"AA\",", b"=="];
        mutate::run("../../fuzz/corpus/credential", 100_000, &pieces, super::credential);
    }
}
