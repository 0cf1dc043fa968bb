//! Reads: every type of id, batches, projections, versions.

use std::sync::Arc;
use std::thread;

use hotrow_types::key::{CollectionId, Key};
use hotrow_types::version::Version;
use mongodb::bson::oid::ObjectId;
use mongodb::bson::spec::BinarySubtype;
use mongodb::bson::{Binary, Bson, doc};

use super::harness::{Engine, config};
use super::mongo::MongoDatabase;
use crate::Hooks;
use crate::config::{Follow, JsonForm};
use hotrow_source::spec::KeyTypeName;
use hotrow_source::{Row, Source as _, SourceError};

#[test]
fn every_type_of_id_is_read_and_its_change_has_the_same_key() {
    let oid = ObjectId::from_bytes(*b"0123456789ab");
    let uuid = |bytes: &[u8; 16]| {
        Bson::Binary(Binary { subtype: BinarySubtype::Uuid, bytes: bytes.to_vec() })
    };
    let bytes = Bson::Binary(Binary { subtype: BinarySubtype::Generic, bytes: vec![0, 255] });
    let cases: [(&str, Bson, &str); 7] = [
        ("oids", oid.into(), "303132333435363738396162"),
        ("texts", "a/b,ü".into(), "a%2Fb,%C3%BC"),
        ("int32s", 7_i32.into(), "7"),
        ("int64s", i64::MIN.into(), "-9223372036854775808"),
        ("doubles", 7.0.into(), "7"),
        ("uuids", uuid(b"0123456789abcdef"), "30313233-3435-3637-3839-616263646566"),
        ("bytes", bytes, "00FF"),
    ];
    let mongo = MongoDatabase::any();
    for (name, id, _) in &cases {
        mongo.insert(name, [doc! { "_id": id.clone(), "v": 1 }]);
    }
    let engine = Engine::on(&mongo, &cases.each_ref().map(|(name, ..)| *name));
    for (collection, (name, id, url)) in (0_u16..).zip(&cases) {
        assert!(engine.text(collection, url).ends_with(",\"v\":1}"), "{name}");
        let keys = engine.keys(|| mongo.update(name, id.clone(), doc! { "$set": { "v": 2 } }));
        assert_eq!(keys, [engine.key(collection, url)], "{name}");
        assert!(engine.text(collection, url).ends_with(",\"v\":2}"), "{name}");
        let keys = engine.keys(|| mongo.delete(name, id.clone()));
        assert_eq!(keys, [engine.key(collection, url)], "{name}");
        assert_eq!(engine.text(collection, url), "-", "{name}");
    }
}

