//! Every route with every kind of credential, over real connections.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::common::http2::Http2Connection;
use crate::common::service::{Running, access, config, policy};
use crate::common::{self, Answer, Client, wait_until};
use hotrow_access::key_refresh::RefreshConfig;
use hotrow_config::Config;
use hotrow_config::access::{Access, TokenKeys, Tokens};
use hotrow_config::transport::Transport;
use hotrow_testkit::tokens::{SigningKey, jwks};
use serde_json::{Value, json};

/// A JWKS in a file of its own.
struct KeyFile(PathBuf);

impl KeyFile {
    fn new(name: &str, keys: &[&SigningKey]) -> Self {
        let file = format!("hotrow-{}-{name}.jwks", std::process::id());
        let file = Self(std::env::temp_dir().join(file));
        file.write(&jwks(keys));
        file
    }

    /// Replaces the file in one step.
    fn write(&self, text: &str) {
        let new = self.0.with_extension("new");
        fs::write(&new, text).unwrap();
        fs::rename(&new, &self.0).unwrap();
    }

    fn tokens(&self) -> Tokens {
        let refresh = RefreshConfig {
            interval: Duration::from_millis(20),
            retry: Duration::from_millis(20),
            unknown_key_interval: Duration::from_millis(20),
            age_max: common::DEADLINE,
        };
        Tokens { policy: policy(), keys: TokenKeys::File { path: self.0.clone(), refresh } }
    }
}

impl Drop for KeyFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

fn start(access: Access) -> Running {
    let transport = Transport { http2: true, ..Transport::default() };
    Running::start(&Config { access: Some(access), transport, ..config() })
}

fn body_of(method: &str) -> &'static str {
    if method == "POST" { "{\"ids\":[1]}" } else { "" }
}

fn ask(server: &Running, method: &str, target: &str, fields: &str) -> Answer {
    let body = body_of(method);
    let length = body.len();
    let request = format!(
        "{method} {target} HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n{fields}Connection: \
         close\r\n\r\n{body}"
    );
    let mut received = Client::connect(server.address).send(request).rest();
    received.answers.pop().unwrap()
}

fn status(server: &Running, credential: &str) -> u16 {
    ask(server, "GET", "/products/1", credential).status
}

fn bearer(token: &str) -> String {
    format!("Authorization: Bearer {token}\r\n")
}

fn claims_with(name: &str, value: Value) -> Value {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let mut claims =
        json!({"iss": "issuer", "aud": "hotrow", "exp": now + 600, "roles": ["reader"]});
    claims[name] = value;
    claims
}

fn claims() -> Value {
    claims_with("sub", json!("a"))
}

/// Targets with their method, and the status with a good credential.
const ROUTES: [(&str, &str, u16); 11] = [
    ("GET", "/products/1", 200),
    ("GET", "/products/2", 404),
    ("GET", "/products/x", 400),
    ("GET", "/products?ids=1,2", 200),
    ("POST", "/products", 200),
    ("DELETE", "/products/1", 405),
    ("GET", "/prices/1", 403),
    ("GET", "/prices?ids=1", 403),
    ("POST", "/prices", 403),
    ("GET", "/unknown/1", 404),
    ("OPTIONS", "*", 204),
];

