//! Lookup by alias over MongoDB: documents in place of rows. Arrays, and indexes that are lost, are
//! in the engine's own tests.

use std::thread;

use mongodb::bson::{Bson, Document, doc};

use super::checked::{Movers, Step};
use super::{aliased, by, by_batch, settled};
use crate::backend::Backend as _;
use crate::backend::mongo::Mongo;
use crate::shop::{await_body, await_status, cached};
use hotrow_testkit::harness::{Config, SOON, Server, await_until};
use hotrow_testkit::mongo::collection_of;

const ANN: &str = r#"{"_id":1,"email":"ann@x.org","first":"Ann","last":"Lee"}"#;

fn users() -> Mongo {
    let database = Mongo::private(1);
    let index = |keys: Document, name: &str| {
        doc! { "key": keys, "name": name, "unique": true, "sparse": true }
    };
    let indexes = [index(doc! { "email": 1 }, "email"), index(doc! { "first": 1, "last": 1 }, "n")];
    database.mongo.run(doc! { "createIndexes": "users", "indexes": indexes.to_vec() });
    database
}

fn with_users() -> Mongo {
    let database = users();
    database.mongo.insert(
        "users",
        [
            doc! { "_id": 1, "email": "ann@x.org", "first": "Ann", "last": "Lee" },
            doc! { "_id": 2, "last": "O'Hara, jr.", "first": "Bob", "email": "bob@x.org" },
        ],
    );
    database
}

fn config(database: &Mongo) -> Config {
    aliased(database.config()).set("collections.users.key_type", "\"integer\"")
}

fn set(database: &Mongo, id: i32, fields: Document) {
    database.mongo.update("users", id, doc! { "$set": fields });
}

impl Movers for Mongo {
    const KEY: &str = "_id";

    fn begin() -> Self {
        users()
    }

    fn aliased(&self) -> Config {
        config(self)
    }

    fn change(&self, steps: &[Step]) {
        self.mongo.ask(async |database| {
            let users = collection_of(database, "users");
            let mut session = database.client().start_session().await?;
            session.start_transaction().await?;
            for step in steps {
                match *step {
                    Step::Delete { id } => {
                        let filter = doc! { "_id": id as i64 };
                        users.delete_one(filter).session(&mut session).await?;
                    }
                    Step::Set { id, value, number, exists: true } => {
                        let fields = doc! { "email": format!("v{value}"), "note": number as i64 };
                        let update = doc! { "$set": fields };
                        let filter = doc! { "_id": id as i64 };
                        users.update_one(filter, update).session(&mut session).await?;
                    }
                    Step::Set { id, value, number, exists: false } => {
                        let user = doc! {
                            "_id": id as i64, "email": format!("v{value}"),
                            "first": format!("f{id}"), "last": format!("l{id}"),
                            "note": number as i64,
                        };
                        users.insert_one(user).session(&mut session).await?;
                    }
                }
            }
            session.commit_transaction().await
        });
    }
}

#[test]
fn a_record_is_found_by_each_unique_value() {
    let database = with_users();
    let server = Server::start(&config(&database));
    let mut client = server.client();
    let own = cached(&mut client, "/users/1");
    for path in [by("ann@x.org"), "/users/by/name/Ann,Lee".to_owned()] {
        let answer = cached(&mut client, &path);
        assert_eq!((answer.text(), answer.header("etag")), (ANN.into(), own.header("etag")));
    }
    assert!(cached(&mut client, "/users/by/name/Bob,O'Hara%2C%20jr.").text().contains("bob@"));
    for absent in [by("zoe"), by("Ann@x.org"), by("")] {
        assert_eq!(settled(&mut client, &absent).0, 404);
    }
    let before = server.queries();
    let batch = client.get(&by_batch("bob@x.org,eve,ann@x.org")).json();
    assert_eq!(batch["items"]["bob@x.org"]["_id"], 2, "{batch}");
    assert_eq!(batch["items"]["ann@x.org"]["last"], "Lee", "{batch}");
    assert_eq!(batch["missing"].to_string(), r#"["eve"]"#);
    assert_eq!(server.queries() - before, 1, "of the value that was not known");
    let names = r#"{"ids":[["Ann","Lee"],["Ann","Zoe"]]}"#;
    let batch = client.post("/users/by/name", names).json();
    assert_eq!(batch["items"]["Ann,Lee"]["_id"], 1, "{batch}");
}

/// The feed is not waited for: the position demands the change that it has not delivered.
#[test]
fn a_writer_finds_its_own_value() {
    let database = with_users();
    let server = Server::start(&config(&database));
    let mut client = server.client();
    assert_eq!(settled(&mut client, &by("mine")).0, 404);
    let before = cached(&mut client, &by("ann@x.org"));
    set(&database, 1, doc! { "email": "mine" });
    let (log, _) = before.header("hotrow-position").unwrap().split_once('-').unwrap();
    let position = format!("{log}-{}", database.mongo.operation_time());
    let mut at_least = |path: &str| client.get_with(path, &[("Hotrow-Min-Position", &position)]);
    assert_eq!(at_least(&by("mine")).text(), ANN.replace("ann@x.org", "mine"));
    assert_eq!(at_least(&by("ann@x.org")).status, 404);
}

/// Race A: the value appears while the read that does not see it is under way.
#[test]
fn the_absence_of_a_value_that_appears_during_the_read_is_not_kept() {
    let database = with_users();
    let server = Server::start(&config(&database));
    database.hold_reads();
    thread::scope(|scope| {
        let first = scope.spawn(|| server.get(&by("new")).status);
        await_until("the answer", SOON, || database.holds_a_read());
        let changes = || server.metrics().sum_or_zero("hotrow_feed_changes_total", &[]);
        let before = changes();
        set(&database, 1, doc! { "email": "new" });
        await_until("the change in the feed", SOON, || changes() > before);
        database.clear_faults();
        assert_eq!(first.join().expect("an answer"), 404, "it began before the change");
    });
    await_status(&mut server.client(), &by("new"), 200);
}

/// As relaxed Extended JSON, and with ObjectIds as keys and as values.
#[test]
fn values_and_keys_of_any_type_are_found() {
    let database = Mongo::private(1);
    let id = mongodb::bson::oid::ObjectId::from_bytes([0xab; 12]);
    database.mongo.insert("carts", [doc! { "_id": id, "owner": id, "n": 7.0 }]);
    let index = |field: &str| doc! { "key": { field: 1 }, "name": field, "unique": true };
    let indexes: Vec<Bson> = ["owner", "n"].map(|field| index(field).into()).to_vec();
    database.mongo.run(doc! { "createIndexes": "carts", "indexes": indexes });
    let config = database.config().with(&[
        ("source.json", "\"relaxed\""),
        ("collections.carts.by.owner.columns", "\"owner\""),
        ("collections.carts.by.n.columns", "\"n\""),
    ]);
    let server = Server::start(&config);
    let mut client = server.client();
    let own = cached(&mut client, &format!("/carts/{id}")).text();
    assert_eq!(cached(&mut client, &format!("/carts/by/owner/{id}")).text(), own);
    assert_eq!(cached(&mut client, "/carts/by/n/7").text(), own);
    // Another type of the same number: the record has another form.
    database.mongo.update("carts", id, doc! { "$set": { "n": 7_i64 } });
    await_body(&mut client, "/carts/by/n/7", &own.replace("7.0", "7"));
}
