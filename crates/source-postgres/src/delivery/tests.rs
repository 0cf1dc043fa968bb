use hotrow_measure::clock::Nanos;
use hotrow_types::key::{CollectionId, KeyPart, KeyType};
use hotrow_types::version::{Position, Version};
use parking_lot::Mutex;

use super::*;
use hotrow_source::LossCause;
use hotrow_source::looks::Looks;

#[derive(Default)]
struct RecordingSink(Mutex<Vec<String>>);

impl Sink for RecordingSink {
    fn changes(&self, changes: &[Change]) {
        self.0.lock().extend(changes.iter().map(|c| format!("{:?} {}", c.key, shown(c.mark))));
    }
    fn flush(&self, collection: CollectionId, cause: FlushCause, mark: Option<ChangeId>) {
        self.0.lock().push(format!("flush {} {cause:?} {:?}", collection.0, mark.map(shown)));
    }
    fn open_gap(&self, _: CollectionId, _: &str) {}
    fn close_gap(&self, _: CollectionId) {}
    fn loss(&self, _: LossCause, _: &str) {}
    fn started(&self, _: Option<Position>) {}
    fn advance(&self, _: Nanos, _: Option<Position>, _: Option<&Version>) {}

    fn looks(&self) -> Option<&Looks> {
        None
    }
}

fn shown(mark: ChangeId) -> String {
    let ChangeId::Transaction { xid, commit } = mark else { panic!("{mark:?}") };
    assert_eq!(commit, 900 + (xid & 0xffff), "the start of its commit record");
    format!("Transaction({xid})")
}

fn begin(xid: u32) -> Vec<u8> {
    let commit = 900 + u64::from(xid & 0xffff);
    [&b"B"[..], &commit.to_be_bytes(), &[0; 8], &xid.to_be_bytes()].concat()
}

fn commit(end: u64) -> Vec<u8> {
    [&b"C\0"[..], &[0; 8], &end.to_be_bytes(), &[0; 8]].concat()
}

/// Returns the description of a table `public.NAME` with these columns.
fn relation(oid: u32, name: &str, columns: &[&str]) -> Vec<u8> {
    relation_with(oid, name, b'd', columns, columns.len())
}

/// Returns the same with a replica identity, of which the first columns are a part.
fn relation_with(
    oid: u32,
    name: &str,
    identity: u8,
    columns: &[&str],
    key_columns: usize,
) -> Vec<u8> {
    let name = [name.as_bytes(), &[0, identity]].concat();
    let mut bytes = [&b"R"[..], &oid.to_be_bytes(), b"public\0", &name].concat();
    bytes.extend(u16::try_from(columns.len()).unwrap().to_be_bytes());
    for (i, column) in columns.iter().enumerate() {
        let flags = [u8::from(i < key_columns)];
        bytes.extend([&flags, column.as_bytes(), b"\0\0\0\0\x17\xff\xff\xff\xff"].concat());
    }
    bytes
}

/// Returns a row of texts. `n` is NULL, `u` an unchanged value.
fn tuple(values: &[&str]) -> Vec<u8> {
    let mut bytes = u16::try_from(values.len()).unwrap().to_be_bytes().to_vec();
    for value in values {
        match *value {
            "n" | "u" => bytes.extend(value.as_bytes()),
            text => bytes.extend(
                [&b"t"[..], &u32::try_from(text.len()).unwrap().to_be_bytes(), text.as_bytes()]
                    .concat(),
            ),
        }
    }
    bytes
}

fn row(kind: &[u8], oid: u32, parts: &[(&[u8], &[&str])]) -> Vec<u8> {
    let mut bytes = [kind, &oid.to_be_bytes()].concat();
    for (kind, values) in parts {
        bytes.extend_from_slice(kind);
        bytes.extend(tuple(values));
    }
    bytes
}

fn schemas() -> Vec<KeySchema> {
    vec![
        KeySchema::new(CollectionId(0), vec![KeyType::Integer]),
        KeySchema::new(CollectionId(1), vec![KeyType::Integer, KeyType::Integer]),
    ]
}

fn follow(collection: usize, oid: u32, name: &str, key: &[&str]) -> Followed {
    let key = key.iter().map(|k| (*k).to_owned()).collect();
    let (oids, namespace) = (vec![oid], "public".to_owned());
    Followed { collection, oids, namespace, name: name.into(), key, role: Role::Record }
}

