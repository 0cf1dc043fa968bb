//! Refusals at the start, with their remedies.

use super::harness::{config, refusal};
use super::server::Server;
use crate::config::KeyTypeName;

#[test]
fn every_fault_is_reported_at_once_with_its_remedy() {
    let server = Server::any();
    server.batch(
        "CREATE TABLE fine (id int PRIMARY KEY, a int);
         CREATE TABLE no_key (id int);
         CREATE TABLE nothing (id int PRIMARY KEY); ALTER TABLE nothing REPLICA IDENTITY NOTHING;
         CREATE TABLE other_key (id int PRIMARY KEY, code text NOT NULL UNIQUE);
         CREATE TABLE nullable (id int PRIMARY KEY, code text UNIQUE);
         CREATE VIEW v AS SELECT DISTINCT id FROM fine;
         CREATE MATERIALIZED VIEW m AS SELECT * FROM fine;
         CREATE UNLOGGED TABLE un (id int PRIMARY KEY);
         CREATE TABLE parent (id int PRIMARY KEY); CREATE TABLE child () INHERITS (parent);
         CREATE TABLE parts (id int PRIMARY KEY) PARTITION BY RANGE (id);
         CREATE TABLE part_1 PARTITION OF parts FOR VALUES FROM (0) TO (9);
         CREATE TABLE part_2 PARTITION OF parts FOR VALUES FROM (9) TO (99); \
         ALTER TABLE part_2 REPLICA IDENTITY NOTHING;
         CREATE TABLE weight (id float8 PRIMARY KEY);
         CREATE TABLE span (id interval PRIMARY KEY);
         CREATE TABLE clock (id time PRIMARY KEY);
         CREATE TABLE made (id int, k int GENERATED ALWAYS AS (id + 1) STORED PRIMARY KEY);
         CREATE TABLE partial (id int NOT NULL); CREATE UNIQUE INDEX ON partial (id) WHERE id > 0;
         CREATE TABLE late (id int PRIMARY KEY, k int NOT NULL UNIQUE DEFERRABLE);",
    );
    let tables = [
        "fine(id)",
        "gone(id)",
        "no_key(id)",
        "nothing(id)",
        "other_key(code)",
        "nullable(code)",
        "v(id)",
        "m(id)",
        "un(id)",
        "parent(id)",
        "part_1(id)",
        "parts(id)",
        "weight(id)",
        "span(id)",
        "clock(id)",
        "made(k)",
        "partial(id)",
        "late(k)",
        "fine(a, b)",
        "fine(id, id)",
        "fine(a)",
    ];
    let message = refusal(config(&server.url(), &tables));
    for fragment in [
        "`gone`: there is no table `gone`\n     -> name one as the database spells it, \
         with its schema where that is not in the search path: `child`, `clock`, `fine`, `late`",
        "`no_key`: (id) is not unique",
        "ALTER TABLE \"public\".\"no_key\" ADD PRIMARY KEY (\"id\");",
        "`nothing` has REPLICA IDENTITY NOTHING, so its UPDATEs",
        "ALTER TABLE \"public\".\"nothing\" REPLICA IDENTITY DEFAULT;",
        "ALTER TABLE \"public\".\"other_key\" REPLICA IDENTITY USING INDEX \"other_key_code_key\";",
        "ALTER TABLE \"public\".\"nullable\" REPLICA IDENTITY FULL;",
        "the view `v` does not select from one table alone",
        "`m` is a materialized view",
        "ALTER TABLE \"public\".\"un\" SET LOGGED;",
        "`parent` has child tables (INHERITS)",
        "`part_1` is a partition",
        "the log of partition `part_2` does not contain (id)",
        "ALTER TABLE part_2 REPLICA IDENTITY DEFAULT;",
        "`id` is of type float8: the same number prints differently",
        "`id` is of type interval: equal intervals print differently",
        "`id` is of type time: its values have no unique spelling that is known here",
        "key column `k` is generated",
        "`partial`: (id) is not unique",
        "`late`: (k) is not unique",
        "no column `b` (setting `key`)\n     -> name one as the database spells it: `id`, `a`",
        "`key` names column `id` twice",
        "-> set `key` to unique columns (`id`)",
    ] {
        assert!(message.contains(fragment), "{fragment:?} is not in: {message}");
    }
    // No fault is reported for the correct tables.
    assert!(
        !message.contains("collection `fine(id)`") && !message.contains("part_1` does not"),
        "{message}"
    );
}

