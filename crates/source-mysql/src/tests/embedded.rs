//! Embedded rows: what one statement returns, for which keys, within which bounds, and which tables
//! are refused.

use hotrow_source::Source as _;
use hotrow_source::spec::{EmbedConfig, OrderBy};

use super::harness::{Reader, config, refusal};
use super::server::{Flavor, Server};
use crate::config::Config;

/// Returns a member `name`, all columns of the table `table` that refer by `on`.
fn member(name: &str, table: &str, on: &str) -> EmbedConfig {
    EmbedConfig {
        name: name.into(),
        table: table.into(),
        on: on.into(),
        order_by: Vec::new(),
        limit: 100,
        columns: None,
    }
}

fn columns(names: &[&str]) -> Option<Vec<String>> {
    Some(names.iter().map(|name| (*name).to_owned()).collect())
}

fn embedding(server: &Server, collection: &str, embed: Vec<EmbedConfig>) -> Config {
    let mut config = config(&server.url(), &[collection]);
    config.server.collections[0].embed = embed;
    config
}

const PRODUCTS: &str = "CREATE TABLE p (id int PRIMARY KEY, name text); \
     INSERT INTO p VALUES (1, 'one'), (2, 'two'), (3, 'three');
     CREATE TABLE c (id int PRIMARY KEY, p_id bigint, n int, INDEX (p_id)); \
     INSERT INTO c VALUES (10, 1, 5), (11, 1, 7), (12, 1, 5), (13, 2, NULL), (14, 2, 1), \
     (15, 9, 9), (16, NULL, 9)";

