use hotrow_testkit::tokens::{SigningKey, jwks};
use serde_json::json;

use super::*;
use crate::vectors;

fn parse(keys: &Value) -> Result<ParsedJwks, JwksError> {
    KeySet::from_jwks(json!({"keys": keys}).to_string().as_bytes())
}

/// Returns the reason for which the only key is skipped.
fn skipped(key: &Value) -> Option<&'static str> {
    let parsed = parse(&json!([key])).expect("a key set");
    assert_eq!(parsed.keys.len() + parsed.skipped.len(), 1);
    parsed.skipped.first().map(|key| key.why)
}

#[test]
fn every_kind_of_public_key_is_parsed() {
    let keys = [SigningKey::rsa("a"), SigningKey::p256("b"), SigningKey::ed25519("c", 1)];
    let text = jwks(&keys.each_ref());
    let parsed = KeySet::from_jwks(text.as_bytes()).expect("a key set");
    assert_eq!((parsed.keys.len(), parsed.skipped.len()), (3, 0));
    for key in &keys {
        let found = parsed.keys.find(Some(&key.kid), key.algorithm());
        let Found::Key(found) = found else { panic!("{} is not found", key.kid) };
        assert_eq!(found.algorithm().label(), key.algorithm());
    }
}

#[test]
fn the_algorithm_of_a_token_must_be_that_of_its_key() {
    let keys = [SigningKey::rsa("a"), SigningKey::p256("b"), SigningKey::ed25519("c", 1)];
    let parsed = KeySet::from_jwks(jwks(&keys.each_ref()).as_bytes()).expect("a key set");
    for key in &keys {
        for algorithm in
            ["RS256", "ES256", "EdDSA", "Ed25519", "HS256", "none", "None", "", "RS512", "rs256"]
        {
            let found = parsed.keys.find(Some(&key.kid), algorithm);
            let is_own = algorithm == key.algorithm()
                || (algorithm == "Ed25519" && key.algorithm() == "EdDSA");
            assert_eq!(matches!(found, Found::Key(_)), is_own, "{} as {algorithm}", key.kid);
            assert!(is_own || matches!(found, Found::OtherAlgorithm));
        }
    }
    assert!(matches!(parsed.keys.find(Some("d"), "RS256"), Found::UnknownKid));
    assert!(matches!(parsed.keys.find(None, "ES256"), Found::Key(_)), "the only one");
    assert!(matches!(parsed.keys.find(None, "none"), Found::NotOne));
    let two = [SigningKey::ed25519("a", 1), SigningKey::ed25519("b", 2)];
    let two = KeySet::from_jwks(jwks(&two.each_ref()).as_bytes()).expect("a key set");
    assert!(matches!(two.keys.find(None, "EdDSA"), Found::NotOne));
}

#[test]
fn a_shared_secret_has_one_algorithm() {
    let set = KeySet::from_secret(&[7; 32]).expect("a secret");
    for kid in [None, Some("any")] {
        assert!(matches!(set.find(kid, "HS256"), Found::Key(_)));
        for algorithm in ["RS256", "ES256", "EdDSA", "none", "HS512", "hs256"] {
            assert!(matches!(set.find(kid, algorithm), Found::OtherAlgorithm), "{algorithm}");
        }
    }
}

#[test]
fn what_is_published_is_no_secret() {
    let n = "x".repeat(64);
    for key in [
        format!("-----BEGIN PUBLIC KEY-----\n{n}"),
        format!("\n -----BEGIN CERTIFICATE-----\n{n}"),
        format!("MIIBIjANBgkqhkiG9w0BAQEFAAOCAQ8A{n}"),
        format!("ssh-rsa AAAA{n}"),
        format!("{{\"kty\":\"RSA\",\"n\":\"{n}\"}}"),
        format!("0\u{0}{n}"),
    ] {
        let mut bytes = key.into_bytes();
        if bytes.starts_with(b"0\0") {
            bytes[1] = 0x82;
        }
        let error = KeySet::from_secret(&bytes).map(|_| ());
        assert_eq!(error, Err(SecretError::IsKey), "{}", bytes.escape_ascii());
    }
    for length in [0, SECRET_BYTES_MIN - 1, SECRET_BYTES_MAX + 1] {
        let error = KeySet::from_secret(&vec![b'x'; length]).map(|_| ());
        assert_eq!(error, Err(SecretError::Length(length)));
    }
}

#[test]
fn secret_keys_are_refused_as_a_whole() {
    let good = SigningKey::ed25519("a", 1).jwk();
    let secret = SigningKey::secret(&[1; 32]).jwk();
    let error = parse(&json!([good, secret])).map(|_| ());
    assert_eq!(error, Err(JwksError::Secret { index: 1, member: "k" }));
    for member in ["d", "p", "q", "dp", "dq", "qi", "oth"] {
        let mut private = good.clone();
        private[member] = json!("AAAA");
        let error = parse(&json!([private])).map(|_| ());
        assert_eq!(error, Err(JwksError::Secret { index: 0, member }));
    }
}

