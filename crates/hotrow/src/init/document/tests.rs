//! Tests of the written file.

use std::env::VarError;

use hotrow_source::discovery::{ListedChild, ListedColumn, joined};
use hotrow_source::preflight::Finding;

use super::*;
use crate::config::{Overrides, parse};
use crate::init::choice;

fn listed(name: &str, columns: &[&str], keys: &[&[&str]]) -> ListedTable {
    let column = |name: &&str| ListedColumn {
        name: (*name).to_owned(),
        sql_type: "integer".to_owned(),
        is_readable: true,
    };
    let names = |key: &&[&str]| key.iter().map(ToString::to_string).collect();
    ListedTable {
        schema: "public".to_owned(),
        name: name.to_owned(),
        table: name.to_owned(),
        kind: "table".to_owned(),
        rows: Some(1_200),
        bytes: Some(3 * MIB),
        columns: columns.iter().map(column).collect(),
        keys: keys.iter().map(names).collect(),
        ..ListedTable::default()
    }
}

fn found(tables: Vec<(ListedTable, Vec<Finding>)>) -> Discovered {
    let (tables, findings): (Vec<ListedTable>, Vec<_>) = tables.into_iter().unzip();
    let configs = choice::configs(&tables);
    Discovered {
        engine: Engine::Postgres,
        database: "PostgreSQL 15, database shop".to_owned(),
        tables: joined(tables, configs, findings),
        ..Discovered::default()
    }
}

fn text(found: &Discovered) -> String {
    let url = "\"${DATABASE_URL}\"".to_owned();
    let variable = Some("DATABASE_URL");
    Document { found, url, variable, setup: "ALTER SYSTEM …;" }.text()
}

fn names(text: &str) -> Vec<String> {
    let env = |name: &str| match name {
        "DATABASE_URL" => Ok("postgres://u@h/x".to_owned()),
        _ => Err(VarError::NotPresent),
    };
    let resolved = parse(text, "f", &env, &Overrides::default()).expect(text);
    resolved.server.collections.into_iter().map(|collection| collection.name).collect()
}

#[test]
fn the_whole_file() {
    let mut orders = listed("orders", &["id", "number", "access_token"], &[&["id"], &["number"]]);
    let mut big = listed("Line Items", &["order", "line"], &[&["order", "line"]]);
    big.rows = Some(1_000_000);
    let child = ListedChild {
        name: "Line Items".to_owned(),
        table: "Line Items".to_owned(),
        on: "order".to_owned(),
        to: "id".to_owned(),
    };
    orders.children = vec![child];
    let finding = Finding::new(
        "collection `bare`: (a) is not unique",
        "ALTER TABLE \"public\".\"bare\" ADD PRIMARY KEY (\"a\");\nthen restart",
    );
    let bare = listed("bare", &["a"], &[]);
    let log = listed("log", &["id"], &[&["id"]]);
    let unlogged = Finding::new("`log` is unlogged", "ALTER TABLE log SET LOGGED;").of_feed();
    let found =
        found(vec![(big, vec![]), (bare, vec![finding]), (log, vec![unlogged]), (orders, vec![])]);
    let written = text(&found);
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!(
        written,
        format!(
            r#"# Written by hotrow init {version} from PostgreSQL 15, database shop.
# 2 of 4 tables can be served; the others are comments below.
# Every setting is in docs/reference/configuration.md. Next:
#   DATABASE_URL=... hotrow check --config hotrow.toml
#   DATABASE_URL=... hotrow serve --config hotrow.toml

[source]
# The connection string is in the environment variable DATABASE_URL.
url = "${{DATABASE_URL}}"

[cache]
# Every record at once: 6 MiB in the database, half as much again as JSON, and 128 bytes for each of
# about 1,001,200 rows make 132 MiB. A smaller capacity is usually enough, because few records are
# read often. The default is 256MiB; a running service predicts what less or more is worth (`hotrow
# advise`).
# capacity = "132MiB"

# public.Line Items: table, about 1,000,000 rows, 3 MiB; key order (integer), line (integer)
# Its own name cannot be used in a URL, or another collection has it, so it is line_items.
[collections.line_items]
table = "Line Items"
key = ["order", "line"]
allow_min_position = true

# public.orders: table, about 1,200 rows, 3 MiB; key id (integer)
[collections.orders]
key = "id"
# Columns whose names look secret. Remove a name to serve its column to every client.
exclude = ["access_token"]
allow_min_position = true
# Also by other unique columns (docs/aliases.md):
# [collections.orders.by.number]
# columns = "number"
# With the rows that refer to it (docs/embedding.md):
# [collections.orders.embed.line_items]
# table = "Line Items"
# on = "order"

# Not served as they are, with the reasons and what would change that:

# public.bare: table, about 1,200 rows, 3 MiB
# - collection `bare`: (a) is not unique
#     ALTER TABLE "public"."bare" ADD PRIMARY KEY ("a");
#     then restart
# [collections.bare]

# No feed shows changes of these tables, each with the reason. A second source serves them by TTL
# alone:
# [sources.unfollowed]
# url = "${{DATABASE_URL}}"
# feed = "none"

# public.log: table, about 1,200 rows, 3 MiB; key id (integer)
# - `log` is unlogged
#     ALTER TABLE log SET LOGGED;
# [collections.log]
# key = "id"
# source = "unfollowed"
# ttl = "5s"
"#
        )
    );
    assert_eq!(names(&written), ["line_items", "orders"]);
    let is_setting = |of: &&str| of.starts_with('[') || of.contains(" = ");
    let line = |line| str::strip_prefix(line, "# ").filter(is_setting).unwrap_or(line);
    let offered: Vec<&str> = written.lines().map(line).collect();
    let all = ["bare", "line_items", "log", "orders", "orders/by/number"];
    assert_eq!(names(&offered.join("\n")), all);
}

