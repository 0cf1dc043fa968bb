use hotrow_testkit::tokens::{SigningKey, jwks};
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::grant::{Role, Scope};
use crate::vectors;

const NOW: UnixSeconds = UnixSeconds(1_700_000_000);
const LEEWAY_S: u64 = 30;

fn policy() -> TokenPolicy {
    TokenPolicy {
        issuer: Some("https://id.example/".to_owned()),
        audiences: vec!["hotrow".to_owned(), "shop".to_owned()],
        leeway_s: LEEWAY_S,
        role_claim: vec!["roles".to_owned()],
        tenant_claim: vec!["org".to_owned(), "id".to_owned()],
    }
}

fn grants() -> Grants {
    let role = |value: &str| Role {
        name: value.to_owned(),
        claim_values: vec![value.to_owned()],
        collections: Scope::All,
        columns: Vec::new(),
        no_cache: false,
        min_position: false,
        strict: true,
        rate_classes: Default::default(),
    };
    Grants::new(&[role("reader"), role("writer")], 1).expect("two roles")
}

fn claims() -> Value {
    json!({
        "iss": "https://id.example/", "aud": "hotrow", "exp": NOW.0 + 60, "roles": ["reader"],
    })
}

fn with(name: &str, value: Value) -> Value {
    let mut claims = claims();
    match value {
        Value::Null => drop(claims.as_object_mut().and_then(|object| object.remove(name))),
        value => claims[name] = value,
    }
    claims
}

fn set_of(key: &SigningKey) -> KeySet {
    KeySet::from_jwks(jwks(&[key]).as_bytes()).expect("a key set").keys
}

fn outcome(claims: &Value, policy: &TokenPolicy) -> Result<VerifiedToken, TokenError> {
    let key = SigningKey::ed25519("a", 1);
    verify(key.token(claims).as_bytes(), &set_of(&key), policy, &grants(), NOW)
}

#[test]
fn examples_of_the_standards_are_verified() {
    let keys = json!({"keys": [
        {"kty": "RSA", "n": vectors::RSA_N, "e": "AQAB"},
        {"kty": "EC", "crv": "P-256", "x": vectors::P256_X, "y": vectors::P256_Y},
        {"kty": "OKP", "crv": "Ed25519", "x": vectors::ED25519_X},
    ]});
    let public = KeySet::from_jwks(keys.to_string().as_bytes()).expect("a key set");
    assert_eq!(public.skipped, []);
    use base64::Engine;
    let secret = base64::engine::general_purpose::URL_SAFE_NO_PAD.decode(vectors::SECRET);
    let secret = KeySet::from_secret(&secret.expect("base64url")).expect("a secret");
    let policy = TokenPolicy { issuer: Some("joe".to_owned()), audiences: Vec::new(), ..policy() };
    let then = UnixSeconds(1_300_819_379);
    for (token, keys) in
        [(vectors::RS256, &public.keys), (vectors::ES256, &public.keys), (vectors::HS256, &secret)]
    {
        let at = |now| verify(token.as_bytes(), keys, &policy, &grants(), now);
        let token = at(then).expect("valid at that time");
        assert_eq!(token.validity.expires, UnixSeconds(1_300_819_380));
        assert_eq!(at(NOW), Err(TokenError::Expired));
    }
    // Signed correctly; its payload is not a set of claims.
    let sentence = verify(vectors::EDDSA.as_bytes(), &public.keys, &policy, &grants(), then);
    assert_eq!(sentence, Err(TokenError::Format(FormatError::Payload)));
    let mut changed = vectors::EDDSA.replace("EifQ", "EifR");
    changed = changed.replace("RXhhbXBsZSBv", "RXhhbXBsZSBw");
    let changed = verify(changed.as_bytes(), &public.keys, &policy, &grants(), then);
    assert_eq!(changed, Err(TokenError::Signature));
}

#[test]
fn the_tenant_claim_names_tenants() {
    let tenants = |org| outcome(&with("org", org), &policy()).map(|token| token.tenants);
    for (org, has) in [
        (json!({"id": "acme"}), true),
        (json!({"id": ["x", 1.5, "acme"]}), true),
        (json!({"id": "ACME"}), false),
        (json!({"id": {"acme": "acme"}}), false),
        (json!({"name": "acme"}), false),
        (json!("acme"), false),
        (json!(["acme"]), false),
        (Value::Null, false),
    ] {
        let found = tenants(org.clone()).expect("a valid token");
        assert_eq!(found.contains(b"acme"), has, "{org}");
        assert!(!found.contains(b"x") || org["id"].is_array(), "{org}");
    }
    let integer = tenants(json!({"id": 7})).expect("a valid token");
    assert!(integer.contains(b"7"));
    let many: Vec<u32> = (0..100).collect();
    assert_eq!(tenants(json!({"id": many})), Err(TokenError::Tenants(TooManyTenants)));
    let none = TokenPolicy { tenant_claim: Vec::new(), ..policy() };
    let token = outcome(&with("org", json!({"id": "acme"})), &none).expect("a valid token");
    assert!(token.tenants.is_empty());
}