#[test]
fn unusable_keys_are_skipped() {
    let rsa = SigningKey::rsa("a").jwk();
    let with = |name: &str, value: Value| {
        let mut key = rsa.clone();
        key[name] = value;
        key
    };
    for good in [
        rsa.clone(),
        with("alg", json!("RS256")),
        with("key_ops", json!(["verify"])),
        with("x5c", json!(["ignored"])),
        with("e", json!("Aw")),
        with("kid", json!("k".repeat(KID_BYTES_MAX))),
    ] {
        assert_eq!(skipped(&good), None, "{good}");
    }
    let short = "tkaSFeqCB1TxOeXceHBeuYkC4HJk9eTA1kmeqNWNknrLDEB0I-JKjWJKV3Dc6PsFV3nCAxpUq4slljdyZGBXpU8jpXAdd3y8rWNMuMTl_pbXHTEW3_Mq_ElVFrcTNa5vuZRkVMt0R-Wq94fYa3xlJsiYqEtP35Uqc6JqgLgu2tU";
    let ec = SigningKey::p256("b").jwk();
    let mut cut = ec.clone();
    cut["x"] = json!("AAAA");
    for wrong in [
        json!({}),
        json!({"kty": "EC", "crv": "P-384", "x": "AA", "y": "AA"}),
        json!({"kty": "OKP", "crv": "X25519", "x": vectors::ED25519_X}),
        json!({"kty": "OKP", "crv": "Ed25519", "x": "AA"}),
        json!({"kty": 7}),
        cut,
        with("alg", json!("RS512")),
        with("alg", json!("PS256")),
        with("alg", json!("HS256")),
        with("alg", json!("none")),
        with("use", json!("enc")),
        with("key_ops", json!(["encrypt"])),
        with("key_ops", json!("verify")),
        with("kid", json!(7)),
        with("kid", json!("k".repeat(KID_BYTES_MAX + 1))),
        with("n", json!(short)),
        with("n", json!(format!("AA{}", vectors::RSA_N))),
        with("n", json!("_".repeat(800))),
        with("n", json!("")),
        with("e", json!("AQ")),
        with("e", json!("AQAA")),
        with("e", json!("AAEAAQ")),
        with("e", json!("_________w")),
    ] {
        assert!(skipped(&wrong).is_some(), "{wrong}");
    }
    let of_2047_bits = with("n", json!(format!("f{}", &vectors::RSA_N[1..])));
    let why = "the RSA key has less than 2,048 or more than 4,096 bits";
    assert_eq!(skipped(&of_2047_bits), Some(why));
    let twice = parse(&json!([ec, ec])).expect("a key set");
    assert_eq!((twice.keys.len(), twice.skipped[0].index), (1, 1));
    assert_eq!(twice.skipped[0].kid.as_deref(), Some("b"));
}

/// Returns 32 bytes of hexadecimal digits in base64url.
fn point(hexadecimal: &str) -> String {
    let byte = |at| u8::from_str_radix(&hexadecimal[at..at + 2], 16).expect("two digits");
    URL_SAFE_NO_PAD.encode((0..64).step_by(2).map(byte).collect::<Vec<u8>>())
}

#[test]
fn a_key_that_anyone_can_sign_for_is_skipped() {
    let (zeros, ones) = ("0".repeat(60), "f".repeat(60));
    for (low, between, high) in [
        ("00", &zeros, "00"),
        ("01", &zeros, "00"),
        ("ec", &ones, "7f"),
        ("ed", &ones, "7f"),
        ("ee", &ones, "7f"),
        ("26", &"e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc".to_owned(), "05"),
        ("c7", &"176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac03".to_owned(), "7a"),
    ] {
        let last = u8::from_str_radix(high, 16).expect("two digits");
        for last in [last, last | 0x80] {
            let x = point(&format!("{low}{between}{last:02x}"));
            let why = skipped(&json!({"kty": "OKP", "crv": "Ed25519", "x": x}));
            assert!(why.is_some_and(|why| why.contains("small order")), "{x}: {why:?}");
        }
    }
    let usable = SigningKey::ed25519("c", 1).jwk();
    assert_eq!(skipped(&usable), None);
    let mut named = usable;
    named["alg"] = json!("Ed25519");
    assert_eq!(skipped(&named), None, "RFC 9864");
    // 2^2048 - 1 is divisible by 3, and 2^2047 by 2.
    let even = std::iter::once(0x80).chain([0; 255]).collect();
    for n in [vec![0xff; 256], even] {
        let why = skipped(&json!({"kty": "RSA", "n": URL_SAFE_NO_PAD.encode(n), "e": "AQAB"}));
        assert!(why.is_some_and(|why| why.contains("small factor")), "{why:?}");
    }
}

#[test]
fn sets_are_bounded() {
    let key = SigningKey::ed25519("a", 1).jwk();
    let of_keys = |count| parse(&json!(vec![key.clone(); count])).map(|set| set.keys.is_empty());
    assert_eq!(of_keys(JWKS_KEYS_MAX), Ok(false));
    assert_eq!(of_keys(JWKS_KEYS_MAX + 1), Err(JwksError::TooManyKeys(JWKS_KEYS_MAX + 1)));
    let of_bytes = |bytes: usize| {
        let set = format!("{{\"keys\":[],\"x\":\"{}\"}}", "x".repeat(bytes - 18));
        KeySet::from_jwks(set.as_bytes()).map(|_| ())
    };
    assert_eq!(of_bytes(JWKS_BYTES_MAX), Ok(()));
    assert_eq!(of_bytes(JWKS_BYTES_MAX + 1), Err(JwksError::TooLarge));
    for wrong in ["", "{}", "[]", "{\"keys\":{}}", "{\"keys\":[1]}", "{\"keys\":[],\"keys\":[]}"] {
        let error = KeySet::from_jwks(wrong.as_bytes()).map(|_| ());
        assert_eq!(error, Err(JwksError::Malformed), "{wrong}");
    }
    assert!(KeySet::from_jwks(b"{\"keys\":[]}").is_ok_and(|set| set.keys.is_empty()));
}