fn followed() -> Vec<Followed> {
    vec![follow(0, 10, "a", &["id"]), follow(1, 20, "b", &["x", "y"])]
}

/// Returns the calls that the sink receives for these messages.
fn deliver(messages: &[Vec<u8>]) -> Result<Vec<String>, DeliveryError> {
    deliver_to(followed(), messages)
}

fn deliver_to(followed: Vec<Followed>, messages: &[Vec<u8>]) -> Result<Vec<String>, DeliveryError> {
    let schemas = schemas();
    let sink = RecordingSink::default();
    let mut delivery = Delivery::new(&schemas, &sink, followed, 1000);
    for message in messages {
        delivery.process(message)?;
    }
    delivery.flush_portion();
    Ok(sink.0.into_inner())
}

#[test]
fn numbers_are_widened_on_both_sides_of_the_wrap() {
    let wrap = 1_u64 << 32;
    for (xid, xmax, full) in [
        (999_u32, 1000_u64, 999),
        (1005, 1000, 1005),
        (3, wrap - 5, wrap + 3),
        (u32::MAX, wrap + 3, wrap - 1),
        (u32::MAX, wrap * 7 + 3, wrap * 7 - 1),
        (0, wrap * 7 - 1, wrap * 7),
        (5, wrap * 7 + 2_000_000_000, wrap * 7 + 5),
        // No number is negative.
        (u32::MAX, 3, 0),
    ] {
        assert_eq!(widen(xid, xmax), full, "{xid} {xmax}");
    }
}

#[test]
fn a_key_is_delivered_once_per_transaction() {
    let r = relation(10, "a", &["id", "v"]);
    let insert = || row(b"I", 10, &[(b"N", &["7", "x"])]);
    let update = row(b"U", 10, &[(b"K", &["7", "n"]), (b"N", &["8", "x"])]);
    let delete = row(b"D", 10, &[(b"O", &["8", "x"])]);
    let messages = [
        begin(5),
        r,
        insert(),
        insert(),
        update,
        delete,
        commit(9),
        begin(6),
        insert(),
        commit(10),
    ];
    let seven = |xid| format!("0:[Integer(7)] Transaction({xid})");
    assert_eq!(
        deliver(&messages).unwrap(),
        [seven(5), "0:[Integer(8)] Transaction(5)".into(), seven(6)]
    );
}

#[test]
fn an_unsent_value_comes_from_the_old_row_or_causes_a_flush() {
    let r = || relation(20, "b", &["v", "y", "x"]);
    let both = row(b"U", 20, &[(b"O", &["n", "2", "1"]), (b"N", &["n", "u", "3"])]);
    let deliver_update = |message: Vec<u8>| deliver(&[begin(5), r(), message]).unwrap();
    let keys =
        ["1:[Integer(1), Integer(2)] Transaction(5)", "1:[Integer(3), Integer(2)] Transaction(5)"];
    assert_eq!(deliver_update(both), keys);
    let flush = ["flush 1 Bulk Some(\"Transaction(5)\")"];
    assert_eq!(deliver_update(row(b"U", 20, &[(b"N", &["n", "u", "3"])])), flush);
    // A key without all its parts is ambiguous.
    assert_eq!(deliver_update(row(b"D", 20, &[(b"K", &["n", "2", "n"])])), flush);
    // A row with a NULL in its key cannot be requested.
    assert!(deliver_update(row(b"D", 20, &[(b"O", &["n", "2", "n"])])).is_empty());
    assert!(deliver_update(row(b"I", 20, &[(b"N", &["n", "2", "x1"])])).is_empty());
    // Fewer columns than described.
    assert_eq!(deliver_update(row(b"I", 20, &[(b"N", &["n"])])), flush);
}

