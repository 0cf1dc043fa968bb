//! Tests of the stand-in itself, with the official driver.

use std::time::Duration;

use mongodb::bson::{Bson, Document, Timestamp, doc};
use mongodb::change_stream::event::{ChangeStreamEvent, OperationType};
use mongodb::options::{CollectionOptions, ReadConcern, WriteConcern};
use mongodb::{Client, Collection};

use crate::mongodb::standin::{Failure, Fault, Kind, Standin};

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let all =
        async { tokio::time::timeout(Duration::from_secs(60), future).await.expect("in time") };
    runtime.block_on(all)
}

async fn things(standin: &Standin) -> (Client, Collection<Document>) {
    let client = Client::with_uri_str(standin.url("shop")).await.expect("a client");
    let collection = client.database("shop").collection("things");
    (client, collection)
}

async fn all(collection: &Collection<Document>) -> Vec<Document> {
    let mut cursor = collection.find(doc! {}).await.expect("find");
    let mut found = Vec::new();
    while cursor.advance().await.expect("more") {
        found.push(cursor.deserialize_current().expect("a document"));
    }
    found
}

#[test]
fn documents_are_written_and_read() {
    let standin = Standin::start();
    block_on(async {
        let (_client, things) = things(&standin).await;
        things
            .insert_many((1..=250).map(|n| doc! { "_id": n, "n": n, "in": { "a": 1, "b": 2 } }))
            .await
            .unwrap();
        assert_eq!(all(&things).await.len(), 250, "in several batches");
        // 7, 7 as a long and 7.0 are one key.
        for id in [Bson::Int32(7), Bson::Int64(7), Bson::Double(7.0)] {
            assert!(things.find_one(doc! { "_id": id.clone() }).await.unwrap().is_some(), "{id:?}");
            let error = things.insert_one(doc! { "_id": id }).await.unwrap_err();
            assert!(error.to_string().contains("E11000"), "{error}");
        }
        let done = things
            .update_one(doc! { "_id": 7 }, doc! { "$set": { "in.a": 5 }, "$inc": { "n": 1 } })
            .await
            .unwrap();
        assert_eq!((done.matched_count, done.modified_count), (1, 1));
        assert_eq!(
            things
                .update_many(doc! { "n": { "$gt": 240 } }, doc! { "$set": { "high": true } })
                .await
                .unwrap()
                .modified_count,
            10
        );
        let chosen = doc! { "in.a": 1, "_id": 0 };
        let found = things.find_one(doc! { "_id": 7 }).projection(chosen).await.unwrap();
        assert_eq!(found, Some(doc! { "in": { "a": 5 } }));
        let found = things
            .find_one(doc! { "_id": { "$in": [7, 8] } })
            .projection(doc! { "in": 0 })
            .await
            .unwrap();
        assert_eq!(found, Some(doc! { "_id": 7, "n": 8 }));
        things.replace_one(doc! { "_id": 900 }, doc! { "x": 1 }).upsert(true).await.unwrap();
        assert_eq!(
            things.delete_many(doc! { "_id": { "$lte": 250 } }).await.unwrap().deleted_count,
            250
        );
        assert_eq!(all(&things).await, [doc! { "_id": 900, "x": 1 }]);
        assert_eq!(things.count_documents(doc! {}).await.unwrap(), 1);
    });
}

async fn next(
    stream: &mut mongodb::change_stream::ChangeStream<ChangeStreamEvent<Document>>,
) -> ChangeStreamEvent<Document> {
    loop {
        if let Some(event) = stream.next_if_any().await.expect("the stream continues") {
            return event;
        }
    }
}

#[test]
fn a_stream_reports_changes_and_resumes_after_a_fault() {
    let standin = Standin::start();
    block_on(async {
        let (client, things) = things(&standin).await;
        let mut stream = client.database("shop").watch().await.unwrap();
        things.insert_one(doc! { "_id": 1, "n": 1 }).await.unwrap();
        things.update_one(doc! { "_id": 1 }, doc! { "$set": { "n": 2 } }).await.unwrap();
        things.replace_one(doc! { "_id": 1 }, doc! { "m": 3 }).await.unwrap();
        let inserted = next(&mut stream).await;
        assert_eq!(
            (inserted.operation_type, inserted.document_key),
            (OperationType::Insert, Some(doc! { "_id": 1 }))
        );
        assert_eq!(inserted.full_document, Some(doc! { "_id": 1, "n": 1 }));
        let updated = next(&mut stream).await;
        assert_eq!(updated.update_description.unwrap().updated_fields, doc! { "n": 2 });
        assert!(updated.full_document.is_none());
        // The connection is cut; the driver resumes by its token, and no event is missing or
        // repeated.
        standin.inject_times("getMore", Fault::Cut, Some(1));
        things.delete_one(doc! { "_id": 1 }).await.unwrap();
        assert_eq!(next(&mut stream).await.operation_type, OperationType::Replace);
        let deleted = next(&mut stream).await;
        assert_eq!(
            (deleted.operation_type, deleted.document_key),
            (OperationType::Delete, Some(doc! { "_id": 1 }))
        );
        // Times rise, and are equal only within a transaction.
        assert!(
            inserted.cluster_time < updated.cluster_time
                && updated.cluster_time < deleted.cluster_time
        );
        client.database("shop").drop().await.unwrap();
        let kinds = [
            next(&mut stream).await.operation_type,
            next(&mut stream).await.operation_type,
            next(&mut stream).await.operation_type,
        ];
        assert_eq!(
            kinds,
            [OperationType::Drop, OperationType::DropDatabase, OperationType::Invalidate]
        );
    });
}

