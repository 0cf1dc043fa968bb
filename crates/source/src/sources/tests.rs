use hotrow_types::key::{KeyPart, KeyType};
use parking_lot::Mutex;

use super::*;
use crate::Row;
use crate::testkit::{Event, Recorder};

/// A source that answers each key with the number of its collection and the key.
struct Echo {
    schemas: Vec<KeySchema>,
    tables: &'static [&'static str],
    asked: Mutex<Vec<CollectionId>>,
}

impl Source for Echo {
    fn read_within(
        &self,
        collection: CollectionId,
        keys: Vec<Key>,
        _: Arc<RowBudget>,
    ) -> BoxFuture<'_, Result<ReadSet, SourceError>> {
        self.asked.lock().push(collection);
        let row = |key: Key| Row::Found(format!("{key:?}").into_bytes());
        let rows = keys.into_iter().map(row).collect();
        let position = Position { incarnation: 1, at: 1 };
        Box::pin(
            async move { Ok(ReadSet { version: Version::Log(position), position: None, rows }) },
        )
    }

    fn schemas(&self) -> &[KeySchema] {
        &self.schemas
    }

    fn has_aliases(&self, collection: CollectionId) -> bool {
        collection == CollectionId(1)
    }

    fn queries_total(&self) -> u64 {
        self.asked.lock().len() as u64
    }

    fn health(&self) -> Result<(), String> {
        Ok(())
    }

    fn watch(&self) -> &'static str {
        "none"
    }

    fn database(&self) -> DatabaseName {
        let tables = self.tables.iter().map(|table| (*table).to_owned()).collect();
        DatabaseName { tables, ..DatabaseName::unknown() }
    }
}

fn echo(types: &[KeyType], tables: &'static [&'static str]) -> Arc<Echo> {
    let numbered = (0..).map(CollectionId).zip(types);
    let schemas = numbered.map(|(id, ty)| KeySchema::new(id, vec![*ty])).collect();
    Arc::new(Echo { schemas, tables, asked: Mutex::default() })
}

fn integer(collection: u16, id: i64) -> Key {
    let schema = KeySchema::new(CollectionId(collection), vec![KeyType::Integer]);
    schema.key(&[KeyPart::Integer(id)]).unwrap()
}

/// Returns two sources: the first has collections 0 and 2 of the process, the second has 1.
fn two() -> (Arc<Echo>, Arc<Echo>, Sources) {
    let first = echo(&[KeyType::Integer, KeyType::Integer], &["a", "c"]);
    let second = echo(&[KeyType::Uuid], &["b"]);
    let parts: Vec<(Arc<dyn Source>, Vec<CollectionId>)> = vec![
        (Arc::clone(&first) as _, vec![CollectionId(0), CollectionId(2)]),
        (Arc::clone(&second) as _, vec![CollectionId(1)]),
    ];
    (first, second, Sources::new(parts))
}

#[tokio::test]
async fn each_collection_is_read_from_its_source_under_that_sources_number() {
    let (first, second, sources) = two();
    let types: Vec<_> = sources.schemas().iter().map(|schema| schema.types()[0]).collect();
    assert_eq!(types, [KeyType::Integer, KeyType::Uuid, KeyType::Integer]);
    let numbers = sources.schemas().iter().map(|schema| schema.collection().0);
    assert!(numbers.eq(0..3));
    let third = CollectionId(2);
    let read = sources.of(third).read(third, vec![integer(2, 7)]).await.unwrap();
    let expected = format!("{:?}", integer(1, 7));
    assert_eq!(read.rows, [Row::Found(expected.into_bytes())]);
    assert_eq!(*first.asked.lock(), [CollectionId(1)]);
    assert!(second.asked.lock().is_empty());
    assert!(sources.of(third).has_aliases(third));
    assert!(!sources.of(CollectionId(1)).has_aliases(CollectionId(1)), "its own first one");
    let foreign = sources.of(third).read(CollectionId(1), vec![integer(1, 7)]).await;
    assert!(matches!(foreign, Err(SourceError::Broken { .. })), "{foreign:?}");
}

#[test]
fn tables_have_the_places_of_the_collections() {
    let (.., sources) = two();
    let tables: Vec<_> = sources.iter().map(|source| source.database().tables).collect();
    assert_eq!(tables, [vec!["a", "", "c"], vec!["", "b"]]);
}

#[test]
fn a_feed_reports_under_the_numbers_of_the_process() {
    let (.., sources) = two();
    let recorder = Arc::new(Recorder::default());
    let sink = sources.sink(SourceId(0), Arc::clone(&recorder) as _);
    let mark = ChangeId::Log(Position { incarnation: 1, at: 9 });
    sink.changes(&[Change { key: integer(1, 7), mark }]);
    sink.flush(CollectionId(1), FlushCause::Schema, None);
    sink.open_gap(CollectionId(0), "as the test says");
    // A number that the source does not have.
    sink.flush(CollectionId(2), FlushCause::Schema, None);
    let expected = [
        Event::Change(Change { key: integer(2, 7), mark }),
        Event::Flush(CollectionId(2), FlushCause::Schema, None),
        Event::Gap(CollectionId(0)),
    ];
    assert_eq!(recorder.since(0), expected);
}

#[test]
fn an_only_source_is_not_translated() {
    let only = echo(&[KeyType::Integer], &["a"]);
    let asked: Arc<dyn Source> = Arc::clone(&only) as _;
    let sources = Sources::new(vec![(Arc::clone(&asked), vec![CollectionId(0)])]);
    assert!(sources.iter().all(|source| Arc::ptr_eq(source, &asked)));
    let sink: Arc<dyn Sink> = Arc::new(Recorder::default());
    assert!(Arc::ptr_eq(&sources.sink(SourceId::FIRST, Arc::clone(&sink)), &sink));
}
