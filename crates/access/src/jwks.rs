//! Keys that verify tokens: a JSON Web Key Set (JWKS, RFC 7517) of public keys, or one shared
//! secret.
//!
//! A key has exactly one algorithm, which it got here. A token can name that algorithm or be
//! refused; it cannot choose. A secret never comes from a JWKS, and a public key never becomes a
//! secret, so that no published text can sign.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::hmac;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ED25519, RSA_PKCS1_2048_8192_SHA256, RsaPublicKeyComponents,
    UnparsedPublicKey,
};
use serde_json::{Map, Value};

use crate::json;
use crate::jwt::KID_BYTES_MAX;

/// Largest JWKS in bytes.
pub const JWKS_BYTES_MAX: usize = 64 * 1024;
/// Most keys of a JWKS.
pub const JWKS_KEYS_MAX: usize = 64;
/// Least bytes of a shared secret: as many as the hash has (RFC 7518, section 3.2).
pub const SECRET_BYTES_MIN: usize = 32;
/// Most bytes of a shared secret.
pub const SECRET_BYTES_MAX: usize = 1024;
/// Sizes of RSA keys in bits. Larger ones would make each verification expensive.
const RSA_BITS: std::ops::RangeInclusive<usize> = 2048..=4096;
/// Bound on the factors that an RSA modulus must not have (NIST SP 800-89, section 5.3.3).
const RSA_FACTOR_MAX: u32 = 752;
/// `y` of every point whose order divides 8, in both forms where it has two, without the sign of
/// `x`. With such a key anyone can make signatures: they hold for one text in eight at least.
const SMALL_ORDER: [[u8; 32]; 7] = [
    low_and_high(0x00, 0x00, 0x00),
    low_and_high(0x01, 0x00, 0x00),
    low_and_high(0xec, 0xff, 0x7f),
    low_and_high(0xed, 0xff, 0x7f),
    low_and_high(0xee, 0xff, 0x7f),
    *b"\x26\xe8\x95\x8f\xc2\xb2\x27\xb0\x45\xc3\xf4\x89\xf2\xef\x98\xf0\
       \xd5\xdf\xac\x05\xd3\xc6\x33\x39\xb1\x38\x02\x88\x6d\x53\xfc\x05",
    *b"\xc7\x17\x6a\x70\x3d\x4d\xd8\x4f\xba\x3c\x0b\x76\x0d\x10\x67\x0f\
       \x2a\x20\x53\xfa\x2c\x39\xcc\xc6\x4e\xc7\xfd\x77\x92\xac\x03\x7a",
];

const fn low_and_high(low: u8, between: u8, high: u8) -> [u8; 32] {
    let mut bytes = [between; 32];
    bytes[0] = low;
    bytes[31] = high;
    bytes
}

/// A signature algorithm, by its name in tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    /// RSA (PKCS #1 v1.5) with SHA-256.
    Rs256,
    /// ECDSA on P-256 with SHA-256.
    Es256,
    /// Ed25519, also named so.
    EdDsa,
    /// HMAC with SHA-256.
    Hs256,
}

impl Algorithm {
    /// Returns its name in tokens.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::Rs256 => "RS256",
            Self::Es256 => "ES256",
            Self::EdDsa => "EdDSA",
            Self::Hs256 => "HS256",
        }
    }

    /// Returns whether a token or key may name it so. RFC 9864 renamed EdDSA with this curve.
    fn is_named(self, name: &str) -> bool {
        name == self.label() || (self == Self::EdDsa && name == "Ed25519")
    }
}

/// A key that verifies signatures.
pub struct VerifyingKey {
    kid: Option<String>,
    material: Material,
}

enum Material {
    Rsa(RsaPublicKeyComponents<Box<[u8]>>),
    P256([u8; 65]),
    Ed25519([u8; 32]),
    Secret(hmac::Key),
}

/// Keys in force.
#[derive(Debug, Default)]
pub struct KeySet {
    keys: Box<[VerifyingKey]>,
}

