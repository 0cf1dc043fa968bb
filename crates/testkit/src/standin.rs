//! Stand-in for MongoDB, for tests without a `mongod`. It speaks the wire protocol over TCP, keeps
//! documents and an oplog in memory, and causes the faults that a test selects.
//!
//! It is no MongoDB: its answers have the form of the manual and of the drivers' specifications,
//! and its consistency is a lock. docs/mongodb.md lists the properties that only a real replica set
//! can show.
//!
//!
//! Reading order: this file (start, stop, switches), `world` (shared state), `connection`, `wire`,
//! `commands`, then `store`, `reads`, `writes`, `indexes`, `transactions`, `stream`, `event`, and
//! the small ones: `filter`, `shape`, `update`, `value`, `failure`.

use std::collections::BTreeMap;
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use mongodb::bson::oid::ObjectId;
use mongodb::bson::{Document, doc};

mod commands;
mod connection;
mod event;
mod failure;
mod filter;
mod indexes;
mod reads;
mod shape;
mod store;
mod stream;
mod transactions;
mod update;
mod value;
mod wire;
mod world;
mod writes;

use event::TokenForm;
pub use failure::Failure;
use store::Store;
pub use world::{Fault, Kind};
use world::{Rule, Shared, World};

/// Environment variable that makes the resume tokens of all replica sets opaque.
const OPAQUE_VARIABLE: &str = "HOTROW_TEST_MONGODB_OPAQUE";
const CONNECTIONS_MAX: usize = 512;
/// Interval between two checks of an awaited condition.
const CHECK_EVERY: Duration = Duration::from_millis(2);
const PATIENCE: Duration = Duration::from_secs(30);
const SET_NAME: &str = "rs0";

/// Deployment in this process; dropping it stops it.
pub struct Standin {
    shared: Arc<Shared>,
    members: Vec<Member>,
}

/// Member with its address.
struct Member {
    port: u16,
    running: Option<(Arc<AtomicBool>, JoinHandle<()>)>,
}

impl Standin {
    /// Starts a replica set of one member.
    #[track_caller]
    pub fn start() -> Self {
        Self::of(Kind::ReplicaSet, 1)
    }

    /// Starts a deployment of this kind with `members` members; the first is primary.
    #[track_caller]
    pub fn of(kind: Kind, members: usize) -> Self {
        let listeners: Vec<TcpListener> =
            (0..members).map(|_| TcpListener::bind("127.0.0.1:0").expect("a port")).collect();
        Self::listening(kind, listeners)
    }

    /// Starts a new replica set of one member at the address of an earlier one, which must be gone.
    #[track_caller]
    pub fn at(port: u16) -> Self {
        Self::listening(Kind::ReplicaSet, vec![listen(port)])
    }

    fn listening(kind: Kind, listeners: Vec<TcpListener>) -> Self {
        let ports: Vec<u16> =
            listeners.iter().map(|l| l.local_addr().expect("an address").port()).collect();
        let mut store = Store::new();
        if kind == Kind::ReplicaSet && std::env::var_os(OPAQUE_VARIABLE).is_some() {
            store.token_form = TokenForm::Opaque;
        }
        let id = ObjectId::new();
        if kind == Kind::Mongos {
            let ns = ("config".to_owned(), "version".to_owned());
            let key = value::canonical(&1.into());
            let raw = reads::reply(&doc! { "_id": 1, "clusterId": id }).expect("a plain document");
            let after = Some(Arc::new(raw));
            store.apply(
                vec![store::Effect {
                    ns,
                    key,
                    id: 1.into(),
                    operation: store::Operation::Insert,
                    after,
                }],
                false,
            );
        }
        let world = World {
            kind,
            set_name: SET_NAME.to_owned(),
            id,
            version: "7.0.14".to_owned(),
            wire_version: 21,
            hosts: ports.iter().map(|port| format!("127.0.0.1:{port}")).collect(),
            primary: Some(0),
            term: 1,
            store,
            cursors: BTreeMap::new(),
            // As on a real server, cursor ids are larger than 32 bits.
            next_cursor: 1 << 40,
            transactions: BTreeMap::new(),
            answered_writes: BTreeMap::new(),
            rules: Vec::new(),
            held: BTreeMap::new(),
            counts: BTreeMap::new(),
            connections: BTreeMap::new(),
            next_connection: 0,
            refuse_connections: false,
            ended: false,
        };
        let shared = Arc::new(Shared::new(world));
        let mut standin = Self { shared, members: Vec::new() };
        for (n, listener) in listeners.into_iter().enumerate() {
            let port = ports[n];
            standin
                .members
                .push(Member { port, running: Some(accept(&standin.shared, n, listener)) });
        }
        standin
    }

