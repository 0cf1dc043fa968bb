//! Lookups by an alias, their changes in the feed, and their indexes.

use hotrow_source::testkit::Event;
use hotrow_source::{FlushCause, Row, Source as _, SourceError, testkit};
use hotrow_types::key::CollectionId;
use mongodb::bson::{Document, doc};

use super::harness::{Engine, config, refusal, spec, wait};
use super::mongo::{MongoDatabase, collection_of};
use crate::Hooks;
use crate::config::{CollectionConfig, Config, JsonForm};

const BY_EMAIL: u16 = 1;
const BY_NAME: u16 = 2;

/// Returns the settings of an alias of `users`.
fn alias(name: &str, fields: &str) -> CollectionConfig {
    let alias = testkit::spec(&format!("users({fields})"));
    CollectionConfig { name: format!("users/by/{name}"), is_alias: true, ..alias }
}

fn settings(mongo: &MongoDatabase, aliases: &[(&str, &str)]) -> Config {
    let mut config = config(mongo.url(), &[]);
    config.server.collections = vec![spec("users")];
    config.server.collections.extend(aliases.iter().map(|(name, fields)| alias(name, fields)));
    config
}

fn index(mongo: &MongoDatabase, keys: Document, options: Document) {
    let mut index = doc! { "key": keys, "unique": true };
    index.extend(options);
    mongo.run(doc! { "createIndexes": "users", "indexes": [index] });
}

/// Creates the users 1, Ann, and 2, Bob, with unique indexes.
fn users() -> MongoDatabase {
    let mongo = MongoDatabase::any();
    mongo.insert(
        "users",
        [
            doc! { "_id": 1, "email": "ann", "first": "Ann", "last": "Lee" },
            doc! { "_id": 2, "last": "Lee", "first": "Bob", "email": "bob" },
        ],
    );
    index(&mongo, doc! { "email": 1 }, doc! { "name": "email_1", "sparse": true });
    index(&mongo, doc! { "last": 1, "first": 1 }, doc! { "name": "names", "sparse": true });
    mongo
}

fn launch(settings: Config) -> Engine {
    let engine = Engine::launch(settings, Hooks::default(), |_| {});
    engine.settle();
    engine
}

fn by_both(mongo: &MongoDatabase) -> Engine {
    launch(settings(mongo, &[("email", "email"), ("name", "first,last")]))
}

