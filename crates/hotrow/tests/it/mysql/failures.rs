//! Databases that are refused at the start, with all problems in one message.

use hotrow_testkit::harness::Config;

use crate::mysql::server::Server as Database;
use crate::mysql::shop::{config, with_products};
use crate::shop::{assert_contains, refusal};

#[test]
fn an_unsuitable_server_is_refused_with_the_fixes() {
    let database = with_products(Database::start(&[("binlog-format", "STATEMENT")]));
    database.batch("CREATE TABLE keyless(id INT)");
    let message = refusal(&config(&database, &["products", "keyless"]));
    let expected = [
        "to fix (2)",
        "`binlog_format` is STATEMENT; the feed needs ROW",
        "SET GLOBAL binlog_format = ROW;",
        "keyless",
    ];
    assert_contains(&message, &expected);
}

#[test]
fn a_password_is_not_shown() {
    let database = with_products(Database::any());
    let url = database.url_for("root", "s3cret-word");
    let message = refusal(&Config::over(&url).collection("products"));
    assert!(message.contains("root") && !message.contains("s3cret-word"), "{message}");
}