#[test]
fn a_snapshot_of_two_collections_lacks_what_commits_between_its_queries() {
    let mongo = Arc::new(MongoDatabase::on_standin());
    mongo.standin().keep_versions();
    for name in ["as", "bs"] {
        mongo.insert(name, [doc! { "_id": 1, "v": 0 }]);
    }
    let writer = Arc::clone(&mongo);
    let change = move |collection: CollectionId, _: &[Key]| {
        if collection == CollectionId(1) {
            let mongo = Arc::clone(&writer);
            let write = move || {
                for name in ["as", "bs"] {
                    mongo.update(name, 1, doc! { "$inc": { "v": 1 } });
                }
            };
            thread::spawn(write).join().unwrap();
        }
    };
    let hooks = Hooks { before_read: Some(Arc::new(change)), after_read: None };
    let engine = Engine::launch(config(mongo.url(), &["as", "bs"]), hooks, |_| {});
    engine.settle();
    assert_eq!(engine.source.snapshot_refusal(), None);
    for v in 0..2 {
        let set = engine.reader.read_snapshot(&["1", "1"]).unwrap();
        let row = Row::Found(format!(r#"{{"_id":1,"v":{v}}}"#).into_bytes());
        assert_eq!(set.rows, [row.clone(), row]);
        let at = set.position.unwrap();
        assert_eq!(set.version, Version::Span { from: at, to: at }, "all up to it, no more");
    }
}

#[test]
fn documents_are_keys() {
    let mongo = MongoDatabase::any();
    mongo.insert("prices", [doc! { "_id": { "shop": 7, "sku": "x" }, "v": 1 }]);
    let mut settings = config(mongo.url(), &["prices"]);
    settings.server.collections[0].key = vec!["_id.shop".into(), "_id.sku".into()];
    let engine = Engine::launch(settings, Hooks::default(), |_| {});
    engine.settle();
    assert_eq!(engine.text(0, "7,x"), r#"{"_id":{"shop":7,"sku":"x"},"v":1}"#);
    assert_eq!(engine.text(0, "7,y"), "-");
    let id = doc! { "shop": 7_i64, "sku": "x" };
    assert_eq!(engine.keys(|| mongo.delete("prices", id)), [engine.key(0, "7,x")]);
    // Fields in another order are another id, which no URL names.
    assert_eq!(
        engine.keys(|| mongo.insert("prices", [doc! { "_id": { "sku": "x", "shop": 7 } }])),
        []
    );
    assert_eq!(engine.source.ignored_changes_total(), 1);
    assert_eq!(engine.text(0, "7,x"), "-");
}

#[test]
fn a_batch_is_one_query_with_an_answer_for_each_id() {
    let mongo = MongoDatabase::any();
    mongo.insert("things", (0..300).map(|n| doc! { "_id": n, "v": n }));
    let engine = Engine::on(&mongo, &["things"]);
    let ids: Vec<String> = (0..400).rev().map(|n| n.to_string()).collect();
    let mut requested: Vec<&str> = ids.iter().map(String::as_str).collect();
    requested.push("7");
    let before = engine.source.queries_total();
    let set = engine.read(0, &requested).unwrap();
    assert_eq!(engine.source.queries_total(), before + 1);
    for (id, row) in requested.iter().zip(&set.rows) {
        let expected = match id.parse::<u32>().unwrap() {
            n if n < 300 => Row::Found(format!("{{\"_id\":{n},\"v\":{n}}}").into_bytes()),
            _ => Row::Missing,
        };
        assert_eq!(*row, expected, "{id}");
    }
}

#[test]
fn only_served_fields_are_fetched_and_written() {
    let mongo = MongoDatabase::any();
    mongo.insert("things", [doc! { "_id": 1, "a": 1, "secret": "x", "b": { "c": 2 } }]);
    let mut settings = config(mongo.url(), &["things", "things"]);
    settings.server.collections[0].columns = Some(vec!["b".into(), "a".into(), "z".into()]);
    settings.server.collections[1].exclude = vec!["_id".into(), "secret".into()];
    let engine = Engine::launch(settings, Hooks::default(), |_| {});
    engine.settle();
    assert_eq!(engine.text(0, "1"), r#"{"b":{"c":2},"a":1}"#);
    assert_eq!(engine.text(1, "1"), r#"{"a":1,"b":{"c":2}}"#);
    // Both collections serve the same document.
    let keys = engine.keys(|| mongo.delete("things", 1));
    assert_eq!(keys, [engine.key(0, "1"), engine.key(1, "1")]);
}

#[test]
fn a_read_returns_its_version() {
    let mongo = MongoDatabase::any();
    mongo.insert("things", [doc! { "_id": 1, "v": 1 }]);
    let engine = Engine::on(&mongo, &["things"]);
    let first = engine.read(0, &["1"]).unwrap();
    let Version::Span { from, to } = first.version.clone() else { panic!("{:?}", first.version) };
    assert!(from.at > 0 && to.reaches(&from) && first.position == Some(to));
    mongo.update("things", 1, doc! { "$set": { "v": 2 } });
    let passed = engine.settle();
    let second = engine.read(0, &["1"]).unwrap();
    assert!(second.position.unwrap().reaches(&passed));
    assert!(second.version.dominates(&first.version), "{:?} {:?}", second.version, first.version);
    assert!(!first.version.dominates(&second.version));
    let changed = engine.sink.since(0).into_iter().rev().find_map(|e| match e {
        hotrow_source::testkit::Event::Change(change) => Some(change.mark),
        _ => None,
    });
    assert!(
        second.version.contains(&changed.unwrap()) && !first.version.contains(&changed.unwrap())
    );
}

#[test]
fn relaxed_extended_json_is_a_setting() {
    let mongo = MongoDatabase::any();
    mongo.insert("things", [doc! { "_id": ObjectId::from_bytes([1; 12]) }]);
    let mut settings = config(mongo.url(), &["things"]);
    settings.json = JsonForm::RelaxedExtended;
    let engine = Engine::launch(settings, Hooks::default(), |_| {});
    assert_eq!(
        engine.text(0, &"01".repeat(12)),
        format!("{{\"_id\":{{\"$oid\":\"{}\"}}}}", "01".repeat(12))
    );
}

#[test]
fn without_a_feed_reads_carry_no_position_and_the_type_of_ids_is_as_configured() {
    let mongo = MongoDatabase::any();
    mongo.insert("things", [doc! { "_id": "1", "v": 1 }, doc! { "_id": 1, "v": 2 }]);
    let mut settings = config(mongo.url(), &["things"]);
    settings.server.follow = Follow::Nothing;
    settings.server.collections[0].key_types = vec![KeyTypeName::Text];
    let engine = Engine::launch(settings, Hooks::default(), |_| {});
    let set = engine.read(0, &["1"]).unwrap();
    assert_eq!((set.version, set.position), (Version::Unknown, None));
    assert_eq!(set.rows, [Row::Found(br#"{"_id":"1","v":1}"#.to_vec())]);
    assert_eq!(engine.source.watch(), "none");
}

#[test]
fn a_collection_that_is_not_served_is_an_error_and_no_panic() {
    let mongo = MongoDatabase::any();
    mongo.insert("things", [doc! { "_id": 1 }]);
    let engine = Engine::on(&mongo, &["things"]);
    let key = engine.key(0, "1");
    let read = engine.source.read(hotrow_types::key::CollectionId(9), vec![key]);
    assert!(matches!(engine.reader.block_on(read), Err(SourceError::Broken { .. })));
}

#[test]
fn the_tenant_stands_before_the_record_in_every_form() {
    let oid = ObjectId::from_bytes(*b"0123456789ab");
    let mongo = MongoDatabase::any();
    mongo.insert(
        "things",
        [
            doc! { "_id": 1, "name": "one", "org": "a\"b" },
            doc! { "_id": 2, "name": "two" },
            doc! { "_id": 3, "name": "three", "org": 7_i64 },
            doc! { "_id": 4, "name": "four", "org": oid },
            doc! { "_id": 5, "name": "five", "org": { "id": 7 } },
        ],
    );
    let mut settings = config(mongo.url(), &["things", "things", "things"]);
    let collections = &mut settings.server.collections;
    for (i, collection) in collections.iter_mut().enumerate() {
        collection.name = format!("c{i}");
        collection.tenant = Some("org".into());
    }
    collections[1].columns = Some(vec!["name".into()]);
    collections[2].exclude = vec!["org".into(), "_id".into()];
    let engine = Engine::launch(settings, Hooks::default(), |_| {});
    assert_eq!(engine.text(0, "1"), r#""a\"b"{"_id":1,"name":"one","org":"a\"b"}"#);
    assert_eq!(engine.text(0, "2"), r#"null{"_id":2,"name":"two"}"#);
    assert_eq!(engine.text(1, "3"), r#"7{"name":"three"}"#);
    assert_eq!(engine.text(2, "4"), r#""303132333435363738396162"{"name":"four"}"#);
    assert_eq!(engine.text(2, "5"), r#"{"id":7}{"name":"five"}"#);
    assert_eq!(engine.text(0, "9"), "-");
}
