//! MongoDB. Without transactions in the deployment, each change is a write of its own.
//!
//! A single-document write holds no lock in advance, so a write whose response was lost may take
//! effect after later ones. Each write therefore only replaces an older version. A delete could
//! still be followed by a late insert, so such keys are not deleted any more
//! ([`Writer::unknown_writes_hold_locks`]). Documents with an alias are written in transactions
//! only, whose commit finds its locks or nothing.

use mongodb::bson::{Bson, Document, doc};
use mongodb::error::{Error, ErrorKind, WriteFailure};
use mongodb::options::{Acknowledgment, ClientOptions, IndexOptions, ReadConcern, WriteConcern};
use mongodb::{Client, ClientSession, Collection, IndexModel};
use tokio::runtime::Runtime;
use tokio::time::timeout;

use super::{
    Change, ChangeKind, DatabaseError, Reference, Rows, STATEMENT_TIME_MAX, StoredRow, Table,
    TableRole, TransactionEnd, TransactionOutcome, Writer, rolled_back, runtime,
};
use crate::row::{KeyType, MARK, PAYLOAD, VERSION, payload};

/// Client of a MongoDB deployment.
pub(super) struct MongodbWriter {
    url: String,
    runtime: Runtime,
    table: String,
    key: String,
    key_type: KeyType,
    /// Field of the alias.
    reference: Option<Reference>,
    connected: Option<Connected>,
    /// Cluster time after the newest commit.
    position: Option<u64>,
}

/// An open connection.
struct Connected {
    collection: Collection<Document>,
    /// `None` if the deployment has no sessions.
    session: Option<ClientSession>,
    has_transactions: bool,
}

impl MongodbWriter {
    pub(super) fn new(url: &str, table: &Table) -> Result<Self, DatabaseError> {
        if table.key != "_id" {
            return Err(DatabaseError::Permanent(format!(
                "MongoDB's key is _id, not {}",
                table.key
            )));
        }
        Ok(Self {
            url: url.to_owned(),
            runtime: runtime()?,
            table: table.name.clone(),
            key: table.key.clone(),
            key_type: table.key_type,
            reference: table.reference.clone(),
            connected: None,
            position: None,
        })
    }

    /// Uses the connection; it is dropped after any error.
    fn with<T>(
        &mut self,
        act: impl AsyncFnOnce(&mut Connected) -> Result<T, Error>,
    ) -> Result<T, DatabaseError> {
        let Self { url, runtime, table, connected, .. } = self;
        let done = runtime.block_on(async {
            // A timer needs the runtime around it.
            timeout(STATEMENT_TIME_MAX, async {
                let connection = match connected.take() {
                    Some(connection) => connected.insert(connection),
                    None => connected.insert(connect(url, table).await?),
                };
                act(connection).await
            })
            .await
        });
        let fault = match done {
            Ok(Ok(done)) => return Ok(done),
            Ok(Err(error)) => fault(&error),
            Err(_) => {
                DatabaseError::Transient(format!("no response within {STATEMENT_TIME_MAX:?}"))
            }
        };
        *connected = None;
        Err(fault)
    }

    fn id(&self, key: u32) -> Bson {
        match self.key_type {
            KeyType::Integer => Bson::Int64(i64::from(key)),
            KeyType::Text => Bson::String(self.key_type.text(key)),
        }
    }

    /// Returns the key of one of the checker's documents. Numbers of different types compare equal
    /// in MongoDB.
    fn key_of(&self, document: &Document) -> Option<u32> {
        match (self.key_type, document.get(&self.key)?) {
            (KeyType::Integer, Bson::Int64(n)) => u32::try_from(*n).ok(),
            (KeyType::Integer, Bson::Int32(n)) => u32::try_from(*n).ok(),
            (KeyType::Text, Bson::String(text)) => self.key_type.parse(text),
            _ => None,
        }
    }

    /// Returns the reference of a document.
    ///
    /// # Errors
    /// It is not one of the checker's.
    fn stored_reference(&self, document: &Document) -> Result<Option<u32>, ()> {
        let Some(Reference { column, key_type }) = &self.reference else { return Ok(None) };
        match document.get(column) {
            None | Some(Bson::Null) => Ok(None),
            Some(Bson::String(text)) => key_type.parse(text).map(Some).ok_or(()),
            Some(Bson::Int64(n)) => u32::try_from(*n).map(Some).map_err(drop),
            Some(_) => Err(()),
        }
    }
}

