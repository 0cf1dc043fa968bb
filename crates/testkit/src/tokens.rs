//! An issuer of tokens: keys of every supported algorithm, their JWKS, and signatures.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::hmac;
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair, RSA_PKCS1_SHA256,
    RsaKeyPair, RsaPublicKeyComponents,
};
use serde_json::{Value, json};

/// A private RSA key for tests, known to everyone.
const RSA: &[u8] = include_bytes!("tokens/rsa_2048.pk8");

/// Private key of an issuer, with its id.
pub struct SigningKey {
    /// Named by tokens and the JWKS.
    pub kid: String,
    material: Material,
}

enum Material {
    Rsa(Box<RsaKeyPair>),
    P256(EcdsaKeyPair),
    Ed25519(Ed25519KeyPair),
    Secret(Vec<u8>),
}

impl SigningKey {
    /// Always the same RSA key.
    #[must_use]
    pub fn rsa(kid: &str) -> Self {
        let key = RsaKeyPair::from_pkcs8(RSA).expect("a private key");
        Self { kid: kid.to_owned(), material: Material::Rsa(Box::new(key)) }
    }

    /// A new key on P-256.
    #[must_use]
    pub fn p256(kid: &str) -> Self {
        let random = SystemRandom::new();
        let algorithm = &ECDSA_P256_SHA256_FIXED_SIGNING;
        let key = EcdsaKeyPair::generate_pkcs8(algorithm, &random).expect("a new key");
        let key = EcdsaKeyPair::from_pkcs8(algorithm, key.as_ref(), &random).expect("its own key");
        Self { kid: kid.to_owned(), material: Material::P256(key) }
    }

    /// The Ed25519 key of this seed.
    #[must_use]
    pub fn ed25519(kid: &str, seed: u8) -> Self {
        let key = Ed25519KeyPair::from_seed_unchecked(&[seed; 32]).expect("any seed is a key");
        Self { kid: kid.to_owned(), material: Material::Ed25519(key) }
    }

    /// A shared secret.
    #[must_use]
    pub fn secret(secret: &[u8]) -> Self {
        Self { kid: "secret".to_owned(), material: Material::Secret(secret.to_vec()) }
    }

    /// Returns the name of its algorithm.
    pub fn algorithm(&self) -> &'static str {
        match &self.material {
            Material::Rsa(_) => "RS256",
            Material::P256(_) => "ES256",
            Material::Ed25519(_) => "EdDSA",
            Material::Secret(_) => "HS256",
        }
    }

    /// Returns the public key as a JWK.
    pub fn jwk(&self) -> Value {
        let encode = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        let kid = &self.kid;
        match &self.material {
            Material::Rsa(key) => {
                let public = RsaPublicKeyComponents::<Vec<u8>>::from(key.public());
                let (n, e) = (encode(&public.n), encode(&public.e));
                json!({"kty": "RSA", "kid": kid, "alg": "RS256", "use": "sig", "n": n, "e": e})
            }
            Material::P256(key) => {
                let point = key.public_key().as_ref();
                let (x, y) = (encode(&point[1..33]), encode(&point[33..]));
                json!({"kty": "EC", "crv": "P-256", "kid": kid, "x": x, "y": y})
            }
            Material::Ed25519(key) => {
                let x = encode(key.public_key().as_ref());
                json!({"kty": "OKP", "crv": "Ed25519", "kid": kid, "x": x})
            }
            Material::Secret(secret) => json!({"kty": "oct", "kid": kid, "k": encode(secret)}),
        }
    }

    /// Signs claims, with the usual header.
    pub fn token(&self, claims: &Value) -> String {
        self.token_with(&json!({"alg": self.algorithm(), "kid": self.kid}), claims)
    }

    /// Signs claims with this header, which may lie about the algorithm.
    pub fn token_with(&self, header: &Value, claims: &Value) -> String {
        let encode = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let signed = format!("{}.{}", encode(header), encode(claims));
        let signature = self.sign(signed.as_bytes());
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))
    }

    fn sign(&self, signed: &[u8]) -> Vec<u8> {
        let random = SystemRandom::new();
        match &self.material {
            Material::Rsa(key) => {
                let mut signature = vec![0; key.public().modulus_len()];
                key.sign(&RSA_PKCS1_SHA256, &random, signed, &mut signature).expect("a signature");
                signature
            }
            Material::P256(key) => {
                key.sign(&random, signed).expect("a signature").as_ref().to_vec()
            }
            Material::Ed25519(key) => key.sign(signed).as_ref().to_vec(),
            Material::Secret(secret) => {
                let key = hmac::Key::new(hmac::HMAC_SHA256, secret);
                hmac::sign(&key, signed).as_ref().to_vec()
            }
        }
    }
}

/// Returns the JWKS of these keys.
pub fn jwks(keys: &[&SigningKey]) -> String {
    let keys: Vec<Value> = keys.iter().map(|key| key.jwk()).collect();
    json!({"keys": keys}).to_string()
}
