//! Sequences of log events, including MySQL's, and the resulting calls of the sink.

use std::sync::Arc;

use hotrow_measure::clock::Nanos;
use hotrow_types::key::{CollectionId, KeyType};
use hotrow_types::version::{SourceId, Version};
use parking_lot::Mutex;

use super::super::binlog::Xid;
use super::super::inspect::{Ancestor, Column, View};
use super::super::keys::{KeyColumn, KeyStored, Spelling};
use super::super::shared::Shared;
use hotrow_types::key::KeySchema;

use super::super::embedded_rules::EmbeddedRules;
use super::*;
use hotrow_source::looks::Looks;
use hotrow_source::{Change, LossCause, Sink};

mod embedded;

/// Sink that records its calls as text.
#[derive(Default)]
struct Recorder(Mutex<Vec<String>>);

impl Sink for Recorder {
    fn changes(&self, changes: &[Change]) {
        let mut all: Vec<String> =
            changes.iter().map(|c| format!("{:?} {}", c.key, mark(c.mark))).collect();
        all.sort();
        self.0.lock().extend(all);
    }
    fn flush(&self, collection: CollectionId, cause: FlushCause, m: Option<ChangeId>) {
        self.0.lock().push(format!(
            "flush {} {cause:?} {}",
            collection.0,
            m.map_or("-".into(), mark)
        ));
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

fn mark(mark: ChangeId) -> String {
    match mark {
        ChangeId::Commit(position) => format!("@{}", position.at & 0xff_ffff),
        ChangeId::Gtid(gtid) => format!("#{}", gtid.number),
        other => format!("{other:?}"),
    }
}

fn name(table: &str) -> TableName {
    TableName { schema: "d".into(), table: table.into() }
}

/// Returns a table above another by a key with ON DELETE CASCADE alone.
fn above(table: &str) -> Ancestor {
    Ancestor { name: name(table), by_delete: true, by_update: false }
}

/// Returns a table with an integer key `id` whose rows change with those of `parents`.
fn table(collection: u16, of: &str, parents: &[&str]) -> Table {
    let column =
        |name: &str| Column { name: name.into(), sql_type: "int(11)".into(), collation: None };
    Table {
        collection: CollectionId(collection),
        name: name(of),
        columns: vec![column("id"), column("n")],
        key: vec![KeyColumn {
            name: "id".into(),
            position: 0,
            stored: KeyStored::Integer { bytes: 4, unsigned: false },
            ty: KeyType::Integer,
            spelling: Spelling::One,
        }],
        served: Vec::new(),
        index: "PRIMARY".into(),
        changed_by: parents.iter().map(|parent| above(parent)).collect(),
        has_foreign_keys: !parents.is_empty(),
        view: None,
        embedded: Vec::new(),
    }
}

/// Returns a table map with two integer columns without names.
fn map(id: u8, of: &str) -> Vec<u8> {
    let mut bytes = vec![id, 0, 0, 0, 0, 0, 1, 0, 1, b'd', 0, of.len() as u8];
    bytes.extend(of.as_bytes());
    bytes.extend([0, 2, 3, 3, 0, 2]);
    bytes
}

/// Returns a rows event with these keys that ends its statement.
fn rows(id: u8, keys: &[i32]) -> Vec<u8> {
    let mut bytes = vec![id, 0, 0, 0, 0, 0, 1, 0, 2, 1];
    keys.iter().for_each(|key| {
        bytes.push(0);
        bytes.extend(key.to_le_bytes());
    });
    bytes
}

const INSERT: u8 = 23;
const DELETE: u8 = 25;

fn query(text: &str) -> Vec<u8> {
    let mut bytes = vec![0; 13];
    // No status variables, database `d`.
    bytes[8] = 1;
    bytes.extend([b'd', 0]);
    bytes.extend(text.as_bytes());
    bytes
}

fn xid(name: &str) -> Xid {
    let hex: String = name.bytes().map(|b| format!("{b:02x}")).collect();
    Xid::parse(format!("X'{hex}',X'',1").as_bytes()).unwrap()
}

fn gtid(number: u64) -> Event<'static> {
    Event::Gtid(Gtid { source: SourceId::new(7, "").unwrap(), number })
}

/// Event and the offset of its end.
type Step<'a> = (u32, Event<'a>);

struct Scenario {
    schemas: Arc<[KeySchema]>,
    recorder: Recorder,
    tables: Vec<Option<Table>>,
    rules: EmbeddedRules,
}