async fn connect(url: &str, table: &str) -> Result<Connected, Error> {
    let mut options = ClientOptions::parse(url).await?;
    options.app_name = Some("hotrow verify".to_owned());
    options.server_selection_timeout = Some(STATEMENT_TIME_MAX);
    options.connect_timeout = Some(STATEMENT_TIME_MAX);
    // A write retried by the driver would be two writes to the checker.
    options.retry_writes = Some(false);
    options.write_concern = Some(WriteConcern::builder().w(Acknowledgment::Majority).build());
    options.read_concern = Some(ReadConcern::majority());
    let client = Client::with_options(options)?;
    let Some(database) = client.default_database() else {
        return Err(Error::custom(
            "the connection string names no database: mongodb://host/DATABASE",
        ));
    };
    let hello = database.run_command(doc! { "hello": 1 }).await?;
    let replicated =
        hello.contains_key("setName") || hello.get_str("msg").is_ok_and(|msg| msg == "isdbgrid");
    let has_sessions = hello.contains_key("logicalSessionTimeoutMinutes");
    let session =
        if has_sessions && replicated { Some(client.start_session().await?) } else { None };
    let has_transactions = session.is_some();
    Ok(Connected { collection: database.collection(table), session, has_transactions })
}

/// Returns the field of a reference: its name, and its value unless it is none.
fn reference_of(reference: Option<&Reference>, change: &Change) -> Option<(String, Option<Bson>)> {
    let Reference { column, key_type } = reference?;
    let value = |number| match key_type {
        KeyType::Integer => Bson::Int64(i64::from(number)),
        KeyType::Text => Bson::String(key_type.text(number)),
    };
    Some((column.clone(), change.reference.map(value)))
}

/// Makes one change, not over a newer version.
async fn make(
    collection: &Collection<Document>,
    session: Option<&mut ClientSession>,
    id: Bson,
    reference: Option<&Reference>,
    change: &Change,
) -> Result<(), Error> {
    let version = change.version.cast_signed();
    // Of the same version is only the same write, or the one before it in the same transaction.
    let older = doc! { "_id": id.clone(), VERSION: { "$lte": version } };
    let reference = reference_of(reference, change);
    let fields = || {
        let mut fields = doc! { VERSION: version, PAYLOAD: payload(change.key, change.version) };
        if let Some((name, Some(value))) = &reference {
            fields.insert(name, value);
        }
        fields
    };
    match change.kind {
        ChangeKind::Delete => {
            let delete = collection.delete_one(older);
            match session {
                Some(session) => delete.session(session).await.map(|_| ()),
                None => delete.await.map(|_| ()),
            }
        }
        ChangeKind::Replace => {
            let mut document = doc! { "_id": id };
            document.extend(fields());
            let replace = collection.replace_one(older, document).upsert(true);
            match session {
                Some(session) => replace.session(session).await.map(|_| ()),
                None => replace.await.map(|_| ()),
            }
        }
        ChangeKind::Upsert => {
            let mut update = doc! { "$set": fields() };
            if let Some((name, None)) = &reference {
                update.insert("$unset", doc! { name: "" });
            }
            let update = collection.update_one(older, update).upsert(true);
            match session {
                Some(session) => update.session(session).await.map(|_| ()),
                None => update.await.map(|_| ()),
            }
        }
    }
}

impl Writer for MongodbWriter {
    fn create(&mut self) -> Result<(), DatabaseError> {
        let name = self.table.clone();
        let column = self.reference.as_ref().map(|reference| reference.column.clone());
        self.with(async |connected| {
            let database = connected.collection.client().default_database();
            let Some(database) = database else { return Ok(()) };
            match database.create_collection(name).await {
                Err(error) if code(&error) == Some(NAMESPACE_EXISTS) => {}
                created => created?,
            }
            let Some(column) = column else { return Ok(()) };
            // Sparse, because several documents may have no value.
            let options = IndexOptions::builder().unique(true).sparse(true).build();
            let index = IndexModel::builder().keys(doc! { column: 1 }).options(options).build();
            connected.collection.create_index(index).await.map(drop)
        })
    }