#[test]
fn an_idle_stream_has_a_token_that_moves() {
    let standin = Standin::start();
    block_on(async {
        let (client, things) = things(&standin).await;
        let mut stream = client
            .database("shop")
            .watch()
            .max_await_time(Duration::from_millis(20))
            .await
            .unwrap();
        let other = client.database("other").collection::<Document>("noise");
        let mut times = Vec::new();
        for _ in 0..3 {
            other.insert_one(doc! { "n": 1 }).await.unwrap();
            let now = standin.now();
            // The first answer may be the one that opened the stream.
            while time_of(&stream.resume_token().expect("a token")) < now {
                assert!(stream.next_if_any().await.unwrap().is_none());
            }
            times.push(time_of(&stream.resume_token().expect("a token")));
        }
        assert!(times.is_sorted_by(|a, b| a < b), "{times:?}");
        // The stream can be resumed at this token.
        let token = stream.resume_token().unwrap();
        things.insert_one(doc! { "_id": 5 }).await.unwrap();
        drop(stream);
        let mut again = client.database("shop").watch().resume_after(token).await.unwrap();
        assert_eq!(next(&mut again).await.document_key, Some(doc! { "_id": 5 }));
    });
}

fn time_of(token: &mongodb::change_stream::event::ResumeToken) -> u64 {
    let token: Document = mongodb::bson::serialize_to_document(token).unwrap();
    let text = token.get_str("_data").unwrap();
    assert!(text.starts_with("82"), "{text}");
    u64::from_str_radix(&text[2..18], 16).unwrap()
}

#[test]
fn a_lost_history_is_reported() {
    let standin = Standin::start();
    block_on(async {
        let (client, things) = things(&standin).await;
        let start_time = standin.now();
        things.insert_one(doc! { "_id": 1 }).await.unwrap();
        standin.prune_oplog();
        let at = Timestamp { time: (start_time >> 32) as u32, increment: start_time as u32 };
        let error = client.database("shop").watch().start_at_operation_time(at).await.unwrap_err();
        assert!(error.to_string().contains("286"), "{error}");
        let mut stream = client.database("shop").watch().await.unwrap();
        things.insert_one(doc! { "_id": 2 }).await.unwrap();
        assert_eq!(next(&mut stream).await.document_key, Some(doc! { "_id": 2 }));
    });
}

#[test]
fn a_transaction_is_one_time() {
    let standin = Standin::start();
    block_on(async {
        let (client, things) = things(&standin).await;
        things.insert_one(doc! { "_id": 1 }).await.unwrap();
        let mut stream = client.database("shop").watch().await.unwrap();
        let mut session = client.start_session().await.unwrap();
        for commit in [false, true] {
            session.start_transaction().await.unwrap();
            things.delete_one(doc! { "_id": 1 }).session(&mut session).await.unwrap();
            things.insert_one(doc! { "_id": 1, "n": 2 }).session(&mut session).await.unwrap();
            things.insert_one(doc! { "_id": 2 }).session(&mut session).await.unwrap();
            assert_eq!(
                all(&things).await,
                [doc! { "_id": 1 }],
                "invisible to others before the commit"
            );
            if commit {
                session.commit_transaction().await.unwrap();
            } else {
                session.abort_transaction().await.unwrap();
            }
        }
        assert_eq!(all(&things).await.len(), 2);
        let events = [next(&mut stream).await, next(&mut stream).await, next(&mut stream).await];
        let kinds: Vec<_> = events.iter().map(|event| event.operation_type.clone()).collect();
        assert_eq!(kinds, [OperationType::Delete, OperationType::Insert, OperationType::Insert]);
        assert!(events.iter().all(|event| event.cluster_time == events[0].cluster_time));
        // Resumed in the middle of the transaction.
        let mut again =
            client.database("shop").watch().resume_after(events[0].id.clone()).await.unwrap();
        assert_eq!(next(&mut again).await.document_key, Some(doc! { "_id": 1 }));
        assert_eq!(next(&mut again).await.document_key, Some(doc! { "_id": 2 }));
    });
}