#[test]
fn every_route_requires_a_good_credential() {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let keys = [SigningKey::rsa("r"), SigningKey::p256("p"), SigningKey::ed25519("e", 1)];
    let file = KeyFile::new("table", &keys.each_ref());
    let (mut access, key) = access();
    access.tokens = Some(file.tokens());
    let server = start(access);
    wait_until(|| status(&server, &bearer(&keys[2].token(&claims()))) == 200);

    let ed = &keys[2];
    let good = ed.token(&claims());
    let other_kid = SigningKey::ed25519("x", 1);
    let same_kid = SigningKey::ed25519("e", 9);
    let n = keys[0].jwk()["n"].as_str().unwrap().to_owned();
    let confused = SigningKey::secret(n.as_bytes());
    let confused = confused.token_with(&json!({"alg": "HS256", "kid": "r"}), &claims());
    let unsigned = ed.token_with(&json!({"alg": "none", "kid": "e"}), &claims());
    let unsigned = &unsigned[..=unsigned.rfind('.').unwrap()];
    let mut wrong_key = key.clone();
    wrong_key.replace_range(63.., if key.ends_with('A') { "Q" } else { "A" });
    let refused = [
        ("none", String::new()),
        ("other scheme", "Authorization: Basic YTpi\r\n".to_owned()),
        ("empty", bearer("")),
        ("malformed", bearer("a.b")),
        ("malformed, long", bearer(&"a".repeat(3_000))),
        ("expired", bearer(&ed.token(&claims_with("exp", json!(now - 31))))),
        ("not yet valid", bearer(&ed.token(&claims_with("nbf", json!(now + 600))))),
        ("wrong audience", bearer(&ed.token(&claims_with("aud", json!("shop"))))),
        ("wrong issuer", bearer(&ed.token(&claims_with("iss", json!("other"))))),
        ("public key as secret", bearer(&confused)),
        ("unsigned", bearer(unsigned)),
        (
            "other algorithm",
            bearer(&ed.token_with(&json!({"alg": "EdDSA", "kid": "p"}), &claims())),
        ),
        ("unknown key", bearer(&other_kid.token(&claims()))),
        ("other key of this name", bearer(&same_kid.token(&claims()))),
        ("API key, wrong", format!("X-API-Key: {wrong_key}\r\n")),
        ("API key, unknown", bearer(&key.replace("hrk_01", "hrk_02"))),
        ("token as API key", format!("X-API-Key: {good}\r\n")),
        ("two", format!("{}X-API-Key: {key}\r\n", bearer(&good))),
    ];
    let mut http2 = Http2Connection::connect(server.address);
    let mut ask_both = |method: &str, target: &str, credential: &str| {
        let first = ask(&server, method, target, credential);
        // A target without a path has no host in the request of the library's client.
        let second =
            (target != "*").then(|| http2.ask(method, target, credential, body_of(method)));
        [("HTTP/1.1", Some(first)), ("HTTP/2", second)]
            .into_iter()
            .filter_map(|(version, answer)| Some((version, answer?)))
    };
    for (method, target, allowed) in ROUTES {
        for (what, credential) in &refused {
            for (version, answer) in ask_both(method, target, credential) {
                let context = format!("{method} {target}, {what}, {version}: {answer:?}");
                assert_eq!(answer.status, 401, "{context}");
                assert!(answer.head.contains("www-authenticate: bearer realm="), "{context}");
                assert!(answer.head.contains("cache-control: no-store"), "{context}");
                let secrets = [&good[good.len() - 20..], &key[21..], "aaaaaaaa"];
                assert!(!secrets.iter().any(|secret| answer.body.contains(secret)), "{context}");
            }
        }
        let accepted = keys.iter().map(|key| bearer(&key.token(&claims())));
        let accepted = accepted.chain([bearer(&key), format!("X-API-Key: {key}\r\n")]);
        for credential in accepted {
            // The second time the token is known.
            for _ in 0..2 {
                for (version, answer) in ask_both(method, target, &credential) {
                    assert_eq!(answer.status, allowed, "{method} {target} {version}: {answer:?}");
                }
            }
        }
    }
    let answer = ask(&server, "GET", "/products/1", &bearer(&good));
    assert!(answer.head.contains("cache-control: private, no-cache"), "{}", answer.head);
    // A good token without a role that is known here.
    let without_role = bearer(&ed.token(&claims_with("roles", json!(["other"]))));
    assert_eq!(status(&server, &without_role), 403);
}

#[test]
fn a_replaced_key_ends_its_tokens() {
    let (old, new) = (SigningKey::ed25519("old", 1), SigningKey::ed25519("new", 2));
    let file = KeyFile::new("rotation", &[&old]);
    let (mut access, _) = access();
    access.tokens = Some(file.tokens());
    let server = start(access);
    let (old_token, new_token) = (bearer(&old.token(&claims())), bearer(&new.token(&claims())));
    wait_until(|| status(&server, &old_token) == 200);
    assert_eq!(status(&server, &new_token), 401);
    // Both are published for a while: no request fails.
    file.write(&jwks(&[&old, &new]));
    wait_until(|| {
        assert_eq!(status(&server, &old_token), 200);
        status(&server, &new_token) == 200
    });
    file.write(&jwks(&[&new]));
    wait_until(|| {
        assert_eq!(status(&server, &new_token), 200);
        status(&server, &old_token) == 401
    });
}