    /// Returns a connection string to this database that names all members.
    pub fn url(&self, database: &str) -> String {
        let world = self.shared.lock();
        let set = if world.kind == Kind::ReplicaSet {
            format!("?replicaSet={}", world.set_name)
        } else {
            String::new()
        };
        format!("mongodb://{}/{database}{set}", world.hosts.join(","))
    }

    pub fn port(&self, member: usize) -> u16 {
        self.members[member].port
    }

    /// Stops a member as if its machine failed: its connections end, and its address no longer
    /// answers.
    pub fn stop(&mut self, member: usize) {
        if self.shared.lock().primary == Some(member) {
            self.step_down();
        }
        self.close(member);
    }

    fn close(&mut self, member: usize) {
        if let Some((stopping, thread)) = self.members[member].running.take() {
            stopping.store(true, Ordering::Release);
            // Wakes the thread from waiting for a connection.
            _ = TcpStream::connect(("127.0.0.1", self.members[member].port));
            thread.join().expect("it does not panic");
            self.shared.with(|world| world.cut(Some(member)));
        }
    }

    /// Starts a stopped member again with all stored data; it becomes primary if there is none.
    #[track_caller]
    pub fn restart(&mut self, member: usize) {
        let listener = listen(self.members[member].port);
        self.members[member].running = Some(accept(&self.shared, member, listener));
        if self.shared.lock().primary.is_none() {
            self.elect(member);
        }
    }

    /// Leaves the set without a primary: cursors are closed, operations in progress are
    /// interrupted.
    pub fn step_down(&self) {
        self.shared.with(|world| {
            world.primary = None;
            world.term += 1;
            world.cursors.clear();
            world.transactions.clear();
        });
    }

    /// Makes another member the primary.
    pub fn elect(&self, member: usize) {
        self.step_down();
        self.shared.with(|world| world.primary = Some(member));
    }
}

fn listen(port: u16) -> TcpListener {
    let end = Instant::now() + PATIENCE;
    loop {
        match TcpListener::bind(("127.0.0.1", port)) {
            Ok(listener) => return listener,
            Err(error) => assert!(Instant::now() < end, "port {port}: {error}"),
        }
        std::thread::sleep(CHECK_EVERY);
    }
}

fn accept(
    shared: &Arc<Shared>,
    member: usize,
    listener: TcpListener,
) -> (Arc<AtomicBool>, JoinHandle<()>) {
    let shared = Arc::clone(shared);
    let stopping = Arc::new(AtomicBool::new(false));
    let stop_requested = Arc::clone(&stopping);
    let thread = std::thread::spawn(move || {
        for stream in listener.incoming() {
            if stop_requested.load(Ordering::Acquire) {
                return;
            }
            let Ok(stream) = stream else { continue };
            let admitted = shared.with(|world| {
                let copy = stream.try_clone().ok().filter(|_| {
                    !world.refuse_connections && world.connections.len() < CONNECTIONS_MAX
                })?;
                world.next_connection += 1;
                world.connections.insert(world.next_connection, (member, copy));
                Some(world.next_connection)
            });
            if let Some(connection) = admitted {
                let shared = Arc::clone(&shared);
                let context = commands::ConnectionContext { member, connection };
                std::thread::spawn(move || connection::serve(&shared, stream, &context));
            }
        }
    });
    (stopping, thread)
}