#[test]
fn a_record_has_its_children_in_order_up_to_the_limit() {
    let server = Server::any();
    server.batch(PRODUCTS);
    let by = |column: &str, is_descending| OrderBy { column: column.into(), is_descending };
    let first = EmbedConfig {
        order_by: vec![by("N", true)],
        limit: 2,
        columns: columns(&["id", "n"]),
        ..member("most", "c", "P_ID")
    };
    let last = EmbedConfig {
        order_by: vec![by("n", false), by("id", true)],
        columns: columns(&["id"]),
        ..member("least", "c", "p_id")
    };
    let reader = Reader::open(embedding(&server, "p(id)", vec![first, last]));
    let record = |own: &str, most: &str, least: &str| {
        format!(r#"{{{own},"most":[{most}],"least":[{least}]}}"#)
    };
    let least = r#"{"id":12},{"id":10},{"id":11}"#;
    let one = record(r#""id":1,"name":"one""#, r#"{"id":11,"n":7},{"id":10,"n":5}"#, least);
    let most = r#"{"id":14,"n":1},{"id":13,"n":null}"#;
    let two = record(r#""id":2,"name":"two""#, most, r#"{"id":13},{"id":14}"#);
    let three = r#"{"id":3,"name":"three","most":[],"least":[]}"#;
    assert_eq!(reader.answers(0, &["1"]), [one.as_str()]);
    assert_eq!(reader.answers(0, &["9"]), ["missing"], "a child without a parent");
    // The last id is beyond an INT, and not beyond the children's BIGINT.
    let ids = ["3", "9", "2", "1", "3", "99999999999", "99"];
    let expected = [three, "missing", &two, &one, three, "missing", "missing"];
    assert_eq!(reader.answers(0, &ids), expected);
    assert_eq!(reader.answers(0, &["99999999999"]), ["missing"]);
    assert_eq!(reader.source.queries_total(), 4);
}

/// The values of a child are those of a column, although they pass through joins.
#[test]
fn values_of_children_have_the_forms_of_columns() {
    let server = Server::any();
    server.batch(
        "CREATE TABLE p (id int PRIMARY KEY, t text, d decimal(9,3), z int zerofill, f float, \
         r double, b bit(11), e enum('x','y'), s set('x','y'), bl blob, bi binary(4), g point, \
         j json, u uuid, i inet6, da date, dt datetime(6), ts timestamp(3), ti time(2), y year, \
         v varchar(9) CHARACTER SET latin1, c char(5), big bigint unsigned);
         INSERT INTO p VALUES (1, 'a\"ß', 1.500, 7, 1.1, 1e300, 1025, 'y', 'x,y', x'00ff', x'01', \
         POINT(1, 2), '{\"a\": [1, null]}', '00000000-0000-0000-0000-00000000000a', '::1', \
         '2026-11-20', '2026-11-20 22:35:09.5', '2026-11-20 22:35:09.25', '-20:01:02.5', 2026, \
         'é', 'x ', 18446744073709551615), (2, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, \
         NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
         CREATE TABLE c LIKE p; INSERT INTO c SELECT * FROM p",
    );
    let reader = Reader::open(embedding(&server, "p(id)", vec![member("own", "c", "id")]));
    for ids in [&["1"][..], &["2"], &["2", "1"]] {
        for text in reader.answers(0, ids) {
            let (own, child) = text.split_once(r#","own":["#).unwrap_or_else(|| panic!("{text}"));
            assert_eq!(format!("{own}}}]}}"), child, "the same values, from both tables");
        }
    }
    let text = reader.answers(0, &["1"]).remove(0);
    assert!(text.contains(r#""b":1025,"e":"y","s":"x,y","bl":"AP8=""#), "{text}");
}

/// Each type of a key finds its children, alone and in a query of several, and other spellings are
/// none.
#[test]
fn keys_of_every_type_refer_by_their_bytes() {
    const BYTES: &str = "varchar(40) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin";
    const LATIN: &str = "varchar(40) CHARACTER SET latin1 COLLATE latin1_nopad_bin";
    let server = Server::any();
    for (ty, of_child, values, ids) in [
        ("int unsigned", "tinyint", ["7", "8"], ["7", "8"]),
        (
            "bigint unsigned",
            "bigint unsigned",
            ["18446744073709551615", "0"],
            ["18446744073709551615", "0"],
        ),
        (BYTES, BYTES, ["'Zoë '", "'zoë'"], ["Zo%C3%AB%20", "zo%C3%AB"]),
        (LATIN, LATIN, ["'é'", "'É'"], ["%C3%A9", "%C3%89"]),
        ("binary(3)", "binary(3)", ["x'610000'", "x'6100'"], ["610000", "610001"]),
        ("varbinary(9)", "varbinary(9)", ["x'6100'", "x'61'"], ["6100", "61"]),
        (
            "uuid",
            "uuid",
            ["'00000000-0000-0000-0000-00000000000a'", "'a0000000-0000-0000-0000-000000000000'"],
            ["00000000-0000-0000-0000-00000000000a", "a0000000-0000-0000-0000-000000000000"],
        ),
    ] {
        if server.flavor() == Flavor::MySql && [LATIN, "uuid"].contains(&ty) {
            continue;
        }
        let [first, second] = values;
        server.batch(&format!(
            "DROP TABLE IF EXISTS p, c; CREATE TABLE p (k {ty} PRIMARY KEY); \
             CREATE TABLE c (id int PRIMARY KEY, k {of_child}, INDEX (k)); \
             INSERT IGNORE INTO p VALUES ({first}), ({second}); \
             INSERT INTO c VALUES (1, {first}), (2, {second})"
        ));
        let own = EmbedConfig { columns: columns(&["id"]), ..member("own", "c", "k") };
        let reader = Reader::open(embedding(&server, "p(k)", vec![own]));
        let both = reader.answers(0, &ids);
        let singly = [reader.answers(0, &ids[..1]), reader.answers(0, &ids[1..])].concat();
        assert_eq!(both, singly, "{ty}");
        let is_padded = ty == "binary(3)";
        let of_first =
            if is_padded { r#""own":[{"id":1},{"id":2}]}"# } else { r#""own":[{"id":1}]}"# };
        assert!(both[0].ends_with(of_first), "{ty}: {both:?}");
        let of_second = if is_padded { "missing" } else { r#""own":[{"id":2}]}"# };
        assert!(both[1].ends_with(of_second), "{ty}: {both:?}");
    }
}

#[test]
fn bounds_of_a_query_count_the_children() {
    let server = Server::any();
    server.batch(
        "CREATE TABLE p (id int PRIMARY KEY); INSERT INTO p VALUES (1), (2), (3);
         CREATE TABLE c (id int PRIMARY KEY, p_id int, t longtext, INDEX (p_id)); \
         INSERT INTO c SELECT seq, 1 + seq DIV 10, repeat('x', 100) FROM seq_0_to_29; \
         INSERT INTO c VALUES (100, 7, repeat('x', 100))",
    );
    let own = EmbedConfig { columns: columns(&["t"]), ..member("own", "c", "p_id") };
    let reader = Reader::open(embedding(&server, "p(id)", vec![own]));
    let ids = ["7", "1", "2", "3"];
    let kinds = |query, total| -> Vec<String> {
        let rows = reader.answers_within(&ids, query, total);
        rows.iter().map(|row| row[..row.len().min(8)].to_owned()).collect()
    };
    let (found, missing) = ("{\"id\":1,", "missing");
    // 1 is read as the first one, although it is larger. What is not read may be missing or not.
    assert_eq!(kinds(900, 1 << 20), ["not read", found, "not read", "not read"]);
    assert_eq!(kinds(2_500, 1 << 20), ["not read", found, "{\"id\":2,", "not read"]);
    assert_eq!(kinds(1 << 20, 1 << 20), [missing, found, "{\"id\":2,", "{\"id\":3,"]);
    assert_eq!(kinds(1 << 20, 1_500), ["no room", found, "no room", "no room"]);
    let whole = reader.answers_within(&["1"], 900, 1 << 20).remove(0);
    assert_eq!(whole.matches("xx\"").count(), 10, "never a part of a record");
    server.batch("UPDATE c SET t = repeat('x', 3 << 20) WHERE p_id = 2");
    let large = reader.answers(0, &["2", "3"]);
    assert!(large[0].starts_with("unreadable the record is larger than"), "{}", large[0].len());
    assert_eq!(large[1].matches("xx\"").count(), 10);
}

#[test]
fn unfit_tables_and_references_are_refused_with_the_remedy() {
    const NO_PAD: &str = "varchar(9) COLLATE utf8mb4_nopad_bin";
    let server = Server::any();
    server.batch(&format!(
        "CREATE TABLE p (id int PRIMARY KEY, name text); \
         CREATE TABLE bare (p_id int, n int, UNIQUE (n)); \
         CREATE TABLE big (id int PRIMARY KEY, p_id bigint unsigned); \
         CREATE TABLE made (id int PRIMARY KEY, n int, p_id int AS (n + 1) VIRTUAL); \
         CREATE TABLE numbers (id int PRIMARY KEY, p_id decimal(9)); \
         CREATE TABLE c (id int PRIMARY KEY, p_id int, g int); \
         CREATE VIEW seen AS SELECT * FROM c; \
         CREATE TABLE isam (id int PRIMARY KEY, p_id int) ENGINE = MyISAM; \
         CREATE TABLE folded (k varchar(9) COLLATE utf8mb4_general_ci PRIMARY KEY); \
         CREATE TABLE padded (k varchar(9) COLLATE utf8mb4_bin PRIMARY KEY); \
         CREATE TABLE chars (k char(9) COLLATE utf8mb4_nopad_bin PRIMARY KEY); \
         CREATE TABLE exact (k {NO_PAD} PRIMARY KEY); \
         CREATE TABLE t (id int PRIMARY KEY, folded varchar(9) COLLATE utf8mb4_general_ci, \
         padded varchar(9) COLLATE utf8mb4_bin, chars char(9) COLLATE utf8mb4_nopad_bin, \
         exact {NO_PAD}, latin varchar(9) COLLATE latin1_nopad_bin)"
    ));
    let is_refused = |collection: &str, member: EmbedConfig, expected: &[&str]| {
        let text = refusal(embedding(&server, collection, vec![member]));
        for part in expected {
            assert!(text.contains(&server.flavor().dialect(part)), "{part}: {text}");
        }
    };
    let of = "and the key of the collection of type int(11): both must be";
    for (table, expected) in [
        ("nowhere", &["collection `p.embed.own`: there is no table `nowhere`"][..]),
        ("bare", &["`bare` has no primary key, so the order of its rows is not certain"]),
        ("big", &["`on` = `p_id` is of type bigint(20) unsigned", of]),
        ("numbers", &["`on` = `p_id` is of type decimal(9,0)", of]),
        ("made", &["`on` = `p_id` is of type int(11) and generated, and not stored"]),
        ("seen", &["`seen` is a view"]),
        ("isam", &["is kept by the engine MyISAM", "ENGINE = InnoDB;"]),
    ] {
        is_refused("p(id)", member("own", table, "p_id"), expected);
    }
    is_refused("p(id)", member("own", "c", "x"), &["no column `x` (setting `on`)"]);
    is_refused("p(id)", member("name", "c", "p_id"), &["`embed.name` has the name of a column"]);
    let order_by = vec![OrderBy { column: "x".into(), is_descending: false }];
    let unordered = EmbedConfig { order_by, ..member("own", "c", "p_id") };
    is_refused("p(id)", unordered, &["no column `x` (setting `order_by`)"]);
    let other = EmbedConfig { columns: columns(&["y"]), ..member("own", "c", "p_id") };
    is_refused("p(id)", other, &["no column `y` (setting `columns`)"]);
    for (collection, on) in [
        ("folded(k)", "folded"),
        ("padded(k)", "padded"),
        ("chars(k)", "chars"),
        ("exact(k)", "folded"),
        ("exact(k)", "padded"),
        ("exact(k)", "chars"),
        ("exact(k)", "latin"),
    ] {
        let rule = "VARCHAR with one collation that compares bytes and does not pad";
        is_refused(collection, member("own", "t", on), &["is of type", rule]);
    }
    Reader::open(embedding(&server, "exact(k)", vec![member("own", "t", "exact")]));
    // The account reads whole tables.
    server.batch(
        "CREATE USER half; GRANT SELECT ON p TO half; GRANT SELECT (id, p_id) ON c TO half; \
         GRANT REPLICATION SLAVE, BINLOG MONITOR ON *.* TO half",
    );
    let mut half = embedding(&server, "p(id)", vec![member("own", "c", "p_id")]);
    half.server.url = server.url_for("half", "");
    let text = refusal(half);
    assert!(text.contains("collection `p.embed.own`: 'half'@'%' may not read all"), "{text}");
    assert!(text.contains("GRANT SELECT ON `"), "{text}");
}