#[test]
fn an_alias_is_delivered_by_the_values_that_rows_have() {
    let alias = vec![Followed { role: Role::Alias, ..follow(0, 10, "a", &["id"]) }];
    let of = |message: Vec<u8>| {
        let messages = [begin(5), relation(10, "a", &["key", "id"]), message];
        deliver_to(alias.clone(), &messages).unwrap()
    };
    let seven = ["0:[Integer(7)] Transaction(5)"];
    assert_eq!(of(row(b"I", 10, &[(b"N", &["1", "7"])])), seven);
    // The old row has only the columns of the replica identity.
    assert_eq!(of(row(b"U", 10, &[(b"K", &["1", "n"]), (b"N", &["2", "7"])])), seven);
    assert_eq!(of(row(b"U", 10, &[(b"O", &["1", "6"]), (b"N", &["1", "7"])])), seven);
    assert!(of(row(b"D", 10, &[(b"K", &["1", "n"])])).is_empty());
    assert!(of(row(b"U", 10, &[(b"N", &["1", "n"])])).is_empty(), "no lookup finds NULL");
    // A value that was not sent is unknown.
    let flush = ["flush 0 Bulk Some(\"Transaction(5)\")"];
    assert_eq!(of(row(b"U", 10, &[(b"N", &["1", "u"])])), flush);
}

/// Returns what is delivered of one message for `child(id, parent)`, with this replica identity of
/// that many columns.
fn of_child(identity: u8, key_columns: usize, oid: Option<u32>, message: Vec<u8>) -> Vec<String> {
    let child = Followed { role: Role::Child { oid }, ..follow(0, 30, "child", &["parent"]) };
    let tables = vec![follow(0, 10, "a", &["id"]), child];
    let table = relation_with(30, "child", identity, &["id", "parent"], key_columns);
    deliver_to(tables, &[begin(5), table, message]).unwrap()
}

#[test]
fn a_child_changes_the_parent_that_it_had_and_the_one_that_it_has() {
    let full = |message| of_child(b'f', 2, Some(30), message);
    let [six, seven] = [6, 7].map(|id| format!("0:[Integer({id})] Transaction(5)"));
    assert_eq!(full(row(b"I", 30, &[(b"N", &["1", "7"])])), [&*seven]);
    assert_eq!(full(row(b"D", 30, &[(b"O", &["1", "7"])])), [&*seven]);
    let moved = row(b"U", 30, &[(b"O", &["1", "6"]), (b"N", &["1", "7"])]);
    assert_eq!(full(moved), [&*six, &*seven]);
    let stayed = row(b"U", 30, &[(b"O", &["1", "7"]), (b"N", &["2", "7"])]);
    assert_eq!(full(stayed), [&*seven]);
    let adopted = row(b"U", 30, &[(b"O", &["1", "n"]), (b"N", &["1", "7"])]);
    assert_eq!(full(adopted), [&*seven], "NULL refers to no parent");
    assert!(full(row(b"I", 30, &[(b"N", &["1", "n"])])).is_empty());
}

#[test]
fn a_child_whose_old_parent_is_not_logged_changes_all_parents() {
    let flush = ["flush 0 Bulk Some(\"Transaction(5)\")"];
    let by_id = |message| of_child(b'd', 1, Some(30), message);
    let seven = ["0:[Integer(7)] Transaction(5)"];
    assert_eq!(by_id(row(b"I", 30, &[(b"N", &["1", "7"])])), seven, "it had none");
    assert_eq!(by_id(row(b"U", 30, &[(b"N", &["1", "7"])])), flush);
    assert_eq!(by_id(row(b"U", 30, &[(b"K", &["1", "n"]), (b"N", &["2", "7"])])), flush);
    assert_eq!(by_id(row(b"D", 30, &[(b"K", &["1", "n"])])), flush);
    // A TOAST value that was not sent.
    assert_eq!(by_id(row(b"U", 30, &[(b"N", &["1", "u"])])), flush);
    let truncate = [&b"T\0\0\0\x01\0"[..], &30_u32.to_be_bytes()].concat();
    assert_eq!(of_child(b'f', 2, Some(30), truncate), flush);
    // With the whole row logged, an update without it is no update of PostgreSQL.
    assert_eq!(of_child(b'f', 2, Some(30), row(b"U", 30, &[(b"N", &["1", "7"])])), flush);
}

#[test]
fn a_parent_that_is_part_of_the_replica_identity_is_known() {
    let both = |message| of_child(b'd', 2, Some(30), message);
    let [six, seven] = [6, 7].map(|id| format!("0:[Integer({id})] Transaction(5)"));
    assert_eq!(both(row(b"U", 30, &[(b"N", &["1", "7"])])), [&*seven], "it did not change");
    let moved = row(b"U", 30, &[(b"K", &["1", "6"]), (b"N", &["1", "7"])]);
    assert_eq!(both(moved), [&*six, &*seven]);
    assert_eq!(both(row(b"D", 30, &[(b"K", &["1", "7"])])), [&*seven]);
    // The identity of a partitioned table is not that of its partitions, and that of another
    // table under its name is not known.
    let flush = ["flush 0 Bulk Some(\"Transaction(5)\")"];
    for oid in [None, Some(31)] {
        let update = row(b"U", 30, &[(b"N", &["1", "7"])]);
        assert_eq!(of_child(b'd', 2, oid, update), flush);
    }
}

