//! The checker's writers, each alone with its database: their reports match the database.

use hotrow_verify::database::{
    Change, ChangeKind, Database, DatabaseError, Reference, Rows, StoredRow, Table, TableRole,
    Tables, TransactionEnd, TransactionOutcome, Writer,
};
use hotrow_verify::row::KeyType;

use hotrow_testkit::{mysql as maria, postgres as server, standin};

fn change(key: u32, version: u64, kind: ChangeKind) -> Change {
    Change { table: TableRole::Records, key, version, reference: None, kind }
}

/// Returns the versions by key.
fn versions(rows: &Rows) -> Vec<(u32, u64)> {
    rows.rows.iter().map(|(key, row)| (*key, row.version)).collect()
}

/// Runs every operation of a writer on a missing table. `foreign` inserts a foreign row.
fn check_writer(database: &Database, key: &str, key_type: KeyType, foreign: impl FnOnce()) {
    let (name, key) = ("set_aside".to_owned(), key.to_owned());
    let records = Table { name, key, key_type, reference: None };
    let mut tables = Tables { records, children: None };
    let mut writer = database.writer(&tables).expect("a writer");
    let mut other = database.writer(&tables).expect("a writer");
    let records = TableRole::Records;
    for _ in 0..2 {
        writer.create().expect("the table is created, or is there");
    }
    assert_eq!(writer.rows(records).expect("rows").rows.len(), 0);
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
    assert_eq!(writer.row(records, 1), Ok(Some(StoredRow { version: 11, reference: None })));
    assert_eq!(writer.row(records, 3), Ok(None));
    if writer.has_transactions() {
        let several = [
            change(1, 12, ChangeKind::Delete),
            change(2, 12, ChangeKind::Upsert),
            change(3, 12, ChangeKind::Upsert),
        ];
        let mut sent = false;
        let ended = writer.transact(&several, TransactionEnd::RollBack, &mut || sent = true);
        assert!(matches!(ended, TransactionOutcome::RolledBack(_)) && !sent, "{ended:?}");
        assert_eq!(versions(&other.rows(records).expect("rows")), [(1, 11), (2, 11)]);
        commit(&mut *writer, &several);
    } else {
        commit(&mut *writer, &[change(1, 12, ChangeKind::Delete)]);
        commit(&mut *writer, &[change(2, 12, ChangeKind::Upsert)]);
        commit(&mut *writer, &[change(3, 12, ChangeKind::Upsert)]);
    }
    foreign();
    let rows = other.rows(records).expect("rows");
    assert_eq!((versions(&rows), rows.foreign), (vec![(2, 12), (3, 12)], 1));
    assert!(commits > 0, "each commit was announced");
    tables.records.name = "nowhere".to_owned();
    let found = database.writer(&tables).expect("a writer").rows(records);
    // MongoDB has no missing collections.
    assert!(
        matches!(found, Err(DatabaseError::Permanent(_)))
            || matches!(database, Database::Mongodb(_)),
        "{found:?}"
    );
}

/// Runs the operations on the tables of a collection with an alias and an embedded member.
fn check_references(database: &Database) {
    let (text, integer) = (KeyType::Text, KeyType::Integer);
    let table = |name: &str, key_type, column: &str, of| Table {
        name: name.to_owned(),
        key: "id".to_owned(),
        key_type,
        reference: Some(Reference { column: column.to_owned(), key_type: of }),
    };
    let children = Some(table("aside_parts", integer, "parent", text));
    let tables = Tables { records: table("aside", text, "handle", text), children };
    let mut writer = database.writer(&tables).expect("a writer");
    for _ in 0..2 {
        writer.create().expect("the tables are created, or are there");
    }
    let record = |key, version, reference, kind| Change { reference, ..change(key, version, kind) };
    let child = |key, version, parent, kind| Change {
        table: TableRole::Children,
        ..record(key, version, Some(parent), kind)
    };
    let first = [
        record(1, 10, Some(7), ChangeKind::Upsert),
        record(2, 10, None, ChangeKind::Upsert),
        child(4, 10, 1, ChangeKind::Upsert),
        child(5, 10, 1, ChangeKind::Upsert),
    ];
    // The value moves, and so does a child.
    let second = [
        record(1, 11, None, ChangeKind::Replace),
        record(2, 11, Some(7), ChangeKind::Upsert),
        child(4, 11, 2, ChangeKind::Upsert),
        child(5, 11, 1, ChangeKind::Delete),
    ];
    for changes in [first, second] {
        let ended = writer.transact(&changes, TransactionEnd::Commit, &mut || {});
        assert_eq!(ended, TransactionOutcome::Committed, "{changes:?}");
    }
    let row = |version, reference| StoredRow { version, reference };
    let records = writer.rows(TableRole::Records).expect("rows");
    assert_eq!(records.rows, [(1, row(11, None)), (2, row(11, Some(7)))].into());
    let children = writer.rows(TableRole::Children).expect("rows");
    assert_eq!(children.rows, [(4, row(11, Some(2)))].into());
    assert_eq!(writer.row(TableRole::Children, 4), Ok(Some(row(11, Some(2)))));
    assert_eq!((records.foreign, children.foreign), (0, 0));
}

#[test]
fn sqlite_matches_its_writers_claims() {
    for key_type in [KeyType::Integer, KeyType::Text] {
        let file = hotrow_testkit::harness::Database::new();
        let foreign = || file.execute("INSERT INTO set_aside VALUES (9, 1, 'foreign')");
        check_writer(&Database::Sqlite(file.path().to_owned()), "id", key_type, foreign);
        check_references(&Database::Sqlite(file.path().to_owned()));
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
    check_references(&Database::Postgres(postgres.url()));
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
    check_references(&Database::parse(&maria.superuser_url()).expect("a URL"));
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
