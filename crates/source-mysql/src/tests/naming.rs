//! Keys from the log equal those from URLs, for every key type and every setting of the log.
//! Otherwise a change would remove an entry that no request reads.

use hotrow_types::key::Key;
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;

use super::recorder::{Feed, config};
use super::server::{Flavor, Server};
use hotrow_source::spec::KeyTypeName;

/// Number of values per type.
const VALUES: usize = 40;

/// Returns per case: type of the key column, SQL expression for the id's text in hexadecimal, and
/// values.
fn cases() -> Vec<(&'static str, &'static str, BoxedStrategy<String>)> {
    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|b| format!("{b:02x}")).collect()
    }
    fn text(pattern: &'static str) -> BoxedStrategy<String> {
        pattern.prop_map(|text| format!("_utf8mb4 x'{}'", hex(text.as_bytes()))).boxed()
    }
    fn bytes(most: usize) -> BoxedStrategy<String> {
        // Trailing zeros and blanks, which formats like to drop.
        let byte = prop_oneof![Just(0_u8), Just(b' '), any::<u8>()];
        prop::collection::vec(byte, 0..=most)
            .prop_map(|bytes| format!("x'{}'", hex(&bytes)))
            .boxed()
    }
    const ANY: &str = "[aAbB äÄéßz€😀']{0,6}[ ]{0,2}";
    const LATIN: &str = "[aAbB äÄéßz€']{0,6}[ ]{0,2}";
    let number = "HEX(CAST(k AS CHAR))";
    let words = "HEX(CONVERT(k USING utf8mb4))";
    let raw = "HEX(HEX(k))";
    vec![
        ("tinyint", number, any::<i8>().prop_map(|v| v.to_string()).boxed()),
        ("tinyint unsigned", number, any::<u8>().prop_map(|v| v.to_string()).boxed()),
        ("smallint unsigned", number, any::<u16>().prop_map(|v| v.to_string()).boxed()),
        ("mediumint", number, (-8_388_608..8_388_608_i32).prop_map(|v| v.to_string()).boxed()),
        ("mediumint unsigned", number, (0..16_777_216_u32).prop_map(|v| v.to_string()).boxed()),
        ("int unsigned", number, any::<u32>().prop_map(|v| v.to_string()).boxed()),
        ("bigint", number, any::<i64>().prop_map(|v| v.to_string()).boxed()),
        ("bigint unsigned", number, (0..=i64::MAX).prop_map(|v| v.to_string()).boxed()),
        ("varchar(20) COLLATE utf8mb4_bin", words, text(ANY)),
        ("varchar(20) COLLATE utf8mb4_nopad_bin", words, text(ANY)),
        ("varchar(200) COLLATE utf8mb4_general_ci", words, text(ANY)),
        ("char(20) COLLATE utf8mb4_unicode_ci", words, text(ANY)),
        ("char(20) CHARACTER SET latin1 COLLATE latin1_bin", words, text(LATIN)),
        ("varchar(20) CHARACTER SET latin1", words, text(LATIN)),
        ("varchar(20) CHARACTER SET utf8mb3", words, text(LATIN)),
        ("varchar(20) CHARACTER SET ascii", words, text("[aAbB ]{0,6}")),
        ("binary(16)", raw, bytes(16)),
        ("binary(3)", raw, bytes(3)),
        ("varbinary(300)", raw, bytes(20)),
        ("uuid", "HEX(CAST(k AS CHAR))", any::<u128>().prop_map(|v| format!("'{v:032x}'")).boxed()),
    ]
}

/// Returns the ids of a table's rows as in a URL, every byte percent-encoded.
fn ids(server: &Server, table: usize, printed: &str) -> Vec<String> {
    let text = server.query(&format!("SELECT concat('=', {printed}) FROM t{table}"));
    let encoded = |line: &str| {
        line.as_bytes()[1..]
            .chunks(2)
            .map(|b| format!("%{}{}", b[0] as char, b[1] as char))
            .collect()
    };
    text.lines().map(encoded).collect()
}

#[test]
fn keys_of_the_feed_equal_keys_of_urls() {
    let server = Server::start(&[]);
    let mut cases = cases();
    if server.flavor() == Flavor::MySql {
        cases.retain(|(ty, ..)| *ty != "uuid");
    }
    let create: Vec<String> = cases
        .iter()
        .enumerate()
        .map(|(i, case)| format!("CREATE TABLE t{i} (x int, k {} PRIMARY KEY)", case.0))
        .collect();
    server.batch(&create.join(";"));
    let tables: Vec<String> = (0..cases.len()).map(|i| format!("t{i}(k)")).collect();
    let mut runner = TestRunner::deterministic();
    let log_settings =
        [("FULL", "FULL"), ("MINIMAL", "MINIMAL"), ("NO_LOG", "FULL"), ("NO_LOG", "MINIMAL")];
    for (metadata, image) in log_settings {
        // Set globally, because it has no session value.
        server.set(&[("binlog_row_metadata", metadata)]);
        // A new feed per setting, because a changed log format counts as a schema change.
        let mut settings =
            config(server.url(), &tables.iter().map(String::as_str).collect::<Vec<_>>());
        if server.flavor() == Flavor::MariaDb {
            settings.server.collections[16].key_types = vec![KeyTypeName::Uuid];
        }
        let feed = Feed::launch(settings, |_| {});
        feed.settle();
        let image_sql = format!("SET SESSION sql_mode = '', binlog_row_image = {image};");
        for (i, (ty, printed, values)) in cases.iter().enumerate() {
            let values: Vec<String> = (0..VALUES)
                .map(|n| format!("({n}, {})", values.new_tree(&mut runner).unwrap().current()))
                .collect();
            let insert =
                format!("{image_sql} INSERT IGNORE INTO t{i} VALUES {}", values.join(", "));
            let inserted = feed.keys(&server, &insert);
            let by_url = |id: &String| {
                feed.schema(i).parse_url(id).unwrap_or_else(|e| panic!("{ty} {id}: {e}"))
            };
            let mut named: Vec<Key> = ids(&server, i, printed).iter().map(by_url).collect();
            named.sort_by(|a, b| a.as_bytes().cmp(b.as_bytes()));
            assert_eq!(inserted, named, "{ty}, {metadata} and {image}, INSERT");
            let touched = feed.keys(&server, &format!("{image_sql} UPDATE t{i} SET x = x + 1000"));
            assert_eq!(touched, named, "{ty}, {metadata} and {image}, UPDATE");
            let deleted = feed.keys(&server, &format!("{image_sql} DELETE FROM t{i}"));
            assert_eq!(deleted, named, "{ty}, {metadata} and {image}, DELETE");
            assert!(named.len() > 2, "{ty}: {} values", named.len());
        }
    }
}