#[test]
fn claims_are_checked() {
    let reader = outcome(&claims(), &policy()).expect("valid");
    assert_eq!(reader.roles, grants().roles_of("reader"));
    let end = NOW.0 - LEEWAY_S;
    for (claims, expected) in [
        (with("exp", json!(end)), Some(TokenError::Expired)),
        (with("exp", json!(end + 1)), None),
        (with("exp", json!(end as f64 + 1.5)), None),
        (with("exp", json!(-1)), Some(TokenError::Expired)),
        (with("exp", json!(1e300)), None),
        (with("exp", json!(u64::MAX)), None),
        (with("exp", json!("1800000000")), Some(TokenError::Claim("exp"))),
        (with("exp", Value::Null), Some(TokenError::Claim("exp"))),
        (with("nbf", json!(NOW.0 + LEEWAY_S + 1)), Some(TokenError::NotYetValid)),
        (with("nbf", json!(NOW.0 + LEEWAY_S)), None),
        (with("nbf", json!(true)), Some(TokenError::Claim("nbf"))),
        (with("iss", json!("https://id.example")), Some(TokenError::Issuer)),
        (with("iss", json!(["https://id.example/"])), Some(TokenError::Claim("iss"))),
        (with("iss", Value::Null), Some(TokenError::Claim("iss"))),
        (with("aud", json!(["x", "shop"])), None),
        (with("aud", json!(["x", 7])), Some(TokenError::Audience)),
        (with("aud", json!("Hotrow")), Some(TokenError::Audience)),
        (with("aud", json!([])), Some(TokenError::Audience)),
        (with("aud", json!({"hotrow": true})), Some(TokenError::Claim("aud"))),
        (with("aud", Value::Null), Some(TokenError::Claim("aud"))),
    ] {
        assert_eq!(outcome(&claims, &policy()).err(), expected, "{claims}");
    }
    let open = TokenPolicy { issuer: None, audiences: Vec::new(), ..policy() };
    assert_eq!(outcome(&with("aud", Value::Null), &open).err(), None);
    assert_eq!(
        outcome(&claims(), &open).err(),
        Some(TokenError::Audience),
        "a token for others is refused where this service has no name"
    );
}

#[test]
fn roles_come_from_the_claim() {
    let (reader, writer) = (grants().roles_of("reader"), grants().roles_of("writer"));
    for (value, roles) in [
        (json!("reader"), reader),
        (json!("x reader writer"), reader.union(writer)),
        (json!(["writer", 7, "reader"]), reader.union(writer)),
        (json!(["reader writer"]), Roles::default()),
        (json!(7), Roles::default()),
        (json!({"reader": true}), Roles::default()),
        (Value::Null, Roles::default()),
    ] {
        let claims = with("roles", value);
        assert_eq!(outcome(&claims, &policy()).map(|token| token.roles), Ok(roles), "{claims}");
    }
    let path = ["realm_access", "roles"].map(ToOwned::to_owned).to_vec();
    let nested = TokenPolicy { role_claim: path, ..policy() };
    let claims = with("realm_access", json!({"roles": ["writer"]}));
    assert_eq!(outcome(&claims, &nested).map(|token| token.roles), Ok(writer));
}