#[test]
fn tables_with_other_identities_are_fine() {
    let server = Server::any();
    server.batch(
        "CREATE TABLE full_rows (id int PRIMARY KEY, code text UNIQUE); \
         ALTER TABLE full_rows REPLICA IDENTITY FULL;
         CREATE TABLE by_index (id int PRIMARY KEY, code text NOT NULL);
         CREATE UNIQUE INDEX by_code ON by_index (code) INCLUDE (id); \
         ALTER TABLE by_index REPLICA IDENTITY USING INDEX by_code;
         CREATE TABLE parts (a int, id int, PRIMARY KEY (a, id)) PARTITION BY LIST (a);
         CREATE TABLE sub PARTITION OF parts FOR VALUES IN (1) PARTITION BY RANGE (id);
         CREATE TABLE leaf PARTITION OF sub DEFAULT; INSERT INTO parts VALUES (1, 2);",
    );
    let tables = ["full_rows(code)", "by_index(code)", "parts(id, a)"];
    let reader = super::harness::Reader::on(&server, &tables);
    assert_eq!(reader.text(2, "2,1"), r#"{"a":1,"id":2}"#);
    // The primary key is no longer in the old rows once another index is the identity.
    assert!(
        refusal(config(&server.url(), &["by_index(id)"])).contains("REPLICA IDENTITY DEFAULT;")
    );
}

#[test]
fn missing_privileges_are_named_with_their_grants() {
    let server = Server::start(&[]);
    server.batch(
        "CREATE ROLE reader LOGIN REPLICATION; CREATE SCHEMA s; \
         CREATE TABLE s.t (id int PRIMARY KEY, a int, b int);
         CREATE TABLE rls (id int PRIMARY KEY); ALTER TABLE rls ENABLE ROW LEVEL SECURITY; \
         GRANT SELECT ON rls TO reader;",
    );
    let url = server.url_for("reader", "postgres");
    let message = refusal(config(&url, &["s.t(id)", "rls(id)"]));
    for fragment in [
        "GRANT USAGE ON SCHEMA \"s\" TO \"reader\";",
        "may not read `id`, `a`, `b` of `s.t`",
        "GRANT SELECT ON \"s\".\"t\" TO \"reader\";",
        "ALTER ROLE \"reader\" BYPASSRLS;",
    ] {
        assert!(message.contains(fragment), "{fragment:?} is not in: {message}");
    }
    // Privileges on columns are sufficient.
    server.batch(
        "GRANT USAGE ON SCHEMA s TO reader; GRANT SELECT (id, a) ON s.t TO reader; \
         INSERT INTO s.t VALUES (1, 2, 3);
         CREATE PUBLICATION hotrow FOR TABLE s.t WITH (publish_via_partition_root = true)",
    );
    let mut some = config(&url, &["s.t(id)"]);
    some.server.collections[0].exclude = vec!["b".into()];
    assert_eq!(super::harness::Reader::open(some).text(0, "1"), r#"{"id":1,"a":2}"#);
}

#[test]
fn a_database_without_an_encoding_is_refused() {
    let server = Server::start(&[]);
    server.batch("CREATE DATABASE bytes ENCODING 'SQL_ASCII' LOCALE 'C' TEMPLATE template0");
    assert!(
        refusal(config(&server.url_for("postgres", "bytes"), &["t(id)"])).contains("SQL_ASCII")
    );
}

#[test]
fn settings_that_do_not_fit_the_table_are_refused() {
    let server = Server::any();
    server.batch("CREATE TABLE t (id int PRIMARY KEY, a int)");
    let with = |change: &dyn Fn(&mut crate::config::CollectionConfig)| {
        let mut config = config(&server.url(), &["t(id)"]);
        change(&mut config.server.collections[0]);
        refusal(config)
    };
    assert!(with(&|c| c.key_types = vec![KeyTypeName::Uuid]).contains("`key_type` says otherwise"));
    assert!(
        with(&|c| c.key_types = vec![KeyTypeName::Integer; 2])
            .contains("2 entries for 1 key columns")
    );
    assert!(
        with(&|c| c.columns = Some(vec!["z".into()])).contains("no column `z` (setting `columns`)")
    );
    assert!(with(&|c| c.exclude = vec!["id".into(), "a".into()]).contains("leave no column"));
    assert!(with(&|c| c.tenant = Some("z".into())).contains("no column `z` (setting `tenant`)"));
    assert!(with(&|c| c.key = Vec::new()).contains("known to be unique"));
    // Names are case-sensitive, as in the database.
    assert!(with(&|c| c.table = "T".into()).contains("there is no table `T`"));
}

#[test]
fn inherited_settings_of_strings_do_not_blind_the_checks() {
    let server = Server::start(&[]);
    server.batch(
        "CREATE TABLE t (id int PRIMARY KEY); CREATE VIEW v AS SELECT id, now() AS at FROM t; \
         ALTER ROLE postgres SET standard_conforming_strings = off",
    );
    let text = refusal(config(&server.url(), &["v(id)"]));
    assert!(text.contains("not immutable or not PostgreSQL's own: `now`"), "{text}");
}