/// A parsed JWKS.
#[derive(Debug)]
pub struct ParsedJwks {
    /// Its usable keys.
    pub keys: KeySet,
    /// Its other keys, each with the reason.
    pub skipped: Vec<SkippedKey>,
}

/// A key of a JWKS that is not used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SkippedKey {
    /// Place in the set, from 0.
    pub index: usize,
    /// Its id, cut to 64 characters.
    pub kid: Option<String>,
    /// Reason.
    pub why: &'static str,
}

/// Reason for which a whole JWKS is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JwksError {
    /// Larger than [`JWKS_BYTES_MAX`].
    #[error("the key set has more than {JWKS_BYTES_MAX} bytes")]
    TooLarge,
    /// Not a JWKS.
    #[error(
        "the key set is not a JSON object with a list as keys, is nested too deeply, or has a name \
         twice"
    )]
    Malformed,
    /// More than [`JWKS_KEYS_MAX`] keys.
    #[error("the key set has {0} keys; at most {JWKS_KEYS_MAX} are allowed")]
    TooManyKeys(usize),
    /// It contains a secret: every reader of the file can sign tokens.
    #[error(
        "key {index} of the key set is secret (it has the member {member}), so every reader of the \
         set can sign tokens; publish public keys only, and replace this key"
    )]
    Secret {
        /// Place in the set, from 0.
        index: usize,
        /// Name of the secret member.
        member: &'static str,
    },
}

/// Reason for which a text is not used as shared secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SecretError {
    /// Too short or too long.
    #[error("must have {SECRET_BYTES_MIN} to {SECRET_BYTES_MAX} bytes, not {0}")]
    Length(usize),
    /// It is a public key or certificate, which others know.
    #[error(
        "must be a random secret, not a key or certificate in PEM, DER or JSON form: what is \
         published can be known to others"
    )]
    IsKey,
}

impl KeySet {
    /// Parses a JWKS.
    ///
    /// # Errors
    /// See [`JwksError`]. An unusable public key is no error; it is skipped.
    pub fn from_jwks(text: &[u8]) -> Result<ParsedJwks, JwksError> {
        if text.len() > JWKS_BYTES_MAX {
            return Err(JwksError::TooLarge);
        }
        let set = json::parse_object(text).ok_or(JwksError::Malformed)?;
        let Some(Value::Array(list)) = set.get("keys") else { return Err(JwksError::Malformed) };
        if list.len() > JWKS_KEYS_MAX {
            return Err(JwksError::TooManyKeys(list.len()));
        }
        let mut keys: Vec<VerifyingKey> = Vec::with_capacity(list.len());
        let mut skipped = Vec::new();
        for (index, key) in list.iter().enumerate() {
            let Value::Object(key) = key else { return Err(JwksError::Malformed) };
            if let Some(member) = secret_member(key) {
                return Err(JwksError::Secret { index, member });
            }
            match VerifyingKey::from_jwk(key) {
                Ok(key) if keys.iter().any(|known| known.is_named_like(&key)) => {
                    let why = "another key of the set has the same kid and algorithm";
                    skipped.push(SkippedKey { index, kid: shown(key.kid.as_deref()), why });
                }
                Ok(key) => keys.push(key),
                Err(why) => {
                    let kid = key.get("kid").and_then(Value::as_str);
                    skipped.push(SkippedKey { index, kid: shown(kid), why });
                }
            }
        }
        Ok(ParsedJwks { keys: Self { keys: keys.into_boxed_slice() }, skipped })
    }

    /// Makes a set of one shared secret, for HS256. Tokens may name any `kid` or none.
    ///
    /// # Errors
    /// See [`SecretError`]. No error contains the secret.
    pub fn from_secret(secret: &[u8]) -> Result<Self, SecretError> {
        if !(SECRET_BYTES_MIN..=SECRET_BYTES_MAX).contains(&secret.len()) {
            return Err(SecretError::Length(secret.len()));
        }
        if is_key_text(secret) {
            return Err(SecretError::IsKey);
        }
        let material = Material::Secret(hmac::Key::new(hmac::HMAC_SHA256, secret));
        Ok(Self { keys: Box::new([VerifyingKey { kid: None, material }]) })
    }