impl Scenario {
    /// Creates tables `a` and its child `b`, which a foreign key changes, and a collection that
    /// cannot be served.
    fn new() -> Self {
        let tables = vec![Some(table(0, "a", &[])), Some(table(1, "b", &["a"])), None];
        let schemas =
            (0..3).map(|i| KeySchema::new(CollectionId(i), vec![KeyType::Integer])).collect();
        Self { schemas, recorder: Recorder::default(), tables, rules: EmbeddedRules::default() }
    }

    fn run(self, steps: Vec<Step<'_>>) -> Result<(Vec<String>, u64), DeliveryError> {
        let shared = Shared::new(Arc::clone(&self.schemas), self.rules);
        let identity = super::super::server::Identity {
            flavor: super::super::server::Flavor::MariaDb,
            version: super::super::server::ServerVersion(10, 11, 0),
            name: 1,
            started_at_s: Some(1),
            incarnation: 1,
            address: "h:1".into(),
            server_id: 1,
            names_any_case: false,
        };
        let recent = shared.publish(identity, &[]);
        let rules = self.rules;
        let out = ChangeReceivers {
            schemas: &self.schemas,
            sink: &self.recorder,
            recent: &recent,
            rules,
        };
        let origin = Origin { incarnation: 1, names_any_case: false };
        let mut delivery =
            Delivery::new(out, origin, self.tables, LogPosition::new(b"bin.000001", 100).unwrap());
        for (end, event) in steps {
            delivery.ends_at(end);
            delivery.take(event)?;
            // The engine has committed at once.
            if delivery.held_commit().is_some() {
                delivery.release()?;
            }
        }
        let delivered = delivery.delivered() & 0xff_ffff;
        Ok((self.recorder.0.into_inner(), delivered))
    }
}

fn delivered(steps: Vec<Step<'_>>) -> Vec<String> {
    Scenario::new().run(steps).unwrap().0
}

fn decode(kind: u8, bytes: &[u8]) -> Event<'_> {
    Event::decode(kind, bytes).unwrap()
}

fn key(collection: usize, id: i64) -> String {
    let schema = KeySchema::new(CollectionId(collection as u16), vec![KeyType::Integer]);
    format!("{:?}", schema.key(&[hotrow_types::key::KeyPart::Integer(id)]).unwrap())
}

#[test]
fn a_transaction_is_delivered_at_its_commit() {
    let m = map(9, "a");
    let r = rows(9, &[1, 2, 1]);
    let steps = vec![
        (150, Event::MariaGtid(Begin::Transaction)),
        (200, decode(19, &m)),
        (300, decode(INSERT, &r)),
        (0, Event::Heartbeat),
    ];
    assert_eq!(Scenario::new().run(steps).unwrap(), (vec![], 100));
    let steps = vec![
        (150, Event::MariaGtid(Begin::Transaction)),
        (200, decode(19, &m)),
        (300, decode(INSERT, &r)),
        (340, Event::Commit),
        (360, Event::Other),
    ];
    let both = vec![format!("{} @340", key(0, 1)), format!("{} @340", key(0, 2))];
    assert_eq!(Scenario::new().run(steps).unwrap(), (both, 360));
}

#[test]
fn mysql_transactions_are_delivered_with_their_gtid() {
    let begin = query("BEGIN");
    let m = map(9, "a");
    let r = rows(9, &[5]);
    let create = query("CREATE TABLE `x` (`id` int) START TRANSACTION");
    let steps = vec![
        (150, gtid(41)),
        (160, decode(2, &begin)),
        (200, decode(19, &m)),
        (300, decode(INSERT, &r)),
        (340, Event::Commit),
        // CREATE TABLE … SELECT.
        (350, gtid(42)),
        (360, decode(2, &create)),
        (370, decode(19, &m)),
        (380, decode(INSERT, &r)),
        (390, Event::Commit),
    ];
    assert_eq!(delivered(steps), [format!("{} #41", key(0, 5)), format!("{} #42", key(0, 5))]);
    let anonymous = Scenario::new().run(vec![(150, Event::AnonymousGtid)]);
    assert_eq!(anonymous, Err(DeliveryError::Anonymous));
}

#[test]
fn a_compressed_transaction_is_complete_or_an_error() {
    let begin = query("BEGIN");
    let m = map(9, "a");
    let r = rows(9, &[5]);
    let steps = vec![
        (150, gtid(41)),
        (400, Event::Payload),
        // Their positions are those within the transaction.
        (9000, decode(2, &begin)),
        (9100, decode(19, &m)),
        (9200, decode(INSERT, &r)),
        (9300, Event::Commit),
    ];
    assert_eq!(Scenario::new().run(steps).unwrap(), (vec![format!("{} #41", key(0, 5))], 400));
    let steps = vec![(150, gtid(41)), (400, Event::Payload), (450, gtid(42))];
    assert_eq!(Scenario::new().run(steps), Err(DeliveryError::Unended));
}

