use std::env::VarError;
use std::time::Duration;

use hotrow_admission::shed::Priority;
use hotrow_cache::config::WhenStale;
use hotrow_source_sqlite::config::{KeyTypeName, Watch};
use proptest::prelude::*;

use super::*;

use hotrow_testkit::mutate;

mod sources;

/// Settings that are added to a good file, with their refusals.
const BAD_SETTINGS: &str = include_str!("tests/bad_settings.txt");
/// Whole files, with their refusals.
const BAD_FILES: &str = include_str!("tests/bad_files.txt");

const GOOD: &str = "[source]\nurl = \"sqlite:shop.db\"\n[collections.products]\n";

fn env(name: &str) -> Result<String, VarError> {
    match name {
        "DATABASE_URL" => Ok("sqlite:/var/lib/shop.db".to_owned()),
        "WORKERS" => Ok("3".to_owned()),
        "TOKEN" => Ok("short".to_owned()),
        _ => Err(VarError::NotPresent),
    }
}

fn parse_text(text: &str) -> Result<Resolved, ConfigError> {
    parse(text, "f.toml", &env, &Overrides::default())
}

fn sqlite(resolved: &Resolved) -> &hotrow_source_sqlite::config::Config {
    match &resolved.sources[0] {
        SourceConfig::Sqlite(config) => config,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_shortest_file_gets_every_default() {
    let r = parse_text(GOOD).expect("valid");
    assert_eq!(r.server.data.to_string(), "127.0.0.1:8080");
    assert_eq!(r.server.admin.to_string(), "127.0.0.1:8081");
    assert!(
        r.server.workers >= 1 && r.server.admin_token.is_none() && r.server.admin_hosts.is_empty()
    );
    assert_eq!(
        (r.server.limits.header_bytes, r.server.limits.idle_timeout),
        (16384, Duration::from_secs(75))
    );
    assert_eq!(r.cache.capacity_bytes, 256 << 20);
    assert_eq!(
        (r.cache.query_keys, r.cache.waiting_keys, r.cache.when_stale),
        (1000, 10_000, WhenStale::Bypass)
    );
    assert_eq!(r.collections[0].ttl, Duration::from_hours(24));
    assert_eq!(r.collections[0].negative_ttl, Duration::from_mins(10));
    let source = sqlite(&r);
    assert_eq!((source.path.to_str(), source.watch), (Some("shop.db"), Watch::None));
    let c = &source.collections[0];
    assert_eq!(
        (c.name.as_str(), c.table.as_str(), c.key.as_slice()),
        ("products", "products", &["id".to_owned()][..])
    );
    assert!(c.columns.is_none() && c.exclude.is_empty() && c.key_types.is_empty());
    assert_eq!(r.server.collections[0].cache_control, "no-cache");
    assert_eq!(r.log, Log { level: LogLevel::Info, format: LogFormat::Text });
    assert!(r.warnings.is_empty(), "{:?}", r.warnings);
}

#[test]
fn the_settings_of_the_file_are_applied() {
    let r = parse_text(
        "listen = {data = '[::1]:0', admin = '0.0.0.0:9', workers = '${WORKERS}'}\n\
         admin.token = 'a-token-of-20-chars!'\n\
         admin.hosts = ['hotrow', 'hotrow.shop.svc']\n\
         limits.max_batch = 8_000\nlimits.body_bytes = 4096\n\
         [source]\nurl = '${DATABASE_URL}'\nwatch = 'triggers'\nmerge = false\n\
         [cache]\nttl = '5m'\nwhen_stale = 'refuse'\ncapacity = '1GiB'\nnegative_share = 0\n\
         [collections.b]\nkey = ['x', 'y']\nkey_type = ['uuid', 'text']\nexclude = ['secret']\n\
         allow_min_position = true\n\
         [collections.a-1]\ntable = 'A'\nttl = '2d'\ncolumns = ['id', 'v']\n\
         cache_control = 'public, max-age=5'\n\
         [log]\nlevel = 'debug'\nformat = 'json'\n",
    )
    .expect("valid");
    assert_eq!(
        (r.server.workers, r.server.limits.max_batch, r.server.limits.body_bytes),
        (3, 8000, 4096)
    );
    assert_eq!(
        (r.cache.query_keys, r.cache.when_stale, r.cache.capacity_bytes),
        (1, WhenStale::Refuse, 1 << 30)
    );
    let source = sqlite(&r);
    assert_eq!((source.path.to_str(), source.watch), (Some("/var/lib/shop.db"), Watch::Triggers));
    let names: Vec<&str> = r.server.collections.iter().map(|c| c.name.as_str()).collect();
    assert_eq!(names, ["a-1", "b"], "one order for all subsystems: by name");
    assert_eq!(source.collections[0].name, "a-1");
    assert_eq!(source.collections[1].key_types, [KeyTypeName::Uuid, KeyTypeName::Text]);
    assert_eq!(r.collections[0].ttl, Duration::from_hours(48));
    assert_eq!(r.collections[1].ttl, Duration::from_mins(5), "from [cache]");
    assert!(r.server.collections[1].allow_min_position);
    assert_eq!(r.server.collections[0].cache_control, "public, max-age=5");
    assert!(r.warnings.is_empty(), "the token is set");
    assert_eq!(r.server.admin_hosts, ["hotrow", "hotrow.shop.svc"]);
}

#[test]
fn breaker_and_shedding_are_on_unless_the_file_disables_them() {
    let r = parse_text(GOOD).expect("valid");
    let breaker = r.server.breaker.expect("a breaker");
    assert_eq!(
        (breaker.failures, breaker.probes, breaker.open_for),
        (5, 3, Duration::from_secs(1))
    );
    let shed = r.server.shed.expect("shedding");
    assert_eq!((shed.memory_limit_bytes, shed.priority_header), (None, false));
    assert_eq!(r.server.collections[0].priority, Priority::Normal);
    let text = "limits.breaker.enabled = false\n\
        limits.shed = {enabled = true, memory_limit = '1GiB', priority_header = true}\n\
        source.url = 'sqlite:a'\n\
        collections.a = {priority = 'low', allow_high_priority = true}\n";
    let r = parse_text(text).expect("valid");
    assert!(r.server.breaker.is_none());
    let shed = r.server.shed.expect("shedding");
    assert_eq!((shed.memory_limit_bytes, shed.priority_header), (Some(1 << 30), true));
    let a = &r.server.collections[0];
    assert_eq!((a.priority, a.allow_high_priority), (Priority::Low, true));
    let r = parse_text(&format!("limits.shed.enabled = false\n{GOOD}")).expect("valid");
    assert!(r.server.shed.is_none());
}

#[test]
fn the_command_line_overrides_the_file_and_is_checked_too() {
    let over = |data: &str, admin: &str| Overrides {
        data: data.parse().ok(),
        admin: admin.parse().ok(),
        keys: None,
    };
    let r = parse(GOOD, "f.toml", &env, &over("127.0.0.1:5", "0.0.0.0:6")).expect("valid");
    assert_eq!((r.server.data.port(), r.server.admin.port()), (5, 6));
    assert_eq!(r.warnings.len(), 1);
    assert!(r.warnings[0].contains("0.0.0.0:6") && r.warnings[0].contains("admin.token"));
    let e = parse(GOOD, "f.toml", &env, &over("0.0.0.0:8081", ""))
        .expect_err("collides with the default");
    assert!(e.to_string().contains("listen.admin: 127.0.0.1:8081 must not be"), "{e}");
}

/// Returns the cases of a text: lines of settings, then a fragment of the refusal behind `=> `.
fn cases(text: &str) -> impl Iterator<Item = (&str, &str)> {
    let parts = |case| str::split_once(case, "=> ").expect("a refusal");
    text.trim_end().split("\n\n").map(parts)
}

#[test]
fn each_bad_value_is_named_with_its_rule() {
    for (addition, fragment) in cases(BAD_SETTINGS) {
        let e = parse_text(&format!("{GOOD}{addition}")).expect_err(addition).to_string();
        assert!(e.contains(fragment), "for\n{addition}\nexpected\n  {fragment}\ngot\n  {e}");
    }
}

#[test]
fn each_bad_file_is_refused() {
    for (text, fragment) in cases(BAD_FILES) {
        let e = parse_text(text).expect_err(text).to_string();
        assert!(e.contains(fragment), "for\n{text}\nexpected\n  {fragment}\ngot\n  {e}");
    }
    let many: String = (0..1001).map(|i| format!("[collections.c{i}]\n")).collect();
    let e = parse_text(&format!("{GOOD}{many}")).expect_err("too many").to_string();
    assert!(e.contains("collections: there may be at most 1000, not 1002"), "{e}");
}

#[test]
fn all_problems_are_reported_at_once_in_the_order_of_the_file() {
    let e = parse_text(
        "[cache]\nttl = 1\ncapacity = 2\n[limits]\nheaders = 0\nx = 1\n[source]\nwatch = 'x'\n",
    )
    .expect_err("bad");
    let lines: Vec<_> = e.problems.iter().map(|p| (p.line, p.path.as_str())).collect();
    let expected = [
        (Some(2), "cache.ttl"),
        (Some(3), "cache.capacity"),
        (Some(5), "limits.headers"),
        (Some(6), "limits.x"),
        (Some(8), "source.watch"),
        (None, "source.url"),
        (None, "collections"),
    ];
    assert_eq!(lines, expected);
}

#[test]
fn the_default_key_of_mongodb_is_its_id() {
    let resolved =
        parse_text("[source]\nurl = 'mongodb://h/db'\n[collections.a]\n").expect("a good file");
    let [SourceConfig::Mongodb(source)] = &resolved.sources[..] else {
        panic!("{:?}", resolved.sources)
    };
    assert_eq!(source.server.collections[0].key, ["_id"]);
}

#[test]
fn secrets_are_never_repeated() {
    for text in [
        "[source]\nurl = 'postgres://u:hunter2@h/db'",
        "[source]\nurl = 'sqlite://hunter2/db'",
        "[source]\nurl = 'sqlite:$hunter2'",
        "[source]\nurl = 'hunter2'",
        "[admin]\ntoken = 'hunter2'",
        "[admin]\ntoken = 'hunter2 hunter2 hunter2'",
        "[admin]\ntoken = '$hunter2'",
        "[access.jwt]\nhs256_secret = 'hunter2'",
        "[access.jwt]\nhs256_secret = '$hunter2'",
        "[access.keys.a]\nsha256 = 'hrk_hunter2'",
        "[access.keys.a]\nsha256 = '$hunter2'",
    ] {
        let e = parse_text(text).expect_err(text).to_string();
        assert!(!e.contains("hunter2"), "{e}");
    }
    let e = parse_text(&format!("{GOOD}[admin]\ntoken = '${{TOKEN}}'"))
        .expect_err("too short")
        .to_string();
    assert!(e.contains("characters, not 5") && !e.contains("short"), "{e}");
}

#[test]
fn a_file_that_cannot_be_read_is_named() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let e = load_offline(&folder.path().join("none.toml"), &Overrides::default())
        .expect_err("missing")
        .to_string();
    assert!(e.contains("none.toml: cannot be read: No such file"), "{e}");
    let e = load_offline(folder.path(), &Overrides::default()).expect_err("a folder").to_string();
    assert!(e.contains("cannot be read: Is a directory"), "{e}");
    let binary = folder.path().join("b.toml");
    std::fs::write(&binary, [0xff, 0xfe]).expect("writable");
    let e = load_offline(&binary, &Overrides::default()).expect_err("binary").to_string();
    assert!(e.contains("is not UTF-8 text"), "{e}");
    std::fs::write(&binary, vec![b'#'; FILE_BYTES_MAX as usize + 1]).expect("writable");
    let e = load_offline(&binary, &Overrides::default()).expect_err("large").to_string();
    assert!(e.contains("is larger than 4MiB"), "{e}");
}

/// Lines that make any further line of `[access]` valid.
const ACCESS: &str = "access.roles.r.collections = '*'\naccess.anonymous_role = 'r'\n";
const ACCESS_WITH_TOKENS: &str = "access.roles.r.collections = '*'\naccess.jwt.issuer = 'i'\n\
    access.jwt.audience = 'a'\naccess.jwt.jwks_file = 'f'\n";

/// A line that makes any further line of `[trace]` valid: files of credentials need `https`.
const TRACE: &str = "trace.endpoint = 'https://collector/v1/traces'\n";

#[test]
fn access_is_resolved() {
    use hotrow_access::grant::{Roles, Scope};
    use hotrow_config::access::TokenKeys;

    let key = hotrow_access::key::NewKey::new([7; 8], &[7; 32]);
    let text = format!(
        "{GOOD}[collections.prices]\ncache_control = 'no-store'\n\
         [access.roles.reader]\ncollections = ['products']\nclaim_values = ['a', 'b']\n\
         [access.roles.audit]\ncollections = '*'\nallow_no_cache = true\n\
         [access.keys.billing]\nid = '{}'\nsha256 = '{}'\nroles = ['reader', 'audit']\n\
         [access.jwt]\nissuer = 'i'\naudience = ['x', 'y']\njwks_file = 'keys.json'\n\
         role_claim = ['realm_access', 'roles']\nleeway = '5s'\n",
        key.id, key.hash
    );
    let server = parse_text(&text).expect("valid").server;
    let access = server.access.expect("access");
    let granted = &access.granted;
    // Roles and collections are numbered in the order of their names.
    let [audit, reader] = &granted.roles[..] else { panic!("{:?}", granted.roles) };
    assert_eq!((&audit.collections, audit.no_cache), (&Scope::All, true));
    let names: Vec<&str> = server.collections.iter().map(|c| c.name.as_str()).collect();
    let Scope::Listed(ids) = &reader.collections else { panic!("{reader:?}") };
    assert_eq!(names[usize::from(ids[0].0)], "products");
    assert_eq!(reader.claim_values, ["a", "b"]);
    assert_eq!(audit.claim_values, ["audit"]);
    assert_eq!(granted.keys[0].roles, Roles::single(0).union(Roles::single(1)));
    assert!(granted.anonymous.is_empty());
    let tokens = access.tokens.expect("tokens");
    assert_eq!((tokens.policy.leeway_s, tokens.policy.role_claim.len()), (5, 2));
    assert!(matches!(tokens.keys, TokenKeys::File { .. }));
    let cache_control = |name: &str| {
        let found = server.collections.iter().find(|collection| collection.name == name);
        found.map(|collection| collection.cache_control.as_str())
    };
    assert_eq!(cache_control("products"), Some("private, no-cache"));
    assert_eq!(cache_control("prices"), Some("no-store"));
    assert!(parse_text(GOOD).expect("valid").server.access.is_none());
}

#[test]
fn grants_may_have_a_file_of_their_own() {
    use hotrow_access::grant::{RateClasses, Roles};

    let folder = tempfile::tempdir().unwrap();
    let (config, grants) = (folder.path().join("hotrow.toml"), folder.path().join("grants.toml"));
    let main = format!(
        "{GOOD}[listen.tls]\ncert = 'c'\nkey = 'k'\nclient_ca = 'r'\n\
         [limits.rate.few]\nrate = '1/s'\nper = 'identity'\nclasses = ['trial', 'free']\n\
         [access]\ngrants_file = '{}'\nanonymous_role = 'free'\n",
        grants.display()
    );
    std::fs::write(&config, main).unwrap();
    let load = |text: &str| {
        std::fs::write(&grants, text).unwrap();
        load_offline(&config, &Overrides::default()).map_err(|error| error.to_string())
    };
    let good = "[roles.free]\ncollections = '*'\nrate_class = 'free'\n\
        [certificates.billing]\nsubject = 'CN=billing,O=Shop'\nroles = 'free'\n";
    let access = load(good).unwrap().server.access.expect("access");
    let granted = &access.granted;
    assert_eq!((granted.anonymous, granted.roles.len()), (Roles::single(0), 1));
    assert_eq!(granted.roles[0].rate_classes, RateClasses::single(1));
    assert_eq!(granted.certificates[0].subject, "CN=billing,O=Shop");
    let file = access.grants_file.expect("the file");
    assert_eq!(file.text, good.as_bytes());
    // The server uses the same parser.
    assert_eq!((file.parse)(good.as_bytes()).unwrap().certificates, granted.certificates);
    for (text, rule) in [
        ("", "roles: must have a role"),
        ("[roles", "this is not TOML"),
        ("[roles.x]\ncollections = '*'", "roles: must have the role of access.anonymous_role"),
        ("[roles.free]\ncollections = 'prices'", "roles.free.collections: must name collections"),
        ("[roles.free]\ncollections = '*'\nrate_class = 'x'", "rate_class: must be in the list"),
        ("[roles.free]\ncollections = '*'\n[jwt]\n", "jwt: unknown table"),
        (
            &format!("{good}[keys.a]\nsha256 = 'hrk_hunter2'\n"),
            "keys.a.sha256: must be the SHA-256",
        ),
    ] {
        for error in [(file.parse)(text.as_bytes()).unwrap_err(), load(text).unwrap_err()] {
            assert!(error.contains(rule) && error.contains("grants.toml"), "{error}");
            assert!(!error.contains("hunter2"), "{error}");
        }
    }
    std::fs::remove_file(&grants).unwrap();
    let error = super::load_offline(&config, &Overrides::default()).unwrap_err().to_string();
    assert!(error.contains("access.grants_file") && error.contains("cannot be read"), "{error}");
}

#[test]
fn known_keys_are_listed_once_and_accept_their_default() {
    let known = known_keys();
    let mut paths: Vec<&str> = known.iter().map(|k| k.path.as_str()).collect();
    paths.sort_unstable();
    let count = paths.len();
    paths.dedup();
    assert_eq!((paths.len(), count), (count, count));
    assert!(
        paths.contains(&"collections.NAME.key_type") && paths.contains(&"limits.max_batch"),
        "{paths:?}"
    );
    for key in known.iter().filter(|k| !k.path.contains("NAME")) {
        let words = [
            "required",
            "none",
            "available cores",
            "url",
            "random",
            "by the memory",
            "by cache.when_stale",
            "of a file 10s, of a URL 5m",
            "1000; MongoDB: 50",
            "the control group's, or the machine's",
            "the system's",
        ];
        if words.contains(&key.default.as_str()) {
            continue;
        }
        let outcomes =
            ["sqlite:x", "postgres://u@h/db", "mysql://u@h/db", "mongodb://h/db"].map(|url| {
                let base = match key.path.strip_prefix("access.") {
                    Some(rest) if rest.starts_with("jwt.") => ACCESS_WITH_TOKENS,
                    Some(_) => ACCESS,
                    None if key.path.starts_with("cors.") => "cors.allowed_origins = '*'\n",
                    None if key.path.starts_with("hub.") => "source.feed = 'nats://a'\n",
                    None if key.path.starts_with("warm.") => "warm.file = '/x'\n",
                    None if key.path.starts_with("trace.") => TRACE,
                    None if key.path.starts_with("access_log.") => "access_log.output = '/x'\n",
                    None => "",
                };
                let text = format!(
                    "{base}{} = {}\nsource.url = '{url}'\n[collections.a]\n",
                    key.path, key.default
                );
                parse_text(&text).map_err(|e| e.to_string())
            });
        assert!(outcomes.iter().any(Result::is_ok), "{}: {outcomes:?}", key.path);
    }
}

/// Generates text similar to a configuration, so that the properties reach beyond the TOML parser.
fn nearly_a_configuration() -> impl Strategy<Value = String> {
    let name = prop::sample::select(
        known_keys()
            .into_iter()
            .filter_map(|k| k.path.rsplit('.').next().map(str::to_owned))
            .collect::<Vec<_>>(),
    );
    let table = prop::sample::select(vec![
        "listen",
        "limits",
        "limits.shed",
        "access",
        "access.roles.a",
        "access.roles.a.columns.a",
        "access.keys.a",
        "access.certificates.a",
        "access.jwt",
        "cors",
        "source",
        "cache",
        "collections.a",
        "collections",
        "log",
        "x",
    ]);
    let value = prop_oneof![
        any::<i64>().prop_map(|n| n.to_string()),
        any::<f64>().prop_map(|n| format!("{n:?}")),
        "[0-9]{1,30}(ms|s|m|h|d|KiB|MiB|PiB|B)".prop_map(|t| format!("'{t}'")),
        r#"[ -&\(-~é\u{0}$\{\}]{0,30}"#.prop_map(|t| format!("'{t}'")),
        Just("[]".to_owned()),
        Just("['a', ['b'], 1]".to_owned()),
        Just("{a = {b = 1}}".to_owned()),
        Just("2020-01-01T00:00:00Z".to_owned()),
    ];
    let line = prop_oneof![
        (name, value).prop_map(|(name, value)| format!("{name} = {value}\n")),
        table.prop_map(|table| format!("[{table}]\n")),
    ];
    prop::collection::vec(line, 0..12).prop_map(|lines| lines.concat())
}

proptest! {
    #[test]
    fn no_text_panics(text in "(?s).{0,200}") {
        let _ = parse_text(&text).map_err(|e| e.to_string());
    }

    #[test]
    fn nothing_like_a_configuration_panics(text in nearly_a_configuration()) {
        if let Err(e) = parse_text(&text) {
            prop_assert!(!e.problems.is_empty() && !e.to_string().is_empty());
        }
    }
}

/// Checks that a text is accepted or refused in the same way twice.
fn configuration(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    match (parse_text(text), parse_text(text)) {
        (Ok(once), Ok(again)) => {
            assert_eq!(format!("{:?}", once.server), format!("{:?}", again.server))
        }
        (Err(once), Err(again)) => {
            assert!(!once.problems.is_empty() && once.to_string() == again.to_string(), "{once}");
        }
        (once, again) => panic!("{:?} and then {:?}", once.is_ok(), again.is_ok()),
    }
}

#[test]
fn the_configuration_survives_mutated_files() {
    const PIECES: [&[u8]; 10] = [
        b"= [",
        b"'''",
        b"\"",
        b"${WORKERS}",
        b"${",
        b"[collections.x]\n",
        b"99999999999999999999",
        b"\n= 3\n",
        b"{a = ",
        b"\xc3\xa4",
    ];
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/configuration");
    mutate::run(folder, 20_000, &PIECES, configuration);
}