/// Switches.
impl Standin {
    /// Holds the visibility of later changes back. They are in the oplog and in the streams, but
    /// majority reads do not see them; reads that require their time wait until
    /// [`Self::release_visibility`].
    pub fn hold_visibility(&self) {
        self.shared.with(|world| world.store.hold());
    }

    /// Makes all changes visible to majority reads.
    pub fn release_visibility(&self) {
        self.shared.with(|world| world.store.release());
    }

    /// Makes resume tokens opaque, as those of other vendors' servers are.
    pub fn make_tokens_opaque(&self) {
        self.shared.with(|world| world.store.token_form = TokenForm::Opaque);
    }

    /// Deletes the oplog up to now; streams that have not read it cannot continue.
    pub fn prune_oplog(&self) {
        self.shared.with(|world| world.store.prune());
    }

    /// Applies `fault` to every command of this name (`*`: any command; `watch`: the opening of a
    /// change stream).
    pub fn inject(&self, command: &str, fault: Fault) {
        self.inject_times(command, fault, None);
    }

    /// Applies `fault` at most `left` times.
    pub fn inject_times(&self, command: &str, fault: Fault, left: Option<u32>) {
        let rule = Rule { command: command.to_owned(), fault, left };
        self.shared.with(|world| world.rules.push(rule));
    }

    /// Removes the faults of this name.
    pub fn clear_faults(&self, command: &str) {
        self.shared.with(|world| world.rules.retain(|rule| rule.command != command));
    }

    /// Closes all connections, or those to one member.
    pub fn cut(&self, member: Option<usize>) {
        self.shared.with(|world| world.cut(member));
    }

    /// Sets whether new connections are closed at once.
    pub fn refuse_connections(&self, refuse: bool) {
        self.shared.with(|world| world.refuse_connections = refuse);
    }

    /// Keeps old versions from now on, for reads at a cluster time.
    pub fn keep_versions(&self) {
        self.shared.with(|world| world.store.keeps_versions = true);
    }

    /// Sets the reported version and wire version (4.2 has 8, 4.4 has 9, 7.0 has 21).
    pub fn pretend(&self, version: &str, wire: i32) {
        self.shared.with(|world| {
            world.version = version.to_owned();
            world.wire_version = wire;
        });
    }
}

/// Observations.
impl Standin {
    /// Returns the number of received commands of this name.
    pub fn commands(&self, name: &str) -> u64 {
        self.shared.lock().counts.get(name).copied().unwrap_or_default()
    }

    /// Returns the number of held answers to commands of this name.
    pub fn held(&self, name: &str) -> usize {
        self.shared.lock().held.get(name).copied().unwrap_or_default()
    }

    pub fn connections(&self) -> usize {
        self.shared.lock().connections.len()
    }

    pub fn streams(&self) -> usize {
        commands::streams(&self.shared.lock())
    }

    /// Returns the newest cluster time, as seconds and increment in one number.
    pub fn now(&self) -> u64 {
        self.shared.lock().store.now()
    }

    /// Returns the reported id of the set or of the sharded cluster.
    pub fn id(&self) -> ObjectId {
        self.shared.lock().id
    }

    /// Returns the options of a collection, if it exists.
    pub fn collection(&self, database: &str, name: &str) -> Option<Document> {
        let ns = (database.to_owned(), name.to_owned());
        self.shared.lock().store.collection(&ns).map(|collection| collection.options.clone())
    }
}

impl Drop for Standin {
    fn drop(&mut self) {
        self.shared.with(|world| {
            world.ended = true;
            world.rules.clear();
            world.cut(None);
        });
        for member in 0..self.members.len() {
            self.close(member);
        }
    }
}