#[test]
fn prepared_transactions_wait_and_unknown_ones_flush() {
    let m = map(9, "a");
    let r = rows(9, &[5]);
    let end = query("XA END X'78',X'',1");
    let commit = query("XA COMMIT X'78',X'',1");
    let rollback = query("XA ROLLBACK X'78',X'',1");
    let prepare = |at: u32| {
        vec![
            (at, Event::MariaGtid(Begin::Transaction)),
            (at + 10, decode(19, &m)),
            (at + 20, decode(INSERT, &r)),
            (at + 30, decode(2, &end)),
            (at + 40, Event::Prepare { xid: xid("x"), is_one_phase: false }),
        ]
    };
    let ended =
        |at: u32, text| vec![(at, Event::MariaGtid(Begin::Standalone)), (at + 10, decode(2, text))];
    assert_eq!(Scenario::new().run(prepare(200)).unwrap(), (vec![], 240));
    assert_eq!(
        delivered([prepare(200), ended(300, &commit)].concat_all()),
        [format!("{} @310", key(0, 5))]
    );
    assert!(delivered([prepare(200), ended(300, &rollback)].concat_all()).is_empty());
    // Prepared before the session, or a second commit of the same name.
    let all = ["flush 0 Bulk @310", "flush 1 Bulk @310", "flush 2 Bulk @310"];
    let mut flushed = delivered(ended(300, &commit));
    flushed.sort();
    assert_eq!(flushed, all);
    let mut one_phase = prepare(200);
    one_phase.pop();
    one_phase.push((240, Event::Prepare { xid: xid("x"), is_one_phase: true }));
    assert_eq!(delivered(one_phase), [format!("{} @240", key(0, 5))]);
}

/// Concatenation of event sequences.
trait ConcatAll<'a> {
    fn concat_all(self) -> Vec<Step<'a>>;
}

impl<'a> ConcatAll<'a> for [Vec<Step<'a>>; 2] {
    fn concat_all(self) -> Vec<Step<'a>> {
        self.into_iter().flatten().collect()
    }
}

#[test]
fn collections_changed_by_foreign_keys_are_flushed() {
    let a = map(9, "a");
    let b = map(10, "b");
    let r = rows(9, &[5]);
    let run = |kind: u8, child: bool| {
        let mut steps = vec![(150, Event::MariaGtid(Begin::Transaction)), (160, decode(19, &a))];
        if child {
            steps.push((170, decode(19, &b)));
        }
        steps.extend([(180, decode(kind, &r)), (190, Event::Commit)]);
        let mut delivered = delivered(steps);
        delivered.sort();
        delivered
    };
    assert_eq!(run(INSERT, false), [format!("{} @190", key(0, 5))]);
    assert!(run(DELETE, false).contains(&"flush 1 Bulk @190".to_owned()));
    // A table map of the child without rows means that rows may have been written.
    assert!(run(INSERT, true).contains(&"flush 1 Bulk @190".to_owned()));
}

/// A key that exists for a moment is in no catalogue that the feed reads.
#[test]
fn a_definition_of_an_ancestor_makes_every_table_one_until_the_next_check() {
    let x = map(9, "x");
    let r = rows(9, &[5]);
    let run = |definition: &str, kind: u8| {
        let definition = query(definition);
        let begin = query("BEGIN");
        delivered(vec![
            (150, gtid(1)),
            (160, decode(2, &definition)),
            (170, gtid(2)),
            (180, decode(2, &begin)),
            (190, decode(19, &x)),
            (200, decode(kind, &r)),
            (210, Event::Commit),
        ])
    };
    for definition in ["ALTER TABLE b ADD FOREIGN KEY (n) REFERENCES x (id)", "RENAME TABLE x TO b"]
    {
        let expected = ["flush 1 Schema #1", "flush 1 Bulk #2"];
        assert_eq!(run(definition, DELETE), expected, "{definition}");
    }
    // `a` is the ancestor of `b`, and a collection itself.
    let mut both = run("ALTER TABLE a ADD FOREIGN KEY (n) REFERENCES x (id)", DELETE);
    both.sort();
    assert_eq!(
        both,
        ["flush 0 Bulk #2", "flush 0 Schema #1", "flush 1 Bulk #2", "flush 1 Schema #1"]
    );
    assert_eq!(run("ALTER TABLE b ADD FOREIGN KEY (n) REFERENCES x (id)", INSERT).len(), 1);
    assert!(run("ALTER TABLE y ADD FOREIGN KEY (n) REFERENCES x (id)", DELETE).is_empty());
}

