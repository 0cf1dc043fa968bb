//! Configurations that mistake a table, a key or a connection string.

use std::io::Write as _;

use hotrow_testkit::harness::{Database, Ended, SOON};
use hotrow_testkit::mysql::Server as Mysql;
use hotrow_testkit::postgres::Server as Postgres;

use super::{Mistake, check};

/// Texts, with `{db}` for a connection string that is right, and what standard error says. `ss` and
/// `hush` are parts of a password.
const FILES: &[Mistake] = &[
    (
        "[limits]\nreads_in_flight = 2",
        "limits.reads_in_flight: unknown key; it belongs to [source]",
    ),
    ("ttl = '5s'", "ttl: unknown key; it belongs to [cache]"),
    ("[tls]\ncert = 'a'", "tls: unknown table; it belongs to [admin] or [listen]"),
    ("[source]\nurl = '{db}'\n[collections.product]", "; did you mean `products`?"),
    ("[source]\nurl = '{db}'\n[collections.a]\ntable = 'prodcuts'", "; did you mean `products`?"),
    (
        "[source]\nurl = 'postgres://u:hush@ss@h/d'",
        "source.url: the connection string has `@`, `/`,",
    ),
    ("[source]\nurl = 'postgres://u:hush/ss@h/d'", "must be percent-encoded (%40, %2F, %23, %3F)"),
    ("[source]\nurl = 'postgres://u:4/ss@h/d'", "must be percent-encoded"),
    ("[source]\nurl = 'postgres://u:hush#ss@h/d'", "must be percent-encoded"),
    ("[source]\nurl = 'postgres://u:hush?ss=1@h/d'", "must be percent-encoded"),
    ("[source]\nurl = 'mysql://u:hush@ss@h/d'", "must be percent-encoded"),
    ("[source]\nurl = 'mysql://u:4/ss@h/d'", "must be percent-encoded"),
    ("[source]\nurl = 'mysql://u:hush#ss@h/d'", "must be percent-encoded"),
    ("[source]\nurl = 'mongodb://u:hush@ss@h/d'", "must be percent-encoded"),
    ("[source]\nurl = 'mongodb://u:4/ss@h/d'", "must be percent-encoded"),
    ("[source]\nurl = 'mongodb://u:hush#ss@h/d'", "must be percent-encoded"),
];

/// Returns what `hotrow serve` says of a file.
fn refusal(text: &str) -> String {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    let free = "[listen]\ndata = '127.0.0.1:0'\nadmin = '127.0.0.1:0'\n";
    let has_collection = text.contains("collections") || !text.contains("[source]");
    let more = if has_collection { "" } else { "\n[collections.products]" };
    // First what is added at the top of the file.
    write!(file, "{text}{more}\n{free}").unwrap();
    let ended = Ended::run(&["serve", "--config", file.path().to_str().unwrap()], SOON);
    assert!(matches!(ended.code(), 1 | 2), "{text}: {ended:?}");
    ended.log
}

#[test]
fn files() {
    let database = Database::with_products(1);
    let url = format!("sqlite:{}", database.path().display());
    check(FILES, |text| {
        let log = refusal(&text.replace("{db}", &url));
        assert!(!log.contains("hush") && !log.contains("ss@"), "{text}: {log}");
        log
    });
}

#[test]
fn a_misspelt_table_of_a_server() {
    let (postgres, mysql) = (Postgres::any(), Mysql::any());
    postgres.batch("CREATE TABLE products (id int PRIMARY KEY)");
    mysql.batch("CREATE TABLE products (id int PRIMARY KEY)");
    for url in [postgres.url(), mysql.url()] {
        let log = refusal(&format!("[source]\nurl = '{url}'\n[collections.product]"));
        assert!(log.contains("there is no table `product`"), "{log}");
        assert!(log.contains("; did you mean `products`?"), "{log}");
    }
}
