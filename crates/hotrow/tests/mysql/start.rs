//! What keeps the service from starting is told in one message.

use std::time::Duration;

use crate::harness::{Config, Ended};
use crate::server::Server as Database;
use crate::shop::{config, with_products};

/// Starts on a configuration that must not work, and gives what was said.
#[track_caller]
fn refusal(config: &Config) -> String {
    let ended = Ended::run_config(config, Duration::from_secs(60));
    assert_eq!(ended.code(), 1, "{ended:?}");
    format!("{}{}", ended.output, ended.log)
}

#[test]
fn a_server_that_cannot_be_followed_is_refused_with_what_mends_it() {
    let database = with_products(Database::start(&[("binlog-format", "STATEMENT")]));
    database.batch("CREATE TABLE keyless(id INT)");
    let said = refusal(&config(&database, &["products", "keyless"]));
    for wanted in [
        "to mend (2)",
        "`binlog_format` is STATEMENT; the feed needs ROW",
        "SET GLOBAL binlog_format = ROW;",
        "keyless",
    ] {
        assert!(said.contains(wanted), "{wanted}: {said}");
    }
}

#[test]
fn a_password_is_not_shown() {
    let database = with_products(Database::any());
    let url = database.url_for("root", "s3cret-word");
    let said = refusal(&Config::over(&url).collection("products"));
    assert!(said.contains("root") && !said.contains("s3cret-word"), "{said}");
}
