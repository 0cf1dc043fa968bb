//! A TCP proxy between the service and PostgreSQL that a test disturbs while traffic flows: it delays, holds back, cuts and
//! refuses, each kind of connection apart from the others and each direction by itself. For other servers it takes all
//! connections for one kind.
//!
//! One thread moves all bytes; what it holds of a connection is bounded, so a held direction presses back as a full network
//! does. A change has taken hold when the call that makes it returns.
#![allow(
    dead_code,
    unreachable_pub,
    clippy::panic,
    reason = "several test binaries use a part each, and fail by panicking"
)]

use std::io::Write as _;
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::Duration;

#[path = "proxy/link.rs"]
mod link;
#[path = "proxy/mover.rs"]
mod mover;
#[path = "proxy/startup.rs"]
mod startup;

/// How long a change may take to take hold.
const PATIENCE: Duration = Duration::from_secs(15);

/// What a connection is for, by its startup message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Queries for records.
    Readers,
    /// The feed's own SQL: probes, snapshots, catalogue.
    FeedSql,
    /// The stream of changes.
    Replication,
}

/// All of them.
pub const CLASSES: [Class; 3] = [Class::Readers, Class::FeedSql, Class::Replication];
/// The two that make up the feed.
pub const FEED: [Class; 2] = [Class::FeedSql, Class::Replication];

/// Which way bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// From the service.
    ToServer,
    /// From PostgreSQL.
    ToService,
}

/// Both.
pub const BOTH: [Way; 2] = [Way::ToServer, Way::ToService];

/// A running proxy; all its connections are cut when it is dropped.
pub struct Proxy {
    port: u16,
    shared: Arc<Shared>,
    wake: UnixStream,
    thread: Option<JoinHandle<()>>,
}

/// What the test wants and what the mover did.
struct Shared {
    control: Mutex<Control>,
    obeyed: Condvar,
}

#[derive(Clone, Copy, Debug)]
struct Control {
    /// Counts changes; the mover copies it when it has obeyed.
    wanted: u64,
    done: u64,
    target: u16,
    /// What every connection is; none: its first message tells.
    class: Option<Class>,
    ways: [[Conduct; 2]; 3],
    refused: [bool; 3],
    /// Connections to cut now.
    cut: [bool; 3],
    stop: bool,
    /// Open connections.
    open: [u64; 3],
    /// Connections that were taken since the start.
    taken: [u64; 3],
    /// Bytes delivered since the start.
    bytes: [[u64; 2]; 3],
    /// Bytes that are delayed or held.
    waiting: [[u64; 2]; 3],
}

/// How one direction is treated.
#[derive(Clone, Copy, Debug, Default)]
struct Conduct {
    delay: Duration,
    held: bool,
}

impl Proxy {
    /// A proxy on a free port that leads to that port on 127.0.0.1, where PostgreSQL is.
    pub fn start(target: u16) -> Self {
        Self::of(target, None)
    }

    /// The same before any other server; all connections are of this class.
    pub fn plain(target: u16, class: Class) -> Self {
        Self::of(target, Some(class))
    }

    fn of(target: u16, class: Option<Class>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = listener.local_addr().expect("bound").port();
        let (wake, woken) = UnixStream::pair().expect("a pair");
        let control = Control {
            wanted: 0,
            done: 0,
            target,
            class,
            ways: Default::default(),
            refused: [false; 3],
            cut: [false; 3],
            stop: false,
            open: [0; 3],
            taken: [0; 3],
            bytes: [[0; 2]; 3],
            waiting: [[0; 2]; 3],
        };
        let shared = Arc::new(Shared { control: Mutex::new(control), obeyed: Condvar::new() });
        let moving = shared.clone();
        let thread = std::thread::spawn(move || mover::run(&moving, &listener, &woken));
        Self { port, shared, wake, thread: Some(thread) }
    }

    /// Where the service connects, on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The superuser's connection string by way of the proxy, for the database `postgres`.
    pub fn url(&self) -> String {
        format!("postgres://postgres@127.0.0.1:{}/postgres", self.port)
    }

