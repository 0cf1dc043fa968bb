//! A test database: in a real deployment if the environment names one, otherwise in a stand-in,
//! which all tests of a program share unless they disturb it.

use std::sync::OnceLock;
use std::time::Duration;

use mongodb::bson::oid::ObjectId;
use mongodb::bson::{Bson, Document, doc};
use mongodb::{Client, Collection, Database};
use tokio::runtime::Runtime;

use super::standin::{Kind, Standin};

mod secantus;

pub use secantus::Secantus;

/// Connection string of a replica set or a mongos, with its credentials. A database in it is
/// ignored; each test creates its own.
pub const URL_VARIABLE: &str = "HOTROW_TEST_MONGODB_URL";

const PATIENCE: Duration = Duration::from_secs(60);

/// Test database, with a writer's connection of its own. Dropping it drops a database in a shared
/// deployment.
pub struct MongoDatabase {
    /// `None` for a shared deployment.
    standin: Option<Standin>,
    name: String,
    url: String,
    runtime: Runtime,
    client: Client,
}

impl MongoDatabase {
    /// Creates a database in the deployment that the environment names, otherwise in the stand-in
    /// of this program.
    #[track_caller]
    pub fn any() -> Self {
        static SHARED: OnceLock<Standin> = OnceLock::new();
        let name = format!("hotrow_test_{}", ObjectId::new());
        let url = match std::env::var(URL_VARIABLE) {
            Ok(url) if !url.is_empty() => with_database(&url, &name),
            _ => SHARED.get_or_init(Standin::start).url(&name),
        };
        Self::at(None, name, url)
    }

    /// Creates a database in a stand-in, for tests that use its switches.
    #[track_caller]
    pub fn on_standin() -> Self {
        Self::on(Standin::start())
    }

    /// Creates a database in a stand-in of this kind.
    #[track_caller]
    pub fn on_kind(kind: Kind, members: usize) -> Self {
        Self::on(Standin::of(kind, members))
    }

    /// Creates a database in this stand-in.
    #[track_caller]
    pub fn on(standin: Standin) -> Self {
        let url = standin.url("shop");
        Self::at(Some(standin), "shop".to_owned(), url)
    }

    /// Uses this database of a server that the test has started.
    #[track_caller]
    pub fn over(url: &str, name: &str) -> Self {
        Self::at(None, name.to_owned(), url.to_owned())
    }

    #[track_caller]
    fn at(standin: Option<Standin>, name: String, url: String) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("a runtime");
        let client = runtime.block_on(Client::with_uri_str(&url)).expect("a client");
        Self { standin, name, url, runtime, client }
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    /// Returns the stand-in; panics on a real deployment.
    #[track_caller]
    pub fn standin(&self) -> &Standin {
        self.standin.as_ref().expect("this test takes a stand-in")
    }

    /// Returns the stand-in to stop and start members; panics on a real deployment.
    #[track_caller]
    pub fn standin_mut(&mut self) -> &mut Standin {
        self.standin.as_mut().expect("this test takes a stand-in")
    }

    /// Sends a request to the database and waits for the answer; panics on an error.
    #[track_caller]
    pub fn ask<T>(&self, question: impl AsyncFnOnce(&Database) -> mongodb::error::Result<T>) -> T {
        self.try_ask(question).unwrap_or_else(|error| panic!("the database: {error}"))
    }

    /// Sends a request to the database and returns its result.
    #[track_caller]
    pub fn try_ask<T>(
        &self,
        question: impl AsyncFnOnce(&Database) -> mongodb::error::Result<T>,
    ) -> mongodb::error::Result<T> {
        let database = self.client.database(&self.name);
        self.runtime.block_on(async {
            tokio::time::timeout(PATIENCE, question(&database)).await.expect("in time")
        })
    }

    pub fn client(&self) -> &Client {
        &self.client
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    #[track_caller]
    pub fn run(&self, command: Document) -> Document {
        self.ask(async |database| database.run_command(command).await)
    }

    #[track_caller]
    pub fn insert(&self, collection: &str, documents: impl IntoIterator<Item = Document>) {
        let documents: Vec<Document> = documents.into_iter().collect();
        self.ask(async |database| collection_of(database, collection).insert_many(documents).await);
    }

    /// Updates one document by operators like `$set`; panics if there is none.
    #[track_caller]
    pub fn update(&self, collection: &str, id: impl Into<Bson>, update: Document) {
        let filter = doc! { "_id": id.into() };
        let done = self.ask(async |database| {
            collection_of(database, collection).update_one(filter, update).await
        });
        assert_eq!(done.matched_count, 1, "there is no such document");
    }

    /// Replaces one document, or inserts it.
    #[track_caller]
    pub fn replace(&self, collection: &str, id: impl Into<Bson>, document: Document) {
        let filter = doc! { "_id": id.into() };
        self.ask(async |database| {
            collection_of(database, collection).replace_one(filter, document).upsert(true).await
        });
    }

    /// Deletes one document; panics if there is none.
    #[track_caller]
    pub fn delete(&self, collection: &str, id: impl Into<Bson>) {
        let filter = doc! { "_id": id.into() };
        let done =
            self.ask(async |database| collection_of(database, collection).delete_one(filter).await);
        assert_eq!(done.deleted_count, 1, "there is no such document");
    }

    /// Returns the current operation time; everything committed is at or before it.
    #[track_caller]
    pub fn operation_time(&self) -> u64 {
        let reply =
            self.ask(async |_| self.client.database("admin").run_command(doc! { "ping": 1 }).await);
        let time = reply.get_timestamp("operationTime").expect("an operation time");
        u64::from(time.time) << 32 | u64::from(time.increment)
    }
}

pub fn collection_of(database: &Database, name: &str) -> Collection<Document> {
    database.collection(name)
}

impl Drop for MongoDatabase {
    fn drop(&mut self) {
        if self.standin.is_none() {
            // A shared server keeps no test data. The error is ignored, because a failed test has
            // reported its own.
            _ = self.try_ask(async |database| database.drop().await);
        }
    }
}

/// Inserts the database into the connection string.
fn with_database(url: &str, name: &str) -> String {
    let (scheme, rest) = url.split_once("://").expect("a connection string");
    let (hosts, options) =
        rest.split_once('?').map_or((rest, None), |(hosts, options)| (hosts, Some(options)));
    let hosts = hosts.split('/').next().unwrap_or_default();
    let options = options.map(|options| format!("?{options}")).unwrap_or_default();
    format!("{scheme}://{hosts}/{name}{options}")
}