    /// Returns the number of keys.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Returns the key for a token that names this `kid`, or none. Without a `kid` only the sole
    /// key of the named algorithm is meant. The algorithm decides between keys of one `kid`, never
    /// how a key is used.
    pub(crate) fn find(&self, kid: Option<&str>, algorithm: &str) -> Found<'_> {
        if let [key @ VerifyingKey { material: Material::Secret(_), .. }] = &*self.keys {
            return Found::of(key, algorithm);
        }
        if let Some(kid) = kid {
            let mut named = self.keys.iter().filter(|key| key.kid.as_deref() == Some(kid));
            let Some(first) = named.clone().next() else { return Found::UnknownKid };
            let matching = named.find(|key| key.algorithm().is_named(algorithm));
            return Found::of(matching.unwrap_or(first), algorithm);
        }
        let mut of_algorithm = self.keys.iter().filter(|key| key.algorithm().is_named(algorithm));
        match (of_algorithm.next(), of_algorithm.next()) {
            (Some(key), None) => Found::Key(key),
            _ => Found::NotOne,
        }
    }
}

/// Result of a search for a token's key.
pub(crate) enum Found<'a> {
    /// The key, of the algorithm that the token names.
    Key(&'a VerifyingKey),
    /// The key has another algorithm.
    OtherAlgorithm,
    /// No key has that `kid`.
    UnknownKid,
    /// Without `kid`: no key or several keys are possible.
    NotOne,
}

impl<'a> Found<'a> {
    fn of(key: &'a VerifyingKey, algorithm: &str) -> Self {
        if key.algorithm().is_named(algorithm) { Self::Key(key) } else { Self::OtherAlgorithm }
    }
}

impl VerifyingKey {
    /// Returns its only algorithm.
    pub fn algorithm(&self) -> Algorithm {
        match &self.material {
            Material::Rsa(_) => Algorithm::Rs256,
            Material::P256(_) => Algorithm::Es256,
            Material::Ed25519(_) => Algorithm::EdDsa,
            Material::Secret(_) => Algorithm::Hs256,
        }
    }

    /// Returns whether this key made the signature of `signed`.
    pub(crate) fn verifies(&self, signed: &[u8], signature: &[u8]) -> bool {
        match &self.material {
            Material::Rsa(key) => {
                key.verify(&RSA_PKCS1_2048_8192_SHA256, signed, signature).is_ok()
            }
            Material::P256(point) => UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point)
                .verify(signed, signature)
                .is_ok(),
            Material::Ed25519(point) => {
                UnparsedPublicKey::new(&ED25519, point).verify(signed, signature).is_ok()
            }
            Material::Secret(secret) => hmac::verify(secret, signed, signature).is_ok(),
        }
    }

    fn is_named_like(&self, other: &Self) -> bool {
        self.kid == other.kid && self.algorithm() == other.algorithm()
    }

    /// Parses a public key.
    fn from_jwk(key: &Map<String, Value>) -> Result<Self, &'static str> {
        let text = |name| match key.get(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.as_str())),
            Some(_) => Err("kty, kid, use, alg or crv is not a text"),
        };
        let kid = text("kid")?;
        if kid.is_some_and(|kid| kid.len() > KID_BYTES_MAX) {
            return Err("kid is too long");
        }
        if text("use")?.is_some_and(|purpose| purpose != "sig") {
            return Err("use is not sig");
        }
        if let Some(operations) = key.get("key_ops") {
            let mut operations = operations.as_array().into_iter().flatten();
            if !operations.any(|operation| operation == "verify") {
                return Err("key_ops lacks verify");
            }
        }
        let material = match (text("kty")?, text("crv")?) {
            (Some("RSA"), _) => rsa(key)?,
            (Some("EC"), Some("P-256")) => p256(key)?,
            (Some("OKP"), Some("Ed25519")) => ed25519(key)?,
            _ => return Err("its type is not RSA, EC with P-256, or OKP with Ed25519"),
        };
        let key = Self { kid: kid.map(ToOwned::to_owned), material };
        if text("alg")?.is_some_and(|algorithm| !key.algorithm().is_named(algorithm)) {
            return Err("alg is not RS256, ES256, EdDSA or Ed25519 as its type requires");
        }
        Ok(key)
    }
}

