//! A stand-in for MongoDB, for tests where no `mongod` can be: it speaks the wire protocol over TCP, keeps documents and an
//! oplog in memory, and does to its clients what the test wants. It is no MongoDB: its answers take the shapes of the manual
//! and of the drivers' specifications, its consistency is a lock. What only a real replica set can show is listed in
//! docs/mongodb.md.
//!
//! Included by `#[path]` into the tests of two crates; needs nothing but std and `mongodb`'s BSON.
//!
//! Reading order: this (start, stop, switches), `world` (what is shared), `connection`, `wire`, `commands`, then `store`,
//! `reads`, `writes`, `transactions`, `stream`, `event`, and the small ones: `filter`, `shape`, `update`, `value`, `failure`.
#![allow(
    dead_code,
    unreachable_pub,
    clippy::panic,
    reason = "several test binaries use a part each, and fail by panicking"
)]

use std::collections::BTreeMap;
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use mongodb::bson::oid::ObjectId;
use mongodb::bson::{Document, doc};

#[path = "commands.rs"]
mod commands;
#[path = "connection.rs"]
mod connection;
#[path = "event.rs"]
mod event;
#[path = "failure.rs"]
mod failure;
#[path = "filter.rs"]
mod filter;
#[path = "reads.rs"]
mod reads;
#[path = "shape.rs"]
mod shape;
#[path = "store.rs"]
mod store;
#[path = "stream.rs"]
mod stream;
#[path = "transactions.rs"]
mod transactions;
#[path = "update.rs"]
mod update;
#[path = "value.rs"]
mod value;
#[path = "wire.rs"]
mod wire;
#[path = "world.rs"]
mod world;
#[path = "writes.rs"]
mod writes;

pub use failure::Failure;
use store::Store;
pub use world::{Kind, Trouble};
use world::{Rule, Shared, World};

/// Connections at the same time.
const CONNECTIONS_MAX: usize = 512;
/// Between two looks at something awaited.
const LOOK_EVERY: Duration = Duration::from_millis(2);
/// How long something awaited may take.
const PATIENCE: Duration = Duration::from_secs(30);
/// What the members call themselves.
const SET_NAME: &str = "rs0";

/// A deployment in this process; gone when dropped.
pub struct Standin {
    shared: Arc<Shared>,
    members: Vec<Member>,
}

/// An address that may be listened at.
struct Member {
    port: u16,
    running: Option<(Arc<AtomicBool>, JoinHandle<()>)>,
}

impl Standin {
    /// A replica set of one member.
    #[track_caller]
    pub fn start() -> Self {
        Self::of(Kind::ReplicaSet, 1)
    }

    /// A deployment of this kind, with so many members; the first is primary.
    #[track_caller]
    pub fn of(kind: Kind, members: usize) -> Self {
        let listeners: Vec<TcpListener> =
            (0..members).map(|_| TcpListener::bind("127.0.0.1:0").expect("a port")).collect();
        Self::listening(kind, listeners)
    }

    /// A new replica set of one member at the address of an earlier one, which must be gone.
    #[track_caller]
    pub fn at(port: u16) -> Self {
        Self::listening(Kind::ReplicaSet, vec![listen(port)])
    }

    fn listening(kind: Kind, listeners: Vec<TcpListener>) -> Self {
        let ports: Vec<u16> = listeners.iter().map(|l| l.local_addr().expect("an address").port()).collect();
        let mut store = Store::new();
        let id = ObjectId::new();
        if kind == Kind::Mongos {
            let (ns, key) = (("config".to_owned(), "version".to_owned()), value::canonical(&1.into()));
            let raw = reads::reply(&doc! { "_id": 1, "clusterId": id }).expect("a plain document");
            let after = Some(Arc::new(raw));
            store.apply(vec![store::Effect { ns, key, id: 1.into(), what: store::What::Insert, after }], false);
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
            // As servers do, no small numbers: they are 64 bits wide.
            next_cursor: 1 << 40,
            transactions: BTreeMap::new(),
            made: BTreeMap::new(),
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
            standin.members.push(Member { port, running: Some(accept(&standin.shared, n, listener)) });
        }
        standin
    }

    /// A connection string to this database, naming all members.
    pub fn url(&self, database: &str) -> String {
        let world = self.shared.lock();
        let set =
            if world.kind == Kind::ReplicaSet { format!("?replicaSet={}", world.set_name) } else { String::new() };
        format!("mongodb://{}/{database}{set}", world.hosts.join(","))
    }

    /// The port of a member.
    pub fn port(&self, member: usize) -> u16 {
        self.members[member].port
    }

    /// Stops a member as if its machine went: its connections end, its address answers no more.
    pub fn stop(&mut self, member: usize) {
        if self.shared.lock().primary == Some(member) {
            self.step_down();
        }
        self.close(member);
    }