#[test]
fn a_reshaped_child_flushes_its_parents() {
    let child = Followed { role: Role::Child { oid: Some(30) }, ..follow(0, 30, "c", &["p"]) };
    let table = |identity| relation_with(30, "c", identity, &["p"], 1);
    let messages =
        [begin(5), table(b'd'), commit(1), begin(6), relation(30, "c", &["p", "v"]), commit(2)];
    let flush = ["flush 0 Schema Some(\"Transaction(6)\")"];
    assert_eq!(deliver_to(vec![child], &messages).unwrap(), flush);
}

#[test]
fn too_many_keys_become_one_flush() {
    let mut messages = vec![begin(5), relation(10, "a", &["id"]), relation(20, "b", &["x", "y"])];
    let count = KEYS_PER_TRANSACTION_MAX + 500;
    messages.extend((0..count).map(|id| row(b"I", 10, &[(b"N", &[&id.to_string()])])));
    messages.push(row(b"I", 20, &[(b"N", &["1", "2"])]));
    let delivered = deliver(&messages).unwrap();
    assert_eq!(delivered.len(), KEYS_PER_TRANSACTION_MAX + 2);
    assert_eq!(delivered[KEYS_PER_TRANSACTION_MAX], "flush 0 Bulk Some(\"Transaction(5)\")");
    assert_eq!(
        delivered[KEYS_PER_TRANSACTION_MAX + 1],
        "1:[Integer(1), Integer(2)] Transaction(5)"
    );
}

#[test]
fn a_table_that_lost_its_key_column_flushes() {
    let messages = [begin(5), relation(10, "a", &["other"]), row(b"I", 10, &[(b"N", &["7"])])];
    assert_eq!(deliver(&messages).unwrap(), ["flush 0 Bulk Some(\"Transaction(5)\")"]);
}

#[test]
fn an_equal_description_changes_nothing() {
    let r = |columns: &[&str]| relation(10, "a", columns);
    let same = [begin(5), r(&["id"]), commit(1), begin(6), r(&["id"]), commit(2)];
    assert!(deliver(&same).unwrap().is_empty());
    let other = [begin(5), r(&["id"]), commit(1), begin(6), r(&["id", "new"]), commit(2)];
    assert_eq!(deliver(&other).unwrap(), ["flush 0 Schema Some(\"Transaction(6)\")"]);
    let again = [begin(5), relation(11, "a", &["id"]), row(b"I", 11, &[(b"N", &["7"])]), commit(1)];
    // The flush covers the rows that follow it in its transaction.
    assert_eq!(deliver(&again).unwrap(), ["flush 0 Schema Some(\"Transaction(5)\")"]);
}

#[test]
fn a_message_at_the_wrong_place_ends_the_session() {
    let insert = row(b"I", 10, &[(b"N", &["7"])]);
    assert_eq!(deliver(&[begin(5), insert.clone()]), Err(DeliveryError::Undescribed(10)));
    assert_eq!(
        deliver(&[relation(10, "a", &["id"]), insert]),
        Err(DeliveryError::OutsideTransaction)
    );
    assert!(matches!(deliver(&[b"?".to_vec()]), Err(DeliveryError::Decode(_))));
}

#[test]
fn the_front_of_a_huge_row_flushes_its_table() {
    let schemas = schemas();
    let sink = RecordingSink::default();
    let mut delivery = Delivery::new(&schemas, &sink, followed(), 1000);
    delivery.process(&begin(5)).unwrap();
    delivery.process(&relation(10, "a", &["id"])).unwrap();
    let insert = row(b"I", 10, &[(b"N", &["7"])]);
    delivery.process_front(&insert[..7]).unwrap();
    assert_eq!(*sink.0.lock(), ["flush 0 Bulk Some(\"Transaction(5)\")"]);
    assert_eq!(delivery.process_front(b"M\0"), Err(DeliveryError::HugeMessage));
    let schema = &schemas[0];
    assert!(schema.key(&[KeyPart::Integer(7)]).is_ok());
}
