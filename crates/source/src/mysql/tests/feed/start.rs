use super::super::recorder::refusal;
use super::*;

#[test]
fn everything_that_the_feed_lacks_is_told_at_once_with_what_mends_it() {
    let server = Server::start(&[("binlog-format", "MIXED"), ("log-bin-compress", "ON"), ("server-id", "9")]);
    server.batch("CREATE TABLE a (id INT PRIMARY KEY); CREATE TABLE b (id INT)");
    let mut config = config(server.url(), &["a(id)", "b(id)"]);
    config.server_id = Some(9);
    let text = refusal(config);
    for wanted in [
        "to mend (4)",
        "`b`",
        "`binlog_format` is MIXED; the feed needs ROW\n     -> SET GLOBAL binlog_format = ROW;",
        "SET GLOBAL log_bin_compress = OFF;",
        "`source.server_id` is 9, which is the server's own",
    ] {
        assert!(text.contains(wanted), "{wanted}: {text}");
    }
}

#[test]
fn a_server_without_a_log_and_one_that_keeps_the_database_out_of_it_are_refused() {
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

#[test]
fn missing_privileges_are_named_with_their_grant() {
    let server = Server::start(&[]);
    server.batch(
        "CREATE TABLE a (id INT PRIMARY KEY); CREATE USER u@'%' IDENTIFIED BY 'p w'; GRANT SELECT ON test.* TO u@'%'",
    );
    let config = || config(server.url_for("u", "p w"), &["a(id)"]);
    let text = refusal(config());
    assert!(text.contains("GRANT BINLOG MONITOR ON *.* TO 'u'@'%';"), "{text}");
    server.batch("GRANT BINLOG MONITOR ON *.* TO u@'%'");
    let text = refusal(config());
    assert!(text.contains("GRANT REPLICATION SLAVE ON *.* TO 'u'@'%';"), "{text}");
    server.batch("GRANT REPLICATION SLAVE ON *.* TO u@'%'");
    let feed = Feed::launch(config(), |_| {});
    feed.settle();
    assert_eq!(feed.keys(&server, "INSERT INTO a VALUES (1)"), [feed.int(0, 1)]);
}
