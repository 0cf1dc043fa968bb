use super::super::harness::refusal;
use super::*;

#[test]
fn every_missing_requirement_is_reported_at_once_with_its_fix() {
    let server = Server::start(&[
        ("binlog-format", "MIXED"),
        ("log-bin-compress", "ON"),
        ("server-id", "9"),
    ]);
    server.batch("CREATE TABLE a (id INT PRIMARY KEY); CREATE TABLE b (id INT)");
    let mut config = config(server.url(), &["a(id)", "b(id)"]);
    config.server_id = Some(9);
    let text = refusal(config);
    for expected in [
        "to fix (4)",
        "`b`",
        "`binlog_format` is MIXED; the feed needs ROW\n     -> SET GLOBAL binlog_format = ROW;",
        "SET GLOBAL log_bin_compress = OFF;",
        "`source.server_id` is 9, which is the server's own",
    ] {
        assert!(text.contains(expected), "{expected}: {text}");
    }
}

#[test]
fn servers_that_do_not_log_the_database_are_refused() {
    let server = Server::start(&[("skip-log-bin", "")]);
    server.batch("CREATE TABLE a (id INT PRIMARY KEY)");
    assert!(refusal(config(server.url(), &["a(id)"])).contains("`log_bin` is OFF"));
    for (setting, value) in [("binlog-ignore-db", "test"), ("binlog-do-db", "other")] {
        let server = Server::start(&[(setting, value)]);
        server.batch("CREATE TABLE a (id INT PRIMARY KEY)");
        let text = refusal(config(server.url(), &["a(id)"]));
        assert!(text.contains(&format!("(`{}`)", setting.replace('-', "_"))), "{text}");
    }
}
