use std::env::VarError;
use std::time::Duration;

use hotrow_admit::shed::Priority;
use hotrow_cache::config::WhenStale;
use hotrow_source::sqlite::config::{KeyTypeName, Watch};
use proptest::prelude::*;

use super::*;

#[path = "../../../../fuzz/mutate.rs"]
mod mutate;

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

fn sqlite(resolved: &Resolved) -> &hotrow_source::sqlite::config::Config {
    match &resolved.source {
        SourceConfig::Sqlite(config) => config,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_shortest_file_gets_every_default() {
    let r = parse_text(GOOD).expect("valid");
    assert_eq!(r.server.data.to_string(), "127.0.0.1:8080");
    assert_eq!(r.server.admin.to_string(), "127.0.0.1:8081");
    assert!(r.server.workers >= 1 && r.server.admin_token.is_none());
    assert_eq!((r.server.limits.header_bytes, r.server.limits.idle_timeout), (16384, Duration::from_secs(75)));
    assert_eq!(r.cache.capacity_bytes, 256 << 20);
    assert_eq!((r.cache.query_keys, r.cache.waiting_keys, r.cache.when_stale), (1000, 10_000, WhenStale::Bypass));
    assert_eq!(r.collections[0].ttl, Duration::from_hours(24));
    assert_eq!(r.collections[0].negative_ttl, Duration::from_mins(10));
    let source = sqlite(&r);
    assert_eq!((source.path.to_str(), source.watch), (Some("shop.db"), Watch::None));
    let c = &source.collections[0];
    assert_eq!((c.name.as_str(), c.table.as_str(), c.key.as_slice()), ("products", "products", &["id".to_owned()][..]));
    assert!(c.columns.is_none() && c.exclude.is_empty() && c.key_types.is_empty());
    assert_eq!(r.server.collections[0].cache_control, "no-cache");
    assert_eq!(r.log, Log { level: LogLevel::Info, format: LogFormat::Text });
    assert!(r.warnings.is_empty(), "{:?}", r.warnings);
}

#[test]
fn what_the_file_says_arrives() {
    let r = parse_text(
        "listen = {data = '[::1]:0', admin = '0.0.0.0:9', workers = '${WORKERS}'}\nadmin.token = 'a-token-of-20-chars!'\n\
         limits.max_batch = 8_000\nlimits.body_bytes = 4096\n\
         [source]\nurl = '${DATABASE_URL}'\nwatch = 'triggers'\nmerge = false\n\
         [cache]\nttl = '5m'\nwhen_stale = 'refuse'\ncapacity = '1GiB'\nnegative_share = 0\n\
         [collections.b]\nkey = ['x', 'y']\nkey_type = ['uuid', 'text']\nexclude = ['secret']\nallow_min_position = true\n\
         [collections.a-1]\ntable = 'A'\nttl = '2d'\ncolumns = ['id', 'v']\ncache_control = 'public, max-age=5'\n\
         [log]\nlevel = 'debug'\nformat = 'json'\n",
    )
    .expect("valid");
    assert_eq!((r.server.workers, r.server.limits.max_batch, r.server.limits.body_bytes), (3, 8000, 4096));
    assert_eq!((r.cache.query_keys, r.cache.when_stale, r.cache.capacity_bytes), (1, WhenStale::Refuse, 1 << 30));
    let source = sqlite(&r);
    assert_eq!((source.path.to_str(), source.watch), (Some("/var/lib/shop.db"), Watch::Triggers));
    let names: Vec<&str> = r.server.collections.iter().map(|c| c.name.as_str()).collect();
    assert_eq!(names, ["a-1", "b"], "one order for all subsystems: by name");
    assert_eq!(source.collections[0].name, "a-1");
    assert_eq!(source.collections[1].key_types, [KeyTypeName::Uuid, KeyTypeName::Text]);
    assert_eq!(r.collections[0].ttl, Duration::from_hours(48));
    assert_eq!(r.collections[1].ttl, Duration::from_mins(5), "taken over from [cache]");
    assert!(r.server.collections[1].allow_min_position);
    assert_eq!(r.server.collections[0].cache_control, "public, max-age=5");
    assert!(r.warnings.is_empty(), "the token is set");
}

#[test]
fn overload_is_guarded_against_unless_the_file_says_otherwise() {
    let r = parse_text(GOOD).expect("valid");
    let breaker = r.server.breaker.expect("a breaker");
    assert_eq!((breaker.failures, breaker.probes, breaker.open_for), (5, 3, Duration::from_secs(1)));
    let shed = r.server.shed.expect("shedding");
    assert_eq!((shed.memory_limit_bytes, shed.priority_header), (None, false));
    assert_eq!(r.server.collections[0].priority, Priority::Normal);
    let text = "limits.breaker.enabled = false\nlimits.shed = {enabled = true, memory_limit = '1GiB', priority_header = true}\n\
                source.url = 'sqlite:a'\ncollections.a = {priority = 'low', allow_high_priority = true}\n";
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
fn the_command_line_wins_and_is_checked_too() {
    let over = |data: &str, admin: &str| Overrides { data: data.parse().ok(), admin: admin.parse().ok() };
    let r = parse(GOOD, "f.toml", &env, &over("127.0.0.1:5", "0.0.0.0:6")).expect("valid");
    assert_eq!((r.server.data.port(), r.server.admin.port()), (5, 6));
    assert_eq!(r.warnings.len(), 1);
    assert!(r.warnings[0].contains("0.0.0.0:6") && r.warnings[0].contains("admin.token"));
    let e = parse(GOOD, "f.toml", &env, &over("0.0.0.0:8081", "")).expect_err("collides with the default");
    assert!(e.to_string().contains("listen.admin: 127.0.0.1:8081 must not be"), "{e}");
}

/// Each line of the table: what is added to a good file, and what the refusal must say.
const BAD: &[(&str, &str)] = &[
    ("[lisen]\ndata = '1.1.1.1:1'", "f.toml:4: lisen: unknown table; did you mean listen?"),
    ("[zzz]", "zzz: unknown table; known here: listen, admin, limits"),
    ("[limits]\nheader_timout = '1s'", "f.toml:5: limits.header_timout: unknown key; did you mean header_timeout"),
    ("[cache]\ncapasity = 1", "cache.capasity: unknown key; did you mean capacity?"),
    ("colections = 1", "collections.products.colections: unknown key"),
    ("Table = 'x'", "collections.products.Table: unknown key; did you mean table?"),
    ("[listen]\ndata = 'localhost:80'", "listen.data: must be an address and a port such as"),
    ("[listen]\ndata = '127.0.0.1'", "not \"127.0.0.1\""),
    ("[listen]\ndata = '127.0.0.1:70000'", "listen.data: must be an address"),
    (
        "[listen]\nadmin = 8081",
        "listen.admin: must be an address and a port such as 127.0.0.1:8080 or [::1]:8080, not 8081",
    ),
    (
        "[listen]\nadmin = '127.0.0.1:8080'",
        "f.toml:5: listen.admin: 127.0.0.1:8080 must not be the address of the data",
    ),
    ("[listen]\ndata = '0.0.0.0:8081'", "must not be the address of the data listener, which is 0.0.0.0:8081"),
    ("[listen]\nworkers = 0", "listen.workers: must be a whole number between 1 and 1024, not 0"),
    ("[listen]\nworkers = 2.5", "not 2.5"),
    ("[listen]\nworkers = '${CORES}'", "listen.workers: the environment variable CORES is not set"),
    ("[listen]\nworkers = []", "not a list"),
    ("[admin]\ntoken = 'fifteen-chars-!'", "admin.token: must have 16 to 256 characters, not 15"),
    ("[admin]\ntoken = 'with a blank in the middle'", "admin.token: must be made of visible ASCII"),
    ("[admin]\ntoken = 5", "admin.token: must be a text, not 5"),
    ("[limits]\nconnections = -1", "limits.connections: must be a whole number between 1 and 1000000, not -1"),
    ("[limits]\nconnections = 99999999999999999999999999", "limits.connections: must be a whole number"),
    (
        "[limits]\nheader_bytes = '1KiB'",
        "limits.header_bytes: must be a size such as 64KiB or 256MiB between 8KiB and 1MiB",
    ),
    ("[limits]\nheader_bytes = '16 kib'", "not \"16 kib\""),
    ("[limits]\ntarget_bytes = '32KiB'", "limits.target_bytes: must not exceed limits.header_bytes: 32768"),
    (
        "[limits]\nbody_bytes = true",
        "limits.body_bytes: must be a size such as 64KiB or 256MiB between 1KiB and 64MiB, not true",
    ),
    (
        "[limits]\nidle_timeout = '0s'",
        "limits.idle_timeout: must be a time with its unit such as \"250ms\" or \"5m\" between 10ms",
    ),
    ("[limits]\nrequest_timeout = 5", "limits.request_timeout: must be a time with its unit"),
    ("[limits]\ndrain_timeout = '2h'", "between 10ms and 1h, not \"2h\""),
    ("[limits]\nmax_batch = 0", "limits.max_batch: must be a whole number between 1 and 8000"),
    (
        "[limits]\nmax_batch = 2000",
        "source.query_keys: must be at least limits.max_batch, for a batch is one query: 1000 is less",
    ),
    ("[limits]\nwaiting_keys = 5", "limits.waiting_keys: must be at least limits.max_batch"),
    ("[limits]\nposition_wait = '1d'", "limits.position_wait: must be"),
    ("[limits.breaker]\nfailure = 3", "limits.breaker.failure: unknown key; did you mean failures"),
    ("[limits.breaker]\nprobes = 0", "limits.breaker.probes: must be a whole number between 1 and 100, not 0"),
    ("[limits.breaker]\nfailure_rate = 0", "limits.breaker.failure_rate: must be a number between 0.01 and 1, not 0"),
    (
        "[limits.breaker]\nopen_for = '1m'",
        "limits.breaker.open_for: must not be longer than limits.breaker.open_for_max",
    ),
    ("[limits.shed]\nmemory_limit = '1KiB'", "limits.shed.memory_limit: must be a size such as"),
    ("[limits.shed]\nmemory_share = 1", "limits.shed.memory_share: must be a number between 0.1 and 0.99, not 1"),
    ("[limits]\nshed = true", "limits.shed: must be a table, [limits.shed], not"),
    ("priority = 'urgent'", "collections.products.priority: must be \"normal\" or \"low\" or \"high\", not \"urgent\""),
    ("[cache]\nenabled = 'yes'", "cache.enabled: must be true or false, not \"yes\""),
    (
        "[cache]\ncapacity = '1000KiB'",
        "cache.capacity: must be a size such as 64KiB or 256MiB between 1MiB and 1PiB, not \"1000KiB\"",
    ),
    ("[cache]\nttl_jitter = 1.5", "cache.ttl_jitter: must be a number between 0 and 1, not 1.5"),
    ("[cache]\nttl_jitter = nan", "cache.ttl_jitter: must be a number between 0 and 1, not nan"),
    ("[cache]\nnegative_share = 0.2", "cache.negative_share: must be a number between 0 and 0.1, not 0.2"),
    (
        "[cache]\nttl = '5 minutes'",
        "cache.ttl: must be a time with its unit such as \"250ms\" or \"5m\" between 10ms and 365d",
    ),
    ("[cache]\nmax_staleness = '1ms'", "cache.max_staleness: must be"),
    ("[cache]\nwhen_stale = 'panic'", "cache.when_stale: must be \"bypass\" or \"stale\" or \"refuse\", not \"panic\""),
    (
        "[cache]\ncapacity = '1MiB'\nentry_size_hint = '2MiB'",
        "cache.entry_size_hint: must not be larger than cache.capacity",
    ),
    (
        "[cache]\nttl = 2020-01-01",
        "cache.ttl: must be a time with its unit such as \"250ms\" or \"5m\" between 10ms and 365d, not a date",
    ),
    ("table = ''", "collections.products.table: must have 1 to 256 bytes"),
    ("table = ['a']\ntable2 = 1", "collections.products.table: must be a text, not a list"),
    ("key = []", "collections.products.key: must name 1 to 4 columns, not 0"),
    ("key = ['a', 'b', 'c', 'd', 'e']", "collections.products.key: must name 1 to 4 columns, not 5"),
    ("key = ['a', 'A']", "collections.products.key: must not name a column twice: \"A\""),
    ("key = ['a', 1]", "collections.products.key: must be a list of texts, not of 1"),
    (
        "key_type = 'int'",
        "collections.products.key_type: must be made of integer, text, uuid, objectid and bytes, not \"int\"",
    ),
    (
        "key_type = ['text', 'text']",
        "collections.products.key_type: must name one type per column of the key: the key has 1",
    ),
    ("columns = []", "collections.products.columns: must name 1 to 2000 columns, not 0"),
    ("columns = ['a']\nexclude = ['b']", "collections.products.exclude: must not stand beside columns"),
    ("cache_control = \"no-cache\\r\\nX: y\"", "collections.products.cache_control: must be a header value"),
    ("cache_control = ' x'", "collections.products.cache_control: must be a header value"),
    (
        "allow_min_position = true",
        "collections.products.allow_min_position: must not be true with source.watch or source.feed = \"none\"",
    ),
    ("ttl = '0s'", "f.toml:4: collections.products.ttl: must be a time"),
    ("[collections.Big]", "collections.Big: the name of a collection must begin with a letter a to z"),
    ("[collections.'a b']", "collections.\"a b\": the name of a collection"),
    ("[collections.1st]", "collections.1st: the name of a collection"),
    ("[collections]\nx = 1", "f.toml:5: collections.x: must be a table, [collections.x], not a number"),
    (
        "[log]\nlevel = 'loud'",
        "log.level: must be \"info\" or \"error\" or \"warn\" or \"debug\" or \"trace\", not \"loud\"",
    ),
    ("[log]\nformat = 'xml'", "log.format: must be \"text\" or \"json\", not \"xml\""),
    (
        "[log]\nformat = 'a$b'",
        "log.format: a dollar sign must begin ${VARIABLE}; write $$ for the sign itself; the value is \"a$b\"",
    ),
];

#[test]
fn each_bad_value_is_named_with_its_rule() {
    for (addition, fragment) in BAD {
        let e = parse_text(&format!("{GOOD}{addition}\n")).expect_err(addition).to_string();
        assert!(e.contains(fragment), "for\n{addition}\nexpected\n  {fragment}\ngot\n  {e}");
    }
}

/// Whole files, where the good one cannot be added to.
const BAD_FILES: &[(&str, &str)] = &[
    ("", "f.toml: source.url: is required"),
    ("[source]\nurl = 'sqlite:x'", "collections: there must be at least one"),
    ("[source]\nurl = 'sqlite:x'\n[collections]", "f.toml:3: collections: there must be at least one"),
    ("collections = 3", "f.toml:1: collections: must be a table, [collections], not a number"),
    ("[source]\nurl = 'postgres://u:pw@h/db?nope=1'", "source.url: the connection string has the parameter `nope`"),
    ("[source]\nurl = 'postgres://u@h/db'\nwatch = 'none'", "source.watch: is for sqlite: databases"),
    ("[source]\nurl = 'postgres://u@h/db'\npublication = ''", "source.publication: must have 1 to 63 bytes"),
    (
        "[source]\nurl = 'postgres://u@h/db'\nfeed_url = 'postgres://u@h:0x/db'",
        "source.feed_url: the connection string",
    ),
    (
        "[source]\nurl = 'sqlite:x'\nfeed_url = 'postgres://u@h/db'",
        "source.feed_url: is for postgres:, mysql: and mongodb: databases",
    ),
    ("[source]\nurl = 'oracle://h/db'", "the scheme \"oracle\" is unknown"),
    ("[source]\nurl = 'sqlite:a'\nserver_id = 3", "source.server_id: is for mysql: databases"),
    ("[source]\nurl = 'sqlite:a'\njson = 'plain'", "source.json: is for mongodb: databases"),
    ("[source]\nurl = 'mysql://h/db'\npublication = 'x'", "source.publication: is for postgres: databases"),
    ("[source]\nurl = 'sqlite:a'\nfeed = 'no'", "source.feed: must be"),
    ("[source]\nurl = 'sqlite:a'\nfeed = 'none'", "cache.ttl: must be set with source.feed"),
    ("[source]\nurl = 'sqlite:a'\nfeed = 'none'\nwatch = 'none'", "source.watch: has no meaning with source.feed"),
    (
        "[source]\nurl = 'sqlite:a'\nfeed = 'none'\n[cache]\nttl = '1m'\nwhen_stale = 'stale'",
        "cache.when_stale: has no meaning",
    ),
    ("[source]\nurl = 'redis://h'", "mongodb://host/database; the scheme \"redis\" is unknown"),
    ("[source]\nurl = 'shop.db'", "source.url: must begin with a scheme"),
    ("[source]\nurl = 'sqlite:'", "source.url: must name a file"),
    ("[source]\nurl = 'sqlite:dir/'", "source.url: must name a file"),
    ("[source]\nurl = 'sqlite::memory:'", "source.url: :memory: cannot be shared"),
    ("[source]\nurl = 'sqlite:x.db?mode=ro'", "source.url: must be sqlite: and a path alone"),
    ("[source]\nurl = 'sqlite://host/x.db'", "source.url: has no host in it"),
    ("[source]\nurl = '${NOPE}'", "source.url: the environment variable NOPE is not set"),
    ("[source]\nurl = 7", "source.url: must be a text, not 7"),
    (
        "[source]\nurl = 'sqlite:x'\nquery_keys = 10\n[collections.a]",
        "source.query_keys: must be at least limits.max_batch",
    ),
    (
        "[source]\nurl = 'sqlite:x'\nwatch = true\n[collections.a]",
        "source.watch: must be \"none\" or \"triggers\", not true",
    ),
    ("[source\nurl = 1", "f.toml:1: this is not TOML"),
    ("[source]\nurl = 'a'\nurl = 'b'", "f.toml:3: this is not TOML: duplicate key"),
    ("[source]\nurl = \"unclosed", "f.toml:2: this is not TOML"),
];

#[test]
fn each_bad_file_is_refused() {
    for (text, fragment) in BAD_FILES {
        let e = parse_text(text).expect_err(text).to_string();
        assert!(e.contains(fragment), "for\n{text}\nexpected\n  {fragment}\ngot\n  {e}");
    }
    let many: String = (0..1001).map(|i| format!("[collections.c{i}]\n")).collect();
    let e = parse_text(&format!("{GOOD}{many}")).expect_err("too many").to_string();
    assert!(e.contains("collections: there may be at most 1000, not 1002"), "{e}");
}

#[test]
fn all_problems_come_at_once_in_the_order_of_the_file() {
    let e = parse_text("[cache]\nttl = 1\ncapacity = 2\n[limits]\nheaders = 0\nx = 1\n[source]\nwatch = 'x'\n")
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
fn mongodb_names_its_key_itself() {
    let resolved = parse_text("[source]\nurl = 'mongodb://h/db'\n[collections.a]\n").expect("a good file");
    let SourceConfig::Mongodb(source) = resolved.source else { panic!("{:?}", resolved.source) };
    assert_eq!(source.collections[0].key, ["_id"]);
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
    ] {
        let e = parse_text(text).expect_err(text).to_string();
        assert!(!e.contains("hunter2"), "{e}");
    }
    let e = parse_text(&format!("{GOOD}[admin]\ntoken = '${{TOKEN}}'")).expect_err("too short").to_string();
    assert!(e.contains("characters, not 5") && !e.contains("short"), "{e}");
}

#[test]
fn a_file_that_cannot_be_read_is_named() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let e = load(&folder.path().join("none.toml"), &Overrides::default()).expect_err("missing").to_string();
    assert!(e.contains("none.toml: cannot be read: No such file"), "{e}");
    let e = load(folder.path(), &Overrides::default()).expect_err("a folder").to_string();
    assert!(e.contains("cannot be read: Is a directory"), "{e}");
    let binary = folder.path().join("b.toml");
    std::fs::write(&binary, [0xff, 0xfe]).expect("writable");
    let e = load(&binary, &Overrides::default()).expect_err("binary").to_string();
    assert!(e.contains("is not UTF-8 text"), "{e}");
    std::fs::write(&binary, vec![b'#'; FILE_BYTES_MAX as usize + 1]).expect("writable");
    let e = load(&binary, &Overrides::default()).expect_err("large").to_string();
    assert!(e.contains("is larger than 4MiB"), "{e}");
}

#[test]
fn known_keys_are_listed_once_and_accept_their_default() {
    let known = known_keys();
    let mut paths: Vec<&str> = known.iter().map(|k| k.path.as_str()).collect();
    paths.sort_unstable();
    let count = paths.len();
    paths.dedup();
    assert_eq!((paths.len(), count), (count, count));
    assert!(paths.contains(&"collections.NAME.key_type") && paths.contains(&"limits.max_batch"), "{paths:?}");
    for key in known.iter().filter(|k| !k.path.starts_with("collections.")) {
        let words = ["required", "none", "available cores", "url", "random", "the control group's, or the machine's"];
        if words.contains(&key.default.as_str()) {
            continue;
        }
        let outcomes = ["sqlite:x", "postgres://u@h/db", "mysql://u@h/db", "mongodb://h/db"].map(|url| {
            let text = format!("{} = {}\nsource.url = '{url}'\n[collections.a]\n", key.path, key.default);
            parse_text(&text).map_err(|e| e.to_string())
        });
        assert!(outcomes.iter().any(Result::is_ok), "{}: {outcomes:?}", key.path);
    }
}

/// Text that looks like a configuration, so that the properties reach past the TOML parser.
fn nearly_a_configuration() -> impl Strategy<Value = String> {
    let name = prop::sample::select(
        known_keys().into_iter().filter_map(|k| k.path.rsplit('.').next().map(str::to_owned)).collect::<Vec<_>>(),
    );
    let table = prop::sample::select(vec![
        "listen",
        "limits",
        "limits.shed",
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

/// A text that somebody typed, or a part of one, read as a file.
fn configuration(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    match (parse_text(text), parse_text(text)) {
        (Ok(once), Ok(again)) => assert_eq!(format!("{:?}", once.server), format!("{:?}", again.server)),
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
