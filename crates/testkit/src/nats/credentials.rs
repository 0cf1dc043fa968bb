//! Credentials of NATS as `nsc` makes them: keys of an operator, an account and a user, and the
//! documents that they sign. Source: the NATS documentation, "Decentralized JWT authentication",
//! and "In depth JWT guide".

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::rand::{SecureRandom as _, SystemRandom};
use ring::signature::{Ed25519KeyPair, KeyPair as _};
use serde_json::{Value, json};

/// A server's configuration and a client's file that belong together.
pub struct Credentials {
    /// Lines of the server's configuration.
    pub server: String,
    /// Content of the client's file.
    pub file: String,
}

/// First byte of a key's text, by what the key is of.
#[derive(Clone, Copy)]
enum KeyKind {
    Operator = 14 << 3,
    Account = 0,
    User = 20 << 3,
}

struct Key {
    kind: KeyKind,
    seed: [u8; 32],
    pair: Ed25519KeyPair,
}

impl Key {
    fn new(kind: KeyKind) -> Self {
        let mut seed = [0; 32];
        SystemRandom::new().fill(&mut seed).expect("random bytes");
        let pair = Ed25519KeyPair::from_seed_unchecked(&seed).expect("32 bytes");
        Self { kind, seed, pair }
    }

    fn public(&self) -> String {
        let mut bytes = vec![self.kind as u8];
        bytes.extend_from_slice(self.pair.public_key().as_ref());
        text(bytes)
    }

    /// Returns the private key as text: two bytes hold its kind beside that of a seed.
    fn private(&self) -> String {
        const SEED: u8 = 18 << 3;
        let kind = self.kind as u8;
        let mut bytes = vec![SEED | kind >> 5, (kind & 31) << 3];
        bytes.extend_from_slice(&self.seed);
        text(bytes)
    }

    /// Signs a document about a key.
    fn sign(&self, about: &Self, nats: &Value) -> String {
        let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let head = json!({ "typ": "JWT", "alg": "ed25519-nkey" });
        let (issuer, subject) = (self.public(), about.public());
        let claims = json!({
            "jti": "test", "iat": 1, "iss": issuer, "sub": subject, "name": "test", "nats": nats,
        });
        let signed = format!("{}.{}", part(&head), part(&claims));
        let signature = self.pair.sign(signed.as_bytes());
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))
    }
}

impl Credentials {
    /// Makes new ones. JetStream is on for their account.
    pub fn new() -> Self {
        let operator = Key::new(KeyKind::Operator);
        let [system, account] = [Key::new(KeyKind::Account), Key::new(KeyKind::Account)];
        let user = Key::new(KeyKind::User);
        let signed = operator.sign(&operator, &json!({ "type": "operator", "version": 2 }));
        let limits = |store: i32| {
            json!({ "type": "account", "version": 2, "limits": {
                "subs": -1, "data": -1, "payload": -1, "imports": -1, "exports": -1,
                "wildcards": true, "conn": -1, "leaf": -1,
                "mem_storage": store, "disk_storage": store, "streams": store, "consumer": store,
            } })
        };
        let server = format!(
            "operator: {signed}\nsystem_account: {}\nresolver: MEMORY\n\
             resolver_preload: {{\n {}: {}\n {}: {}\n}}",
            system.public(),
            system.public(),
            operator.sign(&system, &limits(0)),
            account.public(),
            operator.sign(&account, &limits(-1)),
        );
        let of_user = json!({
            "type": "user", "version": 2, "subs": -1, "data": -1, "payload": -1,
        });
        let file = format!(
            "-----BEGIN NATS USER JWT-----\n{}\n------END NATS USER JWT------\n\n\
             -----BEGIN USER NKEY SEED-----\n{}\n------END USER NKEY SEED------\n",
            account.sign(&user, &of_user),
            user.private()
        );
        Self { server, file }
    }
}

impl Default for Credentials {
    fn default() -> Self {
        Self::new()
    }
}

/// Returns bytes with their checksum in base 32.
fn text(mut bytes: Vec<u8>) -> String {
    const DIGITS: &[u8; 32] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";
    bytes.extend_from_slice(&checksum(&bytes).to_le_bytes());
    let mut text = String::new();
    let (mut held, mut bits) = (0_u32, 0);
    for byte in bytes {
        held = held << 8 | u32::from(byte);
        bits += 8;
        while bits >= 5 {
            bits -= 5;
            text.push(char::from(DIGITS[(held >> bits & 31) as usize]));
        }
    }
    if bits > 0 {
        text.push(char::from(DIGITS[(held << (5 - bits) & 31) as usize]));
    }
    text
}

/// CRC-16 with the polynomial of CCITT, from 0.
fn checksum(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |sum: u16, byte| {
        (0..8).fold(sum ^ u16::from(*byte) << 8, |sum, _| {
            let shifted = sum << 1;
            if sum & 0x8000 == 0 { shifted } else { shifted ^ 0x1021 }
        })
    })
}