#[test]
fn names_of_a_database_are_data() {
    let hostile = [
        "a\"]\n[listen]\ndata = \"0.0.0.0:1\"",
        "back\\slash",
        "${HOME}",
        "#",
        "tab\tand\u{1}",
        "naïve 商品 🦀",
        "'''",
    ];
    let tables = hostile.map(|name| (listed(name, &[name, "b"], &[&[name, "b"]]), vec![]));
    let env = |_: &str| Ok("postgres://u@h/x".to_owned());
    let written = text(&found(tables.to_vec()));
    let resolved = parse(&written, "f", &env, &Overrides::default()).expect(&written);
    let [source] = &resolved.sources[..] else { panic!("one source") };
    let mut read: Vec<(String, String)> =
        source.collections().iter().map(|c| (c.table.clone(), c.key[0].clone())).collect();
    let mut wanted: Vec<(String, String)> =
        hostile.iter().map(|name| ((*name).to_owned(), (*name).to_owned())).collect();
    read.sort();
    wanted.sort();
    assert_eq!(read, wanted);
    // The same names in comments.
    let finding = |name: &str| Finding::new(format!("bad {name}"), name);
    let tables = hostile.map(|name| (listed(name, &[name], &[]), vec![finding(name)]));
    let fine = listed("fine", &["id"], &[&["id"]]);
    let written = text(&found(tables.into_iter().chain([(fine, vec![])]).collect()));
    assert_eq!(names(&written), ["fine"]);
}

#[test]
fn what_is_unknown_or_incomplete_is_said() {
    let mut unknown = listed("a", &["id", "pay"], &[&["id"]]);
    unknown.rows = None;
    unknown.columns[1].is_readable = false;
    let mut found = found(vec![(unknown, vec![])]);
    found.is_cut = true;
    found.findings = vec![Finding::new("`wal_level` is replica", "ALTER SYSTEM …;")];
    let written = text(&found);
    for part in [
        "only the first 1,000 are here",
        "Before hotrow serve can start",
        "# - `wal_level` is replica\n# Run as an administrator",
        "#     ALTER SYSTEM …;\n",
        "\n# feed = \"none\" # with ttl",
        "sizes of 1 of the tables are not known",
        "# public.a: table, 3 MiB; key id (integer)\n",
        "This account may not read pay.\nexclude = [\"pay\"]",
    ] {
        assert!(written.contains(part), "{part} is missing in:\n{written}");
    }
    found.engine = Engine::Sqlite;
    let url = "\"sqlite:x\"".to_owned();
    let written = Document { found: &found, url, variable: None, setup: "" }.text();
    assert!(written.contains("\nwatch = \"triggers\"\n"), "{written}");
    assert!(!written.contains("environment variable"), "{written}");
}

#[test]
fn sizes_and_numbers() {
    for (bytes, expected) in [
        (0, "0 B"),
        (1_023, "1023 B"),
        (8_192, "8 KiB"),
        (MIB + 1, "2 MiB"),
        (1 << 50, "1,073,741,824 MiB"),
    ] {
        assert_eq!(size(bytes), expected);
    }
}