impl fmt::Debug for VerifyingKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VerifyingKey")
            .field("kid", &self.kid)
            .field("algorithm", &self.algorithm())
            .finish_non_exhaustive()
    }
}

fn rsa(key: &Map<String, Value>) -> Result<Material, &'static str> {
    let number = |name| {
        let text = key.get(name).and_then(Value::as_str)?;
        URL_SAFE_NO_PAD.decode(text).ok().filter(|bytes| bytes.first().is_some_and(|b| *b != 0))
    };
    let n = number("n").ok_or("n is not a number in base64url without leading zeros")?;
    let e = number("e").ok_or("e is not a number in base64url without leading zeros")?;
    let bits = 8 * n.len() - n.first().map_or(0, |byte| byte.leading_zeros() as usize);
    if !RSA_BITS.contains(&bits) {
        return Err("the RSA key has less than 2,048 or more than 4,096 bits");
    }
    // An exponent of one would make the signed text its own signature. Keys in use have 65,537.
    let is_exponent = e.len() <= 4 && e.last().is_some_and(|byte| byte % 2 == 1) && e != [1];
    if !is_exponent {
        return Err("e is not an odd number from 3 to 2^32");
    }
    // A factor gives the private key.
    let remainder = |factor| n.iter().fold(0, |rest, byte| (rest << 8 | u32::from(*byte)) % factor);
    if (2..RSA_FACTOR_MAX).any(|factor| remainder(factor) == 0) {
        return Err("n has a small factor, so anyone can sign for it");
    }
    Ok(Material::Rsa(RsaPublicKeyComponents { n: n.into(), e: e.into() }))
}

fn ed25519(key: &Map<String, Value>) -> Result<Material, &'static str> {
    let point: [u8; 32] = member(key, "x").ok_or("x is not 32 bytes of base64url")?;
    let mut unsigned = point;
    unsigned[31] &= 0x7f;
    if SMALL_ORDER.contains(&unsigned) {
        return Err("x is a point of small order, so anyone can sign for it");
    }
    Ok(Material::Ed25519(point))
}

fn p256(key: &Map<String, Value>) -> Result<Material, &'static str> {
    const WRONG: &str = "x or y is not 32 bytes of base64url";
    let (x, y): ([u8; 32], [u8; 32]) =
        (member(key, "x").ok_or(WRONG)?, member(key, "y").ok_or(WRONG)?);
    // The uncompressed form (SEC 1, section 2.3.3). A point off the curve verifies nothing, and all
    // on it have the same order.
    let mut point = [4; 65];
    point[1..33].copy_from_slice(&x);
    point[33..].copy_from_slice(&y);
    Ok(Material::P256(point))
}

/// Returns a member of exactly 32 bytes.
fn member(key: &Map<String, Value>, name: &str) -> Option<[u8; 32]> {
    let text = key.get(name)?.as_str()?;
    URL_SAFE_NO_PAD.decode(text).ok()?.try_into().ok()
}

/// Returns the name of a member that makes the key secret.
fn secret_member(key: &Map<String, Value>) -> Option<&'static str> {
    const SECRET: [&str; 8] = ["k", "d", "p", "q", "dp", "dq", "qi", "oth"];
    SECRET.into_iter().find(|name| key.contains_key(*name))
}

/// Returns whether the text is a key or certificate in a usual form.
fn is_key_text(secret: &[u8]) -> bool {
    let text = secret.trim_ascii();
    // An ASN.1 sequence with a length of two bytes, or its base64.
    text.windows(10).any(|part| part == b"-----BEGIN")
        || text.starts_with(&[0x30, 0x82])
        || text.starts_with(b"MII")
        || text.starts_with(b"ssh-")
        || text.starts_with(b"{")
}

fn shown(kid: Option<&str>) -> Option<String> {
    kid.map(|kid| kid.chars().take(64).collect())
}

#[cfg(test)]
mod tests;
