//! Tests of the private server that the other tests build on.

use std::time::{Duration, Instant};

use crate::postgres::server::{Server, Stop};

#[test]
fn a_server_keeps_its_rows_over_a_crash() {
    let mut server = Server::start(&[("max_wal_senders", "3")]);
    assert_eq!(server.query("SHOW max_wal_senders; SHOW wal_level"), "3\nlogical");
    server.batch("CREATE TABLE t(id int PRIMARY KEY); INSERT INTO t VALUES (7)");
    let folder = server.socket_folder().to_owned();
    server.kill9();
    assert!(server.try_query("SELECT 1").is_err(), "it is dead");
    server.restart();
    assert_eq!(server.query("SELECT * FROM t"), "7");
    server.stop(Stop::Fast);
    server.restart();
    server.set(&[("work_mem", "5MB")]);
    assert_eq!(server.query("SHOW work_mem"), "5MB");
    assert!(
        server
            .try_query("SELECT 1; SELECT nonsense")
            .is_err_and(|error| error.contains("nonsense"))
    );
    drop(server);
    assert!(!folder.exists(), "its folder is removed with it");
}

#[test]
fn a_paused_server_answers_when_it_continues() {
    let server = Server::start(&[]);
    server.pause();
    std::thread::scope(|scope| {
        let query = scope.spawn(|| server.query("SELECT 41 + 1"));
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_millis(200) {
            assert!(!query.is_finished(), "a stopped server cannot answer");
            std::thread::sleep(Duration::from_millis(5));
        }
        server.resume();
        assert_eq!(query.join().expect("an answer"), "42");
    });
}

#[test]
fn a_standby_becomes_a_primary_of_the_next_timeline() {
    const IDENTITY: &str = "SELECT system_identifier FROM pg_control_system()";
    let primary = Server::start(&[]);
    primary.batch("CREATE TABLE t(id int PRIMARY KEY); INSERT INTO t VALUES (7)");
    let standby = primary.standby(&[]);
    assert_eq!(standby.query("SELECT pg_is_in_recovery(), id FROM t"), "t|7");
    standby.promote();
    assert_eq!(
        standby.query("SELECT pg_is_in_recovery(), left(pg_walfile_name(pg_current_wal_lsn()), 8)"),
        "f|00000002"
    );
    assert_eq!(primary.query(IDENTITY), standby.query(IDENTITY));
    assert_ne!(Server::start_other(&[]).query(IDENTITY), primary.query(IDENTITY));
}
