//! The replication session against a real server.

use std::time::Duration;

use tokio::net::TcpStream;

use super::server::Server;
use crate::pgoutput::{Message, Value};
use crate::wire::replication::{Lsn, ReplyWanted, SlotName, Streamed};
use crate::wire::startup::{self, Binding, Login};
use crate::wire::{Wire, WireError, deadline};

const PATIENCE: Duration = Duration::from_secs(30);

async fn login(
    server: &Server,
    user: &str,
    password: Option<&str>,
) -> Result<Wire<TcpStream>, WireError> {
    let stream = TcpStream::connect(("127.0.0.1", server.port())).await?;
    let password = password.map(str::as_bytes);
    let login = Login { user, database: "postgres", password, channel_binding: Binding::None };
    startup::start(stream, &login, deadline(PATIENCE)).await
}

/// Opens a session and starts its stream.
async fn streaming(server: &Server, publication: &str) -> Wire<TcpStream> {
    let mut wire = login(server, "postgres", None).await.unwrap();
    let slot = SlotName::Temporary(7);
    wire.create_slot(&slot, deadline(PATIENCE)).await.unwrap();
    wire.start_replication(&slot, publication, deadline(PATIENCE)).await.unwrap();
    wire
}

/// Returns the plugin's messages up to the `commits`-th commit.
async fn messages(wire: &mut Wire<TcpStream>, commits: usize) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    let mut seen = 0;
    while seen < commits {
        let frame = tokio::time::timeout(PATIENCE, wire.recv()).await.expect("a message").unwrap();
        if let Some(Streamed::Data { bytes, .. }) = Streamed::parse(&frame).unwrap() {
            seen += usize::from(matches!(Message::decode(&bytes).unwrap(), Message::Commit { .. }));
            all.push(bytes.to_vec());
        }
    }
    all
}

fn run<F: Future>(test: F) -> F::Output {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(test)
}

/// Statements that produce each kind of message.
const EVERYTHING: &str = "
    INSERT INTO p VALUES (1, 'one', 'calm'), (-2, NULL, NULL);
    UPDATE p SET name = 'eins' WHERE id = 1;
    UPDATE p SET id = 3 WHERE id = 1;
    DELETE FROM p WHERE id = -2;
    INSERT INTO f SELECT 1, string_agg(md5(i::text), '') FROM generate_series(1, 4000) i;
    UPDATE f SET id = 2;
    DELETE FROM f;
    INSERT INTO o VALUES ('x', 'y');
    TRUNCATE p, f RESTART IDENTITY CASCADE;
    SELECT pg_replication_origin_create('elsewhere');
    SELECT pg_replication_origin_session_setup('elsewhere');
    INSERT INTO p VALUES (9, 'nine', NULL);";

fn with_tables() -> Server {
    let server = Server::start(&[]);
    server.batch(
        "CREATE TYPE mood AS ENUM ('calm', 'wild');
         CREATE TABLE p (id int PRIMARY KEY, name text, mood mood);
         CREATE TABLE f (id int PRIMARY KEY, long text);
         ALTER TABLE f REPLICA IDENTITY FULL; ALTER TABLE f ALTER long SET STORAGE EXTERNAL;
         CREATE TABLE o (a text, b text, PRIMARY KEY (a, b));
         CREATE PUBLICATION every FOR TABLE p, f, o;",
    );
    server
}

