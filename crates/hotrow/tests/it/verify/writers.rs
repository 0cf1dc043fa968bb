//! The checker's writers, each alone with its database: their reports match the database.

use hotrow_verify::database::{
    Change, ChangeKind, Database, DatabaseError, Table, TransactionEnd, TransactionOutcome, Writer,
};
use hotrow_verify::row::KeyType;

use hotrow_testkit::{mysql as maria, postgres as server, standin};

fn change(key: u32, version: u64, kind: ChangeKind) -> Change {
    Change { key, version, kind }
}

/// Runs every operation of a writer on a missing table. `foreign` inserts a foreign row.
fn check_writer(database: &Database, key: &str, key_type: KeyType, foreign: impl FnOnce()) {
    let table = Table { name: "set_aside".to_owned(), key: key.to_owned(), key_type };
    let mut writer = database.writer(&table).expect("a writer");
    let mut other = database.writer(&table).expect("a writer");
    for _ in 0..2 {
        writer.create().expect("the table is created, or is there");
    }
    assert_eq!(writer.rows().expect("rows").versions.len(), 0);
    let mut commits = 0;
    let mut commit = |writer: &mut dyn Writer, changes: &[Change]| {
        let ended = writer.transact(changes, TransactionEnd::Commit, &mut || commits += 1);
        assert_eq!(ended, TransactionOutcome::Committed, "{changes:?}");
    };
    commit(&mut *writer, &[change(1, 10, ChangeKind::Upsert)]);
    commit(&mut *writer, &[change(2, 10, ChangeKind::Replace)]);
    let first = writer.position();
    // Existing and missing rows.
    commit(&mut *other, &[change(1, 11, ChangeKind::Upsert)]);
    commit(&mut *other, &[change(2, 11, ChangeKind::Replace)]);
    commit(&mut *other, &[change(3, 10, ChangeKind::Delete)]);
    let second = other.position();
    assert!(first.is_none() == second.is_none() && first <= second, "{first:?} {second:?}");
    assert_eq!(writer.version(1), Ok(Some(11)));
    assert_eq!(writer.version(3), Ok(None));
    if writer.has_transactions() {
        let several = [
            change(1, 12, ChangeKind::Delete),
            change(2, 12, ChangeKind::Upsert),
            change(3, 12, ChangeKind::Upsert),
        ];
        let mut sent = false;
        let ended = writer.transact(&several, TransactionEnd::RollBack, &mut || sent = true);
        assert!(matches!(ended, TransactionOutcome::RolledBack(_)) && !sent, "{ended:?}");
        assert_eq!(other.rows().expect("rows").versions, [(1, 11), (2, 11)].into());
        commit(&mut *writer, &several);
    } else {
        commit(&mut *writer, &[change(1, 12, ChangeKind::Delete)]);
        commit(&mut *writer, &[change(2, 12, ChangeKind::Upsert)]);
        commit(&mut *writer, &[change(3, 12, ChangeKind::Upsert)]);
    }
    foreign();
    let rows = other.rows().expect("rows");
    assert_eq!((rows.versions, rows.foreign), ([(2, 12), (3, 12)].into(), 1));
    assert!(commits > 0, "each commit was announced");
    let missing = Table { name: "nowhere".to_owned(), ..table };
    let found = database.writer(&missing).expect("a writer").rows();
    // MongoDB has no missing collections.
    assert!(
        matches!(found, Err(DatabaseError::Permanent(_)))
            || matches!(database, Database::Mongodb(_)),
        "{found:?}"
    );
}

#[test]
fn sqlite_matches_its_writers_claims() {
    for key_type in [KeyType::Integer, KeyType::Text] {
        let file = hotrow_testkit::harness::Database::new();
        let foreign = || file.execute("INSERT INTO set_aside VALUES (9, 1, 'foreign')");
        check_writer(&Database::Sqlite(file.path().to_owned()), "id", key_type, foreign);
    }
}

#[test]
fn postgres_matches_its_writers_claims() {
    let postgres = server::Server::start(&[]);
    for key_type in [KeyType::Integer, KeyType::Text] {
        let foreign = || postgres.batch("INSERT INTO set_aside VALUES ('9', 1, 'foreign')");
        check_writer(&Database::Postgres(postgres.url()), "id", key_type, foreign);
        postgres.batch("DROP TABLE set_aside");
    }
}

#[test]
fn mariadb_matches_its_writers_claims() {
    let maria = maria::Server::any();
    for key_type in [KeyType::Integer, KeyType::Text] {
        let foreign = || maria.batch("INSERT INTO set_aside VALUES ('9', 1, 'foreign')");
        check_writer(
            &Database::parse(&maria.superuser_url()).expect("a URL"),
            "id",
            key_type,
            foreign,
        );
        maria.batch("DROP TABLE set_aside");
    }
}

#[test]
fn mongodb_matches_its_writers_claims() {
    for key_type in [KeyType::Integer, KeyType::Text] {
        let standin = standin::Standin::start();
        let url = standin.url("shop");
        let foreign = || insert(&url, "set_aside");
        check_writer(&Database::parse(&url).expect("a URL"), "_id", key_type, foreign);
    }
}

/// Inserts a foreign document.
fn insert(url: &str, collection: &str) {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let client = mongodb::Client::with_uri_str(url).await.expect("connect");
        let database = client.default_database().expect("a database");
        let document = mongodb::bson::doc! { "_id": "foreign", "version": 1_i64 };
        database.collection(collection).insert_one(document).await.expect("insert");
    });
}