    fn find(&mut self, _: TableRole, key: Option<u32>) -> Result<Rows, DatabaseError> {
        let filter = key.map_or_else(Document::new, |key| doc! { "_id": self.id(key) });
        let documents = self.with(async |connected| {
            let mut cursor = connected.collection.find(filter).await?;
            let mut documents = Vec::new();
            while cursor.advance().await? {
                documents.push(cursor.deserialize_current()?);
            }
            Ok(documents)
        })?;
        let mut rows = Rows::default();
        for document in documents {
            let version =
                document.get_i64(VERSION).ok().and_then(|version| u64::try_from(version).ok());
            let ours = document.get_str(PAYLOAD).is_ok_and(|payload| payload.starts_with(MARK));
            match (self.key_of(&document), version, self.stored_reference(&document)) {
                (Some(key), Some(version), Ok(reference)) if ours => {
                    rows.rows.insert(key, StoredRow { version, reference });
                }
                _ => rows.foreign += 1,
            }
        }
        Ok(rows)
    }

    fn transact(
        &mut self,
        changes: &[Change],
        end: TransactionEnd,
        before_commit: &mut dyn FnMut(),
    ) -> TransactionOutcome {
        let changes: Vec<(Bson, Change)> =
            changes.iter().map(|change| (self.id(change.key), *change)).collect();
        // Only writes that may have reached the server can be unknown.
        let (mut sent, mut refused) = (false, false);
        let reference = self.reference.clone();
        let reference = reference.as_ref();
        let done = self.with(async |connected| {
            let Connected { collection, session, has_transactions } = connected;
            match (&changes[..], session) {
                ([(id, change)], session)
                    if end == TransactionEnd::Commit && reference.is_none() =>
                {
                    before_commit();
                    sent = true;
                    let made = make(collection, session.as_mut(), id.clone(), None, change).await;
                    refused = made.as_ref().err().is_some_and(is_refusal);
                    made?;
                    Ok(session.as_ref().and_then(ClientSession::operation_time))
                }
                (changes, Some(session)) if *has_transactions => {
                    session.start_transaction().await?;
                    for (id, change) in changes {
                        make(collection, Some(session), id.clone(), reference, change).await?;
                    }
                    if end == TransactionEnd::RollBack {
                        session.abort_transaction().await?;
                        return Ok(None);
                    }
                    before_commit();
                    sent = true;
                    session.commit_transaction().await?;
                    Ok(session.operation_time())
                }
                (_, None) if reference.is_some() => Err(Error::custom(
                    "an alias is checked with transactions, which need a replica set",
                )),
                // Without transactions nothing is rolled back, and several changes are never
                // requested.
                _ => Ok(None),
            }
        });
        match done {
            _ if end == TransactionEnd::RollBack => rolled_back(),
            Ok(time) => {
                self.position =
                    time.map(|time| u64::from(time.time) << 32 | u64::from(time.increment));
                TransactionOutcome::Committed
            }
            Err(fault) if sent && !refused => TransactionOutcome::Unknown(fault),
            Err(fault) => TransactionOutcome::RolledBack(fault),
        }
    }

    fn position(&mut self) -> Option<u64> {
        self.position
    }

    fn has_transactions(&mut self) -> bool {
        self.with(async |connected| Ok(connected.has_transactions)).unwrap_or(false)
    }

    fn unknown_writes_hold_locks(&self) -> bool {
        false
    }
}

/// Error code: the collection exists.
const NAMESPACE_EXISTS: i32 = 48;
/// Permanent error codes: not authorised, authentication failed.
const PERMANENT: [i32; 2] = [13, 18];

fn code(error: &Error) -> Option<i32> {
    match &*error.kind {
        ErrorKind::Command(error) => Some(error.code),
        ErrorKind::Write(WriteFailure::WriteError(error)) => Some(error.code),
        _ => None,
    }
}

/// Returns whether the server reported that it did not make the write.
fn is_refusal(error: &Error) -> bool {
    let refused = matches!(&*error.kind, ErrorKind::Write(WriteFailure::WriteError(_)));
    refused && !error.contains_label("RetryableWriteError")
}

fn fault(error: &Error) -> DatabaseError {
    let text = error.to_string();
    let lasting = match &*error.kind {
        ErrorKind::InvalidArgument { .. }
        | ErrorKind::Authentication { .. }
        | ErrorKind::Custom(_) => true,
        _ => code(error).is_some_and(|code| PERMANENT.contains(&code)),
    };
    if lasting { DatabaseError::Permanent(text) } else { DatabaseError::Transient(text) }
}