#[test]
fn documents_are_found_by_their_values() {
    let mongo = users();
    let engine = by_both(&mongo);
    let ann = r#"{"_id":1,"email":"ann"}"#;
    assert_eq!(engine.text(BY_EMAIL, "ann"), ann);
    assert_eq!(engine.text(BY_EMAIL, "Ann"), "-");
    assert_eq!(engine.text(BY_NAME, "Bob,Lee"), r#"{"_id":2,"first":"Bob","last":"Lee"}"#);
    let set = engine.read(BY_EMAIL, &["zoe", "bob", "ann"]).unwrap();
    let found = |json: &str| Row::Found(json.as_bytes().to_vec());
    assert_eq!(set.rows, [Row::Missing, found(r#"{"_id":2,"email":"bob"}"#), found(ann)]);
    assert!(set.position.is_some());
    let set = engine.read(BY_NAME, &["Ann,Lee", "Ann,Zoe"]).unwrap();
    let ann = found(r#"{"_id":1,"first":"Ann","last":"Lee"}"#);
    assert_eq!(set.rows, [ann, Row::Missing]);
}

#[test]
fn changes_are_delivered_by_the_values_that_documents_have() {
    let mongo = users();
    let engine = by_both(&mongo);
    let [email, name] = [BY_EMAIL, BY_NAME].map(|c| move |id: &str| (c, id.to_owned()));
    let delivered = |write: &dyn Fn()| {
        let of = |event: Event| match event {
            Event::Change(change) => {
                let schema = &engine.source.schemas()[usize::from(change.key.collection().0)];
                let id = schema.id_of(change.key.as_bytes()).unwrap();
                (change.key.collection().0, id)
            }
            Event::Flush(CollectionId(c), FlushCause::Bulk, Some(_)) => (c, "all".to_owned()),
            other => panic!("{other:?}"),
        };
        let mut all: Vec<(u16, String)> = engine.delivered(write).into_iter().map(of).collect();
        all.retain(|(collection, _)| *collection != 0);
        all
    };
    let set = |fields: Document| {
        let mongo = &mongo;
        move || mongo.update("users", 1, doc! { "$set": fields.clone() })
    };
    assert_eq!(delivered(&set(doc! { "email": "new" })), [email("new")]);
    assert_eq!(delivered(&set(doc! { "note": "x" })), []);
    assert_eq!(delivered(&set(doc! { "last": "Li" })), [name("all")]);
    let both = set(doc! { "first": "A", "last": "B", "email": "ab" });
    assert_eq!(delivered(&both), [email("ab"), name("A,B")]);
    let removed = || mongo.update("users", 1, doc! { "$unset": { "email": 1 } });
    assert_eq!(delivered(&removed), []);
    assert_eq!(engine.text(BY_EMAIL, "ab"), "-");
    let replaced = || mongo.replace("users", 1, doc! { "first": "C", "last": "D", "email": "cd" });
    assert_eq!(delivered(&replaced), [email("cd"), name("C,D")]);
    assert_eq!(delivered(&|| mongo.delete("users", 1)), []);
    let inserted = || mongo.insert("users", [doc! { "_id": 1, "email": "again" }]);
    assert_eq!(delivered(&inserted), [email("again")]);
}

#[test]
fn a_value_inside_an_array_is_an_error_and_no_match() {
    let mongo = users();
    let engine = by_both(&mongo);
    mongo.update("users", 1, doc! { "$set": { "email": ["x", "y"] } });
    let rows = engine.read(BY_EMAIL, &["x", "ann", "bob"]).unwrap().rows;
    assert!(
        matches!(&rows[0], Row::Unreadable(why) if why.contains("inside an array")),
        "{rows:?}"
    );
    assert!(rows[1] == Row::Missing && matches!(rows[2], Row::Found(_)), "{rows:?}");
    assert!(matches!(engine.read(BY_EMAIL, &["y"]).unwrap().rows[0], Row::Unreadable(_)));
    let text = refusal(settings(&mongo, &[("email", "email")]));
    assert!(text.contains("alias `users/by/email`: `email` is an array"), "{text}");
}

#[test]
fn documents_that_the_collection_does_not_serve_are_not_found() {
    let mongo = users();
    mongo.insert("users", [doc! { "_id": "text", "email": "other" }]);
    let mut settings = settings(&mongo, &[("email", "email")]);
    settings.server.collections[0].key_types = vec![crate::config::KeyTypeName::Integer];
    let engine = launch(settings);
    assert_eq!(engine.text(BY_EMAIL, "other"), "-");
}

#[test]
fn members_have_the_form_of_records() {
    let mongo = MongoDatabase::any();
    let id = mongodb::bson::oid::ObjectId::from_bytes([0xab; 12]);
    mongo.insert("users", [doc! { "_id": id, "owner": id, "n": 7.0 }]);
    index(&mongo, doc! { "owner": 1, "n": -1 }, doc! { "name": "both" });
    for (form, owner) in [
        (JsonForm::Plain, format!("\"{id}\"")),
        (JsonForm::RelaxedExtended, format!("{{\"$oid\":\"{id}\"}}")),
    ] {
        let mut settings = settings(&mongo, &[("owner", "owner,n")]);
        settings.json = form;
        let engine = launch(settings);
        let row = engine.text(1, &format!("{id},7"));
        assert_eq!(row, format!("{{\"_id\":\"{id}\",\"owner\":{owner},\"n\":7.0}}"));
        let record = engine.text(0, &id.to_string());
        assert!(record.contains(&format!("\"owner\":{owner},\"n\":7.0")), "{record}");
    }
}

/// Waits until the alias by `email` is flushed.
#[track_caller]
fn await_flush(engine: &Engine, from: usize) {
    let flush = Event::Flush(CollectionId(BY_EMAIL), FlushCause::Schema, None);
    engine.sink.wait("the flush", |events| events[from..].contains(&flush).then_some(()));
}

#[test]
fn a_lost_index_ends_the_lookups_until_there_is_one_again() {
    let mongo = users();
    let engine = by_both(&mongo);
    let from = engine.sink.len();
    mongo.run(doc! { "dropIndexes": "users", "index": "email_1" });
    // At once, without a look at the indexes.
    assert!(matches!(engine.read(BY_EMAIL, &["ann"]), Err(SourceError::Broken { .. })));
    await_flush(&engine, from);
    let why = format!("{:?}", engine.read(BY_EMAIL, &["ann"]));
    assert!(why.contains("no index has exactly (email)"), "{why}");
    assert!(engine.text(BY_NAME, "Ann,Lee").contains("Ann"), "the other alias is not affected");
    assert!(engine.text(0, "1").contains("ann"));
    let from = engine.sink.len();
    index(&mongo, doc! { "email": -1 }, doc! { "name": "another", "sparse": true });
    await_flush(&engine, from);
    wait("the lookup", || engine.read(BY_EMAIL, &["ann"]).is_ok());
}

#[test]
fn a_hidden_index_ends_the_lookups() {
    let mongo = users();
    let engine = by_both(&mongo);
    let from = engine.sink.len();
    mongo.run(doc! { "collMod": "users", "index": { "name": "email_1", "hidden": true } });
    await_flush(&engine, from);
    assert!(matches!(engine.read(BY_EMAIL, &["ann"]), Err(SourceError::Broken { .. })));
}

/// A look that has no answer makes the feed stale at the bound, as with engines that have SQL.
#[test]
fn freshness_needs_looks_at_the_indexes() {
    let mongo = MongoDatabase::on_standin();
    mongo.insert("users", [doc! { "_id": 1, "email": "ann" }]);
    index(&mongo, doc! { "email": 1 }, doc! { "name": "email_1" });
    let engine = launch(settings(&mongo, &[("email", "email")]));
    let standin = mongo.standin();
    standin.inject("listIndexes", super::standin::Fault::Hold);
    wait("a held look", || standin.held("listIndexes") > 0);
    let held_at = hotrow_measure::clock::Nanos::now();
    let changed = |events: &[Event]| {
        let is_it = |e: &Event| matches!(e, Event::Change(c) if c.key == engine.key(0, "2"));
        events.iter().position(is_it)
    };
    mongo.insert("users", [doc! { "_id": 2, "email": "bob" }]);
    let at = engine.sink.wait("the change", changed);
    // The stream advances past the change; its freshness does not.
    engine.sink.wait("an advance", |events| {
        matches!(events[at..].last(), Some(Event::Advance(..))).then_some(())
    });
    assert!(engine.sink.newest_advance().unwrap() < held_at, "the indexes may have changed since");
    standin.clear_faults("listIndexes");
    engine.settle();
}

#[test]
fn unfit_indexes_and_fields_are_refused_by_name() {
    let mongo = users();
    let add = |field: &str, options: Document| {
        index(&mongo, doc! { field: 1 }, options);
    };
    let text = doc! { "email": { "$type": "string" } };
    add("partly", doc! { "name": "p", "sparse": true, "partialFilterExpression": text });
    add("twice", doc! { "name": "t", "unique": false });
    add("folded", doc! { "name": "f", "sparse": true, "collation": { "locale": "en" } });
    add("mixed", doc! { "name": "m", "sparse": true });
    mongo.insert("users", [doc! { "_id": 3, "mixed": 1 }, doc! { "_id": 4, "mixed": "one" }]);
    let fields = ["partly", "twice", "folded", "mixed", "none", "a.b", "last"];
    let aliases = fields.map(|field| (field, field));
    let problems = refusal(settings(&mongo, &aliases));
    for expected in [
        "alias `users/by/partly`: (partly) is not unique in `users`",
        "(`p` is partial)",
        "(`t` is not unique)",
        "(`f` has a collation, and values are looked up by their bytes)",
        "the values of `mixed` are of several types",
        "(none) is not unique",
        "db.users.createIndex({ \"none\": 1 }, { unique: true })",
        "`a.b` is no field of the document itself",
        "(last) is not unique in `users`",
    ] {
        assert!(problems.contains(expected), "{expected} is missing in:\n{problems}");
    }
    let mut settings = settings(&mongo, &[("mixed", "mixed")]);
    settings.server.collections[1].key_types = vec![crate::config::KeyTypeName::Text];
    let engine = launch(settings);
    assert_eq!(engine.text(1, "one"), r#"{"_id":4,"mixed":"one"}"#);
    assert_eq!(engine.text(1, "1"), "-");
}

#[test]
fn the_collation_of_a_collection_folds_no_value() {
    let mongo = MongoDatabase::any();
    let collation = doc! { "locale": "en", "strength": 2 };
    mongo.run(doc! { "create": "users", "collation": collation });
    mongo.insert("users", [doc! { "_id": 1, "email": "Ann" }]);
    index(&mongo, doc! { "email": 1 }, doc! { "name": "e", "collation": { "locale": "simple" } });
    let listed = mongo.ask(async |db| collection_of(db, "users").list_index_names().await);
    assert!(listed.contains(&"e".to_owned()), "{listed:?}");
    let engine = launch(settings(&mongo, &[("email", "email")]));
    assert_eq!(engine.text(1, "Ann"), r#"{"_id":1,"email":"Ann"}"#);
    assert_eq!(engine.text(1, "ann"), "-");
}