#[test]
fn visibility_that_is_held_back() {
    let standin = Standin::start();
    block_on(async {
        let (client, things) = things(&standin).await;
        things.insert_one(doc! { "_id": 1, "n": 1 }).await.unwrap();
        let mut stream = client.database("shop").watch().await.unwrap();
        standin.hold_visibility();
        // Acknowledged by one member; a write acknowledged by a majority waits for its visibility.
        let one = CollectionOptions::builder().write_concern(WriteConcern::nodes(1));
        let things =
            client.database("shop").collection_with_options::<Document>(things.name(), one.build());
        things.update_one(doc! { "_id": 1 }, doc! { "$set": { "n": 2 } }).await.unwrap();
        things.insert_one(doc! { "_id": 2 }).await.unwrap();
        let changed = next(&mut stream).await.cluster_time.expect("a time");
        let majority = || things.find_one(doc! { "_id": 1 }).read_concern(ReadConcern::majority());
        assert_eq!(majority().await.unwrap(), Some(doc! { "_id": 1, "n": 1 }), "the old one");
        // A read that requires the time of the change waits.
        let mut session = client.start_session().await.unwrap();
        session.advance_operation_time(changed);
        let error =
            majority().max_time(Duration::from_millis(50)).session(&mut session).await.unwrap_err();
        assert!(error.to_string().contains("MaxTimeMSExpired"), "{error}");
        let (found, ()) = tokio::join!(majority().session(&mut session), async {
            tokio::time::sleep(Duration::from_millis(50)).await;
            standin.release_visibility();
        });
        assert_eq!(found.unwrap(), Some(doc! { "_id": 1, "n": 2 }));
        assert!(session.operation_time() >= Some(changed), "{:?}", session.operation_time());
    });
}

#[test]
fn elections_and_stops() {
    let mut standin = Standin::of(Kind::ReplicaSet, 2);
    block_on(async {
        let (client, things) = things(&standin).await;
        let mut stream = client.database("shop").watch().await.unwrap();
        things.insert_one(doc! { "_id": 1 }).await.unwrap();
        standin.elect(1);
        // The driver finds the new primary by itself.
        things.insert_one(doc! { "_id": 2 }).await.unwrap();
        standin.stop(1);
        standin.elect(0);
        things.insert_one(doc! { "_id": 3 }).await.unwrap();
        standin.restart(1);
        for id in 1..=3 {
            assert_eq!(next(&mut stream).await.document_key, Some(doc! { "_id": id }));
        }
    });
}

#[test]
fn standalones_and_sharded_clusters() {
    block_on(async {
        let standalone = Standin::of(Kind::Standalone, 1);
        let (client, things) = things(&standalone).await;
        things.insert_one(doc! { "_id": 1 }).await.unwrap();
        let error = client.database("shop").watch().await.unwrap_err();
        assert!(error.to_string().contains("40573"), "{error}");
        let hello = client.database("admin").run_command(doc! { "hello": 1 }).await.unwrap();
        assert!(!hello.contains_key("setName") && !hello.contains_key("operationTime"), "{hello}");
    });
    block_on(async {
        let cluster = Standin::of(Kind::Mongos, 1);
        let (client, things) = things(&cluster).await;
        let mut stream = client.database("shop").watch().await.unwrap();
        things.insert_one(doc! { "_id": 1 }).await.unwrap();
        assert_eq!(next(&mut stream).await.document_key, Some(doc! { "_id": 1 }));
        let version = client
            .database("config")
            .collection::<Document>("version")
            .find_one(doc! {})
            .await
            .unwrap();
        assert_eq!(version.unwrap().get_object_id("clusterId").unwrap(), cluster.id());
    });
}

#[test]
fn faults_come_and_go() {
    let standin = Standin::start();
    block_on(async {
        let (_client, things) = things(&standin).await;
        standin.inject("find", Fault::Fail(Failure::unauthorized("find")));
        let error = things.find_one(doc! {}).await.unwrap_err();
        assert!(error.to_string().contains("Unauthorized"), "{error}");
        standin.clear_faults("find");
        standin.inject("find", Fault::Hold);
        let find = things.find_one(doc! {}).into_future();
        tokio::pin!(find);
        while standin.held("find") == 0 {
            assert!(
                tokio::time::timeout(Duration::from_millis(5), &mut find).await.is_err(),
                "it is held"
            );
        }
        standin.clear_faults("find");
        assert_eq!(find.await.unwrap(), None);
        // The driver sends it again on another connection.
        standin.cut(None);
        assert_eq!(things.find_one(doc! {}).await.unwrap(), None);
        assert!(standin.commands("find") >= 3 && standin.streams() == 0);
    });
}
