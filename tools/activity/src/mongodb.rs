//! MongoDB: the command `currentOp`. Experimental: tested on documents of the documented form only.
//!
//! The server reports waits for its own locks. A write that meets another transaction's document is
//! repeated instead, and appears as a running operation with write conflicts.

use hotrow_diagnose::database::{
    DatabaseLook, SESSIONS_MAX, Session, SessionState, SessionWait, SessionWaitKind,
};
use hotrow_trial::observe::DatabaseProbe;
use mongodb::Client;
use mongodb::bson::{Bson, Document, doc};
use mongodb::error::{Error, ErrorKind};
use mongodb::options::ClientOptions;

use crate::connection::{Connection, with_causes, without_password};
use crate::statement::shortened;
use crate::{APPLICATION, FIRST_LOOK_TIME_MAX};

/// Error code: the privilege `inprog` is missing.
const UNAUTHORIZED: i32 = 13;
/// Write conflicts of one operation from which it waits for another transaction.
const CONFLICTS_FROM: i64 = 1;

/// Client of a deployment.
pub(crate) struct MongodbProbe {
    url: String,
    connection: Connection<Client>,
}

impl MongodbProbe {
    pub(crate) fn new(url: &str) -> Result<Self, String> {
        Ok(Self { url: url.to_owned(), connection: Connection::new()? })
    }
}

impl DatabaseProbe for MongodbProbe {
    fn engine(&self) -> &'static str {
        "MongoDB"
    }

    fn look(&mut self) -> Result<DatabaseLook, String> {
        let Self { url, connection } = self;
        let text = |error: Error| without_password(&with_causes(&error), url);
        let connect = async || {
            let mut options = ClientOptions::parse(url.as_str()).await.map_err(text)?;
            options.app_name = Some(APPLICATION.to_owned());
            options.server_selection_timeout = Some(FIRST_LOOK_TIME_MAX);
            options.connect_timeout = Some(FIRST_LOOK_TIME_MAX);
            Client::with_options(options).map_err(text)
        };
        let request = async |client: &mut Client| read(client).await.map_err(text);
        connection.ask(connect, request)
    }
}

async fn read(client: &Client) -> Result<DatabaseLook, Error> {
    let admin = client.database("admin");
    match admin.run_command(doc! { "currentOp": 1, "$all": false }).await {
        Ok(answer) => Ok(DatabaseLook { sessions: sessions(&answer), restriction: None }),
        Err(error) if is_unauthorized(&error) => {
            let own = doc! { "currentOp": 1, "$ownOps": true };
            let answer = admin.run_command(own).await?;
            let restriction = "operations of other MongoDB users are not visible: the role \
                               clusterMonitor (privilege inprog) shows them";
            let restriction = Some(restriction.to_owned());
            Ok(DatabaseLook { sessions: sessions(&answer), restriction })
        }
        Err(error) => Err(error),
    }
}

fn is_unauthorized(error: &Error) -> bool {
    matches!(&*error.kind, ErrorKind::Command(error) if error.code == UNAUTHORIZED)
}

/// Returns the clients' operations, without the one that asks.
fn sessions(answer: &Document) -> Vec<Session> {
    let operations = answer.get_array("inprog").map_or(&[][..], Vec::as_slice);
    let of_clients = operations.iter().filter_map(Bson::as_document).filter(|operation| {
        let from_client = ["client", "client_s"].iter().any(|key| operation.contains_key(key));
        from_client && !command(operation).is_some_and(|command| command.contains_key("currentOp"))
    });
    of_clients.take(SESSIONS_MAX).map(session).collect()
}

fn session(operation: &Document) -> Session {
    let state = state(operation);
    Session {
        id: match operation.get("opid").or_else(|| operation.get("connectionId")) {
            Some(Bson::String(id)) => id.clone(),
            Some(id) => number(id).map(|id| id.to_string()).unwrap_or_default(),
            None => String::new(),
        },
        statement: statement(operation),
        state,
        blocked_by: Vec::new(),
    }
}