    fn close(&mut self, member: usize) {
        if let Some((stopping, thread)) = self.members[member].running.take() {
            stopping.store(true, Ordering::Release);
            // Wakes it from waiting for a connection.
            _ = TcpStream::connect(("127.0.0.1", self.members[member].port));
            thread.join().expect("it does not panic");
            self.shared.with(|world| world.cut(Some(member)));
        }
    }

    /// Starts a stopped member again, with all that is stored; it is primary if there is none.
    #[track_caller]
    pub fn restart(&mut self, member: usize) {
        let listener = listen(self.members[member].port);
        self.members[member].running = Some(accept(&self.shared, member, listener));
        if self.shared.lock().primary.is_none() {
            self.elect(member);
        }
    }

    /// No member is primary: cursors are gone, operations under way are interrupted.
    pub fn step_down(&self) {
        self.shared.with(|world| {
            world.primary = None;
            world.term += 1;
            world.cursors.clear();
            world.transactions.clear();
        });
    }

    /// Another member becomes primary.
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
        std::thread::sleep(LOOK_EVERY);
    }
}

fn accept(shared: &Arc<Shared>, member: usize, listener: TcpListener) -> (Arc<AtomicBool>, JoinHandle<()>) {
    let (shared, stopping) = (Arc::clone(shared), Arc::new(AtomicBool::new(false)));
    let told = Arc::clone(&stopping);
    let thread = std::thread::spawn(move || {
        for stream in listener.incoming() {
            if told.load(Ordering::Acquire) {
                return;
            }
            let Ok(stream) = stream else { continue };
            let admitted = shared.with(|world| {
                let copy = stream
                    .try_clone()
                    .ok()
                    .filter(|_| !world.refuse_connections && world.connections.len() < CONNECTIONS_MAX)?;
                world.next_connection += 1;
                world.connections.insert(world.next_connection, (member, copy));
                Some(world.next_connection)
            });
            if let Some(connection) = admitted {
                let shared = Arc::clone(&shared);
                let seat = commands::Seat { member, connection };
                std::thread::spawn(move || connection::serve(&shared, stream, &seat));
            }
        }
    });
    (stopping, thread)
}

/// Switches.
impl Standin {
    /// From now on changes are in the oplog and in the streams, and majority reads do not see them: those that ask for a time
    /// wait until [`Self::release_visibility`].
    pub fn hold_visibility(&self) {
        self.shared.with(|world| world.store.hold());
    }

    /// Majority reads see everything.
    pub fn release_visibility(&self) {
        self.shared.with(|world| world.store.release());
    }

    /// The oplog loses everything up to now; streams that have not read it yet cannot go on.
    pub fn prune_oplog(&self) {
        self.shared.with(|world| world.store.prune());
    }

    /// The trouble comes to every command of this name (`*`: of any; `watch`: the opening of a change stream).
    pub fn trouble(&self, command: &str, trouble: Trouble) {
        self.trouble_times(command, trouble, None);
    }

    /// The same, so many times at most.
    pub fn trouble_times(&self, command: &str, trouble: Trouble, left: Option<u32>) {
        let rule = Rule { command: command.to_owned(), trouble, left };
        self.shared.with(|world| world.rules.push(rule));
    }

    /// Takes the troubles of this name away.
    pub fn calm(&self, command: &str) {
        self.shared.with(|world| world.rules.retain(|rule| rule.command != command));
    }

    /// Closes all connections, or those to one member.
    pub fn cut(&self, member: Option<usize>) {
        self.shared.with(|world| world.cut(member));
    }

    /// Whether new connections are closed at once.
    pub fn refuse_connections(&self, refuse: bool) {
        self.shared.with(|world| world.refuse_connections = refuse);
    }

    /// Says that it is of this version; `wire`: as `hello` says it (4.2 is 8, 4.4 is 9, 7.0 is 21).
    pub fn pretend(&self, version: &str, wire: i32) {
        self.shared.with(|world| {
            world.version = version.to_owned();
            world.wire_version = wire;
        });
    }
}

/// What the test can see.
impl Standin {
    /// Commands of this name that came.
    pub fn commands(&self, name: &str) -> u64 {
        self.shared.lock().counts.get(name).copied().unwrap_or_default()
    }

    /// Answers to commands of this name that are held now.
    pub fn held(&self, name: &str) -> usize {
        self.shared.lock().held.get(name).copied().unwrap_or_default()
    }

    /// Connections that are open.
    pub fn connections(&self) -> usize {
        self.shared.lock().connections.len()
    }

    /// Change streams that are open.
    pub fn streams(&self) -> usize {
        commands::streams(&self.shared.lock())
    }

    /// The newest cluster time, as seconds and increment in one number.
    pub fn now(&self) -> u64 {
        self.shared.lock().store.now()
    }

    /// The ids that it tells of itself: of the set, or of the sharded cluster.
    pub fn id(&self) -> ObjectId {
        self.shared.lock().id
    }

    /// The options of a collection, if there is one.
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
