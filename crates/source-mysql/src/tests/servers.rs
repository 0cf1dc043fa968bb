//! Behaviour of the server helper that the tests rely on.

use super::server::{Server, Stop};

#[test]
fn a_private_server_starts_stops_and_keeps_its_data() {
    let mut server = Server::start(&[("server-id", "77")]);
    server.batch(
        "CREATE TABLE t (id INT PRIMARY KEY, name VARCHAR(9));
         INSERT INTO t VALUES (1, 'é'), (2, NULL)",
    );
    assert_eq!(server.query("SELECT * FROM t; SELECT @@server_id"), "1\té\n2\tNULL\n77");
    assert!(server.try_query("SELECT * FROM nothing").unwrap_err().contains("doesn't exist"));
    for how in [Stop::Fast, Stop::Kill] {
        server.stop(how);
        assert!(!server.runs());
        server.restart();
        assert_eq!(server.query("SELECT count(*) FROM t"), "2");
    }
    server.pause();
    let mut query = server.begin("SELECT 7");
    assert!(query.runs());
    server.resume();
    assert_eq!(query.outcome().unwrap(), "7");
}

#[test]
fn any_server_has_a_database_for_the_test() {
    let server = Server::any();
    server.batch("CREATE TABLE t (id INT PRIMARY KEY)");
    assert_eq!(server.query("SELECT database()"), server.database());
}