    /// Bytes take so much longer, in order; those on their way are held to it too.
    #[track_caller]
    pub fn delay(&self, classes: &[Class], ways: &[Way], delay: Duration) {
        self.conduct(classes, ways, |conduct| conduct.delay = delay);
    }

    /// Nothing is delivered any more, and nothing is closed: neither bytes nor the end of a connection get through.
    #[track_caller]
    pub fn hold(&self, classes: &[Class], ways: &[Way]) {
        self.conduct(classes, ways, |conduct| conduct.held = true);
    }

    /// Ends [`Self::hold`]; what was held is delivered.
    #[track_caller]
    pub fn release(&self, classes: &[Class], ways: &[Way]) {
        self.conduct(classes, ways, |conduct| conduct.held = false);
    }

    /// Resets the connections that are open now, at both ends; new ones may come.
    #[track_caller]
    pub fn cut(&self, classes: &[Class]) {
        self.change(|control| classes.iter().for_each(|class| control.cut[*class as usize] = true));
    }

    /// New connections are reset as soon as they say what they are.
    #[track_caller]
    pub fn refuse(&self, classes: &[Class], refused: bool) {
        self.change(|control| classes.iter().for_each(|class| control.refused[*class as usize] = refused));
    }

    /// New connections lead to this port.
    #[track_caller]
    pub fn lead_to(&self, target: u16) {
        self.change(|control| control.target = target);
    }

    /// Ends all disturbance.
    #[track_caller]
    pub fn calm(&self) {
        self.change(|control| (control.ways, control.refused) = Default::default());
    }

    /// Connections that are open.
    pub fn open(&self, class: Class) -> u64 {
        self.control().open[class as usize]
    }

    /// Connections taken since the start.
    pub fn taken(&self, class: Class) -> u64 {
        self.control().taken[class as usize]
    }

    /// Bytes delivered since the start.
    pub fn bytes(&self, class: Class, way: Way) -> u64 {
        self.control().bytes[class as usize][way as usize]
    }

    /// Bytes that are delayed or held now.
    pub fn waiting(&self, class: Class, way: Way) -> u64 {
        self.control().waiting[class as usize][way as usize]
    }

    #[track_caller]
    fn conduct(&self, classes: &[Class], ways: &[Way], change: impl Fn(&mut Conduct)) {
        self.change(|control| {
            for class in classes {
                ways.iter().for_each(|way| change(&mut control.ways[*class as usize][*way as usize]));
            }
        });
    }

    /// Makes a change and waits until the mover has obeyed.
    #[track_caller]
    fn change(&self, change: impl FnOnce(&mut Control)) {
        let mut control = self.control();
        change(&mut control);
        control.wanted += 1;
        let wanted = control.wanted;
        self.wake();
        let (control, waited) = self
            .shared
            .obeyed
            .wait_timeout_while(control, PATIENCE, |control| control.done < wanted)
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        assert!(!waited.timed_out(), "the proxy does not obey");
        drop(control);
    }

    fn control(&self) -> MutexGuard<'_, Control> {
        self.shared.control()
    }

    fn wake(&self) {
        // Full means that it will wake anyway.
        _ = (&self.wake).write(&[1]);
    }
}

impl Shared {
    /// The mover panics only with a bug of its own; a test that already fails must not fail differently for it.
    fn control(&self) -> MutexGuard<'_, Control> {
        self.control.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.control().stop = true;
        self.wake();
        let ended = self.thread.take().map(JoinHandle::join);
        assert!(std::thread::panicking() || ended.is_none_or(|ended| ended.is_ok()), "the proxy's thread panicked");
    }
}

/// Closes with a reset, as a firewall or a crash does.
fn reset(stream: &TcpStream) {
    // Where the connection is gone already, that is what was wanted.
    _ = socket2::SockRef::from(stream).set_linger(Some(Duration::ZERO));
}