#[test]
fn no_token_chooses_its_algorithm() {
    let rsa = SigningKey::rsa("a");
    let keys = set_of(&rsa);
    let check = |token: &str| verify(token.as_bytes(), &keys, &policy(), &grants(), NOW);
    assert!(check(&rsa.token(&claims())).is_ok());
    // The public key, which everyone knows, as a shared secret: in every form that it is seen in.
    let n = rsa.jwk()["n"].as_str().expect("a text").to_owned();
    let forms = [n.into_bytes(), jwks(&[&rsa]).into_bytes(), rsa.jwk().to_string().into()];
    for form in forms {
        let forger = SigningKey::secret(&form);
        for header in [
            json!({"alg": "HS256", "kid": "a"}),
            json!({"alg": "RS256", "kid": "a"}),
            json!({"alg": "HS256"}),
        ] {
            assert!(check(&forger.token_with(&header, &claims())).is_err(), "{header}");
        }
    }
    for algorithm in ["none", "None", "NONE", "", "ES256", "EdDSA", "RS384", "RS512", "PS256"] {
        let header = json!({"alg": algorithm, "kid": "a"});
        let token = rsa.token_with(&header, &claims());
        assert_eq!(check(&token), Err(TokenError::Algorithm), "{algorithm}");
        let cut = token.rfind('.').expect("a dot");
        assert!(check(&token[..=cut]).is_err(), "without a signature");
    }
    // A key within the token is no key.
    let other = SigningKey::ed25519("a", 9);
    let header = json!({"alg": "EdDSA", "jwk": other.jwk(), "jku": "https://evil.example/"});
    assert!(check(&other.token_with(&header, &claims())).is_err());
    let foreign = other.token(&claims());
    assert!(
        verify(
            foreign.as_bytes(),
            &set_of(&SigningKey::ed25519("a", 1)),
            &policy(),
            &grants(),
            NOW
        )
        .is_err_and(|error| error == TokenError::Signature)
    );
}

#[test]
fn errors_do_not_repeat_the_token() {
    let key = SigningKey::ed25519("secret-kid", 1);
    let token = key.token(&with("iss", json!("secret-issuer")));
    let other = set_of(&SigningKey::ed25519("other", 2));
    for keys in [&set_of(&key), &other] {
        let error = verify(token.as_bytes(), keys, &policy(), &grants(), NOW).expect_err("refused");
        let shown = format!("{error} {error:?}");
        assert!(!shown.contains("secret") && !shown.contains(&token[..20]), "{shown}");
    }
}

fn signing_keys() -> [SigningKey; 4] {
    [
        SigningKey::rsa("a"),
        SigningKey::p256("a"),
        SigningKey::ed25519("a", 3),
        SigningKey::secret(&[5; 32]),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Any changed bit of the header, the payload or the signature ends a token.
    #[test]
    fn no_changed_token_passes(which in 0..4_usize, at in any::<prop::sample::Index>(), bit in 0..8_u8) {
        let key = &signing_keys()[which];
        let keys = match key.algorithm() {
            "HS256" => KeySet::from_secret(&[5; 32]).expect("a secret"),
            _ => set_of(key),
        };
        let mut token = key.token(&claims()).into_bytes();
        prop_assert!(verify(&token, &keys, &policy(), &grants(), NOW).is_ok());
        let at = at.index(token.len());
        token[at] ^= 1 << bit;
        prop_assert!(verify(&token, &keys, &policy(), &grants(), NOW).is_err());
    }

    /// Any changed bit of the decoded signature ends a token.
    #[test]
    fn no_changed_signature_passes(which in 0..3_usize, at in any::<prop::sample::Index>(), bit in 0..8_u8) {
        use base64::Engine;
        use base64::engine::general_purpose::URL_SAFE_NO_PAD;
        let key = &signing_keys()[which];
        let token = key.token(&claims());
        let (signed, signature) = token.rsplit_once('.').expect("a dot");
        let mut signature = URL_SAFE_NO_PAD.decode(signature).expect("base64url");
        let at = at.index(signature.len());
        signature[at] ^= 1 << bit;
        let token = format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature));
        let changed = verify(token.as_bytes(), &set_of(key), &policy(), &grants(), NOW);
        prop_assert_eq!(changed, Err(TokenError::Signature));
    }

    /// Nothing panics, and nothing passes.
    #[test]
    fn no_noise_passes(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let keys = set_of(&SigningKey::ed25519("a", 1));
        prop_assert!(verify(&bytes, &keys, &policy(), &grants(), NOW).is_err());
        let _ = KeySet::from_jwks(&bytes);
        prop_assert!(crate::key::KeyTable::default().find(&bytes).is_none());
    }
}

#[test]
fn all_tokens_of_a_subject_have_one_identity() {
    let identity = |claims: &Value| outcome(claims, &policy()).expect("a valid token").identity;
    let of = |subject: &str, exp: u64| {
        let mut claims = with("sub", json!(subject));
        claims["exp"] = json!(NOW.0 + exp);
        identity(&claims)
    };
    assert_eq!(of("a", 60), of("a", 90));
    assert_ne!(of("a", 60), of("b", 60));
    // Without a subject, each token has its own.
    assert_ne!(identity(&claims()), identity(&with("exp", json!(NOW.0 + 90))));
    assert_eq!(identity(&claims()), identity(&claims()));
}