#[test]
fn every_kind_of_message_is_decoded() {
    let server = with_tables();
    let all = run(async {
        let mut wire = streaming(&server, "every").await;
        server.batch(EVERYTHING);
        messages(&mut wire, 10).await
    });
    // The corpus was recorded with: HOTROW_RECORD=fuzz/corpus/pgoutput cargo test every_kind
    if let Some(folder) = std::env::var_os("HOTROW_RECORD") {
        for (i, message) in all.iter().enumerate() {
            let name = format!("{i:02}-{}", char::from(message[0]));
            std::fs::write(
                std::path::Path::new(&folder).join(name),
                &message[..message.len().min(4096)],
            )
            .unwrap();
        }
    }
    let kinds: String = all.iter().map(|m| char::from(m[0])).collect();
    // A relation is described before its first row, a type before its relation. The server may
    // repeat a description at any time, and does so after a TRUNCATE, which gives the table a new
    // file.
    assert!(kinds.starts_with("BYRII") && kinds.contains("RRT"), "{kinds}");
    // Each statement is a transaction.
    let without_descriptions: String =
        kinds.chars().filter(|kind| !matches!(kind, 'R' | 'Y')).collect();
    assert_eq!(without_descriptions, "BIICBUCBUCBDCBICBUCBDCBICBTCBOIC");
    let texts: Vec<String> =
        all.iter().map(|m| format!("{:?}", Message::decode(m).unwrap())).collect();
    assert!(
        texts.iter().any(|t| t.contains("old: Some(Key("))
            && texts.iter().any(|t| t.contains("old: Full("))
    );
    let update = all.iter().find_map(|m| match Message::decode(m).unwrap() {
        Message::Update { old: None, new, .. } => Some(new),
        _ => None,
    });
    let new = update.expect("an update that leaves the key alone");
    assert_eq!(
        new.values().collect::<Vec<_>>(),
        [Value::Text(b"1"), Value::Text(b"eins"), Value::Text(b"calm")]
    );
    let emptied = all.iter().find_map(|m| match Message::decode(m).unwrap() {
        Message::Truncate(oids) => Some(oids.iter().collect::<Vec<_>>()),
        _ => None,
    });
    let oids = server.query("SELECT oid FROM pg_class WHERE relname IN ('p', 'f') ORDER BY oid");
    assert_eq!(emptied.unwrap().iter().map(u32::to_string).collect::<Vec<_>>().join("\n"), oids);
}

#[test]
fn a_keep_alive_answers_a_status_at_once() {
    let server = with_tables();
    run(async {
        let mut wire = streaming(&server, "every").await;
        server.batch("CREATE TABLE unpublished (id int); INSERT INTO unpublished VALUES (1)");
        let end: Lsn = server.query("SELECT pg_current_wal_flush_lsn()").parse().unwrap();
        let mut passed = Lsn::default();
        while passed < end {
            wire.confirm(passed, ReplyWanted::Yes, deadline(PATIENCE)).await.unwrap();
            let frame =
                tokio::time::timeout(PATIENCE, wire.recv()).await.expect("an answer").unwrap();
            match Streamed::parse(&frame).unwrap() {
                Some(Streamed::KeepAlive { wal_end, .. }) => passed = wal_end,
                other => panic!("{other:?}"),
            }
        }
    });
}

#[test]
fn passwords_are_proven_in_every_way() {
    let server = Server::start(&[]);
    server.batch(
        "SET password_encryption = 'scram-sha-256'; \
         CREATE ROLE scram LOGIN REPLICATION PASSWORD 'p\u{e4}ss';
         SET password_encryption = 'md5'; CREATE ROLE old LOGIN REPLICATION PASSWORD 'word';",
    );
    server.set_hba(
        "local all all trust\nhost all postgres all trust\nhost all scram all scram-sha-256\nhost \
         all old all md5\n\
         host all plain all password\n",
    );
    server.batch("CREATE ROLE plain LOGIN REPLICATION PASSWORD 'open'");
    let identifier = server.query("SELECT system_identifier FROM pg_control_system()");
    run(async {
        for (user, password) in [("scram", "p\u{e4}ss"), ("old", "word"), ("plain", "open")] {
            let mut wire = login(&server, user, Some(password)).await.unwrap();
            let system = wire.identify_system(deadline(PATIENCE)).await.unwrap();
            assert_eq!((system.identifier.to_string(), system.timeline), (identifier.clone(), 1));
            let wrong = login(&server, user, Some("wrong")).await.unwrap_err();
            assert_eq!(wrong.code(), Some("28P01"), "{wrong}");
            let none = login(&server, user, None).await.unwrap_err();
            assert!(
                matches!(none, WireError::Login(_)) && none.to_string().contains(user),
                "{none}"
            );
        }
    });
}

#[test]
fn a_huge_row_is_cut() {
    let server = with_tables();
    run(async {
        let mut wire = streaming(&server, "every").await;
        server.batch(
            "INSERT INTO p VALUES (7, repeat('x', 40000000), NULL); \
             INSERT INTO p VALUES (8, '', NULL)",
        );
        let mut heads = Vec::new();
        while heads.len() < "BYRICBIC".len() {
            let frame =
                tokio::time::timeout(PATIENCE, wire.recv()).await.expect("a message").unwrap();
            if let Some(Streamed::Data { bytes, is_cut }) = Streamed::parse(&frame).unwrap() {
                heads.push((char::from(bytes[0]), is_cut));
            }
        }
        let cut: Vec<_> = heads.iter().filter(|(_, is_cut)| *is_cut).collect();
        assert_eq!(cut, [&('I', true)]);
        assert_eq!(heads.iter().map(|(kind, _)| *kind).collect::<String>(), "BYRICBIC");
    });
}