fn state(operation: &Document) -> SessionState {
    let is = |key: &str| operation.get_bool(key).unwrap_or(false);
    let waiting = |kind, name| SessionState::Waiting(SessionWait::new(kind, name));
    let conflicts = operation.get("writeConflicts").and_then(number).unwrap_or(0);
    if is("waitingForLock") {
        waiting(SessionWaitKind::Lock, "waitingForLock")
    } else if conflicts >= CONFLICTS_FROM {
        waiting(SessionWaitKind::Lock, "writeConflicts")
    } else if is("waitingForFlowControl") {
        waiting(SessionWaitKind::Other, "waitingForFlowControl")
    } else if is("waitingForLatch") || operation.get_document("waitingForLatch").is_ok() {
        waiting(SessionWaitKind::Other, "waitingForLatch")
    } else if is("active") {
        SessionState::Running
    } else if operation.get_document("transaction").is_ok() {
        SessionState::IdleInTransaction
    } else {
        SessionState::Idle
    }
}

/// Describes an operation by its command and collection: its filter contains data.
fn statement(operation: &Document) -> String {
    let command = command(operation).and_then(|command| command.keys().next());
    let op = operation.get_str("op").unwrap_or_default();
    let name = command.map_or(op, String::as_str);
    let namespace = operation.get_str("ns").unwrap_or_default();
    let desc = operation.get_str("desc").unwrap_or_default();
    match (name, namespace) {
        ("" | "none", "") => shortened(desc),
        _ => shortened(&format!("{name} {namespace}")),
    }
}

fn command(operation: &Document) -> Option<&Document> {
    operation.get_document("command").ok()
}

fn number(value: &Bson) -> Option<i64> {
    match value {
        Bson::Int32(n) => Some(i64::from(*n)),
        Bson::Int64(n) => Some(*n),
        Bson::Double(n) => Some(*n as i64),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The form of the manual's page on `currentOp`, with its fields that matter here.
    #[test]
    fn operations_of_the_documented_form_are_read() {
        let operation = |id: Bson, rest: Document| {
            let mut one = doc! {
                "type": "op", "host": "db:27017", "desc": "conn12", "client": "10.0.0.9:51262",
                "active": true, "opid": id, "secs_running": 1_i64, "op": "update",
                "ns": "shop.products", "waitingForLock": false, "numYields": 0_i64,
                "command": { "update": "products", "q": { "_id": "a name" } },
            };
            one.extend(rest);
            one
        };
        let mut internal = operation(Bson::Int32(6), doc! { "desc": "TTLMonitor" });
        internal.remove("client");
        let answer = doc! { "ok": 1.0, "inprog": [
            operation(Bson::Int32(1), doc! { "waitingForLock": true }),
            operation(Bson::String("shard01:2".to_owned()), doc! { "writeConflicts": 3_i64 }),
            operation(Bson::Int64(3), doc! { "command": { "currentOp": 1 } }),
            operation(Bson::Int32(4), doc! {}),
            operation(Bson::Int32(5), doc! {
                "active": false, "op": "none", "ns": "", "desc": "inactive transaction",
                "command": {}, "transaction": { "parameters": {} },
            }),
            internal,
        ] };
        let found: Vec<(String, String, String)> = sessions(&answer)
            .into_iter()
            .map(|session| (session.id, session.state.words(), session.statement))
            .collect();
        let row = |id: &str, state: &str, statement: &str| {
            (id.to_owned(), state.to_owned(), statement.to_owned())
        };
        let expected = [
            row("1", "waiting for Lock (waitingForLock)", "update shop.products"),
            row("shard01:2", "waiting for Lock (writeConflicts)", "update shop.products"),
            row("4", "running", "update shop.products"),
            row("5", "idle in transaction", "inactive transaction"),
        ];
        assert_eq!(found, expected);
        assert_eq!(sessions(&doc! { "ok": 1.0 }), []);
    }
}