/// MariaDB describes a table once for its own rows and once for rows that a foreign key changes.
#[test]
fn a_table_that_is_described_twice_in_one_statement_is_flushed() {
    let b = map(10, "b");
    let r = rows(10, &[5]);
    let run = |times: usize| {
        let mut steps = vec![(150, Event::MariaGtid(Begin::Transaction))];
        steps.extend((0..times).map(|_| (160, decode(19, &b))));
        steps.extend([(180, decode(DELETE, &r)), (190, Event::Commit)]);
        delivered(steps)
    };
    assert_eq!(run(1), [format!("{} @190", key(1, 5))]);
    assert_eq!(run(2), ["flush 1 Bulk @190"]);
}

#[test]
fn a_table_without_foreign_keys_that_is_only_locked_is_not_flushed() {
    let a = map(9, "a");
    let b = map(10, "b");
    let r = rows(10, &[5]);
    let steps = vec![
        (150, Event::MariaGtid(Begin::Transaction)),
        (160, decode(19, &b)),
        // A trigger could have written to it.
        (170, decode(19, &a)),
        (180, decode(INSERT, &r)),
        (190, Event::Commit),
    ];
    assert_eq!(delivered(steps), [format!("{} @190", key(1, 5))]);
}

#[test]
fn rows_that_cannot_be_read_flush_their_collection() {
    let m = map(9, "a");
    let r = rows(9, &[5]);
    let run = |kind: u8, rows: &[u8]| {
        delivered(vec![
            (150, Event::MariaGtid(Begin::Transaction)),
            (160, decode(19, &m)),
            (180, decode(kind, rows)),
            (190, Event::Commit),
        ])
    };
    assert_eq!(run(INSERT, &r[..r.len() - 1]), ["flush 0 Bulk @190"], "cut");
    assert_eq!(run(166, &r), ["flush 0 Bulk @190"], "compressed");
    // An update cannot cascade to the child.
    let parts_of_json = run(39, &[&r[..8], &[2, 0], &r[8..]].concat());
    assert_eq!(parts_of_json, ["flush 0 Bulk @190"]);
}

#[test]
fn events_out_of_place_are_errors() {
    let m = map(9, "a");
    let r = rows(9, &[5]);
    let fails = |steps: Vec<Step<'_>>| Scenario::new().run(steps).unwrap_err();
    assert_eq!(fails(vec![(150, Event::Commit)]), DeliveryError::OutsideGroup("a commit"));
    assert_eq!(fails(vec![(150, decode(19, &m))]), DeliveryError::OutsideGroup("a table"));
    let begin = || (150, Event::MariaGtid(Begin::Transaction));
    assert_eq!(fails(vec![begin(), begin()]), DeliveryError::Unended);
    assert_eq!(fails(vec![begin(), (160, decode(INSERT, &r))]), DeliveryError::Undescribed(9));
    assert_eq!(fails(vec![(150, Event::Incident)]), DeliveryError::Incident);
    assert_eq!(fails(vec![(0, Event::Rotate { file: b"bin", at: 4 })]), DeliveryError::File);
}

#[test]
fn position_follows_rotated_files() {
    let steps = vec![
        (150, Event::Other),
        (0, Event::Rotate { file: b"bin.000002", at: 4 }),
        (256, Event::Other),
    ];
    let (_, delivered) = Scenario::new().run(steps).unwrap();
    assert_eq!(delivered, 256);
}

#[test]
fn a_statement_that_names_the_view_flushes_and_rows_are_those_of_its_table() {
    let mut scenario = Scenario::new();
    if let Some(table) = scenario.tables.first_mut().and_then(Option::as_mut) {
        table.view = Some(View::named(name("seen"), "nr"));
    }
    let replaced = query("CREATE OR REPLACE VIEW `seen` AS select 1");
    let other = query("DROP VIEW unseen");
    let m = map(9, "a");
    let r = rows(9, &[5]);
    let steps = vec![
        (110, Event::MariaGtid(Begin::Transaction)),
        (120, decode(19, &m)),
        (130, decode(INSERT, &r)),
        (140, Event::Commit),
        (150, Event::MariaGtid(Begin::Standalone)),
        (160, decode(2, &other)),
        (170, Event::MariaGtid(Begin::Standalone)),
        (180, decode(2, &replaced)),
        // Until the catalogue is read again, no key is certain.
        (190, Event::MariaGtid(Begin::Transaction)),
        (200, decode(19, &m)),
        (210, decode(INSERT, &r)),
        (220, Event::Commit),
    ];
    let expected =
        [format!("{} @140", key(0, 5)), "flush 0 Schema @180".into(), "flush 0 Bulk @220".into()];
    assert_eq!(scenario.run(steps).unwrap().0, expected);
}