#[test]
fn without_keys_tokens_get_503_and_api_keys_work() {
    let key = SigningKey::ed25519("a", 1);
    let file = KeyFile::new("missing", &[&key]);
    let mut tokens = file.tokens();
    let TokenKeys::File { refresh, .. } = &mut tokens.keys else { unreachable!("a file") };
    refresh.age_max = Duration::from_millis(200);
    fs::remove_file(&file.0).unwrap();
    let (mut access, api_key) = access();
    access.tokens = Some(tokens);
    let server = start(access);
    let token = bearer(&key.token(&claims()));
    let ready = || {
        let request = "GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
        Client::connect(server.admin).send(request).rest().statuses()
    };
    assert_eq!((status(&server, &token), status(&server, &bearer(&api_key))), (503, 200));
    assert_eq!(ready(), [503]);
    file.write(&jwks(&[&key]));
    wait_until(|| status(&server, &token) == 200);
    // Known tokens too are refused when the keys are too old.
    fs::remove_file(&file.0).unwrap();
    wait_until(|| status(&server, &token) == 503);
    assert_eq!(status(&server, &bearer(&api_key)), 200);
}

#[test]
fn a_known_token_expires() {
    let key = SigningKey::ed25519("a", 1);
    let file = KeyFile::new("expiry", &[&key]);
    let (mut access, _) = access();
    let mut tokens = file.tokens();
    tokens.policy.leeway_s = 0;
    access.tokens = Some(tokens);
    let server = start(access);
    wait_until(|| status(&server, &bearer(&key.token(&claims()))) == 200);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let token = bearer(&key.token(&claims_with("exp", json!(now + 3))));
    assert_eq!(status(&server, &token), 200, "new");
    assert_eq!(status(&server, &token), 200, "known");
    wait_until(|| status(&server, &token) == 401);
}

#[test]
fn failures_are_limited_before_the_signature_is_checked() {
    let secret = [7; 32];
    let (mut access, api_key) = access();
    access.failures = "3/h".parse().unwrap();
    let set = hotrow_access::jwks::KeySet::from_secret(&secret).unwrap();
    access.tokens =
        Some(Tokens { policy: policy(), keys: TokenKeys::Secret(std::sync::Arc::new(set)) });
    let server = start(access);
    let signer = SigningKey::secret(&secret);
    let known = bearer(&signer.token(&claims()));
    assert_eq!(status(&server, &known), 200);
    let forged = bearer(&SigningKey::secret(&[8; 32]).token(&claims()));
    let statuses: Vec<u16> = (0..5).map(|_| status(&server, &forged)).collect();
    assert_eq!(statuses, [401, 401, 401, 429, 429]);
    let answer = ask(&server, "GET", "/products/1", &forged);
    assert!(answer.head.contains("retry-after: 1200"), "{}", answer.head);
    let new = bearer(&signer.token(&claims_with("sub", json!("new"))));
    assert_eq!(status(&server, &new), 429, "it would need a check of its signature");
    assert_eq!(status(&server, &known), 200, "known tokens are not affected");
    assert_eq!(status(&server, &bearer(&api_key)), 200, "nor are API keys");
}

#[test]
fn grants_beyond_reading_are_separate() {
    let (mut access, key) = access();
    let position = "Hotrow-Min-Position: 0000000000000001-1\r\n";
    let credential = bearer(&key);
    let server = start(access.clone());
    let asked = |server: &Running, field: &str| {
        ask(server, "GET", "/products/1", &format!("{credential}{field}"))
    };
    asked(&server, "");
    let answer = asked(&server, "Cache-Control: no-cache\r\n");
    assert!(answer.head.contains("hotrow-cache: hit"), "{}", answer.head);
    assert_eq!(asked(&server, position).status, 403);
    access.granted.roles[0].no_cache = true;
    let server = start(access.clone());
    asked(&server, "");
    let answer = asked(&server, "Cache-Control: no-cache\r\n");
    assert!(answer.head.contains("hotrow-cache: bypass"), "{}", answer.head);
    // Without a credential, the anonymous role decides.
    access.granted.anonymous = hotrow_access::grant::Roles::single(0);
    let server = start(access);
    let statuses =
        ["/products/1", "/prices/1"].map(|target| ask(&server, "GET", target, "").status);
    assert_eq!(statuses, [200, 403]);
    assert_eq!(status(&server, &bearer("a.b.c")), 401, "a wrong credential is not ignored");
}
