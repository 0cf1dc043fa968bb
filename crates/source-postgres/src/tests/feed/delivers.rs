use super::*;

#[test]
fn rows_are_delivered_as_keys_with_their_transaction() {
    let server = Server::any();
    server.batch("CREATE TABLE p (id int PRIMARY KEY, name text)");
    let feed = Feed::start(&server, &["p(id)"]);
    let xid: u64 = {
        let from = feed.sink.len();
        let xid =
            server.query("INSERT INTO p VALUES (1, 'a') RETURNING pg_current_xact_id()::text");
        feed.settle();
        let xid = xid.parse().unwrap();
        let events = feed.sink.since(from);
        let [Event::Change(change)] = &events[..] else { panic!("{events:?}") };
        assert_eq!(change.key, feed.int(0, 1));
        assert!(matches!(change.mark, ChangeId::Transaction { xid: of, .. } if of == xid));
        xid
    };
    assert!(xid > 3);
    assert_eq!(feed.keys(&server, "UPDATE p SET name = 'b'"), [feed.int(0, 1)]);
    assert_eq!(feed.keys(&server, "UPDATE p SET id = 5"), [feed.int(0, 1), feed.int(0, 5)]);
    assert_eq!(feed.keys(&server, "DELETE FROM p"), [feed.int(0, 5)]);
    assert_eq!(feed.keys(&server, "BEGIN; INSERT INTO p VALUES (9); ROLLBACK"), []);
}

#[test]
fn a_truncate_empties_every_table_it_reaches() {
    let server = Server::any();
    server.batch(
        "CREATE TABLE parent (id int PRIMARY KEY); \
         CREATE TABLE child (id int PRIMARY KEY, p int REFERENCES parent);
         CREATE TABLE other (id int PRIMARY KEY); CREATE TABLE spared (id int PRIMARY KEY)",
    );
    let feed = Feed::start(&server, &["parent(id)", "child(id)", "other(id)", "spared(id)"]);
    let mark = |events: &[Event]| match events.first() {
        Some(Event::Flush(_, FlushCause::Bulk, mark @ Some(ChangeId::Transaction { .. }))) => *mark,
        other => panic!("{other:?}"),
    };
    let events = feed.delivered(&server, "TRUNCATE parent, other CASCADE");
    let mark = mark(&events);
    let mut flushed: Vec<u16> = Vec::new();
    for event in &events {
        let Event::Flush(collection, FlushCause::Bulk, m) = event else {
            // The poll finds no change of the shape.
            panic!("{event:?}")
        };
        assert_eq!(*m, mark);
        flushed.push(collection.0);
    }
    flushed.sort_unstable();
    assert_eq!(flushed, [0, 1, 2]);
}

#[test]
fn keys_of_every_type_are_those_of_the_url() {
    let server = Server::any();
    server.batch(
        "CREATE TABLE t (id text PRIMARY KEY); CREATE TABLE u (id uuid PRIMARY KEY); \
         CREATE TABLE b (id bytea PRIMARY KEY);
         CREATE TABLE c (a bigint, v varchar(20), x text, PRIMARY KEY (v, a))",
    );
    let feed = Feed::start(&server, &["t(id)", "u(id)", "b(id)", "c(a,v)"]);
    let text = feed.key(0, &[KeyPart::Text("Gr\u{fc}\u{df}e, \u{1f980}")]);
    assert_eq!(feed.keys(&server, "INSERT INTO t VALUES ('Gr\u{fc}\u{df}e, \u{1f980}')"), [text]);
    let uuid: Vec<u8> = (0..16).map(|i| i * 16 + i).collect();
    let uuid = feed.key(1, &[KeyPart::Bytes(&uuid)]);
    assert_eq!(
        feed.keys(&server, "INSERT INTO u VALUES ('00112233-4455-6677-8899-AABBCCDDEEFF')"),
        [uuid]
    );
    let bytes = feed.key(2, &[KeyPart::Bytes(b"\0\xff\\x")]);
    assert_eq!(feed.keys(&server, r"INSERT INTO b VALUES ('\x00ff5c78')"), [bytes]);
    let pair = |a, v| feed.key(3, &[KeyPart::Integer(a), KeyPart::Text(v)]);
    assert_eq!(
        feed.keys(&server, "INSERT INTO c VALUES (-9223372036854775808, 'v')"),
        [pair(i64::MIN, "v")]
    );
    assert_eq!(feed.keys(&server, "UPDATE c SET x = 'y'"), [pair(i64::MIN, "v")]);
    assert_eq!(feed.keys(&server, "UPDATE c SET a = 1"), [pair(i64::MIN, "v"), pair(1, "v")]);
    assert_eq!(feed.keys(&server, "DELETE FROM c"), [pair(1, "v")]);
    let long = "x".repeat(1500);
    let key = feed.key(0, &[KeyPart::Text(&long)]);
    assert_eq!(feed.keys(&server, "INSERT INTO t VALUES (repeat('x', 1500))"), [key]);
}

#[test]
fn full_and_index_identities_name_their_rows() {
    let server = Server::any();
    server.batch(
        "CREATE TABLE f (id int, v text); ALTER TABLE f REPLICA IDENTITY FULL; \
         CREATE UNIQUE INDEX ON f (id);
         CREATE TABLE i (id int PRIMARY KEY, code text NOT NULL UNIQUE, long text);
         ALTER TABLE i REPLICA IDENTITY USING INDEX i_code_key;
         ALTER TABLE f ALTER v SET STORAGE EXTERNAL; ALTER TABLE i ALTER long SET STORAGE EXTERNAL;
         ALTER TABLE i ALTER code SET STORAGE EXTERNAL",
    );
    let feed = Feed::start(&server, &["f(id)", "i(code)"]);
    assert_eq!(
        feed.keys(&server, "INSERT INTO f VALUES (1, repeat('x', 9000)), (2, '')"),
        [feed.int(0, 1), feed.int(0, 2)]
    );
    assert_eq!(
        feed.keys(&server, "UPDATE f SET id = 3 WHERE id = 1"),
        [feed.int(0, 1), feed.int(0, 3)]
    );
    assert_eq!(feed.keys(&server, "DELETE FROM f WHERE id = 3"), [feed.int(0, 3)]);
    let code = |text: &str| feed.key(1, &[KeyPart::Text(text)]);
    assert_eq!(feed.keys(&server, "INSERT INTO i VALUES (1, 'a', repeat('x', 9000))"), [code("a")]);
    assert_eq!(feed.keys(&server, "UPDATE i SET id = 2"), [code("a")]);
    assert_eq!(feed.keys(&server, "UPDATE i SET code = 'b'"), [code("a"), code("b")]);
    // A key stored out of line is in the old row if the new one omits it.
    let long = "k".repeat(990);
    assert_eq!(
        feed.keys(&server, &format!("UPDATE i SET code = '{long}', long = repeat('y', 3000)")),
        [code("b"), code(&long)]
    );
    assert_eq!(feed.keys(&server, "UPDATE i SET id = 4"), [code(&long)]);
    assert_eq!(feed.keys(&server, "DELETE FROM i"), [code(&long)]);
}
