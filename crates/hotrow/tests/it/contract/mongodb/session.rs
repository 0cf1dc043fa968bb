//! A writer's connection to MongoDB. It survives elections and stops: the driver repeats what is
//! safe to repeat, and a commit without an answer is looked up.

use ::mongodb::bson::{Document, doc};
use ::mongodb::error::Result;
use ::mongodb::{Client, ClientSession, Collection};
use tokio::runtime::Runtime;

use super::ITEMS;
use crate::contract::board::Board;
use crate::contract::engine::{Commit, Row, Session, Step, until_answered};
use hotrow_testkit::mongo::Secantus;

/// A client with one session.
pub(crate) struct MongoSession {
    runtime: Runtime,
    items: Collection<Document>,
    session: ClientSession,
}

impl MongoSession {
    pub(crate) fn new(url: &str, database: &str) -> Self {
        // The driver maintains its connections in the background.
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("a runtime");
        let (items, session) = runtime
            .block_on(async {
                let client = Client::with_uri_str(url).await?;
                Result::Ok((
                    client.database(database).collection(ITEMS),
                    client.start_session().await?,
                ))
            })
            .expect("a client");
        Self { runtime, items, session }
    }

    /// Returns the newest operation time that this session has seen.
    fn seen(&self) -> u64 {
        self.session
            .operation_time()
            .map_or(0, |time| u64::from(time.time) << 32 | u64::from(time.increment))
    }

    /// Advances the session to the current time.
    fn advance_time(&mut self) {
        until_answered(|| {
            let find = self.items.find_one(doc! { "_id": -1 }).session(&mut self.session);
            self.runtime.block_on(async { find.await })
        });
    }

    /// Returns true if a commit whose answer was lost took effect; its last step shows it.
    fn was_committed(&mut self, steps: &[Step]) -> bool {
        let (key, version) = steps.last().expect("a commit has steps").proof();
        let found = until_answered(|| {
            let find = self.items.find_one(doc! { "_id": key as i32 });
            self.runtime.block_on(async { find.await })
        });
        found.and_then(|row| row.get_i64("version").ok()).map(i64::cast_unsigned) == version
    }
}

impl Session for MongoSession {
    fn commit(&mut self, steps: &[Step], board: &Board) -> Option<Commit> {
        if self.seen() == 0 {
            self.advance_time();
        }
        // All that this session has seen lies before its next commit.
        let from = self.seen() + 1;
        let Self { runtime, items, session } = self;
        let outcome = runtime.block_on(async {
            let is_several = match &steps[0] {
                Step::Move { .. } => true,
                Step::Update { way: 0, .. } if has_transactions() => true,
                _ => steps.len() > 1,
            };
            if !is_several {
                let begun_ns = board.now();
                return (Some(begun_ns), make(items, session, &steps[0]).await);
            }
            if let Err(error) = in_transaction(items, session, steps).await {
                return (None, Err(error));
            }
            // The commit is invisible before this.
            let begun_ns = board.now();
            (Some(begun_ns), session.commit_transaction().await)
        });
        let begun_ns = match outcome {
            (Some(begun_ns), Ok(())) => begun_ns,
            (Some(begun_ns), Err(error)) => {
                if !self.was_committed(steps) {
                    return None;
                }
                // The commit is known only from here on.
                _ = error;
                self.advance_time();
                begun_ns
            }
            (None, _) => {
                _ = self.runtime.block_on(async { self.session.abort_transaction().await });
                return None;
            }
        };
        Some(Commit { begun_ns, returned_ns: board.now(), from, at: self.seen() })
    }

    fn roll_back(&mut self, key: u32, version: u64) {
        let Self { runtime, items, session } = self;
        runtime.block_on(async {
            let never =
                doc! { "$set": { "version": version as i64, "payload": "never committed" } };
            if session.start_transaction().await.is_ok() {
                // A member that is no longer primary has already dropped the transaction.
                _ = items
                    .update_one(doc! { "_id": key as i32 }, never)
                    .upsert(true)
                    .session(&mut *session)
                    .await;
                _ = session.abort_transaction().await;
            }
        });
    }
}

/// Returns whether changes are committed in transactions. SecantusDB may send their events after
/// later ones, and after the proof that there are none.
pub(super) fn has_transactions() -> bool {
    !Secantus::is_chosen()
}

async fn in_transaction(
    items: &Collection<Document>,
    session: &mut ClientSession,
    steps: &[Step],
) -> Result<()> {
    session.start_transaction().await?;
    for step in steps {
        make(items, session, step).await?;
    }
    Ok(())
}

/// Executes one step, by one of several operations with the same result.
async fn make(
    items: &Collection<Document>,
    session: &mut ClientSession,
    step: &Step,
) -> Result<()> {
    let whole = |row: &Row| {
        doc! {
            "_id": row.key as i32,
            "id": row.key as i32,
            "version": row.version as i64,
            "payload": &row.payload,
        }
    };
    let of = |key: u32| doc! { "_id": key as i32 };
    let touched = match step {
        Step::Insert(row) => {
            items.insert_one(whole(row)).session(session).await?;
            1
        }
        // Needs a transaction.
        Step::Update { row, way: 0 } if has_transactions() => {
            let deleted = items.delete_one(of(row.key)).session(&mut *session).await?.deleted_count;
            items.insert_one(whole(row)).session(session).await?;
            deleted
        }
        Step::Update { row, way: 0 | 1 } => {
            items.replace_one(of(row.key), whole(row)).session(session).await?.matched_count
        }
        Step::Update { row, .. } => {
            let set = doc! { "$set": { "version": row.version as i64, "payload": &row.payload } };
            items.update_one(of(row.key), set).session(session).await?.matched_count
        }
        Step::Delete { key } => items.delete_one(of(*key)).session(session).await?.deleted_count,
        Step::Move { from, row } => {
            let deleted = items.delete_one(of(*from)).session(&mut *session).await?.deleted_count;
            items.insert_one(whole(row)).session(session).await?;
            deleted
        }
    };
    assert_eq!(touched, 1, "{step:?}: the history and the database disagree");
    Ok(())
}
